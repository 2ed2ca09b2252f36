//! Queues messages that were posted over HTTP: those of several requests in one transaction, with the keys that make a
//! repeated request harmless.

use std::collections::{BTreeMap, HashMap};

use diesel::delete;
use smsq_message::age::Age;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use super::enqueue::{enqueue, is_committed};
use super::imports::{ImportApproval, ImportBatch};
use crate::campaigns::approvals::{self, ApprovalGate};
use crate::campaigns::campaign;
use crate::connection::prelude::*;
use crate::connection::{Connection, DatabaseError, NewRows, QueryResult, ROWS, transaction};
use crate::error::{StoreError, StoreErrorKind};
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::intake_key;
use crate::{CHUNK, Store};

/// A key of a posted message. Another message with the same key in the same scope is not queued.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntakeKey {
    /// `campaign/ID` or `token/NAME`.
    pub scope: String,
    /// SHA-256 of the key, in hex.
    pub key: String,
}

/// Posted messages of one campaign and schedule.
#[derive(Clone)]
pub struct PostedBatch {
    /// Each row has a `line` of its own in the import.
    pub batch: ImportBatch,
    /// Of each row, in their order.
    pub keys: Vec<PostedKeys>,
}

/// What tells a posted message from another one.
#[derive(Clone, Debug, Default)]
pub struct PostedKeys {
    pub keys: Vec<IntakeKey>,
    /// A hash of what was posted, SHA-256 in hex.
    pub fingerprint: String,
}

/// What became of a posted message. Only one that is `Queued` was stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostResult {
    /// It is queued under this id.
    Queued(i64),
    /// It was posted before, under this id.
    Repeated(i64),
    /// The campaign has a message with its `dedupe_key`, which was not posted lately.
    Known,
    /// Its key belongs to a message that was posted with another content.
    Conflict,
    /// Its phone is on the suppression list.
    Suppressed,
    /// Its number does not exist, as a provider said.
    Dead,
    /// It would expire before it is queued.
    Expired,
    /// Its campaign is cancelled.
    Cancelled,
    /// Its campaign does not exist any more.
    NoCampaign,
}

/// A key with the message that it belongs to.
#[derive(Clone)]
struct KnownKey {
    fingerprint: String,
    sms_id: i64,
}

impl KnownKey {
    /// The result of a message with this key.
    fn result(&self, fingerprint: &str) -> PostResult {
        if self.fingerprint == fingerprint {
            PostResult::Repeated(self.sms_id)
        } else {
            PostResult::Conflict
        }
    }
}

impl Store {
    /// Queues posted messages in one transaction; returns what became of each, in their order. The keys are kept until
    /// `expires_at`. If the commit's answer was lost, finds out whether it is stored.
    #[boxed]
    pub async fn post(
        &self,
        batches: &[PostedBatch],
        expires_at: Timestamp,
    ) -> Result<Vec<Vec<PostResult>>, StoreError> {
        let mut decided: Option<Vec<Vec<PostResult>>> = None;
        let done = transaction!(self, |connection| post_once(
            connection,
            batches,
            expires_at,
            self.skip_dead,
            &mut decided
        ));
        match done {
            // Nothing is stored if nothing was decided.
            Err(error) if error.kind() == StoreErrorKind::Unavailable && decided.is_some() => {
                let is_stored = transaction!(self, |connection| is_stored(connection, batches))?;
                decided.filter(|_| is_stored).ok_or(error)
            }
            done => done,
        }
    }

    /// Deletes some of the keys that have expired; returns how many.
    #[boxed]
    pub async fn prune_intake_keys(&self, now: Timestamp) -> Result<u64, StoreError> {
        let expired: Vec<(String, String)> = self
            .read(
                intake_key::table
                    .filter(intake_key::expires_at.lt(now))
                    .order(intake_key::expires_at)
                    .limit(CHUNK)
                    .select((intake_key::scope, intake_key::request_key)),
            )
            .await?;
        let mut by_scope: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (scope, key) in expired {
            by_scope.entry(scope).or_default().push(key);
        }
        let deleted = transaction!(self, |connection| async {
            let mut deleted = 0;
            for (scope, keys) in &by_scope {
                deleted += delete(
                    intake_key::table
                        .filter(intake_key::scope.eq(scope))
                        .filter(intake_key::request_key.eq_any(keys))
                        .filter(intake_key::expires_at.lt(now)),
                )
                .execute(connection)
                .await?;
            }
            QueryResult::Ok(deleted)
        })?;
        Ok(deleted as u64)
    }
}

