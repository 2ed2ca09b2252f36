//! The stream: one thread reads, parses and renders, and hands over batches; the other end awaits the
//! database. A few batches lie between them, whatever the size of the file.

use tokio::sync::mpsc;

use super::error::ImportError;
use super::header;
use super::input::Input;
use super::reader::{Next, Record};
use super::rejection::Rejection;
use super::rejects::{self, Rejects};
use super::rows::{Made, Rows};
use crate::sms::NewSms;

/// Rows of the file in one batch, the rejected ones counted.
const BATCH: u64 = 20_000;
/// A batch of long texts ends earlier: at so many bytes of texts and values.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that may wait for the database.
const WAITING: usize = 2;

/// Some consecutive rows of a file.
#[derive(Default)]
pub(super) struct ParsedBatch {
    pub(super) rows: Vec<Made>,
    /// The rejected rows: line and reason.
    pub(super) rejected: Vec<(u64, Rejection)>,
    pub(super) last_line: u64,
    /// Bytes of the file up to here.
    pub(super) bytes: u64,
}

impl ParsedBatch {
    pub(super) fn row_count(&self) -> u64 {
        (self.rows.len() + self.rejected.len()) as u64
    }
}

/// Reading one file from its header on.
pub(super) struct Task {
    pub(super) file: String,
    pub(super) input: Input,
    /// Rows before the first one of the list.
    pub(super) skipped: usize,
    pub(super) width: usize,
    pub(super) rows: Rows,
    /// `None`: rejected rows are only counted.
    pub(super) rejects: Option<Rejects>,
}

impl Task {
    /// Runs to the end of the file, or until nobody listens.
    fn run(mut self, batches: &mpsc::Sender<ParsedBatch>) -> Result<Option<Rejects>, ImportError> {
        let mut record = Record::default();
        self.start()?;
        loop {
            let (parsed, ended) = self.batch(&mut record)?;
            let empty = parsed.row_count() == 0;
            if (!empty && batches.blocking_send(parsed).is_err()) || ended {
                return Ok(self.rejects);
            }
        }
    }

    fn start(&mut self) -> Result<(), ImportError> {
        header::skip(&mut self.input, self.skipped).map_err(|error| self.fault(error))?;
        self.input.expect_width(self.width);
        Ok(())
    }

    /// Makes the messages one by one, for as long as `take` wants more.
    pub(super) fn each(mut self, mut take: impl FnMut(&NewSms) -> bool) -> Result<(), ImportError> {
        let mut record = Record::default();
        self.start()?;
        loop {
            let made = match self.next(&mut record)? {
                Next::Row => self.rows.message(&record).ok(),
                Next::Malformed(_) | Next::Unusable(_) => None,
                Next::End => return Ok(()),
            };
            if made.is_some_and(|made| !take(&made.message)) {
                return Ok(());
            }
        }
    }

    fn batch(&mut self, record: &mut Record) -> Result<(ParsedBatch, bool), ImportError> {
        let mut parsed = ParsedBatch::default();
        let mut size = 0;
        while parsed.row_count() < BATCH && size < BATCH_BYTES {
            let next = self.next(record)?;
            let is_row = !matches!(next, Next::Malformed(_));
            let made = match next {
                Next::Row => self.rows.message(record),
                Next::Malformed(why) => Err(why.into()),
                Next::Unusable(why) => Err(why),
                Next::End => return Ok((parsed, true)),
            };
            match made {
                Ok(made) => {
                    size += made.message.content.len() + made.message.params.len();
                    parsed.rows.push(made);
                }
                Err(rejected) => {
                    if let Some(rejects) = &mut self.rejects {
                        let row = if is_row {
                            rejects::Row::Fields(record.raw().collect())
                        } else {
                            rejects::Row::Text(record.raw().next().unwrap_or_default())
                        };
                        rejects.add(record.line, &rejected.reason, &row)?;
                    }
                    size += rejected.reason.len();
                    parsed.rejected.push((record.line, rejected));
                }
            }
            parsed.last_line = record.line;
            parsed.bytes = self.input.consumed();
        }
        Ok((parsed, false))
    }

    fn next(&mut self, record: &mut Record) -> Result<Next, ImportError> {
        self.input.next(record).map_err(|error| self.fault(error))
    }

    fn fault(&self, source: std::io::Error) -> ImportError {
        ImportError::Read {
            file: self.file.clone(),
            source,
        }
    }
}

/// Streams a file into `sink`; gives back the rejected rows, whose file is not in its place yet.
pub(super) async fn stream(
    task: Task,
    sink: impl AsyncFnMut(ParsedBatch) -> Result<(), ImportError>,
) -> Result<Option<Rejects>, ImportError> {
    streamed(move |batches| task.run(batches), sink).await
}

/// Streams what `work` makes on a thread of its own into `sink`.
pub(super) async fn streamed<B: Send + 'static, R: Send + 'static, E: From<ImportError>>(
    work: impl FnOnce(&mpsc::Sender<B>) -> Result<R, ImportError> + Send + 'static,
    mut sink: impl AsyncFnMut(B) -> Result<(), E>,
) -> Result<R, E> {
    let (sender, mut receiver) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || work(&sender));
    let mut outcome = Ok(());
    while let Some(batch) = receiver.recv().await {
        outcome = sink(batch).await;
        if outcome.is_err() {
            break;
        }
    }
    drop(receiver);
    // The thread is awaited even then, so that it cleans up before anybody exits.
    let read = match reading.await {
        Ok(read) => read,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    outcome?;
    Ok(read?)
}
