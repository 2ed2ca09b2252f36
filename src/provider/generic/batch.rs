//! Several messages in one request, where a stanza says how: the part of the request that stands once for each of
//! them, and the list in the answer in which each of them has its result.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::matches::{Matches, fits, wanted_key};
use super::template::Templates;
use crate::provider::answer::Answer;
use crate::provider::secrets::Secrets;
use crate::provider::stanza::Stanza;
use crate::provider::{Message, ProviderError};

const KEYS: [&str; 5] = ["per_call", "repeat", "separator", "results", "matches"];

/// More are lost sight of when one answer does not come.
const MOST: usize = 1_000;

/// Table `batch` of a stanza.
pub(super) struct Batch {
    /// The most messages of one request.
    pub(super) per_call: usize,
    /// `json.messages`: what stands once for each message.
    pub(super) repeat: String,
    pub(super) separator: Option<String>,
    /// JSON pointer to the list of results; without one the answer is the same for all.
    results: Option<String>,
    /// What stands in the result of a message; nothing where the results are in the order of the messages.
    matches: Matches,
    templates: Templates,
}

/// Where the result of a message is.
pub(super) enum Place {
    /// The answer is the same for all.
    Whole,
    /// In this entry of the list.
    Entry(usize),
    /// There is no list.
    NoList,
    /// The list does not tell which entry it is: what is wrong with it.
    Unclear(&'static str),
}

impl Batch {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        secrets: &Secrets,
    ) -> Result<Option<Self>, ProviderError> {
        let Some(table) = stanza.optional::<toml::Table>("batch")? else {
            return Ok(None);
        };
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        let batch = Self::read_section(&section, secrets);
        batch.map(Some).map_err(|error| error.within("batch"))
    }

    fn read_section(section: &Stanza<'_>, secrets: &Secrets) -> Result<Self, ProviderError> {
        section.check_keys(&KEYS)?;
        let mut templates = Templates::new(secrets, None, false);
        let batch = Self {
            per_call: section.required("per_call")?,
            repeat: section.required("repeat")?,
            separator: section.optional("separator")?,
            results: section.optional("results")?,
            matches: Matches::read(section, &mut templates)?,
            templates,
        };
        if !(1..=MOST).contains(&batch.per_call) {
            return Err(section.fault("per_call", "must be 1 to 1000"));
        }
        if batch.separator.as_deref() == Some("") {
            return Err(section.fault("separator", "must not be empty"));
        }
        let results = batch.results.as_deref();
        if results.is_some_and(|at| !at.is_empty() && !at.starts_with('/')) {
            return Err(section.fault("results", "must be a JSON pointer, like `/messages`"));
        }
        let matches = &batch.matches;
        if !matches.is_empty() && results.is_none() {
            return Err(section.fault("matches", "needs `results`: where the list stands"));
        }
        if !matches.is_empty() && !matches.names("phone") && !matches.names("reference") {
            return Err(section.fault(
                "matches",
                "must name `{{ phone }}` or `{{ reference }}`: they tell one message from another",
            ));
        }
        Ok(batch)
    }

    /// The entries of the list of results.
    pub(super) fn results<'a>(&self, answer: &'a Answer<'_>) -> &'a [Json] {
        let results = self.results.as_deref();
        results.map_or(&[], |results| answer.list(results))
    }

    /// Where the result of each message is, in the order of the messages.
    pub(super) fn places(&self, answer: &Answer<'_>, messages: &[Message]) -> Vec<Place> {
        let Some(results) = &self.results else {
            return messages.iter().map(|_| Place::Whole).collect();
        };
        let list = answer.json.as_ref().and_then(|json| json.pointer(results));
        let Some(list) = list.and_then(Json::as_array) else {
            return messages.iter().map(|_| Place::NoList).collect();
        };
        if let ([_], [_]) = (messages, list.as_slice()) {
            // The answer to one message is about it, however it writes the number.
            return vec![Place::Entry(0)];
        }
        if !self.matches.is_empty() {
            let mut by_key: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
            for (at, entry) in list.iter().enumerate() {
                by_key.entry(self.matches.key(entry)).or_default().push(at);
            }
            let place = |message| self.place(list, &by_key, message);
            return messages.iter().map(place).collect();
        }
        let place = |at| {
            if list.len() == messages.len() {
                Place::Entry(at)
            } else {
                Place::Unclear(" with another count of results")
            }
        };
        (0..messages.len()).map(place).collect()
    }

    /// Where the result of one message is; `by_key` are the places of the entries by what stands in them.
    fn place(
        &self,
        list: &[Json],
        by_key: &HashMap<Vec<String>, Vec<usize>>,
        message: &Message,
    ) -> Place {
        let values = self.templates.values(message, None);
        let Ok(wanted) = self.matches.wanted(&self.templates, &values) else {
            return Place::Unclear(" in which its result cannot be told");
        };
        let places = by_key.get(&wanted_key(&wanted));
        let mut its = places
            .into_iter()
            .flatten()
            .filter(|at| fits(&list[**at], &wanted));
        match (its.next(), its.next()) {
            (Some(at), None) => Place::Entry(*at),
            (None, _) => Place::Unclear(" without a result for this message"),
            (Some(_), Some(_)) => Place::Unclear(" with two results for this message"),
        }
    }
}
