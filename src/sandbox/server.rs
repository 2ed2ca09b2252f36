//! The HTTP server of the gateway, on hyper: web frameworks cannot drop a connection or close the listener, which are
//! faults that the gateway simulates.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use super::answer::{self, Answer, ResponseMode};
use super::counters::StatesPage;

const MAX_REQUEST: usize = 4 << 20;
const BACKLOG: u32 = 4_096;
const REBIND: Duration = Duration::from_millis(20);
/// The most receipts of `GET /receipts`, and the most states of `GET /messages`.
const MAX_RECEIPTS: usize = 1_000;
/// The most messages of `GET /messages`.
const MAX_MESSAGES: usize = 10_000;

/// Listens so that the port can be reused at once after it is closed.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stopped` changes or its sender is dropped, and ends all connections.
pub(super) async fn serve(
    mut listener: TcpListener,
    address: SocketAddr,
    state: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut refuse = state.refuse.subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next() => {}
            _ = refuse.changed() => {
                drop(listener);
                let outage = *refuse.borrow_and_update();
                tokio::select! {
                    _ = stopped.changed() => break,
                    again = listen_again(address, outage) => listener = again,
                }
            }
            stream = accept(&listener) => {
                connections.spawn(serve_connection(stream, Arc::clone(&state)));
            }
        }
    }
    connections.shutdown().await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client has disconnected, or no file descriptor is free: try again.
            Err(_) => tokio::time::sleep(REBIND).await,
        }
    }
}

async fn listen_again(address: SocketAddr, outage: Duration) -> TcpListener {
    tokio::time::sleep(outage).await;
    loop {
        match listen(address) {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(REBIND).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, state: Arc<Shared>) {
    // Without it responses are only slower.
    let _ = stream.set_nodelay(true);
    let mut refuse = state.refuse.subscribe();
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { respond(request, &state).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Connection errors are caused by the client or by a simulated fault.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = refuse.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Makes hyper drop the connection.
#[derive(Debug, thiserror::Error)]
#[error("no response")]
struct NoResponse;

async fn respond(
    request: Request<Incoming>,
    state: &Arc<Shared>,
) -> Result<Response<Full<Bytes>>, NoResponse> {
    let answer = match (request.method(), request.uri().path()) {
        (&Method::POST, "/messages") => receive(request, state).await,
        (&Method::GET, "/stats") => answer::answer(200, json!(state.counters().stats())),
        (&Method::GET, "/receipts") => {
            let limit = query(&request, "limit").and_then(|limit| limit.parse().ok());
            let limit: usize = limit.unwrap_or(MAX_RECEIPTS);
            let receipts =
                state.counters().receipts(false, limit.clamp(1, MAX_RECEIPTS), Instant::now());
            answer::answer(200, json!({ "receipts": receipts }))
        }
        (&Method::GET, "/outcomes") => answer::answer(200, json!(state.counters().outcomes())),
        (&Method::GET, "/messages") if query(&request, "since").is_some() => {
            states(&request, state)
        }
        (&Method::GET, path) if path.starts_with("/messages/") => state_of(path, state),
        (&Method::GET, "/messages") => {
            let reference = query(&request, "reference");
            let messages = state.counters().messages(reference.as_deref(), MAX_MESSAGES);
            answer::answer(200, json!(messages))
        }
        (_, "/stats" | "/messages" | "/receipts" | "/outcomes") => {
            answer::error(405, "bad_request", "method not allowed")
        }
        _ => answer::error(404, "bad_request", "not found"),
    };
    if !answer.wait.is_zero() {
        tokio::time::sleep(answer.wait).await;
    }
    let body = Bytes::from(answer.body.to_string());
    let body = match answer.mode {
        ResponseMode::Whole | ResponseMode::Replaced => body,
        ResponseMode::Cut => body.slice(..body.len() / 2),
        ResponseMode::None => return Err(NoResponse),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let json = header::HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    if let Some(wait) = answer.retry_after {
        headers.insert(header::RETRY_AFTER, wait.as_secs().into());
    }
    Ok(response)
}

/// The value of a parameter of the query.
fn query<'a>(request: &'a Request<Incoming>, name: &str) -> Option<Cow<'a, str>> {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The messages of a span of time with their states, page by page.
fn states(request: &Request<Incoming>, state: &Shared) -> Answer {
    let number = |name| query(request, name)?.parse::<usize>().ok();
    let instant = |name| {
        let text = query(request, name)?;
        match text.parse() {
            Ok(millis) => jiff::Timestamp::from_millisecond(millis).ok(),
            Err(_) => text.parse().ok(),
        }
    };
    let page = StatesPage {
        id: None,
        since: instant("since"),
        until: instant("until"),
        page: number("page").unwrap_or(1).max(1),
        limit: number("limit").unwrap_or(MAX_RECEIPTS).clamp(1, MAX_RECEIPTS),
    };
    if page.since.is_none() {
        return answer::error(400, "bad_request", "`since` must be an instant");
    }
    let (messages, has_more) = state.counters().states(&page, Instant::now());
    let next = has_more.then_some(page.page + 1);
    answer::answer(200, json!({ "messages": messages, "next": next }))
}

/// The message whose id ends the path, with its state.
fn state_of(path: &str, state: &Shared) -> Answer {
    let page = StatesPage {
        id: path.rsplit('/').next().map(str::to_owned),
        since: None,
        until: None,
        page: 1,
        limit: 1,
    };
    match state.counters().states(&page, Instant::now()).0.pop() {
        Some(message) => answer::answer(200, message),
        None => answer::error(404, "not_found", "no message has this id"),
    }
}

async fn receive(request: Request<Incoming>, state: &Arc<Shared>) -> Answer {
    let body = Limited::new(request.into_body(), MAX_REQUEST);
    let Ok(body) = body.collect().await else {
        return answer::error(413, "bad_request", "request too large");
    };
    let body = body.to_bytes();
    answer::log_arrival(state, &body);
    let call = state.received.fetch_add(1, Ordering::Relaxed) + 1;
    let Some(delay) = state.config.faults.delay_of(call) else {
        return answer::respond(state, &body);
    };
    // In a task of its own: it is accepted also if the client has disconnected.
    let state = Arc::clone(state);
    let later = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        answer::respond(&state, &body)
    });
    let interrupted = |_| answer::error(500, "internal", "the gateway ends");
    later.await.unwrap_or_else(interrupted)
}
