//! The form, JSON document or query of a generic request, with placeholders in its texts. Values are encoded by the
//! library that builds the body.

use serde_json::{Map, Value as Json};
use toml::{Table, Value};
use url::Url;
use url::form_urlencoded::Serializer;

use super::request::RequestSettings;
use super::template::{Templates, Text, Values};
use crate::provider::config::{ProviderError, Section};
use crate::provider::rejected;
use crate::sms::Outcome;

/// The body of a request.
pub(super) enum Body {
    Empty,
    Form(Pairs),
    Json(Document),
}

impl Body {
    pub(super) fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        settings: &RequestSettings,
    ) -> Result<Self, ProviderError> {
        match (&settings.json, &settings.form) {
            (Some(_), Some(_)) => Err(section.invalid("form", "choose either `json` or `form`")),
            (Some(value), None) => {
                let document = Document::read(section, templates, "json", value)?;
                Ok(document.map_or(Self::Empty, Self::Json))
            }
            (None, Some(form)) => Pairs::read(section, templates, "form", form).map(Self::Form),
            (None, None) => Ok(Self::Empty),
        }
    }

    /// The content type and the body.
    pub(super) fn fill(
        &self,
        templates: &Templates,
        outside: &Values<'_>,
        each: &[Values<'_>],
    ) -> Result<(Option<&'static str>, Vec<u8>), Outcome> {
        Ok(match self {
            Self::Empty => (None, Vec::new()),
            Self::Form(pairs) => {
                let body = pairs.fill(templates, outside, each)?;
                (Some("application/x-www-form-urlencoded"), body.into_bytes())
            }
            Self::Json(document) => {
                let body = document.fill(templates, outside, each)?.unwrap_or_default();
                (Some("application/json"), body.to_string().into_bytes())
            }
        })
    }

    pub(super) fn uses(&self, root: &str, scope: Scope) -> bool {
        match self {
            Self::Empty => false,
            Self::Form(pairs) => pairs.uses(root, scope),
            Self::Json(document) => document.uses(root, scope),
        }
    }
}

/// Where a placeholder is searched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Anywhere,
    /// Not in the repeated part.
    Outside,
}

/// How the repeated part of a batch is written.
pub(super) struct Repeated {
    /// Separates the texts of two messages; without one, the part is a list.
    pub(super) separator: Option<String>,
    /// A single message is not written as a list.
    pub(super) unwraps_single: bool,
}

const NO_SEPARATOR: &str = "is a text: set `separator` to what separates two messages";

/// A JSON document whose texts are templates.
#[derive(Clone, Debug)]
pub(super) enum Document {
    Text(Text),
    Plain(Json),
    List(Vec<Document>),
    Table(Vec<(String, Document)>),
    /// A list with one entry per message.
    Repeated {
        entry: Box<Document>,
        unwraps_single: bool,
    },
    /// The texts of all messages with a separator.
    Joined(Text, String),
}

impl Document {
    /// `None` where an optional placeholder has no value in this section. A table without any value is left out, too.
    pub(super) fn read(
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
                let items = items.iter().enumerate().map(|(index, item)| {
                    Self::read(section, templates, &format!("{key}[{index}]"), item)
                });
                Self::List(
                    items
                        .filter_map(Result::transpose)
                        .collect::<Result<_, _>>()?,
                )
            }
            Value::Table(table) => {
                let entries = table.iter().map(|(name, item)| {
                    let item = Self::read(section, templates, &format!("{key}.{name}"), item)?;
                    Ok(item.map(|item| (name.clone(), item)))
                });
                let entries = entries.filter_map(Result::transpose);
                let entries: Vec<_> = entries.collect::<Result<_, ProviderError>>()?;
                if entries.is_empty() && !table.is_empty() {
                    return Ok(None);
                }
                Self::Table(entries)
            }
            Value::Float(number) if !number.is_finite() => {
                return Err(section.invalid(key, "is a number that JSON cannot hold"));
            }
            Value::Float(number) => Self::Plain((*number).into()),
            Value::Integer(number) => Self::Plain((*number).into()),
            Value::Boolean(value) => Self::Plain((*value).into()),
            Value::Datetime(instant) => Self::Plain(instant.to_string().into()),
        }))
    }

    pub(super) fn repeat(&mut self, path: &[&str], repeat: &Repeated) -> Result<(), &'static str> {
        if let [name, rest @ ..] = path {
            let Self::Table(entries) = self else {
                return Err("is not in the request");
            };
            let entry = entries.iter_mut().find(|(known, _)| known == name);
            let (_, entry) = entry.ok_or("is not in the request")?;
            return entry.repeat(rest, repeat);
        }
        *self = match (&mut *self, &repeat.separator) {
            (Self::List(items), None) if items.len() == 1 => Self::Repeated {
                entry: Box::new(items.remove(0)),
                unwraps_single: repeat.unwraps_single,
            },
            (Self::Text(text), Some(separator)) => Self::Joined(text.clone(), separator.clone()),
            (Self::Text(_), None) => return Err(NO_SEPARATOR),
            _ => return Err("must be a list with one entry, or a text with a `separator`"),
        };
        Ok(())
    }

    fn fill(
        &self,
        templates: &Templates,
        outside: &Values<'_>,
        each: &[Values<'_>],
    ) -> Result<Option<Json>, Outcome> {
        Ok(Some(match self {
            Self::Text(text) => return Ok(templates.fill(text, outside)?.map(Json::String)),
            Self::Plain(json) => json.clone(),
            Self::List(items) => {
                let items = items.iter().map(|item| item.fill(templates, outside, each));
                let items = items.filter_map(Result::transpose);
                items.collect::<Result<Vec<_>, _>>()?.into()
            }
            Self::Table(entries) => {
                let mut map = Map::new();
                for (name, item) in entries {
                    if let Some(item) = item.fill(templates, outside, each)? {
                        map.insert(name.clone(), item);
                    }
                }
                if map.is_empty() && !entries.is_empty() {
                    return Ok(None);
                }
                map.into()
            }
            Self::Repeated {
                entry,
                unwraps_single: true,
            } if each.len() == 1 => return entry.fill(templates, &each[0], &[]),
            Self::Repeated { entry, .. } => {
                let entries = each.iter().map(|values| entry.fill(templates, values, &[]));
                let entries = entries.filter_map(Result::transpose);
                entries.collect::<Result<Vec<_>, _>>()?.into()
            }
            Self::Joined(text, separator) => join(templates, text, separator, each)?.into(),
        }))
    }

    fn uses(&self, root: &str, scope: Scope) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Repeated { .. } | Self::Joined(..) if scope == Scope::Outside => false,
            Self::Text(text) | Self::Joined(text, _) => text.uses(root),
            Self::Repeated { entry, .. } => entry.uses(root, scope),
            Self::List(items) => items.iter().any(|item| item.uses(root, scope)),
            Self::Table(entries) => entries.iter().any(|(_, item)| item.uses(root, scope)),
        }
    }
}

