//! The limiter of one process: how many permits the dispatcher may ask the shared limit for now. It avoids
//! transactions that cannot claim anything, and slows down a provider that answered "too fast".

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::SignedDuration;
use smsq_message::instant::DbMicros;
use smsq_message::rate::Rate;

use super::{HORIZON, PermitCost};

type Bucket = RateLimiter<
    NotKeyed,
    InMemoryState,
    FakeRelativeClock,
    NoOpMiddleware<<FakeRelativeClock as governor::clock::Clock>::Instant>,
>;

/// The rate of a throttled provider is multiplied by this.
const SLOW_DOWN: f64 = 0.5;
/// The rate never falls below this part of the limit.
const SLOWEST: f64 = 1.0 / 64.0;
/// How long after each step the rate is multiplied by [`SPEED_UP`], unless the provider is throttled again.
const STEP: Duration = Duration::from_secs(5);
const SPEED_UP: f64 = 1.25;
/// The pace is measured over at least this time and this many messages.
const PACE_SPAN: Duration = Duration::from_millis(100);
const PACE_COUNT: u32 = 20;
/// A limit is slack if it allows at least this many times the current rate.
const SLACK_FACTOR: f64 = 4.0;
/// How long a limit counts as the bottleneck after it gave too few permits.
const BOUND_FOR: Duration = Duration::from_secs(1);
/// Grants are a little wider than the limit, because the shared limit decides.
const SLACK: f64 = 1.02;

/// Limits one provider.
pub struct LocalLimiter {
    clock: FakeRelativeClock,
    /// The instant that `clock` shows.
    shown: DbMicros,
    /// `None` without a limit.
    bucket: Option<Bucket>,
    /// Per second; `None` without a limit.
    configured: Option<f64>,
    /// Per second; the rate from which the provider is slowed down.
    ceiling: f64,
    /// The allowed part of the ceiling; 1 unless the provider is slowed down.
    part: f64,
    stepped_at: DbMicros,
    /// Granted by the bucket, but not used.
    unused: u32,
    /// The size of the largest request; a request is granted as a whole or not at all.
    largest: u32,
    /// Grants are enough for this time.
    burst_span: Duration,
    started: Started,
    pace: Pace,
    /// When a limit last gave fewer permits than were asked for.
    bound_at: Option<DbMicros>,
}

/// How fast messages started recently.
#[derive(Default)]
struct Started {
    since: DbMicros,
    count: u32,
    last_rate: f64,
}

/// How fast requests start, in messages or segments, whichever are more.
struct Pace {
    since: DbMicros,
    count: u32,
    /// Infinite until it is known.
    per_second: f64,
}

impl Pace {
    fn new(now: DbMicros) -> Self {
        Self { since: now, count: 0, per_second: f64::INFINITY }
    }

    fn record(&mut self, cost: PermitCost, now: DbMicros) {
        let elapsed = now.since(self.since);
        if elapsed >= PACE_SPAN && self.count >= PACE_COUNT {
            self.per_second = f64::from(self.count) / elapsed.as_secs_f64();
            (self.since, self.count) = (now, 0);
        }
        let cost = cost.messages.max(cost.segments).unsigned_abs();
        self.count = self.count.saturating_add(cost);
    }
}

impl LocalLimiter {
    pub fn new(limits: &[Rate], now: DbMicros) -> Self {
        let configured = limits
            .iter()
            .filter(|rate| rate.window < super::LONG_WINDOW)
            .map(|rate| rate.per_second())
            .reduce(f64::min);
        let mut limiter = Self {
            clock: FakeRelativeClock::default(),
            shown: now,
            bucket: None,
            configured,
            ceiling: configured.unwrap_or(0.0),
            part: 1.0,
            stepped_at: now,
            unused: 0,
            largest: 1,
            burst_span: HORIZON * 2,
            started: Started::default(),
            pace: Pace::new(now),
            bound_at: None,
        };
        limiter.rebuild();
        limiter
    }

