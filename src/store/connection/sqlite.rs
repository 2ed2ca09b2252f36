//! SQLite: one file, one transaction at a time. Its queries block, so a future of them is ready at the first poll: a
//! whole transaction runs in one poll and is not left open if the caller is cancelled.

use std::fs::OpenOptions;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::error::{DatabaseError, QueryResult};
use super::statement::Statement;
use super::values::{AnyRow, Kind, Value};
use crate::Access;
use crate::error::{StoreError, StoreErrorKind};

/// Takes the write lock at once: a transaction that takes it later can fail because of another one.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// SQLite waits for locks of other processes. The cache (in KiB) is small because only the head of the queue is
/// in use.
const SETTINGS: &str = "PRAGMA busy_timeout = 100; PRAGMA synchronous = FULL; \
     PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;";

/// Reports scan whole indexes and must not fill the memory.
const READING: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -1024";

/// SQLite opens a file at the first read.
const FIRST_READ: &str = "SELECT count(*) FROM sqlite_master";

/// Dedupe keys come in random order, so an import touches all of their index: it is kept in memory (in KiB) and
/// written back seldom (in pages).
pub(super) const IMPORTING: &str = "PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 16384";

/// The most statements that stay prepared on a connection.
const KEPT_STATEMENTS: usize = 512;

/// The value of a parameter for the driver.
struct SqliteParameter<'a>(&'a Value<'a>);

impl ToSql for SqliteParameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Value::Integer(value) => ValueRef::Integer(i64::from(*value)),
            Value::BigInt(value) => ValueRef::Integer(*value),
            Value::Double(value) => ValueRef::Real(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Binary(bytes) => ValueRef::Blob(bytes),
            Value::List(_) => {
                let reason = "SQLite has no lists".into();
                return Err(rusqlite::Error::ToSqlConversionFailure(reason));
            }
        }))
    }
}

fn bind(
    prepared: &mut rusqlite::Statement<'_>,
    values: &[(Kind, Value<'_>)],
) -> rusqlite::Result<()> {
    for (index, (_, value)) in values.iter().enumerate() {
        prepared.raw_bind_parameter(index + 1, SqliteParameter(value))?;
    }
    Ok(())
}

/// Runs `work` with a prepared statement, which is kept if it may be.
fn prepared<T>(
    conn: &rusqlite::Connection,
    statement: &Statement<'_>,
    work: impl FnOnce(&mut rusqlite::Statement<'_>) -> QueryResult<T>,
) -> QueryResult<T> {
    if statement.is_kept {
        work(&mut *conn.prepare_cached(&statement.sql)?)
    } else {
        work(&mut conn.prepare(&statement.sql)?)
    }
}

/// Reads the rows of a statement.
pub(super) fn rows(
    conn: &rusqlite::Connection,
    statement: &Statement<'_>,
    take: &mut dyn FnMut(AnyRow<'_>) -> QueryResult<()>,
) -> QueryResult<()> {
    prepared(conn, statement, |prepared| {
        bind(prepared, &statement.binds)?;
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next()? {
            take(AnyRow::Sqlite(row))?;
            if statement.is_single {
                break;
            }
        }
        Ok(())
    })
}

/// Executes a statement; returns how many rows it changed.
pub(super) fn changes(
    conn: &rusqlite::Connection,
    statement: &Statement<'_>,
) -> QueryResult<usize> {
    prepared(conn, statement, |prepared| {
        bind(prepared, &statement.binds)?;
        Ok(prepared.raw_execute()?)
    })
}

/// Executes a statement once with the values of each row; returns how many rows it changed.
pub(super) fn changes_each<'v>(
    conn: &rusqlite::Connection,
    sql: &str,
    next: &mut dyn FnMut() -> Option<&'v [(Kind, Value<'v>)]>,
) -> QueryResult<usize> {
    let mut prepared = conn.prepare_cached(sql)?;
    let mut changed = 0;
    while let Some(values) = next() {
        bind(&mut prepared, values)?;
        changed += prepared.raw_execute()?;
    }
    Ok(changed)
}

/// Runs a future of SQLite queries to its end.
pub(crate) fn run_inline<F: Future>(future: F) -> F::Output {
    in_place(|| {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(output) => output,
            Poll::Pending => unreachable!("queries on SQLite are ready at once"),
        }
    })
}

/// Runs work that blocks. Other tasks continue if the runtime has several threads.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A database file, and what may be done to it.
pub(crate) struct SqliteFile {
    path: String,
    access: Access,
    /// The device and the inode of the file when it was opened first.
    opened: OnceLock<(u64, u64)>,
}

