//! Queries for reports, `smsq status` and `smsq check`, which only read. Counts use indexes and never read texts, so
//! they are fast for campaigns of any size.

pub(crate) mod counts;
mod integrity;
mod messages;
mod pages;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use diesel::dsl::{count_star, sql};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Serialize;
use smsq_message::sms::{Class, State};
use smsq_process::boxed;
use utoipa::ToSchema;

use super::campaigns::campaign::Campaign;
use super::error::StoreError;
use super::tables::campaign_filter::CampaignFilter;
use super::tables::schema::{import, purged, sms, sms_failed, sms_sent};
use super::tables::values::{PLAIN, REMOVED_CAMPAIGNS};
use super::{ReportStore, positive};
use crate::connection::prelude::*;

pub use counts::{ClassCount, ImportedRows, ListCount, Outcomes, Sent, SentCount, SentFacts};
pub use integrity::{ImportCount, IntegrityCheck};
pub use messages::{FoundSms, SmsFilter};
pub use pages::{
    FailureRecord, FailureState, Failures, FirstDue, Pages, Queued, SentMessage, Undelivered,
};

/// What a row of [`ReportStore::totals_of`] counts; rows of table `sms` have the state of its messages.
const SENDING: i32 = State::Sending.code();
const UNKNOWN: i32 = State::Unknown.code();
const SENT: i32 = 10;
const FAILED: i32 = 11;
const CANCELLED: i32 = 12;
const IMPORTED: i32 = 13;
const PURGED: i32 = 14;
/// The states of sent messages that await or awaited a receipt.
const AWAITING: i32 = 20;
const DELIVERED: i32 = 21;
const UNDELIVERED: i32 = 22;
const EXPIRED: i32 = 23;
const NO_REPORT: i32 = 24;
/// What a row of `sms_sent` counts by its state.
const BY_DELIVERY: &str = "CASE delivery_state WHEN 'awaiting' THEN 20 WHEN 'delivered' THEN 21 \
     WHEN 'undelivered' THEN 22 WHEN 'expired' THEN 23 ELSE 24 END";

/// Counts the rows of a table by campaign.
macro_rules! counted {
    ($table:ident, $campaigns:expr, $counted:expr) => {
        $table::table
            .filter($campaigns.on($table::campaign_id))
            .group_by($table::campaign_id)
            .select(($table::campaign_id, $counted.into_sql::<Integer>(), count_star()))
    };
}

/// Counts the purged messages by campaign and import.
macro_rules! purged {
    ($campaigns:expr, $counted:expr, $count:expr) => {
        purged::table.filter($campaigns.with_removed(purged::campaign_id)).select((
            purged::campaign_id,
            $counted.into_sql::<Integer>(),
            $count,
        ))
    };
}

macro_rules! all_purged {
    () => {
        purged::sent + purged::failed + purged::unknown + purged::cancelled
    };
}

use all_purged;

/// The most reasons that are listed, because some providers put an id into each reason.
pub const REASONS: usize = 1_000;

/// How many messages are searched for a failed attempt, from the one that is due last: retries are due later than
/// other messages.
const LATEST: i64 = 50;

/// Why messages fail without an attempt.
const WITHOUT_ATTEMPT: [&str; 4] = [
    Class::Cancelled.as_str(),
    Class::Expired.as_str(),
    Class::Settled.as_str(),
    Class::Suppressed.as_str(),
];

impl ReportStore<'_> {
    /// The reason of a failed attempt of a message that will be tried again.
    #[boxed]
    pub async fn last_failure(&self, campaign: &str) -> Result<Option<String>, StoreError> {
        let Some(campaign) = self.campaign(campaign).await? else {
            return Ok(None);
        };
        let was_attempted = |class: Option<String>| {
            class.is_none_or(|class| !WITHOUT_ATTEMPT.contains(&class.as_str()))
        };
        let mut latest: Option<(i64, String)> = None;
        for id in self.0.lanes_of(campaign.id).await? {
            let of_lane: Vec<(i64, Option<String>, Option<String>)> = self
                .read(
                    sms::table
                        .filter(sms::campaign_id.eq(id.campaign_id))
                        .filter(sms::state.eq(State::Ready.code()))
                        .filter(sms::lane.eq(id.lane))
                        .order((sms::due_at.desc(), sms::id.desc()))
                        .limit(LATEST)
                        .select((sms::due_at, sms::last_class, sms::last_reason)),
                )
                .await?;
            let attempted = of_lane.into_iter().find_map(|(due_at, class, reason)| {
                Some((due_at, reason.filter(|_| was_attempted(class))?))
            });
            latest = latest.max(attempted);
        }
        Ok(latest.map(|(_, reason)| reason))
    }
}

