//! The queue in a database, and the only crate with SQL. Every query is written once for SQLite, PostgreSQL, MySQL
//! and MariaDB; `connection/` has what differs between them.

mod audit;
mod campaigns;
mod connection;
mod error;
mod events;
mod intake;
mod limits;
mod migrate;
mod queue;
mod raw;
mod receipts;
mod recipients;
pub mod report;
mod retention;
mod source;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use diesel::dsl::sql;
use diesel::select;
use diesel::sql_types::BigInt;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use smsq_message::age::Age;
use smsq_message::event::Subscriptions;
use smsq_message::secret::Secret;
use smsq_message::sms::{Timestamp, millis};
use smsq_process::boxed;

use connection::{
    Dialect, Location, Pool, ServerKind, ServerUrl, SqliteFile, transaction, with_password,
};

pub use audit::{AuditEntry, Audited, STATE_VERBS};
pub use campaigns::approval_decisions::{ApprovalResult, ApprovalSubject, WaitingApproval};
pub use campaigns::approvals::{ApprovalGate, ListApproval};
pub use campaigns::campaign::{
    BudgetChange, Campaign, CampaignChange, CampaignSettings, NewCampaign, SettingChange,
    WindowChange,
};
pub use campaigns::schedules::{
    INTERRUPTED, MissedRun, NewRun, NextRun, RunCounts, ScheduleRow, ScheduleRun, ScheduleRunState,
    ScheduleSettings,
};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use connection::fuzz_server_url;
#[doc(hidden)]
pub use connection::{
    InDialects, ObservedStatement, Observer, record_statements, recorded_statements,
};
pub use connection::{Probe, all_closed};
pub use error::{StoreError, StoreErrorKind};
pub use events::hooks::{Delivered, HookRow, OutboxCounts, Outgoing};
pub use events::outbox::NewEvent;
pub use intake::enqueue::Enqueued;
pub use intake::imports::{ImportApproval, ImportBatch, ImportTexts};
pub use intake::posted::{IntakeKey, PostResult, PostedBatch, PostedKeys};
pub use limits::budget_count::{CountStep, UncountedBudget};
pub use limits::spending::MonthSpent;
pub use queue::commit_batch::{CommitBatch, CommitResult, Orphans, ProviderClaimed, ProviderPause};
pub use queue::commit_count::CommitCount;
pub use queue::lanes::{Failover, SenderQueue};
pub use queue::lost_claims::{Redone, StartedClaim};
pub use queue::operator::{Expired, NamedMessages, QueuePosition, RetryFilter};
pub use queue::permits::limits::{SinglePermit, SingleRequest};
pub use queue::queue_state::{QueuedCampaign, QueuedLane};
pub use queue::results::attempts::{FailedAttempt, KEPT as KEPT_ATTEMPTS};
pub use queue::stops::CampaignStop;
pub use queue::unknown::{Due, ResendReason, Unknown};
pub use queue::watch::WatchedCampaign;
pub use queue::workers::{NewWorker, SendingMessage, Worker};
pub use receipts::awaiting::{AwaitingSms, PullLease, TriedAt};
pub use receipts::inbox::ReceiptsApplied;
pub use recipients::replies::{KeptReply, NewReply};
pub use recipients::suppression::Suppressed;
pub use report::{FoundSms, SmsFilter};
pub use retention::purge::{Purge, Purged, RetentionConfig};
pub use retention::removal::Removal;
pub use source::{RowWriter, SourceConfig, SourceDatabase, SourceError, SourceQuery};
pub use tables::campaign_filter::CampaignFilter;
pub use tables::campaign_status::CampaignStatus;
pub use tables::mode::Mode;
pub use tables::values::{POSTED, REMOVED_CAMPAIGNS};

/// The most rows that an administrative command moves in one transaction.
const CHUNK: i64 = 1_000;

/// The value of a column for a count.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The count in a column.
fn positive(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `sqlite://PATH`, `postgres://…` or `mysql://…`.
    pub url: Secret<String>,
    /// The password of a server if the URL has none.
    pub password: Secret<String>,
    /// A file with the password if `url` and `password` have none.
    pub password_file: Secret<String>,
}

impl Config {
    /// The URL with the password.
    fn url_with_password(&self) -> Result<SecretString, StoreError> {
        let mut password = self.password.expose().clone();
        let file = self.password_file.expose();
        if password.is_empty() && !file.is_empty() {
            password = std::fs::read_to_string(file).map_err(|error| {
                let reason = format!("cannot read the password of the database: {error}");
                StoreError::new("database.password_file", StoreErrorKind::Url, reason)
            })?;
        }
        let password = password.trim_end_matches(['\r', '\n']);
        Ok(if password.is_empty() {
            self.url.expose().as_str().into()
        } else {
            with_password(self.url.expose(), password).into()
        })
    }
}

/// What opening a database may do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Create it if it is missing.
    Create,
    /// It must exist.
    Existing,
    /// It must exist, and nothing is written.
    Read,
}

/// The database that holds the queue.
#[derive(Clone)]
pub struct Store {
    pool: Arc<Pool>,
    mode: Mode,
    cursors: Arc<queue::claim::ClaimCursors>,
    /// How long a query or transaction may take; `None`: as long as it needs.
    limit: Option<Duration>,
    /// Numbers that were found not to exist within this age are skipped.
    skip_dead: Option<Age>,
    /// What hooks want to know.
    subscriptions: Arc<Subscriptions>,
}

