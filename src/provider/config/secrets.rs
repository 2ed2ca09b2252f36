//! The secrets of a provider. They come from environment variables and files, and are never printed.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::codes::matches_glob;
use crate::redact::SecretForms;

/// The secrets of one provider, by name. It has no `Debug`.
#[derive(Default)]
pub(crate) struct Secrets {
    by_name: BTreeMap<String, SecretString>,
    formats: BTreeMap<String, SecretFormat>,
    /// What is never printed.
    pub(crate) forms: SecretForms,
}

/// What a secret looks like, to warn about a wrong one before anything is sent.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretFormat {
    /// With `*` for any characters, `?` for one.
    patterns: Vec<String>,
    description: String,
}

impl Secrets {
    pub(super) fn new(
        by_name: BTreeMap<String, String>,
        formats: BTreeMap<String, SecretFormat>,
    ) -> Self {
        Self {
            forms: SecretForms::new(by_name.values().map(String::as_str)),
            by_name: by_name
                .into_iter()
                .map(|(name, secret)| (name, SecretString::from(secret)))
                .collect(),
            formats,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(ExposeSecret::expose_secret)
    }

    pub(crate) fn hide(&self, text: &str) -> String {
        const HIDDEN: &str = "< [hidden: contains a secret]";
        let mut text = text.to_owned();
        for (name, secret) in self.exposed() {
            text = text.replace(secret, &format!("[{name}]"));
        }
        let is_hidden = |text: &str| self.forms.occur_in(text);
        let lines: Vec<&str> =
            text.lines().map(|line| if is_hidden(line) { HIDDEN } else { line }).collect();
        match lines.join("\n") {
            text if is_hidden(&text) => HIDDEN.to_owned(),
            text => text,
        }
    }

    /// Names and secrets in plain text, for templates.
    pub(crate) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, secret)| (name.as_str(), secret.expose_secret()))
    }

    /// Warns about characters that were probably copied along with a secret, and about unexpected formats.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warning = |(name, secret): (&str, &str)| {
            let is_enclosed = |first, last| secret.starts_with(first) && secret.ends_with(last);
            let problem = if secret.trim() != secret {
                "begins or ends with a space"
            } else if is_enclosed('"', '"') || is_enclosed('\'', '\'') {
                "is in quotation marks"
            } else if is_enclosed('<', '>') {
                "looks like the example of a manual"
            } else {
                return None;
            };
            Some(format!("secret `{name}` {problem}"))
        };
        let format = |(name, format): (&String, &SecretFormat)| {
            let secret = self.get(name)?;
            let mut patterns = format.patterns.iter();
            let is_valid = patterns.any(|pattern| matches_glob(pattern, secret));
            let description = &format.description;
            (!is_valid).then(|| format!("secret `{name}` does not look like {description}"))
        };
        let copied = self.exposed().filter_map(warning);
        copied.chain(self.formats.iter().filter_map(format)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::section::ProviderError;
    use crate::testing::read_with;

    fn secrets(secret: &str) -> Secrets {
        let by_name = BTreeMap::from([("token".to_owned(), secret.to_owned())]);
        let format = SecretFormat {
            patterns: vec!["AC??".to_owned(), "*hunter*".to_owned(), "?token?".to_owned()],
            description: "a token".to_owned(),
        };
        Secrets::new(by_name, BTreeMap::from([("token".to_owned(), format)]))
    }

    #[test]
    fn secret_with_copied_characters_is_warned_about() {
        for (secret, expected) in [
            ("hunter2 ", Some("begins or ends with a space")),
            ("\"hunter2\"", Some("is in quotation marks")),
            ("'hunter2'", Some("is in quotation marks")),
            ("<token>", Some("looks like the example of a manual")),
            ("hunter 2", None),
            ("a'hunter\"<", None),
            ("AC12", None),
            ("AC123", Some("does not look like a token")),
        ] {
            let expected = expected.map(|problem| format!("secret `token` {problem}"));
            let warnings = secrets(secret).warnings();
            assert_eq!(warnings, Vec::from_iter(expected), "{secret}");
        }
    }

    fn error(source: &str, environment: &dyn Fn(&str) -> Option<String>) -> String {
        let section = format!("kind = 'yunpian'\n{source}");
        let read: Result<_, ProviderError> = read_with(&section, environment);
        read.expect_err(source).to_string()
    }

    #[test]
    fn unset_secret_names_secret_variable_and_provider() {
        let error = error("secrets = { token = { env = 'CELLAR_TOKEN' } }", &|name| {
            (name != "CELLAR_TOKEN").then(|| "t".to_owned())
        });
        for word in ["`token`", "`CELLAR_TOKEN`", "`cellar`"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn secret_file_is_read_without_its_last_newline() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let section = |path: &std::path::Path| {
            let path = path.display();
            format!("kind = 'yunpian'\nsecrets = {{ api_key = {{ file = '{path}' }} }}")
        };
        std::fs::write(&path, "hunter2\r\n").expect("write");
        let provider = read_with(&section(&path), &|_| None).expect("a provider");
        assert_eq!(provider.hide_secrets("hunter2"), "[api_key]");
        assert_eq!(provider.hide_secrets("hunter3"), "hunter3");
        std::fs::write(&path, "\n").expect("write");
        let error = read_with(&section(&path), &|_| None).expect_err("an empty file");
        assert!(error.to_string().contains("is empty"), "{error}");
    }

    #[test]
    fn malformed_secret_is_an_error_that_does_not_print_it() {
        for source in [
            "secrets = { token = 'hunter2' }",
            "secrets = { token = 12345 }",
            "secrets = { token = { env = 'T', file = 'hunter2' } }",
            "secrets = { token = { value = 'hunter2' } }",
            "secrets = 'hunter2'",
        ] {
            let error = error(source, &|_| Some("t".to_owned()));
            assert!(error.contains("{ env = \"VARIABLE\" }"), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("12345"), "{error}");
        }
    }

    #[test]
    fn secret_in_text_is_replaced_by_its_name() {
        let section = r#"
            kind = "generic"
            url = "https://sms.example.net"
            headers = { Authorization = "Basic {{ ('me:' ~ secret.token) | base64 }}" }
            json = { to = "{{ phone }}" }
            secrets = { token = { env = "TOKEN" } }
        "#;
        let provider = read_with(section, &|_| Some("hunter2/+".to_owned()));
        let provider = provider.expect("a provider");
        let hidden = "< [hidden: contains a secret]";
        for (text, expected) in [
            ("bad token hunter2/+", "bad token [token]"),
            ("< a\n< bWU6aHVudGVyMi8r\n< b", "< a\n< [hidden: contains a secret]\n< b"),
            ("< hunter2%2F%2B", hidden),
            ("< hunt\ner2%2F%2B", hidden),
        ] {
            assert_eq!(provider.hide_secrets(text), expected);
        }
    }
}
