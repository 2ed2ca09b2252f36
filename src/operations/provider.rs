//! Changes of the state that all workers share about a provider.

use super::{Actor, OperationError};
use crate::store::Store;

/// Ends the wait that a provider asked for, for all workers; returns whether it had asked for one.
pub async fn resume_provider(
    store: &Store,
    provider: &str,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let detail = format!("ended the wait of provider `{provider}`");
    let audited = actor.audited("resume", None, move |_| detail.clone());
    let now = store.now().await?;
    Ok(store.end_provider_pause(provider, now, audited).await?)
}
