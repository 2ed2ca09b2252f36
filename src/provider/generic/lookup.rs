//! Status lookups of a generic provider: the vendor returns a list of messages, or the message itself.

use std::slice;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::Value as Json;
use toml::Table;

use super::batch::{EntryMatch, matches};
use super::body::Scope;
use super::request::{RequestSettings, RequestTemplate};
use super::response::Pointers;
use super::template::{Templates, Values};
use crate::provider::capabilities::{
    Attempt, Lookup, LookupResult, LookupTarget, MARGIN, SHARED_REFERENCE, TimeMatch,
};
use crate::provider::codes::Codes;
use crate::provider::config::{ProviderError, Section};
use crate::provider::response::{ResponseView, acceptance, scalar};
use crate::provider::{Message, unclear};
use crate::sms::{Outcome, Timestamp};

/// The keys of section `lookup` besides those of the request and of [`Lookup`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupRules {
    url: Option<String>,
    list: Option<String>,
    #[serde(default)]
    matches: Table,
    message_id: String,
    error_code: Option<Pointers>,
    at: Option<String>,
    #[serde(default = "is_sure")]
    sure: bool,
    more: Option<toml::Value>,
    total: Option<String>,
    absent: Option<String>,
    #[serde(default)]
    only_ours: bool,
}

const fn is_sure() -> bool {
    true
}

/// Section `lookup`.
pub(super) struct StatusLookup {
    request: RequestTemplate,
    /// JSON pointer to the list of messages; without one the response is the message.
    list: Option<String>,
    completeness: Completeness,
    /// What identifies the entry of a message.
    matches: EntryMatch,
    message_id: String,
    /// Where an entry has its code.
    error_code: Option<Pointers>,
    /// Where an entry has its time, which must be that of the attempt.
    at: Option<String>,
    /// Whether an entry that matches is certainly the message.
    is_sure: bool,
}

/// How a response shows that its list is complete. A list with few entries may still be continued.
struct Completeness {
    /// The vendor always lists all.
    is_always: bool,
    /// JSON pointer to what is null, false or empty on the last page.
    more: Option<String>,
    /// JSON pointer to the number of all entries.
    total: Option<String>,
    /// JSON pointer to a text in a 404 response: the vendor does not have the message. Without the text, the URL may
    /// be wrong.
    absent: Option<String>,
    /// The vendor lists only entries of the message, so a list with others proves nothing.
    only_ours: bool,
}

impl StatusLookup {
    /// Reads the section, which takes the headers and the URL of the sending request where it has none.
    pub(super) fn read(
        mut section: Section<'_>,
        templates: &mut Templates,
        url: &str,
        send: &RequestSettings,
    ) -> Result<(Lookup, Self), ProviderError> {
        let lookup: Lookup = section.take(&Lookup::KEYS)?;
        let mut settings: RequestSettings = section.take(&RequestSettings::KEYS)?;
        let rules: LookupRules = section.rest()?;
        if rules.url.is_none() && settings.path.is_none() {
            settings.path.clone_from(&send.path);
        }
        settings.headers.clone_from(&send.headers);
        let url = rules.url.as_deref().unwrap_or(url);
        let request = RequestTemplate::read(&section, templates, url, &settings, Method::GET)?;
        let matches = EntryMatch::read(&section, templates, &rules.matches)?;
        if matches.is_empty() {
            return Err(section.missing("matches"));
        }
        let completeness = Completeness::read(&section, &rules)?;
        if lookup.absent_after.is_some() && !completeness.is_shown() {
            let problem =
                "needs `more`, `total` or `absent`: how the answer shows that its list is complete";
            return Err(section.invalid("absent_after", problem));
        }
        let status_lookup = Self {
            request,
            list: rules.list,
            completeness,
            matches,
            message_id: rules.message_id,
            error_code: rules.error_code,
            at: rules.at,
            is_sure: rules.sure,
        };
        Ok((lookup, status_lookup))
    }

    pub(super) fn is_by_reference(&self) -> bool {
        self.request.uses("reference", Scope::Anywhere)
    }

    pub(super) fn request(
        &self,
        templates: &Templates,
        message: &Message,
        attempt: Attempt,
    ) -> Result<Request<Bytes>, Outcome> {
        let values = Values::with_since(message, since(attempt));
        self.request.fill(templates, &values, &[])
    }

