//! An entry of a queue becomes a message: a JSON object, whose keys are its columns. Each program has its own
//! keys, so a header is understood once for every set of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::import::columns::Columns;
use crate::import::digest;
use crate::import::error::ImportError;
use crate::import::json_lines::{Object, cell, is_nested};
use crate::import::keys::{Keys, Unique};
use crate::import::plan::{TextSource, check_constant, read_template};
use crate::import::reader::{LONGEST, Malformed, Record};
use crate::import::rejection::Rejection;
use crate::import::rows::{Made, Rows, Text};
use crate::phone::Region;
use crate::text::template::Template;

/// A program that never sends the same keys twice must not fill the memory.
const MOST_SHAPES: usize = 256;
/// More keys are no message.
const MOST_KEYS: usize = 1000;
/// What makes two entries the same message, whoever pushed them.
const OWN_KEY: &str = "dedupe_key";

/// How entries become messages, as the operator asked.
#[derive(Clone, Debug, Default)]
pub struct EntryOptions {
    pub text: TextSource,
    /// `--column NAME=COLUMN`: `phone`, `content`, or a name that the text uses.
    pub columns: Vec<(String, String)>,
    pub region: Option<Region>,
    /// Typographic characters are replaced where that makes a text cheaper.
    pub smart: bool,
}

/// Makes messages of entries.
pub(super) struct Entries {
    options: EntryOptions,
    template: Option<Arc<Template>>,
    unique: Unique,
    /// What tells the entries of this import from those of others.
    token: String,
    shapes: HashMap<Vec<String>, Result<Shape, Rejection>>,
}

/// What is known of entries with the same keys.
struct Shape {
    rows: Rows,
    own_key: Option<usize>,
}

impl EntryOptions {
    /// The text's template, where it has one.
    pub fn template(&self) -> Result<Option<(Arc<Template>, String)>, ImportError> {
        let (name, text) = match &self.text {
            TextSource::Column => return Ok(None),
            TextSource::Text(text) => ("--text".to_owned(), text.clone()),
            TextSource::Template(path) => (path.display().to_string(), read_template(path)?),
        };
        let template = Template::parse(&name, &text)?;
        check_constant(&name, &template, self.smart)?;
        Ok(Some((Arc::new(template), text)))
    }
}

impl Entries {
    pub(super) fn new(
        options: EntryOptions,
        unique: Unique,
        token: String,
    ) -> Result<Self, ImportError> {
        let template = options.template()?.map(|(template, _)| template);
        Ok(Self {
            options,
            template,
            unique,
            token,
            shapes: HashMap::new(),
        })
    }

