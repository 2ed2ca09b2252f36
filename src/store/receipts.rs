//! Delivery receipts: the inbox of everything that providers report, its application to sent and unknown messages, and
//! which process fetches the receipts of a provider.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::dsl::{max, min, sql};
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::{QueryResult, delete, update};

use super::claim::SEVERAL;
use super::column_types::LossyText;
use super::connection::prelude::*;
use super::connection::{
    Chunk, Connection, Prepared, ROWS, execute_each, in_chunks, in_list, insert_new, load_locked,
    querying, reading, transaction, with_conn, writing,
};
use super::schema::{campaign, receipt, receipt_pull, sms, sms_failed, sms_sent};
use super::{CHUNK, Store, StoreError, settle, suppression};
use crate::phone::may_be_written_as;
use crate::queue::delivery::{Delivery, DeliveryState, Reported, delivery};
use crate::queue::transition::{NOT_STORED, opt_out_reason};
use crate::queue::{Settlement, Transition};
use crate::receipt::{Receipt, ReceiptPart, ReceiptState};
use crate::sms::{Acceptance, Class, Failure, Timestamp};

/// The most receipts that are applied in one transaction. Other writers of a SQLite file wait for it.
const BATCH: i64 = 500;
/// How old a receipt without a message is when it is tried for the second time, and by what each next age is larger:
/// 1 s, 8 s, 64 s, 9 min, 68 min, 9 h, and when it is deleted. Most of those left then are of other programs with the
/// same account, and each try is a write.
const FIRST_AGE: Duration = Duration::from_secs(1);
const NEXT_AGE: u32 = 8;
/// The provider's own words are kept for this long of a receipt without a message.
const KEEP_RAW: Duration = Duration::from_secs(60);
/// The longest `message_key`.
const MAX_KEY: usize = 320;
/// The number in column `part` of a part that is identified by the provider's id.
const PART_WITH_ID: i32 = -1;

/// What one transaction applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiptsApplied {
    /// Receipts that were due; 0: none is left for now.
    pub receipts: u64,
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
        self.matched += other.matched;
        self.sent += other.sent;
        self.failed += other.failed;
    }
}

/// A sent message whose receipt is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
pub struct AwaitingSms {
    pub id: i64,
    #[diesel(deserialize_as = LossyText)]
    pub phone: String,
    pub reference: Option<String>,
    pub message_id: Option<String>,
    pub sent_at: Timestamp,
}

/// A receipt in the inbox.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = receipt)]
struct StoredReceipt {
    id: i64,
    provider: String,
    state: String,
    part: i32,
    parts: i32,
    reference: Option<LossyText>,
    message_id: Option<LossyText>,
    phone: Option<LossyText>,
    class: Option<String>,
    code: Option<LossyText>,
    reason: Option<LossyText>,
    at: Option<Timestamp>,
    received_at: Timestamp,
    sms_id: Option<i64>,
}

/// The lease of a provider's receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullLease {
    /// When the last complete pass began.
    pub pulled_at: Option<Timestamp>,
    /// Where the last pass stopped that was not complete.
    pub position: Option<String>,
}

/// Its holder, its end, and the rest.
type LeaseRow = (i64, Timestamp, Option<Timestamp>, Option<String>);

/// Selects the unknown messages that a provider may have.
#[derive(Clone, Copy, Debug)]
pub struct TriedAt<'a> {
    pub provider: &'a str,
    /// Whether it may be that of campaigns that name none.
    pub is_default: bool,
}

#[derive(Insertable)]
#[diesel(table_name = receipt)]
struct NewReceipt<'a> {
    provider: &'a str,
    message_key: String,
    state: &'static str,
    part: i32,
    parts: i32,
    reference: Option<&'a str>,
    message_id: Option<&'a str>,
    phone: Option<&'a str>,
    class: Option<&'static str>,
    code: Option<&'a str>,
    reason: Option<&'a str>,
    at: Option<i64>,
    raw: &'a str,
    received_at: i64,
    due_at: i64,
}

/// What a row of `sms_sent` says about its delivery.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct DeliveryRow {
    id: i64,
    #[diesel(deserialize_as = LossyText)]
    phone: String,
    provider: String,
    segments: Option<i32>,
    delivery_state: Option<String>,
    delivery_class: Option<String>,
    delivery_code: Option<LossyText>,
    delivery_reason: Option<LossyText>,
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

