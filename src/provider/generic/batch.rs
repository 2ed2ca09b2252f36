//! Batches of a generic provider: the part of the request that is repeated for each message, and the list of results
//! in the response.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::sms::Outcome;
use toml::Table;

use super::places::Pointer;
use super::request::RequestTemplate;
use super::template::{SectionText, Templates, Values};
use crate::Message;
use crate::config::section::{ProviderError, Section};
use crate::response::{ResponseView, scalar};

/// With more messages too many would be unknown after one lost response.
const MAX_PER_CALL: usize = 1_000;

/// Section `batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchSettings {
    /// The most messages of one request.
    pub(super) per_call: usize,
    /// Like `json.messages`.
    repeat: String,
    separator: Option<String>,
    /// The list of results; without one the response is the same for all.
    results: Option<Pointer>,
    #[serde(default)]
    matches: Table,
    /// A single message is sent without the list, and each result is the response that its message would have had
    /// alone, with fields `status` and `retry_after`.
    #[serde(default)]
    pub(super) like_single: bool,
}

/// How the results of several messages are found in one response.
pub(super) struct BatchResults {
    pub(super) settings: BatchSettings,
    /// What identifies the result of a message; empty where the results are in the order of the messages.
    matches: EntryMatch,
}

/// A value that is cut to fewer characters is not taken for a part of another one.
const SHORTENED: usize = 6;

/// Where the result of a message is.
#[derive(Clone, Copy)]
pub(super) enum ResultLocation {
    /// The response is the same for all messages.
    Whole,
    /// At this index of the list.
    Entry(usize),
    NoList,
    /// The list does not show which entry it is, and why.
    Unclear(&'static str),
}

impl BatchResults {
    /// Reads the section, and repeats the part of `request` that it names.
    pub(super) fn read(
        mut section: Section<'_>,
        templates: &mut Templates,
        request: &mut RequestTemplate,
    ) -> Result<Self, ProviderError> {
        let settings: BatchSettings = section.rest()?;
        if !(1..=MAX_PER_CALL).contains(&settings.per_call) {
            return Err(section.invalid("per_call", "must be 1 to 1000"));
        }
        let separator = settings.separator.as_deref();
        if separator == Some("") {
            return Err(section.invalid("separator", "must not be empty"));
        }
        let matches = EntryMatch::read(&section, templates, &settings.matches)?;
        if !matches.is_empty() && settings.results.is_none() {
            return Err(section.invalid("matches", "needs `results`: where the list is"));
        }
        if !matches.is_empty() && !matches.uses("phone") && !matches.uses("reference") {
            return Err(section.invalid(
                "matches",
                "must contain `{{ phone }}` or `{{ reference }}`, which identify a message",
            ));
        }
        let place = settings.repeat.as_str();
        request
            .repeat(place, separator, settings.like_single)
            .map_err(|problem| section.invalid("repeat", format!("`{place}` {problem}")))?;
        Ok(Self { settings, matches })
    }

    pub(super) fn results<'a>(&self, response: &'a ResponseView<'_>) -> &'a [Json] {
        let results = self.settings.results.as_deref();
        results.map_or(&[], |results| response.list(results))
    }

    /// Whether the response has no list of results, or an empty one.
    pub(super) fn lists_nothing(&self, response: &ResponseView<'_>) -> bool {
        let results = self.settings.results.as_deref();
        let found = results.and_then(|results| response.json.as_ref()?.pointer(results));
        match found {
            None | Some(Json::Null) => true,
            Some(Json::Array(list)) => list.is_empty(),
            // The response itself is the list, or an error.
            Some(_) => results == Some(""),
        }
    }

