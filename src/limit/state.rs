//! The state of a shared limit that its row stores as JSON: the counts of long windows, and how workers used it. All of
//! it expires, so nothing must be removed when a worker dies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::long_window::Buckets;

/// Instants are in microseconds of the database's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LimitState {
    /// By the length of the window in seconds.
    pub(super) windows: BTreeMap<u64, Buckets>,
    /// The end of the use of each tolerance.
    tolerances: BTreeMap<i64, i64>,
    pub(super) usage: Option<Usage>,
    pub(super) last: Option<LastPermit>,
    /// The windows are full until then by the clock before it was set back. Some workers may still use that clock.
    pub(super) full_until_us: i64,
}

/// Consecutive permits of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) worker_id: i64,
    pub(super) tolerance_us: i64,
    pub(super) since_us: i64,
    /// The last permit was spaced for this worker alone.
    pub(super) is_alone: bool,
}

/// The last permit that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastPermit {
    pub(super) at_us: i64,
    pub(super) cost: i32,
    /// The space after a message of cost 1 under the limits at that time.
    pub(super) spacing_us: i64,
}

impl LimitState {
    /// Removes expired tolerances.
    pub(super) fn prune(&mut self, now_us: i64) {
        self.tolerances.retain(|_, until_us| *until_us > now_us);
    }

    pub(super) fn keep_tolerance(&mut self, tolerance_us: i64, until_us: i64) {
        let until = self.tolerances.entry(tolerance_us).or_default();
        *until = until_us.max(*until);
    }

    /// The widest tolerance of any recent permit.
    pub(super) fn widest_tolerance(&self) -> i64 {
        self.tolerances.keys().next_back().copied().unwrap_or(0)
    }
}

impl Usage {
    pub(super) fn is_of(&self, worker_id: i64, tolerance_us: i64) -> bool {
        self.worker_id == worker_id && self.tolerance_us == tolerance_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_counts_until_the_end_of_its_longest_use() {
        let mut state = LimitState::default();
        assert_eq!(state.widest_tolerance(), 0);
        state.keep_tolerance(20, 100);
        state.keep_tolerance(20, 90);
        state.keep_tolerance(10, 200);
        for (now_us, widest) in [(99, 20), (100, 10), (199, 10), (200, 0)] {
            state.prune(now_us);
            assert_eq!(state.widest_tolerance(), widest, "{now_us}");
        }
    }

    #[test]
    fn usage_is_of_one_worker_with_one_tolerance() {
        let usage = Usage { worker_id: 1, tolerance_us: 10, since_us: 0, is_alone: false };
        let is_of = [(1, 10), (2, 10), (1, 20)].map(|(worker, us)| usage.is_of(worker, us));
        assert_eq!(is_of, [true, false, false]);
    }
}
