//! Which requests a worker has started and how they ended, in a file that outlives its process. After a kill, another
//! worker on this host releases what was never started and settles what was answered; only the rest is unknown.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::SendError;
use super::journal::remove_phones;
use super::local_files::{self, LocalFiles};
use crate::process::ProcessIdentity;
use crate::queue::{Settlement, Transition};
use crate::store::SendingMessage;

/// The size in bytes of the header and of each slot. Pages are multiples of it.
const BLOCK: usize = 512;
/// A block begins with the checksum of what follows, and the length of its content.
const FRAME: usize = 6;
/// A block that was never used, or not any more.
const EMPTY: [u8; FRAME] = [0; FRAME];
/// With the header 64 KiB.
const FIRST_SLOTS: u32 = 127;
const VERSION: u32 = 1;
const ENDING: &str = "marks";

/// The first block. The process is that of the worker's row.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MarksHeader {
    version: u32,
    /// The number of slots: a file of another size was damaged.
    slots: u32,
    worker_id: i64,
    process: ProcessIdentity,
}

/// The size in bytes of what a slot says of a started claim: its message and its number. No JSON is as short.
const STARTED: usize = 16;

/// The marks of this worker.
///
/// A slot is written before the first byte of a request and after its response, without waiting for the disk: the
/// system keeps what was written when the process is killed, and after a crash of the host the file does not count.
/// A slot belongs to one claim until the result of the claim is stored, so a claim without a slot was never started.
/// Where that cannot be guaranteed, the file is removed first, and nothing else is known of the worker's messages.
pub(super) struct Marks {
    files: LocalFiles,
    own: Mutex<Option<OwnFile>>,
}

struct OwnFile {
    path: PathBuf,
    file: File,
    header: MarksHeader,
    /// The slots of messages and claims. The header is before the first one.
    used: HashMap<(i64, i64), u32>,
    free: Vec<u32>,
    /// Why the file can be neither written nor removed.
    stuck: Option<String>,
}

impl Marks {
    pub(super) fn new(files: LocalFiles) -> Self {
        Self {
            files,
            own: Mutex::new(None),
        }
    }

    /// Begins the file of a worker that was just registered. Without one all its messages are unknown if it is killed.
    pub(super) fn begin(&self, worker_id: i64) {
        let process = ProcessIdentity::current();
        let created = self.files.write_first(worker_id, ENDING, |path| {
            OwnFile::create(path, worker_id, process.clone())
        });
        if let Err(error) = &created {
            warn_unmarked(error);
        }
        *self.lock() = created.ok();
    }

    /// Marks messages whose request is about to start, claimed under this worker id. False: it must not start.
    pub(super) fn start(&self, worker_id: i64, claims: impl Iterator<Item = (i64, i64)>) -> bool {
        let mut own = self.lock();
        // Under an earlier id nothing may start, and no one will read its marks.
        let Some(file) = own
            .as_mut()
            .filter(|file| file.header.worker_id == worker_id)
        else {
            return true;
        };
        let mut claims = claims;
        let Err(error) = claims.try_for_each(|(id, claim)| file.start(id, claim)) else {
            return true;
        };
        if let Err(kept) = file.discard() {
            file.stuck = Some(format!("{}: {error}; {kept}", file.path.display()));
            return false;
        }
        warn_unmarked(&error);
        *own = None;
        true
    }

    /// Marks how the request of a message ended. A result that does not fit, or cannot be written, stays unknown.
    pub(super) fn answer(&self, mut settlement: Settlement) {
        remove_phones(&mut settlement);
        let key = (settlement.id, settlement.claim);
        self.rewrite(key, || encode(&settlement));
    }

    /// Marks that the request of a message was not started after all. Its claim may start later.
    pub(super) fn withdraw(&self, id: i64, claim: i64) {
        self.rewrite((id, claim), || Some(EMPTY.to_vec()));
    }

    fn rewrite(&self, key: (i64, i64), block: impl FnOnce() -> Option<Vec<u8>>) {
        let own = self.lock();
        if let Some(file) = own.as_ref()
            && let Some(slot) = file.used.get(&key)
            && let Some(block) = block()
        {
            // If this fails it still says that the request has started.
            file.write(*slot, &block).unwrap_or_default();
        }
    }

