//! A request with placeholders: the one that sends messages, and the one of a lookup. Values are encoded by the library
//! that builds the URL, the form or the JSON document.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::secret::Secret;
use smsq_message::sms::Outcome;
use smsq_message::text::Hinted;
use toml::{Table, Value};
use url::Url;
use url::form_urlencoded::Serializer;

use super::template::{SectionText, Templates, Values};
use crate::config::section::{ProviderError, Section};
use crate::{RequestResult, rejected};

/// The keys of a request. A lookup has those of the sending request where it sets none.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestSettings {
    /// Set by the reader: the key belongs to the settings of all providers.
    #[serde(skip)]
    pub(super) url: Option<String>,
    /// Appended to the URL.
    pub(super) path: Option<String>,
    method: Option<String>,
    #[serde(default)]
    pub(super) headers: Secret<Table>,
    #[serde(default)]
    query: Secret<Table>,
    json: Option<Secret<Value>>,
    form: Option<Secret<Table>>,
}

/// A request with placeholders.
pub(super) struct RequestTemplate {
    method: Method,
    /// The URL, with trial values in its placeholders.
    pub(super) base: Url,
    /// The URL's template, where it differs between messages.
    url: Option<SectionText>,
    /// The whole URL, where it is the same for all messages.
    constant: Option<Uri>,
    constant_headers: HeaderMap,
    headers: Vec<(HeaderName, SectionText)>,
    query: Document,
    /// The body is one of these, or empty.
    json: Option<Document>,
    form: Option<Document>,
}

/// Where a placeholder is searched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Anywhere,
    /// Not in the repeated part.
    Outside,
}

impl RequestTemplate {
    pub(super) fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        settings: &RequestSettings,
        method: Method,
    ) -> Result<Self, ProviderError> {
        let (base, url) = read_url(section, templates, settings)?;
        if settings.json.is_some() && settings.form.is_some() {
            return Err(section.invalid("form", "choose either `json` or `form`"));
        }
        let json = match &settings.json {
            Some(value) => Document::read(section, templates, "json", value.expose())?,
            None => None,
        };
        let form = match &settings.form {
            Some(table) => Some(read_pairs(section, templates, "form", table.expose())?),
            None => None,
        };
        let mut request = Self {
            method: read_method(section, settings, method)?,
            constant: if url.is_none() && settings.query.expose().is_empty() {
                base.as_str().parse().ok()
            } else {
                None
            },
            base,
            url,
            constant_headers: HeaderMap::new(),
            headers: Vec::new(),
            json,
            form,
            query: read_pairs(section, templates, "query", settings.query.expose())?,
        };
        for (name, value) in settings.headers.expose() {
            request.add_header(section, templates, name, value)?;
        }
        Ok(request)
    }

    fn add_header(
        &mut self,
        section: &Section<'_>,
        templates: &mut Templates,
        name: &str,
        value: &Value,
    ) -> Result<(), ProviderError> {
        let key = format!("headers.{name}");
        let header = HeaderName::try_from(name)
            .map_err(|_| section.invalid(&key, "is not a valid header name"))?;
        if [CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
            return Err(section.invalid(&key, "is set by smsq"));
        }
        let source = value.as_str().ok_or_else(|| section.invalid(&key, "must be a text"))?;
        match templates.add(section, &key, source)? {
            None => {}
            Some(text) if text.is_constant() => {
                let filled = templates.constant(section, &key, &text)?;
                let mut value = HeaderValue::from_str(&filled).map_err(|_| {
                    section.invalid(&key, "has a character that is not allowed in a header")
                })?;
                value.set_sensitive(true);
                self.constant_headers.insert(header, value);
            }
            Some(text) => self.headers.push((header, text)),
        }
        Ok(())
    }

    /// Repeats the part at `place`, like `json.to`, once per message: a list with one entry, or a text with
    /// `separator`. A list `unwraps_single`: one message is written without the list. Errors say what is wrong with
    /// the place.
    pub(super) fn repeat(
        &mut self,
        place: &str,
        separator: Option<&str>,
        unwraps_single: bool,
    ) -> Result<(), &'static str> {
        let mut path = place.split('.');
        let document = match path.next() {
            Some("json") => self.json.as_mut(),
            Some("form") => self.form.as_mut(),
            Some("query") => Some(&mut self.query),
            _ => None,
        };
        let part = document
            .and_then(|document| path.try_fold(document, Document::entry))
            .ok_or("is not in the request")?;
        *part = match (&mut *part, separator) {
            (Document::List(items), None) if items.len() == 1 => {
                Document::Repeated { entry: Box::new(items.remove(0)), unwraps_single }
            }
            (Document::Text(text), Some(separator)) => {
                Document::Joined { text: text.clone(), separator: separator.to_owned() }
            }
            (Document::Text(_), None) => {
                return Err("is a text: set `separator` to what separates two messages");
            }
            _ => return Err("must be a list with one entry, or a text with a `separator`"),
        };
        Ok(())
    }

    pub(super) fn uses(&self, root: &str, scope: Scope) -> bool {
        [Some(&self.query), self.json.as_ref(), self.form.as_ref()]
            .into_iter()
            .flatten()
            .any(|document| document.uses(root, scope))
            || self.url.as_ref().is_some_and(|url| url.uses(root))
            || self.headers.iter().any(|(_, text)| text.uses(root))
    }

    fn uri(&self, outside: &Values<'_>, each: &[Values<'_>]) -> Result<Uri, Outcome> {
        let mut url = match &self.url {
            None => self.base.clone(),
            Some(text) => Url::parse(&outside.fill_required(text)?)
                .map_err(|_| rejected("`url` cannot be filled"))?,
        };
        let query = encode(self.query.fill(outside, each)?);
        if !query.is_empty() {
            let before = url.query().filter(|before| !before.is_empty());
            let query = before.map_or(query.clone(), |before| format!("{before}&{query}"));
            url.set_query(Some(&query));
        }
        let uri = url.as_str().parse();
        uri.map_err(|_| rejected("the request's URL would be too long"))
    }

    /// The request with `each` in the repeated part and `outside` everywhere else.
    pub(super) fn fill(&self, outside: &Values<'_>, each: &[Values<'_>]) -> RequestResult {
        let (content_type, body) = if let Some(form) = &self.form {
            let body = encode(form.fill(outside, each)?);
            (Some("application/x-www-form-urlencoded"), body)
        } else if let Some(json) = &self.json {
            let json = json.fill(outside, each)?.unwrap_or_default();
            let json = serde_json::to_string(&json).expect("a JSON value can be written");
            (Some("application/json"), json)
        } else {
            (None, String::new())
        };
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = match &self.constant {
            Some(uri) => uri.clone(),
            None => self.uri(outside, each)?,
        };
        let headers = request.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, value) in &self.constant_headers {
            headers.insert(name, value.clone());
        }
        for (name, text) in &self.headers {
            let Some(filled) = outside.fill(text)? else {
                continue;
            };
            let mut value = HeaderValue::from_str(&filled)
                .map_err(|_| rejected(format!("this value is not allowed in header `{name}`")))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        Ok(request)
    }
}

