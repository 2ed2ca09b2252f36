//! Commits what the dispatcher planned. A known result is never discarded: the worker waits for a
//! database that is away, splits a commit that fails until the settlement at fault is alone, and leaves
//! what cannot be stored before it ends to the next worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::context::WorkerContext;
use super::journal::{Journal, JournalFile};
use crate::queue::{Settlement, Transition};
use crate::sms::Timestamp;
use crate::store::{CommitBatch, CommitResult, StoreError, StoreErrorKind};

/// How long to wait for a database that is away.
pub(super) const DATABASE_PATIENCE: Duration = Duration::from_secs(600);
/// How long after the stop signal.
const STOPPING_PATIENCE: Duration = Duration::from_secs(10);
/// How long a settlement is retried that fails while others are stored.
const SINGLE_PATIENCE: Duration = Duration::from_secs(30);
/// The longest that a commit is expected to take.
const LONGEST_COMMIT: Duration = Duration::from_secs(5);
/// A commit that takes longer than this, and than twice the expected time, may be an exception.
const STALL: Duration = Duration::from_millis(100);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The most settlements of one transaction.
const MAX_SETTLEMENTS: usize = 1_000;
/// Where this many settlements fail alone and none is stored, the database is at fault.
const SUSPECTS: usize = 3;

/// A settlement that failed alone, while others were stored.
struct Unstored {
    settlement: Settlement,
    since: Instant,
    again_at: Instant,
    wait: Duration,
}

/// Commits a worker's batches, one at a time.
pub(super) struct Committer {
    context: Arc<WorkerContext>,
    journal: Journal,
    /// What is being committed, or could not be.
    committing: Option<Arc<CommitBatch>>,
    unstored: Vec<Unstored>,
    /// When something was committed last.
    stored_at: Option<Instant>,
    /// Since when every claim has failed, the wait between two, and the last error.
    claims_fail: Option<(Instant, Duration, StoreError)>,
    /// Nothing is claimed before this.
    claim_at: Option<Instant>,
    expected: Duration,
}

/// What was committed.
#[derive(Default)]
pub(super) struct CommitOutcome {
    pub(super) result: CommitResult,
    /// The first commit with the claims failed, but it may have been stored: the permits in it are void.
    pub(super) lost_claims: bool,
}

/// How long a commit has been tried.
struct Waiting {
    began: Instant,
    wait: Duration,
}

impl Waiting {
    fn has_waited(&self) -> bool {
        self.wait != FIRST_WAIT
    }
}

impl Committer {
    pub(super) fn new(context: Arc<WorkerContext>, journal: Journal) -> Self {
        Self {
            context,
            journal,
            committing: None,
            unstored: Vec::new(),
            stored_at: None,
            claims_fail: None,
            claim_at: None,
            expected: Duration::from_millis(1),
        }
    }

    /// When claims may be tried again, while they fail.
    pub(super) fn claim_at(&self) -> Option<Instant> {
        self.claim_at.filter(|at| Instant::now() < *at)
    }

    /// How long the next commit probably takes.
    pub(super) fn expected(&self) -> Duration {
        self.expected
    }

    pub(super) fn is_all_stored(&self) -> bool {
        self.unstored.is_empty()
    }

    /// Commits the batch. While that fails nothing new is claimed, and only the settlements are tried
    /// again.
    pub(super) async fn commit(
        &mut self,
        batch: &Arc<CommitBatch>,
    ) -> Result<CommitOutcome, StoreError> {
        self.committing = Some(Arc::clone(batch));
        let mut waiting = Waiting {
            began: Instant::now(),
            wait: FIRST_WAIT,
        };
        let mut parts = split(batch);
        let mut suspects: Vec<(Settlement, StoreError)> = Vec::new();
        let mut is_any_stored = false;
        let mut done = CommitOutcome::default();
        while let Some(part) = parts.pop_front() {
            let started = Instant::now();
            let error = match self.context.database.commit(Arc::clone(&part)).await {
                Ok(committed) => {
                    is_any_stored |= !part.settlements.is_empty();
                    self.note_commit(started.elapsed(), waiting.has_waited());
                    if !part.claims.is_empty() {
                        self.claims_fail = None;
                        done.result = committed;
                    }
                    for settlement in &part.settlements {
                        self.forget(settlement);
                    }
                    continue;
                }
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(error);
            }
            let had_claims = !part.claims.is_empty();
            if had_claims {
                done.lost_claims = true;
                self.note_failed_claims(&error);
            }
            let part = without_claims(&part, self.context.clock.now());
            if !error.is_rejection() {
                parts.push_front(Arc::new(part));
                self.wait_for_database(&mut waiting, error).await?;
                continue;
            }
            if had_claims {
                // Perhaps only the claims are at fault.
                parts.push_front(Arc::new(part));
                continue;
            }
            if let Some([first, second]) = halves(&part) {
                parts.push_front(Arc::new(second));
                parts.push_front(Arc::new(first));
                continue;
            }
            if let [settlement] = part.settlements.as_slice() {
                suspects.push((settlement.clone(), error.clone()));
                let unclear = suspects.iter().filter(|(_, error)| !is_refused(error));
                if is_any_stored || unclear.count() < SUSPECTS {
                    continue;
                }
                let all = suspects.drain(..).map(|(settlement, _)| settlement);
                parts.push_front(Arc::new(settling(&part, all.collect())));
            } else {
                parts.push_front(Arc::new(part));
            }
            self.wait_for_database(&mut waiting, error).await?;
        }
        self.committing = None;
        for (settlement, error) in suspects {
            self.note_unstored(settlement, &error).await;
        }
        Ok(done)
    }

