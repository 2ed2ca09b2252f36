//! The HTTP side of the gateway: listening, connections, and the ways to break off that only the owner of
//! the socket has.

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

use super::Desk;
use super::answer::{self, Answer, Manner};

const MAX_REQUEST: usize = 4 << 20;
const BACKLOG: u32 = 4_096;
const REBIND: Duration = Duration::from_millis(20);
const MAX_PAGE: usize = 10_000;
const WELCOME: &str = "smsq sandbox: a practice gateway, nothing leaves this machine\n\
    POST /messages   {\"to\": \"+...\", \"text\": \"...\", \"reference\": \"...\", \"from\": \"...\"}, or a list of them\n\
    GET  /stats      what it has seen\n\
    GET  /messages   what it has accepted (?after=N&limit=N&reference=R)\n";

/// Listens so that the port can be taken again at once after it was closed.
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

/// What a connection can ask of the listener.
#[derive(Clone)]
struct Line {
    desk: Arc<Desk>,
    /// The listener is to close for so long.
    refuse: mpsc::Sender<Duration>,
    /// Changes when connections are to close once they are idle.
    hang_up: watch::Receiver<()>,
}

/// Serves until `stopped`, or until its sender is gone; then no task is left.
pub(super) async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    desk: Arc<Desk>,
    mut stopped: watch::Receiver<bool>,
) {
    let (refuse, mut refused) = mpsc::channel(1);
    let (hang_up, on_hang_up) = watch::channel(());
    let line = Line {
        desk,
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
                connections.spawn(converse(stream, line.clone()));
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
            // A connection that was gone again, or no free descriptor: both pass.
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

async fn converse(stream: TcpStream, line: Line) {
    // Without it answers are late, not wrong.
    let _ = stream.set_nodelay(true);
    let mut hang_up = line.hang_up.clone();
    hang_up.mark_unchanged();
    let service = service_fn(move |request| {
        let line = line.clone();
        async move { respond(request, &line).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends is the client's business, or a fault that was asked for.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = hang_up.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The connection is dropped without an answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer;

async fn respond(
    request: Request<Incoming>,
    line: &Line,
) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let path = request.uri().path();
    match (request.method(), path) {
        (&Method::POST, "/messages") => take(request, line).await,
        (&Method::GET, "/stats") => Ok(json(&line.desk.ledger().stats())),
        (&Method::GET, "/messages") => {
            let after = parameter(&request, "after").unwrap_or(0);
            let limit = parameter(&request, "limit").unwrap_or(100).min(MAX_PAGE);
            let reference = text(&request, "reference");
            let ledger = line.desk.ledger();
            Ok(json(&ledger.messages(after, limit, reference.as_deref())))
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
            "not with this method",
        ))),
        _ => Ok(plain(&answer::error(404, "bad_request", "no such page"))),
    }
}

async fn take(request: Request<Incoming>, line: &Line) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let body = Limited::new(request.into_body(), MAX_REQUEST)
        .collect()
        .await;
    let Ok(body) = body else {
        return Ok(plain(&answer::error(413, "bad_request", "too long")));
    };
    let answer = answer::to_orders(&line.desk, &body.to_bytes());
    if let Some(away) = answer.refuse {
        // One is waiting already otherwise.
        let _ = line.refuse.try_send(away);
    }
    if !answer.wait.is_zero() {
        tokio::time::sleep(answer.wait).await;
    }
    match answer.manner {
        Manner::None => Err(NoAnswer),
        Manner::Whole | Manner::Cut => Ok(plain(&answer)),
    }
}

fn plain(answer: &Answer) -> Response<Full<Bytes>> {
    let body = Bytes::copy_from_slice(answer.body.as_bytes());
    let page = match answer.manner {
        Manner::Cut => Full::new(body.slice(..body.len() / 2)),
        Manner::Whole | Manner::None => Full::new(body),
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
