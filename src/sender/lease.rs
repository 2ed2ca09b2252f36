//! A worker's lease, renewed by its heartbeat. A worker whose lease has run out starts nothing, and the
//! messages of a dead worker are reclaimed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::instant::SteadyMicros;
use crate::process::ProcessIdentity;
use crate::queue::Settlement;
use crate::sender::clock::Clock;
use crate::sender::database::Database;
use crate::sender::marks::{self, EndedMarks, Marks};
use crate::sender::telemetry::Progress;
use crate::sms::{Timestamp, millis};
use crate::store::{NewWorker, StoreError, Worker};

/// A worker stops trusting its lease this part of it before others may take over.
const MARGIN: f64 = 0.1;
/// A request starts within this part of a lease after its claim was planned.
const CLAIM_PART: u32 = 2;
/// How often a lease is renewed before it ends.
const BEATS: u32 = 3;
/// After this many failed renewals in a row nothing is started.
const MISSES: u32 = 2;
/// How often the database's clock is read between two heartbeats.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

/// One worker's lease.
pub(super) struct Lease {
    database: Database,
    clock: Arc<Clock>,
    length: Duration,
    concurrency: i32,
    worker_id: AtomicI64,
    /// On the host's steady clock, so that a clock that is set does not make a lease longer.
    trusted_until_us: AtomicI64,
    missed: AtomicU32,
    is_given_up: AtomicBool,
    /// In milliseconds. For a lease from then on no worker is declared dead for its silence.
    patient_since: AtomicI64,
    /// The id under which this worker was last declared dead.
    forfeited: AtomicI64,
    /// Wakes the heartbeat early.
    wake: Notify,
    /// Counts renewals.
    progress: Arc<Progress>,
    marks: Arc<Marks>,
}

/// A dead worker, whose messages are to be reclaimed.
pub(super) struct DeadWorker {
    worker: Worker,
    /// Why it is dead.
    reason: String,
    /// Its marks, also where they do not count.
    files: Vec<PathBuf>,
    /// `None`: its messages are unknown. A silent process may still send.
    marks: Option<EndedMarks>,
}

impl Lease {
    /// Registers this process as a worker.
    pub(super) async fn begin(
        database: Database,
        clock: Arc<Clock>,
        length: Duration,
        concurrency: u32,
        progress: Arc<Progress>,
        marks: Arc<Marks>,
    ) -> Result<Arc<Self>, StoreError> {
        let concurrency = i32::try_from(concurrency).unwrap_or(i32::MAX);
        let asked_at = clock.steady();
        let store = database.reach().await?;
        let new = new_worker(concurrency, length);
        let worker_id = store.workers().register(&new, clock.now()).await?;
        marks.begin(worker_id);
        let lease = Arc::new(Self {
            database,
            clock,
            length,
            concurrency,
            worker_id: AtomicI64::new(worker_id),
            trusted_until_us: AtomicI64::new(0),
            missed: AtomicU32::new(0),
            is_given_up: AtomicBool::new(false),
            patient_since: AtomicI64::new(i64::MIN),
            forfeited: AtomicI64::new(0),
            wake: Notify::new(),
            progress,
            marks,
        });
        lease.trust_from(asked_at);
        Ok(lease)
    }

    pub(super) fn worker_id(&self) -> i64 {
        self.worker_id.load(Ordering::Acquire)
    }

    /// Whether a request may start now.
    pub(super) fn holds(&self) -> bool {
        !self.is_given_up.load(Ordering::Acquire)
            && self.missed.load(Ordering::Acquire) < MISSES
            && self.worker_id() != self.forfeited.load(Ordering::Acquire)
            && self.clock.steady().as_micros() < self.trusted_until_us.load(Ordering::Acquire)
            && !self.clock.is_doubtful()
    }

    /// Whether a request that was claimed under this id may start now. Once a worker was declared dead,
    /// its earlier claims are not valid.
    pub(super) fn covers(&self, worker_id: i64) -> bool {
        let covers = self.worker_id() == worker_id && self.holds();
        if !covers && self.clock.is_doubtful() {
            self.wake.notify_one();
        }
        covers
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// How long after the plan of a claim its requests may start.
    pub(super) fn claim_span(&self) -> Duration {
        self.length / CLAIM_PART
    }

    /// Another worker has declared this id dead: nothing more starts under it, and the
    /// heartbeat registers this worker again at once.
    pub(super) fn forfeit(&self, worker_id: i64) {
        self.forfeited.store(worker_id, Ordering::Release);
        self.wake.notify_one();
    }

    /// Ends the lease for this process, whatever the database says.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Renews the lease and follows the clock until the task is aborted.
    pub(super) async fn keep(self: Arc<Self>) {
        let between = self.length / BEATS;
        let mut beat_at = Instant::now() + between;
        loop {
            tokio::select! {
                () = tokio::time::sleep(between.min(CLOCK_INTERVAL)) => {}
                () = self.wake.notified() => {}
            }
            if self.clock.is_doubtful() {
                // The lease may be over: nothing starts before it is renewed.
                self.missed.store(MISSES, Ordering::Release);
            }
            match self.clock.read().await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::warn!("the database's clock was set; every limit counts as full");
                    // By the new time every worker may seem silent.
                    self.be_patient();
                    beat_at = Instant::now();
                }
                Err(error) => tracing::debug!(%error, "the database's clock could not be read"),
            }
            // After a suspend the lease is over before it is time to renew it.
            if Instant::now() < beat_at && self.holds() {
                continue;
            }
            beat_at = Instant::now() + between;
            if let Err(error) = self.beat().await {
                self.missed.fetch_add(1, Ordering::AcqRel);
                tracing::warn!(%error, "the lease was not renewed");
            }
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let asked_at = self.clock.steady();
        let lapsed = !self.holds();
        let store = self.database.reach().await?;
        let now = self.clock.now();
        if !store.workers().heartbeat(self.worker_id(), now).await? {
            // Declared dead: what was claimed under the old id is unknown. Continue under a new one.
            let new = new_worker(self.concurrency, self.length);
            let worker_id = store.workers().register(&new, now).await?;
            tracing::warn!(
                worker_id,
                "this worker had been declared dead and starts again under a new id"
            );
            // Nothing is claimed under the new id before this.
            self.marks.begin(worker_id);
            self.worker_id.store(worker_id, Ordering::Release);
        }
        if lapsed {
            self.be_patient();
        }
        self.missed.store(0, Ordering::Release);
        self.trust_from(asked_at);
        Ok(())
    }

