//! What a worker knows when it must end while the database cannot store it: it is written to a file, and the next
//! worker on this host settles it before it does anything else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::queue::{Settlement, Transition};
use crate::sms::{Acceptance, Class, Failure, Timestamp};
use crate::store::{Store, StoreError};

/// A run of so many digits may be a phone number; those of reasons are not written.
const PHONE: usize = 7;

/// Where the files of one database are.
pub(super) struct Journal {
    /// The first that can be written is used; all are looked through.
    folders: Vec<PathBuf>,
    /// What the names of its files begin with.
    prefix: String,
}

/// What one worker left.
pub(super) struct Left {
    pub(super) path: PathBuf,
    /// By the database's clock: what was queued later is another message, whatever its number.
    pub(super) written_at: Timestamp,
    pub(super) settlements: Vec<Settlement>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    written_at: i64,
}

/// Neither phone nor text: the number of a message, its claim, and what came of it.
#[derive(Serialize, Deserialize)]
struct Entry {
    id: i64,
    claim: i64,
    provider: String,
    #[serde(flatten)]
    result: Result,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
enum Result {
    Sent {
        message_id: Option<String>,
        segments: Option<i32>,
        price: Option<String>,
    },
    Failed(Reason),
    Refused(Reason),
    FoundRejected(Reason),
    Ready {
        due_at: i64,
        failure: Option<Reason>,
        counted: bool,
        in_doubt: bool,
    },
    Unknown(Reason),
    Refunded,
}

#[derive(Serialize, Deserialize)]
struct Reason {
    class: Class,
    code: Option<String>,
    #[serde(rename = "reason")]
    text: String,
}

impl Journal {
    /// Beside the file of an embedded database; of a server's in the user's state folder, or where the process
    /// was started.
    pub(super) async fn of(
        store: &Store,
        state_folder: Option<&Path>,
    ) -> std::result::Result<Self, StoreError> {
        let file = store.file();
        let name = file
            .and_then(Path::file_name)
            .map_or("smsq".into(), |name| name.to_string_lossy().into_owned());
        let beside = file.map(|file| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        });
        let mut folders: Vec<PathBuf> = beside.into_iter().collect();
        folders.extend(state_folder.map(Path::to_owned));
        if file.is_none() {
            folders.push(PathBuf::from("."));
        }
        let made_at = store.made_at().await?;
        Ok(Self {
            folders,
            prefix: format!("{name}-unsettled-{made_at:x}-"),
        })
    }

