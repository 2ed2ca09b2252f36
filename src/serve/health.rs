//! Health and metrics: for probes, load balancers and Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, header};
use tokio::sync::Mutex;

use super::ServerState;
use super::guard::Program;
use super::problem::Problem;
use super::tokens::Permission;
use crate::metrics::{CONTENT_TYPE, Metrics, QueueState};
use crate::store::PostResult;

/// How long `/readyz` waits for the database, and how long its answer is used: asking takes turns with writers.
const READY_WITHIN: Duration = Duration::from_secs(1);
const READY_FOR: Duration = Duration::from_secs(1);
/// How long the queue may take to be counted; shorter than a request may take.
const READ_WITHIN: Duration = Duration::from_secs(12);
/// A count is used for this long, and for this multiple of the time that it took.
const FRESH: Duration = Duration::from_secs(5);
const SHARE: u32 = 20;

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

async fn healthy() -> &'static str {
    "ok\n"
}

async fn ready(State(shared): State<Arc<ServerState>>) -> Response {
    if shared.metrics.is_ready(&shared).await {
        "ok\n".into_response()
    } else {
        Problem::unavailable("the database does not answer, or cannot be written").into_response()
    }
}

/// What this process counts, and when the database was counted last.
#[derive(Default)]
pub(super) struct ServerMetrics {
    counted: Metrics,
    queue: Mutex<Option<QueueReading>>,
    /// When the database was asked last, and whether it can be written.
    ready: Mutex<Option<(Instant, bool)>>,
}

/// The state of the queue, and what it cost to read it.
struct QueueReading {
    read_at: Instant,
    took: Duration,
    queue: Option<QueueState>,
}

impl ServerMetrics {
    pub(super) fn count_posted(&self, results: &[PostResult]) {
        for result in results {
            let result = match result {
                PostResult::Queued(_) => "accepted",
                PostResult::Repeated(_) | PostResult::Known => "duplicate",
                PostResult::Conflict
                | PostResult::Expired
                | PostResult::Cancelled
                | PostResult::NoCampaign => "rejected",
                PostResult::Suppressed => "suppressed",
            };
            self.counted.note_posted(result, 1);
        }
    }

    pub(super) fn count_receipts(&self, provider: &str, count: u64) {
        self.counted.note_receipts(provider, "webhook", count);
    }

    pub(super) fn count_unreadable(&self, provider: &str, count: u64) {
        self.counted.note_unreadable_posts(provider, count);
    }

    pub(super) fn count_opt_outs(&self, provider: &str, count: u64) {
        self.counted.note_opt_outs(provider, count);
    }

    /// Whether the database can be written now, or could a moment ago.
    async fn is_ready(&self, shared: &ServerState) -> bool {
        let mut ready = self.ready.lock().await;
        if let Some((_, is_ready)) = ready.filter(|(at, _)| at.elapsed() < READY_FOR) {
            return is_ready;
        }
        let checked = tokio::time::timeout(READY_WITHIN, shared.store.check_writable()).await;
        let is_ready = matches!(checked, Ok(Ok(())));
        *ready = Some((Instant::now(), is_ready));
        is_ready
    }

    /// All metrics. However often they are asked for, the queue is counted for a small part of the time.
    async fn text(&self, shared: &ServerState) -> String {
        let mut queue = self.queue.lock().await;
        let is_fresh = |reading: &QueueReading| {
            reading.read_at.elapsed() < (reading.took * SHARE).max(FRESH) && reading.queue.is_some()
        };
        if !queue.as_ref().is_some_and(is_fresh) {
            let began = Instant::now();
            let default_provider = shared.default_provider.as_deref();
            let store = &shared.patient_store;
            let reading = QueueState::read(store, shared.metrics_config, default_provider);
            let read = tokio::time::timeout(READ_WITHIN, reading).await;
            *queue = Some(QueueReading {
                read_at: Instant::now(),
                took: began.elapsed(),
                queue: read.ok().and_then(Result::ok),
            });
        }
        let queue = queue.as_ref().and_then(|reading| reading.queue.as_ref());
        self.counted.text(queue)
    }
}

/// For this machine without a token, unless a proxy hides who asks.
async fn metrics(
    State(shared): State<Arc<ServerState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    program: Result<Program, Problem>,
) -> Result<Response, Problem> {
    let is_local = peer.ip().is_loopback() && !shared.config.is_open();
    if !is_local {
        program?.0.need(Permission::View)?;
    }
    let text = shared.metrics.text(&shared).await;
    let kind = HeaderValue::from_static(CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
