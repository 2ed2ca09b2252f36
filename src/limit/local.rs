//! The first gate, inside the process: how many permits the clerk may ask the shared pace for right
//! now. It keeps idle moments free of transactions, and it is where a provider that said "too fast"
//! is met at a lower rate that recovers step by step.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::HORIZON;
use crate::rate::Rate;

type Limiter = RateLimiter<
    NotKeyed,
    InMemoryState,
    FakeRelativeClock,
    NoOpMiddleware<<FakeRelativeClock as governor::clock::Clock>::Instant>,
>;

/// The rate after "too fast" is this part of what it was.
const SLOWER: f64 = 0.5;
/// And never below this part of the limit.
const SLOWEST: f64 = 1.0 / 64.0;
/// So often it is raised, by so much, while nobody complains.
const STEP_US: i64 = 5_000_000;
const FASTER: f64 = 1.25;
/// The gate is a little wider than the limit: the shared pace has the last word.
const SLACK: f64 = 1.02;

/// Decides for one provider; instants are in microseconds of one clock that never goes back.
pub struct LocalLimiter {
    clock: FakeRelativeClock,
    shown_us: i64,
    limiter: Option<Limiter>,
    /// Per second; `None` where nobody set a limit.
    configured: Option<f64>,
    /// Per second, while slowed.
    ceiling: f64,
    /// The part of the ceiling that is allowed; 1 when all is well.
    part: f64,
    stepped_us: i64,
    /// Granted, but not used.
    spare: u32,
    /// So many are granted at once or not at all.
    least: u32,
    /// What is granted at once lasts for so long.
    ahead: Duration,
    started: Started,
}

/// How fast messages were started of late.
#[derive(Default)]
struct Started {
    since_us: i64,
    count: u32,
    last_rate: f64,
}

impl LocalLimiter {
    /// A gate for the provider's limits, at a moment.
    pub fn new(limits: &[Rate], now_us: i64) -> Self {
        let configured = limits
            .iter()
            .filter(|rate| rate.window < Duration::from_secs(3_600))
            .map(|rate| rate.per_second())
            .reduce(f64::min);
        let clock = FakeRelativeClock::default();
        let mut gate = Self {
            clock,
            shown_us: now_us,
            limiter: None,
            configured,
            ceiling: configured.unwrap_or(0.0),
            part: 1.0,
            stepped_us: now_us,
            spare: 0,
            least: 1,
            ahead: HORIZON * 2,
            started: Started::default(),
        };
        gate.rebuild();
        gate
    }

    /// Grants enough at once for so long: a database far away is asked for more at a time.
    pub fn look_ahead(&mut self, span: Duration) {
        if span > self.ahead {
            self.ahead = span * 2;
            self.rebuild();
        }
    }

    /// The clock was set.
    pub fn shift(&mut self, by_us: i64) {
        for at_us in [
            &mut self.shown_us,
            &mut self.stepped_us,
            &mut self.started.since_us,
        ] {
            *at_us = at_us.saturating_add(by_us);
        }
    }

    /// How many of `want` permits may be asked for now: none before `least` of them may.
    pub fn grant(&mut self, want: u32, least: u32, now_us: i64) -> u32 {
        self.show(now_us);
        self.recover(now_us);
        if least > self.least {
            self.least = least;
            self.rebuild();
        }
        let Some(limiter) = &self.limiter else {
            return want;
        };
        let mut granted = self.spare.min(want);
        self.spare -= granted;
        while granted < want && limiter.check().is_ok() {
            granted += 1;
        }
        if granted < least {
            self.spare += granted;
            return 0;
        }
        granted
    }

    /// Takes back what was granted and not used.
    pub fn return_unused(&mut self, count: u32) {
        if self.limiter.is_some() {
            let burst = self.burst();
            self.spare = self.spare.saturating_add(count).min(burst.get());
        }
    }

    /// Notes that messages were started.
    pub fn note_started(&mut self, count: u32, now_us: i64) {
        let elapsed = now_us - self.started.since_us;
        if elapsed >= 1_000_000 {
            self.started = Started {
                since_us: now_us,
                count: 0,
                last_rate: self.started.rate(now_us),
            };
        }
        self.started.count = self.started.count.saturating_add(count);
    }

    /// The provider said "too fast": go on at half the rate.
    pub fn slow_down(&mut self, now_us: i64) {
        if self.part >= 1.0 {
            let measured = self
                .started
                .rate(now_us)
                .max(self.started.last_rate)
                .max(1.0);
            self.ceiling = self.configured.unwrap_or(measured);
        }
        self.part = (self.part * SLOWER).max(SLOWEST);
        self.stepped_us = now_us;
        self.spare = 0;
        self.rebuild();
    }

