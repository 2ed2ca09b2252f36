//! The shared limit. Every message gets a moment at which it may start, and the moments are spaced so
//! that no sliding window ever holds more than the limit, whoever sends and however often it restarts.
//! Pure arithmetic over one row of table `pace`, in microseconds of the database's clock.

pub(super) mod allotment;
mod buckets;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rate::Rate;
use crate::sms::Timestamp;
use buckets::{Buckets, bucket_us};

/// A request starts within so long of its moment or not at all.
pub const GRACE: Duration = Duration::from_millis(10);
/// How far past the commit moments are given out.
pub const HORIZON: Duration = Duration::from_millis(50);

/// Windows from here up are counted in buckets, shorter ones are kept by spacing alone.
const BUCKETED: Duration = Duration::from_secs(3_600);

/// One row of table `pace`: the limit of a provider's account or of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    pub(super) next_us: i64,
    pub(super) cost_max: i32,
    pub(super) slowest_us: i64,
    pub(super) slowest_until: i64,
    pub(super) slowest_by: Option<i64>,
    pub(super) stopped_until: i64,
    buckets: BTreeMap<u64, Buckets>,
    limits: Vec<Rate>,
    spacing_us: i64,
}

/// The row of a provider's account.
pub(super) fn provider_scope(provider: &str) -> String {
    format!("provider/{provider}")
}

/// The row of a campaign.
pub(super) fn campaign_scope(campaign_id: i64) -> String {
    format!("campaign/{campaign_id}")
}

/// `next_us, cost_max, slowest_us, slowest_until, slowest_by, buckets, stopped_until`.
pub(super) type Columns = (i64, i32, i64, i64, Option<i64>, String, i64);

impl Pace {
    /// The row's columns, `scope` left out, in the order of the table.
    pub(super) fn of(
        (next_us, cost_max, slowest_us, slowest_until, slowest_by, buckets, stopped_until): Columns,
    ) -> Self {
        Self {
            next_us,
            cost_max,
            slowest_us,
            slowest_until,
            slowest_by,
            stopped_until,
            ..Self::default()
        }
        .with_buckets_json(&buckets)
    }

    /// The counts of its long windows, as column `buckets` keeps them.
    pub(super) fn buckets_json(&self) -> String {
        serde_json::to_string(&self.buckets).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Unreadable counts are taken as none.
    pub(super) fn with_buckets_json(mut self, json: &str) -> Self {
        self.buckets = serde_json::from_str(json).unwrap_or_default();
        self
    }

    /// Takes up the row under one worker's limits. Where workers disagree, the wider spacing holds
    /// while its owner lives: it is renewed at each call and lapses after `lease`.
    pub fn begin(&mut self, limits: &[Rate], worker_id: i64, now_us: i64, lease: Duration) {
        self.limits = limits.to_vec();
        let longest = self.short_windows().map(window_us).max().unwrap_or(0);
        let idle = self.next_us.saturating_add(longest) < now_us;
        if self.cost_max < 1 || idle {
            self.cost_max = 1;
        }
        let own = self.own_spacing(self.cost_max);
        let now = now_us / 1_000;
        let others = self.slowest_until > now && self.slowest_by != Some(worker_id);
        if own > 0 && (!others || own >= self.slowest_us) {
            self.slowest_us = own;
            self.slowest_by = Some(worker_id);
            self.slowest_until = Timestamp::from_millis(now).plus(lease).as_millis();
        }
        self.spacing_us = if others {
            own.max(self.slowest_us)
        } else {
            own
        };
        // A clock that was set back must not hold everybody up until it has caught up.
        let furthest = now_us
            .saturating_add(longest.max(self.spacing_us.saturating_mul(i64::from(self.cost_max))))
            .saturating_add(micros(GRACE + HORIZON * 4));
        self.next_us = self.next_us.min(furthest);
    }

    /// Whether there is anything to keep; without, every message may start at once.
    pub fn is_limited(&self) -> bool {
        self.spacing_us > 0 || !self.limits.is_empty()
    }

    /// The dearest message of late: what the next one will cost, at a guess.
    pub fn usual_cost(&self) -> i32 {
        self.cost_max.max(1)
    }

    /// The first moment, at or after `from_us`, at which a message of `cost` may start.
    pub fn earliest(&self, cost: i32, from_us: i64) -> i64 {
        let mut moment = from_us.max(self.stopped_until.saturating_mul(1_000));
        if self.spacing_us > 0 {
            let dearer = i64::from((cost - self.cost_max).max(0));
            let spacing = self.spacing_for(cost.max(self.cost_max));
            moment = moment.max(self.next_us.saturating_add(dearer.saturating_mul(spacing)));
        }
        for rate in self.long_windows() {
            if let Some(buckets) = self.buckets.get(&rate.window.as_secs()) {
                moment = moment.max(buckets.earliest(*rate, cost, moment));
            }
        }
        moment
    }

    /// Spends the moment on a message of `cost`.
    pub fn take(&mut self, cost: i32, moment_us: i64) {
        self.cost_max = self.cost_max.max(cost);
        self.spacing_us = self.spacing_for(self.cost_max);
        self.slowest_us = self.slowest_us.max(self.own_spacing(self.cost_max));
        self.next_us =
            moment_us.saturating_add(self.spacing_us.saturating_mul(i64::from(cost.max(1))));
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            let buckets = self.buckets.entry(rate.window.as_secs()).or_default();
            buckets.count(rate, cost, moment_us);
        }
    }

