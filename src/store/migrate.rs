//! Creates the tables or brings them up to date. Tables of another program or of a newer smsq are an error.

use std::time::Duration;

use smsq_process::boxed;

use super::connection::prelude::*;
use super::connection::{
    Connection, DatabaseError, Dialect, NewRows, Purpose, QueryResult, run_inline,
};
use super::error::{StoreError, StoreErrorKind};
use super::tables::mode::Mode;
use super::tables::schema::database_mode;
use super::{Access, Store};

/// A version, and the SQL that creates it from the version before.
type Migration = (&'static str, &'static str);

/// The version that says what the database is for.
const MODE: &str = "0024";
/// Makes an unused database one for practice, in the transaction of that version.
const PRACTISE: &str = "UPDATE database_mode SET is_practice = TRUE WHERE id = 1;";
/// How many campaigns and messages the database has; what was used for real messages never becomes practice.
const USED: &str = "(SELECT (SELECT count(*) FROM campaign WHERE id > 1) + (SELECT count(*) FROM sms) \
     + (SELECT count(*) FROM sms_sent) + (SELECT count(*) FROM sms_failed))";

macro_rules! migrations {
    ($engine:literal) => {{
        macro_rules! sql {
            ($file:literal) => {
                include_str!(concat!("../../migrations/", $engine, "/", $file))
            };
        }
        const MIGRATIONS: &[Migration] = &[
            ("0001", sql!("0001_queue.sql")),
            ("0002", sql!("0002_send_window.sql")),
            ("0003", sql!("0003_purged.sql")),
            ("0004", sql!("0004_receipts.sql")),
            ("0005", sql!("0005_serve.sql")),
            ("0006", sql!("0006_intake.sql")),
            ("0007", sql!("0007_doubt.sql")),
            ("0008", sql!("0008_unknown.sql")),
            ("0009", sql!("0009_receipt_key.sql")),
            ("0010", sql!("0010_posted_by.sql")),
            ("0011", sql!("0011_doubt_span.sql")),
            ("0012", sql!("0012_receipt_inbox.sql")),
            ("0013", sql!("0013_receipt_writes.sql")),
            ("0014", sql!("0014_lanes.sql")),
            ("0015", sql!("0015_failover.sql")),
            ("0016", sql!("0016_dead.sql")),
            ("0017", sql!("0017_budgets.sql")),
            ("0018", sql!("0018_approval.sql")),
            ("0019", sql!("0019_hooks.sql")),
            ("0020", sql!("0020_schedule.sql")),
            ("0021", sql!("0021_reference.sql")),
            ("0022", sql!("0022_commits.sql")),
            ("0023", sql!("0023_budget_count.sql")),
            (MODE, sql!("0024_practice.sql")),
            ("0025", sql!("0025_approvals.sql")),
            ("0026", sql!("0026_asked_runs.sql")),
        ];
        MIGRATIONS
    }};
}

/// The same table as that of the `diesel` command.
const CREATE_HISTORY: &str = "CREATE TABLE IF NOT EXISTS __diesel_schema_migrations (
    version VARCHAR(50) PRIMARY KEY NOT NULL,
    run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
)";

/// Two processes may create the same tables at once; then one of them tries again.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(250);

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}
use __diesel_schema_migrations as history;

enum Migrated {
    UpToDate(Mode),
    Refused(StoreErrorKind, String),
}

