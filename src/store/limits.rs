//! Table `rate_limit`: read to estimate permits, locked while permits are allocated, and stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::{QueryResult, update};

use super::commit_batch::{ClaimedCampaign, CommitBatch, ProviderPause};
use super::connection::prelude::*;
use super::connection::{
    Connection, Prepared, ROWS, audited, in_list, insert_new, load_locked, reading, with_conn,
};
use super::schema::rate_limit;
use super::{Audited, Store, StoreError};
use crate::instant::DbMicros;
use crate::limit::{
    ClaimLimit, DeclaredLimits, PermitAllocator, PermitCost, SharedLimit, campaign_scope,
    provider_of, provider_scope,
};
use crate::queue::{CampaignClaim, ProviderClaim};
use crate::rate::{Rate, Rates};
use crate::sms::Timestamp;

/// The columns of table `rate_limit`.
type LimitRow = (String, i64, i32, String, i64, Option<String>);

/// Limits by their scopes.
type Limits = BTreeMap<String, ClaimLimit>;

impl Store {
    /// The current pauses of providers.
    pub async fn provider_pauses(&self, now: Timestamp) -> Result<Vec<ProviderPause>, StoreError> {
        type Row = (String, Timestamp, Option<String>);
        let rows: Vec<Row> = reading!(self, |conn| rate_limit::table
            .filter(rate_limit::stopped_until.gt(now))
            .order(rate_limit::scope)
            .select((
                rate_limit::scope,
                rate_limit::stopped_until,
                rate_limit::stop_reason,
            ))
            .load(conn))?;
        let pause = |(scope, until, reason): Row| ProviderPause {
            provider: provider_of(&scope).to_owned(),
            until,
            reason: reason.unwrap_or_default(),
        };
        Ok(rows.into_iter().map(pause).collect())
    }

