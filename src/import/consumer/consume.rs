//! Imports the entries of a Redis list, each exactly once. A batch is in a processing list under a token and
//! a number; its commit stores the number with the import of that token. An importer that finds a batch of
//! a dead one first ends that import, so that nothing more is committed by it, and then knows by the number
//! whether the batch was committed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use smsq_process::identity::ProcessIdentity;
use tokio::time::Instant;

use super::message::MessageReader;
use super::redis::{RedisConnection, RedisList};
use super::{ConsumeOptions, Event, entries, unique_in};
use crate::error::{ImportError, Rejection};
use crate::importer::{Importer, Target};
use crate::pipeline::ParsedBatch;
use crate::row_mapper::MappedRow;
use crate::summary::Summary;

/// The most entries of a batch.
const MAX_BATCH: usize = 5_000;
/// The most bytes of the entries of a batch.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// How long to wait for a server that was lost.
const MAX_UNAVAILABLE: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How often dead importers are looked for.
const RECLAIM_EVERY: Duration = Duration::from_secs(10);

/// Imports the entries of the list until it is empty, or with `follow` until a stop. In the end every entry
/// is a message, in the dead list, or still in Redis.
pub async fn consume(
    list: &RedisList,
    target: Target<'_>,
    mut options: ConsumeOptions,
    mut on_event: impl FnMut(Event),
) -> Result<Summary, ImportError> {
    let unique = unique_in(options.messages.unique.as_ref(), target.campaign)?;
    let mut consumer = Consumer {
        messages: MessageReader::new(options.messages, unique)?,
        list,
        target,
        importer: None,
        connection: None,
        batch: 1,
        pending: Vec::new(),
        rejected: Vec::new(),
        letters: Vec::new(),
        is_committed: false,
        reclaimed_at: None,
        on_event: &mut on_event,
    };
    let connection = consumer.connect().await?;
    if !connection.can_move {
        consumer.warn(
            "the server has neither LMOVE nor RPOPLPUSH: entries are taken with RPOP, and those that are not \
             committed when smsq is killed are lost (a few thousand at most)",
        );
    }
    let mut lost_at: Option<Instant> = None;
    let mut wait = FIRST_WAIT;
    while !*options.stop.borrow() {
        match consumer.import_batch().await {
            Ok(has_imported) => {
                if lost_at.take().is_some() {
                    consumer.report("the server is back");
                    wait = FIRST_WAIT;
                }
                match has_imported {
                    true => {}
                    false if options.follow => consumer.wait_for_entries().await,
                    false => break,
                }
            }
            Err(error @ ImportError::ServerUnavailable { .. }) => {
                consumer.connection = None;
                if lost_at.is_none() {
                    consumer.warn(format!("{error}; waiting for it, nothing is lost"));
                }
                let lost_at = lost_at.get_or_insert_with(Instant::now);
                if !options.follow && lost_at.elapsed() > MAX_UNAVAILABLE {
                    return Err(error);
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = options.stop.changed() => {}
                }
                wait = (wait * 2).min(MAX_WAIT);
            }
            Err(error) => return Err(consumer.explain(error).await),
        }
    }
    consumer.finish().await
}

struct Consumer<'a, T: FnMut(Event)> {
    list: &'a RedisList,
    messages: MessageReader,
    target: Target<'a>,
    /// `None` until there is something to import.
    importer: Option<Importer<'a>>,
    /// `None` after the connection was lost.
    connection: Option<RedisConnection>,
    batch: u64,
    /// The entries of the batch, the oldest first.
    pending: Vec<Vec<u8>>,
    /// Entries of the batch that may be in the dead list: the answer can have been lost.
    rejected: Vec<(u64, Rejection)>,
    /// Entries of the committed batch whose number does not exist, as dead letters.
    letters: Vec<(Vec<u8>, String)>,
    /// The batch is in the database, but not yet deleted from Redis.
    is_committed: bool,
    reclaimed_at: Option<Instant>,
    on_event: &'a mut T,
}

