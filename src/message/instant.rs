//! Instants in microseconds. Their type has the clock that they belong to, so that instants of two clocks are never
//! compared.

use std::marker::PhantomData;
use std::time::Duration;

use jiff::SignedDuration;

use super::sms::Timestamp;

/// An instant on the clock `C`, in microseconds. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros<C>(i64, PhantomData<C>);

/// The database's clock, since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatabaseClock;

/// The host's clock that is never set and counts suspend, since an unknown instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SteadyClock;

pub type DbMicros = Micros<DatabaseClock>;
pub type SteadyMicros = Micros<SteadyClock>;

impl<C: Copy> Micros<C> {
    pub const MIN: Self = Self::new(i64::MIN);
    pub const MAX: Self = Self::new(i64::MAX);

    pub const fn new(micros: i64) -> Self {
        Self(micros, PhantomData)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::new(self.0.saturating_add(micros(span)))
    }

    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self::new(self.0.saturating_sub(micros(span)))
    }

    #[must_use]
    pub fn shifted(self, by: SignedDuration) -> Self {
        let by = i64::try_from(by.as_micros()).unwrap_or(0);
        Self::new(self.0.saturating_add(by))
    }

    /// How long after `earlier` this instant is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

impl DbMicros {
    /// To the millisecond before.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millis(self.0.div_euclid(1_000))
    }
}

impl From<Timestamp> for DbMicros {
    fn from(at: Timestamp) -> Self {
        Self::new(at.as_millis().saturating_mul(1_000))
    }
}

/// A span in whole microseconds; saturates.
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
