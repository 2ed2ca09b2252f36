//! The operator's moves on servers, a chunk a transaction, and the parking of what dead workers held.

use std::collections::BTreeSet;
use std::sync::Arc;

use diesel::prelude::*;
use diesel::{QueryResult, delete, insert_into, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::moves::{self, Fault, Taken};
use super::{Server, insert, settle};
use crate::queue::transition::{cancelled, expired};
use crate::queue::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, Failure, State, Timestamp};
use crate::store::foreign::LossyText;
use crate::store::ledger::{
    Chunk, Expired, QueuePlace, Queued, RetryFilter, expiring, failed_matching, queued_after,
    unknown_matching,
};
use crate::store::schema::{campaign, sms, sms_failed, worker};
use crate::store::unknown::{Requeue, requeue_matching};
use crate::store::workers::NewWorker;
use crate::store::{CHUNK, CampaignStatus, StoreError, Worker};

/// The ledger's provider of messages that an operator settled.
const BY_WORD: &str = "operator";
/// The ledger's provider of messages whose acceptance came after their claim was another's.
const LATE: &str = "late";

impl Server {
    pub(in crate::store) async fn retry_failed(
        &self,
        filter: RetryFilter,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        let filter = Arc::new(filter);
        self.transaction(|link| {
            let filter = Arc::clone(&filter);
            Box::pin(async move { retry_failed(link, &filter, now).await })
        })
        .await
    }

    pub(in crate::store) async fn retry_unknown(
        &self,
        filter: RetryFilter,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        let filter = Arc::new(filter);
        self.transaction(|link| {
            let filter = Arc::clone(&filter);
            Box::pin(async move { retry_unknown(link, &filter, now).await })
        })
        .await
    }

    pub(in crate::store) async fn settle_unknown(
        &self,
        campaign_id: i64,
        as_sent: bool,
        phone: Option<String>,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        let all = Arc::new(RetryFilter {
            campaign_id: Some(campaign_id),
            phone,
            ..RetryFilter::default()
        });
        self.transaction(|link| {
            let all = Arc::clone(&all);
            Box::pin(async move {
                let ids = unknown_ids(link, vec![campaign_id], &all, None).await?;
                let ids: Vec<i64> = ids.into_iter().map(|(id, _)| id).collect();
                if as_sent {
                    let rows = moves::rows(link, &ids).await?;
                    let sent = rows.iter().map(|row| {
                        row.sent(BY_WORD.to_owned(), Acceptance::default(), Taken::default())
                    });
                    moves::to_sent(link, sent.collect(), now).await?;
                } else {
                    let failure = Failure::new(Class::Settled, "an operator settled it as failed");
                    moves::to_failed(link, &ids, &Fault::of(&failure, 0), now).await?;
                }
                Ok(Chunk::all(ids.len()))
            })
        })
        .await
    }

    pub(in crate::store) async fn cancel_rows(
        &self,
        campaign_id: i64,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        self.transaction(|link| Box::pin(async move { cancel_rows(link, campaign_id, now).await }))
            .await
    }

    pub(in crate::store) async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        after: Option<QueuePlace>,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        self.transaction(|link| {
            Box::pin(async move {
                let rows: Vec<Queued> = on!(link, |conn| queued_after!(campaign_id, after)
                    .for_update()
                    .load(conn))?;
                let (doubtful, certain, reached) = expiring(&rows, by);
                let expired = Fault::of(&expired(), 0);
                moves::park(link, &doubtful, &expired, now).await?;
                moves::to_failed(link, &certain, &expired, now).await?;
                let rows = (doubtful.len() + certain.len()) as u64;
                Ok(Expired { rows, reached })
            })
        })
        .await
    }

    /// Puts a chunk of unknown messages back into the queue.
    pub(in crate::store) async fn requeue(&self, which: Requeue) -> Result<Chunk, StoreError> {
        self.transaction(|link| Box::pin(async move { requeue(link, &which).await }))
            .await
    }

    pub(in crate::store) async fn register_worker(
        &self,
        new: &NewWorker,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let new = Arc::new(new.clone());
        self.transaction(|link| {
            let new = Arc::clone(&new);
            Box::pin(async move {
                on!(link, |conn| insert_into(worker::table)
                    .values((
                        &*new,
                        worker::started_at.eq(now.as_millis()),
                        worker::heartbeat_at.eq(now.as_millis()),
                    ))
                    .execute(conn))?;
                insert::last_id(link).await
            })
        })
        .await
    }

    pub(in crate::store) async fn park_dead(
        &self,
        dead: Worker,
        reason: String,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let reason: Arc<str> = reason.into();
        self.transaction(|link| {
            let reason = Arc::clone(&reason);
            Box::pin(async move {
                let gone = on!(link, |conn| delete(worker::table.find(dead.id))
                    .filter(worker::heartbeat_at.eq(dead.heartbeat_at))
                    .execute(conn))?;
                if gone == 0 {
                    return Ok(0);
                }
                let mut rows = sending(link).await?;
                rows.retain(|row| row.worker_id == Some(dead.id));
                park_all(link, &rows, &reason, now).await
            })
        })
        .await
    }

    pub(in crate::store) async fn park_nobodys(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.transaction(|link| {
            Box::pin(async move {
                // The claims first: whoever has made one of these was on the list before.
                let mut rows = sending(link).await?;
                let listed: Vec<i64> =
                    on!(link, |conn| worker::table.select(worker::id).load(conn))?;
                rows.retain(|row| row.worker_id.is_none_or(|id| !listed.contains(&id)));
                park_all(link, &rows, "its worker is gone", now).await
            })
        })
        .await
    }

    /// Settles claims (id, claim, due moment) whose requests were never started.
    pub(in crate::store) async fn release(
        &self,
        orphans: Vec<(i64, i64, i64)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let released: Arc<[Settlement]> = orphans
            .into_iter()
            .map(|(id, claim, due_at)| Settlement {
                id,
                claim,
                provider: LATE.to_owned(),
                transition: Transition::Ready {
                    due_at: Timestamp::from_millis(due_at),
                    failure: None,
                    counted: false,
                    in_doubt: false,
                },
            })
            .collect();
        self.transaction(|link| {
            let released = Arc::clone(&released);
            Box::pin(async move {
                let settled = settle::settle_all(link, &released, now).await?;
                let done = settled.iter().filter(|one| **one == Settled::Done);
                Ok(done.count() as u64)
            })
        })
        .await
    }
}

