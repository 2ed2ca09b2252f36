//! Moves messages between the states and the tables: all that move in the same way at once, by their ids. Only claims are
//! written elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use diesel::dsl::{case_when, sql};
use diesel::expression::SqlLiteral;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::{delete, update};
use smsq_lifecycle::delivery::DeliveryState;
use smsq_lifecycle::transition::{
    CertainFailure, Doubt, NOT_STORED, REUSED_REFERENCE, Requeue, RowState, SentCounts,
    number_taken,
};
use smsq_lifecycle::{Settlement, Transition};
use smsq_message::budget;
use smsq_message::sms::{Acceptance, Class, Failure, Reserve, Sms, State, Timestamp};

use super::effects::Effects;
use crate::connection::prelude::*;
use crate::connection::{
    Connection, NewRows, QueryResult, ROWS, all_removed, delete_all, in_list, independent,
};
use crate::limits::spending::{self, Kept, Reserves, RowReserve, Spending};
use crate::tables::column_types::LossyText;
use crate::tables::expressions::in_state;
use crate::tables::schema::{message, sms, sms_failed, sms_key, sms_sent};
use crate::tables::values::SEVERAL;

/// Larger numbers of attempts, which only another program can have written, count as this one.
const MAX_ATTEMPTS: i32 = 2_000_000_000;

/// The columns of a message that a settlement needs.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub(in crate::queue) struct QueuedSms {
    pub(in crate::queue) id: i64,
    pub(in crate::queue) campaign_id: i64,
    import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub(in crate::queue) phone: String,
    content: LossyText,
    params: LossyText,
    segments: Option<i32>,
    dedupe_key: Option<LossyText>,
    state: i32,
    in_doubt: bool,
    attempts: i32,
    claim: i64,
    reference: Option<LossyText>,
    late_accepted: i32,
    late_message_id: Option<LossyText>,
    late_claims: Option<LossyText>,
    late_provider: Option<String>,
    #[diesel(select_expression = sql::<Nullable<Bool>>("sms.late_awaits_receipt"))]
    #[diesel(select_expression_type = SqlLiteral<Nullable<Bool>>)]
    late_awaits_receipt: Option<bool>,
    #[diesel(select_expression = sql::<BigInt>("sms.reserved"))]
    #[diesel(select_expression_type = SqlLiteral<BigInt>)]
    reserved: i64,
    #[diesel(select_expression = sql::<BigInt>("sms.reserved_earlier"))]
    #[diesel(select_expression_type = SqlLiteral<BigInt>)]
    reserved_earlier: i64,
    #[diesel(select_expression = sql::<Nullable<Text>>("sms.reserved_month"))]
    #[diesel(select_expression_type = SqlLiteral<Nullable<Text>>)]
    reserved_month: Option<String>,
    unknown_at: Option<i64>,
    doubt_claim: Option<i64>,
    created_at: i64,
}

/// What each change of a message in the queue changes: its claim, its state, and the number of its late acceptances.
pub(in crate::queue) type Version = (i64, i32, i32);

/// Whether no other transaction has changed the message since.
#[diesel::dsl::auto_type]
pub(in crate::queue) fn is_version(claim: i64, state: i32, late_accepted: i32) -> _ {
    let is_in_state: in_state = in_state(state);
    sms::claim.eq(claim).and(is_in_state).and(sms::late_accepted.eq(late_accepted))
}

/// A row of `sms_sent`.
#[derive(Clone, Debug, Insertable)]
#[diesel(table_name = sms_sent, treat_none_as_default_value = false)]
pub(in crate::queue) struct SentRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: String,
    reference: Option<String>,
    provider: String,
    message_id: Option<String>,
    segments: Option<i32>,
    price: Option<String>,
    attempts: i32,
    accepted: i32,
    accepted_claims: Option<String>,
    claim: i64,
    delivery_state: Option<String>,
    content: Option<String>,
    params: Option<String>,
    /// `None`: it is the phone.
    dedupe_key: Option<String>,
    created_at: i64,
    sent_at: i64,
}

