//! Status lookups of a generic provider: the vendor returns a list of messages, or the message itself.

use std::collections::HashMap;

use http::{Method, StatusCode};
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::sms::Outcome;
use toml::Table;

use super::batch::EntryMatch;
use super::places::{Node, Pointer, Pointers};
use super::request::{RequestSettings, RequestTemplate, Scope};
use super::template::{Templates, Values};
use crate::capabilities::{
    self, AttemptSpan, Lookup, LookupResult, LookupTarget, MARGIN, SHARED_REFERENCE, TimeMatch,
};
use crate::codes::Codes;
use crate::config::check_lookup;
use crate::config::section::{ProviderError, Section};
use crate::response::{ResponseView, scalar};
use crate::{Message, RequestResult, found, times, unclear};

/// The keys of section `lookup` other than those of the request and of [`Lookup`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupRules {
    url: Option<String>,
    /// The list of messages; without one the response is the message.
    list: Option<Pointer>,
    #[serde(default)]
    matches: Table,
    message_id: Pointer,
    /// Where an entry has its code.
    error_code: Option<Pointers>,
    /// Where an entry has its time, which must be that of the attempt.
    at: Option<Pointer>,
    /// Whether an entry that matches is certainly the message; it is by default.
    sure: Option<bool>,
    more: Option<More>,
    /// The number of all entries.
    total: Option<Pointer>,
    /// A text in a 404 response: the vendor does not have the message. Without the text, the URL may be wrong.
    absent: Option<Pointer>,
    /// The vendor lists only entries of the message, so entries of other messages are not evidence.
    #[serde(default)]
    only_ours: bool,
}

/// Whether a list with few entries may be continued.
#[derive(Deserialize)]
#[serde(try_from = "toml::Value")]
enum More {
    Never,
    /// What is null, false or empty on the last page.
    At(String),
}

impl TryFrom<toml::Value> for More {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        match value {
            toml::Value::Boolean(false) => Ok(Self::Never),
            toml::Value::String(pointer) if pointer.starts_with('/') => Ok(Self::At(pointer)),
            _ => Err(
                "must be a JSON pointer, like `/meta/next`, or `false`: the list is always complete",
            ),
        }
    }
}

/// Section `lookup`.
pub(super) struct StatusLookup {
    request: RequestTemplate,
    /// What identifies the entry of a message.
    matches: EntryMatch,
    rules: LookupRules,
}

impl StatusLookup {
    /// Reads the section, which takes the headers and the URL of the sending request where it has none.
    pub(super) fn read(
        mut section: Section<'_>,
        templates: &mut Templates,
        sending: &RequestSettings,
    ) -> Result<(Lookup, Self), ProviderError> {
        let lookup: Lookup = section.take()?;
        check_lookup(&section, &lookup)?;
        let mut settings: RequestSettings = section.take()?;
        let rules: LookupRules = section.rest()?;
        if rules.url.is_none() && settings.path.is_none() {
            settings.path.clone_from(&sending.path);
        }
        settings.headers.clone_from(&sending.headers);
        settings.url = rules.url.clone().or_else(|| sending.url.clone());
        let request = RequestTemplate::read(&section, templates, &settings, Method::GET)?;
        let matches = EntryMatch::read(&section, templates, &rules.matches)?;
        if matches.is_empty() {
            return Err(section.missing("matches"));
        }
        let status_lookup = Self { request, matches, rules };
        let can_show_absence =
            status_lookup.can_be_complete() || status_lookup.rules.absent.is_some();
        if lookup.absent_after.is_some() && !can_show_absence {
            let problem =
                "needs `more`, `total` or `absent`: how the answer shows that its list is complete";
            return Err(section.invalid("absent_after", problem));
        }
        Ok((lookup, status_lookup))
    }

    pub(super) fn is_by_reference(&self) -> bool {
        self.request.uses("reference", Scope::Anywhere)
    }

    pub(super) fn request(
        &self,
        templates: &Templates,
        message: &Message,
        attempt: AttemptSpan,
    ) -> RequestResult {
        self.request.fill(&values(templates, message, attempt), &[])
    }

