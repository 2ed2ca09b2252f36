//! Changes of the state that all workers share about a provider.

use smsq_process::boxed;
use smsq_store::Store;

use super::{Actor, OperationError};

/// Ends the wait that a provider asked for, for all workers and all sections of its account; returns whether it had
/// asked for one.
#[boxed]
pub async fn resume_provider(
    store: &Store,
    account: &str,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let detail = format!("ended the wait of provider `{account}`");
    let audited = actor.audited("resume", None, move |_| detail.clone());
    let now = store.now().await?;
    Ok(store.end_provider_pause(account, now, audited).await?)
}

/// Switches a sender of a provider's pool on or off, for all workers and imports; false if it was already.
#[boxed]
pub async fn switch_sender(
    store: &Store,
    provider: &str,
    sender: &str,
    on: bool,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let state = if on { "on" } else { "off" };
    let detail = format!("switched sender `{sender}` of provider `{provider}` {state}");
    let audited = actor.audited("set", None, move |_| detail.clone());
    let now = store.now().await?;
    let switched = store.switch_sender(provider, sender, on, now, audited);
    Ok(switched.await?)
}
