//! The files of one database that workers leave for other workers on this host.

pub(super) mod journal;
pub(super) mod left;
pub(super) mod marks;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use smsq_store::{Store, StoreError};

/// How often a folder is created that another worker removes because it is empty.
const TRIES: u32 = 3;

/// Which database files are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatabaseIdentity {
    /// When its tables were created. Copies have the same.
    pub(super) created_at: i64,
    /// Its server and its name there, or its file.
    pub(super) place: String,
}

/// In folders that have nothing else: they are read every second.
#[derive(Clone)]
pub(super) struct LocalFiles {
    /// The first writable one is used; all are read.
    folders: Vec<PathBuf>,
    /// The start of every file name, also of those about copies of the database.
    prefix: String,
    /// The next part of the names: which of the copies it is.
    place: String,
}

/// A file, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    /// The token of its worker's registration, or any other random text.
    pub(super) token: String,
    /// It is about this database. Otherwise about another copy, or the database has been moved.
    pub(super) is_own: bool,
}

/// The file behind symbolic links: each way to it leads to the same folder.
fn real_file(file: &Path) -> PathBuf {
    match (std::path::absolute(file), fs::canonicalize(file)) {
        (Ok(path), Ok(real)) if path != real => real,
        _ => file.to_owned(),
    }
}

impl LocalFiles {
    /// In a folder beside an embedded database's file; for a server in the user's state folder, or in the
    /// working directory.
    pub(super) async fn of(store: &Store, state_folder: Option<&Path>) -> Result<Self, StoreError> {
        let real = store.file().map(real_file);
        let file = real.as_deref();
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
        let database =
            DatabaseIdentity { created_at: store.created_at().await?, place: store.place().await? };
        Ok(Self::new(&parents, &name, &database))
    }

    /// `name`: of the database.
    pub(super) fn new(parents: &[PathBuf], name: &str, database: &DatabaseIdentity) -> Self {
        let digest = Sha256::digest(&database.place);
        let place = hex::encode(&digest[..8]);
        Self {
            folders: parents
                .iter()
                .map(|parent| parent.join(format!("{name}-unsettled")))
                .collect(),
            prefix: format!("{:x}-", database.created_at),
            place,
        }
    }

    /// Writes a new file of a worker in the first folder where that succeeds. `token`: random, because workers on several
    /// hosts, and several files of one worker, may be in one folder.
    pub(super) fn write_first<T>(
        &self,
        worker_id: i64,
        token: &str,
        ending: &str,
        mut write: impl FnMut(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let (prefix, place) = (&self.prefix, &self.place);
        let name = format!("{prefix}{place}-{worker_id}-{token}.{ending}");
        let mut failed = io::Error::other("no folder can be written to");
        for folder in &self.folders {
            match write(&folder.join(&name)) {
                Ok(written) => return Ok(written),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The files with this ending that are about this database or a copy of it.
    pub(super) fn list(&self, ending: &str) -> Vec<LocalFile> {
        let entries = self.folders.iter().filter_map(|at| fs::read_dir(at).ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        paths.filter_map(|path| self.parse(path, ending)).collect()
    }

    fn parse(&self, path: PathBuf, ending: &str) -> Option<LocalFile> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix(&self.prefix)?.strip_suffix(ending)?;
        let parts: Vec<&str> = name.strip_suffix('.')?.split('-').collect();
        let [place, _, token] = parts[..] else {
            return None;
        };
        Some(LocalFile { token: token.to_owned(), is_own: place == self.place, path })
    }
}

/// A random text that names a file or a registration.
pub(super) fn random_token() -> String {
    let number: u128 = rand::random();
    format!("{number:032x}")
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
