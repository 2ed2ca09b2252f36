//! Delivery receipts: their application to sent and unknown messages, and the inbox of those that are applied later.
//!
//! A receipt is applied when it arrives. What its message has become is in the row of `sms_sent`, so it needs no row of
//! its own, except in table `receipt`:
//! - while it has no message: it may have come before the response to its message, and is tried again;
//! - if it is about a part of its message, or its message has others that are: the rows of a message are then all that
//!   is known about it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use diesel::dsl::min;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::{delete, update};
use serde_json::{Value, json};
use smsq_lifecycle::delivery::{Delivery, DeliveryState, delivery};
use smsq_lifecycle::transition::{NOT_STORED, only_doubt, opt_out_reason};
use smsq_lifecycle::{AttemptOutcome, Settled, Settlement, Transition};
use smsq_message::event::Subscriptions;
use smsq_message::phone::may_be_written_as;
use smsq_message::receipt::{Receipt, ReceiptPart, ReceiptState};
use smsq_message::sms::{Acceptance, Class, Failure, State, Timestamp};
use smsq_process::boxed;

use super::awaiting::is_unknown;
use crate::ReceiptStore;
use crate::connection::prelude::*;
use crate::connection::{
    Connection, Dialect, NewRows, QueryResult, in_dialect, in_list, statement_in_dialect,
    transaction,
};
use crate::error::StoreError;
use crate::events::outbox;
use crate::queue::claim::id_in_reference;
use crate::queue::results::attempts::FailedAttempt;
use crate::queue::results::settle::{self, ClaimedRows};
use crate::recipients::dead::{self, DeadNumber, DeadNumbers};
use crate::recipients::suppression;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{attempt, receipt, sms, sms_failed, sms_sent};

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

/// What all receipts of a sent message say, and its assignment. The text of a message that may be fixed is kept.
const DELIVERY: [(&str, &str); 7] = [
    ("id", "BIGINT"),
    ("state", "VARCHAR(16)"),
    ("class", "VARCHAR(255)"),
    ("code", "TEXT"),
    ("reason", "TEXT"),
    ("at", "BIGINT"),
    ("note", "TEXT"),
];
const SET_DELIVERY: &str = "delivery_state = v.state, delivery_class = v.class, delivery_code = v.code, \
    delivery_reason = v.reason, delivery_at = v.at, delivery_note = v.note, \
    content = CASE WHEN v.state IN ('undelivered', 'expired') THEN content END, \
    params = CASE WHEN v.state IN ('undelivered', 'expired') THEN params END";

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
    /// Receipts that show an attempt to be accepted which the provider had answered as not accepted.
    pub contradictions: u64,
}

impl std::ops::AddAssign for ReceiptsApplied {
    fn add_assign(&mut self, other: Self) {
        self.receipts += other.receipts;
        self.new += other.new;
        self.matched += other.matched;
        self.sent += other.sent;
        self.failed += other.failed;
        self.contradictions += other.contradictions;
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
    is_dead_number: bool,
}

/// A receipt that is tried.
#[derive(Clone, Debug)]
struct Tried {
    /// That of its row, if it has one.
    id: Option<i64>,
    provider: String,
    receipt: Receipt,
    received_at: Timestamp,
    /// When it is tried next without a message; `None`: it is applied.
    due_at: Option<Timestamp>,
    sms_id: Option<i64>,
}

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

impl Tried {
    fn new(provider: &str, receipt: &Receipt, now: Timestamp) -> Self {
        Self {
            id: None,
            provider: provider.to_owned(),
            receipt: Receipt { at: receipt.at.or(Some(now)), ..receipt.clone() },
            received_at: now,
            due_at: Some(now.plus(FIRST_AGE)),
            sms_id: None,
        }
    }

    /// What tells the receipts of a provider apart. It has our reference, because some providers use their ids again.
    fn key(&self) -> (String, ReceiptState, i32) {
        let receipt = &self.receipt;
        let names = [&receipt.reference, &receipt.message_id, &receipt.phone];
        let names = names.map(|name| name.as_deref().unwrap_or_default());
        let part = receipt.part.map_or(0, |part| match part.number {
            0 => PART_WITH_ID,
            number => number.into(),
        });
        let key = names.join(" ").chars().take(MAX_KEY).collect();
        (key, receipt.state, part)
    }

