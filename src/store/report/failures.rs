//! The messages that did not arrive, page by page: a campaign may have millions of them.

use std::collections::VecDeque;
use std::fmt;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use serde::Serialize;

use crate::sms::{Class, State, Timestamp};
use crate::store::connection::reading;
use crate::store::lossy_text::LossyText;
use crate::store::schema::{sms, sms_failed};
use crate::store::{Store, StoreError};

/// The reason of an unknown message that has none.
pub(super) const NO_REASON: &str = "it is not known whether the provider took it";

/// The state of a message that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureState {
    /// Or expired: its class says so.
    Failed,
    Unknown,
    Cancelled,
}

impl FailureState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A message that did not arrive or is unknown, and why.
#[derive(Clone, PartialEq, Eq)]
pub struct FailureRecord {
    pub id: i64,
    pub campaign_id: i64,
    pub phone: String,
    pub content: String,
    /// The imported columns, a JSON object.
    pub params: String,
    pub state: FailureState,
    /// A word of [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub attempts: i32,
    /// `None` where there was no attempt.
    pub last_attempt_at: Option<Timestamp>,
}

/// Phones and texts are personal data: neither is printed.
impl fmt::Debug for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureRecord")
            .field("id", &self.id)
            .field("phone", &crate::phone::mask(&self.phone))
            .field("state", &self.state)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// A walk over all failures of some campaigns; each page begins where the last one ended, found by an
/// index, so the last page costs what the first one did.
#[derive(Debug)]
pub struct Failures {
    cursors: VecDeque<FailureCursor>,
}

/// A range of an index, and the last row that was read.
#[derive(Debug)]
enum FailureCursor {
    Failed {
        campaign: i64,
        class: String,
        after: i64,
    },
    Unknown {
        campaign: i64,
        after: (i64, i64),
    },
}

impl Store {
    /// Begins a walk: campaign by campaign, there class by class, the unknown ones last.
    pub async fn failures(&self, campaigns: &[i64]) -> Result<Failures, StoreError> {
        let mut cursors = VecDeque::new();
        for &campaign in campaigns {
            let mut classes: Vec<String> = reading!(self, |conn| sms_failed::table
                .filter(sms_failed::campaign_id.eq(campaign))
                .select(sms_failed::class)
                .distinct()
                .load(conn))?;
            classes.sort_by_key(|word| {
                let known = Class::ALL.iter().position(|class| class.as_str() == word);
                known.unwrap_or(Class::ALL.len())
            });
            cursors.extend(classes.into_iter().map(|class| FailureCursor::Failed {
                campaign,
                class,
                after: 0,
            }));
            cursors.push_back(FailureCursor::Unknown {
                campaign,
                after: (i64::MIN, i64::MAX),
            });
        }
        Ok(Failures { cursors })
    }

    /// The next page, at most `limit` long; an empty one is the end.
    pub async fn next_failures(
        &self,
        walk: &mut Failures,
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        while let Some(cursor) = walk.cursors.front_mut() {
            let page = match cursor {
                FailureCursor::Failed {
                    campaign,
                    class,
                    after,
                } => self.failed_page(*campaign, class, after, limit).await?,
                FailureCursor::Unknown { campaign, after } => {
                    self.unknown_page(*campaign, after, limit).await?
                }
            };
            if !page.is_empty() {
                return Ok(page);
            }
            walk.cursors.pop_front();
        }
        Ok(Vec::new())
    }

    async fn failed_page(
        &self,
        campaign: i64,
        class: &str,
        after: &mut i64,
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        let rows: Vec<FailedRow> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::campaign_id.eq(campaign))
            .filter(sms_failed::class.eq(class))
            .filter(sms_failed::id.gt(*after))
            .order(sms_failed::id)
            .limit(rows_of(limit))
            .select(FailedRow::as_select())
            .load(conn))?;
        if let Some(last) = rows.last() {
            *after = last.id;
        }
        Ok(rows.into_iter().map(FailureRecord::from).collect())
    }

    /// In the order of the index: by due time, then by id.
    async fn unknown_page(
        &self,
        campaign: i64,
        after: &mut (i64, i64),
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        let (due_at, id) = *after;
        let unknown = || {
            sms::table
                .filter(sms::campaign_id.eq(campaign))
                .filter(sms::state.eq(State::Unknown.code()))
        };
        // First the rest of the last page's instant, at which a whole import may be due.
        let mut rows: Vec<UnknownRow> = reading!(self, |conn| unknown()
            .filter(sms::due_at.eq(due_at))
            .filter(sms::id.gt(id))
            .order(sms::id)
            .limit(rows_of(limit))
            .select(UnknownRow::as_select())
            .load(conn))?;
        if rows.is_empty() {
            rows = reading!(self, |conn| unknown()
                .filter(sms::due_at.gt(due_at))
                .order((sms::due_at, sms::id))
                .limit(rows_of(limit))
                .select(UnknownRow::as_select())
                .load(conn))?;
        }
        if let Some(last) = rows.last() {
            *after = (last.due_at, last.id);
        }
        Ok(rows.into_iter().map(FailureRecord::from).collect())
    }
}

fn rows_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
struct FailedRow {
    id: i64,
    campaign_id: i64,
    #[diesel(deserialize_as = LossyText)]
    phone: String,
    #[diesel(deserialize_as = LossyText)]
    content: String,
    #[diesel(deserialize_as = LossyText)]
    params: String,
    class: String,
    code: Option<String>,
    reason: String,
    attempts: i32,
    failed_at: i64,
}

impl From<FailedRow> for FailureRecord {
    fn from(row: FailedRow) -> Self {
        let cancelled = row.class == Class::Cancelled.as_str();
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            phone: row.phone,
            content: row.content,
            params: row.params,
            state: if cancelled {
                FailureState::Cancelled
            } else {
                FailureState::Failed
            },
            class: row.class,
            code: row.code,
            reason: row.reason,
            attempts: row.attempts,
            last_attempt_at: (row.attempts > 0).then(|| Timestamp::from_millis(row.failed_at)),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms)]
struct UnknownRow {
    id: i64,
    campaign_id: i64,
    #[diesel(deserialize_as = LossyText)]
    phone: String,
    #[diesel(deserialize_as = LossyText)]
    content: String,
    #[diesel(deserialize_as = LossyText)]
    params: String,
    due_at: i64,
    last_code: Option<String>,
    last_reason: Option<String>,
    attempts: i32,
    claimed_at: Option<i64>,
}

impl From<UnknownRow> for FailureRecord {
    fn from(row: UnknownRow) -> Self {
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            phone: row.phone,
            content: row.content,
            params: row.params,
            state: FailureState::Unknown,
            class: Class::Unknown.as_str().to_owned(),
            code: row.last_code,
            reason: row.last_reason.unwrap_or_else(|| NO_REASON.to_owned()),
            attempts: row.attempts,
            last_attempt_at: row.claimed_at.map(Timestamp::from_millis),
        }
    }
}
