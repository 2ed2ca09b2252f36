//! Empty databases on servers and other statements, for tests inside the crate.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Store;
use super::connection::{Location, Pool, Purpose, ServerKind, ServerUrl, transaction};

impl Store {
    /// Executes a statement.
    pub(crate) async fn execute(&self, sql: &str) {
        let executed = transaction!(self, |connection| connection.run(sql));
        executed.expect("a statement");
    }
}

/// Creates a database on each server that `tests/run` starts; returns their urls. A missing server is an
/// error where `CI` is set.
pub(crate) async fn server_databases() -> Vec<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
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
