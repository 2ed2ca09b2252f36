//! A file of phones, one a line or in the first column, as suppression lists are: read in batches, in memory
//! that does not depend on the file. A line that is no phone costs no other.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::encoding::Encoding;
use super::error::ImportError;
use super::rejects::{self, Rejects, Style};
use crate::phone::{Phone, Region};

/// Lines of one batch.
const BATCH: usize = 20_000;
/// More of a line than that is no phone.
const LONGEST: u64 = 4 * 1024;
const WAITING: usize = 2;

/// Some consecutive lines of a file.
#[derive(Debug, Default)]
pub struct Phones {
    pub phones: Vec<Phone>,
    /// The lines that are no phones, and why.
    pub faults: Vec<(u64, String)>,
    /// Lines of the file up to here.
    pub lines: u64,
}

/// Where the lines that are no phones are, if there are any.
pub type RejectsFile = Option<PathBuf>;

/// Reads a file into `sink`. The lines that are no phones go to a rejects file in the current folder, under the
/// file's name. A first line without a digit is the header.
pub async fn read<E: From<ImportError>>(
    path: &Path,
    region: Option<Region>,
    mut sink: impl AsyncFnMut(Phones) -> Result<(), E>,
) -> Result<RejectsFile, E> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| ImportError::from_io(path, &name, source))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let place = PathBuf::from(format!("{stem}.rejects.csv"));
    rejects::check_place(&place)?;
    let (sender, mut receiver) = mpsc::channel(WAITING);
    let reading = tokio::task::spawn_blocking(move || {
        let rejects = Rejects::written(
            place,
            Style::Separated(b','),
            Encoding::UTF8,
            false,
            &["phone".to_owned()],
        );
        batches(file, &name, region, rejects, &sender)
    });
    let mut outcome = Ok(());
    while let Some(phones) = receiver.recv().await {
        outcome = sink(phones).await;
        if outcome.is_err() {
            break;
        }
    }
    drop(receiver);
    let rejects = match reading.await {
        Ok(rejects) => rejects,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    outcome?;
    Ok(rejects?.finish()?)
}

fn batches(
    file: File,
    name: &str,
    region: Option<Region>,
    mut rejects: Rejects,
    sender: &mpsc::Sender<Phones>,
) -> Result<Rejects, ImportError> {
    let mut source = BufReader::with_capacity(1 << 16, file);
    let mut batch = Phones::default();
    let mut text = Vec::new();
    let mut number = 0;
    loop {
        text.clear();
        let read = read_line(&mut source, &mut text).map_err(|source| ImportError::Read {
            file: name.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        let line = String::from_utf8_lossy(&text);
        let line = line.trim_start_matches('\u{feff}').trim_end();
        let first = line.split([',', ';', '\t']).next().unwrap_or_default();
        let raw = first.trim().trim_matches('"');
        let is_header = number == 1 && !raw.chars().any(|c| c.is_ascii_digit());
        if !raw.is_empty() && !is_header {
            match Phone::parse(raw, region) {
                Ok(phone) => batch.phones.push(phone),
                Err(error) => {
                    let reason = error.to_string();
                    rejects.add(number, &reason, std::iter::once(line.as_bytes()))?;
                    batch.faults.push((number, reason));
                }
            }
        }
        batch.lines = number;
        if batch.phones.len() + batch.faults.len() >= BATCH
            && sender.blocking_send(std::mem::take(&mut batch)).is_err()
        {
            return Ok(rejects);
        }
    }
    // Nobody listens any more where the last one was not taken.
    let _ = sender.blocking_send(batch);
    Ok(rejects)
}

/// A line of bounded length; what is beyond it is skipped.
fn read_line(source: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<u64> {
    let mut read = source.by_ref().take(LONGEST).read_until(b'\n', text)? as u64;
    if read == LONGEST && text.last() != Some(&b'\n') {
        read += source.skip_until(b'\n')? as u64;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_text(text: &str) -> (Vec<String>, Vec<(u64, String)>, Option<String>) {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("stop.csv");
        std::fs::write(&path, text).expect("writes");
        let (mut phones, mut faults) = (Vec::new(), Vec::new());
        let place = folder.path().join("stop.rejects.csv");
        let rejects = Rejects::written(
            place,
            Style::Separated(b','),
            Encoding::UTF8,
            false,
            &["phone".to_owned()],
        );
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let file = File::open(&path).expect("opens");
        let reading =
            tokio::task::spawn_blocking(move || batches(file, "stop.csv", None, rejects, &sender));
        while let Some(batch) = receiver.recv().await {
            phones.extend(batch.phones.into_iter().map(Phone::into_string));
            faults.extend(batch.faults);
        }
        let rejects = reading.await.expect("reads").expect("reads").finish();
        let kept = rejects
            .expect("finishes")
            .map(|path| std::fs::read_to_string(path).expect("the file"));
        (phones, faults, kept)
    }

    #[tokio::test]
    async fn a_line_that_is_no_phone_costs_no_other() {
        let long = "9".repeat(10_000);
        let text = format!(
            "\u{feff}Phone;reason\n+447400123451;stop\n\n\"+447400123452\"\n12\n{long}\n+447400123453"
        );
        let (phones, faults, kept) = read_text(&text).await;
        assert_eq!(phones, ["+447400123451", "+447400123452", "+447400123453"]);
        let lines: Vec<u64> = faults.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [5, 6]);
        let kept = kept.expect("a rejects file");
        assert!(
            kept.starts_with("phone,smsq_line,smsq_reason\n12,5,"),
            "{kept}"
        );
    }

    #[tokio::test]
    async fn more_lines_than_a_batch_are_all_read() {
        let lines = (0..BATCH as u64 * 2 + 7).map(|n| format!("+861380{n:07}\n"));
        let (phones, faults, kept) = read_text(&lines.collect::<String>()).await;
        assert_eq!((phones.len(), faults.len(), kept), (BATCH * 2 + 7, 0, None));
    }
}
