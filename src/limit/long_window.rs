//! A window of an hour or more, counted in buckets. It is used up as fast as the short windows allow, and never
//! exceeded.

use serde::{Deserialize, Serialize};
use smsq_message::instant::micros;
use smsq_message::rate::Rate;

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
            self.counts.truncate(usize::try_from(OVERLAPPED).unwrap_or(0));
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

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn rate() -> Rate {
        "3/hour".parse().expect("a rate")
    }

    /// The counts of messages that start in these minutes.
    fn used(minutes: &[i64]) -> Buckets {
        let mut buckets = Buckets::default();
        for minute in minutes {
            buckets.add(rate(), 1, minute * MINUTE + 7);
        }
        buckets
    }

    #[test]
    fn bucket_is_a_sixtieth_of_its_window() {
        assert_eq!(bucket_us(rate()), MINUTE);
    }

    #[test]
    fn counts_are_kept_by_their_age() {
        let mut buckets = used(&[5, 7, 7]);
        assert_eq!((buckets.newest, buckets.counts.clone()), (7, vec![2, 0, 1, 0, 0, 0, 0]));
        buckets.subtract(rate(), 1, 5 * MINUTE);
        buckets.subtract(rate(), 1, 7 * MINUTE);
        assert_eq!(buckets.counts[..3], [1, 0, 0]);
        // They are not counted any more, or not yet.
        buckets.subtract(rate(), 1, -MINUTE);
        buckets.subtract(rate(), 1, 8 * MINUTE);
        buckets.subtract(rate(), 9, 7 * MINUTE);
        assert_eq!(buckets.counts, vec![0; 7]);
        buckets.add(rate(), 2, 1_000 * MINUTE);
        assert_eq!((buckets.newest, buckets.counts.len(), buckets.counts[0]), (1_000, 62, 2));
    }

    #[test]
    fn message_starts_when_a_window_and_two_buckets_are_free() {
        let earliest =
            |minutes: &[i64], cost, start_us| used(minutes).earliest(rate(), cost, start_us);
        assert_eq!(earliest(&[100, 100], 1, 100 * MINUTE + 9), 100 * MINUTE + 9);
        assert_eq!(earliest(&[100, 100], 2, 100 * MINUTE + 9), 162 * MINUTE);
        assert_eq!(earliest(&[100, 101, 101], 1, 102 * MINUTE), 162 * MINUTE);
        assert_eq!(earliest(&[100, 101, 101], 2, 102 * MINUTE), 163 * MINUTE);
        assert_eq!(earliest(&[100, 101, 101], 1, 162 * MINUTE + 9), 162 * MINUTE + 9);
        // A message that costs more than the limit starts in an empty window.
        assert_eq!(earliest(&[100], 9, 100 * MINUTE), 162 * MINUTE);
        // What starts later counts, too.
        assert_eq!(earliest(&[100; 3], 1, 50 * MINUTE), 162 * MINUTE);
    }

    #[test]
    fn merged_counts_are_in_one_bucket() {
        let mut buckets = used(&[5, 7, 7]);
        buckets.merge_into(9);
        assert_eq!((buckets.newest, buckets.counts), (9, vec![3]));
    }
}
