//! Queues messages that were posted over HTTP: those of several requests in one transaction, with the keys that make a
//! repeated request harmless.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::{QueryResult, delete};

use super::connection::prelude::*;
use super::connection::{
    Connection, ROWS, conflict, insert_new, load_locked, transaction, with_conn,
};
use super::enqueue::{enqueue, is_committed};
use super::imports::ImportBatch;
use super::schema::{import, intake_key, sms, sms_failed, sms_sent};
use super::{CHUNK, CampaignStatus, Store, StoreError, StoreErrorKind, campaigns, positive};
use crate::queue::transition::accepted_claims;
use crate::sms::{State, Timestamp};
use crate::store::column_types::LossyText;
use crate::store::connection::reading;

/// The name of the imports that count posted messages. They have no end.
pub const POSTED: &str = "HTTP";
/// The first character of a fingerprint. Those of an older smsq, which are hex, were made of the bytes of the request.
pub const FINGERPRINT: char = 'v';

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
    /// A hash of what was posted, 64 characters that begin with [`FINGERPRINT`].
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
    /// The result of a message with this key. A fingerprint of an older smsq cannot be compared: the key decides.
    fn result(&self, fingerprint: &str) -> PostResult {
        let is_same = self.fingerprint == fingerprint || !self.fingerprint.starts_with(FINGERPRINT);
        if is_same {
            PostResult::Repeated(self.sms_id)
        } else {
            PostResult::Conflict
        }
    }
}

/// A message with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSms {
    pub id: i64,
    pub campaign_id: i64,
    pub import_id: Option<i64>,
    pub phone: String,
    /// The text; `None`: it is not kept.
    pub content: Option<String>,
    /// `queued`, `sending`, `unknown`, `sent`, `failed` or `cancelled`.
    pub state: &'static str,
    pub segments: Option<i32>,
    pub attempts: i32,
    pub reference: Option<String>,
    pub provider: Option<String>,
    pub message_id: Option<String>,
    /// The numbers of the claims that were accepted; empty if none is known.
    pub accepted_claims: BTreeSet<i64>,
    /// Why it failed, or why the last attempt did.
    pub class: Option<String>,
    pub code: Option<String>,
    pub reason: Option<String>,
    /// What a receipt reported.
    pub delivery: Option<String>,
    pub created_at: Timestamp,
    /// When it was sent, failed, or is due.
    pub at: Timestamp,
}

