//! A worker's lease, renewed by its heartbeat. A worker whose lease has run out starts nothing, and the
//! messages of a dead worker are reclaimed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use smsq_lifecycle::Settlement;
use smsq_message::instant::SteadyMicros;
use smsq_message::sms::{Timestamp, millis};
use smsq_process::identity::ProcessIdentity;
use smsq_store::{
    CommitBatch, CommitCount, CommitResult, NewWorker, Store, StoreError, StoreErrorKind, Worker,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::local_files::marks::{self, EndedMarks, Mark, Marks, MarksFile};
use crate::clock::Clock;
use crate::database::Database;
use crate::local_files::{LocalFile, random_token};
use crate::telemetry::Progress;

/// A worker stops trusting its lease this part of it before others may take over.
const MARGIN: f64 = 0.1;
/// A request starts within this part of a lease after its claim was planned.
const CLAIM_PART: u32 = 2;
/// How often a lease is renewed before it ends.
const BEATS: u32 = 3;
/// After this many failed renewals in a row nothing is started.
const MISSES: u32 = 2;
/// A worker whose process seems to be gone must not have committed anything for this time.
const STILL: Duration = Duration::from_secs(1);
/// How often the database's clock is read between two heartbeats.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

/// One worker's lease.
pub(super) struct Lease {
    database: Database,
    clock: Arc<Clock>,
    length: Duration,
    concurrency: i32,
    worker_id: AtomicI64,
    /// The commits of this worker under its present id.
    count: Mutex<CommitCount>,
    /// How many commits other workers had, by their tokens, and since when.
    seen: Mutex<HashMap<String, (i64, Instant)>>,
    /// Files of workers that the database does not know, as they were when they were used last.
    used: Mutex<HashMap<PathBuf, Option<SystemTime>>>,
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
    file: Option<PathBuf>,
    /// `None`: its messages are unknown. A silent process may still send.
    marks: Option<EndedMarks>,
}

/// Claims of a worker that the database may have lost.
pub(super) struct LostMarks {
    pub(super) who: String,
    /// Each message once, earlier claims first.
    pub(super) rounds: Vec<Vec<Mark>>,
    /// `None`: it is removed when the worker is reclaimed.
    pub(super) file: Option<LostFile>,
}

/// The marks of a worker that the database does not know.
pub(super) struct LostFile {
    path: PathBuf,
    changed_at: Option<SystemTime>,
    /// Nothing is added to it any more.
    is_over: bool,
}

/// What was found of other workers.
#[derive(Default)]
pub(super) struct FoundWorkers {
    pub(super) dead: Vec<DeadWorker>,
    pub(super) lost: Vec<LostMarks>,
    /// A worker seems to be dead: whether it commits is seen at the next look.
    pub(super) is_undecided: bool,
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
        let count = register(store, concurrency, length, clock.now()).await?;
        marks.begin(&count);
        let worker_id = count.worker_id;
        let lease = Arc::new(Self {
            database,
            clock,
            length,
            concurrency,
            worker_id: AtomicI64::new(worker_id),
            count: Mutex::new(count),
            seen: Mutex::default(),
            used: Mutex::default(),
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

    fn count(&self) -> MutexGuard<'_, CommitCount> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a batch of this worker, and counts it; one at a time. Fails if the database lost earlier ones.
    pub(super) async fn commit(&self, batch: Arc<CommitBatch>) -> Result<CommitResult, StoreError> {
        let count = self.count().clone();
        // Until its answer arrives.
        self.count().is_uncertain = true;
        let done = self.database.commit(batch, &count).await;
        let is_stored = done.as_ref().is_ok_and(|done| !done.is_worker_missing);
        let mut now = self.count();
        if is_stored && now.token == count.token {
            now.confirmed = count.confirmed + 1;
            now.is_uncertain = false;
            self.marks.confirm(&now);
        }
        drop(now);
        if done.as_ref().is_err_and(is_of_another_past) {
            self.give_up();
        }
        done
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
                if is_of_another_past(&error) {
                    self.give_up();
                }
                tracing::warn!(%error, "the lease was not renewed");
            }
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let asked_at = self.clock.steady();
        let lapsed = !self.holds();
        let store = self.database.reach().await?;
        let now = self.clock.now();
        let count = self.count().clone();
        let (id, token) = (count.worker_id, &count.token);
        if !store.workers().heartbeat(id, token, now).await? {
            let workers = store.workers().all().await?;
            store.workers().check_count(&count, &workers).await?;
            // Declared dead: what was claimed under the old id is unknown. Continue under a new one.
            let count = register(store, self.concurrency, self.length, now).await?;
            let worker_id = count.worker_id;
            tracing::warn!(
                worker_id,
                "this worker had been declared dead and starts again under a new id"
            );
            // Nothing is claimed under the new id before this.
            self.marks.begin(&count);
            *self.count() = count;
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

    /// Finds dead workers, and claims that the database has lost. Fails if it lost commits of this worker.
    pub(super) async fn find_dead(&self) -> Result<FoundWorkers, StoreError> {
        let count = self.count().clone();
        let now = self.clock.now();
        // Before the workers: each is registered before it has a file.
        let files = self.marks.list().await;
        let mut files: HashMap<String, PathBuf> =
            files.into_iter().map(|LocalFile { token, path, .. }| (token, path)).collect();
        let store = self.database.reach().await?;
        let workers = store.workers().all().await?;
        store.workers().check_count(&count, &workers).await?;
        self.see(&workers);
        let mut found = FoundWorkers::default();
        for worker in workers {
            let file = files.remove(&worker.token);
            if worker.id == count.worker_id {
                continue;
            }
            let process = process_of(&worker);
            let seems_gone = process.is_gone();
            let is_gone = seems_gone && self.stands_still(&worker);
            found.is_undecided |= seems_gone && !is_gone;
            let Some(reason) = self.is_dead(&worker, is_gone, now) else {
                continue;
            };
            tracing::warn!(worker_id = worker.id, pid = worker.pid, reason, "a worker is dead");
            let mut dead = DeadWorker { worker, reason, file, marks: None };
            found.lost.extend(dead.read_marks(&process, is_gone).await);
            found.dead.push(dead);
        }
        files.remove(&count.token);
        for (token, path) in files {
            if self.marks.is_settled(&path) {
                continue;
            }
            if store.workers().is_reclaimed(&token).await? {
                self.marks.keep_settled(path);
            } else {
                found.lost.extend(self.read_lost(path).await);
            }
        }
        Ok(found)
    }

    /// Remembers how many commits each worker has.
    fn see(&self, workers: &[Worker]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let latest = workers.iter().map(|worker| {
            let earlier = seen.get(&worker.token).copied();
            let same = earlier.filter(|(commits, _)| *commits == worker.commits);
            (worker.token.clone(), same.unwrap_or((worker.commits, now)))
        });
        *seen = latest.collect();
    }

    /// Whether a worker has committed nothing for a while: a second opinion about its end.
    fn stands_still(&self, worker: &Worker) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = seen.get(&worker.token).map(|(_, since)| *since);
        since.is_some_and(|since| since.elapsed() >= STILL)
    }

    /// What a worker that the database does not know has marked. It ended before its file was removed, or the database was
    /// put back to a time before it began.
    async fn read_lost(&self, path: PathBuf) -> Option<LostMarks> {
        let changed_at = modified(&path);
        let is_abandoned = marks::is_abandoned(&path);
        if self.used().get(&path) == Some(&changed_at) && !is_abandoned {
            return None;
        }
        let file = match MarksFile::read(&path).await {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read which requests a worker had started");
                marks::remove_all([path]);
                return None;
            }
        };
        Some(LostMarks {
            who: file.who(),
            file: Some(LostFile { path, changed_at, is_over: is_abandoned || file.has_ended() }),
            rounds: file.into_rounds(),
        })
    }

    /// The results in a file are stored. It is read again only if it changes.
    pub(super) fn record_used(&self, file: LostFile) {
        if file.is_over {
            self.marks.keep_settled(file.path);
        } else {
            self.used().insert(file.path, file.changed_at);
        }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<PathBuf, Option<SystemTime>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
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
            let known = rows.iter().filter_map(|row| marks::result_of(row, marks.as_ref()));
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
            if let Some(file) = dead.file {
                self.marks.keep_settled(file);
            }
        }
        Ok(reclaimed)
    }

    fn is_dead(&self, worker: &Worker, is_gone: bool, now: Timestamp) -> Option<String> {
        let who = format!("worker {} (pid {} on {})", worker.id, worker.pid, worker.host);
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
        let count = self.count().clone();
        let (id, token) = (count.worker_id, &count.token);
        store.workers().remove(id, token).await?;
        self.marks.end();
        Ok(())
    }

    fn trust_from(&self, asked_at: SteadyMicros) {
        let trusted = self.length.mul_f64(1.0 - MARGIN);
        let until = asked_at.plus(trusted);
        self.trusted_until_us.store(until.as_micros(), Ordering::Release);
        self.progress.heartbeats.fetch_add(1, Ordering::Relaxed);
    }
}

impl DeadWorker {
    /// Reads its marks, if its process is gone. Returns those that the database has lost.
    async fn read_marks(&mut self, process: &ProcessIdentity, is_gone: bool) -> Option<LostMarks> {
        let path = self.file.as_ref()?;
        let read = MarksFile::read(path).await;
        let unusable = match read {
            Ok(file) if file.is_ahead_of(&self.worker) => {
                return Some(LostMarks { who: file.who(), rounds: file.into_rounds(), file: None });
            }
            Ok(_) if !is_gone => return None,
            Ok(file) => match file.of_ended(&self.worker, process) {
                Ok(marks) => {
                    self.marks = Some(marks);
                    return None;
                }
                Err(error) => error.to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            path = %path.display(),
            error = unusable,
            "cannot read which requests a dead worker had started: its messages become unknown"
        );
        None
    }
}

/// Whether this is the error of a database that was put back.
fn is_of_another_past(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::LostCommits
}

fn modified(path: &std::path::Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Registers this process as a worker, so that others on its host can check whether it still runs.
async fn register(
    store: &Store,
    concurrency: i32,
    lease: Duration,
    now: Timestamp,
) -> Result<CommitCount, StoreError> {
    let process = ProcessIdentity::current();
    let new = NewWorker {
        host: process.host,
        machine_id: process.machine_id,
        boot_id: process.boot_id,
        pid_namespace: process.pid_namespace,
        pid: process.pid,
        process_started: process.started,
        concurrency,
        lease_ms: millis(lease),
        token: random_token(),
    };
    let worker_id = store.workers().register(&new, now).await?;
    Ok(CommitCount::new(worker_id, new.token))
}

fn process_of(worker: &Worker) -> ProcessIdentity {
    ProcessIdentity {
        host: worker.host.clone(),
        machine_id: worker.machine_id.clone(),
        boot_id: worker.boot_id.clone(),
        pid_namespace: worker.pid_namespace.clone(),
        pid: worker.pid,
        started: worker.process_started,
    }
}
