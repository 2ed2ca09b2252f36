//! Delivery receipts: their application to sent and unknown messages, and the inbox of those that are applied later.
//!
//! A receipt is applied when it arrives. What its message has become is in the row of `sms_sent`, so it needs no row of
//! its own, except in table `receipt`:
//! - while it has no message: it may have come before the response to its message, and is tried again;
//! - if it is about a part of its message, or its message has others that are: the rows of a message are then all that
//!   is known about it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use diesel::backend::Backend;
use diesel::dsl::{min, sql};
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::{QueryResult, delete, update};

use super::awaiting::is_unknown;
use super::column_types::LossyText;
use super::connection::prelude::*;
use super::connection::{
    Connection, Dialect, Prepared, in_list, insert_new, load_locked, reading, transaction,
    with_conn,
};
use super::schema::{receipt, sms, sms_failed, sms_sent};
use super::{Store, StoreError, settle, suppression};
use crate::phone::may_be_written_as;
use crate::queue::delivery::{Delivery, DeliveryState, Reported, delivery};
use crate::queue::transition::{NOT_STORED, opt_out_reason};
use crate::queue::{Settled, Settlement, Transition};
use crate::receipt::{Receipt, ReceiptPart, ReceiptState};
use crate::sms::{Acceptance, Class, Failure, Timestamp};

/// The most receipts of one transaction. Other writers of a SQLite file wait for it.
const BATCH: u16 = 500;
/// How old a receipt without a message is when it is tried for the second time, and by what each next age is larger:
/// 1 s, 8 s, 64 s, 9 min, 68 min, 9 h, and when it is deleted. Most of those left then are of other programs with the
/// same account, and each try is a write.
const FIRST_AGE: Duration = Duration::from_secs(1);
const NEXT_AGE: u32 = 8;
/// The longest `message_key`.
const MAX_KEY: usize = 320;
/// The number in column `part` of a part that is identified by the provider's id.
const PART_WITH_ID: i32 = -1;

/// What was done with receipts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiptsApplied {
    /// Receipts that were tried; 0: none is due.
    pub receipts: u64,
    /// Those that were stored or changed what is known about a message, when they arrived.
    pub new: u64,
    /// Those with a message.
    pub matched: u64,
    /// Messages with an unknown outcome, or that had failed, which a receipt shows to be sent.
    pub sent: u64,
    /// Messages with an unknown outcome, which a receipt shows to be rejected.
    pub failed: u64,
}

impl std::ops::AddAssign for ReceiptsApplied {
    fn add_assign(&mut self, other: Self) {
        self.receipts += other.receipts;
        self.new += other.new;
        self.matched += other.matched;
        self.sent += other.sent;
        self.failed += other.failed;
    }
}

/// A row of the inbox.
#[derive(Clone, Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = receipt, treat_none_as_default_value = false)]
struct ReceiptRow {
    provider: String,
    message_key: String,
    state: String,
    part: i32,
    parts: i32,
    reference: Option<String>,
    message_id: Option<String>,
    phone: Option<String>,
    class: Option<String>,
    code: Option<String>,
    reason: Option<String>,
    at: Option<i64>,
    received_at: i64,
    due_at: Option<i64>,
    sms_id: Option<i64>,
}

/// A receipt that is tried, with the id of its row if it has one.
type Tried = (Option<i64>, ReceiptRow);

/// What a row of `sms_sent` says about its delivery.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct DeliveryRow {
    id: i64,
    #[diesel(deserialize_as = LossyText)]
    phone: String,
    provider: String,
    reference: Option<String>,
    message_id: Option<String>,
    segments: Option<i32>,
    delivery_state: Option<String>,
    delivery_class: Option<String>,
    delivery_code: Option<String>,
    delivery_reason: Option<String>,
    delivery_at: Option<Timestamp>,
    delivery_note: Option<String>,
}

/// A message that is not sent, as far as a receipt can settle it.
#[derive(Clone, Debug)]
struct OpenSms {
    id: i64,
    claim: i64,
    phone: String,
    /// One attempt may have been accepted, and none was made after it.
    is_only_doubt: bool,
}

