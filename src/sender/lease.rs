//! A worker's word that it lives. A heartbeat renews its lease; a worker whose own lease has run out
//! starts nothing; and whoever is found dead has their messages parked as unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::process::ProcessIdentity;
use crate::sender::clock::{Clock, micros};
use crate::sender::database::Database;
use crate::sms::{Timestamp, millis};
use crate::store::{NewWorker, StoreError, Worker};

/// Trust in one's own lease ends this part of it before peers may take over.
const MARGIN: f64 = 0.1;
/// So often a lease is renewed while it lasts.
const BEATS: u32 = 3;
/// After so many renewals in a row that failed, nothing more is started.
const MISSES: u32 = 2;
/// The database's clock is looked at at every heartbeat, and so often between two.
const LOOK: Duration = Duration::from_secs(2);

/// One worker's lease.
pub(super) struct Lease {
    database: Database,
    clock: Arc<Clock>,
    length: Duration,
    concurrency: i32,
    worker_id: AtomicI64,
    /// On the host's steady clock: nobody's setting of a clock makes a lease longer.
    trusted_until_us: AtomicI64,
    missed: AtomicU32,
    is_given_up: AtomicBool,
    /// In milliseconds: until a lease later no other worker is declared dead for its silence.
    patient_since: AtomicI64,
    /// The id under which this worker was declared dead last.
    forfeited: AtomicI64,
    /// Wakes the heartbeat early.
    wake: Notify,
}

impl Lease {
    /// Registers this process as a worker.
    pub(super) async fn begin(
        database: Database,
        clock: Arc<Clock>,
        length: Duration,
        concurrency: u32,
    ) -> Result<Arc<Self>, StoreError> {
        let concurrency = i32::try_from(concurrency).unwrap_or(i32::MAX);
        let asked_us = clock.steady_us();
        let store = database.reach().await?;
        let new = new_worker(concurrency, length);
        let worker_id = store.register_worker(&new, clock.now()).await?;
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
        });
        lease.trust_from(asked_us);
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
            && self.clock.steady_us() < self.trusted_until_us.load(Ordering::Acquire)
            && !self.clock.is_doubtful()
    }

    /// Whether a request may start now for what was claimed under this id: after this worker was taken
    /// for dead, what it had claimed before is no longer its own.
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

    /// Another worker has declared this one dead under that id: nothing more is started under it, and
    /// the heartbeat registers this worker anew at once.
    pub(super) fn forfeit(&self, worker_id: i64) {
        self.forfeited.store(worker_id, Ordering::Release);
        self.wake.notify_one();
    }

    /// Starts nothing more, whatever the database says.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Renews the lease and keeps the clock, until it is dropped.
    pub(super) async fn keep(self: Arc<Self>) {
        let between = self.length / BEATS;
        let mut beat_at = Instant::now() + between;
        loop {
            tokio::select! {
                () = tokio::time::sleep(between.min(LOOK)) => {}
                () = self.wake.notified() => {}
            }
            if self.clock.is_doubtful() {
                // For all this worker knows its lease is over: nothing starts before it is renewed.
                self.missed.store(MISSES, Ordering::Release);
            }
            match self.clock.look().await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::warn!("the database's clock has jumped; every limit counts as full");
                    // By the new time this worker may seem silent, and so may all others.
                    self.be_patient();
                    beat_at = Instant::now();
                }
                Err(error) => tracing::debug!(%error, "the database's clock could not be read"),
            }
            // A host that was suspended finds its lease run out before it is time to renew it.
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
        let asked_us = self.clock.steady_us();
        let lapsed = !self.holds();
        let store = self.database.reach().await?;
        let now = self.clock.now();
        if !store.heartbeat(self.worker_id(), now).await? {
            // Declared dead: what was claimed under the old id is parked; start anew under another.
            let new = new_worker(self.concurrency, self.length);
            let worker_id = store.register_worker(&new, now).await?;
            tracing::warn!(
                worker_id,
                "this worker had been declared dead and starts anew"
            );
            self.worker_id.store(worker_id, Ordering::Release);
        }
        if lapsed {
            self.be_patient();
        }
        self.missed.store(0, Ordering::Release);
        self.trust_from(asked_us);
        Ok(())
    }

    fn be_patient(&self) {
        let now = self.clock.now().as_millis();
        self.patient_since.store(now, Ordering::Release);
    }

    /// Parks what dead workers were sending; returns how many messages that were.
    pub(super) async fn bury_dead(&self) -> Result<u64, StoreError> {
        let own = self.worker_id();
        let now = self.clock.now();
        let mut parked = 0;
        let store = self.database.reach().await?;
        for worker in store.worker_rows().await? {
            if worker.id == own {
                continue;
            }
            let Some(reason) = self.is_dead(&worker, now) else {
                continue;
            };
            tracing::warn!(
                worker_id = worker.id,
                pid = worker.pid,
                reason,
                "a worker is dead"
            );
            parked += store.park_dead(&worker, &reason, now).await?;
        }
        Ok(parked)
    }

    fn is_dead(&self, worker: &Worker, now: Timestamp) -> Option<String> {
        let who = format!(
            "worker {} (pid {} on {})",
            worker.id, worker.pid, worker.host
        );
        if process_of(worker).is_gone() {
            return Some(format!("{who} died while sending"));
        }
        // A worker keeps to its own lease, whatever this one's is.
        let patient_since = self.patient_since.load(Ordering::Acquire);
        let silent_since = worker.heartbeat_at.max(patient_since);
        let is_silent = now.as_millis().saturating_sub(silent_since) > worker.lease_ms;
        is_silent.then(|| format!("{who} fell silent while sending"))
    }

    /// Ends the lease after everything was settled.
    pub(super) async fn end(&self) -> Result<(), StoreError> {
        let store = self.database.reach().await?;
        store.remove_worker(self.worker_id()).await
    }

    fn trust_from(&self, asked_us: i64) {
        let trusted = self.length.mul_f64(1.0 - MARGIN);
        let until = asked_us.saturating_add(micros(trusted));
        self.trusted_until_us.store(until, Ordering::Release);
    }
}

/// This process as a worker, so that others on its host can tell whether it still runs.
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