impl<'a, T: FnMut(Event)> Consumer<'a, T> {
    fn report(&mut self, message: impl Into<String>) {
        (self.on_event)(Event::Status(message.into()));
    }

    fn warn(&mut self, message: impl Into<String>) {
        (self.on_event)(Event::Warning(message.into()));
    }

    /// Imports one batch; returns false if there is none. Can be called again after a failure of the server.
    async fn import_batch(&mut self) -> Result<bool, ImportError> {
        if !self.is_committed {
            self.fill().await?;
            if self.pending.is_empty() && self.rejected.is_empty() {
                return Ok(false);
            }
            let parsed = self.parse().await?;
            // Rejected entries were removed from the batch.
            let numbers: Vec<u64> = parsed.rows.iter().map(|row| row.message.line).collect();
            let importer = self.importer().await?;
            let dead: HashMap<u64, String> = importer.commit(parsed).await?.into_iter().collect();
            let rows = importer.summary.rows;
            (self.on_event)(Event::Progress(rows));
            let entries = numbers.iter().zip(&self.pending);
            let letters = entries.filter_map(|(number, entry)| {
                let reason = dead.get(number)?;
                Some((entry.clone(), dead_letter(entry, reason)))
            });
            self.letters = letters.collect();
            self.is_committed = true;
        }
        let batch = self.batch;
        if !self.letters.is_empty() {
            let letters = self.letters.clone();
            self.connect().await?.dead_letter(batch, &letters).await?;
            self.letters.clear();
        }
        self.connect().await?.ack(batch).await?;
        self.batch += 1;
        self.pending.clear();
        self.is_committed = false;
        Ok(true)
    }

    /// Returns the connection. A new one reads the batch again, which may have more entries than are known
    /// here because an answer was lost.
    async fn connect(&mut self) -> Result<&mut RedisConnection, ImportError> {
        if self.connection.is_none() {
            let mut opened = RedisConnection::open(self.list, &self.messages.token).await?;
            if !self.is_committed && opened.can_move {
                self.pending = opened.processing(self.batch).await?;
            }
            self.connection = Some(opened);
        }
        Ok(self.connection.as_mut().expect("it was just opened"))
    }