/// What all receipts of a sent message say, as columns of its row.
#[derive(Clone, Debug)]
struct DeliveryChange {
    id: i64,
    state: &'static str,
    class: Option<&'static str>,
    code: Option<String>,
    reason: Option<String>,
    at: Option<i64>,
    note: Option<String>,
    /// 1: its text is still needed.
    keeps_text: i32,
}

/// Sets the delivery of sent messages, each to its own, in one statement.
struct UpdateDeliveries<'a>(&'a [DeliveryChange]);

impl<DB> QueryFragment<DB> for UpdateDeliveries<'_>
where
    DB: Backend + Dialect,
    i64: ToSql<BigInt, DB>,
    i32: ToSql<Integer, DB>,
    str: ToSql<Text, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        const SET: &str = " SET delivery_state = v.column2, delivery_class = v.column3, delivery_code = v.column4, \
            delivery_reason = v.column5, delivery_at = v.column6, delivery_note = v.column7, \
            content = CASE WHEN v.column8 = 1 THEN content END, params = CASE WHEN v.column8 = 1 THEN params END";
        /// Columns after the first of a row of values.
        macro_rules! columns {
            ($($name:literal: $type:ty = $value:expr),+) => {
                $({
                    out.push_sql(", ");
                    out.push_bind_param::<$type, _>($value)?;
                    if DB::UPDATES_BY_JOIN {
                        out.push_sql(concat!(" AS ", $name));
                    }
                })+
            };
        }
        out.push_sql("UPDATE sms_sent");
        out.push_sql(if DB::UPDATES_BY_JOIN { " JOIN (" } else { SET });
        for (index, row) in self.0.iter().enumerate() {
            out.push_sql(match (DB::UPDATES_BY_JOIN, index) {
                (true, 0) => "SELECT CAST(",
                (true, _) => " UNION ALL SELECT CAST(",
                (false, 0) => " FROM (VALUES (",
                (false, _) => "), (",
            });
            out.push_bind_param::<BigInt, _>(&row.id)?;
            if DB::UPDATES_BY_JOIN {
                out.push_sql(" AS SIGNED) AS column1");
            }
            columns!(
                "column2": Text = &row.state,
                "column3": Nullable<Text> = &row.class,
                "column4": Nullable<Text> = &row.code,
                "column5": Nullable<Text> = &row.reason,
                "column6": Nullable<BigInt> = &row.at,
                "column7": Nullable<Text> = &row.note,
                "column8": Integer = &row.keeps_text
            );
        }
        if DB::UPDATES_BY_JOIN {
            out.push_sql(") AS v ON sms_sent.id = v.column1");
            out.push_sql(SET);
        } else {
            out.push_sql(")) AS v WHERE sms_sent.id = v.column1");
        }
        Ok(())
    }
}

/// The key of a receipt together with its state and part. It has our reference, because some providers use their ids
/// again.
fn message_key(names: [Option<&str>; 3]) -> String {
    let key = names.map(Option::unwrap_or_default).join(" ");
    key.chars().take(MAX_KEY).collect()
}

impl ReceiptRow {
    fn new(provider: &str, receipt: &Receipt, now: Timestamp) -> Self {
        let part = receipt.part;
        let failure = receipt.failure.as_ref();
        Self {
            provider: provider.to_owned(),
            message_key: message_key([
                receipt.reference.as_deref(),
                receipt.message_id.as_deref(),
                receipt.phone.as_deref(),
            ]),
            state: receipt.state.to_string(),
            part: part.map_or(0, |part| match part.number {
                0 => PART_WITH_ID,
                number => number.into(),
            }),
            parts: part.map_or(0, |part| part.total.into()),
            reference: receipt.reference.clone(),
            message_id: receipt.message_id.clone(),
            phone: receipt.phone.clone(),
            class: failure.map(|failure| failure.class.to_string()),
            code: failure.and_then(|failure| failure.code.clone()),
            reason: failure.map(|failure| failure.reason.clone()),
            at: receipt.at.map(Timestamp::as_millis),
            received_at: now.as_millis(),
            due_at: Some(now.plus(FIRST_AGE).as_millis()),
            sms_id: None,
        }
    }

    fn state(&self) -> ReceiptState {
        self.state.parse().unwrap_or(ReceiptState::Unlisted)
    }

    fn failure(&self) -> Option<Failure> {
        failure(
            self.class.as_deref(),
            self.code.as_ref(),
            self.reason.as_ref(),
        )
    }