/// Whether the transaction with these batches is stored.
async fn is_stored(connection: &mut Connection, batches: &[PostedBatch]) -> QueryResult<bool> {
    for posted in batches {
        if is_committed(connection, &posted.batch).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn post_once(
    connection: &mut Connection,
    batches: &[PostedBatch],
    expires_at: Timestamp,
    skip_dead: Option<Age>,
    decided: &mut Option<Vec<Vec<PostResult>>>,
) -> QueryResult<Vec<Vec<PostResult>>> {
    if let Some(done) = decided
        && is_stored(connection, batches).await?
    {
        return Ok(done.clone());
    }
    let ids = batches.iter().map(|posted| posted.batch.campaign_id);
    let campaigns = campaign::lock_states(connection, &ids.collect()).await?;
    let keys = batches.iter().flat_map(|posted| &posted.keys);
    let mut known = known_keys(connection, keys).await?;
    let mut added: Vec<(IntakeKey, KnownKey)> = Vec::new();
    let mut all = Vec::with_capacity(batches.len());
    for posted in batches {
        let open = match campaigns.get(&posted.batch.campaign_id) {
            None => Err(PostResult::NoCampaign),
            Some((CampaignStatus::Cancelled, _)) => Err(PostResult::Cancelled),
            Some((_, gate)) => {
                let expires_at = posted.batch.expires_at;
                let is_expired = expires_at.is_some_and(|at| at <= posted.batch.now);
                if is_expired { Err(PostResult::Expired) } else { Ok(*gate) }
            }
        };
        let results = match open {
            Err(refused) => refuse_new(posted, &known, refused),
            Ok(gate) => {
                post_batch(connection, posted, gate, skip_dead, &mut known, &mut added).await?
            }
        };
        all.push(results);
    }
    add_keys(connection, added, expires_at).await?;
    Ok(decided.insert(all).clone())
}

/// The results of messages that cannot be queued now: those that were posted before are known all the same.
fn refuse_new(
    posted: &PostedBatch,
    known: &HashMap<IntakeKey, KnownKey>,
    refused: PostResult,
) -> Vec<PostResult> {
    posted
        .keys
        .iter()
        .map(|posted| {
            let known = posted.keys.iter().find_map(|key| known.get(key));
            known.map_or(refused, |known| known.result(&posted.fingerprint))
        })
        .collect()
}

/// The keys that are stored, locked until the transaction ends.
async fn known_keys<'k>(
    connection: &mut Connection,
    keys: impl Iterator<Item = &'k PostedKeys>,
) -> QueryResult<HashMap<IntakeKey, KnownKey>> {
    let mut by_scope: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for key in keys.flat_map(|posted| &posted.keys) {
        by_scope.entry(&key.scope).or_default().push(&key.key);
    }
    let mut known = HashMap::new();
    for (scope, mut keys) in by_scope {
        keys.sort_unstable();
        for keys in keys.chunks(ROWS) {
            let found: Vec<(String, String, i64)> = intake_key::table
                .filter(intake_key::scope.eq(scope))
                .filter(intake_key::request_key.eq_any(keys))
                .select((intake_key::request_key, intake_key::fingerprint, intake_key::sms_id))
                .locked()
                .load(connection)
                .await?;
            known.extend(found.into_iter().map(|(key, fingerprint, sms_id)| {
                let scope = scope.to_owned();
                let known = KnownKey { fingerprint, sms_id };
                (IntakeKey { scope, key }, known)
            }));
        }
    }
    Ok(known)
}

/// Queues the messages of one batch whose keys are new.
async fn post_batch(
    connection: &mut Connection,
    posted: &PostedBatch,
    gate: ApprovalGate,
    skip_dead: Option<Age>,
    known: &mut HashMap<IntakeKey, KnownKey>,
    added: &mut Vec<(IntakeKey, KnownKey)>,
) -> QueryResult<Vec<PostResult>> {
    let mut results: Vec<Option<PostResult>> = vec![None; posted.batch.rows.len()];
    // The first row of this batch with each key, for rows that repeat it.
    let mut first: HashMap<&IntakeKey, usize> = HashMap::new();
    let mut repeats: Vec<(usize, usize)> = Vec::new();
    let mut batch = ImportBatch { rows: Vec::new(), ..posted.batch.clone() };
    for (index, (row, one)) in posted.batch.rows.iter().zip(&posted.keys).enumerate() {
        if let Some(known) = one.keys.iter().find_map(|key| known.get(key)) {
            results[index] = Some(known.result(&one.fingerprint));
        } else if let Some(earlier) = one.keys.iter().find_map(|key| first.get(key)) {
            repeats.push((index, *earlier));
        } else {
            first.extend(one.keys.iter().map(|key| (key, index)));
            batch.rows.push(row.clone());
        }
    }
    batch.row_count = batch.rows.len() as u64;
    let mut ids = Vec::new();
    if !batch.rows.is_empty() {
        let held_in = batch.held_in(connection, gate).await?;
        let enqueued = enqueue(connection, &batch, held_in, skip_dead, Some(&mut ids)).await?;
        let lines = posted.batch.rows.iter().map(|row| row.line).enumerate();
        let lines: HashMap<u64, usize> = lines.map(|(index, line)| (line, index)).collect();
        for (line, id) in ids {
            let index = lines[&line];
            results[index] = Some(PostResult::Queued(id));
            let one = &posted.keys[index];
            for key in &one.keys {
                let value = KnownKey { fingerprint: one.fingerprint.clone(), sms_id: id };
                known.insert(key.clone(), value.clone());
                added.push((key.clone(), value));
            }
        }
        for line in enqueued.suppressed {
            results[lines[&line]] = Some(PostResult::Suppressed);
        }
        for (line, _) in enqueued.dead {
            results[lines[&line]] = Some(PostResult::Dead);
        }
    }
    // What is left has a `dedupe_key` that the campaign knows. Another server may have posted it meanwhile.
    let left: Vec<usize> = (0..results.len())
        .filter(|index| results[*index].is_none())
        .filter(|index| repeats.iter().all(|(repeat, _)| repeat != index))
        .collect();
    if !left.is_empty() {
        let keys = left.iter().map(|index| &posted.keys[*index]);
        known.extend(known_keys(connection, keys).await?);
        for index in left {
            let one = &posted.keys[index];
            let known = one.keys.iter().find_map(|key| known.get(key));
            results[index] =
                Some(known.map_or(PostResult::Known, |known| known.result(&one.fingerprint)));
        }
    }
    for (index, earlier) in repeats {
        let is_same = posted.keys[index].fingerprint == posted.keys[earlier].fingerprint;
        results[index] = match results[earlier] {
            _ if !is_same => Some(PostResult::Conflict),
            Some(PostResult::Queued(id)) => Some(PostResult::Repeated(id)),
            other => other,
        };
    }
    let decided = results.into_iter();
    let results: Vec<PostResult> =
        decided.map(|result| result.expect("each row was decided")).collect();
    if let ImportApproval::OfList(list) = &batch.approval
        && gate.has_waiting()
    {
        let repeated = results.iter().filter_map(|result| match result {
            PostResult::Repeated(id) => Some(*id),
            _ => None,
        });
        let repeated: Vec<i64> = repeated.collect();
        approvals::take_over(connection, batch.campaign_id, list, &repeated, batch.now).await?;
    }
    Ok(results)
}

/// Stores keys. If another process has added one meanwhile, the transaction is repeated, and finds it.
async fn add_keys(
    connection: &mut Connection,
    mut added: Vec<(IntakeKey, KnownKey)>,
    expires_at: Timestamp,
) -> QueryResult<()> {
    added.sort_by(|one, other| one.0.cmp(&other.0));
    for added in added.chunks(ROWS) {
        let rows: Vec<_> = added
            .iter()
            .map(|(key, known)| {
                (
                    intake_key::scope.eq(&key.scope),
                    intake_key::request_key.eq(&key.key),
                    intake_key::fingerprint.eq(&known.fingerprint),
                    intake_key::sms_id.eq(known.sms_id),
                    intake_key::expires_at.eq(expires_at),
                )
            })
            .collect();
        let inserted = NewRows::of(intake_key::table, &rows).insert_new(connection).await?;
        if inserted < rows.len() {
            return Err(DatabaseError::conflict("another process added one of the keys"));
        }
    }
    Ok(())
}
