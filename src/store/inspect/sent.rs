//! What the ledger says of the messages that were sent.

use std::time::Duration;

use diesel::dsl::{count_star, max, min, sum};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::positive;
use crate::sms::Timestamp;
use crate::store::schema::{purged, sms_sent};
use crate::store::{Store, StoreError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFacts {
    pub first_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
    pub segments: u64,
    /// Attempts that the sent messages took, all together.
    pub attempts: u64,
    /// Messages that the provider took more than once.
    pub repeated: u64,
}

impl Store {
    pub async fn sent_facts(&self, campaigns: &[i64]) -> Result<SentFacts, StoreError> {
        let mut facts = SentFacts::default();
        for campaign in campaigns {
            // Two queries: each finds its answer at one end of the index.
            let first: Option<i64> = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::campaign_id.eq(campaign))
                .select(min(sms_sent::sent_at))
                .first(conn))?;
            let last: Option<i64> = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::campaign_id.eq(campaign))
                .select(max(sms_sent::sent_at))
                .first(conn))?;
            let first = first.map(Timestamp::from_millis);
            let last = last.map(Timestamp::from_millis);
            facts.first_at = facts.first_at.into_iter().chain(first).min();
            facts.last_at = facts.last_at.into_iter().chain(last).max();
        }
        let (segments, attempts): (Option<i64>, Option<i64>) =
            reading!(self, |conn| sms_sent::table
                .filter(sms_sent::campaign_id.eq_any(campaigns))
                .select((sum(sms_sent::segments), sum(sms_sent::attempts)))
                .first(conn))?;
        let repeated: i64 = reading!(self, |conn| sms_sent::table
            .filter(sms_sent::campaign_id.eq_any(campaigns))
            .filter(sms_sent::accepted.gt(1))
            .select(count_star())
            .first(conn))?;
        let gone: Vec<(i64, i64, i64)> = reading!(self, |conn| purged::table
            .filter(purged::campaign_id.eq_any(campaigns))
            .select((purged::segments, purged::attempts, purged::repeated))
            .load(conn))?;
        let of = |count: fn(&(i64, i64, i64)) -> i64| gone.iter().map(count).sum::<i64>();
        facts.segments = positive(segments.unwrap_or(0) + of(|gone| gone.0));
        facts.attempts = positive(attempts.unwrap_or(0) + of(|gone| gone.1));
        facts.repeated = positive(repeated + of(|gone| gone.2));
        Ok(facts)
    }

    /// How many messages were sent in each of `buckets` spans of `width`, the first of which begins at `from`.
    pub async fn sends_over_time(
        &self,
        campaigns: &[i64],
        from: Timestamp,
        width: Duration,
        buckets: u32,
    ) -> Result<Vec<u64>, StoreError> {
        let mut counts = Vec::new();
        for bucket in 0..buckets {
            let start = from.plus(width * bucket);
            let count: i64 = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::campaign_id.eq_any(campaigns))
                .filter(sms_sent::sent_at.ge(start.as_millis()))
                .filter(sms_sent::sent_at.lt(start.plus(width).as_millis()))
                .select(count_star())
                .first(conn))?;
            counts.push(positive(count));
        }
        Ok(counts)
    }
}
