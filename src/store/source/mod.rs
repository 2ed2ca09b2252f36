//! Reads the result of a query from a database of another program: in a transaction that only reads, row by row, with
//! all values as text.

mod mysql;
mod postgres;
mod sqlite;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde::Deserialize;
use smsq_message::secret::Secret;
use smsq_message::text::{mask_numbers, mask_values};
use smsq_process::boxed;
use smsq_process::jobs::{Over, Until};

use super::connection::{
    CONNECT_TIMEOUT, ConnectError, ServerKind, ServerUrl, SqliteFile, cancel_postgres,
    mysql_client, postgres_client,
};
use super::error::{StoreError, StoreErrorKind};
use super::{Access, Config};

/// How much longer than the database itself the client waits for the end of a query.
const MARGIN: Duration = Duration::from_secs(10);

/// Connects to the first host that answers.
macro_rules! connect {
    ($url:expr, $connect:ident) => {{
        let mut connected = Err(ConnectError::no_answer());
        for (host, port) in &$url.hosts {
            connected = $connect($url, host, *port, CONNECT_TIMEOUT).await;
            if connected.is_ok() {
                break;
            }
        }
        connected?
    }};
}

/// A query, and until when it may run.
pub struct SourceQuery<'a> {
    pub text: &'a str,
    /// The database ends it after this time.
    pub limit: Duration,
    /// What else ends it.
    pub until: &'a Until,
}

impl SourceQuery<'_> {
    /// The query without what ends a statement.
    fn statement(&self) -> &str {
        self.text.trim().trim_end_matches(';').trim_end()
    }

    /// Why the query was ended.
    fn ended(&self, over: Over) -> QueryError {
        match over {
            Over::TooLate => QueryError::too_slow(self.limit),
            Over::Interrupted | Over::Panicked => QueryError::new("the query was interrupted"),
        }
    }
}

/// Section `[sources.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// `sqlite://PATH`, `postgres://…` or `mysql://…`.
    pub url: Secret<String>,
    /// The password of a server if the URL has none.
    #[serde(default)]
    pub password: Secret<String>,
    /// A file with the password if `url` and `password` have none.
    #[serde(default)]
    pub password_file: Secret<String>,
}

/// Takes the names of the columns, and the values of a row.
pub type RowWriter<'a> = dyn FnMut(&[String], &[Option<&str>]) -> io::Result<()> + Send + 'a;

/// Why a query could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read `{database}`: {reason}")]
pub struct SourceError {
    database: String,
    reason: String,
    pub hint: Option<String>,
}

/// Why a query failed: the words of the database, and what to do about it.
struct QueryError {
    reason: String,
    hint: Option<String>,
}

impl QueryError {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: None }
    }

    fn hinted(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: Some(hint.into()) }
    }

    /// The words of the database. Errors about the query, which have an SQLSTATE of class 42, quote parts of it; others
    /// quote data, which is hidden.
    fn of_database(words: &str, state: Option<&str>) -> Self {
        let is_of_query = state.is_some_and(|state| state.starts_with("42"));
        Self::new(if is_of_query { mask_numbers(words) } else { mask_values(words) })
    }

    /// A column whose values have no text that every program writes alike.
    fn of_type(column: &str, type_name: &str, cast: &str) -> Self {
        Self::hinted(
            format!("column `{column}` of the query has the type `{type_name}`"),
            format!("cast it to text: `{cast}`"),
        )
    }

    fn no_columns() -> Self {
        Self::hinted("the query returns no columns", "use a `SELECT`")
    }

    fn not_utf8(column: &str) -> Self {
        Self::new(format!("column `{column}` of the query has a value that is not UTF-8"))
    }

    fn too_slow(limit: Duration) -> Self {
        Self::hinted(
            format!("the query takes longer than {limit:?}"),
            "make it faster, or raise `import.query_timeout`",
        )
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        Self::hinted(
            format!("the rows cannot be written to a temporary file: {error}"),
            "free some space, or set TMPDIR to a larger folder",
        )
    }
}

