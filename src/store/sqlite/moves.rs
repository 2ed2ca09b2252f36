//! How a message moves between the tables on SQLite, one row at a time and always by its id.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use super::super::foreign::LossyText;
use super::super::schema::{sms, sms_failed, sms_key, sms_sent};
use super::settle::or_else;
use crate::queue::transition::number_taken;
use crate::queue::{Settlement, Transition};
use crate::sms::{Acceptance, Failure, State, Timestamp};

#[diesel::declare_sql_function]
extern "SQL" {
    /// A count that another program wrote may leave no room for one more.
    #[sql_name = "min"]
    fn max_messages(count: Integer, most: Integer) -> Integer;
}

/// What a count is taken for, so that it can be added to.
const MOST: i32 = 2_000_000_000;

/// How a move to the ledger counts.
#[derive(Default)]
pub(super) struct Taken {
    /// Attempts that were not counted yet.
    pub(super) counted: i32,
    /// Acceptances beside those that the row has noted.
    pub(super) accepted: i32,
    /// The ledger's `accepted_claims`.
    pub(super) claims: Option<String>,
}

pub(super) fn to_sent(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    taken: Taken,
    now: Timestamp,
) -> QueryResult<()> {
    sms::table
        .find(settlement.id)
        .select((
            (
                sms::id,
                sms::campaign_id,
                sms::import_id,
                sms::phone,
                sms::reference,
                settlement.provider.as_str().into_sql::<Text>(),
                acceptance
                    .message_id
                    .as_deref()
                    .into_sql::<Nullable<Text>>(),
            ),
            (
                or_else(acceptance.segments, sms::segments),
                acceptance.price.as_deref().into_sql::<Nullable<Text>>(),
                max_messages(sms::attempts, MOST) + taken.counted,
                max_messages(sms::late_accepted, MOST) + taken.accepted,
                taken.claims.into_sql::<Nullable<Text>>(),
                sms::claim,
                sms::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms_sent::table)
        .into_columns((
            (
                sms_sent::id,
                sms_sent::campaign_id,
                sms_sent::import_id,
                sms_sent::phone,
                sms_sent::reference,
                sms_sent::provider,
                sms_sent::message_id,
            ),
            (
                sms_sent::segments,
                sms_sent::price,
                sms_sent::attempts,
                sms_sent::accepted,
                sms_sent::accepted_claims,
                sms_sent::claim,
                sms_sent::created_at,
                sms_sent::sent_at,
            ),
        ))
        .execute(conn)?;
    diesel::delete(sms::table.find(settlement.id)).execute(conn)?;
    Ok(())
}

/// Moves a row of `sms_failed` to the ledger: the message was accepted after all. False when there is
/// no such row.
pub(super) fn failed_to_sent(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<bool> {
    let moved = sms_failed::table
        .find(settlement.id)
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
        .execute(conn)?;
    diesel::delete(sms_failed::table.find(settlement.id)).execute(conn)?;
    Ok(moved == 1)
}

/// The operator's word that a message was sent: the provider's own is not known, and may come yet.
pub(super) fn to_sent_by_word(
    conn: &mut SqliteConnection,
    id: i64,
    provider: &str,
    now: Timestamp,
) -> QueryResult<()> {
    let settlement = Settlement {
        id,
        claim: 0,
        provider: provider.to_owned(),
        transition: Transition::Sent(Acceptance::default()),
    };
    let taken = Taken::default();
    to_sent(conn, &settlement, &Acceptance::default(), taken, now)
}

/// Moves a row of `sms` to the failed, with `counted` more attempts.
pub(super) fn to_failed(
    conn: &mut SqliteConnection,
    id: i64,
    failure: &Failure,
    counted: i32,
    now: Timestamp,
) -> QueryResult<()> {
    let taken = sms_failed::table.find(id).select(sms_failed::id);
    if diesel::select(diesel::dsl::exists(taken)).get_result(conn)? {
        park(conn, id, &number_taken(), counted, now)?;
        // What became of it is known, so no later answer ends the doubt.
        diesel::update(sms::table.find(id))
            .set(sms::unknown_at.eq(None::<i64>))
            .execute(conn)?;
        return Ok(());
    }
    sms::table
        .find(id)
        .select((
            (
                sms::id,
                sms::campaign_id,
                sms::import_id,
                sms::phone,
                sms::content,
                sms::params,
                sms::segments,
                sms::expires_at,
            ),
            (
                failure.class.as_str().into_sql::<Text>(),
                failure.code.as_deref().into_sql::<Nullable<Text>>(),
                failure.reason.as_str().into_sql::<Text>(),
                max_messages(sms::attempts, MOST) + counted,
                sms::claim,
                sms::reference,
                sms::dedupe_key,
                sms::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms_failed::table)
        .into_columns((
            (
                sms_failed::id,
                sms_failed::campaign_id,
                sms_failed::import_id,
                sms_failed::phone,
                sms_failed::content,
                sms_failed::params,
                sms_failed::segments,
                sms_failed::expires_at,
            ),
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
        .execute(conn)?;
    diesel::delete(sms::table.find(id)).execute(conn)?;
    Ok(())
}

/// Parks a row as unknown, in doubt from now on.
pub(super) fn park(
    conn: &mut SqliteConnection,
    id: i64,
    failure: &Failure,
    counted: i32,
    now: Timestamp,
) -> QueryResult<()> {
    diesel::update(sms::table.find(id))
        .set((
            sms::state.eq(State::Unknown.code()),
            sms::unknown_at.eq(crate::store::unknown::unless_in_doubt!(now)),
            sms::in_doubt.eq(true),
            sms::worker_id.eq(None::<i64>),
            sms::attempts.eq(max_messages(sms::attempts, MOST) + counted),
            sms::last_class.eq(failure.class.as_str()),
            sms::last_code.eq(&failure.code),
            sms::last_reason.eq(&failure.reason),
        ))
        .execute(conn)?;
    Ok(())
}

pub(super) fn to_ready(
    conn: &mut SqliteConnection,
    id: i64,
    due_at: Timestamp,
    failure: Option<&Failure>,
    counted: i32,
    in_doubt: bool,
) -> QueryResult<()> {
    let ready = (
        sms::state.eq(State::Ready.code()),
        sms::worker_id.eq(None::<i64>),
        sms::due_at.eq(due_at.as_millis()),
        sms::attempts.eq(max_messages(sms::attempts, MOST) + counted),
        sms::in_doubt.eq(in_doubt),
    );
    let row = diesel::update(sms::table.find(id));
    match failure {
        None => row.set(ready).execute(conn)?,
        Some(failure) => row
            .set((
                ready,
                sms::last_class.eq(failure.class.as_str()),
                sms::last_code.eq(&failure.code),
                sms::last_reason.eq(&failure.reason),
            ))
            .execute(conn)?,
    };
    Ok(())
}

/// Moves a row of `sms_failed` back to the queue as it was: attempts, claim, reference and all.
pub(super) fn back_to_queue(
    conn: &mut SqliteConnection,
    id: i64,
    now: Timestamp,
) -> QueryResult<()> {
    sms_failed::table
        .find(id)
        .select((
            (
                sms_failed::id,
                sms_failed::campaign_id,
                sms_failed::import_id,
                sms_failed::phone,
                sms_failed::content,
                sms_failed::params,
                sms_failed::segments,
                sms_failed::expires_at,
            ),
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
            (
                sms::id,
                sms::campaign_id,
                sms::import_id,
                sms::phone,
                sms::content,
                sms::params,
                sms::segments,
                sms::expires_at,
            ),
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
        .execute(conn)?;
    diesel::delete(sms_failed::table.find(id)).execute(conn)?;
    Ok(())
}

/// Forgets that the message's recipient is in the campaign.
pub(super) fn give_up_key(conn: &mut SqliteConnection, id: i64) -> QueryResult<()> {
    let key: Option<(i64, Option<LossyText>)> = sms::table
        .find(id)
        .select((sms::campaign_id, sms::dedupe_key))
        .first(conn)
        .optional()?;
    if let Some((campaign_id, Some(key))) = key {
        diesel::delete(sms_key::table.find((campaign_id, key.text))).execute(conn)?;
    }
    Ok(())
}