    /// Grants enough for this time at once, so that a distant database is asked less often.
    pub fn look_ahead(&mut self, span: Duration) {
        if span > self.burst_span {
            self.burst_span = span * 2;
            self.rebuild();
        }
    }

    /// Moves all instants when the clock is set.
    pub fn shift(&mut self, by: SignedDuration) {
        for at in
            [&mut self.shown, &mut self.stepped_at, &mut self.started.since, &mut self.pace.since]
        {
            *at = at.shifted(by);
        }
    }

    /// How many of `want` permits may be asked for now; none if fewer than `least` are allowed.
    pub fn grant(&mut self, want: u32, least: u32, now: DbMicros) -> u32 {
        self.clock.advance(now.since(self.shown));
        self.shown = self.shown.max(now);
        self.recover(now);
        if least > self.largest {
            self.largest = least;
            self.rebuild();
        }
        let Some(bucket) = &self.bucket else {
            return want;
        };
        let mut granted = self.unused.min(want);
        self.unused -= granted;
        while granted < want && bucket.check().is_ok() {
            granted += 1;
        }
        if granted < least {
            self.unused += granted;
            return 0;
        }
        granted
    }

    /// Takes back grants that were not used.
    pub fn return_unused(&mut self, count: u32) {
        if self.bucket.is_some() {
            let burst = self.burst().get();
            self.unused = self.unused.saturating_add(count).min(burst);
        }
    }

    /// Records what the requests cost that start now.
    pub fn record_started(&mut self, cost: PermitCost, now: DbMicros) {
        self.pace.record(cost, now);
        let messages = cost.messages.unsigned_abs();
        if now.since(self.started.since) >= Duration::from_secs(1) {
            self.started = Started { since: now, count: 0, last_rate: self.started.rate(now) };
        }
        self.started.count = self.started.count.saturating_add(messages);
    }

    /// Halves the rate of a provider that answered "too fast".
    pub fn slow_down(&mut self, now: DbMicros) {
        if self.part >= 1.0 {
            let recent = self.started.rate(now).max(self.started.last_rate);
            self.ceiling = self.configured.unwrap_or(recent.max(1.0));
        }
        self.part = (self.part * SLOW_DOWN).max(SLOWEST);
        self.stepped_at = now;
        self.unused = 0;
        self.rebuild();
    }

    /// The earliest instant at which `least` permits may be granted; `None` without a limit.
    pub fn next_at(&self, least: u32, now: DbMicros) -> Option<DbMicros> {
        self.bucket.as_ref()?;
        let missing = least.saturating_sub(self.unused).max(1);
        let wait = (f64::from(missing) / self.rate()).min(1.0);
        Some(now.plus(Duration::from_secs_f64(wait)))
    }

    /// A limit gave fewer permits than were asked for.
    pub fn set_bound(&mut self, now: DbMicros) {
        self.pace = Pace::new(now);
        self.bound_at = Some(now);
    }

    /// Whether that was recently.
    pub fn is_bound(&self, now: DbMicros) -> bool {
        self.bound_at.is_some_and(|at| now.since(at) < BOUND_FOR)
    }

    /// Whether a limit, in messages or segments per second, allows several times as many as start; `None` if nothing
    /// is limited.
    pub fn has_slack(&self, limit: Option<f64>) -> Option<bool> {
        if self.is_slowed() {
            return Some(false);
        }
        limit.map(|per_second| self.pace.per_second * SLACK_FACTOR <= per_second)
    }

