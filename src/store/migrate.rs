//! Creates the tables. Tables of another program, of an earlier revision and of a newer smsq are an error.
//!
//! One process at a time looks at the history, creates what is missing and records it. It holds a lock of the engine for
//! this: SQLite's write lock, an advisory lock of PostgreSQL, a named lock of MySQL; in a Galera cluster, whose nodes
//! have no common lock, a row of the history. Tables that are up to date need none.

use std::time::{Duration, Instant};

use smsq_process::boxed;

use super::connection::prelude::*;
use super::connection::{Connection, Dialect, NewRows, QueryResult, querying, transaction};
use super::error::{StoreError, StoreErrorKind};
use super::tables::mode::Mode;
use super::tables::schema::database_mode;
use super::{Access, Store};

/// A version, and the SQL that creates it from the version before.
type Migration = (&'static str, &'static str);

macro_rules! migrations {
    ($engine:literal, $($version:literal),+) => {
        &[$(($version, include_str!(concat!("../../migrations/", $engine, "/", $version, ".sql")))),+]
    };
}

/// The first version, which every database of smsq has.
const FIRST: &str = "0001_tables";
const SQLITE: &[Migration] = migrations!("sqlite", "0001_tables");
const POSTGRES: &[Migration] = migrations!("postgres", "0001_tables");
const MYSQL: &[Migration] = migrations!("mysql", "0001_tables");

macro_rules! create_history {
    ($options:literal) => {
        concat!(
            "CREATE TABLE IF NOT EXISTS __diesel_schema_migrations (
    version VARCHAR(50) PRIMARY KEY NOT NULL,
    run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
)",
            $options
        )
    };
}

/// The same table as that of the `diesel` command.
fn create_history(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => create_history!(""),
        Dialect::Mysql => {
            create_history!(" ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        }
    }
}

/// How long a process waits for another one that creates the tables.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at the lock of another node.
const PAUSE: Duration = Duration::from_millis(250);

/// The number of PostgreSQL's advisory lock in the database, "smsq" in ASCII.
const LOCK_NUMBER: u32 = u32::from_be_bytes(*b"smsq");
/// The name of MySQL's lock. Its server has one name for all databases, of at most 64 characters.
const LOCK_NAME: &str = "concat('smsq ', sha2(lower(database()), 224))";
/// The row of MySQL's history that says that the tables are being created: without it and without a version, tables are
/// not those of smsq. It is the lock of a cluster, whose process is gone if it is older than a minute.
const LOCK_VERSION: &str = "creating";
const INSERT_LOCK: &str =
    "INSERT IGNORE INTO __diesel_schema_migrations (version) VALUES ('creating')";
const TAKE_OVER_LOCK: &str = "UPDATE __diesel_schema_migrations SET run_on = CURRENT_TIMESTAMP \
    WHERE version = 'creating' AND run_on < CURRENT_TIMESTAMP - INTERVAL 60 SECOND";
const DELETE_LOCK: &str = "DELETE FROM __diesel_schema_migrations WHERE version = 'creating'";
/// The tables stay incomplete, and the next process completes them.
const GIVE_UP_LOCK: &str =
    "UPDATE __diesel_schema_migrations SET run_on = '2000-01-01' WHERE version = 'creating'";

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}
use __diesel_schema_migrations as history;

/// The tables of a database.
enum FoundTables {
    /// They are up to date.
    Current(Mode),
    Missing,
    Refused(Refusal),
}

/// Why this program must not use a database.
struct Refusal {
    kind: StoreErrorKind,
    reason: String,
}

impl Refusal {
    fn new(kind: StoreErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    fn of_another_program() -> Self {
        let reason = "has tables of another program with the names that smsq needs";
        Self::new(StoreErrorKind::Unrecognized, reason)
    }

    fn no_tables() -> Self {
        Self::new(StoreErrorKind::NoTables, "has no tables of smsq yet")
    }

    /// Of tables with these versions.
    fn of(applied: &[String]) -> Option<Self> {
        // The versions of the earlier revisions were numbers without a name.
        if applied.iter().any(|version| matches!(version.parse::<u32>(), Ok(1..=26))) {
            let reason = "was made by a development version of smsq, before its first release; this smsq cannot use it";
            return Some(Self::new(StoreErrorKind::Older, reason));
        }
        // They are the same on every engine.
        let is_known = |version: &String| SQLITE.iter().any(|(known, _)| known == version);
        if !applied.is_empty() && !applied.iter().any(|version| version == FIRST) {
            return Some(Self::of_another_program());
        }
        let newer = applied.iter().find(|version| !is_known(version))?;
        let reason = format!("was written by a newer smsq (schema {newer})");
        Some(Self::new(StoreErrorKind::Newer, reason))
    }

    fn into_error(self, store: &Store) -> StoreError {
        StoreError::new(store.location(), self.kind, self.reason)
    }
}

impl Store {
    /// Creates the tables if they are missing and `access` allows it; returns what the database is for. A database whose
    /// tables are created is for `created_for`.
    pub(super) async fn migrate(
        &self,
        access: Access,
        created_for: Mode,
    ) -> Result<Mode, StoreError> {
        self.migrate_within(PATIENCE, access, created_for).await
    }

