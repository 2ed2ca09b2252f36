//! The practice gateway: an HTTP server that accepts messages, counts them and simulates faults; no phone gets any.
//! `POST /messages` with JSON `to, text, reference, from` returns 201 with `id, segments`. A list of messages returns
//! 200 with a list of results, each with the `status` and the body of a single message. `GET /stats` returns the
//! counts, `GET /messages` the accepted messages.
//!
//! A known reference returns 200 with the same id. Reserved numbers trigger faults, "once" meaning once per reference,
//! or per recipient and text without one. Every other number is an ordinary recipient:
//!
//! | number | what happens |
//! | --- | --- |
//! | +1 500 555 0xxx | accepted, but a router answers 503, without a code, once |
//! | +1 500 555 1xxx | 400, code `invalid_recipient`, always |
//! | +1 500 555 2xxx | 400, code `opted_out`, always |
//! | +1 500 555 3xxx | 503, code `overloaded`, once; then accepted |
//! | +1 500 555 4xxx | 429 with `Retry-After: 1`, code `rate_limited`, once; then accepted |
//! | +1 500 555 5xxx | accepted, but the connection is dropped, once |
//! | +1 500 555 6xxx | accepted, but the response is late, once |
//! | +1 500 555 7xxx | accepted, but the response is cut, once |
//! | +1 500 555 8xxx | 503, always |
//! | +1 500 555 9xxx | 401, code `account_suspended`, always |
//!
//! Every accepted message gets a delivery receipt. `GET /receipts?limit=` returns each receipt once, `GET
//! /messages?since=&until=&page=&limit=` the messages of a span of time with their states, `GET /messages/ID` one
//! message, `GET /outcomes` what became of each. Table `receipts` of the faults file says what is unusual.
//!
//! In a list, replaced, dropped, late and cut responses apply to the whole list, all other faults to the result of the message.

mod answer;
mod counters;
mod faults;
mod log;
mod poster;
mod receipts;
mod server;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use url::Url;

use counters::Counters;
pub use counters::{AcceptedMessage, MessageOutcome, Stats};
pub use faults::{FaultRate, Faults, Outage, ReceiptFaults};
use log::EventLog;

/// How the gateway behaves; by default fast and without faults.
#[derive(Clone, Debug, Default)]
pub struct SandboxConfig {
    /// The time between a request and its response.
    pub latency: Duration,
    /// The most that is added to the latency, at random.
    pub jitter: Duration,
    pub faults: Faults,
    /// Whether a known reference is accepted again.
    pub ignore_references: bool,
    /// Whether a list with a rejected message is rejected as a whole.
    pub all_or_none: bool,
    /// The most messages in any second; more are answered 429.
    pub limit: Option<NonZeroU32>,
    /// Where receipts are posted: an `http://` URL.
    pub receipts_to: Option<Url>,
    /// A file, opened to append, that gets a line for each arrival and each acceptance.
    pub log: Option<Arc<File>>,
}

/// A running gateway. Ends soon after it is dropped; [`Sandbox::stop`] waits for the end.
pub struct Sandbox {
    address: SocketAddr,
    state: Arc<Shared>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

/// Shared by all connections.
struct Shared {
    config: SandboxConfig,
    counters: Mutex<Counters>,
    /// When sent: closes the listener for this long, and each connection after its current request.
    refuse: watch::Sender<Duration>,
    log: Option<Arc<EventLog>>,
    /// How many HTTP requests with messages arrived.
    received: AtomicU64,
}

impl Shared {
    /// Ignores poisoning: a panic elsewhere does not change the counts.
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sandbox {
    /// Listens at once and serves in the background; must be called within a tokio runtime.
    pub fn start(listen: SocketAddr, config: SandboxConfig) -> io::Result<Self> {
        let listener = server::listen(listen)?;
        let address = listener.local_addr()?;
        let log = config.log.clone().map(|file| Arc::new(EventLog::new(file)));
        let state = Arc::new(Shared {
            counters: Mutex::new(Counters::new(&config)),
            refuse: watch::Sender::new(Duration::ZERO),
            log: log.clone(),
            received: AtomicU64::new(0),
            config,
        });
        let (stop, stopped) = watch::channel(false);
        let post = poster::post_receipts(Arc::clone(&state), stopped.clone());
        let serve = server::serve(listener, address, Arc::clone(&state), stopped);
        let server = tokio::spawn(async move {
            let watching = log.map(|log| tokio::spawn(log.watch()));
            tokio::join!(serve, post);
            if let Some(watching) = watching {
                watching.abort();
            }
        });
        Ok(Self { address, state, stop, server })
    }

    /// The address it listens on, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:8025`, for the `url` of a provider section.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn stats(&self) -> Stats {
        self.state.counters().stats()
    }

    /// Accepted messages, oldest first.
    pub fn messages(&self) -> Vec<AcceptedMessage> {
        self.state.counters().messages(None, usize::MAX)
    }

    /// What becomes of every accepted and every rejected message.
    pub fn outcomes(&self) -> Vec<MessageOutcome> {
        self.state.counters().outcomes()
    }

    /// Drops all connections and ends all tasks.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A panic of the server was already logged.
        let _ = self.server.await;
    }
}
