//! Publishes in the database what this worker does, in a task of its own. While the database cannot be reached, counts
//! wait in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smsq_message::activity::{ActivityRow, Bottleneck, WorkerActivity};
use smsq_process::identity::{ProcessorTimes, processor_times};
use smsq_store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bottleneck::WaitTimes;
use super::progress::Progress;
use crate::clock::Clock;
use crate::database::Database;

/// How often a worker publishes.
const EVERY: Duration = Duration::from_secs(2);
/// The time that rate and bottleneck are about.
const RECENT: Duration = Duration::from_secs(10);
/// How long counts are kept in the database.
const KEPT: Duration = Duration::from_secs(48 * 3_600);
/// How often older ones are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

pub(crate) struct Publisher {
    progress: Arc<Progress>,
    clock: Arc<Clock>,
    database: Database,
    concurrency: u32,
    /// Changes when the worker was declared dead.
    worker_id: Box<dyn Fn() -> i64 + Send + Sync>,
    /// Readings of the last [`RECENT`] time, and the last one before it.
    readings: VecDeque<ProgressReading>,
    /// What was published last, and under which id.
    published: Option<(i64, WorkerActivity)>,
    prune_at: Instant,
    /// The last publication failed.
    is_failing: bool,
}

/// What the run had done at an instant.
struct ProgressReading {
    at: Instant,
    sent: u64,
    waits: WaitTimes,
    processors: Option<ProcessorTimes>,
}

impl Publisher {
    pub(crate) fn new(
        progress: Arc<Progress>,
        clock: Arc<Clock>,
        database: Database,
        concurrency: u32,
        worker_id: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Self {
        let mut publisher = Self {
            progress,
            clock,
            database,
            concurrency,
            worker_id: Box::new(worker_id),
            readings: VecDeque::new(),
            published: None,
            prune_at: Instant::now(),
            is_failing: false,
        };
        publisher.read_progress();
        publisher
    }

    /// Publishes at intervals, and a last time when it is stopped.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let is_last = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            let failed = self.publish().await.err();
            let was_failing = std::mem::replace(&mut self.is_failing, failed.is_some());
            if let Some(error) = failed.filter(|_| !was_failing) {
                tracing::debug!(%error, "the activity could not be published");
            }
            if is_last {
                return;
            }
        }
    }

    /// Counts whose transaction fails are published with the next ones. If only the answer to its commit was lost, they
    /// are counted twice.
    async fn publish(&mut self) -> Result<(), StoreError> {
        let kept_from = self.clock.now().minus(KEPT);
        let mut rows = self.progress.take_counts();
        rows.retain(|row| row.at >= kept_from);
        let doing = self.activity();
        let worker_id = (self.worker_id)();
        let is_known = |(id, known): &(i64, WorkerActivity)| *id == worker_id && *known == doing;
        if rows.is_empty() && self.published.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        if let Err(error) = self.store(worker_id, &doing, &rows).await {
            for row in rows {
                self.progress.keep(row);
            }
            return Err(error);
        }
        self.published = Some((worker_id, doing));
        if Instant::now() >= self.prune_at {
            self.prune_at = Instant::now() + PRUNE_EVERY;
            let store = self.database.reach().await?;
            store.prune_activity(kept_from).await?;
        }
        Ok(())
    }

    async fn store(
        &self,
        worker_id: i64,
        doing: &WorkerActivity,
        rows: &[ActivityRow],
    ) -> Result<(), StoreError> {
        let store = self.database.reach().await?;
        store.publish(worker_id, doing, rows).await
    }

    /// What the worker does now.
    fn activity(&mut self) -> WorkerActivity {
        self.read_progress();
        let providers = self.progress.providers();
        let (rate, bottleneck) = match (self.readings.front(), self.readings.back()) {
            (Some(first), Some(last)) => (last.rate_since(first), last.bottleneck_since(first)),
            _ => (0.0, None),
        };
        WorkerActivity {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            in_flight: providers.iter().map(|provider| provider.in_flight).sum(),
            concurrency: self.concurrency,
            rate,
            bottleneck,
            providers,
        }
    }

    fn read_progress(&mut self) {
        let now = Instant::now();
        let progress = &self.progress;
        self.readings.push_back(ProgressReading {
            at: now,
            sent: progress.sent.load(Ordering::Relaxed),
            waits: progress.waits(),
            processors: processor_times(),
        });
        let is_old = |reading: &ProgressReading| now.duration_since(reading.at) >= RECENT;
        while self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
    }
}

impl ProgressReading {
    /// Messages sent per second, with one decimal.
    fn rate_since(&self, earlier: &Self) -> f64 {
        let sent =
            u32::try_from(self.sent.saturating_sub(earlier.sent)).map_or(f64::MAX, f64::from);
        let took = self.at.duration_since(earlier.at).as_secs_f64();
        (sent / took.max(0.001) * 10.0).round() / 10.0
    }

    fn bottleneck_since(&self, earlier: &Self) -> Option<Bottleneck> {
        let busy =
            self.processors.zip(earlier.processors).map(|(last, first)| last.busy_since(first));
        self.waits.since(&earlier.waits).bottleneck(busy)
    }
}
