//! Queries for reports, `smsq status` and `smsq check`, which only read. Counts use indexes and never read texts, so
//! they are fast for campaigns of any size.

mod audit;
mod counts;
mod pages;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use diesel::dsl::count_star;
use diesel::sql_types::{Integer, Nullable, Text};
use serde::Serialize;

use super::connection::reading;
use super::schema::{import, purged, sms, sms_failed, sms_sent};
use super::{Campaign, Store, StoreError, positive};
use crate::sms::{Class, State};
use crate::store::connection::prelude::*;

pub use audit::{Audit, ImportCount};
pub use counts::{ClassCount, ListCount, Outcomes, Sent, SentCount, SentFacts};
pub use pages::{FailureRecord, FailureState, Failures, FirstDue, Pages, Queued, SentMessage};

/// What a row of [`Store::totals_of`] counts; rows of table `sms` have the state of its messages.
const SENDING: i32 = State::Sending.code();
const UNKNOWN: i32 = State::Unknown.code();
const SENT: i32 = 10;
const FAILED: i32 = 11;
const CANCELLED: i32 = 12;
const IMPORTED: i32 = 13;
const PURGED: i32 = 14;

/// Counts the rows of a table by campaign.
macro_rules! counted {
    ($table:ident, $campaigns:expr, $counted:expr) => {
        $table::table
            .filter($table::campaign_id.eq_any($campaigns))
            .group_by($table::campaign_id)
            .select((
                $table::campaign_id,
                $counted.into_sql::<Integer>(),
                count_star(),
            ))
    };
}

/// Counts the purged messages by campaign and import.
macro_rules! purged {
    ($campaigns:expr, $counted:expr, $count:expr) => {
        purged::table
            .filter(purged::campaign_id.eq_any($campaigns))
            .select((purged::campaign_id, $counted.into_sql::<Integer>(), $count))
    };
}

macro_rules! all_purged {
    () => {
        purged::sent + purged::failed + purged::unknown + purged::cancelled
    };
}

use all_purged;

/// `purged.import_id` of messages that another program inserted.
const PLAIN: i64 = 0;

/// The most reasons that are listed, because some providers put an id into each reason.
pub const REASONS: usize = 1_000;

/// How many messages are searched for a failed attempt, from the one that is due last: retries are due later than
/// other messages.
const LATEST: i64 = 50;

impl Store {
    /// The reason of a failed attempt of a message that will be tried again.
    pub async fn last_failure(&self, campaign: &str) -> Result<Option<String>, StoreError> {
        let Some(campaign) = self.campaign(campaign).await? else {
            return Ok(None);
        };
        let latest: Vec<Option<String>> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign.id))
            .filter(sms::state.eq(State::Ready.code()))
            .order((sms::due_at.desc(), sms::id.desc()))
            .limit(LATEST)
            .select(sms::last_reason)
            .load(conn))?;
        Ok(latest.into_iter().flatten().next())
    }
}

/// The number of messages by their state. `imported` is the sum of the imports, the others are counted in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub imported: u64,
    pub queued: u64,
    pub sending: u64,
    pub sent: u64,
    /// With the expired ones, without the cancelled.
    pub failed: u64,
    pub unknown: u64,
    pub cancelled: u64,
    /// Purged messages, which are counted in the others too.
    #[serde(skip_serializing_if = "is_zero")]
    pub purged: u64,
}

impl Totals {
    fn add(&mut self, counted: i32, count: u64) {
        *match counted {
            SENDING => &mut self.sending,
            UNKNOWN => &mut self.unknown,
            SENT => &mut self.sent,
            FAILED => &mut self.failed,
            CANCELLED => &mut self.cancelled,
            IMPORTED => &mut self.imported,
            PURGED => &mut self.purged,
            // Ready, or a state of a newer smsq.
            _ => &mut self.queued,
        } += count;
    }
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            imported: sum.imported + one.imported,
            queued: sum.queued + one.queued,
            sending: sum.sending + one.sending,
            sent: sum.sent + one.sent,
            failed: sum.failed + one.failed,
            unknown: sum.unknown + one.unknown,
            cancelled: sum.cancelled + one.cancelled,
            purged: sum.purged + one.purged,
        })
    }
}

/// How many messages failed or are unknown for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCount {
    /// The name of a [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub count: u64,
}

impl Store {
    /// The totals of one campaign or of all, counted in one statement.
    pub async fn totals(&self, campaign: Option<i64>) -> Result<Totals, StoreError> {
        let ids = match campaign {
            Some(id) => vec![id],
            None => self.campaign_ids().await?,
        };
        Ok(self.totals_of(&ids).await?.into_values().sum())
    }

