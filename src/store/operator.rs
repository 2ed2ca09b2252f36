//! The operator's commands on stored messages: retry, settle, cancel, expire. They work in chunks, so they can be
//! interrupted and repeated.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;

use super::connection::{Connection, ROWS, load_locked, transaction, with_conn};
use super::lossy_text::LossyText;
use super::schema::{campaign, sms, sms_failed};
use super::transitions::{self, FailureColumns, SentCounts};
use super::{CHUNK, CampaignStatus, Store, StoreError, settle};
use crate::queue::transition::expired;
use crate::sms::{Acceptance, Class, Failure, State, Timestamp};

/// The provider in `sms_sent` of messages that an operator settled.
const OPERATOR: &str = "operator";

/// Which messages an operator means; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct RetryFilter {
    pub campaign_id: Option<i64>,
    pub class: Option<Class>,
    pub code: Option<String>,
    /// E.164 with `+`.
    pub phone: Option<String>,
    /// When the messages expire from now on. Without it, messages that have expired stay where they are.
    pub expires_at: Option<Timestamp>,
}

/// A place in a campaign's queue: when its message is due, and the message's id.
pub type QueuePlace = (i64, i64);

/// What was done with one chunk of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub rows: u64,
    /// Where to continue; `None` at the end of the queue.
    pub reached: Option<QueuePlace>,
}

/// What one transaction of a command did.
pub(super) struct Chunk {
    /// The command is done when there is nothing left to look at.
    pub(super) looked_at: u64,
    pub(super) moved: u64,
}

impl Chunk {
    /// Every row that was looked at was moved.
    pub(super) fn all(rows: usize) -> Self {
        Self {
            looked_at: rows as u64,
            moved: rows as u64,
        }
    }
}

/// Repeats a chunk until nothing is left to look at; returns how many rows were moved.
pub(super) async fn chunked(
    chunk: impl AsyncFn() -> Result<Chunk, StoreError>,
) -> Result<u64, StoreError> {
    let mut moved = 0;
    loop {
        let chunk = chunk().await?;
        if chunk.looked_at == 0 {
            return Ok(moved);
        }
        moved += chunk.moved;
    }
}

impl Store {
    /// Puts failed messages back into the queue, with a new reference and all their attempts; none of a cancelled
    /// campaign. Cancelled messages only where the filter has that class and their key is free.
    pub async fn retry_failed(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        chunked(async || transaction!(self, |connection| retry_failed(connection, filter, now)))
            .await
    }

    /// Puts unknown messages back into the queue, in doubt and with the same reference; none of a cancelled campaign.
    pub async fn retry_unknown(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        chunked(async || transaction!(self, |connection| retry_unknown(connection, filter, now)))
            .await
    }

    /// Settles unknown messages of a campaign as sent or as failed, as the operator decided.
    pub async fn settle_unknown(
        &self,
        campaign_id: i64,
        as_sent: bool,
        phone: Option<&str>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let filter = RetryFilter {
            campaign_id: Some(campaign_id),
            phone: phone.map(str::to_owned),
            ..RetryFilter::default()
        };
        let chunk = async || {
            transaction!(self, |connection| settle_unknown(
                connection,
                campaign_id,
                &filter,
                as_sent,
                now
            ))
        };
        chunked(chunk).await
    }

    /// Fails the ready messages of a cancelled campaign with class `cancelled` and removes their keys; those in doubt
    /// become unknown.
    pub async fn cancel_rows(&self, campaign_id: i64, now: Timestamp) -> Result<u64, StoreError> {
        chunked(async || transaction!(self, |connection| cancel_rows(connection, campaign_id, now)))
            .await
    }

    /// Fails ready messages of a campaign that expire by an instant before which none of them may be sent; those in
    /// doubt become unknown. Looks at the next chunk of the queue after a place.
    pub async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        after: Option<QueuePlace>,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        transaction!(self, |connection| expire_rows(
            connection,
            campaign_id,
            by,
            after,
            now
        ))
    }
}

async fn retry_failed(
    connection: &mut Connection,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let failed = lock_failed(connection, filter, now).await?;
    let campaigns = failed.iter().map(|(_, campaign_id, ..)| *campaign_id);
    let open = lock_open(connection, campaigns.collect()).await?;
    let looked_at = failed.len() as u64;
    let mut back: Vec<i64> = Vec::new();
    for (id, campaign_id, class, key) in failed {
        if !open.contains(&campaign_id) {
            continue;
        }
        let key = key.filter(|_| class == Class::Cancelled.as_str());
        if let Some(key) = key
            && transitions::add_keys(connection, campaign_id, &[key.text]).await? == 0
        {
            // It was imported again: this one stays cancelled, without a key.
            with_conn!(connection, |conn| update(sms_failed::table.find(id))
                .set(sms_failed::dedupe_key.eq(None::<String>))
                .execute(conn))?;
            continue;
        }
        back.push(id);
    }
    transitions::back_to_queue(connection, &back, now).await?;
    with_conn!(connection, |conn| update(
        sms::table.filter(sms::id.eq_any(&back))
    )
    .set((sms::attempts.eq(0), sms::reference.eq(None::<String>)))
    .execute(conn))?;
    set_expiry(connection, &back, filter.expires_at).await?;
    Ok(Chunk {
        looked_at,
        moved: back.len() as u64,
    })
}

