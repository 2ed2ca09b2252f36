//! Queries for reports, `smsq status` and `smsq check`, which only read. Counts come from the
//! indexes and never touch a text, so they stay quick however long the campaign is.

mod audit;
mod failures;
mod ledger;
mod lists;
mod origins;
mod queued;
mod sent;
mod timeline;

use std::collections::BTreeMap;

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel_async::RunQueryDsl;
use serde::Serialize;

use super::connection::reading;
use super::schema::{import, purged, sms, sms_failed, sms_sent};
use super::{Campaign, Store, StoreError};
use crate::sms::{Class, State};

pub use audit::{Audit, ImportCount};
pub use failures::{FailureRecord, FailureState, Failures};
pub use ledger::{SentMessage, SentWalk};
pub use lists::ListCount;
pub use origins::Origin;
pub use queued::{FirstDue, Queue, Queued};
pub use sent::{Sent, SentCount, SentFacts};
pub use timeline::{ClassCount, Outcomes};

/// The places that are counted; those of table `sms` are its states.
const SENDING: i32 = State::Sending.code();
const UNKNOWN: i32 = State::Unknown.code();
const SENT: i32 = 10;
const FAILED: i32 = 11;
const CANCELLED: i32 = 12;
const IMPORTED: i32 = 13;
const PURGED: i32 = 14;

/// Rows of a table per campaign, marked with the place they count for.
macro_rules! counted {
    ($table:ident, $campaigns:expr, $place:expr) => {
        $table::table
            .filter($table::campaign_id.eq_any($campaigns))
            .group_by($table::campaign_id)
            .select((
                $table::campaign_id,
                $place.into_sql::<Integer>(),
                count_star(),
            ))
    };
}

/// What was purged, per campaign and import, marked with the place it counts for.
macro_rules! gone {
    ($campaigns:expr, $place:expr, $count:expr) => {
        purged::table
            .filter(purged::campaign_id.eq_any($campaigns))
            .select((purged::campaign_id, $place.into_sql::<Integer>(), $count))
    };
}

macro_rules! all_gone {
    () => {
        purged::sent + purged::failed + purged::unknown + purged::cancelled
    };
}

use all_gone;

/// `purged.import_id` of messages that another program inserted.
const PLAIN: i64 = 0;

/// The most reasons that are listed: a provider that puts an id into each must not fill the memory.
pub const REASONS: usize = 1_000;

/// How many messages that are due last are searched for a failed attempt: retries are put behind other messages.
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

/// The number of messages by their state; `imported` is counted by the imports, the others in the tables.
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
    fn add(&mut self, place: i32, count: u64) {
        *match place {
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

/// A reason for which messages did not arrive, and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCount {
    /// A word of [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub count: u64,
}

impl Store {
    /// Of one campaign or of all, counted in one statement.
    pub async fn totals(&self, campaign: Option<i64>) -> Result<Totals, StoreError> {
        let ids = match campaign {
            Some(id) => vec![id],
            None => self.campaigns().await?.iter().map(|one| one.id).collect(),
        };
        Ok(self.totals_of(&ids).await?.into_values().sum())
    }

    /// Of each campaign, oldest first, counted in one statement.
    pub async fn campaign_totals(&self) -> Result<Vec<(Campaign, Totals)>, StoreError> {
        let campaigns = self.campaigns().await?;
        let ids: Vec<i64> = campaigns.iter().map(|campaign| campaign.id).collect();
        let mut totals = self.totals_of(&ids).await?;
        Ok(campaigns
            .into_iter()
            .map(|campaign| {
                let totals = totals.remove(&campaign.id).unwrap_or_default();
                (campaign, totals)
            })
            .collect())
    }

    /// The reasons, the commonest first, at most [`REASONS`]; those of the unknown ones too.
    pub async fn failures_by_reason(
        &self,
        campaigns: &[i64],
    ) -> Result<Vec<ReasonCount>, StoreError> {
        type Row = (String, Option<String>, String, i64);
        type UnknownRow = (Option<String>, Option<String>, i64);
        let most = i64::try_from(REASONS).unwrap_or(i64::MAX);
        let failed: Vec<Row> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::campaign_id.eq_any(campaigns))
            .group_by((sms_failed::class, sms_failed::code, sms_failed::reason))
            .select((
                sms_failed::class,
                sms_failed::code,
                sms_failed::reason,
                count_star()
            ))
            .order(count_star().desc())
            .limit(most)
            .load(conn))?;
        let unknown: Vec<UnknownRow> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .filter(sms::state.eq(State::Unknown.code()))
            .group_by((sms::last_code, sms::last_reason))
            .select((sms::last_code, sms::last_reason, count_star()))
            .order(count_star().desc())
            .limit(most)
            .load(conn))?;
        let unknown = unknown
            .into_iter()
            .map(|(code, reason, count)| ReasonCount {
                class: Class::Unknown.as_str().to_owned(),
                code,
                reason: reason.unwrap_or_else(|| failures::NO_REASON.to_owned()),
                count: positive(count),
            });
        let mut reasons: Vec<ReasonCount> = failed
            .into_iter()
            .map(|(class, code, reason, count)| ReasonCount {
                class,
                code,
                reason,
                count: positive(count),
            })
            .chain(unknown)
            .collect();
        reasons.sort_by(|a, b| {
            let key = |one: &ReasonCount| (one.class.clone(), one.code.clone(), one.reason.clone());
            b.count.cmp(&a.count).then_with(|| key(a).cmp(&key(b)))
        });
        reasons.truncate(REASONS);
        Ok(reasons)
    }

    /// One statement, so that a running worker moves nothing in between.
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
            .union_all(gone!(campaigns, SENT, purged::sent))
            .union_all(gone!(campaigns, FAILED, purged::failed))
            .union_all(gone!(campaigns, UNKNOWN, purged::unknown))
            .union_all(gone!(campaigns, CANCELLED, purged::cancelled))
            .union_all(gone!(campaigns, PURGED, all_gone!()))
            .union_all(gone!(campaigns, IMPORTED, all_gone!()).filter(purged::import_id.eq(PLAIN)))
            .load(conn))?;
        let mut all: BTreeMap<i64, Totals> = BTreeMap::new();
        for (campaign, place, count) in rows {
            all.entry(campaign).or_default().add(place, positive(count));
        }
        Ok(all)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn positive(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests;
