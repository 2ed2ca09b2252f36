//! The database's clock, kept by this process: measured once, run on the monotonic clock in between,
//! so that nobody who sets a host's clock can bend the pace.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::sms::Timestamp;

/// A difference up to this is jitter of the measurement, not a jump of the clock.
const TOLERANCE_US: i64 = 200_000;

/// The database's clock.
pub(super) struct Clock {
    origin: Instant,
    /// What the database's clock showed at `origin`, in microseconds.
    base_us: AtomicI64,
    follows_database: bool,
}

impl Clock {
    /// A clock that shows `now` at this moment.
    pub(super) fn showing(now: Timestamp) -> Self {
        Self {
            origin: Instant::now(),
            base_us: AtomicI64::new(now.as_millis().saturating_mul(1_000)),
            follows_database: true,
        }
    }

    /// A clock of its own, that no database's clock corrects: for a time that is not the real one.
    #[cfg(test)]
    pub(super) fn apart(now: Timestamp) -> Self {
        Self {
            follows_database: false,
            ..Self::showing(now)
        }
    }

    /// Whether the database's clock is to be followed.
    pub(super) fn follows_database(&self) -> bool {
        self.follows_database
    }

    /// In microseconds since the Unix epoch.
    pub(super) fn now_us(&self) -> i64 {
        let elapsed = i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.base_us.load(Ordering::Acquire).saturating_add(elapsed)
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_us() / 1_000)
    }

    /// How long until the clock shows `moment_us`; zero when it has passed.
    pub(super) fn until(&self, moment_us: i64) -> Duration {
        let left = moment_us.saturating_sub(self.now_us());
        Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    /// Holds the clock against what the database shows now; true when it had jumped and was set.
    pub(super) fn correct(&self, measured: Timestamp) -> bool {
        let off = measured.as_millis().saturating_mul(1_000) - self.now_us();
        if off.abs() <= TOLERANCE_US {
            return false;
        }
        self.base_us.fetch_add(off, Ordering::AcqRel);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_runs_on_by_itself_and_follows_jumps_only() {
        let clock = Clock::showing(Timestamp::from_millis(1_000));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(clock.now(), Timestamp::from_millis(1_500));
        assert!(!clock.correct(Timestamp::from_millis(1_650)));
        assert_eq!(clock.now(), Timestamp::from_millis(1_500));
        assert!(clock.correct(Timestamp::from_millis(60_000)));
        assert_eq!(clock.now(), Timestamp::from_millis(60_000));
        assert_eq!(clock.until(60_250_000), Duration::from_millis(250));
        assert_eq!(clock.until(0), Duration::ZERO);
    }
}
