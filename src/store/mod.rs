//! The one place that knows SQL. What is hot or truly differs (connect, insert, claim, settle) stands in
//! each database's own file, the same names in each; everything else is written once, over the macros
//! `reading!` and `writing!`.

/// Runs a query on one of a server's connections, again where only other transactions were in its way.
macro_rules! on_server {
    ($server:expr, |$conn:ident| $query:expr) => {{
        let mut attempts = $crate::store::server::Attempts::default();
        loop {
            let mut held = match $server.link().await {
                Ok(held) => held,
                Err(error) => break Err(error),
            };
            let done = $crate::store::server::link::on!(held.link(), |$conn| $query);
            if let Some(told) = attempts.judge($server, held, done).await {
                break told;
            }
        }
    }};
}

/// Runs a query on the connection for reading, whichever database it is.
macro_rules! reading {
    ($store:expr, |$conn:ident| $query:expr) => {
        match $store {
            $crate::store::Store::Sqlite(sqlite) => {
                let mut guard = sqlite.reader().await;
                let $conn = &mut *guard;
                $query.await.map_err(|error| sqlite.fault(&error))
            }
            $crate::store::Store::Server(server) => on_server!(server, |$conn| $query),
        }
    };
}

/// Runs a query on the connection for writing, whichever database it is.
macro_rules! writing {
    ($store:expr, |$conn:ident| $query:expr) => {
        match $store {
            $crate::store::Store::Sqlite(sqlite) => {
                let mut guard = sqlite.writer().await;
                let $conn = &mut *guard;
                $query.await.map_err(|error| sqlite.fault(&error))
            }
            $crate::store::Store::Server(server) => on_server!(server, |$conn| $query),
        }
    };
}

mod campaigns;
mod error;
mod foreign;
mod imports;
pub mod inspect;
mod ledger;
mod purge;
mod queue;
mod recipients;
mod schema;
mod server;
mod sqlite;
mod suppression;
mod unknown;
mod workers;

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::sms::Timestamp;

pub use campaigns::{Campaign, CampaignChange, CampaignStatus, NewCampaign, WindowChange};
pub use error::{Fault, StoreError};
pub use imports::{Batch, Enqueued, TextNote};
pub use ledger::{Expired, QueuePlace, RetryFilter};
pub use purge::{Age, Person, Purge, Purged, RetentionConfig};
pub use queue::{
    CampaignStop, CommitBatch, CommitResult, ProviderClaimed, ProviderPause, Shortfall,
};
pub use server::{Probe, SkipLocked};
pub use suppression::Suppressed;
pub use unknown::{Due, Unknown};
pub use workers::{NewWorker, Unfinished, Worker};

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite://PATH`, `postgres://…` or `mysql://…`.
    pub url: String,
    /// A server's password, where the url has none.
    pub password: SecretString,
    /// A file that has it, where neither has.
    pub password_file: String,
}

impl Config {
    /// The url, with the password in it.
    fn whole_url(&self) -> Result<SecretString, StoreError> {
        let mut password = self.password.expose_secret().to_owned();
        if password.is_empty() && !self.password_file.is_empty() {
            password = std::fs::read_to_string(&self.password_file).map_err(|error| {
                let reason = format!("cannot be read for the database's password: {error}");
                StoreError::new(&self.password_file, Fault::Url, reason)
            })?;
        }
        let password = password.trim_end_matches(['\r', '\n']);
        Ok(if password.is_empty() {
            self.url.clone().into()
        } else {
            server::with_password(&self.url, password).into()
        })
    }
}

/// Rows that an administrative command moves in one transaction.
const CHUNK: i64 = 1_000;

/// What opening a database may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Create it where it is missing.
    Create,
    /// It must be there.
    Existing,
    /// It must be there, and nothing is written to it.
    Read,
}

/// The database that holds the queue.
#[derive(Clone)]
pub enum Store {
    Sqlite(sqlite::Sqlite),
    /// PostgreSQL, MySQL or MariaDB.
    Server(server::Server),
}

impl Store {
    /// Opens the database that the configuration names.
    pub async fn of(config: &Config, access: Access) -> Result<Self, StoreError> {
        Self::open(config.whole_url()?.expose_secret(), access).await
    }

    /// Connects and brings the schema up to date.
    pub async fn open(url: &str, access: Access) -> Result<Self, StoreError> {
        match url.split_once(':') {
            Some(("sqlite", path)) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                let opened = sqlite::Sqlite::open(path, access).await;
                Ok(Self::Sqlite(
                    opened.map_err(|error| error.seen_at(path.as_ref(), access))?,
                ))
            }
            Some((scheme, _)) => match server::Engine::of(scheme) {
                Some(engine) => Ok(Self::Server(
                    server::Server::open(engine, url, access).await?,
                )),
                None => Err(StoreError::new(
                    format!("{scheme}:…"),
                    Fault::Url,
                    "is of no kind that smsq knows: `sqlite://PATH`, \
                     `postgres://user@host/database` or `mysql://user@host/database`",
                )),
            },
            None => {
                let file = if url.is_empty() { "smsq.db" } else { url };
                let reason = format!("is no database url; write it like `sqlite://{file}`");
                Err(StoreError::new(url, Fault::Url, reason))
            }
        }
    }

    /// The file that it is in, if it is not on a server.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(sqlite) => Some(Path::new(sqlite.place())),
            Self::Server(_) => None,
        }
    }

    /// The database as errors and reports name it; never with a password.
    pub fn place(&self) -> &str {
        match self {
            Self::Sqlite(sqlite) => sqlite.place(),
            Self::Server(server) => server.place(),
        }
    }

    /// The database's own clock.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.now(),
            Self::Server(server) => server.now().await,
        }
    }

    /// The server's settings by which a crash of its host may undo what was committed, with their values.
    pub async fn unsafe_settings(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(Vec::new()),
            Self::Server(server) => server.unsafe_settings().await,
        }
    }

    /// What was found out of a server by trying; an embedded database needs no such thing.
    pub async fn probe(&self) -> Result<Option<Probe>, StoreError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Server(server) => server.probe().await.map(Some),
        }
    }
}
