//! How exactly requests can keep to their permits, by the state of the worker's clock.

use std::time::Duration;

use jiff::SignedDuration;
use smsq_limit::{MIN_TOLERANCE, Tolerance};

use crate::clock::Clock;

/// How long a request has at least to start in.
const MIN_SPAN: Duration = Duration::from_millis(5);
/// The same while no limit delays anything: requests that were claimed ahead keep their permits.
const WIDE_SPREAD: Duration = Duration::from_millis(100);
/// The step of the tolerance. Small changes are avoided: a worker whose tolerance changes loses the spacing of a sole
/// user (`SharedLimit`).
const STEP: Duration = Duration::from_millis(2);

pub(super) struct Timing {
    /// How often the clock had been set at the last plan.
    pub(super) jumps: u32,
    /// By how much altogether.
    set_by: SignedDuration,
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
            set_by: SignedDuration::ZERO,
            fill_limits: false,
            tolerance: MIN_TOLERANCE,
            spread: MIN_TOLERANCE,
        }
    }
}

impl Timing {
    /// Follows the clock. `has_slack`: whether all limits allow far more than is started; `None` without a limit.
    /// Returns by how much the clock was set since the last time.
    pub(super) fn follow(
        &mut self,
        clock: &Clock,
        has_slack: Option<bool>,
    ) -> Option<SignedDuration> {
        self.tolerance = tolerance_for(self.tolerance, clock.error());
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
        let before = std::mem::replace(&mut self.set_by, clock.set_by());
        Some(self.set_by - before)
    }

    /// How much longer than necessary a request may take to start.
    pub(super) fn slack(&self) -> Duration {
        self.spread.saturating_sub(MIN_TOLERANCE)
    }

    pub(super) fn tolerance(&self) -> Tolerance {
        Tolerance { total: self.tolerance + self.slack(), spread: self.spread }
    }
}

/// The tolerance that allows for the clock's error on both sides.
fn tolerance_for(current: Duration, error: Duration) -> Duration {
    let needed = error.saturating_mul(2).saturating_add(MIN_SPAN);
    let is_tight = needed + 2 * STEP >= current || current <= MIN_TOLERANCE;
    if needed <= current && is_tight {
        return current;
    }
    let steps = needed.as_micros() / STEP.as_micros() + 1;
    STEP.saturating_mul(steps.try_into().unwrap_or(u32::MAX)).max(MIN_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_allows_for_the_error_and_seldom_changes() {
        let micros = Duration::from_micros;
        assert_eq!(tolerance_for(MIN_TOLERANCE, Duration::ZERO), MIN_TOLERANCE);
        assert_eq!(tolerance_for(MIN_TOLERANCE, micros(2_500)), MIN_TOLERANCE);
        let far = tolerance_for(MIN_TOLERANCE, micros(25_000));
        assert_eq!(far, Duration::from_millis(56));
        for error_us in [24_000, 25_400] {
            assert_eq!(tolerance_for(far, micros(error_us)), far);
        }
        assert!(tolerance_for(far, micros(26_000)) > far);
        assert_eq!(tolerance_for(far, micros(1_000)), MIN_TOLERANCE);
        for error_us in 0..100_000 {
            let error = micros(error_us);
            let span = tolerance_for(MIN_TOLERANCE, error).saturating_sub(2 * error);
            assert!((MIN_SPAN..=MIN_TOLERANCE).contains(&span), "{error_us}");
        }
    }
}