    /// Ends a provider's pause; false if it had none.
    pub async fn end_provider_pause(
        &self,
        provider: &str,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<bool, StoreError> {
        let ended: u64 = audited!(self, audited, now, |connection| async {
            let ended = with_conn!(connection, |conn| update(
                rate_limit::table
                    .find(provider_scope(provider))
                    .filter(rate_limit::stopped_until.gt(now))
            )
            .set((
                rate_limit::stopped_until.eq(0),
                rate_limit::stop_reason.eq(None::<String>)
            ))
            .execute(conn))?;
            QueryResult::Ok(ended as u64)
        })?;
        Ok(ended > 0)
    }
}

/// Reads the limits of those scopes that have a row, with `lock` in the order of their names and locked.
async fn read(
    connection: &mut Connection,
    scopes: &BTreeSet<String>,
    lock: bool,
) -> QueryResult<Limits> {
    let scopes: Vec<&String> = scopes.iter().collect();
    let mut found = Limits::new();
    for scopes in scopes.chunks(ROWS) {
        let scopes = in_list(scopes.iter().copied());
        let rows = || {
            rate_limit::table
                .filter(rate_limit::scope.eq_any(&scopes))
                .order(rate_limit::scope)
        };
        let rows: Vec<LimitRow> = if lock {
            load_locked!(connection, prepared rows())?
        } else {
            with_conn!(connection, |conn| Prepared(rows()).load(conn))?
        };
        found.extend(limits(rows));
    }
    Ok(found)
}

/// Locks the limits of these scopes in the order of their names; creates missing ones.
pub(super) async fn lock(
    connection: &mut Connection,
    scopes: &BTreeSet<String>,
) -> QueryResult<Limits> {
    if scopes.is_empty() {
        return Ok(Limits::new());
    }
    let locked = read(connection, scopes, true).await?;
    let missing: Vec<_> = scopes
        .iter()
        .filter(|scope| !locked.contains_key(*scope))
        .map(|scope| rate_limit::scope.eq(scope.clone()))
        .collect();
    if missing.is_empty() {
        return Ok(locked);
    }
    insert_new!(connection, rate_limit::table, &missing)?;
    read(connection, scopes, true).await
}

fn limits(rows: Vec<LimitRow>) -> Limits {
    rows.into_iter()
        .map(|(scope, next_us, cost_max, buckets, until, reason)| {
            let row = (next_us, cost_max, buckets, until, reason);
            let limit = ClaimLimit {
                limit: SharedLimit::from_row(row),
                ..ClaimLimit::default()
            };
            (scope, limit)
        })
        .collect()
}

/// Stores a limit if it has changed.
async fn store(connection: &mut Connection, scope: &str, limit: &ClaimLimit) -> QueryResult<()> {
    if !limit.is_changed {
        return Ok(());
    }
    let (next_us, cost_max, state, until, reason) = limit.limit.to_row();
    with_conn!(connection, |conn| Prepared(
        update(rate_limit::table.find(scope)).set((
            rate_limit::next_us.eq(next_us),
            rate_limit::cost_max.eq(cost_max),
            rate_limit::buckets.eq(&state),
            rate_limit::stopped_until.eq(until),
            rate_limit::stop_reason.eq(&reason),
        ))
    )
    .execute(conn))?;
    Ok(())
}

/// Stores the pauses of providers if nothing is claimed.
pub(super) async fn pause(
    connection: &mut Connection,
    pauses: &[ProviderPause],
) -> QueryResult<()> {
    let scopes = pauses.iter().map(|pause| provider_scope(&pause.provider));
    let mut limits = lock(connection, &scopes.collect()).await?;
    apply_pauses(&mut limits, pauses);
    for (scope, limit) in &limits {
        store(connection, scope, limit).await?;
    }
    Ok(())
}

fn apply_pauses(limits: &mut Limits, pauses: &[ProviderPause]) {
    for pause in pauses {
        let account = limits.entry(provider_scope(&pause.provider)).or_default();
        account.limit.pause(pause.until, &pause.reason);
        account.is_changed = true;
    }
}

/// The campaigns with their own limit.
fn limited(campaigns: &HashMap<i64, ClaimedCampaign>) -> BTreeMap<i64, &Rates> {
    campaigns
        .iter()
        .filter_map(|(id, campaign)| Some((*id, campaign.limits.as_ref().ok()?)))
        .filter(|(_, limits)| !limits.0.is_empty())
        .collect()
}

/// Applies limits to a shared limit in a claim from `from` on.
pub(super) fn begin(
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

/// Takes the campaigns' own limits out of `read`.
fn campaign_limits(
    batch: &CommitBatch,
    limited: &BTreeMap<i64, &Rates>,
    read: &mut Limits,
) -> HashMap<i64, ClaimLimit> {
    let from = batch.claims.iter().map(|claim| claim.from).min();
    let own = limited.iter().map(|(id, limits)| {
        let mut own = read.remove(&campaign_scope(*id)).unwrap_or_default();
        begin(&mut own, &limits.0, from.unwrap_or_default(), batch);
        (*id, own)
    });
    own.collect()
}

/// An estimate of the permits that the campaigns' own limits allow for one claim. Limits are read without a lock, so
/// other workers may take the permits first.
pub(super) struct PermitEstimate {
    allocator: PermitAllocator,
    campaigns: HashMap<i64, ClaimLimit>,
}

impl PermitEstimate {
    /// Makes one estimate for each claim of the batch.
    pub(super) async fn of_all(
        connection: &mut Connection,
        batch: &CommitBatch,
        campaigns: &HashMap<i64, ClaimedCampaign>,
    ) -> QueryResult<Vec<Self>> {
        let limited = limited(campaigns);
        let scopes = limited.keys().map(|id| campaign_scope(*id));
        let mut read = read(connection, &scopes.collect(), false).await?;
        let campaigns = campaign_limits(batch, &limited, &mut read);
        let estimates = batch.claims.iter().map(|claim| {
            let mut estimate = Self {
                allocator: PermitAllocator {
                    terms: claim.terms(),
                    account: ClaimLimit::default(),
                },
                campaigns: campaigns.clone(),
            };
            estimate.take_held(claim);
            estimate
        });
        Ok(estimates.collect())
    }

    /// Allocates permits to held requests first.
    fn take_held(&mut self, claim: &ProviderClaim) {
        for (start_at, unused) in claim.unused() {
            if let Some(own) = self.campaigns.get_mut(&unused.campaign_id) {
                self.allocator.give_back(own, unused.cost, start_at);
            }
        }
        for held in &claim.held {
            if let Some(own) = self.campaigns.get_mut(&held.campaign_id) {
                self.allocator.allocate(own, held.cost, claim.until);
            }
        }
    }

    /// How many of `wanted` messages there are permits for.
    pub(super) fn available(&self, campaign: CampaignClaim, wanted: u32) -> u32 {
        match self.campaigns.get(&campaign.campaign_id) {
            Some(own) => self.allocator.available(own, wanted, campaign.max_batch),
            None => wanted,
        }
    }

    /// Takes one of them.
    pub(super) fn take(&mut self, campaign_id: i64, segments: i32) {
        if let Some(own) = self.campaigns.get_mut(&campaign_id) {
            self.allocator
                .allocate(own, PermitCost::of_message(segments), DbMicros::MAX);
        }
    }
}

/// The shared limits of a batch, locked.
pub(super) struct LockedLimits {
    pub(super) accounts: Limits,
    pub(super) campaigns: HashMap<i64, ClaimLimit>,
}

impl LockedLimits {
    pub(super) async fn lock(
        connection: &mut Connection,
        batch: &CommitBatch,
        campaigns: &HashMap<i64, ClaimedCampaign>,
        declared: &DeclaredLimits,
    ) -> QueryResult<Self> {
        let limited = limited(campaigns);
        let mut scopes: BTreeSet<String> = limited.keys().map(|id| campaign_scope(*id)).collect();
        let paused = batch.pauses.iter();
        scopes.extend(paused.map(|pause| provider_scope(&pause.provider)));
        let mut unlimited = BTreeSet::new();
        for claim in &batch.claims {
            let scope = provider_scope(&claim.provider);
            let agreed = declared.agreed(&claim.provider, &claim.limits);
            if limited.is_empty() && agreed.is_ok_and(|limits| limits.is_empty()) {
                unlimited.insert(scope);
            } else {
                scopes.insert(scope);
            }
        }
        // An account has a row if it had a limit or a pause.
        scopes.extend(read(connection, &unlimited, false).await?.into_keys());
        let mut accounts = lock(connection, &scopes).await?;
        let campaigns = campaign_limits(batch, &limited, &mut accounts);
        apply_pauses(&mut accounts, &batch.pauses);
        Ok(Self {
            accounts,
            campaigns,
        })
    }

    /// Stores what has changed.
    pub(super) async fn store(&self, connection: &mut Connection) -> QueryResult<()> {
        for (scope, account) in &self.accounts {
            store(connection, scope, account).await?;
        }
        for (id, own) in &self.campaigns {
            if own.limit.is_limited() {
                store(connection, &campaign_scope(*id), own).await?;
            }
        }
        Ok(())
    }
}