impl Store {
    /// Brings the tables up to date as far as `access` allows, and returns what the database is for.
    pub(super) async fn migrate(
        &self,
        access: Access,
        created_for: Mode,
    ) -> Result<Mode, StoreError> {
        let mut attempt = 1;
        loop {
            match self.try_migrate(access, created_for).await {
                Ok(mode) => return Ok(mode),
                Err((_, true)) if attempt < ATTEMPTS => {}
                Err((error, _)) => return Err(error),
            }
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// An error of the kind `Newer` if a newer smsq has brought the tables up to date since they were opened.
    #[boxed]
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        let applied: Vec<String> =
            self.read(history::table.order(history::version).select(history::version)).await?;
        match newer(&applied) {
            Some(reason) => Err(StoreError::new(self.location(), StoreErrorKind::Newer, reason)),
            None => Ok(()),
        }
    }

    /// An error has a flag: whether another process may be creating the tables now.
    async fn try_migrate(
        &self,
        access: Access,
        created_for: Mode,
    ) -> Result<Mode, (StoreError, bool)> {
        let pooled = self.pool.take(Purpose::Write).await;
        // A process that creates a SQLite file locks it for connections that open it.
        let is_busy = |error: &StoreError| error.kind() == StoreErrorKind::Busy;
        let mut pooled = pooled.map_err(|error| (error.clone(), is_busy(&error)))?;
        let connection = pooled.connection();
        let done = if connection.is_sqlite() {
            run_inline(step(connection, access, created_for))
        } else {
            step(connection, access, created_for).await
        };
        match done {
            Ok(Migrated::UpToDate(mode)) => {
                pooled.give_back();
                Ok(mode)
            }
            Ok(Migrated::Refused(kind, reason)) => {
                Err((StoreError::new(self.location(), kind, reason), false))
            }
            Err(error) => Err((pooled.store_error(&error), may_be_concurrent(&error))),
        }
    }
}

/// Why this program must not use tables with these versions, if it does not know one of them.
fn newer(applied: &[String]) -> Option<String> {
    // The versions are those of every engine.
    let known = migrations!("sqlite");
    let is_known = |version: &String| known.iter().any(|(known, _)| known == version);
    let version = applied.iter().find(|version| !is_known(version))?;
    Some(format!("was written by a newer smsq (schema {version})"))
}

/// Whether another process may be creating the tables now.
fn may_be_concurrent(error: &DatabaseError) -> bool {
    let message = error.to_string().to_lowercase();
    let exists = message.contains("already exists") || message.contains("duplicate column");
    let kinds = [StoreErrorKind::Constraint, StoreErrorKind::Busy, StoreErrorKind::Unavailable];
    exists || kinds.contains(&error.kind())
}

async fn step(
    connection: &mut Connection,
    access: Access,
    created_for: Mode,
) -> QueryResult<Migrated> {
    let refused = |kind, reason: &str| Ok(Migrated::Refused(kind, reason.to_owned()));
    let (migrations, tables) = match connection.dialect() {
        Dialect::Sqlite => (migrations!("sqlite"), "sqlite_master WHERE name"),
        Dialect::Postgres => (
            migrations!("postgres"),
            "information_schema.tables WHERE table_schema = current_schema() AND table_name",
        ),
        Dialect::Mysql => (
            migrations!("mysql"),
            "information_schema.tables WHERE table_schema = database() AND table_name",
        ),
    };
    let count = |names: &str| format!("(SELECT count(*) FROM {tables} IN ({names}))");
    // In this order, because a process that creates the tables creates the history first.
    let own = "'campaign', 'sms', 'sms_sent', 'sms_failed', 'import', 'worker', 'rate_limit'";
    let own = connection.number(&count(own)).await?;
    let history = "'__diesel_schema_migrations'";
    if connection.number(&count(history)).await? == 0 {
        if own > 0 {
            let reason = "has tables of another program with the names that smsq needs";
            return refused(StoreErrorKind::Unrecognized, reason);
        }
        if access != Access::Create {
            return refused(StoreErrorKind::NoTables, "has no tables of smsq yet");
        }
        connection.run(CREATE_HISTORY).await?;
    }
    let applied: Vec<String> =
        history::table.order(history::version).select(history::version).load(connection).await?;
    if let Some(reason) = newer(&applied) {
        return refused(StoreErrorKind::Newer, &reason);
    }
    let missing =
        migrations.iter().filter(|(version, _)| !applied.iter().any(|done| done == version));
    for (version, sql) in missing {
        if access == Access::Read {
            return refused(StoreErrorKind::Older, "has tables of an older smsq");
        }
        let mut sql = (*sql).to_owned();
        if *version == MODE && created_for.is_practice() && connection.number(USED).await? == 0 {
            sql += PRACTISE;
        }
        apply(connection, version, &sql).await?;
    }
    if connection.is_sqlite() && access != Access::Read {
        // The mode is stored in the file, so it is set only after the tables are checked.
        connection.run("PRAGMA journal_mode = WAL").await?;
    }
    let is_practice: bool =
        database_mode::table.select(database_mode::is_practice).first(connection).await?;
    Ok(Migrated::UpToDate(is_practice.into()))
}

/// Applies one version, unless another process has, which is a violation of the history's key. The history comes first,
/// so that a process waits for the other one there. MySQL commits each statement at once, so there it comes last, and
/// scripts can be repeated.
async fn apply(connection: &mut Connection, version: &str, sql: &str) -> QueryResult<()> {
    let rows = [history::version.eq(version)];
    let is_repeatable = connection.dialect() == Dialect::Mysql;
    connection.begin_transaction().await?;
    if !is_repeatable {
        NewRows::of(history::table, &rows).insert(connection).await?;
    }
    connection.run(sql).await?;
    if is_repeatable {
        NewRows::of(history::table, &rows).insert(connection).await?;
    }
    connection.commit().await
}
