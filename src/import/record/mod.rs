//! Reads the rows of a list, in any format, as [`Record`]s.

mod biff;
mod csv;
mod hidden_rows;
mod jsonl;
mod row;
pub(super) mod workbook;

use std::fs::File;
use std::io::{self, Take};

pub(super) use self::csv::CsvFormat;
use self::csv::CsvReader;
use self::jsonl::JsonReader;
pub(super) use self::jsonl::{JsonObject, Lines, cell, is_nested, keys as json_keys};
pub(super) use self::row::{MAX_ROW, Malformed, Next, Record};
use self::workbook::SheetReader;
use super::encoding::Decoder;
use super::error::ImportError;

/// The bytes of a file as UTF-8.
type Text = Decoder<Take<File>>;

/// Reads one row after the other.
pub(super) struct RecordReader {
    file: String,
    rows: Rows,
}

enum Rows {
    Csv(CsvReader<Text>),
    Sheet(SheetReader<Text>),
    JsonLines(JsonReader<Text>),
}

impl RecordReader {
    /// `line` is the number of the first line of `text`.
    pub(super) fn csv(file: String, text: Text, format: CsvFormat, line: u64) -> Self {
        let rows = Rows::Csv(CsvReader::new(text, format, line));
        Self { file, rows }
    }

    pub(super) fn sheet(file: String, text: Text) -> Self {
        let rows = Rows::Sheet(SheetReader::new(text));
        Self { file, rows }
    }

    pub(super) fn json_lines(file: String, text: Text, keys: &[String]) -> Self {
        let rows = Rows::JsonLines(JsonReader::new(text, keys));
        Self { file, rows }
    }

    pub(super) fn next(&mut self, record: &mut Record) -> Result<Next, ImportError> {
        self.read(record).map_err(ImportError::read(&self.file))
    }

    fn read(&mut self, record: &mut Record) -> io::Result<Next> {
        match &mut self.rows {
            Rows::Csv(reader) => reader.next(record),
            Rows::Sheet(reader) => reader.next(record),
            Rows::JsonLines(reader) => reader.next(record),
        }
    }

    /// Skips the rows before the list, and expects `width` fields from there on.
    pub(super) fn skip_header(&mut self, rows: usize, width: usize) -> Result<(), ImportError> {
        let mut record = Record::default();
        for _ in 0..rows {
            self.next(&mut record)?;
        }
        match &mut self.rows {
            Rows::Csv(reader) => reader.expect_width(width),
            Rows::Sheet(reader) => reader.expect_width(width),
            Rows::JsonLines(_) => {}
        }
        Ok(())
    }

    /// Returns how many bytes of the file were read, approximately.
    pub(super) fn consumed(&self) -> u64 {
        match &self.rows {
            Rows::Csv(reader) => {
                let decoded = reader.source().decoded_bytes();
                decoded.unwrap_or_else(|| reader.consumed())
            }
            Rows::Sheet(reader) => reader.consumed(),
            Rows::JsonLines(reader) => reader.consumed(),
        }
    }
}
