//! How often one recipient may be texted, over all campaigns and workers. Each claim leaves a row in
//! `recipient_start`. While its request may still start it counts as of now; once it has ended, as of then,
//! which is never before it started; where it was certainly not accepted, the row is removed.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::queue::CommitBatch;
use super::schema::recipient_start;
use super::{CHUNK, Store, StoreError};
use crate::queue::recipient_cap::RecipientCap;
use crate::sms::Timestamp;

/// What is told of a recipient's earlier claims: message, claim, when it ended, and the message again where that
/// claim is still sending.
pub(super) type Start = (i64, i64, Option<i64>, Option<i64>);

/// Starts by phone, in milliseconds; those of messages that have to wait lie ahead.
#[derive(Default)]
pub(super) struct Promised(HashMap<String, Vec<i64>>);

impl Promised {
    pub(super) fn of(&self, phone: &str) -> &[i64] {
        self.0.get(phone).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, phone: &str, at: i64) {
        self.0.entry(phone.to_owned()).or_default().push(at);
    }

    pub(super) fn knows(&self, phone: &str) -> bool {
        self.0.contains_key(phone)
    }

    pub(super) fn learn(&mut self, phone: &str) {
        self.0.entry(phone.to_owned()).or_default();
    }
}

/// The latest that a request can have started which has ended by now, whoever's clock says so.
pub(super) fn ended_at(round: &CommitBatch) -> i64 {
    round.now.plus(round.tolerance).as_millis()
}

/// The caps, as a transaction checks them.
pub(super) fn cap(batch: &CommitBatch) -> RecipientCap<'_> {
    RecipientCap {
        caps: &batch.caps,
        now: batch.now,
        tolerance: batch.tolerance,
    }
}

impl Store {
    /// Forgets some of the starts that ended before a moment; returns how many.
    pub async fn forget_starts(&self, before: Timestamp) -> Result<u64, StoreError> {
        let ends: Vec<Option<i64>> = reading!(self, |conn| recipient_start::table
            .filter(recipient_start::ended_at.lt(before.as_millis()))
            .order(recipient_start::ended_at)
            .limit(CHUNK)
            .select(recipient_start::ended_at)
            .load(conn))?;
        let Some(Some(last)) = ends.last() else {
            return Ok(0);
        };
        let forgotten: usize = writing!(self, |conn| diesel::delete(
            recipient_start::table.filter(recipient_start::ended_at.le(*last))
        )
        .execute(conn))?;
        Ok(forgotten as u64)
    }
}
