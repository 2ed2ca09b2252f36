//! Reads the rows of a list, in any format, as [`Record`]s.

mod biff;
mod csv;
mod hidden_rows;
mod jsonl;
mod row;
pub(super) mod workbook;

use std::fs::File;
use std::io::Take;

pub(super) use self::csv::{CsvFormat, CsvReader};
pub use self::jsonl::{JsonObject, cell, is_nested};
pub(super) use self::jsonl::{JsonReader, LineReader, keys as json_keys};
pub(super) use self::row::{MAX_ROW, Malformed, Next, Record};
pub(super) use self::workbook::SheetReader;
use super::encoding::Decoder;
use super::error::ImportError;

/// The bytes of a file as UTF-8.
type DecodedFile = Decoder<Take<File>>;

/// Reads one row after the other.
pub(super) struct RecordReader {
    /// The name of the list in errors.
    pub(super) list: String,
    pub(super) rows: Rows,
}

/// The rows of a list from the header on.
pub(super) enum Rows {
    Csv(CsvReader<DecodedFile>),
    Sheet(SheetReader<DecodedFile>),
    JsonLines(JsonReader<DecodedFile>),
}

impl RecordReader {
    pub(super) fn next(&mut self, record: &mut Record) -> Result<Next, ImportError> {
        let next = match &mut self.rows {
            Rows::Csv(reader) => reader.next(record),
            Rows::Sheet(reader) => reader.next(record),
            Rows::JsonLines(reader) => reader.next(record),
        };
        next.map_err(ImportError::read(&self.list))
    }

    /// Skips the rows before the list, and expects `width` fields from there on.
    pub(super) fn skip_header(&mut self, rows: usize, width: usize) -> Result<(), ImportError> {
        let mut record = Record::default();
        for _ in 0..rows {
            self.next(&mut record)?;
        }
        match &mut self.rows {
            Rows::Csv(reader) => reader.width = Some(width),
            Rows::Sheet(reader) => reader.width = width,
            Rows::JsonLines(_) => {}
        }
        Ok(())
    }

    /// Returns how many bytes of the file were read, approximately.
    pub(super) fn consumed(&self) -> u64 {
        match &self.rows {
            Rows::Csv(reader) => reader.source.decoded_bytes().unwrap_or(reader.consumed),
            Rows::Sheet(reader) => reader.csv.consumed,
            Rows::JsonLines(reader) => reader.lines.consumed,
        }
    }
}
