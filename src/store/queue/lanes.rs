//! The parts of campaigns' queues: each is sent by one sender of a provider. And the senders that an operator switched
//! off.

use diesel::dsl::count_star;
use diesel::{delete, update};
use smsq_message::route::sender_pool::SendersOff;
use smsq_message::route::{LaneNumbers, Route};
use smsq_message::sms::{LaneId, State, Timestamp};
use smsq_process::boxed;

use crate::audit::{Audited, audited};
use crate::campaigns::approvals;
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, querying, transaction};
use crate::error::StoreError;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::schema::{failover, lane, sender_off, sms};
use crate::{Store, positive};

/// The lanes of a campaign by their numbers: those of approvals, the part that is not divided, those of senders.
pub(super) async fn of(connection: &mut Connection, campaign_id: i64) -> QueryResult<Vec<LaneId>> {
    let numbers: Vec<i32> = lane::table
        .filter(lane::campaign_id.eq(campaign_id))
        .order(lane::number)
        .select(lane::number)
        .load(connection)
        .await?;
    let approvals = approvals::ids_of(connection, campaign_id).await?;
    let all = approvals.into_iter().map(approvals::lane_of);
    let all = all.chain([0]).chain(numbers);
    Ok(all.map(|lane| LaneId { campaign_id, lane }).collect())
}

/// Deletes the lanes of a campaign without messages.
pub(crate) async fn delete_of(connection: &mut Connection, campaign_id: i64) -> QueryResult<()> {
    delete(lane::table).filter(lane::campaign_id.eq(campaign_id)).execute(connection).await?;
    delete(failover::table)
        .filter(failover::campaign_id.eq(campaign_id))
        .execute(connection)
        .await?;
    approvals::delete_of(connection, campaign_id).await
}

/// Messages of a campaign that went to another provider, because theirs was unavailable, as one worker saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Queryable, Selectable)]
#[diesel(table_name = failover)]
pub struct Failover {
    pub campaign_id: i64,
    pub provider: String,
    pub fallback: String,
    /// When the provider became unavailable.
    pub since: Timestamp,
    /// When the last message was moved.
    pub last_at: Timestamp,
    pub reason: String,
    pub messages: i64,
}

impl Failover {
    /// Adds these messages to the ones that were moved before in this outage.
    pub(super) async fn store(&self, connection: &mut Connection) -> QueryResult<()> {
        let key = (
            self.campaign_id,
            self.provider.as_str(),
            self.fallback.as_str(),
            self.since.as_millis(),
        );
        let row = [(
            failover::campaign_id.eq(self.campaign_id),
            failover::provider.eq(self.provider.clone()),
            failover::fallback.eq(self.fallback.clone()),
            failover::since.eq(self.since),
            failover::last_at.eq(self.last_at),
            failover::reason.eq(self.reason.clone()),
        )];
        NewRows::of(failover::table, &row).insert_new(connection).await?;
        update(failover::table.find(key))
            .set((
                failover::last_at.eq(self.last_at),
                failover::reason.eq(&self.reason),
                failover::messages.eq(failover::messages + self.messages),
            ))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// The messages of a campaign that wait for one sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderQueue {
    pub provider: String,
    pub sender: String,
    pub waiting: u64,
}

impl Store {
    /// The lanes of a campaign, by their numbers.
    pub(crate) async fn lanes_of(&self, campaign_id: i64) -> Result<Vec<LaneId>, StoreError> {
        querying!(self, Read, |connection| of(connection, campaign_id))
    }

    /// When the next message of the campaign becomes due; `None` if none is ready.
    #[boxed]
    pub async fn next_due(&self, campaign_id: i64) -> Result<Option<Timestamp>, StoreError> {
        let mut next_due = None;
        for id in self.lanes_of(campaign_id).await? {
            let due_at: Option<Timestamp> = self
                .read_first(
                    sms::table
                        .filter(sms::campaign_id.eq(id.campaign_id))
                        .filter(sms::state.eq(State::Ready.code()))
                        .filter(sms::lane.eq(id.lane))
                        .order(sms::due_at)
                        .select(sms::due_at),
                )
                .optional()
                .await?;
            next_due = next_due.into_iter().chain(due_at).min();
        }
        Ok(next_due)
    }

