//! The folders of uploaded lists, and the two kinds of them: an upload is imported in the background, a draft waits for
//! the person who makes its campaign. A folder becomes one or the other by being moved.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;

use super::upload_request::UploadRequest;

/// The folder of an upload that is not complete. It is deleted if nothing was written to it for a day.
pub(super) const PARTIAL: &str = ".partial-";
/// What the folder of an upload contains: a folder with the file until it is imported, the request, then the result.
pub(super) const FILE: &str = "file";
pub(super) const REQUEST: &str = "fields.json";
pub(super) const REJECTS: &str = "rejects.csv";
/// The folder of the drafts, in that of the uploads. A draft has more files.
pub(super) const FOLDER: &str = "drafts";
/// The first rows of the list as JSON lines, by which a text is tried.
pub(super) const SAMPLE: &str = "sample.jsonl";
/// The list of one message to the person who makes the campaign.
pub(super) const TEST: &str = "test.jsonl";
/// Why the import of a started draft failed.
pub(super) const PROBLEM: &str = "problem.txt";

/// A file that is being uploaded, in a folder that is deleted unless it is accepted.
pub(crate) struct PartialUpload {
    folder: TempDir,
    pub(crate) path: PathBuf,
}

impl PartialUpload {
    /// A place for a file in the folder of all uploads. `name` is what the client calls it; only its last part is used.
    pub(super) fn create(uploads: &Path, name: &str) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(uploads)?;
        let folder = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(uploads)?;
        let name = Path::new(name)
            .file_name()
            .and_then(|name| name.to_str())
            .filter(|name| name.len() <= 200 && !name.contains('\0'))
            .unwrap_or("list.csv");
        fs::create_dir(folder.path().join(FILE))?;
        let path = folder.path().join(FILE).join(name);
        Ok(Self { folder, path })
    }

    /// Stores the file and its request durably; returns the id of the upload. Blocks until the disk has them.
    pub(super) fn accept(self, uploads: &Path, request: &UploadRequest) -> io::Result<String> {
        let mut output = File::create(self.folder.path().join(REQUEST))?;
        serde_json::to_writer(&mut output, request)?;
        output.sync_all()?;
        File::open(&self.path)?.sync_all()?;
        File::open(self.folder.path().join(FILE))?.sync_all()?;
        File::open(self.folder.path())?.sync_all()?;
        // Ordered by time, and different on every host that serves.
        let id = format!("{:012x}{:08x}", millis_now(), rand::random::<u32>());
        fs::rename(self.folder.path(), uploads.join(&id))?;
        // There is nothing left to delete.
        let _ = self.folder.keep();
        File::open(uploads)?.sync_all()?;
        Ok(id)
    }
}

fn millis_now() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis()
}

pub(super) fn is_id(name: &str) -> bool {
    name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The names of what a folder contains.
pub(super) fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
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
