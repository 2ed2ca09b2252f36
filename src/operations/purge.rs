//! Deletes messages that were settled long ago, empty campaigns, or all data of one person. The counts stay.

use smsq_message::text::{counted, messages};
use smsq_process::boxed;
use smsq_store::{Audited, Purge, Purged, Removal, RetentionConfig, Store};

use super::{Actor, OperationError};

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
    let mut audited = audited(actor);
    while !is_stopped(audited.done())
        && store.next_purge(&mut purge, store.now().await?, &mut audited).await?.is_some()
    {}
    Ok(*audited.done())
}

/// Purges all messages to one phone, in all forms in which another program may have written it.
#[boxed]
pub async fn purge_person(
    store: &Store,
    phones: &[String],
    actor: &Actor,
) -> Result<Purged, OperationError> {
    let now = store.now().await?;
    Ok(store.purge_person(phones, now, audited(actor)).await?)
}

fn audited(actor: &Actor) -> Audited<Purged> {
    Audited::new(&actor.who, "purge", None, |done: &Purged| match (done.total(), done.campaigns) {
        (0, 0) => None,
        (0, campaigns) => Some(format!("purged {}", counted(campaigns, "empty campaign"))),
        (total, 0) => Some(format!("purged {}", messages(total))),
        (total, campaigns) => {
            Some(format!("purged {} and {}", messages(total), counted(campaigns, "empty campaign")))
        }
    })
}

/// Purges a limited number of messages that are older than the settings allow, and campaigns that it emptied.
#[boxed]
pub async fn apply_retention(
    store: &Store,
    retention: &RetentionConfig,
) -> Result<Purged, OperationError> {
    let mut audited = Audited::unrecorded();
    if let Some(age) = retention.age() {
        let now = store.now().await?;
        let mut purge = Purge::before(age.before(now), Some(Removal::Retention));
        for _ in 0..RETENTION_STEPS {
            let step = store.next_purge(&mut purge, now, &mut audited).await?;
            if step.is_none() {
                break;
            }
        }
    }
    Ok(*audited.done())
}