    /// Writes all of it or nothing, readable by its owner only; returns where.
    pub(super) fn write(
        &self,
        worker_id: i64,
        written_at: Timestamp,
        settlements: &[Settlement],
    ) -> io::Result<PathBuf> {
        let name = format!("{}{worker_id}.jsonl", self.prefix);
        let mut failed = io::Error::other("there is no folder to write to");
        for folder in &self.folders {
            match write_to(&folder.join(&name), written_at, settlements) {
                Ok(()) => return Ok(folder.join(&name)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// What earlier workers left. A file that cannot be read stays where it is.
    pub(super) fn left(&self) -> Vec<Left> {
        let files = self
            .folders
            .iter()
            .filter_map(|folder| fs::read_dir(folder).ok());
        let mut left = Vec::new();
        for file in files.flatten().flatten() {
            let name = file.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with(&self.prefix) || !name.ends_with(".jsonl") {
                continue;
            }
            match read(&file.path()) {
                Ok(one) => left.push(one),
                Err(error) => {
                    let path = file.path();
                    tracing::error!(path = %path.display(), %error, "the results that an earlier worker left cannot be read");
                }
            }
        }
        left
    }
}

fn write_to(path: &Path, written_at: Timestamp, settlements: &[Settlement]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let part = path.with_extension("part");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let mut out = BufWriter::new(file);
    let head = Head {
        written_at: written_at.as_millis(),
    };
    serde_json::to_writer(&mut out, &head)?;
    out.write_all(b"\n")?;
    for settlement in settlements {
        serde_json::to_writer(&mut out, &Entry::of(settlement))?;
        out.write_all(b"\n")?;
    }
    out.into_inner()?.sync_all()?;
    fs::rename(&part, path)
}

fn read(path: &Path) -> io::Result<Left> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    let head = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let head: Head = serde_json::from_str(&head)?;
    let mut settlements = Vec::new();
    for line in lines {
        let entry: Entry = serde_json::from_str(&line?)?;
        settlements.push(entry.settlement());
    }
    Ok(Left {
        path: path.to_owned(),
        written_at: Timestamp::from_millis(head.written_at),
        settlements,
    })
}

impl Entry {
    fn of(settlement: &Settlement) -> Self {
        let result = match &settlement.transition {
            Transition::Sent(acceptance) => Result::Sent {
                message_id: acceptance.message_id.clone(),
                segments: acceptance.segments,
                price: acceptance.price.clone(),
            },
            Transition::Failed(failure) => Result::Failed(Reason::of(failure)),
            Transition::NotAdmitted(failure) => Result::Refused(Reason::of(failure)),
            Transition::FoundRejected(failure) => Result::FoundRejected(Reason::of(failure)),
            Transition::Ready {
                due_at,
                failure,
                counted,
                in_doubt,
            } => Result::Ready {
                due_at: due_at.as_millis(),
                failure: failure.as_ref().map(Reason::of),
                counted: *counted,
                in_doubt: *in_doubt,
            },
            Transition::Unknown(failure) => Result::Unknown(Reason::of(failure)),
            Transition::Refunded => Result::Refunded,
        };
        Self {
            id: settlement.id,
            claim: settlement.claim,
            provider: settlement.provider.clone(),
            result,
        }
    }

    fn settlement(self) -> Settlement {
        let transition = match self.result {
            Result::Sent {
                message_id,
                segments,
                price,
            } => Transition::Sent(Acceptance {
                message_id,
                segments,
                price,
            }),
            Result::Failed(reason) => Transition::Failed(reason.failure()),
            Result::Refused(reason) => Transition::NotAdmitted(reason.failure()),
            Result::FoundRejected(reason) => Transition::FoundRejected(reason.failure()),
            Result::Ready {
                due_at,
                failure,
                counted,
                in_doubt,
            } => Transition::Ready {
                due_at: Timestamp::from_millis(due_at),
                failure: failure.map(Reason::failure),
                counted,
                in_doubt,
            },
            Result::Unknown(reason) => Transition::Unknown(reason.failure()),
            Result::Refunded => Transition::Refunded,
        };
        Settlement {
            id: self.id,
            claim: self.claim,
            provider: self.provider,
            transition,
        }
    }
}

impl Reason {
    fn of(failure: &Failure) -> Self {
        Self {
            class: failure.class,
            code: failure.code.clone(),
            text: without_phones(&failure.reason),
        }
    }

    fn failure(self) -> Failure {
        Failure {
            class: self.class,
            code: self.code,
            reason: self.text,
        }
    }
}

/// The sentence without what may be a phone number.
fn without_phones(reason: &str) -> String {
    let mut kept = String::new();
    let mut digits = String::new();
    for letter in reason.chars().chain([' ']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let is_phone = digits.len() >= PHONE;
        kept.push_str(if is_phone { "…" } else { &digits });
        digits.clear();
        kept.push(letter);
    }
    kept.truncate(kept.len() - 1);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn results_are_read_as_written_but_for_phone_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal {
            folders: vec![folder.path().join("missing/folder")],
            prefix: "smsq-unsettled-1-".to_owned(),
        };
        let failure =
            Failure::new(Class::Recipient, "+447400123456 is not code 21211").with_code("9");
        let settlement = |id, transition| Settlement {
            id,
            claim: 3,
            provider: "cellar".to_owned(),
            transition,
        };
        let ready = Transition::Ready {
            due_at: Timestamp::from_millis(5),
            failure: Some(Failure::new(Class::Unavailable, "busy")),
            counted: true,
            in_doubt: false,
        };
        let sent = Transition::Sent(Acceptance {
            message_id: Some("SM1".to_owned()),
            segments: Some(2),
            price: None,
        });
        let settlements = vec![
            settlement(1, sent),
            settlement(2, ready),
            settlement(3, Transition::Refunded),
            settlement(4, Transition::Failed(failure.clone())),
            settlement(
                5,
                Transition::Unknown(Failure::new(Class::Unknown, "timed out")),
            ),
            settlement(
                6,
                Transition::NotAdmitted(Failure::new(Class::Expired, "late")),
            ),
        ];
        let written = journal.write(8, Timestamp::from_millis(77), &settlements);
        let path = written.expect("written");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(!text.contains("447400123456"), "{text}");
        let mut left = journal.left();
        let left = left.remove(0);
        assert_eq!((left.path, left.written_at.as_millis()), (path, 77));
        let mut expected = settlements;
        let reason = "+… is not code 21211".to_owned();
        expected[3].transition = Transition::Failed(Failure { reason, ..failure });
        assert_eq!(left.settlements, expected);
    }
}
