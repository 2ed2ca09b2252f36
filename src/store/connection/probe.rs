//! What a server can do, found out by trying: several accept `SKIP LOCKED` and do not skip.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use diesel::QueryResult;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::{
    Connection, Lane, PooledConnection, ServerKind, Symptom, load_locked, load_skipping_locked,
    mysql, postgres, transaction, with_conn,
};
use crate::store::schema::rate_limit;
use crate::store::{Fault, Store, StoreError, limits};

/// The row that the probe locks.
const PROBE_SCOPE: &str = "probe";
/// A lock that is not skipped within this is waited for.
const SKIP_TIMEOUT: Duration = Duration::from_secs(2);

/// What was found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The server's own name and version.
    pub version: String,
    /// The host that is used, of several.
    pub host: String,
    pub skip_locked: SkipLocked,
    pub is_encrypted: bool,
}

/// Whether rows that another transaction has locked are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipLocked {
    Honoured,
    /// A locked row was returned.
    Ignored,
    /// The lock was waited for.
    Waits,
    /// The server does not know `SKIP LOCKED`.
    Unknown,
    /// The url says not to use it.
    Off,
    /// Nothing may be written, and there is no row to lock, or this user may not lock it.
    Untried,
}

impl fmt::Display for SkipLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Honoured => "locked rows are skipped",
            Self::Ignored => "locked rows are not skipped: rows are claimed by comparing",
            Self::Waits => "locked rows are waited for: rows are claimed by comparing",
            Self::Unknown => "locked rows cannot be skipped: rows are claimed by comparing",
            Self::Untried => "nothing: this user may not lock rows",
            Self::Off => "locked rows are not to be skipped: rows are claimed by comparing",
        })
    }
}

impl Store {
    /// Tries what claims depend on; `None` on SQLite, which has no such differences.
    pub async fn probe(&self) -> Result<Option<Probe>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(None);
        };
        let skip_locked = *self
            .skip_locked
            .get_or_try_init(|| self.try_to_skip())
            .await?;
        let mut pooled = self.pool.take(Lane::Read).await?;
        let version = pooled.connection().word("version()").await;
        let version = version.map_err(|error| pooled.store_error(&error))?;
        pooled.give_back();
        Ok(Some(Probe {
            // PostgreSQL adds its compiler.
            version: version.split(" on ").next().unwrap_or_default().to_owned(),
            host: self.pool.host(),
            skip_locked,
            is_encrypted: url.encrypted,
        }))
    }

    /// The server's settings by which a crash of its host may undo what was committed, with their values.
    pub async fn unsafe_settings(&self) -> Result<Vec<String>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(Vec::new());
        };
        let settings = match url.kind {
            ServerKind::Postgres => postgres::CRASH_SAFE,
            ServerKind::Mysql => mysql::CRASH_SAFE,
        };
        let mut pooled = self.pool.take(Lane::Read).await?;
        let mut found = Vec::new();
        for (name, expression, safe) in settings {
            let value = pooled.connection().word(expression).await;
            let value = value.map_err(|error| pooled.store_error(&error))?;
            if value != safe {
                found.push(format!("{name} = {value}"));
            }
        }
        pooled.give_back();
        Ok(found)
    }

    /// Whether claims may rely on `SKIP LOCKED`. SQLite has one transaction at a time, so nothing is locked.
    pub(in crate::store) async fn skips_locked(&self) -> Result<bool, StoreError> {
        if self.pool.server().is_none() {
            return Ok(true);
        }
        let probed = self
            .skip_locked
            .get_or_try_init(|| self.try_to_skip())
            .await?;
        Ok(*probed == SkipLocked::Honoured)
    }

    /// Refuses a pooler that runs each transaction of a client in any session and keeps no prepared statements:
    /// a statement of another process could be executed.
    pub(in crate::store) async fn refuse_pooler(&self) -> Result<(), StoreError> {
        let is_postgres = |server: &super::ServerUrl| server.kind == ServerKind::Postgres;
        if !self.pool.server().is_some_and(is_postgres) {
            return Ok(());
        }
        let judge = |pooled: &PooledConnection<'_>, error| match pooled.symptom(&error) {
            Symptom::Lost | Symptom::ReadOnly => pooled.store_error(&error),
            // Another client's statement may have the name.
            _ => {
                let reason =
                    "is reached by a pooler that keeps no prepared statements of its clients";
                StoreError::new(self.place(), Fault::Pooler, reason)
            }
        };
        let mut first = self.pool.take(Lane::Write).await?;
        let prepared_first = prepared(first.connection()).await;
        prepared_first.map_err(|error| judge(&first, error))?;
        // A pooler gives this one the session in which the statement was prepared, and the first one another.
        let mut other = self.pool.take(Lane::Write).await?;
        let begun = other.connection().run("BEGIN").await;
        begun.map_err(|error| other.store_error(&error))?;
        let again = prepared(first.connection()).await;
        other.roll_back().await;
        again.map_err(|error| judge(&first, error))?;
        first.give_back();
        Ok(())
    }

    /// Uses two connections: one locks a row, the other asks for it.
    async fn try_to_skip(&self) -> Result<SkipLocked, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(SkipLocked::Honoured);
        };
        if !url.skips_locked {
            return Ok(SkipLocked::Off);
        }
        if !url.is_only_read {
            let scope = BTreeSet::from([PROBE_SCOPE.to_owned()]);
            transaction!(self, |connection| limits::lock(connection, &scope))?;
        }
        let mut holder = self.pool.take(Lane::Write).await?;
        match lock_row(holder.connection()).await {
            Ok(1..) => {}
            Err(error) if !url.is_only_read => return Err(holder.store_error(&error)),
            Ok(0) | Err(_) => {
                holder.roll_back().await;
                return Ok(SkipLocked::Untried);
            }
        }
        let mut other = self.pool.take(Lane::Write).await?;
        let skipped = tokio::time::timeout(SKIP_TIMEOUT, skip_row(other.connection())).await;
        let found = match skipped {
            Ok(Ok(0)) => SkipLocked::Honoured,
            Ok(Ok(_)) => SkipLocked::Ignored,
            Ok(Err(_)) => SkipLocked::Unknown,
            Err(_) => SkipLocked::Waits,
        };
        holder.roll_back().await;
        if found != SkipLocked::Waits {
            other.roll_back().await;
        }
        if found != SkipLocked::Honoured {
            tracing::warn!("at `{}` {found}, which is slower", self.place());
        }
        Ok(found)
    }
}

/// Runs a statement that stays prepared on its connection.
async fn prepared(connection: &mut Connection) -> QueryResult<i32> {
    use diesel::sql_types::Integer;
    with_conn!(connection, |conn| diesel::select(1.into_sql::<Integer>())
        .get_result(conn))
}

/// Locks the probe's row; returns 0 where there is none.
async fn lock_row(connection: &mut Connection) -> QueryResult<usize> {
    connection.run("BEGIN").await?;
    let rows: QueryResult<Vec<String>> = load_locked!(
        connection,
        rate_limit::table
            .filter(rate_limit::scope.eq(PROBE_SCOPE))
            .select(rate_limit::scope)
    );
    Ok(rows?.len())
}

async fn skip_row(connection: &mut Connection) -> QueryResult<usize> {
    connection.run("BEGIN").await?;
    let rows: QueryResult<Vec<String>> = load_skipping_locked!(
        connection,
        rate_limit::table
            .filter(rate_limit::scope.eq(PROBE_SCOPE))
            .select(rate_limit::scope)
    );
    Ok(rows?.len())
}
