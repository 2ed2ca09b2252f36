//! Writes rejected rows to a file that can be fixed and imported: the columns of the list in its encoding
//! and with its delimiter, and `smsq_line` and `smsq_reason`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::encoding::Encoding;
use super::error::ImportError;
use super::file::{Format, ListFile};
use super::header::Header;
use super::record::{Next, Record};
use super::row_mapper::TEXT_COLUMN;
use crate::atomic_file::{AtomicFile, create_numbered, is_device, open_device};
use crate::text::spreadsheet::{guarded, is_guarded};

/// The added columns. The last one always has a value, because spreadsheets leave out empty fields at the
/// end of a row.
const ADDED: [&str; 3] = [TEXT_COLUMN, "smsq_line", "smsq_reason"];
/// The longest text in [`TEXT_COLUMN`], in bytes.
const MAX_TEXT: usize = 4 * 1024;

/// A rejects file, which is created with the first rejected row.
pub(super) struct RejectsFile {
    path: PathBuf,
    style: Style,
    encoding: Encoding,
    has_mark: bool,
    header: Vec<String>,
    /// The columns of the list without those of an earlier rejects file.
    kept: Vec<usize>,
    /// The column of the list with the text of rows that an earlier rejects file could not split.
    text: Option<usize>,
    is_guarded: bool,
    file: Option<AtomicFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Csv { delimiter: u8 },
    JsonLines,
}

