//! An empty database of every kind for each test of the store, and access to it without smsq, like another program.
//! `tests/run` starts the servers.

use std::env;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

use rusqlite::types::{FromSql, Value};
use smsq_store::{Access, Store, StoreError};

use super::client::Client;

/// The databases that smsq supports.
const KINDS: [Kind; 3] = [Kind::Sqlite, Kind::Mysql, Kind::Postgres];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Mysql,
    Postgres,
}

/// An empty database that is deleted after the test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    /// Another program that stays connected.
    client: Mutex<Option<Client>>,
    folder: tempfile::TempDir,
    /// Its server ends with the test.
    has_own_server: bool,
}

/// The values in column `value`.
pub(crate) fn values<T: FromSql>(sqlite: &rusqlite::Connection, sql: &str) -> Vec<T> {
    let mut statement = sqlite.prepare(sql).expect("a query");
    let values = statement.query_map([], |row| row.get("value")).expect("rows");
    values.map(|value| value.expect("a value")).collect()
}

/// A value as a client prints it; `None` for NULL.
fn word(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
    }
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

/// The kinds whose server is running; without SQLite for `tests/engines`, which tests one server after the other.
fn kinds() -> Vec<Kind> {
    let only_servers = env::var_os("SMSQ_TEST_ONLY_SERVERS").is_some();
    KINDS
        .into_iter()
        .filter(|kind| kind.is_there() && !(only_servers && *kind == Kind::Sqlite))
        .collect()
}

