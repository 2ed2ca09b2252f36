//! SQLite: one file, one transaction at a time. Its queries block, so a future of them is ready at the first poll: a
//! whole transaction runs in one poll and is not left open if the caller is cancelled.

use std::fs::OpenOptions;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use diesel::connection::{Connection, LoadConnection, SimpleConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::Untyped;
use diesel::sqlite::{Sqlite, SqliteConnection};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Prepared, message};
use crate::store::Access;
use crate::store::tables::error::{DAMAGED, StoreError, StoreErrorKind};

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

/// Executes a query that stays prepared; returns how many rows it changed.
pub(in crate::store) fn execute_prepared<Q>(
    connection: &mut SqliteConnection,
    query: Prepared<Q>,
) -> QueryResult<usize>
where
    Prepared<Q>: QueryFragment<Sqlite> + QueryId,
{
    // diesel executes a reference to the query, to which the promise of `Prepared` does not apply.
    for row in LoadConnection::load(connection, AnyRow(query))? {
        row?;
    }
    let changes: i32 = diesel::select(changes()).get_result(connection)?;
    Ok(usize::try_from(changes).unwrap_or(0))
}

#[diesel::declare_sql_function]
extern "SQL" {
    /// The number of rows that the last statement changed.
    fn changes() -> Integer;
}

/// A statement that is loaded like a query, whose rows are not read.
struct AnyRow<Q>(Q);

impl<Q: QueryFragment<Sqlite>> QueryFragment<Sqlite> for AnyRow<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, backend: &Sqlite) -> QueryResult<bool> {
        self.0.is_safe_to_cache_prepared(backend)
    }
}

impl<Q: QueryId> QueryId for AnyRow<Q> {
    type QueryId = Q::QueryId;

    const HAS_STATIC_QUERY_ID: bool = Q::HAS_STATIC_QUERY_ID;
}

impl<Q> Query for AnyRow<Q> {
    type SqlType = Untyped;
}

/// Runs a future of SQLite queries to its end.
pub(in crate::store) fn run_inline<F: Future>(future: F) -> F::Output {
    in_place(|| {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(output) => output,
            Poll::Pending => unreachable!("queries on SQLite are ready at once"),
        }
    })
}

/// Runs work that blocks. Other tasks continue if the runtime has several threads.
pub(in crate::store) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A database file, and what may be done to it.
pub(in crate::store) struct SqliteFile {
    path: String,
    access: Access,
    /// The device and the inode of the file when it was opened first.
    opened: OnceLock<(u64, u64)>,
}

impl SqliteFile {
    /// Checks the path before SQLite opens it, and creates the file if that is allowed.
    pub(in crate::store) fn new(path: &str, access: Access) -> Result<Self, StoreError> {
        check_path(path, access)?;
        if access == Access::Create {
            create_private(path);
        }
        Ok(Self { path: path.to_owned(), access, opened: OnceLock::new() })
    }

    pub(in crate::store) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn is_only_read(&self) -> bool {
        self.access == Access::Read
    }

    /// Opens a connection that writes, or one that only reads.
    pub(super) fn connect(&self, reads: bool) -> Result<SqliteConnection, StoreError> {
        if self.is_only_read() {
            return self.connect_to_read();
        }
        let mut connection = establish(&self.path, &self.path)?;
        if let Some(identity) = identity(&self.path) {
            self.opened.get_or_init(|| identity);
        }
        if reads {
            execute(&mut connection, READING, &self.path)?;
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

    /// Opens a file that may be read-only, in a folder that may be read-only.
    fn connect_to_read(&self) -> Result<SqliteConnection, StoreError> {
        self.open_to_read("mode=rw", |uri| {
            let mut connection = establish(uri, &self.path)?;
            execute(&mut connection, READING, &self.path)?;
            execute(&mut connection, FIRST_READ, &self.path)?;
            Ok(connection)
        })
    }

    /// Opens the file of another program, which cannot be changed.
    pub(in crate::store) fn connect_to_foreign(&self) -> Result<rusqlite::Connection, StoreError> {
        self.open_to_read("mode=ro", |uri| {
            let open = || -> rusqlite::Result<rusqlite::Connection> {
                let connection = rusqlite::Connection::open(uri)?;
                connection.execute_batch(SETTINGS)?;
                connection.execute_batch(READING)?;
                connection.query_row(FIRST_READ, [], |_| Ok(()))?;
                Ok(connection)
            };
            open().map_err(|error| {
                let text = error.to_string();
                classify(&self.path, &text.to_lowercase(), || text.clone())
            })
        })
    }

    fn open_to_read<C>(
        &self,
        mode: &str,
        open: impl Fn(&str) -> Result<C, StoreError>,
    ) -> Result<C, StoreError> {
        let open = |mode: &str| open(&format!("file:{}?{mode}", uri_path(&self.path)));
        // A file in WAL mode needs a second file, which cannot be created in a read-only folder. Without a log no
        // other process is writing, and the file is complete.
        match open(mode) {
            Err(error) if error.kind() == StoreErrorKind::ReadOnly && !has_log(&self.path) => {
                open("immutable=1")
            }
            opened => opened,
        }
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

/// Opens a path or a `file:` URI; `path` is what errors name.
fn establish(url: &str, path: &str) -> Result<SqliteConnection, StoreError> {
    let mut connection = SqliteConnection::establish(url).map_err(|error| {
        let text = error.to_string().to_lowercase();
        classify(path, &text, || format!("cannot be opened: {text}"))
    })?;
    execute(&mut connection, SETTINGS, path)?;
    Ok(connection)
}

fn execute(connection: &mut SqliteConnection, sql: &str, path: &str) -> Result<(), StoreError> {
    connection.batch_execute(sql).map_err(|error| store_error(path, &error))
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

pub(in crate::store) fn store_error(path: &str, error: &Error) -> StoreError {
    let text = message(error);
    // Only the store's own `conflict` has this kind.
    if let Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) = error {
        return StoreError::new(path, StoreErrorKind::Busy, text);
    }
    classify(path, &text.to_lowercase(), || text.clone())
}

/// The kind of an error, by its message: diesel hides SQLite's codes.
fn classify(path: &str, text: &str, otherwise: impl FnOnce() -> String) -> StoreError {
    use StoreErrorKind as Kind;
    let known: [(&[&str], Kind, &str); 6] = [
        (&["not a database", "malformed"], Kind::Unrecognized, DAMAGED),
        (&["readonly", "read-only"], Kind::ReadOnly, "cannot be written"),
        (&["is full"], Kind::Full, "its disk is full"),
        (&["locked", "busy"], Kind::Busy, "is locked by another program"),
        (&["disk i/o"], Kind::Unavailable, "cannot be read or written: disk I/O error"),
        // The path was checked, so it may not be opened.
        (&["unable to open"], Kind::ReadOnly, "cannot be opened"),
    ];
    let found = known.into_iter().find(|(words, ..)| words.iter().any(|word| text.contains(word)));
    if let Some((_, kind, reason)) = found {
        return StoreError::new(path, kind, reason);
    }
    let kind = if text.contains("constraint failed") { Kind::Constraint } else { Kind::Other };
    StoreError::new(path, kind, otherwise())
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
            let refused = classify(file, "unable to open database file", String::new);
            assert_eq!(refused.kind(), StoreErrorKind::ReadOnly);
            assert!(refused.hint().is_some());
        }
    }
}
