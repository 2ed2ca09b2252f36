//! A row becomes a message, or a reason why it does not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::columns::Columns;
use super::digest;
use super::encoding::Encoding;
use super::error::{ImportError, closest, listed};
use super::reader::Record;
use super::rejected::Rejected;
use crate::phone::{Phone, PhoneError, Region};
use crate::sms::NewSms;
use crate::text::segments::{self, Segments};
use crate::text::smart;
use crate::text::template::{RenderError, Template};
use crate::window::{TIMEZONE, Zone, ZoneError};

/// The longest text, in characters: ten segments of the cheap alphabet. A longer one is a wrong column.
pub const LONGEST_TEXT: usize = 1530;

/// What tells one message of a campaign from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unique {
    /// One message per phone.
    #[default]
    Phone,
    /// Every row of every file is a message of its own; the same file again is not.
    None,
    /// One message per combination of values.
    Columns(Vec<String>),
}

/// As it stands in `--unique` and in `campaign.unique_by`.
impl FromStr for Unique {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word.trim() {
            "phone" | "" => Self::Phone,
            "none" => Self::None,
            columns => Self::Columns(
                columns
                    .split(',')
                    .map(|column| column.trim().to_owned())
                    .collect(),
            ),
        })
    }
}

impl fmt::Display for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phone => f.write_str("phone"),
            Self::None => f.write_str("none"),
            Self::Columns(columns) => f.write_str(&columns.join(",")),
        }
    }
}

/// Where the text of a row comes from.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Column(usize),
    Template {
        template: Arc<Template>,
        placeholders: BTreeMap<String, usize>,
    },
}

/// How dedupe keys are made.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    Phone,
    /// The start of the file's hash.
    Line(String),
    Columns(Vec<(String, usize)>),
}

impl Keys {
    pub(super) fn of(
        unique: &Unique,
        file: &str,
        hash: &str,
        columns: &Columns,
    ) -> Result<Self, ImportError> {
        Ok(match unique {
            Unique::Phone => Self::Phone,
            Unique::None => Self::Line(hash[..16].to_owned()),
            Unique::Columns(names) => Self::Columns(
                names
                    .iter()
                    .map(|name| match columns.called(name) {
                        Some(column) => Ok((name.clone(), column)),
                        None => Err(ImportError::NoColumn {
                            file: file.to_owned(),
                            column: name.clone(),
                            flag: format!("--unique {unique}"),
                            closest: closest(name, columns.names.iter().map(String::as_str)),
                        }),
                    })
                    .collect::<Result<_, _>>()?,
            ),
        })
    }
}

/// Makes messages of the rows of one file.
#[derive(Debug)]
pub(super) struct Rows {
    columns: Columns,
    text: Text,
    keys: Keys,
    region: Option<Region>,
    encoding: Encoding,
    /// The column of the recipients' zones.
    timezone: Option<usize>,
    /// Typographic characters are replaced where that makes a text cheaper.
    smart: bool,
    /// The columns that travel with the message, with their names as JSON keys: `"name":`.
    travelling: Vec<(usize, String)>,
    /// What every row's text is, where it is the same.
    constant: Option<(String, Segments)>,
}

impl Rows {
    pub(super) fn new(
        columns: Columns,
        text: Text,
        keys: Keys,
        region: Option<Region>,
        smart: bool,
    ) -> Self {
        let key = |column: usize| {
            (
                column,
                format!(
                    "{}:",
                    serde_json::Value::from(columns.names[column].as_str())
                ),
            )
        };
        let travelling = columns.travelling().into_iter().map(key).collect();
        let constant = match &text {
            Text::Template { template, .. } => template.constant(),
            Text::Column(_) => None,
        };
        let constant = constant.map(|text| {
            let text = if smart {
                smart::cheaper(text)
            } else {
                text.into()
            };
            let segments = segments::count(&text);
            (text.into_owned(), segments)
        });
        Self {
            columns,
            text,
            keys,
            region,
            encoding: Encoding::UTF8,
            timezone: None,
            smart,
            travelling,
            constant,
        }
    }

    /// The column of the recipients' zones, which travels under that name.
    pub(super) fn with_timezone(mut self, column: Option<usize>) -> Self {
        self.timezone = column;
        if let Some(column) = column {
            self.travelling
                .retain(|(other, _)| self.columns.names[*other] != TIMEZONE);
            self.travelling.push((column, format!("\"{TIMEZONE}\":")));
        }
        self
    }

