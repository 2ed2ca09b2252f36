//! How exactly requests can keep to their permits, by the state of the worker's clock.

use std::time::Duration;

use crate::limit::{MIN_TOLERANCE, Tolerance};
use crate::sender::clock::{Clock, micros};

/// How long a request has at least to start in, in microseconds.
const MIN_SPAN_US: i64 = 5_000;
/// The same while no limit delays anything: requests that were claimed ahead keep their permits.
const WIDE_SPREAD: Duration = Duration::from_millis(100);
/// The step of the tolerance. Small changes are avoided: a worker whose tolerance changes loses the spacing of a sole
/// user (`SharedLimit`).
const STEP_US: i64 = 2_000;

pub(super) struct Timing {
    /// How often the clock had been set at the last plan.
    pub(super) jumps: u32,
    /// By how many microseconds altogether.
    set_by_us: i64,
    /// The clock was set, and the limits do not know it.
    pub(super) fill_limits: bool,
    /// Requests start within this of their permits: as near as the clock's error allows.
    pub(super) tolerance: Duration,
    /// By the clock of this worker, requests start within this of their permits.
    spread: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            jumps: 0,
            set_by_us: 0,
            fill_limits: false,
            tolerance: MIN_TOLERANCE,
            spread: MIN_TOLERANCE,
        }
    }
}

impl Timing {
    /// Follows the clock. `has_slack`: whether all limits allow far more than is started; `None` without a limit.
    /// Returns by how many microseconds the clock was set since the last time.
    pub(super) fn follow(&mut self, clock: &Clock, has_slack: Option<bool>) -> Option<i64> {
        self.tolerance = tolerance_for(self.tolerance, clock.error_us());
        self.spread = match has_slack {
            Some(true) => WIDE_SPREAD,
            Some(false) | None => MIN_TOLERANCE,
        };
        let jumps = clock.jumps();
        if jumps == self.jumps {
            return None;
        }
        self.jumps = jumps;
        self.fill_limits = true;
        let before_us = std::mem::replace(&mut self.set_by_us, clock.set_by_us());
        Some(self.set_by_us - before_us)
    }

    /// How much longer than necessary a request may take to start.
    pub(super) fn slack(&self) -> Duration {
        self.spread.saturating_sub(MIN_TOLERANCE)
    }

    pub(super) fn tolerance(&self) -> Tolerance {
        Tolerance {
            total: self.tolerance + self.slack(),
            spread: self.spread,
        }
    }
}

/// The tolerance that allows for the clock's error on both sides.
fn tolerance_for(current: Duration, error_us: i64) -> Duration {
    let needed_us = error_us.saturating_mul(2).saturating_add(MIN_SPAN_US);
    let current_us = micros(current);
    let is_tight = needed_us + 2 * STEP_US >= current_us || current <= MIN_TOLERANCE;
    if needed_us <= current_us && is_tight {
        return current;
    }
    let steps_us = (needed_us / STEP_US + 1).saturating_mul(STEP_US);
    Duration::from_micros(steps_us.unsigned_abs()).max(MIN_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_allows_for_the_error_and_seldom_changes() {
        assert_eq!(tolerance_for(MIN_TOLERANCE, 0), MIN_TOLERANCE);
        assert_eq!(tolerance_for(MIN_TOLERANCE, 2_500), MIN_TOLERANCE);
        let far = tolerance_for(MIN_TOLERANCE, 25_000);
        assert_eq!(far, Duration::from_millis(56));
        for error_us in [24_000, 25_400] {
            assert_eq!(tolerance_for(far, error_us), far);
        }
        assert!(tolerance_for(far, 26_000) > far);
        assert_eq!(tolerance_for(far, 1_000), MIN_TOLERANCE);
        for error_us in 0..100_000 {
            let span_us = micros(tolerance_for(MIN_TOLERANCE, error_us)) - 2 * error_us;
            let allowed = MIN_SPAN_US..=micros(MIN_TOLERANCE);
            assert!(allowed.contains(&span_us), "{error_us}");
        }
    }
}