    /// Until when `least` permits will not be granted, at the earliest.
    pub fn next_us(&self, least: u32, now_us: i64) -> Option<i64> {
        self.limiter.as_ref()?;
        let missing = least.saturating_sub(self.spare).max(1);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "microseconds between some messages"
        )]
        let apart = (f64::from(missing) * 1_000_000.0 / self.rate()) as i64;
        Some(now_us + apart.min(1_000_000))
    }

    pub fn is_slowed(&self) -> bool {
        self.part < 1.0
    }

    fn rate(&self) -> f64 {
        let slack = if self.is_slowed() { 1.0 } else { SLACK };
        (self.ceiling * self.part * slack).max(0.001)
    }

    fn recover(&mut self, now_us: i64) {
        while self.is_slowed() && now_us - self.stepped_us >= STEP_US {
            self.stepped_us += STEP_US;
            self.part = (self.part * FASTER).min(1.0);
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        self.limiter = (self.configured.is_some() || self.is_slowed()).then(|| {
            let apart = Duration::from_secs_f64(1.0 / self.rate());
            let quota = Quota::with_period(apart.max(Duration::from_nanos(1)))
                .expect("a period of a nanosecond or more")
                .allow_burst(self.burst());
            RateLimiter::direct_with_clock(quota, self.clock.clone())
        });
    }

    /// What one look ahead of the shared pace can use, and never less than two calls.
    fn burst(&self) -> NonZeroU32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and rates are positive"
        )]
        let ahead = (self.rate() * self.ahead.as_secs_f64()).ceil() as u32;
        let least = self.least.saturating_mul(2);
        NonZeroU32::new(ahead.max(least)).unwrap_or(NonZeroU32::MIN)
    }

    fn show(&mut self, now_us: i64) {
        let passed = u64::try_from(now_us - self.shown_us).unwrap_or(0);
        self.clock.advance(Duration::from_micros(passed));
        self.shown_us = self.shown_us.max(now_us);
    }
}

impl Started {
    fn rate(&self, now_us: i64) -> f64 {
        let elapsed = Duration::from_micros(u64::try_from(now_us - self.since_us).unwrap_or(0));
        f64::from(self.count) / elapsed.as_secs_f64().max(0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(rate: &str) -> LocalLimiter {
        let limits = rate.parse::<crate::rate::Rates>().expect("rates").0;
        LocalLimiter::new(&limits, 0)
    }

    /// What the gate lets through in so many seconds, asked every millisecond.
    fn passed(gate: &mut LocalLimiter, from_us: i64, seconds: i64) -> u32 {
        (0..seconds * 1_000)
            .map(|millis| gate.grant(64, 1, from_us + millis * 1_000))
            .sum()
    }

    #[test]
    fn without_a_limit_it_is_open() {
        assert_eq!(gate("").grant(1_000, 1, 0), 1_000);
    }

    #[test]
    fn it_is_a_little_wider_than_the_limit() {
        let mut gate = gate("100/s");
        let count = passed(&mut gate, 0, 10);
        assert!((1_000..1_060).contains(&count), "{count}");
    }

    #[test]
    fn a_call_is_granted_whole_or_not_at_all_and_no_less_is_granted_for_that() {
        let mut gate = gate("100/s");
        let grants: Vec<u32> = (0..10_000)
            .map(|millis| gate.grant(64, 20, millis * 1_000))
            .filter(|granted| *granted > 0)
            .collect();
        assert!(grants.iter().all(|granted| *granted >= 20), "{grants:?}");
        let count: u32 = grants.iter().sum();
        assert!((1_000..1_080).contains(&count), "{count}");
        assert_eq!(gate.grant(64, 20, 10_000_000), 0);
        let next_us = gate.next_us(20, 10_000_000).expect("a limit");
        assert!(gate.grant(64, 20, next_us) >= 20, "{next_us}");
    }

    #[test]
    fn what_was_not_used_is_granted_again() {
        let mut gate = gate("10/s");
        assert_eq!(gate.grant(2, 1, 0), 2);
        assert_eq!(gate.grant(2, 1, 0), 0);
        gate.return_unused(1);
        assert_eq!(gate.grant(2, 1, 0), 1);
    }

    #[test]
    fn after_too_fast_it_is_half_as_wide_and_recovers_step_by_step() {
        let mut gate = gate("100/s");
        gate.slow_down(0);
        let count = passed(&mut gate, 0, 4);
        assert!((190..=230).contains(&count), "{count}");
        passed(&mut gate, 4_000_000, 30);
        assert!(!gate.is_slowed());
        let count = passed(&mut gate, 34_000_000, 4);
        assert!((400..=430).contains(&count), "{count}");
    }

    #[test]
    fn without_a_limit_the_measured_rate_is_halved() {
        let mut gate = gate("");
        for tick in 0..200 {
            gate.note_started(10, tick * 10_000);
        }
        gate.slow_down(2_000_000);
        let count = passed(&mut gate, 2_000_000, 4);
        assert!((1_900..=2_600).contains(&count), "{count}");
        passed(&mut gate, 6_000_000, 60);
        assert_eq!(gate.grant(5_000, 1, 70_000_000), 5_000);
    }
}