/// The number of messages by their state. `imported` is the sum of the imports, the others are counted in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Totals {
    pub imported: u64,
    pub queued: u64,
    pub sending: u64,
    pub sent: u64,
    /// With the expired ones, without the cancelled.
    pub failed: u64,
    pub unknown: u64,
    pub cancelled: u64,
    /// What became of the sent messages; `None` where no receipt is or was awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryCounts>,
    /// Purged messages, which are counted in the others too.
    #[serde(skip_serializing_if = "is_zero")]
    pub purged: u64,
}

/// The number of sent messages by what became of them; their sum is `sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct DeliveryCounts {
    pub delivered: u64,
    pub undelivered: u64,
    pub expired: u64,
    pub no_report: u64,
    pub awaiting: u64,
    /// They were sent while receipts were off.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_awaited: u64,
}

impl DeliveryCounts {
    /// Each count with the name of its column.
    pub fn by_state(&self) -> [(&'static str, u64); 6] {
        [
            ("delivered", self.delivered),
            ("undelivered", self.undelivered),
            ("expired", self.expired),
            ("no_report", self.no_report),
            ("awaiting", self.awaiting),
            ("not_awaited", self.not_awaited),
        ]
    }

    /// The number of messages whose receipts are or were awaited.
    pub fn awaited(&self) -> u64 {
        let all: u64 = self.by_state().iter().map(|(_, count)| count).sum();
        all - self.not_awaited
    }

    /// With this many more messages that no receipt is awaited for.
    fn with_rest(mut self, rest: u64) -> Self {
        self.not_awaited += rest;
        self
    }

    fn plus(self, other: Self) -> Self {
        Self {
            not_awaited: self.not_awaited + other.not_awaited,
            delivered: self.delivered + other.delivered,
            undelivered: self.undelivered + other.undelivered,
            expired: self.expired + other.expired,
            no_report: self.no_report + other.no_report,
            awaiting: self.awaiting + other.awaiting,
        }
    }
}

impl Totals {
    fn add(&mut self, counted: i32, count: u64) {
        if counted >= AWAITING {
            if count > 0 {
                let delivery = self.delivery.get_or_insert_default();
                *match counted {
                    AWAITING => &mut delivery.awaiting,
                    DELIVERED => &mut delivery.delivered,
                    UNDELIVERED => &mut delivery.undelivered,
                    EXPIRED => &mut delivery.expired,
                    _ => &mut delivery.no_report,
                } += count;
            }
            return;
        }
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
            delivery: match (sum.delivery, one.delivery) {
                (None, None) => None,
                (None, Some(known)) => Some(known.with_rest(sum.sent)),
                (Some(known), None) => Some(known.with_rest(one.sent)),
                (Some(known), Some(more)) => Some(known.plus(more)),
            },
            purged: sum.purged + one.purged,
        })
    }
}

/// The totals of each campaign.
#[derive(Clone, Debug, Default)]
pub struct CampaignTotals {
    pub campaigns: Vec<(Campaign, Totals)>,
    /// Of all campaigns that were removed after their messages were purged.
    pub removed: Totals,
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

impl ReportStore<'_> {
    /// The totals of one campaign or of all, counted in one statement. All include those that were removed.
    #[boxed]
    pub async fn totals(&self, campaign: Option<i64>) -> Result<Totals, StoreError> {
        Ok(self.totals_of(campaign.into()).await?.into_values().sum())
    }