    /// Whether the message may have this phone. Only a number that is certainly another one does not fit, which tells
    /// the messages of a batch apart that share an id or the reference of one of them.
    fn fits_phone(&self, phone: &str) -> bool {
        let written = self.receipt.phone.as_ref();
        written.is_none_or(|written| may_be_written_as(phone, written))
    }

    /// Whether it says that the number does not exist.
    fn is_dead_number(&self) -> bool {
        let failure = self.receipt.failure.as_ref();
        failure.is_some_and(|failure| failure.is_dead_number)
    }

    /// When it is tried next, without a message.
    fn next_due(&self, keep: Duration, now: Timestamp) -> Timestamp {
        let age = now.since(self.received_at);
        let mut next = FIRST_AGE;
        while next <= age {
            next *= NEXT_AGE;
        }
        self.received_at.plus(next.min(keep))
    }

    /// What it proves about the message of an attempt.
    fn proves(&self, proof: &Proof) -> Option<Transition> {
        match self.receipt.state {
            ReceiptState::Rejected if proof.attempt == ProvenAttempt::Only => {
                let fallback = || Failure::new(Class::Recipient, "rejected before it was sent");
                let failure = self.receipt.failure.clone().unwrap_or_else(fallback);
                Some(Transition::FoundRejected(failure))
            }
            ReceiptState::Rejected | ReceiptState::Unlisted => None,
            _ => Some(Transition::Sent(Acceptance {
                message_id: self.receipt.message_id.clone(),
                awaits_receipt: true,
                ..Acceptance::default()
            })),
        }
    }
}

impl From<Tried> for ReceiptRow {
    fn from(tried: Tried) -> Self {
        let (message_key, state, part) = tried.key();
        let is_dead_number = tried.is_dead_number();
        let receipt = tried.receipt;
        let (class, code, reason) = columns(receipt.failure);
        Self {
            is_dead_number,
            provider: tried.provider,
            message_key,
            state: state.to_string(),
            part,
            parts: receipt.part.map_or(0, |part| part.total.into()),
            reference: receipt.reference,
            message_id: receipt.message_id,
            phone: receipt.phone,
            class,
            code,
            reason,
            at: receipt.at.map(Timestamp::as_millis),
            received_at: tried.received_at.as_millis(),
            due_at: tried.due_at.map(Timestamp::as_millis),
            sms_id: tried.sms_id,
        }
    }
}

impl Tried {
    fn stored(id: i64, row: ReceiptRow) -> Self {
        let number = u16::try_from(row.part.max(0)).unwrap_or(0);
        let total = u16::try_from(row.parts).unwrap_or(0);
        Self {
            id: Some(id),
            provider: row.provider,
            receipt: Receipt {
                reference: row.reference,
                message_id: row.message_id,
                phone: row.phone,
                state: row.state.parse().unwrap_or(ReceiptState::Unlisted),
                failure: failure(row.class, row.code, row.reason)
                    .map(|failure| Failure { is_dead_number: row.is_dead_number, ..failure }),
                at: row.at.or(Some(row.received_at)).map(Timestamp::from_millis),
                part: (row.part != 0).then_some(ReceiptPart { number, total }),
            },
            received_at: Timestamp::from_millis(row.received_at),
            due_at: row.due_at.map(Timestamp::from_millis),
            sms_id: row.sms_id,
        }
    }
}

/// The columns of a failure: class, code and reason.
type ReasonColumns = (Option<String>, Option<String>, Option<String>);

fn columns(failure: Option<Failure>) -> ReasonColumns {
    failure.map_or((None, None, None), |failure| {
        let class = failure.class.to_string();
        (Some(class), failure.code, Some(failure.reason))
    })
}

fn failure(class: Option<String>, code: Option<String>, reason: Option<String>) -> Option<Failure> {
    Some(Failure {
        class: class?.parse().unwrap_or(Class::Unknown),
        code,
        ..Failure::new(Class::Unknown, reason.unwrap_or_default())
    })
}

impl DeliveryRow {
    fn delivery(&self) -> Delivery {
        let word = self.delivery_state.as_deref();
        let state = DeliveryState::ALL.into_iter().find(|state| Some(state.as_str()) == word);
        Delivery {
            state: state.unwrap_or_default(),
            failure: failure(
                self.delivery_class.clone(),
                self.delivery_code.clone(),
                self.delivery_reason.clone(),
            ),
            at: self.delivery_at,
            note: self.delivery_note.clone(),
        }
    }

