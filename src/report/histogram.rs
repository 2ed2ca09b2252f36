//! Counts of sent, failed and unknown messages over time, for the chart.

use std::time::Duration;

use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_store::report::Outcomes;
use smsq_store::{CampaignFilter, Store, StoreError};

use super::{as_millis, as_text};

/// Counts in consecutive spans of `width`, from `from` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    #[serde(serialize_with = "as_text")]
    pub from: Timestamp,
    #[serde(rename = "width_ms", serialize_with = "as_millis")]
    pub width: Duration,
    /// When the first and the last message was settled; the last is now while a campaign runs.
    #[serde(skip)]
    pub first_at: Timestamp,
    #[serde(skip)]
    pub last_at: Timestamp,
    pub spans: Vec<Outcomes>,
}

impl Histogram {
    const MAX_SPANS: u64 = 60;

    /// Round widths, in milliseconds.
    const WIDTHS: [u64; 21] = [
        100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
        600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, DAY,
    ];

    /// Counts the messages that were settled between `ends`. `offset` is the local offset from UTC, so that days begin
    /// at midnight. `None` if one span holds all of them.
    pub(super) async fn read(
        store: &Store,
        campaigns: CampaignFilter,
        ends: Option<(Timestamp, Timestamp)>,
        offset: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let Some((first_at, last_at)) = ends else {
            return Ok(None);
        };
        let (from, width, spans) = Self::spans(first_at, last_at, offset);
        if spans < 2 {
            return Ok(None);
        }
        let spans = store.report().outcomes_over_time(campaigns, from, width, spans).await?;
        Ok(Some(Self { from, width, first_at, last_at, spans }))
    }

    /// The start, the width and the number of spans: the narrowest round width with which all fit.
    fn spans(first: Timestamp, last: Timestamp, offset: Duration) -> (Timestamp, Duration, u32) {
        let took = u64::try_from(last.since(first).as_millis()).unwrap_or(u64::MAX);
        let days = took / DAY / (Self::MAX_SPANS - 2) + 1;
        let fits = |width: &u64| took / width < Self::MAX_SPANS - 1;
        let width = Self::WIDTHS.into_iter().find(fits).unwrap_or(days * DAY);
        let width = Duration::from_millis(width);
        let millis = smsq_message::sms::millis(width);
        let local = first.plus(offset).as_millis();
        let from = Timestamp::from_millis(local - local.rem_euclid(millis)).minus(offset);
        let spans = last.since(from).as_millis() / width.as_millis() + 1;
        (from, width, u32::try_from(spans).unwrap_or(u32::MAX))
    }
}

/// Milliseconds.
const DAY: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_campaign_fills_the_chart() {
        let first = Timestamp::from_millis(1_763_715_600_000);
        let last = first.plus(Duration::from_secs(6));
        let (from, width, spans) = Histogram::spans(first, last, Duration::ZERO);
        assert_eq!((from, width), (first, Duration::from_millis(200)));
        assert_eq!(spans, 31);
    }

    proptest! {
        #[test]
        fn every_message_is_in_one_of_a_few_spans(
            first in 0_i64..4_000_000_000_000,
            span in 0_i64..1_000_000_000_000,
            hours in 0_u64..24,
        ) {
            let last = Timestamp::from_millis(first + span);
            let first = Timestamp::from_millis(first);
            let offset = Duration::from_secs(hours * 3_600);
            let (from, width, spans) = Histogram::spans(first, last, offset);
            prop_assert!(from <= first);
            prop_assert!(last < from.plus(width * spans));
            prop_assert!(first.since(from) < width);
            prop_assert!(u64::from(spans) <= Histogram::MAX_SPANS);
        }
    }
}
