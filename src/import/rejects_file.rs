//! Writes rejected rows to a file that can be fixed and imported: the columns of the list in its encoding
//! and with its delimiter, and `smsq_line` and `smsq_reason`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use smsq_message::text::spreadsheet::{guarded, is_guarded};
use smsq_process::atomic_file::{AtomicFile, create_numbered, is_device, open_device};

use super::columns::TEXT_COLUMN;
use super::encoding::Encoding;
use super::error::ImportError;
use super::file::ListFile;
use super::header::Header;
use super::record::{Next, Record};

/// The added columns. The last one always has a value, because spreadsheets leave out empty fields at the
/// end of a row.
const ADDED: [&str; 3] = [TEXT_COLUMN, "smsq_line", "smsq_reason"];
/// The longest text in [`TEXT_COLUMN`], in bytes.
const MAX_TEXT: usize = 4 * 1024;

/// A rejects file, which is created with the first rejected row.
pub(super) struct RejectsFile {
    path: PathBuf,
    /// `None`: JSON lines.
    delimiter: Option<u8>,
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

impl RejectsFile {
    pub(super) fn new(path: PathBuf, list: &ListFile, header: &Header) -> Self {
        let names = &header.columns.names;
        let is_kept = |&column: &usize| !ADDED.contains(&names[column].as_str());
        Self {
            path,
            delimiter: list.layout.delimiter,
            encoding: list.text.encoding,
            has_mark: list.has_mark,
            header: names.clone(),
            kept: (0..names.len()).filter(is_kept).collect(),
            text: header.columns.position(TEXT_COLUMN),
            is_guarded: header.is_guarded,
            file: None,
        }
    }

    /// Adds the row that was read. A row with another number of fields than the header, or without fields,
    /// is written to [`TEXT_COLUMN`]; it is rejected again until its columns are filled in.
    pub(super) fn add(
        &mut self,
        next: &Next,
        record: &Record,
        reason: &str,
    ) -> Result<(), ImportError> {
        let fields: Vec<&[u8]> = record.raw().collect();
        let (mut cells, text) = if matches!(next, Next::Malformed(_)) {
            (self.empty(), cut(&fields.concat()))
        } else if fields.len() == self.header.len() {
            let kept = self.kept.iter().map(|&column| self.bare(fields[column]));
            let text = self.text.map(|column| self.bare(fields[column]).to_vec());
            (kept.collect(), text.unwrap_or_default())
        } else {
            let fields: Vec<&[u8]> = fields.iter().map(|field| self.bare(field)).collect();
            let text = csv_line(&fields, self.delimiter.unwrap_or(b',')).unwrap_or_default();
            (self.empty(), cut(text.trim_ascii_end()))
        };
        let line = record.line.to_string();
        cells.extend([&*text, line.as_bytes(), reason.as_bytes()]);
        let text = match self.delimiter {
            Some(delimiter) => guarded_line(&cells, delimiter),
            None => Ok(self.object(&cells)),
        };
        let written = text.and_then(|text| self.write(&text));
        written.map_err(cannot_write(&self.path))
    }

    fn empty(&self) -> Vec<&'static [u8]> {
        vec![b""; self.kept.len()]
    }

    /// Removes the protection against formulas.
    fn bare<'c>(&self, cell: &'c [u8]) -> &'c [u8] {
        &cell[usize::from(self.is_guarded && is_guarded(cell))..]
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let kept = self.kept.iter().map(|&column| self.header[column].as_str());
        kept.chain(ADDED)
    }

    /// A row without fields is an object with its text and no empty columns.
    fn object(&self, cells: &[&[u8]]) -> Vec<u8> {
        let text = self.kept.len();
        let has_text = !cells[text].is_empty();
        let mut object = serde_json::Map::new();
        for (column, (name, cell)) in self.names().zip(cells).enumerate() {
            if column > text || !cell.is_empty() || column < text && !has_text {
                object.insert(name.to_owned(), String::from_utf8_lossy(cell).into());
            }
        }
        format!("{}\n", serde_json::Value::from(object)).into_bytes()
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let text = self.encoding.encode(text);
        if let Some(file) = &mut self.file {
            return file.write_all(&text);
        }
        let mut file = AtomicFile::create(&self.path)?;
        if self.has_mark {
            file.write_all(self.encoding.mark())?;
        }
        if let Some(delimiter) = self.delimiter {
            let header: Vec<&[u8]> = self.names().map(str::as_bytes).collect();
            file.write_all(&self.encoding.encode(&guarded_line(&header, delimiter)?))?;
        }
        self.file.insert(file).write_all(&text)
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

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> ImportError + Copy + '_ {
    move |error| {
        ImportError::hinted(
            format!("cannot write rejected rows to `{}`: {error}", path.display()),
            "name a file that can be written: `--rejects FILE`",
        )
    }
}

