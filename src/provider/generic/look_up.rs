//! How a vendor is asked what became of a message, where a stanza says how: a list of messages, and what stands
//! in an entry that is ours.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::Value as Json;
use url::Url;

use super::body::Pairs;
use super::template::{Templates, Text, rejected};
use super::{Body, Headers, read_method, read_url};
use crate::provider::answer::{Answer, receipt, scalar};
use crate::provider::secrets::Secrets;
use crate::provider::stanza::Stanza;
use crate::provider::supports::{Finding, LookUp};
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
    method: Method,
    base: Url,
    url: Option<Text>,
    url_templates: Templates,
    templates: Templates,
    headers: Headers,
    query: Pairs,
    body: Body,
    /// JSON pointer to the list of messages in the answer.
    list: String,
    /// What stands in an entry that is ours, by pointer.
    matches: Vec<(String, Text)>,
    message_id: String,
    /// Where the moment of an entry stands: it must be that of the attempt.
    at: Option<String>,
    /// A list of so many may have gone on.
    page: usize,
    /// Whether an entry that matches is certainly ours.
    sure: bool,
}

impl Question {
    /// The headers are those of the stanza itself.
    pub(super) fn read(
        stanza: &Stanza<'_>,
        secrets: &Secrets,
    ) -> Result<Option<Self>, ProviderError> {
        let Some(plan) = LookUp::read(stanza, &[&KEYS[..], &[SURE]].concat())? else {
            return Ok(None);
        };
        let table = stanza.section("look_up")?;
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        let mut url_templates = Templates::new(secrets, None, true).with_moment();
        let mut templates = Templates::new(secrets, None, false).with_moment();
        let source: String = section.required("url")?;
        let (base, url) = read_url(&section, &mut url_templates, &source)?;
        let body = Body::read(&section, &mut templates)?;
        let matches = section.section("matches")?;
        let matches = matches
            .iter()
            .map(|(pointer, wanted)| {
                let key = format!("matches.{pointer}");
                let wanted = wanted.as_str().filter(|_| pointer.starts_with('/'));
                let wanted = wanted.ok_or_else(|| {
                    section.fault(
                        &key,
                        "must be a JSON pointer and a text, like `\"/to\" = \"…\"`",
                    )
                })?;
                Ok((pointer.clone(), templates.add(&section, &key, wanted)?))
            })
            .collect::<Result<Vec<_>, ProviderError>>()?;
        if matches.is_empty() {
            return Err(section.fault("matches", "must say what stands in an entry that is ours"));
        }
        Ok(Some(Self {
            plan,
            method: match section.optional::<String>("method")? {
                None => Method::GET,
                Some(_) => read_method(&section, &body)?,
            },
            base,
            url,
            query: Pairs::read(
                &section,
                &mut templates,
                "query",
                &section.section("query")?,
            )?,
            headers: Headers::read(stanza, &mut templates)?,
            url_templates,
            templates,
            body,
            list: section.required("list")?,
            matches,
            message_id: section.required("message_id")?,
            at: section.optional("at")?,
            page: section.optional("page")?.unwrap_or(100),
            sure: section.optional(SURE)?.unwrap_or(true),
        }))
    }

    pub(super) fn request(
        &self,
        message: &Message,
        sent_at: Timestamp,
    ) -> Result<Request<Bytes>, Outcome> {
        let since = sent_at.minus(BEFORE);
        let values = self.templates.values_since(message, since);
        let mut url = match &self.url {
            None => self.base.clone(),
            Some(text) => {
                let values = self.url_templates.values_since(message, since);
                let filled = self.url_templates.fill(text, message, &values)?;
                Url::parse(&filled).map_err(|_| rejected("`url` cannot be filled".to_owned()))?
            }
        };
        self.query
            .append(&mut url, &self.templates, message, &values)?;
        let (kind, body) = self.body.fill(&self.templates, message, &values)?;
        let mut headers = HeaderMap::new();
        self.headers
            .fill(&mut headers, kind, &self.templates, message, &values)?;
        super::made(self.method.clone(), &url, headers, body)
    }

    pub(super) fn found(
        &self,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        let list = answer
            .json
            .as_ref()
            .and_then(|json| json.pointer(&self.list));
        let Some(list) = list
            .and_then(Json::as_array)
            .filter(|_| answer.status.is_success())
        else {
            return unclear(answer.reason("", None));
        };
        let values = self.templates.values_since(message, sent_at.minus(BEFORE));
        let wanted: Result<Vec<(&str, String)>, Outcome> = self
            .matches
            .iter()
            .map(|(at, text)| Ok((at.as_str(), self.templates.fill(text, message, &values)?)))
            .collect();
        let Ok(wanted) = wanted else {
            return unclear("what would be ours cannot be told".to_owned());
        };
        let is_ours = |entry: &&Json| {
            let at = self
                .at
                .as_deref()
                .and_then(|at| moment(&scalar(entry, at)?));
            let is_near =
                at.is_none_or(|at| at >= sent_at.minus(BEFORE) && at <= sent_at.plus(BEHIND));
            is_near && wanted.iter().all(|(at, text)| stands(entry, at, text))
        };
        match list.iter().find(is_ours) {
            Some(_) if !self.sure => {
                unclear("the provider has a message that may be it".to_owned())
            }
            Some(entry) => match scalar(entry, &self.message_id) {
                Some(id) => Finding::Found(receipt(&id, None, None)),
                None => unclear("the provider lists it without an id".to_owned()),
            },
            None if list.len() < self.page => Finding::Absent,
            None => unclear("the provider's list is longer than one page".to_owned()),
        }
    }
}

/// Numbers with and without `+` are the same.
fn stands(entry: &Json, pointer: &str, wanted: &str) -> bool {
    let found = match entry.pointer(pointer) {
        Some(Json::String(text)) => text.clone(),
        _ => scalar(entry, pointer).unwrap_or_default(),
    };
    found == wanted
        || (!wanted.is_empty() && found.trim_start_matches('+') == wanted.trim_start_matches('+'))
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
