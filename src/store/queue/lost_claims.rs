//! Claims that the database has lost, because it was restored or a standby took over. They are made again, so that their
//! messages get their results or become unknown, and are not sent again.

use std::collections::{HashMap, HashSet};

use diesel::update;
use serde::{Deserialize, Serialize};
use smsq_lifecycle::{Settled, Settlement};
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use super::results::settle::{self, ClaimedRows};
use super::results::transitions;
use crate::audit::{Audited, audited};
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, ROWS, execute_each, transaction};
use crate::error::StoreError;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{message, sms, sms_failed, worker};
use crate::tables::values::SEVERAL;
use crate::{Store, WorkerStore};

/// A claim whose request was started, as its worker wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StartedClaim {
    pub id: i64,
    pub claim: i64,
    pub provider: String,
    pub reference: String,
    /// When the message was queued. An id may be used again after the database was restored.
    pub created_at: Timestamp,
    pub claimed_at: Timestamp,
}

/// What the database has of messages that were started.
#[derive(Debug, Default)]
pub struct Redone {
    /// Claims under which a message is sending now.
    pub sending: HashSet<(i64, i64)>,
    /// Messages of these that a registered worker was sending under an earlier claim, and may still send: only an
    /// acceptance is certain.
    pub contested: HashSet<i64>,
    /// Messages of the claims, in whatever state: one that was accepted is sent.
    pub known: HashSet<i64>,
}

/// A message, by what identifies it. Its reference does not: it has another one after each attempt that was refused, and
/// the database may have lost that, too.
#[derive(Queryable)]
struct KnownMessage {
    id: i64,
    created_at: i64,
}

impl KnownMessage {
    /// Whether it is the message of the claim: an id that is used again has a later message.
    fn is_of(&self, claim: &StartedClaim) -> bool {
        self.created_at == claim.created_at.as_millis()
    }
}

/// A message in the queue, whose claim may be lost.
#[derive(Queryable)]
struct QueuedMessage {
    id: i64,
    state: i32,
    claim: i64,
    in_doubt: bool,
    claimed_provider: Option<String>,
    worker_id: Option<i64>,
    reference: Option<LossyText>,
}

impl QueuedMessage {
    /// Whether the database does not know the claim, and knows of no later one. An unknown message stays unknown.
    fn has_lost(&self, claim: &StartedClaim) -> bool {
        self.claim < claim.claim && self.state != State::Unknown.code()
    }

    /// Whether a registered worker has it. It claimed it before the lost claim, and then its own has ended, or after the
    /// database was put back, and then it is sending it now.
    fn is_contested(&self, workers: &[i64]) -> bool {
        let has_worker = self.worker_id.is_some_and(|id| workers.contains(&id));
        has_worker && self.state == State::Sending.code()
    }

    /// Whether it is sending under this claim. After a rollback another worker may have claimed it under the same number,
    /// with another reference.
    fn is_sending_as(&self, claim: &StartedClaim) -> bool {
        let reference = self.reference.as_ref().map(|known| known.text.as_str());
        self.claim == claim.claim
            && self.state == State::Sending.code()
            && reference == Some(claim.reference.as_str())
    }

    /// The provider that may have accepted it after the claim. A contested one has two references, so no provider can be
    /// asked about it.
    fn tried<'a>(&'a self, claim: &'a StartedClaim, is_contested: bool) -> &'a str {
        let earlier = self.claimed_provider.as_deref().filter(|_| self.in_doubt);
        match earlier {
            _ if is_contested => SEVERAL,
            Some(earlier) if earlier != claim.provider => SEVERAL,
            _ => &claim.provider,
        }
    }
}

/// A message that has failed, expired or was cancelled.
#[derive(Queryable)]
struct FailedMessage {
    id: i64,
    claim: i64,
    created_at: i64,
    campaign_id: i64,
    class: String,
    dedupe_key: Option<LossyText>,
}

impl FailedMessage {
    /// Whether the database does not know the claim, which was made after the failure.
    fn has_lost(&self, claim: &StartedClaim) -> bool {
        self.claim < claim.claim && self.created_at == claim.created_at.as_millis()
    }
}

/// What a message has after its claim was made again.
struct LostClaim<'a> {
    claim: &'a StartedClaim,
    provider: &'a str,
    in_doubt: bool,
}

impl WorkerStore<'_> {
    /// Makes claims again that the database has lost; each message occurs once. Claims that it knows stay as they are.
    #[boxed]
    pub async fn redo(&self, claims: &[StartedClaim]) -> Result<Redone, StoreError> {
        let mut redone = Redone::default();
        for claims in claims.chunks(ROWS) {
            let chunk = transaction!(self, |connection| redo(connection, claims))?;
            redone.sending.extend(chunk.sending);
            redone.contested.extend(chunk.contested);
            redone.known.extend(chunk.known);
        }
        Ok(redone)
    }
}