/// Returns the path of the rejects file of a list, by default in the current folder under the list's name.
pub(super) fn path_for(asked: Option<&PathBuf>, list: &ListFile) -> Result<PathBuf, ImportError> {
    let path = if let Some(asked) = asked {
        check_is_file(asked)?;
        asked.clone()
    } else {
        let stem = list.stem.strip_suffix(".rejects").unwrap_or(&list.stem);
        let extension = match list.layout.delimiter {
            Some(_) => "csv",
            None => "jsonl",
        };
        PathBuf::from(format!("{stem}.rejects.{extension}"))
    };
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        std::fs::metadata(folder).map_err(cannot_write(&path))?;
    }
    Ok(path)
}

/// Fails if `path` is a folder.
pub(super) fn check_is_file(path: &Path) -> Result<(), ImportError> {
    let ends_with_separator = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if ends_with_separator || path.is_dir() {
        return Err(ImportError::hinted(
            format!("`--rejects` names a folder, `{}`", path.display()),
            format!("name a file in it: `--rejects {}`", path.join("rejects.csv").display()),
        ));
    }
    Ok(())
}

/// Fails if the file cannot be written, before anything else is.
pub(super) fn check_writable(path: &Path) -> Result<(), ImportError> {
    if !is_device(path) {
        AtomicFile::create(path).map_err(cannot_write(path))?;
    }
    Ok(())
}

/// A rejects file of JSON lines that is complete up to the last line at any time.
pub(super) struct LiveRejects {
    path: PathBuf,
    file: Option<File>,
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
        let line = format!("{}\n", serde_json::Value::from(object));
        let written = self.write(line.as_bytes());
        written.map_err(cannot_write(&self.path))
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            return file.write_all(line);
        }
        let file = if is_device(&self.path) {
            open_device(&self.path)?
        } else {
            let (path, file) = create_numbered(&self.path)?;
            self.path = path;
            file
        };
        self.file.insert(file).write_all(line)
    }

    /// Returns the path of the file, if there is one.
    pub(super) fn path(self) -> Option<PathBuf> {
        let file = self.file.filter(|_| !is_device(&self.path));
        file.map(|_| self.path)
    }
}

fn guarded_line(row: &[&[u8]], delimiter: u8) -> io::Result<Vec<u8>> {
    let guarded: Vec<Cow<'_, [u8]>> = row.iter().map(|cell| guarded(cell)).collect();
    csv_line(&guarded, delimiter)
}