impl QueuedSms {
    /// The row of a message as this worker claimed it, with its text and columns where they are needed. It is the row
    /// still unless its version has changed.
    pub(in crate::queue) fn claimed(sms: &Sms, with_text: bool) -> Self {
        let text = |text: &str| LossyText::from(if with_text { text } else { "" }.to_owned());
        Self {
            id: sms.id,
            campaign_id: sms.campaign_id,
            import_id: sms.stored.import_id,
            phone: sms.phone.clone(),
            content: text(&sms.content),
            params: text(&sms.params),
            segments: sms.stored.segments,
            dedupe_key: sms.stored.dedupe_key.clone().map(LossyText::from),
            state: State::Sending.code(),
            in_doubt: sms.in_doubt,
            attempts: sms.attempts,
            claim: sms.claim,
            reference: Some(sms.reference.clone().into()),
            late_accepted: 0,
            late_message_id: None,
            late_claims: None,
            late_provider: None,
            late_awaits_receipt: None,
            reserved: sms.stored.reserve.as_ref().map_or(0, |taken| taken.amount),
            // What it took for earlier attempts stays taken if it was accepted.
            reserved_earlier: 0,
            reserved_month: sms.stored.reserve.as_ref().map(|taken| taken.month.to_string()),
            unknown_at: None,
            doubt_claim: None,
            created_at: sms.stored.created_at.as_millis(),
        }
    }

    /// What it has taken from budgets.
    pub(in crate::queue) fn reserve(&self) -> Option<RowReserve> {
        let month = self.reserved_month.clone()?;
        Some(RowReserve {
            campaign_id: self.campaign_id,
            claim: self.reserved,
            earlier: self.reserved_earlier,
            month,
        })
    }

    pub(in crate::queue) fn reference(&self) -> Option<String> {
        self.reference.clone().map(String::from)
    }

    pub(in crate::queue) fn version(&self) -> Version {
        (self.claim, self.state, self.late_accepted)
    }

    pub(in crate::queue) fn state(&self) -> RowState {
        RowState {
            claim: self.claim,
            state: self.state,
            in_doubt: self.in_doubt,
            doubt_claim: self.doubt_claim,
            has_doubt_end: self.unknown_at.is_some(),
            late_accepted: self.late_accepted,
            late_acceptance: Acceptance {
                message_id: self.late_message_id.clone().map(String::from),
                awaits_receipt: self.late_awaits_receipt == Some(true),
                ..Acceptance::default()
            },
            late_provider: self.late_provider.clone(),
            late_claims: self.late_claims.clone().map(String::from),
        }
    }

    /// The row of `sms_sent` for this message. Text and columns of one that awaits a receipt are needed if it is not
    /// delivered.
    pub(in crate::queue) fn sent(
        &self,
        provider: &str,
        acceptance: Acceptance,
        counts: SentCounts,
        taken: TakenNow<'_>,
        now: Timestamp,
    ) -> SentMove {
        let spending = taken.spending(self, &acceptance);
        let kept = |text: &LossyText| acceptance.awaits_receipt.then(|| text.text.clone());
        let (content, params) = (kept(&self.content), kept(&self.params));
        let row = SentRow {
            id: self.id,
            campaign_id: self.campaign_id,
            import_id: self.import_id,
            phone: self.phone.clone(),
            reference: self.reference(),
            provider: provider.to_owned(),
            message_id: acceptance.message_id,
            segments: acceptance.segments.or(self.segments),
            price: acceptance.price,
            attempts: self.attempts.saturating_add(counts.attempts),
            accepted: self.late_accepted.saturating_add(counts.accepted),
            accepted_claims: counts.claims,
            claim: self.claim,
            delivery_state: acceptance
                .awaits_receipt
                .then(|| DeliveryState::Awaiting.as_str().to_owned()),
            content,
            params,
            dedupe_key: self
                .dedupe_key
                .as_ref()
                .filter(|key| key.text != self.phone)
                .map(|key| key.text.clone()),
            created_at: self.created_at,
            sent_at: now.as_millis(),
        };
        SentMove { version: self.version(), row, spending }
    }
}

/// What a claim is known to have cost, when its message moves to `sms_sent`.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) enum TakenNow<'a> {
    /// What it took.
    Unchanged,
    /// The provider's price, if it wrote one.
    Priced,
    /// Nothing: an earlier claim of the message was accepted.
    Nothing,
    /// What it took, which was given back, because it had ended as not accepted before.
    Again(Option<&'a Reserve>),
}