    /// The receipt that decided, if none of the message has a row of its own. A wait that ended without a receipt has
    /// no time.
    fn receipt(&self) -> Option<Tried> {
        let delivery = self.delivery();
        let at = delivery.at?;
        let receipt = Receipt {
            reference: self.reference.clone(),
            message_id: self.message_id.clone(),
            phone: Some(self.phone.clone()),
            state: match delivery.state {
                DeliveryState::Awaiting => return None,
                DeliveryState::Delivered => ReceiptState::Delivered,
                DeliveryState::Undelivered => ReceiptState::Undelivered,
                DeliveryState::Expired => ReceiptState::Expired,
                DeliveryState::NoReport => ReceiptState::NoReport,
            },
            failure: delivery.failure,
            at: Some(at),
            part: None,
        };
        Some(Tried { sms_id: Some(self.id), ..Tried::new(&self.provider, &receipt, at) })
    }
}

impl ReceiptStore<'_> {
    /// Applies receipts of a provider, and stores those that are needed later. Repeated receipts change nothing.
    #[boxed]
    pub async fn add(
        &self,
        provider: &str,
        receipts: &[Receipt],
        now: Timestamp,
    ) -> Result<ReceiptsApplied, StoreError> {
        let mut known = HashSet::new();
        let new: Vec<Tried> = receipts
            .iter()
            .map(|receipt| Tried::new(provider, receipt, now))
            .filter(|tried| known.insert(tried.key()))
            .collect();
        let (mut applied, subscriptions) = (ReceiptsApplied::default(), &self.subscriptions);
        for new in new.chunks(BATCH.into()) {
            applied += transaction!(self, |connection| apply(
                connection,
                new.to_vec(),
                Duration::MAX,
                subscriptions,
                now
            ))?;
        }
        Ok(applied)
    }

    /// Tries the next due receipts without a message again, in one transaction. Those that still have none are tried
    /// again later, and deleted after `keep`.
    #[boxed]
    pub async fn apply(
        &self,
        keep: Duration,
        now: Timestamp,
    ) -> Result<ReceiptsApplied, StoreError> {
        let subscriptions = &self.subscriptions;
        transaction!(self, |connection| async {
            let due: Vec<(i64, ReceiptRow)> = receipt::table
                .filter(receipt::due_at.le(now))
                .order((receipt::due_at, receipt::id))
                .limit(BATCH.into())
                .select((receipt::id, ReceiptRow::as_select()))
                .locked()
                .load(connection)
                .await?;
            let tried = due.into_iter().map(|(id, row)| Tried::stored(id, row)).collect();
            apply(connection, tried, keep, subscriptions, now).await
        })
    }

    /// When the next receipt without a message is tried again.
    #[boxed]
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read_first(
            receipt::table.filter(receipt::due_at.is_not_null()).select(min(receipt::due_at)),
        )
        .await
    }

    /// The number of receipts without a message.
    #[boxed]
    pub async fn count_unmatched(&self) -> Result<u64, StoreError> {
        let count: i64 =
            self.read_one(receipt::table.filter(receipt::due_at.is_not_null()).count()).await?;
        Ok(count.unsigned_abs())
    }
}

/// Adds the stored receipts without a message that may have the same one: of two that contradict each other, the first
/// that came counts.
async fn with_earlier(
    connection: &mut Connection,
    mut tried: Vec<Tried>,
) -> QueryResult<Vec<Tried>> {
    let mut earlier: BTreeMap<i64, ReceiptRow> = BTreeMap::new();
    /// A query for each name, because SQLite uses no index with a condition for an `OR`.
    macro_rules! find_by {
        ($name:ident) => {
            let names = tried.iter().map(|tried| tried.receipt.$name.clone());
            let names = in_list(names.flatten());
            let found: Vec<(i64, ReceiptRow)> = receipt::table
                .filter(receipt::due_at.is_not_null())
                .filter(receipt::$name.eq_any(&names).assume_not_null())
                .order(receipt::id)
                .select((receipt::id, ReceiptRow::as_select()))
                .kept()
                .locked()
                .load(connection)
                .await?;
            earlier.extend(found);
        };
    }
    find_by!(reference);
    find_by!(message_id);
    earlier.retain(|id, _| tried.iter().all(|tried| tried.id != Some(*id)));
    tried.extend(earlier.into_iter().map(|(id, row)| Tried::stored(id, row)));
    tried.sort_by_key(|tried| tried.id.unwrap_or(i64::MAX));
    Ok(tried)
}

