//! A request with placeholders in it: what sends a message, and what asks for one.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use url::Url;

use super::body::{Body, Filling, Pairs, Scope};
use super::headers::Headers;
use super::template::{Templates, Text, Values, rejected};
use crate::provider::secrets::Secrets;
use crate::provider::stanza::Stanza;
use crate::provider::{Message, ProviderError};
use crate::sms::{Outcome, Timestamp};

/// A request with placeholders.
pub(super) struct Pattern {
    method: Method,
    /// As far as it is the same for every message.
    pub(super) base: Url,
    /// The whole address where it differs from message to message.
    url: Option<Text>,
    url_templates: Templates,
    pub(super) templates: Templates,
    headers: Headers,
    query: Pairs,
    body: Body,
}

impl Pattern {
    /// The request that sends a message.
    pub(super) fn send(stanza: &Stanza<'_>, secrets: &Secrets) -> Result<Self, ProviderError> {
        let from: Option<String> = stanza.optional("from")?;
        let url_templates = Templates::new(secrets, from.clone(), true);
        let templates = Templates::new(secrets, from, false);
        Self::read(stanza, stanza, url_templates, templates, Method::POST)
    }

    /// The request that asks for a message, in a section of the stanza, with the stanza's own headers.
    pub(super) fn ask(
        section: &Stanza<'_>,
        stanza: &Stanza<'_>,
        secrets: &Secrets,
    ) -> Result<Self, ProviderError> {
        let url_templates = Templates::new(secrets, None, true).with_moment();
        let templates = Templates::new(secrets, None, false).with_moment();
        Self::read(section, stanza, url_templates, templates, Method::GET)
    }

    fn read(
        stanza: &Stanza<'_>,
        of_headers: &Stanza<'_>,
        mut url_templates: Templates,
        mut templates: Templates,
        method: Method,
    ) -> Result<Self, ProviderError> {
        let source: String = stanza.required("url")?;
        let (base, url) = read_url(stanza, &mut url_templates, &source)?;
        let headers = Headers::read(of_headers, &mut templates)?;
        let query = Pairs::read(stanza, &mut templates, "query", &stanza.section("query")?)?;
        let body = Body::read(stanza, &mut templates)?;
        Ok(Self {
            method: read_method(stanza, &body, method)?,
            base,
            url,
            url_templates,
            templates,
            headers,
            query,
            body,
        })
    }

    /// Makes what stands at `place`, like `json.to`, stand once for each message. Errors say what is wrong with it.
    pub(super) fn repeat(
        &mut self,
        place: &str,
        separator: Option<&str>,
    ) -> Result<(), &'static str> {
        let path: Vec<&str> = place.split('.').collect();
        match (path.as_slice(), &mut self.body) {
            (["json", path @ ..], Body::Json(document)) => document.repeat(path, separator),
            (["form", path @ ..], Body::Form(pairs)) => pairs.repeat(path, separator),
            (["query", path @ ..], _) => self.query.repeat(path, separator),
            _ => Err("is not in the request"),
        }
    }

    /// What the request carries that was made of secrets alone.
    pub(super) fn made_of_secrets(&self) -> impl Iterator<Item = &str> {
        let in_url = self.url_templates.made_of_secrets();
        in_url.chain(self.templates.made_of_secrets())
    }

    pub(super) fn names(&self, root: &str, scope: Scope) -> bool {
        self.query.names(root, scope)
            || self.body.names(root, scope)
            || self.url.as_ref().is_some_and(|url| url.names(root))
            || self.headers.names(root)
    }

    /// The request for one message. `since` is for what asks.
    pub(super) fn fill(
        &self,
        message: &Message,
        since: Option<Timestamp>,
    ) -> Result<Request<Bytes>, Outcome> {
        self.fill_all(message, std::slice::from_ref(message), since)
    }

    /// The request with all of `each` in what is repeated, and `outside` everywhere else.
    pub(super) fn fill_all(
        &self,
        outside: &Message,
        each: &[Message],
        since: Option<Timestamp>,
    ) -> Result<Request<Bytes>, Outcome> {
        let values = |message| self.templates.values(message, since);
        let all: Vec<Values<'_>> = each.iter().map(values).collect();
        let filling = Filling {
            outside: &values(outside),
            each: &all,
        };
        let mut url = self.address(outside, since)?;
        self.query.append(&mut url, &self.templates, &filling)?;
        let (kind, body) = self.body.fill(&self.templates, &filling)?;
        let mut headers = HeaderMap::new();
        self.headers
            .fill(&mut headers, kind, &self.templates, filling.outside)?;
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = headers;
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|_| rejected("the request's url would be too long".to_owned()))?;
        Ok(request)
    }

    fn address(&self, message: &Message, since: Option<Timestamp>) -> Result<Url, Outcome> {
        let Some(text) = &self.url else {
            return Ok(self.base.clone());
        };
        let values = self.url_templates.values(message, since);
        let filled = self.url_templates.fill(text, &values)?;
        Url::parse(&filled).map_err(|_| rejected("`url` cannot be filled".to_owned()))
    }
}

/// The address, and its template where it differs from message to message.
fn read_url(
    stanza: &Stanza<'_>,
    templates: &mut Templates,
    source: &str,
) -> Result<(Url, Option<Text>), ProviderError> {
    let text = templates.add(stanza, "url", source)?;
    if !matches!(text, Text::Plain(_)) && !has_fixed_host(source) {
        return Err(stanza.fault("url", "placeholders can only stand behind the host"));
    }
    let filled = templates.constant(stanza, "url", &text)?;
    let mut base = stanza.address("url", &filled)?;
    base.set_fragment(None);
    Ok((base, (!text.is_constant()).then_some(text)))
}

fn has_fixed_host(source: &str) -> bool {
    let fixed = source.split('{').next().unwrap_or_default();
    fixed
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains(['/', '?']))
}

fn read_method(stanza: &Stanza<'_>, body: &Body, default: Method) -> Result<Method, ProviderError> {
    let word: Option<String> = stanza.optional("method")?;
    match word.as_deref() {
        None => Ok(default),
        Some("POST") => Ok(Method::POST),
        Some("PUT") => Ok(Method::PUT),
        Some("PATCH") => Ok(Method::PATCH),
        Some("GET") if matches!(body, Body::Empty) => Ok(Method::GET),
        Some("GET") => Err(stanza.fault(
            "method",
            "`GET` carries no `json` and no `form`\nhint: use `query`",
        )),
        Some(_) => Err(stanza.fault("method", "must be `POST`, `GET`, `PUT` or `PATCH`")),
    }
}
