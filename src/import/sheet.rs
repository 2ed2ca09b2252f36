//! The rows of a sheet, kept in a file of their own between the workbook and the import: a workbook is
//! slow to read and is read once, however often its rows are asked for.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use super::reader::{LONGEST, Malformed, Next, Record};
use super::rejection::Rejection;
use super::spool;

/// Bytes of all rows: cells that share one text are written out here.
const MOST: u64 = 4 << 30;
/// In place of the length of the fault: the row is too long, and nothing of it was kept.
const TOO_LONG: u32 = u32::MAX;

/// Writes rows.
pub(super) struct SheetWriter {
    target: BufWriter<File>,
    written: u64,
}

impl SheetWriter {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            target: BufWriter::with_capacity(1 << 18, spool::empty()?),
            written: 0,
        })
    }

    /// A row; `fault` is the reason why it cannot be used, if there is one.
    pub(super) fn write(&mut self, line: u64, fault: &str, cells: &[String]) -> io::Result<()> {
        self.bytes(&line.to_le_bytes())?;
        self.text(fault)?;
        self.count(cells.len())?;
        cells.iter().try_for_each(|cell| self.text(cell))
    }

    /// A row whose cells are more than a row may have.
    pub(super) fn write_too_long(&mut self, line: u64) -> io::Result<()> {
        self.bytes(&line.to_le_bytes())?;
        self.bytes(&TOO_LONG.to_le_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        if self.written > MOST {
            return Err(io::Error::other("its rows are more than 4 GiB"));
        }
        self.target.write_all(bytes)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.count(text.len())?;
        self.bytes(text.as_bytes())
    }

    fn count(&mut self, count: usize) -> io::Result<()> {
        let count = u32::try_from(count).map_err(io::Error::other)?;
        self.bytes(&count.to_le_bytes())
    }

    pub(super) fn finish(self) -> io::Result<File> {
        let mut file = self
            .target
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }
}

/// Reads them again.
pub(super) struct Sheet {
    source: BufReader<File>,
    width: usize,
    read: u64,
}

impl Sheet {
    pub(super) fn new(file: File) -> Self {
        Self {
            source: BufReader::with_capacity(1 << 16, file),
            width: 0,
            read: 0,
        }
    }

    /// Rows are filled up to this width: a sheet does not say where its empty cells end.
    pub(super) fn expect_width(&mut self, width: usize) {
        self.width = width;
    }

    pub(super) fn consumed(&self) -> u64 {
        self.read
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        let mut line = [0; 8];
        record.clear();
        match self.source.read_exact(&mut line) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Next::End),
            ended => ended?,
        }
        self.read += 8;
        record.line = u64::from_le_bytes(line);
        let mut cell = Vec::new();
        let length = self.count()?;
        if length == TOO_LONG {
            record.push(b"");
            return Ok(Next::Malformed(Malformed::TooLong));
        }
        self.text_of(length, &mut cell)?;
        let fault = String::from_utf8_lossy(&cell).into_owned();
        let mut size = 0;
        for _ in 0..self.count()? {
            self.text(&mut cell)?;
            size += cell.len();
            record.push(&cell);
        }
        if size > LONGEST {
            record.clear();
            record.push(b"");
            return Ok(Next::Malformed(Malformed::TooLong));
        }
        while record.len() < self.width {
            record.push(b"");
        }
        Ok(if fault.is_empty() {
            Next::Row
        } else {
            Next::Unusable(Rejection::new("a formula error", fault))
        })
    }

    fn text(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let length = self.count()?;
        self.text_of(length, text)
    }

    fn text_of(&mut self, length: u32, text: &mut Vec<u8>) -> io::Result<()> {
        text.clear();
        let read = (&mut self.source).take(length.into()).read_to_end(text)?;
        self.read += read as u64;
        Ok(())
    }

    fn count(&mut self) -> io::Result<u32> {
        let mut count = [0; 4];
        self.source.read_exact(&mut count)?;
        self.read += 4;
        Ok(u32::from_le_bytes(count))
    }
}