/// Applies receipts in the order in which they came.
async fn apply(
    connection: &mut Connection,
    tried: Vec<Tried>,
    keep: Duration,
    subscriptions: &Subscriptions,
    now: Timestamp,
) -> QueryResult<ReceiptsApplied> {
    let mut applied = ReceiptsApplied::default();
    if tried.is_empty() {
        return Ok(applied);
    }
    let mut tried = with_earlier(connection, tried).await?;
    applied.receipts = tried.len() as u64;
    match_sent(connection, &mut tried).await?;
    settle_open(connection, &mut tried, &mut applied, subscriptions, now).await?;
    let (matched, mut unmatched): (Vec<Tried>, Vec<Tried>) =
        tried.into_iter().partition(|tried| tried.sms_id.is_some());
    let (new, early) = update_deliveries(connection, matched, subscriptions, now).await?;
    unmatched.extend(early);
    applied.matched = applied.receipts - unmatched.len() as u64;
    applied.new += new + keep_unmatched(connection, unmatched, keep, now).await?;
    Ok(applied)
}

/// The receipts without a message that have this name of one, and the names.
fn unmatched<'a>(
    tried: &'a mut [Tried],
    name: impl Fn(&Receipt) -> Option<&String> + 'a,
) -> impl Iterator<Item = (&'a mut Tried, String)> {
    let unmatched = tried.iter_mut().filter(|tried| tried.sms_id.is_none());
    unmatched.filter_map(move |tried| {
        let name = name(&tried.receipt)?.clone();
        Some((tried, name))
    })
}

/// Finds the sent messages of receipts: by our reference, else by the provider's id and the phone. A reference names the
/// id of its message, unless another program wrote it.
async fn match_sent(connection: &mut Connection, tried: &mut [Tried]) -> QueryResult<()> {
    /// Looks for the name of the message, with the values of the names for the condition.
    macro_rules! match_by {
        ($name:ident, |$names:ident| $values:expr, |$wanted:ident| $condition:expr) => {{
            let $names = unmatched(tried, |receipt| receipt.$name.as_ref()).map(|(_, name)| name);
            let $wanted = in_list($values);
            if !$wanted.is_empty() {
                let found: Vec<(i64, Option<String>, LossyText, String)> = sms_sent::table
                    .filter($condition)
                    .filter(sms_sent::delivery_state.is_not_null())
                    .select((sms_sent::id, sms_sent::$name, sms_sent::phone, sms_sent::provider))
                    .kept()
                    .load(connection)
                    .await?;
                let mut messages: HashMap<String, Vec<_>> = HashMap::new();
                for (id, name, phone, provider) in found {
                    let messages = messages.entry(name.unwrap_or_default()).or_default();
                    messages.push((id, phone.text, provider));
                }
                for (tried, name) in unmatched(tried, |receipt| receipt.$name.as_ref()) {
                    let named = messages.get(&name).into_iter().flatten();
                    let mut fitting = named.filter(|(_, phone, provider)| {
                        *provider == tried.provider && tried.fits_phone(phone)
                    });
                    // Of several messages with one id, none is certain.
                    tried.sms_id = match (fitting.next(), fitting.next()) {
                        (Some((id, ..)), None) => Some(*id),
                        _ => None,
                    };
                }
            }
        }};
    }
    match_by!(reference, |names| names.filter_map(|name| id_in_reference(&name)), |ids| {
        sms_sent::id.eq_any(&ids).nullable()
    });
    match_by!(reference, |names| names, |names| sms_sent::reference
        .eq_any(&names)
        .and(in_dialect::<Bool, _>(|dialect| dialect.other_reference().to_owned())));
    match_by!(message_id, |names| names, |names| sms_sent::message_id.eq_any(&names));
    Ok(())
}

