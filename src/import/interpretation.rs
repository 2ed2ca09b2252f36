//! How a list was understood, in words, so that a person can object before anything is written.

use super::header::Header;
use super::plan::Plan;
use super::rows::Text;
use super::source::{Form, Source};
use crate::text::listed;

/// How a list was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpretation {
    /// `CSV in GB18030, ; between the fields, header in line 1`
    pub form: String,
    /// Which column is the phone, and why.
    pub phone: String,
    /// Where the text comes from.
    pub text: String,
    /// Nothing about it needed a guess: CSV in UTF-8 whose header names the phone.
    pub is_plain: bool,
}

/// How a list was understood whose text comes from `text`.
pub(super) fn interpretation(source: &Source, header: &Header, text: String) -> Interpretation {
    let form = match &source.form {
        Form::Separated(format) => format!(
            "CSV in {}, {} between the fields",
            source.encoding,
            match format.delimiter {
                b'\t' => "tabs".to_owned(),
                other => format!("`{}`", char::from(other)),
            }
        ),
        Form::Sheet(note) => format!("workbook, {note}"),
        Form::JsonLines(_) => format!("JSON lines in {}", source.encoding),
    };
    let place = match (&source.form, header.line) {
        (Form::JsonLines(_), _) => String::new(),
        (_, Some(line)) => format!(", header in line {line}"),
        (_, None) => ", no header".to_owned(),
    };
    Interpretation {
        form: format!("{form}{place}"),
        phone: phone(header),
        text,
        is_plain: matches!(source.form, Form::Separated(_))
            && source.encoding.is_utf8()
            && header.skipped == 1
            && header.columns.phones.len() == 1,
    }
}

fn phone(header: &Header) -> String {
    let columns = &header.columns;
    let names: Vec<String> = columns
        .phones
        .iter()
        .map(|&column| format!("`{}`", columns.names[column]))
        .collect();
    match header.by_content {
        Some((like, rows)) => format!(
            "column {}, where {like} of {rows} values look like phones",
            columns.phones[0] + 1
        ),
        None => names.join(", else "),
    }
}

impl Plan {
    pub fn interpretation(&self) -> Interpretation {
        interpretation(&self.source, &self.header, self.origin())
    }

    fn origin(&self) -> String {
        let name = |column: usize| self.header.columns.names[column].as_str();
        match &self.text {
            Text::Column(column) => format!("column `{}`", name(*column)),
            Text::Provider => "the provider's template".to_owned(),
            Text::Template { placeholders, .. } if placeholders.is_empty() => {
                "the same for all".to_owned()
            }
            Text::Template { placeholders, .. } => {
                let (same, other): (Vec<_>, Vec<_>) = placeholders
                    .iter()
                    .partition(|(placeholder, column)| *placeholder == name(**column));
                let same = listed(
                    same.into_iter()
                        .map(|(placeholder, _)| placeholder.as_str()),
                );
                let other = other.into_iter().map(|(placeholder, column)| {
                    format!("`{placeholder}` from `{}`", name(*column))
                });
                let all: Vec<String> = Some(same)
                    .filter(|same| !same.is_empty())
                    .into_iter()
                    .chain(other)
                    .collect();
                format!("with {}", all.join(", "))
            }
        }
    }
}
