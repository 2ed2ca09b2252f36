//! The group commit: one transaction that stores results, stops campaigns and claims messages. A claim is made in this
//! order, with messages locked first and shared limits last, so that workers wait for each other only while permits are
//! allocated and committed:
//! 1. search: `limits` estimates the permits, `candidates` finds and admits as many due messages, which `claim` locks;
//! 2. lock: `limits` locks the shared limits;
//! 3. permit: [`Batches`] makes requests of messages, and [`PermitAllocator`] says when each may start;
//! 4. write: `limits` stores what the limits allow next, `claim` marks the messages, `recipients` stores their phones.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use diesel::dsl::{min, sql};
use diesel::sql_types::{BigInt, Nullable};
use diesel::update;
use smsq_lifecycle::batch::{self, Batches};
use smsq_lifecycle::{ProviderClaim, Settled, Settlement, Transition};
use smsq_limit::{ClaimLimit, DeclaredLimits, PermitAllocator, UnreadableLimits};
use smsq_message::age::Age;
use smsq_message::budget::Budget;
use smsq_message::event::Subscriptions;
use smsq_message::instant::DbMicros;
use smsq_message::rate::Rate;
use smsq_message::sms::LaneId;
use smsq_process::boxed;

use super::candidates::{Candidates, LaneCandidates, Search};
use super::claim::{ClaimCursors, ClaimWrites};
use super::commit_batch::{ClaimKey, ClaimedCampaign, CommitBatch, CommitResult, ProviderClaimed};
use super::commit_count::{self, CommitCount};
use super::permits::budgets::Budgets;
use super::permits::caps::{self, Recipients};
use super::permits::limits::{self, LockedLimits, OwnRates, PermitEstimate};
use super::results::effects::Effects;
use super::results::settle::{self, ClaimedRows};
use super::stops::stop_campaigns;
use super::workers;
use crate::Store;
use crate::campaigns::approvals::{self, ApprovalChanges, ApprovalGate, GrantedLane};
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, ROWS, in_list, independent, transaction};
use crate::error::{StoreError, StoreErrorKind};
use crate::events::outbox;
use crate::recipients::dead;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::{campaign, suppression, worker};

/// A result, and the last claimed key of each lane.
type Committed = (CommitResult, HashMap<LaneId, ClaimKey>);

impl Store {
    /// Does all of the batch in one transaction, and counts it.
    #[boxed]
    pub async fn commit_counted(
        &self,
        batch: &CommitBatch,
        count: &CommitCount,
    ) -> Result<CommitResult, StoreError> {
        let error = match self.commit_as(batch, Some(count)).await {
            Err(error) if error.kind() == StoreErrorKind::LostCommits => error,
            done => return done,
        };
        let workers = self.workers().all().await?;
        self.workers().check_count(count, &workers).await?;
        // More commits than the worker made: another process counts as the same worker.
        Err(error.with_reason(format!(
            "worker {} runs twice: this process and its copy must not send under one id",
            count.worker_id
        )))
    }

    /// Does all of the batch in one transaction.
    #[boxed]
    pub async fn commit(&self, batch: &CommitBatch) -> Result<CommitResult, StoreError> {
        self.commit_as(batch, None).await
    }

    async fn commit_as(
        &self,
        batch: &CommitBatch,
        count: Option<&CommitCount>,
    ) -> Result<CommitResult, StoreError> {
        // Where a message has changed since its claim, its row is read when the transaction is repeated.
        let is_repeated = AtomicBool::new(false);
        let claimed = || ClaimedRows {
            by_id: Some(&batch.claimed),
            may_be_changed: is_repeated.swap(true, Ordering::Relaxed),
        };
        let (result, reached) = transaction!(self, |connection| commit(
            connection,
            CommitInput { batch, count, cursors: &self.cursors, skip_dead: self.skip_dead },
            claimed(),
            &self.subscriptions
        ))?;
        for (lane, key) in reached {
            self.cursors.advance(lane, key);
        }
        Ok(result)
    }
}

/// What a commit does, and where it looks for messages to claim.
#[derive(Clone, Copy)]
struct CommitInput<'a> {
    batch: &'a CommitBatch,
    /// `None`: the commit is not counted.
    count: Option<&'a CommitCount>,
    cursors: &'a ClaimCursors,
    /// `None`: numbers that do not exist get messages, too.
    skip_dead: Option<Age>,
}

