//! Settling on SQLite: a message's row moves to where its outcome belongs, fenced by its claim.

use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable};
use diesel::sqlite::SqliteConnection;

use super::super::CampaignStatus;
use super::super::foreign::LossyText;
use super::super::schema::{campaign, sms, sms_failed, sms_sent, suppression};
use super::insert::insert_key;
use super::moves;
use crate::queue::transition::{self, ResolvedTransition, RowState, cancelled};
use crate::queue::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, State, Timestamp};

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Integer>, fallback: Nullable<Integer>) -> Nullable<Integer>;
}

/// Campaign, claim, state, doubt, since when it is unknown, and what `LateColumns` are of.
type Row = (i64, i64, i32, bool, Option<i64>, LateColumns);
/// Late acceptances, the message id of the last of them, and their claims.
type LateColumns = (i32, Option<String>, Option<String>);

pub(super) fn settle(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    now: Timestamp,
) -> QueryResult<Settled> {
    if settlement.transition == Transition::Refunded {
        return refund(conn, settlement, now);
    }
    let row: Option<Row> = sms::table
        .find(settlement.id)
        .select((
            sms::campaign_id,
            sms::claim,
            sms::state,
            sms::in_doubt,
            sms::unknown_at,
            (sms::late_accepted, sms::late_message_id, sms::late_claims),
        ))
        .get_result(conn)
        .optional()?;
    let Some((campaign_id, claim, state, in_doubt, unknown_at, late)) = row else {
        return match &settlement.transition {
            Transition::Sent(acceptance) => accept_elsewhere(conn, settlement, acceptance, now),
            _ => Ok(Settled::Stale),
        };
    };
    let (late_accepted, late_message_id, late_claims) = late;
    let standing = RowState {
        claim,
        state,
        in_doubt,
        is_only_doubt: unknown_at.is_some(),
        late_accepted,
        late_message_id,
        late_claims,
    };
    let is_cancelled = transition::is_requeue(settlement) && is_cancelled(conn, campaign_id)?;
    let verdict = transition::resolve(settlement, &standing, is_cancelled);
    execute(conn, settlement, verdict, now)
}

fn execute(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    verdict: ResolvedTransition,
    now: Timestamp,
) -> QueryResult<Settled> {
    let id = settlement.id;
    if let ResolvedTransition::Failed { failure, .. } | ResolvedTransition::Unknown { failure, .. } =
        &verdict
        && let Some(reason) = transition::opted_out(settlement, failure, now)
    {
        suppress(conn, id, &reason, now)?;
    }
    match verdict {
        ResolvedTransition::Stale => return Ok(Settled::Stale),
        ResolvedTransition::Noted(claims) => {
            if let Some(claims) = claims {
                note(conn, settlement, &claims)?;
            }
            return Ok(Settled::Late);
        }
        ResolvedTransition::Sent {
            acceptance,
            counted,
            accepted,
            claims,
            settled,
        } => {
            let taken = moves::Taken {
                counted,
                accepted,
                claims,
            };
            moves::to_sent(conn, settlement, &acceptance, taken, now)?;
            return Ok(settled);
        }
        ResolvedTransition::Failed { failure, counted } => {
            moves::to_failed(conn, id, &failure, counted, now)?;
        }
        ResolvedTransition::Unknown { failure, counted } => {
            moves::park(conn, id, &failure, counted, now)?;
        }
        ResolvedTransition::Ready {
            due_at,
            failure,
            counted,
            in_doubt,
        } => moves::to_ready(conn, id, due_at, failure.as_ref(), counted, in_doubt)?,
        ResolvedTransition::Cancelled { counted } => {
            moves::give_up_key(conn, id)?;
            moves::to_failed(conn, id, &cancelled(), counted, now)?;
        }
    }
    Ok(Settled::Done)
}

/// Puts the message's phone on the suppression list.
fn suppress(conn: &mut SqliteConnection, id: i64, reason: &str, now: Timestamp) -> QueryResult<()> {
    let phone: LossyText = sms::table.find(id).select(sms::phone).first(conn)?;
    diesel::insert_or_ignore_into(suppression::table)
        .values((
            suppression::phone.eq(phone.text),
            suppression::reason.eq(reason),
            suppression::created_at.eq(now.as_millis()),
        ))
        .execute(conn)?;
    Ok(())
}