    /// Takes back a moment at which nothing started. Where somebody has a later moment already, the
    /// short windows stay as they are: that one was spaced from this.
    pub fn give_back(&mut self, cost: i32, moment_us: i64) {
        let spacing = self.spacing_us.saturating_mul(i64::from(cost.max(1)));
        if self.next_us == moment_us.saturating_add(spacing) {
            self.next_us = moment_us;
        }
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if let Some(buckets) = self.buckets.get_mut(&rate.window.as_secs()) {
                buckets.discount(rate, cost, moment_us);
            }
        }
    }

    /// Takes every window as full from now: the clock jumped, and nobody knows what they hold.
    pub fn refill(&mut self, now_us: i64) {
        let longest = self.short_windows().map(window_us).max().unwrap_or(0);
        self.next_us = now_us.saturating_add(longest).saturating_add(micros(GRACE));
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if let Some(buckets) = self.buckets.get_mut(&rate.window.as_secs()) {
                buckets.gather(now_us.div_euclid(bucket_us(rate)));
            }
        }
    }

    fn short_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window < BUCKETED)
    }

    fn long_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window >= BUCKETED)
    }

    fn own_spacing(&self, cost_max: i32) -> i64 {
        self.short_windows()
            .map(|rate| spacing_us(*rate, cost_max))
            .max()
            .unwrap_or(0)
    }

    fn spacing_for(&self, cost_max: i32) -> i64 {
        self.spacing_us.max(self.own_spacing(cost_max))
    }
}

/// The distance between two messages of cost 1, so that any `N` costs in a row span more than a
/// window and a grace. A dear message counts whole in the window that it opens, hence the `cost_max`.
fn spacing_us(rate: Rate, cost_max: i32) -> i64 {
    let limit = i64::from(rate.limit.get());
    let room = (limit + 1 - i64::from(cost_max)).max(1);
    let span = window_us(&rate) + micros(GRACE);
    (span + room - 1) / room
}