impl<'a> NewReceipt<'a> {
    fn new(provider: &'a str, receipt: &'a Receipt, now: Timestamp) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        // With our reference, because some providers use their ids again.
        let key = [&receipt.reference, &receipt.message_id, &receipt.phone].map(text);
        let part = receipt.part;
        let failure = receipt.failure.as_ref();
        Self {
            provider,
            message_key: key.join(" ").chars().take(MAX_KEY).collect(),
            state: receipt.state.as_str(),
            part: part.map_or(0, |part| match part.number {
                0 => PART_WITH_ID,
                number => number.into(),
            }),
            parts: part.map_or(0, |part| part.total.into()),
            reference: receipt.reference.as_deref(),
            message_id: receipt.message_id.as_deref(),
            phone: receipt.phone.as_deref(),
            class: failure.map(|failure| failure.class.as_str()),
            code: failure.and_then(|failure| failure.code.as_deref()),
            reason: failure.map(|failure| failure.reason.as_str()),
            at: receipt.at.map(Timestamp::as_millis),
            raw: &receipt.raw,
            received_at: now.as_millis(),
            due_at: now.as_millis(),
        }
    }
}

impl StoredReceipt {
    fn state(&self) -> ReceiptState {
        self.state.parse().unwrap_or(ReceiptState::Unlisted)
    }

    fn failure(&self) -> Option<Failure> {
        Some(Failure {
            class: self.class.as_ref()?.parse().unwrap_or(Class::Unknown),
            code: self.code.clone().map(String::from),
            reason: self.reason.clone().map(String::from).unwrap_or_default(),
        })
    }

    fn reported(&self) -> Reported {
        let number = u16::try_from(self.part.max(0)).unwrap_or(0);
        let total = u16::try_from(self.parts).unwrap_or(0);
        Reported {
            state: self.state(),
            failure: self.failure(),
            at: self.at.unwrap_or(self.received_at),
            part: (self.part != 0).then_some(ReceiptPart { number, total }),
            message_id: self.message_id.clone().map(String::from),
        }
    }

    /// Whether the message may have this phone. Only a number that is certainly another one does not fit, which tells
    /// the messages of a batch apart that share an id or the reference of one of them.
    fn fits_phone(&self, phone: &str) -> bool {
        let written = self.phone.as_ref();
        written.is_none_or(|written| may_be_written_as(phone, &written.text))
    }

    /// How old it is when it is tried next, if it has no message at this age.
    fn next_age(age: Duration) -> Duration {
        let mut next = FIRST_AGE;
        while next <= age {
            next *= NEXT_AGE;
        }
        next
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
                message_id: self.message_id.clone().map(String::from),
                awaits_receipt: true,
                ..Acceptance::default()
            })),
        }
    }
}

impl DeliveryRow {
    fn differs(&self, found: &Delivery) -> bool {
        let failure = found.failure.as_ref();
        let text = |column: &Option<LossyText>| column.clone().map(String::from);
        self.delivery_state.as_deref() != Some(found.state.as_str())
            || self.delivery_at != found.at
            || self.delivery_note != found.note
            || self.delivery_class.as_deref() != failure.map(|failure| failure.class.as_str())
            || text(&self.delivery_code) != failure.and_then(|failure| failure.code.clone())
            || text(&self.delivery_reason) != failure.map(|failure| failure.reason.clone())
    }
}

impl Store {
    /// Stores receipts of a provider in one transaction; returns how many were not known yet.
    pub async fn add_receipts(
        &self,
        provider: &str,
        receipts: &[Receipt],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let rows = receipts.iter();
        let mut rows: Vec<_> = rows
            .map(|one| NewReceipt::new(provider, one, now))
            .collect();
        let mut known = HashSet::new();
        rows.retain(|row| known.insert((row.message_key.clone(), row.state, row.part)));
        // In one order in all processes, so that two do not wait for each other.
        rows.sort_by(|one, other| one.message_key.cmp(&other.message_key));
        let added = transaction!(self, |connection| async {
            let mut added = 0;
            for rows in rows.chunks(ROWS) {
                added += insert_new!(connection, receipt::table, rows)?;
            }
            QueryResult::Ok(added)
        })?;
        Ok(added as u64)
    }

