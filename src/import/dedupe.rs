//! The keys by which messages of a campaign are recognized as duplicates, so that a list that is imported
//! twice adds only what is new.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use smsq_message::phone::Phone;
use smsq_message::text::listed;
use smsq_store::Campaign;

use super::columns::ListColumns;
use super::error::{ImportError, Rejection};

/// What makes messages of a campaign different, as in `--unique` and `campaign.unique_by`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unique {
    /// One message per phone.
    #[default]
    Phone,
    /// Every row is a message, but the same file again is not.
    None,
    /// One message per combination of values.
    Columns(Vec<String>),
}

impl Unique {
    /// Returns what `campaign` has, or `asked` for a campaign that has nothing yet.
    pub(super) fn of_campaign(
        asked: Option<&Self>,
        default: Self,
        campaign: &Campaign,
    ) -> Result<Self, ImportError> {
        let Some(stored) = &campaign.unique_by else {
            return Ok(asked.cloned().unwrap_or(default));
        };
        let Ok(unique) = stored.parse::<Self>();
        match asked {
            Some(asked) if *asked != unique => Err(ImportError::hinted(
                format!(
                    "campaign `{}` has `--unique {stored}`, not `--unique {asked}`",
                    campaign.name
                ),
                format!("import with `--unique {stored}`, or into another campaign"),
            )),
            _ => Ok(unique),
        }
    }
}

impl FromStr for Unique {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim() {
            "phone" | "" => Self::Phone,
            "none" => Self::None,
            columns => {
                let columns = columns.split(',').map(|column| column.trim().to_owned());
                Self::Columns(columns.collect())
            }
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

/// Makes the key of a message from its row.
#[derive(Clone, Debug)]
pub(super) enum DedupeKeys {
    Phone,
    /// The line, after the start of the hash of the file.
    Line(String),
    Columns(Vec<(String, usize)>),
}

impl DedupeKeys {
    pub(super) fn new(
        unique: &Unique,
        hash: &str,
        columns: &ListColumns,
    ) -> Result<Self, ImportError> {
        Ok(match unique {
            Unique::Phone => Self::Phone,
            Unique::None => Self::Line(hash[..16].to_owned()),
            Unique::Columns(names) => {
                let flag = format!("--unique {unique}");
                let column = |name: &String| Ok((name.clone(), columns.required(name, &flag)?));
                let found: Result<_, ImportError> = names.iter().map(column).collect();
                Self::Columns(found?)
            }
        })
    }

    /// Returns the key of a row with `phone`, which is in one of the columns `phones`.
    pub(super) fn key(
        &self,
        cells: &[&str],
        phones: &[usize],
        phone: &Phone,
        line: u64,
    ) -> Result<String, Rejection> {
        let columns = match self {
            Self::Phone => return Ok(phone.as_str().to_owned()),
            Self::Line(hash) => return Ok(format!("{hash}:{line}")),
            Self::Columns(columns) => columns,
        };
        let mut values = Vec::with_capacity(columns.len());
        for (name, column) in columns {
            let value = match cells[*column].trim() {
                _ if phones == [*column] => phone.as_str(),
                "" => {
                    let reason = format!("{} is empty, and `--unique` needs it", listed([&**name]));
                    return Err(Rejection::new("missing value", reason));
                }
                value => value,
            };
            values.push(value);
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        Ok(hashed(&names, &values))
    }
}

/// Entries with the same value of this field are duplicates.
pub(super) const OWN_KEY: &str = "dedupe_key";

/// Returns the key of a message whose program gave it `key`.
pub fn own_key(key: &str) -> String {
    hashed(&[OWN_KEY], &[key])
}

/// Returns a key for values under these names.
fn hashed(names: &[&str], values: &[&str]) -> String {
    let text = serde_json::json!([names, values]).to_string();
    hex::encode(Sha256::digest(text))
}
