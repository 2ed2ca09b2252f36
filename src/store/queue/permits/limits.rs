//! Table `rate_limit`: read to estimate permits, locked while permits are allocated, and stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use diesel::update;
use smsq_lifecycle::{LaneClaim, ProviderClaim};
use smsq_limit::{
    Account, ClaimLimit, ClaimTerms, DeclaredLimits, PermitAllocator, PermitCost, Tolerance,
    UnreadableLimits, campaign_scope,
};
use smsq_message::instant::DbMicros;
use smsq_message::rate::{Rate, Rates};
use smsq_message::route::sender_pool::PoolSender;
use smsq_message::sms::{LaneId, Timestamp};
use smsq_process::boxed;

use crate::Store;
use crate::audit::{Audited, audited};
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, transaction};
use crate::error::StoreError;
use crate::limits::rows::{Limits, lock, read, store};
use crate::queue::commit_batch::{ClaimedCampaign, CommitBatch, ProviderPause};
use crate::tables::schema::{rate_limit, worker};

/// In place of a worker: a request that none sends.
const NO_WORKER: i64 = 0;
/// How long after its permit such a request starts, at most.
const SINGLE_TOLERANCE: Tolerance =
    Tolerance { total: Duration::from_millis(500), spread: Duration::from_millis(500) };

impl Store {
    /// The current pauses of providers and of their senders.
    #[boxed]
    pub async fn provider_pauses(&self, now: Timestamp) -> Result<Vec<ProviderPause>, StoreError> {
        type Row = (String, Timestamp, Option<String>);
        let rows: Vec<Row> = self
            .read(
                rate_limit::table
                    .filter(rate_limit::stopped_until.gt(now))
                    .order(rate_limit::scope)
                    .select((
                        rate_limit::scope,
                        rate_limit::stopped_until,
                        rate_limit::stop_reason,
                    )),
            )
            .await?;
        let pause = |(scope, until, reason): Row| {
            let (account, sender) = Account::of_scope(&scope);
            ProviderPause {
                account,
                sender: sender.map(str::to_owned),
                until,
                reason: reason.unwrap_or_default(),
            }
        };
        Ok(rows.into_iter().map(pause).collect())
    }

    /// Ends the pauses of an account and of its senders; false if there was none.
    #[boxed]
    pub async fn end_provider_pause(
        &self,
        account: &str,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<bool, StoreError> {
        let pauses = self.provider_pauses(now).await?;
        let own = pauses.iter().filter(|pause| pause.account.name() == account);
        let scopes: Vec<String> = own.map(scope_of).collect();
        let ended: u64 = audited!(self, audited, now, |connection| async {
            let ended = update(
                rate_limit::table
                    .filter(rate_limit::scope.eq_any(&scopes))
                    .filter(rate_limit::stopped_until.gt(now)),
            )
            .set((rate_limit::stopped_until.eq(0), rate_limit::stop_reason.eq(None::<String>)))
            .execute(connection)
            .await?;
            QueryResult::Ok(ended as u64)
        })?;
        Ok(ended > 0)
    }
}

/// One request that no worker sends, and the limits that it must not exceed.
#[derive(Clone, Copy, Debug)]
pub struct SingleRequest<'a> {
    /// The name of the provider's account.
    pub account: &'a str,
    pub rates: &'a Rates,
    /// The sender of a pool, with its own limits.
    pub sender: Option<&'a PoolSender>,
    pub by_segments: bool,
    pub segments: i32,
}

/// The permit of a single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinglePermit {
    /// It may start after this.
    Taken(Duration),
    /// The limits give none before this.
    NotBefore(Duration),
}

impl Store {
    /// Takes a permit for a request that starts within `patience`, as workers do.
    #[boxed]
    pub async fn take_permit<'a>(
        &'a self,
        request: SingleRequest<'a>,
        patience: Duration,
    ) -> Result<Result<SinglePermit, UnreadableLimits>, StoreError> {
        let now = self.now().await?;
        transaction!(self, |connection| take_permit(connection, request, patience, now))
    }
}

