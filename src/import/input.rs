//! The rows of a list, whatever it is: separated values, a sheet, JSON lines.

use std::fs::File;
use std::io::{self, Take};

use super::decoding::Decoding;
use super::json_lines::JsonLines;
use super::reader::{Next, Reader, Record};
use super::sheet::Sheet;

/// The bytes of a file that were there when it was opened, as UTF-8.
pub(super) type Text = Decoding<Take<File>>;

/// Gives one row after the other.
pub(super) enum Input {
    Separated(Reader<Text>),
    Sheet(Sheet),
    JsonLines(JsonLines<Text>),
}

impl Input {
    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        match self {
            Self::Separated(reader) => reader.next(record),
            Self::Sheet(sheet) => sheet.next(record),
            Self::JsonLines(lines) => lines.next(record),
        }
    }

    pub(super) fn expect_width(&mut self, width: usize) {
        match self {
            Self::Separated(reader) => reader.expect_width(width),
            Self::Sheet(sheet) => sheet.expect_width(width),
            Self::JsonLines(_) => {}
        }
    }

    /// Bytes of the file that were rows so far, or nearly so.
    pub(super) fn consumed(&self) -> u64 {
        match self {
            Self::Separated(reader) if reader.source().is_decoding() => reader.source().taken(),
            Self::Separated(reader) => reader.consumed(),
            Self::Sheet(sheet) => sheet.consumed(),
            Self::JsonLines(lines) => lines.consumed(),
        }
    }
}
