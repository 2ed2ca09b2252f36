//! The connections of one provider's client. A request starts when its first byte is written, so it has an open
//! connection (DNS, TCP, TLS) before the last check of permit, lease, window and expiry:
//!
//! ```text
//!   planner             request (a task)               opener
//!   ───────             ────────────────               ──────
//!   prepare(n, rate) ──────────────────────────────►  opens what is missing
//!     │                                                 │
//!     │ ready: only as many                             ▼
//!     │ permits are asked for                    ┌───────────────┐
//!     ▼                                          │   Host.idle   │ closed after `KEPT`, or after the
//!   claim + permit ──► reserve()                 └───────────────┘ setting `idle` once it was used
//!                      connect() ── takes one ◄──────┘       ▲
//!                        │ or opens one                      │
//!                      waits for its permit                  │
//!                      last check                            │
//!                      exchange(connection) ─────────────────┘ kept open
//!                        │ writes, reads
//!                        └── NotConnected: it was closed meanwhile (nothing was sent)
//! ```
//!
//! - A client of `reqwest` opens connections, but gives none away. So its connector makes each connection ready for
//!   `hyper` and returns it in the error [`Opened`]: the request that asked for it is not sent.
//! - [`Connections::reserve`] only counts: [`Connections::prepare`] does not offer reserved connections to further
//!   requests. A reservation ends when its request has its connection.
//! - How many connections are opened ahead follows the rate and the time that opening took, and grows by [`MORE`] with
//!   each success, so that a server with a small limit is not flooded. While connecting fails, none are.

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::Connection;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

/// How long a connection that was opened ahead is kept without use.
const KEPT: Duration = Duration::from_secs(3);
/// The most connections that are being opened at once. Many servers queue no more than about a hundred, and drop others:
/// those are tried again after a second.
pub(super) const MAX_OPENING: usize = 100;
/// Each opened connection allows this many more.
const MORE: u32 = 3;

/// Marks a response that may be a second answer to the request before, as proxies send one: HTTP/1.1 tells answers apart by
/// their order only. It refuses the request, and ended a connection that was used before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaybeStray {
    /// The server also ends new connections with its refusals.
    pub(crate) is_habit: bool,
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Where requests go.
#[derive(Debug)]
pub(super) struct Destination {
    uri: Uri,
    /// Scheme, host and port, without the default port, by which connections are counted.
    pub(super) host: String,
    /// Header `Host`.
    pub(super) authority: HeaderValue,
}

impl Destination {
    /// `None`: the URI is not absolute.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let usual = if scheme == "https" { 443 } else { 80 };
        let host = authority.host().to_ascii_lowercase();
        let authority = match authority.port_u16().filter(|port| *port != usual) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        Some(Self {
            uri: uri.clone(),
            host: format!("{scheme}://{authority}"),
            authority: authority.try_into().ok()?,
        })
    }

    pub(super) fn is_of(&self, uri: &Uri) -> bool {
        uri.scheme() == self.uri.scheme() && uri.authority() == self.uri.authority()
    }
}

/// A connection for one request at a time.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) destination: Arc<Destination>,
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// A proxy reads the requests on it.
    pub(super) is_proxied: bool,
    pub(super) was_used: bool,
    /// A server may close an old connection while a request is on its way.
    closes_at: Instant,
}

impl Link {
    /// Whether a request may start on it.
    fn is_usable(&self) -> bool {
        !self.sender.is_closed() && Instant::now() < self.closes_at
    }
}

/// The open connection of a request. If it is dropped without a request, another request can use it.
#[derive(Debug)]
pub struct OpenConnection {
    link: Option<Link>,
    connections: Arc<Connections>,
}

impl OpenConnection {
    /// Takes the connection out, or another one if it was closed meanwhile.
    pub(super) fn into_link(mut self) -> Option<Link> {
        let link = self.link.take()?;
        if link.is_usable() {
            return Some(link);
        }
        self.connections.take_link(&link.destination.host)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.connections.add(link);
        }
    }
}

/// The connection was opened, and the request that asked for it is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the connection is open")]
pub(super) struct Opened(Mutex<Option<(SendRequest<Full<Bytes>>, bool)>>);

/// The open, unused connections by host.
#[derive(Debug)]
pub(super) struct Connections {
    hosts: Mutex<HashMap<String, Host>>,
    opening_slots: Semaphore,
    idle_for: Duration,
    reserved: AtomicU32,
    /// A refusal ended a connection that had no other request.
    closes_after_refusals: AtomicBool,
}

