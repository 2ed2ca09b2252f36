//! A row becomes a message, or a reason why it does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::Columns;
use super::encoding::Encoding;
use super::keys::Keys;
use super::needs::ProviderRequirements;
use super::reader::Record;
use super::rejection::Rejection;
use super::rejects;
use crate::phone::{Phone, PhoneError, Region, odd_kind};
use crate::sms::NewSms;
use crate::text::content::{self, LONGEST};
use crate::text::listed;
use crate::text::segments::{self, Segments};
use crate::text::template::{RenderError, Template};
use crate::text::{smart, spreadsheet};
use crate::window::{TIMEZONE, Zone, ZoneError};

/// Where the text of a row comes from.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Column(usize),
    /// The provider's template, as the recipient will see it.
    Provider,
    Template {
        template: Arc<Template>,
        placeholders: BTreeMap<String, usize>,
    },
}

/// Makes messages of the rows of one file.
#[derive(Debug)]
pub(super) struct Rows {
    columns: Columns,
    text: Text,
    keys: Keys,
    region: Option<Region>,
    encoding: Encoding,
    /// The encoding was detected, not named.
    is_detected: bool,
    /// The cells are guarded against formulas.
    is_guarded: bool,
    /// The column of the recipients' zones.
    timezone: Option<usize>,
    /// Typographic characters are replaced where that makes a text cheaper.
    smart: bool,
    /// The columns that travel with the message, with their names as JSON keys: `"name":`.
    travelling: Vec<(usize, String)>,
    /// What every row's text is, where it is the same.
    constant: Option<(String, Segments)>,
    needs: Option<ProviderRequirements>,
}

/// A message that a row became.
pub(super) struct Made {
    pub(super) message: NewSms,
    /// Of what the recipient will see.
    pub(super) segments: Segments,
    /// What the recipient will see, where that is not the content.
    pub(super) shown: Option<String>,
    /// The kind of number, if it rarely receives text messages.
    pub(super) non_mobile: Option<&'static str>,
}

impl Rows {
    pub(super) fn new(
        columns: Columns,
        text: Text,
        keys: Keys,
        region: Option<Region>,
        smart: bool,
    ) -> Self {
        let travelling = columns.travelling().into_iter();
        let travelling = travelling
            .map(|column| (column, json_key(&columns.names[column])))
            .collect();
        let constant = match &text {
            Text::Template { template, .. } => template.constant(),
            Text::Column(_) | Text::Provider => None,
        };
        let constant = constant.map(|text| {
            let text = written(text.to_owned(), smart);
            let segments = segments::count(&text);
            (text, segments)
        });
        Self {
            columns,
            text,
            keys,
            region,
            encoding: Encoding::UTF8,
            is_detected: false,
            is_guarded: false,
            timezone: None,
            smart,
            travelling,
            constant,
            needs: None,
        }
    }

    /// The column of the recipients' zones, which travels under that name.
    pub(super) fn with_timezone(mut self, column: Option<usize>) -> Self {
        self.timezone = column;
        if let Some(column) = column {
            let key = json_key(TIMEZONE);
            self.travelling.retain(|(_, known)| *known != key);
            self.travelling.push((column, key));
        }
        self
    }

    /// Rows must be what the provider needs; the columns that it asks for travel with the message under the
    /// names that it has for them.
    pub(super) fn set_requirements(mut self, needs: Option<ProviderRequirements>) -> Self {
        for name in needs.iter().flat_map(|needs| &needs.columns) {
            let key = json_key(name);
            if let Some(column) = self.columns.called(name)
                && self.travelling.iter().all(|(_, known)| *known != key)
            {
                self.travelling.push((column, key));
            }
        }
        self.needs = needs;
        self
    }

    /// The encoding of the list, and whether it was detected.
    pub(super) fn written_in(mut self, encoding: Encoding, is_detected: bool) -> Self {
        self.encoding = encoding;
        self.is_detected = is_detected;
        self
    }

    /// The list is a file that smsq wrote for a spreadsheet.
    pub(super) fn guarded(mut self, is_guarded: bool) -> Self {
        self.is_guarded = is_guarded;
        self
    }

    /// The message of a row, and what its text costs; or the reason for the operator.
    pub(super) fn message(&self, record: &Record) -> Result<Made, Rejection> {
        let broken = || {
            let reason = format!("the row is not {}", self.encoding);
            Rejection::new("another encoding", reason)
        };
        let fields = record.fields().ok_or_else(broken)?;
        let cells: Vec<&str> = fields
            .map(|cell| {
                let is_guarded = self.is_guarded && spreadsheet::is_guarded(cell.as_bytes());
                &cell[usize::from(is_guarded)..]
            })
            .collect();
        self.check(&cells)?;
        self.check_encoding(&cells)?;
        self.check_nested(record)?;
        let phone = self.phone(&cells)?;
        self.check_timezone(&cells)?;
        let (content, segments) = match (&self.constant, &self.text) {
            (Some(constant), _) => constant.clone(),
            (None, Text::Provider) => (String::new(), segments::count("")),
            (None, _) => self.content(&cells).map(|content| {
                let segments = segments::count(&content);
                (content, segments)
            })?,
        };
        let phones = &self.columns.phones;
        let made = Made {
            non_mobile: odd_kind(phone.as_str()),
            message: NewSms {
                line: record.line,
                dedupe_key: self.keys.key(&cells, phones, &phone, record.line)?,
                params: self.params(&cells),
                replaces: self.replaces(&cells)?,
                phone: phone.into_string(),
                content,
                segments: segments.count,
            },
            segments,
            shown: None,
        };
        self.fitted(made)
    }

