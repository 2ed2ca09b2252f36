//! What a worker knows and the database cannot store when the worker must end: a file that the next
//! worker on this host settles before anything else.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use smsq_lifecycle::{Settlement, Transition};
use smsq_message::sms::{Failure, Timestamp};

use super::{LocalFile, LocalFiles};
use crate::local_files;

/// A run of this many digits in a reason may be a phone number, and is not written.
const PHONE_DIGITS: usize = 7;

/// The ending of a file that is whole.
pub(super) const WHOLE: &str = "jsonl";
/// The ending of one that is being written.
const PART: &str = "part";

/// The journal files of one database.
#[derive(Clone)]
pub(crate) struct Journal(LocalFiles);

/// What one worker wrote.
pub(crate) struct JournalFile {
    pub(crate) path: PathBuf,
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
    pub(crate) fn new(files: LocalFiles) -> Self {
        Self(files)
    }

    /// Writes all settlements or none to a new file, readable by the owner only; returns its path.
    pub(crate) fn write(
        &self,
        worker_id: i64,
        written_at: Timestamp,
        mut settlements: Vec<Settlement>,
    ) -> io::Result<PathBuf> {
        for settlement in &mut settlements {
            remove_phones(&mut settlement.transition);
        }
        let token = local_files::random_token();
        self.0.write_first(worker_id, &token, WHOLE, |path| {
            write_to(path, &Head { written_at }, &settlements)?;
            Ok(path.to_owned())
        })
    }

    /// What earlier workers wrote. An unreadable file stays where it is.
    pub(crate) async fn files(&self) -> Vec<JournalFile> {
        let files = self.0.clone();
        // On a thread that nothing else waits for. A panic has been logged, and the files stay where they are.
        let read = tokio::task::spawn_blocking(move || read_all(&files)).await;
        read.unwrap_or_default()
    }
}

fn read_all(local: &LocalFiles) -> Vec<JournalFile> {
    let mut files = Vec::new();
    for LocalFile { path, .. } in local.list(WHOLE).into_iter().filter(|file| file.is_own) {
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
    let part = path.with_extension(PART);
    let file = local_files::create(&part)?;
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

pub(super) fn read(path: &Path) -> io::Result<JournalFile> {
    let (head, settlements) = parse(BufReader::new(File::open(path)?))?;
    Ok(JournalFile { path: path.to_owned(), written_at: head.written_at, settlements })
}

fn parse(file: impl BufRead) -> io::Result<(Head, Vec<Settlement>)> {
    let mut lines = file.lines();
    let head = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let head: Head = serde_json::from_str(&head)?;
    let mut settlements = Vec::new();
    for line in lines {
        settlements.push(serde_json::from_str(&line?)?);
    }
    Ok((head, settlements))
}

/// Reads a journal; returns it as it is written again, and the reasons in it.
#[cfg(feature = "fuzz")]
pub fn fuzz_journal(file: &[u8]) -> io::Result<(Vec<u8>, Vec<String>)> {
    let (head, mut settlements) = parse(file)?;
    for settlement in &mut settlements {
        remove_phones(&mut settlement.transition);
    }
    let mut written = serde_json::to_vec(&head)?;
    for settlement in &settlements {
        written.push(b'\n');
        serde_json::to_writer(&mut written, settlement)?;
    }
    let mut reasons = Vec::new();
    for settlement in &mut settlements {
        let failure = failure_of(&mut settlement.transition);
        reasons.extend(failure.map(|failure| failure.reason.clone()));
    }
    Ok((written, reasons))
}

/// Removes what may be phone numbers from the reason.
pub(super) fn remove_phones(transition: &mut Transition) {
    if let Some(failure) = failure_of(transition) {
        failure.reason = without_phones(&failure.reason);
    }
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
    use crate::local_files::DatabaseIdentity;
    use std::os::unix::fs::PermissionsExt;

    use smsq_message::sms::{Acceptance, Class};

    /// The journal of a database in this folder that was created at an instant.
    fn journal(folder: PathBuf, created_at: i64) -> Journal {
        journal_at(folder, created_at, "file 1")
    }

    fn journal_at(folder: PathBuf, created_at: i64, place: &str) -> Journal {
        let database = DatabaseIdentity { created_at, place: place.to_owned() };
        Journal::new(LocalFiles::new(&[folder], "smsq.db", &database))
    }

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
        let own = journal(folder.path().to_owned(), 1);
        // Workers on several hosts may share the folder and, in several databases, the id.
        let other = journal(folder.path().to_owned(), 2);
        for id in 1..=3 {
            let written = own.write(8, Timestamp::default(), vec![sent(id)]);
            written.expect("written");
        }
        let written = other.write(8, Timestamp::default(), vec![sent(4)]);
        written.expect("written");
        assert_eq!(ids_in(&own).await, [1, 2, 3]);
        assert_eq!(ids_in(&other).await, [4]);
    }

    #[tokio::test]
    async fn journal_of_a_copy_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = journal_at(folder.path().to_owned(), 1, "file 1");
        let copy = journal_at(folder.path().to_owned(), 1, "file 2");
        let written = own.write(8, Timestamp::default(), vec![sent(1)]);
        written.expect("written");
        assert_eq!(ids_in(&own).await, [1]);
        assert_eq!(ids_in(&copy).await, [] as [i64; 0]);
    }

    #[tokio::test]
    async fn results_are_read_as_written_but_for_phone_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = journal(folder.path().join("missing/folder"), 1);
        let failure =
            Failure::new(Class::Recipient, "+447400123456 is not code 21211").with_code("9");
        let settlement =
            |id, transition| Settlement { id, claim: 3, provider: "cellar".to_owned(), transition };
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
            settlement(5, Transition::Unknown(Failure::new(Class::Unknown, "timed out"))),
            settlement(6, Transition::NotAdmitted(Failure::new(Class::Expired, "late"))),
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