async fn commit(
    connection: &mut Connection,
    input: CommitInput<'_>,
    claimed: ClaimedRows<'_>,
    subscriptions: &Subscriptions,
) -> QueryResult<Committed> {
    let batch = input.batch;
    let (mut result, mut effects, found) = settle_and_search(connection, input, claimed).await?;
    let Some(mut found) = found else {
        // Before the others, as claims lock them.
        effects.store(connection, subscriptions, batch.now).await?;
        limits::pause(connection, &batch.pauses).await?;
        result.is_worker_missing |= !batch.claims.is_empty();
        let claims = batch.claims.iter().map(|_| ProviderClaimed::default());
        result.claims = claims.collect();
        return Ok((result, HashMap::new()));
    };
    let mut reached = HashMap::new();
    let (own, unreadable) = match found.own {
        Ok(own) => (own, None),
        Err(error) => (OwnRates::default(), Some(error)),
    };
    let budgets = &mut found.budgets;
    let counters = budgets.scopes_to_lock(batch, &effects.spending);
    let mut locked = LockedLimits::lock(connection, batch, &own, &found.declared, counters).await?;
    let spent = std::mem::take(&mut locked.spent);
    budgets.locked(spent, std::mem::take(&mut effects.spending));
    for (claim, candidates) in batch.claims.iter().zip(found.candidates) {
        let agreed = found.declared.agreed(claim.account.name(), &claim.limits);
        let limits = match unreadable.clone().map_or(agreed, Err) {
            Ok(limits) => limits,
            Err(error) => {
                result.claims.push(ProviderClaimed {
                    held: vec![None; claim.held.len()],
                    refused: candidates.refused,
                    halted: Some(error.to_string()),
                    ..ProviderClaimed::default()
                });
                continue;
            }
        };
        let mut permits = Permits {
            batch,
            campaigns: &found.campaigns,
            locked: &mut locked,
            budgets,
            writes: &mut found.writes,
            reached: &mut reached,
        };
        result.claims.push(permits.allocate(claim, &limits, candidates));
    }
    let ((), written) =
        independent!(connection, |connection| locked.store(connection), |connection| found
            .writes
            .write(connection, batch),)?;
    caps::store_claimed(connection, batch, &result.claims).await?;
    effects.extend(written);
    outbox::record_ended(connection, subscriptions, effects.ended, batch.now).await?;
    budgets.store(connection, effects.spending).await?;
    budgets.stop_ended(connection).await?;
    found.approvals.store(connection, batch.now).await?;
    Ok((result, reached))
}

/// Raises the count of commits, settles, and finds what can be claimed. Returns what is settled, what is left for the end
/// of the transaction, and the candidates.
async fn settle_and_search(
    connection: &mut Connection,
    input: CommitInput<'_>,
    claimed: ClaimedRows<'_>,
) -> QueryResult<(CommitResult, Effects, Option<Found>)> {
    let CommitInput { batch, count, cursors, skip_dead } = input;
    let mut result = CommitResult::default();
    let effects;
    let is_registered;
    let found = if is_independent(batch) {
        let (settled, found);
        (is_registered, settled, found) = independent!(
            connection,
            |connection| commit_count::raise(connection, count),
            |connection| settle::settle_all(connection, &batch.settlements, claimed, batch.now),
            |connection| Found::search(connection, batch, cursors, skip_dead),
        )?;
        (result.settled, effects) = settled;
        found
    } else {
        let settled;
        (is_registered, settled) = independent!(
            connection,
            |connection| commit_count::raise(connection, count),
            |connection| settle(connection, batch, claimed),
        )?;
        (result.settled, result.released, effects) = settled;
        caps::store_settled(connection, batch).await?;
        stop_campaigns(connection, &batch.campaign_stops, batch.now).await?;
        Found::search(connection, batch, cursors, skip_dead).await?
    };
    result.is_worker_missing = !is_registered;
    Ok((result, effects, found))
}

