//! Reads and maps rows on a thread of its own and hands them over in batches. A few batches wait for the
//! database, so memory does not depend on the size of the file.

use tokio::sync::mpsc;

use super::error::ImportError;
use super::record::{Next, Record, RecordReader};
use super::rejection::Rejection;
use super::rejects_file::{RejectedRow, RejectsFile};
use super::row_mapper::{MappedRow, RowMapper};
use crate::sms::NewSms;

/// The most rows of a batch, including the rejected ones.
const MAX_ROWS: u64 = 20_000;
/// The most bytes of texts and values of a batch.
const MAX_BYTES: usize = 4 << 20;
/// How many batches may wait for the database.
const MAX_WAITING: usize = 2;

/// Consecutive rows of a file.
#[derive(Default)]
pub(super) struct ParsedBatch {
    pub(super) rows: Vec<MappedRow>,
    /// The lines of rejected rows, and the reasons.
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

/// Reads the rows of one file.
pub(super) struct Task {
    pub(super) records: RecordReader,
    pub(super) mapper: RowMapper,
    /// `None`: rejected rows are not written.
    pub(super) rejects: Option<RejectsFile>,
}

impl Task {
    /// Runs to the end of the file, or until the receiver is closed.
    fn run(
        mut self,
        batches: &mpsc::Sender<ParsedBatch>,
    ) -> Result<Option<RejectsFile>, ImportError> {
        let mut record = Record::default();
        loop {
            let (parsed, is_last) = self.next_batch(&mut record)?;
            let is_empty = parsed.row_count() == 0;
            if !is_empty && batches.blocking_send(parsed).is_err() || is_last {
                return Ok(self.rejects);
            }
        }
    }

    fn next_batch(&mut self, record: &mut Record) -> Result<(ParsedBatch, bool), ImportError> {
        let mut parsed = ParsedBatch::default();
        let mut size = 0;
        while parsed.row_count() < MAX_ROWS && size < MAX_BYTES {
            let next = self.records.next(record)?;
            let mapped = match &next {
                Next::Row => self.mapper.map(record),
                Next::Malformed(why) => Err((*why).into()),
                Next::Unusable(why) => Err(why.clone()),
                Next::End => return Ok((parsed, true)),
            };
            match mapped {
                Ok(row) => {
                    size += row.message.content.len() + row.message.params.len();
                    parsed.rows.push(row);
                }
                Err(rejection) => {
                    if let Some(rejects) = &mut self.rejects {
                        let row = RejectedRow::new(&next, record);
                        rejects.add(record.line, &rejection.reason, &row)?;
                    }
                    size += rejection.reason.len();
                    parsed.rejected.push((record.line, rejection));
                }
            }
            parsed.last_line = record.line;
            parsed.bytes = self.records.consumed();
        }
        Ok((parsed, false))
    }

    /// Calls `take` with each message while it returns true.
    pub(super) fn for_each(
        mut self,
        mut take: impl FnMut(&NewSms) -> bool,
    ) -> Result<(), ImportError> {
        let mut record = Record::default();
        loop {
            let row = match self.records.next(&mut record)? {
                Next::Row => self.mapper.map(&record).ok(),
                Next::Malformed(_) | Next::Unusable(_) => None,
                Next::End => return Ok(()),
            };
            if row.is_some_and(|row| !take(&row.message)) {
                return Ok(());
            }
        }
    }
}

/// Streams a file into `sink`. The returned rejects file is not in its place yet.
pub(super) async fn stream(
    task: Task,
    sink: impl AsyncFnMut(ParsedBatch) -> Result<(), ImportError>,
) -> Result<Option<RejectsFile>, ImportError> {
    stream_from(move |batches| task.run(batches), sink).await
}

/// Runs `work` on a thread and streams its batches into `sink`.
pub(super) async fn stream_from<B: Send + 'static, R: Send + 'static, E: From<ImportError>>(
    work: impl FnOnce(&mpsc::Sender<B>) -> Result<R, ImportError> + Send + 'static,
    mut sink: impl AsyncFnMut(B) -> Result<(), E>,
) -> Result<R, E> {
    let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
    let thread = tokio::task::spawn_blocking(move || work(&sender));
    let mut outcome = Ok(());
    while let Some(batch) = receiver.recv().await {
        outcome = sink(batch).await;
        if outcome.is_err() {
            break;
        }
    }
    drop(receiver);
    // The thread is awaited after an error too: it removes its temporary files.
    let read = match thread.await {
        Ok(read) => read,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    outcome?;
    Ok(read?)
}
