//! Empties a Redis list into the queue, each entry exactly once. A batch is held in Redis under a token and a
//! number; its commit writes the number to the row of the import that has the token. Whoever finds a dead
//! importer's batch ends that import first, so that it can commit no more, and then knows by the number
//! whether the batch is committed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::time::Instant;

use super::entry::Entries;
use super::redis::{Connection, Moving, RedisList};
use super::{BATCH, BATCH_BYTES, ConsumerError, Event, Reading, progress};
use crate::import::error::ImportError;
use crate::import::importer::Importer;
use crate::import::pipeline::ParsedBatch;
use crate::import::rejection::Rejection;
use crate::import::{Summary, Target};
use crate::process::ProcessIdentity;

/// So long a server is waited for that was there.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// So often other importers are looked at by one that waits for entries.
const LOOK: Duration = Duration::from_secs(10);

/// Imports what is in the list, and with `follow` what comes into it, until it is told to stop. However it ends,
/// every entry is a message, in the dead list, or still in Redis.
pub async fn consume(
    list: &RedisList,
    target: Target<'_>,
    mut reading: Reading,
    mut tell: impl FnMut(Event),
) -> Result<Summary, ImportError> {
    let token = format!("{:032x}", rand::random::<u128>());
    let connection =
        Connection::open(list, &token, &ProcessIdentity::current().to_string()).await?;
    if connection.moving == Moving::Rpop {
        tell(Event::Unsafe);
    }
    let mut drain = Drain {
        list,
        entries: Entries::new(
            reading.entries.clone(),
            reading.unique.clone(),
            token.clone(),
        )?,
        token,
        target: Some(target),
        import: None,
        connection: Some(connection),
        batch: 1,
        pending: Vec::new(),
        rejected: Vec::new(),
        phase: Phase::Taking,
        looked_at: None,
        tell: &mut tell,
    };
    let mut away_since: Option<Instant> = None;
    let mut wait = FIRST_WAIT;
    while !*reading.stop.borrow() {
        match drain.step().await {
            Ok(step) => {
                if away_since.take().is_some() {
                    (drain.tell)(Event::Back);
                    wait = FIRST_WAIT;
                }
                match step {
                    Step::Committed => {}
                    Step::Empty if reading.follow => drain.wait().await,
                    Step::Empty => break,
                }
            }
            Err(ImportError::Queue(fault)) if fault.is_away() => {
                drain.connection = None;
                let since = *away_since.get_or_insert_with(|| {
                    (drain.tell)(Event::Away(fault.to_string()));
                    Instant::now()
                });
                if !reading.follow && since.elapsed() > PATIENCE {
                    return Err(fault.into());
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = reading.stop.changed() => {}
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(fault) => return Err(drain.failed(fault).await),
        }
    }
    drain.finish().await
}

enum Step {
    /// A batch is done.
    Committed,
    /// Nothing waits.
    Empty,
}

/// How far the batch is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It may grow.
    Taking,
    /// It may hold more than is known here: an answer was lost.
    Doubtful,
    /// It is in the database, and still to be let go of.
    Committed,
}

struct Drain<'a, T: FnMut(Event)> {
    list: &'a RedisList,
    entries: Entries,
    token: String,
    /// Until the import is begun.
    target: Option<Target<'a>>,
    import: Option<Importer<'a>>,
    connection: Option<Connection>,
    batch: u64,
    /// What the batch holds, the oldest first.
    pending: Vec<Vec<u8>>,
    /// Entries of the batch that are in the dead list.
    rejected: Vec<(u64, Rejection)>,
    phase: Phase,
    looked_at: Option<Instant>,
    tell: &'a mut T,
}

