//! Messages that were perhaps accepted: who can be asked for, and what becomes of them then. While a message
//! is unknown, `due_at` is when its provider is asked next, for all workers.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::schema::{campaign, sms};
use super::{CampaignState, Store, StoreError};
use crate::sms::{State, Timestamp};

/// A message of which nobody knows whether it was accepted.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub struct Unknown {
    pub id: i64,
    pub claim: i64,
    pub attempts: i32,
    pub phone: String,
    pub content: String,
    pub params: String,
    pub reference: Option<String>,
    /// In milliseconds since the Unix epoch, as all instants.
    pub expires_at: Option<i64>,
    pub claimed_at: Option<i64>,
    /// When its provider is to be asked.
    pub due_at: i64,
}

/// Which unknown messages are meant.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub campaign_id: i64,
    /// Their provider is to be asked by then.
    pub by: Timestamp,
    /// Their last attempt was claimed by then.
    pub claimed_by: Timestamp,
}

impl Store {
    /// The first so many, those first that waited longest.
    pub async fn unknown_due(&self, due: Due, limit: i64) -> Result<Vec<Unknown>, StoreError> {
        reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(due.campaign_id))
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::due_at.le(due.by.as_millis()))
            .filter(sms::claimed_at.le(due.claimed_by.as_millis()))
            .order((sms::due_at, sms::id))
            .limit(limit)
            .select(Unknown::as_select())
            .load(conn))
    }

    pub async fn is_unknown_due(&self, due: Due) -> Result<bool, StoreError> {
        reading!(self, |conn| diesel::select(diesel::dsl::exists(
            sms::table
                .filter(sms::campaign_id.eq(due.campaign_id))
                .filter(sms::state.eq(State::Unknown.code()))
                .filter(sms::due_at.le(due.by.as_millis()))
                .filter(sms::claimed_at.le(due.claimed_by.as_millis())),
        ))
        .get_result(conn))
    }

    /// Takes an unknown message to ask for it, or to ask again later; false when another worker did, or when
    /// it is no longer unknown.
    pub async fn postpone_unknown(
        &self,
        one: &Unknown,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| diesel::update(
            sms::table
                .filter(sms::id.eq(one.id))
                .filter(sms::claim.eq(one.claim))
                .filter(sms::state.eq(State::Unknown.code()))
                .filter(sms::due_at.eq(one.due_at)),
        )
        .set(sms::due_at.eq(until.as_millis()))
        .execute(conn))?;
        Ok(rows == 1)
    }

    /// Puts an unknown message back into the queue: `in_doubt` no more where its provider never had it, or
    /// still, and with the same reference. False when it is no longer unknown under this claim, has no attempts
    /// left (`max_attempts` 0: always), or its campaign is not active.
    pub async fn ready_unknown(
        &self,
        (id, claim): (i64, i64),
        in_doubt: bool,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| diesel::update(
            sms::table
                .filter(sms::id.eq(id))
                .filter(sms::claim.eq(claim))
                .filter(sms::state.eq(State::Unknown.code()))
                .filter(sms::attempts.lt(most(max_attempts)))
                .filter(
                    sms::campaign_id.eq_any(
                        campaign::table
                            .filter(campaign::state.eq(CampaignState::Active.code()))
                            .select(campaign::id),
                    )
                ),
        )
        .set((
            sms::state.eq(State::Ready.code()),
            sms::in_doubt.eq(in_doubt),
            sms::due_at.eq(now.as_millis()),
        ))
        .execute(conn))?;
        Ok(rows == 1)
    }

    /// Puts a campaign's unknown messages back into the queue, in doubt and with the same reference, where their
    /// last attempt was claimed after `claimed_after` and they have attempts left. Returns how many.
    pub async fn requeue_honoured(
        &self,
        campaign_id: i64,
        claimed_after: Timestamp,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let rows: usize = writing!(self, |conn| diesel::update(
            sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::state.eq(State::Unknown.code()))
                .filter(sms::attempts.lt(most(max_attempts)))
                .filter(sms::claimed_at.gt(claimed_after.as_millis())),
        )
        .set((
            sms::state.eq(State::Ready.code()),
            sms::due_at.eq(now.as_millis()),
        ))
        .execute(conn))?;
        Ok(rows as u64)
    }
}

fn most(attempts: i32) -> i32 {
    if attempts == 0 { i32::MAX } else { attempts }
}
