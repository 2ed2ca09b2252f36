//! Finds the next due messages, locks them, and marks them as claimed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diesel::dsl::{case_when, exists};
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryableByName, update};
use rand::RngExt;
use smsq_lifecycle::Settlement;
use smsq_lifecycle::transition::REUSED_REFERENCE;
use smsq_message::defect::Defect;
use smsq_message::phone::Phone;
use smsq_message::sms::{LaneId, Sms, State, StoredColumns, Timestamp};

use super::commit_batch::{ClaimKey, CommitBatch};
use super::lanes::Failover;
use super::results::effects::Effects;
use super::results::settle::{self, ClaimedRows};
use crate::connection::prelude::*;
use crate::connection::{Connection, DatabaseError, QueryResult, ROWS, in_list};
use crate::limits::spending::ReserveWrites;
use crate::tables::column_types::LossyText;
use crate::tables::expressions::in_state;
use crate::tables::schema::{sms, worker};
use crate::tables::values::SEVERAL;

/// How long only rows after the cursor are read. Rows before it may have been requeued or committed late; they are
/// found when no rows are left after it.
const RESCAN: Duration = Duration::from_secs(5);

/// Larger claim numbers, which only another program can have written, count as this one.
const MAX_CLAIM: i64 = i64::MAX - 1;

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Text>, fallback: Nullable<Text>) -> Nullable<Text>;

    #[sql_name = "concat"]
    fn joined(text: Text, number: BigInt) -> Text;
}

/// The length of the random beginning of a reference. The rest is the id of the message.
const NONCE: usize = 16;

/// The id of the message in a reference that this program wrote.
pub(crate) fn id_in_reference(reference: &str) -> Option<i64> {
    reference.get(NONCE..)?.parse().ok()
}

/// The last claimed key of each lane. Rows before it are deleted, but the index of a server may still have them. A
/// claim that starts at the cursor does not read them.
#[derive(Default)]
pub(crate) struct ClaimCursors(Mutex<HashMap<LaneId, Cursor>>);

#[derive(Clone, Copy)]
struct Cursor {
    key: ClaimKey,
    rescan_at: Instant,
}

impl ClaimCursors {
    fn of(&self, lane: LaneId) -> Option<ClaimKey> {
        let cursors = self.0.lock().ok()?;
        let cursor = cursors.get(&lane)?;
        (Instant::now() < cursor.rescan_at).then_some(cursor.key)
    }

    /// Moves a cursor to the last key of a committed claim.
    pub(super) fn advance(&self, lane: LaneId, key: ClaimKey) {
        if let Ok(mut cursors) = self.0.lock() {
            let rescan_at = Instant::now() + RESCAN;
            let cursor = cursors.entry(lane).or_insert(Cursor { key, rescan_at });
            if cursor.rescan_at <= Instant::now() {
                cursor.rescan_at = rescan_at;
            }
            cursor.key = key;
        }
    }
}

/// A due message, locked but not yet claimed.
#[derive(Clone, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = sms)]
pub(super) struct Candidate {
    pub(super) id: i64,
    campaign_id: i64,
    lane: i32,
    import_id: Option<i64>,
    phone: LossyText,
    content: LossyText,
    params: LossyText,
    segments: Option<i32>,
    in_doubt: bool,
    expires_at: Option<i64>,
    attempts: i32,
    claim: i64,
    reference: Option<LossyText>,
    dedupe_key: Option<LossyText>,
    created_at: i64,
    due_at: i64,
    doubt_since: Option<i64>,
    doubt_claim: Option<i64>,
    claimed_provider: Option<String>,
    resend_approved: bool,
}

impl Candidate {
    pub(super) fn key(&self) -> ClaimKey {
        (self.due_at, self.id)
    }

    /// As it is stored.
    pub(super) fn phone(&self) -> &str {
        &self.phone.text
    }

    pub(super) fn is_imported(&self) -> bool {
        self.import_id.is_some()
    }

    /// The only provider that may have accepted it, and no other may get it. `None`: any may.
    pub(super) fn bound_to(&self) -> Option<&str> {
        let tried = self.claimed_provider.as_deref();
        tried.filter(|tried| self.in_doubt && *tried != SEVERAL)
    }

    pub(super) fn is_garbled(&self) -> bool {
        self.phone.is_garbled || self.content.is_garbled || self.params.is_garbled
    }

