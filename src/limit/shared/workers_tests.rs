//! The limit over several workers that know the time with different errors.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(us: i64) -> DbMicros {
    DbMicros::new(us)
}

const AHEAD_US: i64 = 50_000;
/// The spread of a worker whose limits have slack.
const WIDE_US: i64 = 100_000;

/// A worker whose clock is off by `off` of the most that it may be: -1 to 1.
#[derive(Clone, Copy, Debug)]
struct Skewed {
    id: i64,
    error_us: i32,
    off: f64,
}

impl Skewed {
    fn tolerance(self, is_wide: bool) -> Tolerance {
        let narrow_us = i64::from(2 * self.error_us + 5_000).max(micros(MIN_TOLERANCE));
        let spread_us = if is_wide { WIDE_US } else { micros(MIN_TOLERANCE) };
        let total_us = narrow_us + spread_us - micros(MIN_TOLERANCE);
        Tolerance {
            total: Duration::from_micros(total_us.unsigned_abs()),
            spread: Duration::from_micros(spread_us.unsigned_abs()),
        }
    }

    fn off_us(self) -> i64 {
        scaled(self.error_us.into(), self.off)
    }

    /// When a request of this `start_us` truly starts, at a part (0 to 1) of the time that it has for it.
    fn starts_at(self, start_us: i64, tolerance: Tolerance, part: f64) -> i64 {
        let middle = micros(tolerance.total) / 2;
        let half = (middle - i64::from(self.error_us)).min(micros(tolerance.spread) / 2);
        start_us + middle - half + scaled(2 * half, part) - self.off_us()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "less than a second"
)]
fn scaled(span_us: i64, by: f64) -> i64 {
    (span_us as f64 * by) as i64
}

/// One commit of one worker, which takes all permits, at most `most`.
#[derive(Clone, Copy, Debug)]
struct Asks {
    worker: usize,
    most: usize,
    wait_us: i64,
    part: f64,
    is_wide: bool,
}

fn worker() -> impl Strategy<Value = (i32, f64)> {
    (0_i32..40_000, prop::sample::select(vec![-1.0, -0.5, 0.0, 0.5, 1.0]))
}

fn asks() -> impl Strategy<Value = Asks> {
    let asks = (0_usize..3, 1_usize..20, 0_i64..80_000, 0.0..=1.0_f64, any::<bool>());
    asks.prop_map(|(worker, most, wait_us, part, is_wide)| Asks {
        worker,
        most,
        wait_us,
        part,
        is_wide,
    })
}

/// Lets the workers ask one after the other; returns when requests started.
fn starts(limits: &[Rate], workers: &[Skewed], rounds: &[Asks]) -> Vec<i64> {
    let mut kept = SharedLimit::default();
    let mut now_us = 1_700_000_000_000_000;
    let mut starts = Vec::new();
    for asks in rounds {
        now_us += asks.wait_us;
        let worker = workers[asks.worker % workers.len()];
        let from_us = now_us + worker.off_us();
        let mut limit = SharedLimit::from_row(kept.to_row());
        let tolerance = worker.tolerance(asks.is_wide);
        limit.begin(limits, worker.id, at(from_us), tolerance);
        let mut taken = 0;
        while taken < asks.most {
            let start_us = limit.earliest(1, at(from_us)).as_micros();
            if start_us > from_us + AHEAD_US {
                break;
            }
            limit.take(1, at(start_us));
            starts.push(worker.starts_at(start_us, tolerance, asks.part));
            taken += 1;
        }
        if taken > 0 {
            kept = limit;
        }
    }
    starts.sort_unstable();
    starts
}

fn fullest(starts: &[i64], window: Duration) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (index, at) in starts.iter().enumerate() {
        while at - starts[first] >= micros(window) {
            first += 1;
        }
        most = most.max(index + 1 - first);
    }
    most
}

fn rates(text: &str) -> Vec<Rate> {
    text.parse::<smsq_message::rate::Rates>().expect("rates").0
}

fn skewed(workers: &[(i32, f64)]) -> Vec<Skewed> {
    let numbered = (1_i64..).zip(workers);
    let skewed =
        numbered.map(|(id, (error_us, off))| Skewed { id, error_us: *error_us, off: *off });
    skewed.collect()
}

