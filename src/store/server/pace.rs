//! Table `pace` on servers: read, held while moments are given out, and kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::{QueryResult, insert_into, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::search::Standing;
use crate::rate::Rates;
use crate::store::pace::allotment::Own;
use crate::store::pace::{Columns, Pace, campaign_scope, provider_scope};
use crate::store::queue::Round;
use crate::store::schema::pace;

type Scoped = (String, Columns);

const COLUMNS: (
    pace::next_us,
    pace::cost_max,
    pace::slowest_us,
    pace::slowest_until,
    pace::slowest_by,
    pace::buckets,
    pace::stopped_until,
) = (
    pace::next_us,
    pace::cost_max,
    pace::slowest_us,
    pace::slowest_until,
    pace::slowest_by,
    pace::buckets,
    pace::stopped_until,
);

/// The rows as they stand; one that is missing says nothing.
pub(super) async fn look(
    link: &mut Link,
    scopes: &BTreeSet<String>,
) -> QueryResult<BTreeMap<String, Pace>> {
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
) -> QueryResult<BTreeMap<String, Pace>> {
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
) -> QueryResult<BTreeMap<String, Pace>> {
    let rows: Vec<Scoped> = on!(link, |conn| pace::table
        .filter(pace::scope.eq_any(scopes))
        .order(pace::scope)
        .select((pace::scope, COLUMNS))
        .for_update()
        .load(conn))?;
    Ok(paces(rows))
}

fn paces(rows: Vec<Scoped>) -> BTreeMap<String, Pace> {
    rows.into_iter()
        .map(|(scope, columns)| (scope, Pace::of(columns)))
        .collect()
}

pub(super) async fn keep(link: &mut Link, scope: &str, kept: &Pace) -> QueryResult<()> {
    on!(link, |conn| update(pace::table.find(scope))
        .set((
            pace::next_us.eq(kept.next_us),
            pace::cost_max.eq(kept.cost_max),
            pace::slowest_us.eq(kept.slowest_us),
            pace::slowest_until.eq(kept.slowest_until),
            pace::slowest_by.eq(kept.slowest_by),
            pace::buckets.eq(kept.buckets_json()),
            pace::stopped_until.eq(kept.stopped_until),
        ))
        .execute(conn))?;
    Ok(())
}

/// The shared limits of a round: those that anybody spends from are held.
pub(super) struct Paces {
    pub(super) accounts: BTreeMap<String, Pace>,
    pub(super) own: HashMap<i64, Own>,
    pub(super) changed: BTreeSet<String>,
}

impl Paces {
    pub(super) async fn hold(
        link: &mut Link,
        round: &Round,
        campaigns: &HashMap<i64, Standing>,
    ) -> QueryResult<Self> {
        let limited: BTreeMap<i64, &Rates> = campaigns
            .iter()
            .filter(|(_, standing)| !standing.limits.0.is_empty())
            .map(|(id, standing)| (*id, &standing.limits))
            .collect();
        let of_routes = round
            .claims
            .iter()
            .map(|route| provider_scope(&route.provider));
        let seen = look(link, &of_routes.collect()).await?;
        let mut scopes: BTreeSet<String> = limited.keys().map(|id| campaign_scope(*id)).collect();
        scopes.extend(
            round
                .stops
                .iter()
                .map(|(provider, _)| provider_scope(provider)),
        );
        for route in &round.claims {
            let scope = provider_scope(&route.provider);
            // Another worker's limit, which is in the row, holds for those who have none, too.
            if !route.limits.is_empty() || !limited.is_empty() || seen.contains_key(&scope) {
                scopes.insert(scope);
            }
        }
        let mut accounts = hold(link, &scopes).await?;
        let mut own = HashMap::new();
        for (id, limits) in limited {
            let mut pace = accounts.remove(&campaign_scope(id)).unwrap_or_default();
            let from_us = round.claims.iter().map(|route| route.from_us).min();
            let from_us = from_us.unwrap_or(0);
            let terms = round.lease.of_campaign();
            pace.begin(&limits.0, round.worker_id, from_us, terms);
            if round.refill {
                pace.refill(from_us);
            }
            let is_spent = round.refill;
            own.insert(id, Own { pace, is_spent });
        }
        for (scope, pace) in seen {
            accounts.entry(scope).or_insert(pace);
        }
        Ok(Self {
            accounts,
            own,
            changed: BTreeSet::new(),
        })
    }

    pub(super) fn stop(&mut self, scope: &str, until: i64) {
        let pace = self.accounts.entry(scope.to_owned()).or_default();
        pace.stopped_until = pace.stopped_until.max(until);
        self.changed.insert(scope.to_owned());
    }

    pub(super) async fn keep(&self, link: &mut Link) -> QueryResult<()> {
        for scope in &self.changed {
            if let Some(account) = self.accounts.get(scope) {
                keep(link, scope, account).await?;
            }
        }
        for (id, own) in &self.own {
            if own.is_spent && own.pace.is_limited() {
                keep(link, &campaign_scope(*id), &own.pace).await?;
            }
        }
        Ok(())
    }
}