    fn reported(&self) -> Reported {
        let number = u16::try_from(self.part.max(0)).unwrap_or(0);
        let total = u16::try_from(self.parts).unwrap_or(0);
        Reported {
            state: self.state(),
            failure: self.failure(),
            at: Timestamp::from_millis(self.at.unwrap_or(self.received_at)),
            part: (self.part != 0).then_some(ReceiptPart { number, total }),
            message_id: self.message_id.clone(),
        }
    }

    /// Whether it repeats another receipt.
    fn is_same(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.message_key.clone(), row.state.clone(), row.part);
        key(self) == key(other)
    }

    /// Whether the message may have this phone. Only a number that is certainly another one does not fit, which tells
    /// the messages of a batch apart that share an id or the reference of one of them.
    fn fits_phone(&self, phone: &str) -> bool {
        let written = self.phone.as_ref();
        written.is_none_or(|written| may_be_written_as(phone, written))
    }

    /// When it is tried next, without a message.
    fn next_due(&self, keep: Duration, now: Timestamp) -> Timestamp {
        let received_at = Timestamp::from_millis(self.received_at);
        let age = now.since(received_at);
        let mut next = FIRST_AGE;
        while next <= age {
            next *= NEXT_AGE;
        }
        received_at.plus(next.min(keep))
    }

    /// What it proves about a message that is not sent.
    fn proves(&self, open: &OpenSms) -> Option<Transition> {
        match self.state() {
            ReceiptState::Rejected if open.is_only_doubt => {
                let fallback = || Failure::new(Class::Recipient, "rejected before it was sent");
                let failure = self.failure().unwrap_or_else(fallback);
                Some(Transition::FoundRejected(failure))
            }
            ReceiptState::Rejected | ReceiptState::Unlisted => None,
            _ => Some(Transition::Sent(Acceptance {
                message_id: self.message_id.clone(),
                awaits_receipt: true,
                ..Acceptance::default()
            })),
        }
    }
}

fn failure(class: Option<&str>, code: Option<&String>, reason: Option<&String>) -> Option<Failure> {
    Some(Failure {
        class: class?.parse().unwrap_or(Class::Unknown),
        code: code.cloned(),
        reason: reason.cloned().unwrap_or_default(),
    })
}

impl DeliveryRow {
    fn state(&self) -> DeliveryState {
        let word = self.delivery_state.as_deref();
        let state = DeliveryState::ALL
            .into_iter()
            .find(|state| Some(state.as_str()) == word);
        state.unwrap_or_default()
    }

    fn delivery(&self) -> Delivery {
        Delivery {
            state: self.state(),
            failure: failure(
                self.delivery_class.as_deref(),
                self.delivery_code.as_ref(),
                self.delivery_reason.as_ref(),
            ),
            at: self.delivery_at,
            note: self.delivery_note.clone(),
        }
    }

    /// The receipt that decided, if none of the message has a row of its own. A wait that ended without a receipt has
    /// no time.
    fn receipt(&self) -> Option<ReceiptRow> {
        let state = match self.state() {
            DeliveryState::Awaiting => return None,
            DeliveryState::Delivered => ReceiptState::Delivered,
            DeliveryState::Undelivered => ReceiptState::Undelivered,
            DeliveryState::Expired => ReceiptState::Expired,
            DeliveryState::NoReport => ReceiptState::NoReport,
        };
        let at = self.delivery_at?.as_millis();
        Some(ReceiptRow {
            provider: self.provider.clone(),
            message_key: message_key([
                self.reference.as_deref(),
                self.message_id.as_deref(),
                Some(&self.phone),
            ]),
            state: state.to_string(),
            part: 0,
            parts: 0,
            reference: self.reference.clone(),
            message_id: self.message_id.clone(),
            phone: Some(self.phone.clone()),
            class: self.delivery_class.clone(),
            code: self.delivery_code.clone(),
            reason: self.delivery_reason.clone(),
            at: Some(at),
            received_at: at,
            due_at: None,
            sms_id: Some(self.id),
        })
    }
}