    fn fitted(&self, mut made: Made) -> Result<Made, Rejection> {
        let Some(needs) = &self.needs else {
            return Ok(made);
        };
        let refused = |reason| Rejection::new("not fit for the provider", reason);
        let Some(seen) = (needs.fits)(&made.message).map_err(refused)? else {
            return Ok(made);
        };
        made.segments = segments::count(&seen);
        made.message.segments = made.segments.count;
        if matches!(self.text, Text::Provider) {
            made.message.content = checked(seen)?;
        } else {
            made.shown = Some(seen);
        }
        Ok(made)
    }

    /// The first valid one; where none is, what is wrong with the first that is there.
    fn phone(&self, cells: &[&str]) -> Result<Phone, Rejection> {
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
            return Err(Rejection::new(
                "the header again",
                "the row is the header once more",
            ));
        }
        let text = self.columns.position(rejects::TEXT);
        if fault == PhoneError::Empty && text.is_some_and(|text| value(cells, text).is_some()) {
            return Err(Rejection::new(
                "not filled in",
                format!(
                    "the columns are empty: fill them in from `{}`",
                    rejects::TEXT
                ),
            ));
        }
        Err(fault.into())
    }

    /// A row in UTF-8 in a file that is not would be sent as gibberish.
    fn check_encoding(&self, cells: &[&str]) -> Result<(), Rejection> {
        if self.is_detected && self.encoding.looks_like_utf8(cells) {
            let reason = format!(
                "the row looks like UTF-8, the rest of the list is {0}: save the list in one encoding, \
                 or name it with `--encoding {0}` if the row is right",
                self.encoding
            );
            return Err(Rejection::new("another encoding", reason));
        }
        Ok(())
    }

    /// What is read by a recipient or dialled is a plain value.
    fn check_nested(&self, record: &Record) -> Result<(), Rejection> {
        if record.nested.is_empty() {
            return Ok(());
        }
        let is_used = |column: &usize| {
            self.columns.phones.contains(column)
                || match &self.text {
                    Text::Column(content) => content == column,
                    Text::Provider => false,
                    Text::Template { placeholders, .. } => {
                        placeholders.values().any(|used| used == column)
                    }
                }
        };
        match record.nested.iter().find(|column| is_used(column)) {
            Some(&column) => Err(Rejection::new(
                "an object as a value",
                format!(
                    "`{}` is an object or an array, not a text",
                    self.columns.names[column]
                ),
            )),
            None => Ok(()),
        }
    }

    /// An empty one is none; any other must be a zone.
    fn check_timezone(&self, cells: &[&str]) -> Result<(), Rejection> {
        let named = self.timezone.and_then(|column| value(cells, column));
        let zone = named.map(str::parse::<Zone>).transpose();
        let unknown = |error: ZoneError| Rejection::new("unknown time zone", error.to_string());
        zone.map(drop).map_err(unknown)
    }

    fn check(&self, cells: &[&str]) -> Result<(), Rejection> {
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
            return Err(Rejection::new(many_fields(cells.len() > width), reason));
        }
        match cells.iter().position(|cell| cell.as_bytes().contains(&0)) {
            Some(column) => Err(Rejection::new(
                "a NUL character",
                format!("`{}` holds a NUL character", self.columns.names[column]),
            )),
            None => Ok(()),
        }
    }

    fn content(&self, cells: &[&str]) -> Result<String, Rejection> {
        let content = match &self.text {
            Text::Provider => String::new(),
            Text::Column(column) => cells[*column].trim().to_owned(),
            Text::Template {
                template,
                placeholders,
            } => template
                .render(|name| value(cells, *placeholders.get(name)?))
                .map_err(|error| match error {
                    RenderError::Hole => {
                        Rejection::new("a value missing", hole(cells, placeholders))
                    }
                    RenderError::TooLong => {
                        let reason =
                            format!("the text is far too long: at most {LONGEST} characters");
                        Rejection::new("the text too long", reason)
                    }
                    RenderError::Other(detail) => {
                        let reason = format!("the text cannot be made: {detail}");
                        Rejection::new("no text made", reason)
                    }
                })?,
        };
        checked(written(content, self.smart))
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

    fn replaces(&self, cells: &[&str]) -> Result<Option<i64>, Rejection> {
        let Some(id) = self.columns.id.and_then(|column| value(cells, column)) else {
            return Ok(None);
        };
        id.parse().map(Some).map_err(|_| {
            let reason = format!("`smsq_id` must be a number, not `{}`", id.escape_debug());
            Rejection::new("a faulty `smsq_id`", reason)
        })
    }
}

/// The text in plain characters, where `smart` asks for them.
pub(super) fn written(content: String, smart: bool) -> String {
    if smart {
        smart::cheaper(&content).into_owned()
    } else {
        content
    }
}

/// A text that can be sent.
fn checked(content: String) -> Result<String, Rejection> {
    content::check(&content)?;
    Ok(content)
}

/// A name as a key of a JSON object: `"name":`.
fn json_key(name: &str) -> String {
    format!("{}:", serde_json::Value::from(name))
}

fn many_fields(too_many: bool) -> &'static str {
    if too_many {
        "too many fields"
    } else {
        "too few fields"
    }
}

/// A cell that has something in it.
pub(super) fn value<'c>(cells: &[&'c str], column: usize) -> Option<&'c str> {
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