#[derive(Debug, Default)]
struct Host {
    /// The most recently used last. The server may have closed some of them.
    idle: Vec<Link>,
    /// A task closes those that are not used for long.
    is_watched: bool,
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
pub struct ReservedConnection(Arc<Connections>);

impl Drop for ReservedConnection {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(super) fn new(idle_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            hosts: Mutex::default(),
            opening_slots: Semaphore::new(MAX_OPENING),
            idle_for,
            reserved: AtomicU32::new(0),
            closes_after_refusals: AtomicBool::new(false),
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
            let open = host.usable();
            let target = reserved.saturating_add(count.min(host.width.saturating_add(1)));
            let missing = target.saturating_sub(open.saturating_add(host.opening));
            host.opening += missing;
            (open.saturating_sub(reserved), missing)
        })
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

    /// Takes the most recently used connection that is open.
    pub(super) fn take(self: &Arc<Self>, host: &str) -> Option<OpenConnection> {
        let link = self.take_link(host)?;
        Some(self.guard(link))
    }

    fn take_link(&self, host: &str) -> Option<Link> {
        self.with(host, |host| std::iter::from_fn(|| host.idle.pop()).find(Link::is_usable))
    }

    /// A connection that was opened for a request.
    pub(super) fn opened(
        self: &Arc<Self>,
        destination: &Arc<Destination>,
        opened: &Opened,
    ) -> Option<OpenConnection> {
        let (sender, is_proxied) = lock(&opened.0).take()?;
        Some(self.guard(Link {
            destination: Arc::clone(destination),
            sender,
            is_proxied,
            was_used: false,
            closes_at: Instant::now() + KEPT,
        }))
    }

    fn guard(self: &Arc<Self>, link: Link) -> OpenConnection {
        OpenConnection { link: Some(link), connections: Arc::clone(self) }
    }

    /// What a refusal that ended its connection may be: on one that was used before, a second answer to the request before.
    pub(super) fn stray(&self, was_used: bool, status: StatusCode) -> Option<MaybeStray> {
        let closes = &self.closes_after_refusals;
        if !was_used {
            // A server also sends 408 to a connection on which no request came for long.
            closes.fetch_or(status != StatusCode::REQUEST_TIMEOUT, Ordering::Relaxed);
            return None;
        }
        Some(MaybeStray { is_habit: closes.load(Ordering::Relaxed) })
    }

    /// Keeps a connection whose response was read to its end.
    pub(super) fn add_used(self: &Arc<Self>, link: Link) {
        self.add(Link { was_used: true, closes_at: Instant::now() + self.idle_for, ..link });
    }

    fn add(self: &Arc<Self>, link: Link) {
        let destination = Arc::clone(&link.destination);
        let is_watched = self.with(&destination.host, |host| {
            host.idle.push(link);
            std::mem::replace(&mut host.is_watched, true)
        });
        // Without a runtime no request follows.
        if !is_watched && let Ok(runtime) = Handle::try_current() {
            let connections = Arc::clone(self);
            runtime.spawn(async move { connections.close_unused(&destination.host).await });
        }
    }

    /// Closes connections that are not used for long, until none is left.
    async fn close_unused(&self, host: &str) {
        while let Some(next) = self.with(host, Host::close_unused) {
            tokio::time::sleep_until(next).await;
        }
    }

    fn with<T>(&self, name: &str, work: impl FnOnce(&mut Host) -> T) -> T {
        let mut hosts = lock(&self.hosts);
        match hosts.get_mut(name) {
            Some(host) => work(host),
            None => work(hosts.entry(name.to_owned()).or_default()),
        }
    }
}

impl Host {
    fn usable(&self) -> u32 {
        let usable = self.idle.iter().filter(|link| link.is_usable());
        u32::try_from(usable.count()).unwrap_or(u32::MAX)
    }

    /// Returns when the next connection is to be closed; `None` if there is none, and no task watches them.
    fn close_unused(&mut self) -> Option<Instant> {
        let width = &mut self.width;
        self.idle.retain(|link| {
            let is_kept = link.is_usable();
            if !is_kept && !link.was_used {
                *width = width.saturating_sub(MORE);
            }
            is_kept
        });
        let next = self.idle.iter().map(|link| link.closes_at).min();
        self.is_watched = next.is_some();
        next
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No panic can leave it inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a client's connector return each connection in an error.
pub(super) fn layer<S>() -> impl Layer<S, Service = Connector<S>> + Clone {
    layer_fn(Connector)
}

#[derive(Clone)]
pub(super) struct Connector<S>(S);

impl<S, R> Service<R> for Connector<S>
where
    S: Service<R, Error = BoxError>,
    S::Response: Read + Write + Connection + Unpin + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.0.call(request);
        Box::pin(async move {
            let stream = connecting.await?;
            let is_proxied = stream.connected().is_proxied();
            let (sender, connection) = http1::handshake(stream).await?;
            // Its errors are those of its requests.
            tokio::spawn(async move { drop(connection.await) });
            Err(Opened(Mutex::new(Some((sender, is_proxied)))).into())
        })
    }
}
