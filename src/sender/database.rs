//! The database as one worker reaches it. In simulations it can be unavailable, slow, or lose an answer.

use std::sync::Arc;

use smsq_store::{CommitBatch, CommitCount, CommitResult, Store, StoreError};
use tokio::sync::RwLock;

#[cfg(test)]
use super::simulation::{ClaimLog, DbFaults};

#[derive(Clone)]
pub(super) struct Database {
    store: Store,
    /// Each running commit holds it.
    commits: Arc<RwLock<()>>,
    #[cfg(test)]
    pub(super) faults: Arc<DbFaults>,
    #[cfg(test)]
    pub(super) log: ClaimLog,
}

impl Database {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            commits: Arc::default(),
            #[cfg(test)]
            faults: Arc::default(),
            #[cfg(test)]
            log: ClaimLog::default(),
        }
    }

    /// The store, for one statement.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_async, reason = "a simulated database may be slow")
    )]
    pub(super) async fn reach(&self) -> Result<&Store, StoreError> {
        #[cfg(test)]
        self.faults.pass().await?;
        Ok(&self.store)
    }

    /// The error where a statement takes too long.
    pub(super) fn no_answer(&self) -> StoreError {
        self.store.no_answer()
    }

    /// Waits for the end of the commits that run now.
    pub(super) async fn commits_ended(&self) {
        drop(self.commits.write().await);
    }

    pub(super) async fn commit(
        &self,
        batch: Arc<CommitBatch>,
        count: &CommitCount,
    ) -> Result<CommitResult, StoreError> {
        let _running = self.commits.read().await;
        #[cfg(test)]
        let began = tokio::time::Instant::now();
        #[cfg(test)]
        self.faults.hold_up().await;
        let result = self.reach().await?.commit_counted(&batch, count).await?;
        #[cfg(test)]
        {
            self.faults.answer(&batch, &result).await?;
            self.log.add(began, &result);
        }
        Ok(result)
    }
}
