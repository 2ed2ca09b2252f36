//! The rows that were not imported: as they were, with their line and the reason, in a file that can be
//! mended and imported: in the encoding of the list and with its delimiter. It appears whole or not at all,
//! and never takes another file's place.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::encoding::Encoding;
use super::error::ImportError;
use super::source::{Form, Source};

/// The columns that a rejects file adds.
const ADDED: [&str; 2] = ["smsq_line", "smsq_reason"];

/// A rejects file that exists once there is something to put into it.
#[derive(Debug)]
pub(super) struct Rejects {
    wanted: PathBuf,
    style: Style,
    encoding: Encoding,
    is_marked: bool,
    header: Vec<String>,
    kept: Vec<usize>,
    started: Option<Started>,
}

/// How a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With this between the fields.
    Separated(u8),
    JsonLines,
}

#[derive(Debug)]
struct Started {
    part: PathBuf,
    file: BufWriter<File>,
}

impl Rejects {
    /// For the rows of `source`, which go to `wanted`.
    pub(super) fn new(wanted: PathBuf, source: &Source, header: &[String]) -> Self {
        let style = match &source.form {
            Form::Separated(format) => Style::Separated(format.delimiter),
            Form::Sheet(_) => Style::Separated(b','),
            Form::JsonLines(_) => Style::JsonLines,
        };
        Self::written(wanted, style, source.encoding, source.is_marked, header)
    }

