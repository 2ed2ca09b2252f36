//! Output files that appear complete or not at all: written to a temporary file in the target's folder,
//! then renamed. Devices and pipes are written to directly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file that is removed when it is dropped before [`replace`](Self::replace) or [`keep`](Self::keep).
/// Only its owner can read it.
pub struct AtomicFile {
    target: PathBuf,
    /// `None` if the target is a device.
    temporary: Option<NamedTempFile>,
    output: BufWriter<File>,
}

impl AtomicFile {
    /// Opens `target` if it is a device, otherwise a temporary file in the same folder.
    pub fn create(target: &Path) -> io::Result<Self> {
        let (temporary, output) = if is_device(target) {
            (None, open_device(target)?)
        } else if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        } else {
            let name = target.file_name().unwrap_or_default().to_string_lossy();
            let folder = target.parent().filter(|path| !path.as_os_str().is_empty());
            let temporary = tempfile::Builder::new()
                .prefix(&format!(".{name}."))
                .suffix(".part")
                .tempfile_in(folder.unwrap_or(Path::new(".")))?;
            let output = temporary.as_file().try_clone()?;
            (Some(temporary), output)
        };
        Ok(Self { target: target.to_owned(), temporary, output: BufWriter::new(output) })
    }

    /// Replaces the target and keeps its permissions. A symbolic link stays: the file it points to is
    /// replaced.
    pub fn replace(mut self) -> io::Result<()> {
        self.output.flush()?;
        if let Some(temporary) = self.temporary {
            let target = fs::canonicalize(&self.target).unwrap_or(self.target);
            if let Ok(existing) = fs::metadata(&target) {
                let file = temporary.as_file();
                file.set_permissions(existing.permissions())?;
            }
            temporary.as_file().sync_all()?;
            temporary.persist(target)?;
        }
        Ok(())
    }

    /// Moves the file to the target, or to a numbered name if the target exists with other content.
    /// Returns the path, `None` for a device.
    pub fn keep(mut self) -> io::Result<Option<PathBuf>> {
        self.output.flush()?;
        let Some(mut temporary) = self.temporary else {
            return Ok(None);
        };
        for path in names(&self.target) {
            match temporary.persist_noclobber(&path) {
                Ok(_) => return Ok(Some(path)),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                    temporary = error.file;
                    if has_same_content(temporary.path(), &path)? {
                        return Ok(Some(path));
                    }
                }
                Err(error) => return Err(error.error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Creates a new file that only its owner can read, under a numbered name if `path` exists.
pub fn create_numbered(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    for path in names(path) {
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((path, created?)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Whether `path` names standard output.
pub fn is_stdout(path: &Path) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    names.iter().any(|name| path == Path::new(name))
}

/// Whether `path` is not a regular file: standard output, a device, a pipe, an open file descriptor.
pub fn is_device(path: &Path) -> bool {
    let descriptors = ["/dev/fd", "/dev/stderr", "/proc/self/fd"];
    let is_other = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    is_stdout(path)
        || descriptors.iter().any(|prefix| path.starts_with(prefix))
        || fs::metadata(path).is_ok_and(is_other)
}

/// Opens a device for appending.
pub fn open_device(path: &Path) -> io::Result<File> {
    if is_stdout(path) {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    OpenOptions::new().append(true).open(path)
}

/// `list.csv`, `list-2.csv`, `list-3.csv` …
fn names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |end| format!(".{}", end.display()));
    let numbered = (2_u32..).map(move |number| format!("{stem}-{number}{extension}"));
    std::iter::once(path.to_owned()).chain(numbered.map(|name| path.with_file_name(name)))
}

fn has_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut other = BufReader::new(other).bytes();
    for byte in BufReader::new(one).bytes() {
        if other.next().transpose()? != Some(byte?) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder exists");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string())
            .collect::<Result<_, _>>()
            .expect("UTF-8");
        names.sort();
        names
    }

    fn written(path: &Path, text: &str) -> AtomicFile {
        let mut file = AtomicFile::create(path).expect("creates");
        file.write_all(text.as_bytes()).expect("writes");
        file
    }

    #[test]
    fn replace_keeps_permissions_and_links() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("failed.csv");
        let link = folder.path().join("link.csv");
        fs::write(&path, "old").expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changes");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        written(&link, "new").replace().expect("replaces");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "new");
        let mode = fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(link.is_symlink());
        assert_eq!(listing(folder.path()), ["failed.csv", "link.csv"]);
    }

    #[test]
    fn dropped_file_leaves_the_target_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("failed.csv");
        fs::write(&path, "old").expect("writes");
        drop(written(&path, "half"));
        assert_eq!(fs::read_to_string(&path).expect("reads"), "old");
        assert_eq!(listing(folder.path()), ["failed.csv"]);
        assert!(AtomicFile::create(folder.path()).is_err());
    }

    #[test]
    fn keep_numbers_files_with_other_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("list.rejects.csv");
        for (text, name) in [
            ("one", "list.rejects.csv"),
            ("two", "list.rejects-2.csv"),
            ("one", "list.rejects.csv"),
            ("two", "list.rejects-2.csv"),
            ("six", "list.rejects-3.csv"),
        ] {
            let kept = written(&path, text).keep().expect("keeps");
            assert_eq!(kept, Some(folder.path().join(name)), "{text}");
        }
        assert_eq!(listing(folder.path()).len(), 3);
    }

    #[test]
    fn device_is_written_directly() {
        let file = written(Path::new("/dev/null"), "gone");
        assert_eq!(file.keep().expect("writes"), None);
        assert!(written(Path::new("/dev/null"), "").replace().is_ok());
    }
}