    /// Applies the next due receipts in one transaction. Those without a message are tried again later, and deleted
    /// after `keep`.
    pub async fn apply_receipts(
        &self,
        keep: Duration,
        now: Timestamp,
    ) -> Result<ReceiptsApplied, StoreError> {
        transaction!(self, |connection| apply(connection, keep, now))
    }

    /// When the next receipt without a message is tried again.
    pub async fn next_receipt_due(&self) -> Result<Option<Timestamp>, StoreError> {
        reading!(self, |conn| receipt::table
            .filter(receipt::due_at.is_not_null())
            .select(min(receipt::due_at))
            .first(conn))
    }

    /// The number of receipts without a message that were tried at least once.
    pub async fn unmatched_receipts(&self) -> Result<u64, StoreError> {
        let count: i64 = reading!(self, |conn| receipt::table
            .filter(receipt::due_at.is_not_null())
            .filter(receipt::due_at.gt(receipt::received_at.nullable()))
            .count()
            .get_result(conn))?;
        Ok(count.unsigned_abs())
    }

    /// The providers with messages that await a receipt, in the order of their names.
    pub async fn awaiting_providers(&self) -> Result<Vec<String>, StoreError> {
        let mut providers: Vec<String> = Vec::new();
        loop {
            let after = providers.last().cloned().unwrap_or_default();
            let next: Option<String> = reading!(self, |conn| sms_sent::table
                .filter(is_awaiting())
                .filter(sms_sent::provider.gt(&after))
                .select(min(sms_sent::provider))
                .first(conn))?;
            match next {
                Some(next) => providers.push(next),
                None => return Ok(providers),
            }
        }
    }

    /// Whether a message of this campaign, or of any, awaits a receipt of this provider.
    pub async fn is_awaiting(
        &self,
        provider: &str,
        campaign: Option<i64>,
    ) -> Result<bool, StoreError> {
        let found: Vec<i64> = reading!(self, |conn| {
            let query = sms_sent::table
                .filter(is_awaiting())
                .filter(sms_sent::provider.eq(provider))
                .limit(1)
                .select(sms_sent::id)
                .into_boxed();
            match campaign {
                Some(campaign) => query.filter(sms_sent::campaign_id.eq(campaign)).load(conn),
                None => query.load(conn),
            }
        })?;
        Ok(!found.is_empty())
    }

