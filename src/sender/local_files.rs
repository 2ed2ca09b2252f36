//! The files of one database that workers leave for other workers on this host.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::store::{Store, StoreError};

/// How often a folder is created that another worker removes because it is empty.
const TRIES: u32 = 3;

/// In folders that have nothing else: they are read every second.
#[derive(Clone)]
pub(super) struct LocalFiles {
    /// The first writable one is used; all are read.
    folders: Vec<PathBuf>,
    /// The start of every file name.
    prefix: String,
}

impl LocalFiles {
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
    pub(super) fn new(parents: &[PathBuf], name: &str, made_at: i64) -> Self {
        Self {
            folders: parents
                .iter()
                .map(|parent| parent.join(format!("{name}-unsettled")))
                .collect(),
            prefix: format!("{made_at:x}-"),
        }
    }

    /// Writes a new file of a worker in the first folder where that succeeds.
    pub(super) fn write_first<T>(
        &self,
        worker_id: i64,
        ending: &str,
        mut write: impl FnMut(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        // Workers on several hosts, and several files of one worker, may be in one folder.
        let number: u128 = rand::random();
        let name = format!("{}{worker_id}-{number:032x}.{ending}", self.prefix);
        let mut failed = io::Error::other("no folder can be written to");
        for folder in &self.folders {
            match write(&folder.join(&name)) {
                Ok(written) => return Ok(written),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The files with this ending, and the ids of their workers.
    pub(super) fn list(&self, ending: &str) -> Vec<(i64, PathBuf)> {
        let entries = self.folders.iter().filter_map(|at| fs::read_dir(at).ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let own = paths.filter_map(|path| Some((self.worker_of(&path, ending)?, path)));
        own.collect()
    }

    fn worker_of(&self, path: &Path, ending: &str) -> Option<i64> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix(&self.prefix)?.strip_suffix(ending)?;
        let (worker_id, _) = name.strip_suffix('.')?.split_once('-')?;
        worker_id.parse().ok()
    }
}

/// Creates a file that only its owner may read, and its folder.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut tries = 1..=TRIES;
    loop {
        if let Some(folder) = path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
            opened => return opened,
        }
    }
}

/// Removes a file, unless another worker has done so, and its folder if that is empty then.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(folder) = path.parent() {
        // It has other files, or another worker has removed it.
        fs::remove_dir(folder).unwrap_or_default();
    }
    Ok(())
}
