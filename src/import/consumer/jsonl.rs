//! Imports JSON lines from a program that writes them over time. Lines that arrive within half a second are
//! one batch; lines that are not messages are written to the rejects file at once.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::message::{MAX_BATCH, MAX_BATCH_BYTES, MessageReader};
use super::{ConsumeOptions, Event};
use crate::import::error::ImportError;
use crate::import::importer::{Importer, Target};
use crate::import::pipeline::ParsedBatch;
use crate::import::record;
use crate::import::rejects_file::LiveRejects;
use crate::import::summary::Summary;

/// The longest time that a line waits for others.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The input and the path of the rejects file.
pub struct Lines {
    /// The name in messages and in the table of imports.
    pub name: String,
    pub input: Box<dyn Read + Send>,
    pub rejects: PathBuf,
}

/// A line with its number.
type Line = std::io::Result<(u64, Vec<u8>)>;

/// Imports lines until the input ends, or until a stop: then the lines that were read before.
pub async fn follow(
    lines: Lines,
    target: Target<'_>,
    mut options: ConsumeOptions,
    mut tell: impl FnMut(Event),
) -> Result<Summary, ImportError> {
    let token = format!("{:032x}", rand::random::<u128>());
    let mut messages = MessageReader::new(options.messages, options.unique, token.clone())?;
    let mut importer = Importer::begin(target, &lines.name, &token).await?;
    let mut rejects = LiveRejects::new(lines.rejects);
    let mut incoming = read(lines.input);
    let (mut has_ended, mut is_stopping) = (false, false);
    while !has_ended {
        let mut next = tokio::select! {
            line = incoming.recv() => line,
            _ = options.stop.changed(), if !is_stopping => {
                // Lines that were read from a pipe exist nowhere else: they are imported first.
                is_stopping = true;
                incoming.close();
                continue;
            }
        };
        let mut parsed = ParsedBatch::default();
        let mut size = 0;
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let Some(line) = next else {
                has_ended = true;
                break;
            };
            let (number, text) = line.map_err(ImportError::read(&lines.name))?;
            size += text.len();
            if let Some(reason) = messages.add(&mut parsed, number, &text) {
                rejects.add(number, &text, &reason)?;
            }
            if parsed.row_count() >= MAX_BATCH as u64 || size >= MAX_BATCH_BYTES {
                break;
            }
            match timeout_at(deadline, incoming.recv()).await {
                Ok(line) => next = line,
                Err(_) => break,
            }
        }
        if parsed.row_count() > 0 {
            importer.commit(parsed).await?;
            tell(Event::progress(&importer.summary));
        }
    }
    importer.summary.rejects_file = rejects.path();
    importer.finish().await
}

/// Reads on a thread that is never awaited: it may block in a read forever.
fn read(input: Box<dyn Read + Send>) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(MAX_BATCH);
    std::thread::spawn(move || {
        let mut lines = record::Lines::new(input);
        loop {
            let line = match lines.next() {
                Ok(None) => return,
                Ok(Some(number)) => Ok((number, lines.text().to_vec())),
                Err(error) => Err(error),
            };
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