/// Which messages [`Store::find_sms`] looks for.
#[derive(Clone, Copy, Debug)]
pub enum SmsFilter<'a> {
    Id(i64),
    /// Reads whole tables where no index has it.
    Reference(&'a str),
    /// E.164 with `+`. Reads whole tables.
    Phone(&'a str),
}

impl Store {
    /// Queues posted messages in one transaction; returns what became of each, in their order. The keys are kept until
    /// `expires_at`. If the commit's answer was lost, finds out whether it is stored.
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
    pub async fn prune_intake_keys(&self, now: Timestamp) -> Result<u64, StoreError> {
        let expired: Vec<(String, String)> = reading!(self, |conn| intake_key::table
            .filter(intake_key::expires_at.lt(now))
            .order(intake_key::expires_at)
            .limit(CHUNK)
            .select((intake_key::scope, intake_key::request_key))
            .load(conn))?;
        let mut by_scope: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (scope, key) in expired {
            by_scope.entry(scope).or_default().push(key);
        }
        let deleted = transaction!(self, |connection| async {
            let mut deleted = 0;
            for (scope, keys) in &by_scope {
                deleted += with_conn!(connection, |conn| delete(
                    intake_key::table
                        .filter(intake_key::scope.eq(scope))
                        .filter(intake_key::request_key.eq_any(keys))
                        .filter(intake_key::expires_at.lt(now))
                )
                .execute(conn))?;
            }
            QueryResult::Ok(deleted)
        })?;
        Ok(deleted as u64)
    }

    /// How many messages of a campaign are due, counted up to `most`.
    pub async fn count_due(
        &self,
        campaign_id: i64,
        now: Timestamp,
        most: u64,
    ) -> Result<u64, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let due: Vec<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.le(now))
            .order(sms::due_at)
            .offset((most - 1).max(0))
            .limit(1)
            .select(sms::due_at)
            .load(conn))?;
        if !due.is_empty() {
            return Ok(positive(most));
        }
        let count: i64 = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.le(now))
            .select(diesel::dsl::count_star())
            .first(conn))?;
        Ok(positive(count))
    }

    /// The messages that the filter selects, at most `most` of each table, the newest last. With `posted_by` only those
    /// that were posted with the token of this name, or with any token by an older smsq.
    pub async fn find_sms(
        &self,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, StoreError> {
        let found = self.find_once(filter, posted_by, most).await?;
        if found.is_empty() && matches!(filter, SmsFilter::Id(_)) {
            // It may have been queued when the failed messages were read, and failed before the queue was.
            return self.find_once(filter, posted_by, most).await;
        }
        Ok(found)
    }

    async fn find_once(
        &self,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, StoreError> {
        macro_rules! filtered {
            ($table:ident) => {{
                let rows = $table::table
                    .order($table::id.desc())
                    .limit(most)
                    .into_boxed();
                let rows = match posted_by {
                    None => rows,
                    Some(token) => {
                        let by_token = import::posted_by.eq(token.to_owned());
                        let is_old = import::posted_by.is_null().and(import::file.eq(POSTED));
                        let imports = import::table
                            .filter(by_token.or(is_old))
                            .select(import::id.nullable());
                        rows.filter($table::import_id.eq_any(imports))
                    }
                };
                match filter {
                    SmsFilter::Id(id) => rows.filter($table::id.eq(id)),
                    SmsFilter::Reference(reference) => {
                        rows.filter($table::reference.eq(reference.to_owned()))
                    }
                    SmsFilter::Phone(phone) => rows.filter($table::phone.eq(phone.to_owned())),
                }
            }};
        }
        // In the order in which a message moves, so that one that moves meanwhile is found.
        let failed: Vec<FailedRow> = reading!(self, |conn| filtered!(sms_failed)
            .select(FailedRow::as_select())
            .load(conn))?;
        let queued: Vec<QueuedSmsRow> = reading!(self, |conn| filtered!(sms)
            .select(QueuedSmsRow::as_select())
            .load(conn))?;
        let sent: Vec<SentSmsRow> = reading!(self, |conn| filtered!(sms_sent)
            .select(SentSmsRow::as_select())
            .load(conn))?;
        let failed = failed.into_iter().map(FoundSms::from);
        let queued = queued.into_iter().map(FoundSms::from);
        let sent = sent.into_iter().map(FoundSms::from);
        let found = failed.chain(queued).chain(sent);
        let by_id: BTreeMap<i64, FoundSms> = found.map(|sms| (sms.id, sms)).collect();
        Ok(by_id.into_values().collect())
    }

    /// The imports of messages that were posted or uploaded with the token of this name, among `imports`.
    pub async fn imports_of_token(
        &self,
        token: &str,
        imports: &[i64],
    ) -> Result<BTreeSet<i64>, StoreError> {
        let mut found = BTreeSet::new();
        for imports in imports.chunks(ROWS) {
            let ids: Vec<i64> = reading!(self, |conn| import::table
                .filter(import::id.eq_any(imports))
                .filter(import::posted_by.eq(token))
                .select(import::id)
                .load(conn))?;
            found.extend(ids);
        }
        Ok(found)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms)]
struct QueuedSmsRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    content: LossyText,
    state: i32,
    segments: Option<i32>,
    attempts: i32,
    reference: Option<String>,
    last_class: Option<String>,
    last_code: Option<String>,
    last_reason: Option<String>,
    created_at: Timestamp,
    due_at: Timestamp,
}

