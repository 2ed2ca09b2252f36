//! Empty databases on servers, statements and errors, for the tests inside of crates.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;

use super::Store;
use super::connection::pool::Purpose;
use super::connection::{Location, Pool, ServerKind, ServerUrl, transaction};
use super::error::{StoreError, StoreErrorKind};

impl Store {
    /// Executes a statement.
    pub async fn execute(&self, sql: &str) {
        let executed = transaction!(self, |connection| connection.run(sql));
        executed.expect("a statement");
    }
}

impl StoreError {
    /// The error of a database that is unavailable.
    pub fn unavailable() -> Self {
        Self::new("smsq.db", StoreErrorKind::Unavailable, "is unavailable")
    }
}

/// Whether the tests of this process run on servers. A program that is built with the tests is not one of them.
static KEEPS_TIME_STILL: AtomicBool = AtomicBool::new(false);

/// Keeps the paused time of a test still: otherwise it passes while a server is waited for.
pub(crate) struct StillTime(
    #[expect(dead_code, reason = "its drop ends the task")] mpsc::Sender<()>,
);

impl StillTime {
    pub(crate) fn begin() -> Option<Self> {
        KEEPS_TIME_STILL.load(Ordering::Relaxed).then(|| {
            let (sender, dropped) = mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || dropped.recv().unwrap_or_default());
            Self(sender)
        })
    }
}

/// Creates a database on each server that `tests/run` starts; returns their urls. A missing server is an
/// error where `CI` is set.
pub async fn server_databases() -> Vec<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    KEEPS_TIME_STILL.store(true, Ordering::Relaxed);
    let mut urls = Vec::new();
    for (kind, variable, system) in [
        (ServerKind::Postgres, "SMSQ_TEST_POSTGRES", "postgres"),
        (ServerKind::Mysql, "SMSQ_TEST_MYSQL", "mysql"),
    ] {
        let Ok(server) = env::var(variable) else {
            let is_ci = env::var_os("CI").is_some();
            assert!(!is_ci, "missing `{variable}`; `tests/run` starts the server");
            continue;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("smsq_crate_{}_{number}", std::process::id());
        let url = ServerUrl::parse(kind, &format!("{server}/{system}")).expect("a url");
        let pool = Pool::new(Location::Server(url));
        let mut pooled = pool.take(Purpose::Write).await.expect("a connection");
        let sql = format!("CREATE DATABASE {name}");
        let created = pooled.connection().run(&sql).await;
        created.expect("a database");
        urls.push(format!("{server}/{name}"));
    }
    urls
}
