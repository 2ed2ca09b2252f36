//! Workbooks: XLSX, XLSB, XLS and ODS. One sheet becomes rows. A phone that the spreadsheet took for a number
//! is an integer again and a date is a date; a row with a formula error cannot be used. XLSX and XLSB sheets
//! are read as a stream; of the others the library holds all cells, so that they may not be many.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use calamine::{
    Cell, CellErrorType, Data, DataRef, Ods, OdsError, Reader, SheetType, SheetVisible, Xls,
    XlsError, Xlsb, XlsbError, Xlsx, XlsxError,
};
use zip::ZipArchive;

use super::cells::{letters, shown};
use super::error::ImportError;
use super::hidden::{self, Compound, Hidden};
use super::reader::LONGEST;
use super::sheet::SheetWriter;
use super::unpack::in_words;
use crate::text::{closest, listed};

/// Bytes of an old workbook, and of what is in an ODS or XLSB one: all of it is held in memory.
const HELD: u64 = 96 << 20;
/// Bytes of the texts that the sheets of an XLSX workbook share, likewise.
const SHARED: u64 = 256 << 20;
/// Bytes of one part of an XLSX workbook, which is only read through.
const STREAMED: u64 = 8 << 30;
/// Bytes of the cells of an XLS or ODS workbook, with the empty ones between them.
const CELLS: u64 = 512 << 20;
/// Columns and rows of the largest sheet that a spreadsheet can have.
const COLUMNS: u32 = 1 << 14;
const ROWS: u32 = 1 << 20;
/// Empty cells before others in their rows, in a whole sheet.
const GAPS: usize = 1 << 27;

/// A sheet that was read.
pub(super) struct SheetRows {
    pub(super) rows: File,
    /// What the operator should know of it.
    pub(super) note: String,
}

type Source = BufReader<File>;

/// Why a workbook gave no rows.
enum Fault {
    Io(io::Error),
    Protected,
    TooLarge(&'static str),
    NoSheet(Vec<String>),
    Other(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

macro_rules! fault_from {
    ($($error:ident),*) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                match error {
                    $error::Io(error) => Self::Io(error),
                    $error::Password => Self::Protected,
                    other => Self::Other(other.to_string()),
                }
            }
        }
    )*};
}
fault_from!(XlsxError, XlsError, XlsbError, OdsError);

/// Reads the sheet of that name or number, or the first one that is not hidden.
pub(super) fn read(file: &File, name: &str, sheet: Option<&str>) -> Result<SheetRows, ImportError> {
    // The libraries meet files of all the world; what they stumble over is a fault of the file.
    let outcome = catch_unwind(AssertUnwindSafe(|| rows(file, sheet)));
    let fault = match outcome {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(fault)) => fault,
        Err(_) => Fault::Other("it is damaged".to_owned()),
    };
    let file = name.to_owned();
    Err(match fault {
        Fault::Io(source) => ImportError::Workbook {
            file,
            reason: source.to_string(),
        },
        Fault::Protected => ImportError::Protected { file },
        Fault::TooLarge(what) => ImportError::TooLarge { file, what },
        Fault::NoSheet(sheets) => ImportError::NoSheet {
            file,
            sheet: sheet.unwrap_or_default().to_owned(),
            closest: closest(sheet.unwrap_or_default(), sheets.iter().map(String::as_str)),
            sheets: listed(sheets.iter().map(String::as_str)),
        },
        Fault::Other(reason) => ImportError::Workbook { file, reason },
    })
}

fn rows(file: &File, sheet: Option<&str>) -> Result<SheetRows, Fault> {
    let mut source = file.try_clone()?;
    source.rewind()?;
    let mut magic = [0; 4];
    source.read_exact(&mut magic)?;
    source.rewind()?;
    let source = BufReader::with_capacity(1 << 16, source);
    if &magic != b"PK\x03\x04" {
        return old(source, file.metadata()?.len(), sheet);
    }
    let mut archive = ZipArchive::new(BufReader::new(file.try_clone()?))
        .map_err(|error| Fault::Other(in_words(&error)))?;
    let has = |part: &str| archive.file_names().any(|name| name.ends_with(part));
    if has("workbook.bin") {
        check_size(&mut archive, |_| HELD)?;
        let mut book = Xlsb::new(source)?;
        let chosen = choose(&book, sheet)?;
        let unread = || Fault::Other("it has cells of an unusual kind".to_owned());
        let hidden = Hidden::of_xlsb(&mut archive, &chosen.name).ok_or_else(unread)?;
        let mut cells = book.worksheet_cells_reader(&chosen.name)?;
        let mut rows = Rows::new(hidden)?;
        while let Some(cell) = cells.next_cell()? {
            rows.take(&cell)?;
        }
        return rows.finish(&chosen);
    }
    if has("workbook.xml") {
        let most = |part: &str| {
            if part.ends_with("sharedStrings.xml") {
                SHARED
            } else {
                STREAMED
            }
        };
        let hides = check_size(&mut archive, most)?;
        let mut book = Xlsx::new(source)?;
        let chosen = choose(&book, sheet)?;
        let hidden = if hides {
            Hidden::of_xlsx(&mut archive, &chosen.name)
        } else {
            Hidden::default()
        };
        let mut cells = book.worksheet_cells_reader(&chosen.name)?;
        let mut rows = Rows::new(hidden)?;
        while let Some(cell) = cells.next_cell()? {
            rows.take(&cell)?;
        }
        return rows.finish(&chosen);
    }
    check_size(&mut archive, |_| HELD)?;
    check_cells(hidden::cells_of_ods(&mut archive))?;
    let mut book = Ods::new(source)?;
    let chosen = choose(&book, sheet)?;
    let hidden = Hidden::of_ods(&mut archive, &chosen.name);
    held(&book.worksheet_range(&chosen.name)?, &chosen, hidden)
}

