//! The rows of rate limits: reads, locks and stores them.

use std::collections::{BTreeMap, BTreeSet};

use diesel::update;
use smsq_limit::{ClaimLimit, SharedLimit};

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, in_list};
use crate::tables::schema::rate_limit;

/// The columns of table `rate_limit`.
type LimitRow = (String, i64, i32, String, i64, Option<String>, i64);

/// Limits by their scopes.
pub(crate) type Limits = BTreeMap<String, ClaimLimit>;

/// Reads the limits of those scopes that have a row, with `lock` in the order of their names and locked.
pub(crate) async fn read(
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
                .select((
                    rate_limit::scope,
                    rate_limit::next_us,
                    rate_limit::cost_max,
                    rate_limit::buckets,
                    rate_limit::stopped_until,
                    rate_limit::stop_reason,
                    rate_limit::spent,
                ))
        };
        let rows: Vec<LimitRow> = if lock {
            rows().kept().locked().load(connection).await?
        } else {
            rows().kept().load(connection).await?
        };
        found.extend(limits(rows));
    }
    Ok(found)
}

/// Locks the limits of these scopes in the order of their names; creates missing ones.
pub(crate) async fn lock(
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
    NewRows::of(rate_limit::table, &missing).insert_new(connection).await?;
    read(connection, scopes, true).await
}

fn limits(rows: Vec<LimitRow>) -> Limits {
    rows.into_iter()
        .map(|(scope, next_us, cost_max, buckets, until, reason, spent)| {
            let row = (next_us, cost_max, buckets, until, reason);
            let limit =
                ClaimLimit { limit: SharedLimit::from_row(row), spent, ..ClaimLimit::default() };
            (scope, limit)
        })
        .collect()
}

/// Stores a limit if it has changed.
pub(crate) async fn store(
    connection: &mut Connection,
    scope: &str,
    limit: &ClaimLimit,
) -> QueryResult<()> {
    if !limit.is_changed {
        return Ok(());
    }
    let (next_us, cost_max, state, until, reason) = limit.limit.to_row();
    update(rate_limit::table.find(scope))
        .set((
            rate_limit::next_us.eq(next_us),
            rate_limit::cost_max.eq(cost_max),
            rate_limit::buckets.eq(&state),
            rate_limit::stopped_until.eq(until),
            rate_limit::stop_reason.eq(&reason),
        ))
        .kept()
        .execute(connection)
        .await?;
    Ok(())
}
