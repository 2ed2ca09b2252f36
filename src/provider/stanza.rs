//! A stanza is one `[providers.NAME]` table of the configuration. It is read key by key, so that every
//! fault names the provider and the key, and a key that nobody asked for is a fault too.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ProviderError;
use crate::rate::Rates;
use crate::text::{did_you_mean, listed};

/// One `[providers.NAME]` table, and whose it is.
pub(super) struct Stanza<'a> {
    pub(super) name: &'a str,
    pub(super) table: &'a toml::Table,
}

/// A span of time as people write it: `10s`, `500ms`, `2 minutes`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Span(
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub(super)  Duration,
);

/// The settings of the connection, which every kind of provider has.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) timeout: Duration,
    pub(super) idle: Duration,
    pub(super) rates: Rates,
    /// The rates count segments, not messages.
    pub(super) by_segments: bool,
}

/// What a provider's limits count.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counted {
    Messages,
    Segments,
}

impl Connection {
    pub(super) const KEYS: [&'static str; 5] = ["kind", "timeout", "idle", "rate", "rate_counts"];

    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Shorter than the keep-alive of common gateways, so that they do not close first.
    const IDLE: Duration = Duration::from_secs(3);
    const LONGEST: Duration = Duration::from_secs(3_600);

    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let timeout = stanza.span("timeout")?.unwrap_or(Self::TIMEOUT);
        if timeout.is_zero() || timeout > Self::LONGEST {
            return Err(stanza.fault("timeout", "must be more than nothing and at most an hour"));
        }
        Ok(Self {
            timeout,
            idle: stanza.span("idle")?.unwrap_or(Self::IDLE),
            rates: stanza.rates("rate")?.unwrap_or_default(),
            by_segments: matches!(stanza.optional("rate_counts")?, Some(Counted::Segments)),
        })
    }
}

impl Stanza<'_> {
    /// Every key must be among the known.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<(), ProviderError> {
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(ProviderError::UnknownKey {
                provider: self.name.to_owned(),
                key: key.clone(),
                hint: closest(key, known),
            }),
        }
    }

    pub(super) fn optional<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<T>, ProviderError> {
        self.table
            .get(key)
            .map(|value| {
                let value = value.clone().try_into::<T>();
                value.map_err(|error| self.fault(key, in_words(error.message())))
            })
            .transpose()
    }

    pub(super) fn required<T: DeserializeOwned>(&self, key: &str) -> Result<T, ProviderError> {
        self.optional(key)?
            .ok_or_else(|| ProviderError::MissingKey {
                provider: self.name.to_owned(),
                key: key.to_owned(),
            })
    }

    pub(super) fn span(&self, key: &str) -> Result<Option<Duration>, ProviderError> {
        Ok(self.optional::<Span>(key)?.map(|span| span.0))
    }

    /// One limit or several. An empty text is a mistake, not the absence of a limit.
    pub(super) fn rates(&self, key: &str) -> Result<Option<Rates>, ProviderError> {
        const WANTED: &str = "must be a limit in quotation marks like `\"100/s\"`, or several: `[\"100/s\", \"20000/day\"]`";
        let is_text =
            |value: &toml::Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        match self.table.get(key) {
            Some(toml::Value::Array(list)) if list.iter().all(is_text) => {}
            Some(value) if !is_text(value) => {
                return Err(self.fault(key, format!("{WANTED}\nhint: leave it out for no limit")));
            }
            _ => {}
        }
        self.optional(key)
    }

    /// A table of the stanza; empty when it is not there.
    pub(super) fn section(&self, key: &str) -> Result<toml::Table, ProviderError> {
        Ok(self.optional(key)?.unwrap_or_default())
    }

    pub(super) fn fault(&self, key: &str, problem: impl Into<String>) -> ProviderError {
        ProviderError::Key {
            provider: self.name.to_owned(),
            key: key.to_owned(),
            problem: problem.into().trim_end().to_owned(),
        }
    }

    /// An absolute `http` or `https` address without credentials in it.
    pub(super) fn address(&self, key: &str, text: &str) -> Result<url::Url, ProviderError> {
        let url = url::Url::parse(text)
            .map_err(|error| self.fault(key, format!("is not a url: {error}")))?;
        let rest = text.split_once("://").map(|(_, rest)| rest);
        let Some(rest) = rest.filter(|_| matches!(url.scheme(), "http" | "https")) else {
            return Err(self.fault(key, "must begin with `https://` or `http://`"));
        };
        // The parser takes the next part for the host.
        if rest.starts_with(['/', '\\']) {
            return Err(self.fault(
                key,
                "names no host: write it like `https://sms.example.net/send`",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.fault(
                key,
                "holds a user name or a password\nhint: put them into `secrets` and send them in `headers`",
            ));
        }
        Ok(url)
    }

    pub(super) fn secret_file(&self, secret: &str, path: &str) -> Result<String, ProviderError> {
        std::fs::read_to_string(path).map_err(|problem| ProviderError::SecretFile {
            provider: self.name.to_owned(),
            secret: secret.to_owned(),
            path: PathBuf::from(path),
            problem,
        })
    }
}

impl ProviderError {
    /// The same about a table of the stanza: its keys stand behind its name.
    pub(super) fn within(mut self, section: &str) -> Self {
        if let Self::UnknownKey { key, .. } | Self::MissingKey { key, .. } | Self::Key { key, .. } =
            &mut self
        {
            *key = format!("{section}.{key}");
        }
        self
    }
}

/// The reader's own words are those of the language that it is written in: what must stand there comes first.
pub(super) fn in_words(problem: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        (
            "an unsigned duration string",
            "a duration in quotation marks like `\"10s\"`",
        ),
        (
            "tuple struct Between with 2 elements",
            "two texts in a list",
        ),
        ("tuple struct Between", "two texts in a list"),
        ("a string", "a text in quotation marks"),
        ("a sequence", "a list"),
        ("a map", "a table"),
        ("a boolean", "`true` or `false`"),
        ("usize", "a whole number"),
        ("u64", "a whole number"),
        ("u32", "a whole number"),
        ("u16", "a whole number"),
    ];
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|start| problem.strip_prefix(start)?.split_once(", expected "));
    let Some((found, wanted)) = wrong else {
        return problem.to_owned();
    };
    let wanted = WORDS
        .iter()
        .find(|(word, _)| wanted.trim() == *word)
        .map_or(wanted.trim(), |(_, words)| words);
    format!("must be {wanted}, not {}", found.trim())
}

/// A `hint:` line with the known word that is meant, or with all of them.
pub(super) fn closest(word: &str, known: &[&str]) -> String {
    let hint = did_you_mean(word, known.iter().copied());
    format!(
        "\nhint: {}",
        hint.unwrap_or_else(|| format!("known are {}", list(known)))
    )
}

/// `` `a`, `b`, `c` ``
pub(super) fn list(words: &[&str]) -> String {
    listed(words.iter().copied())
}
