//! Tests what a server is and what it can do: several accept `SKIP LOCKED` but do not skip locked rows.

use std::fmt;
use std::time::Duration;

use diesel::QueryResult;

use super::prelude::*;
use super::{
    ConnectError, Connection, Lane, PooledConnection, ServerKind, TextValue, insert_new,
    load_locked, load_skipping_locked, mysql, postgres, reading, transaction, with_conn,
};
use crate::store::schema::rate_limit;
use crate::store::{Store, StoreError, StoreErrorKind};

/// The row that the probe locks.
const PROBE_SCOPE: &str = "probe";
/// If the row is not skipped within this time, the server waits for the lock.
const SKIP_TIMEOUT: Duration = Duration::from_secs(2);

/// Servers with the protocol of a supported database that lock, commit or create tables in another way: a part of
/// their version, and their name.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("CockroachDB", "CockroachDB"),
    ("-TiDB-", "TiDB"),
    ("-YB-", "YugabyteDB"),
];

/// Returns an error if the server at the other end of a new connection is not supported.
pub(super) async fn refuse_unsupported(connection: &mut Connection) -> Result<(), ConnectError> {
    let sql = "SELECT version() AS value";
    let version: TextValue =
        with_conn!(connection, |conn| diesel::sql_query(sql).get_result(conn))?;
    unsupported(&version.value).map_or(Ok(()), |name| {
        let reason = format!("is {name}, which smsq does not support");
        Err(ConnectError::new(StoreErrorKind::Unsupported, reason))
    })
}

/// The name of the server with this version if it is not supported.
fn unsupported(version: &str) -> Option<&'static str> {
    let known = UNSUPPORTED.iter().find(|(part, _)| version.contains(part));
    known.map(|(_, name)| *name)
}

/// The properties of a server.
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
    /// The server waited for the lock.
    Waits,
    /// The server does not know `SKIP LOCKED`.
    Unknown,
    /// The URL forbids to use it.
    Off,
    /// Not tested: nothing may be written, and there is no row that this user may lock.
    Untried,
}

impl fmt::Display for SkipLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Honoured => "locked rows are skipped",
            Self::Ignored => "`SKIP LOCKED` has no effect, so claims are slower",
            Self::Waits => "locked rows are waited for, so claims are slower",
            Self::Unknown => "`SKIP LOCKED` is unknown, so claims are slower",
            Self::Untried => "nothing: this user may not lock rows",
            Self::Off => "`SKIP LOCKED` is switched off, so claims are slower",
        })
    }
}