/// The part of a limit that workers use which ask in turn.
fn used(error_us: i32, workers: usize, text: &str) -> f64 {
    let limits = rates(text);
    let workers = skewed(&vec![(error_us, 1.0); workers]);
    let rounds: Vec<Asks> = (0..8_000)
        .map(|round| Asks { worker: round, most: 200, wait_us: 20_000, part: 0.5, is_wide: false })
        .collect();
    let starts = starts(&limits, &workers, &rounds);
    let span = Duration::from_micros(starts[starts.len() - 1].abs_diff(starts[0]));
    let count = u32::try_from(starts.len() - 1).expect("some thousands");
    f64::from(count) / (limits[0].per_second() * span.as_secs_f64())
}

proptest! {
    #[test]
    fn workers_with_different_clocks_keep_the_window(
        limit in 1_u32..40,
        seconds in prop::sample::select(vec![1_u64, 2, 10]),
        workers in prop::collection::vec(worker(), 1..4),
        rounds in prop::collection::vec(asks(), 20..400),
    ) {
        let limits = rates(&format!("{limit}/{seconds}s"));
        let starts = starts(&limits, &skewed(&workers), &rounds);
        let most = fullest(&starts, limits[0].window);
        prop_assert!(most <= limit as usize, "{most} in a window of {}", limits[0]);
    }

    /// One has the limit to itself for a while, then the other comes.
    #[test]
    fn worker_after_a_sole_user_keeps_the_window(
        limit in 1_u32..60,
        workers in prop::collection::vec(worker(), 2..4),
        stretches in prop::collection::vec(
            (0_usize..3, 1_usize..60, 0.0..=1.0_f64, any::<bool>()),
            2..12,
        ),
    ) {
        let limits = rates(&format!("{limit}/s"));
        let asks = |(worker, count, part, is_wide)| {
            std::iter::repeat_n(Asks { worker, most: 50, wait_us: 40_000, part, is_wide }, count)
        };
        let rounds: Vec<Asks> = stretches.into_iter().flat_map(asks).collect();
        let starts = starts(&limits, &skewed(&workers), &rounds);
        let most = fullest(&starts, limits[0].window);
        prop_assert!(most <= limit as usize, "{most} in a window of {}", limits[0]);
    }
}

#[test]
fn clock_error_beyond_its_bound_is_detected() {
    // What the tests above look for can be found.
    let limits = rates("5/s");
    let workers = skewed(&[(1_000, 30.0), (1_000, -30.0)]);
    let rounds: Vec<Asks> = (0..400)
        .map(|round| Asks {
            worker: round / 7,
            most: 1,
            wait_us: 50_000,
            part: 0.5,
            is_wide: false,
        })
        .collect();
    let starts = starts(&limits, &workers, &rounds);
    assert!(fullest(&starts, limits[0].window) > 5);
}

#[test]
fn workers_use_at_least_95_percent_near_and_far() {
    for text in ["1/s", "50/s", "3000/s", "300/min"] {
        for (error_us, workers) in [(1_000, 1), (1_000, 2), (20_000, 2), (60_000, 1)] {
            let part = used(error_us, workers, text);
            let setup = format!("{workers} workers whose clocks are {error_us} µs off");
            assert!(part >= 0.95, "{text}, {setup}: {part}");
        }
    }
}

/// One worker learns that the clock was set, and fills the limit; another does not know yet.
#[test]
fn filled_limit_binds_a_worker_with_the_clock_from_before() {
    const HOUR_US: i64 = 3_600_000_000;
    let limits = rates("20/s");
    let old_us = 1_700_000_000_000_000;
    let begun = |row: &SharedLimit, worker_id, now_us| {
        let mut limit = SharedLimit::from_row(row.to_row());
        limit.begin(&limits, worker_id, at(now_us), Tolerance::MIN);
        limit
    };
    for by_us in [-HOUR_US, HOUR_US] {
        let mut first = begun(&SharedLimit::default(), 1, old_us);
        let start_us = first.earliest(1, at(old_us)).as_micros();
        first.take(1, at(start_us));
        let new_us = old_us + 10_000 + by_us;
        let mut filled = begun(&first, 2, new_us);
        filled.fill(at(new_us));
        let mut late = begun(&filled, 1, old_us + 20_000);
        assert!(late.earliest(1, at(old_us + 20_000)).as_micros() > old_us + 1_000_000);
        let is_changed = late.give_back(1, at(start_us));
        let row = if is_changed { &late } else { &filled };
        let after = begun(row, 2, new_us + 20_000);
        assert!(after.earliest(1, at(new_us + 20_000)).as_micros() > new_us + 1_000_000);
    }
}
