//! The shared limit under any mixture of costs, late starts and restarts.

use super::*;
use crate::HORIZON;
use std::time::Duration;

use proptest::prelude::*;

fn at(us: i64) -> DbMicros {
    DbMicros::new(us)
}

fn rates(text: &str) -> Vec<Rate> {
    text.parse::<smsq_message::rate::Rates>().expect("rates").0
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
    for text in ["20/s", "50/s", "64/s", "100/s", "3000/s", "300/min", "6000/hour"] {
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
    let mut limit = SharedLimit { paused_until: 5_000, ..SharedLimit::default() };
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

/// The limit of worker 1 with the smallest tolerance.
fn begun(text: &str, now: i64) -> SharedLimit {
    let mut limit = SharedLimit::default();
    limit.begin(&rates(text), 1, at(now), Tolerance::MIN);
    limit
}

#[test]
fn row_is_read_as_it_was_written() {
    let mut limit = begun("10/s,100/hour", 1_000);
    limit.take(3, at(1_000));
    limit.pause(Timestamp::from_millis(7), "why");
    let row = limit.to_row();
    assert_eq!((row.0, row.1, row.3), (limit.next_us, 3, 7));
    assert_eq!(row.4.as_deref(), Some("why"));
    let read = SharedLimit::from_row(row.clone());
    assert!(!read.is_unreadable());
    assert_eq!(read.state, limit.state);
    assert_eq!(read.to_row(), row);
}

#[test]
fn unreadable_state_is_kept_until_its_windows_are_filled() {
    let row = (0, 1, "unreadable".to_owned(), 0, None);
    let mut limit = SharedLimit::from_row(row.clone());
    assert!(limit.is_unreadable());
    assert_eq!(limit.to_row(), row);
    limit.begin(&rates("10/hour"), 1, at(5), Tolerance::MIN);
    limit.fill(at(5));
    assert!(!limit.is_unreadable());
    // A window and two buckets are full.
    assert_eq!(limit.earliest(1, at(5)).as_micros(), 62 * 60_000_000);
}

#[test]
fn later_pause_replaces_an_earlier_one() {
    let mut limit = SharedLimit::default();
    for (until, reason) in [(5, "first"), (5, "same"), (4, "earlier")] {
        limit.pause(Timestamp::from_millis(until), reason);
        assert_eq!(limit.pause_reason.as_deref(), Some("first"));
        assert_eq!(limit.earliest(1, at(0)), at(5_000));
    }
    limit.pause(Timestamp::from_millis(6), "later");
    assert_eq!(limit.pause_reason.as_deref(), Some("later"));
    assert_eq!(limit.earliest(1, at(0)), at(6_000));
    assert_eq!(limit.earliest(1, at(7_000)), at(7_000));
}

#[test]
fn short_or_long_window_is_a_limit() {
    let is_limited = ["", "10/s", "10/hour"].map(|text| begun(text, 0).is_limited());
    assert_eq!(is_limited, [false, true, true]);
}

#[test]
fn space_leaves_room_for_the_tolerance_and_largest_message() {
    let space = |text: &str, max_cost| spacing_us(rates(text)[0], max_cost, 10_000);
    assert_eq!(space("1/s", 1), 1_012_000);
    assert_eq!(space("10/s", 1), 101_200);
    assert_eq!(space("10/s", 5), 168_667);
    assert_eq!(space("10/s", 20), 1_012_000);
    let longest = ["", "1/hour", "10/s", "10/s,1/min"].map(|text| begun(text, 0).longest_window());
    assert_eq!(longest, [0, 0, 1_002_000, 60_120_000]);
    assert_eq!(begun("10/s,1/min", 0).spacing_us, 60_130_000);
}

#[test]
fn highest_cost_is_forgotten_after_an_idle_window() {
    let costs = |after_us| {
        let mut limit = begun("10/s", 0);
        limit.take(5, at(0));
        assert_eq!(limit.next_us, 5 * 168_667);
        limit.begin(&rates("10/s"), 1, at(limit.next_us + after_us), Tolerance::MIN);
        (limit.usual_cost(), limit.spacing_us)
    };
    assert_eq!(costs(1_002_000), (5, 168_667));
    assert_eq!(costs(1_002_001), (1, 101_200));
    let mut unused = SharedLimit::from_row((1_000_000, 0, "{}".to_owned(), 0, None));
    assert_eq!(unused.usual_cost(), 1);
    unused.begin(&rates("10/s"), 1, at(1_000_000), Tolerance::MIN);
    assert_eq!(unused.spacing_us, 101_200);
}

#[test]
fn first_message_of_a_higher_cost_has_space_before_it() {
    let mut limit = begun("10/s", 0);
    limit.take(1, at(0));
    assert_eq!(limit.earliest(1, at(0)).as_micros(), 101_200);
    let space = 168_667;
    assert_eq!(limit.earliest(5, at(0)).as_micros(), 101_200 + 4 * space);
    limit.take(5, at(1_000_000));
    assert_eq!(limit.earliest(1, at(0)).as_micros(), 1_000_000 + 5 * space);
}

#[test]
fn instant_later_than_any_permit_is_stale() {
    // The window, the tolerance and the longest look-ahead.
    let furthest = 1_002_000 + 10_000 + micros(MAX_LOOK_AHEAD);
    for (next_us, is_stale) in [(furthest, false), (furthest + 1, true)] {
        let mut limit = SharedLimit::from_row((next_us, 1, "{}".to_owned(), 0, None));
        limit.begin(&rates("10/s"), 1, at(0), Tolerance::MIN);
        assert_eq!(limit.earliest(1, at(0)).as_micros(), furthest);
        assert_eq!(limit.give_back(1, at(0)), !is_stale);
    }
}

#[test]
fn only_the_last_permit_is_given_back_to_short_windows() {
    let mut limit = begun("10/s", 0);
    limit.take(1, at(0));
    limit.take(1, at(101_200));
    assert!(limit.give_back(1, at(0)));
    assert_eq!(limit.next_us, 202_400);
    assert!(limit.state.last.is_some());
    assert!(limit.give_back(1, at(101_200)));
    assert_eq!(limit.next_us, 101_200);
    assert_eq!(limit.state.last, None);
}

const WIDE: Tolerance =
    Tolerance { total: Duration::from_millis(40), spread: Duration::from_millis(20) };

/// The limit after worker 1 took a permit at 0, as `worker_id` begins with it at `now`.
fn taken_over(worker_id: i64, now: i64) -> SharedLimit {
    let mut limit = SharedLimit::default();
    limit.begin(&rates("10/s"), 1, at(0), WIDE);
    limit.take(1, at(0));
    limit.begin(&rates("10/s"), worker_id, at(now), WIDE);
    limit
}

#[test]
fn sole_user_for_a_window_is_spaced_by_its_spread() {
    // The window and the tolerance.
    let alone_after = 1_042_000;
    for (worker_id, now, tolerance_us) in
        [(1, alone_after, 40_000), (1, alone_after + 1, 20_000), (2, alone_after + 1, 40_000)]
    {
        let limit = taken_over(worker_id, now);
        assert_eq!(limit.tolerance_us, tolerance_us, "{worker_id} at {now}");
        assert_eq!(limit.handover_us, 0);
    }
}

#[test]
fn permit_after_a_sole_user_has_the_space_of_both() {
    let mut limit = taken_over(1, 1_042_001);
    limit.take(1, at(1_042_001));
    let next_us = limit.next_us;
    limit.begin(&rates("10/s"), 1, at(1_042_001), WIDE);
    assert_eq!(limit.handover_us, 0);
    limit.begin(&rates("10/s"), 2, at(1_042_001), WIDE);
    assert_eq!(limit.handover_us, 30_000);
    assert_eq!(limit.earliest(1, at(0)).as_micros(), next_us + 30_000);
    limit.take(1, at(next_us + 30_000));
    assert_eq!(limit.handover_us, 0);
}

#[test]
fn tolerance_of_a_permit_counts_for_a_window_and_twice_itself() {
    let widest = |now_us| {
        let mut limit = begun("10/s", 0);
        limit.take(1, at(0));
        limit.state.prune(now_us);
        limit.state.widest_tolerance()
    };
    assert_eq!(widest(1_021_999), 10_000);
    assert_eq!(widest(1_022_000), 0);
    let mut limit = begun("10/hour", 0);
    limit.take(1, at(0));
    assert_eq!(limit.state.usage, None);
}

#[test]
fn long_window_has_no_space_between_permits() {
    let mut limit = begun("10/hour", 0);
    limit.take(1, at(100));
    assert_eq!(limit.state.last, None);
    assert_eq!(limit.earliest(1, at(0)), at(0));
}
