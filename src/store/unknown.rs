//! Unknown messages: which of them can be looked up, and what becomes of them then. While a message is unknown,
//! its `due_at` is the time of the next lookup, for all workers.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;

use super::connection::{Connection, ROWS, load_locked, reading, transaction, with_conn, writing};
use super::lossy_text::LossyText;
use super::operator::{Chunk, chunked};
use super::schema::{campaign, sms, sms_sent};
use super::{CHUNK, CampaignStatus, Store, StoreError, settle};
use crate::queue::transition::NOT_STORED;
use crate::queue::{Settlement, Transition};
use crate::sms::{Class, State, Timestamp};

/// The longest reason that is stored for a message that cannot be settled, in characters.
const REASON: usize = 500;

/// A message whose outcome is not known.
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
    pub claimed_at: Option<i64>,
    /// When it became unknown, so its last attempt started before this. `None` where earlier attempts may have been
    /// accepted too.
    pub unknown_at: Option<i64>,
    /// When it is looked up next.
    pub due_at: i64,
}

/// Which unknown messages are meant.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub campaign_id: i64,
    /// Their lookup is due by then.
    pub by: Timestamp,
    /// Their last attempt was claimed by then.
    pub claimed_by: Timestamp,
}

impl Store {
    /// The first `limit` of them, in the order of their lookups.
    pub async fn unknown_due(&self, due: Due, limit: i64) -> Result<Vec<Unknown>, StoreError> {
        reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(due.campaign_id))
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::due_at.le(due.by.as_millis()))
            .filter(sms::claimed_at.le(due.claimed_by.as_millis()))
            .filter(has_other_code(NOT_STORED).assume_not_null())
            .order((sms::due_at, sms::id))
            .limit(limit)
            .select(Unknown::as_select())
            .load(conn))
    }

    pub async fn is_unknown_due(&self, due: Due) -> Result<bool, StoreError> {
        Ok(!self.unknown_due(due, 1).await?.is_empty())
    }

    /// Postpones the next lookup of an unknown message; false where another worker has done so, or where the message
    /// is not unknown any more.
    pub async fn postpone_unknown(
        &self,
        one: &Unknown,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| update(
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

    /// The other messages to this phone that are being sent or are unknown, in any campaign: whether they are being
    /// sent, and their texts.
    pub async fn unsettled_to(
        &self,
        phone: &str,
        other_than: i64,
    ) -> Result<Vec<(bool, String)>, StoreError> {
        let campaigns: Vec<i64> =
            reading!(self, |conn| campaign::table.select(campaign::id).load(conn))?;
        let mut unsettled = Vec::new();
        for campaigns in campaigns.chunks(ROWS) {
            let found: Vec<(i32, LossyText)> = reading!(self, |conn| sms::table
                .filter(sms::campaign_id.eq_any(campaigns))
                .filter(sms::state.eq_any([State::Sending.code(), State::Unknown.code()]))
                .filter(sms::phone.eq(phone))
                .filter(sms::id.ne(other_than))
                .select((sms::state, sms::content))
                .load(conn))?;
            let of =
                |(state, content): (i32, LossyText)| (state == State::Sending.code(), content.text);
            unsettled.extend(found.into_iter().map(of));
        }
        Ok(unsettled)
    }

    /// Those of `ids` under which `provider` accepted another message, and the phones of these messages.
    pub async fn ids_sent(
        &self,
        provider: &str,
        ids: &[String],
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut sent = Vec::new();
        for ids in ids.chunks(ROWS) {
            let rows: Vec<(Option<String>, LossyText)> = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::message_id.eq_any(ids))
                .filter(sms_sent::provider.eq(provider))
                .select((sms_sent::message_id, sms_sent::phone))
                .load(conn))?;
            let of = |(id, phone): (Option<String>, LossyText)| Some((id?, phone.text));
            sent.extend(rows.into_iter().filter_map(of));
        }
        Ok(sent)
    }

    /// Puts an unknown message back into the queue: `in_doubt` no more where its provider never had it, or
    /// still, and with the same reference. False when it is no longer unknown under this claim, has no attempts
    /// left (`max_attempts` 0: always), or its campaign is not active.
    pub async fn ready_unknown(
        &self,
        message: (i64, i64),
        in_doubt: bool,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let requeue = Requeue {
            campaign_id: None,
            message: Some(message),
            claimed_after: None,
            in_doubt,
            attempts_below: most(max_attempts),
            now,
        };
        Ok(self.requeue_chunk(requeue).await?.moved == 1)
    }

    /// Puts a campaign's unknown messages back into the queue, in doubt and with the same reference,
    /// where they have attempts left (`max_attempts` 0: always). Returns how many; none where the campaign
    /// is not active.
    pub async fn requeue_unknown(
        &self,
        campaign_id: i64,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.requeue(campaign_id, None, max_attempts, now).await
    }

    /// The same, only where their last attempt was claimed after `claimed_after`.
    pub async fn requeue_honoured(
        &self,
        campaign_id: i64,
        claimed_after: Timestamp,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.requeue(campaign_id, Some(claimed_after), max_attempts, now)
            .await
    }

    async fn requeue(
        &self,
        campaign_id: i64,
        claimed_after: Option<Timestamp>,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let requeue = Requeue {
            campaign_id: Some(campaign_id),
            message: None,
            claimed_after,
            in_doubt: true,
            attempts_below: most(max_attempts),
            now,
        };
        chunked(async || self.requeue_chunk(requeue).await).await
    }

    async fn requeue_chunk(&self, requeue: Requeue) -> Result<Chunk, StoreError> {
        transaction!(self, |connection| requeue_chunk(connection, requeue))
    }

    /// Makes a message unknown whose outcome the database refuses to store, with that as its reason, so that it is not
    /// sent again. False where the settlement's claim is not the message's any more.
    pub async fn set_aside(
        &self,
        settlement: &Settlement,
        error: &StoreError,
    ) -> Result<bool, StoreError> {
        let (outcome, counted) = match &settlement.transition {
            Transition::Sent(acceptance) => {
                let provider = &settlement.provider;
                let id = acceptance.message_id.as_ref();
                let id = id.map(|id| format!(" as `{id}`")).unwrap_or_default();
                (format!("`{provider}` accepted it{id}"), 1)
            }
            Transition::Failed(failure) => (format!("it failed: {}", failure.reason), 1),
            Transition::NotAdmitted(failure) => (format!("it was not sent: {}", failure.reason), 0),
            Transition::Unknown(failure) => (failure.reason.clone(), 1),
            Transition::Ready { counted, .. } => {
                ("it was not accepted".to_owned(), i32::from(*counted))
            }
            // It stays unknown.
            Transition::FoundRejected(_) | Transition::Refunded => return Ok(false),
        };
        let refused = error.reason();
        let reason = format!("{outcome}; the database refuses to store that: {refused}");
        let reason: String = reason.chars().take(REASON).collect();
        let unknown = (
            sms::state.eq(State::Unknown.code()),
            sms::in_doubt.eq(true),
            // Its outcome is known, so no later answer ends the doubt.
            sms::unknown_at.eq(None::<i64>),
            sms::worker_id.eq(None::<i64>),
            sms::last_class.eq(Class::Unknown.as_str()),
            sms::last_code.eq(NOT_STORED),
            sms::last_reason.eq(reason),
        );
        let own: usize = writing!(self, |conn| update(
            sms::table
                .filter(sms::id.eq(settlement.id))
                .filter(sms::claim.eq(settlement.claim))
                .filter(sms::state.eq(State::Sending.code()))
        )
        .set((unknown.clone(), sms::attempts.eq(sms::attempts + counted)))
        .execute(conn))?;
        if own == 1 || !matches!(settlement.transition, Transition::Sent(_)) {
            return Ok(own == 1);
        }
        // It was accepted, so it must not be sent again where it is queued.
        let late: usize = writing!(self, |conn| update(
            sms::table
                .filter(sms::id.eq(settlement.id))
                .filter(sms::state.ne(State::Sending.code()))
        )
        .set(unknown.clone())
        .execute(conn))?;
        Ok(late == 1)
    }
}

