//! Any HTTP API that can be said in a few lines of TOML: url, headers, form or JSON body with placeholders,
//! what counts as accepted, where the id is, which codes mean what.

mod body;
mod look_up;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use url::Url;

use super::answer::Answer;
use super::codes::Codes;
use super::quote::Private;
use super::reading::Reading;
use super::secrets::Secrets;
use super::stanza::{Connection, Stanza};
use super::supports::{Finding, Reference, Supports, Writes};
use super::vendor::unclear;
use super::{Message, ProviderError, Stamp};
use crate::sms::{Cause, Class, Outcome, Timestamp};
use body::{Document, Pairs};
use look_up::Question;
use template::{Templates, Text, Values, rejected};

/// A provider as a stanza of `kind = "generic"` describes it.
pub struct Generic {
    name: String,
    method: Method,
    /// As far as it is the same for every message.
    base: Url,
    /// The whole address where it differs from message to message.
    url: Option<Text>,
    url_templates: Templates,
    templates: Templates,
    headers: Headers,
    query: Pairs,
    body: Body,
    reading: Reading,
    honoured_for: Option<Duration>,
    receipts: bool,
    question: Option<Question>,
    connection: Connection,
    secrets: Secrets,
}

enum Body {
    Empty,
    Form(Pairs),
    Json(Document),
}

#[derive(Default)]
struct Headers {
    constant: HeaderMap,
    /// Those that differ from message to message.
    texts: Vec<(HeaderName, Text)>,
}

/// The secrets are in its templates, so it shows its name only.
impl fmt::Debug for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const KEYS: [&str; 12] = [
    "url",
    "method",
    "headers",
    "json",
    "form",
    "query",
    "secrets",
    "from",
    "honours_reference",
    "honoured_for",
    "receipts",
    "look_up",
];

/// Where a stanza does not say how long a vendor remembers references.
const HONOURED_FOR: Duration = Duration::from_secs(30 * 86_400);

impl Generic {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        stanza.check_keys(&[&KEYS[..], &Reading::KEYS[..], &Connection::KEYS[..]].concat())?;
        let source: String = stanza.required("url")?;
        let connection = Connection::read(stanza)?;
        let secrets = Secrets::read(stanza, environment)?;
        let from: Option<String> = stanza.optional("from")?;
        let mut url_templates = Templates::new(&secrets, from.clone(), true);
        let mut templates = Templates::new(&secrets, from, false);
        let (base, url) = read_url(stanza, &mut url_templates, &source)?;
        let headers = Headers::read(stanza, &mut templates)?;
        let query = Pairs::read(stanza, &mut templates, "query", &stanza.section("query")?)?;
        let body = Body::read(stanza, &mut templates)?;
        let generic = Self {
            name: stanza.name.to_owned(),
            method: read_method(stanza, &body)?,
            base,
            url,
            url_templates,
            templates,
            headers,
            query,
            body,
            reading: Reading::read(stanza)?,
            honoured_for: read_honoured(stanza)?,
            receipts: stanza.optional("receipts")?.unwrap_or(false),
            question: Question::read(stanza, &secrets)?,
            connection,
            secrets,
        };
        if !generic.names("phone") {
            return Err(stanza.fault(
                "phone",
                "no part of the request says to whom\nhint: put `{{ phone }}` into `json`, `form` or `query`",
            ));
        }
        Ok(generic)
    }

    pub(super) fn names(&self, root: &str) -> bool {
        self.query.names(root)
            || self.body.names(root)
            || self.url.as_ref().is_some_and(|url| url.names(root))
            || self.headers.texts.iter().any(|(_, text)| text.names(root))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.reading.codes
    }

    pub(super) fn supports(&self) -> Supports {
        Supports {
            writes: if self.names("content") || !self.names("params") {
                Writes::Text
            } else {
                Writes::Template
            },
            most_per_call: 1,
            reference: match self.honoured_for {
                Some(span) => Reference::Honoured { span },
                None if self.names("reference") => Reference::Echoed,
                None => Reference::None,
            },
            look_up: self.question.as_ref().map(|question| question.plan.clone()),
            receipts: self.receipts,
        }
    }

    pub(super) fn look_up(
        &self,
        message: &Message,
        sent_at: Timestamp,
    ) -> Option<Result<Request<Bytes>, Outcome>> {
        Some(self.question.as_ref()?.request(message, sent_at))
    }

    pub(super) fn found(
        &self,
        message: &Message,
        sent_at: Timestamp,
        response: &Response<Bytes>,
        now: Timestamp,
    ) -> Finding {
        let Some(question) = &self.question else {
            return unclear("this provider cannot be asked".to_owned());
        };
        let private = self.private(std::slice::from_ref(message));
        let answer = Answer::read(response, &private, now);
        let finding = question.found(message, sent_at, &answer);
        question.plan.settled(finding, sent_at, now)
    }

    fn private<'a>(&'a self, messages: &'a [Message]) -> Private<'a> {
        Private {
            contents: messages.iter().map(|it| it.content.as_str()).collect(),
            secrets: self.secrets.exposed().map(|(_, secret)| secret).collect(),
        }
    }

    pub(super) fn request(
        &self,
        messages: &[Message],
        _stamp: &Stamp,
    ) -> Result<Request<Bytes>, Outcome> {
        let [message] = messages else {
            return Err(not_one(messages.len()));
        };
        let values = self.templates.values(message);
        let url = self.address(message, &values)?;
        let (kind, body) = self.body.fill(&self.templates, message, &values)?;
        let mut headers = HeaderMap::new();
        self.headers
            .fill(&mut headers, kind, &self.templates, message, &values)?;
        made(self.method.clone(), &url, headers, body)
    }

    fn address(&self, message: &Message, values: &Values) -> Result<Url, Outcome> {
        let mut url = match &self.url {
            None => self.base.clone(),
            Some(text) => {
                let values = self.url_templates.values(message);
                let filled = self.url_templates.fill(text, message, &values)?;
                Url::parse(&filled).map_err(|_| rejected("`url` cannot be filled".to_owned()))?
            }
        };
        self.query
            .append(&mut url, &self.templates, message, values)?;
        Ok(url)
    }

    pub(super) fn answer(
        &self,
        messages: &[Message],
        response: &Response<Bytes>,
        stamp: &Stamp,
    ) -> Vec<Outcome> {
        let private = self.private(messages);
        let outcome = self.reading.outcome(response, &private, stamp.now);
        vec![outcome; messages.len()]
    }
}

