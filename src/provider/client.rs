//! The HTTP client of providers. It sends a request once. Without an answer it distinguishes a request that was
//! certainly not sent, which can be repeated, from one that may have been sent.

mod connections;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, Uri, Version};
use rustls::crypto::ring::default_provider;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::{Instant, timeout};
use url::Url;

use super::Provider;
use super::redact::{MAX_EXCERPT, cut};
use super::status::outcome_of;
use crate::sms::{Class, Failure, Outcome};
use connections::{Destination, IdleConnections, NotReady, Opened, TARGET};

pub use connections::ReservedConnection;

/// Longer answers are cut.
pub const MAX_ANSWER: usize = 1 << 20;

const USER_AGENT: &str = concat!("smsq/", env!("CARGO_PKG_VERSION"));
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// After a timeout, a response that has already arrived is still read for this long: a process that was stopped finds
/// the response and the timeout at the same time.
const GRACE: Duration = Duration::from_millis(250);
/// How often a connection is opened for one request, because another request took it or the server closed it.
const CONNECTS: u32 = 3;

/// The client of one provider.
#[derive(Clone, Debug)]
pub struct Client {
    /// Sends on open connections, and opens none.
    sender: reqwest::Client,
    /// Opens connections, and sends nothing.
    opener: reqwest::Client,
    connections: Arc<IdleConnections>,
    base: Arc<str>,
    /// The target of the last request, which is usually that of the next one.
    target: Arc<Mutex<Option<Arc<RequestTarget>>>>,
    timeout: Duration,
    connect: Duration,
}

/// Where requests go.
#[derive(Debug)]
struct RequestTarget {
    uri: Uri,
    url: Result<Url, url::ParseError>,
    /// Scheme, host and port, without the default port; `None`: the URI is not absolute.
    host: Option<Arc<str>>,
}

/// Why a request has no response.
#[derive(Debug)]
pub enum Unanswered {
    /// No connection was ready: nothing was sent.
    NotConnected,
    /// The outcome of the message.
    Ended(Outcome),
}

/// Why no connection was opened.
#[derive(Debug)]
pub struct Unreachable {
    pub reason: String,
    /// The server answered with a certificate that is not valid.
    pub is_certificate: bool,
}

impl From<Unreachable> for Outcome {
    fn from(unreachable: Unreachable) -> Self {
        if unreachable.is_certificate {
            return Self::AccountError {
                failure: Failure::new(Class::Unavailable, unreachable.reason),
                listed: true,
            };
        }
        not_sent(format!("no connection: {}", unreachable.reason))
    }
}

/// For example an unusable store of certificates.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}`: cannot build the HTTP client: {reason}")]
pub struct ClientError {
    provider: String,
    reason: String,
}

impl Client {
    /// `concurrency` is the most requests at once.
    pub fn new(provider: &Provider, concurrency: usize) -> Result<Self, ClientError> {
        let timeout = provider.timeout();
        // A connection that could not be opened in time must be reported as that, not as a missing answer.
        let connect = (timeout * 9 / 10).min(MAX_CONNECT);
        let connections = IdleConnections::new(provider.config().idle);
        let failed = |reason: String| ClientError {
            provider: provider.name().to_owned(),
            reason,
        };
        let tls = tls(provider).map_err(|error| failed(error.to_string()))?;
        let sender = builder(provider, &tls)
            .connector_layer(connections.layer(false))
            .pool_idle_timeout(provider.config().idle)
            .pool_max_idle_per_host(concurrency);
        let opener = builder(provider, &tls)
            .connector_layer(connections.layer(true))
            .connect_timeout(connect);
        let build = |builder: reqwest::ClientBuilder| {
            let built = builder.build();
            built.map_err(|error| failed(reason(&error)))
        };
        Ok(Self {
            sender: build(sender)?,
            opener: build(opener)?,
            base: provider.config().url[..url::Position::BeforePath].into(),
            target: Arc::default(),
            connections,
            timeout,
            connect,
        })
    }

    /// Opens a connection to the provider's URL as for a request, with TLS, and sends nothing on it.
    pub async fn try_connection(&self) -> Result<(), Unreachable> {
        self.open(&self.base).await
    }