    /// The totals of each campaign, oldest first, counted in one statement.
    #[boxed]
    pub async fn campaign_totals(&self) -> Result<CampaignTotals, StoreError> {
        let campaigns = self.campaigns().await?;
        let mut totals = self.totals_of(CampaignFilter::All).await?;
        let with_totals = campaigns.into_iter().map(|campaign| {
            let totals = totals.remove(&campaign.id).unwrap_or_default();
            (campaign, totals)
        });
        Ok(CampaignTotals {
            campaigns: with_totals.collect(),
            removed: totals.remove(&REMOVED_CAMPAIGNS).unwrap_or_default(),
        })
    }

    /// The reasons of failed and unknown messages, the most frequent first, at most [`REASONS`].
    #[boxed]
    pub async fn failures_by_reason(
        &self,
        campaigns: CampaignFilter,
    ) -> Result<Vec<ReasonCount>, StoreError> {
        type Row = (Option<String>, Option<String>, Option<String>, i64);
        let most = i64::try_from(REASONS).unwrap_or(i64::MAX);
        let failed: Vec<Row> = self
            .read(
                sms_failed::table
                    .filter(campaigns.on(sms_failed::campaign_id))
                    .group_by((sms_failed::class, sms_failed::code, sms_failed::reason))
                    .select((
                        sms_failed::class.nullable(),
                        sms_failed::code,
                        sms_failed::reason.nullable(),
                        count_star(),
                    ))
                    .order(count_star().desc())
                    .limit(most),
            )
            .await?;
        let unknown: Vec<Row> = self
            .read(
                sms::table
                    .filter(campaigns.on(sms::campaign_id))
                    .filter(sms::state.eq(State::Unknown.code()))
                    .group_by((sms::last_code, sms::last_reason))
                    .select((
                        None::<String>.into_sql::<Nullable<Text>>(),
                        sms::last_code,
                        sms::last_reason,
                        count_star(),
                    ))
                    .order(count_star().desc())
                    .limit(most),
            )
            .await?;
        let count = |(class, code, reason, count): Row| ReasonCount {
            class: class.unwrap_or_else(|| Class::Unknown.as_str().to_owned()),
            code,
            reason: reason.unwrap_or_else(|| pages::NO_REASON.to_owned()),
            count: positive(count),
        };
        let mut reasons: Vec<_> = failed.into_iter().chain(unknown).map(count).collect();
        reasons.sort_by_cached_key(|reason| {
            let name = (reason.class.clone(), reason.code.clone(), reason.reason.clone());
            (Reverse(reason.count), name)
        });
        reasons.truncate(REASONS);
        Ok(reasons)
    }

    /// Why sent messages were not delivered, the most frequent first, at most [`REASONS`]. Without those that an import
    /// has fixed.
    #[boxed]
    pub async fn undelivered_by_reason(
        &self,
        campaigns: CampaignFilter,
    ) -> Result<Vec<ReasonCount>, StoreError> {
        type Row = (Option<String>, Option<String>, Option<String>, i64);
        let most = i64::try_from(REASONS).unwrap_or(i64::MAX);
        let rows: Vec<Row> = self
            .read(
                sms_sent::table
                    .filter(campaigns.on(sms_sent::campaign_id))
                    .filter(sql::<Bool>(pages::NOT_DELIVERED))
                    .filter(sms_sent::resent_at.is_null())
                    .group_by((
                        sms_sent::delivery_class,
                        sms_sent::delivery_code,
                        sms_sent::delivery_reason,
                    ))
                    .select((
                        sms_sent::delivery_class,
                        sms_sent::delivery_code,
                        sms_sent::delivery_reason,
                        count_star(),
                    ))
                    .order(count_star().desc())
                    .limit(most),
            )
            .await?;
        let count = |(class, code, reason, count): Row| ReasonCount {
            class: class.unwrap_or_else(|| Class::Recipient.as_str().to_owned()),
            code,
            reason: reason.unwrap_or_else(|| pages::NOT_REACHED.to_owned()),
            count: positive(count),
        };
        Ok(rows.into_iter().map(count).collect())
    }

