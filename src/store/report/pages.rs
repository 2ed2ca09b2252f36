//! Messages page by page, since a campaign may have millions of them: failed, sent and queued ones.

use std::collections::VecDeque;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use serde::Serialize;

use crate::sms::{Class, State, Timestamp};
use crate::store::column_types::LossyText;
use crate::store::connection::reading;
use crate::store::schema::{sms, sms_failed, sms_sent};
use crate::store::{Store, StoreError};

/// The reason of an unknown message that has none.
pub(super) const NO_REASON: &str = "it is not known whether the provider accepted it";

/// A position in an index: an instant and an id.
type Position = (Timestamp, i64);

/// The position before all rows.
const START: Position = (Timestamp::from_millis(i64::MIN), i64::MAX);

/// Loads the next rows after a position, in the order of an index of instants and ids. Reads the rest of the instant
/// first, at which a whole import may be due.
macro_rules! rows_after {
    ($store:expr, $Row:ty, $rows:expr, $index:expr, $after:expr, $limit:expr) => {{
        let ((at_column, id_column), (at, id)): (_, Position) = ($index, $after);
        let mut rows: Vec<$Row> = reading!($store, |conn| $rows
            .filter(at_column.eq(at.as_millis()))
            .filter(id_column.gt(id))
            .order(id_column)
            .limit($limit)
            .select(<$Row>::as_select())
            .load(conn))?;
        if rows.is_empty() {
            rows = reading!($store, |conn| $rows
                .filter(at_column.gt(at.as_millis()))
                .order((at_column, id_column))
                .limit($limit)
                .select(<$Row>::as_select())
                .load(conn))?;
        }
        rows
    }};
}

/// The state of a message that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureState {
    /// Or expired: see its class.
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

/// A message that failed or is unknown, and why.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct FailureRecord {
    #[serde(skip)]
    pub id: i64,
    #[serde(skip)]
    pub campaign_id: i64,
    pub phone: String,
    pub content: String,
    /// The imported columns, a JSON object.
    #[serde(skip)]
    pub params: String,
    pub state: FailureState,
    /// The name of a [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub attempts: i32,
    /// `None` if there was no attempt.
    #[serde(skip)]
    pub last_attempt_at: Option<Timestamp>,
}

/// Reads all failures of some campaigns. A page begins after the last one, by an index, so all pages cost the same.
#[derive(Debug)]
pub struct Failures {
    cursors: VecDeque<FailureCursor>,
}

/// A range of an index, and the last row that was read.
#[derive(Debug)]
enum FailureCursor {
    Failed {
        campaign_id: i64,
        class: String,
        after: i64,
    },
    Unknown {
        campaign_id: i64,
        after: Position,
    },
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
struct FailedRow {
    id: i64,
    campaign_id: i64,
    phone: LossyText,
    content: LossyText,
    params: LossyText,
    class: String,
    code: Option<String>,
    reason: String,
    attempts: i32,
    failed_at: Timestamp,
}

impl From<FailedRow> for FailureRecord {
    fn from(row: FailedRow) -> Self {
        let is_cancelled = row.class == Class::Cancelled.as_str();
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            phone: row.phone.text,
            content: row.content.text,
            params: row.params.text,
            state: if is_cancelled {
                FailureState::Cancelled
            } else {
                FailureState::Failed
            },
            class: row.class,
            code: row.code,
            reason: row.reason,
            attempts: row.attempts,
            last_attempt_at: (row.attempts > 0).then_some(row.failed_at),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms)]
struct UnknownRow {
    id: i64,
    campaign_id: i64,
    phone: LossyText,
    content: LossyText,
    params: LossyText,
    due_at: Timestamp,
    last_code: Option<String>,
    last_reason: Option<String>,
    attempts: i32,
    claimed_at: Option<Timestamp>,
}

impl From<UnknownRow> for FailureRecord {
    fn from(row: UnknownRow) -> Self {
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            phone: row.phone.text,
            content: row.content.text,
            params: row.params.text,
            state: FailureState::Unknown,
            class: Class::Unknown.as_str().to_owned(),
            code: row.last_code,
            reason: row.last_reason.unwrap_or_else(|| NO_REASON.to_owned()),
            attempts: row.attempts,
            last_attempt_at: row.claimed_at,
        }
    }
}

impl Store {
    /// Begins to read failures: by campaign, then by class, the unknown ones last.
    pub async fn failures(&self, campaigns: &[i64]) -> Result<Failures, StoreError> {
        let mut cursors = VecDeque::new();
        for &campaign_id in campaigns {
            let mut classes: Vec<String> = reading!(self, |conn| sms_failed::table
                .filter(sms_failed::campaign_id.eq(campaign_id))
                .select(sms_failed::class)
                .distinct()
                .load(conn))?;
            classes.sort_by_key(|name| {
                let known = Class::ALL.iter().position(|class| class.as_str() == name);
                known.unwrap_or(Class::ALL.len())
            });
            cursors.extend(classes.into_iter().map(|class| FailureCursor::Failed {
                campaign_id,
                class,
                after: 0,
            }));
            cursors.push_back(FailureCursor::Unknown {
                campaign_id,
                after: START,
            });
        }
        Ok(Failures { cursors })
    }

