//! The operator's commands on stored messages: retry, settle, cancel, expire. They work in chunks, so they can be
//! interrupted and repeated.

use std::collections::BTreeMap;

use diesel::dsl::{case_when, count_star, max};
use diesel::update;
use smsq_lifecycle::transition::{CertainFailure, Doubt, SentCounts, cancelled, expired};
use smsq_message::event::Subscriptions;
use smsq_message::sms::{Acceptance, Class, Failure, State, Timestamp};
use smsq_process::boxed;

use super::lanes;
use super::results::effects::Effects;
use super::results::transitions::{LockedMessages, Resend, TakenNow, UnknownChange};
use super::results::{settle, transitions};
use super::unknown::{UnknownFilter, lock_unknown};
use crate::audit::{Audited, in_chunks};
use crate::campaigns::approvals::{self, CameBy};
use crate::connection::prelude::*;
use crate::connection::{Chunk, Connection, QueryResult, ROWS, transaction};
use crate::error::StoreError;
use crate::limits::spending;
use crate::recipients::dead;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, sms, sms_failed};
use crate::{CHUNK, Store, positive};

/// The provider in `sms_sent` of messages that an operator settled.
const OPERATOR: &str = "operator";

/// Selects messages for a retry; `None` selects all.
#[derive(Clone, Debug, Default)]
pub struct RetryFilter {
    pub campaign_id: Option<i64>,
    pub class: Option<Class>,
    pub code: Option<String>,
    /// E.164 with `+`.
    pub phone: Option<String>,
    /// The new expiry of the messages. If `None`, expired messages are not selected.
    pub expires_at: Option<Timestamp>,
    /// Unknown messages may be sent by any provider, not only by the one that may have accepted them.
    pub by_any_provider: bool,
}

/// A position in a campaign's queue: the lane of a message, when it is due, and its id.
pub type QueuePosition = (i32, i64, i64);

/// The result of [`Store::expire_rows`] for one chunk of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub rows: u64,
    /// Where to continue; `None` at the end of the queue.
    pub reached: Option<QueuePosition>,
}

/// A set of messages as it was at some time: whether it grew since can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedMessages {
    pub count: u64,
    /// When the last one came into it, in milliseconds since the Unix epoch.
    pub newest: i64,
}

impl Store {
    /// The unknown messages of a campaign.
    #[boxed]
    pub async fn named_unknown(&self, campaign_id: i64) -> Result<NamedMessages, StoreError> {
        let (count, unknown_at, claimed_at): (i64, Option<i64>, Option<i64>) = self
            .read_first(
                sms::table
                    .filter(sms::campaign_id.eq(campaign_id))
                    .filter(sms::state.eq(State::Unknown.code()))
                    .select((count_star(), max(sms::unknown_at), max(sms::claimed_at))),
            )
            .await?;
        Ok(NamedMessages {
            count: positive(count),
            newest: unknown_at.max(claimed_at).unwrap_or(0),
        })
    }

    /// The failed messages of a campaign.
    #[boxed]
    pub async fn named_failed(&self, campaign_id: i64) -> Result<NamedMessages, StoreError> {
        let (count, failed_at): (i64, Option<i64>) = self
            .read_first(
                sms_failed::table
                    .filter(sms_failed::campaign_id.eq(campaign_id))
                    .filter(sms_failed::class.ne(Class::Cancelled.as_str()))
                    .select((count_star(), max(sms_failed::failed_at))),
            )
            .await?;
        Ok(NamedMessages { count: positive(count), newest: failed_at.unwrap_or(0) })
    }

