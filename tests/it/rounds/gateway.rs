//! A gateway with two providers that misbehaves at random, and logs each arrival and each acceptance.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// How long smsq waits for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_millis(600);
/// A receipt is not returned sooner.
const RECEIPT_AFTER: Duration = Duration::from_millis(200);

/// What a provider offers against doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It accepts one message per reference.
    References,
    /// It says whether it has accepted a reference.
    Lookups,
    /// Nothing.
    Nothing,
}

/// One acceptance, for which a real gateway would text a phone.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) provider: usize,
    pub(super) phone: String,
    reference: String,
    at: Instant,
    has_receipt: bool,
}

#[derive(Default)]
struct Log {
    arrivals: [Vec<Instant>; 2],
    accepted: Vec<Accepted>,
    /// The index in `accepted` of each provider's references.
    references: HashMap<(usize, String), usize>,
    /// Phones whose message was not answered properly.
    doubtful: Vec<String>,
    /// What it did with every message, as text.
    deeds: Vec<String>,
}

struct State {
    doubts: [Doubt; 2],
    log: Mutex<Log>,
    random: Mutex<StdRng>,
    is_calm: AtomicBool,
}

/// What the gateway does with one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Accept(Duration),
    AcceptAndDrop,
    AcceptAndStall,
    AcceptAndFail,
    AcceptAndCut,
    Unavailable,
    Throttle,
    Reject,
    Drop,
}

/// It ends with its round.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

impl Gateway {
    pub(super) fn start(seed: u64, doubts: [Doubt; 2]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let state = Arc::new(State {
            doubts,
            log: Mutex::default(),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            is_calm: AtomicBool::new(false),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(serve(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            _runtime: runtime,
        }
    }

    /// From now on every message is accepted at once.
    pub(super) fn calm_down(&self) {
        self.state.is_calm.store(true, Ordering::SeqCst);
    }

    pub(super) fn accepted(&self) -> Vec<Accepted> {
        self.state.log().accepted.clone()
    }

    /// Phones whose messages may be unknown.
    pub(super) fn doubtful(&self) -> Vec<String> {
        self.state.log().doubtful.clone()
    }

    /// What it did with every message, for a person who looks for a fault.
    pub(super) fn deeds(&self) -> Vec<String> {
        self.state.log().deeds.clone()
    }

    pub(super) fn arrivals(&self, provider: usize) -> Vec<Instant> {
        self.state.log().arrivals[provider].clone()
    }
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no panic")
    }

    fn random(&self, below: u32) -> u32 {
        self.random.lock().expect("no panic").random_range(0..below)
    }

    fn deed(&self) -> Deed {
        let millis = |least: u32, most: u32| {
            Duration::from_millis(u64::from(least + self.random(most - least)))
        };
        if self.is_calm.load(Ordering::SeqCst) {
            return Deed::Accept(Duration::from_millis(5));
        }
        match self.random(1_000) {
            0..70 => Deed::AcceptAndDrop,
            70..100 => Deed::AcceptAndStall,
            100..130 => Deed::Accept(millis(300, 500)),
            130..150 => Deed::AcceptAndFail,
            150..165 => Deed::AcceptAndCut,
            165..185 => Deed::Unavailable,
            185..190 => Deed::Throttle,
            190..225 => Deed::Reject,
            225..245 => Deed::Drop,
            _ => Deed::Accept(millis(5, 60)),
        }
    }

    /// Returns the id of the message.
    fn accept(&self, provider: usize, phone: &str, reference: &str) -> String {
        let mut log = self.log();
        let key = (provider, reference.to_owned());
        let next = log.accepted.len();
        let first = *log.references.entry(key).or_insert(next);
        if first != next && self.doubts[provider] == Doubt::References {
            return format!("G{first}");
        }
        log.accepted.push(Accepted {
            provider,
            phone: phone.to_owned(),
            reference: reference.to_owned(),
            at: Instant::now(),
            has_receipt: false,
        });
        format!("G{next}")
    }

    async fn message(
        self: &Arc<Self>,
        provider: usize,
        body: &Value,
    ) -> io::Result<Response<Full<Bytes>>> {
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        let (phone, reference) = (text("to"), text("reference"));
        self.log().arrivals[provider].push(Instant::now());
        let deed = self.deed();
        let now = jiff::Timestamp::now();
        let done = format!("{now:.3} p{provider} {phone} {reference} {deed:?}");
        self.log().deeds.push(done);
        if !matches!(deed, Deed::Accept(_) | Deed::Throttle | Deed::Reject) {
            self.log().doubtful.push(phone.to_owned());
        }
        let error = |code: &str| json!({"error": {"code": code}}).to_string();
        match deed {
            Deed::Accept(after) => {
                // Also if the client is gone by then.
                let (state, phone) = (Arc::clone(self), phone.to_owned());
                let reference = reference.to_owned();
                let accepting = tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    state.accept(provider, &phone, &reference)
                });
                let id = accepting.await.map_err(io::Error::other)?;
                Ok(answer(StatusCode::CREATED, json!({"id": id}).to_string()))
            }
            Deed::AcceptAndDrop => {
                self.accept(provider, phone, reference);
                Err(io::Error::other("no answer"))
            }
            Deed::AcceptAndStall => {
                let id = self.accept(provider, phone, reference);
                tokio::time::sleep(TIMEOUT * 2).await;
                Ok(answer(StatusCode::CREATED, json!({"id": id}).to_string()))
            }
            Deed::AcceptAndFail => {
                self.accept(provider, phone, reference);
                let statuses = [
                    StatusCode::INTERNAL_SERVER_ERROR,
                    StatusCode::BAD_GATEWAY,
                    StatusCode::SERVICE_UNAVAILABLE,
                    StatusCode::GATEWAY_TIMEOUT,
                ];
                let status = statuses[self.random(4) as usize];
                Ok(answer(status, String::new()))
            }
            Deed::AcceptAndCut => {
                self.accept(provider, phone, reference);
                Ok(answer(StatusCode::CREATED, "{\"id\": \"".to_owned()))
            }
            Deed::Unavailable => Ok(answer(StatusCode::SERVICE_UNAVAILABLE, error("overloaded"))),
            Deed::Throttle => {
                let mut throttled = answer(StatusCode::TOO_MANY_REQUESTS, error("rate_limited"));
                let second = http::HeaderValue::from_static("1");
                throttled.headers_mut().insert("retry-after", second);
                Ok(throttled)
            }
            Deed::Reject => Ok(answer(StatusCode::BAD_REQUEST, error("invalid_recipient"))),
            Deed::Drop => Err(io::Error::other("no answer")),
        }
    }

