//! What a worker knows and the database cannot store when the worker must end: a file that the next
//! worker on this host settles before anything else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::queue::{Settlement, Transition};
use crate::sms::{Failure, Timestamp};
use crate::store::{Store, StoreError};

/// A run of this many digits in a reason may be a phone number, and is not written.
const PHONE_DIGITS: usize = 7;

/// The ending of a file that is whole.
const WHOLE: &str = "jsonl";
/// The ending of one that is being written.
const PART: &str = "part";

/// The journal files of one database, in folders that have nothing else: they are read every second.
#[derive(Clone)]
pub(super) struct Journal {
    /// The first writable one is used; all are read.
    folders: Vec<PathBuf>,
    /// The start of every file name.
    prefix: String,
}

/// What one worker wrote.
pub(super) struct JournalFile {
    pub(super) path: PathBuf,
    /// On the database's clock. A message that was queued later is another one, even with the same id.
    pub(super) written_at: Timestamp,
    pub(super) settlements: Vec<Settlement>,
}

/// The first line. Each further line is a [`Settlement`], which has neither phone nor text.
#[derive(Serialize, Deserialize)]
struct Head {
    written_at: Timestamp,
}

impl Journal {
    /// In a folder beside an embedded database's file; for a server in the user's state folder, or in the
    /// working directory.
    pub(super) async fn of(store: &Store, state_folder: Option<&Path>) -> Result<Self, StoreError> {
        let file = store.file();
        let name = file
            .and_then(Path::file_name)
            .map_or("smsq".into(), |name| name.to_string_lossy().into_owned());
        let own_folder = file.map(|file| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        });
        let mut parents: Vec<PathBuf> = own_folder.into_iter().collect();
        parents.extend(state_folder.map(Path::to_owned));
        if file.is_none() {
            parents.push(PathBuf::from("."));
        }
        let made_at = store.created_at().await?;
        Ok(Self::new(&parents, &name, made_at))
    }

    /// `name`: of the database, which was created at `made_at`.
    fn new(parents: &[PathBuf], name: &str, made_at: i64) -> Self {
        Self {
            folders: parents
                .iter()
                .map(|parent| parent.join(format!("{name}-unsettled")))
                .collect(),
            prefix: format!("{made_at:x}-"),
        }
    }

    /// Writes all settlements or none to a new file, readable by the owner only; returns its path.
    pub(super) fn write(
        &self,
        worker_id: i64,
        written_at: Timestamp,
        mut settlements: Vec<Settlement>,
    ) -> io::Result<PathBuf> {
        for settlement in &mut settlements {
            if let Some(failure) = failure_of(&mut settlement.transition) {
                failure.reason = without_phones(&failure.reason);
            }
        }
        // Workers on several hosts, and several files of one worker, may be in one folder.
        let number: u128 = rand::random();
        let name = format!("{}{worker_id}-{number:032x}", self.prefix);
        let mut failed = io::Error::other("there is no folder to write to");
        for folder in &self.folders {
            let path = folder.join(format!("{name}.{WHOLE}"));
            match write_to(&path, &Head { written_at }, &settlements) {
                Ok(()) => return Ok(path),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// What earlier workers wrote. An unreadable file stays where it is.
    pub(super) async fn files(&self) -> Vec<JournalFile> {
        let (folders, prefix) = (self.folders.clone(), self.prefix.clone());
        // On a thread that nothing else waits for. A panic has been logged, and the files stay where they are.
        let read = tokio::task::spawn_blocking(move || files_in(&folders, &prefix)).await;
        read.unwrap_or_default()
    }
}

fn files_in(folders: &[PathBuf], prefix: &str) -> Vec<JournalFile> {
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let mut files = Vec::new();
    for entry in entries.flatten().flatten() {
        let path = entry.path();
        let is_whole = path.extension().is_some_and(|end| end == WHOLE);
        if !is_whole || !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        match read(&path) {
            Ok(file) => files.push(file),
            // Another worker has stored it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read the results of an earlier worker");
            }
        }
    }
    files
}

fn write_to(path: &Path, head: &Head, settlements: &[Settlement]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
    }
    let part = path.with_extension(PART);
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, head)?;
    out.write_all(b"\n")?;
    for settlement in settlements {
        serde_json::to_writer(&mut out, settlement)?;
        out.write_all(b"\n")?;
    }
    out.into_inner()?.sync_all()?;
    fs::rename(&part, path)
}

fn read(path: &Path) -> io::Result<JournalFile> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    let head = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let head: Head = serde_json::from_str(&head)?;
    let mut settlements = Vec::new();
    for line in lines {
        settlements.push(serde_json::from_str(&line?)?);
    }
    Ok(JournalFile {
        path: path.to_owned(),
        written_at: head.written_at,
        settlements,
    })
}

fn failure_of(transition: &mut Transition) -> Option<&mut Failure> {
    match transition {
        Transition::Failed(failure)
        | Transition::NotAdmitted(failure)
        | Transition::FoundRejected(failure)
        | Transition::FoundAbsent(failure)
        | Transition::Unknown(failure) => Some(failure),
        Transition::Ready { failure, .. } => failure.as_mut(),
        Transition::Sent(_) | Transition::Refunded => None,
    }
}

/// Replaces what may be a phone number.
fn without_phones(reason: &str) -> String {
    let mut kept = String::new();
    let mut digits = String::new();
    for letter in reason.chars().chain([' ']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let is_phone = digits.len() >= PHONE_DIGITS;
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
    use crate::sms::{Acceptance, Class};
    use std::os::unix::fs::PermissionsExt;

    fn sent(id: i64) -> Settlement {
        Settlement {
            id,
            claim: 1,
            provider: "cellar".to_owned(),
            transition: Transition::Sent(Acceptance::default()),
        }
    }

    /// The ids of the messages in all files.
    async fn ids_in(journal: &Journal) -> Vec<i64> {
        let files = journal.files().await;
        let settlements = files.into_iter().flat_map(|file| file.settlements);
        let mut ids: Vec<i64> = settlements.map(|settlement| settlement.id).collect();
        ids.sort_unstable();
        ids
    }

    #[tokio::test]
    async fn second_journal_of_a_worker_keeps_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(&[folder.path().to_owned()], "smsq.db", 1);
        // Workers on several hosts may share the folder and, in several databases, the id.
        let other = Journal::new(&[folder.path().to_owned()], "smsq.db", 2);
        for id in 1..=3 {
            let written = journal.write(8, Timestamp::default(), vec![sent(id)]);
            written.expect("written");
        }
        let written = other.write(8, Timestamp::default(), vec![sent(4)]);
        written.expect("written");
        assert_eq!(ids_in(&journal).await, [1, 2, 3]);
        assert_eq!(ids_in(&other).await, [4]);
    }

    #[tokio::test]
    async fn results_are_read_as_written_but_for_phone_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(&[folder.path().join("missing/folder")], "smsq.db", 1);
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
            awaits_receipt: true,
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
        let written = journal.write(8, Timestamp::from_millis(77), settlements.clone());
        let path = written.expect("written");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(!text.contains("447400123456"), "{text}");
        let mut left = journal.files().await;
        let left = left.remove(0);
        assert_eq!((left.path, left.written_at.as_millis()), (path, 77));
        let mut expected = settlements;
        let reason = "+… is not code 21211".to_owned();
        expected[3].transition = Transition::Failed(Failure { reason, ..failure });
        assert_eq!(left.settlements, expected);
    }
}