/// What was read of a rejected row.
pub(super) enum RejectedRow<'r> {
    Fields(Vec<&'r [u8]>),
    /// The text of a row that is not valid CSV or JSON.
    Text(&'r [u8]),
}

impl<'r> RejectedRow<'r> {
    pub(super) fn new(next: &Next, record: &'r Record) -> Self {
        match next {
            Next::Malformed(_) => Self::Text(record.raw().next().unwrap_or_default()),
            _ => Self::Fields(record.raw().collect()),
        }
    }
}

impl RejectsFile {
    pub(super) fn new(path: PathBuf, list: &ListFile, header: &Header) -> Self {
        let style = match &list.format {
            Format::Csv(format) => Style::Csv {
                delimiter: format.delimiter,
            },
            Format::Sheet { .. } => Style::Csv { delimiter: b',' },
            Format::JsonLines { .. } => Style::JsonLines,
        };
        let names = &header.columns.names;
        let mut rejects = Self::styled(path, style, list.encoding, list.has_mark, names);
        rejects.is_guarded = header.is_guarded;
        rejects
    }

    fn styled(
        path: PathBuf,
        style: Style,
        encoding: Encoding,
        has_mark: bool,
        header: &[String],
    ) -> Self {
        let is_added = |column: &usize| ADDED.contains(&header[*column].as_str());
        Self {
            path,
            style,
            encoding,
            has_mark,
            header: header.to_vec(),
            kept: (0..header.len())
                .filter(|column| !is_added(column))
                .collect(),
            text: header.iter().position(|name| name == TEXT_COLUMN),
            is_guarded: false,
            file: None,
        }
    }

    /// Adds a row. A row with another number of fields than the header, or without fields, is written to
    /// [`TEXT_COLUMN`]; it is rejected again until its columns are filled in.
    pub(super) fn add(
        &mut self,
        line: u64,
        reason: &str,
        row: &RejectedRow<'_>,
    ) -> Result<(), ImportError> {
        let empty = || vec![&b""[..]; self.kept.len()];
        let (mut cells, text) = match row {
            RejectedRow::Fields(fields) if fields.len() == self.header.len() => {
                let kept = self.kept.iter().map(|&column| self.bare(fields[column]));
                let text = self.text.map(|column| self.bare(fields[column]));
                (kept.collect(), Cow::Borrowed(text.unwrap_or_default()))
            }
            RejectedRow::Fields(fields) => (empty(), self.joined(fields)),
            RejectedRow::Text(text) => (empty(), cut(text)),
        };
        let line = line.to_string();
        cells.extend([&*text, line.as_bytes(), reason.as_bytes()]);
        let text = match self.style {
            Style::Csv { delimiter } => guarded_line(&cells, delimiter),
            Style::JsonLines => Ok(self.object(&cells)),
        };
        let written = text.and_then(|text| self.write(&text));
        written.map_err(cannot_write(&self.path))
    }

    /// Removes the protection against formulas.
    fn bare<'c>(&self, cell: &'c [u8]) -> &'c [u8] {
        &cell[usize::from(self.is_guarded && is_guarded(cell))..]
    }

    /// Joins the fields of a row to one text.
    fn joined(&self, fields: &[&[u8]]) -> Cow<'static, [u8]> {
        let delimiter = match self.style {
            Style::Csv { delimiter } => delimiter,
            Style::JsonLines => b',',
        };
        let fields: Vec<&[u8]> = fields.iter().map(|field| self.bare(field)).collect();
        let text = csv_line(&fields, delimiter).unwrap_or_default();
        Cow::Owned(cut(text.trim_ascii_end()).into_owned())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let kept = self.kept.iter().map(|&column| self.header[column].as_str());
        kept.chain(ADDED)
    }

    /// A row without fields is an object with its text and no empty columns.
    fn object(&self, cells: &[&[u8]]) -> Vec<u8> {
        let text = self.kept.len();
        let has_text = !cells[text].is_empty();
        let cells = self
            .names()
            .zip(cells)
            .enumerate()
            .filter(|(column, (_, cell))| {
                *column > text || !cell.is_empty() || *column < text && !has_text
            });
        let object: serde_json::Map<String, serde_json::Value> = cells
            .map(|(_, (name, cell))| {
                let cell = String::from_utf8_lossy(cell).into_owned();
                (name.to_owned(), cell.into())
            })
            .collect();
        format!("{}\n", serde_json::Value::from(object)).into_bytes()
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.create()?,
        };
        let written = file.write_all(&self.encoding.encode(text));
        self.file = Some(file);
        written
    }

    fn create(&self) -> io::Result<AtomicFile> {
        let mut file = AtomicFile::create(&self.path)?;
        if self.has_mark {
            file.write_all(self.encoding.mark())?;
        }
        if let Style::Csv { delimiter } = self.style {
            let header: Vec<&[u8]> = self.names().map(str::as_bytes).collect();
            file.write_all(&self.encoding.encode(&guarded_line(&header, delimiter)?))?;
        }
        Ok(file)
    }

    /// Moves the file to its place. Returns its path, `None` if no row was rejected or the rows were
    /// written to a device.
    pub(super) fn finish(self) -> Result<Option<PathBuf>, ImportError> {
        match self.file {
            Some(file) => file.keep().map_err(cannot_write(&self.path)),
            None => Ok(None),
        }
    }
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> ImportError + '_ {
    |source| ImportError::Rejects {
        file: path.to_owned(),
        source,
    }
}

/// Returns the path of the rejects file of a list, by default in the current folder under the list's name.
pub(super) fn path_for(asked: Option<PathBuf>, list: &ListFile) -> Result<PathBuf, ImportError> {
    let path = if let Some(asked) = asked {
        check_is_file(&asked)?;
        asked
    } else {
        let stem = list.stem.strip_suffix(".rejects").unwrap_or(&list.stem);
        let extension = match list.format {
            Format::JsonLines { .. } => "jsonl",
            Format::Csv(_) | Format::Sheet { .. } => "csv",
        };
        PathBuf::from(format!("{stem}.rejects.{extension}"))
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| {
        std::fs::metadata(folder)
            .map(drop)
            .map_err(cannot_write(&path))
    })?;
    Ok(path)
}

/// Fails if `path` is a folder.
pub(super) fn check_is_file(path: &Path) -> Result<(), ImportError> {
    let ends_with_separator = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if ends_with_separator || path.is_dir() {
        return Err(ImportError::hinted(
            format!("`--rejects` names a folder, `{}`", path.display()),
            format!(
                "name a file in it: `--rejects {}`",
                path.join("rejects.csv").display()
            ),
        ));
    }
    Ok(())
}

