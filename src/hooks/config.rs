//! The settings of hooks: sections `[[hooks]]` and `[notify]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use smsq_message::event::{EventKind, NOTIFY};
use smsq_message::secret::Secret;
use url::{Host, Url};

use super::address::is_public;

/// The default of `first_wait`.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(15);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_NAME: usize = 64;
const EXAMPLE: &str = "use a URL such as `https://crm.example/smsq`";

/// A section `[[hooks]]`: where events are posted to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    pub name: String,
    /// Its path may be a secret, too.
    pub url: Secret<HookUrl>,
    pub secret: Secret<HookSecret>,
    pub events: Vec<EventKind>,
    /// Personal data in the bodies.
    #[serde(default)]
    pub include: Vec<Included>,
    /// Also posts to addresses that are not public.
    #[serde(default)]
    pub allow_private: bool,
    /// Also posts without TLS.
    #[serde(default)]
    pub insecure: bool,
    /// How long to wait for a response.
    #[serde(
        default = "timeout",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub timeout: Duration,
    /// The wait after the first failure of an event, of which the others are multiples.
    #[serde(
        default = "first_wait",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    pub first_wait: Duration,
}

const fn timeout() -> Duration {
    TIMEOUT
}

const fn first_wait() -> Duration {
    FIRST_WAIT
}

/// The address of a receiver.
#[derive(Clone)]
pub struct HookUrl(pub(super) Url);

impl<'de> Deserialize<'de> for HookUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Where the secret of a hook comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookSecret {
    Env(String),
    File(PathBuf),
}

/// Personal data that the body of an event has only if a hook includes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Included {
    Phone,
    /// The texts of replies.
    Text,
}

/// Section `[notify]`: a program that is started for events, and when a campaign is stuck.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifyConfig {
    /// The program and its arguments; empty: none.
    #[serde(deserialize_with = "words")]
    pub command: Vec<String>,
    #[serde(deserialize_with = "kinds")]
    pub events: Vec<EventKind>,
    /// How long no message of a campaign is accepted when it is stuck, although some should be.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub stuck_after: Duration,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    All(Vec<String>),
    /// From an environment variable.
    One(String),
}

/// A list, or one word.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Words::deserialize(deserializer)? {
        Words::All(words) => words,
        Words::One(word) if word.is_empty() => Vec::new(),
        Words::One(word) => vec![word],
    })
}

/// A list, or a text with commas.
fn kinds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<EventKind>, D::Error> {
    let words = words(deserializer)?;
    let kinds: Result<Vec<EventKind>, String> =
        words.iter().flat_map(|word| word.split(',')).map(|word| word.trim().parse()).collect();
    kinds.map_err(serde::de::Error::custom)
}

impl HookConfig {
    /// Reads a section. The error has the key.
    pub fn from_toml(table: &toml::Table) -> Result<Self, String> {
        let value = toml::Value::Table(table.clone());
        let hook: Self = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.inner().message().replace('\n', ", ");
            match path.as_str() {
                "." => reason,
                // They may be secrets.
                "url" => format!("`url`: {EXAMPLE}"),
                path if path.starts_with("secret") => {
                    "`secret`: must be `{ env = \"VARIABLE\" }` or `{ file = \"PATH\" }`".to_owned()
                }
                path => format!("`{path}`: {reason}"),
            }
        })?;
        hook.check().map_err(|(key, reason)| format!("`{key}`: {reason}"))?;
        Ok(hook)
    }

    /// The key that is invalid, and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let fails = |key, reason: &str| Err((key, reason.to_owned()));
        let is_word =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(is_word) {
            return fails("name", "use up to 64 of a to z, 0 to 9, `_` and `-`");
        }
        if self.name == NOTIFY {
            return fails("name", "`notify` is the program of section [notify]: use another name");
        }
        let url = &self.url.expose().0;
        if !matches!(url.scheme(), "https" | "http") || !url.has_host() {
            return fails("url", EXAMPLE);
        }
        if url.scheme() == "http" && !self.insecure {
            return fails(
                "url",
                "`http://` sends events without encryption: use `https://`, or set `insecure = true`",
            );
        }
        if !url.username().is_empty() || url.password().is_some() {
            return fails(
                "url",
                "it has a user or a password: the receiver checks the signature instead",
            );
        }
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        if literal.is_some_and(|address| !is_public(address)) && !self.allow_private {
            return fails(
                "url",
                "the address is not public: set `allow_private = true` if that is intended",
            );
        }
        if self.events.is_empty() {
            return fails("events", "list the kinds of events, such as `campaign.done`");
        }
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            return fails("timeout", "must be longer than 0 and at most a minute");
        }
        if self.first_wait.is_zero() || self.first_wait > FIRST_WAIT * 10 {
            return fails("first_wait", "must be longer than 0 and at most 10 minutes");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changed: &str) -> Result<HookConfig, String> {
        let mut table: toml::Table = "
            name = 'crm'
            url = 'https://crm.example/smsq'
            secret = { env = 'HOOK_SECRET' }
            events = ['campaign.done']
        "
        .parse()
        .expect("TOML");
        table.extend(changed.parse::<toml::Table>().expect("TOML"));
        HookConfig::from_toml(&table)
    }

    #[test]
    fn hook_is_read_with_its_defaults() {
        let hook = read("").expect("a hook");
        assert_eq!(hook.timeout, TIMEOUT);
        assert_eq!(hook.first_wait, FIRST_WAIT);
        assert!(!hook.allow_private && !hook.insecure && hook.include.is_empty());
        let hook = read("include = ['phone', 'text']\nfirst_wait = '1s'").expect("a hook");
        assert_eq!(hook.include, [Included::Phone, Included::Text]);
    }

    #[test]
    fn invalid_key_is_named() {
        for (changed, expected) in [
            ("name = 'CRM'", "`name`"),
            ("name = ''", "`name`"),
            ("name = 'notify'", "`name`"),
            ("url = 'crm.example'", "`url`"),
            ("url = 'ftp://crm.example'", "`url`"),
            ("url = 'http://crm.example/x'", "`url`"),
            ("url = 'https://me:word@crm.example/x'", "`url`"),
            ("url = 'https://127.0.0.1/x'", "`url`"),
            ("url = 'https://2130706433/x'", "`url`"),
            ("url = 'https://[::ffff:10.0.0.1]/x'", "`url`"),
            ("events = []", "`events`"),
            ("events = ['message.fail']", "unknown event `message.fail`"),
            ("include = ['name']", "`include"),
            ("secret = 'whsec_x'", "`secret`"),
            ("secret = { value = 'whsec_x' }", "`secret"),
            ("timeout = '2h'", "`timeout`"),
            ("first_wait = '0s'", "`first_wait`"),
            ("colour = 1", "colour"),
        ] {
            let error = read(changed).expect_err(changed);
            assert!(error.contains(expected), "{changed}: {error}");
            assert!(!error.contains("word@") && !error.contains("whsec_x"), "{error}");
        }
        for changed in [
            "url = 'http://crm.example/x'\ninsecure = true",
            "url = 'https://10.1.2.3/x'\nallow_private = true",
        ] {
            read(changed).expect(changed);
        }
    }
}
