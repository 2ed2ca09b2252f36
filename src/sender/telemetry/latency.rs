//! How long the last requests took.

use std::collections::VecDeque;
use std::time::Duration;

use smsq_message::activity::LatencyMillis;
use smsq_message::instant::SteadyMicros;

/// How long a request counts.
const RECENT: Duration = Duration::from_secs(60);
/// At most this many requests count, the newest ones.
const MOST: usize = 4_096;

/// When each request ended and how long it took; the newest last.
#[derive(Default)]
pub(super) struct RecentLatencies(VecDeque<(SteadyMicros, Duration)>);

impl RecentLatencies {
    /// Adds a request that took this long and ended then.
    pub(super) fn add(&mut self, took: Duration, ended_at: SteadyMicros) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((ended_at, took));
    }

    /// The percentiles of the last minute before an instant; `None` without requests.
    pub(super) fn percentiles(&self, now: SteadyMicros) -> Option<LatencyMillis> {
        let mut recent: Vec<Duration> = self
            .0
            .iter()
            .filter(|(ended_at, _)| now.since(*ended_at) <= RECENT)
            .map(|(_, took)| *took)
            .collect();
        recent.sort_unstable();
        let percentile = |percent: usize| {
            let took = recent[(recent.len() * percent).div_ceil(100) - 1];
            (took.as_secs_f64() * 10_000.0).round() / 10.0
        };
        (!recent.is_empty()).then(|| LatencyMillis { p50: percentile(50), p95: percentile(95) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> SteadyMicros {
        SteadyMicros::new(seconds * 1_000_000)
    }

    #[test]
    fn percentiles_are_those_of_the_newest_requests() {
        let mut latencies = RecentLatencies::default();
        assert_eq!(latencies.percentiles(at(0)), None);
        for took_ms in 1..=100 {
            latencies.add(Duration::from_millis(took_ms), at(1));
        }
        let found = latencies.percentiles(at(2));
        let expected = LatencyMillis { p50: 50.0, p95: 95.0 };
        assert_eq!(found, Some(expected));
        for _ in 0..MOST {
            latencies.add(Duration::from_micros(1_234), at(1));
        }
        let found = latencies.percentiles(at(2)).expect("requests");
        assert_eq!((found.p50, found.p95), (1.2, 1.2));
    }

    #[test]
    fn latencies_are_forgotten_after_a_minute() {
        let mut latencies = RecentLatencies::default();
        latencies.add(Duration::from_secs(5), at(0));
        latencies.add(Duration::ZERO, at(65));
        let found = latencies.percentiles(at(66)).expect("requests");
        assert!(found.p95 < 2.0, "{found:?}");
        assert_eq!(latencies.percentiles(at(300)), None);
    }
}