/// The URL with trial values, and its template where it differs between messages.
fn read_url(
    section: &Section<'_>,
    templates: &mut Templates,
    settings: &RequestSettings,
) -> Result<(Url, Option<SectionText>), ProviderError> {
    let url = settings.url.clone().ok_or_else(|| section.missing("url"))?;
    let source = match &settings.path {
        Some(path) => format!("{}{path}", url.trim_end_matches('/')),
        None => url,
    };
    let text = templates.add_required(section, "url", &source)?;
    let fixed = source.split('{').next().unwrap_or_default();
    let has_fixed_host = fixed.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?']));
    if !matches!(text, SectionText::Plain(_)) && !has_fixed_host {
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
        Some("GET") => {
            let problem = Hinted::new("`GET` requests have no `json` and no `form`", "use `query`");
            Err(section.invalid("method", problem.joined()))
        }
        Some(_) => Err(section.invalid("method", "must be `POST`, `GET`, `PUT` or `PATCH`")),
    }
}

/// A form or a query: a table of texts, or of lists of texts.
fn read_pairs(
    section: &Section<'_>,
    templates: &mut Templates,
    key: &str,
    table: &Table,
) -> Result<Document, ProviderError> {
    for (name, value) in table {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if values.iter().any(|value| value.is_array() || value.is_table()) {
            let problem = "must be a text, not a list or a table";
            return Err(section.invalid(&format!("{key}.{name}"), problem));
        }
    }
    let document = Document::read(section, templates, key, &Value::Table(table.clone()))?;
    Ok(document.unwrap_or(Document::Table(Vec::new())))
}