async fn take_permit(
    connection: &mut Connection,
    request: SingleRequest<'_>,
    patience: Duration,
    now: Timestamp,
) -> QueryResult<Result<SinglePermit, UnreadableLimits>> {
    let mut workers: Vec<(i64, String)> =
        worker::table.select((worker::id, worker::limits)).load(connection).await?;
    // It is like a worker that declares nothing.
    workers.push((NO_WORKER, "{}".to_owned()));
    let account = Account::new(request.account);
    let sender = request.sender.map(|sender| {
        let scope = account.sender_scope(&sender.from);
        (scope.clone(), scope, &sender.rate)
    });
    let limited = [(account.scope(), account.name().to_owned(), request.rates)].into_iter();
    let mut own = Vec::new();
    for (scope, name, rates) in limited.chain(sender) {
        let declared = DeclaredLimits::of(workers.clone(), NO_WORKER);
        let agreed = declared.map(|declared| declared.agreed(&name, &rates.0));
        match agreed.unwrap_or_else(|| Ok(rates.0.clone())) {
            Ok(agreed) => own.push((scope, agreed)),
            Err(error) => return Ok(Err(error)),
        }
    }
    let (mut scopes, mut unlimited) = (BTreeSet::new(), BTreeSet::new());
    for (scope, agreed) in &own {
        let of = if agreed.is_empty() { &mut unlimited } else { &mut scopes };
        of.insert(scope.clone());
    }
    // They have a row if they had a limit or a pause, and get none: claims would lock it.
    scopes.extend(read(connection, &unlimited, false).await?.into_keys());
    let mut locked = lock(connection, &scopes).await?;
    let from = DbMicros::from(now);
    let batch = CommitBatch { tolerance: SINGLE_TOLERANCE, ..CommitBatch::new(NO_WORKER, now) };
    let mut limits = Vec::new();
    for (scope, agreed) in &own {
        let mut limit = locked.remove(scope).unwrap_or_default();
        begin(&mut limit, agreed, from, &batch);
        limits.push(limit);
    }
    let mut allocator = PermitAllocator {
        terms: ClaimTerms { from, until: from.plus(patience), by_segments: request.by_segments },
        account: limits.remove(0),
    };
    let cost = PermitCost::of_message(request.segments);
    let permit = allocator.allocate(&mut limits, cost, from.plus(patience));
    limits.insert(0, allocator.account);
    let Some(permit) = permit else {
        let next_at = limits.iter().filter_map(|limit| limit.next_at).max();
        let wait = next_at.unwrap_or(from).since(from);
        return Ok(Ok(SinglePermit::NotBefore(wait)));
    };
    for ((scope, _), limit) in own.iter().zip(&limits) {
        if scopes.contains(scope) {
            store(connection, scope, limit).await?;
        }
    }
    let start_at = permit.start_at.unwrap_or(from);
    Ok(Ok(SinglePermit::Taken(start_at.since(from))))
}

/// Stores pauses if nothing is claimed.
pub(crate) async fn pause(
    connection: &mut Connection,
    pauses: &[ProviderPause],
) -> QueryResult<()> {
    let scopes = pauses.iter().map(scope_of);
    let mut limits = lock(connection, &scopes.collect()).await?;
    apply_pauses(&mut limits, pauses);
    for (scope, limit) in &limits {
        store(connection, scope, limit).await?;
    }
    Ok(())
}

/// The scope of the limit that a pause stops.
fn scope_of(pause: &ProviderPause) -> String {
    match &pause.sender {
        Some(sender) => pause.account.sender_scope(sender),
        None => pause.account.scope(),
    }
}

fn apply_pauses(limits: &mut Limits, pauses: &[ProviderPause]) {
    for pause in pauses {
        let account = limits.entry(scope_of(pause)).or_default();
        account.limit.pause(pause.until, &pause.reason);
        account.is_changed = true;
    }
}

/// The limits that requests have in addition to those of their account, by scope: those of campaigns, and of senders,
/// which may have none and be paused.
pub(crate) type OwnRates = BTreeMap<String, Vec<Rate>>;

/// The limits of all requests of a batch.
pub(crate) fn own_rates(
    batch: &CommitBatch,
    campaigns: &HashMap<i64, ClaimedCampaign>,
    declared: &DeclaredLimits,
) -> Result<OwnRates, UnreadableLimits> {
    let of_campaigns = campaigns
        .iter()
        .filter_map(|(id, campaign)| Some((campaign_scope(*id), campaign.limits.as_ref().ok()?)))
        .filter(|(_, limits)| !limits.0.is_empty())
        .map(|(scope, limits)| (scope, limits.0.clone()));
    let mut own: OwnRates = of_campaigns.collect();
    for (scope, sender) in senders_of(batch) {
        let agreed = declared.agreed(&scope, &sender.rate.0)?;
        own.insert(scope, agreed);
    }
    Ok(own)
}