/// Settles messages by the receipts that prove what became of them.
async fn settle_open(
    connection: &mut Connection,
    tried: &mut [Tried],
    applied: &mut ReceiptsApplied,
    subscriptions: &Subscriptions,
    now: Timestamp,
) -> QueryResult<()> {
    let proofs = Proofs::find(connection, tried).await?;
    let mut settlements: BTreeMap<i64, Settlement> = BTreeMap::new();
    for tried in tried.iter_mut().filter(|tried| tried.sms_id.is_none()) {
        let proof = proofs.of(tried);
        let Some((proof, transition)) = proof.and_then(|proof| Some((proof, tried.proves(proof)?)))
        else {
            continue;
        };
        if proof.attempt == ProvenAttempt::Refused {
            warn_contradiction(tried, proof);
            applied.contradictions += 1;
        }
        tried.sms_id = Some(proof.sms_id);
        let settlement = Settlement {
            id: proof.sms_id,
            claim: proof.claim,
            provider: tried.provider.clone(),
            transition,
        };
        // Proof of acceptance is stronger than a rejection of what may have been another attempt.
        let known = settlements.get(&proof.sms_id);
        if known.is_none_or(|known| matches!(known.transition, Transition::FoundRejected(_))) {
            settlements.insert(proof.sms_id, settlement);
        }
    }
    let settlements: Vec<Settlement> = settlements.into_values().collect();
    let (settled, effects) =
        settle::settle_all(connection, &settlements, ClaimedRows::default(), now).await?;
    effects.store(connection, subscriptions, now).await?;
    let mut changed_meanwhile = HashSet::new();
    for (settlement, settled) in settlements.iter().zip(settled) {
        match settlement.transition {
            _ if settled == Settled::Stale => {
                changed_meanwhile.insert(Some(settlement.id));
            }
            // The acceptance of this claim is counted already.
            Transition::Sent(_) if settled == Settled::Done => {}
            Transition::Sent(_) => applied.sent += 1,
            _ => applied.failed += 1,
        }
    }
    for tried in tried {
        if changed_meanwhile.contains(&tried.sms_id) {
            tried.sms_id = None;
        }
    }
    Ok(())
}

fn warn_contradiction(tried: &Tried, proof: &Proof) {
    tracing::error!(
        provider = tried.provider,
        id = proof.sms_id,
        state = %tried.receipt.state,
        "a receipt is about an attempt that the provider had answered as not accepted: the message may have been sent \
         twice"
    );
}

/// Which attempt of ours a provider speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProvenAttempt {
    /// The only one with its reference.
    Only,
    /// One of several with the same reference: a rejection may be about another one.
    OneOfSeveral,
    /// One that the provider had answered as not accepted.
    Refused,
}

/// An attempt of ours that a provider speaks of. It is made only of an attempt that was made through this provider with
/// this reference: what is known of one provider settles nothing about another.
#[derive(Clone, Debug)]
struct Proof {
    /// `None`: from before the provider was stored.
    provider: Option<String>,
    reference: String,
    sms_id: i64,
    claim: i64,
    phone: String,
    attempt: ProvenAttempt,
}

/// The attempts that receipts speak of.
struct Proofs(HashMap<String, Vec<Proof>>);

impl Proofs {
    /// That of a receipt. The messages of a batch may share the reference of one of them.
    fn of(&self, tried: &Tried) -> Option<&Proof> {
        let reference = tried.receipt.reference.as_ref()?;
        self.0.get(reference)?.iter().find(|proof| {
            let provider = proof.provider.as_ref();
            provider.is_none_or(|provider| *provider == tried.provider)
                && tried.fits_phone(&proof.phone)
        })
    }

    /// Finds the attempts of receipts without a message: of unknown and failed messages, and those that were answered as
    /// not accepted before another one.
    async fn find(connection: &mut Connection, tried: &mut [Tried]) -> QueryResult<Self> {
        let references = unmatched(tried, |receipt| receipt.reference.as_ref());
        let references: Vec<String> = in_list(references.map(|(_, reference)| reference));
        let mut proofs = Self(HashMap::new());
        if references.is_empty() {
            return Ok(proofs);
        }
        let current = open_attempts(connection, &references).await?;
        let refused = refused_attempts(connection, &references).await?;
        for proof in current.into_iter().chain(refused) {
            let known = proofs.0.entry(proof.reference.clone()).or_default();
            known.push(proof);
        }
        Ok(proofs)
    }
}

