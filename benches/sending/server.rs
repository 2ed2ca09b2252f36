//! What the measurements ask of a database server: its process, its counters, and to delete a database.

use std::time::Duration;

use anyhow::Context as _;

use crate::engine::Engine;

const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Engine {
    /// The process of the server, which `benches/servers` tells in the environment.
    pub(crate) fn server_process(self) -> Option<u32> {
        let variable = match self {
            Self::Sqlite => return None,
            Self::Mariadb => "SMSQ_BENCH_MARIADB_PID",
            Self::Postgres => "SMSQ_BENCH_POSTGRES_PID",
        };
        std::env::var(variable).ok()?.parse().ok()
    }

    /// Deletes a database of the server. A file is deleted with its folder.
    pub(crate) fn delete(self, url: &str) -> anyhow::Result<()> {
        let database = database(url)?;
        match self {
            Self::Sqlite => return Ok(()),
            Self::Mariadb => self.ask(&format!("DROP DATABASE {database}"))?,
            Self::Postgres => self.ask(&format!("DROP DATABASE {database} WITH (FORCE)"))?,
        };
        Ok(())
    }

    /// The transactions that the server has committed, in a database without connections.
    pub(crate) fn commits(self, url: &str) -> anyhow::Result<u32> {
        let counter = if self == Self::Postgres {
            let database = database(url)?;
            // A connection adds its count when it ends.
            let open = format!(
                "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = '{database}' AND backend_type = 'client backend'"
            );
            while self.ask(&open)? != "0" {
                std::thread::sleep(LOOK_EVERY);
            }
            self.ask(&format!(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'"
            ))?
        } else {
            self.ask("SHOW GLOBAL STATUS LIKE 'Com_commit'")?
        };
        let count = counter.split_whitespace().last();
        count.context("no counter of commits")?.parse().context("the counter of commits")
    }
}

fn database(url: &str) -> anyhow::Result<&str> {
    let (_, name) = url.rsplit_once('/').context("a URL without a database")?;
    Ok(name)
}
