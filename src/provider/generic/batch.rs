//! Batches of a generic provider: the part of the request that is repeated for each message, and the list of results
//! in the response.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value as Json;
use toml::Table;

use super::body::Repeated;
use super::template::{Templates, Text, Values};
use crate::provider::Message;
use crate::provider::config::{ProviderError, Section};
use crate::provider::response::{ResponseView, scalar};
use crate::sms::Outcome;

/// With more messages too many would be unknown after one lost response.
const MAX_PER_CALL: usize = 1_000;

/// Section `batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchSettings {
    per_call: usize,
    repeat: String,
    separator: Option<String>,
    results: Option<String>,
    #[serde(default)]
    matches: Table,
    #[serde(default)]
    like_single: bool,
}

/// How several messages are sent in one request.
pub(super) struct Batch {
    /// The most messages of one request.
    pub(super) per_call: usize,
    /// The repeated part, like `json.messages`.
    pub(super) place: String,
    pub(super) repeated: Repeated,
    /// JSON pointer to the list of results; without one the response is the same for all.
    results: Option<String>,
    /// What identifies the result of a message; empty where the results are in the order of the messages.
    matches: EntryMatch,
    /// A single message is sent without the list, and each result is the response that its message would have had
    /// alone, with fields `status` and `retry_after`.
    pub(super) is_like_single: bool,
}

/// Where the result of a message is.
pub(super) enum ResultLocation {
    /// The response is the same for all messages.
    Whole,
    /// At this index of the list.
    Entry(usize),
    NoList,
    /// The list does not show which entry it is, and why.
    Unclear(&'static str),
}

impl Batch {
    pub(super) fn read(
        mut section: Section<'_>,
        templates: &mut Templates,
    ) -> Result<Self, ProviderError> {
        let settings: BatchSettings = section.rest()?;
        if !(1..=MAX_PER_CALL).contains(&settings.per_call) {
            return Err(section.invalid("per_call", "must be 1 to 1000"));
        }
        if settings.separator.as_deref() == Some("") {
            return Err(section.invalid("separator", "must not be empty"));
        }
        let results = settings.results.as_deref();
        if results.is_some_and(|at| !at.is_empty() && !at.starts_with('/')) {
            return Err(section.invalid("results", "must be a JSON pointer, like `/messages`"));
        }
        let matches = EntryMatch::read(&section, templates, &settings.matches)?;
        if !matches.is_empty() && results.is_none() {
            return Err(section.invalid("matches", "needs `results`: where the list is"));
        }
        if !matches.is_empty() && !matches.uses("phone") && !matches.uses("reference") {
            return Err(section.invalid(
                "matches",
                "must name `{{ phone }}` or `{{ reference }}`: they tell one message from another",
            ));
        }
        Ok(Self {
            per_call: settings.per_call,
            place: settings.repeat,
            repeated: Repeated {
                separator: settings.separator,
                unwraps_single: settings.like_single,
            },
            results: settings.results,
            matches,
            is_like_single: settings.like_single,
        })
    }

    pub(super) fn results<'a>(&self, response: &'a ResponseView<'_>) -> &'a [Json] {
        let results = self.results.as_deref();
        results.map_or(&[], |results| response.list(results))
    }

    /// The location of the result of each message, in the order of the messages.
    pub(super) fn locations(
        &self,
        templates: &Templates,
        response: &ResponseView<'_>,
        messages: &[Message],
    ) -> Vec<ResultLocation> {
        let all = |location: fn(usize) -> ResultLocation| (0..messages.len()).map(location);
        let Some(results) = &self.results else {
            return all(|_| ResultLocation::Whole).collect();
        };
        let list = response
            .json
            .as_ref()
            .and_then(|json| json.pointer(results));
        let Some(list) = list.and_then(Json::as_array) else {
            return all(|_| ResultLocation::NoList).collect();
        };
        match (messages, list.as_slice()) {
            // The only result is about the only message, however it writes the number.
            ([_], [_]) => return vec![ResultLocation::Entry(0)],
            _ if self.matches.is_empty() && list.len() == messages.len() => {
                return all(ResultLocation::Entry).collect();
            }
            _ if self.matches.is_empty() => {
                let unclear = |_| ResultLocation::Unclear(" with another count of results");
                return all(unclear).collect();
            }
            _ => {}
        }
        let mut by_key: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
        for (index, entry) in list.iter().enumerate() {
            by_key
                .entry(self.matches.key(entry))
                .or_default()
                .push(index);
        }
        let location = |message: &Message| {
            let Ok(expected) = self.matches.expected(templates, &Values::new(message)) else {
                return ResultLocation::Unclear(" in which its result cannot be found");
            };
            let key: Vec<String> = expected.iter().map(|(_, text)| normalized(text)).collect();
            let mut matching = by_key
                .get(&key)
                .into_iter()
                .flatten()
                .filter(|index| matches(&list[**index], &expected));
            match (matching.next(), matching.next()) {
                (Some(index), None) => ResultLocation::Entry(*index),
                (None, _) => ResultLocation::Unclear(" without a result for this message"),
                (Some(_), Some(_)) => ResultLocation::Unclear(" with two results for this message"),
            }
        };
        messages.iter().map(location).collect()
    }
}

/// Section `matches`: JSON pointers into an entry of the vendor's list and the values that an entry of a message has
/// there.
#[derive(Clone, Debug)]
pub(super) struct EntryMatch(Vec<(String, Text)>);

impl EntryMatch {
    pub(super) fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        table: &Table,
    ) -> Result<Self, ProviderError> {
        let pair = |(pointer, value): (&String, &toml::Value)| {
            let key = format!("matches.{pointer}");
            let is_pointer = pointer.is_empty() || pointer.starts_with('/');
            let value = value.as_str().filter(|_| is_pointer).ok_or_else(|| {
                section.invalid(
                    &key,
                    "must be a JSON pointer and a text, like `\"/to\" = \"…\"`",
                )
            })?;
            Ok((
                pointer.clone(),
                templates.add_required(section, &key, value)?,
            ))
        };
        table.iter().map(pair).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn uses(&self, root: &str) -> bool {
        self.0.iter().any(|(_, text)| text.uses(root))
    }

    /// The values in the entry of one message, by pointer.
    pub(super) fn expected(
        &self,
        templates: &Templates,
        values: &Values<'_>,
    ) -> Result<Vec<(&str, String)>, Outcome> {
        let pairs = self.0.iter();
        pairs
            .map(|(pointer, text)| Ok((pointer.as_str(), templates.fill_required(text, values)?)))
            .collect()
    }

    /// The values of an entry, to find the entries of a message without comparing all.
    fn key(&self, entry: &Json) -> Vec<String> {
        let values = self.0.iter();
        values
            .map(|(pointer, _)| normalized(&value_at(entry, pointer)))
            .collect()
    }
}

/// Whether `entry` has all `expected` values.
pub(super) fn matches(entry: &Json, expected: &[(&str, String)]) -> bool {
    expected.iter().all(|(pointer, text)| {
        let found = value_at(entry, pointer);
        found == *text || (!text.is_empty() && normalized(&found) == normalized(text))
    })
}

fn value_at(entry: &Json, pointer: &str) -> String {
    match entry.pointer(pointer) {
        Some(Json::String(text)) => text.clone(),
        _ => scalar(entry, pointer).unwrap_or_default(),
    }
}

/// Numbers with and without `+` are equal.
fn normalized(text: &str) -> String {
    text.trim_start_matches('+').to_owned()
}
