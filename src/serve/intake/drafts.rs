//! Campaigns that are being made in a browser. A draft is an uploaded list with the fields that were filled in so far,
//! in a folder like that of an upload; it starts by becoming an upload. What was found by reading its list is kept in
//! memory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::draft_check::DraftCheck;
use super::draft_list::DraftList;
use super::message::digest;
use super::readings::{ListReadings, ReadingState};
use super::upload_request::{FieldError, UploadRequest};
use super::uploads::{FILE, PARTIAL, PartialUpload, REJECTS, REQUEST, Uploads, is_id, names};
use crate::atomic_file::AtomicFile;
use crate::import::{SeenKeys, TextSource};
use crate::jobs::{JobRules, Jobs, Over, Until};
use crate::operations::{Actor, ListEstimate, ListOptions, OperationError, WindowRequest};
use crate::phone::Phone;
use crate::store::Store;

/// How many drafts a token has at most.
pub(in crate::serve) const MAX_DRAFTS: usize = 50;
/// A draft is deleted if it was not changed for this long.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often drafts are looked at for that, and readings that no page asks for are ended.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// The folder of the drafts, in that of the uploads.
const FOLDER: &str = "drafts";
/// The first rows of the list as JSON lines, by which a text is tried.
const SAMPLE: &str = "sample.jsonl";
/// The fields of a draft that decide how its list is read.
const READ: &str = "column region international national delimiter encoding sheet";
/// The fields that decide what the messages are, in addition to those that decide how the list is read.
const TEXT: &str = "text smart provider from";
/// The list of one message to the person who makes the campaign.
const TEST: &str = "test.jsonl";
/// Why the import of a started draft failed.
const PROBLEM: &str = "problem.txt";
/// What the name of a campaign of test messages ends with.
const TEST_NAME: &str = " (test)";
/// The column of a test list that makes each test a new message.
const TEST_COLUMN: &str = "test message";
/// The longest name of a campaign, in characters.
const MAX_NAME: usize = 100;

/// A campaign that is being made.
#[derive(Clone)]
pub(in crate::serve) struct Draft {
    pub(in crate::serve) id: String,
    folder: PathBuf,
    /// The name of the list.
    pub(in crate::serve) file: String,
    pub(in crate::serve) request: UploadRequest,
    pub(in crate::serve) changed: SystemTime,
}

impl Draft {
    fn read(folder: PathBuf) -> Option<Self> {
        let request = File::open(folder.join(REQUEST)).ok()?;
        let changed = request.metadata().and_then(|found| found.modified()).ok()?;
        Some(Self {
            id: folder.file_name()?.to_str()?.to_owned(),
            file: names(&folder.join(FILE)).next()?,
            request: UploadRequest::read(&request).ok()?,
            changed,
            folder,
        })
    }

    pub(super) fn list(&self) -> PathBuf {
        self.folder.join(FILE).join(&self.file)
    }

    pub(super) fn rejects(&self) -> PathBuf {
        self.folder.join(REJECTS)
    }

    /// The file with the rejected rows that the check found.
    pub(in crate::serve) fn rejects_file(&self) -> Option<PathBuf> {
        Some(self.rejects()).filter(|path| path.exists())
    }

