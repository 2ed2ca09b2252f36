//! The HTTP server of the gateway, on hyper: web frameworks cannot drop a connection or close the listener, which are
//! faults that the gateway simulates.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::State;
use super::answer::{self, Answer, ResponseMode};

const MAX_REQUEST: usize = 4 << 20;
const BACKLOG: u32 = 4_096;
const REBIND: Duration = Duration::from_millis(20);
const MAX_PAGE: usize = 10_000;
const WELCOME: &str = "smsq sandbox: a practice gateway that delivers nothing\n\
    POST /messages   {\"to\": \"+...\", \"text\": \"...\", \"reference\": \"...\", \"from\": \"...\"}, or a list of them\n\
    GET  /stats      counts\n\
    GET  /messages   accepted messages (?after=N&limit=N&reference=R)\n";

/// Listens so that the port can be reused at once after it is closed.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What a connection shares with the listener.
#[derive(Clone)]
struct Handle {
    state: Arc<State>,
    /// Closes the listener for this long.
    refuse: mpsc::Sender<Duration>,
    /// Changes when connections must close after the current request.
    hang_up: watch::Receiver<()>,
}

/// Serves until `stopped` changes or its sender is dropped, and ends all connections.
pub(super) async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
    mut stopped: watch::Receiver<bool>,
) {
    let (refuse, mut refused) = mpsc::channel(1);
    let (hang_up, on_hang_up) = watch::channel(());
    let handle = Handle {
        state,
        refuse,
        hang_up: on_hang_up,
    };
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let away = tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next() => None,
            away = refused.recv() => away,
            stream = accept(listener.as_ref()) => {
                connections.spawn(serve_connection(stream, handle.clone()));
                None
            }
        };
        if let Some(away) = away {
            listener = None;
            hang_up.send_replace(());
            tokio::select! {
                _ = stopped.changed() => break,
                again = listen_again(address, away) => listener = Some(again),
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client has disconnected, or no file descriptor is free: try again.
            Err(_) => tokio::time::sleep(REBIND).await,
        }
    }
}

async fn listen_again(address: SocketAddr, away: Duration) -> TcpListener {
    tokio::time::sleep(away).await;
    loop {
        match listen(address) {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(REBIND).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, handle: Handle) {
    // Without it responses are only slower.
    let _ = stream.set_nodelay(true);
    let mut hang_up = handle.hang_up.clone();
    hang_up.mark_unchanged();
    let service = service_fn(move |request| {
        let handle = handle.clone();
        async move { respond(request, &handle).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Connection errors are caused by the client or by a simulated fault.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = hang_up.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Makes hyper drop the connection.
#[derive(Debug, thiserror::Error)]
#[error("no response")]
struct NoAnswer;

async fn respond(
    request: Request<Incoming>,
    handle: &Handle,
) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let path = request.uri().path();
    match (request.method(), path) {
        (&Method::POST, "/messages") => take(request, handle).await,
        (&Method::GET, "/stats") => Ok(json(&handle.state.counters().stats())),
        (&Method::GET, "/messages") => {
            let after = parameter(&request, "after").unwrap_or(0);
            let limit = parameter(&request, "limit").unwrap_or(100).min(MAX_PAGE);
            let reference = text(&request, "reference");
            let counters = handle.state.counters();
            Ok(json(&counters.messages(after, limit, reference.as_deref())))
        }
        (&Method::GET, "/") => {
            let mut page = Response::new(Full::new(WELCOME.into()));
            let text = header::HeaderValue::from_static("text/plain; charset=utf-8");
            page.headers_mut().insert(header::CONTENT_TYPE, text);
            Ok(page)
        }
        (_, "/" | "/stats" | "/messages") => Ok(plain(&answer::error(
            405,
            "bad_request",
            "method not allowed",
        ))),
        _ => Ok(plain(&answer::error(404, "bad_request", "not found"))),
    }
}

async fn take(
    request: Request<Incoming>,
    handle: &Handle,
) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let body = Limited::new(request.into_body(), MAX_REQUEST)
        .collect()
        .await;
    let Ok(body) = body else {
        return Ok(plain(&answer::error(
            413,
            "bad_request",
            "request too large",
        )));
    };
    let answer = answer::respond(&handle.state, &body.to_bytes());
    if let Some(away) = answer.refuse {
        // Full if the listener is already about to close.
        let _ = handle.refuse.try_send(away);
    }
    if !answer.wait.is_zero() {
        tokio::time::sleep(answer.wait).await;
    }
    match answer.mode {
        ResponseMode::None => Err(NoAnswer),
        ResponseMode::Whole | ResponseMode::Cut => Ok(plain(&answer)),
    }
}

fn plain(answer: &Answer) -> Response<Full<Bytes>> {
    let body = Bytes::copy_from_slice(answer.body.as_bytes());
    let page = match answer.mode {
        ResponseMode::Cut => Full::new(body.slice(..body.len() / 2)),
        ResponseMode::Whole | ResponseMode::None => Full::new(body),
    };
    let mut response = Response::new(page);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let json = header::HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    if let Some(wait) = answer.retry_after {
        headers.insert(header::RETRY_AFTER, wait.as_secs().into());
    }
    response
}

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(body.into()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn parameter(request: &Request<Incoming>, name: &str) -> Option<usize> {
    text(request, name)?.parse().ok()
}

fn text(request: &Request<Incoming>, name: &str) -> Option<String> {
    let query = request.uri().query()?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    Some(pairs.find(|(key, _)| key == name)?.1.into_owned())
}
