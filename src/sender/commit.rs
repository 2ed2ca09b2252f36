//! How the clerk's round is committed: a database that is away is waited for, with the results in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::clerk::Clerk;
use crate::sms::Timestamp;
use crate::store::{Round, RoundDone, StoreError};

/// So long the clerk waits for a database that is away, with its results in memory.
pub(super) const DATABASE_PATIENCE: Duration = Duration::from_secs(600);
/// And so long once it has been told to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// The longest that a round is expected to take.
const LONGEST_COMMIT: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Clerk {
    /// Commits the round; a database that is away is waited for, and nothing new is claimed meanwhile.
    pub(super) async fn commit(&mut self, round: &Arc<Round>) -> Result<RoundDone, StoreError> {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut round = Arc::clone(round);
        loop {
            let started = Instant::now();
            let error = match self.database.round(Arc::clone(&round)).await {
                Ok(done) => {
                    self.note_commit(started.elapsed(), wait != FIRST_WAIT);
                    return Ok(done);
                }
                Err(error) => error,
            };
            let patience = if self.is_stopping() {
                LAST_PATIENCE
            } else {
                DATABASE_PATIENCE
            };
            if !error.passes() && !round.claims.is_empty() {
                // Nothing more can be claimed; what is known must be settled all the same.
                let settling = Arc::new(round.without_claims(self.clock.now()));
                self.database.round(settling).await?;
                return Err(error);
            }
            if !error.passes() || began.elapsed() >= patience {
                return Err(error);
            }
            if wait == FIRST_WAIT {
                tracing::warn!(%error, results = round.settlements.len(), "the database is away; results wait in memory");
                self.progress
                    .set_note(Some(format!("{error}; results wait in memory")));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            round = Arc::new(round.without_claims(self.clock.now()));
        }
    }

    fn note_commit(&mut self, took: Duration, was_away: bool) {
        if was_away {
            tracing::warn!("the database is back");
            self.progress.set_note(None);
        }
        // The slowest of late: moments must not begin before their rows are committed.
        self.commit = took.max(self.commit.mul_f64(0.9)).min(LONGEST_COMMIT);
    }
}

impl Round {
    pub(super) fn is_idle(&self) -> bool {
        self.settlements.is_empty()
            && self.halts.is_empty()
            && self.stops.is_empty()
            && self.claims.is_empty()
    }

    fn without_claims(&self, now: Timestamp) -> Self {
        Self {
            worker_id: self.worker_id,
            now,
            reach: self.reach,
            settlements: self.settlements.clone(),
            halts: self.halts.clone(),
            stops: self.stops.clone(),
            refill: self.refill,
            claims: Vec::new(),
            caps: self.caps.clone(),
            admit: Arc::clone(&self.admit),
            fill: Arc::clone(&self.fill),
        }
    }
}
