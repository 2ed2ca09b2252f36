//! Middleware of all routes: host check, response headers, client address, and who sent a request.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use hyper::body::{Frame, SizeHint};

use super::ServerState;
use super::access::{Identity, Permission};
use super::problem::Problem;
use crate::text::printable_line;

/// Nothing but this server's own styles, script and pictures is loaded, and nothing frames a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The most bytes of the body of a request, except for batches and files, and of a form.
pub(super) const MAX_BODY: usize = 1 << 20;
pub(super) const MAX_FORM: usize = 64 << 10;
/// How long a request may take, except for batches, files and downloads, which have limits for each part.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// How much of a body is read that nothing wants, and for how long.
const MAX_DISCARDED: u64 = 4 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a request asks for the health of the server. Probes name the address of a container, or nothing, as host, and
/// are answered whatever the limit of connections.
pub(super) fn is_probe(path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path)
}

/// Headers of every response, unless it has them.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-robots-tag"), "noindex"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

pub(super) async fn check(
    State(shared): State<Arc<ServerState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let host = host_of(request.headers());
    let checked = if is_probe(request.uri().path()) {
        Ok(())
    } else {
        shared.access.check_host(host.as_deref())
    };
    let mut response = match checked {
        Ok(()) if has_nul(request.uri()) => {
            Problem::invalid("the address has a NUL character").into_response()
        }
        Ok(()) => next.run(request).await,
        Err(error) => Problem::from(error).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether an address asks for a name or a text with a NUL character. Nothing stored has one, and `PostgreSQL` answers
/// a query for one with an error. Posted receipts are cleaned when they are read.
fn has_nul(uri: &Uri) -> bool {
    let text = uri.path_and_query().map_or("/", |text| text.as_str());
    text.contains("%00") && !text.starts_with("/receipts/")
}

/// Answers errors of the router and of extractors as problems, such as for a query that cannot be read.
pub(super) async fn explain(request: Request<Body>, next: Next) -> Response {
    /// Such an error is one line.
    const MAX_TEXT: usize = 4 << 10;
    let response = next.run(request).await;
    let is_text = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !is_text || !response.status().is_client_error() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_TEXT)
        .await
        .unwrap_or_default();
    let detail = match String::from_utf8_lossy(&text) {
        _ if parts.status == StatusCode::METHOD_NOT_ALLOWED => {
            "method not allowed: see the header `Allow`".to_owned()
        }
        _ if parts.status == StatusCode::PAYLOAD_TOO_LARGE => {
            "the body is larger than 1 MiB, or a form larger than 64 KiB".to_owned()
        }
        text => printable_line(&text).into_owned(),
    };
    let problem = Problem::new(parts.status, detail).into_response();
    let (own, body) = problem.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(own.headers);
    parts.extensions.extend(own.extensions);
    Response::from_parts(parts, body)
}

/// Answers within [`REQUEST_TIMEOUT`], whatever the client or the database does. What the request waits for is dropped.
pub(super) async fn limit_time(request: Request<Body>, next: Next) -> Response {
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    answered.unwrap_or_else(|_| {
        let seconds = REQUEST_TIMEOUT.as_secs();
        let detail = format!(
            "the request was not complete, or the database did not answer, within {seconds} s; nothing was stored \
             unless the same request is answered with 200 later"
        );
        Problem::unavailable(detail).into_response()
    })
}

/// Reads the rest of a body that was not wanted, if it is not large, without keeping it: a client that is still writing
/// when the connection is closed may not get the response.
pub(super) async fn discard_body(request: Request<Body>, next: Next) -> Response {
    let waits = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = SharedBody(Arc::new(Mutex::new(body)));
    let rest = body.clone();
    let response = next.run(Request::from_parts(parts, Body::new(body))).await;
    let is_small = rest
        .size_hint()
        .upper()
        .is_none_or(|size| size <= MAX_DISCARDED);
    if !waits && is_small && !rest.is_end_stream() {
        let discarding = rest.discard();
        // What takes longer is cut off.
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, discarding).await;
    }
    response
}

/// A body of which the rest can be read after the handler has ended.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discard(self) {
        let mut read = 0;
        let mut parts = Body::new(self).into_data_stream();
        while let Some(Ok(part)) = parts.next().await {
            read += part.len() as u64;
            if read > MAX_DISCARDED {
                return;
            }
        }
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}

fn host_of(headers: &http::HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?.to_owned();
    hosts.next().is_none().then_some(host)
}

/// The seconds since 1970 by this machine's clock.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The address of the client.
pub(super) struct ClientAddress(pub(super) IpAddr);

impl FromRequestParts<Arc<ServerState>> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
        Ok(Self(shared.access.client(&parts.headers, peer)))
    }
}

/// Who looks at a page, by the cookie. A change must come from a page of this server.
pub(super) struct Visitor(pub(super) Identity);

/// Shows the log-in unless the visitor may see the page.
pub(super) enum VisitorError {
    LoggedOut,
    Problem(Problem),
}

impl IntoResponse for VisitorError {
    fn into_response(self) -> Response {
        match self {
            Self::LoggedOut => super::page::log_in_page(None),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

impl FromRequestParts<Arc<ServerState>> for Visitor {
    type Rejection = VisitorError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let access = &shared.access;
        let Some(visitor) = access.of_browser(&parts.headers, now()) else {
            return Err(VisitorError::LoggedOut);
        };
        let host = host_of(&parts.headers);
        access
            .check_site(&parts.method, &parts.headers, host.as_deref())
            .map_err(|error| VisitorError::Problem(error.into()))?;
        Ok(Self(visitor))
    }
}

impl Visitor {
    pub(super) fn may(&self, permission: Permission) -> bool {
        self.0.role.may(permission)
    }

    pub(super) fn need(&self, permission: Permission) -> Result<(), Problem> {
        if self.may(permission) {
            Ok(())
        } else {
            Err(Problem::forbidden(&[permission], self.0.role))
        }
    }
}

/// A form of the log-in, which has no cookie yet: it must come from a page of this server.
pub(super) struct SameSite;

impl FromRequestParts<Arc<ServerState>> for SameSite {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let host = host_of(&parts.headers);
        let access = &shared.access;
        access.check_site(&parts.method, &parts.headers, host.as_deref())?;
        Ok(Self)
    }
}

/// A program with a token.
pub(super) struct Program(pub(super) Identity);

impl FromRequestParts<Arc<ServerState>> for Program {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, shared).await?;
        Ok(Self(shared.access.of_program(&parts.headers, address)?))
    }
}

impl Program {
    pub(super) fn need(&self, permission: Permission) -> Result<(), Problem> {
        if self.0.role.may(permission) {
            Ok(())
        } else {
            Err(Problem::forbidden(&[permission], self.0.role))
        }
    }
}
