//! Table `pace` on servers: read, held while moments are given out, and kept.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use diesel::{QueryResult, insert_into, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use crate::store::pace::{Columns, Pace};
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