    /// How many messages or segments start in this time at the current pace.
    pub fn starts_within(&self, span: Duration) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and rates are positive"
        )]
        let count = (self.pace.per_second * span.as_secs_f64()) as u32;
        count
    }

    /// Whether the provider asked to slow down, and the limit has not grown back yet.
    pub fn is_slowed(&self) -> bool {
        self.part < 1.0
    }

    fn rate(&self) -> f64 {
        let slack = if self.is_slowed() { 1.0 } else { SLACK };
        (self.ceiling * self.part * slack).max(0.001)
    }

    fn recover(&mut self, now: DbMicros) {
        while self.is_slowed() && now.since(self.stepped_at) >= STEP {
            self.stepped_at = self.stepped_at.plus(STEP);
            self.part = (self.part * SPEED_UP).min(1.0);
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        self.bucket = (self.configured.is_some() || self.is_slowed()).then(|| {
            let spacing = Duration::from_secs_f64(1.0 / self.rate());
            let quota = Quota::with_period(spacing.max(Duration::from_nanos(1)))
                .expect("the period is not zero")
                .allow_burst(self.burst());
            RateLimiter::direct_with_clock(quota, self.clock.clone())
        });
    }

    /// Enough for [`Self::look_ahead`], and at least two requests.
    fn burst(&self) -> NonZeroU32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and rates are positive"
        )]
        let burst = (self.rate() * self.burst_span.as_secs_f64()).ceil() as u32;
        let largest = self.largest.saturating_mul(2);
        NonZeroU32::new(burst.max(largest)).unwrap_or(NonZeroU32::MIN)
    }
}

