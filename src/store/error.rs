//! Errors of a database: which database, what kind of error, and what the operator can do.

use std::fmt;
use std::path::Path;

use super::Access;

/// The kind of a database's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The url is not one that smsq can use.
    Url,
    /// The database does not exist yet.
    Missing,
    /// It exists, but has no tables of smsq yet.
    NoTables,
    /// It has the tables of an older smsq, and nothing may be written.
    Older,
    /// Its folder does not exist either.
    NoFolder,
    /// The file is not a database, or a database of another program.
    Foreign,
    /// It was written by a newer smsq.
    Newer,
    ReadOnly,
    Full,
    /// Another program has locked it for too long.
    Busy,
    /// It cannot be reached or read now.
    Away,
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
    /// A constraint of a table forbids the row, such as an id that is taken.
    Refused,
    Other,
}

/// The reason for a file that cannot be read as a database.
pub(super) const DAMAGED: &str = "is not a database, or a damaged one";

/// An error of a database: which database, what kind, and the reason.
#[derive(Clone, Debug)]
pub struct StoreError {
    place: String,
    fault: Fault,
    reason: String,
}

impl StoreError {
    pub(super) fn new(place: impl Into<String>, fault: Fault, reason: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            fault,
            reason: reason.into(),
        }
    }

    /// Refines [`Fault::Missing`] by what exists at the path.
    pub(super) fn seen_at(mut self, file: &Path, access: Access) -> Self {
        let folder = match file.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return self,
        };
        if self.fault == Fault::Missing {
            self.fault = match (file.exists(), folder.is_dir()) {
                (true, _) => Fault::ReadOnly,
                (false, true) if access == Access::Create => Fault::ReadOnly,
                (false, true) => Fault::Missing,
                (false, false) => Fault::NoFolder,
            };
        }
        self
    }

    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// Whether the same call may succeed later without the operator.
    pub fn passes(&self) -> bool {
        !matches!(
            self.fault,
            Fault::Url
                | Fault::NoFolder
                | Fault::Foreign
                | Fault::Newer
                | Fault::Denied
                | Fault::NoDatabase
                | Fault::Pooler
        )
    }

    /// Whether the database rejected the statement: a smaller one, or one without a row, may succeed.
    pub fn is_answer(&self) -> bool {
        matches!(self.fault, Fault::Refused | Fault::Other)
    }

    /// The reason, without the name of the database.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        let is_server = self.place.contains("://");
        match self.fault {
            Fault::NoTables => Some("`smsq import` makes them; or is `--database` wrong?"),
            Fault::Older => Some("`smsq import` and `smsq send` bring them up to date"),
            Fault::Away if is_server => {
                Some("is the server running, and are its host and port right?")
            }
            Fault::Missing => {
                Some("`smsq import` creates it; is `--database` right, and the folder you are in?")
            }
            Fault::NoFolder => Some("make the folder first; or is `--database` wrong?"),
            Fault::Foreign if self.reason == DAMAGED => Some(
                "is `--database` right? a damaged queue: restore a copy or `sqlite3 FILE .recover`; \
                 do not import again before you know who already got it",
            ),
            Fault::Foreign => Some(
                "point `--database` at a new file; smsq never overwrites what it does not know",
            ),
            Fault::Newer => Some("use the smsq that wrote it, or a newer one"),
            Fault::ReadOnly => Some("smsq must be able to read and write the file and its folder"),
            Fault::Full => Some("free some space and run the same command again; nothing was lost"),
            Fault::Busy => {
                Some("another program holds a long transaction on it; end that and try again")
            }
            Fault::Replica => {
                Some("point `--database` at the server that is written, or list all of them")
            }
            Fault::Denied => Some("are the user and the password right, and may the user connect?"),
            Fault::NoDatabase => {
                Some("make it first: `CREATE DATABASE …`; or is `--database` wrong?")
            }
            Fault::Encryption => Some(
                "`?tls_ca=FILE` names the authority of its certificate, `?tls=off` speaks in the clear",
            ),
            Fault::Pooler => Some(
                "set PgBouncer's `pool_mode = session`, or use 1.21 or newer with `max_prepared_statements`",
            ),
            Fault::Url | Fault::Away | Fault::Refused | Fault::Other => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Missing | Fault::NoFolder => "cannot open database ",
            _ => "",
        };
        write!(f, "{what}`{}`: {}", self.place, self.reason)
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
impl StoreError {
    /// The error of a database that is away.
    pub(crate) fn away() -> Self {
        Self::new("smsq.db", Fault::Away, "is away")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_fits_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = folder.path().join("smsq.db");
        std::fs::write(&there, "").expect("a file");
        let missing = || StoreError::new("smsq.db", Fault::Missing, "cannot be opened");
        for (file, access, expected) in [
            (there, Access::Existing, Fault::ReadOnly),
            (
                folder.path().join("no.db"),
                Access::Existing,
                Fault::Missing,
            ),
            (folder.path().join("no.db"), Access::Create, Fault::ReadOnly),
            (
                folder.path().join("no/no.db"),
                Access::Existing,
                Fault::NoFolder,
            ),
            (
                folder.path().join("no/no.db"),
                Access::Create,
                Fault::NoFolder,
            ),
            ("no.db".into(), Access::Existing, Fault::Missing),
        ] {
            let error = missing().seen_at(&file, access);
            assert_eq!(error.fault(), expected, "{}", file.display());
            assert!(error.hint().is_some());
        }
    }
}
