//! Commits what the dispatcher planned. A known result is never discarded: the worker waits for a database that is
//! unavailable, splits a commit that fails until the settlement at fault is alone, and leaves what cannot be stored
//! before it ends to the next worker.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use smsq_lifecycle::Settlement;
use smsq_message::sms::Timestamp;
use smsq_store::{CommitBatch, CommitResult, StoreError, StoreErrorKind};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::SendError;
use super::context::{STOPPING_PATIENCE, WorkerContext};
use super::lease::LostMarks;
use super::local_files::journal::Journal;
use super::local_files::left;
use super::maintenance::LeftResults;

/// How long to wait for an unreachable database.
pub(super) const DATABASE_PATIENCE: Duration = Duration::from_secs(600);
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
/// If this many settlements fail one by one and none succeeds, the database is unavailable, not the settlements.
const SUSPECTS: usize = 3;

/// A settlement that failed alone, while others were stored.
struct Unstored {
    settlement: Settlement,
    since: Instant,
    again_at: Instant,
    wait: Duration,
}

/// Why claims lead to no request, one after the other.
struct FailingClaims {
    since: Instant,
    last: Instant,
    /// The wait before the next claim.
    wait: Duration,
    fault: ClaimFault,
}

/// Why a claim leads to no request.
#[derive(Clone, Debug)]
enum ClaimFault {
    /// The database rejects it.
    Rejected(StoreError),
    /// Its commit took longer than the time in which its requests may start.
    Late { took: Duration, within: Duration },
}

impl ClaimFault {
    fn error(&self) -> SendError {
        match self {
            Self::Rejected(error) => error.clone().into(),
            &Self::Late { took, within } => SendError::SlowCommits { took, within },
        }
    }
}

/// Commits a worker's batches, one at a time, until each result is stored.
///
/// A known result must never be discarded, and one row that the database rejects must not keep others from being
/// stored. So a commit that fails is repeated without its claims, then in ever smaller parts until the settlement at
/// fault is alone; that one is tried again while the worker continues, and set aside in the end. While the database is
/// unavailable nothing is claimed, because a claim whose commit may have succeeded would be lost for a lease. The price
/// is that everything waits for the batch that is being committed.
pub(super) struct Committer {
    context: Arc<WorkerContext>,
    journal: Journal,
    /// What is being committed, or could not be.
    work: Option<Work>,
    /// The part that is being committed, in a task of its own.
    transaction: JoinSet<Result<CommitResult, StoreError>>,
    unstored: Vec<Unstored>,
    /// When something was committed last.
    stored_at: Option<Instant>,
    /// Since when no claim has led to a request, because it failed or came too late.
    claims_fail: Option<FailingClaims>,
    /// Nothing is claimed before this.
    claim_at: Option<Instant>,
    expected: Duration,
}

/// What was committed.
pub(super) struct CommitOutcome {
    pub(super) batch: Arc<CommitBatch>,
    pub(super) result: CommitResult,
    /// The first commit with the claims failed, but it may have been stored: the permits in it are void.
    pub(super) lost_claims: bool,
}

/// A batch that is being committed.
struct Work {
    batch: Arc<CommitBatch>,
    /// What is not committed yet; the first one is being committed.
    parts: VecDeque<Arc<CommitBatch>>,
    /// When the commit of the first part began.
    part_began: Instant,
    /// The first part is tried again then.
    again_at: Option<Instant>,
    began: Instant,
    wait: Duration,
    /// Why the last part could not be committed, while it waits for the database.
    unavailable: Option<StoreError>,
    /// Settlements that failed alone.
    suspects: Vec<(Settlement, StoreError)>,
    is_any_stored: bool,
    result: CommitResult,
    lost_claims: bool,
}

impl Work {
    fn new(batch: Arc<CommitBatch>) -> Self {
        let now = Instant::now();
        Self {
            parts: if batch.settlements.len() > MAX_SETTLEMENTS {
                split(&batch, MAX_SETTLEMENTS)
            } else {
                VecDeque::from([Arc::clone(&batch)])
            },
            batch,
            part_began: now,
            again_at: None,
            began: now,
            wait: FIRST_WAIT,
            unavailable: None,
            suspects: Vec::new(),
            is_any_stored: false,
            result: CommitResult::default(),
            lost_claims: false,
        }
    }
}