impl DeliveryChange {
    fn new(id: i64, delivery: Delivery) -> Self {
        let (class, code, reason) = delivery.failure.map_or((None, None, None), |failure| {
            (
                Some(failure.class.as_str()),
                failure.code,
                Some(failure.reason),
            )
        });
        Self {
            id,
            state: delivery.state.as_str(),
            class,
            code,
            reason,
            at: delivery.at.map(Timestamp::as_millis),
            note: delivery.note,
            keeps_text: delivery.state.keeps_text().into(),
        }
    }
}

impl Store {
    /// Applies receipts of a provider, and stores those that are needed later. Repeated receipts change nothing.
    pub async fn add_receipts(
        &self,
        provider: &str,
        receipts: &[Receipt],
        now: Timestamp,
    ) -> Result<ReceiptsApplied, StoreError> {
        let mut known = HashSet::new();
        let rows: Vec<ReceiptRow> = receipts
            .iter()
            .map(|receipt| ReceiptRow::new(provider, receipt, now))
            .filter(|row| known.insert((row.message_key.clone(), row.state.clone(), row.part)))
            .collect();
        let mut applied = ReceiptsApplied::default();
        for rows in rows.chunks(BATCH.into()) {
            applied += transaction!(self, |connection| add(connection, rows, now))?;
        }
        Ok(applied)
    }

    /// Tries the next due receipts without a message again, in one transaction. Those that still have none are tried
    /// again later, and deleted after `keep`.
    pub async fn apply_receipts(
        &self,
        keep: Duration,
        now: Timestamp,
    ) -> Result<ReceiptsApplied, StoreError> {
        transaction!(self, |connection| async {
            let due: Vec<(i64, ReceiptRow)> = load_locked!(
                connection,
                receipt::table
                    .filter(receipt::due_at.le(now))
                    .order((receipt::due_at, receipt::id))
                    .limit(BATCH.into())
                    .select((receipt::id, ReceiptRow::as_select()))
            )?;
            let tried = with_earlier(connection, with_ids(due)).await?;
            apply(connection, tried, keep, now).await
        })
    }

    /// When the next receipt without a message is tried again.
    pub async fn next_receipt_due(&self) -> Result<Option<Timestamp>, StoreError> {
        reading!(self, |conn| receipt::table
            .filter(receipt::due_at.is_not_null())
            .select(min(receipt::due_at))
            .first(conn))
    }

    /// The number of receipts without a message.
    pub async fn unmatched_receipts(&self) -> Result<u64, StoreError> {
        let count: i64 = reading!(self, |conn| receipt::table
            .filter(receipt::due_at.is_not_null())
            .count()
            .get_result(conn))?;
        Ok(count.unsigned_abs())
    }
}

fn with_ids(rows: Vec<(i64, ReceiptRow)>) -> Vec<Tried> {
    rows.into_iter().map(|(id, row)| (Some(id), row)).collect()
}

/// Applies new receipts.
async fn add(
    connection: &mut Connection,
    rows: &[ReceiptRow],
    now: Timestamp,
) -> QueryResult<ReceiptsApplied> {
    let new = rows.iter().map(|row| (None, row.clone())).collect();
    let tried = with_earlier(connection, new).await?;
    apply(connection, tried, Duration::MAX, now).await
}

/// Adds the stored receipts without a message that may have the same one: of two that contradict each other, the first
/// that came counts.
async fn with_earlier(
    connection: &mut Connection,
    mut tried: Vec<Tried>,
) -> QueryResult<Vec<Tried>> {
    if tried.is_empty() {
        return Ok(tried);
    }
    let references = in_list(tried.iter().filter_map(|(_, row)| row.reference.clone()));
    let message_ids = in_list(tried.iter().filter_map(|(_, row)| row.message_id.clone()));
    let earlier: Vec<(i64, ReceiptRow)> = load_locked!(
        connection,
        prepared receipt::table
            .filter(receipt::due_at.is_not_null())
            .filter(
                receipt::reference.eq_any(&references)
                    .or(receipt::message_id.eq_any(&message_ids))
                    .assume_not_null()
            )
            .order(receipt::id)
            .select((receipt::id, ReceiptRow::as_select()))
    )?;
    let known: HashSet<i64> = tried.iter().filter_map(|(id, _)| *id).collect();
    let others = earlier.into_iter().filter(|(id, _)| !known.contains(id));
    tried.extend(others.map(|(id, row)| (Some(id), row)));
    tried.sort_by_key(|(id, _)| id.unwrap_or(i64::MAX));
    Ok(tried)
}

