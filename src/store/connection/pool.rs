//! The connections of one process to its database. A connection to a server is made to the first host that can be
//! written; SQLite has one connection that writes and one that reads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::Duration;

use smsq_process::boxed;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::dialect::Dialect;
use super::error::DatabaseError;
use super::sqlite::SqliteFile;
use super::url::{ServerKind, ServerUrl};
use super::{ConnectError, Connection, Driver, MakeObserver, mysql, postgres, sqlite};
use crate::error::{StoreError, StoreErrorKind};
#[cfg(any(test, feature = "testing"))]
use crate::testing::StillTime;

/// Connections to a server. All tasks of the process share them: the dispatcher, the heartbeat, maintenance, the
/// publisher, receipts, lookups of each provider, and reports. None is reserved.
const SERVER_CONNECTIONS: usize = 5;
/// How long to wait for the answer of a host.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Where the database is.
pub(crate) enum Location {
    File(SqliteFile),
    Server(ServerUrl),
}

/// How many pools of this process are in use.
static OPEN: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Waits until no task has a pool, and so none runs a statement.
#[boxed]
pub async fn all_closed() {
    // The sender lives as long as the process.
    let _ = OPEN.subscribe().wait_for(|open| *open == 0).await;
}

pub(crate) struct Pool {
    location: Location,
    /// The database as errors and reports name it.
    name: String,
    /// For writing, and if there is a second one, for reading.
    connections: Vec<IdleConnections>,
    /// The host that was used last. All connections use the same host while it works.
    current: AtomicUsize,
    /// For tests.
    observe: OnceLock<MakeObserver>,
}

struct IdleConnections {
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// A connection in use. Dropped without `give_back`, it is closed.
pub(crate) struct PooledConnection<'a> {
    pool: &'a Pool,
    kept: &'a IdleConnections,
    connection: Connection,
    _permit: SemaphorePermit<'a>,
    #[cfg(any(test, feature = "testing"))]
    _still: Option<StillTime>,
}

impl IdleConnections {
    fn new(most: usize) -> Self {
        Self { idle: Mutex::default(), permits: Semaphore::new(most) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        OPEN.send_modify(|open| *open -= 1);
    }
}

impl Pool {
    pub(crate) fn new(location: Location) -> Self {
        OPEN.send_modify(|open| *open += 1);
        let (name, limits) = match &location {
            Location::File(file) if file.is_only_read() => (file.path().to_owned(), vec![1]),
            Location::File(file) => (file.path().to_owned(), vec![1, 1]),
            Location::Server(url) => (url.to_string(), vec![SERVER_CONNECTIONS]),
        };
        Self {
            location,
            name,
            connections: limits.into_iter().map(IdleConnections::new).collect(),
            current: AtomicUsize::new(0),
            observe: OnceLock::new(),
        }
    }

    pub(super) fn observe(&self, make: MakeObserver) {
        assert!(self.observe.set(make).is_ok(), "it is observed already");
        // These have no observer.
        self.close_idle();
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self.server().map(|url| url.kind) {
            None => Dialect::Sqlite,
            Some(ServerKind::Postgres) => Dialect::Postgres,
            Some(ServerKind::Mysql) => Dialect::Mysql,
        }
    }

    /// The url of a server; `None` for a file.
    pub(crate) fn server(&self) -> Option<&ServerUrl> {
        match &self.location {
            Location::File(_) => None,
            Location::Server(url) => Some(url),
        }
    }

    /// An error if the path of a file does not lead to the one that is open any more.
    pub(super) fn check_file(&self) -> Result<(), StoreError> {
        match &self.location {
            Location::File(file) => file.check_path_is_open(),
            Location::Server(_) => Ok(()),
        }
    }

    /// The host that was used last.
    pub(super) fn host(&self) -> String {
        let Some(url) = self.server() else {
            return String::new();
        };
        let current = self.current.load(Ordering::Relaxed);
        match (&url.socket, url.hosts.get(current)) {
            (Some(socket), _) => socket.display().to_string(),
            (None, Some((host, port))) => format!("{host}:{port}"),
            (None, None) => String::new(),
        }
    }

