//! How a vendor is asked what became of a message, where a stanza says how: a list of messages, and what stands
//! in an entry that is ours.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::Value as Json;

use super::body::Scope;
use super::matches::{Matches, fits};
use super::pattern::Pattern;
use crate::provider::answer::{Answer, receipt, scalar};
use crate::provider::secrets::Secrets;
use crate::provider::stanza::Stanza;
use crate::provider::supports::{Finding, LookUp, SHARED};
use crate::provider::vendor::unclear;
use crate::provider::{Message, ProviderError};
use crate::sms::{Outcome, Timestamp};

const KEYS: [&str; 9] = [
    "url",
    "method",
    "query",
    "form",
    "list",
    "matches",
    "message_id",
    "at",
    "page",
];
const SURE: &str = "sure";

/// The vendor's clock before the attempt, and the time a request may take behind it.
const BEFORE: Duration = Duration::from_secs(60);
const BEHIND: Duration = Duration::from_secs(300);

/// Table `look_up` of a stanza.
pub(super) struct Question {
    pub(super) plan: LookUp,
    pattern: Pattern,
    /// JSON pointer to the list of messages in the answer.
    list: String,
    /// What stands in an entry that is ours.
    matches: Matches,
    message_id: String,
    /// Where the moment of an entry stands: it must be that of the attempt.
    at: Option<String>,
    /// A list of so many may have gone on.
    page: usize,
    /// Whether an entry that matches is certainly ours.
    sure: bool,
}

impl Question {
    /// The headers are those of the stanza itself. `is_shared` is where messages may go together under one reference.
    pub(super) fn read(
        stanza: &Stanza<'_>,
        secrets: &Secrets,
        is_shared: bool,
    ) -> Result<Option<Self>, ProviderError> {
        let Some(plan) = LookUp::read(stanza, &[&KEYS[..], &[SURE]].concat())? else {
            return Ok(None);
        };
        let table = stanza.section("look_up")?;
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        Pattern::ask(&section, stanza, secrets)
            .and_then(|pattern| Self::read_section(&section, plan, pattern, is_shared))
            .map(Some)
            .map_err(|error| error.within("look_up"))
    }

    fn read_section(
        section: &Stanza<'_>,
        mut plan: LookUp,
        mut pattern: Pattern,
        is_shared: bool,
    ) -> Result<Self, ProviderError> {
        let matches = Matches::read(section, &mut pattern.templates)?;
        if matches.is_empty() {
            return Err(section.fault("matches", "must say what stands in an entry that is ours"));
        }
        // Who asks by reference does not find a message that went with others.
        if is_shared && pattern.names("reference", Scope::Anywhere) {
            plan.absent_after = None;
        }
        Ok(Self {
            plan,
            pattern,
            list: section.required("list")?,
            matches,
            message_id: section.required("message_id")?,
            at: section.optional("at")?,
            page: section.optional("page")?.unwrap_or(100),
            sure: section.optional(SURE)?.unwrap_or(true),
        })
    }

    pub(super) fn request(
        &self,
        message: &Message,
        sent_at: Timestamp,
    ) -> Result<Request<Bytes>, Outcome> {
        self.pattern.fill(message, Some(sent_at.minus(BEFORE)))
    }

    pub(super) fn found(
        &self,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        let json = answer.json.as_ref();
        let list = json.and_then(|json| json.pointer(&self.list)?.as_array());
        let Some(list) = list.filter(|_| answer.status.is_success()) else {
            return unclear(answer.reason("", None));
        };
        let templates = &self.pattern.templates;
        let values = templates.values(message, Some(sent_at.minus(BEFORE)));
        let Ok(wanted) = self.matches.wanted(templates, &values) else {
            return unclear("what would be ours cannot be told".to_owned());
        };
        let is_near = |entry: &&Json| {
            let at = self.at.as_deref();
            let at = at.and_then(|at| moment(&scalar(entry, at)?));
            at.is_none_or(|at| at >= sent_at.minus(BEFORE) && at <= sent_at.plus(BEHIND))
        };
        let mut near = list.iter().filter(is_near);
        match near.clone().find(|entry| fits(entry, &wanted)) {
            Some(_) if !self.sure => {
                unclear("the provider has a message that may be it".to_owned())
            }
            Some(entry) => match scalar(entry, &self.message_id) {
                Some(id) => Finding::Found(receipt(&id, None, None)),
                None => unclear("the provider lists it without an id".to_owned()),
            },
            None if near.any(|entry| is_shared(entry, &wanted)) => {
                unclear("it may be in a request that the provider has of several".to_owned())
            }
            None if list.len() < self.page => Finding::Absent,
            None => unclear("the provider's list is longer than one page".to_owned()),
        }
    }
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
