//! Settling on SQLite: a message's row moves to where its outcome belongs, fenced by its claim.

use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable};
use diesel::sqlite::SqliteConnection;

use super::super::CampaignState;
use super::super::queue::{Fate, Settled, Settlement};
use super::super::schema::{campaign, sms, sms_failed, sms_sent};
use super::insert::insert_key;
use super::moves;
use crate::sms::{Cause, Class, Receipt, State, Timestamp};

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Integer>, fallback: Nullable<Integer>) -> Nullable<Integer>;
}

/// What the row of a running claim says of itself.
#[derive(Queryable)]
struct Running {
    campaign_id: i64,
    in_doubt: bool,
    late_accepted: i32,
    late_message_id: Option<String>,
}

pub(super) fn settle(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    now: Timestamp,
) -> QueryResult<Settled> {
    match &settlement.fate {
        Fate::Sent(receipt) => return accept(conn, settlement, receipt, now),
        Fate::Refunded => return refund(conn, settlement, now),
        _ => {}
    }
    let running: Option<Running> = sms::table
        .find(settlement.id)
        .filter(sms::claim.eq(settlement.claim))
        .filter(sms::state.eq(State::Sending.code()))
        .select((
            sms::campaign_id,
            sms::in_doubt,
            sms::late_accepted,
            sms::late_message_id,
        ))
        .first(conn)
        .optional()?;
    let Some(running) = running else {
        return Ok(Settled::Stale);
    };
    if running.late_accepted > 0 {
        // An older claim was accepted meanwhile: that is the truth, whatever this one's answer says.
        let receipt = Receipt {
            message_id: running.late_message_id,
            ..Receipt::default()
        };
        let never_started = matches!(
            settlement.fate,
            Fate::Refused(_) | Fate::Ready { counted: false, .. }
        );
        let taken = moves::Taken {
            counted: i32::from(!never_started),
            accepted: 0,
        };
        moves::to_sent(conn, settlement, &receipt, taken, now)?;
        return Ok(Settled::Done);
    }
    conclude(conn, settlement, &running, now)?;
    Ok(Settled::Done)
}

fn conclude(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    running: &Running,
    now: Timestamp,
) -> QueryResult<()> {
    let id = settlement.id;
    match &settlement.fate {
        Fate::Failed(cause) if running.in_doubt => moves::park(conn, id, cause, 1),
        Fate::Refused(cause) if running.in_doubt => moves::park(conn, id, cause, 0),
        Fate::Failed(cause) => moves::to_failed(conn, id, cause, 1, now),
        Fate::Refused(cause) => moves::to_failed(conn, id, cause, 0, now),
        Fate::Unknown(cause) => moves::park(conn, id, cause, 1),
        Fate::Ready {
            due_at,
            cause,
            counted,
            in_doubt,
        } => {
            let in_doubt = *in_doubt || running.in_doubt;
            let counted = i32::from(*counted);
            if !is_cancelled(conn, running.campaign_id)? {
                return moves::to_ready(conn, id, *due_at, cause.as_ref(), counted, in_doubt);
            }
            if in_doubt {
                return moves::park(conn, id, cause.as_ref().unwrap_or(&cancelled()), counted);
            }
            moves::give_up_key(conn, id)?;
            moves::to_failed(conn, id, &cancelled(), counted, now)
        }
        Fate::Sent(_) | Fate::Refunded => Ok(()),
    }
}

fn accept(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    receipt: &Receipt,
    now: Timestamp,
) -> QueryResult<Settled> {
    let row: Option<(i64, i32)> = sms::table
        .find(settlement.id)
        .select((sms::claim, sms::state))
        .first(conn)
        .optional()?;
    let Some((claim, state)) = row else {
        return accept_elsewhere(conn, settlement, receipt, now);
    };
    let sending = state == State::Sending.code();
    if sending && claim != settlement.claim {
        diesel::update(sms::table.find(settlement.id))
            .set((
                sms::late_accepted.eq(sms::late_accepted + 1),
                sms::late_message_id.eq(&receipt.message_id),
            ))
            .execute(conn)?;
        return Ok(Settled::Late);
    }
    // A parked row's attempt was counted when it was parked.
    let taken = moves::Taken {
        counted: i32::from(sending),
        accepted: 1,
    };
    moves::to_sent(conn, settlement, receipt, taken, now)?;
    Ok(if sending {
        Settled::Done
    } else {
        Settled::Late
    })
}

fn accept_elsewhere(
    conn: &mut SqliteConnection,
    settlement: &Settlement,
    receipt: &Receipt,
    now: Timestamp,
) -> QueryResult<Settled> {
    let again = diesel::update(sms_sent::table.find(settlement.id))
        .set(sms_sent::accepted.eq(sms_sent::accepted + 1))
        .execute(conn)?;
    if again == 1 {
        return Ok(Settled::Late);
    }
    remember_key(conn, settlement.id)?;
    let moved = moves::failed_to_sent(conn, settlement, receipt, now)?;
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
        .set((
            sms::attempts.eq(sms::attempts - 1),
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
        .set(sms::attempts.eq(sms::attempts - 1))
        .execute(conn)?;
    if is_cancelled(conn, campaign_id)? {
        moves::give_up_key(conn, id)?;
        moves::to_failed(conn, id, &cancelled(), 0, now)?;
    }
    Ok(Settled::Done)
}

/// A cancelled message gave up its key, and was sent nevertheless.
fn remember_key(conn: &mut SqliteConnection, id: i64) -> QueryResult<()> {
    let key: Option<(i64, Option<String>)> = sms_failed::table
        .find(id)
        .select((sms_failed::campaign_id, sms_failed::dedupe_key))
        .first(conn)
        .optional()?;
    if let Some((campaign_id, Some(key))) = key {
        insert_key(conn, campaign_id, &key)?;
    }
    Ok(())
}

pub(super) fn cancelled() -> Cause {
    Cause::new(Class::Cancelled, "its campaign was cancelled")
}

fn is_cancelled(conn: &mut SqliteConnection, campaign_id: i64) -> QueryResult<bool> {
    let state: Option<i32> = campaign::table
        .find(campaign_id)
        .select(campaign::state)
        .first(conn)
        .optional()?;
    Ok(state == Some(CampaignState::Cancelled.code()))
}