impl From<QueuedSmsRow> for FoundSms {
    fn from(row: QueuedSmsRow) -> Self {
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            import_id: row.import_id,
            phone: row.phone.text,
            content: Some(row.content.text),
            state: match row.state {
                state if state == State::Sending.code() => "sending",
                state if state == State::Unknown.code() => "unknown",
                _ => "queued",
            },
            segments: row.segments,
            attempts: row.attempts,
            reference: row.reference,
            provider: None,
            message_id: None,
            accepted_claims: BTreeSet::new(),
            class: row.last_class,
            code: row.last_code,
            reason: row.last_reason,
            delivery: None,
            created_at: row.created_at,
            at: row.due_at,
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct SentSmsRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    content: Option<LossyText>,
    segments: Option<i32>,
    attempts: i32,
    reference: Option<String>,
    provider: String,
    message_id: Option<String>,
    claim: i64,
    accepted: i32,
    accepted_claims: Option<String>,
    delivery_state: Option<String>,
    delivery_class: Option<String>,
    delivery_code: Option<String>,
    delivery_reason: Option<String>,
    created_at: Timestamp,
    sent_at: Timestamp,
}

impl From<SentSmsRow> for FoundSms {
    fn from(row: SentSmsRow) -> Self {
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            import_id: row.import_id,
            phone: row.phone.text,
            content: row.content.map(|content| content.text),
            state: "sent",
            segments: row.segments,
            attempts: row.attempts,
            reference: row.reference,
            provider: Some(row.provider),
            message_id: row.message_id,
            accepted_claims: accepted_claims(
                row.claim,
                row.accepted,
                row.accepted_claims.as_deref(),
            ),
            class: row.delivery_class,
            code: row.delivery_code,
            reason: row.delivery_reason,
            delivery: row.delivery_state,
            created_at: row.created_at,
            at: row.sent_at,
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
struct FailedRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    content: LossyText,
    segments: Option<i32>,
    attempts: i32,
    reference: Option<String>,
    class: String,
    code: Option<String>,
    reason: String,
    created_at: Timestamp,
    failed_at: Timestamp,
}

impl From<FailedRow> for FoundSms {
    fn from(row: FailedRow) -> Self {
        let is_cancelled = row.class == crate::sms::Class::Cancelled.as_str();
        Self {
            id: row.id,
            campaign_id: row.campaign_id,
            import_id: row.import_id,
            phone: row.phone.text,
            content: Some(row.content.text),
            state: if is_cancelled { "cancelled" } else { "failed" },
            segments: row.segments,
            attempts: row.attempts,
            reference: row.reference,
            provider: None,
            message_id: None,
            accepted_claims: BTreeSet::new(),
            class: Some(row.class),
            code: row.code,
            reason: Some(row.reason),
            delivery: None,
            created_at: row.created_at,
            at: row.failed_at,
        }
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
    decided: &mut Option<Vec<Vec<PostResult>>>,
) -> QueryResult<Vec<Vec<PostResult>>> {
    if let Some(done) = decided
        && is_stored(connection, batches).await?
    {
        return Ok(done.clone());
    }
    let ids = batches.iter().map(|posted| posted.batch.campaign_id);
    let campaigns = campaigns::lock_states(connection, &ids.collect()).await?;
    let keys = batches.iter().flat_map(|posted| &posted.keys);
    let mut known = known_keys(connection, keys).await?;
    let mut added: Vec<(IntakeKey, KnownKey)> = Vec::new();
    let mut all = Vec::with_capacity(batches.len());
    for posted in batches {
        let refused = match campaigns.get(&posted.batch.campaign_id) {
            None => Some(PostResult::NoCampaign),
            Some(CampaignStatus::Cancelled) => Some(PostResult::Cancelled),
            Some(_) => {
                let expires_at = posted.batch.expires_at;
                let is_expired = expires_at.is_some_and(|at| at <= posted.batch.now);
                is_expired.then_some(PostResult::Expired)
            }
        };
        let results = match refused {
            Some(refused) => refuse_new(posted, &known, refused),
            None => post_batch(connection, posted, &mut known, &mut added).await?,
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
    let results = posted.keys.iter().map(|one| {
        let known = one.keys.iter().find_map(|key| known.get(key));
        known.map_or(refused, |known| known.result(&one.fingerprint))
    });
    results.collect()
}

/// The keys that are stored, locked until the transaction ends.
async fn known_keys<'k>(
    connection: &mut Connection,
    keys: impl Iterator<Item = &'k PostedKeys>,
) -> QueryResult<HashMap<IntakeKey, KnownKey>> {
    let mut by_scope: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for key in keys.flat_map(|one| &one.keys) {
        by_scope.entry(&key.scope).or_default().push(&key.key);
    }
    let mut known = HashMap::new();
    for (scope, mut keys) in by_scope {
        keys.sort_unstable();
        for keys in keys.chunks(ROWS) {
            let found: Vec<(String, String, i64)> = load_locked!(
                connection,
                intake_key::table
                    .filter(intake_key::scope.eq(scope))
                    .filter(intake_key::request_key.eq_any(keys))
                    .select((
                        intake_key::request_key,
                        intake_key::fingerprint,
                        intake_key::sms_id
                    ))
            )?;
            known.extend(found.into_iter().map(|(key, fingerprint, sms_id)| {
                let scope = scope.to_owned();
                let known = KnownKey {
                    fingerprint,
                    sms_id,
                };
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
    known: &mut HashMap<IntakeKey, KnownKey>,
    added: &mut Vec<(IntakeKey, KnownKey)>,
) -> QueryResult<Vec<PostResult>> {
    let mut results: Vec<Option<PostResult>> = vec![None; posted.batch.rows.len()];
    // The first row of this batch with each key, for rows that repeat it.
    let mut first: HashMap<&IntakeKey, usize> = HashMap::new();
    let mut repeats: Vec<(usize, usize)> = Vec::new();
    let mut batch = ImportBatch {
        rows: Vec::new(),
        ..posted.batch.clone()
    };
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
        let enqueued = enqueue(connection, &batch, Some(&mut ids)).await?;
        let lines = posted.batch.rows.iter().map(|row| row.line).enumerate();
        let lines: HashMap<u64, usize> = lines.map(|(index, line)| (line, index)).collect();
        for (line, id) in ids {
            let index = lines[&line];
            results[index] = Some(PostResult::Queued(id));
            let one = &posted.keys[index];
            for key in &one.keys {
                let value = KnownKey {
                    fingerprint: one.fingerprint.clone(),
                    sms_id: id,
                };
                known.insert(key.clone(), value.clone());
                added.push((key.clone(), value));
            }
        }
        for line in enqueued.suppressed {
            results[lines[&line]] = Some(PostResult::Suppressed);
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
    Ok(results
        .into_iter()
        .map(|result| result.expect("each row was decided"))
        .collect())
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
        let inserted = insert_new!(connection, intake_key::table, &rows)?;
        if inserted < rows.len() {
            return Err(conflict("another process added one of the keys"));
        }
    }
    Ok(())
}