fn old(mut source: Source, bytes: u64, sheet: Option<&str>) -> Result<SheetRows, Fault> {
    if bytes > HELD {
        return Err(Fault::TooLarge("old workbooks may have 96 MiB"));
    }
    let damaged = |_| Fault::Other("it is damaged or cut off".to_owned());
    let mut compound = Compound::open(source.get_ref().try_clone()?).map_err(damaged)?;
    // A workbook that is encrypted lies whole in one stream.
    if compound.is_stream("/EncryptedPackage") {
        return Err(Fault::Protected);
    }
    check_cells(hidden::cells_of_xls(&mut compound))?;
    source.rewind()?;
    let mut book = Xls::new(source)?;
    let chosen = choose(&book, sheet)?;
    let hidden = Hidden::of_xls(&mut compound, chosen.place);
    held(&book.worksheet_range(&chosen.name)?, &chosen, hidden)
}

/// Refuses a workbook whose cells would take more memory than there may be; `None`: it cannot be known.
fn check_cells(bytes: Option<u64>) -> Result<(), Fault> {
    match bytes {
        Some(bytes) if bytes <= CELLS => Ok(()),
        Some(_) => Err(Fault::TooLarge(
            "its cells, with the empty ones between them, are more than can be held in memory",
        )),
        None => Err(Fault::Other("it is damaged or cut off".to_owned())),
    }
}

/// Unpacks every part that will be read, because what an archive says of its sizes need not be true.
/// Gives back whether anything in it may be hidden.
fn check_size(
    archive: &mut ZipArchive<impl Read + Seek>,
    most: impl Fn(&str) -> u64,
) -> Result<bool, Fault> {
    let mut watch = Watch::default();
    for index in 0..archive.len() {
        let part = match archive.by_index(index) {
            Ok(part) => part,
            Err(zip::result::ZipError::UnsupportedArchive(_)) => return Err(Fault::Protected),
            Err(error) => return Err(Fault::Other(in_words(&error))),
        };
        let is_read = [".xml", ".bin", ".rels"]
            .iter()
            .any(|end| part.name().ends_with(end));
        let (most, packed) = (most(part.name()), part.compressed_size());
        if !is_read {
            continue;
        }
        let length = io::copy(&mut part.take(most + 1), &mut watch)?;
        if length > most {
            return Err(Fault::TooLarge(
                "its texts or cells are more than can be held in memory",
            ));
        }
        if length > 64 << 20 && length / packed.max(1) > 500 {
            return Err(Fault::TooLarge("it grows to more than 500 times its size"));
        }
    }
    Ok(watch.found)
}

