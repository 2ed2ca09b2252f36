//! Changes of the state that all workers share about a provider.

use super::{Actor, OperationError};
use crate::store::Store;

/// Ends the wait that a provider asked for, for all workers; returns whether it had asked for one.
pub async fn resume_provider(
    store: &Store,
    provider: &str,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let was_paused = store
        .end_provider_pause(provider, store.now().await?)
        .await?;
    if was_paused {
        let detail = format!("ended the wait of provider `{provider}`");
        actor.record(store, "resume", None, detail).await?;
    }
    Ok(was_paused)
}
