//! How a vendor is asked what became of a message, where a stanza says how: a list of messages, and what stands
//! in an entry that is ours.

use bytes::Bytes;
use http::Request;
use serde_json::Value as Json;

use super::body::Scope;
use super::matches::{Matches, fits};
use super::pattern::Pattern;
use crate::provider::answer::{Answer, acceptance, scalar};
use crate::provider::capabilities::{Attempt, Fit, Lookup, LookupResult, MARGIN, SHARED, Sought};
use crate::provider::codes::Codes;
use crate::provider::secrets::Secrets;
use crate::provider::stanza::Stanza;
use crate::provider::vendor::unclear;
use crate::provider::{Message, ProviderError};
use crate::sms::{Outcome, Timestamp};

const KEYS: [&str; 12] = [
    "url",
    "method",
    "query",
    "form",
    "list",
    "more",
    "total",
    "matches",
    "message_id",
    "error_code",
    "at",
    "sure",
];

/// Table `lookup` of a stanza.
pub(super) struct Question {
    pub(super) plan: Lookup,
    pattern: Pattern,
    /// JSON pointer to the list of messages in the answer.
    list: String,
    whole: Whole,
    /// What stands in an entry that is ours.
    matches: Matches,
    message_id: String,
    /// Where the code of an entry stands that was not accepted.
    error_code: Option<String>,
    /// Where the moment of an entry stands: it must be that of the attempt.
    at: Option<String>,
    /// Whether an entry that matches is certainly ours.
    sure: bool,
}

/// How an answer shows that its list is complete. A list with few entries may go on all the same.
#[derive(Debug, Default)]
struct Whole {
    /// The vendor always lists all.
    always: bool,
    /// JSON pointer to what is null, false or empty on the last page.
    more: Option<String>,
    /// JSON pointer to the number of all entries.
    total: Option<String>,
}

impl Question {
    /// The headers are those of the stanza itself. `is_shared` is where messages may go together under one reference.
    pub(super) fn read(
        stanza: &Stanza<'_>,
        secrets: &Secrets,
        is_shared: bool,
    ) -> Result<Option<Self>, ProviderError> {
        let Some(plan) = Lookup::read(stanza, &KEYS)? else {
            return Ok(None);
        };
        let table = stanza.section("lookup")?;
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        Pattern::ask(&section, stanza, secrets)
            .and_then(|pattern| Self::read_section(&section, plan, pattern, is_shared))
            .map(Some)
            .map_err(|error| error.within("lookup"))
    }

    fn read_section(
        section: &Stanza<'_>,
        mut plan: Lookup,
        mut pattern: Pattern,
        is_shared: bool,
    ) -> Result<Self, ProviderError> {
        let matches = Matches::read(section, &mut pattern.templates)?;
        if matches.is_empty() {
            return Err(section.fault("matches", "must say what stands in an entry that is ours"));
        }
        let whole = Whole::read(section)?;
        if plan.absent_after.is_some() && !whole.can_be_told() {
            let problem = "needs `more` or `total`: how the answer shows that its list is complete";
            return Err(section.fault("absent_after", problem));
        }
        // Who asks by reference does not find a message that went with others.
        if is_shared && pattern.names("reference", Scope::Anywhere) {
            plan.absent_after = None;
        }
        Ok(Self {
            plan,
            pattern,
            list: section.required("list")?,
            whole,
            matches,
            message_id: section.required("message_id")?,
            error_code: section.optional("error_code")?,
            at: section.optional("at")?,
            sure: section.optional("sure")?.unwrap_or(true),
        })
    }

    pub(super) fn request(
        &self,
        message: &Message,
        attempt: Attempt,
    ) -> Result<Request<Bytes>, Outcome> {
        self.pattern.fill(message, Some(since(attempt)))
    }

    pub(super) fn ids(&self, answer: &Answer<'_>) -> Vec<String> {
        let entries = answer.list(&self.list).iter();
        entries
            .filter_map(|entry| scalar(entry, &self.message_id))
            .collect()
    }

