//! How messages move between the tables: many that move the same way at once, always by id.

use diesel::dsl::case_when;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::{QueryResult, delete, update};
use diesel_async::RunQueryDsl;

use super::connection::{
    Connection, Prepared, ROWS, all_removed, in_list, insert_all, insert_new, load_locked,
    with_conn,
};
use super::lossy_text::LossyText;
use super::schema::{sms, sms_failed, sms_key, sms_sent};
use crate::queue::Settlement;
use crate::queue::transition::{RowState, number_taken};
use crate::sms::{Acceptance, Failure, State, Timestamp};

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Integer>, fallback: Nullable<Integer>) -> Nullable<Integer>;
}

/// The largest number of attempts that is counted from: another program may have written any number.
const MAX_ATTEMPTS: i32 = 2_000_000_000;

/// What a settlement needs to know of a message.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) campaign_id: i64,
    import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub(super) phone: String,
    segments: Option<i32>,
    state: i32,
    in_doubt: bool,
    attempts: i32,
    claim: i64,
    reference: Option<LossyText>,
    late_accepted: i32,
    late_message_id: Option<LossyText>,
    late_claims: Option<LossyText>,
    unknown_at: Option<i64>,
    created_at: i64,
}

/// A row of `sms_sent`.
#[derive(Clone, Debug, Insertable)]
#[diesel(table_name = sms_sent)]
pub(super) struct SentRow {
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
    created_at: i64,
    sent_at: i64,
}

/// What a move to `sms_sent` adds to the counts of the row.
#[derive(Default)]
pub(super) struct SentCounts {
    /// Attempts that were not counted yet.
    pub(super) attempts: i32,
    /// Acceptances that the row has not noted.
    pub(super) accepted: i32,
    /// Column `accepted_claims`.
    pub(super) claims: Option<String>,
}

/// A failure as its columns, and how many attempts are counted with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FailureColumns {
    class: &'static str,
    code: Option<String>,
    reason: String,
    attempts: i32,
}

impl Row {
    pub(super) fn state(&self) -> RowState {
        RowState {
            claim: self.claim,
            state: self.state,
            in_doubt: self.in_doubt,
            is_only_doubt: self.unknown_at.is_some(),
            late_accepted: self.late_accepted,
            late_message_id: self.late_message_id.clone().map(String::from),
            late_claims: self.late_claims.clone().map(String::from),
        }
    }

    /// The row of `sms_sent` for this message.
    pub(super) fn sent(
        &self,
        provider: &str,
        acceptance: Acceptance,
        counts: SentCounts,
        now: Timestamp,
    ) -> SentRow {
        SentRow {
            id: self.id,
            campaign_id: self.campaign_id,
            import_id: self.import_id,
            phone: self.phone.clone(),
            reference: self.reference.clone().map(String::from),
            provider: provider.to_owned(),
            message_id: acceptance.message_id,
            segments: acceptance.segments.or(self.segments),
            price: acceptance.price,
            attempts: self.attempts.saturating_add(counts.attempts),
            accepted: self.late_accepted.saturating_add(counts.accepted),
            accepted_claims: counts.claims,
            claim: self.claim,
            created_at: self.created_at,
            sent_at: now.as_millis(),
        }
    }
}