    pub(crate) async fn take(&self, purpose: Purpose) -> Result<PooledConnection<'_>, StoreError> {
        let connections = match purpose {
            Purpose::Write => &self.connections[0],
            Purpose::Read => self.connections.last().unwrap_or(&self.connections[0]),
        };
        let permit = connections.permits.acquire().await.expect("the semaphore is never closed");
        #[cfg(any(test, feature = "testing"))]
        let still = self.server().and_then(|_| StillTime::begin());
        let idle = connections.idle.lock().ok().and_then(|mut idle| idle.pop());
        let connection = match idle {
            Some(connection) => connection,
            None => self.open(purpose).await?,
        };
        Ok(PooledConnection {
            pool: self,
            kept: connections,
            connection,
            _permit: permit,
            #[cfg(any(test, feature = "testing"))]
            _still: still,
        })
    }

    async fn open(&self, purpose: Purpose) -> Result<Connection, StoreError> {
        let mut connection = match &self.location {
            Location::Server(url) => self.connect(url).await?,
            Location::File(file) => {
                let connected = sqlite::in_place(|| file.connect(purpose == Purpose::Read))?;
                Connection::new(Driver::Sqlite(Box::new(connected)))
            }
        };
        connection.observer = self.observe.get().map(|make| make());
        Ok(connection)
    }

    /// Closes the connections that are not in use.
    pub(super) fn close_idle(&self) {
        for kept in &self.connections {
            if let Ok(mut idle) = kept.idle.lock() {
                idle.clear();
            }
        }
    }

    /// Tries the hosts, first the one that was used last.
    async fn connect(&self, url: &ServerUrl) -> Result<Connection, StoreError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut errors: Vec<(String, ConnectError)> = Vec::new();
        for step in 0..url.hosts.len() {
            let index = (first + step) % url.hosts.len();
            let (host, port) = &url.hosts[index];
            let connected = match url.kind {
                ServerKind::Postgres => postgres::connect(url, host, *port, CONNECT_TIMEOUT).await,
                ServerKind::Mysql => mysql::connect(url, host, *port, CONNECT_TIMEOUT).await,
            };
            match connected {
                Ok(connection) => {
                    if step > 0 {
                        tracing::warn!(host, port, "connected to another host of the database");
                    }
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => errors.push((format!("{host}:{port}"), error)),
            }
        }
        Err(self.unreachable(errors))
    }

    fn unreachable(&self, errors: Vec<(String, ConnectError)>) -> StoreError {
        // One of several hosts that may come back is worth waiting for.
        let is_temporary = |error: &ConnectError| {
            matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Replica)
        };
        let several = errors.len() > 1;
        let kind = match errors.first() {
            Some((_, only)) if !several => only.kind,
            Some((_, first)) if !errors.iter().any(|(_, error)| is_temporary(error)) => first.kind,
            _ => StoreErrorKind::Unavailable,
        };
        let reasons = errors.into_iter().map(|(host, error)| {
            if several { format!("{host}: {}", error.reason) } else { error.reason }
        });
        let reasons: Vec<String> = reasons.collect();
        StoreError::new(&self.name, kind, reasons.join("; "))
    }
}

impl PooledConnection<'_> {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The error of a statement on this connection, as callers see it.
    pub(crate) fn store_error(&self, error: &DatabaseError) -> StoreError {
        error.of(&self.pool.name)
    }

    /// Keeps the connection for the next query.
    pub(crate) fn give_back(self) {
        if let Ok(mut idle) = self.kept.idle.lock() {
            idle.push(self.connection);
        }
    }

    /// Rolls back, and keeps the connection if that succeeds.
    pub(super) async fn roll_back(mut self) {
        if self.can_roll_back().await {
            self.give_back();
        }
    }

    /// Rolls back; false if the connection is lost.
    pub(super) async fn can_roll_back(&mut self) -> bool {
        let is_sqlite = self.connection.is_sqlite();
        let rolled_back =
            tokio::time::timeout(CONNECT_TIMEOUT, self.connection.run("ROLLBACK")).await;
        // SQLite reports an error where no transaction is open.
        is_sqlite || matches!(rolled_back, Ok(Ok(())))
    }

    /// Closes this connection and the idle ones, which are likely to be lost too.
    pub(super) fn close_all(self) {
        self.pool.close_idle();
    }
}