    /// Returns the import. It is recorded before any entry is taken for it.
    async fn importer(&mut self) -> Result<&mut Importer<'a>, ImportError> {
        if self.importer.is_none() {
            let name = self.list.name();
            self.importer = Some(Importer::begin(self.target, &name, &self.messages.token).await?);
        }
        Ok(self.importer.as_mut().expect("it was just begun"))
    }

    /// Fills an empty batch with entries of a dead importer, or with new ones.
    async fn fill(&mut self) -> Result<(), ImportError> {
        let batch = self.batch;
        self.connect().await?;
        let is_due = self.reclaimed_at.is_none_or(|at| at.elapsed() > RECLAIM_EVERY);
        if self.pending.is_empty() && is_due && self.reclaim().await? {
            self.pending = self.connect().await?.processing(batch).await?;
            let count = entries(self.pending.len() as u64);
            self.report(format!("recovered {count} of an importer that died"));
        }
        if !self.pending.is_empty() || self.connect().await?.length().await? == 0 {
            return Ok(());
        }
        self.importer().await?;
        let mut bytes = 0;
        while self.pending.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let taken = self.connect().await?.take(batch).await?;
            if taken.is_empty() {
                break;
            }
            bytes += taken.iter().map(Vec::len).sum::<usize>();
            self.pending.extend(taken);
        }
        Ok(())
    }

    /// Looks for dead importers; returns whether the batch of one is now the batch of this importer.
    async fn reclaim(&mut self) -> Result<bool, ImportError> {
        let mut alive = 0;
        for (token, owner) in self.connect().await?.others().await? {
            let is_alive = |owner: String| {
                ProcessIdentity::parse(&owner).is_none_or(|process| !process.is_gone())
            };
            if owner.is_some_and(is_alive) {
                alive += 1;
                continue;
            }
            self.importer().await?;
            let store = self.target.store;
            // An import that the database does not know belongs to another database.
            if let Some(committed) = store.imports().end(&token, store.now().await?).await? {
                let batch = self.batch;
                let connection = self.connect().await?;
                if connection.reclaim(&token, committed, batch).await? {
                    return Ok(true);
                }
            }
        }
        let is_first = self.reclaimed_at.replace(Instant::now()).is_none();
        if is_first && alive > 0 {
            self.report(match alive {
                1 => "another importer reads this list too".to_owned(),
                _ => format!("{alive} other importers read this list too"),
            });
        }
        Ok(false)
    }

    /// Maps the entries of the batch; rejected ones are moved to the dead list before the commit.
    async fn parse(&mut self) -> Result<ParsedBatch<MappedRow>, ImportError> {
        let mut parsed = ParsedBatch::default();
        let mut letters = Vec::new();
        let first = self.importer.as_ref().map_or(0, |importer| importer.summary.rows) + 1;
        for (number, entry) in (first..).zip(&self.pending) {
            match self.messages.map(number, entry) {
                Ok(row) => parsed.rows.push(row),
                Err(rejection) => {
                    letters.push((entry.clone(), dead_letter(entry, &rejection.reason)));
                    parsed.rejected.push((number, rejection));
                }
            }
        }
        if !letters.is_empty() {
            self.rejected = std::mem::take(&mut parsed.rejected);
            let connection = self.connection.as_mut().ok_or_else(taken_over)?;
            connection.dead_letter(self.batch, &letters).await?;
            let dead: HashSet<u64> = self.rejected.iter().map(|(number, _)| *number).collect();
            let mut number = first..;
            self.pending.retain(|_| number.next().is_some_and(|number| !dead.contains(&number)));
        }
        // Without new dead letters, these are rejected entries of which the answer of the server was lost.
        parsed.rejected = std::mem::take(&mut self.rejected);
        parsed.last_line = self.batch;
        Ok(parsed)
    }

    /// Waits for entries. Meanwhile this importer is not registered, because it holds no batch.
    async fn wait_for_entries(&mut self) {
        if let Some(connection) = &mut self.connection {
            let waited = match connection.unregister().await {
                Ok(()) => connection.wait().await,
                Err(error) => Err(error),
            };
            if waited.is_err() {
                // The next connection reports what is wrong.
                self.connection = None;
            }
        }
    }

    /// Explains an error that ends the import.
    async fn explain(mut self, error: ImportError) -> ImportError {
        if !matches!(error, ImportError::Store(_)) {
            return error;
        }
        if let Some(connection) = &mut self.connection
            && let Err(error) = connection.put_back(&self.pending).await
        {
            tracing::error!(%error, entries = self.pending.len(), "entries are lost");
        }
        let Some(importer) = &self.importer else {
            return error;
        };
        match self.target.store.imports().is_ended(importer.id).await {
            Ok(true) => taken_over(),
            _ => error,
        }
    }

    async fn finish(mut self) -> Result<Summary, ImportError> {
        if let Some(connection) = &mut self.connection {
            // If this fails, the next importer finds that nothing is held.
            let _ = connection.unregister().await;
        }
        match self.importer {
            Some(importer) => importer.finish().await,
            None => Ok(Summary::default()),
        }
    }
}

fn taken_over() -> ImportError {
    ImportError::hinted(
        "another importer took over from this one, which was silent for too long",
        "nothing is lost or duplicated: run it again",
    )
}

/// Returns an entry and its reason as JSON.
fn dead_letter(entry: &[u8], reason: &str) -> String {
    let letter = match std::str::from_utf8(entry) {
        Ok(entry) => serde_json::json!({ "reason": reason, "entry": entry }),
        Err(_) => serde_json::json!({ "reason": reason, "entry_base64": STANDARD.encode(entry) }),
    };
    letter.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_keeps_every_byte() {
        assert_eq!(dead_letter(b"{", "no"), r#"{"reason":"no","entry":"{"}"#);
        assert_eq!(dead_letter(b"\xff", "no"), r#"{"reason":"no","entry_base64":"/w=="}"#);
    }
}