impl FailureColumns {
    pub(super) fn of(failure: &Failure, attempts: i32) -> Self {
        Self {
            class: failure.class.as_str(),
            code: failure.code.clone(),
            reason: failure.reason.clone(),
            attempts,
        }
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
pub(super) async fn rows(connection: &mut Connection, ids: &[i64]) -> QueryResult<Vec<Row>> {
    with_conn!(connection, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .order(sms::id)
        .select(Row::as_select())
        .load(conn))
}

pub(super) async fn to_sent(
    connection: &mut Connection,
    mut sent: Vec<SentRow>,
) -> QueryResult<()> {
    sent.sort_unstable_by_key(|row| row.id);
    for rows in sent.chunks(ROWS) {
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        insert_all!(connection, sms_sent::table, rows)?;
        remove(connection, &ids).await?;
    }
    Ok(())
}

/// Deletes rows of `sms`, all of which this transaction has locked.
pub(super) async fn remove(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    let list = in_list(ids);
    let removed = with_conn!(connection, |conn| Prepared(delete(
        sms::table.filter(sms::id.eq_any(&list))
    ))
    .execute(conn))?;
    all_removed(removed, ids.len())
}

/// Moves a row of `sms_failed` to `sms_sent`: the message was accepted after all.
pub(super) async fn failed_to_sent(
    connection: &mut Connection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<()> {
    let id = settlement.id;
    with_conn!(connection, |conn| sms_failed::table
        .find(id)
        .select((
            sms_failed::id,
            sms_failed::campaign_id,
            sms_failed::import_id,
            sms_failed::phone,
            sms_failed::reference,
            settlement.provider.as_str().into_sql::<Text>(),
            acceptance
                .message_id
                .as_deref()
                .into_sql::<Nullable<Text>>(),
            or_else(acceptance.segments, sms_failed::segments),
            acceptance.price.as_deref().into_sql::<Nullable<Text>>(),
            sms_failed::attempts,
            settlement.claim.to_string().into_sql::<Text>().nullable(),
            sms_failed::claim,
            sms_failed::created_at,
            now.as_millis().into_sql::<BigInt>(),
        ))
        .insert_into(sms_sent::table)
        .into_columns((
            sms_sent::id,
            sms_sent::campaign_id,
            sms_sent::import_id,
            sms_sent::phone,
            sms_sent::reference,
            sms_sent::provider,
            sms_sent::message_id,
            sms_sent::segments,
            sms_sent::price,
            sms_sent::attempts,
            sms_sent::accepted_claims,
            sms_sent::claim,
            sms_sent::created_at,
            sms_sent::sent_at,
        ))
        .execute(conn))?;
    let removed = with_conn!(connection, |conn| delete(sms_failed::table.find(id))
        .execute(conn))?;
    all_removed(removed, 1)
}

/// The first columns that `sms` and `sms_failed` share.
macro_rules! message_columns {
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
        )
    };
}

pub(super) async fn to_failed(
    connection: &mut Connection,
    ids: &[i64],
    failure: &FailureColumns,
    now: Timestamp,
) -> QueryResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let taken: Vec<i64> = with_conn!(connection, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .select(sms_failed::id)
        .load(conn))?;
    if !taken.is_empty() {
        let reason = FailureColumns::of(&number_taken(), failure.attempts);
        mark_unknown(connection, &taken, &reason, now).await?;
        // Its outcome is known, so no later answer ends the doubt.
        with_conn!(connection, |conn| update(
            sms::table.filter(sms::id.eq_any(&taken))
        )
        .set(sms::unknown_at.eq(None::<i64>))
        .execute(conn))?;
    }
    let mut ids = ids.to_vec();
    ids.retain(|id| !taken.contains(id));
    if ids.is_empty() {
        return Ok(());
    }
    with_conn!(connection, |conn| sms::table
        .filter(sms::id.eq_any(&ids))
        .select((
            message_columns!(sms),
            (
                failure.class.into_sql::<Text>(),
                failure.code.as_deref().into_sql::<Nullable<Text>>(),
                failure.reason.as_str().into_sql::<Text>(),
                more_attempts!(failure.attempts),
                sms::claim,
                sms::reference,
                sms::dedupe_key,
                sms::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms_failed::table)
        .into_columns((
            message_columns!(sms_failed),
            (
                sms_failed::class,
                sms_failed::code,
                sms_failed::reason,
                sms_failed::attempts,
                sms_failed::claim,
                sms_failed::reference,
                sms_failed::dedupe_key,
                sms_failed::created_at,
                sms_failed::failed_at,
            ),
        ))
        .execute(conn))?;
    remove(connection, &ids).await
}

/// Makes messages unknown, and in doubt from now on.
pub(super) async fn mark_unknown(
    connection: &mut Connection,
    ids: &[i64],
    failure: &FailureColumns,
    now: Timestamp,
) -> QueryResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let list = in_list(ids);
    with_conn!(connection, |conn| Prepared(
        update(sms::table.filter(sms::id.eq_any(&list))).set((
            sms::state.eq(State::Unknown.code()),
            // Before `in_doubt`: MySQL reads what an earlier assignment has set.
            sms::unknown_at.eq(case_when(
                sms::in_doubt.eq(false),
                now.as_millis().into_sql::<BigInt>()
            )),
            sms::in_doubt.eq(true),
            sms::worker_id.eq(None::<i64>),
            sms::attempts.eq(more_attempts!(failure.attempts)),
            sms::last_class.eq(failure.class),
            sms::last_code.eq(&failure.code),
            sms::last_reason.eq(&failure.reason),
        ))
    )
    .execute(conn))?;
    Ok(())
}

/// When messages are ready again, and what is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Requeue {
    pub(super) due_at: i64,
    pub(super) failure: Option<FailureColumns>,
    pub(super) attempts: i32,
    pub(super) in_doubt: bool,
}

