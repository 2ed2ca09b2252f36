//! Rows of separated values, one at a time. Stricter about quotes than CSV libraries are: they read a
//! stray quote leniently, and whole rows vanish into one field. Here it costs its own line and no
//! other, and memory is bounded however long the quote stays open.

use std::io::{self, Read};

use super::rejection::Rejection;

/// The longest row, in bytes.
pub(super) const LONGEST: usize = 64 * 1024;
/// How far the end of a row is looked for: a quote that is still open there is taken for a stray one.
const LOOKAHEAD: usize = 16 << 20;
const CHUNK: usize = 64 * 1024;

/// How a file separates what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) delimiter: u8,
    /// The last byte of a line: `\n`, or `\r` in a file that has no other.
    pub(super) terminator: u8,
}

/// The fields of one row, reused from row to row.
#[derive(Debug, Default)]
pub(super) struct Record {
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Where the row starts; the first line of the file is 1.
    pub(super) line: u64,
    /// The fields that were JSON objects or arrays.
    pub(super) nested: Vec<usize>,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The fields as they were read.
    pub(super) fn raw(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(self.ends.iter().copied())
            .map(|(start, end)| &self.text[start..end])
    }

    /// The fields, or `None` where they are not UTF-8.
    pub(super) fn fields(&self) -> Option<impl Iterator<Item = &str> + Clone> {
        let text = std::str::from_utf8(&self.text).ok()?;
        let aligned = self.ends.iter().all(|&end| text.is_char_boundary(end));
        aligned.then(|| {
            let starts = std::iter::once(0).chain(self.ends.iter().copied());
            starts
                .zip(self.ends.iter().copied())
                .map(move |(start, end)| &text[start..end])
        })
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.nested.clear();
    }

    pub(super) fn push(&mut self, field: &[u8]) {
        self.text.extend_from_slice(field);
        self.end_field();
    }

    fn end_field(&mut self) {
        self.ends.push(self.text.len());
    }
}

/// Why a line is no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a quote is opened and never closed")]
    OpenQuote,
    #[error("a closing quote is followed by more text: double the quotes that belong to the text")]
    TextAfterQuote,
    #[error("the row is longer than 64 KiB")]
    TooLong,
    #[error("the line is no JSON object")]
    NotAnObject,
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        let kind = match malformed {
            Malformed::OpenQuote | Malformed::TextAfterQuote => "stray quotes",
            Malformed::TooLong => "too long",
            Malformed::NotAnObject => "no JSON object",
        };
        Self::new(kind, malformed.to_string())
    }
}

/// What the next line or lines were.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Row,
    /// What is not a row, or its start where it is long: the record's only field.
    Malformed(Malformed),
    /// A row that is whole but cannot be used, and why.
    Unusable(Rejection),
    End,
}

/// Reads records from bytes. Blank lines are skipped.
pub(super) struct Reader<R> {
    source: R,
    format: Format,
    /// A row that spans lines and has another number of fields is taken for a stray quote.
    width: Option<usize>,
    buffer: Vec<u8>,
    start: usize,
    line: u64,
    consumed: u64,
    ended: bool,
}

/// One scan of the buffer for a record.
enum Scan {
    /// The record takes this many bytes and lines.
    Record {
        length: usize,
        lines: u64,
    },
    Malformed(Malformed),
    /// The buffer ends before the record does.
    More,
}

impl<R: Read> Reader<R> {
    /// `line` is the number of the first line that `source` gives.
    pub(super) fn new(source: R, format: Format, line: u64) -> Self {
        Self {
            source,
            format,
            width: None,
            buffer: Vec::new(),
            start: 0,
            line,
            consumed: 0,
            ended: false,
        }
    }

    pub(super) fn expect_width(&mut self, width: usize) {
        self.width = Some(width);
    }

