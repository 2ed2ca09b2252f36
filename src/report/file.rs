//! Writes a file as a whole or not at all: beside its place first, then renamed onto it, so that nobody
//! ever reads half a report and a failed one leaves the old file as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::ReportError;

/// Calls `write` with the file-to-be; `path` changes only when that has succeeded. What is no regular
/// file, such as `/dev/stdout`, is written to directly.
pub async fn to_file<T>(
    path: &Path,
    write: impl AsyncFnOnce(&mut BufWriter<File>) -> Result<T, ReportError>,
) -> Result<T, ReportError> {
    let fault = |source| ReportError::File {
        path: path.display().to_string(),
        source,
    };
    let standing = fs::metadata(path).ok();
    match &standing {
        Some(found) if found.is_dir() => return Err(fault(io::ErrorKind::IsADirectory.into())),
        Some(found) if !found.is_file() => {
            let file = OpenOptions::new().write(true).open(path).map_err(fault)?;
            let mut out = BufWriter::new(file);
            let written = write(&mut out).await?;
            out.flush().map_err(fault)?;
            return Ok(written);
        }
        _ => {}
    }
    // A link stays a link: what it points to is replaced.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let draft = Draft::beside(&place);
    let file = private(&draft.0).map_err(fault)?;
    if let Some(standing) = standing {
        file.set_permissions(standing.permissions())
            .map_err(fault)?;
    }
    let mut out = BufWriter::new(file);
    let written = write(&mut out).await.map_err(|error| match error {
        ReportError::Write(source) => fault(source),
        other => other,
    })?;
    let file = out
        .into_inner()
        .map_err(|error| fault(error.into_error()))?;
    file.sync_all().map_err(fault)?;
    fs::rename(&draft.0, &place).map_err(fault)?;
    Ok(written)
}

/// A new file that its owner alone can read: a report has phones and texts in it.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// The file until it is in its place; afterwards there is nothing left to remove.
struct Draft(PathBuf);

impl Draft {
    fn beside(place: &Path) -> Self {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        Self(place.with_file_name(format!(".{name}.{}.part", std::process::id())))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is gone already where everything went well.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(folder: &Path) -> Vec<String> {
        fs::read_dir(folder)
            .expect("the folder is there")
            .map(|entry| {
                let name = entry.expect("an entry").file_name();
                name.to_string_lossy().into_owned()
            })
            .collect()
    }

    #[tokio::test]
    async fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("failed.csv");
        fs::write(&path, "old").expect("written");
        to_file(&path, async |out| Ok(out.write_all(b"new")?))
            .await
            .expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new");
        assert_eq!(listing(folder.path()), ["failed.csv"]);
    }

    #[tokio::test]
    async fn a_failed_report_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("failed.csv");
        fs::write(&path, "old").expect("written");
        let error = to_file(&path, async |out| {
            out.write_all(b"half a rep")?;
            Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull).into())
        })
        .await
        .expect_err("the disk is full");
        assert!(error.to_string().contains("failed.csv"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        assert_eq!(listing(folder.path()), ["failed.csv"]);
    }

    #[tokio::test]
    async fn a_folder_is_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = to_file(folder.path(), async |_| Ok(()))
            .await
            .expect_err("a folder");
        let cause = std::error::Error::source(&error).expect("a cause");
        assert!(cause.to_string().contains("is a directory"), "{cause}");
    }
}
