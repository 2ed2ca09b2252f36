//! The table `codes` of a stanza: what the vendor's own codes mean.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::ProviderError;
use super::stanza::{Stanza, closest};
use crate::sms::{Cause, Class, Outcome};

/// The classes that a code can have; `accepted` stands beside them.
const CLASSES: [Class; 8] = [
    Class::Recipient,
    Class::Content,
    Class::OptedOut,
    Class::Account,
    Class::Throttle,
    Class::Cap,
    Class::Unavailable,
    Class::Unknown,
];

const ACCEPTED: &str = "accepted";

/// What one code means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// `None` is a code of success.
    pub(super) class: Option<Class>,
    /// In the operator's words.
    pub(super) reason: Option<String>,
}

/// The vendor's codes.
#[derive(Clone, Debug, Default)]
pub(super) struct Codes(BTreeMap<String, Meaning>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    class: String,
    reason: Option<String>,
}

impl Codes {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let codes = stanza.section("codes")?;
        let meaning = |(code, value): (String, toml::Value)| {
            let key = format!("codes.{code}");
            let written: Written = value
                .try_into()
                .map_err(|error: toml::de::Error| stanza.fault(&key, error.message()))?;
            let class = match written.class.as_str() {
                ACCEPTED => None,
                word => Some(
                    CLASSES
                        .into_iter()
                        .find(|it| it.as_str() == word)
                        .ok_or_else(|| {
                            let hint = closest(word, &known_classes());
                            stanza.fault(&key, format!("`{word}` is no class of codes{hint}"))
                        })?,
                ),
            };
            let reason = written.reason;
            Ok((code, Meaning { class, reason }))
        };
        codes
            .into_iter()
            .map(meaning)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn meaning(&self, code: &str) -> Option<&Meaning> {
        self.0.get(code)
    }

    /// Success has a code too, so an answer without a listed one is none.
    pub(super) fn list_success(&self) -> bool {
        self.0.values().any(|meaning| meaning.class.is_none())
    }
}

fn known_classes() -> Vec<&'static str> {
    CLASSES
        .iter()
        .map(|class| class.as_str())
        .chain([ACCEPTED])
        .collect()
}

/// The outcome that a listed code of `class` stands for.
pub(super) fn outcome(cause: Cause, retry_after: Option<Duration>) -> Outcome {
    match cause.class {
        Class::Account => Outcome::Refused {
            cause,
            listed: true,
        },
        Class::Throttle => Outcome::Throttled { cause, retry_after },
        Class::Cap => Outcome::Capped { cause, retry_after },
        Class::Unavailable => Outcome::Unavailable { cause, retry_after },
        Class::Recipient | Class::Content | Class::OptedOut => Outcome::Rejected(cause),
        // No other class can stand in the table.
        _ => Outcome::Unknown(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> Result<Codes, String> {
        let table: toml::Table = source.parse().expect("toml");
        let stanza = Stanza {
            name: "cellar",
            table: &table,
        };
        Codes::read(&stanza).map_err(|error| error.to_string())
    }

    #[test]
    fn every_class_that_a_code_can_have_is_read() {
        for word in known_classes() {
            let codes = read(&format!("codes = {{ 7 = {{ class = '{word}' }} }}")).expect(word);
            let meaning = codes.meaning("7").expect("listed");
            assert_eq!(meaning.class.map_or(ACCEPTED, Class::as_str), word);
            assert_eq!(codes.list_success(), word == ACCEPTED);
        }
    }

    #[test]
    fn a_fault_in_the_table_names_the_code() {
        for (source, expected) in [
            ("codes = { 7 = { class = 'acount' } }", "`account`"),
            ("codes = { 7 = { class = 'expired' } }", "`expired`"),
            ("codes = { 7 = { clas = 'account' } }", "`clas`"),
            ("codes = { 7 = 'account' }", "codes.7"),
            ("codes = 7", "`codes`"),
        ] {
            let error = read(source).expect_err(source);
            assert!(error.contains(expected), "{error}");
        }
    }
}
