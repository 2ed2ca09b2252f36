//! The operator's moves on SQLite, a chunk a transaction, and the parking of what dead workers held.

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::super::foreign::LossyText;
use super::super::ledger::{
    Chunk, Expired, QueuePlace, Queued, RetryFilter, expiring, failed_matching, queued_after,
    unknown_matching,
};
use super::super::schema::{campaign, sms, sms_failed, worker};
use super::super::unknown::{Requeue, requeue_matching};
use super::super::{CHUNK, CampaignStatus, NewWorker, StoreError, Worker};
use super::{Sqlite, insert, moves, settle};
use crate::queue::transition;
use crate::queue::{Settled, Settlement, Transition};
use crate::sms::{Class, Failure, State, Timestamp};

/// The ledger's provider of messages that an operator settled.
const BY_WORD: &str = "operator";
/// The ledger's provider of messages whose acceptance came after their claim was another's.
const LATE: &str = "late";

impl Sqlite {
    pub(in crate::store) async fn retry_failed(
        &self,
        filter: RetryFilter,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        self.write(move |conn| {
            let letters = failed_letters(conn, &filter, now)?;
            let looked_at = letters.len() as u64;
            let mut moved = 0;
            for (id, campaign_id, class, key) in letters {
                let cancelled = class == Class::Cancelled.as_str();
                if let (true, Some(key)) = (cancelled, key)
                    && !insert::insert_key(conn, campaign_id, &key.text)?
                {
                    // It was imported again meanwhile: this one stays cancelled, under no key.
                    diesel::update(sms_failed::table.find(id))
                        .set(sms_failed::dedupe_key.eq(None::<String>))
                        .execute(conn)?;
                    continue;
                }
                moves::back_to_queue(conn, id, now)?;
                diesel::update(sms::table.find(id))
                    .set((sms::attempts.eq(0), sms::reference.eq(None::<String>)))
                    .execute(conn)?;
                if let Some(expires_at) = filter.expires_at {
                    diesel::update(sms::table.find(id))
                        .set(sms::expires_at.eq(expires_at.as_millis()))
                        .execute(conn)?;
                }
                moved += 1;
            }
            Ok(Chunk { looked_at, moved })
        })
        .await
    }

    pub(in crate::store) async fn retry_unknown(
        &self,
        filter: RetryFilter,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        self.write(move |conn| {
            let campaigns = open_campaigns(conn, filter.campaign_id)?;
            let ids = unknown_ids(conn, campaigns, &filter, Some(now))?;
            for id in &ids {
                diesel::update(sms::table.find(id))
                    .set((
                        sms::state.eq(State::Ready.code()),
                        sms::attempts.eq(0),
                        sms::due_at.eq(now.as_millis()),
                    ))
                    .execute(conn)?;
                if let Some(expires_at) = filter.expires_at {
                    diesel::update(sms::table.find(id))
                        .set(sms::expires_at.eq(expires_at.as_millis()))
                        .execute(conn)?;
                }
            }
            Ok(Chunk::all(ids.len()))
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
        self.write(move |conn| {
            let all = RetryFilter {
                campaign_id: Some(campaign_id),
                phone,
                ..RetryFilter::default()
            };
            let ids = unknown_ids(conn, vec![campaign_id], &all, None)?;
            let failure = Failure::new(Class::Settled, "an operator settled it as failed");
            for id in &ids {
                if as_sent {
                    moves::to_sent_by_word(conn, *id, BY_WORD, now)?;
                } else {
                    moves::to_failed(conn, *id, &failure, 0, now)?;
                }
            }
            Ok(Chunk::all(ids.len()))
        })
        .await
    }

    pub(in crate::store) async fn cancel_rows(
        &self,
        campaign_id: i64,
        now: Timestamp,
    ) -> Result<Chunk, StoreError> {
        self.write(move |conn| {
            let rows: Vec<(i64, bool)> = sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::state.eq(State::Ready.code()))
                .limit(CHUNK)
                .select((sms::id, sms::in_doubt))
                .load(conn)?;
            let cancelled = transition::cancelled();
            let doubtful = Failure::new(
                Class::Unknown,
                "its campaign was cancelled while it was in doubt",
            );
            for (id, in_doubt) in &rows {
                if *in_doubt {
                    moves::park(conn, *id, &doubtful, 0, now)?;
                } else {
                    moves::give_up_key(conn, *id)?;
                    moves::to_failed(conn, *id, &cancelled, 0, now)?;
                }
            }
            Ok(Chunk::all(rows.len()))
        })
        .await
    }

    pub(in crate::store) async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        after: Option<QueuePlace>,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        self.write(move |conn| {
            let rows: Vec<Queued> = queued_after!(campaign_id, after).load(conn)?;
            let (doubtful, certain, reached) = expiring(&rows, by);
            let expired = transition::expired();
            for id in &doubtful {
                moves::park(conn, *id, &expired, 0, now)?;
            }
            for id in &certain {
                moves::to_failed(conn, *id, &expired, 0, now)?;
            }
            let rows = (doubtful.len() + certain.len()) as u64;
            Ok(Expired { rows, reached })
        })
        .await
    }

