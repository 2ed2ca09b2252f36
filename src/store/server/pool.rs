//! A server's connections: a few, kept while they are good, and made anew to the first host that can be
//! written.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use diesel::result::Error;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::address::{Address, Engine};
use super::link::Link;
use super::{Refusal, Symptom, mysql, postgres};
use crate::store::{Fault, StoreError};

/// Connections of one process: the clerk, its heartbeat, and what looks on.
const MOST: usize = 4;
/// A host that does not answer within this is passed over.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Pool {
    address: Address,
    place: String,
    idle: Mutex<Vec<Link>>,
    permits: Semaphore,
    /// The host that was taken last: all stay with one while it is good.
    current: AtomicUsize,
}

/// A connection in use.
pub(in crate::store) struct Reservation<'a> {
    pool: &'a Pool,
    link: Link,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(address: Address) -> Self {
        Self {
            place: address.to_string(),
            address,
            idle: Mutex::default(),
            permits: Semaphore::new(MOST),
            current: AtomicUsize::new(0),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The host that was taken last.
    pub(super) fn host(&self) -> String {
        let current = self.current.load(Ordering::Relaxed);
        match (&self.address.socket, self.address.hosts.get(current)) {
            (Some(socket), _) => socket.display().to_string(),
            (None, Some((host, port))) => format!("{host}:{port}"),
            (None, None) => String::new(),
        }
    }

    pub(super) async fn take(&self) -> Result<Reservation<'_>, StoreError> {
        let permit = self.permits.acquire().await;
        let permit = permit.expect("the semaphore is never closed");
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let link = match idle {
            Some(link) => link,
            None => self.connect().await?,
        };
        Ok(Reservation {
            pool: self,
            link,
            _permit: permit,
        })
    }

    /// Tries the hosts, first the one that was good last.
    async fn connect(&self) -> Result<Link, StoreError> {
        let hosts = &self.address.hosts;
        let first = self.current.load(Ordering::Relaxed);
        let mut refusals: Vec<(String, Refusal)> = Vec::new();
        for step in 0..hosts.len() {
            let index = (first + step) % hosts.len();
            let (host, port) = &hosts[index];
            let connected = match self.address.engine {
                Engine::Postgres => postgres::connect(&self.address, host, *port, PATIENCE).await,
                Engine::Mysql => mysql::connect(&self.address, host, *port, PATIENCE).await,
            };
            match connected {
                Ok(link) => {
                    if step > 0 {
                        tracing::warn!(host, port, "the database is reached at another host");
                    }
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(refusal) => refusals.push((format!("{host}:{port}"), refusal)),
            }
        }
        Err(self.unreachable(refusals))
    }

    fn unreachable(&self, refusals: Vec<(String, Refusal)>) -> StoreError {
        // Of several, one that may come back is worth waiting for.
        let passes = |refusal: &Refusal| matches!(refusal.fault, Fault::Away | Fault::Replica);
        let several = refusals.len() > 1;
        let fault = if several && refusals.iter().any(|(_, refusal)| passes(refusal)) {
            Fault::Away
        } else {
            refusals.first().map_or(Fault::Away, |(_, one)| one.fault)
        };
        let reasons: Vec<String> = refusals
            .into_iter()
            .map(|(host, refusal)| {
                if several {
                    format!("{host}: {}", refusal.reason)
                } else {
                    refusal.reason
                }
            })
            .collect();
        StoreError::new(&self.place, fault, reasons.join("; "))
    }
}

impl Reservation<'_> {
    pub(in crate::store) fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    pub(super) fn symptom(&self, error: &Error) -> Symptom {
        match self.link {
            Link::Postgres(_) => postgres::symptom(error),
            Link::Mysql(_) => mysql::symptom(error),
        }
    }

    /// For the next one who needs a connection.
    pub(in crate::store) fn give_back(self) {
        if let Ok(mut idle) = self.pool.idle.lock() {
            idle.push(self.link);
        }
    }

    pub(super) async fn roll_back(mut self) {
        if self.can_roll_back().await {
            self.give_back();
        }
    }

    /// Rolls back what was begun; false when the connection is gone.
    pub(super) async fn can_roll_back(&mut self) -> bool {
        let rolled_back = tokio::time::timeout(PATIENCE, self.link.run("ROLLBACK")).await;
        matches!(rolled_back, Ok(Ok(())))
    }

    /// This connection is gone, and so are the idle ones beside it.
    pub(super) fn drop_all(self) {
        if let Ok(mut idle) = self.pool.idle.lock() {
            idle.clear();
        }
    }
}