/// Applies receipts in the order in which they came.
async fn apply(
    connection: &mut Connection,
    mut tried: Vec<Tried>,
    keep: Duration,
    now: Timestamp,
) -> QueryResult<ReceiptsApplied> {
    let mut applied = ReceiptsApplied {
        receipts: tried.len() as u64,
        ..ReceiptsApplied::default()
    };
    if tried.is_empty() {
        return Ok(applied);
    }
    match_sent(connection, &mut tried).await?;
    settle_open(connection, &mut tried, &mut applied, now).await?;
    let (matched, mut unmatched): (Vec<Tried>, Vec<Tried>) =
        tried.into_iter().partition(|(_, row)| row.sms_id.is_some());
    let (new, early) = update_deliveries(connection, matched, now).await?;
    unmatched.extend(early);
    applied.matched = applied.receipts - unmatched.len() as u64;
    applied.new += new + keep_unmatched(connection, unmatched, keep, now).await?;
    Ok(applied)
}

/// Finds the sent messages of receipts: by our reference, else by the provider's id and the phone.
async fn match_sent(connection: &mut Connection, tried: &mut [Tried]) -> QueryResult<()> {
    /// Looks for the value of a receipt's field in the column of the same name.
    macro_rules! match_by {
        ($field:ident) => {{
            let wanted = in_list(
                tried
                    .iter()
                    .filter(|(_, row)| row.sms_id.is_none())
                    .filter_map(|(_, row)| row.$field.clone()),
            );
            if !wanted.is_empty() {
                let found: Vec<(i64, Option<String>, LossyText, String)> =
                    with_conn!(connection, |conn| Prepared(
                        sms_sent::table
                            .filter(sms_sent::$field.eq_any(&wanted))
                            .filter(sms_sent::delivery_state.is_not_null())
                            .select((
                                sms_sent::id,
                                sms_sent::$field,
                                sms_sent::phone,
                                sms_sent::provider,
                            ))
                    )
                    .load(conn))?;
                let mut messages: HashMap<&str, Vec<_>> = HashMap::new();
                for (id, name, phone, provider) in &found {
                    let name = name.as_deref().unwrap_or_default();
                    messages
                        .entry(name)
                        .or_default()
                        .push((*id, phone, provider));
                }
                for (_, row) in tried.iter_mut().filter(|(_, row)| row.sms_id.is_none()) {
                    let named = row.$field.as_deref().and_then(|name| messages.get(name));
                    let mut fitting = named.into_iter().flatten().filter(|(_, phone, provider)| {
                        **provider == row.provider && row.fits_phone(&phone.text)
                    });
                    // Of several messages with one id, none is certain.
                    let matched = match (fitting.next(), fitting.next()) {
                        (Some((id, ..)), None) => Some(*id),
                        _ => None,
                    };
                    row.sms_id = matched;
                }
            }
        }};
    }
    match_by!(reference);
    match_by!(message_id);
    Ok(())
}

/// Settles messages that are unknown or have failed by the receipts that prove what became of them.
async fn settle_open(
    connection: &mut Connection,
    tried: &mut [Tried],
    applied: &mut ReceiptsApplied,
    now: Timestamp,
) -> QueryResult<()> {
    let references = in_list(
        tried
            .iter()
            .filter(|(_, row)| row.sms_id.is_none())
            .filter_map(|(_, row)| row.reference.clone()),
    );
    if references.is_empty() {
        return Ok(());
    }
    let open = open_messages(connection, &references).await?;
    let mut settlements: BTreeMap<i64, Settlement> = BTreeMap::new();
    for (_, row) in tried.iter_mut().filter(|(_, row)| row.sms_id.is_none()) {
        // The messages of a batch may share the reference of one of them.
        let message = row
            .reference
            .as_ref()
            .and_then(|reference| open.get(reference))
            .filter(|open| row.fits_phone(&open.phone));
        let Some((message, transition)) = message.and_then(|open| Some((open, row.proves(open)?)))
        else {
            continue;
        };
        row.sms_id = Some(message.id);
        let settlement = Settlement {
            id: message.id,
            claim: message.claim,
            provider: row.provider.clone(),
            transition,
        };
        // Proof of acceptance is stronger than a rejection of what may have been another attempt.
        let known = settlements.get(&message.id);
        if known.is_none_or(|known| matches!(known.transition, Transition::FoundRejected(_))) {
            settlements.insert(message.id, settlement);
        }
    }
    let settlements: Vec<Settlement> = settlements.into_values().collect();
    let settled = settle::settle_all(connection, &settlements, now).await?;
    let mut changed_meanwhile = HashSet::new();
    for (settlement, settled) in settlements.iter().zip(settled) {
        match settlement.transition {
            _ if settled == Settled::Stale => {
                changed_meanwhile.insert(Some(settlement.id));
            }
            Transition::Sent(_) => applied.sent += 1,
            _ => applied.failed += 1,
        }
    }
    for (_, row) in tried {
        if changed_meanwhile.contains(&row.sms_id) {
            row.sms_id = None;
        }
    }
    Ok(())
}