    /// The location of the result of each message, in the order of the messages.
    pub(super) fn locations(
        &self,
        templates: &Templates,
        response: &ResponseView<'_>,
        messages: &[Message],
    ) -> Vec<ResultLocation> {
        let all = |location| vec![location; messages.len()];
        let Some(results) = self.settings.results.as_deref() else {
            return all(ResultLocation::Whole);
        };
        let list = response.json.as_ref().and_then(|json| json.pointer(results));
        let list = match list {
            Some(Json::Array(list)) => list,
            Some(_) if messages.len() > 1 && !self.lists_nothing(response) => {
                return all(ResultLocation::Unclear(" with results that are not a list"));
            }
            _ => return all(ResultLocation::NoList),
        };
        // The only result is about the only message, however it writes the number.
        if let ([_], [_]) = (messages, list.as_slice()) {
            return all(ResultLocation::Entry(0));
        }
        if self.matches.is_empty() {
            if list.len() == messages.len() {
                return (0..list.len()).map(ResultLocation::Entry).collect();
            }
            return all(ResultLocation::Unclear(" with a different number of results"));
        }
        let mut by_values: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
        for (index, entry) in list.iter().enumerate() {
            let indices = by_values.entry(self.matches.found(entry)).or_default();
            indices.push(index);
        }
        let location = |message: &Message| {
            let Ok(expected) = self.matches.expected(&templates.values(message)) else {
                return ResultLocation::Unclear(" in which its result cannot be found");
            };
            match by_values.get(&expected).map(Vec::as_slice) {
                Some([index]) => ResultLocation::Entry(*index),
                Some(_) => ResultLocation::Unclear(" with two results for this message"),
                None => ResultLocation::Unclear(" without a result for this message"),
            }
        };
        messages.iter().map(location).collect()
    }
}

/// Section `matches`: JSON pointers into an entry of the vendor's list and the values that an entry of a message has
/// there. Numbers with and without `+` are equal.
pub(super) struct EntryMatch(Vec<(String, SectionText)>);

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
                let problem = "must be a JSON pointer and a text, like `\"/to\" = \"…\"`";
                section.invalid(&key, problem)
            })?;
            let text = templates.add_required(section, &key, value)?;
            Ok((pointer.clone(), text))
        };
        table.iter().map(pair).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn uses(&self, root: &str) -> bool {
        self.0.iter().any(|(_, text)| text.uses(root))
    }

    /// The values of one message, to compare with those that are found.
    pub(super) fn expected(&self, values: &Values<'_>) -> Result<Vec<String>, Outcome> {
        let texts = self.0.iter();
        texts.map(|(_, text)| Ok(normalized(&values.fill_required(text)?))).collect()
    }

    /// Whether an entry with other values may all the same be of the message: they are missing, or written otherwise.
    pub(super) fn may_be(&self, entry: &Json, expected: &[String]) -> bool {
        let pairs = self.found(entry).into_iter().zip(expected);
        let mut similar = pairs.map(|(found, expected)| is_similar(&found, expected));
        similar.all(|is_similar| is_similar)
    }

    /// The values of an entry of the list.
    pub(super) fn found(&self, entry: &Json) -> Vec<String> {
        let value = |pointer: &str| match entry.pointer(pointer) {
            Some(Json::String(text)) => normalized(text),
            _ => normalized(&scalar(entry, pointer).unwrap_or_default()),
        };
        self.0.iter().map(|(pointer, _)| value(pointer)).collect()
    }
}

/// Whether a value is empty, or one is the other in another case, with padding, or shortened at one end.
fn is_similar(found: &str, expected: &str) -> bool {
    let plain = |text: &str| text.trim().to_lowercase();
    let (found, expected) = (plain(found), plain(expected));
    let (short, long) =
        if found.len() < expected.len() { (&found, &expected) } else { (&expected, &found) };
    let is_part = long.starts_with(short.as_str()) || long.ends_with(short.as_str());
    found.is_empty() || found == expected || (short.len() >= SHORTENED && is_part)
}

fn normalized(text: &str) -> String {
    text.trim_start_matches('+').to_owned()
}