    /// Why the import failed after the draft was started.
    pub(in crate::serve) fn problem(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(PROBLEM)).ok()
    }

    /// The options of its import.
    pub(in crate::serve) fn options(&self, lists: &ListOptions) -> Result<ListOptions, FieldError> {
        self.request.options(lists, &self.list(), Some(&self.rejects()))
    }

    /// The draft with only these fields, by their names.
    fn with_fields(&self, names: &str) -> Self {
        let mut draft = self.clone();
        let fields = &mut draft.request.fields;
        fields.retain(|field| names.split(' ').any(|name| name == field.name));
        draft
    }

    /// The options that decide how the list is read.
    pub(in crate::serve) fn read_options(
        &self,
        lists: &ListOptions,
    ) -> Result<ListOptions, FieldError> {
        self.with_fields(READ).options(lists)
    }

    /// The options that decide what the messages are.
    pub(in crate::serve) fn text_options(
        &self,
        lists: &ListOptions,
    ) -> Result<ListOptions, FieldError> {
        self.with_fields(&format!("{READ} {TEXT}")).options(lists)
    }

    /// These options for a list with its first rows.
    fn for_sample(mut options: ListOptions) -> ListOptions {
        let list = &mut options.list;
        (list.delimiter, list.encoding, list.sheet) = (None, None, None);
        (options.at, options.expires, options.max_rejects) = (None, None, None);
        options
    }

    /// Identifies how its list is read.
    pub(super) fn reading(&self) -> String {
        let reading = self.with_fields(READ);
        digest(serde_json::to_vec(&reading.request.fields).unwrap_or_default())
    }

    /// Stores its fields.
    pub(in crate::serve) fn save(&self) -> io::Result<()> {
        // A started draft has another folder, and is not changed any more.
        self.write(REQUEST, &serde_json::to_vec(&self.request)?)?;
        match fs::remove_file(self.folder.join(PROBLEM)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = AtomicFile::create(&self.folder.join(name))?;
        file.write_all(content)?;
        file.replace()
    }

    /// Stores the first rows of the list.
    pub(super) fn write_sample(&self, columns: &[String], rows: &[Vec<String>]) -> io::Result<()> {
        self.write(SAMPLE, &json_lines(columns, rows, &[]))
    }
}