/// Stores the settlements, and releases orphans. Returns what was done with each settlement, the number of released
/// messages, and what is left for the end of the transaction.
async fn settle(
    connection: &mut Connection,
    batch: &CommitBatch,
    claimed: ClaimedRows<'_>,
) -> QueryResult<(Vec<Settled>, usize, Effects)> {
    let Some(orphans) = &batch.orphans else {
        let (settled, effects) =
            settle::settle_all(connection, &batch.settlements, claimed, batch.now).await?;
        return Ok((settled, 0, effects));
    };
    let released = workers::orphans(connection, batch.worker_id, orphans).await?;
    // Together, because rows are locked in the order of their ids.
    let all = [batch.settlements.as_slice(), &released].concat();
    let (mut settled, effects) = settle::settle_all(connection, &all, claimed, batch.now).await?;
    let released = settled
        .split_off(batch.settlements.len())
        .into_iter()
        .filter(|settled| *settled == Settled::Done)
        .count();
    Ok((settled, released, effects))
}

/// Whether the settlements change nothing that the claims read: no campaign, suppression list or cap.
fn is_independent(batch: &CommitBatch) -> bool {
    let is_sent = |one: &Settlement| matches!(one.transition, Transition::Sent(_));
    batch.orphans.is_none()
        && batch.campaign_stops.is_empty()
        && batch.caps.0.is_empty()
        && batch.settlements.iter().all(is_sent)
}

/// What the claims of a batch can get.
struct Found {
    declared: DeclaredLimits,
    campaigns: HashMap<i64, ClaimedCampaign>,
    own: Result<OwnRates, UnreadableLimits>,
    candidates: Vec<Candidates>,
    writes: ClaimWrites,
    budgets: Budgets,
    approvals: ApprovalChanges,
}

impl Found {
    /// Finds candidates for the claims, and locks them; `None` if nothing is claimed or the worker is not registered
    /// any more.
    async fn search(
        connection: &mut Connection,
        batch: &CommitBatch,
        cursors: &ClaimCursors,
        skip_dead: Option<Age>,
    ) -> QueryResult<Option<Self>> {
        if batch.claims.is_empty() {
            return Ok(None);
        }
        let ((declared, has_suppressed), campaigns) = independent!(
            connection,
            |connection| declared_limits(connection, batch),
            |connection| campaigns(connection, batch),
        )?;
        let Some(declared) = declared else {
            return Ok(None);
        };
        let mut search = Search {
            batch,
            campaigns: &campaigns,
            cursors,
            has_suppressed,
            dead_since: dead::since(connection, skip_dead, batch.now).await?,
            locked: HashMap::new(),
            writes: ClaimWrites::new(),
            recipients: Recipients::lock(connection, batch).await?,
            budgets: Budgets::read(connection, batch, &campaigns).await?,
            granted: granted_lanes(connection, batch).await?,
            approvals: ApprovalChanges::default(),
        };
        let own = limits::own_rates(batch, &campaigns, &declared);
        let (mut candidates, none) = (Vec::new(), OwnRates::default());
        let rates = own.as_ref().unwrap_or(&none);
        let mut estimates = PermitEstimate::of_all(connection, batch, rates).await?;
        for (claim, estimate) in batch.claims.iter().zip(&mut estimates) {
            candidates.push(search.run(connection, claim, estimate).await?);
        }
        let (writes, mut budgets, approvals) = (search.writes, search.budgets, search.approvals);
        let lanes = candidates.iter().flat_map(|found| &found.of_lanes);
        let items = lanes.flat_map(|lane| &lane.items);
        budgets.read_earlier(connection, items).await?;
        Ok(Some(Self { declared, campaigns, own, candidates, writes, budgets, approvals }))
    }
}

/// The limits that all workers declare, with those of this worker up to date, or `None` if the worker is not registered
/// any more; and whether the suppression list has any phone. In one statement, because each is a round trip on MariaDB.
async fn declared_limits(
    connection: &mut Connection,
    batch: &CommitBatch,
) -> QueryResult<(Option<DeclaredLimits>, bool)> {
    let rows: Vec<(Option<i64>, Option<String>)> = worker::table
        .select((worker::id.nullable(), worker::limits.nullable()))
        .union_all(
            // Not a parameter, which MySQL would take for a text.
            suppression::table.select((sql::<Nullable<BigInt>>("NULL"), min(suppression::phone))),
        )
        .kept()
        .load(connection)
        .await?;
    let has_suppressed = rows.iter().any(|(id, phone)| id.is_none() && phone.is_some());
    let workers = rows.into_iter().filter_map(|(id, limits)| id.zip(limits));
    let mut declared = DeclaredLimits::of(workers.collect(), batch.worker_id);
    let senders: Vec<_> = limits::senders_of(batch).collect();
    let senders = senders.iter().map(|(scope, sender)| (scope.as_str(), sender.rate.0.as_slice()));
    let accounts = batch.claims.iter().map(|claim| (claim.account.name(), claim.limits.as_slice()));
    let own = accounts.chain(senders);
    let changed = declared.as_mut().and_then(|all| all.declare(own));
    if let Some(limits) = changed {
        update(worker::table.find(batch.worker_id))
            .set(worker::limits.eq(&limits))
            .execute(connection)
            .await?;
    }
    Ok((declared, has_suppressed))
}

