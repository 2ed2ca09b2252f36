//! The campaign of a failures file: that of the messages that its rows come from.

use std::collections::BTreeSet;

use super::error::ImportError;
use super::pipeline;
use super::plan::Plan;
use super::rows::Made;
use crate::store::{Store, StoreError};
use crate::text::listed;

/// So many campaigns are named.
const NAMED: usize = 5;

impl Plan {
    /// Makes the campaign of a failures file's messages its default one, where this database knows any of
    /// them; several campaigns are a fault. Any other file keeps its own name.
    pub async fn resolve_campaign(&mut self, store: &Store) -> Result<(), ImportError> {
        if !self.is_failures_file() {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        pipeline::stream(self.task(&self.unique(), false)?, async |parsed| {
            found.extend(campaigns_of(&parsed.rows, store).await?);
            Ok(())
        })
        .await?;
        if found.is_empty() {
            // All were replaced meanwhile: the same file again must not become a campaign of its own.
            found.extend(store.campaign_of_file(self.hash()).await?);
        }
        let ids: Vec<i64> = found.into_iter().collect();
        let mut names = store.campaign_names(&ids).await?.into_values();
        match (names.next(), names.len()) {
            (None, _) => {}
            (Some(name), 0) => self.belongs_to(name),
            (Some(first), others) => {
                let names: Vec<String> = std::iter::once(first).chain(names).collect();
                let mut campaigns = listed(names.iter().take(NAMED).map(String::as_str));
                if others >= NAMED {
                    campaigns.push_str(", …");
                }
                return Err(ImportError::Campaigns {
                    file: self.file().to_owned(),
                    campaigns,
                });
            }
        }
        Ok(())
    }
}

async fn campaigns_of(rows: &[Made], store: &Store) -> Result<BTreeSet<i64>, StoreError> {
    let ids: Vec<i64> = rows.iter().filter_map(|row| row.message.replaces).collect();
    let origins = store.origins(&ids).await?;
    let known = rows.iter().filter_map(|row| {
        let origin = origins.get(&row.message.replaces?)?;
        origin
            .shares_with(&row.message)
            .then_some(origin.campaign_id)
    });
    Ok(known.collect())
}
