//! Sends over time, in spans that people can read.

use std::time::Duration;

use crate::sms::Timestamp;
use crate::store::inspect::SentFacts;
use crate::store::{Store, StoreError};

/// How many messages were sent in each span of `width`, the first of which begins at `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub from: Timestamp,
    pub width: Duration,
    pub counts: Vec<u64>,
}

impl History {
    /// At most so many spans.
    const BUCKETS: u64 = 60;

    /// Widths that people can read, in seconds.
    const WIDTHS: [u64; 18] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
        86_400,
    ];

    pub(super) async fn read(
        store: &Store,
        campaigns: &[i64],
        facts: &SentFacts,
    ) -> Result<Option<Self>, StoreError> {
        let (Some(first), Some(last)) = (facts.first_at, facts.last_at) else {
            return Ok(None);
        };
        let (from, width, buckets) = Self::spans(first, last);
        let counts = store
            .sends_over_time(campaigns, from, width, buckets)
            .await?;
        Ok(Some(Self {
            from,
            width,
            counts,
        }))
    }

    /// The narrowest readable width with which all sends fit; the first span begins at a whole one.
    fn spans(first: Timestamp, last: Timestamp) -> (Timestamp, Duration, u32) {
        let days = last.since(first).as_secs() / 86_400 / (Self::BUCKETS - 2) + 1;
        let fits = |seconds: &u64| last.since(first).as_secs() / seconds < Self::BUCKETS - 1;
        let seconds = Self::WIDTHS.into_iter().find(fits).unwrap_or(days * 86_400);
        let width = Duration::from_secs(seconds);
        let millis = crate::sms::millis(width);
        let from = Timestamp::from_millis(first.as_millis().div_euclid(millis) * millis);
        let buckets = last.since(from).as_secs() / seconds + 1;
        (from, width, u32::try_from(buckets).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_send_lies_in_one_of_a_few_spans(first in 0_i64..4_000_000_000_000, span in 0_i64..1_000_000_000_000) {
            let last = Timestamp::from_millis(first + span);
            let first = Timestamp::from_millis(first);
            let (from, width, buckets) = History::spans(first, last);
            prop_assert!(from <= first);
            prop_assert!(last < from.plus(width * buckets));
            prop_assert!(u64::from(buckets) <= History::BUCKETS);
        }
    }
}
