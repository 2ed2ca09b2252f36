//! Tests what a server is, and whether smsq can use it.

use std::os::unix::fs::MetadataExt;

use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Integer, Text};
use diesel::{QueryableByName, select};
use smsq_process::boxed;

use super::Connection;
use super::error::QueryResult;
use super::pool::{PooledConnection, Purpose};
use super::prelude::*;
use super::url::ServerKind;
use crate::Store;
use crate::error::{StoreError, StoreErrorKind};

/// A row of `SHOW VARIABLES`.
#[derive(QueryableByName)]
struct Variable {
    #[diesel(sql_type = Text, column_name = "Value")]
    value: String,
}

/// Server settings by which commits survive a crash of the host: name, expression, and the safe value.
const MYSQL_CRASH_SAFE: [(&str, &str, &str); 2] = [
    (
        "innodb_flush_log_at_trx_commit",
        "CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR)",
        "1",
    ),
    ("sync_binlog", "IF(@@global.log_bin, CAST(@@global.sync_binlog AS CHAR), '1')", "1"),
];

/// Server settings by which commits survive a crash of the host: name, expression, and the safe value.
const POSTGRES_CRASH_SAFE: [(&str, &str, &str); 2] = [
    ("fsync", "current_setting('fsync')", "on"),
    ("full_page_writes", "current_setting('full_page_writes')", "on"),
];

/// Whether new sessions of this user commit without waiting for the disk, whatever a pooler has set in this one.
const COMMITS_EARLY: &str = "CASE WHEN EXISTS (SELECT FROM pg_settings \
     WHERE name = 'synchronous_commit' AND reset_val = 'off') \
     OR EXISTS (SELECT FROM pg_db_role_setting WHERE 'synchronous_commit=off' = ANY (setconfig) \
     AND setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
     AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))) \
     THEN 1 ELSE 0 END::bigint";

/// The properties of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The server's own name and version.
    pub version: String,
    /// The host that is used, of several.
    pub host: String,
    pub is_encrypted: bool,
}

impl Connection {
    /// Whether a MySQL server is a node of a Galera cluster.
    pub(crate) async fn is_in_cluster(&mut self) -> QueryResult<bool> {
        let sql = "SHOW STATUS LIKE 'wsrep_cluster_size'";
        let size: Vec<Variable> = diesel::sql_query(sql).load(self).await?;
        Ok(size.iter().any(|variable| variable.value != "0"))
    }
}

impl Store {
    /// Reads the properties of the server; `None` on SQLite.
    #[boxed]
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

    /// Identifies the database among its copies: the server's own identity and that of the database in it, or the file.
    #[boxed]
    pub async fn place(&self) -> Result<String, StoreError> {
        let Some(url) = self.pool.server() else {
            // The number of a device may change when the host is started again.
            let inode = self.file().and_then(|file| std::fs::metadata(file).ok());
            let inode = inode.map(|file| file.ino()).unwrap_or_default();
            return Ok(format!("file {inode}"));
        };
        let server = match url.kind {
            ServerKind::Postgres => self.postgres_system().await?,
            ServerKind::Mysql => self.mysql_server().await?,
        };
        let database = match url.kind {
            ServerKind::Postgres => {
                "(SELECT oid::text FROM pg_database WHERE datname = current_database())"
            }
            ServerKind::Mysql => "database()",
        };
        let database = self.text(database).await?;
        Ok(format!("{server} {database}"))
    }

    /// The identity of the data folder, which standbys and physical backups have, too; empty where it may not be read.
    async fn postgres_system(&self) -> Result<String, StoreError> {
        let may = "has_function_privilege('pg_control_system()', 'EXECUTE')::text";
        if self.text(may).await? != "true" {
            return Ok(String::new());
        }
        self.text("(SELECT system_identifier::text FROM pg_control_system())").await
    }

    /// The identity of a Galera cluster, else that of the server; empty where it has none, such as MariaDB before 10.6.19.
    async fn mysql_server(&self) -> Result<String, StoreError> {
        let sql = "SHOW STATUS LIKE 'wsrep_cluster_state_uuid'";
        let cluster: Vec<Variable> = self.read(diesel::sql_query(sql)).await?;
        let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')";
        let server: Vec<Variable> = self.read(diesel::sql_query(sql)).await?;
        let mut known = cluster.into_iter().chain(server);
        let first = known.find(|variable| !variable.value.is_empty());
        Ok(first.map(|variable| variable.value).unwrap_or_default())
    }

    /// An error of the kind `LostCommits` if the path of a SQLite database does not lead to the file that is open any more.
    pub fn check_file(&self) -> Result<(), StoreError> {
        self.pool.check_file()
    }

    /// Settings of the server with which a crash of its host may undo commits, as `NAME = VALUE`.
    #[boxed]
    pub async fn unsafe_settings(&self) -> Result<Vec<String>, StoreError> {
        let Some(url) = self.pool.server() else {
            return Ok(Vec::new());
        };
        let settings = match url.kind {
            ServerKind::Postgres => POSTGRES_CRASH_SAFE,
            ServerKind::Mysql => MYSQL_CRASH_SAFE,
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

    /// Whether the default of the database is that a commit is reported before it is on the disk. Transactions of smsq
    /// wait for the disk in any case.
    #[boxed]
    pub async fn commits_early(&self) -> Result<bool, StoreError> {
        if !self.is_postgres() {
            return Ok(false);
        }
        let early: i64 = self.read_one(select(sql::<BigInt>(COMMITS_EARLY))).await?;
        Ok(early == 1)
    }

    fn is_postgres(&self) -> bool {
        let server = self.pool.server();
        server.is_some_and(|server| server.kind == ServerKind::Postgres)
    }

    /// The value of an expression that is a text.
    async fn text(&self, expression: &str) -> Result<String, StoreError> {
        self.read_one(select(sql::<Text>(expression))).await
    }

    /// Returns an error if the server is reached by a pooler that keeps no prepared statements: a statement of
    /// another process could be executed.
    pub(crate) async fn refuse_pooler(&self) -> Result<(), StoreError> {
        if !self.is_postgres() {
            return Ok(());
        }
        let pooler_error = |pooled: &PooledConnection<'_>, error| {
            let error: StoreError = pooled.store_error(&error);
            if matches!(error.kind(), StoreErrorKind::Unavailable | StoreErrorKind::Replica) {
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
    select(1.into_sql::<Integer>()).get_result(connection).await
}