    /// The next page of at most `limit` failures; an empty one is the end.
    pub async fn next_failures(
        &self,
        failures: &mut Failures,
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        let limit = row_limit(limit);
        while let Some(cursor) = failures.cursors.front_mut() {
            let page: Vec<FailureRecord> = match cursor {
                FailureCursor::Failed {
                    campaign_id,
                    class,
                    after,
                } => {
                    let rows: Vec<FailedRow> = reading!(self, |conn| sms_failed::table
                        .filter(sms_failed::campaign_id.eq(*campaign_id))
                        .filter(sms_failed::class.eq(&*class))
                        .filter(sms_failed::id.gt(*after))
                        .order(sms_failed::id)
                        .limit(limit)
                        .select(FailedRow::as_select())
                        .load(conn))?;
                    *after = rows.last().map_or(*after, |last| last.id);
                    rows.into_iter().map(FailureRecord::from).collect()
                }
                FailureCursor::Unknown { campaign_id, after } => {
                    let unknown = || {
                        sms::table
                            .filter(sms::campaign_id.eq(*campaign_id))
                            .filter(sms::state.eq(State::Unknown.code()))
                    };
                    let index = (sms::due_at, sms::id);
                    let rows = rows_after!(self, UnknownRow, unknown(), index, *after, limit);
                    *after = rows.last().map_or(*after, |last| (last.due_at, last.id));
                    rows.into_iter().map(FailureRecord::from).collect()
                }
            };
            if !page.is_empty() {
                return Ok(page);
            }
            failures.cursors.pop_front();
        }
        Ok(Vec::new())
    }
}

/// A message that its provider accepted.
#[derive(Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
pub struct SentMessage {
    pub id: i64,
    pub campaign_id: i64,
    #[diesel(deserialize_as = LossyText)]
    pub phone: String,
    pub provider: String,
    /// The provider's id of the message.
    pub message_id: Option<String>,
    pub segments: Option<i32>,
    /// The price that the provider reported.
    pub price: Option<String>,
    pub sent_at: Timestamp,
    pub attempts: i32,
    /// How often the provider accepted it.
    pub accepted: i32,
}

/// Reads all sent messages of some campaigns, by campaign and by the time at which they were sent.
#[derive(Debug)]
pub struct SentMessages {
    campaigns: VecDeque<i64>,
    after: Position,
}

impl SentMessages {
    #[must_use]
    pub fn of(campaigns: &[i64]) -> Self {
        Self {
            campaigns: campaigns.iter().copied().collect(),
            after: START,
        }
    }
}

impl Store {
    /// The next page of at most `limit` sent messages; an empty one is the end.
    pub async fn next_sent(
        &self,
        sent: &mut SentMessages,
        limit: usize,
    ) -> Result<Vec<SentMessage>, StoreError> {
        let limit = row_limit(limit);
        while let Some(campaign_id) = sent.campaigns.front() {
            let of_campaign = || sms_sent::table.filter(sms_sent::campaign_id.eq(*campaign_id));
            let index = (sms_sent::sent_at, sms_sent::id);
            let rows = rows_after!(self, SentMessage, of_campaign(), index, sent.after, limit);
            if let Some(last) = rows.last() {
                sent.after = (last.sent_at, last.id);
                return Ok(rows);
            }
            sent.campaigns.pop_front();
            sent.after = START;
        }
        Ok(Vec::new())
    }
}

/// A message that waits to be sent.
#[derive(Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub struct Queued {
    id: i64,
    due_at: Timestamp,
    /// As it was imported, E.164 with `+`, or as another program wrote it.
    #[diesel(deserialize_as = LossyText)]
    pub phone: String,
    #[diesel(deserialize_as = LossyText)]
    pub content: String,
    /// The imported columns, a JSON object.
    #[diesel(deserialize_as = LossyText)]
    pub params: String,
}

/// Reads the waiting messages of a campaign in the order in which they will be sent.
#[derive(Debug)]
pub struct Queue {
    campaign_id: i64,
    after: Position,
}

impl Queue {
    #[must_use]
    pub fn of(campaign_id: i64) -> Self {
        Self {
            campaign_id,
            after: START,
        }
    }
}

/// The message of a campaign that is due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub struct FirstDue {
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub attempts: i32,
}

impl Store {
    /// The waiting message of a campaign that is due first.
    pub async fn first_due(&self, campaign_id: i64) -> Result<Option<FirstDue>, StoreError> {
        let first: Vec<FirstDue> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .order(sms::due_at)
            .limit(1)
            .select(FirstDue::as_select())
            .load(conn))?;
        Ok(first.into_iter().next())
    }

    /// The next page of at most `limit` waiting messages; an empty one is the end.
    pub async fn next_queued(
        &self,
        queue: &mut Queue,
        limit: u32,
    ) -> Result<Vec<Queued>, StoreError> {
        let ready = || {
            sms::table
                .filter(sms::campaign_id.eq(queue.campaign_id))
                .filter(sms::state.eq(State::Ready.code()))
        };
        let index = (sms::due_at, sms::id);
        let rows = rows_after!(self, Queued, ready(), index, queue.after, i64::from(limit));
        queue.after = rows
            .last()
            .map_or(queue.after, |last| (last.due_at, last.id));
        Ok(rows)
    }
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