impl Store {
    /// Stores results that a worker left in a file, as a person wants it. Counts those that change anything.
    #[boxed]
    pub async fn settle_left(
        &self,
        settlements: &[Settlement],
        audited: &mut Audited,
    ) -> Result<(), StoreError> {
        let (subscriptions, now) = (&self.subscriptions, self.now().await?);
        for settlements in settlements.chunks(ROWS) {
            audited!(self, audited, now, |connection| async {
                let none = ClaimedRows::default();
                let (settled, effects) =
                    settle::settle_all(connection, settlements, none, now).await?;
                effects.store(connection, subscriptions, now).await?;
                let changed = settled.iter().filter(|settled| **settled != Settled::Stale);
                QueryResult::Ok(changed.count() as u64)
            })?;
        }
        Ok(())
    }
}

/// Locks those of these messages that are in the queue.
async fn queued(connection: &mut Connection, ids: &[i64]) -> QueryResult<Vec<QueuedMessage>> {
    sms::table
        .filter(sms::id.eq_any(ids))
        .order(sms::id)
        .select((
            sms::id,
            sms::state,
            sms::claim,
            sms::in_doubt,
            sms::claimed_provider,
            sms::worker_id,
            sms::reference,
        ))
        .locked()
        .load(connection)
        .await
}

/// Puts messages back into the queue that failed before their claim: an operator had them tried again, and the database
/// has lost that, too. Returns them.
async fn retried(
    connection: &mut Connection,
    by_id: &HashMap<i64, &StartedClaim>,
) -> QueryResult<Vec<QueuedMessage>> {
    let failed: Vec<FailedMessage> = sms_failed::table
        .filter(sms_failed::id.eq_any(by_id.keys().copied()))
        .order(sms_failed::id)
        .select((
            sms_failed::id,
            sms_failed::claim,
            sms_failed::created_at,
            sms_failed::campaign_id,
            sms_failed::class,
            sms_failed::dedupe_key,
        ))
        .locked()
        .load(connection)
        .await?;
    let back: Vec<FailedMessage> =
        failed.into_iter().filter(|failed| failed.has_lost(by_id[&failed.id])).collect();
    let ids: Vec<i64> = back.iter().map(|failed| failed.id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    for failed in back {
        let (campaign_id, key) = (failed.campaign_id, failed.dedupe_key);
        transitions::take_key_of_cancelled(connection, campaign_id, &failed.class, key).await?;
    }
    let now = by_id.values().map(|claim| claim.claimed_at).max();
    transitions::back_to_queue(connection, &ids, now.unwrap_or_default()).await?;
    queued(connection, &ids).await
}

async fn redo(connection: &mut Connection, claims: &[StartedClaim]) -> QueryResult<Redone> {
    let by_id: HashMap<i64, &StartedClaim> = claims.iter().map(|claim| (claim.id, claim)).collect();
    let ids: Vec<i64> = by_id.keys().copied().collect();
    let mut rows = queued(connection, &ids).await?;
    rows.extend(retried(connection, &by_id).await?);
    let workers: Vec<i64> = worker::table.select(worker::id).load(connection).await?;
    let known: Vec<KnownMessage> = message::table
        .filter(message::id.eq_any(&ids))
        .select((message::id, message::created_at))
        .load(connection)
        .await?;
    let known = known
        .into_iter()
        .filter(|known| by_id.get(&known.id).is_some_and(|claim| known.is_of(claim)))
        .map(|known| known.id);
    let mut redone = Redone { known: known.collect(), ..Redone::default() };
    let mut lost = Vec::new();
    for row in rows.iter().filter(|row| redone.known.contains(&row.id)) {
        let claim = by_id[&row.id];
        let has_lost = row.has_lost(claim);
        if has_lost {
            let is_contested = row.is_contested(&workers);
            redone.contested.extend(is_contested.then_some(row.id));
            lost.push(LostClaim {
                claim,
                provider: row.tried(claim, is_contested),
                in_doubt: row.in_doubt || is_contested,
            });
        }
        if has_lost || row.is_sending_as(claim) {
            redone.sending.insert((claim.id, claim.claim));
        }
    }
    execute_each(
        connection,
        lost.iter().map(|lost| {
            let claim = lost.claim;
            update(sms::table.find(claim.id)).set((
                sms::state.eq(State::Sending.code()),
                sms::claim.eq(claim.claim),
                // No worker: if this process ends before it has stored the result, the message becomes unknown.
                sms::worker_id.eq(None::<i64>),
                sms::claimed_at.eq(claim.claimed_at),
                sms::reference.eq(&claim.reference),
                sms::claimed_provider.eq(lost.provider),
                sms::in_doubt.eq(lost.in_doubt),
            ))
        }),
    )
    .await?;
    Ok(redone)
}
