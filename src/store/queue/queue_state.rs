//! What waits in the queue, and in which campaigns: the cost of the question depends on the number of campaigns with
//! messages, not on the number of messages, and hardly on the number of other campaigns.

use std::collections::{BTreeMap, HashSet};

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use smsq_lifecycle::approval::ApprovalState;
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use crate::Store;
use crate::campaigns::approvals::of_lane;
use crate::campaigns::campaign::{Campaign, by_id};
use crate::connection::prelude::*;
use crate::connection::{Dialect, ROWS, querying, statement_in_dialect};
use crate::error::StoreError;
use crate::tables::schema::{campaign, message, sms};

/// A campaign with messages in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedCampaign {
    pub campaign: Campaign,
    /// When its first ready message is due that is in no lane; `None`: none is ready.
    pub ready_at: Option<Timestamp>,
    /// By their numbers; also those without messages. Lanes whose messages wait for approval are not among them.
    pub lanes: Vec<QueuedLane>,
    /// A worker is sending some of its messages.
    pub is_sending: bool,
    /// Some of its messages are unknown.
    pub has_unknown: bool,
}

impl QueuedCampaign {
    /// Whether any message is not settled yet.
    pub fn is_unfinished(&self) -> bool {
        let mut lanes = self.lanes.iter();
        self.ready_at.is_some() || self.is_sending || lanes.any(|lane| lane.ready_at.is_some())
    }
}

/// A part of a campaign's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedLane {
    pub number: i32,
    pub provider: String,
    pub sender: String,
    /// When its first ready message is due; `None`: none is ready.
    pub ready_at: Option<Timestamp>,
}

#[derive(QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = BigInt)]
    campaign_id: i64,
    /// When the first message of each state is due.
    #[diesel(sql_type = Nullable<BigInt>)]
    ready_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    sending: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    unknown: Option<i64>,
    #[diesel(sql_type = Nullable<Integer>)]
    lane: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    provider: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    sender: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    lane_ready_at: Option<i64>,
}

impl QueueRow {
    fn is_of_approval(&self) -> bool {
        self.lane.is_some_and(|lane| of_lane(lane).is_some())
    }

    fn lane(self) -> Option<QueuedLane> {
        Some(QueuedLane {
            number: self.lane?,
            provider: self.provider?,
            sender: self.sender?,
            ready_at: self.lane_ready_at.map(Timestamp::from_millis),
        })
    }
}

impl Store {
    /// When the tables were created, in milliseconds since the Unix epoch. Copies of a database have the same.
    #[boxed]
    pub async fn created_at(&self) -> Result<i64, StoreError> {
        let created_at: Option<i64> = self
            .read_first(campaign::table.order(campaign::id).select(campaign::created_at))
            .optional()
            .await?;
        Ok(created_at.unwrap_or_default())
    }

    /// Whether there is any of these messages.
    #[boxed]
    pub async fn has_any(&self, ids: &[i64]) -> Result<bool, StoreError> {
        for ids in ids.chunks(ROWS) {
            let found: Vec<i64> = self
                .read(message::table.filter(message::id.eq_any(ids)).select(message::id).limit(1))
                .await?;
            if !found.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Those of the messages that were created after an instant.
    #[boxed]
    pub async fn created_after(
        &self,
        ids: &[i64],
        at: Timestamp,
    ) -> Result<HashSet<i64>, StoreError> {
        let mut later: HashSet<i64> = HashSet::new();
        for ids in ids.chunks(ROWS) {
            let found: Vec<i64> = self
                .read(
                    message::table
                        .filter(message::id.eq_any(ids))
                        .filter(message::created_at.gt(at))
                        .select(message::id),
                )
                .await?;
            later.extend(found);
        }
        Ok(later)
    }

    /// Whether any ready message of the campaign expires after an instant or never.
    #[boxed]
    pub async fn has_unexpired_after(
        &self,
        campaign_id: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let later = sms::expires_at.gt(at).assume_not_null();
        let first: Vec<i64> = self
            .read(
                sms::table
                    .filter(sms::campaign_id.eq(campaign_id))
                    .filter(sms::state.eq(State::Ready.code()))
                    .filter(sms::expires_at.is_null().or(later))
                    .limit(1)
                    .select(sms::id),
            )
            .await?;
        Ok(!first.is_empty())
    }

    /// The campaigns with messages in the queue, oldest first. Their messages are read by one statement, so that one
    /// which changes its state meanwhile is not overlooked.
    #[boxed]
    pub async fn queued_campaigns(&self) -> Result<Vec<QueuedCampaign>, StoreError> {
        querying!(self, Read, |connection| async {
            // In the order of the whole index: MySQL 9 sorts all messages of a campaign for their time alone.
            let first = |state: State, lane: &str| {
                format!(
                    "(SELECT sms.due_at FROM sms WHERE sms.campaign_id = queue.campaign_id AND sms.state = {} {lane} \
                     ORDER BY sms.campaign_id, sms.state, sms.lane, sms.due_at LIMIT 1)",
                    state.code()
                )
            };
            let free = ApprovalState::FREE.map(|state| state.code().to_string());
            let select = |dialect: Dialect| {
                format!(
                    "SELECT queue.campaign_id AS campaign_id, {} AS ready_at, {} AS sending, {} AS unknown, \
                 lane.lane AS lane, lane.provider AS provider, lane.sender AS sender, {} AS lane_ready_at \
                 FROM {} LEFT JOIN lane ON lane.campaign_id = queue.campaign_id \
                 UNION ALL \
                 SELECT queue.campaign_id, NULL, NULL, NULL, {}, '', '', {} \
                 FROM approval AS queue WHERE queue.has_lane AND queue.state IN ({})",
                    first(State::Ready, "AND sms.lane = 0"),
                    first(State::Sending, ""),
                    first(State::Unknown, ""),
                    first(State::Ready, "AND sms.lane = lane.lane"),
                    dialect.campaigns_in_queue(),
                    dialect.integer("-queue.id"),
                    first(State::Ready, "AND sms.lane = -queue.id"),
                    free.join(", "),
                )
            };
            let rows: Vec<QueueRow> =
                statement_in_dialect(select, Vec::new()).load(connection).await?;
            let (free, rows): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(QueueRow::is_of_approval);
            let ids: Vec<i64> = rows.iter().map(|row| row.campaign_id).collect();
            let campaigns = by_id(connection, &ids).await?;
            let mut queued: BTreeMap<i64, QueuedCampaign> = BTreeMap::new();
            for row in rows {
                let Some(campaign) = campaigns.get(&row.campaign_id) else {
                    continue;
                };
                let of_campaign = queued.entry(campaign.id).or_insert_with(|| QueuedCampaign {
                    campaign: campaign.clone(),
                    ready_at: row.ready_at.map(Timestamp::from_millis),
                    lanes: Vec::new(),
                    is_sending: row.sending.is_some(),
                    has_unknown: row.unknown.is_some(),
                });
                of_campaign.lanes.extend(row.lane());
            }
            for row in free {
                if let Some(of_campaign) = queued.get_mut(&row.campaign_id) {
                    of_campaign.lanes.extend(row.lane());
                }
            }
            let mut queued: Vec<QueuedCampaign> = queued.into_values().collect();
            for of_campaign in &mut queued {
                of_campaign.lanes.sort_unstable_by_key(|lane| lane.number);
            }
            Ok(queued)
        })
    }
}