fn window_us(rate: &Rate) -> i64 {
    micros(rate.window)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn rates(text: &str) -> Vec<Rate> {
        text.parse::<crate::rate::Rates>().expect("rates").0
    }

    /// Sends as fast as the pace allows, each start late by up to the grace; returns starts and costs.
    fn starts(limits: &[Rate], costs: &[i32], lateness: &[i64], restarts: bool) -> Vec<(i64, i32)> {
        let mut pace = Pace::default();
        let mut now = 1_700_000_000_000_000;
        let mut starts: Vec<(i64, i32)> = Vec::new();
        for (index, cost) in costs.iter().enumerate() {
            if restarts {
                let json = pace.buckets_json();
                pace = pace.with_buckets_json(&json);
            }
            pace.begin(limits, 1, now, LEASE);
            let moment = pace.earliest(*cost, now);
            pace.take(*cost, moment);
            now = moment;
            let late = lateness[index % lateness.len()];
            starts.push((moment + late, *cost));
        }
        starts.sort_unstable();
        starts
    }

    fn fullest_window(starts: &[(i64, i32)], window: Duration) -> i64 {
        let mut first = 0;
        let mut held = 0;
        let mut most = 0;
        for (at, cost) in starts {
            held += i64::from(*cost);
            while at - starts[first].0 >= micros(window) {
                held -= i64::from(starts[first].1);
                first += 1;
            }
            most = most.max(held);
        }
        most
    }

    proptest! {
        #[test]
        fn no_sliding_window_holds_more_than_its_limit(
            limit in 1_u32..40,
            seconds in 1_u64..100,
            lateness in prop::collection::vec(0_i64..=10_000, 1..20),
            restarts: bool,
        ) {
            let limits = rates(&format!("{limit}/{seconds}s"));
            let starts = starts(&limits, &[1; 200], &lateness, restarts);
            prop_assert!(fullest_window(&starts, limits[0].window) <= i64::from(limit));
        }

        #[test]
        fn a_moment_that_was_not_used_is_had_again(
            limit in 1_u32..40,
            window in prop::sample::select(vec!["s", "min", "hour", "day"]),
            before in 0_usize..50,
            lapsed in 1_usize..5,
        ) {
            let limits = rates(&format!("{limit}/{window}"));
            let mut pace = Pace::default();
            let mut now = 1_700_000_000_000_000;
            pace.begin(&limits, 1, now, LEASE);
            for _ in 0..before {
                now = pace.earliest(1, now);
                pace.take(1, now);
            }
            let kept = pace.earliest(1, now);
            let mut moments = Vec::new();
            for _ in 0..lapsed {
                let moment = pace.earliest(1, now);
                if moment < now + micros(HORIZON) {
                    pace.take(1, moment);
                    moments.push(moment);
                }
            }
            for moment in moments.into_iter().rev() {
                pace.give_back(1, moment);
            }
            prop_assert_eq!(pace.earliest(1, now), kept);
        }

        #[test]
        fn segments_are_kept_to_the_limit_whatever_their_mixture(
            limit in 12_u32..60,
            costs in prop::collection::vec(1_i32..=10, 50..300),
            lateness in prop::collection::vec(0_i64..=10_000, 1..20),
        ) {
            let limits = rates(&format!("{limit}/s"));
            let starts = starts(&limits, &costs, &lateness, true);
            prop_assert!(fullest_window(&starts, limits[0].window) <= i64::from(limit));
        }

        #[test]
        fn long_windows_are_kept_beside_short_ones(
            per_hour in 1_u32..300,
            per_second in 1_u32..20,
            lateness in prop::collection::vec(0_i64..=10_000, 1..20),
        ) {
            let limits = rates(&format!("{per_second}/s,{per_hour}/hour"));
            let starts = starts(&limits, &[1; 700], &lateness, true);
            for rate in &limits {
                let most = fullest_window(&starts, rate.window);
                prop_assert!(most <= i64::from(rate.limit.get()), "{most} in {rate}");
            }
        }
    }

    #[test]
    fn at_least_95_percent_of_a_limit_is_used() {
        for text in ["1/s", "50/s", "3000/s", "300/min", "1/10s", "6000/hour"] {
            let limits = rates(text);
            let starts = starts(&limits, &vec![1; 60_000], &[0], false);
            let span = starts[59_999].0 - starts[0].0;
            let allowed =
                limits[0].per_second() * Duration::from_micros(span.unsigned_abs()).as_secs_f64();
            assert!(60_000.0 >= 0.95 * allowed, "{text}: 60000 of {allowed}");
        }
    }

    #[test]
    fn the_wider_spacing_of_a_living_worker_holds_for_all_of_them() {
        let mut pace = Pace::default();
        let now = 1_700_000_000_000_000;
        pace.begin(&rates("10/s"), 1, now, LEASE);
        pace.take(1, now);
        pace.begin(&rates("100/s"), 2, now, LEASE);
        assert_eq!(pace.earliest(1, now) - now, 101_000);
        pace.take(1, now);
        pace.begin(&rates("100/s"), 2, now + 31_000_000, LEASE);
        pace.take(1, now + 31_000_000);
        assert_eq!(pace.earliest(1, 0) - (now + 31_000_000), 10_100);
    }

    #[test]
    fn its_owner_may_narrow_the_spacing_again() {
        let mut pace = Pace::default();
        let now = 1_700_000_000_000_000;
        pace.begin(&rates("10/s"), 1, now, LEASE);
        pace.begin(&rates("100/s"), 1, now, LEASE);
        pace.take(1, now);
        assert_eq!(pace.earliest(1, now) - now, 10_100);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_up_nobody_for_longer_than_a_window() {
        let mut pace = Pace::default();
        let now = 1_700_000_000_000_000;
        pace.begin(&rates("10/s"), 1, now, LEASE);
        pace.take(1, now);
        let hour_ago = now - 3_600_000_000;
        pace.begin(&rates("10/s"), 1, hour_ago, LEASE);
        assert!(pace.earliest(1, hour_ago) <= hour_ago + 1_300_000);
    }

    #[test]
    fn a_stop_is_kept_by_those_without_a_limit_too() {
        let mut pace = Pace {
            stopped_until: 5_000,
            ..Pace::default()
        };
        pace.begin(&[], 1, 1_000_000, LEASE);
        assert_eq!(pace.earliest(1, 1_000_000), 5_000_000);
    }

    #[test]
    fn after_a_jump_of_the_clock_every_window_counts_as_full() {
        let limits = rates("10/s,100/hour");
        let mut pace = Pace::default();
        let now = 1_700_000_000_000_000;
        pace.begin(&limits, 1, now, LEASE);
        for _ in 0..50 {
            let moment = pace.earliest(1, now);
            pace.take(1, moment);
        }
        pace.refill(now + 86_400_000_000);
        let next = pace.earliest(1, now + 86_400_000_000);
        assert_eq!(next - (now + 86_400_000_000), 1_010_000);
        assert_eq!(pace.buckets[&3_600].counts, [50]);
    }
}
