//! The shared limit under any mixture of costs, late starts and restarts.

use super::*;
use crate::limit::HORIZON;
use std::time::Duration;

use proptest::prelude::*;

fn at(us: i64) -> DbMicros {
    DbMicros::new(us)
}

fn rates(text: &str) -> Vec<Rate> {
    text.parse::<crate::rate::Rates>().expect("rates").0
}

/// Sends as fast as the limit allows, each start late by up to the tolerance; returns starts and costs.
fn starts(limits: &[Rate], costs: &[i32], lateness: &[i64], restarts: bool) -> Vec<(i64, i32)> {
    let mut limit = SharedLimit::default();
    let mut now = 1_700_000_000_000_000;
    let mut starts: Vec<(i64, i32)> = Vec::new();
    for (index, cost) in costs.iter().enumerate() {
        if restarts {
            limit = SharedLimit::from_row(limit.to_row());
        }
        limit.begin(limits, 1, at(now), Tolerance::MIN);
        let start_us = limit.earliest(*cost, at(now)).as_micros();
        limit.take(*cost, at(start_us));
        now = start_us;
        let late = lateness[index % lateness.len()];
        starts.push((start_us + late, *cost));
    }
    starts.sort_unstable();
    starts
}

/// A part of the highest cost of a request, at least 1.
#[expect(clippy::cast_possible_truncation, reason = "less than the most")]
fn part_of(most: i32, part: f64) -> i32 {
    ((f64::from(most) * part) as i32).max(1)
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
    fn sliding_window_never_exceeds_its_limit(
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
    fn unused_permit_is_given_out_again(
        limit in 1_u32..40,
        window in prop::sample::select(vec!["s", "min", "hour", "day"]),
        before in 0_usize..50,
        lapsed in 1_usize..5,
    ) {
        let limits = rates(&format!("{limit}/{window}"));
        let mut limit = SharedLimit::default();
        let mut now = 1_700_000_000_000_000;
        limit.begin(&limits, 1, at(now), Tolerance::MIN);
        for _ in 0..before {
            now = limit.earliest(1, at(now)).as_micros();
            limit.take(1, at(now));
        }
        let kept = limit.earliest(1, at(now)).as_micros();
        let mut moments = Vec::new();
        for _ in 0..lapsed {
            let start_us = limit.earliest(1, at(now)).as_micros();
            if start_us < now + micros(HORIZON) {
                limit.take(1, at(start_us));
                moments.push(start_us);
            }
        }
        for start_us in moments.into_iter().rev() {
            limit.give_back(1, at(start_us));
        }
        prop_assert_eq!(limit.earliest(1, at(now)).as_micros(), kept);
    }

    #[test]
    fn mixed_segment_counts_keep_the_limit(
        limit in 12_u32..60,
        costs in prop::collection::vec(1_i32..=10, 50..300),
        lateness in prop::collection::vec(0_i64..=10_000, 1..20),
    ) {
        let limits = rates(&format!("{limit}/s"));
        let starts = starts(&limits, &costs, &lateness, true);
        prop_assert!(fullest_window(&starts, limits[0].window) <= i64::from(limit));
    }

    #[test]
    fn batches_keep_the_limit_by_their_messages(
        limit in 40_u32..3_000,
        seconds in prop::sample::select(vec![1_u64, 10, 60]),
        parts in prop::collection::vec(0.0..=1.0_f64, 50..200),
        lateness in prop::collection::vec(0_i64..=10_000, 1..20),
    ) {
        let limits = rates(&format!("{limit}/{seconds}s"));
        let most = max_request_cost(&limits);
        let costs: Vec<i32> = parts.iter().map(|part| part_of(most, *part)).collect();
        let starts = starts(&limits, &costs, &lateness, true);
        prop_assert!(fullest_window(&starts, limits[0].window) <= i64::from(limit));
    }

    #[test]
    fn long_and_short_windows_are_kept_together(
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
fn single_messages_use_at_least_95_percent_of_a_limit() {
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
fn largest_batches_use_at_least_95_percent_of_a_limit() {
    for text in [
        "20/s",
        "50/s",
        "64/s",
        "100/s",
        "3000/s",
        "300/min",
        "6000/hour",
    ] {
        let limits = rates(text);
        let cost = max_request_cost(&limits);
        let starts = starts(&limits, &vec![cost; 20_000], &[0], false);
        let span = starts[19_999].0 - starts[0].0;
        let allowed =
            limits[0].per_second() * Duration::from_micros(span.unsigned_abs()).as_secs_f64();
        let used = f64::from(cost) * 20_000.0;
        assert!(used >= 0.95 * allowed, "{text}: {used} of {allowed}");
    }
}

#[test]
fn request_costs_a_small_part_of_the_tightest_limit() {
    let most = |text: &str| {
        let mut limit = SharedLimit::default();
        limit.begin(&rates(text), 1, at(1_700_000_000_000_000), Tolerance::MIN);
        limit.max_request_cost()
    };
    assert_eq!(most("4000/s"), 100);
    assert_eq!(most("4000/s,800/hour"), 20);
    assert_eq!(most("39/s"), 1);
    assert_eq!(SharedLimit::default().max_request_cost(), i32::MAX);
}

#[test]
fn wider_limit_applies_from_the_last_permit() {
    let now = 1_700_000_000_000_000;
    let next_under = |text: &str, change: fn(&mut SharedLimit)| {
        let mut limit = SharedLimit::default();
        limit.begin(&rates("1/min"), 1, at(now), Tolerance::MIN);
        limit.take(1, at(now));
        change(&mut limit);
        let mut limit = SharedLimit::from_row(limit.to_row());
        limit.begin(&rates(text), 1, at(now + 1_000_000), Tolerance::MIN);
        limit.earliest(1, at(now)).as_micros() - now
    };
    assert_eq!(next_under("100/s", |_| ()), 10_120);
    assert_eq!(next_under("1/10s", |_| ()), 10_030_000);
    assert_eq!(next_under("1/min", |_| ()), 60_130_000);
    // A tighter one follows at the old distance, and keeps its own from then on.
    assert_eq!(next_under("1/2min", |_| ()), 60_130_000);
    let full = next_under("1/10s", |limit| limit.fill(at(1_700_000_000_000_000)));
    assert!(full > 20_000_000, "a refill is kept: {full}");
}

#[test]
fn clock_set_back_delays_permits_only_briefly() {
    let mut limit = SharedLimit::default();
    let now = 1_700_000_000_000_000;
    limit.begin(&rates("10/s"), 1, at(now), Tolerance::MIN);
    limit.take(1, at(now));
    let hour_ago = now - 3_600_000_000;
    limit.begin(&rates("10/s"), 1, at(hour_ago), Tolerance::MIN);
    assert!(
        limit.earliest(1, at(hour_ago)).as_micros()
            <= hour_ago + 1_100_000 + micros(MAX_LOOK_AHEAD)
    );
}

#[test]
fn pause_applies_without_a_limit() {
    let mut limit = SharedLimit {
        paused_until: 5_000,
        ..SharedLimit::default()
    };
    limit.begin(&[], 1, at(1_000_000), Tolerance::MIN);
    assert_eq!(limit.earliest(1, at(1_000_000)).as_micros(), 5_000_000);
}

#[test]
fn filled_windows_count_as_full() {
    let limits = rates("10/s,100/hour");
    let mut limit = SharedLimit::default();
    let now = 1_700_000_000_000_000;
    limit.begin(&limits, 1, at(now), Tolerance::MIN);
    for _ in 0..50 {
        let start_us = limit.earliest(1, at(now)).as_micros();
        limit.take(1, at(start_us));
    }
    limit.fill(at(now + 86_400_000_000));
    let next = limit.earliest(1, at(now + 86_400_000_000)).as_micros();
    assert_eq!(next - (now + 86_400_000_000), 1_012_000);
    let json = limit.to_row().2;
    assert!(json.contains(r#""counts":[50]"#), "{json}");
}