impl Committer {
    pub(super) fn new(context: Arc<WorkerContext>, journal: Journal) -> Self {
        Self {
            context,
            journal,
            work: None,
            transaction: JoinSet::new(),
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

    /// The batch that is being committed.
    pub(super) fn committing(&self) -> Option<&Arc<CommitBatch>> {
        self.work.as_ref().map(|work| &work.batch)
    }

    pub(super) fn is_all_stored(&self) -> bool {
        self.work.is_none() && self.unstored.is_empty()
    }

    /// Begins to commit the batch, which [`Self::finish`] ends.
    pub(super) fn begin(&mut self, batch: Arc<CommitBatch>) {
        self.work = Some(Work::new(batch));
        self.begin_part();
    }

    fn begin_part(&mut self) {
        let Some(work) = &mut self.work else { return };
        let next = work.parts.front().filter(|_| work.again_at.is_none());
        let Some(part) = next.map(Arc::clone) else {
            return;
        };
        work.part_began = Instant::now();
        let lease = Arc::clone(&self.context.lease);
        self.transaction.spawn(async move { lease.commit(part).await });
    }

    /// Waits until the batch is committed. While that fails nothing new is claimed, and only the
    /// settlements are tried again. Nothing is lost if the caller stops waiting and calls it again.
    pub(super) async fn finish(&mut self) -> Result<Option<CommitOutcome>, StoreError> {
        while let Some(work) = &mut self.work {
            if let Some(at) = work.again_at {
                tokio::time::sleep_until(at).await;
                work.again_at = None;
            } else if let Some(ended) =
                self.context.while_patient(work.part_began, self.transaction.join_next()).await?
            {
                self.take_part(ended.unwrap_or_else(|error| resume_unwind(error.into_panic())))?;
            } else {
                break;
            }
            self.begin_part();
        }
        let Some(work) = self.work.take() else {
            return Ok(None);
        };
        for (settlement, error) in work.suspects {
            self.keep_unstored(settlement, &error);
        }
        Ok(Some(CommitOutcome {
            batch: work.batch,
            result: work.result,
            lost_claims: work.lost_claims,
        }))
    }

    /// Ends a commit that is running. Whether it succeeded is not known, so its settlements are kept.
    pub(super) async fn shutdown(&mut self) {
        self.transaction.shutdown().await;
    }

    /// Handles the end of the first part's commit: decides what is committed next.
    fn take_part(&mut self, committed: Result<CommitResult, StoreError>) -> Result<(), StoreError> {
        let Some(mut work) = self.work.take() else {
            return Ok(());
        };
        let next = self.plan_parts(&mut work, committed);
        self.work = Some(work);
        next
    }

    fn plan_parts(
        &mut self,
        work: &mut Work,
        committed: Result<CommitResult, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(part) = work.parts.pop_front() else {
            return Ok(());
        };
        let error = match committed {
            Ok(committed) => {
                work.is_any_stored |= !part.settlements.is_empty();
                if work.unavailable.take().is_some() {
                    tracing::warn!("the database is available again");
                }
                self.record_commit(work.part_began.elapsed());
                if !part.claims.is_empty() || part.orphans.is_some() {
                    work.result = committed;
                }
                for settlement in &part.settlements {
                    self.forget(settlement);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if !error.is_temporary() {
            return Err(error);
        }
        let had_claims = !part.claims.is_empty() || part.orphans.is_some();
        if !part.claims.is_empty() {
            work.lost_claims = true;
            if error.is_rejection() {
                self.record_failed_claims(ClaimFault::Rejected(error.clone()));
            }
        }
        let part = without_claims(&part, self.context.clock.now());
        if !error.is_rejection() {
            work.parts.push_front(Arc::new(part));
            return self.wait_for_database(work, error);
        }
        if had_claims {
            // Perhaps only the claims are at fault.
            work.parts.push_front(Arc::new(part));
            return Ok(());
        }
        let has_more = has_stops(&part);
        if part.settlements.len() > usize::from(!has_more) {
            // With the root of their number few commits find the settlement at fault, on a distant database, too.
            let mut parts = split(&part, part.settlements.len().isqrt());
            parts.append(&mut work.parts);
            work.parts = parts;
            return Ok(());
        }
        if let [settlement] = part.settlements.as_slice() {
            work.suspects.push((settlement.clone(), error.clone()));
            let is_unclear = |(_, error): &&(_, StoreError)| !is_refused(error);
            if work.is_any_stored || work.suspects.iter().filter(is_unclear).count() < SUSPECTS {
                return Ok(());
            }
            let all = work.suspects.drain(..).map(|(settlement, _)| settlement);
            work.parts.push_front(Arc::new(settling(&part, all.collect())));
        } else {
            work.parts.push_front(Arc::new(part));
        }
        self.wait_for_database(work, error)
    }

    /// Tries the first part again later.
    fn wait_for_database(&self, work: &mut Work, error: StoreError) -> Result<(), StoreError> {
        let patience =
            if self.context.is_stopping() { STOPPING_PATIENCE } else { DATABASE_PATIENCE };
        if work.began.elapsed() >= patience {
            return Err(error);
        }
        if work.unavailable.is_none() {
            tracing::warn!(%error, "the database is unavailable; results wait in memory");
        }
        work.unavailable = Some(error);
        self.context.metrics.record_database_retry();
        work.again_at = Some(Instant::now() + work.wait);
        work.wait = (work.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    fn record_commit(&mut self, took: Duration) {
        self.context.metrics.record_commit(took);
        self.stored_at = Some(Instant::now());
        self.expected = expected(self.expected, took);
    }

    /// Waits before the next claim, longer each time.
    fn record_failed_claims(&mut self, fault: ClaimFault) {
        let now = Instant::now();
        let before = self.claims_fail.take();
        let (since, wait) = before.map_or((now, FIRST_WAIT), |failing| {
            (failing.since, (failing.wait * 2).min(LONGEST_WAIT))
        });
        tracing::warn!(error = %fault.error(), "nothing could be claimed");
        self.claim_at = Some(now + wait);
        self.claims_fail = Some(FailingClaims { since, last: now, wait, fault });
    }

    /// Records that claims were committed, `took` after their plan. Their requests start `within` after it, or go back
    /// into the queue.
    pub(super) fn record_claims(&mut self, has_messages: bool, took: Duration, within: Duration) {
        if took < within {
            self.claims_fail = None;
        } else if has_messages {
            self.record_failed_claims(ClaimFault::Late { took, within });
        }
    }

    /// Why results wait in memory, or nothing is claimed.
    pub(super) fn note(&self) -> Option<String> {
        if let Some(error) = self.work.as_ref().and_then(|work| work.unavailable.as_ref()) {
            return Some(format!("{error}; results wait in memory"));
        }
        let failing = self.claims_fail.as_ref()?;
        Some(failing.fault.error().to_string())
    }

    /// Ends the run where nothing could be claimed for long.
    pub(super) fn check_claims(&self) -> Result<(), SendError> {
        match &self.claims_fail {
            Some(failing) if failing.last - failing.since >= DATABASE_PATIENCE => {
                Err(failing.fault.error())
            }
            _ => Ok(()),
        }
    }

    /// A single settlement fails: it is tried alone.
    fn keep_unstored(&mut self, settlement: Settlement, error: &StoreError) {
        tracing::warn!(id = settlement.id, %error, "a result could not be stored");
        let now = Instant::now();
        self.unstored.push(Unstored { settlement, since: now, again_at: now, wait: FIRST_WAIT });
    }

    /// The claim is settled.
    fn forget(&self, settlement: &Settlement) {
        let Settlement { id, claim, .. } = *settlement;
        self.context.claimed.remove(id, claim);
        self.context.marks.forget(id, claim);
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
            let committing = self.context.lease.commit(Arc::new(batch));
            let Err(error) = self.context.while_patient(Instant::now(), committing).await? else {
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
        if let Some(work) = self.work.take() {
            known.extend(work.batch.settlements.iter().cloned());
        }
        known.extend(self.unstored.drain(..).map(|unstored| unstored.settlement));
        known.extend(settlements);
        if known.is_empty() {
            return;
        }
        let (results, worker_id) = (known.len(), self.context.lease.worker_id());
        match self.journal.write(worker_id, self.context.clock.now(), known) {
            Ok(path) => tracing::error!(
                results,
                path = %path.display(),
                "cannot store results in the database: wrote them to this file; the next `smsq send` on this host stores them"
            ),
            Err(error) => tracing::error!(
                results,
                %error,
                "cannot write results to the database or to a file: they are lost"
            ),
        }
    }

    /// Settles what earlier workers on this host left: their journals first, and then what their marks say.
    pub(super) async fn settle_left(&mut self, found: LeftResults) -> Result<(), StoreError> {
        for file in found.journals {
            let path = file.path.clone();
            let store = self.context.database.reach().await?;
            let settlements = left::of_journal(store, file).await?;
            let results = settlements.len();
            let batch = self.settling(settlements);
            self.begin(Arc::new(batch));
            self.finish().await?;
            if !self.is_all_stored() {
                continue;
            }
            tracing::warn!(results, path = %path.display(), "settled what an earlier worker had left");
            self.context.marks.keep_settled(path);
        }
        for lost in found.lost {
            self.settle_lost(lost).await?;
        }
        if !found.marked.is_empty() {
            let messages = found.marked.len();
            self.begin(Arc::new(self.settling(found.marked)));
            self.finish().await?;
            tracing::warn!(messages, "released or settled messages of dead workers");
        }
        Ok(())
    }

    /// Makes claims again that the database has lost, and stores their results: what was started is not sent again.
    async fn settle_lost(&mut self, lost: LostMarks) -> Result<(), StoreError> {
        let mut messages = 0;
        for round in lost.rounds {
            let store = self.context.database.reach().await?;
            let settlements = left::redo(store, &round).await?.settlements;
            messages += settlements.len();
            self.begin(Arc::new(self.settling(settlements)));
            self.finish().await?;
        }
        if messages > 0 {
            tracing::warn!(
                messages,
                worker = lost.who,
                "settled messages by what a worker wrote down: the database may have lost its commits"
            );
        }
        if let Some(file) = lost.file.filter(|_| self.is_all_stored()) {
            self.context.lease.record_used(file);
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

/// Splits a batch into commits of at most `max` settlements each; the last one does everything else.
fn split(batch: &CommitBatch, max: usize) -> VecDeque<Arc<CommitBatch>> {
    let rest = CommitBatch { settlements: Vec::new(), ..batch.clone() };
    let has_rest = has_stops(&rest) || !rest.claims.is_empty() || rest.orphans.is_some();
    batch
        .settlements
        .chunks(max.max(1))
        .map(|settlements| settling(batch, settlements.to_vec()))
        .chain(has_rest.then_some(rest))
        .map(Arc::new)
        .collect()
}

fn has_stops(batch: &CommitBatch) -> bool {
    !batch.campaign_stops.is_empty() || !batch.pauses.is_empty() || batch.fill_limits
}

/// Estimates how long the next commit takes: as long as the slowest recent one, because permits must
/// not start before their claim is committed. A single stall does not put the next permits as far
/// ahead: their messages would be claimed for all that time.
fn expected(before: Duration, took: Duration) -> Duration {
    took.min(STALL.max(before * 2)).max(before.mul_f64(0.9)).min(LONGEST_COMMIT)
}

/// A batch that only settles these.
fn settling(batch: &CommitBatch, settlements: Vec<Settlement>) -> CommitBatch {
    CommitBatch {
        settlements,
        caps: batch.caps.clone(),
        ..CommitBatch::new(batch.worker_id, batch.now)
    }
}

fn without_claims(batch: &CommitBatch, now: Timestamp) -> CommitBatch {
    CommitBatch { now, claims: Vec::new(), orphans: None, ..batch.clone() }
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