async fn campaigns(
    connection: &mut Connection,
    batch: &CommitBatch,
) -> QueryResult<HashMap<i64, ClaimedCampaign>> {
    type Row = (i64, CampaignStatus, String, Option<String>, String, ApprovalGate);
    let mut ids = BTreeSet::new();
    for claim in &batch.claims {
        ids.extend(claim.lanes().map(|(lane, _)| lane.campaign_id));
    }
    if batch.fill_limits {
        let limited: Vec<i64> = campaign::table
            .filter(campaign::rate.ne(""))
            .select(campaign::id)
            .load(connection)
            .await?;
        ids.extend(limited);
    }
    let ids: Vec<i64> = ids.into_iter().collect();
    let mut rows: Vec<Row> = Vec::with_capacity(ids.len());
    for ids in ids.chunks(ROWS) {
        let ids = in_list(ids.iter().copied());
        let found: Vec<Row> = campaign::table
            .filter(campaign::id.eq_any(&ids))
            .select((
                campaign::id,
                campaign::state,
                campaign::rate,
                campaign::provider,
                campaign::budget,
                campaign::approval,
            ))
            .kept()
            .load(connection)
            .await?;
        rows.extend(found);
    }
    let of = |(id, status, rate, provider, budget, approval): Row| {
        let campaign = ClaimedCampaign {
            status,
            provider,
            limits: rate.parse(),
            budget: Budget::stored(&budget),
            approval,
        };
        (id, campaign)
    };
    Ok(rows.into_iter().map(of).collect())
}

/// The approvals of the lanes that are claimed from.
async fn granted_lanes(
    connection: &mut Connection,
    batch: &CommitBatch,
) -> QueryResult<HashMap<i32, GrantedLane>> {
    let lanes = batch.claims.iter().flat_map(|claim| &claim.lanes);
    approvals::of_lanes(connection, lanes.map(|lane| lane.id)).await
}

/// What the claims of a batch share when they get their permits.
struct Permits<'a, 'b> {
    batch: &'a CommitBatch,
    campaigns: &'a HashMap<i64, ClaimedCampaign>,
    locked: &'a mut LockedLimits<'b>,
    budgets: &'a mut Budgets,
    writes: &'a mut ClaimWrites,
    /// The last message that was claimed in each lane before the first one that was not.
    reached: &'a mut HashMap<LaneId, ClaimKey>,
}

impl Permits<'_, '_> {
    /// Allocates permits to the candidates of one provider under its declared limits, and claims those with a permit.
    fn allocate(
        &mut self,
        claim: &ProviderClaim,
        declared: &[Rate],
        candidates: Candidates,
    ) -> ProviderClaimed {
        let scope = claim.account.scope();
        let mut account = self.locked.accounts.remove(&scope).unwrap_or_default();
        limits::begin(&mut account, declared, claim.from, self.batch);
        let mut allocator = PermitAllocator { terms: claim.terms(), account };
        self.reached.extend(candidates.read);
        let mut claimed = ProviderClaimed {
            exhausted: candidates.exhausted,
            divided: candidates.divided.into_iter().collect(),
            refused: candidates.refused,
            ..ProviderClaimed::default()
        };
        self.give_back(claim, &mut allocator);
        self.permit_held(claim, &mut allocator, &mut claimed);
        let mut unclaimed = HashSet::new();
        for found in candidates.of_lanes {
            let (lane, is_short) = (found.lane.id, found.is_short);
            // It may be asked twice, and what is left the first time is not found again.
            if self.claim_lane(claim, found, &mut allocator, &mut claimed) {
                unclaimed.insert(lane);
            }
            if is_short && !unclaimed.contains(&lane) {
                claimed.exhausted.push(lane);
            }
            let retry_at = self.budgets.retry_at(lane.campaign_id);
            claimed.over_budget.extend(retry_at.map(|at| (lane, at)));
        }
        claimed.next_at = allocator.account.next_at.take();
        self.locked.accounts.insert(scope, allocator.account);
        claimed
    }

