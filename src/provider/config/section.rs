//! Reads sections `[providers.NAME]` with serde. Errors name the provider and the key, and never print the value
//! of a key that may hold a secret.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Deserializer;
use serde::de::{self, DeserializeOwned};
use smsq_message::secret::secret_keys;
use smsq_message::text::Hinted;
use toml::{Table, Value};
use url::Url;

use crate::units::unknown;

/// Returns the value of an environment variable.
pub(crate) type ReadVariable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Keys of earlier versions, and what to write instead.
const REMOVED_KEYS: [(&str, &str); 1] =
    [("unknown_status", "remove it: these statuses are unknown without it")];

/// Why a section does not describe a provider.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}`: {problem}")]
pub struct ProviderError {
    pub(crate) provider: String,
    pub(crate) problem: String,
}

impl From<ProviderError> for Hinted {
    fn from(error: ProviderError) -> Self {
        error.to_string().into()
    }
}

/// Merges `upper` over `lower`: tables key by key, but each code, each secret and all other values as a whole. Keys that
/// `upper` sets are no longer `required`.
pub fn with_overrides(mut lower: Table, upper: &Table) -> Table {
    if let Some(Value::Array(required)) = lower.get_mut("required") {
        required.retain(|key| key.as_str().is_none_or(|key| !upper.contains_key(key)));
    }
    for (key, value) in upper {
        match (lower.get_mut(key), value) {
            // `{ env = … }` or `{ file = … }`.
            (Some(_), Value::Table(_)) if key == "secret" => {
                lower.insert(key.clone(), value.clone());
            }
            (Some(Value::Table(below)), Value::Table(above)) => {
                if matches!(key.as_str(), "codes" | "secrets") {
                    below.extend(above.clone());
                } else {
                    *below = with_overrides(std::mem::take(below), above);
                }
            }
            _ => {
                lower.insert(key.clone(), value.clone());
            }
        }
    }
    lower
}