/// Fails if the file cannot be written, before anything else is.
pub(super) fn check_writable(path: &Path) -> Result<(), ImportError> {
    if is_device(path) {
        return Ok(());
    }
    AtomicFile::create(path)
        .map(drop)
        .map_err(cannot_write(path))
}

/// A rejects file of JSON lines that is complete up to the last line at any time.
pub(super) struct LiveRejects {
    path: PathBuf,
    /// The path is `None` for a device.
    file: Option<(Option<PathBuf>, File)>,
}

impl LiveRejects {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    pub(super) fn add(&mut self, line: u64, text: &[u8], reason: &str) -> Result<(), ImportError> {
        let mut object = serde_json::from_slice(text).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(text.trim_ascii());
            serde_json::Map::from_iter([(TEXT_COLUMN.to_owned(), text.into())])
        });
        object.insert("smsq_line".to_owned(), line.to_string().into());
        object.insert("smsq_reason".to_owned(), reason.into());
        let written = self.open().and_then(|file| {
            let line = format!("{}\n", serde_json::Value::from(object));
            file.write_all(line.as_bytes())
        });
        written.map_err(cannot_write(&self.path))
    }

    fn open(&mut self) -> io::Result<&mut File> {
        let (_, file) = match &mut self.file {
            Some(file) => file,
            none => none.insert(if is_device(&self.path) {
                (None, open_device(&self.path)?)
            } else {
                let (path, file) = create_numbered(&self.path)?;
                (Some(path), file)
            }),
        };
        Ok(file)
    }

    /// Returns the path of the file, if there is one.
    pub(super) fn path(self) -> Option<PathBuf> {
        self.file.and_then(|(path, _)| path)
    }
}

fn guarded_line(row: &[&[u8]], delimiter: u8) -> io::Result<Vec<u8>> {
    let guarded: Vec<Cow<'_, [u8]>> = row.iter().map(|cell| guarded(cell)).collect();
    csv_line(&guarded, delimiter)
}