    /// The totals of each campaign, oldest first, counted in one statement.
    pub async fn campaign_totals(&self) -> Result<Vec<(Campaign, Totals)>, StoreError> {
        let campaigns = self.campaigns().await?;
        let ids: Vec<i64> = campaigns.iter().map(|campaign| campaign.id).collect();
        let mut totals = self.totals_of(&ids).await?;
        let with_totals = campaigns.into_iter().map(|campaign| {
            let totals = totals.remove(&campaign.id).unwrap_or_default();
            (campaign, totals)
        });
        Ok(with_totals.collect())
    }

    /// The reasons of failed and unknown messages, the most frequent first, at most [`REASONS`].
    pub async fn failures_by_reason(
        &self,
        campaigns: &[i64],
    ) -> Result<Vec<ReasonCount>, StoreError> {
        type Row = (Option<String>, Option<String>, Option<String>, i64);
        let most = i64::try_from(REASONS).unwrap_or(i64::MAX);
        let failed: Vec<Row> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::campaign_id.eq_any(campaigns))
            .group_by((sms_failed::class, sms_failed::code, sms_failed::reason))
            .select((
                sms_failed::class.nullable(),
                sms_failed::code,
                sms_failed::reason.nullable(),
                count_star(),
            ))
            .order(count_star().desc())
            .limit(most)
            .load(conn))?;
        let unknown: Vec<Row> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .filter(sms::state.eq(State::Unknown.code()))
            .group_by((sms::last_code, sms::last_reason))
            .select((
                None::<String>.into_sql::<Nullable<Text>>(),
                sms::last_code,
                sms::last_reason,
                count_star(),
            ))
            .order(count_star().desc())
            .limit(most)
            .load(conn))?;
        let count = |(class, code, reason, count): Row| ReasonCount {
            class: class.unwrap_or_else(|| Class::Unknown.as_str().to_owned()),
            code,
            reason: reason.unwrap_or_else(|| pages::NO_REASON.to_owned()),
            count: positive(count),
        };
        let mut reasons: Vec<_> = failed.into_iter().chain(unknown).map(count).collect();
        reasons.sort_by_cached_key(|one| {
            let name = (one.class.clone(), one.code.clone(), one.reason.clone());
            (Reverse(one.count), name)
        });
        reasons.truncate(REASONS);
        Ok(reasons)
    }

    /// In one statement, because workers may be moving messages.
    async fn totals_of(&self, campaigns: &[i64]) -> Result<BTreeMap<i64, Totals>, StoreError> {
        let rows: Vec<(i64, i32, i64)> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .group_by((sms::campaign_id, sms::state))
            .select((sms::campaign_id, sms::state, count_star()))
            .union_all(counted!(sms_sent, campaigns, SENT))
            .union_all(
                counted!(sms_failed, campaigns, FAILED)
                    .filter(sms_failed::class.ne(Class::Cancelled.as_str()))
            )
            .union_all(
                counted!(sms_failed, campaigns, CANCELLED)
                    .filter(sms_failed::class.eq(Class::Cancelled.as_str()))
            )
            .union_all(
                import::table
                    .filter(import::campaign_id.eq_any(campaigns))
                    .select((
                        import::campaign_id,
                        IMPORTED.into_sql::<Integer>(),
                        import::accepted - import::replaced,
                    ))
            )
            .union_all(counted!(sms, campaigns, IMPORTED).filter(sms::import_id.is_null()))
            .union_all(
                counted!(sms_sent, campaigns, IMPORTED).filter(sms_sent::import_id.is_null())
            )
            .union_all(
                counted!(sms_failed, campaigns, IMPORTED).filter(sms_failed::import_id.is_null())
            )
            .union_all(purged!(campaigns, SENT, purged::sent))
            .union_all(purged!(campaigns, FAILED, purged::failed))
            .union_all(purged!(campaigns, UNKNOWN, purged::unknown))
            .union_all(purged!(campaigns, CANCELLED, purged::cancelled))
            .union_all(purged!(campaigns, PURGED, all_purged!()))
            .union_all(
                purged!(campaigns, IMPORTED, all_purged!()).filter(purged::import_id.eq(PLAIN))
            )
            .load(conn))?;
        let mut all: BTreeMap<i64, Totals> = BTreeMap::new();
        for (campaign, counted, count) in rows {
            all.entry(campaign)
                .or_default()
                .add(counted, positive(count));
        }
        Ok(all)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests;
