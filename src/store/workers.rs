//! Workers: their rows and heartbeats, and the messages of dead workers.

use std::collections::HashSet;

use diesel::{QueryResult, delete, update};

use super::connection::prelude::*;
use super::connection::{
    Connection, ROWS, insert_all, querying, reading, transaction, with_conn, writing,
};
use super::schema::{campaign, sms, sms_failed, sms_sent, worker};
use super::{CampaignFilter, Orphans, Store, StoreError, claim, settle};
use crate::queue::{Settlement, Transition};
use crate::sms::{Class, Failure, State, Timestamp};

/// The provider in the settlements of reclaimed messages: only their worker knew it.
const UNKNOWN_PROVIDER: &str = "";

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
}

/// Whether a campaign has messages in these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    pub ready: bool,
    pub sending: bool,
}

impl Store {
    /// Registers a worker; its id is never used again.
    pub async fn register_worker(
        &self,
        new: &NewWorker,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let rows = [(
            new.clone(),
            worker::started_at.eq(now),
            worker::heartbeat_at.eq(now),
        )];
        transaction!(self, |connection| async {
            insert_all!(connection, worker::table, &rows)?;
            connection.last_id().await
        })
    }

    /// Renews a worker's lease; false if another worker has reclaimed its messages.
    pub async fn heartbeat(&self, worker_id: i64, now: Timestamp) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| update(worker::table.find(worker_id))
            .set(worker::heartbeat_at.eq(now))
            .execute(conn))?;
        Ok(rows == 1)
    }

    /// Deletes a worker that has settled all its messages.
    pub async fn remove_worker(&self, worker_id: i64) -> Result<(), StoreError> {
        writing!(self, |conn| delete(worker::table.find(worker_id))
            .execute(conn))?;
        Ok(())
    }

    /// All registered workers, also dead ones.
    pub async fn worker_rows(&self) -> Result<Vec<Worker>, StoreError> {
        reading!(self, |conn| worker::table
            .order(worker::id)
            .select(Worker::as_select())
            .load(conn))
    }

    /// Makes the messages that a dead worker was sending unknown, and deletes the worker. Does nothing if its heartbeat
    /// has changed, because then it is alive. Returns the number of messages.
    pub async fn reclaim_worker(
        &self,
        dead: &Worker,
        reason: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        transaction!(self, |connection| async {
            let deleted = with_conn!(connection, |conn| delete(worker::table.find(dead.id))
                .filter(worker::heartbeat_at.eq(dead.heartbeat_at))
                .execute(conn))?;
            if deleted == 0 {
                return Ok(0);
            }
            let mut rows = sending(connection).await?;
            rows.retain(|row| row.worker_id == Some(dead.id));
            mark_unknown(connection, &rows, reason, now).await
        })
    }

    /// Makes messages unknown that are sending without a registered worker; returns their number.
    pub async fn reclaim_without_worker(&self, now: Timestamp) -> Result<u64, StoreError> {
        transaction!(self, |connection| async {
            // Messages first: the worker of each was registered when it claimed the message.
            let mut rows = sending(connection).await?;
            let workers: Vec<i64> = with_conn!(connection, |conn| worker::table
                .select(worker::id)
                .load(conn))?;
            rows.retain(|row| row.worker_id.is_none_or(|id| !workers.contains(&id)));
            mark_unknown(connection, &rows, "its worker is gone", now).await
        })
    }

    /// When the tables were created, in milliseconds since the Unix epoch. Identifies a database.
    pub async fn created_at(&self) -> Result<i64, StoreError> {
        let created_at: Option<i64> = reading!(self, |conn| optional campaign::table
            .order(campaign::id)
            .select(campaign::created_at)
            .first(conn))?;
        Ok(created_at.unwrap_or_default())
    }

    /// Those of the messages that were created after an instant.
    pub async fn created_after(
        &self,
        ids: &[i64],
        at: Timestamp,
    ) -> Result<HashSet<i64>, StoreError> {
        let mut later: HashSet<i64> = HashSet::new();
        for ids in ids.chunks(ROWS) {
            macro_rules! add_from {
                ($table:ident) => {
                    later.extend(reading!(self, |conn| $table::table
                        .filter($table::id.eq_any(ids))
                        .filter($table::created_at.gt(at))
                        .select($table::id)
                        .load::<i64>(conn))?);
                };
            }
            add_from!(sms);
            add_from!(sms_sent);
            add_from!(sms_failed);
        }
        Ok(later)
    }

    /// When the next message of the campaign becomes due; `None` if none is ready.
    pub async fn next_due(&self, campaign_id: i64) -> Result<Option<Timestamp>, StoreError> {
        querying!(self, Read, |connection| claim::next_due(
            connection,
            campaign_id
        ))
    }

    /// Whether any ready message of the campaign expires after an instant or never.
    pub async fn has_unexpired_after(
        &self,
        campaign_id: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let later = sms::expires_at.gt(at).assume_not_null();
        let first: Vec<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::expires_at.is_null().or(later))
            .limit(1)
            .select(sms::id)
            .load(conn))?;
        Ok(!first.is_empty())
    }

    /// Whether a campaign has messages that are ready or being sent.
    pub async fn unfinished(&self, campaign_id: i64) -> Result<Unfinished, StoreError> {
        // In one statement, because a message may change its state meanwhile. Without `EXISTS`, which is false on
        // MariaDB if the query is killed.
        let states = [State::Ready.code(), State::Sending.code()];
        let first: Vec<i32> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq_any(states))
            .order((sms::state, sms::due_at))
            .limit(1)
            .select(sms::state)
            .load(conn))?;
        if first != [State::Ready.code()] {
            return Ok(Unfinished {
                ready: false,
                sending: !first.is_empty(),
            });
        }
        let last: Vec<i32> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Sending.code()))
            .limit(1)
            .select(sms::state)
            .load(conn))?;
        Ok(Unfinished {
            ready: true,
            sending: !last.is_empty(),
        })
    }
}