/// A fault of smsq itself, on which it had better stop than guess.
pub(super) fn not_one(count: usize) -> Outcome {
    Outcome::Refused {
        cause: Cause::new(
            Class::Account,
            format!("a request that carries one message was given {count}"),
        ),
        listed: true,
    }
}

impl Body {
    fn read(stanza: &Stanza<'_>, templates: &mut Templates) -> Result<Self, ProviderError> {
        match (stanza.table.get("json"), stanza.table.contains_key("form")) {
            (Some(_), true) => Err(stanza.fault("form", "stands beside `json`: choose one")),
            (Some(value), false) => {
                Document::read(stanza, templates, "json", value).map(Self::Json)
            }
            (None, true) => {
                Pairs::read(stanza, templates, "form", &stanza.section("form")?).map(Self::Form)
            }
            (None, false) => Ok(Self::Empty),
        }
    }

    fn fill(
        &self,
        templates: &Templates,
        message: &Message,
        values: &Values,
    ) -> Result<(Option<HeaderValue>, Vec<u8>), Outcome> {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let json = HeaderValue::from_static("application/json");
        Ok(match self {
            Self::Empty => (None, Vec::new()),
            Self::Form(pairs) => {
                let body = pairs.fill(templates, message, values)?;
                (Some(form), body.into_bytes())
            }
            Self::Json(document) => {
                let body = document.fill(templates, message, values)?;
                (Some(json), body.to_string().into_bytes())
            }
        })
    }

    fn names(&self, root: &str) -> bool {
        match self {
            Self::Empty => false,
            Self::Form(pairs) => pairs.names(root),
            Self::Json(document) => document.names(root),
        }
    }
}

impl Headers {
    fn fill(
        &self,
        headers: &mut HeaderMap,
        kind: Option<HeaderValue>,
        templates: &Templates,
        message: &Message,
        values: &Values,
    ) -> Result<(), Outcome> {
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, kind);
        }
        for (name, value) in &self.constant {
            headers.insert(name.clone(), value.clone());
        }
        for (name, text) in &self.texts {
            let filled = templates.fill(text, message, values)?;
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| rejected(format!("header `{name}` cannot carry this value")))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        Ok(())
    }

    fn read(stanza: &Stanza<'_>, templates: &mut Templates) -> Result<Self, ProviderError> {
        let mut headers = Self::default();
        for (name, value) in stanza.section("headers")? {
            let key = format!("headers.{name}");
            let header = HeaderName::try_from(&name)
                .map_err(|_| stanza.fault(&key, "is no name of a header"))?;
            if [CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
                return Err(stanza.fault(&key, "is set by smsq"));
            }
            let source = value
                .as_str()
                .ok_or_else(|| stanza.fault(&key, "must be a text"))?;
            let text = templates.add(stanza, &key, source)?;
            if !text.is_constant() {
                headers.texts.push((header, text));
                continue;
            }
            let filled = templates.constant(stanza, &key, &text)?;
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| stanza.fault(&key, "holds a character that no header can carry"))?;
            value.set_sensitive(true);
            headers.constant.insert(header, value);
        }
        Ok(headers)
    }
}

fn made(
    method: Method,
    url: &Url,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<Request<Bytes>, Outcome> {
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    *request.uri_mut() = url
        .as_str()
        .parse()
        .map_err(|_| rejected("the request's url would be too long".to_owned()))?;
    Ok(request)
}

/// How long the vendor accepts one message per reference, where it does.
fn read_honoured(stanza: &Stanza<'_>) -> Result<Option<Duration>, ProviderError> {
    let is_honoured = stanza.optional("honours_reference")?.unwrap_or(false);
    match stanza.span("honoured_for")? {
        Some(_) if !is_honoured => {
            Err(stanza.fault("honoured_for", "needs `honours_reference = true`"))
        }
        span => Ok(is_honoured.then_some(span.unwrap_or(HONOURED_FOR))),
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

fn read_method(stanza: &Stanza<'_>, body: &Body) -> Result<Method, ProviderError> {
    let word: Option<String> = stanza.optional("method")?;
    match word.as_deref() {
        None | Some("POST") => Ok(Method::POST),
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