/// Looks for the word `hidden` in what is written.
#[derive(Default)]
struct Watch {
    tail: Vec<u8>,
    found: bool,
}

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const WORD: &[u8] = b" hidden=";
        if !self.found {
            self.tail
                .extend_from_slice(&bytes[..bytes.len().min(WORD.len())]);
            let has = |text: &[u8]| text.windows(WORD.len()).any(|window| window == WORD);
            self.found = has(&self.tail) || has(bytes);
            self.tail = bytes[bytes.len().saturating_sub(WORD.len())..].to_vec();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Chosen {
    name: String,
    /// Among all sheets, from 0.
    place: usize,
    others: usize,
}

fn choose<R: Reader<Source>>(book: &R, asked: Option<&str>) -> Result<Chosen, Fault> {
    let sheets = book.sheets_metadata();
    let tables = || {
        sheets
            .iter()
            .filter(|sheet| sheet.typ == SheetType::WorkSheet)
    };
    let visible = || tables().filter(|sheet| sheet.visible == SheetVisible::Visible);
    let found = match asked {
        Some(asked) => tables()
            .find(|sheet| sheet.name == asked)
            .or_else(|| tables().nth(asked.parse::<usize>().ok()?.checked_sub(1)?)),
        None => visible().next().or_else(|| tables().next()),
    };
    let place = |name: &str| sheets.iter().position(|sheet| sheet.name == name);
    let Some(found) = found else {
        return Err(Fault::NoSheet(
            tables().map(|sheet| sheet.name.clone()).collect(),
        ));
    };
    Ok(Chosen {
        name: found.name.clone(),
        place: place(&found.name).unwrap_or_default(),
        others: if asked.is_some() {
            0
        } else {
            visible().count().saturating_sub(1)
        },
    })
}

impl Chosen {
    fn note(&self, hidden: u64) -> String {
        let mut note = format!("sheet `{}`", self.name);
        match self.others {
            0 => {}
            1 => note.push_str(", there is another one (`--sheet NAME` takes it)"),
            others => {
                let _ = write!(
                    note,
                    ", there are {others} others (`--sheet NAME` takes one)"
                );
            }
        }
        match hidden {
            0 => {}
            1 => note.push_str(", 1 hidden row left out"),
            hidden => {
                let _ = write!(note, ", {hidden} hidden rows left out");
            }
        }
        note
    }
}

/// The cells of one row, as they come.
struct Rows {
    writer: SheetWriter,
    hidden: Hidden,
    row: Option<u32>,
    next: u32,
    cells: Vec<String>,
    fault: String,
    left_out: u64,
    gaps: usize,
    /// Bytes of the row's cells.
    size: usize,
}

impl Rows {
    fn new(hidden: Hidden) -> io::Result<Self> {
        Ok(Self {
            writer: SheetWriter::new()?,
            hidden,
            row: None,
            next: 0,
            cells: Vec::new(),
            fault: String::new(),
            left_out: 0,
            gaps: 0,
            size: 0,
        })
    }

    fn take(&mut self, cell: &Cell<DataRef<'_>>) -> Result<(), Fault> {
        let error = match cell.get_value() {
            DataRef::Error(error) => Some(error),
            _ => None,
        };
        let text = match cell.get_value() {
            DataRef::SharedString(text) => (*text).to_owned(),
            DataRef::String(text) => text.clone(),
            other => shown(&Data::from(other.clone())),
        };
        self.put(cell.get_position(), text, error)
    }

    fn put(
        &mut self,
        (row, column): (u32, u32),
        cell: String,
        error: Option<&CellErrorType>,
    ) -> Result<(), Fault> {
        if cell.is_empty() {
            return Ok(());
        }
        if column >= COLUMNS || row >= ROWS {
            return Err(Fault::TooLarge(
                "it has a cell beyond column XFD or row 1048576",
            ));
        }
        if self.row != Some(row) {
            // A row is told by its number, so that there may be one of each.
            if row < self.next {
                return Err(Fault::Other("its rows are out of order".to_owned()));
            }
            self.end_row()?;
            self.row = Some(row);
            self.next = row + 1;
        }
        if let (Some(error), true) = (error, self.fault.is_empty()) {
            self.fault = format!(
                "cell {}{} holds a formula error, {error}",
                letters(column),
                row + 1
            );
        }
        // Of a row that is too long nothing more is kept.
        self.size += cell.len();
        if self.size > LONGEST {
            return Ok(());
        }
        let column = column as usize;
        if self.cells.len() <= column {
            self.gaps += column - self.cells.len();
            if self.gaps > GAPS {
                return Err(Fault::TooLarge(
                    "it has too many empty cells between the others",
                ));
            }
            self.cells.resize(column + 1, String::new());
        }
        self.cells[column] = cell;
        Ok(())
    }

    fn end_row(&mut self) -> io::Result<()> {
        if let Some(row) = self.row.take() {
            if self.hidden.has(row) {
                self.left_out += 1;
            } else if self.size > LONGEST {
                self.writer.write_too_long(u64::from(row) + 1)?;
            } else {
                self.writer
                    .write(u64::from(row) + 1, &self.fault, &self.cells)?;
            }
        }
        self.fault.clear();
        self.cells.clear();
        self.size = 0;
        Ok(())
    }

    fn finish(mut self, chosen: &Chosen) -> Result<SheetRows, Fault> {
        self.end_row()?;
        Ok(SheetRows {
            note: chosen.note(self.left_out),
            rows: self.writer.finish()?,
        })
    }
}

fn held(
    range: &calamine::Range<Data>,
    chosen: &Chosen,
    hidden: Hidden,
) -> Result<SheetRows, Fault> {
    let mut rows = Rows::new(hidden)?;
    let (top, left) = range.start().unwrap_or_default();
    for (row, column, value) in range.used_cells() {
        let error = match value {
            Data::Error(error) => Some(error),
            _ => None,
        };
        let place = (
            top + u32::try_from(row).unwrap_or(u32::MAX),
            left + u32::try_from(column).unwrap_or(u32::MAX),
        );
        rows.put(place, shown(value), error)?;
    }
    rows.finish(chosen)
}

#[cfg(test)]
#[path = "workbook_tests.rs"]
mod tests;
