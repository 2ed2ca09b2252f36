//! The stream: one thread reads, parses and renders, and hands over batches; the other end awaits the
//! database. A few batches lie between them, whatever the size of the file.

use std::fs::File;

use tokio::sync::mpsc;

use super::error::ImportError;
use super::reader::{Next, Reader, Record};
use super::rejects::Rejects;
use super::rows::Rows;
use crate::sms::NewSms;
use crate::text::segments::Segments;

/// Rows of the file in one batch, the rejected ones counted.
const BATCH: u64 = 20_000;
/// A batch of long texts ends earlier: at so many bytes of texts and values.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that may wait for the database.
const WAITING: usize = 2;

/// Some consecutive rows of a file.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) rows: Vec<NewSms>,
    /// Of each of `rows`.
    pub(super) segments: Vec<Segments>,
    /// The rejected rows: line and reason.
    pub(super) rejected: Vec<(u64, String)>,
    pub(super) last_line: u64,
    /// Bytes of the file up to here.
    pub(super) bytes: u64,
}

impl Parsed {
    pub(super) fn row_count(&self) -> u64 {
        (self.rows.len() + self.rejected.len()) as u64
    }
}

/// Reading one file from its header on.
pub(super) struct Task {
    pub(super) file: String,
    pub(super) reader: Reader<File>,
    pub(super) rows: Rows,
    /// `None`: rejected rows are only counted.
    pub(super) rejects: Option<Rejects>,
}

impl Task {
    /// Runs to the end of the file, or until nobody listens.
    fn run(mut self, batches: &mpsc::Sender<Parsed>) -> Result<Option<Rejects>, ImportError> {
        let mut record = Record::default();
        if let Next::End = self.next(&mut record)? {
            return Ok(self.rejects);
        }
        loop {
            let (parsed, ended) = self.batch(&mut record)?;
            let empty = parsed.row_count() == 0;
            if (!empty && batches.blocking_send(parsed).is_err()) || ended {
                return Ok(self.rejects);
            }
        }
    }

    fn batch(&mut self, record: &mut Record) -> Result<(Parsed, bool), ImportError> {
        let mut parsed = Parsed::default();
        let mut size = 0;
        while parsed.row_count() < BATCH && size < BATCH_BYTES {
            let made = match self.next(record)? {
                Next::Row => self.rows.message(record),
                Next::Malformed(why) => Err(why.to_string()),
                Next::End => return Ok((parsed, true)),
            };
            match made {
                Ok((message, segments)) => {
                    size += message.content.len() + message.params.len();
                    parsed.rows.push(message);
                    parsed.segments.push(segments);
                }
                Err(reason) => {
                    if let Some(rejects) = &mut self.rejects {
                        let fields = record.fields().into_iter().flatten();
                        rejects.add(record.line, &reason, fields)?;
                    }
                    size += reason.len();
                    parsed.rejected.push((record.line, reason));
                }
            }
            parsed.last_line = record.line;
            parsed.bytes = self.reader.consumed();
        }
        Ok((parsed, false))
    }

    fn next(&mut self, record: &mut Record) -> Result<Next, ImportError> {
        self.reader
            .next(record)
            .map_err(|source| ImportError::Read {
                file: self.file.clone(),
                source,
            })
    }
}

/// Streams a file into `sink`; gives back the rejected rows, whose file is not in its place yet.
pub(super) async fn stream(
    task: Task,
    mut sink: impl AsyncFnMut(Parsed) -> Result<(), ImportError>,
) -> Result<Option<Rejects>, ImportError> {
    let (sender, mut receiver) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || task.run(&sender));
    let mut outcome = Ok(());
    while let Some(parsed) = receiver.recv().await {
        outcome = sink(parsed).await;
        if outcome.is_err() {
            break;
        }
    }
    drop(receiver);
    // The thread is awaited even then, so that it cleans up before anybody exits.
    let rejects = match reading.await {
        Ok(rejects) => rejects,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    outcome.and(rejects)
}
