//! Which requests a worker has started and how they ended, in a file that outlives its process. After a kill, another
//! worker on this host releases what was never started and settles what was answered; only the rest is unknown.

#[cfg(feature = "fuzz")]
use std::collections::BTreeMap;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flate2::Crc;
use serde::{Deserialize, Serialize};
use smsq_lifecycle::{Settlement, Transition};
use smsq_message::sms::{Class, Failure};
use smsq_process::identity::ProcessIdentity;
use smsq_store::{CommitCount, SendingMessage, StartedClaim, Worker};

use super::journal::remove_phones;
use super::{LocalFile, LocalFiles};
use crate::{SendError, local_files};

/// The size in bytes of the header and of each slot. Pages are multiples of it.
const BLOCK: usize = 1_024;
/// A block begins with the checksum of what follows, and the length of its content.
const FRAME: usize = 6;
/// A block that was never used, or not any more.
const EMPTY: [u8; FRAME] = [0; FRAME];
/// With the header 4 MiB, of which only what is used takes space. A slot that is free keeps its content until all others
/// were used, so the last thousands of claims are in the file, also if the database loses their results.
const FIRST_SLOTS: u32 = 4_095;
const VERSION: u32 = 2;
pub(super) const ENDING: &str = "marks";
/// Files of others are removed after this time without a change, if their messages are settled, or if it is not known
/// whether their process has ended.
const ABANDONED: Duration = Duration::from_secs(3_600);

/// The first block. The process is that of the worker's row.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MarksHeader {
    version: u32,
    /// The number of slots: a file of another size was damaged.
    slots: u32,
    worker_id: i64,
    /// That of the worker's registration.
    token: String,
    /// How many commits of the worker are stored. What they stored is missing in a database that has fewer.
    commits: i64,
    /// The worker has ended and starts nothing more.
    has_ended: bool,
    process: ProcessIdentity,
}

/// What a slot says of a claim that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(super) claim: StartedClaim,
    /// `None` if there was no response.
    result: Option<Transition>,
}

impl Mark {
    fn key(&self) -> (i64, i64) {
        (self.claim.id, self.claim.claim)
    }

    fn settlement(&self) -> Option<Settlement> {
        self.result.clone().map(|result| self.settled(result))
    }

    /// The result of a claim that the database had lost, and that was made again.
    pub(super) fn settlement_or_unknown(&self) -> Settlement {
        let why = "the database lost its claim, and its worker ended before the provider responded";
        self.settlement().unwrap_or_else(|| self.unknown(why))
    }

    pub(super) fn unknown(&self, why: &str) -> Settlement {
        self.settled(Transition::Unknown(Failure::new(Class::Unknown, why)))
    }

    fn settled(&self, transition: Transition) -> Settlement {
        Settlement {
            id: self.claim.id,
            claim: self.claim.claim,
            provider: self.claim.provider.clone(),
            transition,
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.result, Some(Transition::Sent(_)))
    }
}

/// The marks of this worker.
///
/// A slot is written before the first byte of a request and after its response, without waiting for the disk: the
/// system keeps what was written when the process is killed, and after a crash of the host the file does not count.
/// A slot belongs to one claim until the result of the claim is stored, so a claim without a slot was never started.
/// Where that cannot be guaranteed, the file is removed first, and nothing else is known of the worker's messages.
/// The header has the number of the last commit: a database with fewer has been put back, and a claim without a slot
/// may have been started and settled since.
pub(crate) struct Marks {
    files: LocalFiles,
    own: Mutex<Option<OwnFile>>,
    /// Files of others whose messages this worker has settled. They stay until it ends: the database may lose that, too.
    settled: Mutex<HashSet<PathBuf>>,
}

struct OwnFile {
    path: PathBuf,
    file: File,
    header: MarksHeader,
    /// The slots of messages and claims. The header is before the first one.
    used: HashMap<(i64, i64), u32>,
    free: VecDeque<u32>,
    /// Why the file can be neither written nor removed.
    stuck: Option<String>,
}

impl Marks {
    pub(crate) fn new(files: LocalFiles) -> Self {
        Self { files, own: Mutex::new(None), settled: Mutex::default() }
    }

    /// Begins the file of a worker that was just registered. Without one all its messages are unknown if it is killed.
    pub(crate) fn begin(&self, count: &CommitCount) {
        let process = ProcessIdentity::current();
        let (id, token) = (count.worker_id, &count.token);
        let created = self
            .files
            .write_first(id, token, ENDING, |path| OwnFile::create(path, count, process.clone()));
        if let Err(error) = &created {
            warn_unmarked(error);
        }
        *self.lock() = created.ok();
    }

