//! Table `pace` on servers: read, held while moments are given out, and kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::{QueryResult, insert_into, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::search::Standing;
use crate::limit::Cost;
use crate::limit::DeclaredLimits;
use crate::limit::{CampaignLimit, PermitAllocator};
use crate::limit::{SharedLimit, SharedLimitRow, campaign_scope, provider_scope};
use crate::queue::{CampaignClaim, ProviderClaim};
use crate::rate::Rates;
use crate::store::queue::{CommitBatch, ProviderPause};
use crate::store::schema::pace;

type Scoped = (String, SharedLimitRow);

const COLUMNS: (
    pace::next_us,
    pace::cost_max,
    pace::buckets,
    pace::stopped_until,
    pace::stop_reason,
) = (
    pace::next_us,
    pace::cost_max,
    pace::buckets,
    pace::stopped_until,
    pace::stop_reason,
);

/// The rows as they stand; one that is missing says nothing.
pub(super) async fn look(
    link: &mut Link,
    scopes: &BTreeSet<String>,
) -> QueryResult<BTreeMap<String, SharedLimit>> {
    if scopes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<Scoped> = on!(link, |conn| pace::table
        .filter(pace::scope.eq_any(scopes))
        .select((pace::scope, COLUMNS))
        .load(conn))?;
    Ok(paces(rows))
}

/// The rows, made where they are missing and held until the transaction ends, always in the same order.
pub(super) async fn hold(
    link: &mut Link,
    scopes: &BTreeSet<String>,
) -> QueryResult<BTreeMap<String, SharedLimit>> {
    if scopes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let held = hold_existing(link, scopes).await?;
    let missing: Vec<_> = scopes
        .iter()
        .filter(|scope| !held.contains_key(*scope))
        .map(|scope| pace::scope.eq(scope.clone()))
        .collect();
    if missing.is_empty() {
        return Ok(held);
    }
    match link {
        Link::Postgres(conn) => {
            insert_into(pace::table)
                .values(&missing)
                .on_conflict_do_nothing()
                .execute(conn)
                .await?
        }
        Link::Mysql(conn) => {
            diesel::insert_or_ignore_into(pace::table)
                .values(&missing)
                .execute(conn)
                .await?
        }
    };
    hold_existing(link, scopes).await
}

async fn hold_existing(
    link: &mut Link,
    scopes: &BTreeSet<String>,
) -> QueryResult<BTreeMap<String, SharedLimit>> {
    let rows: Vec<Scoped> = on!(link, |conn| pace::table
        .filter(pace::scope.eq_any(scopes))
        .order(pace::scope)
        .select((pace::scope, COLUMNS))
        .for_update()
        .load(conn))?;
    Ok(paces(rows))
}

fn paces(rows: Vec<Scoped>) -> BTreeMap<String, SharedLimit> {
    rows.into_iter()
        .map(|(scope, columns)| (scope, SharedLimit::from_row(columns)))
        .collect()
}

pub(super) async fn keep(link: &mut Link, scope: &str, kept: &SharedLimit) -> QueryResult<()> {
    let (next_us, cost_max, state, until, reason) = kept.to_row();
    on!(link, |conn| update(pace::table.find(scope))
        .set((
            pace::next_us.eq(next_us),
            pace::cost_max.eq(cost_max),
            pace::buckets.eq(state),
            pace::stopped_until.eq(until),
            pace::stop_reason.eq(reason),
        ))
        .execute(conn))?;
    Ok(())
}

/// Gives out no moments of these providers' accounts before these instants.
pub(super) async fn stop(link: &mut Link, stops: &[ProviderPause]) -> QueryResult<()> {
    let scopes = stops.iter().map(|stop| provider_scope(&stop.provider));
    let mut accounts = hold(link, &scopes.collect()).await?;
    for stop in stops {
        let scope = provider_scope(&stop.provider);
        if let Some(account) = accounts.get_mut(&scope) {
            account.pause(stop.until, &stop.reason);
            keep(link, &scope, account).await?;
        }
    }
    Ok(())
}

/// The campaigns that have a limit of their own.
fn limited(campaigns: &HashMap<i64, Standing>) -> BTreeMap<i64, &Rates> {
    campaigns
        .iter()
        .filter(|(_, standing)| !standing.limits.0.is_empty())
        .map(|(id, standing)| (*id, &standing.limits))
        .collect()
}

