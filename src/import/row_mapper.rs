//! Maps a row to a message, or to the reason why it is rejected.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use smsq_message::phone::{Phone, PhoneError, non_mobile_kind};
use smsq_message::rate::Rates;
use smsq_message::route::Route;
use smsq_message::sms::NewSms;
use smsq_message::text::content::{self, LONGEST};
use smsq_message::text::segments::{self, Segments};
use smsq_message::text::template::{RenderError, Template};
use smsq_message::text::{listed, spreadsheet};
use smsq_message::window::{TIMEZONE, Zone};

use super::columns::{ListColumns, TEXT_COLUMN};
use super::dedupe::DedupeKeys;
use super::encoding::Encoding;
use super::error::Rejection;
use super::options::Options;
use super::record::Record;

/// Where the text of a message comes from.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Column(usize),
    /// The template of the provider.
    Provider,
    Template {
        template: Arc<Template>,
        placeholders: BTreeMap<String, usize>,
    },
}

/// Checks a message for the provider, or for that of its phone on this route. Returns the text that the recipient sees if
/// that is not the content, or why the message cannot be sent.
pub type RowCheck =
    Arc<dyn Fn(&NewSms, Option<&Route>) -> Result<Option<String>, String> + Send + Sync>;

/// What the provider of a list requires of its messages, and what limits them. Import knows no providers, so its caller
/// states this.
#[derive(Clone)]
pub struct ProviderRequirements {
    pub provider: String,
    /// Messages without a sender are rejected, unless the provider has one.
    pub needs_sender: bool,
    /// The providers and senders that the messages are divided among.
    pub route: Option<Arc<Route>>,
    pub rates: Rates,
    /// The columns that fill the provider's template; `content` is the text of the message.
    pub columns: Vec<String>,
    /// The text of the template, if it is known.
    pub template: Option<String>,
    /// `None`: any text can be sent.
    pub check: Option<RowCheck>,
}

/// A row as a message.
pub(super) struct MappedRow {
    pub(super) message: NewSms,
    /// Of the text that the recipient sees.
    pub(super) segments: Segments,
    /// The text that the recipient sees, if it is not the content.
    pub(super) shown: Option<String>,
    /// The kind of number, if it rarely receives text messages.
    pub(super) non_mobile: Option<&'static str>,
}

/// Maps the rows of one list.
pub(super) struct RowMapper {
    columns: ListColumns,
    text: Text,
    keys: DedupeKeys,
    options: Options,
    pub(super) encoding: Encoding,
    /// The encoding was guessed: rows in UTF-8 are rejected.
    pub(super) is_detected: bool,
    /// Cells are protected against formulas.
    pub(super) is_guarded: bool,
    /// The column with the time zones of the recipients.
    timezone: Option<usize>,
    requirements: Option<ProviderRequirements>,
    /// The columns that are stored with the message, with their names as JSON: `"name":`.
    stored: Vec<(usize, String)>,
    /// The text of all rows, if it is the same.
    constant: Option<(String, Segments)>,
}

impl RowMapper {
    /// Returns the mapper of rows in UTF-8 for a provider without requirements.
    pub(super) fn new(
        columns: ListColumns,
        text: Text,
        keys: DedupeKeys,
        options: Options,
    ) -> Self {
        let constant = match &text {
            Text::Template { template, .. } => template.constant(),
            Text::Column(_) | Text::Provider => None,
        };
        let constant = constant.map(|text| {
            let text = options.simplified(text.to_owned());
            let segments = segments::count(&text);
            (text, segments)
        });
        let named = |column: usize| (column, json_key(&columns.names[column]));
        Self {
            stored: columns.stored().map(named).collect(),
            constant,
            columns,
            text,
            keys,
            options,
            encoding: Encoding::UTF8,
            is_detected: false,
            is_guarded: false,
            timezone: None,
            requirements: None,
        }
    }