impl Started {
    fn rate(&self, now: DbMicros) -> f64 {
        let elapsed = now.since(self.since).as_secs_f64();
        f64::from(self.count) / elapsed.max(0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> DbMicros {
        DbMicros::new(us)
    }

    fn limiter(rate: &str) -> LocalLimiter {
        let limits = rate.parse::<smsq_message::rate::Rates>().expect("rates").0;
        LocalLimiter::new(&limits, at(0))
    }

    /// What is granted in this many seconds, asked every millisecond.
    fn granted(limiter: &mut LocalLimiter, from_us: i64, seconds: i64) -> u32 {
        (0..seconds * 1_000).map(|millis| limiter.grant(64, 1, at(from_us + millis * 1_000))).sum()
    }

    #[test]
    fn everything_is_granted_without_a_limit() {
        assert_eq!(limiter("").grant(1_000, 1, at(0)), 1_000);
    }

    #[test]
    fn grants_are_a_little_wider_than_the_limit() {
        let count = granted(&mut limiter("100/s"), 0, 10);
        assert!((1_000..1_060).contains(&count), "{count}");
    }

    #[test]
    fn request_is_granted_whole_or_not_at_all() {
        let mut limiter = limiter("100/s");
        let grants: Vec<u32> = (0..10_000)
            .map(|millis| limiter.grant(64, 20, at(millis * 1_000)))
            .filter(|granted| *granted > 0)
            .collect();
        assert!(grants.iter().all(|granted| *granted >= 20), "{grants:?}");
        let count: u32 = grants.iter().sum();
        assert!((980..1_080).contains(&count), "{count}");
        let next_at = limiter.next_at(20, at(10_000_000)).expect("a limit");
        assert!(next_at > at(10_000_000), "{next_at:?}");
    }

    #[test]
    fn unused_permits_are_granted_again() {
        let mut limiter = limiter("10/s");
        assert_eq!(limiter.grant(2, 1, at(0)), 2);
        assert_eq!(limiter.grant(2, 1, at(0)), 0);
        limiter.return_unused(1);
        assert_eq!(limiter.grant(2, 1, at(0)), 1);
    }

    #[test]
    fn throttled_provider_is_halved_and_recovers_step_by_step() {
        let mut limiter = limiter("100/s");
        limiter.slow_down(at(0));
        let count = granted(&mut limiter, 0, 4);
        assert!((190..=230).contains(&count), "{count}");
        granted(&mut limiter, 4_000_000, 30);
        assert!(!limiter.is_slowed());
        let count = granted(&mut limiter, 34_000_000, 4);
        assert!((400..=430).contains(&count), "{count}");
    }

    #[test]
    fn measured_rate_is_halved_without_a_limit() {
        let mut limiter = limiter("");
        for tick in 0..200 {
            let cost = PermitCost { messages: 10, segments: 10 };
            limiter.record_started(cost, at(tick * 10_000));
        }
        limiter.slow_down(at(2_000_000));
        let count = granted(&mut limiter, 2_000_000, 4);
        assert!((1_900..=2_600).contains(&count), "{count}");
        granted(&mut limiter, 6_000_000, 60);
        assert_eq!(limiter.grant(5_000, 1, at(70_000_000)), 5_000);
    }

    fn messages(count: i32) -> PermitCost {
        PermitCost { messages: count, segments: count }
    }

    #[track_caller]
    fn assert_rate(limiter: &LocalLimiter, expected: f64) {
        let rate = limiter.rate();
        assert!((rate - expected).abs() < 1e-9, "{rate} instead of {expected}");
    }

    #[test]
    fn strictest_short_window_is_the_rate() {
        for (limits, expected) in
            [("100/s", 102.0), ("100/s,600/min", 10.2), ("100/s,1/hour", 102.0), ("1/59min", 0.001)]
        {
            assert_rate(&limiter(limits), expected);
        }
        assert_eq!(limiter("1/hour").next_at(1, at(0)), None);
    }

    #[test]
    fn burst_is_enough_for_the_look_ahead_and_two_requests() {
        assert_eq!(limiter("1/s").grant(64, 1, at(0)), 2);
        assert_eq!(limiter("1/s").grant(64, 20, at(0)), 40);
        assert_eq!(limiter("100/s").grant(64, 1, at(0)), 11);
        assert_eq!(limiter("100/s").grant(3, 1, at(0)), 3);
        let ahead = |span: u64| {
            let mut limiter = limiter("100/s");
            limiter.look_ahead(Duration::from_millis(span));
            limiter.grant(1_000, 1, at(0))
        };
        assert_eq!(ahead(100), 11);
        assert_eq!(ahead(1_000), 204);
    }

    #[test]
    fn grants_that_are_too_few_are_kept() {
        let mut limiter = limiter("10/s");
        assert_eq!(limiter.grant(4, 2, at(0)), 4);
        limiter.return_unused(1);
        assert_eq!(limiter.grant(2, 2, at(0)), 0);
        assert_eq!(limiter.grant(1, 1, at(0)), 1);
        assert_eq!(limiter.grant(1, 1, at(0)), 0);
    }

    #[test]
    fn at_most_one_burst_of_unused_permits_is_kept() {
        let mut limiter = limiter("10/s");
        limiter.return_unused(100);
        assert_eq!(limiter.grant(64, 1, at(0)), 4);
    }

    #[test]
    fn next_grant_is_expected_when_what_is_missing_has_accrued() {
        assert_eq!(limiter("").next_at(1, at(0)), None);
        let mut limiter = limiter("100/s");
        limiter.slow_down(at(0));
        assert_eq!(limiter.next_at(1, at(7)), Some(at(20_007)));
        assert_eq!(limiter.next_at(0, at(7)), Some(at(20_007)));
        assert_eq!(limiter.next_at(5, at(7)), Some(at(100_007)));
        limiter.return_unused(2);
        assert_eq!(limiter.next_at(5, at(7)), Some(at(60_007)));
        // It is asked again after a second at the latest.
        assert_eq!(limiter.next_at(500, at(7)), Some(at(1_000_007)));
    }

    #[test]
    fn throttled_rate_has_a_minimum_and_grows_every_five_seconds() {
        let mut limiter = limiter("64/s");
        for _ in 0..20 {
            limiter.slow_down(at(0));
        }
        assert_rate(&limiter, 1.0);
        limiter.grant(1, 1, at(4_999_999));
        assert_rate(&limiter, 1.0);
        limiter.grant(1, 1, at(5_000_000));
        assert_rate(&limiter, 1.25);
        // Two steps at once.
        limiter.grant(1, 1, at(15_000_000));
        assert_rate(&limiter, 1.953_125);
        limiter.slow_down(at(17_000_000));
        limiter.grant(1, 1, at(21_999_999));
        assert_rate(&limiter, 1.0);
        assert!(limiter.is_slowed());
        limiter.grant(1, 1, at(122_000_000));
        assert!(!limiter.is_slowed());
        assert_rate(&limiter, 65.28);
    }

    #[test]
    fn throttled_rate_without_a_limit_is_half_of_the_measured_one() {
        let started = |starts: &[(i64, i32)], slowed_at: i64| {
            let mut limiter = limiter("");
            for (us, count) in starts {
                limiter.record_started(messages(*count), at(*us));
            }
            limiter.slow_down(at(slowed_at));
            limiter
        };
        assert_rate(&started(&[(0, 100)], 500_000), 100.0);
        // A tenth of a second is too short to measure.
        assert_rate(&started(&[(0, 100)], 1), 500.0);
        assert_rate(&started(&[], 1), 0.5);
        // The last whole second counts if it was faster.
        assert_rate(&started(&[(0, 100), (1_000_000, 10)], 1_500_000), 50.0);
        assert_rate(&started(&[(0, 100), (1_000_000, 400)], 1_500_000), 400.0);
        assert_rate(&started(&[(0, 100), (999_999, 10)], 1_100_000), 50.0);
        let mut twice = started(&[(0, 100)], 500_000);
        twice.slow_down(at(900_000));
        assert_rate(&twice, 50.0);
    }

    #[test]
    fn limit_is_bound_for_a_second_after_it_gave_too_few() {
        let mut limiter = limiter("10/s");
        assert!(!limiter.is_bound(at(0)));
        limiter.set_bound(at(5));
        assert!(limiter.is_bound(at(1_000_004)));
        assert!(!limiter.is_bound(at(1_000_005)));
    }

    #[test]
    fn limit_has_slack_if_it_allows_four_times_the_pace() {
        let mut limiter = limiter("10/s");
        assert_eq!(limiter.has_slack(None), None);
        assert_eq!(limiter.has_slack(Some(1e9)), Some(false));
        let segments = PermitCost { messages: 1, segments: 19 };
        limiter.record_started(segments, at(0));
        limiter.record_started(messages(1), at(100_000));
        assert_eq!(limiter.has_slack(Some(1e9)), Some(false));
        limiter.record_started(messages(10), at(200_000));
        // 20 in 0.2 s.
        assert_eq!(limiter.starts_within(Duration::from_secs(1)), 100);
        assert_eq!(limiter.has_slack(Some(400.0)), Some(true));
        assert_eq!(limiter.has_slack(Some(399.9)), Some(false));
        limiter.record_started(messages(30), at(299_999));
        assert_eq!(limiter.has_slack(Some(400.0)), Some(true));
        limiter.record_started(messages(1), at(300_000));
        // 40 in 0.1 s.
        assert_eq!(limiter.has_slack(Some(1_599.9)), Some(false));
        assert_eq!(limiter.has_slack(Some(1_600.0)), Some(true));
        limiter.set_bound(at(300_000));
        assert_eq!(limiter.has_slack(Some(1e9)), Some(false));
        limiter.slow_down(at(300_000));
        assert_eq!(limiter.has_slack(None), Some(false));
    }

    #[test]
    fn limiter_continues_when_the_clock_is_set() {
        const HOUR_US: i64 = 3_600_000_000;
        let mut limiter = limiter("100/s");
        limiter.record_started(messages(20), at(0));
        limiter.slow_down(at(0));
        let burst = limiter.grant(64, 1, at(0));
        assert_eq!(limiter.grant(64, 1, at(0)), 0);
        limiter.shift(SignedDuration::from_hours(1));
        assert_eq!(limiter.grant(64, 1, at(HOUR_US + 20_000)), 1);
        assert!(burst > 1);
        assert_rate(&limiter, 50.0);
        limiter.grant(1, 1, at(HOUR_US + 100_000_000));
        assert!(!limiter.is_slowed());
    }
}