    /// The message after its claim for this provider.
    pub(super) fn claimed(self, nonce: &str, provider: &str) -> Sms {
        // Where an operator has approved that any provider sends it, it is bound to none.
        let is_free = self.resend_approved && self.claimed_provider.as_deref() == Some(SEVERAL);
        let tried = self.claimed_provider.filter(|_| self.in_doubt && !is_free);
        Sms {
            id: self.id,
            campaign_id: self.campaign_id,
            lane: self.lane,
            phone: self.phone.text,
            content: self.content.text,
            params: self.params.text,
            segments: self.segments,
            in_doubt: self.in_doubt,
            doubt_since: self.doubt_since.map(Timestamp::from_millis),
            tried_elsewhere: tried.is_some_and(|tried| tried != provider),
            is_reference_reused: self.doubt_claim == Some(REUSED_REFERENCE),
            resend_approved: self.resend_approved,
            due_at: Timestamp::from_millis(self.due_at),
            expires_at: self.expires_at.map(Timestamp::from_millis),
            attempts: self.attempts,
            claim: self.claim.min(MAX_CLAIM) + 1,
            reference: match self.reference {
                Some(reference) => reference.text,
                None => format!("{nonce}{}", self.id),
            },
            stored: StoredColumns {
                import_id: self.import_id,
                segments: self.segments,
                dedupe_key: self.dedupe_key.map(String::from),
                created_at: Timestamp::from_millis(self.created_at),
                reserve: None,
            },
        }
    }
}

/// Selects due messages of a lane.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) lane: LaneId,
    pub(super) now: Timestamp,
    /// Only after this key, because this transaction has locked the rows before it.
    pub(super) after: Option<ClaimKey>,
    /// At most this many.
    pub(super) count: u32,
}

/// A lane's ready messages in the order of claims, at most `$count`.
macro_rules! ready {
    ($lane:expr, $count:expr) => {
        sms::table
            .filter(sms::campaign_id.eq($lane.campaign_id))
            .filter(in_state(State::Ready.code()))
            .filter(sms::lane.eq($lane.lane))
            .order((sms::due_at, sms::id))
            .limit($count)
            .select(Candidate::as_select())
    };
}

/// Locks the next due messages until the transaction ends, and skips those that another transaction has locked. Fewer
/// than wanted means that there are no others.
pub(super) async fn next_candidates(
    connection: &mut Connection,
    cursors: &ClaimCursors,
    wanted: Wanted,
) -> QueryResult<Vec<Candidate>> {
    let cursor = cursors.of(wanted.lane);
    // The index of SQLite has no deleted rows.
    if let Some(cursor) = cursor.filter(|cursor| {
        !connection.is_sqlite() && wanted.after.is_none_or(|after| *cursor > after)
    }) {
        let rows = candidates_after(connection, wanted, cursor).await?;
        if rows.len() >= wanted.count as usize {
            return Ok(rows);
        }
    }
    match wanted.after {
        Some(after) => candidates_after(connection, wanted, after).await,
        None => {
            ready!(wanted.lane, i64::from(wanted.count))
                .filter(sms::due_at.le(wanted.now))
                .skipping_locked()
                .load(connection)
                .await
        }
    }
}

/// Reads two ranges of the index, each from its first row: the rest of one instant, and what is due later.
async fn candidates_after(
    connection: &mut Connection,
    wanted: Wanted,
    after: ClaimKey,
) -> QueryResult<Vec<Candidate>> {
    let count = i64::from(wanted.count);
    let (due_at, id) = after;
    let same: QueryResult<Vec<Candidate>> = ready!(wanted.lane, count)
        .filter(sms::due_at.eq(due_at))
        .filter(sms::id.gt(id))
        .skipping_locked()
        .by_index("sms_due")
        .load(connection)
        .await;
    let mut rows = same?;
    let missing = count - i64::try_from(rows.len()).unwrap_or(count);
    if missing > 0 {
        let later: QueryResult<Vec<Candidate>> = ready!(wanted.lane, missing)
            .filter(sms::due_at.gt(due_at))
            .filter(sms::due_at.le(wanted.now))
            .skipping_locked()
            .by_index("sms_due")
            .load(connection)
            .await;
        rows.extend(later?);
    }
    Ok(rows)
}

/// What a transaction writes about candidates.
pub(super) struct ClaimWrites {
    /// The beginning of the references of messages that are claimed for the first time.
    pub(super) nonce: String,
    /// Messages that are claimed, by the provider that they are sent through, if they are sent.
    ids: BTreeMap<Option<String>, Vec<i64>>,
    /// Claimed messages that fail or wait without a request.
    pub(super) not_sent: Vec<Settlement>,
    /// Messages with a normalised phone, or with text that was not UTF-8.
    rewritten: Vec<Sms>,
    /// Messages that are moved to another lane, by its number.
    moved: BTreeMap<i32, Vec<i64>>,
    /// Those of them that go to another provider.
    failovers: Vec<Failover>,
    /// What claimed messages take from budgets.
    pub(super) reserved: ReserveWrites,
}

