//! Messages page by page, since a campaign may have millions of them: failed, sent and queued ones.

use std::collections::VecDeque;

use diesel::dsl::sql;
use diesel::sql_types::{Bool, Nullable, Text};
use serde::Serialize;
use smsq_message::sms::{Class, LaneId, State, Timestamp};
use smsq_process::boxed;

use crate::ReportStore;
use crate::connection::prelude::*;
use crate::error::StoreError;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{sms, sms_failed, sms_sent};

/// The reason of an unknown message that has none.
pub(super) const NO_REASON: &str = "it is not known whether the provider accepted it";

/// The reason of an undelivered message that has none.
pub(super) const NOT_REACHED: &str = "the phone was not reached";
/// Sent messages that did not arrive. As literals, because an index with a condition serves no parameter.
pub(super) const NOT_DELIVERED: &str = "delivery_state IN ('undelivered', 'expired')";
const NOT_DELIVERED_STATES: [&str; 2] =
    ["delivery_state = 'undelivered'", "delivery_state = 'expired'"];

/// A position in an index: an instant and an id.
type Position = (Timestamp, i64);

/// The position before all rows.
const START: Position = (Timestamp::from_millis(i64::MIN), i64::MIN);

/// Reads ranges of an index page by page. A page begins after the last row of the one before, so all pages cost the
/// same.
#[derive(Debug)]
pub struct Pages<R> {
    /// The range that is being read, and those after it, with the last row of each that was read.
    ranges: VecDeque<(R, Position)>,
}

impl<R> Default for Pages<R> {
    /// No messages.
    fn default() -> Self {
        Self::new([])
    }
}

impl<R> Pages<R> {
    fn new(ranges: impl IntoIterator<Item = R>) -> Self {
        let ranges = ranges.into_iter().map(|range| (range, START));
        Self { ranges: ranges.collect() }
    }

    /// Moves after the last row of a page. If the page is empty, moves to the next range and returns false.
    fn advance(&mut self, last: Option<Position>) -> bool {
        match (last, self.ranges.front_mut()) {
            (Some(last), Some((_, after))) => *after = last,
            _ => {
                self.ranges.pop_front();
            }
        }
        last.is_some()
    }
}