    async fn migrate_within(
        &self,
        patience: Duration,
        access: Access,
        created_for: Mode,
    ) -> Result<Mode, StoreError> {
        let looked = match querying!(self, Write, |connection| look(connection, access))? {
            FoundTables::Current(mode) => Ok(mode),
            FoundTables::Missing => self.create(patience, access, created_for).await?,
            FoundTables::Refused(refusal) => Err(refusal),
        };
        let mode = looked.map_err(|refusal| refusal.into_error(self))?;
        if self.dialect() == Dialect::Sqlite && access != Access::Read {
            // The mode is stored in the file, so it is set only after the tables are checked.
            querying!(self, Write, |connection| connection.run("PRAGMA journal_mode = WAL"))?;
        }
        Ok(mode)
    }

    /// Creates the tables under the lock of the engine, unless another process has created them.
    async fn create(
        &self,
        patience: Duration,
        access: Access,
        created_for: Mode,
    ) -> Result<Result<Mode, Refusal>, StoreError> {
        match self.dialect() {
            // The transaction is the lock.
            Dialect::Sqlite => {
                transaction!(self, |connection| create(connection, access, created_for))
            }
            Dialect::Postgres => transaction!(self, |connection| async {
                // Another program may also have created a table in a transaction that is open.
                let created = match lock_transaction(connection, patience).await {
                    Ok(()) => create(connection, access, created_for).await,
                    Err(error) => Err(error),
                };
                match created {
                    Err(error) if error.kind() == StoreErrorKind::Busy => Ok(Err(locked(patience))),
                    created => created,
                }
            }),
            // Each statement of the script is a transaction.
            Dialect::Mysql => querying!(self, Write, |connection| async {
                let is_in_cluster = connection.is_in_cluster().await?;
                if !lock_session(connection, is_in_cluster, patience).await? {
                    return Ok(Err(locked(patience)));
                }
                let created = create(connection, access, created_for).await;
                let row = if created.is_ok() { DELETE_LOCK } else { GIVE_UP_LOCK };
                let mut released = connection.run(row).await;
                if !is_in_cluster {
                    released = connection.run(&format!("DO release_lock({LOCK_NAME})")).await;
                }
                created.and_then(|created| released.map(|()| created))
            }),
        }
    }

    /// An error of the kind `Newer` if a newer smsq has brought the tables up to date since they were opened.
    #[boxed]
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        let applied = querying!(self, Read, |connection| applied(connection))?;
        match Refusal::of(&applied) {
            Some(refusal) => Err(refusal.into_error(self)),
            None => Ok(()),
        }
    }
}

fn migrations(dialect: Dialect) -> &'static [Migration] {
    match dialect {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
        Dialect::Mysql => MYSQL,
    }
}

/// The reason where another process holds the lock.
fn locked(patience: Duration) -> Refusal {
    let reason = format!("another process has been creating its tables for {patience:?}");
    Refusal::new(StoreErrorKind::Busy, reason)
}

/// Locks PostgreSQL until the transaction ends.
async fn lock_transaction(connection: &mut Connection, patience: Duration) -> QueryResult<()> {
    let limit = patience.as_millis();
    let lock = format!(
        "SET LOCAL lock_timeout = '{limit}ms'; SELECT pg_advisory_xact_lock({LOCK_NUMBER})"
    );
    connection.run(&lock).await
}

/// Locks MySQL; the lock of a single server also ends with the session. Returns false if another process holds it for
/// longer than `patience`.
async fn lock_session(
    connection: &mut Connection,
    is_in_cluster: bool,
    patience: Duration,
) -> QueryResult<bool> {
    if !is_in_cluster {
        let limit = patience.as_secs();
        let lock = format!("coalesce(get_lock({LOCK_NAME}, {limit}), 0)");
        if connection.number(&lock).await? != 1 {
            return Ok(false);
        }
    }
    connection.run(create_history(Dialect::Mysql)).await?;
    if is_in_cluster {
        return lock_cluster(connection, patience).await;
    }
    connection.run(INSERT_LOCK).await?;
    Ok(true)
}