impl Store {
    /// Tests what claims depend on; `None` on SQLite.
    pub async fn probe(&self) -> Result<Option<Probe>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(None);
        };
        let skip_locked = *self
            .skip_locked
            .get_or_try_init(|| self.try_to_skip())
            .await?;
        let version = self.text("version()").await?;
        Ok(Some(Probe {
            // PostgreSQL adds its compiler.
            version: version.split(" on ").next().unwrap_or_default().to_owned(),
            host: self.pool.host(),
            skip_locked,
            is_encrypted: url.encrypted,
        }))
    }

    /// Settings of the server with which a crash of its host may undo commits, as `NAME = VALUE`.
    pub async fn unsafe_settings(&self) -> Result<Vec<String>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(Vec::new());
        };
        let settings = match url.kind {
            ServerKind::Postgres => postgres::CRASH_SAFE,
            ServerKind::Mysql => mysql::CRASH_SAFE,
        };
        let mut found = Vec::new();
        for (name, expression, safe) in settings {
            let value = self.text(expression).await?;
            if value != safe {
                found.push(format!("{name} = {value}"));
            }
        }
        Ok(found)
    }

    /// The value of an expression that is a text.
    async fn text(&self, expression: &str) -> Result<String, StoreError> {
        let sql = format!("SELECT {expression} AS value");
        let row: TextValue = reading!(self, |conn| diesel::sql_query(&sql).get_result(conn))?;
        Ok(row.value)
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

    /// Returns an error if the server is reached by a pooler that keeps no prepared statements: a statement of
    /// another process could be executed.
    pub(in crate::store) async fn refuse_pooler(&self) -> Result<(), StoreError> {
        let is_postgres = |server: &super::ServerUrl| server.kind == ServerKind::Postgres;
        if !self.pool.server().is_some_and(is_postgres) {
            return Ok(());
        }
        let pooler_error = |pooled: &PooledConnection<'_>, error| {
            let error = pooled.store_error(&error);
            if matches!(
                error.kind(),
                StoreErrorKind::Unavailable | StoreErrorKind::Replica
            ) {
                return error;
            }
            // Another client's statement may have the name.
            let reason = "is reached by a pooler that keeps no prepared statements of its clients";
            StoreError::new(self.location(), StoreErrorKind::Pooler, reason)
        };
        let mut first = self.pool.take(Lane::Write).await?;
        let prepared_first = prepared(first.connection()).await;
        prepared_first.map_err(|error| pooler_error(&first, error))?;
        // A pooler gives this client the session in which the statement was prepared, and the first client another.
        let mut other = self.pool.take(Lane::Write).await?;
        let begun = other.connection().run("BEGIN").await;
        begun.map_err(|error| other.store_error(&error))?;
        let again = prepared(first.connection()).await;
        other.roll_back().await;
        again.map_err(|error| pooler_error(&first, error))?;
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
            transaction!(self, |connection| create_row(connection))?;
        }
        let mut holder = self.pool.take(Lane::Write).await?;
        match lock_row(holder.connection(), false).await {
            Ok(1..) => {}
            Err(error) if !url.is_only_read => return Err(holder.store_error(&error)),
            Ok(0) | Err(_) => {
                holder.roll_back().await;
                return Ok(SkipLocked::Untried);
            }
        }
        let mut other = self.pool.take(Lane::Write).await?;
        let skipped = tokio::time::timeout(SKIP_TIMEOUT, lock_row(other.connection(), true)).await;
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
            tracing::warn!("at `{}` {found}, which is slower", self.location());
        }
        Ok(found)
    }
}

async fn create_row(connection: &mut Connection) -> QueryResult<usize> {
    let rows = [rate_limit::scope.eq(PROBE_SCOPE)];
    insert_new!(connection, rate_limit::table, rows)
}

/// Runs a statement that stays prepared on its connection.
async fn prepared(connection: &mut Connection) -> QueryResult<i32> {
    use diesel::sql_types::Integer;
    with_conn!(connection, |conn| diesel::select(1.into_sql::<Integer>())
        .get_result(conn))
}

/// Begins a transaction and locks the row of the probe; returns 0 if there is none, or if it is skipped.
async fn lock_row(connection: &mut Connection, skips_locked: bool) -> QueryResult<usize> {
    connection.run("BEGIN").await?;
    let row = || {
        rate_limit::table
            .filter(rate_limit::scope.eq(PROBE_SCOPE))
            .select(rate_limit::scope)
    };
    let rows: Vec<String> = if skips_locked {
        load_skipping_locked!(connection, row())?
    } else {
        load_locked!(connection, row())?
    };
    Ok(rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_a_borrowed_protocol_are_known_by_version() {
        let refused = [
            (
                "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)",
                "CockroachDB",
            ),
            ("8.0.11-TiDB-v8.5.0", "TiDB"),
            ("5.7.25-TiDB-v6.1.0", "TiDB"),
            (
                "PostgreSQL 11.2-YB-2.18.0.1-b0 on x86_64-pc-linux-gnu, compiled by clang",
                "YugabyteDB",
            ),
        ];
        for (version, name) in refused {
            assert_eq!(unsupported(version), Some(name), "{version}");
        }
        for version in [
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc",
            "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by Aurora",
            "10.11.19-MariaDB-0+deb12u1",
            "8.0.39",
            "8.4.3-aurora",
        ] {
            assert_eq!(unsupported(version), None, "{version}");
        }
    }
}
