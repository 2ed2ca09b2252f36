//! The practice gateway: a real HTTP server that takes messages, delivers none, keeps count of everything
//! and misbehaves on request. `POST /messages` with JSON `to, text, reference, from` answers 201 with
//! `id, segments`; a list of such messages answers 200 with a list of results, each with the `status` and the
//! body that its message would have had alone. `GET /stats` and `GET /messages` tell what it has seen.
//!
//! The same reference again answers 200 with the same id. These numbers are reserved and make it misbehave, "once"
//! being per reference (without one: per recipient and text); every other number is a plain recipient:
//!
//! | number | what happens |
//! | --- | --- |
//! | +1 500 555 1xxx | 400, code `invalid_recipient`, always |
//! | +1 500 555 2xxx | 400, code `opted_out`, always |
//! | +1 500 555 3xxx | 503, code `overloaded`, once; then accepted |
//! | +1 500 555 4xxx | 429 with `Retry-After: 1`, code `rate_limited`, once; then accepted |
//! | +1 500 555 5xxx | accepted, then the connection is dropped instead of an answer, once |
//! | +1 500 555 6xxx | accepted, but answered too late, once |
//! | +1 500 555 7xxx | accepted, but the answer's body is cut, once |
//! | +1 500 555 8xxx | 503, always |
//! | +1 500 555 9xxx | 401, code `account_suspended`, always |
//!
//! In a list, what keeps an answer from coming keeps the list's; all else stands in the message's own result.

mod answer;
pub mod faults;
mod ledger;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use faults::{Away, Faults, FaultsError, Share};
use ledger::Ledger;
pub use ledger::{Entry, Stats};

/// How the gateway behaves; by default it is quick and faultless.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Between a request and its answer.
    pub latency: Duration,
    /// Up to so much is added to the latency.
    pub jitter: Duration,
    pub faults: Faults,
    /// One message per reference.
    pub honour_references: bool,
    /// A list with a message that is rejected is turned down as a whole.
    pub all_or_none: bool,
    /// So many orders in any second; more are answered 429.
    pub limit: Option<NonZeroU32>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            faults: Faults::default(),
            honour_references: true,
            all_or_none: false,
            limit: None,
        }
    }
}

/// Why the gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("`{address}` is in use by another program\nhint: choose another port with `--listen`")]
    InUse { address: SocketAddr },
    #[error("cannot listen on `{address}`")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
}

/// A running gateway. Dropped without [`Sandbox::stop`], it ends by itself soon after.
#[derive(Debug)]
pub struct Sandbox {
    address: SocketAddr,
    desk: Arc<Desk>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

/// What all connections share.
#[derive(Debug)]
struct Desk {
    behaviour: Behaviour,
    ledger: Mutex<Ledger>,
}

impl Desk {
    /// A panic elsewhere leaves the counts as they are.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// Listens at once and serves in the background; must be called within a tokio runtime.
    pub fn start(listen: SocketAddr, behaviour: Behaviour) -> Result<Self, SandboxError> {
        let fault = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => SandboxError::InUse { address: listen },
            _ => SandboxError::Listen {
                address: listen,
                source,
            },
        };
        let listener = server::listen(listen).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let desk = Arc::new(Desk {
            ledger: Mutex::new(Ledger::new(&behaviour)),
            behaviour,
        });
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(server::serve(listener, address, Arc::clone(&desk), stopped));
        Ok(Self {
            address,
            desk,
            stop,
            server,
        })
    }

    /// Where it listens, with the port it was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:8025`, for the `url` of a stanza.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn stats(&self) -> Stats {
        self.desk.ledger().stats()
    }

    /// The accepted messages behind the first `after`, oldest first, at most `limit`.
    pub fn messages(&self, after: usize, limit: usize) -> Vec<Entry> {
        self.desk.ledger().messages(after, limit, None)
    }

    /// Drops all connections and ends; no task stays behind.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A panic of the server is in the log already, and it has ended all the same.
        let _ = self.server.await;
    }
}
