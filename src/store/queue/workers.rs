//! Workers: their rows and heartbeats, and the messages of dead workers.

use std::collections::BTreeMap;
use std::time::Duration;

use diesel::{delete, update};
use smsq_lifecycle::{Settlement, Transition};
use smsq_limit::DeclaredLimits;
use smsq_message::event::Subscriptions;
use smsq_message::sms::{Class, Failure, State, Timestamp};
use smsq_process::boxed;

use super::commit_batch::Orphans;
use super::results::settle::{self, ClaimedRows};
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, querying, transaction};
use crate::error::StoreError;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::schema::{reclaimed_worker, sms, worker};
use crate::{WorkerStore, positive};

/// The provider in the settlements of reclaimed messages: only their worker knew it.
const UNKNOWN_PROVIDER: &str = "";
/// For how long a dead worker is remembered, which may only be frozen.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3_600);

/// A process that sends: its row of table `worker`.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = worker)]
pub struct Worker {
    pub id: i64,
    pub host: String,
    /// Identifies a start of the host.
    pub boot_id: String,
    pub pid_namespace: String,
    pub pid: i64,
    /// When the process started, in ticks of the host: tells processes with the same pid apart.
    pub process_started: i64,
    pub concurrency: i32,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    /// The worker is dead when its heartbeat is older than this, in milliseconds.
    pub lease_ms: i64,
    /// Empty where it is not known.
    pub machine_id: String,
    /// Identifies this registration: an id may be used again after the database was restored.
    pub token: String,
    /// How many group commits are stored.
    pub commits: i64,
}

/// A worker to register.
#[derive(Clone, Debug, PartialEq, Eq, Insertable)]
#[diesel(table_name = worker)]
pub struct NewWorker {
    pub host: String,
    pub boot_id: String,
    pub pid_namespace: String,
    pub pid: i64,
    pub process_started: i64,
    pub concurrency: i32,
    /// The worker is dead when its heartbeat is older than this, in milliseconds.
    pub lease_ms: i64,
    pub machine_id: String,
    /// Random.
    pub token: String,
}

impl WorkerStore<'_> {
    /// Registers a worker; its id is never used again.
    #[boxed]
    pub async fn register(&self, new: &NewWorker, now: Timestamp) -> Result<i64, StoreError> {
        let rows = [(new.clone(), worker::started_at.eq(now), worker::heartbeat_at.eq(now))];
        transaction!(self, |connection| async {
            NewRows::of(worker::table, &rows).insert(connection).await?;
            connection.last_id().await
        })
    }

    /// Renews a worker's lease; false if it is not registered any more.
    #[boxed]
    pub async fn heartbeat(
        &self,
        worker_id: i64,
        token: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = self
            .write(
                update(worker::table.find(worker_id))
                    .filter(worker::token.eq(token))
                    .set(worker::heartbeat_at.eq(now)),
            )
            .await?;
        Ok(rows == 1)
    }

    /// Deletes a worker that has settled all its messages.
    #[boxed]
    pub async fn remove(&self, worker_id: i64, token: &str) -> Result<(), StoreError> {
        self.write(delete(worker::table.find(worker_id)).filter(worker::token.eq(token))).await?;
        Ok(())
    }

    /// All registered workers, also dead ones.
    #[boxed]
    pub async fn all(&self) -> Result<Vec<Worker>, StoreError> {
        self.read(worker::table.order(worker::id).select(Worker::as_select())).await
    }

    /// Declares the routes of a worker by their names. Returns the first one that a living worker declares otherwise, and
    /// that worker's id.
    #[boxed]
    pub async fn declare_routes(
        &self,
        worker_id: i64,
        routes: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<Option<(String, i64)>, StoreError> {
        type Row = (i64, String, Timestamp, i64);
        let read = async || -> Result<Option<DeclaredLimits>, StoreError> {
            let rows: Vec<Row> = self
                .read(worker::table.select((
                    worker::id,
                    worker::limits,
                    worker::heartbeat_at,
                    worker::lease_ms,
                )))
                .await?;
            let is_alive = |(id, _, heartbeat_at, lease_ms): &Row| {
                let lease = Duration::from_millis(positive(*lease_ms));
                *id == worker_id || now.since(*heartbeat_at) <= lease
            };
            let living = rows.into_iter().filter(is_alive);
            let limits = living.map(|(id, limits, ..)| (id, limits));
            Ok(DeclaredLimits::of(limits.collect(), worker_id))
        };
        let own = read().await?;
        if let Some(limits) = own.and_then(|mut own| own.declare_routes(routes)) {
            self.write(update(worker::table.find(worker_id)).set(worker::limits.eq(&limits)))
                .await?;
        }
        // Of two that start at the same time, one at least sees the other.
        Ok(read().await?.and_then(|all| all.other_route(routes)))
    }

    /// The messages that a worker is sending, by the claims that are committed.
    #[boxed]
    pub async fn sending(&self, worker_id: i64) -> Result<Vec<SendingMessage>, StoreError> {
        let mut rows = querying!(self, Read, |connection| sending(connection))?;
        rows.retain(|row| row.worker_id == Some(worker_id));
        Ok(rows)
    }

    /// Makes the messages that a dead worker was sending unknown, and deletes the worker. Does nothing if its heartbeat
    /// has changed, because then it is alive. Returns the number of messages.
    #[boxed]
    pub async fn reclaim(
        &self,
        dead: &Worker,
        reason: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let subscriptions = &self.subscriptions;
        transaction!(self, |connection| async {
            let deleted = delete(worker::table.find(dead.id))
                .filter(worker::heartbeat_at.eq(dead.heartbeat_at))
                .filter(worker::token.eq(&dead.token))
                .execute(connection)
                .await?;
            if deleted == 0 {
                return Ok(0);
            }
            record_reclaimed(connection, &dead.token, now).await?;
            let mut rows = sending(connection).await?;
            rows.retain(|row| row.worker_id == Some(dead.id));
            reclaim(connection, &rows, reason, subscriptions, now).await
        })
    }

    /// Makes messages unknown that are sending without a registered worker; returns their number.
    #[boxed]
    pub async fn reclaim_without_worker(&self, now: Timestamp) -> Result<u64, StoreError> {
        let subscriptions = &self.subscriptions;
        transaction!(self, |connection| async {
            // Messages first: the worker of each was registered when it claimed the message.
            let mut rows = sending(connection).await?;
            let workers: Vec<i64> = worker::table.select(worker::id).load(connection).await?;
            rows.retain(|row| row.worker_id.is_none_or(|id| !workers.contains(&id)));
            reclaim(connection, &rows, "its worker is gone", subscriptions, now).await
        })
    }
}

