//! Hides the secrets of a provider section, and of a provider's response.

use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::commands::Context;
use crate::provider::{self, Provider, ProviderError};

/// A literal value under a key with one of these words is hidden; in headers, every literal value is.
const SECRET_KEYS: [&str; 5] = ["auth", "key", "token", "secret", "pass"];

/// Replaces a line that contains a secret in encoded form.
const HIDDEN: &str = "< [hidden: contains a secret]";

/// A secret that a provider section names.
pub(super) struct Secret {
    pub(super) name: String,
    /// `environment variable CELLAR_TOKEN`, `file /run/secrets/cellar`.
    pub(super) source: String,
    /// `None` if it is not set. Never printed.
    pub(super) value: Option<String>,
}

impl Secret {
    pub(super) fn json(&self) -> Json {
        json!({ "name": self.name, "from": self.source, "set": self.value.is_some() })
    }
}

/// The secrets of a section, with those of its kind.
pub(super) fn secrets(section: &Table, context: &Context) -> Vec<Secret> {
    let section = provider::complete(section);
    let secrets = section.get("secrets").and_then(Value::as_table);
    let secrets = secrets.into_iter().flatten();
    let secret = |(name, place): (&String, &Value)| {
        let text = |key: &str| place.get(key).and_then(Value::as_str);
        let (source, value) = match (text("env"), text("file")) {
            (Some(variable), _) => {
                let source = format!("environment variable {variable}");
                (source, context.variable(variable))
            }
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let text = text.trim_end().to_owned();
                (
                    format!("file {file}"),
                    Some(text).filter(|text| !text.is_empty()),
                )
            }
            (None, None) => ("no source".to_owned(), None),
        };
        Secret {
            name: name.clone(),
            source,
            value,
        }
    };
    secrets.map(secret).collect()
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

/// The provider of a section without secrets: it builds the same requests with placeholders.
pub(super) fn provider(name: &str, section: &Table) -> Result<Provider, ProviderError> {
    Provider::from_section(name, section, &|secret| Some(format!("[{secret}]")))
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

/// The text with every secret in it replaced by its name. A line that contains one in encoded form is hidden;
/// the whole text is hidden where a secret continues on another line.
pub(super) fn text(mut text: String, secrets: &[Secret], provider: &Provider) -> String {
    for secret in secrets {
        if let Some(value) = secret.value.as_ref().filter(|value| !value.is_empty()) {
            text = text.replace(value, &format!("[{}]", secret.name));
        }
    }
    let line = |line| {
        if provider.has_secret_in(line) {
            HIDDEN
        } else {
            line
        }
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join("\n");
    if provider.has_secret_in(&text) {
        return HIDDEN.to_owned();
    }
    text
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

    #[test]
    fn secret_in_response_is_replaced_by_its_name() {
        let secret = Secret {
            name: "token".to_owned(),
            source: String::new(),
            value: Some("hunter2/+".to_owned()),
        };
        let section: Table = r#"
            kind = "generic"
            url = "https://sms.example.net"
            headers = { Authorization = "Basic {{ ('me:' ~ secret.token) | base64 }}" }
            json = { to = "{{ phone }}" }
            secrets = { token = { env = "TOKEN" } }
        "#
        .parse()
        .expect("valid TOML");
        let provider = Provider::from_section("t", &section, &|_| secret.value.clone());
        let provider = provider.expect("a provider");
        let secrets = [secret];
        for (response, expected) in [
            ("bad token hunter2/+", "bad token [token]"),
            (
                "< a\n< bWU6aHVudGVyMi8r\n< b",
                "< a\n< [hidden: contains a secret]\n< b",
            ),
            ("< hunter2%2F%2B", HIDDEN),
            ("< hunt\ner2%2F%2B", HIDDEN),
        ] {
            assert_eq!(text(response.to_owned(), &secrets, &provider), expected);
        }
    }
}
