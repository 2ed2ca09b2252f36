//! A stanza without its secrets, fit to be shown: what comes from the environment or a file is replaced
//! by its name, and so is what looks like a secret that was written into the stanza itself.

use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::commands::Context;
use crate::provider::{self, Provider, ProviderError};

/// Keys under which a literal value is likely a secret.
const TELLING: [&str; 8] = [
    "auth",
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "signature",
    "cookie",
];

/// Stands for what repeats a secret.
const HIDDEN: &str = "< [hidden: it repeats a secret]";

/// Where a secret comes from, and whether it is there.
pub(super) struct Source {
    pub(super) name: String,
    /// `environment variable CELLAR_TOKEN`, `file /run/secrets/cellar`.
    pub(super) place: String,
    /// What it is, where it is set; never printed.
    pub(super) value: Option<String>,
}

impl Source {
    pub(super) fn json(&self) -> Json {
        json!({ "name": self.name, "from": self.place, "set": self.value.is_some() })
    }
}

/// The secrets that a stanza names, those that its kind comes with among them.
pub(super) fn sources(stanza: &Table, context: &Context) -> Vec<Source> {
    let stanza = provider::complete(stanza);
    let secrets = stanza.get("secrets").and_then(Value::as_table);
    secrets
        .into_iter()
        .flatten()
        .map(|(name, source)| {
            let place = |kind: &str| source.get(kind).and_then(Value::as_str);
            let (place, value) = match (place("env"), place("file")) {
                (Some(variable), _) => (
                    format!("environment variable {variable}"),
                    context.variable(variable),
                ),
                (None, Some(file)) => {
                    let text = std::fs::read_to_string(file).ok();
                    let text = text.map(|text| text.trim_end().to_owned());
                    (format!("file {file}"), text.filter(|text| !text.is_empty()))
                }
                (None, None) => ("nowhere".to_owned(), None),
            };
            Source {
                name: name.clone(),
                place,
                value,
            }
        })
        .collect()
}

/// The stanza with every secret replaced: its provider builds the same requests, fit to be shown.
pub(super) fn stanza(stanza: &Table) -> Table {
    let mut masked = provider::complete(stanza);
    for (key, value) in &mut masked {
        match (key.as_str(), value) {
            ("secrets", Value::Table(secrets)) => {
                for (name, source) in secrets.iter_mut() {
                    *source = Value::Table(Table::from_iter([(
                        "env".to_owned(),
                        Value::String(name.clone()),
                    )]));
                }
            }
            ("headers" | "json" | "form" | "query" | "lookup", value) => hide(value),
            _ => {}
        }
    }
    masked
}

/// The provider of a masked stanza.
pub(super) fn provider(name: &str, masked: &Table) -> Result<Provider, ProviderError> {
    Provider::from_stanza(name, masked, &|secret| Some(format!("[{secret}]")))
}

fn hide(value: &mut Value) {
    let Value::Table(table) = value else { return };
    for (key, value) in table.iter_mut() {
        let key = key.to_ascii_lowercase();
        match value {
            Value::String(text) => {
                let is_telling = TELLING.iter().any(|word| key.contains(word));
                if is_telling && !text.contains("{{") {
                    "[hidden]".clone_into(text);
                }
            }
            value => hide(value),
        }
    }
}

/// `text` with every secret in it replaced by its name. A line that still repeats one, in encoded form, is hidden
/// whole; and so is all where a secret goes over several lines.
pub(super) fn text(mut text: String, sources: &[Source], provider: &Provider) -> String {
    for source in sources {
        if let Some(value) = source.value.as_ref().filter(|value| !value.is_empty()) {
            text = text.replace(value, &format!("[{}]", source.name));
        }
    }
    let line = |line: &str| {
        if provider.is_repeated_in(line) {
            HIDDEN.to_owned()
        } else {
            line.to_owned()
        }
    };
    let text: Vec<String> = text.lines().map(line).collect();
    let text = text.join("\n");
    if provider.is_repeated_in(&text) {
        return HIDDEN.to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_stanza_holds_no_secret() {
        let written: Table = r#"
            kind = "generic"
            headers = { "X-Api-Key" = "hunter2", Accept = "text/plain", Authorization = "Bearer {{ secret.token }}" }
            json = { auth = { password = "hunter2" }, to = "{{ phone }}" }
            secrets = { token = { file = "/run/secrets/hunter2" } }
        "#
        .parse()
        .expect("valid TOML");
        let masked = stanza(&written);
        let shown = masked.to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(masked["headers"]["Accept"].as_str(), Some("text/plain"));
        assert_eq!(masked["secrets"]["token"]["env"].as_str(), Some("token"));
    }

    #[test]
    fn a_secret_that_comes_back_in_an_answer_is_replaced() {
        let source = Source {
            name: "token".to_owned(),
            place: String::new(),
            value: Some("hunter2/+".to_owned()),
        };
        let stanza: Table = r#"
            kind = "generic"
            url = "https://sms.example.net"
            headers = { Authorization = "Basic {{ ('me:' ~ secret.token) | base64 }}" }
            json = { to = "{{ phone }}" }
            secrets = { token = { env = "TOKEN" } }
        "#
        .parse()
        .expect("valid TOML");
        let provider = Provider::from_stanza("t", &stanza, &|_| source.value.clone());
        let provider = provider.expect("a provider");
        let sources = [source];
        for (said, expected) in [
            ("bad token hunter2/+", "bad token [token]"),
            (
                "< a\n< bWU6aHVudGVyMi8r\n< b",
                "< a\n< [hidden: it repeats a secret]\n< b",
            ),
            ("< hunter2%2F%2B", HIDDEN),
            ("< hunt\ner2%2F%2B", HIDDEN),
        ] {
            assert_eq!(text(said.to_owned(), &sources, &provider), expected);
        }
    }
}