/// The last attempts of unknown and failed messages with these references.
async fn open_attempts(
    connection: &mut Connection,
    references: &[String],
) -> QueryResult<Vec<Proof>> {
    type Row = (i64, i64, Option<i64>, LossyText, Option<LossyText>, Option<String>);
    let reference =
        in_dialect::<Nullable<Text>, _>(|dialect| dialect.unknown_columns().0.to_owned());
    let unknown: Vec<Row> = sms::table
        .filter(is_unknown())
        .filter(reference.eq_any(references))
        .filter(sms::last_code.is_null().or(sms::last_code.ne(NOT_STORED)).assume_not_null())
        .select((
            sms::id,
            sms::claim,
            sms::doubt_claim,
            sms::phone,
            sms::reference,
            sms::claimed_provider,
        ))
        .load(connection)
        .await?;
    let failed: Vec<Row> = sms_failed::table
        .filter(sms_failed::reference.eq_any(references))
        .select((
            sms_failed::id,
            sms_failed::claim,
            None::<i64>.into_sql::<Nullable<BigInt>>(),
            sms_failed::phone,
            sms_failed::reference,
            sms_failed::claimed_provider,
        ))
        .kept()
        .load(connection)
        .await?;
    let proof = |(sms_id, claim, doubt_claim, phone, reference, provider): Row| Proof {
        provider,
        reference: reference.map(String::from).unwrap_or_default(),
        sms_id,
        claim,
        phone: phone.text,
        attempt: if only_doubt(doubt_claim).is_some() {
            ProvenAttempt::Only
        } else {
            ProvenAttempt::OneOfSeveral
        },
    };
    Ok(unknown.into_iter().chain(failed).map(proof).collect())
}

/// The attempts with these references of messages that have another one now, or that several providers may have, or
/// that the provider did not list.
async fn refused_attempts(
    connection: &mut Connection,
    references: &[String],
) -> QueryResult<Vec<Proof>> {
    let ids = references.iter().filter_map(|reference| id_in_reference(reference));
    let ids = in_list(ids);
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found: Vec<FailedAttempt> = attempt::table
        .filter(attempt::sms_id.eq_any(&ids))
        .select(FailedAttempt::as_select())
        .kept()
        .load(connection)
        .await?;
    found.retain(|attempt| {
        let reference = attempt.reference.as_ref();
        reference.is_some_and(|reference| references.contains(reference))
    });
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let ids = in_list(found.iter().map(|attempt| attempt.sms_id));
    let rows: Vec<(i64, Option<LossyText>, Option<String>)> = sms::table
        .filter(sms::id.eq_any(&ids))
        .filter(sms::state.eq(State::Sending.code()))
        .select((sms::id, sms::reference, sms::claimed_provider))
        .kept()
        .load(connection)
        .await?;
    let text = |reference: Option<LossyText>| reference.map(|reference| reference.text);
    let sending: HashMap<i64, (Option<String>, Option<String>)> = rows
        .into_iter()
        .map(|(id, reference, provider)| (id, (text(reference), provider)))
        .collect();
    // While the provider is asked again with the reference of such an attempt, a receipt may be about either: what the
    // request that runs ends with decides.
    found.retain(|attempt| {
        sending.get(&attempt.sms_id).is_none_or(|(reference, provider)| {
            *reference != attempt.reference || provider.as_ref() != Some(&attempt.provider)
        })
    });
    let mut phones: HashMap<i64, String> = HashMap::new();
    /// A query for each table, because MySQL reads all rows of a view.
    macro_rules! phones_in {
        ($table:ident) => {
            let rows: Vec<(i64, LossyText)> = $table::table
                .filter($table::id.eq_any(&ids))
                .select(($table::id, $table::phone))
                .kept()
                .load(connection)
                .await?;
            phones.extend(rows.into_iter().map(|(id, phone)| (id, phone.text)));
        };
    }
    phones_in!(sms);
    phones_in!(sms_sent);
    phones_in!(sms_failed);
    let proof = |attempt: FailedAttempt| {
        let is_doubt = attempt.outcome == AttemptOutcome::Unknown.as_str();
        Some(Proof {
            reference: attempt.reference?,
            sms_id: attempt.sms_id,
            claim: attempt.claim,
            phone: phones.get(&attempt.sms_id)?.clone(),
            provider: Some(attempt.provider),
            attempt: if is_doubt { ProvenAttempt::OneOfSeveral } else { ProvenAttempt::Refused },
        })
    };
    Ok(found.into_iter().filter_map(proof).collect())
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
    let mut due_again: BTreeMap<Timestamp, Vec<i64>> = BTreeMap::new();
    for tried in unmatched {
        let due = tried.next_due(keep, now);
        match tried.id {
            None => new.push(ReceiptRow::from(tried)),
            Some(id) if due <= now => expired.push(id),
            Some(id) if tried.due_at != Some(due) => due_again.entry(due).or_default().push(id),
            Some(_) => {}
        }
    }
    // In one order in all processes, so that two do not wait for each other.
    new.sort_by(|row, other| row.message_key.cmp(&other.message_key));
    let added = NewRows::of(receipt::table, &new).insert_new(connection).await?;
    for (due, ids) in due_again {
        update(receipt::table.filter(receipt::id.eq_any(&ids)))
            .set(receipt::due_at.eq(due))
            .execute(connection)
            .await?;
    }
    delete_receipts(connection, &expired).await?;
    Ok(added as u64)
}