    /// Puts failed messages back into the queue with a new reference and all attempts, except those of cancelled
    /// campaigns. Messages that an operator settled keep their reference, and are in doubt again. Cancelled messages only if the filter has that class, and if their key is not used again.
    #[boxed]
    pub async fn retry_failed(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<u64, StoreError> {
        in_chunks!(self, audited, now, |connection| async {
            let failed = lock_failed(connection, filter, now).await?;
            let examined = failed.len() as u64;
            let messages: Vec<(i64, i64)> = failed.iter().map(|row| (row.0, row.1)).collect();
            let mut back = settle::lock_campaigns(connection, &messages, is_open).await?;
            for (id, campaign_id, class, key) in failed {
                let key = key.filter(|_| class == Class::Cancelled.as_str());
                if let Some(key) = key
                    && back.contains(&id)
                    && transitions::add_keys(connection, campaign_id, &[key.text]).await? == 0
                {
                    // It was imported again, so this message stays cancelled, without a key.
                    update(sms_failed::table.find(id))
                        .set(sms_failed::dedupe_key.eq(None::<String>))
                        .execute(connection)
                        .await?;
                    back.retain(|other| *other != id);
                }
            }
            transitions::back_to_queue(connection, &back, now).await?;
            let back_of: Vec<(i64, i64)> =
                messages.into_iter().filter(|(id, _)| back.contains(id)).collect();
            approvals::hold(connection, &back_of, CameBy::PutBack(audited.who())).await?;
            dead::forget_of(connection, &back).await?;
            update(sms::table.filter(sms::id.eq_any(&back)))
                .set((
                    sms::attempts.eq(0),
                    sms::resend_approved.eq(sms::in_doubt),
                    sms::reference.eq(case_when(sms::in_doubt.eq(true), sms::reference)),
                    filter.expires_at.map(|at| sms::expires_at.eq(at)),
                ))
                .execute(connection)
                .await?;
            QueryResult::Ok(Chunk { examined, moved: back.len() as u64 })
        })
    }

    /// Puts unknown messages back into the queue, in doubt and with the same reference, except those of cancelled
    /// campaigns. That they may be sent twice is the operator's decision, until an attempt ends in doubt again.
    #[boxed]
    pub async fn retry_unknown(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<u64, StoreError> {
        let unknown = UnknownFilter {
            campaign_id: filter.campaign_id,
            phone: filter.phone.clone(),
            code: filter.code.clone(),
            alive_at: filter.expires_at.is_none().then_some(now),
            ..UnknownFilter::default()
        };
        in_chunks!(self, audited, now, |connection| async {
            let rows = lock_unknown(connection, &unknown).await?;
            let ids = settle::lock_campaigns(connection, &rows, is_open).await?;
            let resend = Resend::Approved {
                expires_at: filter.expires_at,
                by_any_provider: filter.by_any_provider,
            };
            let spending = transitions::unknown_to_ready(connection, &ids, resend, now).await?;
            spending.store(connection).await?;
            let back_of: Vec<(i64, i64)> =
                rows.into_iter().filter(|(id, _)| ids.contains(id)).collect();
            approvals::hold(connection, &back_of, CameBy::PutBack(audited.who())).await?;
            dead::forget_of(connection, &ids).await?;
            QueryResult::Ok(Chunk::all(ids.len()))
        })
    }

    /// Settles unknown messages of a campaign as sent or as failed, as the operator decided.
    #[boxed]
    pub async fn settle_unknown(
        &self,
        campaign_id: i64,
        as_sent: bool,
        phone: Option<&str>,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<u64, StoreError> {
        let filter = UnknownFilter {
            campaign_id: Some(campaign_id),
            phone: phone.map(str::to_owned),
            ..UnknownFilter::default()
        };
        let subscriptions = &self.subscriptions;
        in_chunks!(self, audited, now, |connection| async {
            let rows = lock_unknown(connection, &filter).await?;
            let ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
            let effects = if as_sent {
                let rows = transitions::rows(connection, &ids).await?;
                let sent = rows.iter().map(|row| {
                    let counts = SentCounts::default();
                    row.sent(OPERATOR, Acceptance::default(), counts, TakenNow::Unchanged, now)
                });
                Effects::from(transitions::to_sent(connection, sent.collect()).await?)
            } else {
                let failure = CertainFailure::by_operator();
                let reserves = spending::read(connection, &ids).await?;
                let messages = LockedMessages { ids: &ids, reserves: &reserves };
                transitions::to_failed(connection, messages, &failure, 0, now).await?
            };
            effects.store(connection, subscriptions, now).await?;
            QueryResult::Ok(Chunk::all(ids.len()))
        })
    }

    /// Fails the ready messages of a cancelled campaign with class `cancelled` and removes their keys; those in doubt
    /// become unknown.
    #[boxed]
    pub async fn cancel_rows(&self, campaign_id: i64, now: Timestamp) -> Result<u64, StoreError> {
        let subscriptions = &self.subscriptions;
        let cancelled: u64 = in_chunks!(self, |connection| async {
            let rows: Vec<(i64, bool)> = sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::state.eq(State::Ready.code()))
                .order((sms::lane, sms::due_at, sms::id))
                .limit(CHUNK)
                .select((sms::id, sms::in_doubt))
                .locked()
                .load(connection)
                .await?;
            let messages = rows.iter().copied();
            end(connection, messages, &cancelled(), subscriptions, now).await?;
            QueryResult::Ok(Chunk::all(rows.len()))
        })?;
        transaction!(self, |connection| async {
            approvals::delete_empty(connection, campaign_id).await
        })?;
        Ok(cancelled)
    }

    /// Fails ready messages of a campaign that expire by an instant, if none may be sent before; those in doubt become
    /// unknown. Looks at the chunk of the queue after a position, lane by lane.
    #[boxed]
    pub async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        after: Option<QueuePosition>,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        type Row = (i64, i64, Option<Timestamp>, bool);
        let subscriptions = &self.subscriptions;
        transaction!(self, |connection| async {
            let lanes = lanes::of(connection, campaign_id).await?;
            let first = lanes.first().map_or(0, |first| first.lane);
            let (lane, due_at, id) = after.unwrap_or((first, i64::MIN, i64::MIN));
            let rows: Vec<Row> = sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::state.eq(State::Ready.code()))
                .filter(sms::lane.eq(lane))
                .filter(sms::due_at.ge(due_at))
                .filter(sms::due_at.gt(due_at).or(sms::id.gt(id)))
                .order((sms::due_at, sms::id))
                .limit(CHUNK)
                .select((sms::due_at, sms::id, sms::expires_at, sms::in_doubt))
                .locked()
                .load(connection)
                .await?;
            let expiring = rows
                .iter()
                .filter(|row| row.2.is_some_and(|at| at <= by))
                .map(|&(_, id, _, in_doubt)| (id, in_doubt));
            let ended = end(connection, expiring, &expired(), subscriptions, now).await?;
            if ended > 0 && approvals::of_lane(lane).is_some() {
                approvals::delete_empty(connection, campaign_id).await?;
            }
            let reached = if let Some(last) = rows.last().filter(|_| rows.len() >= ROWS) {
                Some((lane, last.0, last.1))
            } else {
                let next = lanes.into_iter().find(|next| next.lane > lane);
                next.map(|next| (next.lane, i64::MIN, i64::MIN))
            };
            Ok(Expired { rows: ended, reached })
        })
    }
}