/// Encodes a table as a form or a query; a list repeats its name.
fn encode(table: Option<Json>) -> String {
    let mut encoded = Serializer::new(String::new());
    let Some(Json::Object(table)) = table else {
        return String::new();
    };
    for (name, value) in table {
        let values = match value {
            Json::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            match value {
                Json::String(text) => encoded.append_pair(&name, &text),
                plain => encoded.append_pair(&name, &plain.to_string()),
            };
        }
    }
    encoded.finish()
}

/// A JSON document whose texts are templates.
enum Document {
    Text(SectionText),
    Plain(Json),
    List(Vec<Document>),
    Table(Vec<(String, Document)>),
    /// A list with one entry per message.
    Repeated {
        entry: Box<Document>,
        unwraps_single: bool,
    },
    /// The texts of all messages with a separator.
    Joined {
        text: SectionText,
        separator: String,
    },
}

impl Document {
    /// `None` where an optional placeholder has no value in this section. A table without any value is left out, too.
    fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        key: &str,
        value: &Value,
    ) -> Result<Option<Self>, ProviderError> {
        Ok(Some(match value {
            Value::String(text) => match templates.setting(text) {
                Some(setting) => return Ok(setting.map(Self::Plain)),
                None => return Ok(templates.add(section, key, text)?.map(Self::Text)),
            },
            Value::Array(items) => {
                let read = items.iter().enumerate().map(|(index, item)| {
                    Self::read(section, templates, &format!("{key}[{index}]"), item)
                });
                Self::List(read.filter_map(Result::transpose).collect::<Result<_, _>>()?)
            }
            Value::Table(table) => {
                let mut entries = Vec::new();
                for (name, item) in table {
                    let item = Self::read(section, templates, &format!("{key}.{name}"), item)?;
                    entries.extend(item.map(|item| (name.clone(), item)));
                }
                if entries.is_empty() && !table.is_empty() {
                    return Ok(None);
                }
                Self::Table(entries)
            }
            Value::Float(number) if !number.is_finite() => {
                return Err(section.invalid(key, "is not a finite number"));
            }
            Value::Float(number) => Self::Plain((*number).into()),
            Value::Integer(number) => Self::Plain((*number).into()),
            Value::Boolean(value) => Self::Plain((*value).into()),
            Value::Datetime(instant) => Self::Plain(instant.to_string().into()),
        }))
    }

    fn entry(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Table(entries) = self else {
            return None;
        };
        let entry = entries.iter_mut().find(|(known, _)| known == name);
        entry.map(|(_, document)| document)
    }

    fn fill(&self, outside: &Values<'_>, each: &[Values<'_>]) -> Result<Option<Json>, Outcome> {
        Ok(Some(match self {
            Self::Text(text) => return Ok(outside.fill(text)?.map(Json::String)),
            Self::Plain(json) => json.clone(),
            Self::List(items) => {
                let filled = items.iter().map(|item| item.fill(outside, each));
                filled.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?.into()
            }
            Self::Table(entries) => {
                let mut map = serde_json::Map::new();
                for (name, item) in entries {
                    map.extend(item.fill(outside, each)?.map(|item| (name.clone(), item)));
                }
                if map.is_empty() && !entries.is_empty() {
                    return Ok(None);
                }
                map.into()
            }
            Self::Repeated { entry, unwraps_single: true } if each.len() == 1 => {
                return entry.fill(&each[0], &[]);
            }
            Self::Repeated { entry, .. } => {
                let filled = each.iter().map(|values| entry.fill(values, &[]));
                filled.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?.into()
            }
            Self::Joined { text, separator } => {
                let texts: Vec<String> = each
                    .iter()
                    .map(|values| values.fill_required(text))
                    .collect::<Result<_, _>>()?;
                if texts.iter().any(|text| text.contains(separator)) {
                    let reason = format!("a value contains the separator `{separator}`");
                    return Err(rejected(reason));
                }
                texts.join(separator).into()
            }
        }))
    }

    fn uses(&self, root: &str, scope: Scope) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Repeated { .. } | Self::Joined { .. } if scope == Scope::Outside => false,
            Self::Text(text) | Self::Joined { text, .. } => text.uses(root),
            Self::Repeated { entry, .. } => entry.uses(root, scope),
            Self::List(items) => items.iter().any(|item| item.uses(root, scope)),
            Self::Table(entries) => entries.iter().any(|(_, item)| item.uses(root, scope)),
        }
    }
}
