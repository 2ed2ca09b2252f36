//! A row that was read: its fields, or why it is not one.

use std::ops::Range;

use crate::error::Rejection;

/// The longest row in bytes.
pub(crate) const MAX_ROW: usize = 64 * 1024;

/// The fields of one row. Readers reuse it from row to row.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(super) text: Vec<u8>,
    ends: Vec<usize>,
    /// The line where the row starts; the first line is 1.
    pub(crate) line: u64,
    /// The fields with a JSON object or array.
    pub(crate) nested: Vec<usize>,
}

impl Record {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&start, &end)| start..end)
    }

    /// Returns the fields as they were read.
    pub(crate) fn raw(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.ranges().map(|range| &self.text[range])
    }

    /// Returns the fields, `None` if they are not UTF-8.
    pub(crate) fn fields(&self) -> Option<impl Iterator<Item = &str> + Clone> {
        let text = std::str::from_utf8(&self.text).ok()?;
        let aligned = self.ends.iter().all(|&end| text.is_char_boundary(end));
        aligned.then(|| self.ranges().map(move |range| &text[range]))
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.nested.clear();
    }

    pub(crate) fn push(&mut self, field: &[u8]) {
        self.text.extend_from_slice(field);
        self.end_field();
    }

    /// Removes the first `count` fields.
    pub(super) fn remove_first(&mut self, count: usize) {
        let length = self.ends[count - 1];
        self.text.drain(..length);
        self.ends.drain(..count);
        for end in &mut self.ends {
            *end -= length;
        }
    }

    pub(super) fn end_field(&mut self) {
        self.ends.push(self.text.len());
    }
}

/// Why a line is not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a quote is opened and never closed")]
    OpenQuote,
    #[error("a closing quote is followed by more text: double the quotes that belong to the text")]
    TextAfterQuote,
    #[error("the row is longer than 64 KiB")]
    TooLong,
    #[error("the line is not a JSON object")]
    NotAnObject,
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Self {
        let kind = match malformed {
            Malformed::OpenQuote | Malformed::TextAfterQuote => "stray quote",
            Malformed::TooLong => "row too long",
            Malformed::NotAnObject => "not a JSON object",
        };
        Self::new(kind, malformed.to_string())
    }
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Row,
    /// The record has one field: the text of the line, or its start if it is long.
    Malformed(Malformed),
    /// The record has the fields of a row that cannot be used.
    Unusable(Rejection),
    End,
}