fn csv_line(row: &[impl AsRef<[u8]>], delimiter: u8) -> io::Result<Vec<u8>> {
    let mut builder = csv::WriterBuilder::new();
    let mut writer = builder.delimiter(delimiter).flexible(true).from_writer(Vec::new());
    writer.write_record(row)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// Cuts the text of a row at the end of a character.
fn cut(text: &[u8]) -> Vec<u8> {
    if text.len() <= MAX_TEXT {
        return text.to_vec();
    }
    let is_start = |&at: &usize| text[at] & 0xc0 != 0x80;
    let end = (0..=MAX_TEXT).rev().find(is_start).unwrap_or(0);
    [&text[..end], "…".as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use smsq_message::phone::Dialling;

    use super::super::options::Options;
    use super::super::record::Malformed;
    use super::*;

    /// Returns the rejects file of a list with this header, in UTF-8 unless `encoding` is given.
    fn rejects(path: &Path, header: &[u8], encoding: Option<Encoding>) -> RejectsFile {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("list");
        std::fs::write(&file, header).expect("writes");
        let list = ListFile::open(&Options { file, encoding, ..Options::default() });
        let list = list.expect("a list");
        let header = Header::find(&list, &[], Dialling::default()).expect("a header");
        RejectsFile::new(path.to_owned(), &list, &header)
    }

    fn record(line: u64, fields: &[&str]) -> Record {
        let mut record = Record::default();
        record.line = line;
        for field in fields {
            record.push(field.as_bytes());
        }
        record
    }

    fn add(rejects: &mut RejectsFile, line: u64, reason: &str, fields: &[&str]) {
        let added = rejects.add(&Next::Row, &record(line, fields), reason);
        added.expect("writes");
    }

    fn add_malformed(rejects: &mut RejectsFile, reason: &str, text: &str) {
        let next = Next::Malformed(Malformed::NotAnObject);
        let added = rejects.add(&next, &record(2, &[text]), reason);
        added.expect("writes");
    }

    #[test]
    fn file_is_not_created_without_rejected_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        let rejects = rejects(&path, b"phone\n", None);
        assert_eq!(rejects.finish().expect("finishes"), None);
        assert!(!path.exists());
    }

    #[test]
    fn rows_are_written_with_line_and_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rejects.csv");
        let mut rejects = rejects(&path, b"phone;name;smsq_line;smsq_reason\n", None);
        add(&mut rejects, 3, "too \"short\"", &["+1", "A;B", "9", "old"]);
        add(&mut rejects, 4, "too many fields", &["+1", "B", "C"]);
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
        for (label, has_mark) in
            [("gb18030", false), ("utf-16", true), ("shift_jis", false), ("utf-8", true)]
        {
            let path = folder.path().join(label);
            let encoding: Encoding = label.parse().expect("an encoding");
            let mark = if has_mark { encoding.mark() } else { b"" };
            let header = encoding.encode("電話\t名前\n".as_bytes());
            let mut rejects = rejects(&path, &[mark, &header].concat(), Some(encoding));
            add(&mut rejects, 2, "no phone", &["x", "山田"]);
            rejects.finish().expect("finishes");
            let bytes = std::fs::read(path).expect("the file");
            let known = encoding_rs::Encoding::for_label(label.as_bytes()).expect("an encoding");
            let (text, _, is_broken) = known.decode(&bytes);
            assert!(!is_broken && bytes.starts_with(mark), "{label}");
            assert_eq!(
                text, "電話\t名前\tsmsq_text\tsmsq_line\tsmsq_reason\nx\t山田\t\t2\tno phone\n",
                "{label}"
            );
        }
    }

    #[test]
    fn json_rows_are_written_as_objects() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let mut rejects = rejects(&path, br#"{"phone":"x","name":"Ann"}"#, None);
        add(&mut rejects, 1, "bad", &["x", "Ann"]);
        add_malformed(&mut rejects, "not an object", "[1]");
        rejects.finish().expect("finishes");
        assert_eq!(
            std::fs::read_to_string(path).expect("the file"),
            "{\"phone\":\"x\",\"name\":\"Ann\",\"smsq_line\":\"1\",\"smsq_reason\":\"bad\"}\n\
             {\"smsq_text\":\"[1]\",\"smsq_line\":\"2\",\"smsq_reason\":\"not an object\"}\n"
        );
    }

    #[test]
    fn equal_rejects_are_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        for (reason, name) in [("one", "a.csv"), ("two", "a-2.csv"), ("two", "a-2.csv")] {
            let mut rejects = rejects(&path, b"phone\n", None);
            add(&mut rejects, 2, reason, &["x"]);
            let written = rejects.finish().expect("finishes");
            assert_eq!(written, Some(folder.path().join(name)));
        }
    }

    #[test]
    fn long_text_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rejects = rejects(&folder.path().join("a.csv"), b"phone\n", None);
        add_malformed(&mut rejects, "too long", &"é".repeat(40_000));
        let path = rejects.finish().expect("finishes").expect("a file");
        let text = std::fs::read_to_string(path).expect("the file");
        assert!(text.len() < 5_000 && text.contains("é…,2,too long\n"), "{text}");
    }
}