/// The senders of the claims of a batch with limits or pauses of their own, by scope. After the clock was set, of all
/// providers.
pub(crate) fn senders_of(batch: &CommitBatch) -> impl Iterator<Item = (String, &Arc<PoolSender>)> {
    batch.claims.iter().flat_map(|claim| {
        let pool = claim.pool.iter().filter(|_| batch.fill_limits);
        let claimed = claim.lanes().filter_map(|(_, sender)| sender);
        let all = pool.flat_map(|pool| pool.senders()).chain(claimed);
        all.map(|sender| (claim.account.sender_scope(&sender.from), sender))
    })
}

/// The scopes of the limits in `own` that a request of this lane has.
fn own_scopes(
    own: &OwnRates,
    account: &Account,
    lane: LaneId,
    sender: Option<&Arc<PoolSender>>,
) -> Vec<String> {
    if own.is_empty() {
        return Vec::new();
    }
    let campaign = [campaign_scope(lane.campaign_id)].into_iter();
    let sender = sender.map(|sender| account.sender_scope(&sender.from));
    let scopes = campaign.chain(sender);
    scopes.filter(|scope| own.contains_key(scope)).collect()
}

/// Applies limits to a shared limit in a claim from `from` on.
pub(crate) fn begin(
    claim_limit: &mut ClaimLimit,
    limits: &[Rate],
    from: DbMicros,
    batch: &CommitBatch,
) {
    let limit = &mut claim_limit.limit;
    limit.begin(limits, batch.worker_id, from, batch.tolerance);
    let is_unreadable = limit.is_unreadable();
    if is_unreadable {
        tracing::error!("the usage of a rate limit cannot be read: it counts as used up");
    }
    if batch.fill_limits || is_unreadable {
        limit.fill(from);
        claim_limit.is_changed = true;
    }
}

/// Takes the own limits of requests out of `read`, and applies their rates.
fn begin_own(batch: &CommitBatch, own: &OwnRates, read: &mut Limits) -> Limits {
    let from = batch.claims.iter().map(|claim| claim.from).min();
    let begun = own.iter().map(|(scope, rates)| {
        let mut limit = read.remove(scope).unwrap_or_default();
        begin(&mut limit, rates, from.unwrap_or_default(), batch);
        (scope.clone(), limit)
    });
    begun.collect()
}

/// Calls `work` with the limits of these scopes.
fn with_own<T>(
    limits: &mut Limits,
    scopes: Vec<String>,
    work: impl FnOnce(&mut [ClaimLimit]) -> T,
) -> T {
    let mut own: Vec<ClaimLimit> =
        scopes.iter().map(|scope| limits.remove(scope).unwrap_or_default()).collect();
    let done = work(&mut own);
    limits.extend(scopes.into_iter().zip(own));
    done
}

/// An estimate of the permits that the own limits of requests allow for one claim. Limits are read without a lock, so
/// other workers may take the permits first.
pub(crate) struct PermitEstimate<'a> {
    allocator: PermitAllocator,
    account: &'a Account,
    rates: &'a OwnRates,
    limits: Limits,
}

impl<'a> PermitEstimate<'a> {
    /// Makes one estimate for each claim of the batch.
    pub(crate) async fn of_all(
        connection: &mut Connection,
        batch: &'a CommitBatch,
        own: &'a OwnRates,
    ) -> QueryResult<Vec<Self>> {
        let mut read = read(connection, &own.keys().cloned().collect(), false).await?;
        let limits = begin_own(batch, own, &mut read);
        let estimates = batch.claims.iter().map(|claim| {
            let mut estimate = Self {
                allocator: PermitAllocator { terms: claim.terms(), account: ClaimLimit::default() },
                account: &claim.account,
                rates: own,
                limits: limits.clone(),
            };
            estimate.take_held(claim);
            estimate
        });
        Ok(estimates.collect())
    }