    fn be_patient(&self) {
        let now = self.clock.now().as_millis();
        self.patient_since.store(now, Ordering::Release);
    }

    /// Finds dead workers, and removes the marks of those that were reclaimed.
    pub(super) async fn find_dead(&self) -> Result<Vec<DeadWorker>, StoreError> {
        let own = self.worker_id();
        let now = self.clock.now();
        // Before the workers: each is registered before it has a file.
        let mut files = self.marks.list().await;
        let store = self.database.reach().await?;
        let mut dead = Vec::new();
        for worker in store.workers().all().await? {
            let files = files.remove(&worker.id).unwrap_or_default();
            if worker.id == own {
                continue;
            }
            let process = process_of(&worker);
            let is_gone = process.is_gone();
            let Some(reason) = self.is_dead(&worker, is_gone, now) else {
                continue;
            };
            tracing::warn!(
                worker_id = worker.id,
                pid = worker.pid,
                reason,
                "a worker is dead"
            );
            let marks = if is_gone {
                EndedMarks::read(files.clone(), worker.id, process).await
            } else {
                None
            };
            dead.push(DeadWorker {
                worker,
                reason,
                files,
                marks,
            });
        }
        marks::remove_all(files.into_values().flatten());
        Ok(dead)
    }

    /// The results of messages that dead workers were sending, as far as their marks say. They must be settled before
    /// the workers are reclaimed.
    pub(super) async fn marked_results(
        &self,
        dead: &[DeadWorker],
    ) -> Result<Vec<Settlement>, StoreError> {
        let mut results = Vec::new();
        for DeadWorker { worker, marks, .. } in dead.iter().filter(|dead| dead.marks.is_some()) {
            let store = self.database.reach().await?;
            let rows = store.workers().sending(worker.id).await?;
            let known = rows
                .iter()
                .filter_map(|row| marks::result_of(row, marks.as_ref()));
            results.extend(known);
        }
        Ok(results)
    }

    /// Makes unknown what dead workers were sending; returns how many messages.
    pub(super) async fn reclaim(&self, dead: Vec<DeadWorker>) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let mut reclaimed = 0;
        for dead in dead {
            let store = self.database.reach().await?;
            let (worker, reason) = (&dead.worker, &dead.reason);
            reclaimed += store.workers().reclaim(worker, reason, now).await?;
            marks::remove_all(dead.files);
        }
        Ok(reclaimed)
    }

    fn is_dead(&self, worker: &Worker, is_gone: bool, now: Timestamp) -> Option<String> {
        let who = format!(
            "worker {} (pid {} on {})",
            worker.id, worker.pid, worker.host
        );
        if is_gone {
            return Some(format!("{who} died while sending"));
        }
        // Each worker has its own lease.
        let patient_since = self.patient_since.load(Ordering::Acquire);
        let silent_since = worker.heartbeat_at.as_millis().max(patient_since);
        let is_silent = now.as_millis().saturating_sub(silent_since) > worker.lease_ms;
        is_silent.then(|| format!("{who} fell silent while sending"))
    }

    /// Removes the worker after everything was settled.
    pub(super) async fn end(&self) -> Result<(), StoreError> {
        let store = self.database.reach().await?;
        store.workers().remove(self.worker_id()).await?;
        self.marks.end();
        Ok(())
    }

    fn trust_from(&self, asked_at: SteadyMicros) {
        let trusted = self.length.mul_f64(1.0 - MARGIN);
        let until = asked_at.plus(trusted);
        self.trusted_until_us
            .store(until.as_micros(), Ordering::Release);
        self.progress.heartbeats.fetch_add(1, Ordering::Relaxed);
    }
}

/// This process as a worker, so that others on its host can check whether it still runs.
fn new_worker(concurrency: i32, lease: Duration) -> NewWorker {
    let process = ProcessIdentity::current();
    NewWorker {
        host: process.host,
        boot_id: process.boot_id,
        pid_namespace: process.pid_namespace,
        pid: process.pid,
        process_started: process.started,
        concurrency,
        lease_ms: millis(lease),
    }
}

fn process_of(worker: &Worker) -> ProcessIdentity {
    ProcessIdentity {
        host: worker.host.clone(),
        boot_id: worker.boot_id.clone(),
        pid_namespace: worker.pid_namespace.clone(),
        pid: worker.pid,
        started: worker.process_started,
    }
}
