//! The queue in a database: the only place with SQL. Every query is written once for SQLite, PostgreSQL, MySQL
//! and MariaDB; `connection/` has what differs between them.

mod campaigns;
mod candidates;
mod claim;
mod commit;
mod connection;
mod dedupe;
mod enqueue;
mod error;
mod imports;
mod limits;
mod lossy_text;
mod migrate;
mod operator;
mod purge;
mod recipients;
pub mod report;
mod schema;
mod settle;
mod suppression;
mod transitions;
mod unknown;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::sms::{Timestamp, millis};
use connection::{
    Attempts, Lane, Location, Pool, ServerKind, ServerUrl, SqliteFile, with_password,
};

pub use campaigns::{Campaign, CampaignChange, CampaignStatus, NewCampaign, WindowChange};
pub use commit::{
    CampaignStop, CommitBatch, CommitResult, ProviderClaimed, ProviderPause, Shortfall,
};
pub use connection::{Probe, SkipLocked};
pub use enqueue::{Batch, Enqueued};
pub use error::{Fault, StoreError};
pub use imports::TextNote;
pub use operator::{Expired, QueuePlace, RetryFilter};
pub use purge::{Age, Person, Purge, Purged, RetentionConfig};
pub use suppression::Suppressed;
pub use unknown::{Due, Unknown};
pub use workers::{NewWorker, Unfinished, Worker};

/// The most rows that an administrative command moves in one transaction.
const CHUNK: i64 = 1_000;

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite://PATH`, `postgres://…` or `mysql://…`.
    pub url: String,
    /// The password of a server, where the url has none.
    pub password: SecretString,
    /// The file with the password, where neither of them has it.
    pub password_file: String,
}

impl Config {
    /// The url with the password in it.
    fn url_with_password(&self) -> Result<SecretString, StoreError> {
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
            with_password(&self.url, password).into()
        })
    }
}

/// What opening a database may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Create it where it is missing.
    Create,
    /// It must exist.
    Existing,
    /// It must exist, and nothing is written to it.
    Read,
}

/// The database that holds the queue.
#[derive(Clone)]
pub struct Store {
    pool: Arc<Pool>,
    cursors: Arc<claim::ClaimCursors>,
    skip_locked: Arc<OnceCell<SkipLocked>>,
}

impl Store {
    /// Opens the database that the configuration names.
    pub async fn of(config: &Config, access: Access) -> Result<Self, StoreError> {
        Self::open(config.url_with_password()?.expose_secret(), access).await
    }

    /// Connects and brings the tables up to date.
    pub async fn open(url: &str, access: Access) -> Result<Self, StoreError> {
        let Some((scheme, path)) = url.split_once(':') else {
            let file = if url.is_empty() { "smsq.db" } else { url };
            let reason = format!("is not a database url; write it like `sqlite://{file}`");
            return Err(StoreError::new(url, Fault::Url, reason));
        };
        if scheme == "sqlite" {
            let path = path.strip_prefix("//").unwrap_or(path);
            let opened = Self::open_file(path, access).await;
            return opened.map_err(|error| error.seen_at(Path::new(path), access));
        }
        let Some(kind) = ServerKind::of(scheme) else {
            let reason = "is not of a kind that smsq knows: `sqlite://PATH`, \
                 `postgres://user@host/database` or `mysql://user@host/database`";
            return Err(StoreError::new(format!("{scheme}:…"), Fault::Url, reason));
        };
        let mut server = ServerUrl::parse(kind, url)
            .map_err(|reason| StoreError::new(format!("{scheme}:…"), Fault::Url, reason))?;
        server.is_only_read = access == Access::Read;
        let store = Self::new(Location::Server(server));
        store.refuse_pooler().await?;
        store.migrate(access).await?;
        Ok(store)
    }

    async fn open_file(path: &str, access: Access) -> Result<Self, StoreError> {
        let store = Self::new(Location::File(SqliteFile::new(path, access)?));
        store.migrate(access).await?;
        Ok(store)
    }

    fn new(location: Location) -> Self {
        Self {
            pool: Arc::new(Pool::new(location)),
            cursors: Arc::default(),
            skip_locked: Arc::default(),
        }
    }

    /// The file of the database; `None` where it is on a server.
    pub fn file(&self) -> Option<&Path> {
        let is_file = self.pool.server().is_none();
        is_file.then(|| Path::new(self.place()))
    }

    /// The database as errors and reports name it; never with a password.
    pub fn place(&self) -> &str {
        self.pool.name()
    }

    /// The database's clock; that of SQLite is the host's.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let Some(server) = self.pool.server() else {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            return Ok(Timestamp::from_millis(since_epoch.map_or(0, millis)));
        };
        let mut attempts = Attempts::default();
        loop {
            let mut pooled = self.pool.take(Lane::Read).await?;
            let now = pooled.connection().number(server.kind.clock()).await;
            if let Some(result) = attempts.judge(&self.pool, pooled, now).await {
                return result.map(Timestamp::from_millis);
            }
        }
    }
}
