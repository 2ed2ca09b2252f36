//! Queues the rows of an import: reads existing rows, decides what to do with each new row, and writes all of them in a
//! few statements of one transaction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use diesel::update;
use smsq_lifecycle::dedupe::{Decision, ExistingRows, decide};
use smsq_lifecycle::schedule;
use smsq_message::age::Age;
use smsq_message::sms::{NewSms, Timestamp};
use smsq_process::boxed;

use super::dedupe::read_existing;
use super::imports::ImportBatch;
use crate::campaigns::approvals;
use crate::connection::prelude::*;
use crate::connection::{
    Connection, DatabaseError, NewRows, QueryResult, ROWS, delete_all, transaction,
};
use crate::error::{StoreError, StoreErrorKind};
use crate::queue::results::{attempts, settle, transitions};
use crate::recipients::dead;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::{import, sms, sms_failed, sms_sent};
use crate::{ImportStore, signed};

/// The most bytes of texts in one statement: less than the smallest common `max_allowed_packet`, 1 MiB.
const BYTES: usize = 512 * 1024;
/// How long an import waits for a server that is unavailable.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The result of a batch, by the lines of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    pub accepted: u64,
    pub duplicates: Vec<u64>,
    pub suppressed: Vec<u64>,
    /// Rows whose number does not exist, and the reasons.
    pub dead: Vec<(u64, String)>,
    /// Rows that name a failed message, or one that did not arrive, and are unchanged.
    pub unchanged: Vec<u64>,
    /// How many of the unchanged rows name a message that was sent and did not arrive.
    pub unchanged_sent: u64,
}

impl ImportStore<'_> {
    /// Queues the new rows of a batch; an error if its import has ended. Waits for a server that is unavailable.
    /// After a commit without an answer, checks whether the batch is stored before it is queued again.
    #[boxed]
    pub async fn enqueue(&self, batch: &ImportBatch) -> Result<Enqueued, StoreError> {
        let mut decided = None;
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            let done = transaction!(self, |connection| enqueue_once(
                connection,
                batch,
                self.skip_dead,
                &mut decided
            ));
            match done {
                Err(error) if self.is_unavailable(&error) && began.elapsed() < PATIENCE => {
                    tracing::warn!(%error, "the database is unavailable; the import waits for it");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                done => return done?.ok_or_else(|| self.cancelled()),
            }
        }
    }

    fn cancelled(self) -> StoreError {
        let reason = "the campaign was cancelled: it takes no messages";
        StoreError::new(self.location(), StoreErrorKind::Cancelled, reason)
    }

    /// Whether a server is unavailable or a replica, which may change.
    fn is_unavailable(self, error: &StoreError) -> bool {
        self.file().is_none()
            && matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::Replica)
    }
}

/// Queues a batch, unless an attempt before this one is stored, whose result is `decided`. `None`: the campaign is
/// cancelled, and stays empty.
async fn enqueue_once(
    connection: &mut Connection,
    batch: &ImportBatch,
    skip_dead: Option<Age>,
    decided: &mut Option<Enqueued>,
) -> QueryResult<Option<Enqueued>> {
    if let Some(done) = decided
        && is_committed(connection, batch).await?
    {
        return Ok(Some(done.clone()));
    }
    let is_cancelled = |state| state == CampaignStatus::Cancelled;
    let campaign = [(0, batch.campaign_id)];
    if !settle::lock_campaigns(connection, &campaign, is_cancelled).await?.is_empty() {
        return Ok(None);
    }
    let gate = approvals::gate(connection, batch.campaign_id).await?;
    let held_in = batch.held_in(connection, gate).await?;
    let done = enqueue(connection, batch, held_in, skip_dead, None).await?;
    Ok(Some(decided.insert(done).clone()))
}

/// Whether the batch is stored, after the answer to its commit was lost.
pub(super) async fn is_committed(
    connection: &mut Connection,
    batch: &ImportBatch,
) -> QueryResult<bool> {
    let last_line: Vec<i64> = import::table
        .find(batch.import_id)
        .select(import::last_line)
        .locked()
        .load(connection)
        .await?;
    Ok(last_line == [signed(batch.last_line)])
}

/// Queues a batch, whose messages wait for approval in the lane `held_in`, if any. Adds the line and the id of each accepted row to `ids`, which costs another statement on MySQL.
pub(super) async fn enqueue(
    connection: &mut Connection,
    batch: &ImportBatch,
    held_in: Option<i32>,
    skip_dead: Option<Age>,
    mut ids: Option<&mut Vec<(u64, i64)>>,
) -> QueryResult<Enqueued> {
    let rows: Vec<&NewSms> = batch.rows.iter().collect();
    let dead_since = dead::since(connection, skip_dead, batch.now).await?;
    let existing = read_existing(connection, batch.campaign_id, &rows, dead_since, true).await?;
    let mut done = Enqueued::default();
    let mut accepted: Vec<&NewSms> = Vec::new();
    let mut keys: Vec<String> = Vec::new();
    let mut replaced: Vec<i64> = Vec::new();
    let decisions = decide(batch.campaign_id, &rows, &existing);
    for (row, decision) in rows.into_iter().zip(decisions) {
        match decision {
            Decision::New { with_key, replaces } => {
                accepted.push(row);
                if with_key {
                    keys.push(row.dedupe_key.clone());
                }
                replaced.extend(replaces);
            }
            Decision::Duplicate => done.duplicates.push(row.line),
            Decision::Suppressed => done.suppressed.push(row.line),
            Decision::Dead(reason) => done.dead.push((row.line, reason)),
            Decision::Unchanged { was_sent } => {
                done.unchanged.push(row.line);
                done.unchanged_sent += u64::from(was_sent);
            }
        }
    }
    done.accepted = accepted.len() as u64;
    add_keys(connection, batch.campaign_id, keys).await?;
    replace(connection, &replaced, &existing, batch.now).await?;
    for rows in statements(&accepted) {
        insert(connection, batch, held_in, rows, ids.as_deref_mut()).await?;
    }
    count(connection, batch, &done).await?;
    if let Some(lane) = held_in {
        approvals::count_added(connection, lane, done.accepted).await?;
    }
    Ok(done)
}