async fn retry_unknown(
    connection: &mut Connection,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let mut campaigns: Vec<i64> = with_conn!(connection, |conn| campaign::table
        .filter(campaign::state.ne(CampaignStatus::Cancelled.code()))
        .order(campaign::id)
        .select(campaign::id)
        .load(conn))?;
    campaigns.retain(|id| filter.campaign_id.is_none_or(|only| only == *id));
    let rows = lock_unknown(connection, campaigns, filter, Some(now)).await?;
    let campaigns = rows.iter().map(|(_, campaign_id)| *campaign_id);
    let open = lock_open(connection, campaigns.collect()).await?;
    let back = rows
        .iter()
        .filter(|(_, campaign_id)| open.contains(campaign_id));
    let ids: Vec<i64> = back.map(|(id, _)| *id).collect();
    with_conn!(connection, |conn| update(
        sms::table.filter(sms::id.eq_any(&ids))
    )
    .set((
        sms::state.eq(State::Ready.code()),
        sms::attempts.eq(0),
        sms::due_at.eq(now.as_millis()),
    ))
    .execute(conn))?;
    set_expiry(connection, &ids, filter.expires_at).await?;
    Ok(Chunk {
        looked_at: rows.len() as u64,
        moved: ids.len() as u64,
    })
}

async fn settle_unknown(
    connection: &mut Connection,
    campaign_id: i64,
    filter: &RetryFilter,
    as_sent: bool,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let ids = lock_unknown(connection, vec![campaign_id], filter, None).await?;
    let ids: Vec<i64> = ids.into_iter().map(|(id, _)| id).collect();
    if as_sent {
        let rows = transitions::rows(connection, &ids).await?;
        let sent = rows
            .iter()
            .map(|row| row.sent(OPERATOR, Acceptance::default(), SentCounts::default(), now));
        transitions::to_sent(connection, sent.collect()).await?;
    } else {
        let failure = Failure::new(Class::Settled, "an operator settled it as failed");
        let failure = FailureColumns::of(&failure, 0);
        transitions::to_failed(connection, &ids, &failure, now).await?;
    }
    Ok(Chunk::all(ids.len()))
}

async fn cancel_rows(
    connection: &mut Connection,
    campaign_id: i64,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let rows: QueryResult<Vec<(i64, bool)>> = load_locked!(
        connection,
        sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .order((sms::due_at, sms::id))
            .limit(CHUNK)
            .select((sms::id, sms::in_doubt))
    );
    let rows = rows?;
    let [doubtful, certain] = by_doubt(rows.iter().copied());
    let why = "its campaign was cancelled while it was in doubt";
    let failure = FailureColumns::of(&Failure::new(Class::Unknown, why), 0);
    transitions::mark_unknown(connection, &doubtful, &failure, now).await?;
    settle::cancel(connection, &certain, 0, now).await?;
    Ok(Chunk::all(rows.len()))
}

async fn expire_rows(
    connection: &mut Connection,
    campaign_id: i64,
    by: Timestamp,
    after: Option<QueuePlace>,
    now: Timestamp,
) -> QueryResult<Expired> {
    type Row = (i64, i64, Option<i64>, bool);
    let (due_at, id) = after.unwrap_or((i64::MIN, i64::MIN));
    let rows: QueryResult<Vec<Row>> = load_locked!(
        connection,
        sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.ge(due_at))
            .filter(sms::due_at.gt(due_at).or(sms::id.gt(id)))
            .order((sms::due_at, sms::id))
            .limit(CHUNK)
            .select((sms::due_at, sms::id, sms::expires_at, sms::in_doubt))
    );
    let rows = rows?;
    let expires = |row: &&Row| row.2.is_some_and(|at| at <= by.as_millis());
    let expiring = rows.iter().filter(expires);
    let [doubtful, certain] = by_doubt(expiring.map(|&(_, id, _, in_doubt)| (id, in_doubt)));
    let failure = FailureColumns::of(&expired(), 0);
    transitions::mark_unknown(connection, &doubtful, &failure, now).await?;
    transitions::to_failed(connection, &certain, &failure, now).await?;
    let is_full = rows.len() >= ROWS;
    let last = rows.last().filter(|_| is_full);
    Ok(Expired {
        rows: (doubtful.len() + certain.len()) as u64,
        reached: last.map(|row| (row.0, row.1)),
    })
}

/// The sorted ids of messages that are in doubt, and of the others.
fn by_doubt(rows: impl Iterator<Item = (i64, bool)>) -> [Vec<i64>; 2] {
    let (doubtful, certain): (Vec<_>, Vec<_>) = rows.partition(|(_, in_doubt)| *in_doubt);
    [doubtful, certain].map(|rows| {
        let mut ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    })
}

