//! Files that are uploaded: kept in a folder until they are imported, one after the other, also after a restart. Their
//! rejected rows can be downloaded.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde_json::{Value, json};
use smsq_operations::{Actor, ListOptions, OperationError};
use smsq_process::jobs::{JobRules, Jobs, ListSize, ListTurns, Over};
use smsq_store::Store;

use super::folder::{
    FILE, PARTIAL, PartialUpload, REJECTS, REQUEST, forget_sample, is_id, names, take_back,
};
use super::import_status::{ImportState, ImportStatus, RESULT};
use super::upload_request::{FieldError, UploadRequest};
use crate::problem::Problem;

/// Results that are kept, and for how long.
const MAX_KEPT: usize = 100;
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
/// More files wait for their import only on the client's disk; how long it waits then, in seconds.
pub(crate) const MAX_UPLOADS: usize = 100;
const WAIT: u32 = 60;
/// Delay before an import retries the database.
const DATABASE_WAIT: Duration = Duration::from_secs(5);
/// What uploads leave free on a disk, in bytes, unless a twentieth of it is less.
const RESERVE: u64 = 1 << 30;
const PARTIAL_FOR: Duration = Duration::from_secs(24 * 3600);
/// The rejected rows of an upload, for the page of its campaign.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RejectedRows {
    pub(crate) import: String,
    pub(crate) file: String,
    pub(crate) count: u64,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowProgress {
    pub(crate) rows: u64,
    /// An estimate.
    pub(crate) all: Option<u64>,
}

/// The uploads of this host.
pub(crate) struct Uploads {
    folder: PathBuf,
    store: Store,
    /// What the fields of an upload change.
    lists: Arc<ListOptions>,
    /// The jobs that import files; the next server continues those that the stop of the process interrupts.
    jobs: Jobs,
    turns: ListTurns,
    /// Rows that running imports have read, and an estimate of all rows.
    progress: Arc<Mutex<HashMap<PathBuf, RowProgress>>>,
}

impl Uploads {
    /// Continues the imports of files that an earlier server took.
    pub(crate) fn start(folder: PathBuf, store: Store, lists: ListOptions, jobs: Jobs) -> Self {
        let uploads = Self {
            folder,
            store,
            lists: Arc::new(lists),
            jobs,
            turns: ListTurns::default(),
            progress: Arc::default(),
        };
        uploads.prune();
        for id in uploads.ids() {
            if !uploads.folder.join(&id).join(RESULT).exists() {
                uploads.begin(&id);
            }
        }
        uploads
    }

    /// A place for a file. `name` is what the client calls it; only its last part is used.
    pub(crate) fn create(&self, name: &str) -> io::Result<PartialUpload> {
        PartialUpload::create(&self.folder, name)
    }

    /// Checks the fields before the file is taken. An error is a sentence that says what to do.
    pub(crate) fn check(&self, request: &UploadRequest) -> Result<(), FieldError> {
        let file = Path::new("list.csv");
        request.options(&self.lists, file, None).map(drop)
    }