    /// The acceptances of a reference.
    fn lookup(&self, provider: usize, reference: &str) -> Value {
        let log = self.log();
        let found = log.accepted.iter().enumerate().filter(|(_, accepted)| {
            accepted.provider == provider && accepted.reference == reference
        });
        found
            .map(|(index, accepted)| {
                json!({"id": format!("G{index}"), "reference": accepted.reference})
            })
            .collect()
    }

    /// Receipts that were not returned before.
    fn receipts(&self, provider: usize) -> Value {
        let mut log = self.log();
        let new = log.accepted.iter_mut().enumerate().filter(|(_, accepted)| {
            accepted.provider == provider
                && !accepted.has_receipt
                && accepted.at.elapsed() > RECEIPT_AFTER
        });
        let receipts: Vec<Value> = new
            .take(100)
            .map(|(index, accepted)| {
                accepted.has_receipt = true;
                json!({
                    "id": format!("G{index}"),
                    "reference": accepted.reference,
                    "to": accepted.phone,
                    "state": "delivered",
                    "at": jiff::Timestamp::now().to_string(),
                })
            })
            .collect();
        json!({ "receipts": receipts })
    }

    async fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> io::Result<Response<Full<Bytes>>> {
        let path = request.uri().path().to_owned();
        let provider = usize::from(path.starts_with("/p1/"));
        let query = request.uri().query().unwrap_or_default();
        let reference = query.trim_start_matches("reference=").to_owned();
        let is_get = request.method() == http::Method::GET;
        let body = request.into_body().collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        if !is_get {
            let body = serde_json::from_slice(&body).map_err(io::Error::other)?;
            return self.message(provider, &body).await;
        }
        let found = if path.ends_with("/receipts") {
            self.receipts(provider)
        } else {
            self.lookup(provider, &reference)
        };
        // What is asked for is lost, too.
        let is_calm = self.is_calm.load(Ordering::SeqCst);
        if !is_calm && self.random(10) == 0 {
            return Err(io::Error::other("no answer"));
        }
        Ok(answer(StatusCode::OK, found.to_string()))
    }
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

async fn serve(listener: TcpListener, state: Arc<State>) -> Result<Infallible, io::Error> {
    loop {
        let (stream, _) = listener.accept().await?;
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let respond = service_fn(|request| {
                let state = Arc::clone(&state);
                async move { state.respond(request).await }
            });
            // An error of the service closes the connection without a response.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), respond)
                .await;
        });
    }
}
