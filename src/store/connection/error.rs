//! The error of a statement, by the code that the database gives it: SQLSTATE, MySQL's number, SQLite's extended code.

use std::io;

use mysql_async::{DriverError, IoError};
use rusqlite::ffi;
use rustix::io::Errno;
use tokio_postgres::error::Severity;

use crate::error::{DAMAGED, StoreError, StoreErrorKind};

/// The result of a statement.
pub(crate) type QueryResult<T> = Result<T, DatabaseError>;

/// Why a statement failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    #[error("found no row")]
    NotFound,
    #[error("{reason}")]
    Failed { kind: StoreErrorKind, reason: String },
}

impl DatabaseError {
    pub(crate) fn new(kind: StoreErrorKind, reason: impl Into<String>) -> Self {
        Self::Failed { kind, reason: reason.into() }
    }

    /// A conflict with another transaction, after which this one is repeated.
    pub(crate) fn conflict(reason: &str) -> Self {
        Self::new(StoreErrorKind::Busy, reason)
    }

    pub(super) fn lost(reason: &str) -> Self {
        Self::new(StoreErrorKind::Unavailable, reason)
    }

    pub(crate) fn kind(&self) -> StoreErrorKind {
        match self {
            Self::NotFound => StoreErrorKind::Other,
            Self::Failed { kind, .. } => *kind,
        }
    }

    /// The error as callers of the store see it.
    pub(crate) fn of(&self, database: &str) -> StoreError {
        StoreError::new(database, self.kind(), self.to_string())
    }
}

/// Of diesel, which only makes SQL and reads values.
impl From<diesel::result::Error> for DatabaseError {
    fn from(error: diesel::result::Error) -> Self {
        // What is wrong with the value of a column is the cause of the error that names the column.
        let reason = match &error {
            diesel::result::Error::DeserializationError(value) => match value.source() {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            },
            _ => error.to_string(),
        };
        Self::new(StoreErrorKind::Other, reason)
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, reason) = sqlite_kind(&error);
        Self::new(kind, reason.map_or_else(|| sqlite_message(&error), str::to_owned))
    }
}

/// The kind of an error of SQLite, and what is said in place of its message.
fn sqlite_kind(error: &rusqlite::Error) -> (StoreErrorKind, Option<&'static str>) {
    use StoreErrorKind as Kind;
    let Some(code) = error.sqlite_error().map(|error| error.extended_code) else {
        return (Kind::Other, None);
    };
    // An extended code has the code in its lowest byte.
    match code & 0xff {
        ffi::SQLITE_NOTADB | ffi::SQLITE_CORRUPT => (Kind::Unrecognized, Some(DAMAGED)),
        ffi::SQLITE_READONLY => (Kind::ReadOnly, Some("cannot be written")),
        ffi::SQLITE_FULL => (Kind::Full, Some("its disk is full")),
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => {
            (Kind::Busy, Some("is locked by another program"))
        }
        ffi::SQLITE_IOERR => (Kind::Unavailable, Some("cannot be read or written: disk I/O error")),
        // The path was checked, so it may not be opened.
        ffi::SQLITE_CANTOPEN => (Kind::ReadOnly, Some("cannot be opened")),
        // A trigger that another program added has reasons of its own.
        ffi::SQLITE_CONSTRAINT if code == ffi::SQLITE_CONSTRAINT_TRIGGER => (Kind::Other, None),
        ffi::SQLITE_CONSTRAINT => (Kind::Constraint, None),
        _ => (Kind::Other, None),
    }
}

/// SQLite's own words; the driver adds the whole statement to some.
pub(crate) fn sqlite_message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let cause = std::error::Error::source(&error);
        let Some(answer) = error.as_db_error() else {
            let is_lost =
                error.is_closed() || cause.is_some_and(<dyn std::error::Error>::is::<io::Error>);
            let kind = if is_lost { StoreErrorKind::Unavailable } else { StoreErrorKind::Other };
            let detail = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            return Self::new(kind, format!("{error}{detail}"));
        };
        // The session is over.
        let is_lost = matches!(answer.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let kind =
            if is_lost { StoreErrorKind::Unavailable } else { postgres_kind(answer.code().code()) };
        Self::new(kind, answer.message())
    }
}

/// The kind of an error of PostgreSQL by its SQLSTATE.
fn postgres_kind(code: &str) -> StoreErrorKind {
    use StoreErrorKind as Kind;
    match code {
        // A conflict of transactions, a deadlock, and a lock that is not available in time.
        "40001" | "40P01" | "55P03" => Kind::Busy,
        // A transaction that cannot write.
        "25006" => Kind::Replica,
        // The disk is full.
        "53100" => Kind::Full,
        // The disk cannot be read or written; the server starts, stops or crashed; the connection is lost. A violation of
        // the protocol may be another client's statement behind a pooler.
        "58030" | "57P01" | "57P02" | "57P03" | "57P05" | "08000" | "08003" | "08006" => {
            Kind::Unavailable
        }
        // Integrity constraints.
        code if code.starts_with("23") => Kind::Constraint,
        _ => Kind::Other,
    }
}