    /// Fails while many files wait for their import, or if the disk of the folder, which may be that of the database,
    /// is nearly full.
    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        let ids = self.ids();
        let is_waiting = |id: &&String| !self.folder.join(id).join(RESULT).exists();
        if ids.iter().filter(is_waiting).count() >= MAX_UPLOADS {
            let detail = format!(
                "{MAX_UPLOADS} uploaded files wait to be imported: upload more when there are fewer"
            );
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).after(WAIT));
        }
        let folder = self.folder.ancestors().find(|folder| folder.exists());
        let Some(Ok(disk)) = folder.map(rustix::fs::statvfs) else {
            return Ok(());
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let size = disk.f_blocks.saturating_mul(disk.f_frsize);
        if free < reserve(size) {
            tracing::warn!(folder = %self.folder.display(), free, "an upload is refused: the disk is nearly full");
            let detail = "the disk of the server is nearly full; nothing was stored";
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail));
        }
        Ok(())
    }

    /// Takes a file, and imports it in the background; returns the id of the upload.
    pub(crate) async fn accept(
        &self,
        upload: PartialUpload,
        request: UploadRequest,
    ) -> io::Result<String> {
        let folder = self.folder.clone();
        let accepting = tokio::task::spawn_blocking(move || upload.accept(&folder, &request));
        let id = accepting.await.map_err(io::Error::other)??;
        self.prune();
        self.begin(&id);
        Ok(id)
    }

    pub(super) fn begin(&self, id: &str) {
        let folder = self.folder.join(id);
        let (store, lists) = (self.store.clone(), Arc::clone(&self.lists));
        let (progress, place) = (Arc::clone(&self.progress), folder.clone());
        let list = names(&folder.join(FILE)).next().unwrap_or_default();
        let size = ListSize::of(&folder.join(FILE).join(list));
        let rules = JobRules { limit: None, turn: Some((self.turns.clone(), size)) };
        let job = self.jobs.start(rules, |until| async move {
            let set = |rows, all| {
                let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                progress.insert(place.clone(), RowProgress { rows, all });
            };
            let ended = until.unless_over(import(&place, &store, &lists, set)).await;
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.remove(&place);
            // The next server continues what was interrupted.
            ended.unwrap_or(Ok(()))
        });
        tokio::spawn(async move {
            let ended = match job.await {
                Ok(ended) => ended,
                // The next one would be the same.
                Err(Over::Panicked) => {
                    ImportStatus::failed("the import ended unexpectedly").write(&folder)
                }
                Err(Over::Interrupted | Over::TooLate) => Ok(()),
            };
            if let Err(error) = ended {
                tracing::warn!(%error, folder = %folder.display(), "an uploaded file was not imported");
            }
        });
    }

    /// The ids of all uploads, the oldest first.
    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = names(&self.folder).filter(|name| is_id(name)).collect();
        ids.sort_unstable();
        ids
    }

    /// Deletes old results, and what was not uploaded whole.
    fn prune(&self) {
        let is_older = |path: &Path, age: Duration| {
            let changed = fs::metadata(path).and_then(|found| found.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > age))
        };
        let ids = self.ids().into_iter().rev();
        let ended = ids.filter(|id| self.folder.join(id).join(RESULT).exists());
        let old = ended.enumerate().filter_map(|(newer, id)| {
            let is_old = is_older(&self.folder.join(&id).join(RESULT), KEEP);
            (newer >= MAX_KEPT || is_old).then_some(id)
        });
        let partial = names(&self.folder).filter(|name| {
            name.starts_with(PARTIAL) && is_older(&self.folder.join(name).join(FILE), PARTIAL_FOR)
        });
        for name in old.chain(partial) {
            // It is tried again with the next upload.
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
    }

    /// The folder of all uploads.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How far a running import is.
    pub(crate) fn progress(&self, id: &str) -> RowProgress {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let found = progress.get(&self.folder.join(id)).copied();
        found.unwrap_or_default()
    }

    /// The folder of an upload.
    fn find(&self, id: &str) -> Option<PathBuf> {
        let folder = self.folder.join(id);
        (is_id(id) && folder.is_dir()).then_some(folder)
    }

    /// The status of an upload; `None` if it is unknown, or not of the token `posted_by`.
    pub(crate) fn status(&self, id: &str, posted_by: Option<&str>) -> Option<ImportStatus> {
        let folder = self.find(id)?;
        if let Some(token) = posted_by {
            let request = File::open(folder.join(REQUEST)).ok()?;
            let request = UploadRequest::read(&request).ok()?;
            (request.posted_by == token).then_some(())?;
        }
        let mut status = ImportStatus::read(&folder).unwrap_or_default();
        id.clone_into(&mut status.import);
        if status.state != ImportState::Running {
            let rejects = folder.join(REJECTS).exists();
            let path = rejects.then(|| format!("/v1/imports/{id}/rejects.csv"));
            status.rejects_file = Some(json!(path));
        }
        Some(status)
    }

    /// The file with the rejected rows of an upload.
    pub(crate) fn rejects(&self, id: &str) -> Option<PathBuf> {
        let rejects = self.find(id)?.join(REJECTS);
        rejects.exists().then_some(rejects)
    }

    /// The uploads into a campaign that have rejected rows, the newest first.
    pub(crate) fn rejected_of(&self, campaign: &str) -> Vec<RejectedRows> {
        let rejected = |import: String| {
            self.rejects(&import)?;
            let ImportStatus { file, counts, .. } = ImportStatus::read(&self.folder.join(&import))?;
            (counts.get("campaign")?.as_str() == Some(campaign)).then(|| RejectedRows {
                file: file.unwrap_or_default(),
                count: counts.get("rejected").and_then(Value::as_u64).unwrap_or(0),
                import,
            })
        };
        self.ids().into_iter().rev().filter_map(rejected).collect()
    }
}

