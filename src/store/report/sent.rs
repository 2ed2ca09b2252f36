//! Counts of sent messages.

use diesel::dsl::{count_star, max, min, sql, sum};
use diesel::prelude::*;
use diesel::sql_types::{Integer, Text};
use diesel_async::RunQueryDsl;

use super::positive;
use crate::sms::Timestamp;
use crate::store::connection::reading;
use crate::store::lossy_text::LossyText;
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

/// Messages that one provider took for phones with the same first digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentCount {
    pub provider: String,
    /// With `+`.
    pub prefix: String,
    pub messages: u64,
    pub segments: u64,
    /// Segments that the provider took: those of a message that it took twice count twice.
    pub billed: u64,
    attempts: u64,
    repeated: u64,
}

#[cfg(test)]
impl SentCount {
    pub fn of(provider: &str, prefix: &str, messages: u64, segments: u64) -> Self {
        Self {
            provider: provider.to_owned(),
            prefix: prefix.to_owned(),
            messages,
            segments,
            billed: segments,
            attempts: messages,
            repeated: 0,
        }
    }
}

/// All that was sent, and where to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// With what was purged.
    pub facts: SentFacts,
    /// Without what was purged: its phones are forgotten.
    pub counts: Vec<SentCount>,
}

/// The digits that tell the country: a calling code, or `1` and an area code.
const COUNTRY_DIGITS: usize = 4;

impl Store {
    pub async fn sent_facts(&self, campaigns: &[i64]) -> Result<SentFacts, StoreError> {
        Ok(self.sent(campaigns, COUNTRY_DIGITS).await?.facts)
    }

    /// Counts by provider and by the first `digits` of the phones, at least those of a country. Reads each
    /// row of `sms_sent` once.
    pub async fn sent(&self, campaigns: &[i64], digits: usize) -> Result<Sent, StoreError> {
        type Row = (
            String,
            LossyText,
            i64,
            Option<i64>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
        );
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
        let prefix = format!("substr(phone, 1, {})", digits.max(COUNTRY_DIGITS) + 1);
        let group = format!("provider, {prefix}");
        let rows: Vec<Row> = reading!(self, |conn| sms_sent::table
            .filter(sms_sent::campaign_id.eq_any(campaigns))
            .group_by(sql::<Text>(&group))
            .select((
                sql::<Text>("provider"),
                sql::<Text>(&prefix),
                count_star(),
                sum(sql::<Integer>("segments")),
                sum(sql::<Integer>("COALESCE(segments, 1) * accepted")),
                sum(sql::<Integer>("attempts")),
                sum(sql::<Integer>("CASE WHEN accepted > 1 THEN 1 ELSE 0 END")),
            ))
            .load(conn))?;
        let gone: Vec<(i64, i64, i64)> = reading!(self, |conn| purged::table
            .filter(purged::campaign_id.eq_any(campaigns))
            .select((purged::segments, purged::attempts, purged::repeated))
            .load(conn))?;
        let count = |count: Option<i64>| positive(count.unwrap_or(0));
        let counts: Vec<SentCount> = rows
            .into_iter()
            .map(
                |(provider, prefix, messages, segments, billed, attempts, repeated)| SentCount {
                    provider,
                    prefix: prefix.text,
                    messages: positive(messages),
                    segments: count(segments),
                    billed: count(billed),
                    attempts: count(attempts),
                    repeated: count(repeated),
                },
            )
            .collect();
        let gone_of = |one: fn(&(i64, i64, i64)) -> i64| positive(gone.iter().map(one).sum());
        let kept = |one: fn(&SentCount) -> u64| counts.iter().map(one).sum::<u64>();
        facts.segments = kept(|one| one.segments) + gone_of(|gone| gone.0);
        facts.attempts = kept(|one| one.attempts) + gone_of(|gone| gone.1);
        facts.repeated = kept(|one| one.repeated) + gone_of(|gone| gone.2);
        Ok(Sent { facts, counts })
    }
}
