//! Deletes messages that were settled long ago, empty campaigns, or all data of one person. The counts stay.

use super::{Actor, OperationError};
use crate::store::{Purge, Purged, Removal, RetentionConfig, Store};
use crate::text::{counted, messages};

/// Steps of at most 1,000 messages that a command purges before its own work.
const RETENTION_STEPS: u32 = 100;

/// Purges in steps of at most 1,000 messages until nothing is left, or until `is_stopped` returns true; it gets what
/// was purged so far.
pub async fn purge(
    store: &Store,
    mut purge: Purge,
    actor: &Actor,
    is_stopped: impl Fn(&Purged) -> bool,
) -> Result<Purged, OperationError> {
    let mut done = Purged::default();
    while !is_stopped(&done)
        && let Some(step) = store.next_purge(&mut purge, store.now().await?).await?
    {
        done += step;
    }
    record(store, &done, actor).await?;
    Ok(done)
}

/// Purges all messages to one phone, in all forms in which another program may have written it.
pub async fn purge_person(
    store: &Store,
    phones: &[String],
    actor: &Actor,
) -> Result<Purged, OperationError> {
    let done = store.purge_person(phones, store.now().await?).await?;
    record(store, &done, actor).await?;
    Ok(done)
}

async fn record(store: &Store, done: &Purged, actor: &Actor) -> Result<(), OperationError> {
    let detail = match (done.total(), done.campaigns) {
        (0, 0) => return Ok(()),
        (0, campaigns) => format!("purged {}", counted(campaigns, "empty campaign")),
        (total, 0) => format!("purged {}", messages(total)),
        (total, campaigns) => format!(
            "purged {} and {}",
            messages(total),
            counted(campaigns, "empty campaign")
        ),
    };
    Ok(actor.record(store, "purge", None, detail).await?)
}

/// Purges a limited number of messages that are older than the settings allow, and campaigns that it emptied.
pub async fn apply_retention(
    store: &Store,
    retention: &RetentionConfig,
) -> Result<Purged, OperationError> {
    let mut done = Purged::default();
    let Some(age) = retention.age() else {
        return Ok(done);
    };
    let now = store.now().await?;
    let mut purge = Purge::before(age.before(now), Some(Removal::Retention));
    for _ in 0..RETENTION_STEPS {
        let Some(step) = store.next_purge(&mut purge, now).await? else {
            break;
        };
        done += step;
    }
    Ok(done)
}
