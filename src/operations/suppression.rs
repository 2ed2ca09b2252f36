//! Changes of the suppression list, the phones that no campaign sends to.

use super::{Actor, OperationError};
use crate::phone::{Phone, mask};
use crate::store::Store;
use crate::text::counted;

/// Adds phones in batches, and records them together.
pub struct Suppressing<'a> {
    store: &'a Store,
    /// A note for readers of the list.
    reason: Option<&'a str>,
    given: u64,
    added: u64,
}

impl<'a> Suppressing<'a> {
    pub fn new(store: &'a Store, reason: Option<&'a str>) -> Self {
        Self {
            store,
            reason,
            given: 0,
            added: 0,
        }
    }

    pub async fn add(&mut self, phones: Vec<Phone>) -> Result<(), OperationError> {
        self.given += phones.len() as u64;
        let rows = phones
            .into_iter()
            .map(|phone| (phone.into_string(), self.reason.map(str::to_owned)))
            .collect();
        self.added += self.store.suppress(rows, self.store.now().await?).await?;
        Ok(())
    }

    /// Records the change; returns how many phones were new, and how many were on the list already.
    pub async fn finish(self, actor: &Actor) -> Result<(u64, u64), OperationError> {
        if self.added > 0 {
            let detail = format!(
                "added {} to the suppression list",
                counted(self.added, "number")
            );
            actor.record(self.store, "suppress", None, detail).await?;
        }
        Ok((self.added, self.given - self.added))
    }
}

/// Adds one phone; returns whether it is new.
pub async fn suppress(
    store: &Store,
    phone: &Phone,
    reason: &str,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let row = (phone.as_str().to_owned(), Some(reason.to_owned()));
    let is_new = store.suppress(vec![row], store.now().await?).await? > 0;
    if is_new {
        let detail = format!("added {} to the suppression list", mask(phone.as_str()));
        actor.record(store, "suppress", None, detail).await?;
    }
    Ok(is_new)
}

/// Removes phones; returns how many were on the list.
pub async fn unsuppress(
    store: &Store,
    phones: Vec<Phone>,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let phones = phones.into_iter().map(Phone::into_string).collect();
    let removed = store.unsuppress(phones).await?;
    if removed > 0 {
        let detail = format!(
            "removed {} from the suppression list",
            counted(removed, "number")
        );
        actor.record(store, "unsuppress", None, detail).await?;
    }
    Ok(removed)
}
