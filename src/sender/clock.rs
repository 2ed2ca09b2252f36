//! The database's clock, kept by this process: measured again and again, run in between on the host's
//! own clock that nobody sets and that counts suspend. It knows how far off it may be, because that is
//! what keeps workers apart that were told the time at different distances.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::sms::Timestamp;
use crate::store::{Store, StoreError};

/// A difference up to this is worked off while time goes on; a larger one is a clock that was set.
const TOLERANCE_US: i64 = 200_000;
/// So many microseconds in a second two good clocks may drift apart, with room for a slewed one.
const DRIFT: i64 = 200;
/// And so many a difference is worked off with. The pace has room for it in every window.
const SLEW: i64 = 1_000_000 / crate::limit::SLEW_DIVISOR;
/// A database may cut its time to the millisecond or round it.
const ROUNDED_US: (i64, i64) = (-500, 1_000);
/// So often the clock is asked at the start; the best of them count.
const FIRST_LOOKS: u32 = 5;

/// The database's clock.
pub(super) struct Clock {
    source: Source,
    belief: Mutex<Belief>,
    /// By how many microseconds the host's wall clock was ahead of the steady one at the last look.
    wall_ahead_us: AtomicI64,
}

/// Where time comes from: this host's steady clock, and the database's that is asked now and then.
enum Source {
    Real(Store),
    #[cfg(test)]
    Simulated(super::simulation::Hands),
}

/// What is believed of the difference between the database's clock and the steady one, as of a moment
/// of the latter; all in microseconds.
#[derive(Clone, Copy, Debug)]
struct Belief {
    at_us: i64,
    /// The difference is certainly not less than this, and not more than `most_us`.
    least_us: i64,
    most_us: i64,
    /// The difference in use. It follows the middle of the two, but never faster than [`SLEW`].
    used_us: i64,
    /// How often it had to be set, and by how much altogether.
    jumps: u32,
    set_by_us: i64,
}

/// One look at the database's clock: it showed this between two moments of the steady clock.
#[derive(Clone, Copy, Debug)]
struct Look {
    asked_us: i64,
    answered_us: i64,
    shown: Timestamp,
}

impl Clock {
    /// A clock that shows what the database's shows.
    pub(super) async fn of(store: Store) -> Result<Self, StoreError> {
        Self::from(Source::Real(store)).await
    }

    #[cfg(test)]
    pub(super) async fn simulated(hands: super::simulation::Hands) -> Result<Self, StoreError> {
        Self::from(Source::Simulated(hands)).await
    }

    async fn from(source: Source) -> Result<Self, StoreError> {
        let wall_ahead_us = source.wall_ahead_us();
        let mut belief = Belief::first(source.look().await?);
        for _ in 1..FIRST_LOOKS {
            belief.learn(source.look().await?);
        }
        // Nothing was timed by it yet, so there is nothing to be gentle with.
        belief.used_us = belief.middle();
        Ok(Self {
            source,
            belief: Mutex::new(belief),
            wall_ahead_us: AtomicI64::new(wall_ahead_us),
        })
    }

    /// Asks the database's clock once more; true when it had jumped and this one was set.
    pub(super) async fn look(&self) -> Result<bool, StoreError> {
        let wall_ahead_us = self.source.wall_ahead_us();
        let look = self.source.look().await?;
        self.wall_ahead_us.store(wall_ahead_us, Ordering::Release);
        Ok(self.belief().learn(look))
    }

    /// Whether the host's wall clock was set since the database's was looked at. The steady clock does
    /// not count the time for which a hypervisor stops a virtual machine; where the machine's wall clock
    /// is put right afterwards, this is how the gap shows.
    pub(super) fn is_doubtful(&self) -> bool {
        let wall_ahead_us = self.wall_ahead_us.load(Ordering::Acquire);
        (self.source.wall_ahead_us() - wall_ahead_us).abs() > TOLERANCE_US
    }

    /// In microseconds since the Unix epoch.
    pub(super) fn now_us(&self) -> i64 {
        let steady_us = self.steady_us();
        steady_us.saturating_add(self.belief().used(steady_us))
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_us().div_euclid(1_000))
    }

    /// This host's own clock in microseconds from nowhere: it never goes back, and counts suspend.
    pub(super) fn steady_us(&self) -> i64 {
        self.source.steady_us()
    }

    /// How far off the clock may be at the most, in microseconds.
    pub(super) fn error_us(&self) -> i64 {
        self.belief().error(self.steady_us())
    }

    /// How often the clock was set. What was timed before that is void.
    pub(super) fn jumps(&self) -> u32 {
        self.belief().jumps
    }

    /// By how many microseconds it was set altogether.
    pub(super) fn set_by_us(&self) -> i64 {
        self.belief().set_by_us
    }

    /// How long until the clock shows `moment_us`; zero when it has passed.
    pub(super) fn until(&self, moment_us: i64) -> Duration {
        let left = moment_us.saturating_sub(self.now_us());
        Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    fn belief(&self) -> MutexGuard<'_, Belief> {
        // Whoever panicked with it left numbers that are as good as before.
        self.belief.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    fn steady_us(&self) -> i64 {
        match self {
            Self::Real(_) => steady_us(),
            #[cfg(test)]
            Self::Simulated(hands) => hands.steady_us(),
        }
    }

    fn wall_ahead_us(&self) -> i64 {
        match self {
            Self::Real(_) => wall_us() - steady_us(),
            #[cfg(test)]
            Self::Simulated(hands) => hands.wall_us() - hands.steady_us(),
        }
    }

    async fn look(&self) -> Result<Look, StoreError> {
        let asked_us = self.steady_us();
        let shown = match self {
            Self::Real(store) => store.now().await?,
            #[cfg(test)]
            Self::Simulated(hands) => hands.now().await,
        };
        Ok(Look {
            asked_us,
            answered_us: self.steady_us(),
            shown,
        })
    }
}

impl Look {
    /// The bounds of the difference: the clock was read somewhere between question and answer.
    fn bounds(self) -> (i64, i64) {
        let shown_us = self.shown.as_millis().saturating_mul(1_000);
        (
            shown_us + ROUNDED_US.0 - self.answered_us,
            shown_us + ROUNDED_US.1 - self.asked_us,
        )
    }
}

impl Belief {
    fn first(look: Look) -> Self {
        let (least_us, most_us) = look.bounds();
        Self {
            at_us: look.answered_us,
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

    /// Takes up another look; true when the clock had jumped.
    ///
    /// What was known and what was seen now are both true, so the truth lies where they overlap. Where
    /// they do not, somebody has set a clock, and only what was seen now counts. The difference in use
    /// stays where it is and goes to the new middle little by little, while `error` tells how far that
    /// still is. So nothing that was timed under the old one comes closer to what is timed under the new
    /// one than a window has room for, and what other workers time is kept away by the error.
    fn learn(&mut self, look: Look) -> bool {
        let now_us = look.answered_us;
        let used_us = self.used(now_us);
        let drifted_us = part(now_us.saturating_sub(self.at_us).max(0), DRIFT);
        let (seen_least, seen_most) = look.bounds();
        let least = seen_least.max(self.least_us - drifted_us);
        let most = seen_most.min(self.most_us + drifted_us);
        (self.least_us, self.most_us) = if least <= most {
            (least, most)
        } else {
            (seen_least, seen_most)
        };
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

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// So many millionths of a span.
fn part(span_us: i64, millionths: i64) -> i64 {
    span_us.saturating_mul(millionths) / 1_000_000
}

/// The host's clock that may be set.
fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, micros)
}

/// The host's clock that nobody sets and that goes on while the host is suspended.
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