    fn entries<'a>(&self, json: &'a Json) -> Option<&'a [Json]> {
        match &self.list {
            Some(list) => json.pointer(list)?.as_array().map(Vec::as_slice),
            None => Some(slice::from_ref(json)),
        }
    }

    pub(super) fn ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        let entries = response.json.as_ref().and_then(|json| self.entries(json));
        let entries = entries.unwrap_or_default().iter();
        entries
            .filter_map(|entry| scalar(entry, &self.message_id))
            .collect()
    }

    pub(super) fn parse(
        &self,
        templates: &Templates,
        codes: &Codes,
        target: &LookupTarget<'_>,
        response: &ResponseView<'_>,
    ) -> LookupResult {
        if self.completeness.shows_absence(response) {
            return LookupResult::Absent;
        }
        let json = response.json.as_ref();
        let json = json.filter(|_| response.status.is_success());
        let entries = json.and_then(|json| Some((json, self.entries(json)?)));
        let Some((json, entries)) = entries else {
            return unclear(response.reason("", None));
        };
        let values = Values::with_since(target.message, since(target.attempt));
        let Ok(expected) = self.matches.expected(templates, &values) else {
            return unclear("the entry of the message cannot be identified");
        };
        let is_by_reference = self.matches.uses("reference") || self.is_by_reference();
        let has_twin = !is_by_reference && target.has_twin(self.matches.uses("content"));
        let mut doubt = None;
        for entry in entries {
            let id = scalar(entry, &self.message_id);
            let at = self.at.as_deref().and_then(|at| scalar(entry, at));
            let time = target.matches_time(at.and_then(|at| parse_time(&at)));
            if time == TimeMatch::No || target.belongs_to_other(id.as_deref()) {
                continue;
            }
            match (matches(entry, &expected), time, id) {
                (true, ..) if has_twin => {
                    doubt = Some("another message to this phone may be the one it lists");
                }
                (true, TimeMatch::Yes, Some(id)) if self.is_sure => {
                    return self.result_of_entry(codes, response, entry, &id);
                }
                (true, TimeMatch::Yes, None) if self.is_sure => {
                    doubt = Some("the provider lists it without an id");
                }
                (true, ..) => doubt = Some("the provider has a message that may be it"),
                (false, ..) if has_shared_reference(entry, &expected) => {
                    doubt = Some("it may be in a request that the provider has of several");
                }
                (false, ..) => {}
            }
        }
        match doubt {
            Some(reason) => unclear(reason),
            None if self.completeness.holds(json, entries.len()) => LookupResult::Absent,
            None => unclear("the provider's list may go on"),
        }
    }

    fn result_of_entry(
        &self,
        codes: &Codes,
        response: &ResponseView<'_>,
        entry: &Json,
        id: &str,
    ) -> LookupResult {
        let mut entry_codes = self.error_code.iter().flat_map(|at| at.in_json(entry));
        let outcome = entry_codes.find_map(|code| response.outcome_of_code(codes, &code, None));
        match outcome {
            None | Some(Outcome::Accepted(_)) => LookupResult::Found(acceptance(id, None, None)),
            Some(Outcome::Unknown(failure)) => LookupResult::Unclear(failure),
            Some(outcome) => LookupResult::NotAccepted(outcome),
        }
    }
}

impl Completeness {
    fn read(section: &Section<'_>, rules: &LookupRules) -> Result<Self, ProviderError> {
        let is_pointer = |pointer: &String| pointer.starts_with('/');
        let (is_always, more) = match &rules.more {
            None => (false, None),
            Some(toml::Value::Boolean(false)) => (true, None),
            Some(toml::Value::String(more)) if is_pointer(more) => (false, Some(more.clone())),
            Some(_) => {
                let problem = "must be a JSON pointer, like `/meta/next`, or `false`: the list is always complete";
                return Err(section.invalid("more", problem));
            }
        };
        for (key, pointer) in [("total", &rules.total), ("absent", &rules.absent)] {
            if !pointer.iter().all(is_pointer) {
                let problem = format!("must be a JSON pointer, like `/{key}`");
                return Err(section.invalid(key, problem));
            }
        }
        Ok(Self {
            is_always,
            more,
            total: rules.total.clone(),
            absent: rules.absent.clone(),
            only_ours: rules.only_ours,
        })
    }

    fn is_shown(&self) -> bool {
        self.has_list_mark() || self.absent.is_some()
    }

    fn has_list_mark(&self) -> bool {
        self.is_always || self.more.is_some() || self.total.is_some()
    }

    fn shows_absence(&self, response: &ResponseView<'_>) -> bool {
        let text = self.absent.as_ref().and_then(|at| response.scalar(at));
        response.status == StatusCode::NOT_FOUND && text.is_some()
    }

    /// Whether the list with this many entries is complete.
    fn holds(&self, json: &Json, listed: usize) -> bool {
        let is_last = |at: &String| match json.pointer(at) {
            Some(Json::Null | Json::Bool(false)) => true,
            Some(Json::String(text)) => text.is_empty(),
            _ => false,
        };
        let is_all = |at: &String| {
            let total = scalar(json, at).and_then(|total| total.parse::<usize>().ok());
            total.is_some_and(|total| total <= listed)
        };
        self.has_list_mark()
            && self.more.as_ref().is_none_or(is_last)
            && self.total.as_ref().is_none_or(is_all)
            && !(self.only_ours && listed > 0)
    }
}

/// `{{ since }}`: early enough even if the clocks differ.
fn since(attempt: Attempt) -> Timestamp {
    attempt.started_after.minus(MARGIN)
}

/// Whether the entry has a reference that several messages share.
fn has_shared_reference(entry: &Json, expected: &[(&str, String)]) -> bool {
    let mut found = expected.iter().filter_map(|(at, _)| scalar(entry, at));
    found.any(|text| text.starts_with(SHARED_REFERENCE))
}

/// A time without an offset is in UTC.
fn parse_time(text: &str) -> Option<Timestamp> {
    let with_offset = text.parse::<jiff::Timestamp>().ok();
    let instant = with_offset.or_else(|| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::Offset::UTC.to_timestamp(local).ok()
    })?;
    Some(Timestamp::from_millis(instant.as_millisecond()))
}
