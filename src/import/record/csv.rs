//! Reads rows of separated values. CSV libraries accept stray quotes, and the rows up to the next quote
//! become one field. Here a stray quote rejects only its own line, and memory is bounded.

use std::io::{self, Read};

use super::row::{MAX_ROW, Malformed, Next, Record};
use super::{HEAD, RowLayout, Rows, TextFile};
use crate::columns::is_phone;
use crate::error::ImportError;
use crate::values::is_delimiter;

/// A quote that is not closed within this many bytes is a stray one.
const LOOKAHEAD: usize = 16 << 20;
const CHUNK: usize = 64 * 1024;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Finds the delimiter and the end of lines.
pub(super) fn open(
    text: &TextFile,
    head: &[u8],
    delimiter: Option<u8>,
) -> Result<RowLayout, ImportError> {
    let name = &text.name;
    let start = head.trim_ascii_start();
    if start.is_empty() && text.length <= HEAD {
        return Err(ImportError::new(format!("`{name}` is empty")));
    }
    if start.starts_with(b"[") && start[1..].trim_ascii_start().starts_with(b"{") {
        return Err(ImportError::hinted(
            format!("`{name}` is one JSON array"),
            "write one object per line: `jq -c '.[]' FILE | smsq import - …`",
        ));
    }
    let has_only_cr = head.contains(&b'\r') && !head.contains(&b'\n');
    let terminator = if has_only_cr { b'\r' } else { b'\n' };
    let line = head.iter().position(|&byte| byte == terminator);
    let (first, rest) = head.split_at(line.map_or(head.len(), |end| end + 1));
    let declared = declared_delimiter(first);
    let format = CsvFormat {
        delimiter: delimiter.or(declared).unwrap_or_else(|| likely_delimiter(first, rest)),
        terminator,
    };
    let fields = match format.delimiter {
        b'\t' => "tabs".to_owned(),
        other => format!("`{}`", char::from(other)),
    };
    Ok(RowLayout {
        description: format!("CSV in {}, {fields} between the fields", text.encoding),
        delimiter: Some(format.delimiter),
        sheet: None,
        sheets: Vec::new(),
        rows: Box::new(move |source| {
            let mut reader = CsvReader::new(source, format);
            reader.skips_line = declared.is_some();
            Box::new(reader)
        }),
    })
}

/// Reads a first line `sep=;`, which spreadsheets write.
fn declared_delimiter(line: &[u8]) -> Option<u8> {
    let text = line.trim_ascii_end();
    match text.strip_prefix(b"sep=").or_else(|| text.strip_prefix(b"SEP="))? {
        [delimiter] if is_delimiter(*delimiter) => Some(*delimiter),
        [] => Some(b'\t'),
        _ => None,
    }
}

/// Returns the most frequent delimiter of the first line, or of the other lines if the first is a title
/// without any.
fn likely_delimiter(first: &[u8], rest: &[u8]) -> u8 {
    let is_title = || !is_phone(&String::from_utf8_lossy(first));
    most_frequent(first).or_else(|| most_frequent(rest).filter(|_| is_title())).unwrap_or(b',')
}

/// Counts delimiters outside quotes.
fn most_frequent(text: &[u8]) -> Option<u8> {
    let mut counts = [0; DELIMITERS.len()];
    let mut quoted = false;
    for byte in text {
        match DELIMITERS.iter().position(|delimiter| delimiter == byte) {
            Some(which) if !quoted => counts[which] += 1,
            _ if *byte == b'"' => quoted = !quoted,
            _ => {}
        }
    }
    // The first of the most frequent ones.
    let most = counts.iter().max().filter(|&&most| most > 0)?;
    let which = counts.iter().position(|count| count == most)?;
    Some(DELIMITERS[which])
}

/// How fields and rows are separated.
#[derive(Clone, Copy)]
pub(super) struct CsvFormat {
    pub(super) delimiter: u8,
    /// The last byte of a line: `\n`, or `\r` in a file without `\n`.
    pub(super) terminator: u8,
}

/// Reads records and skips blank lines.
pub(super) struct CsvReader<R> {
    source: R,
    format: CsvFormat,
    /// The first line only names the delimiter.
    skips_line: bool,
    /// A row of several lines with another number of fields has a stray quote.
    width: Option<usize>,
    /// The longest row in bytes.
    pub(super) max_row: usize,
    buffer: Vec<u8>,
    start: usize,
    line: u64,
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
    pub(super) fn new(source: R, format: CsvFormat) -> Self {
        Self {
            source,
            format,
            skips_line: false,
            width: None,
            max_row: MAX_ROW,
            buffer: Vec::new(),
            start: 0,
            line: 1,
            ended: false,
        }
    }

    fn advance(&mut self, length: usize, lines: u64) {
        self.start += length;
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
        let line = window.iter().position(|&byte| byte == self.format.terminator);
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
            let plain = if last { trimmed(plain, self.format.terminator) } else { plain };
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

    /// Reads the next line as a record of one field.
    fn take_line(&mut self, record: &mut Record) -> io::Result<()> {
        record.clear();
        loop {
            let window = &self.buffer[self.start..];
            let end = window.iter().position(|&byte| byte == self.format.terminator);
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
        Ok(())
    }
}

impl<R: Read + Send> Rows for CsvReader<R> {
    fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        if std::mem::take(&mut self.skips_line) {
            self.take_line(record)?;
        }
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
                        self.take_line(record)?;
                        return Ok(Next::Malformed(Malformed::OpenQuote));
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
                ScannedRecord::Malformed(why) => {
                    self.take_line(record)?;
                    return Ok(Next::Malformed(why));
                }
            }
        }
    }

    fn set_width(&mut self, width: usize) {
        self.width = Some(width);
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
