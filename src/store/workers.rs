//! Who sends: every worker's row, its heartbeat, and what becomes of a dead one's messages.

use std::collections::HashSet;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::schema::{campaign, sms, sms_failed, sms_sent, worker};
use super::{Store, StoreError};
use crate::sms::{State, Timestamp};

/// So many numbers fit into one statement of every database.
const IDS: usize = 1_000;

/// A process that sends, as its row in table `worker` has it.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = worker)]
pub struct Worker {
    pub id: i64,
    pub host: String,
    /// Which start of the host's system.
    pub boot_id: String,
    pub pid_namespace: String,
    pub pid: i64,
    /// When the process started, in the host's own ticks: a pid may come again, with it this does not.
    pub process_started: i64,
    pub concurrency: i32,
    /// In milliseconds since the Unix epoch.
    pub started_at: i64,
    /// In milliseconds since the Unix epoch.
    pub heartbeat_at: i64,
    /// The worker is dead when its heartbeat is older than this, in milliseconds.
    pub lease_ms: i64,
}

/// What a new worker says of itself.
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

/// Whether there is still something to wait for.
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
        match self {
            Self::Sqlite(sqlite) => sqlite.register_worker(new.clone(), now).await,
            Self::Server(server) => server.register_worker(new, now).await,
        }
    }

    /// Renews a worker's lease; false when the worker has been declared dead.
    pub async fn heartbeat(&self, worker_id: i64, now: Timestamp) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| diesel::update(worker::table.find(worker_id))
            .set(worker::heartbeat_at.eq(now.as_millis()))
            .execute(conn))?;
        Ok(rows == 1)
    }

    /// Takes a worker that has settled everything off the list.
    pub async fn remove_worker(&self, worker_id: i64) -> Result<(), StoreError> {
        writing!(self, |conn| diesel::delete(worker::table.find(worker_id))
            .execute(conn))?;
        Ok(())
    }

    /// All workers on the list, living or not.
    pub async fn worker_rows(&self) -> Result<Vec<Worker>, StoreError> {
        reading!(self, |conn| worker::table
            .order(worker::id)
            .select(Worker::as_select())
            .load(conn))
    }

    /// Parks what a dead worker was sending as unknown, in doubt, and takes it off the list. Does
    /// nothing when its heartbeat is no longer `last_heartbeat`: it lives. Returns the rows parked.
    pub async fn park_dead(
        &self,
        dead: &Worker,
        reason: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.park_dead(dead.clone(), reason.to_owned(), now).await,
            Self::Server(server) => server.park_dead(dead.clone(), reason.to_owned(), now).await,
        }
    }

    /// Workers that rows in state *sending* name, but that are on no list: parks those rows too.
    pub async fn park_nobodys(&self, now: Timestamp) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.park_nobodys(now).await,
            Self::Server(server) => server.park_nobodys(now).await,
        }
    }

    /// Releases rows that bear this worker's id, are not among `known` and were claimed before
    /// `claimed_before`: the answer of the claim's commit was lost, so nothing was started. They go
    /// where any message goes whose request was never started. Returns how many.
    pub async fn release_orphans(
        &self,
        worker_id: i64,
        known: Vec<i64>,
        claimed_before: Timestamp,
        campaigns: &[i64],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let known: HashSet<i64> = known.into_iter().collect();
        let mut orphans: Vec<(i64, i64, i64)> = Vec::new();
        for campaigns in campaigns.chunks(IDS) {
            let own: Vec<(i64, i64, i64)> = reading!(self, |conn| sms::table
                .filter(sms::campaign_id.eq_any(campaigns))
                .filter(sms::state.eq(State::Sending.code()))
                .filter(sms::worker_id.eq(worker_id))
                .filter(sms::claimed_at.lt(claimed_before.as_millis()))
                .select((sms::id, sms::claim, sms::due_at))
                .load(conn))?;
            let unknown = own.into_iter().filter(|(id, _, _)| !known.contains(id));
            orphans.extend(unknown);
        }
        if orphans.is_empty() {
            return Ok(0);
        }
        match self {
            Self::Sqlite(sqlite) => sqlite.release(orphans, now).await,
            Self::Server(server) => server.release(orphans, now).await,
        }
    }

    /// When the tables were made, in milliseconds since the Unix epoch: no two databases are of the same moment.
    pub async fn made_at(&self) -> Result<i64, StoreError> {
        let made_at: Vec<i64> = reading!(self, |conn| campaign::table
            .order(campaign::id)
            .limit(1)
            .select(campaign::created_at)
            .load(conn))?;
        Ok(made_at.into_iter().next().unwrap_or_default())
    }

    /// Which of these messages were queued after a moment.
    pub async fn made_after(&self, ids: &[i64], at: Timestamp) -> Result<HashSet<i64>, StoreError> {
        let mut later = HashSet::new();
        for ids in ids.chunks(IDS) {
            let queued: Vec<i64> = reading!(self, |conn| sms::table
                .filter(sms::id.eq_any(ids))
                .filter(sms::created_at.gt(at.as_millis()))
                .select(sms::id)
                .load(conn))?;
            let sent: Vec<i64> = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::id.eq_any(ids))
                .filter(sms_sent::created_at.gt(at.as_millis()))
                .select(sms_sent::id)
                .load(conn))?;
            let failed: Vec<i64> = reading!(self, |conn| sms_failed::table
                .filter(sms_failed::id.eq_any(ids))
                .filter(sms_failed::created_at.gt(at.as_millis()))
                .select(sms_failed::id)
                .load(conn))?;
            later.extend(queued.into_iter().chain(sent).chain(failed));
        }
        Ok(later)
    }

    /// When the campaign's next message becomes due; `None` when none is ready.
    pub async fn next_due(&self, campaign_id: i64) -> Result<Option<Timestamp>, StoreError> {
        let due: Option<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .select(diesel::dsl::min(sms::due_at))
            .first(conn))?;
        Ok(due.map(Timestamp::from_millis))
    }

    /// Whether any queued message of the campaign is worth sending after a moment.
    pub async fn outlives(&self, campaign_id: i64, at: Timestamp) -> Result<bool, StoreError> {
        let later = sms::expires_at.gt(at.as_millis()).assume_not_null();
        let first: Vec<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::expires_at.is_null().or(later))
            .limit(1)
            .select(sms::id)
            .load(conn))?;
        Ok(!first.is_empty())
    }

    /// Whether a campaign still has messages that may become due, or that anybody is sending.
    pub async fn unfinished(&self, campaign_id: i64) -> Result<Unfinished, StoreError> {
        // In one statement: a message that is claimed or put back meanwhile is in one of the two. No `EXISTS`:
        // MariaDB may take one that is killed for false.
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
