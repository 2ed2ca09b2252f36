//! What a worker counts, records and shows. Nothing here decides what is sent.

mod bottleneck;
mod latency;
mod progress;
mod provider;
mod publisher;

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use progress::Progress;
pub(super) use progress::WorkerSnapshot;
pub(super) use provider::ProviderTelemetry;
pub(super) use publisher::Publisher;

/// How often the state of a worker is recorded.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(250);
/// The longest wait for the last publication.
const LAST_PUBLICATION: Duration = Duration::from_secs(2);

/// What happened to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    pub sms_id: i64,
    /// Masked.
    pub phone: String,
    /// What happened and what happens next, for the operator.
    pub what: String,
}

/// What the dispatcher tells others.
pub(super) struct Telemetry {
    events: Option<mpsc::UnboundedSender<MessageEvent>>,
    /// When the state of the worker is recorded next.
    snapshot_at: Instant,
    /// The task that writes to the database what this worker does.
    publishing: JoinSet<()>,
    /// Ends that task after a last publication.
    stop_publishing: watch::Sender<bool>,
}

impl Telemetry {
    /// Begins to publish.
    pub(super) fn begin(
        publisher: Publisher,
        events: Option<mpsc::UnboundedSender<MessageEvent>>,
    ) -> Self {
        let (stop_publishing, stopped) = watch::channel(false);
        let mut publishing = JoinSet::new();
        publishing.spawn(publisher.run(stopped));
        Self { events, snapshot_at: Instant::now(), publishing, stop_publishing }
    }

    /// Whether it is time to record the state of the worker; true once for each time.
    pub(super) fn is_snapshot_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.snapshot_at;
        if is_due {
            self.snapshot_at = now + SNAPSHOT_EVERY;
        }
        is_due
    }

    /// Reports what happened to a message, if there is a listener.
    pub(super) fn emit(&self, event: impl FnOnce() -> MessageEvent) {
        if let Some(events) = &self.events {
            // Without a listener only the display is lost.
            drop(events.send(event()));
        }
    }

    /// Publishes what happened since the last publication, if the database can store it soon.
    pub(super) async fn publish_last(&mut self) {
        self.stop_publishing.send_replace(true);
        let ended = tokio::time::timeout(LAST_PUBLICATION, self.publishing.join_next()).await;
        if ended.is_err() {
            tracing::debug!("the last activity could not be published in time");
        }
        self.publishing.shutdown().await;
    }
}
