//! Table `attempt`: the attempts of messages that were not accepted, for the search of one phone. An accepted
//! attempt is the row in `sms_sent`.
//!
//! A message has at most [`KEPT`] of them: the number of its claim modulo [`KEPT`] is part of the key, so a later attempt
//! replaces an old one, and no statement counts or deletes. Ten million messages that are all tried for days have at
//! most 200 million rows of some 150 bytes. Usually they have far fewer: while a provider is down, the circuit breaker
//! lets one message in 30 s through, and while it throttles, the rate limit slows down.

use diesel::upsert::excluded;
use diesel::{delete, update};
use smsq_lifecycle::AttemptOutcome;
use smsq_message::sms::{Failure, Timestamp};
use smsq_process::boxed;

use crate::Store;
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS};
use crate::error::StoreError;
use crate::tables::schema::attempt;

/// The most attempts that are kept of a message.
pub const KEPT: u8 = 20;

/// An attempt that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = attempt)]
pub struct FailedAttempt {
    pub sms_id: i64,
    pub claim: i64,
    /// When its result was stored.
    pub at: Timestamp,
    /// Empty if the worker that tried it is gone.
    pub provider: String,
    /// The word of an [`AttemptOutcome`].
    pub outcome: String,
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    /// Our id for the message at the provider; a message gets another one when an attempt was certainly not accepted.
    pub reference: Option<String>,
}

/// An attempt that is stored.
pub(in crate::queue) struct NewAttempt {
    pub(in crate::queue) sms_id: i64,
    pub(in crate::queue) claim: i64,
    pub(in crate::queue) provider: String,
    pub(in crate::queue) outcome: AttemptOutcome,
    pub(in crate::queue) failure: Failure,
    /// `None`: another program put the message into this state.
    pub(in crate::queue) reference: Option<String>,
}

/// The place of an attempt among those of its message.
fn slot(claim: i64) -> i32 {
    i32::try_from(claim.rem_euclid(i64::from(KEPT))).unwrap_or(0)
}

/// Stores attempts, each instead of an older one with its slot. An attempt that is stored again gets its last result.
pub(in crate::queue) async fn store(
    connection: &mut Connection,
    mut attempts: Vec<NewAttempt>,
    now: Timestamp,
) -> QueryResult<()> {
    attempts.sort_unstable_by_key(|attempt| attempt.sms_id);
    for attempts in attempts.chunks(ROWS) {
        let rows: Vec<_> = attempts
            .iter()
            .map(|new| {
                (
                    attempt::sms_id.eq(new.sms_id),
                    attempt::slot.eq(slot(new.claim)),
                    attempt::claim.eq(new.claim),
                    attempt::at.eq(now),
                    attempt::provider.eq(&new.provider),
                    attempt::outcome.eq(new.outcome.as_str()),
                    attempt::class.eq(new.failure.class.as_str()),
                    attempt::code.eq(new.failure.code.as_deref()),
                    attempt::reason.eq(&new.failure.reason),
                    attempt::reference.eq(new.reference.as_deref()),
                )
            })
            .collect();
        NewRows::of(attempt::table, &rows)
            .replace(connection, |insert| {
                insert.on_conflict((attempt::sms_id, attempt::slot)).do_update().set((
                    attempt::claim.eq(excluded(attempt::claim)),
                    attempt::at.eq(excluded(attempt::at)),
                    attempt::provider.eq(excluded(attempt::provider)),
                    attempt::outcome.eq(excluded(attempt::outcome)),
                    attempt::class.eq(excluded(attempt::class)),
                    attempt::code.eq(excluded(attempt::code)),
                    attempt::reason.eq(excluded(attempt::reason)),
                    attempt::reference.eq(excluded(attempt::reference)),
                ))
            })
            .await?;
    }
    Ok(())
}

/// Notes that a message is tried again after an attempt that had failed it.
pub(in crate::queue) async fn retried(
    connection: &mut Connection,
    sms_id: i64,
    claim: i64,
) -> QueryResult<()> {
    update(attempt::table.find((sms_id, slot(claim))).filter(attempt::claim.eq(claim)))
        .set(attempt::outcome.eq(AttemptOutcome::Retry.as_str()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes the attempts of messages that are deleted.
pub(crate) async fn delete_of(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    delete(attempt::table.filter(attempt::sms_id.eq_any(ids))).execute(connection).await?;
    Ok(())
}

impl Store {
    /// The attempts of these messages that were not accepted, at most [`KEPT`] of each, the oldest first.
    #[boxed]
    pub async fn failed_attempts(&self, ids: &[i64]) -> Result<Vec<FailedAttempt>, StoreError> {
        self.read(
            attempt::table
                .filter(attempt::sms_id.eq_any(ids))
                .order((attempt::sms_id, attempt::claim))
                .select(FailedAttempt::as_select()),
        )
        .await
    }
}