    /// Puts a chunk of unknown messages back into the queue.
    pub(in crate::store) async fn requeue(&self, which: Requeue) -> Result<Chunk, StoreError> {
        self.write(move |conn| {
            let rows: Vec<(i64, i64)> = requeue_matching!(&which).load(conn)?;
            let active: Vec<i64> = campaign::table
                .filter(campaign::state.eq(CampaignStatus::Active.code()))
                .select(campaign::id)
                .load(conn)?;
            let mut moved = 0;
            for (id, campaign_id) in rows {
                if !active.contains(&campaign_id) {
                    continue;
                }
                diesel::update(sms::table.find(id))
                    .set((
                        sms::state.eq(State::Ready.code()),
                        sms::in_doubt.eq(which.in_doubt),
                        sms::due_at.eq(which.now.as_millis()),
                    ))
                    .execute(conn)?;
                moved += 1;
            }
            Ok(Chunk::all(moved))
        })
        .await
    }

    pub(in crate::store) async fn register_worker(
        &self,
        new: NewWorker,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.write(move |conn| {
            diesel::insert_into(worker::table)
                .values((
                    new,
                    worker::started_at.eq(now.as_millis()),
                    worker::heartbeat_at.eq(now.as_millis()),
                ))
                .returning(worker::id)
                .get_result(conn)
        })
        .await
    }

    pub(in crate::store) async fn park_dead(
        &self,
        dead: Worker,
        reason: String,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.write(move |conn| {
            let gone = diesel::delete(worker::table.find(dead.id))
                .filter(worker::heartbeat_at.eq(dead.heartbeat_at))
                .execute(conn)?;
            if gone == 0 {
                return Ok(0);
            }
            let mut rows = sending(conn)?;
            rows.retain(|row| row.worker_id == Some(dead.id));
            park_all(conn, &rows, &reason, now)
        })
        .await
    }

    pub(in crate::store) async fn park_nobodys(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.write(move |conn| {
            let listed: Vec<i64> = worker::table.select(worker::id).load(conn)?;
            let mut rows = sending(conn)?;
            rows.retain(|row| row.worker_id.is_none_or(|id| !listed.contains(&id)));
            park_all(conn, &rows, "its worker is gone", now)
        })
        .await
    }

    /// Settles claims (id, claim, due moment) whose requests were never started.
    pub(in crate::store) async fn release(
        &self,
        orphans: Vec<(i64, i64, i64)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.write(move |conn| {
            let mut moved = 0;
            for (id, claim, due_at) in orphans {
                let released = Settlement {
                    id,
                    claim,
                    provider: LATE.to_owned(),
                    transition: Transition::Ready {
                        due_at: Timestamp::from_millis(due_at),
                        failure: None,
                        counted: false,
                        in_doubt: false,
                    },
                };
                if settle::settle(conn, &released, now)? == Settled::Done {
                    moved += 1;
                }
            }
            Ok(moved)
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
fn sending(conn: &mut SqliteConnection) -> QueryResult<Vec<Sending>> {
    let campaigns: Vec<i64> = campaign::table.select(campaign::id).load(conn)?;
    let mut rows = Vec::new();
    for campaign_id in campaigns {
        let found: Vec<Sending> = sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Sending.code()))
            .select((sms::id, sms::claim, sms::worker_id))
            .load(conn)?;
        rows.extend(found);
    }
    Ok(rows)
}

fn park_all(
    conn: &mut SqliteConnection,
    rows: &[Sending],
    reason: &str,
    now: Timestamp,
) -> QueryResult<u64> {
    for row in rows {
        let parked = Settlement {
            id: row.id,
            claim: row.claim,
            provider: LATE.to_owned(),
            transition: Transition::Unknown(Failure::new(Class::Unknown, reason)),
        };
        settle::settle(conn, &parked, now)?;
    }
    Ok(rows.len() as u64)
}

type Letter = (i64, i64, String, Option<LossyText>);

fn failed_letters(
    conn: &mut SqliteConnection,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Vec<Letter>> {
    let ids: Vec<i64> = failed_matching!(filter, now).load(conn)?;
    sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .order(sms_failed::id)
        .select((
            sms_failed::id,
            sms_failed::campaign_id,
            sms_failed::class,
            sms_failed::dedupe_key,
        ))
        .load(conn)
}

/// This campaign, or all of them, where they are not cancelled.
fn open_campaigns(conn: &mut SqliteConnection, campaign_id: Option<i64>) -> QueryResult<Vec<i64>> {
    let mut campaigns: Vec<i64> = campaign::table
        .filter(campaign::state.ne(CampaignStatus::Cancelled.code()))
        .select(campaign::id)
        .load(conn)?;
    campaigns.retain(|id| campaign_id.is_none_or(|only| only == *id));
    Ok(campaigns)
}

fn unknown_ids(
    conn: &mut SqliteConnection,
    campaigns: Vec<i64>,
    filter: &RetryFilter,
    now: Option<Timestamp>,
) -> QueryResult<Vec<i64>> {
    let mut ids = Vec::new();
    for campaign_id in campaigns {
        ids.extend(unknown_matching!(campaign_id, filter, now).load::<i64>(conn)?);
        if ids.len() >= usize::try_from(CHUNK).unwrap_or(usize::MAX) {
            break;
        }
    }
    Ok(ids)
}