    /// How many messages wait for each sender of a campaign.
    #[boxed]
    pub async fn waiting_by_sender(
        &self,
        campaign_id: i64,
    ) -> Result<Vec<SenderQueue>, StoreError> {
        let joined = lane::table.inner_join(
            sms::table.on(sms::campaign_id.eq(lane::campaign_id).and(sms::lane.eq(lane::number))),
        );
        let rows: Vec<(String, String, i64)> = self
            .read(
                joined
                    .filter(lane::campaign_id.eq(campaign_id))
                    .filter(sms::campaign_id.eq(campaign_id))
                    .filter(sms::state.eq(State::Ready.code()))
                    .group_by((lane::provider, lane::sender))
                    .select((lane::provider, lane::sender, count_star())),
            )
            .await?;
        let queue = |(provider, sender, waiting)| SenderQueue {
            provider,
            sender,
            waiting: positive(waiting),
        };
        Ok(rows.into_iter().map(queue).collect())
    }

    /// The numbers of the lanes of a campaign, by provider and sender. Creates those that the route needs.
    #[boxed]
    pub async fn open_lanes(
        &self,
        campaign_id: i64,
        route: &Route,
    ) -> Result<LaneNumbers, StoreError> {
        let senders: Vec<(String, String)> = route
            .senders()
            .map(|(provider, sender)| (provider.to_owned(), sender.from.to_string()))
            .collect();
        transaction!(self, |connection| async {
            let known = numbers(connection, campaign_id).await?;
            let next = known.values().map(|number| number + 1).max().unwrap_or(1);
            let missing = senders.iter().filter(|owner| !known.contains_key(*owner));
            let rows: Vec<_> = (next..)
                .zip(missing)
                .map(|(number, (provider, sender))| {
                    (
                        lane::campaign_id.eq(campaign_id),
                        lane::number.eq(number),
                        lane::provider.eq(provider.clone()),
                        lane::sender.eq(sender.clone()),
                    )
                })
                .collect();
            if rows.is_empty() {
                return Ok(known);
            }
            // Another process may add lanes with the same numbers at the same time: then its own are missing below.
            NewRows::of(lane::table, &rows).insert_new(connection).await?;
            let all = numbers(connection, campaign_id).await?;
            if senders.iter().all(|owner| all.contains_key(owner)) {
                Ok(all)
            } else {
                Err(crate::connection::DatabaseError::conflict("another process added lanes"))
            }
        })
    }

    /// The messages of campaigns that went to other providers.
    #[boxed]
    pub async fn failovers(&self, filter: CampaignFilter) -> Result<Vec<Failover>, StoreError> {
        self.read(
            failover::table.filter(filter.on(failover::campaign_id)).select(Failover::as_select()),
        )
        .await
    }

    /// The senders that are switched off, with their providers.
    #[boxed]
    pub async fn senders_off(&self) -> Result<SendersOff, StoreError> {
        let rows: Vec<(String, String)> =
            self.read(sender_off::table.select((sender_off::provider, sender_off::sender))).await?;
        Ok(SendersOff(rows.into_iter().collect()))
    }

    /// Switches a sender off or on; false if it was already.
    #[boxed]
    pub async fn switch_sender(
        &self,
        provider: &str,
        sender: &str,
        on: bool,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<bool, StoreError> {
        let changed: u64 = audited!(self, audited, now, |connection| async {
            let changed = if on {
                delete(sender_off::table.find((provider, sender))).execute(connection).await?
            } else {
                let row = [(
                    sender_off::provider.eq(provider.to_owned()),
                    sender_off::sender.eq(sender.to_owned()),
                    sender_off::since.eq(now),
                )];
                NewRows::of(sender_off::table, &row).insert_new(connection).await?
            };
            QueryResult::Ok(changed as u64)
        })?;
        Ok(changed > 0)
    }
}

/// The numbers of the lanes of a campaign.
async fn numbers(connection: &mut Connection, campaign_id: i64) -> QueryResult<LaneNumbers> {
    let rows: Vec<(i32, String, String)> = lane::table
        .filter(lane::campaign_id.eq(campaign_id))
        .select((lane::number, lane::provider, lane::sender))
        .load(connection)
        .await?;
    let owner = |(number, provider, sender)| ((provider, sender), number);
    Ok(rows.into_iter().map(owner).collect())
}
