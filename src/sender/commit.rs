//! How the clerk's round is committed. Whatever a database says, what is known is not given up: a database that
//! is away is waited for, a commit that fails is split until the settlement at fault is alone, and what cannot be
//! stored before the worker ends is left to the next one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SendError;
use super::dispatcher::Dispatcher;
use super::journal::Left;
use crate::limit::Permit;
use crate::queue::Settlement;
use crate::sms::Timestamp;
use crate::store::{CommitBatch, CommitResult, Fault, StoreError};

/// So long the clerk waits for a database that is away, with its results in memory.
pub(super) const DATABASE_PATIENCE: Duration = Duration::from_secs(600);
/// And so long once it has been told to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// So long one settlement is tried again that fails while others are stored.
const LONE_PATIENCE: Duration = Duration::from_secs(30);
/// The longest that the last requests are waited for when the worker must end.
const LAST_REQUESTS: Duration = Duration::from_secs(30);
/// The longest that a round is expected to take.
const LONGEST_COMMIT: Duration = Duration::from_secs(5);
/// A round that takes longer than this, and than twice what was expected, may have been the only one.
const STALL: Duration = Duration::from_millis(100);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// One transaction settles at most so many messages.
const SETTLED_AT_ONCE: usize = 1_000;
/// Where so many settlements fail alone and none is stored, the database is at fault and not they.
const SUSPECTS: usize = 3;

/// A settlement that failed alone, while others were stored.
pub(super) struct Unstored {
    pub(super) settlement: Settlement,
    since: Instant,
    again_at: Instant,
    wait: Duration,
}

/// What the clerk knows of its commits.
#[derive(Default)]
pub(super) struct Commits {
    /// The round that is being committed, or could not be.
    committing: Option<Arc<CommitBatch>>,
    pub(super) unstored: Vec<Unstored>,
    /// When something was settled last.
    stored_at: Option<Instant>,
    /// Since when no claim has succeeded, with how long to wait between two, and why.
    claims_fail: Option<(Instant, Duration, StoreError)>,
    /// Nothing is claimed before this.
    claim_at: Option<Instant>,
}