    /// Marks messages whose request is about to start, claimed under this worker id. False: it must not start.
    pub(crate) fn start(&self, worker_id: i64, claims: impl Iterator<Item = StartedClaim>) -> bool {
        let mut own = self.lock();
        // Under an earlier id nothing may start, and no one will read its marks.
        let Some(file) = own.as_mut().filter(|file| file.header.worker_id == worker_id) else {
            return true;
        };
        let mut claims = claims;
        match claims.try_for_each(|claim| file.start(claim)) {
            Ok(()) => true,
            Err(error) => discard(&mut own, &error),
        }
    }

    /// Writes down that a commit of this worker is stored, before anything that depends on it is done.
    pub(crate) fn confirm(&self, count: &CommitCount) {
        self.rewrite_header(|header| {
            let is_own = header.token == count.token;
            if is_own {
                header.commits = count.confirmed;
            }
            is_own
        });
    }

    /// Writes down that nothing more is started, so that the file can be used whatever is known of this process.
    pub(crate) fn close(&self) {
        self.rewrite_header(|header| {
            header.has_ended = true;
            true
        });
    }

    fn rewrite_header(&self, change: impl FnOnce(&mut MarksHeader) -> bool) {
        let mut own = self.lock();
        let Some(file) = own.as_mut() else { return };
        if change(&mut file.header)
            && let Err(error) = file.write_header()
        {
            discard(&mut own, &error);
        }
    }

    /// Marks how the request of a message ended. A result that does not fit, or cannot be written, stays unknown.
    pub(crate) fn answer(&self, claim: StartedClaim, mut result: Transition) {
        remove_phones(&mut result);
        let mark = Mark { claim, result: Some(result) };
        self.rewrite(mark.claim.id, mark.claim.claim, || encode(&mark));
    }

    /// Marks that the request of a message was not started after all. Its claim may start later.
    pub(crate) fn withdraw(&self, id: i64, claim: i64) {
        self.rewrite(id, claim, || Some(EMPTY.to_vec()));
    }

    fn rewrite(&self, id: i64, claim: i64, block: impl FnOnce() -> Option<Vec<u8>>) {
        let own = self.lock();
        if let Some(file) = own.as_ref()
            && let Some(slot) = file.used.get(&(id, claim))
            && let Some(block) = block()
        {
            // If this fails it still says that the request has started.
            file.write(*slot, &block).unwrap_or_default();
        }
    }

    /// The result of a claim is stored, or in the journal: its slot is free.
    pub(crate) fn forget(&self, id: i64, claim: i64) {
        if let Some(file) = self.lock().as_mut() {
            file.free.extend(file.used.remove(&(id, claim)));
        }
    }

    /// Removes the file of this worker, which has settled all its messages, and those that it has settled.
    pub(crate) fn end(&self) {
        remove_all(self.lock().take().map(|file| file.path));
        remove_all(self.settled().drain());
    }

    /// Keeps a file whose messages are settled, until this worker ends.
    pub(crate) fn keep_settled(&self, path: PathBuf) {
        self.settled().insert(path);
    }

    /// Removes the settled files that have not changed for long.
    pub(crate) fn remove_abandoned(&self) {
        remove_all(self.settled().extract_if(|path| is_abandoned(path)));
    }

    /// Whether the messages of a file are settled.
    pub(crate) fn is_settled(&self, path: &Path) -> bool {
        self.settled().contains(path)
    }

