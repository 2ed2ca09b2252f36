//! The database's clock, estimated by this process: read at intervals, and run in between on the host's
//! steady clock, which is never set and counts suspend. The estimate has an error bound, because the
//! permits of workers whose clocks differ must be spaced by it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use smsq_message::instant::{DbMicros, SteadyMicros, micros};
use smsq_message::sms::Timestamp;
use smsq_store::{Store, StoreError};

/// An error up to this is corrected gradually; a larger one means that a clock was set.
const TOLERANCE_US: i64 = 200_000;
/// How far two clocks may drift apart, in microseconds a second, with room for one that is corrected.
const DRIFT: i64 = 200;
/// How fast an error is corrected, in the same unit. Limits have room for it in every window.
const SLEW: i64 = 1_000_000 / smsq_limit::SLEW_DIVISOR;
/// A database may truncate or round its time to the millisecond.
const ROUNDED_US: (i64, i64) = (-500, 1_000);
/// How often the clock is read at the start.
const FIRST_SAMPLES: u32 = 5;

/// The database's clock.
pub(super) struct Clock {
    source: TimeSource,
    estimate: Mutex<OffsetEstimate>,
    /// By how many microseconds the host's wall clock was ahead of the steady one at the last sample.
    wall_ahead_us: AtomicI64,
}

/// Where time comes from: this host's steady clock, and the database's.
enum TimeSource {
    Real(Store),
    #[cfg(test)]
    Simulated(super::simulation::SimClock),
}

/// The difference between the database's clock and the steady one, as of an instant of the latter; all
/// in microseconds.
#[derive(Clone, Copy, Debug)]
struct OffsetEstimate {
    at_us: i64,
    /// The difference is at least this, and at most `most_us`.
    least_us: i64,
    most_us: i64,
    /// The difference in use. It follows the middle of the two, at most as fast as [`SLEW`].
    used_us: i64,
    /// How often it was set, and by how much altogether.
    jumps: u32,
    set_by_us: i64,
}

/// One reading of the database's clock, between two instants of the steady clock.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    asked_us: i64,
    answered_us: i64,
    shown: Timestamp,
}

impl Clock {
    /// Reads the database's clock a few times.
    pub(super) async fn of(store: Store) -> Result<Self, StoreError> {
        Self::from(TimeSource::Real(store)).await
    }

    #[cfg(test)]
    pub(super) async fn simulated(clock: super::simulation::SimClock) -> Result<Self, StoreError> {
        Self::from(TimeSource::Simulated(clock)).await
    }

    async fn from(source: TimeSource) -> Result<Self, StoreError> {
        let wall_ahead_us = source.wall_ahead_us();
        let mut estimate = OffsetEstimate::first(source.sample().await?);
        for _ in 1..FIRST_SAMPLES {
            estimate.update(source.sample().await?);
        }
        // Nothing was timed by it yet, so it need not change gradually.
        estimate.used_us = estimate.middle();
        Ok(Self {
            source,
            estimate: Mutex::new(estimate),
            wall_ahead_us: AtomicI64::new(wall_ahead_us),
        })
    }

    /// Reads the database's clock again; true when it had jumped and this one was set.
    pub(super) async fn read(&self) -> Result<bool, StoreError> {
        let wall_ahead_us = self.source.wall_ahead_us();
        let sample = self.source.sample().await?;
        self.wall_ahead_us.store(wall_ahead_us, Ordering::Release);
        Ok(self.estimate().update(sample))
    }

    /// Whether the host's wall clock was set since the last reading. The steady clock does not count the
    /// time for which a hypervisor stops a virtual machine; where the wall clock is corrected afterwards,
    /// this shows the gap.
    pub(super) fn is_doubtful(&self) -> bool {
        let wall_ahead_us = self.wall_ahead_us.load(Ordering::Acquire);
        (self.source.wall_ahead_us() - wall_ahead_us).abs() > TOLERANCE_US
    }

    /// What the database's clock shows now.
    pub(super) fn instant(&self) -> DbMicros {
        let steady_us = self.source.steady_us();
        DbMicros::new(steady_us.saturating_add(self.estimate().used(steady_us)))
    }

    /// The same in milliseconds.
    pub(super) fn now(&self) -> Timestamp {
        self.instant().timestamp()
    }

    /// The host's steady clock: it never goes back, and counts suspend.
    pub(super) fn steady(&self) -> SteadyMicros {
        SteadyMicros::new(self.source.steady_us())
    }

    /// The largest possible error of [`Self::instant`].
    pub(super) fn error(&self) -> Duration {
        let error_us = self.estimate().error(self.source.steady_us());
        Duration::from_micros(error_us.unsigned_abs())
    }

