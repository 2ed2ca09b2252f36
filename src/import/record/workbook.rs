//! Workbooks: XLSX, XLSB, XLS and ODS. One sheet is copied to a temporary CSV file, whose first columns are
//! the row number and a fault of the row. Numbers are written without an exponent, dates as dates. XLSX
//! and XLSB are read as a stream; of XLS and ODS all cells are in memory, so their size is limited.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};

use calamine::{
    Data, ExcelDateTime, Ods, OdsError, Reader, SheetType, SheetVisible, Xls, XlsError, Xlsb,
    XlsbError, Xlsx, XlsxError,
};
use smsq_message::text::{counted, did_you_mean, listed};
use smsq_process::jobs::{Interruptible, Until};
use zip::ZipArchive;
use zip::result::ZipError;

use super::biff::{XlsSheets, xlsb_hidden_rows};
use super::csv::{CsvFormat, CsvReader};
use super::hidden_rows::{HiddenRows, OdsSheets};
use super::row::{MAX_ROW, Malformed, Next, Record};
use super::{RowLayout, Rows, TextFile};
use crate::encoding::Encoding;
use crate::error::{DAMAGED, ImportError, Rejection, zip_reason};

/// The largest XLS workbook, and the largest part of an ODS or XLSB one: all of it is held in memory.
const MAX_HELD: u64 = 96 << 20;
/// The most bytes of shared texts of an XLSX workbook, also held in memory.
const MAX_SHARED: u64 = 256 << 20;
/// The largest other part of an XLSX workbook, which is streamed.
const MAX_STREAMED: u64 = 8 << 30;
/// The most memory for the cells of an XLS or ODS workbook, with the empty ones between them.
const MAX_CELLS: u64 = 512 << 20;
/// The largest sheet of any spreadsheet program.
const MAX_COLUMNS: u32 = 1 << 14;
const MAX_ROWS: u32 = 1 << 20;
/// The most empty cells before others in their rows, in a whole sheet.
const MAX_GAPS: usize = 1 << 27;
/// The most bytes of the CSV file: cells with the same text are stored once in a workbook.
const MAX_CSV: u64 = 4 << 30;
/// The fault of a row with more bytes than a row may have; none of its cells is kept.
const TOO_LONG: &str = "too long";

type WorkbookFile = BufReader<Interruptible<File>>;

/// A workbook, and until when it may be read.
pub(super) struct BookFile<'a> {
    pub(super) file: &'a File,
    pub(super) until: &'a Until,
}