fn csv_line(row: &[impl AsRef<[u8]>], delimiter: u8) -> io::Result<Vec<u8>> {
    let mut builder = csv::WriterBuilder::new();
    let mut writer = builder
        .delimiter(delimiter)
        .flexible(true)
        .from_writer(Vec::new());
    writer.write_record(row)?;
    writer
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Cuts the text of a row at the end of a character.
fn cut(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() <= MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let is_start = |&at: &usize| text[at] & 0xc0 != 0x80;
    let end = (0..=MAX_TEXT).rev().find(is_start).unwrap_or(0);
    Cow::Owned([&text[..end], "…".as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn commas(path: PathBuf) -> RejectsFile {
        let style = Style::Csv { delimiter: b',' };
        RejectsFile::styled(path, style, Encoding::UTF8, false, &header(&["phone"]))
    }

    fn fields<'t>(fields: &'t [&'t str]) -> RejectedRow<'t> {
        RejectedRow::Fields(fields.iter().map(|field| field.as_bytes()).collect())
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
    fn file_is_not_created_without_rejected_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let rejects = commas(folder.path().join("a.csv"));
        assert_eq!(rejects.finish().expect("finishes"), None);
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn rows_are_written_with_line_and_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rejects.csv");
        let names = header(&["phone", "name", "smsq_line", "smsq_reason"]);
        let style = Style::Csv { delimiter: b';' };
        let mut rejects = RejectsFile::styled(path.clone(), style, Encoding::UTF8, false, &names);
        rejects
            .add(3, "too \"short\"", &fields(&["+1", "A;B", "9", "old"]))
            .expect("writes");
        rejects
            .add(4, "too many fields", &fields(&["+1", "B", "C"]))
            .expect("writes");
        assert_eq!(rejects.finish().expect("finishes"), Some(path.clone()));
        assert_eq!(
            std::fs::read_to_string(path).expect("the file"),
            "phone;name;smsq_text;smsq_line;smsq_reason\n\
             +1;\"A;B\";;3;\"too \"\"short\"\"\"\n\
             ;;\"'+1;B;C\";4;too many fields\n"
        );
    }

    #[test]
    fn rows_are_written_in_the_encoding_of_the_list() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = header(&["手机号", "姓名"]);
        for (label, has_mark) in [
            ("gb18030", false),
            ("utf-16", true),
            ("shift_jis", false),
            ("utf-8", true),
        ] {
            let path = folder.path().join(label);
            let encoding: Encoding = label.parse().expect("an encoding");
            let style = Style::Csv { delimiter: b'\t' };
            let mut rejects = RejectsFile::styled(path.clone(), style, encoding, has_mark, &names);
            rejects
                .add(2, "no phone", &fields(&["x", "山田"]))
                .expect("writes");
            rejects.finish().expect("finishes");
            let bytes = std::fs::read(path).expect("the file");
            let known = encoding_rs::Encoding::for_label(label.as_bytes()).expect("an encoding");
            let (text, _, is_broken) = known.decode(&bytes);
            assert!(!is_broken && bytes.starts_with(if has_mark { encoding.mark() } else { b"" }));
            let first = if label == "shift_jis" {
                "?机号"
            } else {
                "手机号"
            };
            assert!(
                text.ends_with("x\t山田\t\t2\tno phone\n"),
                "{label}: {text}"
            );
            assert!(
                label == "shift_jis" || text.starts_with(first),
                "{label}: {text}"
            );
        }
    }

    #[test]
    fn json_rows_are_written_as_objects() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let names = header(&["phone", "name"]);
        let mut rejects = RejectsFile::styled(
            path.clone(),
            Style::JsonLines,
            Encoding::UTF8,
            false,
            &names,
        );
        rejects
            .add(1, "bad", &fields(&["x", "Ann"]))
            .expect("writes");
        rejects
            .add(2, "not an object", &RejectedRow::Text(b"[1]"))
            .expect("writes");
        rejects.finish().expect("finishes");
        assert_eq!(
            std::fs::read_to_string(path).expect("the file"),
            "{\"phone\":\"x\",\"name\":\"Ann\",\"smsq_line\":\"1\",\"smsq_reason\":\"bad\"}\n\
             {\"smsq_text\":\"[1]\",\"smsq_line\":\"2\",\"smsq_reason\":\"not an object\"}\n"
        );
    }

    #[test]
    fn existing_files_are_kept_and_failure_leaves_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        for (reason, name) in [("one", "a.csv"), ("two", "a-2.csv"), ("three", "a-3.csv")] {
            let mut rejects = commas(path.clone());
            rejects.add(2, reason, &fields(&["x"])).expect("writes");
            let written = rejects.finish().expect("finishes");
            assert_eq!(written, Some(folder.path().join(name)));
        }
        let mut dropped = commas(path);
        dropped.add(2, "reason", &fields(&["x"])).expect("writes");
        drop(dropped);
        assert_eq!(files(folder.path()).len(), 3);
    }

    #[test]
    fn equal_rejects_are_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        for (reason, name) in [("one", "a.csv"), ("two", "a-2.csv"), ("two", "a-2.csv")] {
            let mut rejects = commas(path.clone());
            rejects.add(2, reason, &fields(&["x"])).expect("writes");
            let written = rejects.finish().expect("finishes");
            assert_eq!(written, Some(folder.path().join(name)));
        }
        assert_eq!(files(folder.path()), ["a-2.csv", "a.csv"]);
    }

    #[test]
    fn long_text_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rejects = commas(folder.path().join("a.csv"));
        let long = "é".repeat(40_000);
        let row = RejectedRow::Text(long.as_bytes());
        rejects.add(2, "too long", &row).expect("writes");
        let path = rejects.finish().expect("finishes").expect("a file");
        let text = std::fs::read_to_string(path).expect("the file");
        assert!(
            text.len() < 5_000 && text.contains("é…,2,too long\n"),
            "{text}"
        );
    }
}