    pub(super) fn written(
        wanted: PathBuf,
        style: Style,
        encoding: Encoding,
        is_marked: bool,
        header: &[String],
    ) -> Self {
        let kept = (0..header.len())
            .filter(|&column| !ADDED.contains(&header[column].as_str()))
            .collect();
        Self {
            wanted,
            style,
            encoding,
            is_marked,
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
        fields: impl Iterator<Item = &'f [u8]>,
    ) -> Result<(), ImportError> {
        let fields: Vec<&[u8]> = fields.collect();
        let is_whole = fields.len() == self.header.len();
        let mut row: Vec<&[u8]> = if is_whole {
            self.kept.iter().map(|&column| fields[column]).collect()
        } else {
            fields
        };
        let line = line.to_string();
        row.extend([line.as_bytes(), reason.as_bytes()]);
        let text = match self.style {
            Style::Separated(delimiter) => separated(&row, delimiter),
            Style::JsonLines => Ok(self.object(&row, is_whole)),
        };
        text.and_then(|text| self.write(&text))
            .map_err(|source| self.error(source))
    }

    /// A line that was no object stands in a key of its own.
    fn object(&self, row: &[&[u8]], is_whole: bool) -> Vec<u8> {
        let kept = self.kept.iter().map(|&column| self.header[column].as_str());
        let names: Vec<&str> = if is_whole {
            kept.chain(ADDED).collect()
        } else {
            ["smsq_text"].into_iter().chain(ADDED).collect()
        };
        let cells = row.iter().map(|cell| String::from_utf8_lossy(cell));
        let object: serde_json::Map<String, serde_json::Value> = names
            .into_iter()
            .map(str::to_owned)
            .zip(cells.map(|cell| cell.into_owned().into()))
            .collect();
        format!("{}\n", serde_json::Value::from(object)).into_bytes()
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut started = match self.started.take() {
            Some(started) => started,
            None => self.start()?,
        };
        let written = started.file.write_all(&self.encoding.encode(text));
        self.started = Some(started);
        written
    }

    fn start(&self) -> io::Result<Started> {
        let part = beside(
            &self.wanted,
            &format!(".{:08x}.part", rand::random::<u32>()),
        );
        let mut file = BufWriter::new(private(&part)?);
        if self.is_marked {
            file.write_all(self.encoding.mark())?;
        }
        if let Style::Separated(delimiter) = self.style {
            let kept = self.kept.iter().map(|&column| self.header[column].as_str());
            let header: Vec<&[u8]> = kept.chain(ADDED).map(str::as_bytes).collect();
            file.write_all(&self.encoding.encode(&separated(&header, delimiter)?))?;
        }
        Ok(Started { part, file })
    }

    /// Puts the file in its place, or beside it with a number where the place is taken. `None` where no
    /// row was rejected.
    pub(super) fn finish(mut self) -> Result<Option<PathBuf>, ImportError> {
        let Some(mut started) = self.started.take() else {
            return Ok(None);
        };
        let placed = started
            .file
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
pub(super) fn default_place(source: &Source) -> PathBuf {
    let stem = source.stem.strip_suffix(".rejects").unwrap_or(&source.stem);
    let ending = match source.form {
        Form::JsonLines(_) => "jsonl",
        Form::Separated(_) | Form::Sheet(_) => "csv",
    };
    PathBuf::from(format!("{stem}.rejects.{ending}"))
}

fn separated(row: &[&[u8]], delimiter: u8) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .from_writer(Vec::new());
    writer.write_record(row)?;
    writer
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))
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
        match private(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(_) => return std::fs::rename(part, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A new file that its owner alone can read: it has the rows of a list in it.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// `list.rejects-2.csv` for `list.rejects.csv`.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
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

    fn commas(place: PathBuf) -> Rejects {
        let style = Style::Separated(b',');
        Rejects::written(place, style, Encoding::UTF8, false, &header(&["phone"]))
    }

    fn fields<'t>(fields: &'t [&'t str]) -> impl Iterator<Item = &'t [u8]> {
        fields.iter().map(|field| field.as_bytes())
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
        let rejects = commas(folder.path().join("a.csv"));
        assert_eq!(rejects.finish().expect("nothing to do"), None);
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn the_rows_stand_there_as_they_were_with_line_and_reason() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.rejects.csv");
        let names = header(&["phone", "name", "smsq_line", "smsq_reason"]);
        let style = Style::Separated(b';');
        let mut rejects = Rejects::written(place.clone(), style, Encoding::UTF8, false, &names);
        rejects
            .add(3, "too \"short\"", fields(&["+1", "A;B", "9", "old"]))
            .expect("writes");
        rejects
            .add(4, "too few fields", fields(&["+1"]))
            .expect("writes");
        assert_eq!(rejects.finish().expect("finishes"), Some(place.clone()));
        assert_eq!(
            std::fs::read_to_string(place).expect("the file"),
            "phone;name;smsq_line;smsq_reason\n+1;\"A;B\";3;\"too \"\"short\"\"\"\n+1;4;too few fields\n"
        );
    }

    #[test]
    fn the_rows_are_in_the_encoding_of_the_list() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let names = header(&["手机号", "姓名"]);
        for (label, is_marked) in [
            ("gb18030", false),
            ("utf-16", true),
            ("shift_jis", false),
            ("utf-8", true),
        ] {
            let place = folder.path().join(label);
            let encoding: Encoding = label.parse().expect("an encoding");
            let style = Style::Separated(b'\t');
            let mut rejects = Rejects::written(place.clone(), style, encoding, is_marked, &names);
            rejects
                .add(2, "no phone", fields(&["x", "山田"]))
                .expect("writes");
            rejects.finish().expect("finishes");
            let bytes = std::fs::read(place).expect("the file");
            let known = encoding_rs::Encoding::for_label(label.as_bytes()).expect("an encoding");
            let (text, _, is_broken) = known.decode(&bytes);
            assert!(!is_broken && bytes.starts_with(if is_marked { encoding.mark() } else { b"" }));
            let first = if label == "shift_jis" {
                "?机号"
            } else {
                "手机号"
            };
            assert!(text.ends_with("x\t山田\t2\tno phone\n"), "{label}: {text}");
            assert!(
                label == "shift_jis" || text.starts_with(first),
                "{label}: {text}"
            );
        }
    }

    #[test]
    fn rows_of_json_are_objects_again() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let place = folder.path().join("a.jsonl");
        let names = header(&["phone", "name"]);
        let mut rejects = Rejects::written(
            place.clone(),
            Style::JsonLines,
            Encoding::UTF8,
            false,
            &names,
        );
        rejects
            .add(1, "bad", fields(&["x", "Ann"]))
            .expect("writes");
        rejects
            .add(2, "no object", fields(&["[1]"]))
            .expect("writes");
        rejects.finish().expect("finishes");
        assert_eq!(
            std::fs::read_to_string(place).expect("the file"),
            "{\"phone\":\"x\",\"name\":\"Ann\",\"smsq_line\":\"1\",\"smsq_reason\":\"bad\"}\n\
             {\"smsq_text\":\"[1]\",\"smsq_line\":\"2\",\"smsq_reason\":\"no object\"}\n"
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
            let mut rejects = commas(place.clone());
            rejects.add(2, "reason", fields(&["x"])).expect("writes");
            rejects.finish().expect("finishes");
            assert_eq!(files(folder.path()), expected);
        }
        let mut dropped = commas(place);
        dropped.add(2, "reason", fields(&["x"])).expect("writes");
        drop(dropped);
        assert_eq!(files(folder.path()).len(), 3);
    }
}
