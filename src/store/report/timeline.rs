//! When messages were sent, failed or became unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use diesel::dsl::{count_star, max, min, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use serde::Serialize;

use super::positive;
use crate::sms::{Class, State, Timestamp, millis};
use crate::store::connection::reading;
use crate::store::schema::{sms, sms_failed, sms_sent};
use crate::store::{Store, StoreError};

/// Messages that failed for reasons of one class, those that were purged left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCount {
    /// A word of [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub messages: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// What ended in one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    pub sent: u64,
    /// Without the cancelled.
    pub failed: u64,
    pub unknown: u64,
}

impl Store {
    /// By class, the cancelled too.
    pub async fn failed_by_class(&self, campaigns: &[i64]) -> Result<Vec<ClassCount>, StoreError> {
        let rows: Vec<(String, i64, Option<i64>, Option<i64>)> =
            reading!(self, |conn| sms_failed::table
                .filter(sms_failed::campaign_id.eq_any(campaigns))
                .group_by(sms_failed::class)
                .select((
                    sms_failed::class,
                    count_star(),
                    min(sms_failed::failed_at),
                    max(sms_failed::failed_at),
                ))
                .order(sms_failed::class)
                .load(conn))?;
        let at = |at: Option<i64>| Timestamp::from_millis(at.unwrap_or(0));
        let counts = rows
            .into_iter()
            .map(|(class, messages, first_at, last_at)| ClassCount {
                class,
                messages: positive(messages),
                first_at: at(first_at),
                last_at: at(last_at),
            });
        Ok(counts.collect())
    }

    /// What ended in each of `spans` spans of `width`, the first of which begins at `from`. One grouped
    /// statement for each table.
    pub async fn outcomes_over_time(
        &self,
        campaigns: &[i64],
        from: Timestamp,
        width: Duration,
        spans: u32,
    ) -> Result<Vec<Outcomes>, StoreError> {
        let (start, width) = (from.as_millis(), millis(width).max(1));
        // All engines divide whole numbers differently, but agree on `%`.
        let since = |column: &str| format!("{column} - {start} - (({column} - {start}) % {width})");
        let until = from.as_millis() + width * i64::from(spans);
        let at = since("sent_at");
        let sent: Vec<(i64, i64)> = reading!(self, |conn| sms_sent::table
            .filter(sms_sent::campaign_id.eq_any(campaigns))
            .filter(sms_sent::sent_at.ge(start))
            .filter(sms_sent::sent_at.lt(until))
            .group_by(sql::<BigInt>(&at))
            .select((sql::<BigInt>(&at), count_star()))
            .load(conn))?;
        let at = since("failed_at");
        let failed: Vec<(i64, i64)> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::campaign_id.eq_any(campaigns))
            .filter(sms_failed::class.ne(Class::Cancelled.as_str()))
            .filter(sms_failed::failed_at.ge(start))
            .filter(sms_failed::failed_at.lt(until))
            .group_by(sql::<Text>(&at))
            .select((sql::<BigInt>(&at), count_star()))
            .load(conn))?;
        let at = since("claimed_at");
        let unknown: Vec<(i64, i64)> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::claimed_at.ge(start))
            .filter(sms::claimed_at.lt(until))
            .group_by(sql::<Text>(&at))
            .select((sql::<BigInt>(&at), count_star()))
            .load(conn))?;
        let mut counts = BTreeMap::<i64, Outcomes>::new();
        for (at, count) in sent {
            counts.entry(at / width).or_default().sent += positive(count);
        }
        for (at, count) in failed {
            counts.entry(at / width).or_default().failed += positive(count);
        }
        for (at, count) in unknown {
            counts.entry(at / width).or_default().unknown += positive(count);
        }
        let all = 0..i64::from(spans);
        Ok(all
            .map(|span| counts.remove(&span).unwrap_or_default())
            .collect())
    }
}