/// The bytes that uploads leave free on a disk of this size.
fn reserve(size: u64) -> u64 {
    (size / 20).min(RESERVE)
}

/// Imports a file that was taken, writes the result, and deletes the file.
async fn import(
    folder: &Path,
    store: &Store,
    lists: &ListOptions,
    progress: impl Fn(u64, Option<u64>),
) -> io::Result<()> {
    let request = File::open(folder.join(REQUEST))?;
    let lock = flock(&request, FlockOperation::NonBlockingLockExclusive);
    if lock.is_err() || folder.join(RESULT).exists() {
        // Another server with the same folder imports it.
        return Ok(());
    }
    let name = names(&folder.join(FILE)).next().ok_or(io::ErrorKind::NotFound)?;
    let path = folder.join(FILE).join(&name);
    let uploaded = UploadRequest::read(&request)?;
    let rejects = folder.join(REJECTS);
    let options = uploaded.options(lists, &path, Some(&rejects));
    let result = match options {
        Ok(options) => {
            let again = uploaded.is_on("again");
            import_list(&options, path, again, store, progress).await
        }
        Err(problem) => Err(problem.to_string()),
    };
    let status = match result {
        Err(reason) if uploaded.is_draft => return take_back(folder, &reason),
        Ok(printed) => ImportStatus::done(name, printed)?,
        Err(reason) => ImportStatus::failed(&reason),
    };
    status.write(folder)?;
    forget_sample(folder);
    fs::remove_dir_all(folder.join(FILE))
}

/// Imports a list as `smsq import` does, when the database is available; returns what `--format json` prints.
async fn import_list(
    options: &ListOptions,
    file: PathBuf,
    again: bool,
    store: &Store,
    progress: impl Fn(u64, Option<u64>),
) -> Result<Value, String> {
    let actor = Actor::of_token(options.posted_by.as_deref().unwrap_or_default());
    let tell = |message: &str| tracing::info!("{message}");
    let files = [file];
    loop {
        let imported = async {
            let plans = options.prepare(&files, Some(store)).await?;
            options.check_rejects(&plans, |_| ()).await?;
            if !again {
                options.check_again(&plans, store, |_| false).await?;
            }
            let schedule = options.schedule(store.now().await?)?;
            let [plan] = plans.as_slice() else {
                return Ok(json!({}));
            };
            for warning in plan.warnings() {
                tracing::warn!(file = plan.file(), "{warning}");
            }
            let imported = options.import(plan, schedule, store, &actor, tell, &progress);
            Ok(imported.await?.0.json())
        };
        match imported.await {
            Ok(imported) => return Ok(imported),
            Err(error @ OperationError::Store(_)) if error.is_temporary() => {
                tracing::warn!(%error, "an uploaded file waits for the database");
                tokio::time::sleep(DATABASE_WAIT).await;
            }
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}"));
                return Err(format!("{error}{}", hint.unwrap_or_default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_leave_a_twentieth_of_a_small_disk_free() {
        assert_eq!(reserve(20 << 20), 1 << 20);
        assert_eq!(reserve(1 << 40), 1 << 30);
    }
}
