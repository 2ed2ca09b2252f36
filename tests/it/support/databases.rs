//! The databases that every test of the store runs on, each empty and of its own, and a way to them
//! past smsq, as another program has it. Servers are those that `tests/run` has started.

use std::env;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use smsq::store::{Access, Store, StoreError};

use super::client::Client;

/// The databases that smsq knows; a new one is a variant, a line here, and its arms here and in
/// `client.rs`.
const KINDS: [Kind; 3] = [Kind::Sqlite, Kind::Mysql, Kind::Postgres];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Mysql,
    Postgres,
}

/// An empty database that ends with the test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    /// Another program that stays connected.
    client: Mutex<Option<Client>>,
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
    for kind in kinds() {
        let named = NamedOnPanic(kind);
        test(Database::new(kind)).await;
        drop(named);
    }
}

/// Runs a test of processes with a new database of every kind, one after the other.
pub(crate) fn with_every_database(test: impl Fn(&Database)) {
    for kind in kinds() {
        let named = NamedOnPanic(kind);
        test(&Database::new(kind));
        drop(named);
    }
}

/// The kinds that can be had here.
fn kinds() -> Vec<Kind> {
    KINDS.into_iter().filter(|kind| kind.is_there()).collect()
}

impl Kind {
    /// The variable that has the URL of its server.
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Mysql => Some("SMSQ_TEST_MYSQL"),
            Self::Postgres => Some("SMSQ_TEST_POSTGRES"),
        }
    }

    /// A server that is not there is skipped aloud, and is a fault where `CI` is set.
    fn is_there(self) -> bool {
        static TOLD: Once = Once::new();
        let missing = self
            .variable()
            .filter(|variable| env::var_os(variable).is_none());
        let Some(variable) = missing else {
            return true;
        };
        let said = format!("`{variable}` names no server; `tests/run` starts one");
        assert!(env::var_os("CI").is_none(), "{said}");
        TOLD.call_once(|| {
            // Not `eprintln`, whose words are kept from whoever runs tests that pass.
            let said = format!("skipped where they need a server: {said}\n");
            std::io::stderr()
                .write_all(said.as_bytes())
                .expect("somebody reads");
        });
        false
    }

    /// A database of the kind's server.
    fn url(self, database: &str) -> String {
        let variable = self.variable().expect("it has a server");
        let server = env::var(variable).expect("the URL of a server");
        format!("{server}/{database}")
    }

    /// Does on the server what concerns whole databases.
    fn administer(self, sql: &str) -> Result<Vec<String>, String> {
        let database = match self {
            Self::Mysql => "mysql",
            Self::Sqlite | Self::Postgres => "postgres",
        };
        Client::open(self, &self.url(database)).try_run(sql)
    }
}

impl Database {
    /// One in a file, for what has to do with no server.
    pub(crate) fn in_a_file() -> Self {
        Self::new(Kind::Sqlite)
    }

    /// One of every kind that can be had here.
    pub(crate) fn new(kind: Kind) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("smsq_{}_{number}", std::process::id());
        let (url, create) = match kind {
            Kind::Sqlite => {
                let file = folder.path().join("smsq.db");
                (format!("sqlite://{}", file.display()), None)
            }
            Kind::Mysql => (kind.url(&name), Some(format!("CREATE DATABASE {name}"))),
            Kind::Postgres => {
                let create = format!("CREATE DATABASE {name} TEMPLATE template0");
                (kind.url(&name), Some(create))
            }
        };
        if let Some(create) = create {
            kind.administer(&create).expect("a database");
        }
        Self {
            kind,
            url,
            client: Mutex::new(None),
            folder,
        }
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
            Kind::Mysql | Kind::Postgres => drop(self.lines(sql)),
        }
    }

    /// The numbers in column `value`.
    pub(crate) fn numbers(&self, sql: &str) -> Vec<i64> {
        match self.kind {
            Kind::Sqlite => {
                let rows: Vec<Number> = diesel::sql_query(sql)
                    .load(&mut self.sqlite())
                    .expect("numbers");
                rows.into_iter().map(|row| row.value).collect()
            }
            Kind::Mysql | Kind::Postgres => {
                let lines = self.lines(sql).into_iter();
                lines
                    .map(|line| line.parse().expect("a whole number"))
                    .collect()
            }
        }
    }

    /// The first number in column `value`.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.numbers(sql)[0]
    }

    /// The words in column `value`, none of which has two lines.
    pub(crate) fn words(&self, sql: &str) -> Vec<Option<String>> {
        match self.kind {
            Kind::Sqlite => {
                let rows: Vec<Word> = diesel::sql_query(sql)
                    .load(&mut self.sqlite())
                    .expect("words");
                rows.into_iter().map(|row| row.value).collect()
            }
            Kind::Mysql | Kind::Postgres => {
                let lines = self.lines(sql).into_iter();
                lines.map(|line| (line != "NULL").then_some(line)).collect()
            }
        }
    }

    /// A session of the database's own client.
    pub(crate) fn client(&self) -> Client {
        Client::open(self.kind, &self.url)
    }

    /// The URL of the same database for somebody else.
    pub(crate) fn url_for(&self, login: &str) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL");
        let (_, place) = rest.split_once('@').expect("a login");
        format!("{scheme}://{login}@{place}")
    }

    /// Ends every session of this database on its server; returns how many there were.
    pub(crate) fn end_sessions(&self) -> usize {
        // This test's own session is not among them.
        *self.client.lock().expect("nobody failed before") = None;
        match self.kind {
            Kind::Sqlite => 0,
            Kind::Mysql => {
                let others = self.client().run(
                    "SELECT id FROM information_schema.processlist
                     WHERE db = database() AND id <> connection_id()",
                );
                let kill = |id: &String| self.client().try_run(&format!("KILL {id}"));
                // One may have gone by itself.
                others.iter().filter(|id| kill(id).is_ok()).count()
            }
            Kind::Postgres => {
                let ended = self.client().run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
                ended.iter().filter(|ended| *ended == "t").count()
            }
        }
    }

    fn lines(&self, sql: &str) -> Vec<String> {
        let mut client = self.client.lock().expect("nobody failed before");
        client.get_or_insert_with(|| self.client()).run(sql)
    }

    fn sqlite(&self) -> SqliteConnection {
        let file = self.url.trim_start_matches("sqlite://");
        let mut conn = SqliteConnection::establish(file).expect("the file");
        conn.batch_execute("PRAGMA busy_timeout = 30000")
            .expect("a timeout");
        conn
    }
}

impl Drop for Database {
    /// Whoever is still connected must not keep it.
    fn drop(&mut self) {
        let (_, name) = self.url.rsplit_once('/').expect("a path");
        let drop = match self.kind {
            Kind::Sqlite => return,
            Kind::Mysql => format!("SET lock_wait_timeout = 10; DROP DATABASE IF EXISTS {name}"),
            Kind::Postgres => format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        };
        // It ends with its server at the latest.
        let _ = self.kind.administer(&drop);
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