/// The unknown and failed messages with these references.
async fn open_messages(
    connection: &mut Connection,
    references: &[String],
) -> QueryResult<HashMap<String, OpenSms>> {
    type Row = (i64, i64, Option<i64>, LossyText, Option<LossyText>);
    let (reference, _) = connection.unknown_columns();
    let unknown: Vec<Row> = with_conn!(connection, |conn| sms::table
        .filter(is_unknown())
        .filter(sql::<Nullable<Text>>(reference).eq_any(references))
        .filter(
            sms::last_code
                .is_null()
                .or(sms::last_code.ne(NOT_STORED))
                .assume_not_null()
        )
        .select((
            sms::id,
            sms::claim,
            sms::doubt_claim,
            sms::phone,
            sms::reference
        ))
        .load(conn))?;
    let failed: Vec<Row> = with_conn!(connection, |conn| Prepared(
        sms_failed::table
            .filter(sms_failed::reference.eq_any(references))
            .select((
                sms_failed::id,
                sms_failed::claim,
                None::<i64>.into_sql::<Nullable<BigInt>>(),
                sms_failed::phone,
                sms_failed::reference
            ))
    )
    .load(conn))?;
    let mut open = HashMap::new();
    for (id, claim, doubt_claim, phone, reference) in unknown.into_iter().chain(failed) {
        let reference = reference.map(String::from).unwrap_or_default();
        open.entry(reference).or_insert(OpenSms {
            id,
            claim,
            phone: phone.text,
            is_only_doubt: doubt_claim.is_some(),
        });
    }
    Ok(open)
}

/// Stores new receipts without a message, and tries the others again later or deletes them. Returns how many were not
/// known.
async fn keep_unmatched(
    connection: &mut Connection,
    unmatched: Vec<Tried>,
    keep: Duration,
    now: Timestamp,
) -> QueryResult<u64> {
    let mut new = Vec::new();
    let mut expired = Vec::new();
    // Those that came together are due together again.
    let mut due_again: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (id, row) in unmatched {
        let due = row.next_due(keep, now).as_millis();
        match id {
            None => new.push(row),
            Some(id) if due <= now.as_millis() => expired.push(id),
            Some(id) if row.due_at != Some(due) => due_again.entry(due).or_default().push(id),
            Some(_) => {}
        }
    }
    // In one order in all processes, so that two do not wait for each other.
    new.sort_by(|row, other| row.message_key.cmp(&other.message_key));
    let added = insert_new!(connection, receipt::table, &new)?;
    for (due, ids) in due_again {
        with_conn!(connection, |conn| update(
            receipt::table.filter(receipt::id.eq_any(&ids))
        )
        .set(receipt::due_at.eq(due))
        .execute(conn))?;
    }
    delete_receipts(connection, &expired).await?;
    Ok(added as u64)
}

async fn delete_receipts(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    if !ids.is_empty() {
        with_conn!(connection, |conn| delete(
            receipt::table.filter(receipt::id.eq_any(ids))
        )
        .execute(conn))?;
    }
    Ok(())
}