impl Kind {
    /// The environment variable with the URL of its server.
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Mysql => Some("SMSQ_TEST_MYSQL"),
            Self::Postgres => Some("SMSQ_TEST_POSTGRES"),
        }
    }

    /// The name of the engine; the server of `tests/run` is MariaDB.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Mysql => "MariaDB",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// Whether its server is running. Prints a note if not, or fails where `CI` is set.
    pub(crate) fn is_there(self) -> bool {
        static PRINTED: Once = Once::new();
        let missing = self.variable().filter(|variable| env::var_os(variable).is_none());
        let Some(variable) = missing else {
            return true;
        };
        let problem = format!("`{variable}` is not set; `tests/run` starts a server");
        assert!(env::var_os("CI").is_none(), "{problem}");
        PRINTED.call_once(|| {
            // The test runner captures what `eprintln` prints.
            let line = format!("skipped where they need a server: {problem}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        });
        false
    }

    /// A table of the numbers from 1 to `count`, in column `n`.
    pub(crate) fn series(self, count: u64) -> String {
        match self {
            // MySQL has no sequences, and MariaDB has no `generate_series`.
            Self::Mysql => format!(
                "JSON_TABLE(concat('[', repeat('0,', {count} - 1), '0]'), '$[*]' COLUMNS (n FOR ORDINALITY)) AS n"
            ),
            Self::Postgres => format!("generate_series(1, {count}) AS n"),
            Self::Sqlite => format!(
                "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) AS n"
            ),
        }
    }

    /// Runs a statement in the server's own database.
    pub(crate) fn administer(self, server: &str, sql: &str) -> Result<Vec<String>, String> {
        let database = match self {
            Self::Mysql => "mysql",
            Self::Sqlite | Self::Postgres => "postgres",
        };
        Client::open(self, &format!("{server}/{database}")).try_run(sql)
    }
}

impl Database {
    /// A database of this kind, if its server is running.
    pub(crate) fn if_there(kind: Kind) -> Option<Self> {
        kind.is_there().then(|| Self::new(kind))
    }

    /// A SQLite database.
    pub(crate) fn in_a_file() -> Self {
        Self::new(Kind::Sqlite)
    }

    /// A new database of this kind.
    pub(crate) fn new(kind: Kind) -> Self {
        let server = kind.variable().map(|variable| {
            let url = env::var(variable);
            url.expect("`is_there` has found a server")
        });
        Self::of(kind, server.as_deref(), false)
    }

    /// A new database on this server, which ends with the test.
    pub(crate) fn on(kind: Kind, server: &str) -> Self {
        Self::of(kind, Some(server), true)
    }

    fn of(kind: Kind, server: Option<&str>, has_own_server: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("smsq_{}_{number}", std::process::id());
        let url = if let Some(server) = server {
            let template = if kind == Kind::Postgres { " TEMPLATE template0" } else { "" };
            let create = format!("CREATE DATABASE {name}{template}");
            kind.administer(server, &create).expect("a database");
            format!("{server}/{name}")
        } else {
            format!("sqlite://{}", folder.path().join("smsq.db").display())
        };
        Self { kind, url, client: Mutex::new(None), folder, has_own_server }
    }

    pub(crate) async fn open(&self) -> Result<Store, StoreError> {
        Store::open(&self.url, Access::Create).await
    }

    /// The folder of its scratch files, and of a SQLite database.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Runs statements as another program would.
    pub(crate) fn run(&self, sql: &str) {
        match self.kind {
            Kind::Sqlite => self.sqlite().execute_batch(sql).expect("statements"),
            Kind::Mysql | Kind::Postgres => drop(self.lines(sql)),
        }
    }

    /// The numbers in column `value`.
    pub(crate) fn numbers(&self, sql: &str) -> Vec<i64> {
        match self.kind {
            Kind::Sqlite => values(&self.sqlite(), sql),
            Kind::Mysql | Kind::Postgres => {
                let lines = self.lines(sql).into_iter();
                lines.map(|line| line.parse().expect("a whole number")).collect()
            }
        }
    }

    /// The first number in column `value`.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.numbers(sql)[0]
    }

    /// The texts in column `value`; each is one line.
    pub(crate) fn words(&self, sql: &str) -> Vec<Option<String>> {
        match self.kind {
            Kind::Sqlite => values(&self.sqlite(), sql).into_iter().map(word).collect(),
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

    /// The URL of the same database with another login.
    pub(crate) fn url_for(&self, login: &str) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL");
        let (_, place) = rest.split_once('@').expect("a login");
        format!("{scheme}://{login}@{place}")
    }

    /// Ends every session of this database on its server; returns how many there were.
    pub(crate) fn end_sessions(&self) -> usize {
        // Closes this test's own session first.
        *self.client.lock().expect("not poisoned") = None;
        match self.kind {
            Kind::Sqlite => 0,
            Kind::Mysql => {
                let others = self.client().run(
                    "SELECT id FROM information_schema.processlist
                     WHERE db = database() AND id <> connection_id()",
                );
                let kill = |id: &String| self.client().try_run(&format!("KILL {id}"));
                // One may have ended already.
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
        let mut client = self.client.lock().expect("not poisoned");
        client.get_or_insert_with(|| self.client()).run(sql)
    }

    fn sqlite(&self) -> rusqlite::Connection {
        let file = self.url.trim_start_matches("sqlite://");
        let conn = rusqlite::Connection::open(file).expect("the file");
        conn.execute_batch("PRAGMA busy_timeout = 30000").expect("a timeout");
        conn
    }
}

impl Drop for Database {
    /// Ends remaining connections, which would prevent it.
    fn drop(&mut self) {
        let (server, name) = self.url.rsplit_once('/').expect("a path");
        let drop = match self.kind {
            _ if self.has_own_server => return,
            Kind::Sqlite => return,
            Kind::Mysql => format!("SET lock_wait_timeout = 10; DROP DATABASE IF EXISTS {name}"),
            Kind::Postgres => format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        };
        // An error does not matter: the server is deleted, too.
        let _ = self.kind.administer(server, &drop);
    }
}

/// Prints the database of a test that fails.
struct NamedOnPanic(Kind);

impl Drop for NamedOnPanic {
    #[expect(clippy::print_stderr, reason = "the test runner shows what a failed test has printed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {:?}", self.0);
        }
    }
}
