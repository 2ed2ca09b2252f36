//! Faults of clocks and of the database: wrong, slow, unavailable, or without an answer to a commit.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_lifecycle::ProviderClaim;
use smsq_message::sms::Timestamp;
use smsq_store::{CommitBatch, CommitResult, ProviderClaimed, StoreError};
use tokio::time::Instant;

use super::START;
use super::history::ClaimCommit;

/// A host's steady clock, and the latency of reading the database's clock.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    /// When the simulation began; the database's clock showed [`START`] then.
    pub(crate) began: Instant,
    /// How many microseconds in a second the host's clock is too fast.
    pub(crate) drift: i64,
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    /// When the host is suspended, and for how long. Its timers do not count that time.
    pub(crate) slept: Option<(Duration, Duration)>,
    /// When the virtual machine is stopped, and for how long. Only its wall clock is corrected
    /// afterwards.
    pub(crate) paused: Option<(Duration, Duration)>,
    /// When the database's clock is set, and by how many milliseconds.
    pub(crate) set: Option<(Duration, i64)>,
}

impl SimClock {
    pub(super) fn right(began: Instant) -> Self {
        Self {
            began,
            drift: 0,
            there: Duration::ZERO,
            back: Duration::ZERO,
            slept: None,
            paused: None,
            set: None,
        }
    }

    pub(crate) fn steady_us(&self) -> i64 {
        let passed_us = i64::try_from(self.passed().as_micros()).expect("some days");
        passed_us + passed_us * self.drift / 1_000_000
    }

    pub(crate) fn wall_us(&self) -> i64 {
        i64::try_from(self.true_time().as_micros()).expect("some days")
    }

    /// All time, including that for which the host was stopped.
    fn true_time(&self) -> Duration {
        let paused = self.paused.filter(|(at, _)| *at <= self.began.elapsed());
        self.passed() + paused.map_or(Duration::ZERO, |(_, span)| span)
    }

    /// The time that the host knows, including that for which it was suspended.
    fn passed(&self) -> Duration {
        let awake = self.began.elapsed();
        let slept = self.slept.filter(|(at, _)| *at <= awake);
        awake + slept.map_or(Duration::ZERO, |(_, span)| span)
    }

    pub(crate) async fn now(&self) -> Timestamp {
        pass(self.there).await;
        let passed = self.true_time();
        let set = self.set.filter(|(at, _)| *at <= passed);
        let shown = START.plus(passed).as_millis() + set.map_or(0, |(_, by)| by);
        pass(self.back).await;
        Timestamp::from_millis(shown)
    }
}

/// Delays of commits.
#[derive(Debug)]
pub(crate) struct Delays {
    pub(crate) random: Mutex<StdRng>,
    /// The part of the commits that are delayed.
    pub(crate) part: f64,
    /// From the shortest to the longest.
    pub(crate) span: RangeInclusive<Duration>,
}

impl Delays {
    fn draw(&self) -> Duration {
        let mut random = self.random.lock().expect("no panic");
        if random.random::<f64>() >= self.part {
            return Duration::ZERO;
        }
        let (least, most) = (*self.span.start(), *self.span.end());
        least + most.saturating_sub(least).mul_f64(random.random())
    }
}

/// When the claims of all workers were planned and known, since the simulation began.
#[derive(Clone, Debug)]
pub(crate) struct ClaimLog {
    pub(super) began: Instant,
    pub(super) lease: Duration,
    pub(super) claims: Arc<Mutex<Vec<ClaimCommit>>>,
}

impl Default for ClaimLog {
    fn default() -> Self {
        Self { began: Instant::now(), lease: Duration::ZERO, claims: Arc::default() }
    }
}

impl ClaimLog {
    /// Notes an answer that has arrived to a commit that began at an instant.
    pub(crate) fn add(&self, commit_began: Instant, result: &CommitResult) {
        let rows = result.claims.iter().flat_map(|claimed| &claimed.rows);
        let claims = rows.map(|row| ClaimCommit {
            sms_id: row.sms.id,
            claim: row.sms.claim,
            began: commit_began - self.began,
            answered: self.began.elapsed(),
            lease: self.lease,
        });
        self.claims.lock().expect("no panic").extend(claims);
    }
}

/// Faults between a worker and its database.
#[derive(Debug, Default)]
pub(crate) struct DbFaults {
    /// From when until when it is unavailable.
    pub(crate) away: Vec<(Instant, Instant)>,
    /// The time that every statement takes.
    pub(crate) slow: Duration,
    /// The probability that a commit succeeds and its answer is lost.
    pub(crate) lost: Option<(Mutex<StdRng>, f64)>,
    /// A commit begins late, because conflicts are retried or the network is slow.
    pub(crate) held_up: Option<Delays>,
    /// The answer to a commit is late.
    pub(crate) late: Option<Delays>,
    /// A commit without an answer counts as lost after this, as on a server.
    pub(crate) timeout: Option<Duration>,
    /// A mutant of the sender: orphans are released while a commit runs.
    pub(crate) releases_beside_commits: bool,
    /// A mutant of the sender: requests start however old their claim is.
    pub(crate) starts_overdue: bool,
    /// The answers to commits that give permits back and allocate none are lost.
    pub(crate) loses_returns: bool,
}

impl DbFaults {
    pub(super) fn losing(seed: u64, part: f64) -> Self {
        Self { lost: Some((Mutex::new(StdRng::seed_from_u64(seed)), part)), ..Self::default() }
    }

    pub(crate) async fn pass(&self) -> Result<(), StoreError> {
        pass(self.slow).await;
        let now = Instant::now();
        let is_away = self.away.iter().any(|(from, until)| (*from..*until).contains(&now));
        if is_away { Err(StoreError::unavailable()) } else { Ok(()) }
    }

    pub(crate) async fn hold_up(&self) {
        pass(self.held_up.as_ref().map(Delays::draw).unwrap_or_default()).await;
    }

    pub(crate) async fn answer(
        &self,
        batch: &CommitBatch,
        done: &CommitResult,
    ) -> Result<(), StoreError> {
        let late = self.late.as_ref().map(Delays::draw).unwrap_or_default();
        if let Some(timeout) = self.timeout.filter(|timeout| late > *timeout) {
            pass(timeout).await;
            return Err(StoreError::unavailable());
        }
        pass(late).await;
        let lost = self.lost.as_ref();
        let is_lost = lost.is_some_and(|(random, part)| falls(random, *part));
        if is_lost || (self.loses_returns && only_returns(batch, done)) {
            return Err(StoreError::unavailable());
        }
        self.pass().await
    }
}

fn falls(random: &Mutex<StdRng>, part: f64) -> bool {
    random.lock().expect("no panic").random::<f64>() < part
}

fn only_returns(batch: &CommitBatch, done: &CommitResult) -> bool {
    let held = |claim: &ProviderClaim| [&claim.held[..], &claim.released].concat();
    let mut held = batch.claims.iter().flat_map(held);
    let grants =
        |claim: &ProviderClaimed| !claim.rows.is_empty() || claim.held.iter().any(Option::is_some);
    held.any(|held| held.unused.is_some()) && !done.claims.iter().any(grants)
}

/// Does not yield for a wait of length zero.
async fn pass(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}