pub(crate) async fn delete_receipts(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    if !ids.is_empty() {
        delete(receipt::table.filter(receipt::id.eq_any(ids))).execute(connection).await?;
    }
    Ok(())
}

/// What receipts say about the recipients of their messages.
#[derive(Default)]
struct RecipientChanges {
    /// Phones for the suppression list, and why.
    opted_out: BTreeMap<String, Option<String>>,
    dead: DeadNumbers,
    /// Phones that got a message.
    reached: Vec<String>,
}

impl RecipientChanges {
    /// Adds what all receipts of a message say together.
    fn add(&mut self, row: &DeliveryRow, found: &Delivery, receipts: &[Tried], now: Timestamp) {
        let phone = || row.phone.clone();
        let class = found.failure.as_ref().map(|failure| failure.class);
        let failures = receipts.iter().filter_map(|tried| tried.receipt.failure.as_ref());
        let mut dead = failures.filter(|failure| failure.is_dead_number);
        if class == Some(Class::OptedOut) {
            let reason = opt_out_reason(&row.provider, now);
            self.opted_out.insert(phone(), Some(reason));
        } else if found.state == DeliveryState::Undelivered
            && let Some(failure) = dead.next()
        {
            let number = DeadNumber::new(&row.provider, failure);
            self.dead.insert(phone(), number);
        } else if receipts.iter().any(|tried| tried.receipt.state == ReceiptState::Delivered) {
            self.reached.push(phone());
        }
    }

    async fn store(self, connection: &mut Connection, now: Timestamp) -> QueryResult<()> {
        let opted_out: Vec<_> = self.opted_out.into_iter().collect();
        if !opted_out.is_empty() {
            suppression::insert(connection, &opted_out, now).await?;
        }
        dead::record(connection, self.dead, now).await?;
        dead::forget(connection, &self.reached).await
    }
}

/// What receipts change, with the earlier ones of the same messages.
#[derive(Default)]
struct MergedReceipts {
    /// The number of new receipts that changed anything.
    new: u64,
    /// The receipts that are kept with their messages.
    kept: Vec<Tried>,
    /// The deliveries that changed, by the id of their message.
    changes: Vec<(i64, Delivery)>,
    recipients: RecipientChanges,
    /// Those of `changes` that hooks hear of: their state is another one.
    reported: Vec<(i64, Delivery)>,
}

impl MergedReceipts {
    /// Adds the receipts that arrived for a message to its earlier ones.
    fn add(
        &mut self,
        row: &DeliveryRow,
        mut earlier: Vec<Tried>,
        arrived: Vec<Tried>,
        now: Timestamp,
    ) {
        let have_rows =
            !earlier.is_empty() || arrived.iter().any(|tried| tried.receipt.part.is_some());
        if earlier.is_empty() {
            earlier.extend(row.receipt());
            self.kept.extend(earlier.iter().filter(|_| have_rows).cloned());
        }
        let segments = row.segments.and_then(|count| u16::try_from(count).ok());
        let mut found = row.delivery();
        for tried in arrived {
            if have_rows && earlier.iter().any(|other| other.key() == tried.key()) {
                continue;
            }
            let is_new = tried.id.is_none();
            self.kept.extend(have_rows.then(|| tried.clone()));
            earlier.push(tried);
            let receipts = earlier.iter().map(|tried| &tried.receipt);
            let mut next = delivery(receipts, segments.unwrap_or(0));
            next.note = found.note.clone().or(next.note);
            let is_change = next.state != DeliveryState::Awaiting && next != found;
            self.new += u64::from(is_new && (is_change || have_rows));
            if is_change {
                found = next;
            }
        }
        if found == row.delivery() {
            return;
        }
        self.recipients.add(row, &found, &earlier, now);
        if found.state != row.delivery().state {
            self.reported.push((row.id, found.clone()));
        }
        self.changes.push((row.id, found));
    }
}