/// Adds keys that the campaign did not have. If another import has added one meanwhile, the transaction is repeated.
async fn add_keys(
    connection: &mut Connection,
    campaign_id: i64,
    mut keys: Vec<String>,
) -> QueryResult<()> {
    // Keys in random order are slow on SQLite and deadlock on servers.
    keys.sort_unstable();
    for keys in keys.chunks(ROWS) {
        if transitions::add_keys(connection, campaign_id, keys).await? < keys.len() {
            return Err(DatabaseError::conflict("another import added one of the keys"));
        }
    }
    Ok(())
}

/// Deletes the failed messages that rows of the batch replace, and marks the undelivered ones, which stay sent.
async fn replace(
    connection: &mut Connection,
    replaced: &[i64],
    existing: &ExistingRows,
    now: Timestamp,
) -> QueryResult<()> {
    let is_undelivered =
        |id: &i64| existing.origins.get(id).is_some_and(|origin| origin.is_undelivered);
    let (undelivered, replaced): (Vec<i64>, Vec<i64>) =
        replaced.iter().copied().partition(is_undelivered);
    for ids in undelivered.chunks(ROWS) {
        update(sms_sent::table.filter(sms_sent::id.eq_any(ids)))
            .set(sms_sent::resent_at.eq(now))
            .execute(connection)
            .await?;
    }
    let mut by_import: BTreeMap<i64, i64> = BTreeMap::new();
    let origins = replaced.iter().filter_map(|id| existing.origins.get(id));
    for import_id in origins.filter_map(|origin| origin.import_id) {
        *by_import.entry(import_id).or_default() += 1;
    }
    for ids in replaced.chunks(ROWS) {
        attempts::delete_of(connection, ids).await?;
        delete_all(connection, ids, |ids| {
            diesel::delete(sms_failed::table.filter(sms_failed::id.eq_any(ids)))
        })
        .await?;
    }
    for (import_id, count) in by_import {
        update(import::table.find(import_id))
            .set(import::replaced.eq(import::replaced + count))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Divides rows into statements of at most [`ROWS`] rows and [`BYTES`] bytes.
fn statements<'a, 'b>(mut rows: &'a [&'b NewSms]) -> Vec<&'a [&'b NewSms]> {
    let mut statements = Vec::new();
    while !rows.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&&NewSms| {
            bytes += row.phone.len() + row.content.len() + row.params.len() + row.dedupe_key.len();
            bytes <= BYTES
        };
        let count = rows.iter().take(ROWS).take_while(fits).count().max(1);
        let (statement, rest) = rows.split_at(count);
        statements.push(statement);
        rows = rest;
    }
    statements
}

async fn insert(
    connection: &mut Connection,
    batch: &ImportBatch,
    held_in: Option<i32>,
    rows: &[&NewSms],
    ids: Option<&mut Vec<(u64, i64)>>,
) -> QueryResult<()> {
    let lines = rows.iter().map(|row| row.line);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                sms::campaign_id.eq(batch.campaign_id),
                sms::import_id.eq(batch.import_id),
                sms::phone.eq(&row.phone),
                sms::content.eq(&row.content),
                sms::params.eq(&row.params),
                sms::segments.eq(row.segments),
                sms::lane.eq(held_in.unwrap_or_else(|| batch.lane_of(&row.phone))),
                sms::due_at.eq(schedule::due_at(row, batch.window.as_ref(), batch.due_at)),
                sms::expires_at.eq(batch.expires_at),
                sms::dedupe_key.eq(&row.dedupe_key),
                sms::created_at.eq(batch.now),
            )
        })
        .collect();
    match ids {
        None => {
            NewRows::of(sms::table, &rows).insert(connection).await?;
        }
        Some(ids) => {
            ids.extend(
                lines.zip(NewRows::of(sms::table, &rows).insert_with_ids(connection).await?),
            );
        }
    }
    Ok(())
}

/// Adds the counts of a batch to its import.
async fn count(
    connection: &mut Connection,
    batch: &ImportBatch,
    done: &Enqueued,
) -> QueryResult<()> {
    let known = done.duplicates.len() + done.unchanged.len();
    let rejected = batch.rejected + done.dead.len() as u64;
    let counted = update(import::table.find(batch.import_id))
        .filter(import::finished_at.is_null())
        .set((
            import::last_line.eq(signed(batch.last_line)),
            import::row_count.eq(import::row_count + signed(batch.row_count)),
            import::accepted.eq(import::accepted + signed(done.accepted)),
            import::duplicates.eq(import::duplicates + signed(known as u64)),
            import::suppressed.eq(import::suppressed + signed(done.suppressed.len() as u64)),
            import::rejected.eq(import::rejected + signed(rejected)),
        ))
        .execute(connection)
        .await?;
    if counted == 0 {
        return Err(DatabaseError::NotFound);
    }
    Ok(())
}