impl ClaimWrites {
    pub(super) fn new() -> Self {
        Self {
            nonce: format!("{:0NONCE$x}", rand::rng().random::<u64>()),
            ids: BTreeMap::new(),
            not_sent: Vec::new(),
            rewritten: Vec::new(),
            moved: BTreeMap::new(),
            failovers: Vec::new(),
            reserved: ReserveWrites::default(),
        }
    }

    /// Claims a message, to send it through a provider or to settle it at once.
    pub(super) fn claim(&mut self, id: i64, provider: Option<&str>) {
        let ids = self.ids.entry(provider.map(str::to_owned)).or_default();
        ids.push(id);
    }

    /// Moves a message that is locked to another lane of its campaign.
    pub(super) fn move_to(&mut self, lane: i32, id: i64) {
        self.moved.entry(lane).or_default().push(id);
    }

    /// Counts a message that goes to another provider, because its own is unavailable.
    pub(super) fn count_failover(&mut self, moved: Failover) {
        let is_same = |known: &&mut Failover| {
            let owner = (known.campaign_id, &known.provider, &known.fallback);
            owner == (moved.campaign_id, &moved.provider, &moved.fallback)
        };
        match self.failovers.iter_mut().find(is_same) {
            Some(known) => known.messages += moved.messages,
            None => self.failovers.push(moved),
        }
    }

    /// Stores the normalised phone.
    pub(super) fn rewrite_phone(&mut self, sms: &Sms, phone: &Phone) {
        if sms.phone != phone.as_str() {
            let mut row = sms.clone();
            phone.as_str().clone_into(&mut row.phone);
            self.rewritten.push(row);
        }
    }

    /// Stores the text without invalid bytes.
    pub(super) fn rewrite(&mut self, sms: &Sms) {
        self.rewritten.push(sms.clone());
    }

    pub(super) async fn write(
        &mut self,
        connection: &mut Connection,
        batch: &CommitBatch,
    ) -> QueryResult<Effects> {
        for (provider, mut ids) in std::mem::take(&mut self.ids) {
            ids.sort_unstable();
            for ids in ids.chunks(ROWS) {
                self.mark(connection, ids, provider.as_deref(), batch).await?;
            }
        }
        for row in &self.rewritten {
            update(sms::table.find(row.id))
                .set((
                    sms::phone.eq(&row.phone),
                    sms::content.eq(&row.content),
                    sms::params.eq(&row.params),
                ))
                .execute(connection)
                .await?;
        }
        for (lane, ids) in &self.moved {
            for ids in ids.chunks(ROWS) {
                let ids = in_list(ids.iter().copied());
                update(sms::table.filter(sms::id.eq_any(&ids)))
                    .set(sms::lane.eq(*lane))
                    .kept()
                    .execute(connection)
                    .await?;
            }
        }
        self.failovers.sort_unstable();
        for failover in &self.failovers {
            failover.store(connection).await?;
        }
        self.reserved.write(connection).await?;
        let (_, effects) =
            settle::settle_all(connection, &self.not_sent, ClaimedRows::default(), batch.now)
                .await?;
        Ok(effects)
    }

    /// Marks messages as claimed by this worker. If one is not ready any more or the worker is not registered, the
    /// transaction is repeated.
    async fn mark(
        &self,
        connection: &mut Connection,
        ids: &[i64],
        provider: Option<&str>,
        batch: &CommitBatch,
    ) -> QueryResult<()> {
        let list = in_list(ids.iter().copied());
        let nonce = self.nonce.as_str();
        let claim = case_when(sms::claim.lt(MAX_CLAIM), sms::claim + 1).otherwise(i64::MAX);
        let claimed_for = provider.map(|name| {
            let is_other = sms::claimed_provider.ne(name).assume_not_null();
            let is_another_in_doubt = sms::in_doubt.and(is_other);
            let name = case_when(is_another_in_doubt, SEVERAL.into_sql::<Text>())
                .otherwise(name.into_sql::<Text>());
            sms::claimed_provider.eq(name.nullable())
        });
        let state = if Defect::LateClaim.is_on() { State::Ready } else { State::Sending };
        let marked = update(
            sms::table
                .filter(sms::id.eq_any(&list))
                .filter(in_state(State::Ready.code()))
                .filter(exists(worker::table.find(batch.worker_id))),
        )
        .set((
            sms::state.eq(state.code()),
            sms::claim.eq(claim),
            sms::worker_id.eq(batch.worker_id),
            sms::claimed_at.eq(batch.now),
            sms::reference.eq(or_else(sms::reference, joined(nonce, sms::id).nullable())),
            claimed_for,
        ))
        .kept()
        .execute(connection)
        .await?;
        if marked == ids.len() {
            Ok(())
        } else {
            Err(DatabaseError::conflict("another worker claimed the same row"))
        }
    }
}
