//! A window of an hour or more, counted in buckets. It is used up as fast as the short windows allow, and never
//! exceeded.

use serde::{Deserialize, Serialize};

use crate::instant::micros;
use crate::rate::Rate;

/// A bucket is this part of its window.
const PARTS: i64 = 60;
/// The number of buckets that a window and a tolerance can overlap.
const OVERLAPPED: i64 = PARTS + 2;

/// The counts of one window: `counts[n]` belongs to the bucket `newest - n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Buckets {
    newest: i64,
    counts: Vec<u32>,
}

impl Buckets {
    pub(super) fn earliest(&self, rate: Rate, cost: i32, start_us: i64) -> i64 {
        let size = bucket_us(rate);
        let limit = u64::from(rate.limit.get());
        let cost = u64::try_from(cost).unwrap_or(1).min(limit);
        let first = start_us.div_euclid(size).max(self.newest);
        for bucket in first..=first + OVERLAPPED {
            if self.sum_of_window_ending_in(bucket) + cost <= limit {
                return start_us.max(bucket.saturating_mul(size));
            }
        }
        (first + OVERLAPPED).saturating_mul(size)
    }

    fn sum_of_window_ending_in(&self, bucket: i64) -> u64 {
        let overlapped = OVERLAPPED - (bucket - self.newest);
        self.counts
            .iter()
            .take(usize::try_from(overlapped).unwrap_or(0))
            .map(|count| u64::from(*count))
            .sum()
    }

    pub(super) fn add(&mut self, rate: Rate, cost: i32, start_us: i64) {
        let bucket = start_us.div_euclid(bucket_us(rate));
        if bucket > self.newest {
            let passed = usize::try_from(bucket - self.newest).unwrap_or(usize::MAX);
            let empty = passed.min(usize::try_from(OVERLAPPED).unwrap_or(0));
            self.counts.splice(0..0, std::iter::repeat_n(0, empty));
            self.counts
                .truncate(usize::try_from(OVERLAPPED).unwrap_or(0));
            self.newest = bucket;
        }
        if self.counts.is_empty() {
            self.counts.push(0);
        }
        let cost = u32::try_from(cost).unwrap_or(1);
        self.counts[0] = self.counts[0].saturating_add(cost);
    }

    /// Reverses [`Buckets::add`].
    pub(super) fn subtract(&mut self, rate: Rate, cost: i32, start_us: i64) {
        let age = self.newest - start_us.div_euclid(bucket_us(rate));
        let age = usize::try_from(age).ok();
        if let Some(count) = age.and_then(|age| self.counts.get_mut(age)) {
            *count = count.saturating_sub(u32::try_from(cost).unwrap_or(1));
        }
    }

    /// Moves all counts into `bucket`.
    pub(super) fn merge_into(&mut self, bucket: i64) {
        let sum = self.counts.iter().copied().reduce(u32::saturating_add);
        self.counts = vec![sum.unwrap_or(0)];
        self.newest = bucket;
    }
}

pub(super) fn bucket_us(rate: Rate) -> i64 {
    micros(rate.window) / PARTS
}