impl SqliteFile {
    /// Checks the path before SQLite opens it, and creates the file if that is allowed.
    pub(crate) fn new(path: &str, access: Access) -> Result<Self, StoreError> {
        check_path(path, access)?;
        if access == Access::Create {
            create_private(path);
        }
        Ok(Self { path: path.to_owned(), access, opened: OnceLock::new() })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn is_only_read(&self) -> bool {
        self.access == Access::Read
    }

    /// Opens a connection that writes, or one that only reads.
    pub(super) fn connect(&self, reads: bool) -> Result<rusqlite::Connection, StoreError> {
        if self.is_only_read() {
            // It may be read-only, in a folder that may be read-only.
            return self.open_to_read("mode=rw");
        }
        let connection = self.open(&self.path, if reads { &[READING] } else { &[] })?;
        if let Some(identity) = identity(&self.path) {
            self.opened.get_or_init(|| identity);
        }
        Ok(connection)
    }

    /// An error if the path does not lead to the file that was opened first.
    pub(super) fn check_path_is_open(&self) -> Result<(), StoreError> {
        let now = identity(&self.path);
        if self.opened.get().is_none_or(|opened| now == Some(*opened)) {
            return Ok(());
        }
        let what = if now.is_some() { "replaced" } else { "removed" };
        let reason = format!("the file was {what} while it was in use");
        Err(StoreError::new(&self.path, StoreErrorKind::LostCommits, reason))
    }

    /// Opens the file of another program, which cannot be changed.
    pub(crate) fn connect_to_foreign(&self) -> Result<rusqlite::Connection, StoreError> {
        self.open_to_read("mode=ro")
    }

    fn open_to_read(&self, mode: &str) -> Result<rusqlite::Connection, StoreError> {
        let open = |mode: &str| {
            let uri = format!("file:{}?{mode}", uri_path(&self.path));
            self.open(&uri, &[READING, FIRST_READ])
        };
        // A file in WAL mode needs a second file, which cannot be created in a read-only folder. Without a log no
        // other process is writing, and the file is complete.
        match open(mode) {
            Err(error) if error.kind() == StoreErrorKind::ReadOnly && !has_log(&self.path) => {
                open("immutable=1")
            }
            opened => opened,
        }
    }

    /// Opens a path or a `file:` URI, and runs `statements`.
    fn open(&self, uri: &str, statements: &[&str]) -> Result<rusqlite::Connection, StoreError> {
        let open = || -> rusqlite::Result<rusqlite::Connection> {
            let connection = rusqlite::Connection::open(uri)?;
            connection.set_prepared_statement_cache_capacity(KEPT_STATEMENTS);
            connection.execute_batch(SETTINGS)?;
            for statement in statements {
                connection.execute_batch(statement)?;
            }
            Ok(connection)
        };
        open().map_err(|error| DatabaseError::from(error).of(&self.path))
    }
}

/// The device and the inode of a file; `None` where there is none.
fn identity(path: &str) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

fn check_path(path: &str, access: Access) -> Result<(), StoreError> {
    let file = Path::new(path);
    let folder = file.parent().unwrap_or(file);
    let has_folder = folder.as_os_str().is_empty() || folder.is_dir();
    let error = |kind, reason: &str| Err(StoreError::new(path, kind, reason));
    if path.is_empty() {
        let reason = "names no file";
        return Err(StoreError::new("sqlite://", StoreErrorKind::Url, reason));
    }
    if file.is_dir() {
        let reason = "is a folder, not a database";
        return error(StoreErrorKind::Unrecognized, reason);
    }
    if !has_folder {
        let reason = format!("its folder `{}` does not exist", folder.display());
        return error(StoreErrorKind::NoFolder, &reason);
    }
    if access != Access::Create && !file.exists() {
        return error(StoreErrorKind::Missing, "it does not exist");
    }
    Ok(())
}

/// Makes the file readable by its owner only; SQLite gives its other files the same permissions.
fn create_private(path: &str) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    // If it exists or cannot be created, the error of SQLite is better.
    options.open(path).map(drop).unwrap_or_default();
}

/// The path as a part of a URI.
fn uri_path(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

/// Whether the write-ahead log has any content.
fn has_log(path: &str) -> bool {
    std::fs::metadata(format!("{path}-wal")).is_ok_and(|log| log.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_has_a_hint_for_its_cause() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (file, access, expected) in [
            (path("no.db"), Access::Existing, StoreErrorKind::Missing),
            (path("no/no.db"), Access::Existing, StoreErrorKind::NoFolder),
            (path("no/no.db"), Access::Create, StoreErrorKind::NoFolder),
            ("no.db".to_owned(), Access::Existing, StoreErrorKind::Missing),
        ] {
            let error = check_path(&file, access).expect_err("it is missing");
            assert_eq!(error.kind(), expected, "{file}");
            assert!(error.hint().is_some());
        }
        std::fs::write(path("smsq.db"), "").expect("a file");
        for (file, access) in [("smsq.db", Access::Existing), ("no.db", Access::Create)] {
            check_path(&path(file), access).expect("SQLite opens it");
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
            let refused = DatabaseError::from(rusqlite::Error::SqliteFailure(code, None)).of(file);
            assert_eq!(refused.kind(), StoreErrorKind::ReadOnly);
            assert!(refused.hint().is_some());
        }
    }
}
