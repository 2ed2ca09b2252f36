//! SQLite: one file, one writer at a time. A transaction is one closure on a blocking thread, so nobody
//! who stops waiting can leave it open.

mod claim;
mod insert;
mod ledger;
mod moves;
mod purge;
mod recipients;
mod round;
mod settle;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use diesel::prelude::*;
use diesel::result::Error;
use diesel::sqlite::SqliteConnection;
use diesel_async::sync_connection_wrapper::{SpawnBlocking, SyncConnectionWrapper};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::DAMAGED;
use super::{Access, Fault, StoreError};
use crate::sms::{Timestamp, millis};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// Another process may hold the file for a moment: wait for it, do not fail. The cache (in KiB) is
/// small because only the head of the queue is hot.
const SETTINGS: &str = "PRAGMA busy_timeout = 30000; PRAGMA synchronous = FULL; \
     PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;";

/// As long as SQLite waits by itself, in `SETTINGS`.
const BUSY: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Reports scan whole indexes: that must not drive anything else out of memory.
const READING: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -1024";

pub(super) type Handle = SyncConnectionWrapper<SqliteConnection, Detached>;

/// Runs a connection's work on a blocking thread and lets it end there, even if nobody waits for it
/// any more: what was begun is committed or rolled back, never left open.
pub(super) struct Detached;

impl SpawnBlocking for Detached {
    fn spawn_blocking<'a, R: Send + 'static>(
        &mut self,
        task: impl FnOnce() -> R + Send + 'static,
    ) -> BoxFuture<'a, R> {
        Box::pin(async {
            tokio::task::spawn_blocking(task)
                .await
                .map_err(|error| Box::new(error) as _)
        })
    }

    fn get_runtime() -> Self {
        Self
    }
}

type BoxFuture<'a, R> =
    Pin<Box<dyn Future<Output = Result<R, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;

/// A SQLite file with smsq's tables.
#[derive(Clone)]
pub struct Sqlite {
    place: Arc<str>,
    writer: Arc<Mutex<Handle>>,
    reader: Arc<Mutex<Handle>>,
}

impl Sqlite {
    pub(super) async fn open(path: &str, access: Access) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let place: Arc<str> = path.as_str().into();
            look_at(&path, access)?;
            if access == Access::Read {
                return Self::open_to_read(place);
            }
            if access == Access::Create {
                create_private(&path);
            }
            let mut writer = connect(&path, &path)?;
            patiently(|| migrate(&mut writer, &place, access))?;
            // It stays in the file, so not before the file is known to be smsq's.
            patiently(|| execute(&mut writer, "PRAGMA journal_mode = WAL", &place))?;
            let mut reader = connect(&path, &path)?;
            execute(&mut reader, READING, &place)?;
            Ok(Self {
                place,
                writer: shared(writer),
                reader: shared(reader),
            })
        });
        opened.await.expect("opening a file does not panic")
    }

    /// Opens a file that may be read-only, in a folder that may be.
    fn open_to_read(place: Arc<str>) -> Result<Self, StoreError> {
        let uri = |mode: &str| format!("file:{}?{mode}", uri_path(&place));
        let mut opened = connect_to_read(&uri("mode=rw"), &place);
        // A file in WAL mode needs a second file beside it, which a read-only folder cannot get. Without a log
        // nobody else is writing, and the file alone is all there is.
        if opened.as_ref().is_err_and(is_kept_from_writing) && !has_log(&place) {
            opened = connect_to_read(&uri("immutable=1"), &place);
        }
        let handle = shared(opened?);
        Ok(Self {
            place,
            writer: Arc::clone(&handle),
            reader: handle,
        })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// An embedded database has the clock of its host.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "a server's clock is asked over its connection"
    )]
    pub(super) fn now(&self) -> Result<Timestamp, StoreError> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Timestamp::from_millis(since_epoch.map_or(0, millis)))
    }

    pub(super) async fn reader(&self) -> OwnedMutexGuard<Handle> {
        Arc::clone(&self.reader).lock_owned().await
    }

    pub(super) async fn writer(&self) -> OwnedMutexGuard<Handle> {
        Arc::clone(&self.writer).lock_owned().await
    }

    /// Runs `work` as one transaction that holds the file's write lock from its start.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer().await;
        let place = Arc::clone(&self.place);
        writer
            .spawn_blocking(move |conn| {
                let done = conn.immediate_transaction(work);
                if done.is_err() {
                    restore(conn, &place);
                }
                done
            })
            .await
            .map_err(|error| self.fault(&error))
    }

    pub(super) fn fault(&self, error: &Error) -> StoreError {
        fault(&self.place, error)
    }
}

