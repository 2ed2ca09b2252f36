//! Secrets come from the environment or from a file, never from the configuration itself, and they are
//! never printed: `Debug` shows their names.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use super::ProviderError;
use super::forms::Forms;
use super::stanza::Stanza;

/// The secrets of one provider, by name.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    by_name: BTreeMap<String, SecretString>,
    /// What must not be quoted of an answer.
    forms: Forms,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Secrets {
    /// Reads table `secrets`: each is `{ env = "VARIABLE" }` or `{ file = "PATH" }`.
    pub(super) fn read(
        stanza: &Stanza<'_>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let by_name: BTreeMap<String, SecretString> = stanza
            .section("secrets")?
            .iter()
            .map(|(name, source)| {
                let text = read_one(stanza, name, source, environment)?;
                Ok((name.clone(), SecretString::from(text)))
            })
            .collect::<Result<_, _>>()?;
        let forms = Forms::of(by_name.values().map(ExposeSecret::expose_secret));
        Ok(Self { by_name, forms })
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.by_name.keys().map(String::as_str).collect()
    }

    pub(super) fn forms(&self) -> &Forms {
        &self.forms
    }

    /// Adds what a template made of secrets to what must not be quoted.
    pub(super) fn hide(&mut self, made: &str) {
        self.forms.add_made(made);
    }

    /// What is hardly part of a secret: it came along when it was copied.
    pub(super) fn doubts(&self) -> Vec<String> {
        let doubt = |(name, secret): (&str, &str)| {
            let ends = |first, last| secret.starts_with(first) && secret.ends_with(last);
            let problem = if secret.trim() != secret {
                "begins or ends with a space"
            } else if ends('"', '"') || ends('\'', '\'') {
                "stands in quotation marks"
            } else if ends('<', '>') {
                "looks like the example of a manual"
            } else {
                return None;
            };
            Some(format!("secret `{name}` {problem}"))
        };
        self.exposed().filter_map(doubt).collect()
    }

    /// One secret in the clear, for those who sign with it.
    pub(super) fn named(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(ExposeSecret::expose_secret)
    }

    /// Names and secrets in the clear, for the templates that send them.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name
            .iter()
            .map(|(name, secret)| (name.as_str(), secret.expose_secret()))
    }
}

fn read_one(
    stanza: &Stanza<'_>,
    name: &str,
    source: &toml::Value,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ProviderError> {
    let key = format!("secrets.{name}");
    let malformed = || {
        stanza.fault(
            &key,
            "must be `{ env = \"VARIABLE\" }` or `{ file = \"PATH\" }`",
        )
    };
    let source = source.as_table().ok_or_else(malformed)?;
    let mut entries = source.iter();
    let (Some((kind, place)), None) = (entries.next(), entries.next()) else {
        return Err(malformed());
    };
    let place = place.as_str().ok_or_else(malformed)?;
    let text = match kind.as_str() {
        "env" => environment(place)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ProviderError::UnsetSecret {
                provider: stanza.name.to_owned(),
                secret: name.to_owned(),
                variable: place.to_owned(),
            })?,
        "file" => stanza.secret_file(name, place)?,
        _ => return Err(malformed()),
    };
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(stanza.fault(&key, format!("`{place}` is empty")));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        source: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Secrets, ProviderError> {
        let table: toml::Table = source.parse().expect("toml");
        let stanza = Stanza {
            name: "cellar",
            table: &table,
        };
        Secrets::read(&stanza, environment)
    }

    #[test]
    fn what_was_copied_along_with_a_secret_is_told() {
        for (secret, expected) in [
            ("hunter2 ", Some("begins or ends with a space")),
            ("\"hunter2\"", Some("stands in quotation marks")),
            ("'hunter2'", Some("stands in quotation marks")),
            ("<token>", Some("looks like the example of a manual")),
            ("hunter 2", None),
            ("a'b\"<", None),
        ] {
            let source = "secrets = { token = { env = 'T' } }";
            let secrets = read(source, &|_| Some(secret.to_owned())).expect("secrets");
            let expected = expected.map(|problem| format!("secret `token` {problem}"));
            assert_eq!(secrets.doubts(), Vec::from_iter(expected), "{secret}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secrets = read("secrets = { token = { env = 'T' } }", &|_| {
            Some("hunter2".into())
        })
        .expect("secrets");
        assert_eq!(format!("{secrets:?}"), r#"{"token"}"#);
        assert_eq!(
            secrets.exposed().collect::<Vec<_>>(),
            [("token", "hunter2")]
        );
    }

    #[test]
    fn an_unset_secret_names_the_secret_the_variable_and_the_provider() {
        let error = read("secrets = { token = { env = 'CELLAR_TOKEN' } }", &|_| None)
            .expect_err("unset")
            .to_string();
        for word in ["`token`", "`CELLAR_TOKEN`", "`cellar`"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_secret_file_is_read_without_its_last_newline() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "hunter2\n").expect("written");
        let source = format!("secrets = {{ token = {{ file = '{}' }} }}", path.display());
        let secrets = read(&source, &|_| None).expect("secrets");
        assert_eq!(
            secrets.exposed().collect::<Vec<_>>(),
            [("token", "hunter2")]
        );
        std::fs::remove_file(&path).expect("removed");
        let error = read(&source, &|_| None).expect_err("missing").to_string();
        assert!(
            error.contains("`token`") && error.contains("cellar"),
            "{error}"
        );
    }

    #[test]
    fn a_secret_in_the_configuration_itself_is_refused_and_not_repeated() {
        let error = read("secrets = { token = 'hunter2' }", &|_| None)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("secrets.token") && !error.contains("hunter2"));
    }
}