    /// Sends the request once, and opens a connection if none is ready. `Err` is the outcome without an answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        for _ in 0..CONNECTS {
            self.connect(&request).await?;
            match self.exchange(request.clone(), None).await {
                Ok(response) => return Ok(response),
                Err(Unanswered::Ended(outcome)) => return Err(outcome),
                Err(Unanswered::NotConnected) => {}
            }
        }
        Err(not_sent("no connection: each was closed at once"))
    }

    /// Reserves a connection for a request that starts soon.
    pub fn reserve(&self) -> ReservedConnection {
        self.connections.reserve()
    }

    /// How many of `calls` more requests can start without waiting for a connection. Opens the connections that this
    /// rate needs within `ahead`.
    pub fn prepare(&self, calls: u32, per_second: Option<f64>, ahead: Duration) -> u32 {
        let (ready, missing) = self
            .connections
            .prepare(&self.base, calls, per_second, ahead);
        for _ in 0..missing {
            let (client, host) = (self.clone(), Arc::clone(&self.base));
            tokio::spawn(async move {
                // The next request reports why it failed.
                drop(client.open(&host).await);
            });
        }
        ready
    }

    /// Waits until a connection is open for the request; true if one already was. `Err` is the outcome if none can be
    /// opened.
    pub async fn connect(&self, request: &Request<Bytes>) -> Result<bool, Outcome> {
        let Some(host) = self.target(request.uri()).host.clone() else {
            return Ok(true);
        };
        if self.connections.is_ready(&host) {
            return Ok(true);
        }
        self.connections.record_opening(&host);
        let client = self.clone();
        // In a task, so that a caller that stops waiting leaves an open connection for the next one.
        match tokio::spawn(async move { client.open(&host).await }).await {
            Ok(opened) => opened.map(|()| false).map_err(Outcome::from),
            Err(_) => Err(not_sent("no connection: connecting was cancelled")),
        }
    }

    async fn open(&self, host: &Arc<str>) -> Result<(), Unreachable> {
        let target = Destination {
            host: Arc::clone(host),
            until: None,
        };
        let slot = self.connections.opening_slot().await;
        let began = Instant::now();
        let request = self.opener.get(format!("{host}/")).send();
        let failed = TARGET.scope(target, request).await.err();
        drop(slot);
        let failed = failed.filter(|error| cause::<Opened>(error).is_none());
        let took = failed.is_none().then(|| began.elapsed());
        self.connections.record_opened(host, took);
        let Some(error) = failed else {
            let (connections, host) = (Arc::clone(&self.connections), Arc::clone(host));
            tokio::spawn(async move { connections.close_unused(&host).await });
            return Ok(());
        };
        if let Some(fault) = certificate_fault(&error) {
            let host = host.split("://").last().unwrap_or(host);
            return Err(Unreachable {
                reason: format!("the certificate of `{host}` {fault}"),
                is_certificate: true,
            });
        }
        Err(Unreachable {
            reason: describe(&error, self.connect),
            is_certificate: false,
        })
    }

    /// Sends the request once on an open connection; it does not start after `until`.
    pub async fn exchange(
        &self,
        request: Request<Bytes>,
        until: Option<Instant>,
    ) -> Result<Response<Bytes>, Unanswered> {
        let (parts, body) = request.into_parts();
        let target = self.target(&parts.uri);
        let url = target.url.clone().map_err(|error| {
            let why = format!("cannot build the request: {error}");
            Unanswered::Ended(not_sent(why))
        })?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(body.into());
        let host = target.host.clone().unwrap_or_default();
        self.connections.record_start(&host);
        let target = Destination {
            host: Arc::clone(&host),
            until,
        };
        let exchanged = TARGET
            .scope(target, self.exchange_within_limit(request))
            .await;
        match &exchanged {
            Ok((_, true)) => self.connections.record_idle(&host),
            Err(Unanswered::NotConnected) => self.connections.record_none(&host),
            _ => {}
        }
        exchanged.map(|(response, _)| response)
    }

    fn target(&self, uri: &Uri) -> Arc<RequestTarget> {
        // No panic can leave it inconsistent.
        let mut last = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(target) if target.uri == *uri => Arc::clone(target),
            _ => Arc::clone(last.insert(Arc::new(RequestTarget {
                uri: uri.clone(),
                url: Url::parse(&uri.to_string()),
                host: host_of(uri),
            }))),
        }
    }

    /// The response, and whether its connection can be used again.
    async fn exchange_within_limit(
        &self,
        request: reqwest::Request,
    ) -> Result<(Response<Bytes>, bool), Unanswered> {
        let mut answer = None;
        let ended = {
            let mut reading = pin!(self.read_answer(request, &mut answer));
            match timeout(self.timeout, reading.as_mut()).await {
                Ok(ended) => Some(ended),
                Err(_) => timeout(GRACE, reading).await.ok(),
            }
        };
        let Some(answer) = answer else {
            return Err(match ended {
                Some(Err(error)) => self.classify(&error),
                _ => Unanswered::Ended(unknown(format!("no answer: {}", late(self.timeout)))),
            });
        };
        let problem = match ended {
            None => Some(format!("broke off: {}", late(self.timeout))),
            Some(Err(error)) => Some(format!("broke off: {}", describe(&error, self.timeout))),
            Some(Ok(false)) => Some("is longer than 1 MiB".to_owned()),
            Some(Ok(true)) => None,
        };
        let is_kept = problem.is_none() && stays_open(&answer);
        // The rest of an error cannot change its outcome, but the rest of a success may have the id.
        if let Some(problem) = problem.filter(|_| answer.status().is_success()) {
            let status = answer.status().as_u16();
            let why = format!("the answer {status} {problem}");
            return Err(Unanswered::Ended(unknown(why)));
        }
        Ok((answer.map(BytesMut::freeze), is_kept))
    }

    /// Sends the request and reads into `answer` what arrives. False: it is longer than [`MAX_ANSWER`], and was cut.
    async fn read_answer(
        &self,
        request: reqwest::Request,
        answer: &mut Option<Response<BytesMut>>,
    ) -> reqwest::Result<bool> {
        let mut response = self.sender.execute(request).await?;
        let answer = answer.insert(Response::default());
        *answer.status_mut() = response.status();
        *answer.version_mut() = response.version();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        let body = answer.body_mut();
        while let Some(chunk) = response.chunk().await? {
            let fits = chunk.len().min(MAX_ANSWER - body.len());
            body.extend_from_slice(&chunk[..fits]);
            if fits < chunk.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn classify(&self, error: &reqwest::Error) -> Unanswered {
        if cause::<NotReady>(error).is_some() {
            return Unanswered::NotConnected;
        }
        Unanswered::Ended(if error.is_connect() {
            let cause = describe(error, self.connect);
            not_sent(format!("no connection: {cause}"))
        } else if error.is_builder() {
            not_sent(format!("cannot build the request: {}", reason(error)))
        } else {
            unknown(format!("no answer: {}", describe(error, self.timeout)))
        })
    }
}

/// The TLS of both clients, made once, because the certificates of the system take long to read. A gateway on this host
/// without TLS needs none.
fn tls(provider: &Provider) -> Result<rustls::ClientConfig, rustls::Error> {
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?;
    let is_plain = provider.config().url.scheme() == "http";
    let mut config = if is_plain && provider.is_on_this_host() {
        let none = rustls::RootCertStore::empty();
        builder.with_root_certificates(none).with_no_client_auth()
    } else {
        builder.with_platform_verifier()?.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The settings of both clients.
fn builder(provider: &Provider, tls: &rustls::ClientConfig) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .user_agent(USER_AGENT)
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true);
    if provider.is_on_this_host() {
        builder.no_proxy()
    } else {
        builder
    }
}

fn late(allowed: Duration) -> String {
    format!("not within {} s", allowed.as_secs_f64())
}

/// Whether the server keeps the connection open for another request.
fn stays_open<T>(response: &Response<T>) -> bool {
    let connection = response.headers().get(http::header::CONNECTION);
    let is_closed = connection
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.to_ascii_lowercase().contains("close"));
    response.version() == Version::HTTP_11 && !is_closed
}