impl Commits {
    /// When claims may be tried again, while they fail.
    pub(super) fn claim_at(&self) -> Option<Instant> {
        self.claim_at.filter(|at| Instant::now() < *at)
    }
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

impl Dispatcher {
    /// Commits the round. While that fails nothing new is claimed, and only the settlements are tried again.
    pub(super) async fn commit(
        &mut self,
        round: &Arc<CommitBatch>,
    ) -> Result<CommitResult, StoreError> {
        self.commits.committing = Some(Arc::clone(round));
        let mut waiting = Waiting {
            began: Instant::now(),
            wait: FIRST_WAIT,
        };
        let mut parts = parts(round);
        let mut suspects: Vec<(Settlement, StoreError)> = Vec::new();
        let mut is_any_stored = false;
        let mut done = CommitResult::default();
        while let Some(part) = parts.pop_front() {
            let started = Instant::now();
            let error = match self.database.round(Arc::clone(&part)).await {
                Ok(part_done) => {
                    is_any_stored |= !part.settlements.is_empty();
                    self.note_commit(started.elapsed(), waiting.has_waited());
                    if !part.claims.is_empty() {
                        self.commits.claims_fail = None;
                        done = part_done;
                    }
                    continue;
                }
                Err(error) => error,
            };
            if !error.passes() {
                return Err(error);
            }
            let had_claims = !part.claims.is_empty();
            if had_claims {
                self.note_lost_claims(&part, &error);
            }
            let part = part.without_claims(self.clock.now());
            if had_claims && error.is_answer() {
                // Perhaps only the claims are at fault.
                parts.push_front(Arc::new(part));
                continue;
            }
            if error.is_answer() {
                if let Some([first, second]) = part.halves() {
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
                    parts.push_front(Arc::new(part.settling(all.collect())));
                } else {
                    parts.push_front(Arc::new(part));
                }
            } else {
                parts.push_front(Arc::new(part));
            }
            self.wait_for_database(&mut waiting, error).await?;
        }
        self.commits.committing = None;
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
        let patience = if self.is_stopping() {
            LAST_PATIENCE
        } else {
            DATABASE_PATIENCE
        };
        if waiting.began.elapsed() >= patience {
            return Err(error);
        }
        if !waiting.has_waited() {
            tracing::warn!(%error, "the database is away; results wait in memory");
            self.progress
                .set_note(Some(format!("{error}; results wait in memory")));
        }
        tokio::time::sleep(waiting.wait).await;
        waiting.wait = (waiting.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    fn note_commit(&mut self, took: Duration, was_away: bool) {
        if was_away {
            tracing::warn!("the database is back");
            self.progress.set_note(None);
        }
        self.commits.stored_at = Some(Instant::now());
        self.commit = expected(self.commit, took);
    }

    /// What was claimed, given back or refilled is not known: it may have been committed all the same.
    fn note_lost_claims(&mut self, part: &CommitBatch, error: &StoreError) {
        self.refill |= part.fill_limits;
        for claim in &part.claims {
            let Some(index) = self.route_of(&claim.provider) else {
                continue;
            };
            for job in &mut self.routes[index].held {
                // Its moment may be given back already, and is not once more.
                job.permit = Permit::AT_ONCE;
            }
        }
        if !error.is_answer() {
            return;
        }
        let (since, wait, _) = self
            .commits
            .claims_fail
            .take()
            .unwrap_or_else(|| (Instant::now(), FIRST_WAIT, error.clone()));
        tracing::warn!(%error, "nothing could be claimed");
        self.commits.claim_at = Some(Instant::now() + wait);
        self.commits.claims_fail = Some((since, (wait * 2).min(LONGEST_WAIT), error.clone()));
    }

    /// Ends the run where nothing could be claimed for long.
    pub(super) fn check_claims(&self) -> Result<(), StoreError> {
        match &self.commits.claims_fail {
            Some((since, _, error)) if since.elapsed() >= DATABASE_PATIENCE => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// One settlement is at fault: the database refuses it, or it is tried again alone.
    async fn note_unstored(&mut self, settlement: Settlement, error: &StoreError) {
        tracing::warn!(id = settlement.id, %error, "a result could not be stored");
        if is_refused(error) && self.set_aside(&settlement, error).await.is_ok() {
            return;
        }
        let now = Instant::now();
        self.commits.unstored.push(Unstored {
            settlement,
            since: now,
            again_at: now + FIRST_WAIT,
            wait: FIRST_WAIT * 2,
        });
    }

    async fn set_aside(
        &self,
        settlement: &Settlement,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        let store = self.database.reach().await?;
        if store.set_aside(settlement, error).await? {
            tracing::error!(id = settlement.id, %error, "a message is set aside as unknown");
        }
        Ok(())
    }

    /// Tries what failed alone once more, each at its time.
    pub(super) async fn settle_unstored(&mut self) -> Result<(), StoreError> {
        let mut index = 0;
        while let Some(one) = self.commits.unstored.get(index) {
            if Instant::now() < one.again_at {
                index += 1;
                continue;
            }
            let (since, settlement) = (one.since, one.settlement.clone());
            let round = self.empty_round(self.clock.now());
            let round = Arc::new(round.settling(vec![settlement.clone()]));
            let Err(error) = self.database.round(round).await else {
                self.commits.stored_at = Some(Instant::now());
                self.commits.unstored.remove(index);
                continue;
            };
            let others_are_stored = self.commits.stored_at.is_some_and(|at| since < at);
            let patience = match (self.is_stopping(), others_are_stored) {
                (true, _) => LAST_PATIENCE,
                (false, true) => LONE_PATIENCE,
                (false, false) => DATABASE_PATIENCE,
            };
            if is_refused(&error) || since.elapsed() >= patience {
                let is_at_fault = is_refused(&error) || (others_are_stored && error.is_answer());
                if is_at_fault && self.set_aside(&settlement, &error).await.is_ok() {
                    self.commits.unstored.remove(index);
                    continue;
                }
                if since.elapsed() >= patience {
                    return Err(error);
                }
            }
            let one = &mut self.commits.unstored[index];
            one.again_at = Instant::now() + one.wait;
            one.wait = (one.wait * 2).min(LONGEST_WAIT);
            index += 1;
        }
        Ok(())
    }

    /// The worker must end: waits for the requests on their way, and leaves what is known to the next worker.
    pub(super) async fn leave(&mut self) {
        self.lease.give_up();
        let timeouts = self.routes.iter().map(|route| route.provider.timeout());
        let patience = timeouts.max().unwrap_or_default().min(LAST_REQUESTS);
        let deadline = Instant::now() + patience;
        let mut ended = self.empty_round(self.clock.now());
        while self.routes.iter().any(|route| route.in_flight > 0) {
            match tokio::time::timeout_at(deadline, self.ended.recv()).await {
                Ok(Some(one)) => self.conclude(one, &mut ended),
                Ok(None) | Err(_) => break,
            }
        }
        self.write_journal(ended);
    }

    /// Writes down all that is known and may not be stored; the requests on their way are not waited for.
    pub(super) fn write_journal(&mut self, mut ended: CommitBatch) {
        while let Ok(one) = self.ended.try_recv() {
            self.conclude(one, &mut ended);
        }
        let mut known = Vec::new();
        if let Some(round) = self.commits.committing.take() {
            known.extend(round.settlements.iter().cloned());
        }
        known.extend(self.commits.unstored.drain(..).map(|one| one.settlement));
        known.append(&mut self.inquiry.found);
        known.append(&mut ended.settlements);
        if known.is_empty() {
            return;
        }
        let (results, worker_id) = (known.len(), self.lease.worker_id());
        match self.journal.write(worker_id, self.clock.now(), &known) {
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

    /// Settles what earlier workers on this host left.
    pub(super) async fn settle_journal(&mut self) -> Result<(), SendError> {
        for left in self.journal.left() {
            let Left {
                path,
                written_at,
                mut settlements,
            } = left;
            let ids: Vec<i64> = settlements.iter().map(|one| one.id).collect();
            let store = self.database.reach().await?;
            let others = store.made_after(&ids, written_at).await?;
            settlements.retain(|one| !others.contains(&one.id));
            let results = settlements.len();
            let round = self.empty_round(self.clock.now());
            self.commit(&Arc::new(round.settling(settlements))).await?;
            if !self.commits.unstored.is_empty() {
                continue;
            }
            tracing::warn!(results, path = %path.display(), "settled what an earlier worker had left");
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "this file cannot be removed");
            }
        }
        Ok(())
    }
}

/// A run that is broken off leaves what is known, too. In simulations that is how a worker is killed.
#[cfg(not(test))]
impl Drop for Dispatcher {
    fn drop(&mut self) {
        let ended = self.empty_round(self.clock.now());
        self.write_journal(ended);
    }
}

fn is_refused(error: &StoreError) -> bool {
    error.fault() == Fault::Refused
}

/// Rounds that settle a few at a time; the last does all the rest.
fn parts(round: &Arc<CommitBatch>) -> VecDeque<Arc<CommitBatch>> {
    if round.settlements.len() <= SETTLED_AT_ONCE {
        return VecDeque::from([Arc::clone(round)]);
    }
    let mut parts: VecDeque<Arc<CommitBatch>> = round
        .settlements
        .chunks(SETTLED_AT_ONCE)
        .map(|settlements| Arc::new(round.settling(settlements.to_vec())))
        .collect();
    parts.push_back(Arc::new(CommitBatch {
        campaign_stops: round.campaign_stops.clone(),
        pauses: round.pauses.clone(),
        fill_limits: round.fill_limits,
        claims: round.claims.clone(),
        ..round.settling(Vec::new())
    }));
    parts
}

/// How long the next round will take, at a guess: as long as the slowest of late, for moments must not begin before
/// their rows are committed. One that stood still does not put the next moments as far ahead: they would be claimed
/// for all that time.
fn expected(before: Duration, took: Duration) -> Duration {
    took.min(STALL.max(before * 2))
        .max(before.mul_f64(0.9))
        .min(LONGEST_COMMIT)
}

impl CommitBatch {
    pub(super) fn is_idle(&self) -> bool {
        self.settlements.is_empty()
            && self.campaign_stops.is_empty()
            && self.pauses.is_empty()
            && self.claims.is_empty()
    }

    fn without_claims(&self, now: Timestamp) -> Self {
        Self {
            now,
            campaign_stops: self.campaign_stops.clone(),
            pauses: self.pauses.clone(),
            fill_limits: self.fill_limits,
            ..self.settling(self.settlements.clone())
        }
    }

    /// A round that does nothing but settle these.
    fn settling(&self, settlements: Vec<Settlement>) -> Self {
        Self {
            worker_id: self.worker_id,
            now: self.now,
            tolerance: self.tolerance,
            settlements,
            campaign_stops: Vec::new(),
            pauses: Vec::new(),
            fill_limits: false,
            claims: Vec::new(),
            caps: self.caps.clone(),
            admit: Arc::clone(&self.admit),
            fill: Arc::clone(&self.fill),
        }
    }

    /// Two rounds that do one part of this one each; `None` where there is nothing to part.
    fn halves(&self) -> Option<[Self; 2]> {
        let count = self.settlements.len();
        let has_more =
            !self.campaign_stops.is_empty() || !self.pauses.is_empty() || self.fill_limits;
        if count == 0 || (count == 1 && !has_more) {
            return None;
        }
        let (first, second) = self.settlements.split_at(count.div_ceil(2));
        let second = Self {
            campaign_stops: self.campaign_stops.clone(),
            pauses: self.pauses.clone(),
            fill_limits: self.fill_limits,
            ..self.settling(second.to_vec())
        };
        Some([self.settling(first.to_vec()), second])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stalled_commit_does_not_put_the_next_claims_far_ahead() {
        let millis = Duration::from_millis;
        assert_eq!(expected(millis(2), millis(40)), millis(40));
        assert_eq!(expected(millis(2), millis(7_000)), millis(100));
        assert_eq!(expected(millis(100), millis(2)), millis(90));
        let slow = (0..10).fold(millis(2), |before, _| expected(before, millis(900)));
        assert_eq!(slow, millis(900), "a database that stays slow is believed");
        let stuck = (0..10).fold(millis(2), |before, _| expected(before, millis(9_000)));
        assert_eq!(stuck, LONGEST_COMMIT);
    }
}