impl TakenNow<'_> {
    fn spending(self, row: &QueuedSms, acceptance: &Acceptance) -> Spending {
        if let Self::Again(Some(taken)) = self {
            return Spending::of(row.campaign_id, &taken.month, taken.amount);
        }
        let Some(month) = &row.reserved_month else {
            return Spending::default();
        };
        let more = match (self, &acceptance.price) {
            (Self::Priced, Some(price)) => {
                let is_only = row.doubt_claim == Some(row.claim);
                let taken = match row.reserved {
                    0 if is_only => row.reserved_earlier,
                    taken => taken,
                };
                budget::correction(taken, budget::currency_of(month), price)
            }
            (Self::Nothing, _) => -row.reserved,
            _ => 0,
        };
        Spending::of(row.campaign_id, month, more)
    }
}

/// Column `attempts`, taken as at most [`MAX_ATTEMPTS`], plus `count`.
macro_rules! more_attempts {
    ($count:expr) => {
        case_when(sms::attempts.lt(MAX_ATTEMPTS), sms::attempts + $count)
            .otherwise(MAX_ATTEMPTS + $count)
    };
}

/// The rows of these messages.
pub(in crate::queue) async fn rows(
    connection: &mut Connection,
    ids: &[i64],
) -> QueryResult<Vec<QueuedSms>> {
    let ids = in_list(ids.iter().copied());
    sms::table
        .filter(sms::id.eq_any(&ids))
        .order(sms::id)
        .select(QueuedSms::as_select())
        .kept()
        .load(connection)
        .await
}

/// A message that moves to `sms_sent`.
pub(in crate::queue) struct SentMove {
    version: Version,
    row: SentRow,
    /// How much more it cost than it took from budgets.
    spending: Spending,
}

/// Moves messages to `sms_sent`. If another transaction has changed one since it was read, this one is repeated.
pub(in crate::queue) async fn to_sent(
    connection: &mut Connection,
    mut sent: Vec<SentMove>,
) -> QueryResult<Spending> {
    sent.sort_unstable_by_key(|sent| sent.row.id);
    let mut spending = Spending::default();
    let of = |sent: SentMove| {
        spending.extend(sent.spending);
        (sent.version, sent.row)
    };
    let (versions, rows): (Vec<Version>, Vec<SentRow>) = sent.into_iter().map(of).unzip();
    for (versions, rows) in versions.chunks(ROWS).zip(rows.chunks(ROWS)) {
        let mut ids: BTreeMap<Version, Vec<i64>> = BTreeMap::new();
        for (version, row) in versions.iter().zip(rows) {
            ids.entry(*version).or_default().push(row.id);
        }
        // First what shows that a message has changed: one that is already in `sms_sent` cannot be inserted.
        independent!(
            connection,
            |connection| delete_unchanged(connection, &ids),
            |connection| async { NewRows::of(sms_sent::table, rows).insert(connection).await },
        )?;
    }
    Ok(spending)
}

async fn delete_unchanged(
    connection: &mut Connection,
    messages: &BTreeMap<Version, Vec<i64>>,
) -> QueryResult<()> {
    for (&(claim, state, late_accepted), ids) in messages {
        let list = in_list(ids.iter().copied());
        let deleted = delete(sms::table.filter(sms::id.eq_any(&list)).filter(is_version(
            claim,
            state,
            late_accepted,
        )))
        .kept()
        .execute(connection)
        .await?;
        all_removed(deleted, ids.len())?;
    }
    Ok(())
}

/// The columns that `sms` and `sms_failed` share.
macro_rules! shared_columns {
    ($table:ident) => {
        (
            $table::id,
            $table::campaign_id,
            $table::import_id,
            $table::phone,
            $table::content,
            $table::params,
            $table::segments,
            $table::expires_at,
            $table::claim,
            $table::reference,
            $table::dedupe_key,
            $table::created_at,
            $table::doubt_since,
            $table::claimed_provider,
        )
    };
}