/// Stores what all receipts of these messages say together. Returns how many of the new ones changed anything, and those
/// whose message was claimed again meanwhile, so that it is not sent yet.
async fn update_deliveries(
    connection: &mut Connection,
    matched: Vec<Tried>,
    now: Timestamp,
) -> QueryResult<(u64, Vec<Tried>)> {
    let ids: BTreeSet<i64> = matched.iter().filter_map(|(_, row)| row.sms_id).collect();
    if ids.is_empty() {
        return Ok((0, Vec::new()));
    }
    let ids = in_list(ids);
    let rows: Vec<DeliveryRow> = load_locked!(
        connection,
        prepared sms_sent::table
            .filter(sms_sent::id.eq_any(&ids))
            .order(sms_sent::id)
            .select(DeliveryRow::as_select())
    )?;
    let known: Vec<(i64, ReceiptRow)> = with_conn!(connection, |conn| Prepared(
        receipt::table
            .filter(receipt::sms_id.eq_any(&ids))
            .order(receipt::id)
            .select((receipt::id, ReceiptRow::as_select()))
    )
    .load(conn))?;
    let mut stored: Vec<i64> = matched.iter().filter_map(|(id, _)| *id).collect();
    let (mut known, mut matched) = (by_message(with_ids(known)), by_message(matched));
    let mut new = 0;
    let (mut changes, mut kept, mut opted_out) = (Vec::new(), Vec::new(), BTreeMap::new());
    for row in rows {
        let arrived = matched.remove(&row.id).unwrap_or_default();
        let mut earlier: Vec<ReceiptRow> = known
            .remove(&row.id)
            .unwrap_or_default()
            .into_iter()
            .map(|(_, receipt)| receipt)
            .collect();
        let have_rows = !earlier.is_empty() || arrived.iter().any(|(_, one)| one.part != 0);
        if earlier.is_empty() {
            earlier.extend(row.receipt());
            kept.extend(earlier.iter().filter(|_| have_rows).cloned());
        }
        let segments = row.segments.and_then(|count| u16::try_from(count).ok());
        let mut reported: Vec<Reported> = earlier.iter().map(ReceiptRow::reported).collect();
        let mut found = row.delivery();
        for (id, receipt) in arrived {
            if have_rows && earlier.iter().any(|one| one.is_same(&receipt)) {
                continue;
            }
            reported.push(receipt.reported());
            let mut next = delivery(&reported, segments.unwrap_or(0));
            next.note = found.note.clone().or(next.note);
            let is_change = next.state != DeliveryState::Awaiting && next != found;
            new += u64::from(id.is_none() && (is_change || have_rows));
            if is_change {
                found = next;
            }
            if have_rows {
                earlier.push(receipt.clone());
                kept.push(receipt);
            }
        }
        if found == row.delivery() {
            continue;
        }
        let failure = found.failure.as_ref();
        if failure.is_some_and(|failure| failure.class == Class::OptedOut) {
            let reason = opt_out_reason(&row.provider, now);
            opted_out.insert(row.phone, Some(reason));
        }
        changes.push(DeliveryChange::new(row.id, found));
    }
    let mut early = Vec::new();
    for (id, mut receipt) in matched.into_values().flatten() {
        if receipt.state() == ReceiptState::Rejected {
            // Its message failed with it, and may turn out to be sent.
            new += u64::from(id.is_none());
            kept.push(receipt);
        } else {
            stored.retain(|stored| Some(*stored) != id);
            receipt.sms_id = None;
            early.push((id, receipt));
        }
    }
    for receipt in &mut kept {
        receipt.due_at = None;
    }
    delete_receipts(connection, &stored).await?;
    insert_new!(connection, receipt::table, &kept)?;
    if !changes.is_empty() {
        let changes = in_list(changes);
        with_conn!(connection, |conn| Prepared(UpdateDeliveries(&changes))
            .execute(conn))?;
    }
    let opted_out: Vec<_> = opted_out.into_iter().collect();
    if !opted_out.is_empty() {
        suppression::insert(connection, &opted_out, now).await?;
    }
    Ok((new, early))
}

fn by_message(receipts: Vec<Tried>) -> BTreeMap<i64, Vec<Tried>> {
    let mut messages: BTreeMap<i64, Vec<Tried>> = BTreeMap::new();
    for (id, row) in receipts {
        let message = row.sms_id.unwrap_or_default();
        messages.entry(message).or_default().push((id, row));
    }
    messages
}
