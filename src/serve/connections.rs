//! Accepts connections: a limited number at once, in all and of one address, with limits on the time and the size of a
//! request's head and on the time that a client takes nothing. Probes are answered while the limit is reached.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use smsq_process::jobs::Stop;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};
use tower_service::Service as _;

use super::access::AccessControl;
use super::config::Config;
use super::guard::is_probe;
use super::health;
use super::problem::Problem;

/// Connections at once.
const MAX_CONNECTIONS: usize = 512;
/// Connections of one address at once, unless it is a proxy or of this machine.
const MAX_OF_ADDRESS: usize = 64;
/// Further connections, which have one request each: a probe, or one that waits until it has a place.
const MAX_EXTRA: usize = 128;
/// Those that one address may have of them, and those that may wait: the others are left to probes.
const MAX_EXTRA_OF_ADDRESS: usize = 8;
const MAX_WAITING: usize = 64;
/// How long such a request may wait for a place.
const PLACE_WITHIN: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const EXTRA_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take no byte of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// How long a failed `accept` waits, for example because no file descriptor is free.
const PAUSE: Duration = Duration::from_millis(50);

/// An address that the server listens on, and who may use it.
pub struct Listener {
    socket: Arc<TcpListener>,
    pub(super) address: SocketAddr,
    pub(super) access: Arc<AccessControl>,
}

/// Answers that the server is not ready, until it is dropped.
pub struct NotReady(Stop);

impl Drop for NotReady {
    fn drop(&mut self) {
        self.0.begin();
    }
}

impl Listener {
    pub async fn bind(config: &Config) -> io::Result<Self> {
        let socket = TcpListener::bind(config.listen).await?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket: Arc::new(socket),
            address,
            access: Arc::new(AccessControl::new(config, address.port())),
        })
    }

    /// Answers every request with 503, and `/healthz` with 200, until the returned value is dropped.
    pub fn answer_not_ready(&self) -> NotReady {
        let stop = Stop::default();
        let listener = Self {
            socket: Arc::clone(&self.socket),
            address: self.address,
            access: Arc::clone(&self.access),
        };
        let answering = NotReady(stop.clone());
        let router = health::routes_without_database();
        tokio::spawn(async move { serve(listener, router, &stop, Duration::ZERO).await });
        answering
    }
}

/// Serves until the stop begins; then waits for running requests until its deadline less `reserve`.
pub(super) async fn serve(listener: Listener, router: Router, stop: &Stop, reserve: Duration) {
    let places = Arc::new(Places::default());
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            // Another task may take the next connection.
            biased;
            () = stop.begun() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener.socket) => accepted,
        };
        let is_shared = listener.access.is_shared(peer.ip());
        // Without a place it is closed: its client may try again.
        if let Some(place) = places.take(peer.ip(), is_shared) {
            let connection = ClientConnection { peer, place, router: router.clone() };
            connections.spawn(connection.serve(stream, stop.clone()));
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if stop.within_but(reserve, ended).await.is_none() {
        connections.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            // An address of IPv4 is the same on a socket of IPv6.
            Ok((stream, peer)) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                return (stream, peer);
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// How many connections there are, in all and by address.
struct Places {
    regular: Arc<Semaphore>,
    extra: Arc<Semaphore>,
    waiting: Semaphore,
    of_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            regular: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            extra: Arc::new(Semaphore::new(MAX_EXTRA)),
            waiting: Semaphore::new(MAX_WAITING),
            of_address: Mutex::default(),
        }
    }
}

/// The place of one connection.
struct Slot {
    places: Arc<Places>,
    /// The address that it counts for.
    address: Option<IpAddr>,
    is_over: bool,
    is_extra: bool,
    permit: OwnedSemaphorePermit,
}