    /// The result of a claim is stored, or in the journal: its slot is free.
    pub(super) fn forget(&self, id: i64, claim: i64) {
        if let Some(file) = self.lock().as_mut() {
            file.free.extend(file.used.remove(&(id, claim)));
        }
    }

    /// Removes the file of this worker, which has settled all its messages.
    pub(super) fn end(&self) {
        if let Some(file) = self.lock().take() {
            remove_all([file.path]);
        }
    }

    /// An error if requests can be neither marked nor started.
    pub(super) fn check(&self) -> Result<(), SendError> {
        match self.lock().as_ref().and_then(|file| file.stuck.clone()) {
            Some(reason) => Err(SendError::Marks(reason)),
            None => Ok(()),
        }
    }

    /// The files of all workers on this host, by worker id.
    pub(super) async fn list(&self) -> BTreeMap<i64, Vec<PathBuf>> {
        let files = self.files.clone();
        // A panic has been logged, and the files stay where they are.
        let listed = tokio::task::spawn_blocking(move || files.list(ENDING)).await;
        let mut by_worker: BTreeMap<i64, Vec<PathBuf>> = BTreeMap::new();
        for (worker_id, path) in listed.unwrap_or_default() {
            by_worker.entry(worker_id).or_default().push(path);
        }
        by_worker
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnFile>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn_unmarked(error: &io::Error) {
    tracing::warn!(
        %error,
        "cannot write down which requests have started: if this worker is killed, all messages that it has claimed become \
         unknown"
    );
}

/// Removes files that no one needs.
pub(super) fn remove_all(paths: impl IntoIterator<Item = PathBuf>) {
    for path in paths {
        if let Err(error) = local_files::remove(&path) {
            tracing::warn!(%error, path = %path.display(), "this file cannot be removed");
        }
    }
}

impl OwnFile {
    fn create(path: &Path, worker_id: i64, process: ProcessIdentity) -> io::Result<Self> {
        let mut own = Self {
            path: path.to_owned(),
            file: local_files::create(path)?,
            header: MarksHeader {
                version: VERSION,
                slots: 0,
                worker_id,
                process,
            },
            used: HashMap::new(),
            free: Vec::new(),
            stuck: None,
        };
        if let Err(error) = own.grow() {
            own.discard()?;
            return Err(error);
        }
        Ok(own)
    }

    /// Until the header has the new size, the file counts as damaged.
    fn grow(&mut self) -> io::Result<()> {
        let slots = self.header.slots;
        self.header.slots = (slots * 2 + 1).max(FIRST_SLOTS);
        self.file.set_len(offset(self.header.slots + 1))?;
        let header = encode(&self.header).ok_or(io::ErrorKind::InvalidData)?;
        self.write(0, &header)?;
        self.free.extend((slots + 1..=self.header.slots).rev());
        Ok(())
    }

    fn start(&mut self, id: i64, claim: i64) -> io::Result<()> {
        let mark = started(id, claim);
        if let Some(slot) = self.used.get(&(id, claim)) {
            return self.write(*slot, &mark);
        }
        if self.free.is_empty() {
            self.grow()?;
        }
        let slot = self.free.pop().ok_or(io::ErrorKind::InvalidData)?;
        self.used.insert((id, claim), slot);
        self.write(slot, &mark)
    }

    fn write(&self, slot: u32, block: &[u8]) -> io::Result<()> {
        self.file.write_all_at(block, offset(slot))
    }

    /// Makes sure that the file is not read: one of both is enough.
    fn discard(&self) -> io::Result<()> {
        let truncated = self.file.set_len(0);
        local_files::remove(&self.path).or(truncated)
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * BLOCK as u64
}

/// `None` if it does not fit in a block.
fn encode(value: &impl Serialize) -> Option<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK);
    block.extend(EMPTY);
    serde_json::to_writer(&mut block, value).ok()?;
    frame(&mut block)?;
    Some(block)
}

/// The block of a claim whose request starts.
fn started(id: i64, claim: i64) -> [u8; FRAME + STARTED] {
    let mut block = [0; FRAME + STARTED];
    block[FRAME..FRAME + 8].copy_from_slice(&id.to_le_bytes());
    block[FRAME + 8..].copy_from_slice(&claim.to_le_bytes());
    frame(&mut block).expect("it is shorter than a block");
    block
}

/// Writes the length and the checksum of what follows them; `None` if it does not fit in a block.
fn frame(block: &mut [u8]) -> Option<()> {
    let length = u16::try_from(block.len() - FRAME).ok()?;
    block[4..FRAME].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&block[4..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    (block.len() <= BLOCK).then_some(())
}

/// What follows the frame of a block; `None` for an empty block.
fn content(block: &[u8]) -> io::Result<Option<&[u8]>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a block is damaged");
    let (frame, _) = block.split_first_chunk::<FRAME>().ok_or_else(damaged)?;
    if *frame == EMPTY {
        return Ok(None);
    }
    let [sum @ .., low, high] = *frame;
    let end = FRAME + usize::from(u16::from_le_bytes([low, high]));
    let content = block.get(FRAME..end).ok_or_else(damaged)?;
    if checksum(&block[4..end]) != u32::from_le_bytes(sum) {
        return Err(damaged());
    }
    Ok(Some(content))
}

/// The claim of a slot, and its result if there was a response.
fn claim_of(content: &[u8]) -> io::Result<((i64, i64), Option<Settlement>)> {
    let halves = content.split_first_chunk::<8>();
    if let Some((id, claim)) = halves
        && let Ok(claim) = <[u8; 8]>::try_from(claim)
    {
        return Ok(((i64::from_le_bytes(*id), i64::from_le_bytes(claim)), None));
    }
    let result: Settlement = serde_json::from_slice(content)?;
    Ok(((result.id, result.claim), Some(result)))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// What a worker marked whose process has certainly ended: each claim that it started, with the result if there was a
/// response.
#[derive(Debug)]
pub(super) struct EndedMarks(HashMap<(i64, i64), Option<Settlement>>);

impl EndedMarks {
    /// Reads the files of a worker; `None` if there is none of this process, or if it is damaged.
    pub(super) async fn read(
        paths: Vec<PathBuf>,
        worker_id: i64,
        process: ProcessIdentity,
    ) -> Option<Self> {
        let read = move || {
            paths.iter().find_map(|path| {
                Self::read_file(path, worker_id, &process)
                    .inspect_err(|error| {
                        tracing::warn!(
                            path = %path.display(),
                            %error,
                            "cannot read which requests a dead worker had started: its messages become unknown"
                        );
                    })
                    .ok()
            })
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    fn read_file(path: &Path, worker_id: i64, process: &ProcessIdentity) -> io::Result<Self> {
        let mut file = File::open(path)?;
        // Fails if the system could not write a part back: that part may be an older one now.
        file.sync_all()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Self::parse(&bytes, worker_id, process)
    }

    fn parse(bytes: &[u8], worker_id: i64, process: &ProcessIdentity) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut blocks = bytes.chunks(BLOCK);
        let header = blocks.next().map(content).transpose()?.flatten();
        let header = header.ok_or_else(|| invalid("the file has no header"))?;
        let header: MarksHeader = serde_json::from_slice(header)?;
        let expected = MarksHeader {
            version: VERSION,
            slots: header.slots,
            worker_id,
            process: process.clone(),
        };
        if header != expected {
            return Err(invalid("the file is that of another process"));
        }
        if bytes.len() as u64 != offset(header.slots) + BLOCK as u64 {
            return Err(invalid("the file has another size than its header says"));
        }
        let mut claims = HashMap::new();
        for block in blocks {
            let Some(content) = content(block)? else {
                continue;
            };
            let (key, result) = claim_of(content)?;
            if claims.insert(key, result).is_some() {
                return Err(invalid("a claim is in two slots"));
            }
        }
        Ok(Self(claims))
    }
}

/// The result of a message that a dead worker was sending, by the worker's marks; `None`: it is not known. A message
/// whose request was never started goes back into the queue without an attempt.
pub(super) fn result_of(row: &SendingMessage, marks: Option<&EndedMarks>) -> Option<Settlement> {
    match marks?.0.get(&(row.id, row.claim)) {
        Some(result) => result.clone(),
        None => Some(Settlement {
            id: row.id,
            claim: row.claim,
            // Only its worker knew it.
            provider: String::new(),
            transition: Transition::wait_until(row.due_at),
        }),
    }
}

/// The claims in a file of marks, and the result of each as JSON; `None` if it is damaged. `contents` are those of
/// its slots, and `damage` changes its bytes.
#[cfg(feature = "fuzz")]
pub fn fuzz_marks(
    contents: &[&[u8]],
    damage: impl FnOnce(&mut Vec<u8>),
) -> Option<BTreeMap<(i64, i64), Option<String>>> {
    let process = ProcessIdentity {
        host: "host".to_owned(),
        boot_id: "boot".to_owned(),
        pid_namespace: "pid".to_owned(),
        pid: 1,
        started: 1,
    };
    let header = MarksHeader {
        version: VERSION,
        slots: u32::try_from(contents.len()).ok()?,
        worker_id: 8,
        process: process.clone(),
    };
    let mut bytes = encode(&header)?;
    for content in contents {
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        let mut block = [&EMPTY, *content].concat();
        if !content.is_empty() {
            frame(&mut block)?;
        }
        bytes.extend(block);
    }
    bytes.resize(usize::try_from(offset(header.slots + 1)).ok()?, 0);
    damage(&mut bytes);
    let marks = EndedMarks::parse(&bytes, 8, &process).ok()?;
    let results = marks.0.into_iter().map(|(claim, result)| {
        let result = result.map(|result| serde_json::to_string(&result).expect("JSON"));
        (claim, result)
    });
    Some(results.collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sms::{Acceptance, Class, Failure, Timestamp};

    const WORKER: i64 = 8;

    /// The marks of worker 8 in a folder of its own.
    fn marks() -> (tempfile::TempDir, Marks) {
        let folder = tempfile::tempdir().expect("a folder");
        let marks = marks_in(folder.path());
        marks.begin(WORKER);
        (folder, marks)
    }

    fn marks_in(parent: &Path) -> Marks {
        Marks::new(LocalFiles::new(&[parent.to_owned()], "smsq.db", 1))
    }

    fn start(marks: &Marks, ids: impl IntoIterator<Item = i64>) -> bool {
        marks.start(WORKER, ids.into_iter().map(|id| (id, 1)))
    }

    fn sent(id: i64, message_id: &str) -> Settlement {
        Settlement {
            id,
            claim: 1,
            provider: "cellar".to_owned(),
            transition: Transition::Sent(Acceptance {
                message_id: Some(message_id.to_owned()),
                ..Acceptance::default()
            }),
        }
    }

    fn path_of(folder: &tempfile::TempDir) -> PathBuf {
        let mut entries = fs::read_dir(folder.path().join("smsq.db-unsettled")).expect("a folder");
        let entry = entries.next().expect("a file").expect("a file");
        assert!(entries.next().is_none(), "one file");
        entry.path()
    }

    /// What another process of this host reads when this one has ended.
    fn read(folder: &tempfile::TempDir) -> io::Result<EndedMarks> {
        EndedMarks::read_file(&path_of(folder), WORKER, &ProcessIdentity::current())
    }

    fn row(id: i64, claim: i64) -> SendingMessage {
        SendingMessage {
            id,
            claim,
            worker_id: Some(WORKER),
            due_at: Timestamp::from_millis(id * 1_000),
        }
    }

    /// What becomes of a message with claim 1.
    fn transition(marks: &EndedMarks, id: i64) -> Option<Transition> {
        let result = result_of(&row(id, 1), Some(marks))?;
        assert_eq!((result.id, result.claim), (id, 1));
        Some(result.transition)
    }

    fn released(id: i64) -> Transition {
        Transition::Ready {
            due_at: Timestamp::from_millis(id * 1_000),
            failure: None,
            counted: false,
            in_doubt: false,
        }
    }

    #[test]
    fn file_with_another_size_than_its_header_says_is_damaged() {
        for slots in [0, FIRST_SLOTS - 1, FIRST_SLOTS + 1, u32::MAX] {
            let (folder, marks) = marks();
            let header = MarksHeader {
                version: VERSION,
                slots,
                worker_id: WORKER,
                process: ProcessIdentity::current(),
            };
            assert!(start(&marks, [1]) && read(&folder).is_ok());
            damage(&folder, 0, &encode(&header).expect("it fits"));
            assert!(read(&folder).is_err(), "{slots}");
        }
    }

    /// Writes bytes into the file as a damage would.
    fn damage(folder: &tempfile::TempDir, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(path_of(folder));
        let written = file.and_then(|file| file.write_all_at(bytes, at));
        written.expect("written");
    }

    /// A file that can be neither written nor truncated.
    fn make_read_only(marks: &Marks) {
        let mut own = marks.lock();
        let own = own.as_mut().expect("a file");
        own.file = File::open(&own.path).expect("a file");
    }

    #[test]
    fn message_is_settled_as_its_worker_marked_it() {
        let (folder, marks) = marks();
        assert!(start(&marks, 1..=4));
        marks.answer(sent(2, "SM2"));
        let failure = Failure::new(Class::Recipient, "+447400123456 is not a phone");
        let rejected = Settlement {
            transition: Transition::Failed(failure),
            ..sent(3, "")
        };
        marks.answer(rejected);
        marks.withdraw(4, 1);
        let text = fs::read(path_of(&folder)).expect("a file");
        assert!(!String::from_utf8_lossy(&text).contains("447400123456"));

        let read = read(&folder).expect("marks");
        assert_eq!(transition(&read, 1), None, "it was started");
        assert_eq!(transition(&read, 2), Some(sent(2, "SM2").transition));
        let failure = Failure::new(Class::Recipient, "+… is not a phone");
        assert_eq!(transition(&read, 3), Some(Transition::Failed(failure)));
        assert_eq!(
            transition(&read, 4),
            Some(released(4)),
            "it was not started"
        );
        assert_eq!(transition(&read, 5), Some(released(5)), "it has no mark");
        let newer = result_of(&row(1, 2), Some(&read)).expect("another claim");
        assert_eq!(newer.transition, released(1));
        for id in 1..=5 {
            assert_eq!(result_of(&row(id, 1), None), None, "without marks");
        }
    }

    #[test]
    fn mark_of_withdrawn_message_can_start_again() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        marks.withdraw(1, 1);
        assert!(start(&marks, [1]));
        assert_eq!(transition(&read(&folder).expect("marks"), 1), None);
    }

    #[test]
    fn slot_is_reused_only_after_its_claim_is_settled() {
        let (folder, marks) = marks();
        assert!(start(&marks, 1..=1_000));
        let size = fs::metadata(path_of(&folder)).expect("a file").len();
        for id in 1_001..=5_000 {
            marks.forget(id - 1_000, 1);
            assert!(start(&marks, [id]));
        }
        let grown = fs::metadata(path_of(&folder)).expect("a file").len();
        assert_eq!(grown, size, "it grows with the messages in memory only");
        let read = read(&folder).expect("marks");
        for id in 4_001..=5_000 {
            assert_eq!(transition(&read, id), None, "{id}");
        }
    }

    #[test]
    fn result_that_does_not_fit_leaves_its_message_started() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1, 2]));
        marks.answer(sent(1, &"x".repeat(600)));
        marks.answer(sent(2, &"x".repeat(360)));
        let read = read(&folder).expect("marks");
        assert_eq!(transition(&read, 1), None);
        assert_eq!(
            transition(&read, 2),
            Some(sent(2, &"x".repeat(360)).transition)
        );
    }

    #[test]
    fn file_is_readable_by_its_owner_only_and_removed_at_the_end() {
        let (folder, marks) = marks();
        let path = path_of(&folder);
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode();
        assert_eq!(mode(&path) & 0o777, 0o600);
        assert_eq!(mode(path.parent().expect("a folder")) & 0o777, 0o700);
        marks.end();
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn torn_slot_makes_all_marks_unusable() {
        for (at, bytes) in [
            (512, &b"\x01"[..]),
            (2 * 512 + 20, b"?"),
            (512 + 4, b"\xff\xff"),
        ] {
            let (folder, marks) = marks();
            assert!(start(&marks, [1, 2]));
            assert!(read(&folder).is_ok());
            damage(&folder, at, bytes);
            assert!(read(&folder).is_err(), "{at}");
        }
    }

    #[test]
    fn claim_in_two_slots_makes_all_marks_unusable() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        let slot = fs::read(path_of(&folder)).expect("a file")[512..1_024].to_vec();
        damage(&folder, 1_024, &slot);
        assert!(read(&folder).is_err());
    }

    #[test]
    fn file_of_another_size_is_unusable() {
        for size in [0, 100, 512, 1_024, 127 * 512, 128 * 512 - 1, 129 * 512] {
            let (folder, marks) = marks();
            assert!(start(&marks, [1]));
            assert!(read(&folder).is_ok());
            let file = OpenOptions::new().write(true).open(path_of(&folder));
            let cut = file.and_then(|file| file.set_len(size));
            cut.expect("another size");
            assert!(read(&folder).is_err(), "{size}");
        }
    }

    #[test]
    fn marks_of_another_process_boot_or_version_are_unusable() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        let own = ProcessIdentity::current();
        let others = [
            ProcessIdentity {
                boot_id: "another".to_owned(),
                ..own.clone()
            },
            ProcessIdentity {
                pid_namespace: "another".to_owned(),
                ..own.clone()
            },
            ProcessIdentity {
                pid: own.pid + 1,
                ..own.clone()
            },
            ProcessIdentity {
                started: own.started + 1,
                ..own.clone()
            },
        ];
        for other in &others {
            let read = EndedMarks::read_file(&path_of(&folder), WORKER, other);
            assert!(read.is_err(), "{other:?}");
        }
        assert!(EndedMarks::read_file(&path_of(&folder), WORKER + 1, &own).is_err());
        assert!(read(&folder).is_ok());
        let header = MarksHeader {
            version: VERSION + 1,
            slots: FIRST_SLOTS,
            worker_id: WORKER,
            process: own,
        };
        damage(&folder, 0, &encode(&header).expect("it fits"));
        assert!(read(&folder).is_err());
        damage(&folder, 0, &[0; 512]);
        assert!(read(&folder).is_err(), "without a header");
    }

    #[test]
    fn requests_start_unmarked_once_a_full_disk_removed_the_file() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        let path = path_of(&folder);
        let full = OpenOptions::new().write(true).open("/dev/full");
        marks.lock().as_mut().expect("a file").file = full.expect("a full disk");
        assert!(start(&marks, [2]));
        assert!(!path.exists(), "a file that is not complete");
        assert!(start(&marks, [3]));
        marks.check().expect("requests may start");
    }

    #[test]
    fn request_must_not_start_if_its_file_can_not_be_removed() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        make_read_only(&marks);
        let path = path_of(&folder);
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("what no file operation removes");
        assert!(!start(&marks, [2]));
        assert!(!start(&marks, [3]));
        let error = marks.check().expect_err("the run must end");
        assert!(error.to_string().contains("cannot remove"), "{error}");
    }

    #[test]
    fn missing_mark_of_the_answer_leaves_the_message_started() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        make_read_only(&marks);
        marks.answer(sent(1, "SM1"));
        marks.withdraw(1, 1);
        assert_eq!(transition(&read(&folder).expect("marks"), 1), None);
    }

    #[test]
    fn worker_without_a_folder_starts_requests_unmarked() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("smsq.db-unsettled"), "").expect("a file");
        let marks = marks_in(folder.path());
        marks.begin(WORKER);
        assert!(start(&marks, [1]));
        marks.answer(sent(1, "SM1"));
        marks.forget(1, 1);
        marks.check().expect("requests may start");
        marks.end();
    }

    #[test]
    fn removed_folder_leaves_no_marks_and_stops_no_request() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        fs::remove_dir_all(folder.path().join("smsq.db-unsettled")).expect("removed");
        assert!(start(&marks, 2..=300));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        marks.end();
    }

    #[test]
    fn new_worker_id_begins_a_new_file() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        let old = path_of(&folder);
        marks.begin(WORKER + 1);
        // Claimed under the old id: its end is not marked, and it would not start now.
        marks.answer(sent(1, "SM1"));
        assert!(start(&marks, [2]));
        assert!(marks.start(WORKER + 1, std::iter::once((3, 1))));
        let earlier = EndedMarks::read_file(&old, WORKER, &ProcessIdentity::current());
        let earlier = earlier.expect("marks");
        assert_eq!(transition(&earlier, 1), None);
        marks.end();
        assert_eq!(path_of(&folder), old, "the other file is removed");
    }
}
