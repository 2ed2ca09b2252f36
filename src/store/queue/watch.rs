//! Campaigns that are not done, for the events about their end: a campaign is watched before its first message is
//! claimed, and its event is stored by the transaction that ends the watch. So there is one event for each time that a
//! campaign is done, whichever workers there are and whenever they are killed.

use diesel::{delete, update};
use smsq_message::event::EventKind;
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use super::queue_state::QueuedCampaign;
use crate::HookStore;
use crate::connection::prelude::*;
use crate::connection::{NewRows, QueryResult, transaction};
use crate::error::StoreError;
use crate::events::outbox;
use crate::tables::schema::{campaign_watch, sms};
use outbox::NewEvent;

/// A campaign that was not done when it was looked at last.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = campaign_watch)]
pub struct WatchedCampaign {
    pub campaign_id: i64,
    pub opened_at: Timestamp,
    /// Since when its messages should be accepted; `None`: they wait.
    pub due_since: Option<Timestamp>,
    /// When an event said that it is stuck; `None`: it is not.
    pub stuck_at: Option<Timestamp>,
}

impl HookStore<'_> {
    /// Whether any hook wants events about the end of campaigns.
    pub fn watches_campaigns(self) -> bool {
        let kinds = [EventKind::CampaignDone, EventKind::CampaignStuck];
        self.subscriptions().want_any(&kinds)
    }

    /// The watched campaigns.
    #[boxed]
    pub async fn watched(&self) -> Result<Vec<WatchedCampaign>, StoreError> {
        self.read(
            campaign_watch::table
                .order(campaign_watch::campaign_id)
                .select(WatchedCampaign::as_select()),
        )
        .await
    }

    /// Watches those of the campaigns that are not done, if any hook wants their events.
    #[boxed]
    pub async fn watch(&self, queued: &[QueuedCampaign], now: Timestamp) -> Result<(), StoreError> {
        if !self.watches_campaigns() {
            return Ok(());
        }
        let known = self.watched().await?;
        let is_known = |id: i64| known.iter().any(|watched| watched.campaign_id == id);
        let new: Vec<_> = queued
            .iter()
            .filter(|queued| queued.is_unfinished() && !is_known(queued.campaign.id))
            .map(|queued| {
                (
                    campaign_watch::campaign_id.eq(queued.campaign.id),
                    campaign_watch::opened_at.eq(now),
                )
            })
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        transaction!(self, |connection| async {
            NewRows::of(campaign_watch::table, &new).insert_new(connection).await.map(drop)
        })
    }

    /// Ends the watch of a campaign that is done, with its events. False if it is not done, or another process has
    /// ended the watch.
    #[boxed]
    pub async fn end_watch(
        &self,
        campaign_id: i64,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let locked: Vec<i64> = campaign_watch::table
                .find(campaign_id)
                .select(campaign_watch::campaign_id)
                .locked()
                .load(connection)
                .await?;
            let unfinished: Vec<i64> = sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::state.eq_any([State::Ready.code(), State::Sending.code()]))
                .limit(1)
                .select(sms::id)
                .load(connection)
                .await?;
            if locked.is_empty() || !unfinished.is_empty() {
                return QueryResult::Ok(false);
            }
            delete(campaign_watch::table.find(campaign_id)).execute(connection).await?;
            outbox::insert(connection, events, now).await?;
            Ok(true)
        })
    }

    /// Stores what was found out about a watched campaign, with events. False if another process has changed it since
    /// it was read.
    #[boxed]
    pub async fn change_watch(
        &self,
        known: &WatchedCampaign,
        changed: &WatchedCampaign,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let locked: Vec<WatchedCampaign> = campaign_watch::table
                .find(known.campaign_id)
                .select(WatchedCampaign::as_select())
                .locked()
                .load(connection)
                .await?;
            if locked.first() != Some(known) {
                return QueryResult::Ok(false);
            }
            update(campaign_watch::table.find(known.campaign_id))
                .set((
                    campaign_watch::due_since.eq(changed.due_since),
                    campaign_watch::stuck_at.eq(changed.stuck_at),
                ))
                .execute(connection)
                .await?;
            outbox::insert(connection, events, now).await?;
            Ok(true)
        })
    }
}