/// The rows as JSON lines, with values that replace or follow theirs.
fn json_lines(columns: &[String], rows: &[Vec<String>], more: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for row in rows {
        let cells = columns.iter().zip(row);
        let named = cells.filter(|(name, _)| !name.is_empty());
        let mut object: Map<String, Value> =
            named.map(|(name, cell)| (name.clone(), Value::from(cell.as_str()))).collect();
        for (name, value) in more {
            object.insert((*name).to_owned(), Value::from(*value));
        }
        lines.extend_from_slice(Value::from(object).to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}

/// The drafts of this host.
pub(in crate::serve) struct Drafts {
    folder: PathBuf,
    uploads: Arc<Uploads>,
    store: Store,
    lists: Arc<ListOptions>,
    jobs: Jobs,
    /// Reading what a list begins with has other turns than checking all of it, and does not wait for that.
    inspections: ListReadings<DraftList>,
    checks: ListReadings<DraftCheck>,
}

impl Drafts {
    pub(in crate::serve) fn new(
        uploads: Arc<Uploads>,
        store: Store,
        lists: ListOptions,
        jobs: Jobs,
    ) -> Self {
        Self {
            folder: uploads.folder().join(FOLDER),
            uploads,
            store,
            lists: Arc::new(lists),
            inspections: ListReadings::new(jobs.clone()),
            checks: ListReadings::new(jobs.clone()),
            jobs,
        }
    }

    pub(in crate::serve) fn lists(&self) -> &ListOptions {
        &self.lists
    }

    /// Keeps an uploaded list as a draft; returns its id. Blocks until the disk has it.
    pub(in crate::serve) fn create(
        &self,
        upload: PartialUpload,
        request: &UploadRequest,
    ) -> io::Result<String> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.folder)?;
        upload.accept(&self.folder, request)
    }

    /// The drafts of a token, the newest first.
    pub(in crate::serve) fn of(&self, who: &str) -> Vec<Draft> {
        let ids = names(&self.folder).filter(|name| is_id(name));
        let mut drafts: Vec<Draft> = ids.filter_map(|id| self.find(&id, who)).collect();
        drafts.sort_by(|left, right| right.id.cmp(&left.id));
        drafts
    }

    /// A draft of a token.
    pub(in crate::serve) fn find(&self, id: &str, who: &str) -> Option<Draft> {
        let draft = is_id(id).then(|| Draft::read(self.folder.join(id)))??;
        (draft.request.posted_by == who).then_some(draft)
    }

    /// Imports the list. A second start finds that it has become an upload.
    pub(in crate::serve) fn start(&self, draft: &Draft) -> io::Result<()> {
        draft.save()?;
        self.forget(&draft.id);
        if let Err(error) = fs::remove_file(draft.rejects())
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        fs::rename(&draft.folder, self.uploads.folder().join(&draft.id))?;
        File::open(self.uploads.folder())?.sync_all()?;
        self.uploads.begin(&draft.id);
        Ok(())
    }

    /// Deletes a draft; its list is not read any more.
    pub(in crate::serve) fn delete(&self, draft: &Draft) -> io::Result<()> {
        self.forget(&draft.id);
        // A reading that has not ended yet finds nothing below the old name.
        let gone = self.uploads.folder().join(format!("{PARTIAL}{}", draft.id));
        fs::rename(&draft.folder, &gone)?;
        // Otherwise it is deleted in a day.
        let _ = fs::remove_dir_all(gone);
        Ok(())
    }

    fn forget(&self, id: &str) {
        self.inspections.forget(id);
        self.checks.forget(id);
    }

    /// Forgets what was found by checking the list.
    pub(in crate::serve) fn forget_check(&self, draft: &Draft) {
        self.checks.forget(&draft.id);
    }

    /// Deletes drafts that were not changed for a week.
    pub(in crate::serve) async fn prune(self: Arc<Self>) {
        loop {
            for id in names(&self.folder).filter(|name| is_id(name)) {
                let folder = self.folder.join(id);
                let changed = fs::metadata(folder.join(REQUEST)).and_then(|file| file.modified());
                if changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > KEEP)) {
                    // It is tried again in a minute.
                    let _ = fs::remove_dir_all(folder);
                }
            }
            self.inspections.forget_unasked();
            self.checks.forget_unasked();
            tokio::time::sleep(PRUNE_EVERY).await;
        }
    }

    pub(in crate::serve) async fn list(&self, draft: &Draft) -> ReadingState<DraftList> {
        self.inspections.get(draft, &self.lists, &self.store).await
    }

    pub(in crate::serve) async fn check(&self, draft: &Draft) -> ReadingState<DraftCheck> {
        self.checks.get(draft, &self.lists, &self.store).await
    }

    /// What the messages of the first rows would be like. The error is a sentence about the text.
    pub(in crate::serve) async fn try_text(
        self: &Arc<Self>,
        draft: &Draft,
    ) -> Result<ListEstimate, String> {
        let (drafts, draft) = (Arc::clone(self), draft.clone());
        self.run(async move |_| drafts.estimate_sample(&draft).await).await
    }

    async fn estimate_sample(&self, draft: &Draft) -> Result<ListEstimate, String> {
        // Other fields that are wrong are shown where they are entered.
        let options = draft.text_options(&self.lists);
        let options = Draft::for_sample(options.map_err(|error| error.message)?);
        let plans = options
            .prepare(&[draft.folder.join(SAMPLE)], None)
            .await
            .map_err(|error| described(&error))?;
        let [plan] = plans.as_slice() else {
            return Err("the list has no rows".to_owned());
        };
        let mut seen = SeenKeys::default();
        let estimate = options.estimate(plan, &mut seen, None, false, |_| ());
        estimate.await.map_err(|error| described(&error))
    }

    /// The name of the campaign of its test messages; `None` if the fields cannot be used.
    pub(in crate::serve) fn test_campaign(&self, draft: &Draft) -> Option<String> {
        let options = draft.options(&self.lists).ok()?;
        let stem = Path::new(&draft.file).file_stem().unwrap_or_default();
        let name = options.campaign.unwrap_or_else(|| stem.to_string_lossy().into_owned());
        let name = name.chars().take(MAX_NAME - TEST_NAME.len());
        Some(name.collect::<String>() + TEST_NAME)
    }

    /// Queues the first message that can be sent for `phone` instead of its recipient, in a campaign of its own; returns
    /// the name of that campaign. The error is a sentence.
    pub(in crate::serve) async fn send_test(
        self: &Arc<Self>,
        draft: &Draft,
        list: DraftList,
        phone: Phone,
        who: &str,
    ) -> Result<String, String> {
        let (drafts, draft, who) = (Arc::clone(self), draft.clone(), who.to_owned());
        self.run(async move |until: Until| {
            let import = drafts.import_test(&draft, &list, &phone, &who);
            until.unless_over(import).await.unwrap_or_else(interrupted)
        })
        .await
    }

    /// Runs what a request waits for, on a thread of its own; it ends with the request.
    async fn run<T: Send + 'static, W>(
        &self,
        work: impl FnOnce(Until) -> W + Send + 'static,
    ) -> Result<T, String>
    where
        W: Future<Output = Result<T, String>>,
    {
        let job = self.jobs.start(JobRules::default(), work);
        job.await.unwrap_or_else(interrupted)
    }

    async fn import_test(
        &self,
        draft: &Draft,
        list: &DraftList,
        phone: &Phone,
        who: &str,
    ) -> Result<String, String> {
        let options = draft.options(&self.lists);
        let mut options = Draft::for_sample(options.map_err(|error| error.message)?);
        options.campaign = self.test_campaign(draft);
        options.list.unique = TEST_COLUMN.parse().ok();
        (options.budget, options.rate) = (None, None);
        (options.window, options.list.with_timezone) = (WindowRequest::default(), false);
        options.list.dialling.region = None;
        let once = hex::encode(rand::random::<u64>().to_be_bytes());
        let mut replaced: Vec<(&str, &str)> =
            list.phones.iter().map(|column| (column.as_str(), phone.as_str())).collect();
        replaced.push((TEST_COLUMN, &once));
        let lines = json_lines(&list.columns, &list.rows, &replaced);
        let file = draft.folder.join(TEST);
        draft
            .write(TEST, &lines)
            .map_err(|error| format!("cannot write the test list: {error}"))?;
        let files = [file];
        let imported = async {
            let plans = options.prepare(&files, Some(&self.store)).await?;
            let schedule = options.schedule(self.store.now().await?)?;
            let [plan] = plans.as_slice() else {
                return Ok(None);
            };
            let actor = Actor::of_token(who);
            let (store, ignore) = (&self.store, |_: &str| ());
            let imported = options.import(plan, schedule, store, &actor, ignore, |_, _| ());
            Ok::<_, OperationError>(Some(imported.await?.0))
        };
        let imported = imported.await.map_err(|error| described(&error))?;
        let Some(imported) = imported else {
            return Err("the list has no rows".to_owned());
        };
        let summary = &imported.summary;
        match summary.frequent_reasons().first() {
            _ if summary.accepted > 0 => Ok(imported.campaign),
            Some((kind, _)) => Err(format!("none of the first rows can be sent: {kind}")),
            None => Err("the number is on the suppression list".to_owned()),
        }
    }
}

fn interrupted<T>(over: Over) -> Result<T, String> {
    Err(format!("cannot read the list: {over}"))
}

/// An error with its hint, as a sentence.
pub(super) fn described(error: &OperationError) -> String {
    let hint = error.hint().map(|hint| format!("; {hint}"));
    format!("{error}{}", hint.unwrap_or_default())
}

/// Deletes the first rows of an upload that was a draft: they have phones.
pub(super) fn forget_sample(folder: &Path) {
    for name in [SAMPLE, TEST] {
        // They do not exist in other uploads, and are deleted with the result.
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Makes an upload a draft again, because its import failed. It has to be checked again.
pub(super) fn take_back(folder: &Path, reason: &str) -> io::Result<()> {
    fs::write(folder.join(PROBLEM), reason)?;
    let uploads = folder.parent().unwrap_or(folder);
    fs::rename(folder, uploads.join(FOLDER).join(folder.file_name().unwrap_or_default()))
}

/// A text of the list, unless it is that of a column.
pub(in crate::serve) fn has_text(options: &ListOptions) -> bool {
    options.list.text != TextSource::Column
}
