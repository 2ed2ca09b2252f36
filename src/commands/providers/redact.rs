//! Hides the secrets of a provider section.

use serde::Serialize;
use toml::{Table, Value};

use crate::commands::Context;
use crate::provider::{self, Provider, ProviderError};

/// A literal value under a key with one of these words is hidden; in headers, every literal value is.
const SECRET_KEYS: [&str; 5] = ["auth", "key", "token", "secret", "pass"];

/// Stands for the secret of a webhook that is in a file.
const WEBHOOK_SECRET: &str = "webhook.secret";

/// A secret that a provider section names.
#[derive(Serialize)]
pub(super) struct Secret {
    pub(super) name: String,
    /// `environment variable CELLAR_TOKEN`, `file /run/secrets/cellar`.
    #[serde(rename = "from")]
    pub(super) source: String,
    #[serde(rename = "set")]
    pub(super) is_set: bool,
}

/// The secrets of a section, with those of its kind.
pub(super) fn secrets(section: &Table, context: &Context) -> Vec<Secret> {
    let section = provider::complete(section);
    let secrets = section.get("secrets").and_then(Value::as_table);
    let secret = |(name, place): (&String, &Value)| {
        let text = |key: &str| place.get(key).and_then(Value::as_str);
        let (source, is_set) = match (text("env"), text("file")) {
            (Some(variable), _) => (
                format!("environment variable {variable}"),
                context.variable(variable).is_some(),
            ),
            (None, Some(file)) => (
                format!("file {file}"),
                std::fs::read_to_string(file).is_ok_and(|text| !text.trim_end().is_empty()),
            ),
            (None, None) => ("no source".to_owned(), false),
        };
        Secret {
            name: name.clone(),
            source,
            is_set,
        }
    };
    secrets.into_iter().flatten().map(secret).collect()
}

/// The section with its secrets replaced by their names.
pub(super) fn section(section: &Table) -> Table {
    let mut section = provider::complete(section);
    for (key, value) in &mut section {
        match (key.as_str(), value) {
            ("secrets", Value::Table(secrets)) => {
                for (name, source) in secrets.iter_mut() {
                    *source = Table::from_iter([("env".to_owned(), name.clone().into())]).into();
                }
            }
            ("headers" | "json" | "form" | "query" | "lookup", value) => {
                hide(value, key == "headers");
            }
            _ => {}
        }
    }
    section
}

/// The provider with placeholders for its secrets: it builds the same requests with the names of the secrets. The
/// secret of its webhook is set only where it really is.
pub(super) fn provider(
    name: &str,
    written: &Table,
    context: &Context,
) -> Result<Provider, ProviderError> {
    let mut section = section(written);
    let secret = section.get_mut("webhook");
    let mut secret = secret.and_then(|webhook| webhook.get_mut("secret")?.as_table_mut());
    if let Some(secret) = secret.as_mut().filter(|it| it.contains_key("file")) {
        **secret = Table::from_iter([("env".to_owned(), WEBHOOK_SECRET.into())]);
    }
    let webhook = secret.and_then(|secret| Some(secret.get("env")?.as_str()?.to_owned()));
    Provider::from_section(name, &section, &|secret| {
        let is_set = webhook.as_deref() != Some(secret)
            || secret == WEBHOOK_SECRET
            || context.variable(secret).is_some();
        is_set.then(|| format!("[{secret}]"))
    })
}

/// Replaces literal values, which contain no template: all of them, or those under a [`SECRET_KEYS`].
fn hide(value: &mut Value, all: bool) {
    let Value::Table(table) = value else { return };
    for (key, value) in table.iter_mut() {
        let key = key.to_ascii_lowercase();
        match value {
            Value::String(text) => {
                let is_secret = all || SECRET_KEYS.iter().any(|word| key.contains(word));
                if is_secret && !text.contains("{{") {
                    "[hidden]".clone_into(text);
                }
            }
            value => hide(value, all || key == "headers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_contains_no_secret() {
        let written: Table = r#"
            kind = "generic"
            headers = { "X-Account" = "hunter2", Authorization = "Bearer {{ secret.token }}" }
            json = { auth = { password = "hunter2" }, to = "{{ phone }}", type = "plain" }
            lookup = { headers = { "X-Account" = "hunter2" } }
            secrets = { token = { file = "/run/secrets/hunter2" } }
        "#
        .parse()
        .expect("valid TOML");
        let redacted = section(&written);
        let shown = redacted.to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(redacted["json"]["type"].as_str(), Some("plain"));
        assert_eq!(redacted["secrets"]["token"]["env"].as_str(), Some("token"));
    }
}
