//! Changes of the suppression list, the phones that no campaign sends to.

use smsq_message::phone::{Phone, mask};
use smsq_message::text::counted;
use smsq_process::boxed;
use smsq_store::{Audited, Store};

use super::{Actor, OperationError};

/// Adds phones in batches, with one entry in the audit log.
pub struct Suppressing<'a> {
    store: &'a Store,
    /// A note for readers of the list.
    reason: Option<&'a str>,
    given: u64,
    audited: Audited,
}

impl<'a> Suppressing<'a> {
    pub fn new(store: &'a Store, reason: Option<&'a str>, actor: &Actor) -> Self {
        Self {
            store,
            reason,
            given: 0,
            audited: actor.audited("suppress", None, |added| {
                format!("added {} to the suppression list", counted(added, "number"))
            }),
        }
    }

    #[boxed]
    pub async fn add(&mut self, phones: Vec<Phone>) -> Result<(), OperationError> {
        self.given += phones.len() as u64;
        let rows = phones
            .into_iter()
            .map(|phone| (phone.into_string(), self.reason.map(str::to_owned)))
            .collect();
        let now = self.store.now().await?;
        self.store.suppression().add(rows, now, &mut self.audited).await?;
        Ok(())
    }

    /// How many phones were new, and how many were on the list already.
    pub fn counts(&self) -> (u64, u64) {
        let added = *self.audited.done();
        (added, self.given - added)
    }
}

/// Adds one phone; returns whether it is new.
#[boxed]
pub async fn suppress(
    store: &Store,
    phone: &Phone,
    reason: &str,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let row = (phone.as_str().to_owned(), Some(reason.to_owned()));
    let detail = format!("added {} to the suppression list", mask(phone.as_str()));
    let mut audited = actor.audited("suppress", None, move |_| detail.clone());
    let now = store.now().await?;
    Ok(store.suppression().add(vec![row], now, &mut audited).await? > 0)
}

/// Removes phones; returns how many were on the list.
#[boxed]
pub async fn unsuppress(
    store: &Store,
    phones: Vec<Phone>,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let phones = phones.into_iter().map(Phone::into_string).collect();
    let audited = actor.audited("unsuppress", None, |removed| {
        let numbers = counted(removed, "number");
        format!("removed {numbers} from the suppression list")
    });
    Ok(store.suppression().remove(phones, store.now().await?, audited).await?)
}
