//! Long work that blocks a thread, such as a query on a SQLite file or the check of a list, and the stop of the process,
//! which ends it. A job has a stop, a limit and a turn, and it ends when its result is not awaited any more.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// How long a process has from the signal on to end everything in order.
const STOP_WITHIN: Duration = Duration::from_secs(9);
/// How long work that has to end may take to say so to another process, such as a database server.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The most bytes of a small list, and of one that is compressed, which may have a thousand times as many.
const SMALL: u64 = 1 << 20;
const SMALL_COMPRESSED: u64 = 64 << 10;
/// How small lists are read at once.
const SMALL_AT_ONCE: usize = 2;

/// The stop of a process: it begins with the first signal, and everything has to end before one deadline. Clones are the
/// same stop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Option<Instant>>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Stop {
    /// Begins the stop, unless it has begun.
    pub fn begin(&self) {
        self.0.send_if_modified(|deadline| {
            let is_first = deadline.is_none();
            deadline.get_or_insert_with(|| Instant::now() + STOP_WITHIN);
            is_first
        });
    }

    /// Ends the time that is left.
    pub fn abort(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    pub fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until the stop begins.
    pub async fn begun(&self) {
        // The sender is a part of this value.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// How long what is left may take.
    pub fn left(&self) -> Duration {
        match *self.0.borrow() {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => STOP_WITHIN,
        }
    }

    /// The output of `work`; `None` if the deadline passes before.
    pub async fn within<W: Future>(&self, work: W) -> Option<W::Output> {
        self.within_but(Duration::ZERO, work).await
    }

    /// The same with a deadline that leaves some time for what comes after it.
    pub async fn within_but<W: Future>(&self, reserve: Duration, work: W) -> Option<W::Output> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.passed(reserve) => None,
        }
    }

    /// The output of `work`; `None` if the stop begins before.
    pub async fn unless_begun<W: Future>(&self, work: W) -> Option<W::Output> {
        tokio::select! {
            biased;
            () = self.begun() => None,
            done = work => Some(done),
        }
    }

    async fn passed(&self, reserve: Duration) {
        let mut changes = self.0.subscribe();
        loop {
            let deadline = *changes.borrow_and_update();
            let passed = async {
                match deadline {
                    Some(at) => sleep_until(at.checked_sub(reserve).unwrap_or(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                _ = changes.changed() => {}
            }
        }
    }
}

/// Why work has to end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The process stops, or the result is not awaited any more.
    #[error("it was interrupted")]
    Interrupted,
    #[error("it takes too long")]
    TooLate,
    /// Of a job, by a panic, which has been logged.
    #[error("it ended unexpectedly")]
    Panicked,
}

impl From<Over> for io::Error {
    fn from(over: Over) -> Self {
        Self::other(over)
    }
}

/// Until when work may run. What blocks a thread for long asks often, and ends if it is over. The default is never over.
#[derive(Clone, Debug, Default)]
pub struct Until {
    stop: Option<Stop>,
    cancelled: CancellationToken,
    deadline: Option<Instant>,
}

impl Until {
    /// Over after this time.
    pub fn after(limit: Duration) -> Self {
        Self::default().limited(limit)
    }

    /// Over after this time, too.
    #[must_use]
    pub fn limited(&self, limit: Duration) -> Self {
        let until = Instant::now().checked_add(limit);
        let earlier = self.deadline.into_iter().chain(until).min();
        Self { deadline: earlier, ..self.clone() }
    }

    /// Fails if it is over.
    pub fn check(&self) -> Result<(), Over> {
        if self.cancelled.is_cancelled() || self.stop.as_ref().is_some_and(Stop::has_begun) {
            return Err(Over::Interrupted);
        }
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(Over::TooLate),
            _ => Ok(()),
        }
    }

    /// Waits until it is over.
    pub async fn over(&self) -> Over {
        let stopped = async {
            match &self.stop {
                Some(stop) => stop.begun().await,
                None => std::future::pending().await,
            }
        };
        let passed = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stopped => Over::Interrupted,
            () = self.cancelled.cancelled() => Over::Interrupted,
            () = passed => Over::TooLate,
        }
    }

    /// The output of `work`, which is dropped when it is over.
    pub async fn unless_over<W: Future>(&self, work: W) -> Result<W::Output, Over> {
        tokio::select! {
            biased;
            over = self.over() => Err(over),
            done = work => Ok(done),
        }
    }
}

