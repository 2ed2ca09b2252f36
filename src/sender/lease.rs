//! A worker's word that it lives. A heartbeat renews its lease; a worker whose own lease has run out
//! starts nothing; and whoever is found dead has their messages parked as unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::process;
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
    slots: i32,
    worker_id: AtomicI64,
    /// On the host's steady clock: nobody's setting of a clock makes a lease longer.
    trusted_until_us: AtomicI64,
    missed: AtomicU32,
    /// Before this, in milliseconds, others are not declared dead for their silence.
    patient_until: AtomicI64,
}

impl Lease {
    /// Registers this process as a worker.
    pub(super) async fn begin(
        database: Database,
        clock: Arc<Clock>,
        length: Duration,
        slots: u32,
    ) -> Result<Arc<Self>, StoreError> {
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let asked_us = clock.steady_us();
        let store = database.reach().await?;
        let worker_id = store.register_worker(&identity(slots), clock.now()).await?;
        let lease = Arc::new(Self {
            database,
            clock,
            length,
            slots,
            worker_id: AtomicI64::new(worker_id),
            trusted_until_us: AtomicI64::new(0),
            missed: AtomicU32::new(0),
            patient_until: AtomicI64::new(0),
        });
        lease.trust_from(asked_us);
        Ok(lease)
    }

    pub(super) fn worker_id(&self) -> i64 {
        self.worker_id.load(Ordering::Acquire)
    }

    /// Whether a request may start now.
    pub(super) fn holds(&self) -> bool {
        self.missed.load(Ordering::Acquire) < MISSES
            && self.clock.steady_us() < self.trusted_until_us.load(Ordering::Acquire)
    }

    /// Whether a request may start now for what was claimed under this id: after this worker was taken
    /// for dead, what it had claimed before is no longer its own.
    pub(super) fn covers(&self, worker_id: i64) -> bool {
        self.worker_id() == worker_id && self.holds()
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Renews the lease and keeps the clock, until it is dropped.
    pub(super) async fn keep(self: Arc<Self>) {
        let between = self.length / BEATS;
        let mut beat_at = Instant::now() + between;
        loop {
            tokio::time::sleep(between.min(LOOK)).await;
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
            let worker_id = store.register_worker(&identity(self.slots), now).await?;
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
        let patient_until = self.clock.now().plus(self.length);
        self.patient_until
            .store(patient_until.as_millis(), Ordering::Release);
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
        if is_gone(worker) {
            return Some(format!("{who} died while sending"));
        }
        let patient = now.as_millis() < self.patient_until.load(Ordering::Acquire);
        let silent = now.as_millis() - worker.heartbeat_at > millis(self.length);
        (silent && !patient).then(|| format!("{who} fell silent while sending"))
    }

    /// Ends the lease after everything was settled.
    pub(super) async fn end(&self) -> Result<(), StoreError> {
        let store = self.database.reach().await?;
        store.release_pace(self.worker_id()).await?;
        store.remove_worker(self.worker_id()).await
    }

    fn trust_from(&self, asked_us: i64) {
        let trusted = self.length.mul_f64(1.0 - MARGIN);
        let until = asked_us.saturating_add(micros(trusted));
        self.trusted_until_us.store(until, Ordering::Release);
    }
}

/// Who this process is, so that peers on its host can see whether it lives.
fn identity(slots: i32) -> NewWorker {
    NewWorker {
        host: process::host(),
        boot_id: process::boot_id(),
        pid_namespace: process::pid_namespace(),
        pid: i64::from(std::process::id()),
        process_started: process::started(i64::from(std::process::id())).unwrap_or(0),
        slots,
    }
}

/// Whether the worker ran on this host, and its process is certainly gone.
fn is_gone(worker: &Worker) -> bool {
    let here = !worker.boot_id.is_empty()
        && worker.boot_id == process::boot_id()
        && worker.pid_namespace == process::pid_namespace();
    here && process::started(worker.pid) != Some(worker.process_started)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(pid: i64, process_started: i64) -> Worker {
        let this = identity(1);
        Worker {
            id: 7,
            host: this.host,
            boot_id: this.boot_id,
            pid_namespace: this.pid_namespace,
            pid,
            process_started,
            slots: 1,
            started_at: 0,
            heartbeat_at: 0,
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_of_this_host_is_known_to_live_or_to_be_gone() {
        let this = identity(1);
        assert!(!is_gone(&worker(this.pid, this.process_started)));
        assert!(
            is_gone(&worker(this.pid, this.process_started - 1)),
            "the pid came again"
        );
        assert!(is_gone(&worker(i64::from(i32::MAX), 1)));
        let elsewhere = Worker {
            boot_id: "another".to_owned(),
            ..worker(i64::from(i32::MAX), 1)
        };
        assert!(!is_gone(&elsewhere), "another host cannot be looked at");
    }
}