impl Places {
    /// `is_shared`: many clients have this address.
    fn take(self: &Arc<Self>, address: IpAddr, is_shared: bool) -> Option<Slot> {
        let address = Some(address).filter(|_| !is_shared);
        let before = address.map_or(0, |address| self.count(address));
        if before >= MAX_OF_ADDRESS + MAX_EXTRA_OF_ADDRESS {
            return None;
        }
        let is_over = before >= MAX_OF_ADDRESS;
        let regular =
            (!is_over).then(|| Arc::clone(&self.regular).try_acquire_owned().ok()).flatten();
        let is_extra = regular.is_none();
        let permit = regular.or_else(|| Arc::clone(&self.extra).try_acquire_owned().ok())?;
        if let Some(address) = address {
            *self.lock().entry(address).or_default() += 1;
        }
        let places = Arc::clone(self);
        Some(Slot { places, address, is_over, is_extra, permit })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.of_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, address: IpAddr) -> usize {
        self.lock().get(&address).copied().unwrap_or_default()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut counts = self.places.lock();
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

impl Slot {
    /// Waits until an extra connection may send a request that is not a probe.
    async fn become_regular(&mut self) -> Result<(), Problem> {
        if self.is_over {
            let detail =
                format!("there are {MAX_OF_ADDRESS} connections from this address already");
            return Err(Problem::unavailable(detail));
        }
        let too_many = || Problem::unavailable("there are too many connections: try again");
        let _turn = self.places.waiting.try_acquire().map_err(|_| too_many())?;
        let regular = Arc::clone(&self.places.regular).acquire_owned();
        match timeout(PLACE_WITHIN, regular).await {
            Ok(Ok(permit)) => {
                self.permit = permit;
                self.is_extra = false;
                Ok(())
            }
            _ => Err(too_many()),
        }
    }
}

struct ClientConnection {
    peer: SocketAddr,
    place: Slot,
    router: Router,
}

impl ClientConnection {
    async fn serve(self, stream: TcpStream, stop: Stop) {
        // Without it responses are only slower.
        let _ = stream.set_nodelay(true);
        let Self { peer, place, router } = self;
        let is_extra = place.is_extra;
        // HTTP/1 has one request at a time.
        let place = tokio::sync::Mutex::new(place);
        let service = service_fn(|request: Request<Incoming>| {
            let (router, place) = (router.clone(), &place);
            async move {
                let mut place = place.lock().await;
                let mut response = if place.is_extra && !is_probe(request.uri().path()) {
                    match place.become_regular().await {
                        Ok(()) => respond(router, request, peer).await,
                        Err(problem) => problem.into_response(),
                    }
                } else {
                    respond(router, request, peer).await
                };
                if is_extra {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let head_timeout = if is_extra { EXTRA_HEAD_TIMEOUT } else { HEAD_TIMEOUT };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(LimitedWrites::new(stream)), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // Errors are caused by the client.
            _ = connection.as_mut() => return,
            () = stop.begun() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

async fn respond(mut router: Router, request: Request<Incoming>, peer: SocketAddr) -> Response {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router.call(request).await;
    response.unwrap_or_else(|never| match never {})
}

/// A connection whose writes fail after the client has taken nothing for [`WRITE_TIMEOUT`].
struct LimitedWrites {
    stream: TcpStream,
    /// Runs while a write waits.
    limit: Option<Pin<Box<Sleep>>>,
}

impl LimitedWrites {
    fn new(stream: TcpStream) -> Self {
        Self { stream, limit: None }
    }

    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.limit = None;
            return written;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        let over = limit.as_mut().poll(context);
        over.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LimitedWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let places = Arc::new(Places::default());
        let taken: Vec<Slot> = (0..1_000).map_while(|_| places.take(address(1), false)).collect();
        assert_eq!(taken.len(), MAX_OF_ADDRESS + MAX_EXTRA_OF_ADDRESS);
        let regular = taken.iter().filter(|place| !place.is_extra).count();
        assert_eq!(regular, MAX_OF_ADDRESS);
        let other = places.take(address(2), false).expect("a place");
        assert!(!other.is_extra);
        drop(taken);
        assert!(places.take(address(1), false).is_some_and(|place| !place.is_extra));
    }

    #[test]
    fn proxy_has_all_places_and_leaves_some_to_probes() {
        let places = Arc::new(Places::default());
        let taken: Vec<Slot> =
            (0..MAX_CONNECTIONS).map_while(|_| places.take(HERE, true)).collect();
        assert!(taken.iter().all(|place| !place.is_extra));
        assert_eq!(taken.len(), MAX_CONNECTIONS);
        let extra = places.take(HERE, true).expect("an extra place");
        assert!(extra.is_extra && !extra.is_over);
    }

    #[tokio::test]
    async fn request_waits_until_a_connection_ends() {
        let places = Arc::new(Places::default());
        let mut taken: Vec<Slot> =
            (0..MAX_CONNECTIONS).map_while(|_| places.take(HERE, true)).collect();
        let mut extra = places.take(HERE, true).expect("an extra place");
        {
            let mut waiting = pin!(extra.become_regular());
            assert!(futures_util::poll!(waiting.as_mut()).is_pending());
            taken.pop();
            waiting.await.expect("a place");
        }
        assert!(!extra.is_extra);
    }
}
