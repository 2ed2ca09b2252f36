//! What tells one message of a campaign from another: the key under which it is remembered, so that a list
//! that is imported twice adds only what is new.

use std::fmt;
use std::str::FromStr;

use super::columns::Columns;
use super::digest;
use super::error::ImportError;
use super::rejection::Rejection;
use super::rows::value;
use crate::phone::Phone;
use crate::text::closest;

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

impl Keys {
    /// The key of a row, whose phone stands in one of the columns `phones`.
    pub(super) fn key(
        &self,
        cells: &[&str],
        phones: &[usize],
        phone: &Phone,
        line: u64,
    ) -> Result<String, Rejection> {
        match self {
            Self::Phone => Ok(phone.as_str().to_owned()),
            Self::Line(hash) => Ok(format!("{hash}:{line}")),
            Self::Columns(columns) => {
                let mut values = Vec::with_capacity(columns.len());
                for (name, column) in columns {
                    let missing = || {
                        let reason = format!("`{name}` is empty, and `--unique` needs it");
                        Rejection::new("a value missing", reason)
                    };
                    values.push(if phones == [*column] {
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
}