    async fn wait_for_database(
        &self,
        waiting: &mut Waiting,
        error: StoreError,
    ) -> Result<(), StoreError> {
        let patience = if self.context.is_stopping() {
            STOPPING_PATIENCE
        } else {
            DATABASE_PATIENCE
        };
        if waiting.began.elapsed() >= patience {
            return Err(error);
        }
        if !waiting.has_waited() {
            tracing::warn!(%error, "the database is away; results wait in memory");
            self.context
                .progress
                .set_note(Some(format!("{error}; results wait in memory")));
        }
        tokio::time::sleep(waiting.wait).await;
        waiting.wait = (waiting.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    fn note_commit(&mut self, took: Duration, was_away: bool) {
        if was_away {
            tracing::warn!("the database is back");
            self.context.progress.set_note(None);
        }
        self.stored_at = Some(Instant::now());
        self.expected = expected(self.expected, took);
    }

    fn note_failed_claims(&mut self, error: &StoreError) {
        if !error.is_rejection() {
            return;
        }
        let (since, wait, _) = self
            .claims_fail
            .take()
            .unwrap_or_else(|| (Instant::now(), FIRST_WAIT, error.clone()));
        tracing::warn!(%error, "nothing could be claimed");
        self.claim_at = Some(Instant::now() + wait);
        self.claims_fail = Some((since, (wait * 2).min(LONGEST_WAIT), error.clone()));
    }

    /// Ends the run where nothing could be claimed for long.
    pub(super) fn check_claims(&self) -> Result<(), StoreError> {
        match &self.claims_fail {
            Some((since, _, error)) if since.elapsed() >= DATABASE_PATIENCE => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// A single settlement fails: it is set aside where the database refuses it, and retried otherwise.
    async fn note_unstored(&mut self, settlement: Settlement, error: &StoreError) {
        tracing::warn!(id = settlement.id, %error, "a result could not be stored");
        if is_refused(error) && self.set_aside(&settlement, error).await.is_ok() {
            self.forget(&settlement);
            return;
        }
        let now = Instant::now();
        self.unstored.push(Unstored {
            settlement,
            since: now,
            again_at: now + FIRST_WAIT,
            wait: FIRST_WAIT * 2,
        });
    }

    /// The message is settled. A refund is about an earlier claim, and the message may be claimed again.
    fn forget(&self, settlement: &Settlement) {
        if settlement.transition != Transition::Refunded {
            self.context.claimed.remove(settlement.id);
        }
    }

    async fn set_aside(
        &self,
        settlement: &Settlement,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        let store = self.context.database.reach().await?;
        if store.set_aside(settlement, error).await? {
            tracing::error!(id = settlement.id, %error, "a message is set aside as unknown");
        }
        Ok(())
    }

    /// Retries the settlements that failed alone, each when its wait is over.
    pub(super) async fn settle_unstored(&mut self) -> Result<(), StoreError> {
        let mut index = 0;
        while let Some(one) = self.unstored.get(index) {
            if Instant::now() < one.again_at {
                index += 1;
                continue;
            }
            let (since, settlement) = (one.since, one.settlement.clone());
            let batch = self.settling(vec![settlement.clone()]);
            let Err(error) = self.context.database.commit(Arc::new(batch)).await else {
                self.stored_at = Some(Instant::now());
                self.forget(&settlement);
                self.unstored.remove(index);
                continue;
            };
            let others_are_stored = self.stored_at.is_some_and(|at| since < at);
            let patience = match (self.context.is_stopping(), others_are_stored) {
                (true, _) => STOPPING_PATIENCE,
                (false, true) => SINGLE_PATIENCE,
                (false, false) => DATABASE_PATIENCE,
            };
            let is_over = since.elapsed() >= patience;
            let is_at_fault =
                is_refused(&error) || (is_over && others_are_stored && error.is_rejection());
            if is_at_fault && self.set_aside(&settlement, &error).await.is_ok() {
                self.forget(&settlement);
                self.unstored.remove(index);
                continue;
            }
            if is_over {
                return Err(error);
            }
            let one = &mut self.unstored[index];
            one.again_at = Instant::now() + one.wait;
            one.wait = (one.wait * 2).min(LONGEST_WAIT);
            index += 1;
        }
        Ok(())
    }

    /// Writes what is known and may not be stored to a file: these settlements, and those that wait for
    /// the database.
    pub(super) fn write_journal(&mut self, settlements: Vec<Settlement>) {
        let mut known = Vec::new();
        if let Some(batch) = self.committing.take() {
            known.extend(batch.settlements.iter().cloned());
        }
        known.extend(self.unstored.drain(..).map(|one| one.settlement));
        known.extend(settlements);
        if known.is_empty() {
            return;
        }
        let (results, worker_id) = (known.len(), self.context.lease.worker_id());
        match self
            .journal
            .write(worker_id, self.context.clock.now(), known)
        {
            Ok(path) => tracing::error!(
                results,
                path = %path.display(),
                "the database cannot store what is known: it is in this file, and the next `smsq send` on this host takes it from there"
            ),
            Err(error) => tracing::error!(
                results,
                %error,
                "what is known could be stored neither in the database nor in a file"
            ),
        }
    }

    /// Settles what earlier workers on this host wrote.
    pub(super) async fn settle_journal(
        &mut self,
        files: Vec<JournalFile>,
    ) -> Result<(), StoreError> {
        for file in files {
            let JournalFile {
                path,
                written_at,
                mut settlements,
            } = file;
            let ids: Vec<i64> = settlements.iter().map(|one| one.id).collect();
            let store = self.context.database.reach().await?;
            let reused = store.created_after(&ids, written_at).await?;
            settlements.retain(|one| !reused.contains(&one.id));
            let results = settlements.len();
            let batch = self.settling(settlements);
            self.commit(&Arc::new(batch)).await?;
            if !self.is_all_stored() {
                continue;
            }
            tracing::warn!(results, path = %path.display(), "settled what an earlier worker had left");
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "this file cannot be removed");
            }
        }
        Ok(())
    }

    /// A batch that only settles these.
    fn settling(&self, settlements: Vec<Settlement>) -> CommitBatch {
        CommitBatch {
            settlements,
            caps: self.context.settings.sender.max_per_recipient.clone(),
            ..CommitBatch::new(self.context.lease.worker_id(), self.context.clock.now())
        }
    }
}

fn is_refused(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Constraint
}

/// Splits a large batch into commits that settle a part each; the last one does everything else.
fn split(batch: &Arc<CommitBatch>) -> VecDeque<Arc<CommitBatch>> {
    if batch.settlements.len() <= MAX_SETTLEMENTS {
        return VecDeque::from([Arc::clone(batch)]);
    }
    let chunks = batch.settlements.chunks(MAX_SETTLEMENTS);
    let parts = chunks.map(|settlements| Arc::new(settling(batch, settlements.to_vec())));
    let rest = CommitBatch {
        claims: batch.claims.clone(),
        ..with_stops(batch, Vec::new())
    };
    parts.chain([Arc::new(rest)]).collect()
}

/// Estimates how long the next commit takes: as long as the slowest recent one, because permits must
/// not start before their claim is committed. A single stall does not put the next permits as far
/// ahead: their messages would be claimed for all that time.
fn expected(before: Duration, took: Duration) -> Duration {
    took.min(STALL.max(before * 2))
        .max(before.mul_f64(0.9))
        .min(LONGEST_COMMIT)
}

/// A batch that only settles these.
fn settling(batch: &CommitBatch, settlements: Vec<Settlement>) -> CommitBatch {
    CommitBatch {
        settlements,
        caps: batch.caps.clone(),
        ..CommitBatch::new(batch.worker_id, batch.now)
    }
}

/// The same with the batch's stops and pauses.
fn with_stops(batch: &CommitBatch, settlements: Vec<Settlement>) -> CommitBatch {
    CommitBatch {
        campaign_stops: batch.campaign_stops.clone(),
        pauses: batch.pauses.clone(),
        fill_limits: batch.fill_limits,
        ..settling(batch, settlements)
    }
}

fn without_claims(batch: &CommitBatch, now: Timestamp) -> CommitBatch {
    CommitBatch {
        now,
        ..with_stops(batch, batch.settlements.clone())
    }
}

/// Two batches that do one part of this one each; `None` where it cannot be split.
fn halves(batch: &CommitBatch) -> Option<[CommitBatch; 2]> {
    let count = batch.settlements.len();
    let has_more =
        !batch.campaign_stops.is_empty() || !batch.pauses.is_empty() || batch.fill_limits;
    if count == 0 || (count == 1 && !has_more) {
        return None;
    }
    let (first, second) = batch.settlements.split_at(count.div_ceil(2));
    Some([
        settling(batch, first.to_vec()),
        with_stops(batch, second.to_vec()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_commit_does_not_put_claims_far_ahead() {
        let millis = Duration::from_millis;
        assert_eq!(expected(millis(2), millis(40)), millis(40));
        assert_eq!(expected(millis(2), millis(7_000)), millis(100));
        assert_eq!(expected(millis(100), millis(2)), millis(90));
        let slow = (0..10).fold(millis(2), |before, _| expected(before, millis(900)));
        assert_eq!(slow, millis(900), "a database that stays slow");
        let stuck = (0..10).fold(millis(2), |before, _| expected(before, millis(9_000)));
        assert_eq!(stuck, LONGEST_COMMIT);
    }
}