    /// The message of an entry, the `number`th of its import, and what its text costs; or why it is none.
    pub(super) fn message(&mut self, number: u64, entry: &[u8]) -> Result<Made, Rejection> {
        let entry = entry.trim_ascii();
        if entry.len() > LONGEST {
            return Err(Malformed::TooLong.into());
        }
        let Ok(Object(fields)) = serde_json::from_slice(entry) else {
            return Err(Malformed::NotAnObject.into());
        };
        let mut record = Record::default();
        record.line = number;
        let mut keys = Vec::with_capacity(fields.len());
        for (key, value) in fields {
            if is_nested(value) {
                record.nested.push(keys.len());
            }
            keys.push(key.into_owned());
            record.push(cell(value).as_bytes());
        }
        if !self.shapes.contains_key(&keys) {
            if self.shapes.len() == MOST_SHAPES {
                self.shapes.clear();
            }
            let shape = self.shape(&keys);
            self.shapes.insert(keys.clone(), shape);
        }
        let Some(shape) = self.shapes.get(&keys) else {
            return Err(Malformed::NotAnObject.into());
        };
        let shape = shape.as_ref().map_err(Clone::clone)?;
        let mut made = shape.rows.message(&record)?;
        let own = shape
            .own_key
            .and_then(|column| record.fields()?.nth(column));
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            made.message.dedupe_key = digest::of(&serde_json::json!([OWN_KEY, own]).to_string());
        }
        Ok(made)
    }

    fn shape(&self, keys: &[String]) -> Result<Shape, Rejection> {
        if keys.len() > MOST_KEYS {
            let reason = format!("the entry has more than {MOST_KEYS} keys");
            return Err(Rejection::new("too many keys", reason));
        }
        let fault = |error: ImportError| Rejection::new("keys that do not fit", error.to_string());
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let columns = Columns::find(ENTRY, &names, &self.options.columns, None).map_err(fault)?;
        let text = match (&self.template, columns.content) {
            (Some(template), _) => Text::Template {
                placeholders: columns
                    .of_placeholders(ENTRY, "text", template)
                    .map_err(fault)?,
                template: Arc::clone(template),
            },
            (None, Some(column)) => Text::Column(column),
            (None, None) => {
                let reason = "the entry has no `content`";
                return Err(Rejection::new("no text", reason));
            }
        };
        let made_of = Keys::of(&self.unique, ENTRY, &self.token, &columns).map_err(fault)?;
        Ok(Shape {
            own_key: columns.position(OWN_KEY),
            rows: Rows::new(
                columns,
                text,
                made_of,
                self.options.region,
                self.options.smart,
            ),
        })
    }
}

/// What faults call it.
const ENTRY: &str = "entry";

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: TextSource, unique: Unique) -> Entries {
        let options = EntryOptions {
            text,
            ..EntryOptions::default()
        };
        Entries::new(options, unique, "f".repeat(32)).expect("a good text")
    }

    fn reason(entries: &mut Entries, entry: &str) -> String {
        let made = entries.message(1, entry.as_bytes());
        made.err().expect("it is no message").reason
    }

    #[test]
    fn every_program_has_its_own_keys() {
        let mut entries = entries(TextSource::Column, Unique::None);
        let first = r#"{"phone":"+447400123451","content":"Hi","order":7}"#;
        let Made { message, .. } = entries.message(1, first.as_bytes()).expect("a message");
        assert_eq!(
            (
                message.phone.as_str(),
                message.content.as_str(),
                message.params.as_str()
            ),
            ("+447400123451", "Hi", r#"{"order":"7"}"#)
        );
        let second = r#" {"content":"Ho","mobile":"+447400123451"} "#;
        let other = entries.message(2, second.as_bytes());
        let other = other.expect("a message").message;
        assert_eq!(other.content, "Ho");
        assert_ne!(message.dedupe_key, other.dedupe_key);
    }

    #[test]
    fn an_entry_says_itself_what_it_repeats() {
        let mut entries = entries(TextSource::Column, Unique::None);
        let mut key = |number, own: &str| {
            let entry = format!(r#"{{"phone":"+447400123451","content":"Hi","dedupe_key":{own}}}"#);
            let made = entries.message(number, entry.as_bytes());
            made.expect("a message").message.dedupe_key
        };
        assert_eq!(key(1, "\"order-7\""), key(2, "\"order-7\""));
        assert_ne!(key(3, "\"order-8\""), key(4, "\"order-7\""));
        assert_ne!(key(5, "null"), key(6, "\"\""));
    }

    #[test]
    fn an_entry_that_is_no_message_says_why() {
        let mut entries = entries(TextSource::Text("Hi {{ name }}".to_owned()), Unique::Phone);
        for (entry, why) in [
            ("{", "the line is no JSON object"),
            ("[1]", "the line is no JSON object"),
            (
                r#"{"name":"Ann"}"#,
                "`entry` has no phone column, only `name`",
            ),
            (
                r#"{"phone":"+447400123451"}"#,
                "`name` in `text` is no column of `entry`",
            ),
            (
                r#"{"phone":"+447400123451","phone":"1","name":"A"}"#,
                "`entry` has column `phone` twice",
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
