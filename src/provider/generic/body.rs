//! What a generic request carries: a form, a JSON document or a query, with placeholders in its texts.
//! Values are encoded by the library that builds the body, never pasted into text.

use serde_json::Value as Json;
use url::Url;
use url::form_urlencoded::Serializer;

use super::template::{Templates, Text, Values};
use crate::provider::stanza::Stanza;
use crate::provider::{Message, ProviderError};
use crate::sms::Outcome;

/// A JSON document whose texts are templates.
#[derive(Clone, Debug)]
pub(super) enum Document {
    Text(Text),
    Plain(Json),
    List(Vec<Document>),
    Table(Vec<(String, Document)>),
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

    pub(super) fn fill(
        &self,
        templates: &Templates,
        message: &Message,
        values: &Values,
    ) -> Result<Json, Outcome> {
        Ok(match self {
            Self::Text(text) => Json::String(templates.fill(text, message, values)?),
            Self::Plain(json) => json.clone(),
            Self::List(items) => items
                .iter()
                .map(|item| item.fill(templates, message, values))
                .collect::<Result<Vec<_>, _>>()?
                .into(),
            Self::Table(entries) => entries
                .iter()
                .map(|(name, item)| Ok((name.clone(), item.fill(templates, message, values)?)))
                .collect::<Result<serde_json::Map<_, _>, Outcome>>()?
                .into(),
        })
    }

    pub(super) fn names(&self, root: &str) -> bool {
        match self {
            Self::Text(text) => text.names(root),
            Self::Plain(_) => false,
            Self::List(items) => items.iter().any(|item| item.names(root)),
            Self::Table(entries) => entries.iter().any(|(_, item)| item.names(root)),
        }
    }
}

/// The pairs of a form or a query, in the order of their names; a list repeats its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Vec<(String, Text)>);

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
                        pairs.push((name.clone(), leaf(stanza, templates, &key, item)?));
                    }
                }
                value => pairs.push((name.clone(), leaf(stanza, templates, &key, value)?)),
            }
        }
        Ok(Self(pairs))
    }

    pub(super) fn fill(
        &self,
        templates: &Templates,
        message: &Message,
        values: &Values,
    ) -> Result<String, Outcome> {
        let mut encoded = Serializer::new(String::new());
        for (name, text) in &self.0 {
            encoded.append_pair(name, &templates.fill(text, message, values)?);
        }
        Ok(encoded.finish())
    }

    /// Puts them behind what `url` has of a query.
    pub(super) fn append(
        &self,
        url: &mut Url,
        templates: &Templates,
        message: &Message,
        values: &Values,
    ) -> Result<(), Outcome> {
        let query = self.fill(templates, message, values)?;
        if !query.is_empty() {
            let whole = match url.query() {
                Some(before) if !before.is_empty() => format!("{before}&{query}"),
                _ => query,
            };
            url.set_query(Some(&whole));
        }
        Ok(())
    }

    pub(super) fn names(&self, root: &str) -> bool {
        self.0.iter().any(|(_, text)| text.names(root))
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