impl From<ConnectError> for QueryError {
    fn from(error: ConnectError) -> Self {
        let hint = match error.kind {
            StoreErrorKind::Unavailable => {
                "check that the server is running, and its host and port"
            }
            StoreErrorKind::Denied => {
                "check the user and the password: `[sources.NAME]` has settings for it"
            }
            StoreErrorKind::Encryption => {
                "`?tls_ca=FILE` names the authority of its certificate, `?tls=off` turns encryption off"
            }
            _ => return Self::new(error.reason),
        };
        Self::hinted(error.reason, hint)
    }
}

enum SourcePlace {
    File(SqliteFile),
    Server(ServerUrl),
}

/// A database of another program.
pub struct SourceDatabase {
    name: String,
    place: SourcePlace,
}

impl SourceDatabase {
    /// Fails if the URL is invalid, or if its file does not exist.
    pub fn new(config: &SourceConfig) -> Result<Self, SourceError> {
        let config = Config {
            url: config.url.clone(),
            password: config.password.clone(),
            password_file: config.password_file.clone(),
        };
        let invalid = |database: &str, reason: &str, hint: Option<&str>| SourceError {
            database: database.to_owned(),
            reason: reason.to_owned(),
            hint: hint.map(str::to_owned),
        };
        let url = config
            .url_with_password()
            .map_err(|error| invalid("the source", error.reason(), None))?;
        let url = url.expose_secret();
        let example = "write it like `postgres://user@host/database`, `mysql://user@host/database` or `sqlite:FILE`";
        let Some((scheme, path)) = url.split_once(':') else {
            return Err(invalid("the source", "its URL is invalid", Some(example)));
        };
        if scheme == "sqlite" {
            let path = path.strip_prefix("//").unwrap_or(path);
            let file = SqliteFile::new(path, Access::Read)
                .map_err(|error: StoreError| invalid(path, error.reason(), None))?;
            return Ok(Self { name: path.to_owned(), place: SourcePlace::File(file) });
        }
        let shown = format!("{scheme}:…");
        let kind = ServerKind::of(scheme)
            .ok_or_else(|| invalid(&shown, "unknown kind of database", Some(example)))?;
        let server = ServerUrl::parse(kind, url)
            .map_err(|reason| invalid(&shown, &format!("the URL {reason}"), None))?;
        Ok(Self { name: server.to_string(), place: SourcePlace::Server(server) })
    }

    /// The path, or the URL without a password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the rows of a query; returns the names of its columns. A query that is over is ended in its database, too.
    #[boxed]
    pub async fn read(
        &self,
        query: &SourceQuery<'_>,
        write: &mut RowWriter<'_>,
    ) -> Result<Vec<String>, SourceError> {
        let read = match &self.place {
            _ if query.statement().is_empty() => Err(QueryError::new("the query is empty")),
            SourcePlace::File(file) => sqlite::read(file, query, write),
            SourcePlace::Server(url) => read_server(url, query, write).await,
        };
        read.map_err(|QueryError { reason, hint }| SourceError {
            database: self.name.clone(),
            reason,
            hint,
        })
    }
}

async fn read_server(
    url: &ServerUrl,
    query: &SourceQuery<'_>,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, QueryError> {
    let until = query.until.limited(query.limit.saturating_add(MARGIN));
    match url.kind {
        ServerKind::Postgres => {
            let client = connect!(url, postgres_client);
            let reading = postgres::read(&client, query, write);
            match until.unless_over(reading).await {
                Ok(read) => read,
                Err(over) => {
                    // Without it the server would go on until it notices that the client is away.
                    cancel_postgres(url, &client).await;
                    Err(query.ended(over))
                }
            }
        }
        ServerKind::Mysql => {
            let conn = connect!(url, mysql_client);
            let id = conn.id();
            let reading = mysql::read(conn, query, write);
            match until.unless_over(reading).await {
                Ok(read) => read,
                Err(over) => {
                    mysql::kill(connect!(url, mysql_client), id).await;
                    Err(query.ended(over))
                }
            }
        }
    }
}

/// Fails if two columns have the same name.
fn check_names(names: &[String]) -> Result<(), QueryError> {
    let mut known = BTreeSet::new();
    match names.iter().find(|name| !known.insert(*name)) {
        Some(name) => Err(QueryError::hinted(
            format!("the query has two columns `{name}`"),
            format!("give one of them another name: `{name} AS OTHER`"),
        )),
        None => Ok(()),
    }
}