    fn settled(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if requests can be neither marked nor started.
    pub(crate) fn check(&self) -> Result<(), SendError> {
        match self.lock().as_ref().and_then(|file| file.stuck.clone()) {
            Some(reason) => Err(SendError::Marks(reason)),
            None => Ok(()),
        }
    }

    /// The files of all workers of this database on this host.
    pub(crate) async fn list(&self) -> Vec<LocalFile> {
        let files = self.files.clone();
        let list = move || {
            let mut listed = files.list(ENDING);
            listed.retain(|file| file.is_own);
            listed
        };
        // A panic has been logged, and the files stay where they are.
        let listed = tokio::task::spawn_blocking(list).await;
        listed.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnFile>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a file that cannot be written; false if that fails, too.
fn discard(own: &mut Option<OwnFile>, error: &io::Error) -> bool {
    if let Some(file) = own
        && let Err(kept) = file.discard()
    {
        file.stuck = Some(format!("{}: {error}; {kept}", file.path.display()));
        return false;
    }
    warn_unmarked(error);
    *own = None;
    true
}

fn warn_unmarked(error: &io::Error) {
    tracing::warn!(
        %error,
        "cannot write down which requests have started: if this worker is killed, all messages that it has claimed become \
         unknown"
    );
}

/// Whether a file has not changed for [`ABANDONED`].
pub(crate) fn is_abandoned(path: &Path) -> bool {
    let changed_at = std::fs::metadata(path).and_then(|file| file.modified());
    let age = changed_at.ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age >= ABANDONED)
}

/// Removes files that no one needs.
pub(crate) fn remove_all(paths: impl IntoIterator<Item = PathBuf>) {
    for path in paths {
        if let Err(error) = local_files::remove(&path) {
            tracing::warn!(%error, path = %path.display(), "this file cannot be removed");
        }
    }
}

impl OwnFile {
    fn create(path: &Path, count: &CommitCount, process: ProcessIdentity) -> io::Result<Self> {
        let mut own = Self {
            path: path.to_owned(),
            file: local_files::create(path)?,
            header: MarksHeader {
                version: VERSION,
                slots: 0,
                worker_id: count.worker_id,
                token: count.token.clone(),
                commits: count.confirmed,
                has_ended: false,
                process,
            },
            used: HashMap::new(),
            free: VecDeque::new(),
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
        self.write_header()?;
        self.free.extend(slots + 1..=self.header.slots);
        Ok(())
    }

    fn write_header(&self) -> io::Result<()> {
        let header = encode(&self.header).ok_or(io::ErrorKind::InvalidData)?;
        self.write(0, &header)
    }

    fn start(&mut self, claim: StartedClaim) -> io::Result<()> {
        let mark = Mark { claim, result: None };
        let block = encode(&mark).ok_or(io::ErrorKind::InvalidData)?;
        if let Some(slot) = self.used.get(&mark.key()) {
            return self.write(*slot, &block);
        }
        if self.free.is_empty() {
            self.grow()?;
        }
        let slot = self.free.pop_front().ok_or(io::ErrorKind::InvalidData)?;
        self.used.insert(mark.key(), slot);
        self.write(slot, &block)
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

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A file of marks as it was read.
pub(crate) struct MarksFile {
    header: MarksHeader,
    marks: Vec<Mark>,
    /// Why it may lack marks. Those that it has are true.
    damage: Option<&'static str>,
}

/// What a worker marked whose process has certainly ended: each claim that it started, with the result if there was a
/// response. All of its claims that are not settled are in it.
#[derive(Debug)]
pub(crate) struct EndedMarks(HashMap<(i64, i64), Option<Settlement>>);

impl MarksFile {
    /// Reads a file; fails if it is not known whose it is.
    pub(crate) async fn read(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || Self::read_now(&path)).await;
        read.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    pub(super) fn read_now(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        // Fails if the system could not write a part back: that part may be an older one now.
        let is_lost = file.sync_all().is_err();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut read = Self::parse(&bytes)?;
        if is_lost {
            read.damage = Some("the system could not write all of it");
        }
        Ok(read)
    }

    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut blocks = bytes.chunks(BLOCK);
        let header = blocks.next().map(content).transpose()?.flatten();
        let header = header.ok_or_else(|| invalid("the file has no header"))?;
        let header: MarksHeader = serde_json::from_slice(header)?;
        if header.version != VERSION {
            return Err(invalid("the file is one of another version"));
        }
        let mut read = Self {
            marks: Vec::new(),
            damage: (bytes.len() as u64 != offset(header.slots) + BLOCK as u64)
                .then_some("the file has another size than its header says"),
            header,
        };
        for block in blocks {
            match content(block).map(|content| content.map(serde_json::from_slice)) {
                Ok(None) => {}
                Ok(Some(Ok(mark))) => read.marks.push(mark),
                Ok(Some(Err(_))) | Err(_) => read.damage = Some("a block is damaged"),
            }
        }
        Ok(read)
    }

    /// Whether the database has fewer commits of the worker than were stored.
    pub(crate) fn is_ahead_of(&self, worker: &Worker) -> bool {
        self.header.commits > worker.commits
    }

    /// Whether its worker starts nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.header.has_ended || self.header.process.has_ended()
    }

    /// Whether its worker is a process of this host that runs.
    pub(super) fn is_running(&self) -> bool {
        !self.header.has_ended && self.header.process.is_running()
    }

    /// Its worker, as people know it.
    pub(crate) fn who(&self) -> String {
        let MarksHeader { worker_id, process, .. } = &self.header;
        format!("worker {worker_id} (pid {} on {})", process.pid, process.host)
    }

    /// The marks of a worker of which it is certain that it has ended.
    pub(crate) fn of_ended(
        self,
        worker: &Worker,
        process: &ProcessIdentity,
    ) -> Result<EndedMarks, &'static str> {
        let header = &self.header;
        if (header.worker_id, &header.token, &header.process) != (worker.id, &worker.token, process)
        {
            return Err("the file is that of another process");
        }
        if self.is_ahead_of(worker) {
            return Err("the database has lost commits of its worker");
        }
        if let Some(damage) = self.damage {
            return Err(damage);
        }
        let mut claims = HashMap::new();
        for mark in self.marks {
            if claims.insert(mark.key(), mark.settlement()).is_some() {
                return Err("a claim is in two slots");
            }
        }
        Ok(EndedMarks(claims))
    }

    /// The marks in groups that have each message once, earlier claims first.
    pub(crate) fn into_rounds(mut self) -> Vec<Vec<Mark>> {
        self.marks.sort_by_key(Mark::key);
        let mut rounds: Vec<Vec<Mark>> = Vec::new();
        let (mut last, mut round) = (None, 0);
        for mark in self.marks {
            round = if last == Some(mark.claim.id) { round + 1 } else { 0 };
            last = Some(mark.claim.id);
            if rounds.len() <= round {
                rounds.push(Vec::new());
            }
            rounds[round].push(mark);
        }
        rounds
    }
}

/// The result of a message that a dead worker was sending, by the worker's marks; `None`: it is not known. A message
/// whose request was never started goes back into the queue without an attempt.
pub(crate) fn result_of(row: &SendingMessage, marks: Option<&EndedMarks>) -> Option<Settlement> {
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
    let header = MarksHeader {
        version: VERSION,
        slots: u32::try_from(contents.len()).ok()?,
        worker_id: 8,
        token: "token".to_owned(),
        commits: 3,
        has_ended: false,
        process: ProcessIdentity::current(),
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
    let read = MarksFile::parse(&bytes).ok()?;
    let is_same = read.header == header && read.damage.is_none();
    let results = read.marks.iter().map(|mark| {
        let result = mark.settlement();
        let result = result.map(|result| serde_json::to_string(&result).expect("JSON"));
        (mark.key(), result)
    });
    let results: BTreeMap<(i64, i64), Option<String>> = results.collect();
    (is_same && results.len() == read.marks.len()).then_some(results)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::PermissionsExt;

    use smsq_message::sms::{Acceptance, Class, Failure, Timestamp};

    use super::*;
    use crate::local_files::DatabaseIdentity;

    const WORKER: i64 = 8;
    const SIZE: usize = BLOCK;

    /// The marks of worker 8 in a folder of its own.
    fn marks() -> (tempfile::TempDir, Marks) {
        let folder = tempfile::tempdir().expect("a folder");
        let marks = marks_in(folder.path());
        marks.begin(&count(WORKER, 0));
        (folder, marks)
    }

    fn marks_in(parent: &Path) -> Marks {
        let database = DatabaseIdentity { created_at: 1, place: "file 1".to_owned() };
        Marks::new(LocalFiles::new(&[parent.to_owned()], "smsq.db", &database))
    }

    fn count(worker_id: i64, confirmed: i64) -> CommitCount {
        CommitCount { confirmed, ..CommitCount::new(worker_id, format!("token{worker_id}")) }
    }

    /// The row of the worker.
    fn worker() -> Worker {
        let process = ProcessIdentity::current();
        Worker {
            id: WORKER,
            host: process.host,
            machine_id: process.machine_id,
            boot_id: process.boot_id,
            pid_namespace: process.pid_namespace,
            pid: process.pid,
            process_started: process.started,
            concurrency: 1,
            started_at: Timestamp::default(),
            heartbeat_at: Timestamp::default(),
            lease_ms: 1,
            token: count(WORKER, 0).token,
            commits: 3,
        }
    }

    fn claim(id: i64, number: i64) -> StartedClaim {
        StartedClaim {
            id,
            claim: number,
            provider: "cellar".to_owned(),
            reference: format!("0123456789abcdef{id}"),
            created_at: Timestamp::from_millis(7),
            claimed_at: Timestamp::from_millis(9),
        }
    }

    fn start(marks: &Marks, ids: impl IntoIterator<Item = i64>) -> bool {
        marks.start(WORKER, ids.into_iter().map(|id| claim(id, 1)))
    }

    fn sent(message_id: &str) -> Transition {
        Transition::Sent(Acceptance {
            message_id: Some(message_id.to_owned()),
            ..Acceptance::default()
        })
    }

    fn path_of(folder: &tempfile::TempDir) -> PathBuf {
        let mut entries = fs::read_dir(folder.path().join("smsq.db-unsettled")).expect("a folder");
        let entry = entries.next().expect("a file").expect("a file");
        assert!(entries.next().is_none(), "one file");
        entry.path()
    }

    /// What another process of this host reads when this one has ended.
    fn read(folder: &tempfile::TempDir) -> Result<EndedMarks, String> {
        read_as(&path_of(folder), &worker(), &ProcessIdentity::current())
    }

    fn read_as(
        path: &Path,
        worker: &Worker,
        process: &ProcessIdentity,
    ) -> Result<EndedMarks, String> {
        let file = MarksFile::read_now(path).map_err(|error| error.to_string())?;
        file.of_ended(worker, process).map_err(str::to_owned)
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
            let header = MarksHeader { slots, ..header() };
            assert!(start(&marks, [1]) && read(&folder).is_ok());
            damage(&folder, 0, &encode(&header).expect("it fits"));
            assert!(read(&folder).is_err(), "{slots}");
        }
    }

    fn header() -> MarksHeader {
        MarksHeader {
            version: VERSION,
            slots: FIRST_SLOTS,
            worker_id: WORKER,
            token: count(WORKER, 0).token,
            commits: 0,
            has_ended: false,
            process: ProcessIdentity::current(),
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
        marks.answer(claim(2, 1), sent("SM2"));
        let failure = Failure::new(Class::Recipient, "+447400123456 is not a phone");
        marks.answer(claim(3, 1), Transition::Failed(failure));
        marks.withdraw(4, 1);
        let text = fs::read(path_of(&folder)).expect("a file");
        assert!(!String::from_utf8_lossy(&text).contains("447400123456"));

        let read = read(&folder).expect("marks");
        assert_eq!(transition(&read, 1), None, "it was started");
        assert_eq!(transition(&read, 2), Some(sent("SM2")));
        let failure = Failure::new(Class::Recipient, "+… is not a phone");
        assert_eq!(transition(&read, 3), Some(Transition::Failed(failure)));
        assert_eq!(transition(&read, 4), Some(released(4)), "it was not started");
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
        for id in 1_001..=10_000 {
            marks.forget(id - 1_000, 1);
            assert!(start(&marks, [id]));
        }
        let grown = fs::metadata(path_of(&folder)).expect("a file").len();
        assert_eq!(grown, size, "it grows with the messages in memory only");
        let read = read(&folder).expect("marks");
        for id in 9_001..=10_000 {
            assert_eq!(transition(&read, id), None, "{id}");
        }
    }

    #[test]
    fn result_that_does_not_fit_leaves_its_message_started() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1, 2]));
        marks.answer(claim(1, 1), sent(&"x".repeat(1_000)));
        marks.answer(claim(2, 1), sent(&"x".repeat(600)));
        let read = read(&folder).expect("marks");
        assert_eq!(transition(&read, 1), None);
        assert_eq!(transition(&read, 2), Some(sent(&"x".repeat(600))));
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
            (BLOCK as u64, &b"\x01"[..]),
            (2 * BLOCK as u64 + 20, b"?"),
            (BLOCK as u64 + 4, b"\xff\xff"),
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
        let slot = fs::read(path_of(&folder)).expect("a file")[SIZE..2 * SIZE].to_vec();
        damage(&folder, 2 * BLOCK as u64, &slot);
        assert!(read(&folder).is_err());
    }

    #[test]
    fn file_of_another_size_is_unusable() {
        let whole = offset(FIRST_SLOTS + 1);
        let block = BLOCK as u64;
        for size in [0, 100, block, 2 * block, whole - block, whole - 1, whole + block] {
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
            ProcessIdentity { boot_id: "another".to_owned(), ..own.clone() },
            ProcessIdentity { pid_namespace: "another".to_owned(), ..own.clone() },
            ProcessIdentity { pid: own.pid + 1, ..own.clone() },
            ProcessIdentity { started: own.started + 1, ..own.clone() },
        ];
        for other in &others {
            let read = read_as(&path_of(&folder), &worker(), other);
            assert!(read.is_err(), "{other:?}");
        }
        let other_rows = [
            Worker { id: WORKER + 1, ..worker() },
            Worker { token: "another".to_owned(), ..worker() },
        ];
        for other in &other_rows {
            assert!(read_as(&path_of(&folder), other, &own).is_err());
        }
        assert!(read(&folder).is_ok());
        let header = MarksHeader { version: VERSION + 1, ..header() };
        damage(&folder, 0, &encode(&header).expect("it fits"));
        assert!(read(&folder).is_err());
        damage(&folder, 0, &[0; SIZE]);
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
        marks.answer(claim(1, 1), sent("SM1"));
        marks.withdraw(1, 1);
        assert_eq!(transition(&read(&folder).expect("marks"), 1), None);
    }

    #[test]
    fn worker_without_a_folder_starts_requests_unmarked() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("smsq.db-unsettled"), "").expect("a file");
        let marks = marks_in(folder.path());
        marks.begin(&count(WORKER, 0));
        assert!(start(&marks, [1]));
        marks.answer(claim(1, 1), sent("SM1"));
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
        marks.begin(&count(WORKER + 1, 0));
        // Claimed under the old id: its end is not marked, and it would not start now.
        marks.answer(claim(1, 1), sent("SM1"));
        assert!(start(&marks, [2]));
        assert!(marks.start(WORKER + 1, std::iter::once(claim(3, 1))));
        let earlier = read_as(&old, &worker(), &ProcessIdentity::current());
        let earlier = earlier.expect("marks");
        assert_eq!(transition(&earlier, 1), None);
        marks.end();
        assert_eq!(path_of(&folder), old, "the other file is removed");
    }

    #[test]
    fn database_with_fewer_commits_makes_all_marks_unusable() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1]));
        for (confirmed, is_usable) in [(2, true), (3, true), (4, false)] {
            marks.confirm(&count(WORKER, confirmed));
            assert_eq!(read(&folder).is_ok(), is_usable, "{confirmed}");
        }
        marks.confirm(&count(WORKER + 1, 0));
        assert!(read(&folder).is_err(), "the count of another registration");
    }

    #[test]
    fn settled_claims_stay_in_the_file_until_all_slots_were_used() {
        let (folder, marks) = marks();
        let last = i64::from(FIRST_SLOTS);
        for id in 1..=last + 10 {
            assert!(start(&marks, [id]));
            marks.answer(claim(id, 1), sent("SM"));
            marks.forget(id, 1);
        }
        let file = MarksFile::read_now(&path_of(&folder)).expect("marks");
        let rounds = file.into_rounds();
        let ids: Vec<i64> = rounds.concat().iter().map(|mark| mark.claim.id).collect();
        let expected: Vec<i64> = (11..=last + 10).collect();
        assert_eq!(ids, expected);
    }

    #[test]
    fn marks_are_read_in_rounds_with_each_message_once() {
        let (folder, marks) = marks();
        let claims = [claim(2, 2), claim(1, 1), claim(2, 1), claim(3, 4), claim(2, 5)];
        assert!(marks.start(WORKER, claims.into_iter()));
        let file = MarksFile::read_now(&path_of(&folder)).expect("marks");
        let rounds = file.into_rounds();
        let keys: Vec<Vec<(i64, i64)>> =
            rounds.iter().map(|round| round.iter().map(Mark::key).collect()).collect();
        assert_eq!(keys, [vec![(1, 1), (2, 1), (3, 4)], vec![(2, 2)], vec![(2, 5)]]);
    }

    #[test]
    fn damaged_file_keeps_the_marks_that_are_whole() {
        let (folder, marks) = marks();
        assert!(start(&marks, [1, 2]));
        damage(&folder, BLOCK as u64 + 20, b"?");
        assert!(read(&folder).is_err());
        let file = MarksFile::read_now(&path_of(&folder)).expect("marks");
        let ids: Vec<i64> = file.into_rounds().concat().iter().map(|mark| mark.claim.id).collect();
        assert_eq!(ids, [2]);
    }

    #[test]
    fn closed_file_says_that_its_worker_has_ended() {
        let (folder, marks) = marks();
        let read = || MarksFile::read_now(&path_of(&folder)).expect("marks");
        assert!(!read().has_ended() && read().is_running());
        marks.close();
        assert!(read().has_ended() && !read().is_running());
    }
}
