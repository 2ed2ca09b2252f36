//! The HTTP client of providers. It sends a request once. Without an answer it distinguishes a request that was
//! certainly not sent, which can be repeated, from one that may have been sent.

mod connections;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::proxy::matcher::Matcher;
use rustls::crypto::ring::default_provider;
use rustls_platform_verifier::BuilderVerifierExt;
use smsq_message::sms::{Class, Failure, Outcome};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::Provider;
use super::codes::status::outcome_of;
use super::redact::{MAX_EXCERPT, cut};
use connections::{Connections, Destination, Link, Opened};

pub(super) use connections::MaybeStray;
pub use connections::{OpenConnection, ReservedConnection};

/// Longer answers are cut.
pub const MAX_ANSWER: usize = 1 << 20;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("smsq/", env!("CARGO_PKG_VERSION")));
const ANY: HeaderValue = HeaderValue::from_static("*/*");
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// After a timeout, a response that has already arrived is still read for this long: a process that was stopped finds
/// the response and the timeout at the same time.
const GRACE: Duration = Duration::from_millis(250);
/// How long an answer waits until its connection can be used again, and a refusal for the end of its connection.
const HANDOVER: Duration = Duration::from_millis(5);
/// How often a connection is opened for one request, because the server closed it at once.
const CONNECTS: u32 = 3;

/// The client of one provider: `reqwest` opens its connections, with DNS, proxies and TLS, and `hyper` sends on them.
#[derive(Clone, Debug)]
pub struct Client {
    opener: reqwest::Client,
    connections: Arc<Connections>,
    /// Of the provider's URL.
    base: Arc<Destination>,
    proxies: Option<Arc<Matcher>>,
    timeout: Duration,
    connect: Duration,
}

/// Why a request has no response.
#[derive(Debug)]
pub enum Unanswered {
    /// The connection was closed: nothing was sent.
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
    pub fn new(provider: &Provider) -> Result<Self, ClientError> {
        let timeout = provider.timeout();
        // A connection that could not be opened in time must be reported as that, not as a missing answer.
        let connect = (timeout * 9 / 10).min(MAX_CONNECT);
        let failed = |reason: String| ClientError { provider: provider.name().to_owned(), reason };
        let url = &provider.config().url;
        let base = url[..url::Position::BeforePath]
            .parse()
            .ok()
            .and_then(|uri| Destination::of(&uri))
            .ok_or_else(|| failed("its `url` has no host".to_owned()))?;
        let is_plain = provider.config().url.scheme() == "http";
        let needs_certificates = !(is_plain && provider.is_on_this_host());
        let tls = tls_config(needs_certificates).map_err(|error| failed(error.to_string()))?;
        let opener = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // For the `CONNECT` of a proxy.
            .user_agent(AGENT)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .connector_layer(connections::layer())
            .connect_timeout(connect);
        let (opener, proxies) = if provider.is_on_this_host() {
            (opener.no_proxy(), None)
        } else {
            (opener, Some(Arc::new(Matcher::from_system())))
        };
        Ok(Self {
            opener: opener.build().map_err(|error| failed(cause_text(&error)))?,
            connections: Connections::new(provider.config().idle),
            base: Arc::new(base),
            proxies,
            timeout,
            connect,
        })
    }

    /// Opens a connection to the provider's URL as for a request, with TLS, and sends nothing on it.
    pub async fn try_connection(&self) -> Result<(), Unreachable> {
        self.open(&self.base).await.map(drop)
    }

    /// Sends the request once, and opens a connection if none is open. `Err` is the outcome without an answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        for _ in 0..CONNECTS {
            let connection = self.connect(request.uri()).await?;
            match self.exchange(connection, request.clone()).await {
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
        let (ready, missing) = self.connections.prepare(&self.base.host, calls, per_second, ahead);
        for _ in 0..missing {
            let client = self.clone();
            tokio::spawn(async move {
                // If it fails, the next request reports why.
                drop(client.open(&client.base).await);
            });
        }
        ready
    }

    /// Takes an open connection for a request to this URI, or opens one. `Err` is the outcome if none can be opened.
    pub async fn connect(&self, uri: &Uri) -> Result<OpenConnection, Outcome> {
        let destination = if self.base.is_of(uri) {
            Arc::clone(&self.base)
        } else {
            Destination::of(uri)
                .map(Arc::new)
                .ok_or_else(|| not_sent("cannot build the request: its URL has no host"))?
        };
        if let Some(open) = self.connections.take(&destination.host) {
            return Ok(open);
        }
        self.connections.record_opening(&destination.host);
        let (client, (result, opened)) = (self.clone(), oneshot::channel());
        // In a task, so that a caller that stops waiting leaves an open connection for the next one.
        tokio::spawn(async move { drop(result.send(client.open(&destination).await)) });
        match opened.await {
            Ok(opened) => opened.map_err(Outcome::from),
            Err(_) => Err(not_sent("no connection: connecting was cancelled")),
        }
    }