    /// How long delivered messages took from the provider's acceptance to the phone, in milliseconds, each with the
    /// number of messages; rounded down to a tenth of a second, and above a minute to a second.
    #[boxed]
    pub async fn delivery_times(
        &self,
        campaigns: CampaignFilter,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        const TOOK: &str = "CASE WHEN delivery_at - sent_at < 0 THEN 0 \
             WHEN delivery_at - sent_at < 60000 \
             THEN delivery_at - sent_at - (delivery_at - sent_at) % 100 \
             ELSE delivery_at - sent_at - (delivery_at - sent_at) % 1000 END";
        let rows: Vec<(i64, i64)> = self
            .read(
                sms_sent::table
                    .filter(campaigns.on(sms_sent::campaign_id))
                    .filter(sms_sent::delivery_state.eq("delivered"))
                    .filter(sms_sent::delivery_at.is_not_null())
                    .group_by(sql::<Text>(TOOK))
                    .select((sql::<BigInt>(TOOK), count_star())),
            )
            .await?;
        let mut times: Vec<(u64, u64)> =
            rows.into_iter().map(|(took, count)| (positive(took), positive(count))).collect();
        times.sort_unstable();
        Ok(times)
    }

    /// In one statement, because workers may be moving messages.
    async fn totals_of(
        self,
        campaigns: CampaignFilter,
    ) -> Result<BTreeMap<i64, Totals>, StoreError> {
        let rows: Vec<(i64, i32, i64)> = self
            .read(
                sms::table
                    .filter(campaigns.on(sms::campaign_id))
                    .group_by((sms::campaign_id, sms::state))
                    .select((sms::campaign_id, sms::state, count_star()))
                    .union_all(counted!(sms_sent, campaigns, SENT))
                    .union_all(
                        sms_sent::table
                            .filter(campaigns.on(sms_sent::campaign_id))
                            .filter(sms_sent::delivery_state.is_not_null())
                            .group_by((sms_sent::campaign_id, sms_sent::delivery_state))
                            .select((
                                sms_sent::campaign_id,
                                sql::<Integer>(BY_DELIVERY),
                                count_star(),
                            )),
                    )
                    .union_all(purged!(campaigns, DELIVERED, purged::delivered))
                    .union_all(purged!(campaigns, UNDELIVERED, purged::undelivered))
                    .union_all(purged!(campaigns, EXPIRED, purged::expired))
                    .union_all(purged!(campaigns, NO_REPORT, purged::no_report))
                    .union_all(
                        counted!(sms_failed, campaigns, FAILED)
                            .filter(sms_failed::class.ne(Class::Cancelled.as_str())),
                    )
                    .union_all(
                        counted!(sms_failed, campaigns, CANCELLED)
                            .filter(sms_failed::class.eq(Class::Cancelled.as_str())),
                    )
                    .union_all(
                        import::table.filter(campaigns.with_removed(import::campaign_id)).select((
                            import::campaign_id,
                            IMPORTED.into_sql::<Integer>(),
                            import::accepted - import::replaced,
                        )),
                    )
                    .union_all(counted!(sms, campaigns, IMPORTED).filter(sms::import_id.is_null()))
                    .union_all(
                        counted!(sms_sent, campaigns, IMPORTED)
                            .filter(sms_sent::import_id.is_null()),
                    )
                    .union_all(
                        counted!(sms_failed, campaigns, IMPORTED)
                            .filter(sms_failed::import_id.is_null()),
                    )
                    .union_all(purged!(campaigns, SENT, purged::sent))
                    .union_all(purged!(campaigns, FAILED, purged::failed))
                    .union_all(purged!(campaigns, UNKNOWN, purged::unknown))
                    .union_all(purged!(campaigns, CANCELLED, purged::cancelled))
                    .union_all(purged!(campaigns, PURGED, all_purged!()))
                    .union_all(
                        purged!(campaigns, IMPORTED, all_purged!())
                            .filter(purged::import_id.eq(PLAIN)),
                    ),
            )
            .await?;
        let mut all: BTreeMap<i64, Totals> = BTreeMap::new();
        for (campaign, counted, count) in rows {
            all.entry(campaign).or_default().add(counted, positive(count));
        }
        for totals in all.values_mut() {
            let sent = totals.sent;
            totals.delivery = totals.delivery.map(|known| {
                // Some were sent before their provider's receipts were switched on.
                known.with_rest(sent.saturating_sub(known.awaited()))
            });
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