/// A section of the configuration that is being read: keys are taken out group by group.
pub(crate) struct Section<'a> {
    pub(super) provider: &'a str,
    pub(super) kind: &'static str,
    pub(super) environment: ReadVariable<'a>,
    /// The keys that were read as secret values.
    secret_keys: &'a RefCell<BTreeSet<String>>,
    /// `lookup.` in a nested section.
    prefix: String,
    table: Table,
    /// The keys that were taken, for suggestions.
    known: Vec<String>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(
        provider: &'a str,
        kind: &'static str,
        mut table: Table,
        environment: ReadVariable<'a>,
        secret_keys: &'a RefCell<BTreeSet<String>>,
    ) -> Self {
        table.remove("kind");
        Self {
            provider,
            kind,
            environment,
            secret_keys,
            prefix: String::new(),
            table,
            known: vec!["kind".to_owned()],
        }
    }

    pub(crate) fn nested(&self, key: &str, table: Table) -> Self {
        Self { prefix: format!("{}{key}.", self.prefix), table, known: Vec::new(), ..*self }
    }

    /// Takes the keys that `T` has out of the section, and reads them.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ProviderError> {
        let table = self.take_keys(field_names::<T>());
        self.read(table)
    }

    /// The keys that are left.
    pub(crate) fn take_rest(&mut self) -> Table {
        std::mem::take(&mut self.table)
    }

    /// The same section with other keys.
    pub(crate) fn with(&self, table: Table) -> Self {
        Self { prefix: self.prefix.clone(), table, known: self.known.clone(), ..*self }
    }

    pub(crate) fn take_keys(&mut self, keys: &[impl AsRef<str>]) -> Table {
        let keys = keys.iter().map(AsRef::as_ref);
        self.known.extend(keys.clone().map(str::to_owned));
        keys.filter_map(|key| self.table.remove_entry(key)).collect()
    }

    /// Reads all keys that are left; any that `T` does not have is an error.
    pub(crate) fn rest<T: DeserializeOwned>(&mut self) -> Result<T, ProviderError> {
        let table = self.take_rest();
        self.read(table)
    }

    fn read<T: DeserializeOwned>(&self, table: Table) -> Result<T, ProviderError> {
        let table = Value::Table(table);
        let secret = secret_keys::<T>(&table);
        self.secret_keys.borrow_mut().extend(secret.iter().map(|key| self.key(key)));
        table.try_into().map_err(|error| self.read_error(&error))
    }

    fn read_error(&self, error: &toml::de::Error) -> ProviderError {
        let shown = error.to_string();
        let path = shown
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'))
            .unwrap_or_default();
        let in_path = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        let message = error.message();
        if path == "secrets" || path.starts_with("secrets.") {
            return self.invalid(path, "must be `{ env = \"VARIABLE\" }` or `{ file = \"PATH\" }`");
        }
        if let Some(name) = message.strip_prefix("missing field `") {
            return self.missing(&in_path(name.trim_end_matches('`')));
        }
        if let Some(rest) = message.strip_prefix("unknown field `") {
            let words: Vec<&str> = rest.split('`').collect();
            let mut known: Vec<&str> = words.iter().skip(2).step_by(2).copied().collect();
            if path.is_empty() {
                known.extend(self.known.iter().map(String::as_str));
            }
            let key = self.key(&in_path(words[0]));
            let message = format!("unknown key `{key}`");
            let problem = match REMOVED_KEYS.iter().find(|(removed, _)| *removed == key) {
                Some((_, instead)) => Hinted::new(message, *instead),
                None => unknown(message, words[0], &known),
            };
            return self.error(problem.joined());
        }
        self.invalid(path, in_plain_words(message))
    }

    /// The key with the name of the nested section before it.
    pub(crate) fn key(&self, key: &str) -> String {
        match key {
            "" => self.prefix.trim_end_matches('.').to_owned(),
            key => format!("{}{key}", self.prefix),
        }
    }

    pub(super) fn error(&self, problem: String) -> ProviderError {
        let provider = self.provider.to_owned();
        ProviderError { provider, problem }
    }

    pub(crate) fn invalid(&self, key: &str, problem: impl AsRef<str>) -> ProviderError {
        let (key, problem) = (self.key(key), problem.as_ref().trim_end());
        self.error(format!("invalid `{key}`: {problem}"))
    }

    pub(crate) fn missing(&self, key: &str) -> ProviderError {
        self.error(format!("missing key `{}`", self.key(key)))
    }

    /// An absolute `http` or `https` URL without credentials.
    pub(crate) fn url(&self, key: &str, text: &str) -> Result<Url, ProviderError> {
        let url = Url::parse(text)
            .map_err(|error| self.invalid(key, format!("is not a URL: {error}")))?;
        let rest = text.split_once("://").map(|(_, rest)| rest);
        let Some(rest) = rest.filter(|_| matches!(url.scheme(), "http" | "https")) else {
            return Err(self.invalid(key, "must begin with `https://` or `http://`"));
        };
        // The parser would take the first part of the path for the host.
        if rest.starts_with(['/', '\\']) {
            return Err(
                self.invalid(key, "has no host: write it like `https://sms.example.net/send`")
            );
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.invalid(
                key,
                Hinted::new(
                    "contains a user name or a password",
                    "put them into `secrets` and send them in `headers`",
                )
                .joined(),
            ));
        }
        Ok(url)
    }
}

/// The keys that serde reads for `T`.
pub(crate) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Names<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = de::value::Error;

        fn deserialize_struct<V: de::Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        fn deserialize_any<V: de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(de::Error::custom("only the names are read"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut names: &[&str] = &[];
    // The error says only that no value was read.
    drop(T::deserialize(Names(&mut names)));
    names
}

/// Replaces the Rust terms in serde's messages, and leaves out the value, which may be a secret.
fn in_plain_words(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    let mismatch = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split_once(", expected "));
    let Some((found, expected)) = mismatch else {
        return message.to_owned();
    };
    let expected = match expected.trim() {
        "an unsigned duration string" => "a duration in quotation marks like `\"10s\"`",
        "a string" => "a text in quotation marks",
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "`true` or `false`",
        "usize" | "u64" | "u32" | "u16" => "a whole number",
        tuple if tuple.starts_with("tuple struct") => "a list of two texts",
        table if table.starts_with("struct ") => "a table",
        other => other,
    };
    let found = found.split(['`', '"']).next().unwrap_or_default().trim();
    format!("must be {expected}, not {found}")
}
