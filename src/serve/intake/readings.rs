//! What is found by reading the lists of drafts, kept in memory. A reading is a job that begins when a page asks for it,
//! and ends when its draft changes or goes, or when no page asks any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smsq_operations::ListOptions;
use smsq_process::jobs::{Job, JobRules, Jobs, ListSize, ListTurns, Over, Until};
use smsq_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;

use super::draft::Draft;

/// How long a request waits for what reads the list.
const WAIT: Duration = Duration::from_secs(2);
/// A reading ends if no page asks for it for this long. Browsers let hidden pages ask once a minute.
const UNASKED: Duration = Duration::from_secs(3 * 60);
/// What was found is kept for this long after a page has asked for it.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest that a list is read.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What is found by reading the list of a draft.
pub(super) trait Reading: Clone + Send + Sync + 'static {
    /// What it depends on: another text makes a new reading.
    fn depends_on(draft: &Draft) -> String;

    /// Reads the list. `rows`: how many rows were read.
    fn make(
        draft: &Draft,
        lists: &ListOptions,
        store: &Store,
        rows: &AtomicU64,
    ) -> impl Future<Output = Self>;

    /// One that says why there is none.
    fn failed(problem: String) -> Self;

    /// Whether another reading may find something else although the draft is the same, because a database was unavailable
    /// or a disk full.
    fn is_temporary(&self) -> bool;
}

/// A reading, or how many rows were read so far.
pub(crate) enum ReadingState<R> {
    Done(R),
    Running(u64),
}

/// A reading that runs, or what it has found.
struct RunningReading<R> {
    of: String,
    rows: Arc<AtomicU64>,
    found: watch::Receiver<Option<R>>,
    asked_at: Instant,
    /// Its drop ends the reading.
    _job: Job<()>,
}

/// The readings of one kind, by the ids of their drafts.
pub(super) struct ListReadings<R> {
    jobs: Jobs,
    turns: ListTurns,
    all: Mutex<HashMap<String, RunningReading<R>>>,
}

impl<R: Reading> ListReadings<R> {
    pub(super) fn new(jobs: Jobs) -> Self {
        Self { jobs, turns: ListTurns::default(), all: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunningReading<R>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What reading the list finds, as soon as that is done; begins it if needed.
    pub(super) async fn get(
        &self,
        draft: &Draft,
        lists: &Arc<ListOptions>,
        store: &Store,
    ) -> ReadingState<R> {
        let (rows, mut found) = self.begin(draft, lists, store);
        let done = async {
            let found = found.wait_for(Option::is_some).await;
            found.map_or(None, |found| found.clone())
        };
        let Ok(reading) = tokio::time::timeout(WAIT, done).await else {
            // What takes longer is shown when the page asks again.
            return ReadingState::Running(rows.load(Ordering::Relaxed));
        };
        let reading = reading.unwrap_or_else(|| failed(Over::Panicked));
        if reading.is_temporary() {
            self.lock().retain(|_, kept| !kept.found.same_channel(&found));
        }
        ReadingState::Done(reading)
    }

    /// The reading of a draft as it is now, which is begun if there is none.
    fn begin(
        &self,
        draft: &Draft,
        lists: &Arc<ListOptions>,
        store: &Store,
    ) -> (Arc<AtomicU64>, watch::Receiver<Option<R>>) {
        let of = R::depends_on(draft);
        let mut all = self.lock();
        if let Some(reading) = all.get_mut(&draft.id).filter(|reading| reading.of == of) {
            reading.asked_at = Instant::now();
            return (Arc::clone(&reading.rows), reading.found.clone());
        }
        let (sender, found) = watch::channel(None);
        let rows = Arc::new(AtomicU64::new(0));
        let rules = JobRules {
            limit: Some(LONGEST),
            turn: Some((self.turns.clone(), ListSize::of(&draft.list()))),
        };
        let counted = Arc::clone(&rows);
        let (draft, lists, store) = (draft.clone(), Arc::clone(lists), store.clone());
        let id = draft.id.clone();
        let job = self.jobs.start(rules, |until| async move {
            let lists = until_over(&lists, &until);
            let made = R::make(&draft, &lists, &store, &counted);
            let reading = until.unless_over(made).await;
            let over = until.check().err();
            let reading = match (reading, over) {
                (Ok(reading), None) => reading,
                (Err(over), _) | (_, Some(over)) => {
                    tracing::debug!(draft = draft.id, %over, "a list is not read any more");
                    failed(over)
                }
            };
            sender.send_replace(Some(reading));
        });
        let reading = RunningReading {
            of,
            rows: Arc::clone(&rows),
            found: found.clone(),
            asked_at: Instant::now(),
            _job: job,
        };
        // One that it replaces ends.
        all.insert(id, reading);
        (rows, found)
    }

    /// Forgets what was found, and ends what runs.
    pub(super) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Ends readings that no page asks for any more, and forgets what others found long ago.
    pub(super) fn forget_unasked(&self) {
        self.lock().retain(|_, reading| {
            let is_done = reading.found.borrow().is_some();
            reading.asked_at.elapsed() < if is_done { KEPT } else { UNASKED }
        });
    }
}

/// These options for a list that is read until then.
fn until_over(lists: &ListOptions, until: &Until) -> ListOptions {
    let mut lists = lists.clone();
    lists.list.until = until.clone();
    lists
}

fn failed<R: Reading>(over: Over) -> R {
    R::failed(match over {
        Over::TooLate => "reading the list takes too long: divide it into smaller lists".to_owned(),
        Over::Interrupted => "reading the list was interrupted".to_owned(),
        Over::Panicked => "reading the list ended unexpectedly".to_owned(),
    })
}
