//! The rows that were not imported: as they were, with their line and the reason, in a file that can be
//! mended and imported. It appears whole or not at all, and never takes another file's place.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::ImportError;

/// The columns that a rejects file adds.
const ADDED: [&str; 2] = ["smsq_line", "smsq_reason"];

/// A rejects file that exists once there is something to put into it.
#[derive(Debug)]
pub(super) struct Rejects {
    wanted: PathBuf,
    delimiter: u8,
    header: Vec<String>,
    kept: Vec<usize>,
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    part: PathBuf,
    writer: csv::Writer<File>,
}

impl Rejects {
    pub(super) fn new(wanted: PathBuf, delimiter: u8, header: &[String]) -> Self {
        let kept = (0..header.len())
            .filter(|&column| !ADDED.contains(&header[column].as_str()))
            .collect();
        Self {
            wanted,
            delimiter,
            header: header.to_vec(),
            kept,
            started: None,
        }
    }

    /// Adds a row. One that has as many fields as the header loses what an earlier rejects file added
    /// to it; any other stays as it was, so that it is rejected again until somebody mends it.
    pub(super) fn add<'f>(
        &mut self,
        line: u64,
        reason: &str,
        fields: impl Iterator<Item = &'f str>,
    ) -> Result<(), ImportError> {
        let fields: Vec<&str> = fields.collect();
        let mut row: Vec<&str> = if fields.len() == self.header.len() {
            self.kept.iter().map(|&column| fields[column]).collect()
        } else {
            fields
        };
        let line = line.to_string();
        row.extend([line.as_str(), reason]);
        self.write(&row).map_err(|source| self.error(source))
    }

    fn write(&mut self, row: &[&str]) -> io::Result<()> {
        let mut started = match self.started.take() {
            Some(started) => started,
            None => self.start()?,
        };
        let written = started.writer.write_record(row);
        self.started = Some(started);
        Ok(written?)
    }

    fn start(&self) -> io::Result<Started> {
        let part = beside(
            &self.wanted,
            &format!(".{:08x}.part", rand::random::<u32>()),
        );
        let file = File::create_new(&part)?;
        let mut writer = csv::WriterBuilder::new()
            .delimiter(self.delimiter)
            .flexible(true)
            .from_writer(file);
        let header = self.kept.iter().map(|&column| self.header[column].as_str());
        writer.write_record(header.chain(ADDED))?;
        Ok(Started { part, writer })
    }

    /// Puts the file in its place, or beside it with a number where the place is taken. `None` where no
    /// row was rejected.
    pub(super) fn finish(mut self) -> Result<Option<PathBuf>, ImportError> {
        let Some(mut started) = self.started.take() else {
            return Ok(None);
        };
        let placed = started
            .writer
            .flush()
            .and_then(|()| place(&started.part, &self.wanted));
        if placed.is_err() {
            let _ = std::fs::remove_file(&started.part);
        }
        placed.map(Some).map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> ImportError {
        ImportError::Rejects {
            file: self.wanted.clone(),
            source,
        }
    }
}

/// An import that failed leaves nothing behind: the next one finds the same rows again.
impl Drop for Rejects {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            let _ = std::fs::remove_file(&started.part);
        }
    }
}

/// Where the rejects of a file go if nobody says: the current folder, under the file's own name.
pub(super) fn default_place(stem: &str) -> PathBuf {
    let stem = stem.strip_suffix(".rejects").unwrap_or(stem);
    PathBuf::from(format!("{stem}.rejects.csv"))
}

/// Fails where a folder was named instead of a file.
pub(super) fn check_file(asked: &Path) -> Result<(), ImportError> {
    let ends_like_one = asked
        .as_os_str()
        .to_string_lossy()
        .ends_with(std::path::is_separator);
    if ends_like_one || asked.is_dir() {
        return Err(ImportError::RejectsFolder {
            folder: asked.to_path_buf(),
        });
    }
    Ok(())
}

/// Fails where the folder for the file is not there, before a row is read.
pub(super) fn check_place(wanted: &Path) -> Result<(), ImportError> {
    let folder = wanted
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(std::fs::metadata) {
        Some(Err(source)) => Err(ImportError::Rejects {
            file: wanted.to_path_buf(),
            source,
        }),
        _ => Ok(()),
    }
}

fn place(part: &Path, wanted: &Path) -> io::Result<PathBuf> {
    for number in 1_u32.. {
        let path = if number == 1 {
            wanted.to_path_buf()
        } else {
            numbered(wanted, number)
        };
        // The name is taken with an empty file first, so that two imports cannot both have it.
        match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(_) => return std::fs::rename(part, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// `list.rejects-2.csv` for `list.rejects.csv`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path
        .extension()
        .map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{}", extension.unwrap_or_default()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn without_a_rejected_row_there_is_no_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let rejects = Rejects::new(folder.path().join("a.csv"), b',', &header(&["phone"]));
        assert_eq!(rejects.finish().expect("nothing to do"), None);
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn the_rows_stand_there_as_they_were_with_line_and_reason() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.rejects.csv");
        let names = header(&["phone", "name", "smsq_line", "smsq_reason"]);
        let mut rejects = Rejects::new(place.clone(), b';', &names);
        rejects
            .add(3, "too \"short\"", ["+1", "A;B", "9", "old"].into_iter())
            .expect("writes");
        rejects
            .add(4, "too few fields", ["+1"].into_iter())
            .expect("writes");
        assert_eq!(rejects.finish().expect("finishes"), Some(place.clone()));
        assert_eq!(
            std::fs::read_to_string(place).expect("the file"),
            "phone;name;smsq_line;smsq_reason\n+1;\"A;B\";3;\"too \"\"short\"\"\"\n+1;4;too few fields\n"
        );
    }

    #[test]
    fn no_other_file_loses_its_place_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.csv");
        for expected in [
            &["a.csv"][..],
            &["a-2.csv", "a.csv"],
            &["a-2.csv", "a-3.csv", "a.csv"],
        ] {
            let mut rejects = Rejects::new(place.clone(), b',', &header(&["phone"]));
            rejects.add(2, "reason", ["x"].into_iter()).expect("writes");
            rejects.finish().expect("finishes");
            assert_eq!(files(folder.path()), expected);
        }
        let mut dropped = Rejects::new(place, b',', &header(&["phone"]));
        dropped.add(2, "reason", ["x"].into_iter()).expect("writes");
        drop(dropped);
        assert_eq!(files(folder.path()).len(), 3);
    }
}