impl<T: FnMut(Event)> Drain<'_, T> {
    /// Takes a batch and commits it. After a fault of the server it may be called again.
    async fn step(&mut self) -> Result<Step, ImportError> {
        if self.connection.is_none() {
            let owner = ProcessIdentity::current().to_string();
            let opened = Connection::open(self.list, &self.token, &owner).await?;
            if self.phase == Phase::Taking && opened.moving != Moving::Rpop {
                self.phase = Phase::Doubtful;
            }
            self.connection = Some(opened);
        }
        if self.phase != Phase::Committed {
            self.fill().await?;
            if self.pending.is_empty() && self.rejected.is_empty() {
                return Ok(Step::Empty);
            }
            let parsed = self.parse().await?;
            self.begin().await?;
            if let Some(import) = &mut self.import {
                import.commit(parsed).await?;
                (self.tell)(progress(import));
            }
            self.phase = Phase::Committed;
        }
        let batch = self.batch;
        self.connection()?.let_go(batch).await?;
        self.batch += 1;
        self.pending.clear();
        self.phase = Phase::Taking;
        Ok(Step::Committed)
    }

    fn connection(&mut self) -> Result<&mut Connection, ConsumerError> {
        self.connection.as_mut().ok_or(ConsumerError::TakenOver)
    }

    /// Fills the batch with what it holds already, with what a dead importer has left, or with new entries.
    async fn fill(&mut self) -> Result<(), ImportError> {
        let batch = self.batch;
        if self.phase == Phase::Doubtful {
            self.pending = self.connection()?.held(batch).await?;
            self.phase = Phase::Taking;
        }
        let is_due = self.looked_at.is_none_or(|at| at.elapsed() > LOOK);
        if self.pending.is_empty() && is_due && self.inherit().await? {
            self.pending = self.connection()?.held(batch).await?;
            (self.tell)(Event::Inherited(self.pending.len() as u64));
        }
        if !self.pending.is_empty() || self.connection()?.waiting().await? == 0 {
            return Ok(());
        }
        // The import stands in the database before anything is held in its name.
        self.begin().await?;
        let mut bytes = 0;
        while self.pending.len() < BATCH && bytes < BATCH_BYTES {
            let taken = self.connection()?.take(batch).await?;
            if taken.is_empty() {
                break;
            }
            bytes += taken.iter().map(Vec::len).sum::<usize>();
            self.pending.extend(taken);
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), ImportError> {
        if let Some(target) = self.target.take() {
            let begun = Importer::begin(target, &self.list.name(), &self.token).await;
            self.import = Some(begun?);
        }
        Ok(())
    }

    /// Takes over from importers that died; true when the batch holds now what one of them had taken.
    async fn inherit(&mut self) -> Result<bool, ImportError> {
        let (mut others, mut strangers) = (0, 0);
        for other in self.connection()?.others().await? {
            let lives = |owner: &String| {
                ProcessIdentity::parse(owner).is_none_or(|process| !process.is_gone())
            };
            if other.owner.as_ref().is_some_and(lives) {
                others += 1;
                continue;
            }
            self.begin().await?;
            let Some(import) = &self.import else {
                continue;
            };
            let store = import.target.store;
            let Some(done) = store.end_import(&other.token, store.now().await?).await? else {
                strangers += 1;
                continue;
            };
            let batch = self.batch;
            let connection = self.connection()?;
            if connection.inherit(&other.token, done, batch).await? {
                return Ok(true);
            }
        }
        let is_first = self.looked_at.replace(Instant::now()).is_none();
        if is_first && others > 0 {
            (self.tell)(Event::Others(others));
        }
        if is_first && strangers > 0 {
            (self.tell)(Event::Strangers(strangers));
        }
        Ok(false)
    }

    /// Makes messages of the batch; what is none goes to the dead list before the others are committed.
    async fn parse(&mut self) -> Result<ParsedBatch, ImportError> {
        let first = self.import.as_ref().map_or(0, |one| one.summary.rows) + 1;
        let mut parsed = ParsedBatch::default();
        let (mut good, mut dead, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let first = first + self.rejected.len() as u64;
        for (number, entry) in (first..).zip(self.pending.drain(..)) {
            match self.entries.message(number, &entry) {
                Ok(made) => {
                    parsed.rows.push(made);
                    good.push(entry);
                }
                Err(rejected) => {
                    let letter = letter(&entry, &rejected.reason);
                    dead.push((entry, letter));
                    faults.push((number, rejected));
                }
            }
        }
        self.pending = good;
        let batch = self.batch;
        let mut dead = dead.into_iter().zip(faults);
        while let Some(((entry, letter), fault)) = dead.next() {
            let connection = self.connection()?;
            let moving = connection.moving;
            if let Err(error) = connection.bury(batch, &entry, &letter).await {
                if moving == Moving::Rpop {
                    // Nobody else has them.
                    self.pending.push(entry);
                    self.pending.extend(dead.map(|((entry, _), _)| entry));
                }
                return Err(error.into());
            }
            self.rejected.push(fault);
        }
        parsed.rejected = std::mem::take(&mut self.rejected);
        parsed.last_line = batch;
        Ok(parsed)
    }

    /// Waits for entries, and holds nothing meanwhile.
    async fn wait(&mut self) {
        if let Some(connection) = &mut self.connection {
            let waited = match connection.leave().await {
                Ok(()) => connection.wait().await,
                Err(fault) => Err(fault),
            };
            if waited.is_err() {
                // The next step says what is wrong.
                self.connection = None;
            }
        }
    }

    /// What a fault that ends the import means.
    async fn failed(mut self, fault: ImportError) -> ImportError {
        let ImportError::Store(_) = &fault else {
            return fault;
        };
        if let Some(connection) = &mut self.connection
            && connection.moving == Moving::Rpop
            && let Err(error) = connection.put_back(&self.pending).await
        {
            tracing::error!(%error, entries = self.pending.len(), "entries are lost");
        }
        let Some(import) = &self.import else {
            return fault;
        };
        match import.target.store.is_import_ended(import.id).await {
            Ok(true) => ConsumerError::TakenOver.into(),
            _ => fault,
        }
    }

    async fn finish(mut self) -> Result<Summary, ImportError> {
        if let Some(connection) = &mut self.connection {
            // Whoever comes next finds that nothing is held.
            let _ = connection.leave().await;
        }
        match self.import {
            Some(import) => import.finish().await,
            None => Ok(Summary::default()),
        }
    }
}

/// An entry in the dead list: what it was, and why it is no message.
fn letter(entry: &[u8], reason: &str) -> String {
    let letter = if let Ok(entry) = std::str::from_utf8(entry) {
        serde_json::json!({ "reason": reason, "entry": entry })
    } else {
        let entry = STANDARD.encode(entry);
        serde_json::json!({ "reason": reason, "entry_base64": entry })
    };
    letter.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_entry_is_kept_byte_by_byte() {
        assert_eq!(letter(b"{", "no"), r#"{"reason":"no","entry":"{"}"#);
        assert_eq!(
            letter(b"\xff", "no"),
            r#"{"reason":"no","entry_base64":"/w=="}"#
        );
    }
}