    /// The encoding that rows with broken characters were to be in.
    pub(super) fn written_in(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// The message of a row, and what its text costs; or the reason for the operator.
    pub(super) fn message(&self, record: &Record) -> Result<(NewSms, Segments), Rejected> {
        let broken = || {
            let reason = format!("the row is not {}", self.encoding);
            Rejected::new("another encoding", reason)
        };
        let cells: Vec<&str> = record.fields().ok_or_else(broken)?.collect();
        self.check(&cells)?;
        let phone = self.phone(&cells)?;
        self.check_timezone(&cells)?;
        let (content, segments) = match &self.constant {
            Some(constant) => constant.clone(),
            None => self.content(&cells).map(|content| {
                let segments = segments::count(&content);
                (content, segments)
            })?,
        };
        let message = NewSms {
            line: record.line,
            dedupe_key: self.key(&cells, &phone, record.line)?,
            params: self.params(&cells),
            replaces: self.replaces(&cells)?,
            phone: phone.into_string(),
            content,
            segments: segments.count,
        };
        Ok((message, segments))
    }

    /// The first valid one; where none is, what is wrong with the first that is there.
    fn phone(&self, cells: &[&str]) -> Result<Phone, Rejected> {
        let mut fault = PhoneError::Empty;
        for &column in &self.columns.phones {
            match Phone::parse(cells[column], self.region) {
                Ok(phone) => return Ok(phone),
                Err(error) if fault == PhoneError::Empty => fault = error,
                Err(_) => {}
            }
        }
        let is_header = |&column: &usize| cells[column].trim() == self.columns.names[column];
        if self.columns.phones.iter().all(is_header) {
            return Err(Rejected::new(
                "the header again",
                "the row is the header once more",
            ));
        }
        Err(fault.into())
    }

    /// An empty one is none; any other must be a zone.
    fn check_timezone(&self, cells: &[&str]) -> Result<(), Rejected> {
        let named = self.timezone.and_then(|column| value(cells, column));
        let zone = named.map(str::parse::<Zone>).transpose();
        let unknown = |error: ZoneError| Rejected::new("unknown time zone", error.to_string());
        zone.map(drop).map_err(unknown)
    }

    fn check(&self, cells: &[&str]) -> Result<(), Rejected> {
        let width = self.columns.names.len();
        if cells.len() != width {
            let many = if cells.len() > width {
                "too many"
            } else {
                "too few"
            };
            let reason = format!(
                "{many} fields: {} where the header has {width}",
                cells.len()
            );
            return Err(Rejected::new(many_fields(cells.len() > width), reason));
        }
        match cells.iter().position(|cell| cell.as_bytes().contains(&0)) {
            Some(column) => Err(Rejected::new(
                "a NUL character",
                format!("`{}` holds a NUL character", self.columns.names[column]),
            )),
            None => Ok(()),
        }
    }

    fn content(&self, cells: &[&str]) -> Result<String, Rejected> {
        let content = match &self.text {
            Text::Column(column) => cells[*column].trim().to_owned(),
            Text::Template {
                template,
                placeholders,
            } => template
                .render(|name| value(cells, *placeholders.get(name)?))
                .map_err(|error| match error {
                    RenderError::Hole => {
                        Rejected::new("a value missing", hole(cells, placeholders))
                    }
                    RenderError::TooLong => {
                        let reason =
                            format!("the text is far too long: at most {LONGEST_TEXT} characters");
                        Rejected::new("the text too long", reason)
                    }
                    RenderError::Other(detail) => {
                        let reason = format!("the text cannot be made: {detail}");
                        Rejected::new("no text made", reason)
                    }
                })?,
        };
        if content.trim().is_empty() {
            return Err(Rejected::new("an empty text", "the text is empty"));
        }
        let content = match smart::cheaper(&content) {
            Cow::Owned(cheaper) if self.smart => cheaper,
            _ => content,
        };
        if content.len() > LONGEST_TEXT {
            let length = content.chars().count();
            if length > LONGEST_TEXT {
                let reason =
                    format!("the text is too long: {length} characters of at most {LONGEST_TEXT}");
                return Err(Rejected::new("the text too long", reason));
            }
        }
        Ok(content)
    }

    fn key(&self, cells: &[&str], phone: &Phone, line: u64) -> Result<String, Rejected> {
        match &self.keys {
            Keys::Phone => Ok(phone.as_str().to_owned()),
            Keys::Line(hash) => Ok(format!("{hash}:{line}")),
            Keys::Columns(columns) => {
                let mut values = Vec::with_capacity(columns.len());
                for (name, column) in columns {
                    let missing = || {
                        let reason = format!("`{name}` is empty, and `--unique` needs it");
                        Rejected::new("a value missing", reason)
                    };
                    values.push(if self.columns.phones == [*column] {
                        phone.as_str()
                    } else {
                        value(cells, *column).ok_or_else(missing)?
                    });
                }
                let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
                let text = serde_json::json!([names, values]).to_string();
                Ok(digest::of(&text))
            }
        }
    }

    fn params(&self, cells: &[&str]) -> String {
        let mut params = String::with_capacity(64);
        params.push('{');
        for (index, (column, key)) in self.travelling.iter().enumerate() {
            if index > 0 {
                params.push(',');
            }
            params.push_str(key);
            push_json(&mut params, cells[*column]);
        }
        params.push('}');
        params
    }

    fn replaces(&self, cells: &[&str]) -> Result<Option<i64>, Rejected> {
        let Some(id) = self.columns.id.and_then(|column| value(cells, column)) else {
            return Ok(None);
        };
        id.parse().map(Some).map_err(|_| {
            let reason = format!("`smsq_id` must be a number, not `{}`", id.escape_debug());
            Rejected::new("a faulty `smsq_id`", reason)
        })
    }
}

fn many_fields(too_many: bool) -> &'static str {
    if too_many {
        "too many fields"
    } else {
        "too few fields"
    }
}

/// A cell that has something in it.
fn value<'c>(cells: &[&'c str], column: usize) -> Option<&'c str> {
    cells
        .get(column)
        .map(|cell| cell.trim())
        .filter(|cell| !cell.is_empty())
}

fn hole(cells: &[&str], placeholders: &BTreeMap<String, usize>) -> String {
    let empty = placeholders
        .iter()
        .filter(|(_, column)| value(cells, **column).is_none());
    match listed(empty.map(|(name, _)| name.as_str())) {
        names if names.is_empty() => "the text needs a value that is not there".to_owned(),
        names => format!("no value for {names}, and the text needs it"),
    }
}

/// Most cells need no escapes, and serialising them through a tree is a third of the time of an import.
fn push_json(json: &mut String, text: &str) {
    if text
        .bytes()
        .any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
    {
        json.push_str(&serde_json::Value::from(text).to_string());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