pub(super) async fn to_ready(
    connection: &mut Connection,
    ids: &[i64],
    requeue: &Requeue,
) -> QueryResult<()> {
    let list = in_list(ids);
    let ready = (
        sms::state.eq(State::Ready.code()),
        sms::worker_id.eq(None::<i64>),
        sms::due_at.eq(requeue.due_at),
        sms::attempts.eq(more_attempts!(requeue.attempts)),
        sms::in_doubt.eq(requeue.in_doubt),
    );
    let rows = || update(sms::table.filter(sms::id.eq_any(&list)));
    match &requeue.failure {
        None => with_conn!(connection, |conn| Prepared(rows().set(ready)).execute(conn))?,
        Some(failure) => with_conn!(connection, |conn| Prepared(rows().set((
            ready,
            sms::last_class.eq(failure.class),
            sms::last_code.eq(&failure.code),
            sms::last_reason.eq(&failure.reason),
        )))
        .execute(conn))?,
    };
    Ok(())
}

/// Moves rows of `sms_failed` back to the queue with their attempts, claim and reference.
pub(super) async fn back_to_queue(
    connection: &mut Connection,
    ids: &[i64],
    now: Timestamp,
) -> QueryResult<()> {
    let moved = with_conn!(connection, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .select((
            message_columns!(sms_failed),
            (
                sms_failed::class.nullable(),
                sms_failed::code,
                sms_failed::reason.nullable(),
                sms_failed::attempts,
                sms_failed::claim,
                sms_failed::reference,
                sms_failed::dedupe_key,
                sms_failed::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms::table)
        .into_columns((
            message_columns!(sms),
            (
                sms::last_class,
                sms::last_code,
                sms::last_reason,
                sms::attempts,
                sms::claim,
                sms::reference,
                sms::dedupe_key,
                sms::created_at,
                sms::due_at,
            ),
        ))
        .execute(conn))?;
    let removed = with_conn!(connection, |conn| delete(
        sms_failed::table.filter(sms_failed::id.eq_any(ids))
    )
    .execute(conn))?;
    all_removed(removed, moved)
}

/// Removes the dedupe keys of these messages from their campaigns.
pub(super) async fn remove_keys_of(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    let keys: Vec<(i64, Option<LossyText>)> = with_conn!(connection, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .order(sms::campaign_id)
        .select((sms::campaign_id, sms::dedupe_key))
        .load(conn))?;
    for of_campaign in keys.chunk_by(|(one, _), (other, _)| one == other) {
        let (campaign_id, _) = of_campaign[0];
        let keys: Vec<&str> = of_campaign
            .iter()
            .filter_map(|(_, key)| key.as_ref().map(|key| key.text.as_str()))
            .collect();
        remove_keys(connection, campaign_id, &keys).await?;
    }
    Ok(())
}

/// Removes those of the dedupe keys that the campaign has; returns how many.
pub(super) async fn remove_keys(
    connection: &mut Connection,
    campaign_id: i64,
    keys: &[&str],
) -> QueryResult<usize> {
    let held: QueryResult<Vec<String>> = load_locked!(
        connection,
        sms_key::table
            .filter(sms_key::campaign_id.eq(campaign_id))
            .filter(sms_key::dedupe_key.eq_any(keys))
            .order(sms_key::dedupe_key)
            .select(sms_key::dedupe_key)
    );
    let held = held?;
    if held.is_empty() {
        return Ok(0);
    }
    let removed = with_conn!(connection, |conn| delete(
        sms_key::table
            .filter(sms_key::campaign_id.eq(campaign_id))
            .filter(sms_key::dedupe_key.eq_any(&held))
    )
    .execute(conn))?;
    all_removed(removed, held.len())?;
    Ok(removed)
}

/// Adds dedupe keys to a campaign; returns how many it did not have.
pub(super) async fn add_keys(
    connection: &mut Connection,
    campaign_id: i64,
    keys: &[String],
) -> QueryResult<usize> {
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            (
                sms_key::campaign_id.eq(campaign_id),
                sms_key::dedupe_key.eq(key),
            )
        })
        .collect();
    insert_new!(connection, sms_key::table, &rows)
}