    pub(super) fn ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        Node::of_response(response, None)
            .entries(self.rules.list.as_ref())
            .unwrap_or_default()
            .iter()
            .filter_map(|entry| scalar(entry, &self.rules.message_id))
            .collect()
    }

    pub(super) fn parse(
        &self,
        templates: &Templates,
        codes: &Codes,
        target: &LookupTarget<'_>,
        response: &ResponseView<'_>,
    ) -> LookupResult {
        let list = Node::of_response(response, None);
        let absent = self.rules.absent.as_deref();
        let is_absent = absent.is_some_and(|at| list.scalar(at).is_some());
        if response.status == StatusCode::NOT_FOUND && is_absent {
            return LookupResult::Absent;
        }
        let is_readable = response.status.is_success() && response.json.is_some();
        let entries = list.entries(self.rules.list.as_ref());
        let Some(entries) = entries.filter(|_| is_readable) else {
            return unclear(response.reason("", None));
        };
        let values = values(templates, target.message, target.attempt);
        let Ok(expected) = self.matches.expected(&values) else {
            return unclear("the entry of the message cannot be identified");
        };
        let refused = self.expected_of_refused(templates, target);
        let has_reference = self.matches.uses("reference");
        let is_by_reference = has_reference || self.is_by_reference();
        let has_twin = !is_by_reference && target.has_twin(self.matches.uses("content"));
        let is_sure = self.rules.sure.unwrap_or(true);
        let (mut doubt, mut listed) = (None, Vec::new());
        for entry in entries {
            let id = scalar(entry, &self.rules.message_id);
            let at = self.rules.at.as_deref().and_then(|at| scalar(entry, at));
            let time = target.matches_time(at.and_then(|at| times::parse(&at, &TimeZone::UTC)));
            let found = self.matches.found(entry);
            let is_it = found == expected;
            // A reference is of one attempt, whatever time the list has.
            let is_own = is_it && has_reference;
            if target.belongs_to_other(id.as_deref()) {
                continue;
            }
            if let Some(reference) = refused.get(&found) {
                let id = id.as_deref().unwrap_or(reference);
                let result = self.result_of_entry(codes, response, entry, id);
                listed.extend(result.of_refused(reference));
                continue;
            }
            if time == TimeMatch::No && !is_own {
                if is_it && is_by_reference {
                    doubt = Some("the provider lists it with another time");
                }
                continue;
            }
            let time = if is_own { TimeMatch::Yes } else { time };
            let is_of_batch = || found.iter().any(|text| text.starts_with(SHARED_REFERENCE));
            match (is_it, time, id) {
                (true, ..) if has_twin => {
                    doubt = Some("another message to this phone may be the one it lists");
                }
                (true, TimeMatch::Yes, Some(id)) if is_sure => {
                    listed.push(self.result_of_entry(codes, response, entry, &id));
                }
                (true, TimeMatch::Yes, None) if is_sure => {
                    doubt = Some("the provider lists it without an id");
                }
                (true, ..) => doubt = Some("a message of the provider may be this one"),
                (false, ..) if is_of_batch() => {
                    doubt = Some("it may be part of a batch that the provider lists");
                }
                (false, ..) if self.matches.may_be(entry, &expected) => {
                    doubt = Some("an entry of the provider's list may be this message");
                }
                (false, ..) => {}
            }
        }
        let is_part = response.is_part().is_some();
        let may_match = doubt.is_some() || is_part || !self.is_whole(list, entries.len());
        let decided = capabilities::strongest(listed, may_match);
        if let Some(LookupResult::NotAccepted(_)) = &decided
            && !is_by_reference
        {
            // It may be the entry of another message or attempt.
            return unclear("the provider lists messages to this phone without our reference");
        }
        match (decided, doubt) {
            (Some(result), _) => result,
            (None, Some(reason)) => unclear(reason),
            (None, None) if self.is_complete(list, entries.len()) => LookupResult::Absent,
            (None, None) => unclear("the provider's list may have more pages"),
        }
    }

    /// What the entries of attempts have that were answered as not accepted, and the references of these attempts.
    fn expected_of_refused<'a>(
        &self,
        templates: &'a Templates,
        target: &LookupTarget<'a>,
    ) -> HashMap<Vec<String>, &'a str> {
        let has_reference = self.matches.uses("reference");
        let refused = target.refused().iter().filter(|_| has_reference);
        let expected = |reference: &'a String| {
            let mut values = values(templates, target.message, target.attempt);
            values.reference = reference;
            Some((self.matches.expected(&values).ok()?, reference.as_str()))
        };
        refused.filter_map(expected).collect()
    }

    fn result_of_entry(
        &self,
        codes: &Codes,
        response: &ResponseView<'_>,
        entry: &Json,
        id: &str,
    ) -> LookupResult {
        let outcome = Node::new(entry)
            .values(self.rules.error_code.as_ref())
            .iter()
            .find_map(|code| response.outcome_of_code(codes, code, None));
        match outcome {
            None | Some(Outcome::Accepted(_) | Outcome::Duplicate(_)) => found(id),
            Some(Outcome::Unknown(failure)) => LookupResult::Unclear(failure),
            Some(outcome) => LookupResult::NotAccepted(outcome),
        }
    }

    /// Whether the vendor's list can be shown to be complete.
    fn can_be_complete(&self) -> bool {
        self.rules.more.is_some() || self.rules.total.is_some()
    }

    /// Whether the list with this many entries shows that there is no other message in the vendor's.
    fn is_complete(&self, list: Node<'_>, listed: usize) -> bool {
        let has_others = self.rules.only_ours && listed > 0;
        self.can_be_complete() && self.is_whole(list, listed) && !has_others
    }

    /// Whether nothing in the list with this many entries says that it is continued.
    fn is_whole(&self, list: Node<'_>, listed: usize) -> bool {
        let is_last = match &self.rules.more {
            None | Some(More::Never) => true,
            Some(More::At(at)) => match list.json().pointer(at) {
                Some(Json::Null | Json::Bool(false)) => true,
                Some(Json::String(text)) => text.is_empty(),
                _ => false,
            },
        };
        let is_all = self.rules.total.as_deref().is_none_or(|at| {
            let total = list.scalar(at).and_then(|total| total.parse().ok());
            total.is_some_and(|total: usize| total <= listed)
        });
        is_last && is_all
    }
}

/// With `{{ since }}` early enough even if the clocks differ.
fn values<'a>(templates: &'a Templates, message: &'a Message, attempt: AttemptSpan) -> Values<'a> {
    let mut values = templates.values(message);
    let since = attempt.started_after.minus(MARGIN);
    values.extra = vec![("since", since.to_string())];
    values
}
