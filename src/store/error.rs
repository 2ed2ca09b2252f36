//! What can go wrong with a database, told so that an operator can mend it.

use std::fmt;
use std::path::Path;

use super::Access;

/// The kind of a database's fault, for those who must act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The url names no database that smsq can use.
    Url,
    /// There is no such database yet.
    Missing,
    /// It is there, but has no tables of smsq yet.
    NoTables,
    /// Its tables are those of an older smsq, and may not be changed now.
    Older,
    /// Nor is there the folder that it would stand in.
    NoFolder,
    /// The file is there, but it is no database, or not one of smsq's.
    Foreign,
    /// A newer smsq has written it.
    Newer,
    ReadOnly,
    Full,
    /// Somebody else holds it for too long.
    Busy,
    /// It cannot be reached or read now.
    Away,
    /// The server can only be read: another one is written.
    Replica,
    /// The server does not let this user in.
    Denied,
    /// The server has no database of that name.
    NoDatabase,
    /// The server cannot be spoken to in secret.
    Encryption,
    /// A pooler stands before the server that keeps no prepared statements.
    Pooler,
    /// A rule of a table forbids the row, such as a number that is taken.
    Refused,
    Other,
}

/// What is said of a file that cannot be read as a database.
pub(super) const DAMAGED: &str = "is not a database, or a damaged one";

/// A database's fault: which database, what kind, and a sentence.
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

    /// What cannot be opened is told apart by what is there.
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

    /// Whether the same call may succeed later, as far as anybody can tell: all but what somebody must mend.
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

    /// Whether the database was there and said no to what was asked: less of it, or one row, may pass.
    pub fn is_answer(&self) -> bool {
        matches!(self.fault, Fault::Refused | Fault::Other)
    }

    /// What happened, without the name of the database.
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
        write!(f, "`{}`: {}", self.place, self.reason)
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
impl StoreError {
    /// What a test is told of a database that is away.
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
