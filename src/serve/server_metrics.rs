//! What this process counts, and what was read of the database for probes and metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smsq_metrics::{Metrics, QueueState};
use smsq_store::{PostResult, Store};
use tokio::sync::Mutex;

/// How long `/readyz` waits for the database, and how long its answer is used: asking takes turns with writers.
const READY_WITHIN: Duration = Duration::from_secs(1);
const READY_FOR: Duration = Duration::from_secs(1);
/// How long the queue may take to be counted; shorter than a request may take.
const READ_WITHIN: Duration = Duration::from_secs(12);
/// A count is used for this long, and for this multiple of the time that it took.
const FRESH: Duration = Duration::from_secs(5);
const SHARE: u32 = 20;

/// What this process counts, and when the database was counted last.
pub(super) struct ServerMetrics {
    store: Store,
    patient_store: Store,
    config: smsq_metrics::Config,
    default_provider: Option<String>,
    counted: Arc<Metrics>,
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
    pub(super) fn new(
        store: Store,
        patient_store: Store,
        config: smsq_metrics::Config,
        counted: Arc<Metrics>,
        default_provider: Option<String>,
    ) -> Self {
        Self {
            store,
            patient_store,
            config,
            default_provider,
            counted,
            queue: Mutex::default(),
            ready: Mutex::default(),
        }
    }

    pub(super) fn count_posted(&self, results: &[PostResult]) {
        for result in results {
            let result = match result {
                PostResult::Queued(_) => "accepted",
                PostResult::Repeated(_) | PostResult::Known => "duplicate",
                PostResult::Conflict
                | PostResult::Dead
                | PostResult::Expired
                | PostResult::Cancelled
                | PostResult::NoCampaign => "rejected",
                PostResult::Suppressed => "suppressed",
            };
            self.counted.record_posted(result, 1);
        }
    }

    pub(super) fn count_receipts(&self, provider: &str, count: u64) {
        self.counted.record_receipts(provider, "webhook", count);
    }

    pub(super) fn count_unreadable(&self, provider: &str, count: u64) {
        self.counted.record_unreadable_posts(provider, count);
    }

    pub(super) fn count_opt_outs(&self, provider: &str, count: u64) {
        self.counted.record_opt_outs(provider, count);
    }

    /// Whether the database can be written now, or could a moment ago.
    pub(super) async fn is_ready(&self) -> bool {
        let mut ready = self.ready.lock().await;
        if let Some((_, is_ready)) = ready.filter(|(at, _)| at.elapsed() < READY_FOR) {
            return is_ready;
        }
        let checked = tokio::time::timeout(READY_WITHIN, self.store.check_writable()).await;
        let is_ready = matches!(checked, Ok(Ok(())));
        *ready = Some((Instant::now(), is_ready));
        is_ready
    }

    /// All metrics. However often they are asked for, the queue is counted for a small part of the time.
    pub(super) async fn text(&self) -> String {
        let mut queue = self.queue.lock().await;
        let is_fresh = |reading: &QueueReading| {
            reading.read_at.elapsed() < (reading.took * SHARE).max(FRESH) && reading.queue.is_some()
        };
        if !queue.as_ref().is_some_and(is_fresh) {
            let began = Instant::now();
            let default_provider = self.default_provider.as_deref();
            let reading = QueueState::read(&self.patient_store, self.config, default_provider);
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