/// Groups of operations on the same database.
macro_rules! groups {
    ($(#[$about:meta] $name:ident: $Group:ident,)*) => {
        $(
            #[$about]
            #[derive(Clone, Copy)]
            pub struct $Group<'a>(&'a Store);

            impl std::ops::Deref for $Group<'_> {
                type Target = Store;

                fn deref(&self) -> &Store {
                    self.0
                }
            }
        )*

        impl Store {
            $(
                #[$about]
                pub fn $name(&self) -> $Group<'_> {
                    $Group(self)
                }
            )*
        }
    };
}

groups! {
    /// Hooks, their events, and campaigns that events will be about.
    hooks: HookStore,
    /// Imports, and the messages that they queue.
    imports: ImportStore,
    /// Delivery receipts, and the messages that await them.
    receipts: ReceiptStore,
    /// Messages that recipients sent.
    replies: ReplyStore,
    /// Queries for reports.
    report: ReportStore,
    /// Campaigns that are imported from a query again and again, and their runs.
    schedules: ScheduleStore,
    /// The suppression list.
    suppression: SuppressionStore,
    /// Workers, and the messages of dead ones.
    workers: WorkerStore,
}

impl Store {
    /// Opens the database that the configuration names. If its tables are created, it is for `mode`.
    #[boxed]
    pub async fn of(config: &Config, access: Access, mode: Mode) -> Result<Self, StoreError> {
        let url = config.url_with_password()?;
        Self::open_for(url.expose_secret(), access, mode).await
    }

    /// Connects, and creates the tables if they are missing and `access` allows it.
    #[boxed]
    pub async fn open(url: &str, access: Access) -> Result<Self, StoreError> {
        Self::open_for(url, access, Mode::Real).await
    }

    /// The same; if the tables are created, the database is for `created_for`.
    #[boxed]
    pub async fn open_for(
        url: &str,
        access: Access,
        created_for: Mode,
    ) -> Result<Self, StoreError> {
        let mut store = Self::at(url, access, created_for)?;
        store.refuse_pooler().await?;
        store.mode = store.migrate(access, created_for).await?;
        Ok(store)
    }

    /// A database whose tables were not looked at.
    fn at(url: &str, access: Access, mode: Mode) -> Result<Self, StoreError> {
        let Some((scheme, path)) = url.split_once(':') else {
            // The value may be a password in the wrong place.
            let reason = "invalid database URL: write a file as `sqlite://smsq.db`";
            return Err(StoreError::new("database", StoreErrorKind::Url, reason));
        };
        let location = if scheme == "sqlite" {
            let path = path.strip_prefix("//").unwrap_or(path);
            Location::File(SqliteFile::new(path, access)?)
        } else {
            let error = |reason: String| {
                StoreError::new(format!("{scheme}:…"), StoreErrorKind::Url, reason)
            };
            let kind = ServerKind::of(scheme).ok_or_else(|| {
                let reason = "unknown kind of database: use `sqlite://PATH`, \
                     `postgres://user@host/database` or `mysql://user@host/database`";
                error(reason.to_owned())
            })?;
            let mut server = ServerUrl::parse(kind, url).map_err(error)?;
            server.is_only_read = access == Access::Read;
            Location::Server(server)
        };
        Ok(Self {
            pool: Arc::new(Pool::new(location)),
            mode,
            cursors: Arc::default(),
            limit: None,
            skip_dead: None,
            subscriptions: Arc::default(),
        })
    }

    /// The same database for callers that cannot wait: each query and each transaction fails after `limit`, including
    /// its waits for a connection and for locks, and repetitions after a conflict.
    #[must_use]
    pub fn limited(&self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self.clone() }
    }

    /// Stores events for these hooks.
    #[must_use]
    pub fn with_subscriptions(mut self, subscriptions: Arc<Subscriptions>) -> Self {
        self.subscriptions = subscriptions;
        self
    }

    /// What hooks want to know.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Takes what every writer needs: on SQLite the lock of the file, on a server a transaction.
    #[boxed]
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        transaction!(self, |connection| connection.run("SELECT 1"))
    }

    /// The file of the database; `None` if it is on a server.
    pub fn file(&self) -> Option<&Path> {
        let is_file = self.pool.server().is_none();
        is_file.then(|| Path::new(self.location()))
    }

    /// The error where a statement takes too long.
    pub fn no_answer(&self) -> StoreError {
        let reason = "does not answer";
        StoreError::new(self.location(), StoreErrorKind::Unavailable, reason)
    }

    fn dialect(&self) -> Dialect {
        self.pool.dialect()
    }

    /// The path or URL of the database, without a password.
    pub fn location(&self) -> &str {
        self.pool.name()
    }

    /// The time by the clock of the database; with SQLite, of this machine.
    #[boxed]
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let Some(server) = self.pool.server() else {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            return Ok(Timestamp::from_millis(since_epoch.map_or(0, millis)));
        };
        self.read_one(select(sql::<BigInt>(server.kind.clock()))).await
    }
}
