//! What waits in the queue: due, unexpired and unfinished messages, and when rows were created.

use std::collections::HashSet;

use super::connection::prelude::*;
use super::connection::{ROWS, querying, reading};
use super::schema::{campaign, sms, sms_failed, sms_sent};
use super::{Store, StoreError, claim};
use crate::sms::{State, Timestamp};

/// Whether a campaign has messages in these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    pub ready: bool,
    pub sending: bool,
}

impl Store {
    /// When the tables were created, in milliseconds since the Unix epoch. Identifies a database.
    pub async fn created_at(&self) -> Result<i64, StoreError> {
        let created_at: Option<i64> = reading!(self, |conn| optional campaign::table
            .order(campaign::id)
            .select(campaign::created_at)
            .first(conn))?;
        Ok(created_at.unwrap_or_default())
    }

    /// Those of the messages that were created after an instant.
    pub async fn created_after(
        &self,
        ids: &[i64],
        at: Timestamp,
    ) -> Result<HashSet<i64>, StoreError> {
        let mut later: HashSet<i64> = HashSet::new();
        for ids in ids.chunks(ROWS) {
            macro_rules! add_from {
                ($table:ident) => {
                    later.extend(reading!(self, |conn| $table::table
                        .filter($table::id.eq_any(ids))
                        .filter($table::created_at.gt(at))
                        .select($table::id)
                        .load::<i64>(conn))?);
                };
            }
            add_from!(sms);
            add_from!(sms_sent);
            add_from!(sms_failed);
        }
        Ok(later)
    }

    /// When the next message of the campaign becomes due; `None` if none is ready.
    pub async fn next_due(&self, campaign_id: i64) -> Result<Option<Timestamp>, StoreError> {
        querying!(self, Read, |connection| claim::next_due(
            connection,
            campaign_id
        ))
    }

    /// Whether any ready message of the campaign expires after an instant or never.
    pub async fn has_unexpired_after(
        &self,
        campaign_id: i64,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let later = sms::expires_at.gt(at).assume_not_null();
        let first: Vec<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::expires_at.is_null().or(later))
            .limit(1)
            .select(sms::id)
            .load(conn))?;
        Ok(!first.is_empty())
    }

    /// Whether a campaign has messages that are ready or being sent.
    pub async fn unfinished(&self, campaign_id: i64) -> Result<Unfinished, StoreError> {
        // In one statement, because a message may change its state meanwhile. Without `EXISTS`, which is false on
        // MariaDB if the query is killed.
        let states = [State::Ready.code(), State::Sending.code()];
        let first: Vec<i32> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq_any(states))
            .order((sms::state, sms::due_at))
            .limit(1)
            .select(sms::state)
            .load(conn))?;
        if first != [State::Ready.code()] {
            return Ok(Unfinished {
                ready: false,
                sending: !first.is_empty(),
            });
        }
        let last: Vec<i32> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Sending.code()))
            .limit(1)
            .select(sms::state)
            .load(conn))?;
        Ok(Unfinished {
            ready: true,
            sending: !last.is_empty(),
        })
    }
}
