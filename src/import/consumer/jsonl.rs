//! Imports JSON lines from a program that writes them over time. Lines that arrive within half a second are
//! one batch; lines that are not messages are written to the rejects file at once.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use super::message::MessageReader;
use super::{ConsumeOptions, Event, unique_in};
use crate::error::ImportError;
use crate::importer::{Importer, Target};
use crate::pipeline::ParsedBatch;
use crate::record;
use crate::rejects_file::LiveRejects;
use crate::summary::Summary;

/// The most lines that are read at once.
const MAX_LINES: usize = 2_000;
/// The longest time that a line waits for others.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The name in messages and in the table of imports.
pub const STDIN: &str = "standard input";

/// A line with its number.
type Line = std::io::Result<(u64, Vec<u8>)>;

/// Imports the lines of standard input until it ends, or until a stop: then the lines that were read before.
pub async fn follow(
    rejects: PathBuf,
    target: Target<'_>,
    mut options: ConsumeOptions,
    mut on_event: impl FnMut(Event),
) -> Result<Summary, ImportError> {
    let unique = unique_in(options.messages.unique.as_ref(), target.campaign)?;
    let mut messages = MessageReader::new(options.messages, unique)?;
    let mut importer = Importer::begin(target, STDIN, &messages.token).await?;
    let mut rejects = LiveRejects::new(rejects);
    let mut incoming = read(std::io::stdin());
    let (mut has_ended, mut is_stopping) = (false, false);
    while !has_ended {
        let mut lines = Vec::new();
        tokio::select! {
            count = incoming.recv_many(&mut lines, MAX_LINES) => has_ended = count == 0,
            _ = options.stop.changed(), if !is_stopping => {
                // Lines that were read from a pipe exist nowhere else: they are imported first.
                is_stopping = true;
                incoming.close();
                continue;
            }
        }
        let more = async {
            while lines.len() < MAX_LINES && incoming.recv_many(&mut lines, MAX_LINES).await > 0 {}
        };
        // More lines that arrive in time belong to the batch.
        let _ = tokio::time::timeout(MAX_WAIT, more).await;
        let mut parsed = ParsedBatch::default();
        let complete = lines.into_iter().collect::<Result<Vec<_>, _>>();
        let texts = complete.map_err(ImportError::read(STDIN))?;
        for (number, text) in &texts {
            let number = *number;
            parsed.last_line = number;
            match messages.map(number, text) {
                Ok(row) => parsed.rows.push(row),
                Err(rejection) => {
                    rejects.add(number, text, &rejection.reason)?;
                    parsed.rejected.push((number, rejection));
                }
            }
        }
        if parsed.row_count() > 0 {
            for (number, reason) in importer.commit(parsed).await? {
                let line = texts.iter().find(|(line, _)| *line == number);
                let text = line.map_or(&[][..], |(_, text)| text);
                rejects.add(number, text, &reason)?;
            }
            on_event(Event::Progress(importer.summary.rows));
        }
    }
    importer.summary.rejects_file = rejects.path();
    importer.finish().await
}

/// Reads on a thread that is never awaited: it may block in a read forever.
fn read(input: impl Read + Send + 'static) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(MAX_LINES);
    std::thread::spawn(move || {
        let mut lines = record::LineReader::new(input);
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
