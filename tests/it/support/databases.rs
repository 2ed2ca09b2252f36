//! The databases that every test of the store runs on, each empty and of its own, and a way to them
//! past smsq, as another program has it.

use std::process::Command;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use smsq::store::{Access, Store, StoreError};

/// The databases that smsq knows; a new one is a variant, a line here, and its arms below.
const KINDS: [Kind; 1] = [Kind::Sqlite];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sqlite,
}

/// An empty database that ends with the test.
pub(crate) struct Database {
    kind: Kind,
    pub(crate) url: String,
    folder: tempfile::TempDir,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Word {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

/// Runs a test on a new database of every kind, one after the other.
pub(crate) async fn on_every_database(test: impl AsyncFn(Database)) {
    for kind in KINDS {
        let named = NamedOnPanic(kind);
        test(Database::new(kind)).await;
        drop(named);
    }
}

impl Database {
    /// One of the first kind, for what has to do with no database in particular.
    pub(crate) fn any() -> Self {
        Self::new(KINDS[0])
    }

    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = match kind {
            Kind::Sqlite => format!("sqlite://{}", folder.path().join("smsq.db").display()),
        };
        Self { kind, url, folder }
    }

    pub(crate) async fn open(&self) -> Result<Store, StoreError> {
        Store::open(&self.url, Access::Create).await
    }

    /// The folder of its scratch files, and of the database itself where it is embedded.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Runs statements as another program would.
    pub(crate) fn run(&self, sql: &str) {
        match self.kind {
            Kind::Sqlite => self.sqlite().batch_execute(sql).expect("statements"),
        }
    }

    /// The numbers in column `value`.
    pub(crate) fn numbers(&self, sql: &str) -> Vec<i64> {
        let rows: Vec<Number> = match self.kind {
            Kind::Sqlite => diesel::sql_query(sql).load(&mut self.sqlite()),
        }
        .expect("numbers");
        rows.into_iter().map(|row| row.value).collect()
    }

    /// The first number in column `value`.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.numbers(sql)[0]
    }

    /// The words in column `value`.
    pub(crate) fn words(&self, sql: &str) -> Vec<Option<String>> {
        let rows: Vec<Word> = match self.kind {
            Kind::Sqlite => diesel::sql_query(sql).load(&mut self.sqlite()),
        }
        .expect("words");
        rows.into_iter().map(|row| row.value).collect()
    }

    /// Runs statements in the database's own shell.
    pub(crate) fn shell(&self, sql: &str) {
        let mut shell = match self.kind {
            Kind::Sqlite => Command::new("sqlite3"),
        };
        let ran = match self.kind {
            Kind::Sqlite => shell.arg(self.path()).arg(sql).output(),
        }
        .expect("the database's shell (`tests/run` installs it)");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "the database's shell: {said}");
    }

    fn path(&self) -> &str {
        self.url.trim_start_matches("sqlite://")
    }

    fn sqlite(&self) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(self.path()).expect("the file");
        conn.batch_execute("PRAGMA busy_timeout = 30000")
            .expect("a timeout");
        conn
    }
}

/// A test that fails says on which database.
struct NamedOnPanic(Kind);

impl Drop for NamedOnPanic {
    #[expect(
        clippy::print_stderr,
        reason = "the test runner shows what a failed test has printed"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {:?}", self.0);
        }
    }
}
