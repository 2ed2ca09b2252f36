//! What a generic request carries: a form, a JSON document or a query, with placeholders in its texts.
//! Values are encoded by the library that builds the body, never pasted into text.

use http::HeaderValue;
use serde_json::Value as Json;
use url::Url;
use url::form_urlencoded::Serializer;

use super::template::{Templates, Text, Values, rejected};
use crate::provider::ProviderError;
use crate::provider::stanza::Stanza;
use crate::sms::Outcome;

/// The messages of one request: what stands once is filled with `outside`, what is repeated with each of them.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    pub(super) outside: &'a Values<'a>,
    pub(super) each: &'a [Values<'a>],
}

impl<'a> Filling<'a> {
    pub(super) fn one(values: &'a Values<'a>) -> Self {
        Self {
            outside: values,
            each: std::slice::from_ref(values),
        }
    }

    /// The text for each message, with `separator` between two of them.
    fn joined(
        &self,
        templates: &Templates,
        text: &Text,
        separator: &str,
    ) -> Result<String, Outcome> {
        let one = |values| {
            let filled = templates.fill(text, values)?;
            if filled.contains(separator) {
                let reason = format!("a value holds `{separator}`, which stands between two");
                return Err(rejected(reason));
            }
            Ok(filled)
        };
        let all: Vec<String> = self.each.iter().map(one).collect::<Result<_, _>>()?;
        Ok(all.join(separator))
    }
}

/// The body of a request.
pub(super) enum Body {
    Empty,
    Form(Pairs),
    Json(Document),
}

impl Body {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        templates: &mut Templates,
    ) -> Result<Self, ProviderError> {
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

    pub(super) fn fill(
        &self,
        templates: &Templates,
        filling: &Filling<'_>,
    ) -> Result<(Option<HeaderValue>, Vec<u8>), Outcome> {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let json = HeaderValue::from_static("application/json");
        Ok(match self {
            Self::Empty => (None, Vec::new()),
            Self::Form(pairs) => {
                let body = pairs.fill(templates, filling)?;
                (Some(form), body.into_bytes())
            }
            Self::Json(document) => {
                let body = document.fill(templates, filling)?;
                (Some(json), body.to_string().into_bytes())
            }
        })
    }

    pub(super) fn names(&self, root: &str, scope: Scope) -> bool {
        match self {
            Self::Empty => false,
            Self::Form(pairs) => pairs.names(root, scope),
            Self::Json(document) => document.names(root, scope),
        }
    }
}

/// Where a placeholder is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Anywhere,
    /// Not in what is repeated.
    Outside,
}

/// A JSON document whose texts are templates.
#[derive(Clone, Debug)]
pub(super) enum Document {
    Text(Text),
    Plain(Json),
    List(Vec<Document>),
    Table(Vec<(String, Document)>),
    /// A list with an entry for each message.
    Repeated(Box<Document>),
    /// A text for each message, and what stands between two of them.
    Joined(Text, String),
}

impl Document {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        templates: &mut Templates,
        key: &str,
        value: &toml::Value,
    ) -> Result<Self, ProviderError> {
        Ok(match value {
            toml::Value::String(text) => Self::Text(templates.add(stanza, key, text)?),
            toml::Value::Array(items) => Self::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(at, item)| Self::read(stanza, templates, &format!("{key}[{at}]"), item))
                    .collect::<Result<_, _>>()?,
            ),
            toml::Value::Table(table) => Self::Table(
                table
                    .iter()
                    .map(|(name, item)| {
                        let item = Self::read(stanza, templates, &format!("{key}.{name}"), item)?;
                        Ok((name.clone(), item))
                    })
                    .collect::<Result<_, _>>()?,
            ),
            toml::Value::Integer(number) => Self::Plain((*number).into()),
            toml::Value::Boolean(truth) => Self::Plain((*truth).into()),
            toml::Value::Float(number) => Self::Plain(
                serde_json::Number::from_f64(*number)
                    .map(Json::Number)
                    .ok_or_else(|| stanza.fault(key, "is no number that JSON can hold"))?,
            ),
            toml::Value::Datetime(instant) => Self::Plain(instant.to_string().into()),
        })
    }

    /// Makes what stands at `path` stand once for each message. Errors say what is wrong with it.
    pub(super) fn repeat(
        &mut self,
        path: &[&str],
        separator: Option<&str>,
    ) -> Result<(), &'static str> {
        if let [name, rest @ ..] = path {
            let Self::Table(entries) = self else {
                return Err("is not in the request");
            };
            let entry = entries.iter_mut().find(|(known, _)| known == name);
            let (_, entry) = entry.ok_or("is not in the request")?;
            return entry.repeat(rest, separator);
        }
        *self = match (&mut *self, separator) {
            (Self::List(items), None) if items.len() == 1 => {
                Self::Repeated(Box::new(items.remove(0)))
            }
            (Self::Text(text), Some(separator)) => Self::Joined(text.clone(), separator.to_owned()),
            (Self::Text(_), None) => return Err(NO_SEPARATOR),
            _ => return Err("must be a list with one entry, or a text with a `separator`"),
        };
        Ok(())
    }

    fn fill(&self, templates: &Templates, filling: &Filling<'_>) -> Result<Json, Outcome> {
        Ok(match self {
            Self::Text(text) => Json::String(templates.fill(text, filling.outside)?),
            Self::Plain(json) => json.clone(),
            Self::List(items) => items
                .iter()
                .map(|item| item.fill(templates, filling))
                .collect::<Result<Vec<_>, _>>()?
                .into(),
            Self::Table(entries) => entries
                .iter()
                .map(|(name, item)| Ok((name.clone(), item.fill(templates, filling)?)))
                .collect::<Result<serde_json::Map<_, _>, Outcome>>()?
                .into(),
            Self::Repeated(item) => filling
                .each
                .iter()
                .map(|values| item.fill(templates, &Filling::one(values)))
                .collect::<Result<Vec<_>, _>>()?
                .into(),
            Self::Joined(text, separator) => filling.joined(templates, text, separator)?.into(),
        })
    }

    fn names(&self, root: &str, scope: Scope) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Repeated(_) | Self::Joined(..) if scope == Scope::Outside => false,
            Self::Text(text) | Self::Joined(text, _) => text.names(root),
            Self::Repeated(item) => item.names(root, scope),
            Self::List(items) => items.iter().any(|item| item.names(root, scope)),
            Self::Table(entries) => entries.iter().any(|(_, item)| item.names(root, scope)),
        }
    }
}