impl From<mysql_async::Error> for DatabaseError {
    fn from(error: mysql_async::Error) -> Self {
        let kind = match &error {
            mysql_async::Error::Server(answer) => mysql_kind(answer.code, &answer.message),
            mysql_async::Error::Driver(DriverError::PacketTooLarge) => StoreErrorKind::TooLarge,
            // Before it is sent, without a type of the driver.
            mysql_async::Error::Io(IoError::Io(error))
                if error.kind() == io::ErrorKind::Other
                    && error.to_string() == "packet too large" =>
            {
                StoreErrorKind::TooLarge
            }
            mysql_async::Error::Driver(
                DriverError::ConnectionClosed | DriverError::PacketOutOfOrder,
            )
            | mysql_async::Error::Io(_) => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Other,
        };
        match error {
            mysql_async::Error::Server(answer) => Self::new(kind, answer.message),
            other => Self::new(kind, other.to_string()),
        }
    }
}

/// The kind of an error of MySQL or MariaDB by its number.
fn mysql_kind(code: u16, message: &str) -> StoreErrorKind {
    use StoreErrorKind as Kind;
    match code {
        // A lock that is not available in time, a deadlock, and a row that another transaction changed.
        1205 | 1213 | 1020 => Kind::Busy,
        // The table, server, transaction or engine is read-only.
        1036 | 1290 | 1792 | 1836 | 1874 => Kind::Replica,
        // Larger than `max_allowed_packet`.
        1153 | 1301 => Kind::TooLarge,
        // The disk, the table.
        1021 | 1114 => Kind::Full,
        // A file that cannot be written, and an error of the storage engine, for the reason of the system.
        3 | 1026 | 1030 => match system_error(message) {
            Some(Errno::NOSPC | Errno::DQUOT) => Kind::Full,
            Some(Errno::IO) => Kind::Unavailable,
            _ => Kind::Other,
        },
        // The server stops or closed the connection, the network failed, or the node has left its cluster.
        1047 | 1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1927 | 3169 | 4031 => Kind::Unavailable,
        // A unique key, a foreign key, a missing value, and a condition.
        1022 | 1062 | 1586 | 1859 | 1216 | 1217 | 1451 | 1452 | 1048 | 1364 | 3819 | 4025 => {
            Kind::Constraint
        }
        _ => Kind::Other,
    }
}

/// The number of the system's error, which the server puts into its message: `error 28`, `Errcode: 28`, `errno: 28`.
fn system_error(message: &str) -> Option<Errno> {
    let lower = message.to_ascii_lowercase();
    let mut numbers = ["errcode: ", "errno: ", "error "].into_iter().filter_map(|name| {
        let (_, rest) = lower.split_once(name)?;
        let end = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.next().map(Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_of_mysql_is_known_by_the_system_error() {
        for (code, message, kind) in [
            (
                1030,
                "Got error 28 \"No space left on device\" from storage engine InnoDB",
                StoreErrorKind::Full,
            ),
            (
                3,
                "Error writing file '/tmp/x' (Errcode: 28 \"No space left on device\")",
                StoreErrorKind::Full,
            ),
            (
                1026,
                "Error writing file 'x' (errno: 5 - Input/output error)",
                StoreErrorKind::Unavailable,
            ),
            (1030, "Got error 168 from storage engine", StoreErrorKind::Other),
            (1030, "No space left", StoreErrorKind::Other),
        ] {
            assert_eq!(mysql_kind(code, message), kind, "{message}");
        }
    }

    #[test]
    fn statement_that_the_driver_does_not_send_is_too_large() {
        let kind = |reason: &str| {
            let error = IoError::Io(io::Error::other(reason.to_owned()));
            DatabaseError::from(mysql_async::Error::Io(error)).kind()
        };
        assert_eq!(kind("packet too large"), StoreErrorKind::TooLarge);
        assert_eq!(kind("packet out of order"), StoreErrorKind::Unavailable);
    }

    #[test]
    fn error_of_sqlite_does_not_repeat_the_statement() {
        let sqlite = rusqlite::Connection::open_in_memory().expect("a database");
        let error = sqlite.prepare("SELECT 'secret', nosuch FROM t").expect_err("no table");
        assert_eq!(sqlite_message(&error), "no such table: t");
        let error = sqlite.prepare("SELEC 'secret'").expect_err("a wrong word");
        assert_eq!(sqlite_message(&error), "near \"SELEC\": syntax error");
    }

    #[test]
    fn sqlite_error_is_known_by_its_extended_code() {
        let sqlite = rusqlite::Connection::open_in_memory().expect("a database");
        let kind = |sql: &str| {
            let error = sqlite.execute_batch(sql).expect_err("an error");
            DatabaseError::from(error).kind()
        };
        let tables = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL UNIQUE CHECK (n > 0));
            INSERT INTO t VALUES (1, 1);
            CREATE TABLE u (t INTEGER); 
            CREATE TRIGGER refuse BEFORE INSERT ON u BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END";
        sqlite.execute_batch(tables).expect("tables");
        for constraint in ["VALUES (1, 2)", "VALUES (2, 1)", "VALUES (2, NULL)", "VALUES (2, 0)"] {
            let sql = format!("INSERT INTO t {constraint}");
            assert_eq!(kind(&sql), StoreErrorKind::Constraint, "{sql}");
        }
        // Whatever the text says.
        assert_eq!(kind("INSERT INTO u VALUES (1)"), StoreErrorKind::Other);
        assert_eq!(kind("SELECT locked FROM t"), StoreErrorKind::Other);
        sqlite.execute_batch("PRAGMA max_page_count = 4").expect("a limit");
        let fill = "INSERT INTO t (n) WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s LIMIT 9999) SELECT n FROM s";
        assert_eq!(kind(fill), StoreErrorKind::Full);
        sqlite.execute_batch("PRAGMA query_only = ON").expect("a mode");
        assert_eq!(kind("DELETE FROM t"), StoreErrorKind::ReadOnly);
    }
}
