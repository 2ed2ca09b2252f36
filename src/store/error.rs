//! Errors of a database: which database, what kind of error, and what the operator can do.

use std::fmt;

/// The kind of a database error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The URL is invalid.
    Url,
    /// The database does not exist yet.
    Missing,
    /// It has no tables of smsq yet.
    NoTables,
    /// It has the tables of an earlier revision, with which no version was released.
    Older,
    /// The folder of the file does not exist.
    NoFolder,
    /// The file is not a database, or the database has tables of another program.
    Unrecognized,
    /// It was written by a newer smsq.
    Newer,
    ReadOnly,
    Full,
    /// Another transaction or program has locked it.
    Busy,
    /// It cannot be reached or read, or the connection was lost.
    Unavailable,
    /// The server is a replica, which can only be read.
    Replica,
    /// The server rejects the user or the password.
    Denied,
    /// The server has no database of this name.
    NoDatabase,
    /// The connection cannot be encrypted.
    Encryption,
    /// The server is reached by a pooler that keeps no prepared statements.
    Pooler,
    /// The server only has the protocol of a supported database.
    Unsupported,
    /// A constraint of a table rejects the row, such as an id that exists.
    Constraint,
    /// The statement is larger than the server accepts.
    TooLarge,
    /// The campaign was cancelled, so it takes no messages.
    Cancelled,
    /// It does not have what it had: it was restored or replaced, or a standby took over.
    LostCommits,
    Other,
}

/// The reason if a file cannot be read as a database.
pub(crate) const DAMAGED: &str = "is not a database, or a damaged one";

/// An error of a database: which database, what kind, and the reason.
#[derive(Clone, Debug)]
pub struct StoreError {
    database: String,
    kind: StoreErrorKind,
    reason: String,
}

impl StoreError {
    pub(crate) fn new(
        database: impl Into<String>,
        kind: StoreErrorKind,
        reason: impl Into<String>,
    ) -> Self {
        Self { database: database.into(), kind, reason: reason.into() }
    }

    pub(crate) fn with_kind(mut self, kind: StoreErrorKind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn with_reason(mut self, reason: String) -> Self {
        self.reason = reason;
        self
    }

    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without a change by the operator.
    pub fn is_temporary(&self) -> bool {
        !matches!(
            self.kind,
            StoreErrorKind::Url
                | StoreErrorKind::NoFolder
                | StoreErrorKind::Unrecognized
                | StoreErrorKind::Older
                | StoreErrorKind::Newer
                | StoreErrorKind::Denied
                | StoreErrorKind::NoDatabase
                | StoreErrorKind::Pooler
                | StoreErrorKind::Unsupported
                | StoreErrorKind::Cancelled
                | StoreErrorKind::LostCommits
        )
    }

    /// Whether the database rejected the statement: a smaller one, or one without one of its rows, may succeed.
    pub fn is_rejection(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Constraint | StoreErrorKind::TooLarge | StoreErrorKind::Other
        )
    }

    /// The reason, without the name of the database.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        use StoreErrorKind as Kind;
        let is_server = self.database.contains("://");
        let hint = match self.kind {
            Kind::NoTables => "`smsq import` creates them; or is `--database` wrong?",
            Kind::Older => {
                "nothing was changed; finish with the smsq that made it, or set `--database` to a new database"
            }
            Kind::Unavailable if is_server => {
                "check that the server is running, and its host and port"
            }
            Kind::Missing => "`smsq import` creates it; check `--database` and the current folder",
            Kind::NoFolder => "create the folder first, or check `--database`",
            Kind::Unrecognized if self.reason == DAMAGED => {
                "check `--database`; if the queue is damaged, restore a copy or run `sqlite3 FILE .recover`, \
                 and do not import again before you know who already got the message"
            }
            Kind::Unrecognized => {
                "set `--database` to a new database; smsq never overwrites data of other programs"
            }
            Kind::Newer => "use the smsq that wrote it, or a newer one",
            Kind::ReadOnly => "smsq needs permission to read and write the file and its folder",
            Kind::Full => "free some space and run the same command again; nothing was lost",
            Kind::Busy => {
                "another program has a long transaction or a lock open; end it and try again"
            }
            Kind::Replica => "set `--database` to the primary server, or list all servers",
            Kind::Denied => "check the user and the password, and that the user may connect",
            Kind::NoDatabase => "create it first (`CREATE DATABASE …`), or check `--database`",
            Kind::Encryption => {
                "`?tls_ca=FILE` names the authority of its certificate, `?tls=off` turns encryption off"
            }
            Kind::Pooler => {
                "set PgBouncer's `pool_mode = session`, or use 1.21 or newer with `max_prepared_statements`"
            }
            Kind::Unsupported => "use PostgreSQL, MySQL, MariaDB or a SQLite file",
            Kind::Cancelled => "`smsq resume` makes the campaign active again",
            Kind::LostCommits => {
                "nothing more is sent; what this worker knows of its messages is in files beside the database, and the next \
                 `smsq send` on this host settles them; see \"Restoring\" in docs/operations.md"
            }
            Kind::TooLarge => "raise `max_allowed_packet` of the server",
            Kind::Url | Kind::Unavailable | Kind::Constraint | Kind::Other => return None,
        };
        Some(hint)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            StoreErrorKind::Missing | StoreErrorKind::NoFolder => "cannot open database ",
            _ => "",
        };
        write!(f, "{what}`{}`: {}", self.database, self.reason)
    }
}

impl std::error::Error for StoreError {}
