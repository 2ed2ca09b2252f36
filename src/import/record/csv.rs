//! Reads rows of separated values. CSV libraries accept stray quotes, and the rows up to the next quote
//! become one field. Here a stray quote rejects only its own line, and memory is bounded.

use std::io::{self, Read};

use super::row::{MAX_ROW, Malformed, Next, Record};

/// A quote that is not closed within this many bytes is a stray one.
const LOOKAHEAD: usize = 16 << 20;
const CHUNK: usize = 64 * 1024;

/// How fields and rows are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::import) struct CsvFormat {
    pub(in crate::import) delimiter: u8,
    /// The last byte of a line: `\n`, or `\r` in a file without `\n`.
    pub(in crate::import) terminator: u8,
}

/// Reads records and skips blank lines.
pub(in crate::import) struct CsvReader<R> {
    pub(super) source: R,
    format: CsvFormat,
    /// A row of several lines with another number of fields has a stray quote.
    pub(super) width: Option<usize>,
    /// The longest row in bytes.
    pub(super) max_row: usize,
    buffer: Vec<u8>,
    start: usize,
    line: u64,
    /// Bytes of the source that were read as rows.
    pub(super) consumed: u64,
    ended: bool,
}

/// The result of scanning the buffer for a record.
enum ScannedRecord {
    /// The record has this many bytes and lines.
    Record {
        length: usize,
        lines: u64,
    },
    Malformed(Malformed),
    /// The buffer ends before the record does.
    More,
}

impl<R: Read> CsvReader<R> {
    /// `line` is the number of the first line of `source`.
    pub(in crate::import) fn new(source: R, format: CsvFormat, line: u64) -> Self {
        Self {
            source,
            format,
            width: None,
            max_row: MAX_ROW,
            buffer: Vec::new(),
            start: 0,
            line,
            consumed: 0,
            ended: false,
        }
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        loop {
            record.line = self.line;
            if self.start == self.buffer.len() && self.ended {
                return Ok(Next::End);
            }
            match self.scan(record) {
                ScannedRecord::More => self.refill()?,
                // A blank line.
                ScannedRecord::Record { length, lines } if record.len() == 0 => {
                    self.advance(length, lines);
                }
                ScannedRecord::Record { length, lines } => {
                    let stray = lines > 1 && self.width.is_some_and(|width| width != record.len());
                    if stray {
                        return self.reject_line(record, Malformed::OpenQuote);
                    }
                    let mut next = Next::Row;
                    if length > self.max_row {
                        record.clear();
                        record.push(&self.buffer[self.start..self.start + self.max_row]);
                        next = Next::Malformed(Malformed::TooLong);
                    }
                    self.advance(length, lines);
                    return Ok(next);
                }
                ScannedRecord::Malformed(why) => return self.reject_line(record, why),
            }
        }
    }

    fn advance(&mut self, length: usize, lines: u64) {
        self.start += length;
        self.consumed += length as u64;
        self.line += lines;
    }

    fn refill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        // A long row is scanned again from its start, so each read doubles the buffer.
        let size = CHUNK.max(self.buffer.len()) as u64;
        let mut source = (&mut self.source).take(size);
        self.ended = source.read_to_end(&mut self.buffer)? == 0;
        Ok(())
    }

    fn scan(&self, record: &mut Record) -> ScannedRecord {
        record.clear();
        let window = &self.buffer[self.start..];
        let line = window
            .iter()
            .position(|&byte| byte == self.format.terminator);
        if line.is_none() && !self.ended && window.len() <= LOOKAHEAD {
            return ScannedRecord::More;
        }
        let length = line.map_or(window.len(), |end| end + 1);
        let plain = &window[..length];
        if plain.contains(&b'"') {
            return self.scan_quoted(window, record);
        }
        if length > self.max_row {
            return ScannedRecord::Malformed(Malformed::TooLong);
        }
        let text = trimmed(plain, self.format.terminator);
        if !text.is_empty() {
            let fields = text.split(|&byte| byte == self.format.delimiter);
            fields.for_each(|field| record.push(field));
        }
        ScannedRecord::Record { length, lines: 1 }
    }

    fn scan_quoted(&self, window: &[u8], record: &mut Record) -> ScannedRecord {
        let mut lines = 1;
        let mut at = 0;
        loop {
            let quoted = window.get(at) == Some(&b'"');
            if quoted {
                match self.quoted_field(&window[at + 1..], record, &mut lines) {
                    Ok(length) => at += 1 + length,
                    Err(scan) => return scan,
                }
            }
            let rest = &window[at..];
            let ends =
                |byte: &u8| *byte == self.format.delimiter || *byte == self.format.terminator;
            let end = rest.iter().position(ends);
            if end.is_none() && !self.ended {
                return self.more_or(Malformed::TooLong);
            }
            let plain = &rest[..end.unwrap_or(rest.len())];
            let last = end.is_none_or(|end| rest[end] == self.format.terminator);
            let plain = if last {
                trimmed(plain, self.format.terminator)
            } else {
                plain
            };
            if quoted && !plain.is_empty() {
                return ScannedRecord::Malformed(Malformed::TextAfterQuote);
            }
            record.push(plain);
            at += end.map_or(rest.len(), |end| end + 1);
            if last {
                return ScannedRecord::Record { length: at, lines };
            }
        }
    }

    /// Reads the rest of a quoted field with its closing quote; returns the length in bytes.
    fn quoted_field(
        &self,
        inside: &[u8],
        record: &mut Record,
        lines: &mut u64,
    ) -> Result<usize, ScannedRecord> {
        let mut at = 0;
        loop {
            let Some(quote) = inside[at..].iter().position(|&byte| byte == b'"') else {
                return Err(self.more_or(Malformed::OpenQuote));
            };
            let text = &inside[at..at + quote];
            let ends = |&byte: &u8| u64::from(byte == self.format.terminator);
            *lines += text.iter().map(ends).sum::<u64>();
            record.text.extend_from_slice(text);
            at += quote + 1;
            match inside.get(at) {
                Some(b'"') => {
                    record.text.push(b'"');
                    at += 1;
                }
                None if !self.ended => return Err(self.more_or(Malformed::OpenQuote)),
                _ => return Ok(at),
            }
        }
    }

    /// Asks for more bytes, unless there are none or the row is too long.
    fn more_or(&self, fault: Malformed) -> ScannedRecord {
        if self.ended || self.buffer.len() - self.start > LOOKAHEAD {
            return ScannedRecord::Malformed(fault);
        }
        ScannedRecord::More
    }

    /// Returns the first line of the buffer as the record, and continues after it.
    fn reject_line(&mut self, record: &mut Record, why: Malformed) -> io::Result<Next> {
        record.clear();
        loop {
            let window = &self.buffer[self.start..];
            let end = window
                .iter()
                .position(|&byte| byte == self.format.terminator);
            let length = end.map_or(window.len(), |end| end + 1);
            let room = self.max_row.saturating_sub(record.text.len());
            record.text.extend_from_slice(&window[..length.min(room)]);
            self.advance(length, u64::from(end.is_some()));
            if end.is_some() || self.ended {
                break;
            }
            self.refill()?;
        }
        let length = trimmed(&record.text, self.format.terminator).len();
        record.text.truncate(length);
        record.end_field();
        Ok(Next::Malformed(why))
    }
}

/// Removes the end of the line.
fn trimmed(line: &[u8], terminator: u8) -> &[u8] {
    let line = line.strip_suffix(&[terminator]).unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
