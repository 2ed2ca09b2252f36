//! Hides the secrets of a provider section.

use serde::Serialize;
use smsq_message::secret::HIDDEN;
use smsq_provider::{Provider, ProviderError};
use toml::{Table, Value};

use crate::commands::Context;
use crate::config::{Environment, variable};

/// Stands for the secret of a webhook that is in a file.
const WEBHOOK_SECRET: &str = "webhook.secret";

/// A secret that a provider section names.
#[derive(Serialize)]
pub(super) struct NamedSecret {
    pub(super) name: String,
    /// `environment variable CELLAR_TOKEN`, `file /run/secrets/cellar`.
    #[serde(rename = "from")]
    pub(super) source: String,
    #[serde(rename = "set")]
    pub(super) is_set: bool,
}

/// The secrets of a section, with those of its kind.
pub(super) fn secrets(section: &Table, context: &Context) -> Vec<NamedSecret> {
    let section = smsq_provider::complete(section);
    let secrets = section.get("secrets").and_then(Value::as_table);
    let secret = |(name, place): (&String, &Value)| {
        let text = |key: &str| place.get(key).and_then(Value::as_str);
        let (source, is_set) = match (text("env"), text("file")) {
            (Some(variable), _) => {
                (format!("environment variable {variable}"), context.variable(variable).is_some())
            }
            (None, Some(file)) => (
                format!("file {file}"),
                std::fs::read_to_string(file).is_ok_and(|text| !text.trim_end().is_empty()),
            ),
            (None, None) => ("no source".to_owned(), false),
        };
        NamedSecret { name: name.clone(), source, is_set }
    };
    secrets.into_iter().flatten().map(secret).collect()
}

/// The provider with the names of its secrets in place of their values. The secret of its webhook is set only where it
/// really is.
pub(super) fn provider(
    name: &str,
    written: &Table,
    environment: &Environment,
) -> Result<Provider, ProviderError> {
    let mut section = smsq_provider::complete(written);
    let secrets = section.get_mut("secrets").and_then(Value::as_table_mut);
    for (name, source) in secrets.into_iter().flatten() {
        *source = Table::from_iter([("env".to_owned(), name.clone().into())]).into();
    }
    let secret = section.get_mut("webhook");
    let mut secret = secret.and_then(|webhook| webhook.get_mut("secret")?.as_table_mut());
    if let Some(secret) = secret.as_mut().filter(|table| table.contains_key("file")) {
        **secret = Table::from_iter([("env".to_owned(), WEBHOOK_SECRET.into())]);
    }
    let webhook = secret.and_then(|secret| Some(secret.get("env")?.as_str()?.to_owned()));
    Provider::from_section(name, &section, &|secret| {
        let is_set = webhook.as_deref() != Some(secret)
            || secret == WEBHOOK_SECRET
            || variable(environment, secret).is_some();
        is_set.then(|| format!("[{secret}]"))
    })
}

/// The section as it can be shown: what the operator has written into requests is hidden, except for placeholders.
pub(super) fn section(written: &Table, provider: &Provider) -> Table {
    let mut section = smsq_provider::complete(written);
    let kind = written.get("kind").and_then(Value::as_str);
    let published = [kind, Some(provider.name())]
        .into_iter()
        .flatten()
        .find_map(smsq_provider::builtin_section)
        .unwrap_or_default();
    for (key, value) in &mut section {
        hide_queries(value, published.get(key));
    }
    for key in provider.secret_keys() {
        let mut parts = key.split('.');
        let first = parts.next().unwrap_or_default();
        let (mut value, mut published) = (section.get_mut(first), published.get(first));
        for part in parts {
            value = value.and_then(|value| value.get_mut(part));
            published = published.and_then(|value| value.get(part));
        }
        if let Some(value) = value {
            hide(value, published);
        }
    }
    section
}

/// Hides texts and numbers, except those that smsq's own section of the provider has, and placeholders.
fn hide(value: &mut Value, published: Option<&Value>) {
    match value {
        value if published == Some(value) => {}
        Value::Table(table) => {
            for (key, value) in table {
                hide(value, published.and_then(|published| published.get(key)));
            }
        }
        Value::Array(items) => {
            for item in items {
                hide(item, None);
            }
        }
        Value::Boolean(_) => {}
        Value::String(text) => *text = only_placeholders(text),
        value => *value = HIDDEN.into(),
    }
}

/// Hides what is after the `?` of a URL.
fn hide_queries(value: &mut Value, published: Option<&Value>) {
    match value {
        value if published == Some(value) => {}
        Value::Table(table) => {
            for (key, value) in table {
                hide_queries(value, published.and_then(|published| published.get(key)));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_queries(item, None)),
        Value::String(text) => {
            let is_url = text.starts_with('/') || text.contains("://");
            if let Some((start, query)) = text.split_once('?').filter(|_| is_url) {
                *text = format!("{start}?{}", only_placeholders(query));
            }
        }
        _ => {}
    }
}

/// The placeholders of a text without what is between them, and without the texts in their expressions.
fn only_placeholders(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let start = ["{{", "{%", "{#"].iter().filter_map(|bracket| rest.find(bracket));
        let start = start.min().unwrap_or(rest.len());
        let (literal, placeholder) = rest.split_at(start);
        shown.push_str(if literal.trim().is_empty() { literal } else { HIDDEN });
        let end = match placeholder.get(..2) {
            Some("{{") => placeholder.find("}}"),
            Some("{%") => placeholder.find("%}"),
            _ => None,
        };
        let Some(end) = end else {
            shown.push_str(if placeholder.is_empty() { "" } else { HIDDEN });
            return shown;
        };
        let (placeholder, after) = placeholder.split_at(end + 2);
        shown.push_str(&without_texts(placeholder));
        rest = after;
    }
    shown
}

/// An expression with its texts hidden.
fn without_texts(expression: &str) -> String {
    let mut shown = String::new();
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        shown.push(character);
        if matches!(character, '"' | '\'') {
            while let Some(inner) = characters.next().filter(|inner| *inner != character) {
                if inner == '\\' {
                    characters.next();
                }
            }
            shown.push_str(HIDDEN);
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_placeholders_are_shown() {
        for (text, shown) in [
            ("hunter2", "[hidden]"),
            ("Bearer {{ secret.token }}", "[hidden]{{ secret.token }}"),
            ("{{ phone }} {{ content }}", "{{ phone }} {{ content }}"),
            ("hunter2{{ phone }}hunter2", "[hidden]{{ phone }}[hidden]"),
            (r"{{ ('me:hunter\'2' ~ phone) | base64 }}", "{{ ('[hidden]' ~ phone) | base64 }}"),
            ("{{ \"hunter'2\" }}{% if phone %}hunter2", "{{ \"[hidden]\" }}{% if phone %}[hidden]"),
            ("{{ phone }}{# hunter2 #}", "{{ phone }}[hidden]"),
            ("{{ 'hunter2 }}", "{{ '[hidden]'"),
            ("{{ hunter2", "[hidden]"),
            ("", ""),
        ] {
            assert_eq!(only_placeholders(text), shown, "{text}");
        }
    }
}