/// The columns of a message of which another attempt may have been accepted. Its first doubt stays, and what an
/// operator approved is over.
macro_rules! doubted {
    () => {
        (
            // Before `in_doubt`, because MySQL evaluates assignments from left to right.
            sms::doubt_since.eq(diesel::dsl::case_when(sms::in_doubt.eq(false), sms::claimed_at)
                .otherwise(sms::doubt_since)),
            sms::in_doubt.eq(true),
            sms::resend_approved.eq(false),
        )
    };
}

/// The columns of a message in doubt whose result the database cannot store: a later answer must not end the doubt.
macro_rules! doubt_without_end {
    () => {
        (sms::unknown_at.eq(None::<i64>), sms::doubt_claim.eq(None::<i64>))
    };
}

/// The columns that a [`Doubt`] changes.
macro_rules! doubt_columns {
    ($doubt:expr, $now:expr) => {
        (
            ($doubt == Doubt::New).then(|| {
                (
                    // Before `in_doubt`, because MySQL evaluates assignments from left to right.
                    sms::doubt_claim.eq(case_when(
                        sms::doubt_claim.eq(REUSED_REFERENCE).assume_not_null(),
                        sms::doubt_claim,
                    )
                    .when(sms::in_doubt.eq(false), sms::claim.nullable())),
                    sms::unknown_at.eq($now.as_millis()),
                    doubted!(),
                )
            }),
            ($doubt == Doubt::Earlier).then(|| sms::doubt_claim.eq(REUSED_REFERENCE)),
        )
    };
}

/// The columns of a message that was certainly never accepted, with `doubt_claim`.
macro_rules! certain {
    ($doubt_claim:expr) => {
        (
            sms::in_doubt.eq(false),
            sms::doubt_since.eq(None::<i64>),
            sms::doubt_claim.eq($doubt_claim),
            sms::unknown_at.eq(None::<i64>),
            sms::resend_approved.eq(false),
        )
    };
}

/// The column of a message whose reference is burnt, see [`Requeue::burns_reference`]. Table `attempt` keeps it.
macro_rules! burnt {
    () => {
        sms::reference.eq(None::<String>)
    };
}

/// Messages that this transaction has locked, with what was reserved for them.
#[derive(Clone, Copy)]
pub(in crate::queue) struct LockedMessages<'a> {
    pub(in crate::queue) ids: &'a [i64],
    pub(in crate::queue) reserves: &'a Reserves,
}

/// How messages become unknown.
#[derive(Clone, Copy)]
pub(in crate::queue) struct UnknownChange<'a> {
    pub(in crate::queue) failure: &'a Failure,
    pub(in crate::queue) doubt: Doubt,
    /// The attempts to add.
    pub(in crate::queue) counted: i32,
}

/// Moves messages to `sms_failed`.
pub(in crate::queue) async fn to_failed(
    connection: &mut Connection,
    messages: LockedMessages<'_>,
    failure: &CertainFailure,
    counted: i32,
    now: Timestamp,
) -> QueryResult<Effects> {
    let LockedMessages { ids, reserves } = messages;
    let mut effects = Effects::default();
    if ids.is_empty() {
        return Ok(effects);
    }
    let failure = failure.failure();
    let taken: Vec<i64> = sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .select(sms_failed::id)
        .load(connection)
        .await?;
    if !taken.is_empty() {
        let failure = number_taken();
        let change = UnknownChange { failure: &failure, doubt: Doubt::New, counted };
        let messages = LockedMessages { ids: &taken, reserves };
        effects = mark_unknown(connection, messages, change, now).await?;
        update(sms::table.filter(sms::id.eq_any(&taken)))
            .set(doubt_without_end!())
            .execute(connection)
            .await?;
    }
    let ids: Vec<i64> = ids.iter().copied().filter(|id| !taken.contains(id)).collect();
    if ids.is_empty() {
        return Ok(effects);
    }
    effects.extend(spending::keep(connection, &ids, reserves, Kept::Nothing).await?);
    sms::table
        .filter(sms::id.eq_any(&ids))
        .select((
            shared_columns!(sms),
            failure.class.as_str().into_sql::<Text>(),
            failure.code.as_deref().into_sql::<Nullable<Text>>(),
            failure.reason.as_str().into_sql::<Text>(),
            more_attempts!(counted),
            now.into_sql::<BigInt>(),
        ))
        .insert_into(sms_failed::table)
        .into_columns((
            shared_columns!(sms_failed),
            sms_failed::class,
            sms_failed::code,
            sms_failed::reason,
            sms_failed::attempts,
            sms_failed::failed_at,
        ))
        .execute(connection)
        .await?;
    delete_all(connection, &ids, |ids| diesel::delete(sms::table.filter(sms::id.eq_any(ids))))
        .await?;
    effects.ended.extend(ids);
    Ok(effects)
}