/// A row in state *sending*.
#[derive(Queryable)]
struct Sending {
    id: i64,
    claim: i64,
    worker_id: Option<i64>,
}

/// All of them, found campaign by campaign on the index.
async fn sending(link: &mut Link) -> QueryResult<Vec<Sending>> {
    let mut rows = Vec::new();
    for campaign_id in campaigns(link).await? {
        let found: Vec<Sending> = on!(link, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Sending.code()))
            .select((sms::id, sms::claim, sms::worker_id))
            .load(conn))?;
        rows.extend(found);
    }
    Ok(rows)
}

async fn campaigns(link: &mut Link) -> QueryResult<Vec<i64>> {
    on!(link, |conn| campaign::table
        .order(campaign::id)
        .select(campaign::id)
        .load(conn))
}

async fn park_all(
    link: &mut Link,
    rows: &[Sending],
    reason: &str,
    now: Timestamp,
) -> QueryResult<u64> {
    let parked: Vec<Settlement> = rows
        .iter()
        .map(|row| Settlement {
            id: row.id,
            claim: row.claim,
            provider: LATE.to_owned(),
            transition: Transition::Unknown(Failure::new(Class::Unknown, reason)),
        })
        .collect();
    settle::settle_all(link, &parked, now).await?;
    Ok(rows.len() as u64)
}

async fn cancel_rows(link: &mut Link, campaign_id: i64, now: Timestamp) -> QueryResult<Chunk> {
    let rows: Vec<(i64, bool)> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .order((sms::due_at, sms::id))
        .limit(CHUNK)
        .select((sms::id, sms::in_doubt))
        .for_update()
        .load(conn))?;
    let of = |doubtful: bool| {
        let rows = rows
            .iter()
            .filter(move |(_, in_doubt)| *in_doubt == doubtful);
        let mut ids: Vec<i64> = rows.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    };
    let doubtful = Failure::new(
        Class::Unknown,
        "its campaign was cancelled while it was in doubt",
    );
    moves::park(link, &of(true), &Fault::of(&doubtful, 0), now).await?;
    let certain = of(false);
    moves::give_up_keys(link, &certain).await?;
    moves::to_failed(link, &certain, &Fault::of(&cancelled(), 0), now).await?;
    Ok(Chunk::all(rows.len()))
}

async fn requeue(link: &mut Link, which: &Requeue) -> QueryResult<Chunk> {
    let rows: Vec<(i64, i64)> = on!(link, |conn| requeue_matching!(which).load(conn))?;
    let ids = rows.iter().map(|(id, _)| *id);
    let rows: Vec<(i64, i64)> = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .filter(sms::state.eq(State::Unknown.code()))
        .filter(sms::attempts.lt(which.attempts_below))
        .order(sms::id)
        .select((sms::id, sms::campaign_id))
        .for_update()
        .load(conn))?;
    let campaigns: BTreeSet<i64> = rows.iter().map(|(_, campaign_id)| *campaign_id).collect();
    if campaigns.is_empty() {
        return Ok(Chunk::all(0));
    }
    // None of them is cancelled before this transaction ends.
    let states = settle::hold_states(link, &campaigns).await?;
    let is_active = |campaign_id| states.contains(&(campaign_id, CampaignStatus::Active.code()));
    let active = rows
        .iter()
        .filter(|(_, campaign_id)| is_active(*campaign_id));
    let ids: Vec<i64> = active.map(|(id, _)| *id).collect();
    on!(link, |conn| update(sms::table.filter(sms::id.eq_any(&ids)))
        .set((
            sms::state.eq(State::Ready.code()),
            sms::in_doubt.eq(which.in_doubt),
            sms::due_at.eq(which.now.as_millis()),
        ))
        .execute(conn))?;
    Ok(Chunk::all(ids.len()))
}