    /// How often the clock was set. Instants from before that are void.
    pub(super) fn jumps(&self) -> u32 {
        self.estimate().jumps
    }

    /// By how much it was set altogether.
    pub(super) fn set_by(&self) -> SignedDuration {
        SignedDuration::from_micros(self.estimate().set_by_us)
    }

    /// How long until the clock shows `at`; zero when it has passed.
    pub(super) fn until(&self, at: DbMicros) -> Duration {
        at.since(self.instant())
    }

    fn estimate(&self) -> MutexGuard<'_, OffsetEstimate> {
        self.estimate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimeSource {
    fn steady_us(&self) -> i64 {
        match self {
            Self::Real(_) => steady_us(),
            #[cfg(test)]
            Self::Simulated(clock) => clock.steady_us(),
        }
    }

    fn wall_ahead_us(&self) -> i64 {
        match self {
            Self::Real(_) => wall_us() - steady_us(),
            #[cfg(test)]
            Self::Simulated(clock) => clock.wall_us() - clock.steady_us(),
        }
    }

    async fn sample(&self) -> Result<ClockSample, StoreError> {
        let asked_us = self.steady_us();
        let shown = match self {
            Self::Real(store) => store.now().await?,
            #[cfg(test)]
            Self::Simulated(clock) => clock.now().await,
        };
        Ok(ClockSample { asked_us, answered_us: self.steady_us(), shown })
    }
}

impl ClockSample {
    /// The bounds of the difference: the clock was read between the question and the answer.
    fn bounds(self) -> (i64, i64) {
        let shown_us = self.shown.as_millis().saturating_mul(1_000);
        (shown_us + ROUNDED_US.0 - self.answered_us, shown_us + ROUNDED_US.1 - self.asked_us)
    }
}

impl OffsetEstimate {
    fn first(sample: ClockSample) -> Self {
        let (least_us, most_us) = sample.bounds();
        Self {
            at_us: sample.answered_us,
            least_us,
            most_us,
            used_us: i64::midpoint(least_us, most_us),
            jumps: 0,
            set_by_us: 0,
        }
    }

    fn middle(&self) -> i64 {
        i64::midpoint(self.least_us, self.most_us)
    }

    fn used(&self, steady_us: i64) -> i64 {
        let passed_us = steady_us.saturating_sub(self.at_us).max(0);
        let most = part(passed_us, SLEW);
        self.used_us + (self.middle() - self.used_us).clamp(-most, most)
    }

    fn error(&self, steady_us: i64) -> i64 {
        let drifted_us = part(steady_us.saturating_sub(self.at_us).max(0), DRIFT);
        let used_us = self.used(steady_us);
        (used_us - self.least_us).max(self.most_us - used_us) + drifted_us
    }

    /// Takes another sample into account; true when the clock had jumped.
    ///
    /// The truth lies where the old bounds and the sample's overlap. Where they do not, a clock was set,
    /// and only the sample counts. The difference in use moves to the new middle gradually, and `error`
    /// includes the rest of the way. So instants before and after a correction are never closer than a
    /// window has room for.
    fn update(&mut self, sample: ClockSample) -> bool {
        let now_us = sample.answered_us;
        let used_us = self.used(now_us);
        let drifted_us = part(now_us.saturating_sub(self.at_us).max(0), DRIFT);
        let (seen_least, seen_most) = sample.bounds();
        let least = seen_least.max(self.least_us - drifted_us);
        let most = seen_most.min(self.most_us + drifted_us);
        (self.least_us, self.most_us) =
            if least <= most { (least, most) } else { (seen_least, seen_most) };
        self.at_us = now_us;
        self.used_us = used_us;
        let jumped = (self.middle() - used_us).abs() > TOLERANCE_US;
        if jumped {
            self.used_us = self.middle();
            self.set_by_us += self.used_us - used_us;
            self.jumps = self.jumps.wrapping_add(1);
        }
        jumped
    }
}

/// This many millionths of a span.
fn part(span_us: i64, millionths: i64) -> i64 {
    span_us.saturating_mul(millionths) / 1_000_000
}

/// The host's clock, which may be set.
fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, micros)
}

/// The host's clock that is never set and runs while the host is suspended.
fn steady_us() -> i64 {
    #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_os = "fuchsia",
        target_os = "openbsd"
    ))]
    const STEADY: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    // On macOS this one counts suspend; elsewhere there is none that does.
    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "fuchsia",
        target_os = "openbsd"
    )))]
    const STEADY: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(STEADY);
    time.tv_sec.saturating_mul(1_000_000) + time.tv_nsec / 1_000
}

#[cfg(test)]
mod tests;