/// Loads the next rows after a position, in the order of an index of instants and ids. Reads the rest of the instant
/// first, at which a whole import may be due.
macro_rules! rows_after {
    ($store:expr, $rows:expr, $index:expr, $after:expr, $limit:expr) => {{
        let ((at_column, id_column), (at, id)): (_, Position) = ($index, $after);
        let mut rows = $store
            .read(
                $rows
                    .filter(at_column.eq(at))
                    .filter(id_column.gt(id))
                    .order(id_column)
                    .limit($limit),
            )
            .await?;
        if rows.is_empty() {
            rows = $store
                .read($rows.filter(at_column.gt(at)).order((at_column, id_column)).limit($limit))
                .await?;
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
    /// Sent, and a receipt says that it did not arrive.
    Undelivered,
}

impl FailureState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Undelivered => "undelivered",
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

/// A message that failed, is unknown, or was not delivered.
#[derive(Queryable)]
struct FailureRow {
    id: i64,
    campaign_id: i64,
    phone: LossyText,
    content: Option<LossyText>,
    params: Option<LossyText>,
    attempts: i32,
    class: Option<String>,
    code: Option<LossyText>,
    reason: Option<LossyText>,
    last_attempt_at: Option<Timestamp>,
    /// When it failed, is looked up next, or was sent.
    index_at: Timestamp,
}

macro_rules! failure_row {
    ($table:ident, $class:expr, $code:expr, $reason:expr, $last_attempt_at:expr, $index_at:expr) => {
        (
            $table::id,
            $table::campaign_id,
            $table::phone,
            $table::content.nullable(),
            $table::params.nullable(),
            $table::attempts,
            $class,
            $code,
            $reason,
            $last_attempt_at,
            $index_at,
        )
    };
}

impl FailureRow {
    /// `was_sent`: it was not delivered.
    fn record(self, was_sent: bool) -> FailureRecord {
        let (state, class, reason) = match self.class.as_deref() {
            _ if was_sent => (FailureState::Undelivered, Class::Recipient, NOT_REACHED),
            None => (FailureState::Unknown, Class::Unknown, NO_REASON),
            Some(class) if class == Class::Cancelled.as_str() => {
                (FailureState::Cancelled, Class::Cancelled, NO_REASON)
            }
            Some(_) => (FailureState::Failed, Class::Unknown, NO_REASON),
        };
        FailureRecord {
            id: self.id,
            campaign_id: self.campaign_id,
            phone: self.phone.text,
            content: self.content.map(String::from).unwrap_or_default(),
            params: self.params.map_or_else(|| "{}".to_owned(), String::from),
            state,
            class: self.class.unwrap_or_else(|| class.to_string()),
            code: self.code.map(String::from),
            reason: self.reason.map_or_else(|| reason.to_owned(), String::from),
            attempts: self.attempts,
            last_attempt_at: self.last_attempt_at.filter(|_| was_sent || self.attempts > 0),
        }
    }
}

/// The failures of some campaigns: by campaign, then by class, the unknown ones (without a class) last, by lane.
pub type Failures = Pages<(LaneId, Option<String>)>;

impl ReportStore<'_> {
    #[boxed]
    pub async fn failures(&self, campaigns: CampaignFilter) -> Result<Failures, StoreError> {
        let failed: Vec<(i64, String)> = self
            .read(
                sms_failed::table
                    .filter(campaigns.on(sms_failed::campaign_id))
                    .select((sms_failed::campaign_id, sms_failed::class))
                    .distinct(),
            )
            .await?;
        let unknown: Vec<(i64, i32)> = self
            .read(
                sms::table
                    .filter(campaigns.on(sms::campaign_id))
                    .filter(sms::state.eq(State::Unknown.code()))
                    .select((sms::campaign_id, sms::lane))
                    .distinct(),
            )
            .await?;
        let lane = |(campaign_id, lane)| LaneId { campaign_id, lane };
        let mut ranges: Vec<(LaneId, Option<String>)> = failed
            .into_iter()
            .map(|(campaign_id, class)| (lane((campaign_id, 0)), Some(class)))
            .chain(unknown.into_iter().map(|unknown| (lane(unknown), None)))
            .collect();
        ranges.sort_by_cached_key(|(id, class)| {
            let mut known = Class::ALL.iter();
            let known = class.as_ref().map(|name| known.position(|class| class.as_str() == name));
            // A class that a newer smsq wrote comes after the known ones.
            let order = known.map_or(usize::MAX, |known| known.unwrap_or(Class::ALL.len()));
            (id.campaign_id, order, id.lane)
        });
        Ok(Pages::new(ranges))
    }

    /// The next page of at most `limit` failures; an empty one is the end.
    #[boxed]
    pub async fn next_failures(
        &self,
        failures: &mut Failures,
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        let limit = row_limit(limit);
        while let Some(((id, class), after)) = failures.ranges.front() {
            let rows: Vec<FailureRow> = if let Some(class) = class {
                self.read(
                    sms_failed::table
                        .filter(sms_failed::campaign_id.eq(id.campaign_id))
                        .filter(sms_failed::class.eq(class))
                        .filter(sms_failed::id.gt(after.1))
                        .order(sms_failed::id)
                        .limit(limit)
                        .select(failure_row!(
                            sms_failed,
                            sms_failed::class.nullable(),
                            sms_failed::code,
                            sms_failed::reason.nullable(),
                            sms_failed::failed_at.nullable(),
                            sms_failed::failed_at
                        )),
                )
                .await?
            } else {
                rows_after!(
                    self,
                    sms::table
                        .filter(sms::campaign_id.eq(id.campaign_id))
                        .filter(sms::state.eq(State::Unknown.code()))
                        .filter(sms::lane.eq(id.lane))
                        .select(failure_row!(
                            sms,
                            None::<String>.into_sql::<Nullable<Text>>(),
                            sms::last_code,
                            sms::last_reason,
                            sms::claimed_at,
                            sms::due_at
                        )),
                    (sms::due_at, sms::id),
                    *after,
                    limit
                )
            };
            let last = rows.last().map(|last| (last.index_at, last.id));
            if failures.advance(last) {
                return Ok(rows.into_iter().map(|row| row.record(false)).collect());
            }
        }
        Ok(Vec::new())
    }
}

/// The sent messages of some campaigns that were not delivered: by campaign and the condition of the state.
pub type Undelivered = Pages<(i64, &'static str)>;

impl ReportStore<'_> {
    #[boxed]
    pub async fn undelivered(&self, campaigns: CampaignFilter) -> Result<Undelivered, StoreError> {
        let mut ranges = Vec::new();
        for state in NOT_DELIVERED_STATES {
            let found: Vec<i64> = self
                .read(
                    sms_sent::table
                        .filter(campaigns.on(sms_sent::campaign_id))
                        .filter(sql::<Bool>(state))
                        .select(sms_sent::campaign_id)
                        .distinct(),
                )
                .await?;
            ranges.extend(found.into_iter().map(|id| (id, state)));
        }
        // Of one campaign, in the order of the states.
        ranges.sort_by_key(|(campaign_id, _)| *campaign_id);
        Ok(Pages::new(ranges))
    }

    /// The next page of at most `limit` messages that were not delivered and have not been fixed by an import; an empty
    /// one is the end.
    #[boxed]
    pub async fn next_undelivered(
        &self,
        undelivered: &mut Undelivered,
        limit: usize,
    ) -> Result<Vec<FailureRecord>, StoreError> {
        let limit = row_limit(limit);
        while let Some(((campaign_id, state), after)) = undelivered.ranges.front() {
            let rows: Vec<FailureRow> = self
                .read(
                    sms_sent::table
                        .filter(sms_sent::campaign_id.eq(campaign_id))
                        .filter(sql::<Bool>(state))
                        .filter(sms_sent::id.gt(after.1))
                        .filter(sms_sent::resent_at.is_null())
                        .order(sms_sent::id)
                        .limit(limit)
                        .select(failure_row!(
                            sms_sent,
                            sms_sent::delivery_class,
                            sms_sent::delivery_code,
                            sms_sent::delivery_reason,
                            sms_sent::delivery_at,
                            sms_sent::sent_at
                        )),
                )
                .await?;
            if undelivered.advance(rows.last().map(|last| (last.index_at, last.id))) {
                return Ok(rows.into_iter().map(|row| row.record(true)).collect());
            }
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
    /// What became of it, where a receipt is or was awaited, and when.
    pub delivery_state: Option<String>,
    pub delivery_at: Option<Timestamp>,
}

impl ReportStore<'_> {
    #[boxed]
    pub async fn sent_messages(&self, campaigns: CampaignFilter) -> Result<Pages<i64>, StoreError> {
        let mut found: Vec<i64> = self
            .read(
                sms_sent::table
                    .filter(campaigns.on(sms_sent::campaign_id))
                    .select(sms_sent::campaign_id)
                    .distinct(),
            )
            .await?;
        found.sort_unstable();
        Ok(Pages::new(found))
    }

    /// The next page of at most `limit` sent messages, by campaign and by the time at which they were sent; an empty
    /// one is the end.
    #[boxed]
    pub async fn next_sent(
        &self,
        sent: &mut Pages<i64>,
        limit: usize,
    ) -> Result<Vec<SentMessage>, StoreError> {
        let limit = row_limit(limit);
        while let Some((campaign_id, after)) = sent.ranges.front() {
            let rows: Vec<SentMessage> = rows_after!(
                self,
                sms_sent::table
                    .filter(sms_sent::campaign_id.eq(campaign_id))
                    .select(SentMessage::as_select()),
                (sms_sent::sent_at, sms_sent::id),
                *after,
                limit
            );
            if sent.advance(rows.last().map(|last| (last.sent_at, last.id))) {
                return Ok(rows);
            }
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
    pub segments: Option<i32>,
}

/// The message of a campaign that is due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub struct FirstDue {
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub attempts: i32,
}

impl ReportStore<'_> {
    /// The waiting message of a campaign that is due first.
    #[boxed]
    pub async fn first_due(&self, campaign_id: i64) -> Result<Option<FirstDue>, StoreError> {
        let mut first: Option<FirstDue> = None;
        for id in self.0.lanes_of(campaign_id).await? {
            let of_lane: Option<FirstDue> = self
                .read_first(
                    sms::table
                        .filter(sms::campaign_id.eq(id.campaign_id))
                        .filter(sms::state.eq(State::Ready.code()))
                        .filter(sms::lane.eq(id.lane))
                        .order(sms::due_at)
                        .select(FirstDue::as_select()),
                )
                .optional()
                .await?;
            let all = first.into_iter().chain(of_lane);
            first = all.min_by_key(|first| first.due_at);
        }
        Ok(first)
    }

    /// The waiting messages in these lanes of a campaign; `None`: in all.
    #[boxed]
    pub async fn queue(
        &self,
        campaign_id: i64,
        lanes: Option<&[LaneId]>,
    ) -> Result<Pages<LaneId>, StoreError> {
        let lanes = match lanes {
            Some(lanes) => lanes.to_vec(),
            None => self.0.lanes_of(campaign_id).await?,
        };
        Ok(Pages::new(lanes))
    }

    /// The next page of at most `limit` waiting messages, in turns of the lanes, of each in the order in which they will be
    /// sent; an empty one is the end.
    #[boxed]
    pub async fn next_queued(
        &self,
        queue: &mut Pages<LaneId>,
        limit: usize,
    ) -> Result<Vec<Queued>, StoreError> {
        let limit = row_limit(limit);
        while let Some((id, after)) = queue.ranges.front() {
            let rows: Vec<Queued> = rows_after!(
                self,
                sms::table
                    .filter(sms::campaign_id.eq(id.campaign_id))
                    .filter(sms::state.eq(State::Ready.code()))
                    .filter(sms::lane.eq(id.lane))
                    .select(Queued::as_select()),
                (sms::due_at, sms::id),
                *after,
                limit
            );
            if queue.advance(rows.last().map(|last| (last.due_at, last.id))) {
                queue.ranges.rotate_left(1);
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
