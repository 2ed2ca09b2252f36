//! Files that are uploaded: kept in a temporary folder and imported one after the other. Their rejected rows can be
//! downloaded.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// Uploads whose result is kept.
const MAX_KEPT: usize = 100;

/// A field of an upload: a flag of `smsq import` without `--`, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportField {
    pub name: String,
    pub value: String,
}

/// What an import returned: the object that `smsq import --format json` prints.
pub struct ImportedFile {
    pub result: Value,
}

/// Imports a file as `smsq import` does. An error is a sentence that says what to do.
pub trait FileImporter: Send + Sync {
    /// Checks the fields before the file is uploaded whole.
    fn check(&self, fields: &[ImportField]) -> Result<(), String>;

    /// Blocks until the file is imported. Rejected rows are written to `rejects`.
    fn import(
        &self,
        file: &Path,
        fields: &[ImportField],
        rejects: &Path,
    ) -> Result<ImportedFile, String>;
}

/// A file that is uploaded, in a folder that is deleted with it.
pub(super) struct UploadedFile {
    folder: TempDir,
    pub(super) path: PathBuf,
}

impl UploadedFile {
    /// `name` is what the client calls the file; only its last part is used.
    pub(super) fn create(name: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("smsq-upload.").tempdir()?;
        let name = Path::new(name).file_name().and_then(|name| name.to_str());
        let is_usable = |name: &&str| name.len() <= 200 && !name.contains('\0');
        let name = name.filter(is_usable).unwrap_or("list.csv");
        // A folder of its own: the file may have the name of the file for rejected rows.
        let files = folder.path().join("file");
        std::fs::create_dir(&files)?;
        let path = files.join(name);
        Ok(Self { folder, path })
    }

    fn rejects(&self) -> PathBuf {
        self.folder.path().join("rejects.csv")
    }
}

struct Upload {
    file: UploadedFile,
    state: UploadState,
}

enum UploadState {
    Running,
    Done(Value),
    Failed(String),
}

/// The uploads of this process.
pub(super) struct Uploads {
    importer: Arc<dyn FileImporter>,
    /// One file is imported at a time.
    turn: Arc<Semaphore>,
    all: Arc<Mutex<BTreeMap<u64, Upload>>>,
}

impl Uploads {
    pub(super) fn new(importer: Arc<dyn FileImporter>) -> Self {
        Self {
            importer,
            turn: Arc::new(Semaphore::new(1)),
            all: Arc::default(),
        }
    }

    pub(super) fn check(&self, fields: &[ImportField]) -> Result<(), String> {
        self.importer.check(fields)
    }

    /// Imports a file in the background; returns the number of the upload.
    pub(super) fn begin(&self, file: UploadedFile, fields: Vec<ImportField>) -> u64 {
        let (path, rejects) = (file.path.clone(), file.rejects());
        let id = {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            let id = all.last_key_value().map_or(1, |(id, _)| id + 1);
            let is_over = |upload: &Upload| !matches!(upload.state, UploadState::Running);
            let oldest = all.iter().find(|(_, upload)| is_over(upload));
            if let Some(oldest) = oldest.map(|(id, _)| *id).filter(|_| all.len() >= MAX_KEPT) {
                all.remove(&oldest);
            }
            let state = UploadState::Running;
            all.insert(id, Upload { file, state });
            id
        };
        let (importer, turn, all) = (
            Arc::clone(&self.importer),
            Arc::clone(&self.turn),
            Arc::clone(&self.all),
        );
        tokio::spawn(async move {
            let turn = turn.acquire_owned().await;
            let done =
                tokio::task::spawn_blocking(move || importer.import(&path, &fields, &rejects));
            let state = match done.await {
                Ok(Ok(file)) => UploadState::Done(file.result),
                Ok(Err(reason)) => UploadState::Failed(reason),
                Err(_) => UploadState::Failed("the import ended unexpectedly".to_owned()),
            };
            drop(turn);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(upload) = all.get_mut(&id) {
                upload.state = state;
            }
        });
        id
    }

    /// The state of an upload; `None` if it is not known any more.
    pub(super) fn state(&self, id: u64) -> Option<Value> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let upload = all.get(&id)?;
        let id = id.to_string();
        Some(match &upload.state {
            UploadState::Running => json!({ "import": id, "state": "running" }),
            UploadState::Failed(reason) => {
                json!({ "import": id, "state": "failed", "detail": reason })
            }
            UploadState::Done(result) => {
                let mut object = json!({ "import": id, "state": "done" });
                if let (Some(object), Some(result)) = (object.as_object_mut(), result.as_object()) {
                    object.extend(result.clone());
                    let has_rejects = upload.file.rejects().exists();
                    let rejects = has_rejects.then(|| format!("/v1/imports/{id}/rejects.csv"));
                    object.insert("rejects_file".to_owned(), json!(rejects));
                }
                object
            }
        })
    }

    /// The file with the rejected rows of an upload.
    pub(super) fn rejects(&self, id: u64) -> Option<PathBuf> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let rejects = all.get(&id)?.file.rejects();
        rejects.exists().then_some(rejects)
    }
}