/// Stores what all receipts of these messages say together. Returns how many of the new ones changed anything, and those
/// whose message was claimed again meanwhile, so that it is not sent yet.
async fn update_deliveries(
    connection: &mut Connection,
    matched: Vec<Tried>,
    subscriptions: &Subscriptions,
    now: Timestamp,
) -> QueryResult<(u64, Vec<Tried>)> {
    let ids: BTreeSet<i64> = matched.iter().filter_map(|tried| tried.sms_id).collect();
    if ids.is_empty() {
        return Ok((0, Vec::new()));
    }
    let ids = in_list(ids);
    let rows: Vec<DeliveryRow> = sms_sent::table
        .filter(sms_sent::id.eq_any(&ids))
        .order(sms_sent::id)
        .select(DeliveryRow::as_select())
        .kept()
        .locked()
        .load(connection)
        .await?;
    let known: Vec<(i64, ReceiptRow)> = receipt::table
        .filter(receipt::sms_id.eq_any(&ids))
        .order(receipt::id)
        .select((receipt::id, ReceiptRow::as_select()))
        .kept()
        .load(connection)
        .await?;
    let mut stored: Vec<i64> = matched.iter().filter_map(|tried| tried.id).collect();
    let mut known = by_message(known.into_iter().map(|(id, row)| Tried::stored(id, row)));
    let mut matched = by_message(matched);
    let mut merged = MergedReceipts::default();
    for row in rows {
        let arrived = matched.remove(&row.id).unwrap_or_default();
        let earlier = known.remove(&row.id).unwrap_or_default();
        merged.add(&row, earlier, arrived, now);
    }
    let MergedReceipts { mut new, mut kept, changes, recipients, reported } = merged;
    let mut early = Vec::new();
    for mut tried in matched.into_values().flatten() {
        if tried.receipt.state == ReceiptState::Rejected {
            // Its message failed with it, and may turn out to be sent.
            new += u64::from(tried.id.is_none());
            kept.push(tried);
        } else {
            stored.retain(|stored| Some(*stored) != tried.id);
            tried.sms_id = None;
            early.push(tried);
        }
    }
    let applied = |tried| Tried { due_at: None, ..tried };
    let kept: Vec<ReceiptRow> = kept.into_iter().map(applied).map(ReceiptRow::from).collect();
    delete_receipts(connection, &stored).await?;
    NewRows::of(receipt::table, &kept).insert_new(connection).await?;
    store_deliveries(connection, changes).await?;
    recipients.store(connection, now).await?;
    outbox::record_deliveries(connection, subscriptions, &reported, now).await?;
    Ok((new, early))
}

/// Stores what became of these messages, in one statement.
async fn store_deliveries(
    connection: &mut Connection,
    deliveries: Vec<(i64, Delivery)>,
) -> QueryResult<()> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let members = |(id, delivery): (i64, Delivery)| {
        let (class, code, reason) = columns(delivery.failure);
        json!({
            "id": id,
            "state": delivery.state.as_str(),
            "class": class,
            "code": code,
            "reason": reason,
            "at": delivery.at.map(Timestamp::as_millis),
            "note": delivery.note,
        })
    };
    let deliveries: Value = deliveries.into_iter().map(members).collect();
    let update = |dialect: Dialect| dialect.update_from_json("sms_sent", SET_DELIVERY, &DELIVERY);
    statement_in_dialect(update, vec![deliveries.to_string()]).execute(connection).await?;
    Ok(())
}

fn by_message(receipts: impl IntoIterator<Item = Tried>) -> BTreeMap<i64, Vec<Tried>> {
    let mut messages: BTreeMap<i64, Vec<Tried>> = BTreeMap::new();
    for tried in receipts {
        let message = tried.sms_id.unwrap_or_default();
        messages.entry(message).or_default().push(tried);
    }
    messages
}