/// The campaigns' own limits, taken from what was read of them.
fn own_limits(
    round: &CommitBatch,
    limited: &BTreeMap<i64, &Rates>,
    read: &mut BTreeMap<String, SharedLimit>,
) -> HashMap<i64, CampaignLimit> {
    let from_us = round.claims.iter().map(|route| route.from_us).min();
    let from_us = from_us.unwrap_or(0);
    let own = limited.iter().map(|(id, limits)| {
        let mut pace = read.remove(&campaign_scope(*id)).unwrap_or_default();
        pace.begin(&limits.0, round.worker_id, from_us, round.tolerance);
        if round.fill_limits {
            pace.fill(from_us);
        }
        let own = CampaignLimit {
            limit: pace,
            is_changed: round.fill_limits,
            next_us: None,
        };
        (*id, own)
    });
    own.collect()
}

/// What the campaigns' own limits seem to allow one claim: they are read, but not held, so other
/// workers may be quicker.
pub(super) struct Estimate {
    allocator: PermitAllocator,
    own: HashMap<i64, CampaignLimit>,
}

impl Estimate {
    /// One for each claim of the round.
    pub(super) async fn of_all(
        link: &mut Link,
        round: &CommitBatch,
        campaigns: &HashMap<i64, Standing>,
    ) -> QueryResult<Vec<Self>> {
        let limited = limited(campaigns);
        let scopes = limited.keys().map(|id| campaign_scope(*id));
        let mut read = look(link, &scopes.collect()).await?;
        let own = own_limits(round, &limited, &mut read);
        let estimates = round.claims.iter().map(|route| {
            let mut estimate = Self {
                allocator: PermitAllocator::new(route.terms(), SharedLimit::default(), false),
                own: own.clone(),
            };
            estimate.take_held(route);
            estimate
        });
        Ok(estimates.collect())
    }

    /// What is held comes first.
    fn take_held(&mut self, route: &ProviderClaim) {
        for (moment_us, held) in route.unused() {
            if let Some(own) = self.own.get_mut(&held.campaign_id) {
                self.allocator.give_back(own, held.cost, moment_us);
            }
        }
        for held in &route.held {
            if let Some(own) = self.own.get_mut(&held.campaign_id) {
                self.allocator.allocate(own, held.cost, route.until_us);
            }
        }
    }

    /// How many of `want` messages there are permits for.
    pub(super) fn permits(&self, ask: CampaignClaim, want: u32) -> u32 {
        match self.own.get(&ask.campaign_id) {
            Some(own) => self.allocator.available(own, want, ask.max_batch),
            None => want,
        }
    }

    /// Spends one of them.
    pub(super) fn take(&mut self, campaign_id: i64, segments: i32) {
        if let Some(own) = self.own.get_mut(&campaign_id) {
            self.allocator
                .allocate(own, Cost::of_message(segments), i64::MAX);
        }
    }
}

/// The shared limits of a round: those that anybody spends from are held.
pub(super) struct LockedLimits {
    pub(super) accounts: BTreeMap<String, SharedLimit>,
    pub(super) own: HashMap<i64, CampaignLimit>,
    pub(super) changed: BTreeSet<String>,
}

impl LockedLimits {
    pub(super) async fn hold(
        link: &mut Link,
        round: &CommitBatch,
        campaigns: &HashMap<i64, Standing>,
        declared: &DeclaredLimits,
    ) -> QueryResult<Self> {
        let limited = limited(campaigns);
        let mut scopes: BTreeSet<String> = limited.keys().map(|id| campaign_scope(*id)).collect();
        scopes.extend(
            round
                .pauses
                .iter()
                .map(|stop| provider_scope(&stop.provider)),
        );
        let mut unlimited = BTreeSet::new();
        for route in &round.claims {
            let scope = provider_scope(&route.provider);
            if limited.is_empty() && declared.agreed(&route.provider, &route.limits).is_empty() {
                unlimited.insert(scope);
            } else {
                scopes.insert(scope);
            }
        }
        // An account that had a limit, or is stopped, has a row.
        let seen = look(link, &unlimited).await?;
        scopes.extend(seen.into_keys());
        let mut accounts = hold(link, &scopes).await?;
        let own = own_limits(round, &limited, &mut accounts);
        Ok(Self {
            accounts,
            own,
            changed: BTreeSet::new(),
        })
    }

    pub(super) fn stop(&mut self, stop: &ProviderPause) {
        let scope = provider_scope(&stop.provider);
        self.accounts
            .entry(scope.clone())
            .or_default()
            .pause(stop.until, &stop.reason);
        self.changed.insert(scope);
    }

    pub(super) async fn keep(&self, link: &mut Link) -> QueryResult<()> {
        for scope in &self.changed {
            if let Some(account) = self.accounts.get(scope) {
                keep(link, scope, account).await?;
            }
        }
        for (id, own) in &self.own {
            if own.is_changed && own.limit.is_limited() {
                keep(link, &campaign_scope(*id), &own.limit).await?;
            }
        }
        Ok(())
    }
}