/// An older claim was accepted while a newer one is sending.
fn note(conn: &mut SqliteConnection, settlement: &Settlement, claims: &str) -> QueryResult<()> {
    let message_id = match &settlement.transition {
        Transition::Sent(acceptance) => acceptance.message_id.as_deref(),
        _ => None,
    };
    diesel::update(sms::table.find(settlement.id))
        .set((
            sms::late_accepted.eq(sms::late_accepted + 1),
            sms::late_message_id.eq(message_id),
            sms::late_claims.eq(claims),
        ))
        .execute(conn)?;
    Ok(())
}

fn accept_elsewhere(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<Settled> {
    let ledger: Option<(i64, i32, Option<String>)> = sms_sent::table
        .find(settlement.id)
        .select((
            sms_sent::claim,
            sms_sent::accepted,
            sms_sent::accepted_claims,
        ))
        .first(conn)
        .optional()?;
    if let Some((claim, accepted, claims)) = ledger {
        let counted =
            transition::with_accepted_claim(settlement, claim, accepted, claims.as_deref());
        let Some(counted) = counted else {
            return Ok(Settled::Done);
        };
        diesel::update(sms_sent::table.find(settlement.id))
            .set((
                sms_sent::accepted.eq(sms_sent::accepted + 1),
                sms_sent::accepted_claims.eq(counted),
            ))
            .execute(conn)?;
        return Ok(Settled::Late);
    }
    remember_key(conn, settlement.id)?;
    let moved = moves::failed_to_sent(conn, settlement, acceptance, now)?;
    Ok(if moved { Settled::Late } else { Settled::Stale })
}

/// Gives an attempt back, whether the message still waits or this was its last.
fn refund(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    now: Timestamp,
) -> QueryResult<Settled> {
    let waiting = diesel::update(sms::table.find(settlement.id))
        .filter(sms::claim.eq(settlement.claim))
        .filter(sms::state.eq(State::Ready.code()))
        .filter(sms::attempts.gt(0))
        .filter(crate::store::queue::is_not_refunded(settlement.claim))
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(settlement.claim),
            sms::due_at.eq(now.as_millis()),
        ))
        .execute(conn)?;
    if waiting == 1 {
        return Ok(Settled::Done);
    }
    let failed = sms_failed::table
        .find(settlement.id)
        .filter(sms_failed::claim.eq(settlement.claim))
        .filter(sms_failed::class.eq(Class::Unavailable.as_str()));
    let found: Option<(i64, i64)> = failed
        .select((sms_failed::id, sms_failed::campaign_id))
        .first(conn)
        .optional()?;
    let Some((id, campaign_id)) = found else {
        return Ok(Settled::Stale);
    };
    moves::back_to_queue(conn, id, now)?;
    diesel::update(sms::table.find(id))
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(settlement.claim),
        ))
        .execute(conn)?;
    if is_cancelled(conn, campaign_id)? {
        moves::give_up_key(conn, id)?;
        moves::to_failed(conn, id, &cancelled(), 0, now)?;
    }
    Ok(Settled::Done)
}

/// A cancelled message gave up its key, and was sent nevertheless.
fn remember_key(conn: &mut SqliteConnection, id: i64) -> QueryResult<()> {
    let key: Option<(i64, Option<LossyText>)> = sms_failed::table
        .find(id)
        .select((sms_failed::campaign_id, sms_failed::dedupe_key))
        .first(conn)
        .optional()?;
    if let Some((campaign_id, Some(key))) = key {
        insert_key(conn, campaign_id, &key.text)?;
    }
    Ok(())
}

fn is_cancelled(conn: &mut SqliteConnection, campaign_id: i64) -> QueryResult<bool> {
    let state: Option<i32> = campaign::table
        .find(campaign_id)
        .select(campaign::state)
        .first(conn)
        .optional()?;
    Ok(state == Some(CampaignStatus::Cancelled.code()))
}