/// Records that a worker was declared dead, for the case that it still runs.
async fn record_reclaimed(
    connection: &mut Connection,
    token: &str,
    now: Timestamp,
) -> QueryResult<()> {
    delete(
        reclaimed_worker::table.filter(reclaimed_worker::reclaimed_at.lt(now.minus(REMEMBERED))),
    )
    .execute(connection)
    .await?;
    let rows = [(reclaimed_worker::token.eq(token), reclaimed_worker::reclaimed_at.eq(now))];
    NewRows::of(reclaimed_worker::table, &rows).insert_new(connection).await?;
    Ok(())
}

/// A message that is being sent.
#[derive(Clone, Debug, PartialEq, Eq, Queryable)]
pub struct SendingMessage {
    pub id: i64,
    pub claim: i64,
    pub worker_id: Option<i64>,
    pub due_at: Timestamp,
}

/// All messages that are being sent.
async fn sending(connection: &mut Connection) -> QueryResult<Vec<SendingMessage>> {
    sms::table
        .filter(CampaignFilter::All.on(sms::campaign_id))
        .filter(sms::state.eq(State::Sending.code()))
        .select((sms::id, sms::claim, sms::worker_id, sms::due_at))
        .load(connection)
        .await
}

/// What puts the orphans of a worker back into the queue, without an attempt.
pub(super) async fn orphans(
    connection: &mut Connection,
    worker_id: i64,
    orphans: &Orphans,
) -> QueryResult<Vec<Settlement>> {
    let mut released = Vec::new();
    for campaigns in orphans.campaigns.chunks(ROWS) {
        let own: Vec<(i64, i64, i64)> = sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .filter(sms::state.eq(State::Sending.code()))
            .filter(sms::worker_id.eq(worker_id))
            .filter(sms::claimed_at.lt(orphans.claimed_before))
            .select((sms::id, sms::claim, sms::due_at))
            .load(connection)
            .await?;
        let unknown =
            own.into_iter().filter(|(id, claim, _)| !orphans.known.contains(&(*id, *claim)));
        released.extend(unknown.map(|(id, claim, due_at)| Settlement {
            id,
            claim,
            provider: UNKNOWN_PROVIDER.to_owned(),
            transition: Transition::wait_until(Timestamp::from_millis(due_at)),
        }));
    }
    Ok(released)
}

/// Makes messages of dead workers unknown; returns their number.
async fn reclaim(
    connection: &mut Connection,
    rows: &[SendingMessage],
    reason: &str,
    subscriptions: &Subscriptions,
    now: Timestamp,
) -> QueryResult<u64> {
    let unknown = rows.iter().map(|row| Settlement {
        id: row.id,
        claim: row.claim,
        provider: UNKNOWN_PROVIDER.to_owned(),
        transition: Transition::Unknown(Failure::new(Class::Unknown, reason)),
    });
    let unknown: Vec<Settlement> = unknown.collect();
    let (_, effects) =
        settle::settle_all(connection, &unknown, ClaimedRows::default(), now).await?;
    effects.store(connection, subscriptions, now).await?;
    Ok(unknown.len() as u64)
}