/// Why a workbook cannot be read.
pub(super) enum WorkbookError {
    Protected,
    TooLarge(&'static str),
    NoSheet(Vec<String>),
    Other(String),
}

impl WorkbookError {
    fn damaged() -> Self {
        Self::Other(DAMAGED.to_owned())
    }
}

impl From<io::Error> for WorkbookError {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<ZipError> for WorkbookError {
    fn from(error: ZipError) -> Self {
        zip_reason(&error).map_or(Self::Protected, Self::Other)
    }
}

macro_rules! failure_from {
    ($($error:ident),*) => {$(
        impl From<$error> for WorkbookError {
            fn from(error: $error) -> Self {
                match error {
                    $error::Password => Self::Protected,
                    other => Self::Other(other.to_string()),
                }
            }
        }
    )*};
}
failure_from!(XlsxError, XlsError, XlsbError, OdsError);

/// Copies the sheet with this name or number to a file; also returns a note which sheet it is and what was left out.
pub(super) type CopySheet = fn(&BookFile<'_>, Option<&str>) -> Copied;
type Copied = Result<SheetCopy, WorkbookError>;

/// A sheet that was copied.
pub(super) struct SheetCopy {
    file: File,
    note: String,
    /// The names of all sheets of its workbook.
    sheets: Vec<String>,
}

/// Copies a sheet to a temporary file.
pub(super) fn open(
    file: &BookFile<'_>,
    name: &str,
    sheet: Option<&str>,
    copy: CopySheet,
) -> Result<(TextFile, RowLayout), ImportError> {
    // calamine can panic on damaged files.
    let copied = catch_unwind(AssertUnwindSafe(|| copy(file, sheet)));
    let SheetCopy { file, note, sheets } = copied
        .unwrap_or_else(|_| Err(WorkbookError::damaged()))
        .map_err(|error| explain(error, name, sheet))?;
    let text = TextFile {
        length: file.metadata().map_err(ImportError::read(name))?.len(),
        file,
        name: name.to_owned(),
        encoding: Encoding::UTF8,
        start: 0,
    };
    let layout = RowLayout {
        description: format!("workbook, {note}"),
        delimiter: Some(b','),
        sheet: Some(note),
        sheets,
        rows: Box::new(|source| Box::new(SheetReader::new(source))),
    };
    Ok((text, layout))
}

fn explain(error: WorkbookError, name: &str, sheet: Option<&str>) -> ImportError {
    match error {
        WorkbookError::Protected => ImportError::protected(name),
        WorkbookError::TooLarge(what) => ImportError::hinted(
            format!("workbook `{name}` is too large: {what}"),
            "save the sheet as CSV: a CSV file can have any size",
        ),
        WorkbookError::NoSheet(sheets) => {
            let sheet = sheet.unwrap_or_default();
            let names = || sheets.iter().map(String::as_str);
            let hint = did_you_mean(sheet, names());
            ImportError::hinted(
                format!("unknown sheet `{sheet}` in `{name}`"),
                hint.unwrap_or_else(|| format!("its sheets are {}", listed(names()))),
            )
        }
        WorkbookError::Other(reason) => ImportError::hinted(
            format!("cannot read workbook `{name}`: {reason}"),
            "save the sheet as CSV and import that",
        ),
    }
}

fn source(book: &BookFile<'_>) -> io::Result<WorkbookFile> {
    let mut source = book.file.try_clone()?;
    source.rewind()?;
    let source = book.until.reading(source);
    Ok(BufReader::with_capacity(1 << 16, source))
}

pub(super) fn copy_xlsx(file: &BookFile<'_>, sheet: Option<&str>) -> Copied {
    let mut archive = ZipArchive::new(source(file)?)?;
    check_parts(&mut archive, |part| {
        if part.ends_with("sharedStrings.xml") { MAX_SHARED } else { MAX_STREAMED }
    })?;
    let mut book = Xlsx::new(source(file)?)?;
    let chosen = choose(&book, sheet)?;
    let hidden = HiddenRows::of_xlsx(&mut archive, &chosen.name);
    let mut rows = SheetWriter::new(hidden.unwrap_or_default())?;
    let mut cells = book.worksheet_cells_reader(&chosen.name)?;
    while let Some(cell) = cells.next_cell()? {
        let (row, column) = cell.get_position();
        rows.add(row, column, cell.get_value().clone().into())?;
    }
    rows.finish(&chosen)
}

pub(super) fn copy_xlsb(file: &BookFile<'_>, sheet: Option<&str>) -> Copied {
    let mut archive = ZipArchive::new(source(file)?)?;
    check_parts(&mut archive, |_| MAX_HELD)?;
    let mut book = Xlsb::new(source(file)?)?;
    let chosen = choose(&book, sheet)?;
    let hidden = xlsb_hidden_rows(&mut archive, &chosen.name)
        .ok_or_else(|| WorkbookError::Other("it has cells of an unknown kind".to_owned()))?;
    let mut rows = SheetWriter::new(hidden)?;
    let mut cells = book.worksheet_cells_reader(&chosen.name)?;
    while let Some(cell) = cells.next_cell()? {
        let (row, column) = cell.get_position();
        rows.add(row, column, cell.get_value().clone().into())?;
    }
    rows.finish(&chosen)
}

pub(super) fn copy_ods(file: &BookFile<'_>, sheet: Option<&str>) -> Copied {
    let mut archive = ZipArchive::new(source(file)?)?;
    check_parts(&mut archive, |_| MAX_HELD)?;
    let mut sheets = OdsSheets::read(&mut archive).ok_or_else(WorkbookError::damaged)?;
    check_memory(sheets.bytes)?;
    let mut book = Ods::new(source(file)?)?;
    let chosen = choose(&book, sheet)?;
    let hidden = sheets.hidden.remove(&chosen.name).unwrap_or_default();
    copy_range(&book.worksheet_range(&chosen.name)?, &chosen, hidden)
}

pub(super) fn copy_xls(file: &BookFile<'_>, sheet: Option<&str>) -> Copied {
    if file.file.metadata()?.len() > MAX_HELD {
        return Err(WorkbookError::TooLarge("an XLS workbook can have 96 MiB"));
    }
    let mut compound =
        cfb::CompoundFile::open(source(file)?).map_err(|_| WorkbookError::damaged())?;
    // An encrypted XLSX workbook is one stream of a compound file.
    if compound.is_stream("/EncryptedPackage") {
        return Err(WorkbookError::Protected);
    }
    let mut sheets = XlsSheets::read(&mut compound).ok_or_else(WorkbookError::damaged)?;
    check_memory(sheets.bytes)?;
    let mut book = Xls::new(source(file)?)?;
    let chosen = choose(&book, sheet)?;
    let hidden = sheets.hidden.get_mut(chosen.place).map(std::mem::take);
    let range = book.worksheet_range(&chosen.name)?;
    copy_range(&range, &chosen, hidden.unwrap_or_default())
}

fn check_memory(bytes: u64) -> Result<(), WorkbookError> {
    if bytes <= MAX_CELLS {
        return Ok(());
    }
    Err(WorkbookError::TooLarge(
        "its cells, with the empty ones between them, do not fit in memory",
    ))
}

/// Unpacks every part that will be read, because the stated sizes need not be true.
fn check_parts(
    archive: &mut ZipArchive<impl Read + Seek>,
    limit: impl Fn(&str) -> u64,
) -> Result<(), WorkbookError> {
    for index in 0..archive.len() {
        let part = match archive.by_index(index) {
            Err(ZipError::UnsupportedArchive(_)) => return Err(WorkbookError::Protected),
            part => part?,
        };
        let (limit, packed) = (limit(part.name()), part.compressed_size());
        let mut read = [".xml", ".bin", ".rels"].iter();
        if !read.any(|end| part.name().ends_with(end)) {
            continue;
        }
        let length = io::copy(&mut part.take(limit + 1), &mut io::sink())?;
        if length > limit {
            return Err(WorkbookError::TooLarge("its texts or cells do not fit in memory"));
        }
        if length > 64 << 20 && length / packed.max(1) > 500 {
            return Err(WorkbookError::TooLarge("it unpacks to more than 500 times its size"));
        }
    }
    Ok(())
}

/// How many other sheets are named.
const MAX_NAMED: usize = 5;

struct Chosen {
    name: String,
    /// Among all sheets, from 0.
    place: usize,
    all: Vec<String>,
    /// The other visible sheets, if none was asked for.
    others: Vec<String>,
}

fn choose<R: Reader<WorkbookFile>>(book: &R, asked: Option<&str>) -> Result<Chosen, WorkbookError> {
    let sheets = book.sheets_metadata();
    let tables = || {
        let sheets = sheets.iter().enumerate();
        sheets.filter(|(_, sheet)| sheet.typ == SheetType::WorkSheet)
    };
    let visible = || tables().filter(|(_, sheet)| sheet.visible == SheetVisible::Visible);
    let found = match asked {
        Some(asked) => tables()
            .find(|(_, sheet)| sheet.name == asked)
            .or_else(|| tables().nth(asked.parse::<usize>().ok()?.checked_sub(1)?)),
        None => visible().next().or_else(|| tables().next()),
    };
    let Some((place, found)) = found else {
        let names = tables().map(|(_, sheet)| sheet.name.clone());
        return Err(WorkbookError::NoSheet(names.collect()));
    };
    Ok(Chosen {
        name: found.name.clone(),
        place,
        all: tables().map(|(_, sheet)| sheet.name.clone()).collect(),
        others: match asked {
            Some(_) => Vec::new(),
            None => visible()
                .filter(|(at, _)| *at != place)
                .map(|(_, sheet)| sheet.name.clone())
                .collect(),
        },
    })
}

impl Chosen {
    fn note(&self, hidden: u64) -> String {
        let others = match self.others.as_slice() {
            [] => String::new(),
            others => {
                let named = others.iter().take(MAX_NAMED).map(String::as_str);
                let more = if others.len() > MAX_NAMED { ", …" } else { "" };
                format!(", not {}{more} (`--sheet NAME` selects one)", listed(named))
            }
        };
        let hidden = match hidden {
            0 => String::new(),
            hidden => format!(", {} left out", counted(hidden, "hidden row")),
        };
        format!("sheet `{}`{others}{hidden}", self.name)
    }
}

/// Writes rows to the temporary CSV file.
struct SheetWriter {
    csv: csv::Writer<File>,
    hidden: HiddenRows,
    /// Hidden rows that were left out.
    left_out: u64,
    written: u64,
    gaps: usize,
    /// The current row.
    row: Option<u32>,
    cells: Vec<String>,
    /// Bytes of the cells of the current row.
    size: usize,
    fault: String,
}

impl SheetWriter {
    fn new(hidden: HiddenRows) -> io::Result<Self> {
        let mut csv = csv::WriterBuilder::new();
        csv.flexible(true).buffer_capacity(1 << 18);
        Ok(Self {
            csv: csv.from_writer(tempfile::tempfile()?),
            hidden,
            left_out: 0,
            written: 0,
            gaps: 0,
            row: None,
            cells: Vec::new(),
            size: 0,
            fault: String::new(),
        })
    }

    fn add(&mut self, row: u32, column: u32, value: Data) -> Result<(), WorkbookError> {
        let error = match &value {
            Data::Error(error) => Some(error.to_string()),
            _ => None,
        };
        let cell = cell_text(value);
        if cell.is_empty() {
            return Ok(());
        }
        if column >= MAX_COLUMNS || row >= MAX_ROWS {
            return Err(WorkbookError::TooLarge("it has a cell beyond column XFD or row 1048576"));
        }
        if self.row != Some(row) {
            if self.row.is_some_and(|current| row < current) {
                return Err(WorkbookError::Other("its rows are out of order".to_owned()));
            }
            self.end_row()?;
            self.row = Some(row);
        }
        if let (Some(error), true) = (error, self.fault.is_empty()) {
            let name = column_name(column);
            self.fault = format!("cell {name}{} has a formula error, {error}", row + 1);
        }
        self.size += cell.len();
        if self.size > MAX_ROW {
            return Ok(());
        }
        let column = column as usize;
        if self.cells.len() <= column {
            self.gaps += column - self.cells.len();
            if self.gaps > MAX_GAPS {
                return Err(WorkbookError::TooLarge(
                    "it has too many empty cells between the others",
                ));
            }
            self.cells.resize(column + 1, String::new());
        }
        self.cells[column] = cell;
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), WorkbookError> {
        if let Some(row) = self.row {
            if self.size > MAX_ROW {
                self.cells.clear();
                TOO_LONG.clone_into(&mut self.fault);
            }
            if self.hidden.contains(row) {
                self.left_out += 1;
            } else {
                let line = (row + 1).to_string();
                let start = [line.as_str(), &self.fault].into_iter();
                let fields = start.chain(self.cells.iter().map(String::as_str));
                let written = self.csv.write_record(fields);
                written.map_err(|error| WorkbookError::Other(error.to_string()))?;
                self.written += (self.size + self.cells.len()) as u64;
            }
        }
        if self.written > MAX_CSV {
            return Err(WorkbookError::TooLarge("its rows are more than 4 GiB"));
        }
        self.fault.clear();
        self.cells.clear();
        self.size = 0;
        Ok(())
    }

    fn finish(mut self, chosen: &Chosen) -> Copied {
        self.end_row()?;
        let unwritten =
            |error: csv::IntoInnerError<_>| WorkbookError::Other(error.error().to_string());
        let file = self.csv.into_inner().map_err(unwritten)?;
        Ok(SheetCopy { file, note: chosen.note(self.left_out), sheets: chosen.all.clone() })
    }
}

fn copy_range(range: &calamine::Range<Data>, chosen: &Chosen, hidden: HiddenRows) -> Copied {
    let mut rows = SheetWriter::new(hidden)?;
    let (top, left) = range.start().unwrap_or_default();
    let place =
        |start: u32, index: usize| start.saturating_add(index.try_into().unwrap_or(u32::MAX));
    for (row, column, value) in range.used_cells() {
        rows.add(place(top, row), place(left, column), value.clone())?;
    }
    rows.finish(chosen)
}

/// Returns what a person sees in a cell, except that numbers are not formatted.
fn cell_text(value: Data) -> String {
    match value {
        Data::String(text) => text,
        Data::Float(number) => number.to_string(),
        Data::Bool(true) => "TRUE".to_owned(),
        Data::Bool(false) => "FALSE".to_owned(),
        Data::DateTime(at) => date(at),
        Data::DateTimeIso(text) => {
            let text = text.strip_suffix("T00:00:00").unwrap_or(&text);
            text.replace('T', " ")
        }
        Data::Empty => String::new(),
        other => other.to_string(),
    }
}

fn date(at: ExcelDateTime) -> String {
    /// The serial number of the last day of the year 9999.
    const LAST_DAY: f64 = 2_958_466.0;
    let serial = at.as_f64();
    // A phone in a column that is formatted as dates is still a phone.
    if !(0.0..LAST_DAY).contains(&serial) {
        return serial.to_string();
    }
    let (year, month, day, hour, minute, second, _) = at.to_ymd_hms_milli();
    let mut time = format!("{hour:02}:{minute:02}");
    if second > 0 {
        time = format!("{time}:{second:02}");
    }
    if serial < 1.0 || at.is_duration() {
        return time;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    match (hour, minute, second) {
        (0, 0, 0) => date,
        _ => format!("{date} {time}"),
    }
}

/// Returns the name of a column: `A` for 0, `AA` for 26.
fn column_name(column: u32) -> String {
    let mut left = column + 1;
    let mut letters = Vec::new();
    while left > 0 {
        left -= 1;
        let letter = u8::try_from(left % 26).unwrap_or_default();
        letters.push(char::from(b'A' + letter));
        left /= 26;
    }
    letters.iter().rev().collect()
}

/// Reads the rows of the temporary CSV file.
struct SheetReader<R> {
    csv: CsvReader<R>,
    /// Rows are filled up to this width: a sheet has no empty cells at the end of a row.
    width: usize,
}

impl<R: Read> SheetReader<R> {
    fn new(source: R) -> Self {
        let format = CsvFormat { delimiter: b',', terminator: b'\n' };
        let mut csv = CsvReader::new(source, format);
        // The writer has limited the cells; quotes and commas are in addition.
        csv.max_row = 4 * MAX_ROW;
        Self { csv, width: 0 }
    }
}

impl<R: Read + Send> Rows for SheetReader<R> {
    fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        let next = self.csv.next(record)?;
        let mut fields = record.raw().map(String::from_utf8_lossy);
        let (Next::Row, Some(line), Some(fault)) = (&next, fields.next(), fields.next()) else {
            return Ok(next);
        };
        let (line, fault) = (line.parse(), fault.into_owned());
        drop(fields);
        record.line = line.map_err(io::Error::other)?;
        record.remove_first(2);
        if fault == TOO_LONG {
            record.push(b"");
            return Ok(Next::Malformed(Malformed::TooLong));
        }
        while record.len() < self.width {
            record.push(b"");
        }
        Ok(match fault.as_str() {
            "" => Next::Row,
            _ => Next::Unusable(Rejection::new("formula error", fault)),
        })
    }

    fn set_width(&mut self, width: usize) {
        self.width = width;
    }
}

#[cfg(test)]
#[path = "workbook_tests.rs"]
mod tests;