/// A message that is being sent.
#[derive(Queryable)]
struct Sending {
    id: i64,
    claim: i64,
    worker_id: Option<i64>,
}

/// All messages that are being sent.
async fn sending(connection: &mut Connection) -> QueryResult<Vec<Sending>> {
    with_conn!(connection, |conn| sms::table
        .filter(CampaignFilter::All.on(sms::campaign_id))
        .filter(sms::state.eq(State::Sending.code()))
        .select((sms::id, sms::claim, sms::worker_id))
        .load(conn))
}

/// What puts the orphans of a worker back into the queue, without an attempt.
pub(super) async fn orphans(
    connection: &mut Connection,
    worker_id: i64,
    orphans: &Orphans,
) -> QueryResult<Vec<Settlement>> {
    let mut released = Vec::new();
    for campaigns in orphans.campaigns.chunks(ROWS) {
        let own: Vec<(i64, i64, i64)> = with_conn!(connection, |conn| sms::table
            .filter(sms::campaign_id.eq_any(campaigns))
            .filter(sms::state.eq(State::Sending.code()))
            .filter(sms::worker_id.eq(worker_id))
            .filter(sms::claimed_at.lt(orphans.claimed_before))
            .select((sms::id, sms::claim, sms::due_at))
            .load(conn))?;
        let unknown = own
            .into_iter()
            .filter(|(id, _, _)| !orphans.known.contains(id));
        released.extend(unknown.map(|(id, claim, due_at)| Settlement {
            id,
            claim,
            provider: UNKNOWN_PROVIDER.to_owned(),
            transition: Transition::wait_until(Timestamp::from_millis(due_at)),
        }));
    }
    Ok(released)
}

async fn mark_unknown(
    connection: &mut Connection,
    rows: &[Sending],
    reason: &str,
    now: Timestamp,
) -> QueryResult<u64> {
    let unknown = rows.iter().map(|row| Settlement {
        id: row.id,
        claim: row.claim,
        provider: UNKNOWN_PROVIDER.to_owned(),
        transition: Transition::Unknown(Failure::new(Class::Unknown, reason)),
    });
    let unknown: Vec<Settlement> = unknown.collect();
    settle::settle_all(connection, &unknown, now).await?;
    Ok(unknown.len() as u64)
}