/// Makes messages unknown that are in doubt. They can be looked up from now on, whenever
/// they were due to be sent.
pub(in crate::queue) async fn mark_unknown(
    connection: &mut Connection,
    messages: LockedMessages<'_>,
    change: UnknownChange<'_>,
    now: Timestamp,
) -> QueryResult<Effects> {
    let LockedMessages { ids, reserves } = messages;
    let UnknownChange { failure, doubt, counted } = change;
    if ids.is_empty() {
        return Ok(Effects::default());
    }
    let list = in_list(ids.iter().copied());
    update(sms::table.filter(sms::id.eq_any(&list)))
        .set((
            sms::state.eq(State::Unknown.code()),
            doubt_columns!(doubt, now),
            sms::due_at.eq(now),
            sms::worker_id.eq(None::<i64>),
            sms::attempts.eq(more_attempts!(counted)),
            sms::last_class.eq(failure.class.as_str()),
            sms::last_code.eq(&failure.code),
            sms::last_reason.eq(&failure.reason),
        ))
        .kept()
        .execute(connection)
        .await?;
    Ok(Effects {
        spending: spending::keep(connection, ids, reserves, Some(doubt).into()).await?,
        ended: ids.to_vec(),
    })
}

/// Puts messages back into the queue.
pub(in crate::queue) async fn to_ready(
    connection: &mut Connection,
    messages: LockedMessages<'_>,
    requeue: &Requeue,
    counted: i32,
    now: Timestamp,
) -> QueryResult<Spending> {
    let LockedMessages { ids, reserves } = messages;
    let list = in_list(ids.iter().copied());
    let failure = requeue.failure.as_ref().map(|failure| {
        (
            sms::last_class.eq(failure.class.as_str()),
            sms::last_code.eq(&failure.code),
            sms::last_reason.eq(&failure.reason),
        )
    });
    let ready = (
        sms::state.eq(State::Ready.code()),
        sms::worker_id.eq(None::<i64>),
        sms::due_at.eq(requeue.due_at),
        sms::attempts.eq(more_attempts!(counted)),
        failure,
    );
    let in_doubt = requeue.doubt.map(|doubt| doubt_columns!(doubt, now));
    let is_certain = requeue.doubt.is_none().then(|| certain!(None::<i64>));
    let burnt = requeue.burns_reference().then(|| burnt!());
    update(sms::table.filter(sms::id.eq_any(&list)))
        .set((ready, in_doubt, is_certain, burnt))
        .kept()
        .execute(connection)
        .await?;
    spending::keep(connection, ids, reserves, requeue.doubt.into()).await
}

/// How unknown messages are put back into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::queue) enum Resend {
    /// In doubt, with the same reference.
    InDoubt,
    /// The provider has none of their attempts.
    Absent,
    /// The provider did not accept the attempt with their reference, which is burnt.
    NotAccepted,
    /// In doubt, with all attempts again: that they may be sent twice is an operator's decision.
    Approved {
        /// `None` changes nothing.
        expires_at: Option<Timestamp>,
        /// Another provider may send them, too, than the one that may have accepted them.
        by_any_provider: bool,
    },
}