    /// When the first and the last message were sent that await a receipt, of those sent in this span.
    pub async fn awaiting_span(
        &self,
        provider: &str,
        sent: &RangeInclusive<Timestamp>,
    ) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        /// One query for each end, because each reads only that end of the index.
        macro_rules! end {
            ($end:ident) => {
                reading!(self, |conn| sms_sent::table
                    .filter(is_awaiting())
                    .filter(sms_sent::provider.eq(provider))
                    .filter(sms_sent::sent_at.ge(*sent.start()))
                    .filter(sms_sent::sent_at.le(*sent.end()))
                    .select($end(sms_sent::sent_at))
                    .first(conn))?
            };
        }
        let first: Option<Timestamp> = end!(min);
        let last: Option<Timestamp> = end!(max);
        Ok(first.zip(last))
    }

    /// When the first and the last unknown message of this campaign, or of any, were claimed, of those claimed in this
    /// span that the provider may have: it tried them, or the worker that tried them is gone and their campaign uses it.
    pub async fn unknown_span(
        &self,
        tried: TriedAt<'_>,
        campaign: Option<i64>,
        claimed: &RangeInclusive<Timestamp>,
    ) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        querying!(self, Read, |connection| unknown_ends(
            connection,
            (tried.provider, tried.is_default),
            campaign,
            claimed
        ))
    }

    /// A page of the messages sent in this span that await a receipt, after the one with this instant and id.
    pub async fn awaiting(
        &self,
        provider: &str,
        sent: &RangeInclusive<Timestamp>,
        after: (Timestamp, i64),
        limit: i64,
    ) -> Result<Vec<AwaitingSms>, StoreError> {
        let (after_at, after_id) = after;
        reading!(self, |conn| sms_sent::table
            .filter(is_awaiting())
            .filter(sms_sent::provider.eq(provider))
            .filter(sms_sent::sent_at.ge(after_at.max(*sent.start())))
            .filter(sms_sent::sent_at.le(*sent.end()))
            .filter(sms_sent::sent_at.gt(after_at).or(sms_sent::id.gt(after_id)))
            .order((sms_sent::sent_at, sms_sent::id))
            .limit(limit)
            .select(AwaitingSms::as_select())
            .load(conn))
    }

    /// Ends the wait for receipts of messages that were sent before this instant; returns how many.
    pub async fn end_awaiting(
        &self,
        provider: &str,
        sent_before: Timestamp,
    ) -> Result<u64, StoreError> {
        in_chunks!(self, |connection| async {
            let ids: Vec<i64> = load_locked!(
                connection,
                sms_sent::table
                    .filter(is_awaiting())
                    .filter(sms_sent::provider.eq(provider))
                    .filter(sms_sent::sent_at.lt(sent_before))
                    .order((sms_sent::sent_at, sms_sent::id))
                    .limit(CHUNK)
                    .select(sms_sent::id)
            )?;
            with_conn!(connection, |conn| update(
                sms_sent::table.filter(sms_sent::id.eq_any(&ids))
            )
            .set((
                sms_sent::delivery_state.eq(DeliveryState::NoReport.as_str()),
                sms_sent::content.eq(None::<String>),
                sms_sent::params.eq(None::<String>),
            ))
            .execute(conn))?;
            QueryResult::Ok(Chunk::all(ids.len()))
        })
    }

    /// Leases the receipts of a provider to one process until an instant, or renews its lease. `None` if another process
    /// has them. `position`: where its pass would stop now.
    pub async fn lease_receipts(
        &self,
        provider: &str,
        holder: i64,
        now: Timestamp,
        until: Timestamp,
        position: Option<&str>,
    ) -> Result<Option<PullLease>, StoreError> {
        transaction!(self, |connection| async {
            let row = [(
                receipt_pull::provider.eq(provider),
                receipt_pull::holder.eq(holder),
                receipt_pull::leased_until.eq(0),
            )];
            insert_new!(connection, receipt_pull::table, &row)?;
            let found: Vec<LeaseRow> = load_locked!(
                connection,
                receipt_pull::table.find(provider).select((
                    receipt_pull::holder,
                    receipt_pull::leased_until,
                    receipt_pull::pulled_at,
                    receipt_pull::position,
                ))
            )?;
            let free = found
                .into_iter()
                .find(|(by, until, ..)| *by == holder || *until < now);
            let Some((.., pulled_at, known)) = free else {
                return QueryResult::Ok(None);
            };
            let position = position.map(str::to_owned).or(known);
            with_conn!(connection, |conn| update(
                receipt_pull::table.find(provider)
            )
            .set((
                receipt_pull::holder.eq(holder),
                receipt_pull::leased_until.eq(until),
                receipt_pull::position.eq(&position),
            ))
            .execute(conn))?;
            Ok(Some(PullLease {
                pulled_at,
                position,
            }))
        })
    }

    /// Ends the lease of this process. `pulled_at`: when its pass began, if it was complete; `position`: where it stopped,
    /// if it was not.
    pub async fn release_receipts(
        &self,
        provider: &str,
        holder: i64,
        pulled_at: Option<Timestamp>,
        position: Option<&str>,
    ) -> Result<(), StoreError> {
        let pulled = pulled_at.map(|at| receipt_pull::pulled_at.eq(at.as_millis()));
        let _: usize = writing!(self, |conn| update(
            receipt_pull::table
                .find(provider)
                .filter(receipt_pull::holder.eq(holder))
        )
        .set((
            receipt_pull::leased_until.eq(0),
            receipt_pull::position.eq(position),
            pulled,
        ))
        .execute(conn))?;
        Ok(())
    }
}

/// As a literal, because an index with a condition serves no parameter.
fn is_awaiting() -> diesel::expression::SqlLiteral<Bool> {
    sql::<Bool>("delivery_state = 'awaiting'")
}

