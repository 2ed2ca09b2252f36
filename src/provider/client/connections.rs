//! The connections of one provider's client. A request starts when its first byte is written, so its connection must
//! be ready (DNS, TCP, TLS) before the last check of permit, lease, window and expiry:
//!
//! ```text
//!   planner             request (a task)          opener                    sender
//!   ───────             ────────────────          ──────                    ──────
//!   prepare(n, rate) ─────────────────────────►  opens what is missing
//!     │                                            │
//!     │ ready: only as many                        ▼
//!     │ permits are asked for                    ┌───────────────┐
//!     ▼                                          │ Host.ready    │ opened, never used; closed after `KEPT`
//!   claim + permit ──► reserve()                 │ Host.idle     │ in the sender's pool, used before
//!                      connect() ── none open ─► └───────────────┘
//!                        │  waits until one is     ▲    │
//!                        ▼                         │    │
//!                      waits for its permit        │    │
//!                      last check                  │    ▼
//!                      exchange(until) ────────────┼─► takes a connection, writes, reads
//!                        ▲                         │    │    │
//!                        └── NotConnected:         └────│────┘ kept open: idle again
//!                            none was left              │
//!                            (nothing was sent)         └─ none within `HANDOVER` or by `until`
//! ```
//!
//! - There are two `reqwest` clients, because a client can neither open a connection without a request nor say whether
//!   it has one. The **opener** asks its connector for a connection and gets the error [`Opened`]: the connector has
//!   put the connection into `Host.ready`, and the request is not sent. The **sender**'s connector opens none: where
//!   the pool of the client is empty it takes a connection from `Host.ready`, else it fails with [`NotReady`], which
//!   proves that nothing was sent.
//! - A connector sees only the URL, so the task-local [`TARGET`] tells it the host by which connections are counted, and
//!   the instant after which a request must not start.
//! - [`IdleConnections::reserve`] only counts: [`IdleConnections::prepare`] does not offer reserved connections to
//!   further requests. A reservation ends when its request starts, and then the count of open connections falls instead.
//!   It is not tied to a connection: whichever is free at the start is used, and a request that finds none repeats from
//!   `connect`.
//! - `Host.idle` is an estimate of the pool, which cannot be asked: it grows with each response whose connection stays
//!   open, shrinks with each start, and is set to nothing when the sender finds none. A wrong estimate costs a repeated
//!   `connect`, never a late start.
//! - How many connections are opened ahead follows the rate and the time that opening took, and grows by [`MORE`] with
//!   each success, so that a server with a small limit is not flooded. While connecting fails, none are.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

/// How long a connection that was opened ahead is kept without use.
const KEPT: Duration = Duration::from_secs(3);
/// The most connections that are being opened at once. Many servers queue no more than about a hundred, and drop others:
/// those are tried again after a second.
pub(super) const MAX_OPENING: usize = 100;
/// Each opened connection allows this many more.
const MORE: u32 = 3;
/// How long a request waits for a connection that another request is returning.
const HANDOVER: Duration = Duration::from_millis(5);

type BoxError = Box<dyn Error + Send + Sync>;

/// The destination of the request of a task.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    /// Scheme, host and port of its URL.
    pub(super) host: Arc<str>,
    /// The request must not start after this.
    pub(super) until: Option<Instant>,
}

tokio::task_local! {
    pub(super) static TARGET: Destination;
}

/// The connection was opened and is kept; the request that asked for it is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the connection is open")]
pub(super) struct Opened;

/// No connection was ready: the request was certainly not sent.
#[derive(Debug, thiserror::Error)]
#[error("no connection is ready")]
pub(super) struct NotReady;

/// The open, unused connections by host.
#[derive(Debug)]
pub(super) struct IdleConnections {
    hosts: Mutex<HashMap<String, Host>>,
    added: Notify,
    opening_slots: Semaphore,
    idle_for: Duration,
    reserved: AtomicU32,
}

#[derive(Debug, Default)]
struct Host {
    /// Opened ahead and never used, the newest last.
    ready: VecDeque<(Box<dyn Any + Send>, Instant)>,
    /// When the connections in the client's pool were last used. The server may have closed some of them: then a
    /// request finds none, and is not sent.
    idle: VecDeque<Instant>,
    opening: u32,
    /// How many more than one may be prepared: grows with each opened connection, and shrinks with each unused one.
    width: u32,
    /// How long opening one took recently.
    took: Duration,
    /// The last attempt to connect failed.
    is_failing: bool,
}

/// Reserves a connection for one request that starts soon.
#[derive(Debug)]
pub struct ReservedConnection(Arc<IdleConnections>);

