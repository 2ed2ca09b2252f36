//! Describes how a list is read, so that the operator can object before anything is written.

use super::columns::Columns;
use super::file::{Format, ListFile};
use super::header::Header;
use super::row_mapper::Text;
use crate::text::listed;

/// How a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpretation {
    /// `CSV in GB18030, ; between the fields, header in line 1`
    pub format: String,
    /// Which column is the phone, and why.
    pub phone: String,
    /// Where the text comes from.
    pub text: String,
    /// Nothing was guessed: CSV in UTF-8 whose header names the phone.
    pub is_plain: bool,
}

impl Interpretation {
    pub(super) fn new(list: &ListFile, header: &Header, text: String) -> Self {
        let format = match &list.format {
            Format::Csv(format) => {
                let delimiter = match format.delimiter {
                    b'\t' => "tabs".to_owned(),
                    other => format!("`{}`", char::from(other)),
                };
                format!("CSV in {}, {delimiter} between the fields", list.encoding)
            }
            Format::Sheet { note } => format!("workbook, {note}"),
            Format::JsonLines { .. } => format!("JSON lines in {}", list.encoding),
        };
        let place = match (&list.format, header.line) {
            (Format::JsonLines { .. }, _) => String::new(),
            (_, Some(line)) => format!(", header in line {line}"),
            (_, None) => ", no header".to_owned(),
        };
        let columns = &header.columns;
        let phones = columns.phones.iter();
        let phones: Vec<String> = phones
            .map(|&column| format!("`{}`", columns.names[column]))
            .collect();
        Self {
            format: format!("{format}{place}"),
            phone: match header.by_content {
                Some((phones, rows)) => format!(
                    "column {}, where {phones} of {rows} values look like phones",
                    columns.phones[0] + 1
                ),
                None => phones.join(", else "),
            },
            text,
            is_plain: matches!(list.format, Format::Csv(_))
                && list.encoding.is_utf8()
                && header.skipped == 1
                && columns.phones.len() == 1,
        }
    }
}

impl Text {
    pub(super) fn describe(&self, columns: &Columns) -> String {
        let name = |column: usize| columns.names[column].as_str();
        let placeholders = match self {
            Self::Column(column) => return format!("column `{}`", name(*column)),
            Self::Provider => return "the provider's template".to_owned(),
            Self::Template { placeholders, .. } => placeholders,
        };
        if placeholders.is_empty() {
            return "the same for all".to_owned();
        }
        let (same, other): (Vec<_>, Vec<_>) = placeholders
            .iter()
            .partition(|(placeholder, column)| *placeholder == name(**column));
        let same = listed(
            same.into_iter()
                .map(|(placeholder, _)| placeholder.as_str()),
        );
        let other = other.into_iter();
        let other = other
            .map(|(name_in_text, column)| format!("`{name_in_text}` from `{}`", name(*column)));
        let all: Vec<String> = Some(same)
            .filter(|same| !same.is_empty())
            .into_iter()
            .chain(other)
            .collect();
        format!("with {}", all.join(", "))
    }
}
