//! Maps a JSON object of another program to a message. Each program has its own keys, so the columns are
//! found once per set of keys.

use std::collections::HashMap;
use std::sync::Arc;

use smsq_message::text::template::Template;

use crate::columns::ListColumns;
use crate::dedupe::{DedupeKeys, OWN_KEY, Unique, own_key};
use crate::error::{ImportError, Rejection};
use crate::options::Options;
use crate::record::{JsonObject, MAX_ROW, Malformed, Record, cell, is_nested};
use crate::row_mapper::{MappedRow, RowMapper, Text};

/// How many sets of keys are remembered.
const MAX_LAYOUTS: usize = 256;
const MAX_KEYS: usize = 1000;

/// Maps the entries of one import.
pub(super) struct MessageReader {
    options: Options,
    text: Option<Arc<Template>>,
    unique: Unique,
    /// Identifies this import, and makes the keys of its entries unique.
    pub(super) token: String,
    layouts: HashMap<Vec<String>, Result<Layout, Rejection>>,
}

/// How entries with the same keys are mapped.
struct Layout {
    mapper: RowMapper,
    own_key: Option<usize>,
}

impl MessageReader {
    pub(super) fn new(options: Options, unique: Unique) -> Result<Self, ImportError> {
        Ok(Self {
            text: options.load_text()?,
            options,
            unique,
            token: format!("{:032x}", rand::random::<u128>()),
            layouts: HashMap::new(),
        })
    }

    /// The message of an entry, a JSON object; `number` is its number in the import.
    pub(super) fn map(&mut self, number: u64, entry: &[u8]) -> Result<MappedRow, Rejection> {
        let entry = entry.trim_ascii();
        if entry.len() > MAX_ROW {
            return Err(Malformed::TooLong.into());
        }
        let Ok(JsonObject(fields)) = serde_json::from_slice(entry) else {
            return Err(Malformed::NotAnObject.into());
        };
        let mut record = Record::default();
        record.line = number;
        let mut keys = Vec::with_capacity(fields.len());
        for (key, value) in fields {
            if is_nested(value) {
                record.nested.push(keys.len());
            }
            keys.push(key);
            record.push(cell(value).as_bytes());
        }
        if !self.layouts.contains_key(&keys) {
            if self.layouts.len() == MAX_LAYOUTS {
                self.layouts.clear();
            }
            let layout = self.layout(&keys);
            self.layouts.insert(keys.clone(), layout);
        }
        let layout = self.layouts[&keys].as_ref().map_err(Clone::clone)?;
        let mut row = layout.mapper.map(&record)?;
        let key = layout.own_key.and_then(|column| record.fields()?.nth(column));
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            row.message.dedupe_key = own_key(key);
        }
        Ok(row)
    }

    fn layout(&self, keys: &[String]) -> Result<Layout, Rejection> {
        if keys.len() > MAX_KEYS {
            let reason = format!("the entry has more than {MAX_KEYS} keys");
            return Err(Rejection::new("too many keys", reason));
        }
        let invalid = |error: ImportError| Rejection::new("invalid keys", error.to_string());
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let columns = ListColumns::find("entry", &names, &self.options.columns).map_err(invalid)?;
        let text = match (&self.text, columns.content) {
            (Some(template), _) => Text::Template {
                placeholders: columns.of_placeholders(template).map_err(invalid)?,
                template: Arc::clone(template),
            },
            (None, Some(column)) => Text::Column(column),
            (None, None) => {
                return Err(Rejection::new("no text", "the entry has no `content`"));
            }
        };
        let keys = DedupeKeys::new(&self.unique, &self.token, &columns).map_err(invalid)?;
        Ok(Layout {
            own_key: columns.position(OWN_KEY),
            mapper: RowMapper::new(columns, text, keys, self.options.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TextSource;

    fn reader(text: TextSource, unique: Unique) -> MessageReader {
        let options = Options { text, ..Options::default() };
        MessageReader::new(options, unique).expect("a good text")
    }

    fn reason(entries: &mut MessageReader, entry: &str) -> String {
        let made = entries.map(1, entry.as_bytes());
        made.err().expect("not a message").reason
    }

    #[test]
    fn programs_have_different_keys() {
        let mut entries = reader(TextSource::Column, Unique::None);
        let first = r#"{"phone":"+447400123451","content":"Hi","order":7}"#;
        let message = entries.map(1, first.as_bytes()).expect("a message").message;
        assert_eq!(
            (message.phone.as_str(), message.content.as_str(), message.params.as_str()),
            ("+447400123451", "Hi", r#"{"order":"7"}"#)
        );
        let second = r#" {"content":"Ho","mobile":"+447400123451"} "#;
        let other = entries.map(2, second.as_bytes());
        let other = other.expect("a message").message;
        assert_eq!(other.content, "Ho");
        assert_ne!(message.dedupe_key, other.dedupe_key);
    }

    #[test]
    fn dedupe_key_of_an_entry_marks_duplicates() {
        let mut entries = reader(TextSource::Column, Unique::None);
        let mut key = |number, own: &str| {
            let entry = format!(r#"{{"phone":"+447400123451","content":"Hi","dedupe_key":{own}}}"#);
            let made = entries.map(number, entry.as_bytes());
            made.expect("a message").message.dedupe_key
        };
        assert_eq!(key(1, "\"order-7\""), key(2, "\"order-7\""));
        assert_ne!(key(3, "\"order-8\""), key(4, "\"order-7\""));
        assert_ne!(key(5, "null"), key(6, "\"\""));
    }

    #[test]
    fn invalid_entry_is_rejected_with_the_reason() {
        let mut entries = reader(TextSource::Text("Hi {{ name }}".to_owned()), Unique::Phone);
        for (entry, why) in [
            ("{", "the line is not a JSON object"),
            ("[1]", "the line is not a JSON object"),
            (r#"{"name":"Ann"}"#, "missing phone column in `entry`: it has only `name`"),
            (
                r#"{"phone":"+447400123451"}"#,
                "unknown column `name` in `--text`: `entry` does not have it",
            ),
            (
                r#"{"phone":"+447400123451","phone":"1","name":"A"}"#,
                "duplicate column `phone` in `entry`",
            ),
            (
                r#"{"phone":"+447400123451","name":""}"#,
                "no value for `name`, and the text needs it",
            ),
        ] {
            assert_eq!(reason(&mut entries, entry), why, "{entry}");
        }
        let long = format!(r#"{{"phone":"{}"}}"#, "1".repeat(10 << 20));
        assert_eq!(reason(&mut entries, &long), "the row is longer than 64 KiB");
    }
}