async fn apply(
    connection: &mut Connection,
    keep: Duration,
    now: Timestamp,
) -> QueryResult<ReceiptsApplied> {
    let mut due: Vec<StoredReceipt> = load_locked!(
        connection,
        receipt::table
            .filter(receipt::due_at.le(now))
            .order((receipt::due_at, receipt::id))
            .limit(BATCH)
            .select(StoredReceipt::as_select())
    )?;
    let mut applied = ReceiptsApplied {
        receipts: due.len() as u64,
        ..ReceiptsApplied::default()
    };
    if due.is_empty() {
        return Ok(applied);
    }
    match_sent(connection, &mut due).await?;
    settle_open(connection, &mut due, &mut applied, now).await?;
    let (matched, unmatched): (Vec<_>, Vec<_>) = due
        .into_iter()
        .partition(|receipt| receipt.sms_id.is_some());
    applied.matched = matched.len() as u64;
    update_deliveries(connection, &matched, now).await?;
    execute_each!(connection, &matched, |one| update(
        receipt::table.find(one.id)
    )
    .set((
        receipt::sms_id.eq(one.sms_id),
        receipt::due_at.eq(None::<i64>),
    )))?;
    let (kept, expired): (Vec<_>, Vec<_>) = unmatched
        .into_iter()
        .partition(|receipt| receipt.received_at.plus(keep) > now);
    // Those that came together are due together again.
    let mut due_again: BTreeMap<(i64, bool), Vec<i64>> = BTreeMap::new();
    for one in &kept {
        let age = now.since(one.received_at);
        let next = StoredReceipt::next_age(age).min(keep);
        let due = one.received_at.plus(next).as_millis();
        let ids = due_again.entry((due, age >= KEEP_RAW)).or_default();
        ids.push(one.id);
    }
    for ((due, is_old), ids) in due_again {
        let raw = is_old.then_some(receipt::raw.eq(""));
        with_conn!(connection, |conn| update(
            receipt::table.filter(receipt::id.eq_any(&ids))
        )
        .set((receipt::due_at.eq(due), raw))
        .execute(conn))?;
    }
    let expired: Vec<i64> = expired.iter().map(|receipt| receipt.id).collect();
    if !expired.is_empty() {
        with_conn!(connection, |conn| delete(
            receipt::table.filter(receipt::id.eq_any(&expired))
        )
        .execute(conn))?;
    }
    Ok(applied)
}

/// Finds the sent messages of receipts: by our reference, else by the provider's id and the phone.
async fn match_sent(connection: &mut Connection, due: &mut [StoredReceipt]) -> QueryResult<()> {
    type Row = (i64, Option<LossyText>, LossyText, String);
    /// The messages with one of the values of a receipt's field in the column of the same name.
    macro_rules! candidates {
        ($field:ident) => {{
            let wanted = due.iter().filter(|receipt| receipt.sms_id.is_none());
            let wanted = wanted.filter_map(|receipt| Some(receipt.$field.as_ref()?.text.clone()));
            let wanted = in_list(wanted);
            let rows: Vec<Row> = if wanted.is_empty() {
                Vec::new()
            } else {
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
                .load(conn))?
            };
            let mut found: HashMap<String, Vec<(i64, String, String)>> = HashMap::new();
            for (id, name, phone, provider) in rows {
                let name = name.map(String::from).unwrap_or_default();
                found
                    .entry(name)
                    .or_default()
                    .push((id, phone.text, provider));
            }
            for receipt in due.iter_mut().filter(|receipt| receipt.sms_id.is_none()) {
                let name = receipt.$field.as_ref().map(|name| name.text.as_str());
                let named = name.and_then(|name| found.get(name)).into_iter().flatten();
                let mut fitting = named.filter(|(_, phone, provider)| {
                    *provider == receipt.provider && receipt.fits_phone(phone)
                });
                // Of several messages with one id, none is certain.
                if let (Some((id, ..)), None) = (fitting.next(), fitting.next()) {
                    receipt.sms_id = Some(*id);
                }
            }
        }};
    }
    candidates!(reference);
    candidates!(message_id);
    Ok(())
}

