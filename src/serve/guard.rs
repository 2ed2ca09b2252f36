//! Middleware of all routes: host check, response headers, client address, and who sent a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::RequestPartsExt as _;
use axum::body::Body;
use axum::extract::multipart::MultipartRejection;
use axum::extract::rejection::{BytesRejection, FormRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum_extra::TypedHeader;
use axum_extra::extract::CookieJar;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::Bearer;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use smsq_message::text::printable_line;
use smsq_store::Mode;
use tracing::Span;

use super::access::AccessError;
use super::problem::Problem;
use super::state::ServerState;
use super::tokens::{Identity, Permission};

/// Nothing but this server's own styles, script and pictures is loaded, and nothing frames a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How long a request may take, except for batches, files and downloads, which have limits for each part.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
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
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
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
    let response = match checked {
        Ok(()) if has_nul(request.uri()) => {
            Problem::invalid("the address has a NUL character").into_response()
        }
        Ok(()) => next.run(request).await,
        Err(error) => Problem::from(error).into_response(),
    };
    add_headers(response).await
}

/// Adds the headers that every response has.
pub(super) async fn add_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Whether an address asks for a name or a text with a NUL character. Nothing stored has one, and `PostgreSQL` answers
/// a query for one with an error. Posted receipts are cleaned when they are read.
fn has_nul(uri: &Uri) -> bool {
    let text = uri.path_and_query().map_or("/", |text| text.as_str());
    text.contains("%00") && !text.starts_with("/receipts/")
}

/// Answers a method that an address does not have. The router adds the header `Allow`.
pub(super) async fn method_not_allowed() -> Problem {
    let detail = "method not allowed: see the header `Allow`";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// The span of a request, which all that is logged for it belongs to: its method, the pattern of its address, and the
/// name of the token. Never the address itself, which may have a phone or the secret of a receipt.
pub(super) fn span(request: &Request<Body>) -> Span {
    let route = request.extensions().get::<MatchedPath>();
    // At the default level, so that warnings say which request they are about.
    tracing::warn_span!(
        "request",
        method = %request.method(),
        route = route.map_or("unknown", MatchedPath::as_str),
        who = tracing::field::Empty,
    )
}

/// Logs how a request was answered.
pub(super) fn log_response(response: &Response, took: Duration, _: &Span) {
    let (status, took_ms) = (response.status().as_u16(), took.as_millis());
    tracing::debug!(status, took_ms, "answered");
}

/// Answers within [`REQUEST_TIMEOUT`], whatever the client or the database does. What the request waits for is dropped.
pub(super) async fn limit_time(request: Request<Body>, next: Next) -> Response {
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    answered.unwrap_or_else(|_| {
        let seconds = REQUEST_TIMEOUT.as_secs();
        let detail = format!(
            "the request was not complete, or the database did not answer, within {seconds} s; the message may \
             have been stored: repeat the request with the same key to find out"
        );
        Problem::unavailable(detail).into_response()
    })
}

fn host_of(headers: &http::HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?.to_owned();
    hosts.next().is_none().then_some(host)
}

/// The address of the client.
pub(super) struct ClientAddress(pub(super) IpAddr);

impl FromRequestParts<Arc<ServerState>> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let peer = parts
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
        Ok(Self(shared.access.client(&parts.headers, peer)))
    }
}

/// Who looks at a page, by the cookie. A change must come from a page of this server.
pub(super) struct Visitor {
    pub(super) identity: Identity,
    /// Of the database that the pages show.
    pub(super) mode: Mode,
}

impl FromRequestParts<Arc<ServerState>> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        let cookies = CookieJar::from_headers(&parts.headers);
        let visitor =
            shared.access.of_browser(&cookies, Instant::now()).ok_or(AccessError::Unknown)?;
        SameSite::from_request_parts(parts, shared).await?;
        Span::current().record("who", &visitor.name);
        Ok(Self { identity: visitor, mode: shared.store.mode() })
    }
}

impl Identity {
    pub(super) fn may(&self, permission: Permission) -> bool {
        self.role.may(permission)
    }

    /// Fails unless the role has the permission.
    pub(super) fn need(&self, permission: Permission) -> Result<(), Problem> {
        if self.may(permission) {
            Ok(())
        } else {
            Err(Problem::forbidden(&[permission], self.role))
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
        let bearer: TypedHeader<Authorization<Bearer>> =
            parts.extract().await.map_err(|_| AccessError::Unknown)?;
        let owner = shared.access.of_program(bearer.token(), address)?;
        Span::current().record("who", &owner.name);
        Ok(Self(owner))
    }
}

/// The parts of an address, such as the name of a campaign.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub(super) struct Path<T>(pub(super) T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
pub(super) struct Query<T>(pub(super) T);

/// A rejection of axum, as a problem.
macro_rules! problems {
    ($($rejection:ty),*) => {
        $(impl From<$rejection> for Problem {
            fn from(rejection: $rejection) -> Self {
                Self::rejection(rejection.status(), &rejection.body_text())
            }
        })*
    };
}

problems!(PathRejection, QueryRejection, FormRejection, BytesRejection, MultipartRejection);

impl Problem {
    fn rejection(status: StatusCode, text: &str) -> Self {
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            let detail = "the body is larger than 1 MiB, or a form larger than 64 KiB";
            return Self::new(status, detail);
        }
        Self::new(status, printable_line(text))
    }
}