/// What can be said of the path before SQLite touches it.
fn look_at(path: &str, access: Access) -> Result<(), StoreError> {
    if path.is_empty() {
        return Err(StoreError::new("sqlite://", Fault::Url, "names no file"));
    }
    let file = Path::new(path);
    if file.is_dir() {
        return Err(StoreError::new(
            path,
            Fault::Foreign,
            "is a folder, not a database",
        ));
    }
    if file.exists() {
        return Ok(());
    }
    if access != Access::Create {
        return Err(StoreError::new(
            path,
            Fault::Missing,
            "there is no such database",
        ));
    }
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(StoreError::new(
            path,
            Fault::Missing,
            format!("its folder `{}` does not exist", folder.display()),
        )),
        _ => Ok(()),
    }
}

/// Opens a path or a `file:` URI; `place` is what errors name.
fn connect(url: &str, place: &str) -> Result<SqliteConnection, StoreError> {
    let mut conn = SqliteConnection::establish(url).map_err(|error| {
        let text = error.to_string().to_lowercase();
        classify(place, &text, || format!("cannot be opened: {text}"))
    })?;
    execute(&mut conn, SETTINGS, place)?;
    Ok(conn)
}

fn connect_to_read(uri: &str, place: &str) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(uri, place)?;
    execute(&mut conn, READING, place)?;
    patiently(|| check_tables(&mut conn, place))?;
    Ok(conn)
}

fn shared(conn: SqliteConnection) -> Arc<Mutex<Handle>> {
    Arc::new(Mutex::new(SyncConnectionWrapper::with_runtime(
        conn, Detached,
    )))
}

/// Makes the file readable by its owner only; SQLite gives the files beside it the same permissions.
fn create_private(path: &str) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    // It is there already, or SQLite says why it cannot be made.
    options.open(path).map(drop).unwrap_or_default();
}

/// The path as a part of a URI.
fn uri_path(path: &str) -> String {
    let mut encoded = String::new();
    for character in path.chars() {
        match character {
            '%' => encoded.push_str("%25"),
            '?' => encoded.push_str("%3f"),
            '#' => encoded.push_str("%23"),
            other => encoded.push(other),
        }
    }
    encoded
}

fn is_kept_from_writing(error: &StoreError) -> bool {
    matches!(error.fault(), Fault::Missing | Fault::ReadOnly)
}

/// Whether the write-ahead log has anything in it.
fn has_log(path: &str) -> bool {
    std::fs::metadata(format!("{path}-wal")).is_ok_and(|log| log.len() > 0)
}

/// A full disk can end a transaction behind diesel's back, which then trusts the connection no more:
/// take another.
fn restore(conn: &mut SqliteConnection, place: &str) {
    use diesel::connection::{AnsiTransactionManager, TransactionManager};
    if !AnsiTransactionManager::is_broken_transaction_manager(conn) {
        return;
    }
    match connect(place, place) {
        Ok(fresh) => *conn = fresh,
        Err(error) => tracing::warn!(%error, "the database could not be opened again"),
    }
}

fn execute(conn: &mut SqliteConnection, sql: &str, place: &str) -> Result<(), StoreError> {
    use diesel::connection::SimpleConnection;
    conn.batch_execute(sql)
        .map_err(|error| fault(place, &error))
}

