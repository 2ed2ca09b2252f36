//! The database engines, and new databases on their servers. `benches/servers` starts the servers.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Mariadb,
    Postgres,
}

impl Engine {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Mariadb, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Mariadb => "MariaDB",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// The URL of a new database: a file in `folder`, or a database of the server.
    pub(crate) fn create(self, folder: &Path) -> anyhow::Result<String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if self == Self::Sqlite {
            return Ok(format!("sqlite://{}", folder.join("smsq.db").display()));
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}", std::process::id());
        self.ask(&format!("CREATE DATABASE {name}"))?;
        Ok(format!("{}/{name}", self.server()?))
    }

    /// The response of the server to a statement.
    pub(crate) fn ask(self, statement: &str) -> anyhow::Result<String> {
        let database = match self {
            Self::Postgres => "postgres",
            _ => "mysql",
        };
        let url = format!("{}/{database}", self.server()?);
        let output = self
            .shell(&url)
            .arg(if self == Self::Postgres { "-c" } else { "-e" })
            .arg(statement)
            .stdin(Stdio::null())
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{statement}`: {errors}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The server's own shell, connected to a database.
    pub(crate) fn shell(self, url: &str) -> Command {
        let address = Url::parse(url).expect("a URL");
        let host = address.host_str().unwrap_or_default();
        let port = address.port().unwrap_or_default().to_string();
        let database = address.path().trim_start_matches('/');
        if self == Self::Postgres {
            let mut shell = Command::new("psql");
            shell.args(["-qAtX", "-h", host, "-p", &port, "-U", "smsq", "-d"]);
            shell.arg(database);
            return shell;
        }
        let mut shell = Command::new("mariadb");
        shell
            .env("MYSQL_PWD", "smsq")
            .args(["--no-defaults", "--protocol=TCP", "-h", host, "-P", &port])
            .args(["-u", "smsq", "-N", "-B", "--unbuffered", "-D", database]);
        shell
    }

    fn server(self) -> anyhow::Result<String> {
        let variable = match self {
            Self::Postgres => "SMSQ_TEST_POSTGRES",
            _ => "SMSQ_TEST_MYSQL",
        };
        env::var(variable).context("`benches/servers` starts the servers")
    }
}
