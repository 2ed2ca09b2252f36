//! What stands in an entry of a vendor's list that is about a message of ours: in the answer to a request, and in
//! the answer to a look-up.

use serde_json::Value as Json;

use super::template::{Templates, Text, Values};
use crate::provider::ProviderError;
use crate::provider::answer::scalar;
use crate::provider::stanza::Stanza;
use crate::sms::Outcome;

/// Table `matches`: JSON pointers into an entry, and what must stand there. All of them must.
#[derive(Clone, Debug)]
pub(super) struct Matches(Vec<(String, Text)>);

impl Matches {
    pub(super) fn read(
        section: &Stanza<'_>,
        templates: &mut Templates,
    ) -> Result<Self, ProviderError> {
        let table = section.section("matches")?;
        let one = |(pointer, wanted): (&String, &toml::Value)| {
            let key = format!("matches.{pointer}");
            let is_pointer = pointer.is_empty() || pointer.starts_with('/');
            let wanted = wanted.as_str().filter(|_| is_pointer).ok_or_else(|| {
                section.fault(
                    &key,
                    "must be a JSON pointer and a text, like `\"/to\" = \"…\"`",
                )
            })?;
            Ok((pointer.clone(), templates.add(section, &key, wanted)?))
        };
        table.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self, root: &str) -> bool {
        self.0.iter().any(|(_, text)| text.names(root))
    }

    /// What must stand in the entry of one message, by pointer.
    pub(super) fn wanted(
        &self,
        templates: &Templates,
        values: &Values<'_>,
    ) -> Result<Vec<(&str, String)>, Outcome> {
        let pairs = self.0.iter();
        pairs
            .map(|(at, text)| Ok((at.as_str(), templates.fill(text, values)?)))
            .collect()
    }
}

impl Matches {
    /// What stands in `entry`, by which the entries that may fit are found without looking at all of them.
    pub(super) fn key(&self, entry: &Json) -> Vec<String> {
        let places = self.0.iter();
        places.map(|(at, _)| normal(&found(entry, at))).collect()
    }
}

/// The [`Matches::key`] of an entry that fits.
pub(super) fn wanted_key(wanted: &[(&str, String)]) -> Vec<String> {
    wanted.iter().map(|(_, text)| normal(text)).collect()
}

/// Whether all that is wanted stands in `entry`.
pub(super) fn fits(entry: &Json, wanted: &[(&str, String)]) -> bool {
    wanted.iter().all(|(at, text)| stands(entry, at, text))
}

/// Numbers with and without `+` are the same.
fn stands(entry: &Json, pointer: &str, wanted: &str) -> bool {
    let found = found(entry, pointer);
    found == wanted || (!wanted.is_empty() && normal(&found) == normal(wanted))
}

fn found(entry: &Json, pointer: &str) -> String {
    match entry.pointer(pointer) {
        Some(Json::String(text)) => text.clone(),
        _ => scalar(entry, pointer).unwrap_or_default(),
    }
}

fn normal(text: &str) -> String {
    text.trim_start_matches('+').to_owned()
}