/// SQLite itself waits for a lock that others hold, but not for one that two would wait for for ever: whoever is
/// told so, as where several open a new file at once, lets go and tries again.
fn patiently(mut step: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    let began = Instant::now();
    loop {
        match step() {
            Err(error) if error.fault() == Fault::Busy && began.elapsed() < BUSY => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Brings the schema up to date; two processes may try at once.
fn migrate(conn: &mut SqliteConnection, place: &str, access: Access) -> Result<(), StoreError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        let text = error.to_string().to_lowercase();
        classify(place, &text, || {
            format!("its tables cannot be made: {text}")
        })
    };
    // Asking diesel makes its table, even in a file of another program: not before the transaction.
    if has_migrations(conn).map_err(|error| fault(place, &error))? {
        let pending = conn.pending_migrations(MIGRATIONS).map_err(failed)?;
        if pending.is_empty() {
            return refuse_newer(conn, place);
        }
    } else if access == Access::Existing {
        return Err(no_tables(place));
    }
    conn.exclusive_transaction(|conn| {
        conn.run_pending_migrations(MIGRATIONS)
            .map(drop)
            .map_err(|error| Failed(failed(error)))
    })
    .map_err(|Failed(error)| error)?;
    refuse_newer(conn, place)
}

/// Fails unless all of smsq's tables are there; writes nothing.
fn check_tables(conn: &mut SqliteConnection, place: &str) -> Result<(), StoreError> {
    if !has_migrations(conn).map_err(|error| fault(place, &error))? {
        return Err(no_tables(place));
    }
    refuse_newer(conn, place)?;
    let pending = conn.has_pending_migration(MIGRATIONS).map_err(|error| {
        let text = error.to_string().to_lowercase();
        classify(place, &text, || text.clone())
    })?;
    if pending {
        let reason = "has tables of an older smsq";
        return Err(StoreError::new(place, Fault::Older, reason));
    }
    Ok(())
}

fn no_tables(place: &str) -> StoreError {
    StoreError::new(place, Fault::NoTables, "has no tables of smsq yet")
}

fn has_migrations(conn: &mut SqliteConnection) -> QueryResult<bool> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::Bool>(
        "EXISTS (SELECT 1 FROM sqlite_master WHERE name = '__diesel_schema_migrations')",
    ))
    .get_result(conn)
}

/// Carries a [`StoreError`] out of a transaction.
struct Failed(StoreError);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(fault("", &error))
    }
}

fn refuse_newer(conn: &mut SqliteConnection, place: &str) -> Result<(), StoreError> {
    use diesel::migration::{Migration, MigrationSource};
    let applied = conn.applied_migrations();
    let known = MigrationSource::<diesel::sqlite::Sqlite>::migrations(&MIGRATIONS);
    let (Ok(applied), Ok(known)) = (applied, known) else {
        return Err(StoreError::new(
            place,
            Fault::Foreign,
            "its list of migrations cannot be read",
        ));
    };
    let known: Vec<String> = known
        .iter()
        .map(|one| one.name().version().to_string())
        .collect();
    match applied
        .iter()
        .find(|version| !known.contains(&version.to_string()))
    {
        None => Ok(()),
        Some(version) => Err(StoreError::new(
            place,
            Fault::Newer,
            format!("was written by a newer smsq (schema {version})"),
        )),
    }
}

fn fault(place: &str, error: &Error) -> StoreError {
    let text = match error {
        Error::DatabaseError(_, information) => information.message().to_owned(),
        other => other.to_string(),
    };
    classify(place, &text.to_lowercase(), || text.clone())
}

/// SQLite's errors are told apart by their words: diesel hands on no codes.
fn classify(place: &str, text: &str, otherwise: impl FnOnce() -> String) -> StoreError {
    let (fault, reason) = if text.contains("not a database") || text.contains("malformed") {
        (Fault::Foreign, DAMAGED.to_owned())
    } else if text.contains("readonly") || text.contains("read-only") {
        (Fault::ReadOnly, "cannot be written".to_owned())
    } else if text.contains("is full") {
        (Fault::Full, "its disk is full".to_owned())
    } else if text.contains("locked") || text.contains("busy") {
        (Fault::Busy, "is locked by another program".to_owned())
    } else if text.contains("disk i/o") {
        (
            Fault::Away,
            "cannot be read or written: disk I/O error".to_owned(),
        )
    } else if text.contains("already exists") {
        (
            Fault::Foreign,
            "has tables of another program with the names that smsq needs".to_owned(),
        )
    } else if text.contains("unable to open") {
        (Fault::Missing, "cannot be opened".to_owned())
    } else if text.contains("constraint failed") {
        (Fault::Refused, otherwise())
    } else {
        (Fault::Other, otherwise())
    };
    StoreError::new(place, fault, reason)
}
