//! Finds the campaign of a failures file: that of the failed messages that its rows replace.

use std::collections::BTreeSet;

use super::error::ImportError;
use super::pipeline;
use super::plan::Plan;
use crate::store::Store;
use crate::text::listed;

/// How many campaigns an error lists.
const MAX_LISTED: usize = 5;

impl Plan {
    /// Makes the campaign of a failures file the default one, if the database knows any of its messages.
    /// Fails if they are of several campaigns.
    pub async fn resolve_campaign(&mut self, store: &Store) -> Result<(), ImportError> {
        if !self.is_failures_file() {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        pipeline::stream(self.task(&self.unique(), false)?, async |parsed| {
            let rows = || parsed.rows.iter().map(|row| &row.message);
            let ids: Vec<i64> = rows().filter_map(|row| row.replaces).collect();
            let origins = store.origins(&ids).await?;
            found.extend(rows().filter_map(|row| {
                let origin = origins.get(&row.replaces?)?;
                origin.shares_with(row).then_some(origin.campaign_id)
            }));
            Ok(())
        })
        .await?;
        if found.is_empty() {
            // All were replaced by an earlier import: the same file again goes to the same campaign.
            found.extend(store.campaign_of_file(self.hash()).await?);
        }
        let ids: Vec<i64> = found.into_iter().collect();
        let names: Vec<String> = store.campaign_names(&ids).await?.into_values().collect();
        if names.len() > 1 {
            let more = if names.len() > MAX_LISTED {
                ", …"
            } else {
                ""
            };
            let listed = listed(names.iter().take(MAX_LISTED).map(String::as_str));
            return Err(ImportError::hinted(
                format!(
                    "the rows of `{}` are messages of several campaigns: {listed}{more}",
                    self.file()
                ),
                "choose one with `--campaign NAME`, or import one campaign at a time: \
                 `smsq report --campaign NAME --failed` has the failures of one",
            ));
        }
        if let Some(name) = names.into_iter().next() {
            self.set_default_campaign(name);
        }
        Ok(())
    }
}