/// Fails messages, which this transaction has locked, for one reason; those in doubt become unknown. Returns how many.
async fn end(
    connection: &mut Connection,
    rows: impl Iterator<Item = (i64, bool)>,
    failure: &Failure,
    subscriptions: &Subscriptions,
    now: Timestamp,
) -> QueryResult<u64> {
    let mut by_doubt: BTreeMap<bool, Vec<i64>> = BTreeMap::new();
    for (id, in_doubt) in rows {
        by_doubt.entry(in_doubt).or_default().push(id);
    }
    let (mut ended, mut effects) = (0, Effects::default());
    for (in_doubt, mut ids) in by_doubt {
        ids.sort_unstable();
        ended += ids.len() as u64;
        let reserves = spending::read(connection, &ids).await?;
        let messages = LockedMessages { ids: &ids, reserves: &reserves };
        let changed = match CertainFailure::unless_in_doubt(failure.clone(), in_doubt) {
            Ok(failure) if failure.failure().class == Class::Cancelled => {
                settle::cancel(connection, messages, &failure, 0, now).await?
            }
            Ok(failure) => transitions::to_failed(connection, messages, &failure, 0, now).await?,
            Err(failure) => {
                let change =
                    UnknownChange { failure: &failure, doubt: Doubt::Unchanged, counted: 0 };
                transitions::mark_unknown(connection, messages, change, now).await?
            }
        };
        effects.extend(changed);
    }
    effects.store(connection, subscriptions, now).await?;
    Ok(ended)
}

fn is_open(status: CampaignStatus) -> bool {
    status != CampaignStatus::Cancelled
}

/// Locks at most a chunk of the failed messages that the filter selects, the oldest first; returns id, campaign, class
/// and dedupe key.
async fn lock_failed(
    connection: &mut Connection,
    filter: &RetryFilter,
    now: Timestamp,
) -> QueryResult<Vec<(i64, i64, String, Option<LossyText>)>> {
    let ids: Vec<i64> = {
        let cancelled = campaign::table
            .filter(campaign::state.eq(CampaignStatus::Cancelled))
            .select(campaign::id);
        let mut query = sms_failed::table
            .order(sms_failed::id)
            .filter(sms_failed::campaign_id.ne_all(cancelled))
            .limit(CHUNK)
            .select(sms_failed::id)
            .into_boxed();
        if let Some(campaign_id) = filter.campaign_id {
            query = query.filter(sms_failed::campaign_id.eq(campaign_id));
        }
        query = match filter.class {
            // A cancelled message of an import has no key if it was imported again.
            Some(Class::Cancelled) => query
                .filter(sms_failed::class.eq(Class::Cancelled.as_str()))
                .filter(sms_failed::dedupe_key.is_not_null().or(sms_failed::import_id.is_null())),
            Some(class) => query.filter(sms_failed::class.eq(class.as_str())),
            None => query.filter(sms_failed::class.ne(Class::Cancelled.as_str())),
        };
        if let Some(code) = &filter.code {
            query = query.filter(sms_failed::code.eq(code));
        }
        if let Some(phone) = &filter.phone {
            query = query.filter(sms_failed::phone.eq(phone));
        }
        if filter.expires_at.is_none() {
            let expires_later = sms_failed::expires_at.gt(now);
            let is_alive = sms_failed::expires_at.is_null().or(expires_later);
            query = query.filter(is_alive.assume_not_null());
        }
        query.load(connection)
    }
    .await?;
    sms_failed::table
        .filter(sms_failed::id.eq_any(&ids))
        .order(sms_failed::id)
        .select((
            sms_failed::id,
            sms_failed::campaign_id,
            sms_failed::class,
            sms_failed::dedupe_key,
        ))
        .locked()
        .load(connection)
        .await
}
