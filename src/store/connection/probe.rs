//! Tests what a server is, and whether smsq can use it.

use diesel::QueryResult;

use super::prelude::*;
use super::{
    ConnectError, Connection, PooledConnection, Purpose, ServerKind, TextValue, mysql, postgres,
    reading, with_conn,
};
use crate::store::{Store, StoreError, StoreErrorKind};

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
    unsupported(&version.value).map_or(Ok(()), |server| {
        let reason = format!("is {server}, which smsq does not support");
        Err(ConnectError::new(StoreErrorKind::Unsupported, reason))
    })
}

/// What the server with this version is, if it is not supported.
fn unsupported(version: &str) -> Option<String> {
    if let Some((_, name)) = UNSUPPORTED.iter().find(|(part, _)| version.contains(part)) {
        return Some((*name).to_owned());
    }
    // PostgreSQL's begins with its name.
    let mut numbers = version.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let found = (number()?, number()?);
    // Earlier ones do not know `SKIP LOCKED`.
    let (name, first) = if version.contains("MariaDB") {
        ("MariaDB", (10, 6))
    } else {
        ("MySQL", (8, 0))
    };
    (found < first).then(|| format!("{name} before {}.{}", first.0, first.1))
}

/// The properties of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The server's own name and version.
    pub version: String,
    /// The host that is used, of several.
    pub host: String,
    pub is_encrypted: bool,
}

impl Store {
    /// Reads the properties of the server; `None` on SQLite.
    pub async fn probe(&self) -> Result<Option<Probe>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(None);
        };
        let version = self.text("version()").await?;
        Ok(Some(Probe {
            // PostgreSQL adds its compiler.
            version: version.split(" on ").next().unwrap_or_default().to_owned(),
            host: self.pool.host(),
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
        let mut first = self.pool.take(Purpose::Write).await?;
        let prepared_first = prepared(first.connection()).await;
        prepared_first.map_err(|error| pooler_error(&first, error))?;
        // A pooler gives this client the session in which the statement was prepared, and the first client another.
        let mut other = self.pool.take(Purpose::Write).await?;
        let begun = other.connection().run("BEGIN").await;
        begun.map_err(|error| other.store_error(&error))?;
        let again = prepared(first.connection()).await;
        other.roll_back().await;
        again.map_err(|error| pooler_error(&first, error))?;
        first.give_back();
        Ok(())
    }
}

/// Runs a statement that stays prepared on its connection.
async fn prepared(connection: &mut Connection) -> QueryResult<i32> {
    use diesel::sql_types::Integer;
    with_conn!(connection, |conn| diesel::select(1.into_sql::<Integer>())
        .get_result(conn))
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
            ("5.7.44-log", "MySQL before 8.0"),
            (
                "10.5.23-MariaDB-1:10.5.23+maria~ubu2004",
                "MariaDB before 10.6",
            ),
            (
                "PostgreSQL 11.2-YB-2.18.0.1-b0 on x86_64-pc-linux-gnu, compiled by clang",
                "YugabyteDB",
            ),
        ];
        for (version, name) in refused {
            assert_eq!(unsupported(version).as_deref(), Some(name), "{version}");
        }
        for version in [
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc",
            "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by Aurora",
            "10.11.19-MariaDB-0+deb12u1",
            "10.6.18-MariaDB",
            "8.0.39",
            "8.4.3-aurora",
        ] {
            assert_eq!(unsupported(version), None, "{version}");
        }
    }
}