    /// Stores also the columns that the sending window and the provider need.
    pub(super) fn set_needs(
        &mut self,
        timezone: Option<usize>,
        requirements: Option<ProviderRequirements>,
    ) {
        if let Some(column) = timezone {
            let key = json_key(TIMEZONE);
            self.stored.retain(|(_, known)| *known != key);
            self.stored.push((column, key));
        }
        for name in requirements.iter().flat_map(|needed| &needed.columns) {
            let key = json_key(name);
            if let Some(column) = self.columns.named(name)
                && self.stored.iter().all(|(_, known)| *known != key)
            {
                self.stored.push((column, key));
            }
        }
        self.timezone = timezone;
        self.requirements = requirements;
    }

    pub(super) fn map(&self, record: &Record) -> Result<MappedRow, Rejection> {
        let Some(fields) = record.fields() else {
            let reason = format!("the row is not {}", self.encoding);
            return Err(Rejection::new("other encoding", reason));
        };
        let bare = |cell: &str| self.is_guarded && spreadsheet::is_guarded(cell.as_bytes());
        let cells: Vec<&str> = fields.map(|cell| &cell[usize::from(bare(cell))..]).collect();
        self.check_width(&cells)?;
        self.check_characters(&cells)?;
        self.check_nested(record)?;
        let phone = self.phone(&cells)?;
        self.check_reached(&phone)?;
        self.check_timezone(&cells)?;
        let (content, segments) = if let Some(constant) = &self.constant {
            constant.clone()
        } else {
            let content = self.content(&cells)?;
            let segments = segments::count(&content);
            (content, segments)
        };
        let phones = &self.columns.phones;
        let row = MappedRow {
            non_mobile: non_mobile_kind(phone.as_str()),
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
        match &self.requirements {
            Some(needed) => self.checked(row, needed),
            None => Ok(row),
        }
    }

    /// Fails if no sender sends to this phone.
    fn check_reached(&self, phone: &Phone) -> Result<(), Rejection> {
        let needed = self.requirements.as_ref();
        match needed.and_then(|needed| needed.route.as_ref()) {
            Some(route) if !route.reaches(phone.as_str()) => {
                let why = route.no_sender(phone.as_str());
                Err(Rejection::new("no sender", why))
            }
            _ => Ok(()),
        }
    }

    fn checked(
        &self,
        mut row: MappedRow,
        needed: &ProviderRequirements,
    ) -> Result<MappedRow, Rejection> {
        let Some(check) = &needed.check else {
            return Ok(row);
        };
        let invalid = |reason| Rejection::new("not valid for the provider", reason);
        let Some(shown) = check(&row.message, needed.route.as_deref()).map_err(invalid)? else {
            return Ok(row);
        };
        row.segments = segments::count(&shown);
        row.message.segments = row.segments.count;
        if matches!(self.text, Text::Provider) {
            content::check(&shown)?;
            row.message.content = shown;
        } else {
            row.shown = Some(shown);
        }
        Ok(row)
    }

    fn check_width(&self, cells: &[&str]) -> Result<(), Rejection> {
        let (found, width) = (cells.len(), self.columns.names.len());
        let kind = match found.cmp(&width) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => "too many fields",
            Ordering::Less => "too few fields",
        };
        let reason = format!("{kind}: {found}, but the header has {width}");
        Err(Rejection::new(kind, reason))
    }

    /// A row in UTF-8 in a file in another encoding would be sent as gibberish.
    fn check_characters(&self, cells: &[&str]) -> Result<(), Rejection> {
        if let Some(column) = cells.iter().position(|cell| cell.as_bytes().contains(&0)) {
            let name = listed([&*self.columns.names[column]]);
            let reason = format!("{name} has a NUL character");
            return Err(Rejection::new("NUL character", reason));
        }
        let encoding = self.encoding;
        if self.is_detected && encoding.looks_like_utf8(cells) {
            let reason = format!(
                "the row looks like UTF-8, the rest of the list is {encoding}: save the list in one \
                 encoding, or name it with `--encoding {encoding}` if the row is right"
            );
            return Err(Rejection::new("other encoding", reason));
        }
        Ok(())
    }