/// The first error of this type among the error and its causes.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut causes = std::iter::successors(Some(error), |&error| {
        // An I/O error does not return the error that it wraps as its source.
        match error.downcast_ref().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    });
    causes.find_map(|error| error.downcast_ref())
}

/// What is wrong with the server's certificate, if that prevented the connection.
fn certificate_fault(error: &(dyn Error + 'static)) -> Option<String> {
    use rustls::CertificateError;
    let rustls::Error::InvalidCertificate(fault) = cause(error)? else {
        return None;
    };
    let text = match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: is the clock of this machine right?"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for another host: is the `url` right?"
        }
        CertificateError::UnknownIssuer => {
            "was issued by an authority that this machine does not trust; a private authority goes into the \
             system's certificates, or into the file that `SSL_CERT_FILE` names"
        }
        CertificateError::Revoked => "was revoked",
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "is that of an authority, not of a server"
        }
        other => return Some(format!("is not valid: {other}")),
    };
    Some(text.to_owned())
}

fn host_of(uri: &Uri) -> Option<Arc<str>> {
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let usual = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.as_str();
    let authority = authority.strip_suffix(usual).unwrap_or(authority);
    Some(format!("{scheme}://{}", authority.to_ascii_lowercase()).into())
}

fn describe(error: &reqwest::Error, allowed: Duration) -> String {
    if error.is_timeout() {
        return late(allowed);
    }
    reason(error)
}

/// The causes of `error`, outermost first, without the url, whose query may have secrets.
fn reason(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        cause = error.source();
        // The errors of reqwest contain the url, those of its pool nothing useful, and many repeat their cause.
        let is_wrapper = text.starts_with("client error (") && cause.is_some();
        let is_known = words.iter().any(|before| before.contains(&text));
        if !error.is::<reqwest::Error>() && !is_wrapper && !is_known {
            words.push(text);
        }
    }
    if words.is_empty() {
        return "the request failed".to_owned();
    }
    cut(&words.join(": "), MAX_EXCERPT).to_owned()
}

fn not_sent(reason: impl Into<String>) -> Outcome {
    outcome_of(Failure::new(Class::Unavailable, reason), None, true)
}

fn unknown(reason: String) -> Outcome {
    Outcome::Unknown(Failure::new(Class::Unknown, reason))
}