fn join(
    templates: &Templates,
    text: &Text,
    separator: &str,
    each: &[Values<'_>],
) -> Result<String, Outcome> {
    let one = |values| {
        let filled = templates.fill_required(text, values)?;
        if filled.contains(separator) {
            return Err(rejected(format!(
                "a value contains the separator `{separator}`"
            )));
        }
        Ok(filled)
    };
    let texts: Vec<String> = each.iter().map(one).collect::<Result<_, _>>()?;
    Ok(texts.join(separator))
}

/// The pairs of a form or a query, sorted by name; a list repeats its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

#[derive(Clone, Debug)]
struct Pair {
    name: String,
    text: Text,
    /// Separates the texts of all messages.
    separator: Option<String>,
}

impl Pairs {
    pub(super) fn read(
        section: &Section<'_>,
        templates: &mut Templates,
        key: &str,
        table: &Table,
    ) -> Result<Self, ProviderError> {
        let mut pairs = Vec::new();
        for (name, value) in table {
            let key = format!("{key}.{name}");
            let values = match value {
                Value::Array(items) => items.as_slice(),
                value => std::slice::from_ref(value),
            };
            for (index, value) in values.iter().enumerate() {
                let key = match value {
                    _ if values.len() == 1 => key.clone(),
                    _ => format!("{key}[{index}]"),
                };
                let text = match value {
                    Value::String(text) => templates.add(section, &key, text)?,
                    Value::Array(_) | Value::Table(_) => {
                        return Err(section.invalid(&key, "must be a text, not a list or a table"));
                    }
                    plain => Some(Text::Plain(plain.to_string())),
                };
                pairs.extend(text.map(|text| Pair {
                    name: name.clone(),
                    text,
                    separator: None,
                }));
            }
        }
        Ok(Self(pairs))
    }

    pub(super) fn repeat(&mut self, path: &[&str], repeat: &Repeated) -> Result<(), &'static str> {
        let mut pairs = self.0.iter_mut();
        let pair = pairs.find(|pair| [pair.name.as_str()] == path);
        let separator = repeat.separator.clone();
        pair.ok_or("is not in the request")?.separator = Some(separator.ok_or(NO_SEPARATOR)?);
        Ok(())
    }

    fn fill(
        &self,
        templates: &Templates,
        outside: &Values<'_>,
        each: &[Values<'_>],
    ) -> Result<String, Outcome> {
        let mut encoded = Serializer::new(String::new());
        for pair in &self.0 {
            let value = match &pair.separator {
                None => templates.fill(&pair.text, outside)?,
                Some(separator) => Some(join(templates, &pair.text, separator, each)?),
            };
            if let Some(value) = value {
                encoded.append_pair(&pair.name, &value);
            }
        }
        Ok(encoded.finish())
    }

    /// Appends them to the query of `url`.
    pub(super) fn append(
        &self,
        url: &mut Url,
        templates: &Templates,
        outside: &Values<'_>,
        each: &[Values<'_>],
    ) -> Result<(), Outcome> {
        let query = self.fill(templates, outside, each)?;
        if !query.is_empty() {
            let query = match url.query() {
                Some(before) if !before.is_empty() => format!("{before}&{query}"),
                _ => query,
            };
            url.set_query(Some(&query));
        }
        Ok(())
    }

    pub(super) fn uses(&self, root: &str, scope: Scope) -> bool {
        self.0.iter().any(|pair| {
            pair.text.uses(root) && (pair.separator.is_none() || scope == Scope::Anywhere)
        })
    }
}