/// Which unknown messages go back into the queue, and how.
#[derive(Clone, Copy)]
struct Requeue {
    campaign_id: Option<i64>,
    /// Only this message, under this claim.
    message: Option<(i64, i64)>,
    /// Only messages whose last attempt was claimed after this.
    claimed_after: Option<Timestamp>,
    in_doubt: bool,
    attempts_below: i32,
    now: Timestamp,
}

/// Id and campaign of the messages that are meant, at most a chunk. A macro, because a boxed query is of one engine.
macro_rules! requeue_matching {
    ($requeue:expr) => {{
        let requeue: Requeue = $requeue;
        let mut query = sms::table
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::attempts.lt(requeue.attempts_below))
            .filter(has_other_code(NOT_STORED).assume_not_null())
            .limit(CHUNK)
            .select((sms::id, sms::campaign_id))
            .into_boxed();
        if let Some(campaign_id) = requeue.campaign_id {
            query = query.filter(sms::campaign_id.eq(campaign_id));
        }
        if let Some((id, claim)) = requeue.message {
            query = query.filter(sms::id.eq(id)).filter(sms::claim.eq(claim));
        }
        if let Some(after) = requeue.claimed_after {
            let claimed = sms::claimed_at.gt(after.as_millis());
            query = query.filter(claimed.assume_not_null());
        }
        query
    }};
}

/// Puts a chunk of unknown messages of active campaigns back into the queue.
async fn requeue_chunk(connection: &mut Connection, requeue: Requeue) -> QueryResult<Chunk> {
    let rows: Vec<(i64, i64)> =
        with_conn!(connection, |conn| requeue_matching!(requeue).load(conn))?;
    let ids = rows.iter().map(|(id, _)| *id);
    let rows: QueryResult<Vec<(i64, i64)>> = load_locked!(
        connection,
        sms::table
            .filter(sms::id.eq_any(ids.clone()))
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::attempts.lt(requeue.attempts_below))
            .order(sms::id)
            .select((sms::id, sms::campaign_id))
    );
    let rows = rows?;
    let campaigns: BTreeSet<i64> = rows.iter().map(|(_, campaign_id)| *campaign_id).collect();
    let statuses = settle::lock_statuses(connection, &campaigns).await?;
    let active = rows
        .iter()
        .filter(|(_, campaign_id)| statuses.contains(&(*campaign_id, CampaignStatus::Active)));
    let ids: Vec<i64> = active.map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Ok(Chunk::all(0));
    }
    with_conn!(connection, |conn| update(
        sms::table.filter(sms::id.eq_any(&ids))
    )
    .set((
        sms::state.eq(State::Ready.code()),
        sms::in_doubt.eq(requeue.in_doubt),
        sms::due_at.eq(requeue.now.as_millis()),
    ))
    .execute(conn))?;
    Ok(Chunk::all(ids.len()))
}

/// The outcome of a message with this code is known, but cannot be stored.
#[diesel::dsl::auto_type]
fn has_other_code(code: &'static str) -> _ {
    sms::last_code.is_null().or(sms::last_code.ne(code))
}

fn most(attempts: i32) -> i32 {
    if attempts == 0 { i32::MAX } else { attempts }
}