    /// The phone and the values in the text must not be JSON objects or arrays.
    fn check_nested(&self, record: &Record) -> Result<(), Rejection> {
        let is_in_text = |column: usize| match &self.text {
            Text::Column(content) => *content == column,
            Text::Provider => false,
            Text::Template { placeholders, .. } => {
                placeholders.values().any(|&used| used == column)
            }
        };
        let is_used =
            |&&column: &&usize| self.columns.phones.contains(&column) || is_in_text(column);
        let Some(&column) = record.nested.iter().find(is_used) else {
            return Ok(());
        };
        let name = listed([&*self.columns.names[column]]);
        let reason = format!("{name} is an object or an array, not a text");
        Err(Rejection::new("nested value", reason))
    }

    /// Returns the first valid phone, or what is wrong with the first one.
    fn phone(&self, cells: &[&str]) -> Result<Phone, Rejection> {
        let columns = &self.columns;
        let invalid = match columns.parse_phones(cells, self.options.dialling) {
            Ok(mut phones) => return Ok(phones.swap_remove(0)),
            Err(invalid) => invalid,
        };
        let is_header = |&column: &usize| cells[column].trim() == columns.names[column];
        if columns.phones.iter().all(is_header) {
            let reason = "the row is the header again";
            return Err(Rejection::new("repeated header", reason));
        }
        let text = columns.position(TEXT_COLUMN);
        if invalid == PhoneError::Empty && text.is_some_and(|text| value(cells, text).is_some()) {
            let reason = format!("the columns are empty: fill them in from `{TEXT_COLUMN}`");
            return Err(Rejection::new("not filled in", reason));
        }
        Err(invalid.into())
    }

    fn check_timezone(&self, cells: &[&str]) -> Result<(), Rejection> {
        let zone = self.timezone.and_then(|column| value(cells, column));
        match zone.map(str::parse::<Zone>) {
            Some(Err(error)) => Err(Rejection::new("unknown time zone", error)),
            _ => Ok(()),
        }
    }

    fn content(&self, cells: &[&str]) -> Result<String, Rejection> {
        let content = match &self.text {
            // The provider's template is rendered by the check of the requirements.
            Text::Provider => return Ok(String::new()),
            Text::Column(column) => cells[*column].trim().to_owned(),
            Text::Template { template, placeholders } => {
                let rendered = template.render(|name| value(cells, *placeholders.get(name)?));
                rendered.map_err(|error| match error {
                    RenderError::MissingValue => missing_value(cells, placeholders),
                    RenderError::TooLong => {
                        let reason = format!("the text is too long: at most {LONGEST} characters");
                        Rejection::new("text too long", reason)
                    }
                    RenderError::Other(detail) => {
                        let reason = format!("cannot render the text: {detail}");
                        Rejection::new("text not rendered", reason)
                    }
                })?
            }
        };
        let content = self.options.simplified(content);
        content::check(&content)?;
        Ok(content)
    }

    fn params(&self, cells: &[&str]) -> String {
        let mut params = String::with_capacity(64);
        params.push('{');
        for (index, (column, key)) in self.stored.iter().enumerate() {
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
        let column = self.columns.id;
        let Some(id) = column.and_then(|column| value(cells, column)) else {
            return Ok(None);
        };
        id.parse().map(Some).map_err(|_| {
            let reason = format!("invalid `smsq_id`: {} is not a number", listed([id]));
            Rejection::new("invalid `smsq_id`", reason)
        })
    }
}

/// Returns the value of a cell that is not empty.
fn value<'c>(cells: &[&'c str], column: usize) -> Option<&'c str> {
    let cell = cells.get(column).map(|cell| cell.trim());
    cell.filter(|cell| !cell.is_empty())
}

fn missing_value(cells: &[&str], placeholders: &BTreeMap<String, usize>) -> Rejection {
    let empty = placeholders.iter().filter(|(_, column)| value(cells, **column).is_none());
    let reason = match listed(empty.map(|(name, _)| name.as_str())) {
        names if names.is_empty() => "the text needs a value that is missing".to_owned(),
        names => format!("no value for {names}, and the text needs it"),
    };
    Rejection::new("missing value", reason)
}

/// `"name":`
fn json_key(name: &str) -> String {
    format!("{}:", serde_json::Value::from(name))
}

/// Most cells need no escapes; serialising all would take a third of the time of an import.
fn push_json(json: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        json.push_str(&serde_json::Value::from(text).to_string());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

#[cfg(test)]
#[path = "row_mapper_tests.rs"]
mod tests;