impl Drop for ReservedConnection {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IdleConnections {
    pub(super) fn new(idle_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            hosts: Mutex::default(),
            added: Notify::new(),
            opening_slots: Semaphore::new(MAX_OPENING),
            idle_for,
            reserved: AtomicU32::new(0),
        })
    }

    /// A client with this layer only opens connections and keeps them, or only uses those that are open.
    pub(super) fn layer<S>(
        self: &Arc<Self>,
        opens: bool,
    ) -> impl Layer<S, Service = Connector<S>> + Clone + use<S> {
        let connections = Arc::clone(self);
        layer_fn(move |inner| Connector {
            connections: Arc::clone(&connections),
            opens,
            inner,
        })
    }

    pub(super) fn reserve(self: &Arc<Self>) -> ReservedConnection {
        self.reserved.fetch_add(1, Ordering::Relaxed);
        ReservedConnection(Arc::clone(self))
    }

    /// How many of `calls` more requests have a connection, without the reserved ones, and how many connections to open
    /// now: enough for the requests that may start at this rate until they are open, and for `ahead` after that. While
    /// connecting fails, none are opened ahead.
    pub(super) fn prepare(
        &self,
        host: &str,
        calls: u32,
        per_second: Option<f64>,
        ahead: Duration,
    ) -> (u32, u32) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        self.with(host, |host| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates, and rates are positive"
            )]
            let needed = |rate: f64| (rate * (ahead + host.took).as_secs_f64()).ceil() as u32;
            let count = per_second.map_or(calls, |rate| needed(rate).min(calls));
            if host.is_failing {
                return (count, 0);
            }
            let open = host.open();
            let target = reserved.saturating_add(count.min(host.width.saturating_add(1)));
            let missing = target.saturating_sub(open.saturating_add(host.opening));
            host.opening += missing;
            (open.saturating_sub(reserved), missing)
        })
    }

    /// Whether a request finds a connection.
    pub(super) fn is_ready(&self, host: &str) -> bool {
        self.with(host, |host| host.open() > 0)
    }

    pub(super) fn record_opening(&self, host: &str) {
        self.with(host, |host| host.opening += 1);
    }

    /// Waits until another connection may be opened; the slot is free again when it is dropped.
    pub(super) async fn opening_slot(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.opening_slots.acquire().await.ok()
    }

    /// A connection was opened in this time; `None`: it could not be opened.
    pub(super) fn record_opened(&self, host: &str, took: Option<Duration>) {
        self.with(host, |host| {
            host.opening = host.opening.saturating_sub(1);
            host.is_failing = took.is_none();
            match took {
                Some(took) => {
                    host.width = host.width.saturating_add(MORE);
                    host.took = took.max(host.took / 2);
                }
                None => host.width = 0,
            }
        });
    }

    /// A request starts on the most recently used connection, if there is one.
    pub(super) fn record_start(&self, host: &str) {
        self.with(host, |host| host.idle.pop_back());
    }

    /// A response was read to its end, and its connection stays open.
    pub(super) fn record_idle(&self, host: &str) {
        self.with(host, |host| host.idle.push_back(Instant::now()));
    }

    /// The client has no open connection.
    pub(super) fn record_none(&self, host: &str) {
        self.with(host, |host| host.idle.clear());
    }

    /// Closes connections that were not used for long.
    pub(super) async fn close_unused(&self, host: &str) {
        tokio::time::sleep(KEPT).await;
        self.with(host, |_| ());
    }

    fn add(&self, host: &str, connection: Box<dyn Any + Send>) {
        self.with(host, |host| {
            host.ready.push_back((connection, Instant::now()));
        });
        self.added.notify_waiters();
    }

    /// An open connection; waits shortly for one that another request is returning.
    async fn take<C>(&self, target: &Destination) -> Result<C, BoxError>
    where
        C: Read + Unpin + Send + 'static,
    {
        let last = Instant::now() + HANDOVER;
        let last = target.until.map_or(last, |until| until.min(last));
        loop {
            let mut added = pin!(self.added.notified());
            added.as_mut().enable();
            while let Some((connection, _)) = self.with(&target.host, |host| host.ready.pop_back())
            {
                if let Ok(mut connection) = connection.downcast::<C>()
                    && is_open(&mut *connection)
                {
                    return Ok(*connection);
                }
            }
            if timeout_at(last, added).await.is_err() {
                return Err(NotReady.into());
            }
        }
    }

    fn with<T>(&self, name: &str, work: impl FnOnce(&mut Host) -> T) -> T {
        // No panic can leave it inconsistent.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get_mut(name) {
            host.close_unused(self.idle_for);
            return work(host);
        }
        work(hosts.entry(name.to_owned()).or_default())
    }
}

impl Host {
    /// Connections that a request may find.
    fn open(&self) -> u32 {
        u32::try_from(self.ready.len() + self.idle.len()).unwrap_or(u32::MAX)
    }

    fn close_unused(&mut self, idle_for: Duration) {
        while let Some(since) = self.idle.front()
            && since.elapsed() >= idle_for
        {
            self.idle.pop_front();
        }
        while let Some((_, since)) = self.ready.front()
            && since.elapsed() >= KEPT
        {
            self.ready.pop_front();
            self.width = self.width.saturating_sub(MORE);
        }
    }
}

/// Whether the server has neither closed the connection nor sent anything.
fn is_open(connection: &mut (impl Read + Unpin)) -> bool {
    let mut byte = [0; 1];
    let mut buffer = ReadBuf::new(&mut byte);
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(connection)
        .poll_read(&mut context, buffer.unfilled())
        .is_pending()
}

#[derive(Clone)]
pub(super) struct Connector<S> {
    connections: Arc<IdleConnections>,
    opens: bool,
    inner: S,
}

impl<S, R> Service<R> for Connector<S>
where
    S: Service<R, Error = BoxError>,
    S::Response: Read + Unpin + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connections = Arc::clone(&self.connections);
        let target = TARGET.try_with(Destination::clone);
        let connecting = self.opens.then(|| self.inner.call(request));
        Box::pin(async move {
            let target = target?;
            let Some(connecting) = connecting else {
                return connections.take(&target).await;
            };
            connections.add(&target.host, Box::new(connecting.await?));
            Err(Opened.into())
        })
    }
}