    pub(super) fn found(
        &self,
        codes: &Codes,
        sought: &Sought<'_>,
        answer: &Answer<'_>,
    ) -> LookupResult {
        let json = answer.json.as_ref().filter(|_| answer.status.is_success());
        let list = json.and_then(|json| json.pointer(&self.list)?.as_array());
        let (Some(json), Some(list)) = (json, list) else {
            return unclear(answer.reason("", None));
        };
        let templates = &self.pattern.templates;
        let values = templates.values(sought.message, Some(since(sought.attempt)));
        let Ok(wanted) = self.matches.wanted(templates, &values) else {
            return unclear("what would be ours cannot be told".to_owned());
        };
        let is_by_reference =
            self.matches.names("reference") || self.pattern.names("reference", Scope::Anywhere);
        let has_twin = !is_by_reference && sought.has_twin(self.matches.names("content"));
        let mut may_be_listed = None;
        for entry in list {
            let id = scalar(entry, &self.message_id);
            let at = self.at.as_deref().and_then(|at| scalar(entry, at));
            let fit = sought.fit(at.and_then(|at| moment(&at)));
            if fit == Fit::Other || sought.is_other(id.as_deref()) {
                continue;
            }
            match (fits(entry, &wanted), fit, id) {
                (true, ..) if has_twin => {
                    may_be_listed = Some("another message to this phone may be the one it lists");
                }
                (true, Fit::Near, Some(id)) if self.sure => {
                    return self.standing(codes, answer, entry, &id);
                }
                (true, Fit::Near, None) if self.sure => {
                    may_be_listed = Some("the provider lists it without an id");
                }
                (true, ..) => may_be_listed = Some("the provider has a message that may be it"),
                (false, ..) if is_shared(entry, &wanted) => {
                    may_be_listed = Some("it may be in a request that the provider has of several");
                }
                (false, ..) => {}
            }
        }
        match may_be_listed {
            Some(reason) => unclear(reason.to_owned()),
            None if self.whole.holds(json, list.len()) => LookupResult::Absent,
            None => unclear("the provider's list may go on".to_owned()),
        }
    }

    /// What the vendor's own entry of the message says.
    fn standing(&self, codes: &Codes, answer: &Answer<'_>, entry: &Json, id: &str) -> LookupResult {
        let code = self.error_code.as_deref().and_then(|at| scalar(entry, at));
        match code.and_then(|code| answer.listed(codes, &code, None)) {
            None | Some(Outcome::Accepted(_)) => LookupResult::Found(acceptance(id, None, None)),
            Some(Outcome::Unknown(failure)) => LookupResult::Unclear(failure),
            Some(outcome) => LookupResult::NotAccepted(outcome),
        }
    }
}

impl Whole {
    fn read(section: &Stanza<'_>) -> Result<Self, ProviderError> {
        let (always, more) = match section.table.get("more") {
            None => (false, None),
            Some(toml::Value::Boolean(false)) => (true, None),
            Some(toml::Value::String(at)) if at.starts_with('/') => (false, Some(at.clone())),
            Some(_) => {
                let problem = "must be a JSON pointer, like `/meta/next`, or `false`: the list is always complete";
                return Err(section.fault("more", problem));
            }
        };
        let total: Option<String> = section.optional("total")?;
        if total.as_ref().is_some_and(|at| !at.starts_with('/')) {
            return Err(section.fault("total", "must be a JSON pointer, like `/total`"));
        }
        Ok(Self {
            always,
            more,
            total,
        })
    }

    fn can_be_told(&self) -> bool {
        self.always || self.more.is_some() || self.total.is_some()
    }

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
        self.can_be_told()
            && self.more.as_ref().is_none_or(is_last)
            && self.total.as_ref().is_none_or(is_all)
    }
}

/// `{{ since }}`: early enough however the clocks differ.
fn since(attempt: Attempt) -> Timestamp {
    attempt.started_after.minus(MARGIN)
}

/// Whether the entry bears the reference of several messages.
fn is_shared(entry: &Json, wanted: &[(&str, String)]) -> bool {
    let mut found = wanted.iter().filter_map(|(at, _)| scalar(entry, at));
    found.any(|text| text.starts_with(SHARED))
}

/// With a zone, or without one in UTC.
fn moment(text: &str) -> Option<Timestamp> {
    let with_zone = text.parse::<jiff::Timestamp>().ok();
    let instant = with_zone.or_else(|| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::Offset::UTC.to_timestamp(local).ok()
    })?;
    Some(Timestamp::from_millis(instant.as_millisecond()))
}