    /// Bytes of the source that were rows so far.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn source(&self) -> &R {
        &self.source
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        loop {
            self.skip_blank_lines()?;
            record.line = self.line;
            if self.start == self.buffer.len() && self.ended {
                return Ok(Next::End);
            }
            match self.scan(record) {
                Scan::More => self.refill()?,
                Scan::Record { length, lines } => {
                    let stray = lines > 1 && self.width.is_some_and(|width| width != record.len());
                    if stray {
                        return self.give_up(record, Malformed::OpenQuote);
                    }
                    if length > LONGEST {
                        return Ok(self.too_long(record, length, lines));
                    }
                    self.advance(length, lines);
                    return Ok(Next::Row);
                }
                Scan::Malformed(why) => return self.give_up(record, why),
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
        let length = self.buffer.len();
        // What is long is scanned again from its start, so that more is read each time.
        let read = (&mut self.source)
            .take(CHUNK.max(length) as u64)
            .read_to_end(&mut self.buffer)?;
        self.ended = read == 0;
        debug_assert_eq!(self.buffer.len(), length + read);
        Ok(())
    }

    fn skip_blank_lines(&mut self) -> io::Result<()> {
        loop {
            match self.buffer.get(self.start) {
                Some(&byte) if byte == self.format.terminator => self.advance(1, 1),
                Some(b'\r') => match self.buffer.get(self.start + 1) {
                    Some(b'\n') => self.advance(2, 1),
                    None if !self.ended => self.refill()?,
                    _ => return Ok(()),
                },
                None if !self.ended => self.refill()?,
                _ => return Ok(()),
            }
        }
    }

    fn scan(&self, record: &mut Record) -> Scan {
        record.clear();
        let window = &self.buffer[self.start..];
        let line = window
            .iter()
            .position(|&byte| byte == self.format.terminator);
        if line.is_none() && !self.ended && window.len() <= LOOKAHEAD {
            return Scan::More;
        }
        let length = line.map_or(window.len(), |end| end + 1);
        let plain = &window[..length];
        if plain.contains(&b'"') {
            return self.scan_quoted(window, record);
        }
        if length > LONGEST {
            return Scan::Malformed(Malformed::TooLong);
        }
        for field in
            trimmed(plain, self.format.terminator).split(|&byte| byte == self.format.delimiter)
        {
            record.push(field);
        }
        Scan::Record { length, lines: 1 }
    }

    fn scan_quoted(&self, window: &[u8], record: &mut Record) -> Scan {
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
                return Scan::Malformed(Malformed::TextAfterQuote);
            }
            record.push(plain);
            at += end.map_or(rest.len(), |end| end + 1);
            if last {
                return Scan::Record { length: at, lines };
            }
        }
    }

    /// The inside of a quoted field and its closing quote: how many bytes they take.
    fn quoted_field(
        &self,
        inside: &[u8],
        record: &mut Record,
        lines: &mut u64,
    ) -> Result<usize, Scan> {
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

    /// More bytes, unless there are none or the row is longer than any.
    fn more_or(&self, fault: Malformed) -> Scan {
        if self.ended || self.buffer.len() - self.start > LOOKAHEAD {
            return Scan::Malformed(fault);
        }
        Scan::More
    }

    /// Makes the start of a long row the record, and goes on after the row.
    fn too_long(&mut self, record: &mut Record, length: usize, lines: u64) -> Next {
        record.clear();
        record.push(&self.buffer[self.start..self.start + LONGEST]);
        self.advance(length, lines);
        Next::Malformed(Malformed::TooLong)
    }

    /// Makes the first line of the buffer the record, and goes on after it.
    fn give_up(&mut self, record: &mut Record, why: Malformed) -> io::Result<Next> {
        record.clear();
        loop {
            let window = &self.buffer[self.start..];
            let end = window
                .iter()
                .position(|&byte| byte == self.format.terminator);
            let length = end.map_or(window.len(), |end| end + 1);
            let room = LONGEST.saturating_sub(record.text.len());
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

/// Without the end of its line.
fn trimmed(line: &[u8], terminator: u8) -> &[u8] {
    let line = line.strip_suffix(&[terminator]).unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
