//! Campaigns that are being made in a browser. A draft is an uploaded list with the fields that were filled in so far,
//! in a folder like that of an upload; it starts by becoming an upload. What was found by reading its list is kept in
//! memory.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use smsq_import::{SeenKeys, TextSource};
use smsq_message::phone::Phone;
use smsq_operations::{Actor, ListEstimate, ListOptions, OperationError, WindowRequest};
use smsq_process::jobs::{JobRules, Jobs, Over, Until};
use smsq_store::Store;

use super::draft::{Draft, described, json_lines};
use super::draft_check::DraftCheck;
use super::draft_list::DraftList;
use super::folder::{FOLDER, PARTIAL, PartialUpload, REQUEST, SAMPLE, TEST, is_id, names};
use super::readings::{ListReadings, ReadingState};
use super::upload_request::UploadRequest;
use super::uploads::Uploads;

/// How many drafts a token has at most.
pub(crate) const MAX_DRAFTS: usize = 50;
/// A draft is deleted if it was not changed for this long.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often drafts are looked at for that, and readings that no page asks for are ended.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// What the name of a campaign of test messages ends with.
const TEST_NAME: &str = " (test)";
/// The column of a test list that makes each test a new message.
const TEST_COLUMN: &str = "test message";
/// The longest name of a campaign, in characters.
const MAX_NAME: usize = 100;

/// The drafts of this host.
pub(crate) struct Drafts {
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
    pub(crate) fn new(uploads: Arc<Uploads>, store: Store, lists: ListOptions, jobs: Jobs) -> Self {
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

    pub(crate) fn lists(&self) -> &ListOptions {
        &self.lists
    }

    /// Keeps an uploaded list as a draft; returns its id. Blocks until the disk has it.
    pub(crate) fn create(
        &self,
        upload: PartialUpload,
        request: &UploadRequest,
    ) -> io::Result<String> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.folder)?;
        upload.accept(&self.folder, request)
    }

    /// The drafts of a token, the newest first.
    pub(crate) fn of(&self, who: &str) -> Vec<Draft> {
        let ids = names(&self.folder).filter(|name| is_id(name));
        let mut drafts: Vec<Draft> = ids.filter_map(|id| self.find(&id, who)).collect();
        drafts.sort_by(|left, right| right.id.cmp(&left.id));
        drafts
    }

    /// A draft of a token.
    pub(crate) fn find(&self, id: &str, who: &str) -> Option<Draft> {
        let draft = is_id(id).then(|| Draft::read(self.folder.join(id)))??;
        (draft.request.posted_by == who).then_some(draft)
    }

    /// Imports the list. A second start finds that it has become an upload.
    pub(crate) fn start(&self, draft: &Draft) -> io::Result<()> {
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
    pub(crate) fn delete(&self, draft: &Draft) -> io::Result<()> {
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
    pub(crate) fn forget_check(&self, draft: &Draft) {
        self.checks.forget(&draft.id);
    }

    /// Deletes drafts that were not changed for a week.
    pub(crate) async fn prune(self: Arc<Self>) {
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

    pub(crate) async fn list(&self, draft: &Draft) -> ReadingState<DraftList> {
        self.inspections.get(draft, &self.lists, &self.store).await
    }

    pub(crate) async fn check(&self, draft: &Draft) -> ReadingState<DraftCheck> {
        self.checks.get(draft, &self.lists, &self.store).await
    }

    /// What the messages of the first rows would be like. The error is a sentence about the text.
    pub(crate) async fn try_text(self: &Arc<Self>, draft: &Draft) -> Result<ListEstimate, String> {
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
    pub(crate) fn test_campaign(&self, draft: &Draft) -> Option<String> {
        let options = draft.options(&self.lists).ok()?;
        let stem = Path::new(&draft.file).file_stem().unwrap_or_default();
        let name = options.campaign.unwrap_or_else(|| stem.to_string_lossy().into_owned());
        let name = name.chars().take(MAX_NAME - TEST_NAME.len());
        Some(name.collect::<String>() + TEST_NAME)
    }

    /// Queues the first message that can be sent for `phone` instead of its recipient, in a campaign of its own; returns
    /// the name of that campaign. The error is a sentence.
    pub(crate) async fn send_test(
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

/// A text of the list, unless it is that of a column.
pub(crate) fn has_text(options: &ListOptions) -> bool {
    options.list.text != TextSource::Column
}
