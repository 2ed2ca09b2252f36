//! Clocks and a database that are not what they should be: off, slow, away, or silent at the end.

use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::START;
use crate::queue::ProviderClaim;
use crate::sms::Timestamp;
use crate::store::{CommitBatch, CommitResult, ProviderClaimed, StoreError};

/// A host's steady clock, and its way to the database's clock and back.
#[derive(Clone, Debug)]
pub(in crate::sender) struct SimClock {
    /// When the simulated world began; the database's clock showed [`START`] then.
    pub(in crate::sender) began: Instant,
    /// So many microseconds in a second the host's clock is too fast.
    pub(in crate::sender) drift: i64,
    pub(in crate::sender) there: Duration,
    pub(in crate::sender) back: Duration,
    /// The host is suspended: when, and for how long. Its timers know nothing of it.
    pub(in crate::sender) slept: Option<(Duration, Duration)>,
    /// The host is a virtual machine that is stopped: when, and for how long. Only its wall clock is put
    /// right afterwards.
    pub(in crate::sender) paused: Option<(Duration, Duration)>,
    /// Somebody sets the database's clock: when, and by how many milliseconds.
    pub(in crate::sender) set: Option<(Duration, i64)>,
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

    pub(in crate::sender) fn steady_us(&self) -> i64 {
        let passed_us = i64::try_from(self.passed().as_micros()).expect("some days");
        passed_us + passed_us * self.drift / 1_000_000
    }

    pub(in crate::sender) fn wall_us(&self) -> i64 {
        i64::try_from(self.true_time().as_micros()).expect("some days")
    }

    /// All time, also that for which the host was stopped.
    fn true_time(&self) -> Duration {
        let paused = self.paused.filter(|(at, _)| *at <= self.began.elapsed());
        self.passed() + paused.map_or(Duration::ZERO, |(_, span)| span)
    }

    /// All time that the host knows of, also that which was slept through.
    fn passed(&self) -> Duration {
        let awake = self.began.elapsed();
        let slept = self.slept.filter(|(at, _)| *at <= awake);
        awake + slept.map_or(Duration::ZERO, |(_, span)| span)
    }

    pub(in crate::sender) async fn now(&self) -> Timestamp {
        pass(self.there).await;
        let passed = self.true_time();
        let set = self.set.filter(|(at, _)| *at <= passed);
        let shown = START.plus(passed).as_millis() + set.map_or(0, |(_, by)| by);
        pass(self.back).await;
        Timestamp::from_millis(shown)
    }
}

/// How well a worker reaches the database.
#[derive(Debug, Default)]
pub(in crate::sender) struct DbFaults {
    /// Since this moment, until that one, it is away.
    pub(in crate::sender) away: Vec<(Instant, Instant)>,
    /// Every question takes so long.
    pub(in crate::sender) slow: Duration,
    /// The dice, and how often a round is committed and its answer lost.
    pub(in crate::sender) lost: Option<(Mutex<StdRng>, f64)>,
    /// The dice, and how often the answer to a round comes how late.
    pub(in crate::sender) late: Option<(Mutex<StdRng>, f64, Duration)>,
    /// Rounds that give permits back and grant none are committed, and their answers lost.
    pub(in crate::sender) loses_returns: bool,
}

impl DbFaults {
    pub(super) fn losing(seed: u64, part: f64) -> Self {
        Self {
            lost: Some((Mutex::new(StdRng::seed_from_u64(seed)), part)),
            ..Self::default()
        }
    }

    pub(in crate::sender) async fn pass(&self) -> Result<(), StoreError> {
        pass(self.slow).await;
        let now = Instant::now();
        let is_away = self
            .away
            .iter()
            .any(|(from, until)| (*from..*until).contains(&now));
        if is_away {
            Err(StoreError::unavailable())
        } else {
            Ok(())
        }
    }

    pub(in crate::sender) async fn answer(
        &self,
        round: &CommitBatch,
        done: &CommitResult,
    ) -> Result<(), StoreError> {
        if let Some((random, part, span)) = &self.late
            && falls(random, *part)
        {
            pass(*span).await;
        }
        let lost = self.lost.as_ref();
        let is_lost = lost.is_some_and(|(random, part)| falls(random, *part));
        if is_lost || (self.loses_returns && only_returns(round, done)) {
            return Err(StoreError::unavailable());
        }
        self.pass().await
    }
}

fn falls(random: &Mutex<StdRng>, part: f64) -> bool {
    random.lock().expect("no panic").random::<f64>() < part
}

fn only_returns(round: &CommitBatch, done: &CommitResult) -> bool {
    let held = |route: &ProviderClaim| [&route.held[..], &route.released].concat();
    let mut held = round.claims.iter().flat_map(held);
    let grants =
        |route: &ProviderClaimed| !route.rows.is_empty() || route.held.iter().any(Option::is_some);
    held.any(|held| held.unused_us.is_some()) && !done.claims.iter().any(grants)
}

/// A wait of no length is none, so that nothing else gets its turn.
async fn pass(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}