/// Settles messages that are unknown or have failed by the receipts that prove what became of them.
async fn settle_open(
    connection: &mut Connection,
    due: &mut [StoredReceipt],
    applied: &mut ReceiptsApplied,
    now: Timestamp,
) -> QueryResult<()> {
    let left = due.iter().filter(|receipt| receipt.sms_id.is_none());
    let wanted = in_list(left.filter_map(|left| Some(left.reference.as_ref()?.text.clone())));
    if wanted.is_empty() {
        return Ok(());
    }
    let open = open_messages(connection, &wanted).await?;
    let mut settlements: BTreeMap<i64, Settlement> = BTreeMap::new();
    let mut proofs: Vec<(usize, i64)> = Vec::new();
    for (index, receipt) in due.iter().enumerate() {
        let reference = receipt
            .reference
            .as_ref()
            .filter(|_| receipt.sms_id.is_none());
        let found = reference.and_then(|reference| open.get(&reference.text));
        // The messages of a batch may share the reference of one of them.
        let found = found.filter(|open| receipt.fits_phone(&open.phone));
        let Some((open, transition)) = found.and_then(|open| Some((open, receipt.proves(open)?)))
        else {
            continue;
        };
        let settlement = Settlement {
            id: open.id,
            claim: open.claim,
            provider: receipt.provider.clone(),
            transition,
        };
        // Proof of acceptance is stronger than a rejection of what may have been another attempt.
        match settlements.entry(open.id) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(settlement);
            }
            std::collections::btree_map::Entry::Occupied(mut known) => {
                if matches!(known.get().transition, Transition::FoundRejected(_)) {
                    known.insert(settlement);
                }
            }
        }
        proofs.push((index, open.id));
    }
    let settlements: Vec<Settlement> = settlements.into_values().collect();
    settle::settle_all(connection, &settlements, now).await?;
    for settlement in &settlements {
        match settlement.transition {
            Transition::Sent(_) => applied.sent += 1,
            _ => applied.failed += 1,
        }
    }
    for (index, id) in proofs {
        due[index].sms_id = Some(id);
    }
    Ok(())
}

/// When the first and the last unknown message were claimed, of those claimed in this span that may have been sent
/// through the provider with this name, which may be the default of campaigns without one.
async fn unknown_ends(
    connection: &mut Connection,
    (provider, is_default): (&str, bool),
    campaign: Option<i64>,
    claimed: &RangeInclusive<Timestamp>,
) -> QueryResult<Option<(Timestamp, Timestamp)>> {
    let (_, column) = connection.unknown_columns();
    let claimed_at = || sql::<Nullable<BigInt>>(column);
    /// Two queries, because each reads only one end of the index.
    macro_rules! end {
        ($order:ident) => {{
            let found: Vec<Option<Timestamp>> = with_conn!(connection, |conn| {
                let here = sms::claimed_provider.eq_any([provider, SEVERAL]);
                let is_named = campaign::provider.eq(provider).assume_not_null();
                let is_default = is_default.into_sql::<Bool>();
                let own = campaign::table
                    .filter(is_named.or(campaign::provider.is_null().and(is_default)))
                    .select(campaign::id);
                let query = sms::table
                    .filter(is_unknown())
                    .filter(claimed_at().ge(*claimed.start()))
                    .filter(claimed_at().le(*claimed.end()))
                    .filter(
                        here.or(sms::claimed_provider
                            .is_null()
                            .and(sms::campaign_id.eq_any(own)))
                            .assume_not_null(),
                    )
                    .order(claimed_at().$order())
                    .limit(1)
                    .select(claimed_at())
                    .into_boxed();
                match campaign {
                    Some(id) => query.filter(sms::campaign_id.eq(id)).load(conn),
                    None => query.load(conn),
                }
            })?;
            found.into_iter().next().flatten()
        }};
    }
    let (first, last) = (end!(asc), end!(desc));
    Ok(first.zip(last))
}

/// As it is written in the indexes of unknown messages.
fn is_unknown() -> diesel::expression::SqlLiteral<Bool> {
    sql::<Bool>("state = 2")
}