/// Puts unknown messages, which this transaction has locked, back into the queue.
pub(in crate::queue) async fn unknown_to_ready(
    connection: &mut Connection,
    ids: &[i64],
    resend: Resend,
    now: Timestamp,
) -> QueryResult<Spending> {
    let approved = match resend {
        Resend::Approved { expires_at, by_any_provider } => Some((
            sms::attempts.eq(0),
            sms::resend_approved.eq(true),
            expires_at.map(|at| sms::expires_at.eq(at)),
            by_any_provider.then(|| sms::claimed_provider.eq(SEVERAL)),
        )),
        Resend::InDoubt | Resend::Absent | Resend::NotAccepted => None,
    };
    let is_certain = matches!(resend, Resend::Absent | Resend::NotAccepted);
    // The provider may list or report the attempt later, as not accepted.
    let reused = (resend == Resend::Absent).then_some(REUSED_REFERENCE);
    update(sms::table.filter(sms::id.eq_any(ids)))
        .set((
            sms::state.eq(State::Ready.code()),
            sms::due_at.eq(now),
            is_certain.then(|| certain!(reused)),
            (resend == Resend::NotAccepted).then(|| burnt!()),
            approved,
        ))
        .execute(connection)
        .await?;
    let reserves = spending::read(connection, ids).await?;
    let kept = if is_certain { Kept::Nothing } else { Kept::All };
    spending::keep(connection, ids, &reserves, kept).await
}

/// Makes a message unknown whose result the database rejects. An accepted one also if it has another claim, unless that
/// is being sent: it must not be sent again. Returns whether it did.
pub(in crate::queue) async fn set_aside(
    connection: &mut Connection,
    settlement: &Settlement,
    counted: i32,
    reason: &str,
) -> QueryResult<bool> {
    let is_sending = sms::state.eq(State::Sending.code());
    let is_accepted = matches!(settlement.transition, Transition::Sent(_)).into_sql::<Bool>();
    let is_own = is_sending.and(sms::claim.eq(settlement.claim));
    let is_late = sms::state.ne(State::Sending.code()).and(is_accepted);
    let changed = update(sms::table.find(settlement.id).filter(is_own.or(is_late)))
        .set((
            // Before `state`, because MySQL evaluates assignments from left to right.
            sms::attempts
                .eq(case_when(is_sending, sms::attempts + counted).otherwise(sms::attempts)),
            sms::state.eq(State::Unknown.code()),
            doubted!(),
            doubt_without_end!(),
            sms::worker_id.eq(None::<i64>),
            sms::last_class.eq(Class::Unknown.as_str()),
            sms::last_code.eq(NOT_STORED),
            sms::last_reason.eq(reason),
        ))
        .execute(connection)
        .await?;
    Ok(changed == 1)
}

/// Moves rows of `sms_failed`, all of which this transaction has locked, back to the queue with their attempts, claim
/// and reference. Those that an operator settled are in doubt again: only that decision made them failed.
pub(in crate::queue) async fn back_to_queue(
    connection: &mut Connection,
    ids: &[i64],
    now: Timestamp,
) -> QueryResult<()> {
    sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .select((
            shared_columns!(sms_failed),
            sms_failed::class.nullable(),
            sms_failed::code,
            sms_failed::reason.nullable(),
            sms_failed::attempts,
            now.into_sql::<BigInt>(),
            sms_failed::class.eq(Class::Settled.as_str()),
            // Its attempts were before.
            sms_failed::failed_at.nullable(),
            sms_failed::failed_at.nullable(),
        ))
        .insert_into(sms::table)
        .into_columns((
            shared_columns!(sms),
            sms::last_class,
            sms::last_code,
            sms::last_reason,
            sms::attempts,
            sms::due_at,
            sms::in_doubt,
            sms::unknown_at,
            sms::claimed_at,
        ))
        .execute(connection)
        .await?;
    delete_all(connection, ids, |ids| {
        diesel::delete(sms_failed::table.filter(sms_failed::id.eq_any(ids)))
    })
    .await
}

/// Removes the dedupe keys of these messages from their campaigns.
pub(in crate::queue) async fn remove_keys_of(
    connection: &mut Connection,
    ids: &[i64],
) -> QueryResult<()> {
    let keys: Vec<(i64, Option<LossyText>)> = sms::table
        .filter(sms::id.eq_any(ids))
        .order(sms::campaign_id)
        .select((sms::campaign_id, sms::dedupe_key))
        .load(connection)
        .await?;
    for of_campaign in keys.chunk_by(|(one, _), (other, _)| one == other) {
        let (campaign_id, _) = of_campaign[0];
        let keys: Vec<&str> = of_campaign
            .iter()
            .filter_map(|(_, key)| key.as_ref().map(|key| key.text.as_str()))
            .collect();
        remove_keys(connection, campaign_id, &keys, RemovedKeys::NotSent).await?;
    }
    Ok(())
}