/// A source that fails to be read when the work is over.
#[derive(Debug)]
pub struct Interruptible<R> {
    source: R,
    until: Until,
}

impl Until {
    /// The source, which fails to be read when this is over.
    pub fn reading<R>(&self, source: R) -> Interruptible<R> {
        Interruptible { source, until: self.clone() }
    }
}

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until.check()?;
        self.source.read(buffer)
    }
}

impl<R: Seek> Seek for Interruptible<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.source.seek(position)
    }
}

/// Whether a list is read within a second or so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSize {
    Small,
    Large,
}

impl ListSize {
    /// By the length of the file, and whether it is compressed.
    pub fn of(path: &Path) -> Self {
        let read = || -> io::Result<Self> {
            let file = File::open(path)?;
            let bytes = file.metadata()?.len();
            let mut head = Vec::new();
            file.take(4).read_to_end(&mut head)?;
            let marks: [&[u8]; 3] = [b"PK", b"\x1f\x8b", b"\xd0\xcf\x11\xe0"];
            let is_compressed = marks.iter().any(|mark| head.starts_with(mark));
            let most = if is_compressed { SMALL_COMPRESSED } else { SMALL };
            Ok(if bytes <= most { Self::Small } else { Self::Large })
        };
        // What cannot be read takes no time.
        read().unwrap_or(Self::Small)
    }
}

/// The turns of one kind of work on lists: large lists are read one after the other, and no small one waits for them.
#[derive(Clone, Debug)]
pub struct ListTurns {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for ListTurns {
    fn default() -> Self {
        Self { small: Arc::new(Semaphore::new(SMALL_AT_ONCE)), large: Arc::new(Semaphore::new(1)) }
    }
}

/// Held while a list is read.
pub struct Turn(#[expect(dead_code, reason = "its drop ends the turn")] OwnedSemaphorePermit);

impl ListTurns {
    /// Waits for the turn of a list.
    pub async fn take(&self, size: ListSize) -> Turn {
        let turns = match size {
            ListSize::Small => &self.small,
            ListSize::Large => &self.large,
        };
        let permit = Arc::clone(turns).acquire_owned().await;
        Turn(permit.expect("turns are never closed"))
    }
}

/// How a job runs.
#[derive(Clone, Debug, Default)]
pub struct JobRules {
    /// `None`: as long as it takes.
    pub limit: Option<Duration>,
    /// The turn that it waits for.
    pub turn: Option<(ListTurns, ListSize)>,
}

/// The jobs of a process. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    stop: Stop,
    running: TaskTracker,
}

impl Jobs {
    pub fn new(stop: Stop) -> Self {
        Self { stop, running: TaskTracker::new() }
    }

    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Runs work that blocks its thread, on a thread of its own. It gets until when it may run, ends soon after that, and is
    /// dropped if it does not.
    pub fn start<W, T>(
        &self,
        rules: JobRules,
        work: impl FnOnce(Until) -> W + Send + 'static,
    ) -> Job<T>
    where
        W: Future<Output = T>,
        T: Send + 'static,
    {
        let cancelled = CancellationToken::new();
        let until =
            Until { stop: Some(self.stop.clone()), cancelled: cancelled.clone(), deadline: None };
        let task = self.running.spawn(async move {
            let _turn = match &rules.turn {
                Some((turns, size)) => Some(until.unless_over(turns.take(*size)).await?),
                None => None,
            };
            let until = rules.limit.map_or(until.clone(), |limit| until.limited(limit));
            let blocking = move || Handle::current().block_on(run(until, work));
            tokio::task::spawn_blocking(blocking).await.unwrap_or(Err(Over::Panicked))
        });
        Job { task, _end: cancelled.drop_guard() }
    }