    async fn open(&self, destination: &Arc<Destination>) -> Result<OpenConnection, Unreachable> {
        let slot = self.connections.opening_slot().await;
        let began = Instant::now();
        let request = self.opener.get(format!("{}/", destination.host));
        let error = request.send().await.err();
        drop(slot);
        let opened = error
            .as_ref()
            .and_then(|error| cause::<Opened>(error))
            .and_then(|opened| self.connections.opened(destination, opened));
        let took = opened.is_some().then(|| began.elapsed());
        self.connections.record_opened(&destination.host, took);
        if let Some(connection) = opened {
            return Ok(connection);
        }
        let fault = error.as_ref().and_then(|error| certificate_fault(error));
        Err(Unreachable {
            is_certificate: fault.is_some(),
            reason: match (fault, error) {
                (Some(fault), _) => {
                    let (_, host) = destination.host.split_once("://").unwrap_or_default();
                    format!("the certificate of `{host}` {fault}")
                }
                (None, Some(error)) if error.is_timeout() => late(self.connect),
                (None, Some(error)) => cause_text(&error),
                (None, None) => "the request failed".to_owned(),
            },
        })
    }

    /// Sends the request once on this connection.
    pub async fn exchange(
        &self,
        connection: OpenConnection,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Unanswered> {
        let mut link = connection.into_link().ok_or(Unanswered::NotConnected)?;
        let request = self.written(request, &link);
        let mut answer = self.exchange_within_limit(&mut link, request).await?;
        let is_kept = matches!(timeout(HANDOVER, link.sender.ready()).await, Ok(Ok(())));
        if answer.status().is_client_error() && ends_connection(&answer, &link).await {
            if let Some(stray) = self.connections.stray(link.was_used, answer.status()) {
                answer.extensions_mut().insert(stray);
            }
        } else if is_kept {
            self.connections.add_used(link);
        }
        Ok(answer)
    }

    /// The request as it is written: with the path only, unless a proxy needs the whole URL.
    fn written(&self, request: Request<Bytes>, link: &Link) -> Request<Full<Bytes>> {
        let mut written = request.map(Full::new);
        if let Some(proxies) = self.proxies.as_ref().filter(|_| link.is_proxied) {
            let proxy = proxies.intercept(written.uri());
            if let Some(password) = proxy.as_ref().and_then(|proxy| proxy.basic_auth()) {
                let headers = written.headers_mut();
                headers.insert(PROXY_AUTHORIZATION, password.clone());
            }
        } else if let Some(path) = written.uri().path_and_query() {
            *written.uri_mut() = path.clone().into();
        }
        let headers = written.headers_mut();
        let own = [(HOST, &link.destination.authority), (USER_AGENT, &AGENT), (ACCEPT, &ANY)];
        for (name, value) in own {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        written
    }

    /// The complete response. The rest of an incomplete one may say something else than its status: an id, a code, or
    /// the results of several messages.
    async fn exchange_within_limit(
        &self,
        link: &mut Link,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Unanswered> {
        let mut answer = None;
        let ended = {
            let mut reading = pin!(read_answer(link, request, &mut answer));
            match timeout(self.timeout, reading.as_mut()).await {
                Ok(ended) => Some(ended),
                Err(_) => timeout(GRACE, reading).await.ok(),
            }
        };
        let problem = match ended {
            Some(Err(ExchangeError::NotSent)) => return Err(Unanswered::NotConnected),
            Some(Err(ExchangeError::Lost(error))) => cause_text(&error),
            Some(Ok(false)) => "longer than 1 MiB".to_owned(),
            Some(Ok(true)) => String::new(),
            None => late(self.timeout),
        };
        let why = match answer {
            Some(answer) if problem.is_empty() => return Ok(answer.map(BytesMut::freeze)),
            Some(answer) => {
                format!("the answer {} is incomplete: {problem}", answer.status().as_u16())
            }
            None => format!("no answer: {problem}"),
        };
        Err(Unanswered::Ended(unknown(why)))
    }
}

/// Whether the connection ends with this answer. A server that closes it without saying so does that at once.
async fn ends_connection(answer: &Response<Bytes>, link: &Link) -> bool {
    let says_so = answer
        .headers()
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("close"));
    let closed = async {
        while !link.sender.is_closed() {
            tokio::time::sleep(HANDOVER / 5).await;
        }
    };
    says_so || timeout(HANDOVER, closed).await.is_ok()
}

/// Why an answer is missing or incomplete.
enum ExchangeError {
    /// The connection was closed before the request was written.
    NotSent,
    Lost(hyper::Error),
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        Self::Lost(error)
    }
}

/// Sends the request and reads into `answer` what arrives. False: it is longer than [`MAX_ANSWER`], and was cut.
async fn read_answer(
    link: &mut Link,
    request: Request<Full<Bytes>>,
    answer: &mut Option<Response<BytesMut>>,
) -> Result<bool, ExchangeError> {
    let response = link.sender.try_send_request(request).await;
    let (parts, mut body) = response
        .map_err(|mut error| match error.take_message() {
            Some(_) => ExchangeError::NotSent,
            None => ExchangeError::Lost(error.into_error()),
        })?
        .into_parts();
    let read = answer.insert(Response::from_parts(parts, BytesMut::new())).body_mut();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else {
            continue;
        };
        let fits = chunk.len().min(MAX_ANSWER - read.len());
        read.extend_from_slice(&chunk[..fits]);
        if fits < chunk.len() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The settings of TLS. Without it no certificates are needed, which take long to read.
pub fn tls_config(needs_certificates: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?;
    let mut config = if needs_certificates {
        builder.with_platform_verifier()?.with_no_client_auth()
    } else {
        let none = rustls::RootCertStore::empty();
        builder.with_root_certificates(none).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn late(allowed: Duration) -> String {
    format!("not within {} s", allowed.as_secs_f64())
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

/// `error` and its causes, outermost first, without the url, whose query may have secrets.
pub fn cause_text(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        cause = error.source();
        // The errors of reqwest contain the url, and many others repeat their cause.
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
