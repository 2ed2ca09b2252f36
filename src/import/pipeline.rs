//! Reads and maps rows on a thread of its own and hands them over in batches. A few batches wait for the
//! database, so memory does not depend on the size of the file.

use std::collections::BTreeMap;

use smsq_process::jobs::Until;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::{ImportError, Rejection};
use super::record::{Next, Record, RecordReader};
use super::rejects_file::RejectsFile;

/// The most rows of a batch, including the rejected ones.
pub(super) const MAX_ROWS: u64 = 20_000;
/// The most bytes of texts and values of a batch.
const MAX_BYTES: usize = 4 << 20;
/// How many batches may wait for the database.
const MAX_WAITING: usize = 2;

/// Consecutive rows of a list.
pub struct ParsedBatch<R> {
    pub rows: Vec<R>,
    /// The lines of rejected rows, and the reasons.
    pub rejected: Vec<(u64, Rejection)>,
    pub(super) last_line: u64,
    /// Bytes of the file up to here.
    pub(super) bytes: u64,
}

impl<R> Default for ParsedBatch<R> {
    fn default() -> Self {
        Self { rows: Vec::new(), rejected: Vec::new(), last_line: 0, bytes: 0 }
    }
}

impl<R> ParsedBatch<R> {
    pub(super) fn row_count(&self) -> u64 {
        (self.rows.len() + self.rejected.len()) as u64
    }
}

/// Maps a record to a row, and to its bytes that count for the size of a batch.
type Map<R> = Box<dyn Fn(&Record) -> Result<(R, usize), Rejection> + Send>;

/// Reads the rows of one list.
pub(super) struct Task<R> {
    pub(super) records: RecordReader,
    pub(super) map: Map<R>,
    /// `None`: rejected rows are not written.
    pub(super) rejects: Option<RejectsFile>,
    pub(super) until: Until,
}

impl<R> Task<R> {
    /// Returns the next batch; it is empty at the end of the list.
    fn next_batch(&mut self, record: &mut Record) -> Result<ParsedBatch<R>, ImportError> {
        let mut parsed = ParsedBatch::default();
        let mut size = 0;
        self.until.check()?;
        while parsed.row_count() < MAX_ROWS && size < MAX_BYTES {
            let next = self.records.next(record)?;
            let mapped = match &next {
                Next::Row => (self.map)(record),
                Next::Malformed(why) => Err((*why).into()),
                Next::Unusable(why) => Err(why.clone()),
                Next::End => break,
            };
            match mapped {
                Ok((row, bytes)) => {
                    size += bytes;
                    parsed.rows.push(row);
                }
                Err(rejection) => {
                    if let Some(rejects) = &mut self.rejects {
                        rejects.add(&next, record, &rejection.reason)?;
                    }
                    size += rejection.reason.len();
                    parsed.rejected.push((record.line, rejection));
                }
            }
            parsed.last_line = record.line;
        }
        parsed.bytes = self.records.consumed()?;
        Ok(parsed)
    }
}

#[cfg(feature = "fuzz")]
impl<R> Task<R> {
    /// The rows of a short list in one batch, and the path of the rejects file, if there is one.
    pub(super) fn fuzz_rows(
        mut self,
    ) -> Result<(ParsedBatch<R>, Option<std::path::PathBuf>), ImportError> {
        let parsed = self.next_batch(&mut Record::default())?;
        let rejects = self.rejects.map(RejectsFile::finish).transpose()?;
        Ok((parsed, rejects.flatten()))
    }
}

/// Streams the rows of a list into `sink`. The returned rejects file is not in its place yet.
pub(super) async fn stream<R: Send + 'static, E: From<ImportError>>(
    mut task: Task<R>,
    mut sink: impl AsyncFnMut(ParsedBatch<R>) -> Result<(), E>,
) -> Result<Option<RejectsFile>, E> {
    let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
    let thread = tokio::task::spawn_blocking(move || {
        let mut record = Record::default();
        loop {
            let parsed = task.next_batch(&mut record)?;
            if parsed.row_count() == 0 || sender.blocking_send(parsed).is_err() {
                return Ok(task.rejects);
            }
        }
    });
    let mut outcome = Ok(());
    while let Some(batch) = receiver.recv().await {
        outcome = sink(batch).await;
        if outcome.is_err() {
            break;
        }
    }
    drop(receiver);
    // The thread is awaited after an error too: it removes its temporary files.
    let read = joined(thread).await;
    outcome?;
    Ok(read?)
}

/// Reads a list again up to the last of some rows, by their lines, and adds them to the rejects file of the list with
/// the reasons.
pub(super) async fn reject_lines(
    mut records: RecordReader,
    mut rejects: RejectsFile,
    mut reasons: BTreeMap<u64, String>,
) -> Result<RejectsFile, ImportError> {
    let thread = tokio::task::spawn_blocking(move || {
        let mut record = Record::default();
        while !reasons.is_empty() {
            let next = records.next(&mut record)?;
            if matches!(next, Next::End) {
                break;
            }
            if let Some(reason) = reasons.remove(&record.line) {
                rejects.add(&next, &record, &reason)?;
            }
        }
        Ok(rejects)
    });
    joined(thread).await
}

/// The result of a thread.
async fn joined<R>(thread: JoinHandle<Result<R, ImportError>>) -> Result<R, ImportError> {
    match thread.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