    /// Waits, after the stop has begun, until all jobs have ended; false if its deadline passes before.
    pub async fn ended(&self) -> bool {
        self.running.close();
        self.stop.within(self.running.wait()).await.is_some()
    }
}

async fn run<W: Future>(until: Until, work: impl FnOnce(Until) -> W) -> Result<W::Output, Over> {
    let mut work = pin!(work(until.clone()));
    tokio::select! {
        biased;
        done = &mut work => return Ok(done),
        _ = until.over() => {}
    }
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        () = sleep(LAST_WORDS) => Err(until.check().err().unwrap_or(Over::Interrupted)),
    }
}

/// A job that was started. It is interrupted when this is dropped.
pub struct Job<T> {
    task: JoinHandle<Result<T, Over>>,
    _end: DropGuard,
}

impl<T> Future for Job<T> {
    type Output = Result<T, Over>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = Pin::new(&mut self.task).poll(context);
        done.map(|done| done.unwrap_or(Err(Over::Panicked)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Blocks its thread until it is over.
    async fn endless(until: Until) -> Over {
        loop {
            if let Err(over) = until.check() {
                return over;
            }
            std::thread::yield_now();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn job_that_nobody_waits_for_is_interrupted() {
        let jobs = Jobs::default();
        let (sender, ended) = mpsc::channel();
        let job = jobs
            .start(JobRules::default(), |until| async move { sender.send(endless(until).await) });
        drop(job);
        assert_eq!(ended.recv(), Ok(Over::Interrupted));
        jobs.stop().begin();
        assert!(jobs.ended().await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stop_and_limit_end_jobs() {
        let jobs = Jobs::default();
        let rules = JobRules { limit: Some(Duration::from_millis(1)), ..JobRules::default() };
        assert_eq!(jobs.start(rules, endless).await, Ok(Over::TooLate));
        let job = jobs.start(JobRules::default(), endless);
        jobs.stop().begin();
        assert_eq!(job.await, Ok(Over::Interrupted));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn small_list_does_not_wait_for_large_ones() {
        let (jobs, turns) = (Jobs::default(), ListTurns::default());
        let rules = |size| JobRules { turn: Some((turns.clone(), size)), ..JobRules::default() };
        let first = jobs.start(rules(ListSize::Large), endless);
        let second = jobs.start(rules(ListSize::Large), endless);
        let small = jobs.start(rules(ListSize::Small), |_| async { 3 });
        assert_eq!(small.await, Ok(3));
        // The one that waits ends as well.
        jobs.stop().begin();
        let ended = (first.await, second.await);
        assert!(ended.0.is_ok() || ended.1.is_ok());
        assert!(jobs.ended().await);
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_is_set_once_and_an_abort_ends_it() {
        let stop = Stop::default();
        stop.begin();
        sleep(Duration::from_secs(5)).await;
        stop.begin();
        assert_eq!(stop.left() + Duration::from_secs(5), STOP_WITHIN);
        let waiting = stop.within(std::future::pending::<()>());
        let aborting = async {
            sleep(Duration::from_secs(1)).await;
            stop.abort();
        };
        let began = Instant::now();
        assert_eq!(tokio::join!(waiting, aborting).0, None);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[test]
    fn size_of_a_list_is_small_up_to_a_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("list");
        for (head, bytes, expected) in [
            (&b"phone"[..], SMALL, ListSize::Small),
            (b"phone", SMALL + 1, ListSize::Large),
            (b"PK\x03\x04", SMALL_COMPRESSED, ListSize::Small),
            (b"PK\x03\x04", SMALL_COMPRESSED + 1, ListSize::Large),
            (b"\x1f\x8b", SMALL_COMPRESSED + 1, ListSize::Large),
        ] {
            std::fs::write(&path, head).expect("a file");
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_len(bytes).expect("its length");
            assert_eq!(ListSize::of(&path), expected, "{head:?} {bytes}");
        }
    }
}