/// Which of the named dedupe keys are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovedKeys {
    /// All but those with `is_sent`.
    NotSent,
    /// Those of sent messages. One with `is_sent` is kept if another message has it.
    OfSent,
    /// Only those that no message has.
    Unused,
    All,
}

/// Removes dedupe keys from a campaign; returns how many.
pub(crate) async fn remove_keys(
    connection: &mut Connection,
    campaign_id: i64,
    keys: &[&str],
    which: RemovedKeys,
) -> QueryResult<usize> {
    let mut locked: Vec<(String, bool)> = sms_key::table
        .filter(sms_key::campaign_id.eq(campaign_id))
        .filter(sms_key::dedupe_key.eq_any(keys))
        .order(sms_key::dedupe_key)
        .select((sms_key::dedupe_key, sms_key::is_sent))
        .locked()
        .load(connection)
        .await?;
    match which {
        RemovedKeys::All => {}
        RemovedKeys::NotSent => locked.retain(|(_, is_sent)| !is_sent),
        RemovedKeys::OfSent | RemovedKeys::Unused => {
            let may_be_used: Vec<&str> = locked
                .iter()
                .filter(|(_, is_sent)| *is_sent || which == RemovedKeys::Unused)
                .map(|(key, _)| key.as_str())
                .collect();
            let used = used_keys(connection, campaign_id, &may_be_used).await?;
            locked.retain(|(key, _)| !used.contains(key));
        }
    }
    if !locked.is_empty() {
        let keys = locked.iter().map(|(key, _)| key);
        let removed = delete(
            sms_key::table
                .filter(sms_key::campaign_id.eq(campaign_id))
                .filter(sms_key::dedupe_key.eq_any(keys)),
        )
        .execute(connection)
        .await?;
        all_removed(removed, locked.len())?;
    }
    Ok(locked.len())
}

/// Those of the keys that messages of the campaign have. Reads all its messages, so it is for few keys.
async fn used_keys(
    connection: &mut Connection,
    campaign_id: i64,
    keys: &[&str],
) -> QueryResult<BTreeSet<String>> {
    if keys.is_empty() {
        return Ok(BTreeSet::new());
    }
    let used: Vec<Option<LossyText>> = message::table
        .filter(message::campaign_id.eq(campaign_id))
        .filter(message::dedupe_key.eq_any(keys))
        .filter(message::state.ne("cancelled"))
        .select(message::dedupe_key)
        .load(connection)
        .await?;
    Ok(used.into_iter().flatten().map(String::from).collect())
}

/// Adds dedupe keys to a campaign; returns how many it did not have.
pub(crate) async fn add_keys(
    connection: &mut Connection,
    campaign_id: i64,
    keys: &[String],
) -> QueryResult<usize> {
    let rows: Vec<_> = keys
        .iter()
        .map(|key| (sms_key::campaign_id.eq(campaign_id), sms_key::dedupe_key.eq(key)))
        .collect();
    NewRows::of(sms_key::table, &rows).insert_new(connection).await
}

/// Gives a cancelled message that was or may have been sent the dedupe key that it lost. Others kept theirs.
pub(in crate::queue) async fn take_key_of_cancelled(
    connection: &mut Connection,
    campaign_id: i64,
    class: &str,
    key: Option<LossyText>,
) -> QueryResult<()> {
    match key {
        Some(key) if class == Class::Cancelled.as_str() => {
            take_key(connection, campaign_id, key.text).await
        }
        _ => Ok(()),
    }
}

/// Adds the dedupe key of a sent message to its campaign, with `is_sent`. If a message was imported with the same key, its
/// cancellation does not free it: that would allow a third one.
pub(in crate::queue) async fn take_key(
    connection: &mut Connection,
    campaign_id: i64,
    key: String,
) -> QueryResult<()> {
    add_keys(connection, campaign_id, std::slice::from_ref(&key)).await?;
    update(sms_key::table.find((campaign_id, &key)))
        .set(sms_key::is_sent.eq(true))
        .execute(connection)
        .await?;
    Ok(())
}
