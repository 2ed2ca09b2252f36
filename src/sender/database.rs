//! The database as one worker reaches it. In the simulation it can be away, slow, or lose an answer.

use std::sync::Arc;

#[cfg(test)]
use super::simulation::Weather;
use crate::store::{CommitBatch, CommitResult, Store, StoreError};

#[derive(Clone)]
pub(super) struct Database {
    store: Store,
    #[cfg(test)]
    pub(super) weather: Arc<Weather>,
}

impl Database {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            #[cfg(test)]
            weather: Arc::default(),
        }
    }

    /// The store, to ask it one thing.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_async, reason = "a simulated database may be slow")
    )]
    pub(super) async fn reach(&self) -> Result<&Store, StoreError> {
        #[cfg(test)]
        self.weather.pass().await?;
        Ok(&self.store)
    }

    /// Does the round in one transaction.
    pub(super) async fn round(&self, round: Arc<CommitBatch>) -> Result<CommitResult, StoreError> {
        let done = self.reach().await?.commit(&round).await?;
        #[cfg(test)]
        self.weather.answer(&round, &done).await?;
        Ok(done)
    }
}
