//! A request with placeholders: the one that sends messages, and the one of a lookup.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use serde::Deserialize;
use toml::Table;
use url::Url;

use super::body::{Body, Pairs, Repeated, Scope};
use super::template::{Templates, Text, Values};
use crate::provider::config::{ProviderError, Section};
use crate::provider::rejected;
use crate::sms::Outcome;

/// The keys of a request. A lookup has those of the sending request where it sets none.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestSettings {
    /// Appended to the URL.
    pub(super) path: Option<String>,
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) headers: Table,
    #[serde(default)]
    pub(super) query: Table,
    pub(super) json: Option<toml::Value>,
    pub(super) form: Option<Table>,
}

impl RequestSettings {
    pub(super) const KEYS: [&'static str; 6] =
        ["path", "method", "headers", "query", "json", "form"];
}

/// A request with placeholders.
pub(super) struct RequestTemplate {
    method: Method,
    /// The URL, with trial values in its placeholders.
    pub(super) base: Url,
    /// The URL's template, where it differs between messages.
    url: Option<Text>,
    constant_headers: HeaderMap,
    headers: Vec<(HeaderName, Text)>,
    query: Pairs,
    body: Body,
}

impl RequestTemplate {
    pub(super) fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        url: &str,
        settings: &RequestSettings,
        method: Method,
    ) -> Result<Self, ProviderError> {
        let (base, url) = read_url(section, templates, url, settings.path.as_deref())?;
        let body = Body::read(section, templates, settings)?;
        let mut request = Self {
            method: read_method(section, settings, method)?,
            base,
            url,
            constant_headers: HeaderMap::new(),
            headers: Vec::new(),
            query: Pairs::read(section, templates, "query", &settings.query)?,
            body,
        };
        for (name, value) in &settings.headers {
            request.add_header(section, templates, name, value)?;
        }
        Ok(request)
    }

    fn add_header(
        &mut self,
        section: &Section<'_>,
        templates: &mut Templates,
        name: &str,
        value: &toml::Value,
    ) -> Result<(), ProviderError> {
        let key = format!("headers.{name}");
        let header = HeaderName::try_from(name)
            .map_err(|_| section.invalid(&key, "is not a valid header name"))?;
        if [CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
            return Err(section.invalid(&key, "is set by smsq"));
        }
        let source = value.as_str();
        let source = source.ok_or_else(|| section.invalid(&key, "must be a text"))?;
        let Some(text) = templates.add(section, &key, source)? else {
            return Ok(());
        };
        if !text.is_constant() {
            self.headers.push((header, text));
            return Ok(());
        }
        let filled = templates.constant(section, &key, &text)?;
        let mut value = HeaderValue::from_str(&filled)
            .map_err(|_| section.invalid(&key, "has a character that no header can carry"))?;
        value.set_sensitive(true);
        self.constant_headers.insert(header, value);
        Ok(())
    }

    /// Repeats the part at `place`, like `json.to`, once per message. Errors say what is wrong with the place.
    pub(super) fn repeat(&mut self, place: &str, repeat: &Repeated) -> Result<(), &'static str> {
        let path: Vec<&str> = place.split('.').collect();
        match (path.as_slice(), &mut self.body) {
            (["json", path @ ..], Body::Json(document)) => document.repeat(path, repeat),
            (["form", path @ ..], Body::Form(pairs)) => pairs.repeat(path, repeat),
            (["query", path @ ..], _) => self.query.repeat(path, repeat),
            _ => Err("is not in the request"),
        }
    }

    pub(super) fn uses(&self, root: &str, scope: Scope) -> bool {
        self.query.uses(root, scope)
            || self.body.uses(root, scope)
            || self.url.as_ref().is_some_and(|url| url.uses(root))
            || self.headers.iter().any(|(_, text)| text.uses(root))
    }

    /// The request with `each` in the repeated part and `outside` everywhere else.
    pub(super) fn fill(
        &self,
        templates: &Templates,
        outside: &Values<'_>,
        each: &[Values<'_>],
    ) -> Result<Request<Bytes>, Outcome> {
        let mut url = match &self.url {
            None => self.base.clone(),
            Some(text) => Url::parse(&templates.fill_required(text, outside)?)
                .map_err(|_| rejected("`url` cannot be filled".to_owned()))?,
        };
        self.query.append(&mut url, templates, outside, each)?;
        let mut request = Request::new(Bytes::new());
        let (content_type, body) = self.body.fill(templates, outside, each)?;
        let headers = request.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.extend(self.constant_headers.clone());
        for (name, text) in &self.headers {
            let Some(filled) = templates.fill(text, outside)? else {
                continue;
            };
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| rejected(format!("header `{name}` cannot carry this value")))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        *request.body_mut() = Bytes::from(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|_| rejected("the request's url would be too long".to_owned()))?;
        Ok(request)
    }
}

/// The URL with trial values, and its template where it differs between messages.
fn read_url(
    section: &Section<'_>,
    templates: &mut Templates,
    url: &str,
    path: Option<&str>,
) -> Result<(Url, Option<Text>), ProviderError> {
    let source = match path {
        Some(path) => format!("{}{path}", url.trim_end_matches('/')),
        None => url.to_owned(),
    };
    let text = templates.add_required(section, "url", &source)?;
    let fixed = source.split('{').next().unwrap_or_default();
    let has_fixed_host = fixed
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains(['/', '?']));
    if !matches!(text, Text::Plain(_)) && !has_fixed_host {
        return Err(section.invalid("url", "placeholders are only allowed after the host"));
    }
    let filled = templates.constant(section, "url", &text)?;
    let mut base = section.url("url", &filled)?;
    base.set_fragment(None);
    Ok((base, (!text.is_constant()).then_some(text)))
}

fn read_method(
    section: &Section<'_>,
    settings: &RequestSettings,
    default: Method,
) -> Result<Method, ProviderError> {
    let has_body = settings.json.is_some() || settings.form.is_some();
    match settings.method.as_deref() {
        None => Ok(default),
        Some("POST") => Ok(Method::POST),
        Some("PUT") => Ok(Method::PUT),
        Some("PATCH") => Ok(Method::PATCH),
        Some("GET") if !has_body => Ok(Method::GET),
        Some("GET") => Err(section.invalid(
            "method",
            "`GET` carries no `json` and no `form`\nhint: use `query`",
        )),
        Some(_) => Err(section.invalid("method", "must be `POST`, `GET`, `PUT` or `PATCH`")),
    }
}