    /// Allocates permits to held requests first.
    fn take_held(&mut self, claim: &ProviderClaim) {
        for (start_at, unused) in claim.unused() {
            let scopes = self.scopes(unused.lane, unused.sender.as_ref());
            with_own(&mut self.limits, scopes, |own| {
                self.allocator.give_back(own, unused.cost, start_at);
            });
        }
        for held in &claim.held {
            let scopes = self.scopes(held.lane, held.sender.as_ref());
            with_own(&mut self.limits, scopes, |own| {
                self.allocator.allocate(own, held.cost, claim.until);
            });
        }
    }

    fn scopes(&self, lane: LaneId, sender: Option<&Arc<PoolSender>>) -> Vec<String> {
        own_scopes(self.rates, self.account, lane, sender)
    }

    /// How many of `wanted` messages there are permits for.
    pub(crate) fn available(&mut self, lane: &LaneClaim, wanted: u32) -> u32 {
        let scopes = self.scopes(lane.id, lane.sender.as_ref());
        if scopes.is_empty() {
            return wanted;
        }
        with_own(&mut self.limits, scopes, |own| {
            self.allocator.available(own, wanted, lane.max_batch)
        })
    }

    /// Takes one of them.
    pub(crate) fn take(&mut self, lane: &LaneClaim, segments: i32) {
        let scopes = self.scopes(lane.id, lane.sender.as_ref());
        if !scopes.is_empty() {
            with_own(&mut self.limits, scopes, |own| {
                let cost = PermitCost::of_message(segments);
                self.allocator.allocate(own, cost, DbMicros::MAX);
            });
        }
    }
}

/// The shared limits of a batch, locked.
pub(crate) struct LockedLimits<'a> {
    pub(crate) accounts: Limits,
    rates: &'a OwnRates,
    own: Limits,
    /// What is spent of budgets, by scope.
    pub(crate) spent: BTreeMap<String, i64>,
}

impl<'a> LockedLimits<'a> {
    pub(crate) async fn lock(
        connection: &mut Connection,
        batch: &CommitBatch,
        own: &'a OwnRates,
        declared: &DeclaredLimits,
        budgets: BTreeSet<String>,
    ) -> QueryResult<Self> {
        let has_rates = |(_, rates): &(&String, &Vec<Rate>)| !rates.is_empty();
        let (limited, unlimited): (OwnScopes<'_>, OwnScopes<'_>) = own.iter().partition(has_rates);
        let mut scopes: BTreeSet<String> = limited.into_keys().cloned().collect();
        let mut unlimited: BTreeSet<String> = unlimited.into_keys().cloned().collect();
        let has_own = !scopes.is_empty();
        scopes.extend(batch.pauses.iter().map(scope_of));
        for claim in &batch.claims {
            let scope = claim.account.scope();
            let agreed = declared.agreed(claim.account.name(), &claim.limits);
            if !has_own && agreed.is_ok_and(|limits| limits.is_empty()) {
                unlimited.insert(scope);
            } else {
                scopes.insert(scope);
            }
        }
        // Accounts and senders have a row if they had a limit or a pause.
        scopes.extend(read(connection, &unlimited, false).await?.into_keys());
        scopes.extend(budgets.iter().cloned());
        let mut accounts = lock(connection, &scopes).await?;
        let spent = budgets.into_iter().map(|scope| {
            let counter = accounts.remove(&scope).unwrap_or_default();
            (scope, counter.spent)
        });
        let spent = spent.collect();
        apply_pauses(&mut accounts, &batch.pauses);
        let own_limits = begin_own(batch, own, &mut accounts);
        Ok(Self { accounts, rates: own, own: own_limits, spent })
    }

    /// Calls `work` with the own limits of a request of this lane.
    pub(crate) fn with_own<T>(
        &mut self,
        account: &Account,
        lane: LaneId,
        sender: Option<&Arc<PoolSender>>,
        work: impl FnOnce(&mut [ClaimLimit]) -> T,
    ) -> T {
        let scopes = own_scopes(self.rates, account, lane, sender);
        with_own(&mut self.own, scopes, work)
    }

    /// Stores what has changed.
    pub(crate) async fn store(&self, connection: &mut Connection) -> QueryResult<()> {
        for (scope, limit) in self.accounts.iter().chain(&self.own) {
            store(connection, scope, limit).await?;
        }
        Ok(())
    }
}

/// Own limits of requests, by reference.
type OwnScopes<'a> = BTreeMap<&'a String, &'a Vec<Rate>>;
