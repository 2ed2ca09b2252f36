//! JSON Lines from a program that writes them as it goes: what has come within about half a second is one
//! batch. A line that is no message goes to the rejects file at once.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::entry::Entries;
use super::{BATCH, BATCH_BYTES, Event, Reading, progress};
use crate::import::error::ImportError;
use crate::import::importer::Importer;
use crate::import::json_lines;
use crate::import::pipeline::ParsedBatch;
use crate::import::rejects::{self, numbered, private};
use crate::import::{Summary, Target};

/// A line waits at most so long for others.
const GATHERING: Duration = Duration::from_millis(500);

/// Where lines come from, and where those go that are no messages.
pub struct Lines {
    /// As messages and the table of imports name it.
    pub name: String,
    pub input: Box<dyn Read + Send>,
    pub rejects: PathBuf,
}

/// A line with its number, or why the input broke off.
type Line = std::io::Result<(u64, Vec<u8>)>;

/// Imports lines until the input ends, or until it is told to stop: then those that were read.
pub async fn follow(
    lines: Lines,
    target: Target<'_>,
    mut reading: Reading,
    mut tell: impl FnMut(Event),
) -> Result<Summary, ImportError> {
    let token = format!("{:032x}", rand::random::<u128>());
    let mut entries = Entries::new(
        reading.entries.clone(),
        reading.unique.clone(),
        token.clone(),
    )?;
    let mut import = Importer::begin(target, &lines.name, &token).await?;
    let mut set_aside = SetAside::new(lines.rejects);
    let mut incoming = read(lines.input);
    let (mut ended, mut is_stopping) = (false, false);
    while !ended {
        let first = tokio::select! {
            line = incoming.recv() => line,
            _ = reading.stop.changed(), if !is_stopping => {
                // What was read from a pipe is nowhere else: it is imported before the end.
                is_stopping = true;
                incoming.close();
                continue;
            }
        };
        let mut parsed = ParsedBatch::default();
        let (mut next, mut size) = (first, 0);
        let deadline = Instant::now() + GATHERING;
        loop {
            let Some(line) = next else {
                ended = true;
                break;
            };
            let (number, text) = line.map_err(|source| ImportError::Read {
                file: lines.name.clone(),
                source,
            })?;
            size += text.len();
            match entries.message(number, &text) {
                Ok(made) => {
                    parsed.rows.push(made);
                }
                Err(rejected) => {
                    set_aside.add(number, &text, &rejected.reason)?;
                    parsed.rejected.push((number, rejected));
                }
            }
            parsed.last_line = number;
            if parsed.row_count() >= BATCH as u64 || size >= BATCH_BYTES {
                break;
            }
            match timeout_at(deadline, incoming.recv()).await {
                Ok(line) => next = line,
                Err(_) => break,
            }
        }
        if parsed.row_count() > 0 {
            import.commit(parsed).await?;
            tell(progress(&import));
        }
    }
    import.summary.rejects_file = set_aside.file.and_then(|(path, _)| path);
    import.finish().await
}

/// Reads on a thread of its own, which nobody waits for: it may be in the middle of a read for ever.
fn read(input: Box<dyn Read + Send>) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(BATCH);
    std::thread::spawn(move || {
        let mut lines = json_lines::Lines::new(input);
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

/// The rejects file, once there is something to put into it; whole up to the last line at any moment.
struct SetAside {
    wanted: PathBuf,
    /// The path where it is a file and not a device.
    file: Option<(Option<PathBuf>, Box<dyn Write>)>,
}

impl SetAside {
    fn new(wanted: PathBuf) -> Self {
        Self { wanted, file: None }
    }

    fn add(&mut self, line: u64, text: &[u8], reason: &str) -> Result<(), ImportError> {
        let wanted = self.wanted.clone();
        let fault = |source| ImportError::Rejects {
            file: wanted,
            source,
        };
        self.write(line, text, reason).map_err(fault)
    }

    fn write(&mut self, line: u64, text: &[u8], reason: &str) -> std::io::Result<()> {
        let (_, file) = match &mut self.file {
            Some(file) => file,
            none => none.insert(match rejects::device(&self.wanted)? {
                Some(device) => (None, device),
                None => {
                    created(&self.wanted).map(|(path, file)| (Some(path), Box::new(file) as _))?
                }
            }),
        };
        let mut object = serde_json::from_slice(text).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(text.trim_ascii());
            serde_json::Map::from_iter([("smsq_text".to_owned(), text.into())])
        });
        object.insert("smsq_line".to_owned(), line.to_string().into());
        object.insert("smsq_reason".to_owned(), reason.into());
        file.write_all(format!("{}\n", serde_json::Value::from(object)).as_bytes())?;
        file.flush()
    }
}

/// A new file of that name, or beside it with a number where there is one.
fn created(wanted: &std::path::Path) -> std::io::Result<(PathBuf, File)> {
    let mut path = wanted.to_path_buf();
    for number in 2.. {
        match private(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                path = numbered(wanted, number);
            }
            created => return Ok((path, created?)),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}