async fn retry_failed(link: &mut Link, filter: &RetryFilter, now: Timestamp) -> QueryResult<Chunk> {
    let letters = failed_letters(link, filter, now).await?;
    let looked_at = letters.len() as u64;
    let campaigns = letters.iter().map(|(_, campaign_id, ..)| *campaign_id);
    let open = hold_open(link, campaigns.collect()).await?;
    let mut back: Vec<i64> = Vec::new();
    for (id, campaign_id, class, key) in letters {
        if !open.contains(&campaign_id) {
            continue;
        }
        let cancelled = class == Class::Cancelled.as_str();
        if let (true, Some(key)) = (cancelled, key)
            && moves::take_keys(link, campaign_id, &[key.text]).await? == 0
        {
            // It was imported again meanwhile: this one stays cancelled, under no key.
            on!(link, |conn| update(sms_failed::table.find(id))
                .set(sms_failed::dedupe_key.eq(None::<String>))
                .execute(conn))?;
            continue;
        }
        back.push(id);
    }
    moves::back_to_queue(link, &back, now).await?;
    on!(link, |conn| update(
        sms::table.filter(sms::id.eq_any(&back))
    )
    .set((sms::attempts.eq(0), sms::reference.eq(None::<String>)))
    .execute(conn))?;
    set_expiry(link, &back, filter.expires_at).await?;
    Ok(Chunk {
        looked_at,
        moved: back.len() as u64,
    })
}

async fn retry_unknown(
    link: &mut Link,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let mut meant: Vec<i64> = on!(link, |conn| campaign::table
        .filter(campaign::state.ne(CampaignStatus::Cancelled.code()))
        .order(campaign::id)
        .select(campaign::id)
        .load(conn))?;
    meant.retain(|id| filter.campaign_id.is_none_or(|only| only == *id));
    let rows = unknown_ids(link, meant, filter, Some(now)).await?;
    let campaigns = rows.iter().map(|(_, campaign_id)| *campaign_id);
    let open = hold_open(link, campaigns.collect()).await?;
    let back = rows
        .iter()
        .filter(|(_, campaign_id)| open.contains(campaign_id));
    let ids: Vec<i64> = back.map(|(id, _)| *id).collect();
    on!(link, |conn| update(sms::table.filter(sms::id.eq_any(&ids)))
        .set((
            sms::state.eq(State::Ready.code()),
            sms::attempts.eq(0),
            sms::due_at.eq(now.as_millis()),
        ))
        .execute(conn))?;
    set_expiry(link, &ids, filter.expires_at).await?;
    Ok(Chunk {
        looked_at: rows.len() as u64,
        moved: ids.len() as u64,
    })
}

/// Those of the campaigns that are not cancelled, and none of them is before this transaction ends.
async fn hold_open(link: &mut Link, campaigns: BTreeSet<i64>) -> QueryResult<BTreeSet<i64>> {
    if campaigns.is_empty() {
        return Ok(campaigns);
    }
    let states = settle::hold_states(link, &campaigns).await?;
    let open = states
        .into_iter()
        .filter(|(_, state)| *state != CampaignStatus::Cancelled.code());
    Ok(open.map(|(id, _)| id).collect())
}

async fn set_expiry(
    link: &mut Link,
    ids: &[i64],
    expires_at: Option<Timestamp>,
) -> QueryResult<()> {
    if let Some(expires_at) = expires_at {
        on!(link, |conn| update(sms::table.filter(sms::id.eq_any(ids)))
            .set(sms::expires_at.eq(expires_at.as_millis()))
            .execute(conn))?;
    }
    Ok(())
}

type Letter = (i64, i64, String, Option<LossyText>);

/// The failed messages that an operator means, held until the transaction ends.
async fn failed_letters(
    link: &mut Link,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Vec<Letter>> {
    let ids: Vec<i64> = on!(link, |conn| failed_matching!(filter, now).load(conn))?;
    on!(link, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(&ids))
        .order(sms_failed::id)
        .select((
            sms_failed::id,
            sms_failed::campaign_id,
            sms_failed::class,
            sms_failed::dedupe_key,
        ))
        .for_update()
        .load(conn))
}

/// Unknown messages and their campaigns, held until the transaction ends; `now` leaves out those whose time has
/// passed, unless the filter sets a new one.
async fn unknown_ids(
    link: &mut Link,
    campaigns: Vec<i64>,
    filter: &RetryFilter,
    now: Option<Timestamp>,
) -> QueryResult<Vec<(i64, i64)>> {
    let mut ids: Vec<i64> = Vec::new();
    for campaign_id in campaigns {
        let found: Vec<i64> = on!(link, |conn| unknown_matching!(campaign_id, filter, now)
            .load(conn))?;
        ids.extend(found);
        if ids.len() >= usize::try_from(CHUNK).unwrap_or(usize::MAX) {
            break;
        }
    }
    on!(link, |conn| sms::table
        .filter(sms::id.eq_any(&ids))
        .filter(sms::state.eq(State::Unknown.code()))
        .order(sms::id)
        .select((sms::id, sms::campaign_id))
        .for_update()
        .load(conn))
}
