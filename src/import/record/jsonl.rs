//! Reads JSON objects, one per line. The columns are the keys of all objects in the order of their first
//! appearance. Numbers keep the digits as they are written.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::row::{MAX_ROW, Malformed, Next, Record};
use super::{RowLayout, Rows, TextFile};
use crate::error::ImportError;

const MAX_KEYS: usize = 1000;

/// Finds all keys.
pub(super) fn open(text: &TextFile, _: &[u8], _: Option<u8>) -> Result<RowLayout, ImportError> {
    let name = &text.name;
    let keys = text
        .decode()
        .and_then(keys)
        .map_err(ImportError::read(name))?
        .filter(|keys| !keys.is_empty())
        .ok_or_else(|| {
            ImportError::new(format!(
                "`{name}` has no JSON objects with at most a thousand keys, one per line"
            ))
        })?;
    Ok(RowLayout {
        description: format!("JSON lines in {}", text.encoding),
        ..RowLayout::of_objects(keys)
    })
}

impl RowLayout {
    /// Objects with these keys, of which there may be none.
    pub(crate) fn of_objects(keys: Vec<String>) -> Self {
        Self {
            description: "rows of a query".to_owned(),
            delimiter: None,
            sheet: None,
            sheets: Vec::new(),
            rows: Box::new(move |source| Box::new(JsonReader::new(source, &keys))),
        }
    }
}

/// Reads objects as rows; the first row has the keys.
struct JsonReader<R> {
    lines: LineReader<R>,
    keys: HashMap<String, usize>,
    header: Option<Vec<String>>,
}

impl<R: Read> JsonReader<R> {
    fn new(source: R, keys: &[String]) -> Self {
        Self {
            lines: LineReader::new(source),
            keys: keys.iter().cloned().zip(0..).collect(),
            header: Some(keys.to_vec()),
        }
    }
}

impl<R: Read + Send> Rows for JsonReader<R> {
    fn next(&mut self, record: &mut Record) -> io::Result<Next> {
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
        let Ok(JsonObject(fields)) = serde_json::from_slice(text) else {
            return malformed(record, Malformed::NotAnObject);
        };
        let mut cells = vec![Cow::Borrowed(""); self.keys.len()];
        for (key, value) in fields {
            if let Some(&place) = self.keys.get(&key) {
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

/// Returns all keys of a file of objects, `None` if there are too many.
fn keys(source: impl Read) -> io::Result<Option<Vec<String>>> {
    let mut lines = LineReader::new(source);
    let mut keys: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    while lines.next()?.is_some() {
        let Ok(JsonObject(fields)) = serde_json::from_slice(lines.text.trim_ascii()) else {
            continue;
        };
        for (key, _) in fields {
            if known.insert(key.clone()) {
                keys.push(key);
            }
        }
        if keys.len() > MAX_KEYS {
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

/// Returns a value as the text of a cell.
pub fn cell(value: &RawValue) -> Cow<'_, str> {
    match value.get() {
        "null" => Cow::Borrowed(""),
        text if text.starts_with('"') => {
            serde_json::from_str(text).map_or(Cow::Borrowed(text), Cow::Owned)
        }
        plain => Cow::Borrowed(plain),
    }
}

/// Whether the value is an object or an array.
pub fn is_nested(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

/// The fields of an object in their order.
pub struct JsonObject<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = JsonObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(JsonObject(fields))
    }
}

/// Reads lines of bounded length and skips blank ones.
pub(crate) struct LineReader<R> {
    source: BufReader<R>,
    text: Vec<u8>,
    /// The line was too long, and only its start is kept.
    is_cut: bool,
    line: u64,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(1 << 16, source),
            text: Vec::new(),
            is_cut: false,
            line: 0,
        }
    }

    /// Returns the line that was read last, cut to [`MAX_ROW`] bytes.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the number of the next line that is not blank.
    pub(crate) fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            self.text.clear();
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
        let mut start = (&mut self.source).take(MAX_ROW as u64);
        let read = start.read_until(b'\n', &mut self.text)?;
        let may_be_cut = read == MAX_ROW && !self.text.ends_with(b"\n");
        self.is_cut = may_be_cut && self.source.skip_until(b'\n')? > 0;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Result<Vec<String>, Malformed>> {
        let keys = keys(text.as_bytes()).expect("reads").expect("not too many keys");
        let mut lines = JsonReader::new(text.as_bytes(), &keys);
        let mut record = Record::default();
        let mut rows = Vec::new();
        loop {
            match lines.next(&mut record).expect("reads") {
                Next::Row => {
                    rows.push(Ok(record.fields().expect("UTF-8").map(str::to_owned).collect()));
                }
                Next::Malformed(why) => rows.push(Err(why)),
                Next::Unusable(why) => panic!("{why:?}"),
                Next::End => return rows,
            }
        }
    }

    #[test]
    fn objects_are_rows_and_keys_are_columns() {
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
    fn long_line_is_rejected_in_bounded_memory() {
        let text = format!("{{\"phone\":\"{}\"}}\n{{\"phone\":\"1\"}}\n", "x".repeat(200_000));
        assert_eq!(rows(&text)[1..], [Err(Malformed::TooLong), Ok(vec!["1".to_owned()])]);
    }
}