const NO_SEPARATOR: &str = "is a text: say in `separator` what stands between two messages";

/// The pairs of a form or a query, in the order of their names; a list repeats its name. With a separator, the pair
/// holds the texts of all messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Vec<(String, Text, Option<String>)>);

impl Pairs {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        templates: &mut Templates,
        key: &str,
        table: &toml::Table,
    ) -> Result<Self, ProviderError> {
        let mut pairs = Vec::new();
        for (name, value) in table {
            let key = format!("{key}.{name}");
            match value {
                toml::Value::Array(items) => {
                    for (at, item) in items.iter().enumerate() {
                        let key = format!("{key}[{at}]");
                        pairs.push((name.clone(), leaf(stanza, templates, &key, item)?, None));
                    }
                }
                value => pairs.push((name.clone(), leaf(stanza, templates, &key, value)?, None)),
            }
        }
        Ok(Self(pairs))
    }

    /// Makes the pair of this name hold the texts of all messages. Errors say what is wrong with it.
    pub(super) fn repeat(
        &mut self,
        path: &[&str],
        separator: Option<&str>,
    ) -> Result<(), &'static str> {
        let mut pairs = self.0.iter_mut();
        let pair = pairs.find(|(name, ..)| [name.as_str()] == path);
        let (.., between) = pair.ok_or("is not in the request")?;
        *between = Some(separator.ok_or(NO_SEPARATOR)?.to_owned());
        Ok(())
    }

    fn fill(&self, templates: &Templates, filling: &Filling<'_>) -> Result<String, Outcome> {
        let mut encoded = Serializer::new(String::new());
        for (name, text, separator) in &self.0 {
            let value = match separator {
                None => templates.fill(text, filling.outside)?,
                Some(separator) => filling.joined(templates, text, separator)?,
            };
            encoded.append_pair(name, &value);
        }
        Ok(encoded.finish())
    }

    /// Puts them behind what `url` has of a query.
    pub(super) fn append(
        &self,
        url: &mut Url,
        templates: &Templates,
        filling: &Filling<'_>,
    ) -> Result<(), Outcome> {
        let query = self.fill(templates, filling)?;
        if !query.is_empty() {
            let whole = match url.query() {
                Some(before) if !before.is_empty() => format!("{before}&{query}"),
                _ => query,
            };
            url.set_query(Some(&whole));
        }
        Ok(())
    }

    pub(super) fn names(&self, root: &str, scope: Scope) -> bool {
        self.0.iter().any(|(_, text, separator)| {
            text.names(root) && (separator.is_none() || scope == Scope::Anywhere)
        })
    }
}

fn leaf(
    stanza: &Stanza<'_>,
    templates: &mut Templates,
    key: &str,
    value: &toml::Value,
) -> Result<Text, ProviderError> {
    match value {
        toml::Value::String(text) => templates.add(stanza, key, text),
        toml::Value::Array(_) | toml::Value::Table(_) => {
            Err(stanza.fault(key, "a form and a query hold texts, not tables"))
        }
        plain => Ok(Text::Plain(plain.to_string())),
    }
}
