//! What recipients got of late, on SQLite: the file's write lock keeps all workers' claims apart.

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::super::queue::CommitBatch;
use super::super::recipients::{Promised, Start, cap, ended_at};
use super::super::schema::{recipient_start, sms};
use crate::phone::Phone;
use crate::queue::Admission;
use crate::queue::recipient_cap::may_have_reached;
use crate::sms::{Sms, State};

/// Notes that a claimed message may start; or says what becomes of it, where its recipient got enough.
pub(super) fn keep_cap(
    conn: &mut SqliteConnection,
    round: &CommitBatch,
    (sms, phone): (&Sms, &Phone),
    promised: &mut Promised,
) -> QueryResult<Option<Admission>> {
    if round.caps.0.is_empty() {
        return Ok(None);
    }
    let mut starts = starts(conn, round, phone.as_str())?;
    starts.extend(promised.of(phone.as_str()));
    if let Some((admission, at)) = cap(round).check(sms, phone, &starts) {
        promised.add(phone.as_str(), at);
        return Ok(Some(admission));
    }
    diesel::replace_into(recipient_start::table)
        .values((
            recipient_start::sms_id.eq(sms.id),
            recipient_start::claim.eq(sms.claim),
            recipient_start::phone.eq(phone.as_str()),
            recipient_start::ended_at.eq(None::<i64>),
        ))
        .execute(conn)?;
    Ok(None)
}

/// When requests to a phone started, at the latest.
fn starts(conn: &mut SqliteConnection, round: &CommitBatch, phone: &str) -> QueryResult<Vec<i64>> {
    let sending = sms::id
        .eq(recipient_start::sms_id)
        .and(sms::claim.eq(recipient_start::claim))
        .and(sms::state.eq(State::Sending.code()));
    let found: Vec<Start> = recipient_start::table
        .left_join(sms::table.on(sending))
        .filter(recipient_start::phone.eq(phone))
        .select((
            recipient_start::sms_id,
            recipient_start::claim,
            recipient_start::ended_at,
            sms::id.nullable(),
        ))
        .load(conn)?;
    let mut starts = Vec::new();
    for (sms_id, claim, ended, sending) in found {
        if ended.is_none() && sending.is_none() {
            // Its worker died, or was told nothing of it: it ended unseen.
            diesel::update(recipient_start::table.find((sms_id, claim)))
                .set(recipient_start::ended_at.eq(ended_at(round)))
                .execute(conn)?;
        }
        starts.push(ended.unwrap_or(ended_at(round)));
    }
    Ok(starts)
}

/// A claimed message goes back into the queue before anybody sees it.
pub(super) fn forget(
    conn: &mut SqliteConnection,
    round: &CommitBatch,
    sms: &Sms,
) -> QueryResult<()> {
    if !round.caps.0.is_empty() {
        diesel::delete(recipient_start::table.find((sms.id, sms.claim))).execute(conn)?;
    }
    Ok(())
}

/// Notes which claims have ended, and gives back those that reached nobody.
pub(super) fn end(conn: &mut SqliteConnection, round: &CommitBatch) -> QueryResult<()> {
    if round.caps.0.is_empty() {
        return Ok(());
    }
    for settlement in &round.settlements {
        let start = recipient_start::table.find((settlement.id, settlement.claim));
        match may_have_reached(settlement) {
            Some(true) => diesel::update(start)
                .filter(recipient_start::ended_at.is_null())
                .set(recipient_start::ended_at.eq(ended_at(round)))
                .execute(conn)?,
            Some(false) => diesel::delete(start).execute(conn)?,
            None => 0,
        };
    }
    if round.fill_limits {
        // The clock has jumped: nobody knows how long ago they were.
        diesel::update(recipient_start::table)
            .filter(recipient_start::ended_at.is_not_null())
            .set(recipient_start::ended_at.eq(ended_at(round)))
            .execute(conn)?;
    }
    Ok(())
}