/// The unknown and failed messages with these references.
async fn open_messages(
    connection: &mut Connection,
    references: &[String],
) -> QueryResult<HashMap<String, OpenSms>> {
    type Row = (i64, i64, Option<i64>, LossyText, Option<LossyText>);
    let mut open = HashMap::new();
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
    for (id, claim, doubt_claim, phone, reference) in unknown {
        let is_only_doubt = doubt_claim.is_some();
        let reference = reference.map(String::from).unwrap_or_default();
        open.insert(
            reference,
            OpenSms {
                id,
                claim,
                phone: phone.text,
                is_only_doubt,
            },
        );
    }
    let failed: Vec<(i64, i64, LossyText, Option<LossyText>)> =
        with_conn!(connection, |conn| Prepared(
            sms_failed::table
                .filter(sms_failed::reference.eq_any(references))
                .select((
                    sms_failed::id,
                    sms_failed::claim,
                    sms_failed::phone,
                    sms_failed::reference
                ))
        )
        .load(conn))?;
    for (id, claim, phone, reference) in failed {
        let reference = reference.map(String::from).unwrap_or_default();
        open.entry(reference).or_insert(OpenSms {
            id,
            claim,
            phone: phone.text,
            is_only_doubt: false,
        });
    }
    Ok(open)
}

/// Stores what all receipts of these messages say together.
async fn update_deliveries(
    connection: &mut Connection,
    matched: &[StoredReceipt],
    now: Timestamp,
) -> QueryResult<()> {
    let mut ids: Vec<i64> = matched
        .iter()
        .filter_map(|receipt| receipt.sms_id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let ids = in_list(ids);
    if ids.is_empty() {
        return Ok(());
    }
    let rows: Vec<DeliveryRow> = load_locked!(
        connection,
        prepared sms_sent::table
            .filter(sms_sent::id.eq_any(&ids))
            .order(sms_sent::id)
            .select(DeliveryRow::as_select())
    )?;
    let mut known: Vec<StoredReceipt> = with_conn!(connection, |conn| Prepared(
        receipt::table
            .filter(receipt::sms_id.eq_any(&ids))
            .select(StoredReceipt::as_select())
    )
    .load(conn))?;
    known.extend(matched.iter().cloned());
    known.sort_unstable_by_key(|receipt| receipt.id);
    let mut of_message: HashMap<i64, Vec<Reported>> = HashMap::new();
    for receipt in &known {
        let all = of_message.entry(receipt.sms_id.unwrap_or_default());
        all.or_default().push(receipt.reported());
    }
    let mut changes = Vec::new();
    let mut opted_out = BTreeMap::new();
    for row in rows {
        let receipts = of_message.get(&row.id).map_or(&[][..], Vec::as_slice);
        let segments = row.segments.and_then(|count| u16::try_from(count).ok());
        let found = delivery(receipts, segments.unwrap_or(0));
        if found.state == DeliveryState::Awaiting || !row.differs(&found) {
            continue;
        }
        let failure = found.failure.as_ref();
        if failure.is_some_and(|failure| failure.class == Class::OptedOut) {
            let reason = opt_out_reason(&row.provider, now);
            opted_out.insert(row.phone, Some(reason));
        }
        changes.push((row.id, found));
    }
    execute_each!(connection, &changes, |change| {
        let (id, found) = change;
        let failure = found.failure.as_ref();
        update(sms_sent::table.find(*id)).set((
            sms_sent::delivery_state.eq(found.state.as_str()),
            sms_sent::delivery_class.eq(failure.map(|failure| failure.class.as_str())),
            sms_sent::delivery_code.eq(failure.and_then(|failure| failure.code.as_deref())),
            sms_sent::delivery_reason.eq(failure.map(|failure| failure.reason.as_str())),
            sms_sent::delivery_at.eq(found.at.map(Timestamp::as_millis)),
            sms_sent::delivery_note.eq(found.note.as_deref()),
        ))
    })?;
    let done = changes
        .iter()
        .filter(|(_, found)| !found.state.keeps_text());
    let done = in_list(done.map(|(id, _)| *id));
    if !done.is_empty() {
        with_conn!(connection, |conn| Prepared(
            update(sms_sent::table.filter(sms_sent::id.eq_any(&done))).set((
                sms_sent::content.eq(None::<String>),
                sms_sent::params.eq(None::<String>),
            ))
        )
        .execute(conn))?;
    }
    let opted_out: Vec<_> = opted_out.into_iter().collect();
    if !opted_out.is_empty() {
        suppression::insert(connection, &opted_out, now).await?;
    }
    Ok(())
}
