//! How long the requests of the last minute took, as counts of buckets whose bounds grow by a fifth.

use std::collections::VecDeque;

use crate::activity::LatencyMillis;

/// How many buckets double the latency. The error of a percentile is less than a tenth.
const PER_DOUBLING: f64 = 4.0;
/// From 1 ms to 17 min.
const BUCKETS: usize = 81;
/// The counts of this time are forgotten together.
const PART_US: i64 = 10_000_000;
/// How long a request counts.
const RECENT_US: i64 = 60_000_000;

#[derive(Default)]
pub(super) struct RecentLatencies {
    /// When each part begins, and its counts; the newest last.
    parts: VecDeque<(i64, [u32; BUCKETS])>,
}

impl RecentLatencies {
    /// Adds a request that took this long and ended then, both in microseconds.
    pub(super) fn add(&mut self, took_us: i64, ended_us: i64) {
        let begins_us = ended_us.div_euclid(PART_US) * PART_US;
        if self.parts.back().is_none_or(|(last, _)| *last < begins_us) {
            self.parts.push_back((begins_us, [0; BUCKETS]));
            self.parts
                .retain(|(begins_us, _)| ended_us - begins_us <= RECENT_US);
        }
        if let Some((_, counts)) = self.parts.back_mut() {
            counts[bucket(took_us)] += 1;
        }
    }

    /// The percentiles of the last minute before an instant; `None` without requests.
    pub(super) fn percentiles(&self, now_us: i64) -> Option<LatencyMillis> {
        let mut counts = [0_u64; BUCKETS];
        let is_recent = |begins_us: i64| now_us - begins_us <= RECENT_US;
        for (_, part) in self.parts.iter().filter(|(at, _)| is_recent(*at)) {
            for (sum, count) in counts.iter_mut().zip(part) {
                *sum += u64::from(*count);
            }
        }
        let all: u64 = counts.iter().sum();
        let percentile = |percent: u64| {
            let wanted = (all * percent).div_ceil(100);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            middle_ms(found.unwrap_or(BUCKETS - 1))
        };
        (all > 0).then(|| LatencyMillis {
            p50: percentile(50),
            p95: percentile(95),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "within the number of buckets"
)]
fn bucket(took_us: i64) -> usize {
    let ms = took_us.max(1_000) as f64 / 1_000.0;
    ((ms.log2() * PER_DOUBLING) as usize).min(BUCKETS - 1)
}

/// The middle of a bucket, in milliseconds with one decimal.
fn middle_ms(bucket: usize) -> f64 {
    let bucket = u32::try_from(bucket).map_or(0.0, f64::from);
    let ms = ((bucket + 0.5) / PER_DOUBLING).exp2();
    (ms * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn percentiles_are_near_the_latencies() {
        let mut latencies = RecentLatencies::default();
        assert_eq!(latencies.percentiles(0), None);
        for took_ms in 1..=100 {
            latencies.add(took_ms * 1_000, SECOND);
        }
        let found = latencies.percentiles(2 * SECOND).expect("requests");
        assert!((45.0..=55.0).contains(&found.p50), "{found:?}");
        assert!((86.0..=104.0).contains(&found.p95), "{found:?}");
    }

    #[test]
    fn latencies_are_forgotten_after_a_minute() {
        let mut latencies = RecentLatencies::default();
        latencies.add(5_000_000, 0);
        latencies.add(0, 65 * SECOND);
        let found = latencies.percentiles(66 * SECOND).expect("requests");
        assert!(found.p95 < 2.0, "{found:?}");
        assert_eq!(latencies.percentiles(300 * SECOND), None);
    }

    #[test]
    fn any_latency_has_a_bucket() {
        for took_us in [i64::MIN, -1, 0, 1, 1_000, 3_600_000_000, i64::MAX] {
            assert!(bucket(took_us) < BUCKETS, "{took_us}");
        }
    }
}