/// Those of the campaigns that are not cancelled, and are not before this transaction ends.
async fn lock_open(
    connection: &mut Connection,
    campaigns: BTreeSet<i64>,
) -> QueryResult<BTreeSet<i64>> {
    let statuses = settle::lock_statuses(connection, &campaigns).await?;
    let open = statuses
        .into_iter()
        .filter(|(_, status)| *status != CampaignStatus::Cancelled);
    Ok(open.map(|(id, _)| id).collect())
}

async fn set_expiry(
    connection: &mut Connection,
    ids: &[i64],
    expires_at: Option<Timestamp>,
) -> QueryResult<()> {
    if let Some(expires_at) = expires_at {
        with_conn!(connection, |conn| update(
            sms::table.filter(sms::id.eq_any(ids))
        )
        .set(sms::expires_at.eq(expires_at.as_millis()))
        .execute(conn))?;
    }
    Ok(())
}

/// The oldest failed messages that the filter means, at most a chunk; none of a cancelled campaign. A macro, because
/// a boxed query is of one engine.
macro_rules! failed_matching {
    ($filter:expr, $now:expr) => {{
        let filter: &RetryFilter = $filter;
        let mut query = sms_failed::table
            .order(sms_failed::id)
            .filter(
                sms_failed::campaign_id.ne_all(
                    campaign::table
                        .filter(campaign::state.eq(CampaignStatus::Cancelled.code()))
                        .select(campaign::id),
                ),
            )
            .limit(CHUNK)
            .select(sms_failed::id)
            .into_boxed();
        if let Some(campaign_id) = filter.campaign_id {
            query = query.filter(sms_failed::campaign_id.eq(campaign_id));
        }
        query = match filter.class {
            // A cancelled message of an import without a key was imported again: it stays.
            Some(Class::Cancelled) => query
                .filter(sms_failed::class.eq(Class::Cancelled.as_str()))
                .filter(
                    sms_failed::dedupe_key
                        .is_not_null()
                        .or(sms_failed::import_id.is_null()),
                ),
            Some(class) => query.filter(sms_failed::class.eq(class.as_str())),
            None => query.filter(sms_failed::class.ne(Class::Cancelled.as_str())),
        };
        if let Some(code) = &filter.code {
            query = query.filter(sms_failed::code.eq(code.clone()));
        }
        if let Some(phone) = &filter.phone {
            query = query.filter(sms_failed::phone.eq(phone.clone()));
        }
        if filter.expires_at.is_none() {
            let now: Timestamp = $now;
            let is_alive = sms_failed::expires_at
                .is_null()
                .or(sms_failed::expires_at.gt(now.as_millis()));
            query = query.filter(is_alive.assume_not_null());
        }
        query
    }};
}

/// The failed messages that the filter means, locked: id, campaign, class and dedupe key.
async fn lock_failed(
    connection: &mut Connection,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Vec<(i64, i64, String, Option<LossyText>)>> {
    let ids: Vec<i64> = with_conn!(connection, |conn| failed_matching!(filter, now).load(conn))?;
    load_locked!(
        connection,
        sms_failed::table
            .filter(sms_failed::id.eq_any(&ids))
            .order(sms_failed::id)
            .select((
                sms_failed::id,
                sms_failed::campaign_id,
                sms_failed::class,
                sms_failed::dedupe_key,
            ))
    )
}

/// The unknown messages of a campaign that the filter means, at most a chunk. With `now` those that have expired are
/// left out, unless the filter sets a new expiry.
macro_rules! unknown_matching {
    ($campaign_id:expr, $filter:expr, $now:expr) => {{
        let filter: &RetryFilter = $filter;
        let mut query = sms::table
            .filter(sms::campaign_id.eq($campaign_id))
            .filter(sms::state.eq(State::Unknown.code()))
            .limit(CHUNK)
            .select(sms::id)
            .into_boxed();
        if let Some(phone) = &filter.phone {
            query = query.filter(sms::phone.eq(phone.clone()));
        }
        if let Some(code) = &filter.code {
            query = query.filter(sms::last_code.eq(code.clone()));
        }
        let now: Option<Timestamp> = $now;
        if let (Some(now), None) = (now, filter.expires_at) {
            let is_alive = sms::expires_at
                .is_null()
                .or(sms::expires_at.gt(now.as_millis()));
            query = query.filter(is_alive.assume_not_null());
        }
        query
    }};
}

/// The unknown messages that the filter means, locked: id and campaign.
async fn lock_unknown(
    connection: &mut Connection,
    campaigns: Vec<i64>,
    filter: &RetryFilter,
    now: Option<Timestamp>,
) -> QueryResult<Vec<(i64, i64)>> {
    let mut ids: Vec<i64> = Vec::new();
    for campaign_id in campaigns {
        let found: Vec<i64> = with_conn!(connection, |conn| unknown_matching!(
            campaign_id,
            filter,
            now
        )
        .load(conn))?;
        ids.extend(found);
        if ids.len() >= ROWS {
            break;
        }
    }
    load_locked!(
        connection,
        sms::table
            .filter(sms::id.eq_any(&ids))
            .filter(sms::state.eq(State::Unknown.code()))
            .order(sms::id)
            .select((sms::id, sms::campaign_id))
    )
}
