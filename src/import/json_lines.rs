//! Rows that are JSON objects, one a line. The columns are the keys of all of them, in the order in which
//! they first appear; a number is taken as it is written, so that no digit is lost.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::reader::{LONGEST, Malformed, Next, Record};

/// More keys are no list of people.
const MOST_KEYS: usize = 1000;

/// Reads objects as rows; the first row is the keys.
pub(super) struct JsonLines<R> {
    lines: Lines<R>,
    keys: HashMap<String, usize>,
    header: Option<Vec<String>>,
}

impl<R: Read> JsonLines<R> {
    pub(super) fn new(source: R, keys: &[String]) -> Self {
        let places = keys.iter().cloned().zip(0..).collect();
        Self {
            lines: Lines::new(source),
            keys: places,
            header: Some(keys.to_vec()),
        }
    }

    pub(super) fn consumed(&self) -> u64 {
        self.lines.consumed
    }

    pub(super) fn next(&mut self, record: &mut Record) -> io::Result<Next> {
        record.clear();
        if let Some(header) = self.header.take() {
            record.line = 0;
            for key in &header {
                record.push(key.as_bytes());
            }
            return Ok(Next::Row);
        }
        let Some(line) = self.lines.next()? else {
            return Ok(Next::End);
        };
        record.line = line;
        let text = self.lines.text.trim_ascii();
        let malformed = |record: &mut Record, why| {
            record.push(text);
            Ok(Next::Malformed(why))
        };
        if self.lines.is_cut {
            return malformed(record, Malformed::TooLong);
        }
        let Ok(Object(fields)) = serde_json::from_slice(text) else {
            return malformed(record, Malformed::NotAnObject);
        };
        let mut cells = vec![Cow::Borrowed(""); self.keys.len()];
        for (key, value) in fields {
            if let Some(&place) = self.keys.get(key.as_ref()) {
                cells[place] = cell(value);
                if is_nested(value) {
                    record.nested.push(place);
                }
            }
        }
        for cell in &cells {
            record.push(cell.as_bytes());
        }
        Ok(Next::Row)
    }
}

/// All keys of a file of objects; `None` where there are too many.
pub(super) fn keys(source: impl Read) -> io::Result<Option<Vec<String>>> {
    let mut lines = Lines::new(source);
    let mut keys: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    while lines.next()?.is_some() {
        let Ok(Object(fields)) = serde_json::from_slice(lines.text.trim_ascii()) else {
            continue;
        };
        for (key, _) in fields {
            if !known.contains(key.as_ref()) {
                known.insert(key.to_string());
                keys.push(key.into_owned());
            }
        }
        if keys.len() > MOST_KEYS {
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

/// A value as a cell of a table has it.
pub(super) fn cell(value: &RawValue) -> Cow<'_, str> {
    match value.get() {
        "null" => Cow::Borrowed(""),
        text if text.starts_with('"') => {
            serde_json::from_str(text).map_or(Cow::Borrowed(text), Cow::Owned)
        }
        plain => Cow::Borrowed(plain),
    }
}

/// Whether the value is an object or an array.
pub(super) fn is_nested(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

/// The fields of an object in their order.
pub(super) struct Object<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            fields.push((key, value));
        }
        Ok(Object(fields))
    }
}

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Lines of bounded length; blank ones are skipped.
pub(super) struct Lines<R> {
    source: BufReader<R>,
    text: Vec<u8>,
    /// The line was longer than a row may be, and only its start is kept.
    is_cut: bool,
    line: u64,
    consumed: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(1 << 16, source),
            text: Vec::new(),
            is_cut: false,
            line: 0,
            consumed: 0,
        }
    }

    /// The line that was read last; one that is longer than a row may be, up to a byte more.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The number of the next line that is not blank.
    pub(super) fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            self.text.clear();
            self.is_cut = false;
            self.line += 1;
            if self.read_line()? == 0 {
                return Ok(None);
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some(self.line));
            }
        }
    }

    fn read_line(&mut self) -> io::Result<usize> {
        let mut length = 0;
        loop {
            let waiting = self.source.fill_buf()?;
            let end = waiting
                .iter()
                .position(|&byte| byte == b'\n')
                .map(|end| end + 1);
            let piece = &waiting[..end.unwrap_or(waiting.len())];
            let room = LONGEST.saturating_sub(self.text.len());
            self.is_cut |= piece.len() > room;
            self.text.extend_from_slice(&piece[..piece.len().min(room)]);
            let read = piece.len();
            self.source.consume(read);
            self.consumed += read as u64;
            length += read;
            if end.is_some() || read == 0 {
                return Ok(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Result<Vec<String>, Malformed>> {
        let keys = keys(text.as_bytes()).expect("reads").expect("a few keys");
        let mut lines = JsonLines::new(text.as_bytes(), &keys);
        let mut record = Record::default();
        let mut rows = Vec::new();
        loop {
            match lines.next(&mut record).expect("reads") {
                Next::Row => rows.push(Ok(record
                    .fields()
                    .expect("UTF-8")
                    .map(str::to_owned)
                    .collect())),
                Next::Malformed(why) => rows.push(Err(why)),
                Next::Unusable(why) => panic!("objects know no such thing: {why:?}"),
                Next::End => return rows,
            }
        }
    }

    #[test]
    fn objects_are_rows_and_their_keys_the_columns() {
        let text = "{\"phone\":13800138000,\"n\\u00e4me\":\"Zo\\u00eb\"}\n\n{\"city\":null,\"phone\":1.38e10,\"ok\":true}\r\n[1]\nnot\n";
        let row = |cells: [&str; 4]| Ok(cells.map(str::to_owned).to_vec());
        assert_eq!(
            rows(text),
            [
                row(["phone", "näme", "city", "ok"]),
                row(["13800138000", "Zoë", "", ""]),
                row(["1.38e10", "", "", "true"]),
                Err(Malformed::NotAnObject),
                Err(Malformed::NotAnObject),
            ]
        );
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let text = format!(
            "{{\"phone\":\"{}\"}}\n{{\"phone\":\"1\"}}\n",
            "x".repeat(200_000)
        );
        assert_eq!(
            rows(&text)[1..],
            [Err(Malformed::TooLong), Ok(vec!["1".to_owned()])]
        );
    }
}