/// Locks a Galera cluster: of two nodes that insert the same row at once, only one can commit it. Nodes that create the
/// same view at once stop all nodes.
async fn lock_cluster(connection: &mut Connection, patience: Duration) -> QueryResult<bool> {
    let began = Instant::now();
    loop {
        for lock in [INSERT_LOCK, TAKE_OVER_LOCK] {
            if diesel::sql_query(lock).execute(connection).await? == 1 {
                return Ok(true);
            }
        }
        if began.elapsed() >= patience {
            return Ok(false);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(connection: &mut Connection, access: Access) -> QueryResult<FoundTables> {
    let tables = match connection.dialect() {
        Dialect::Sqlite => "sqlite_master WHERE name",
        Dialect::Postgres => {
            "information_schema.tables WHERE table_schema = current_schema() AND table_name"
        }
        Dialect::Mysql => {
            "information_schema.tables WHERE table_schema = database() AND table_name"
        }
    };
    let count = |names: &str| format!("(SELECT count(*) FROM {tables} IN ({names}))");
    // In this order, because a process that creates the tables creates the history first.
    let own = "'campaign', 'sms', 'sms_sent', 'sms_failed', 'import', 'worker', 'rate_limit'";
    let own = connection.number(&count(own)).await?;
    let history = "'__diesel_schema_migrations'";
    if connection.number(&count(history)).await? == 0 {
        return Ok(if own > 0 {
            FoundTables::Refused(Refusal::of_another_program())
        } else if access == Access::Create {
            FoundTables::Missing
        } else {
            FoundTables::Refused(Refusal::no_tables())
        });
    }
    let versions = history::table.order(history::version).select(history::version);
    let found: Vec<String> = versions.load(connection).await?;
    if own > 0 && found.is_empty() {
        return Ok(FoundTables::Refused(Refusal::of_another_program()));
    }
    let applied = without_lock(found);
    if let Some(refusal) = Refusal::of(&applied) {
        return Ok(FoundTables::Refused(refusal));
    }
    if missing(connection.dialect(), &applied).next().is_none() {
        let is_practice: bool =
            database_mode::table.select(database_mode::is_practice).first(connection).await?;
        return Ok(FoundTables::Current(is_practice.into()));
    }
    // Another process creates them, or was killed on MySQL before it had created all.
    Ok(match access {
        Access::Read => FoundTables::Refused(Refusal::no_tables()),
        Access::Create | Access::Existing => FoundTables::Missing,
    })
}

async fn applied(connection: &mut Connection) -> QueryResult<Vec<String>> {
    let versions = history::table.order(history::version).select(history::version);
    Ok(without_lock(versions.load(connection).await?))
}

fn without_lock(mut versions: Vec<String>) -> Vec<String> {
    versions.retain(|version| version != LOCK_VERSION);
    versions
}

/// The migrations that are not applied, oldest first.
fn missing(dialect: Dialect, applied: &[String]) -> impl Iterator<Item = &'static Migration> {
    let is_missing = |(version, _): &&Migration| !applied.iter().any(|done| done == version);
    migrations(dialect).iter().filter(is_missing)
}

/// Creates the tables, unless another process did before this one got the lock. On MySQL a process may be killed after
/// any statement, so all of them can be repeated, and the history comes last.
async fn create(
    connection: &mut Connection,
    access: Access,
    created_for: Mode,
) -> QueryResult<Result<Mode, Refusal>> {
    match look(connection, access).await? {
        FoundTables::Current(mode) => return Ok(Ok(mode)),
        FoundTables::Refused(refusal) => return Ok(Err(refusal)),
        FoundTables::Missing => {}
    }
    connection.run(create_history(connection.dialect())).await?;
    let applied = applied(connection).await?;
    for (version, sql) in missing(connection.dialect(), &applied) {
        connection.run(sql).await?;
        // If the tables are not new, it has its row.
        let mode =
            [(database_mode::id.eq(1), database_mode::is_practice.eq(created_for.is_practice()))];
        NewRows::of(database_mode::table, &mode).insert_new(connection).await?;
        NewRows::of(history::table, &[history::version.eq(version)]).insert_new(connection).await?;
    }
    let is_practice: bool =
        database_mode::table.select(database_mode::is_practice).first(connection).await?;
    Ok(Ok(is_practice.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::pool::Purpose;
    use crate::testing::server_databases;

    #[tokio::test]
    async fn tables_that_another_process_creates_for_too_long_are_an_error() {
        let at = |url: &str| Store::at(url, Access::Create, Mode::Real).expect("a url");
        for url in server_databases().await {
            let (other, store) = (at(&url), at(&url));
            let mut pooled = other.pool.take(Purpose::Write).await.expect("a connection");
            let lock = match other.dialect() {
                Dialect::Postgres => format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK_NUMBER})"),
                Dialect::Mysql | Dialect::Sqlite => format!("DO get_lock({LOCK_NAME}, 0)"),
            };
            pooled.connection().run(&lock).await.expect("it is free");
            let patience = Duration::from_secs(1);
            let waited = store.migrate_within(patience, Access::Create, Mode::Real).await;
            let error = waited.expect_err("it is locked");
            assert_eq!(error.kind(), StoreErrorKind::Busy);
            let reason = "another process has been creating its tables for 1s";
            assert!(error.to_string().ends_with(reason), "{error}");
            // The end of its session ends the lock.
            drop(pooled);
            let created = store.migrate(Access::Create, Mode::Practice).await;
            assert_eq!(created.expect("it is free"), Mode::Practice);
        }
    }
}