    /// Gives back the permits that were not used.
    fn give_back(&mut self, claim: &ProviderClaim, allocator: &mut PermitAllocator) {
        for (start_at, unused) in claim.unused() {
            let sender = unused.sender.as_ref();
            self.locked.with_own(&claim.account, unused.lane, sender, |own| {
                allocator.give_back(own, unused.cost, start_at);
            });
        }
    }

    /// Gives permits to messages that were claimed before.
    fn permit_held(
        &mut self,
        claim: &ProviderClaim,
        allocator: &mut PermitAllocator,
        claimed: &mut ProviderClaimed,
    ) {
        for held in &claim.held {
            let campaign = self.campaigns.get(&held.lane.campaign_id);
            if campaign.is_none_or(|campaign| campaign.limits.is_err()) {
                claimed.held.push(None);
                continue;
            }
            self.locked.with_own(&claim.account, held.lane, held.sender.as_ref(), |own| {
                let permit = allocator.allocate(own, held.cost, claim.until);
                claimed.held.push(permit);
                claimed.limited.extend(take_next(own).map(|next_at| (held.lane, next_at)));
            });
        }
    }

    /// Claims the candidates of a lane that get permits; true if some are left.
    fn claim_lane(
        &mut self,
        claim: &ProviderClaim,
        found: LaneCandidates,
        allocator: &mut PermitAllocator,
        claimed: &mut ProviderClaimed,
    ) -> bool {
        let LaneCandidates { lane, wanted, items, .. } = found;
        let (batch, writes) = (self.batch, &mut *self.writes);
        let mut budget = self.budgets.lane(claim, lane.id.campaign_id);
        self.locked.with_own(&claim.account, lane.id, lane.sender.as_ref(), |own| {
            let available = allocator.available(own, wanted, lane.max_batch);
            let begun = batch::count(&claimed.rows);
            let left = claim.max_requests.saturating_sub(begun);
            let max_cost = allocator.max_request_cost(own);
            let mut batches = Batches::new(claim, &lane, left, max_cost);
            let candidates = items.len();
            let mut not_claimed = Vec::new();
            for item in items.into_iter().take(available as usize) {
                if !budget.take(claim, &item) {
                    break;
                }
                not_claimed.extend(batches.place(item, &batch.batch_keys));
            }
            let mut keys = Vec::new();
            let (mut rows, without) = batches.permit(begun, allocator, own, |key, sms, phone| {
                keys.push(*key);
                writes.claim(sms.id, Some(&claim.provider));
                writes.rewrite_phone(sms, phone);
            });
            not_claimed.extend(without);
            for item in &not_claimed {
                budget.put_back(item);
            }
            for row in &mut rows {
                row.sms.stored.reserve = budget.reserve(&row.sms);
                if let Some(reserve) = &row.sms.stored.reserve {
                    writes.reserved.add(row.sms.id, reserve);
                }
            }
            claimed.rows.extend(rows);
            let are_left = keys.len() < candidates;
            // Candidates that are not claimed must be found again, so the cursor stays before them.
            let first_left = not_claimed.iter().map(|item| item.key).min();
            let before = |key: &ClaimKey| first_left.is_none_or(|first| *key < first);
            if let Some(key) = keys.into_iter().filter(before).max() {
                self.reached.insert(lane.id, key);
            }
            if available < wanted {
                allocator.keep_next(own, lane.max_batch);
            }
            claimed.limited.extend(take_next(own).map(|next_at| (lane.id, next_at)));
            are_left
        })
    }
}

/// When the first of these limits gives the next permit, if one ended the claim.
fn take_next(own: &mut [ClaimLimit]) -> Option<DbMicros> {
    own.iter_mut().filter_map(|limit| limit.next_at.take()).min()
}

#[cfg(test)]
mod tests;
