//! The formats of lists, each of which is a module and a row of [`FORMATS`]. All read rows as [`Record`]s.

mod biff;
mod csv;
mod hidden_rows;
mod jsonl;
mod row;
mod workbook;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use smsq_process::jobs::Until;

pub(super) use self::jsonl::LineReader;
pub use self::jsonl::{JsonObject, cell, is_nested};
pub(super) use self::row::{MAX_ROW, Malformed, Next, Record};
use super::encoding::{Decoder, Encoding};
use super::error::ImportError;
use workbook::BookFile;

/// How much is read to recognize the format of a list and its delimiter, in bytes.
const HEAD: u64 = 8 * 1024;

/// The name of a format, whether a list that begins like this has it, and how it is opened.
type ListFormat = (&'static str, fn(&FileHead) -> bool, Open);

enum Open {
    /// Copies a sheet to a temporary file.
    Sheet(workbook::CopySheet),
    Text(OpenText),
}

/// Finds how the rows of a text are read from its beginning and `--delimiter`.
type OpenText = fn(&TextFile, &[u8], Option<u8>) -> Result<RowLayout, ImportError>;

/// All formats. The first one that matches is used: workbooks are recognized by the bytes of the file, the others by
/// its text.
#[rustfmt::skip]
const FORMATS: [ListFormat; 6] = [
    ("XLSX", |head| head.has_office_part("workbook.xml"), Open::Sheet(workbook::copy_xlsx)),
    ("XLSB", |head| head.has_office_part("workbook.bin"), Open::Sheet(workbook::copy_xlsb)),
    ("XLS", |head| head.bytes.starts_with(b"\xd0\xcf\x11\xe0"), Open::Sheet(workbook::copy_xls)),
    ("ODS", |head| head.mimetype.contains("opendocument.spreadsheet"), Open::Sheet(workbook::copy_ods)),
    ("JSON lines", |head| head.bytes.trim_ascii_start().starts_with(b"{"), Open::Text(jsonl::open)),
    ("CSV", |_| true, Open::Text(csv::open)),
];

/// Names the formats for help texts: `XLSX, ODS or CSV`.
pub fn formats() -> String {
    let names = FORMATS.map(|(name, ..)| name);
    let [first @ .., last] = &names;
    format!("{} or {last}", first.join(", "))
}

/// The beginning of a file or of its text.
#[derive(Default)]
pub(super) struct FileHead {
    pub(super) bytes: Vec<u8>,
    /// The entries of a zip archive.
    pub(super) entries: Vec<String>,
    /// The content of entry `mimetype`.
    pub(super) mimetype: String,
}

impl FileHead {
    pub(super) fn read(source: impl Read) -> io::Result<Self> {
        let mut head = Self::default();
        source.take(HEAD).read_to_end(&mut head.bytes)?;
        Ok(head)
    }

    fn has_office_part(&self, name: &str) -> bool {
        let has = |name: &str| self.entries.iter().any(|entry| entry.ends_with(name));
        has("[Content_Types].xml") && has(name)
    }
}

/// The text of a list: a file, or the rows of a sheet that were copied to one.
#[derive(Debug)]
pub(super) struct TextFile {
    pub(super) file: File,
    /// What messages call the list.
    pub(super) name: String,
    pub(super) encoding: Encoding,
    /// Bytes before the text: a byte order mark.
    pub(super) start: u64,
    /// Bytes when it was opened; it may grow.
    pub(super) length: u64,
}

impl TextFile {
    /// Returns the text from the start on.
    pub(super) fn decode(&self) -> io::Result<DecodedFile> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(self.start))?;
        let left = self.length.saturating_sub(self.start);
        Ok(Decoder::new(file.take(left), self.encoding))
    }
}

/// The bytes of a file as UTF-8.
pub(super) type DecodedFile = Decoder<io::Take<File>>;

/// Reads the rows of a list from the header on.
pub(super) trait Rows: Send {
    fn next(&mut self, record: &mut Record) -> io::Result<Next>;

    /// Sets how many fields the header has.
    fn set_width(&mut self, _: usize) {}
}

type OpenRows = dyn Fn(DecodedFile) -> Box<dyn Rows> + Send + Sync;

/// How the rows of a list are read.
pub(super) struct RowLayout {
    /// ``CSV in GB18030, `;` between the fields``
    pub(super) description: String,
    /// Between fields. `None`: each row names its fields, as in JSON lines.
    pub(super) delimiter: Option<u8>,
    /// Which sheet of a workbook it is, and what was left out.
    pub(super) sheet: Option<String>,
    /// The names of all sheets of a workbook.
    pub(super) sheets: Vec<String>,
    rows: Box<OpenRows>,
}

impl fmt::Debug for RowLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)
    }
}

impl RowLayout {
    /// Finds how a text is read.
    pub(super) fn of_text(text: &TextFile, delimiter: Option<u8>) -> Result<Self, ImportError> {
        let unreadable = ImportError::read(&text.name);
        let head = FileHead::read(text.decode().map_err(unreadable)?).map_err(unreadable)?;
        let open = FORMATS.iter().find_map(|(_, matches, open)| match open {
            Open::Text(open) if matches(&head) => Some(open),
            _ => None,
        });
        open.expect("any text can be CSV")(text, &head.bytes, delimiter)
    }

    /// Copies a sheet, by default the first visible one, to a temporary file. Returns `None` if a file that begins like
    /// this is not a workbook.
    pub(super) fn of_workbook(
        file: &File,
        head: &FileHead,
        name: &str,
        sheet: Option<&str>,
        until: &Until,
    ) -> Result<Option<(TextFile, Self)>, ImportError> {
        let copy = FORMATS.iter().find_map(|(_, matches, open)| match open {
            Open::Sheet(copy) if matches(head) => Some(*copy),
            _ => None,
        });
        let book = BookFile { file, until };
        copy.map(|copy| workbook::open(&book, name, sheet, copy)).transpose()
    }

    /// Opens the rows of `text` from the header on.
    pub(super) fn records(&self, text: &TextFile) -> Result<RecordReader, ImportError> {
        let unreadable = ImportError::read(&text.name);
        Ok(RecordReader {
            list: text.name.clone(),
            file: text.file.try_clone().map_err(unreadable)?,
            rows: (self.rows)(text.decode().map_err(unreadable)?),
        })
    }
}

/// Reads one row after the other.
pub(super) struct RecordReader {
    /// The name of the list in errors.
    list: String,
    /// The file that is read; the position is that of `rows`.
    file: File,
    rows: Box<dyn Rows>,
}

impl RecordReader {
    pub(super) fn next(&mut self, record: &mut Record) -> Result<Next, ImportError> {
        self.rows.next(record).map_err(ImportError::read(&self.list))
    }

    /// Skips the rows before the list, and expects `width` fields from there on.
    pub(super) fn skip_header(&mut self, rows: usize, width: usize) -> Result<(), ImportError> {
        let mut record = Record::default();
        for _ in 0..rows {
            self.next(&mut record)?;
        }
        self.rows.set_width(width);
        Ok(())
    }

    /// Returns how many bytes of the file were read. Readers read up to 64 KiB ahead.
    pub(super) fn consumed(&mut self) -> Result<u64, ImportError> {
        self.file.stream_position().map_err(ImportError::read(&self.list))
    }
}
