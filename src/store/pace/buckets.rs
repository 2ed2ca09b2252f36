//! A long window, counted in buckets: an hour or a day is used up as fast as the short windows allow,
//! and never exceeded.

use serde::{Deserialize, Serialize};

use super::window_us;
use crate::rate::Rate;

/// A bucket is this part of its window.
const PARTS: i64 = 60;
/// Buckets that a window and a grace can touch.
const TOUCHED: i64 = PARTS + 2;

/// The counts of one long window: `counts[n]` belongs to the bucket `newest - n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Buckets {
    pub(super) newest: i64,
    pub(super) counts: Vec<u32>,
}

impl Buckets {
    pub(super) fn earliest(&self, rate: Rate, cost: i32, moment_us: i64) -> i64 {
        let size = bucket_us(rate);
        let limit = u64::from(rate.limit.get());
        let cost = u64::try_from(cost).unwrap_or(1).min(limit);
        let first = moment_us.div_euclid(size).max(self.newest);
        for bucket in first..=first + TOUCHED {
            if self.held_by_window_ending_in(bucket) + cost <= limit {
                return moment_us.max(bucket.saturating_mul(size));
            }
        }
        (first + TOUCHED).saturating_mul(size)
    }

    fn held_by_window_ending_in(&self, bucket: i64) -> u64 {
        let reach = TOUCHED - (bucket - self.newest);
        let reach = usize::try_from(reach).unwrap_or(0).min(self.counts.len());
        self.counts
            .iter()
            .take(reach)
            .map(|count| u64::from(*count))
            .sum()
    }

    pub(super) fn count(&mut self, rate: Rate, cost: i32, moment_us: i64) {
        let bucket = moment_us.div_euclid(bucket_us(rate));
        if bucket > self.newest {
            let passed = usize::try_from(bucket - self.newest).unwrap_or(usize::MAX);
            let empty = passed.min(usize::try_from(TOUCHED).unwrap_or(0));
            self.counts.splice(0..0, std::iter::repeat_n(0, empty));
            self.counts.truncate(usize::try_from(TOUCHED).unwrap_or(0));
            self.newest = bucket;
        }
        if self.counts.is_empty() {
            self.counts.push(0);
        }
        let cost = u32::try_from(cost).unwrap_or(1);
        self.counts[0] = self.counts[0].saturating_add(cost);
    }

    /// Undoes [`Buckets::count`].
    pub(super) fn discount(&mut self, rate: Rate, cost: i32, moment_us: i64) {
        let age = self.newest - moment_us.div_euclid(bucket_us(rate));
        let count = usize::try_from(age)
            .ok()
            .and_then(|age| self.counts.get_mut(age));
        if let Some(count) = count {
            *count = count.saturating_sub(u32::try_from(cost).unwrap_or(1));
        }
    }

    /// Takes all it holds as having happened in `bucket`.
    pub(super) fn gather(&mut self, bucket: i64) {
        let sum = self
            .counts
            .iter()
            .fold(0_u32, |sum, count| sum.saturating_add(*count));
        self.counts = vec![sum];
        self.newest = bucket;
    }
}

pub(super) fn bucket_us(rate: Rate) -> i64 {
    window_us(&rate) / PARTS
}
