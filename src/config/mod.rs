//! The configuration: the settings of every module, merged from defaults, file, environment and flags, and checked
//! when they are read.

mod error;
mod layers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

pub use self::error::{ConfigError, Origin};
use self::layers::Layers;
use crate::phone::Region;
pub use crate::prices::Prices;
use crate::{import, logging, metrics, queue, receipts, sender, serve, store};

/// The reference manual: every setting, its default and its meaning.
pub const DEFAULT: &str = include_str!("../../config/default.toml");
/// The name of the file, in the current folder and in the user's configuration folder.
pub const FILE: &str = "smsq.toml";
/// The default of `database.url`.
pub const DATABASE: &str = "sqlite://smsq.db";
/// A higher concurrency is allowed with a warning.
pub const MANY_CONCURRENCY: u32 = 256;
pub const MAX_CONCURRENCY: u32 = 4096;
/// How much longer a worker's lease is than a provider's timeout.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// The environment variables of the process.
pub type Environment = BTreeMap<String, String>;

/// The flags that change settings.
#[derive(Debug, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub database: Option<String>,
    pub concurrency: Option<u32>,
    pub on_unknown: Option<String>,
    pub listen: Option<SocketAddr>,
}

/// All settings.
#[derive(Debug, Deserialize)]
pub struct Config {
    #[serde(deserialize_with = "non_empty")]
    pub default_provider: Option<String>,
    #[serde(deserialize_with = "region")]
    pub default_region: Option<Region>,
    pub database: store::Config,
    pub sender: sender::Config,
    pub retry: queue::retry::Config,
    pub circuit_breaker: sender::breaker::Config,
    pub auto_pause: sender::AutoPauseConfig,
    pub import: import::Config,
    pub retention: store::RetentionConfig,
    pub redis: import::consumer::RedisConfig,
    pub receipts: receipts::Config,
    pub serve: serve::Config,
    pub log: logging::Config,
    pub metrics: metrics::Config,
    /// The file that was read.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The provider sections by name, built-in ones included.
    #[serde(skip)]
    pub providers: BTreeMap<String, toml::Table>,
    /// The names of the providers in the file.
    #[serde(skip)]
    pub own_providers: Vec<String>,
    /// Price tables by provider.
    #[serde(skip)]
    pub prices: BTreeMap<String, Prices>,
}

impl Config {
    /// Reads and checks all layers.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let file = config_file(flags, environment);
        let mut layers = Layers::read(file.as_deref(), environment)?;
        let concurrency = flags.concurrency.map(|count| count.to_string());
        let listen = flags.listen.map(|address| address.to_string());
        for (flag, key, value) in [
            ("--database", "database.url", &flags.database),
            ("--concurrency", "sender.concurrency", &concurrency),
            ("--on-unknown", "sender.on_unknown", &flags.on_unknown),
            ("--listen", "serve.listen", &listen),
        ] {
            if let Some(value) = value {
                layers.set(key, value, Origin::Flag(flag))?;
            }
        }
        let mut config: Self = layers.settings()?;
        config.check(&layers)?;
        config.file = file;
        config.own_providers = layers.own_providers().cloned().collect();
        if let ([only], None) = (&config.own_providers[..], &config.default_provider) {
            config.default_provider = Some(only.clone());
        }
        config.providers = layers.providers()?;
        config.prices = layers.prices(&config.providers)?;
        Ok(config)
    }

    /// Checks the limits that types do not express.
    fn check(&self, layers: &Layers) -> Result<(), ConfigError> {
        let (sender, retry) = (&self.sender, &self.retry);
        let (breaker, auto_pause) = (&self.circuit_breaker, &self.auto_pause);
        let (concurrency, window) = (sender.concurrency, auto_pause.window);
        let shortest = Duration::from_millis(1);
        // If only the shorter of two waits was set, the error is about that one.
        let changed = |longer, shorter| {
            if layers.is_default(longer) {
                shorter
            } else {
                longer
            }
        };
        let max_wait = changed("retry.max_wait", "retry.first_wait");
        let max_probe = changed("circuit_breaker.max_probe", "circuit_breaker.first_probe");
        let limits = [
            ("database.url", !self.database.url.expose().is_empty()),
            (
                "sender.concurrency",
                (1..=MAX_CONCURRENCY).contains(&concurrency),
            ),
            ("sender.lease", sender.lease >= Duration::from_secs(5)),
            ("retry.max_attempts", retry.max_attempts >= 0),
            ("retry.first_wait", retry.first_wait >= shortest),
            (max_wait, retry.max_wait >= retry.first_wait),
            ("retry.give_up_after", retry.give_up_after >= shortest),
            ("retry.max_retry_after", retry.max_retry_after >= shortest),
            ("circuit_breaker.failures", breaker.failures >= 1),
            (
                "circuit_breaker.first_probe",
                breaker.first_probe >= shortest,
            ),
            (max_probe, breaker.max_probe >= breaker.first_probe),
            ("auto_pause.window", (1..=100_000).contains(&window)),
            ("auto_pause.rejected", auto_pause.rejected <= window),
            (
                "receipts.no_report_after",
                self.receipts.no_report_after >= Duration::from_secs(60),
            ),
            ("retention.older_than", self.retention.is_valid()),
            ("serve.max_waiting", self.serve.max_waiting >= 1),
            ("serve.max_campaigns", self.serve.max_campaigns >= 1),
            ("serve.receipt_key", self.serve.is_receipt_key_valid()),
        ];
        if let Some(expected) = self.serve.tokens_problem() {
            return Err(layers.invalid("serve.tokens", Some(&expected)));
        }
        match limits.into_iter().find(|(_, holds)| !holds) {
            Some((key, _)) => Err(layers.invalid(key, None)),
            None => Ok(()),
        }
    }
}

/// Reads an empty text as "not set".
fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn region<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Region>, D::Error> {
    let region = non_empty(deserializer)?.map(|region| region.parse());
    region.transpose().map_err(serde::de::Error::custom)
}

/// What the value of a setting must be, for errors.
fn expected(key: &str) -> &'static str {
    match key {
        "default_provider" => "the name of a provider, as a text",
        "default_region" => "a country in two letters, like `GB`",
        "database.url" => "a URL like `sqlite://smsq.db`",
        "database.password" | "redis.password" => "a text",
        "database.password_file" => "a path, as a text",
        "sender.concurrency" => "a whole number from 1 to 4096",
        "sender.lease" => "a duration of 5 s or more, like `30s`",
        "sender.on_unknown" => "`hold` or `resend`",
        "sender.max_per_recipient" => {
            "a limit like `10/day`, or several like `[\"1/30s\", \"10/day\"]`; at least 1"
        }
        "retry.max_attempts"
        | "import.ask_from"
        | "auto_pause.unlisted"
        | "metrics.max_campaigns" => "a whole number, 0 or more",
        "retry.max_wait" => "a duration like `10min`, not shorter than `retry.first_wait`",
        "circuit_breaker.failures" | "serve.max_waiting" | "serve.max_campaigns" => {
            "a whole number, 1 or more"
        }
        "circuit_breaker.max_probe" => {
            "a duration like `30s`, not shorter than `circuit_breaker.first_probe`"
        }
        "auto_pause.window" => "a whole number from 1 to 100000",
        "auto_pause.rejected" => "a whole number, not more than `auto_pause.window`",
        "receipts.wait" => "a duration like `10min`, or `0s`",
        "receipts.no_report_after" => "a duration of a minute or more, like `72h`",
        "retention.older_than" => "an age of a day or more, like `90d`, `6mo` or `1y`, or empty",
        "import.numbers" => "`detect`, `national` or `international`",
        "import.max_rejects" => {
            "a share of the rows like `5%`, or a number of them like `100`, as a text"
        }
        "serve.listen" => "an address with a port, like `127.0.0.1:8026`",
        "serve.public_url" => "a URL like `https://sms.example.net`, or empty",
        "serve.trusted_proxies" => {
            "a list of addresses or networks, like `10.0.0.7` or `10.0.0.0/8`"
        }
        "serve.receipt_key" => "a random text of at least 16 characters",
        "serve.tokens" => "a list of `NAME:ROLE:HASH`, as `smsq serve token` prints them",
        "log.level" => "`off`, `error`, `warn`, `info`, `debug` or `trace`",
        "log.format" => "`text` or `json`",
        "retry.first_wait" => "a duration like `5s`, not longer than `retry.max_wait`",
        "circuit_breaker.first_probe" => {
            "a duration like `1s`, not longer than `circuit_breaker.max_probe`"
        }
        "retry.give_up_after" | "retry.max_retry_after" => "a duration like `30min` or `24h`",
        "providers" => "sections `[providers.NAME]`",
        "prices" => "sections `[prices.NAME]`",
        _ if key.starts_with("providers.") => "a section `[providers.NAME]`",
        _ if key.starts_with("prices.") => "a section `[prices.NAME]`",
        _ => "a section of settings",
    }
}

/// An environment variable; an empty one counts as unset.
pub fn variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a String> {
    environment.get(name).filter(|value| !value.is_empty())
}

/// The folder of smsq in the one that `variable_name` names, by default in `default` in the home folder.
pub fn user_folder(
    environment: &Environment,
    variable_name: &str,
    default: &str,
) -> Option<PathBuf> {
    let home = || Some(Path::new(variable(environment, "HOME")?).join(default));
    let folder = variable(environment, variable_name).map(PathBuf::from);
    Some(folder.or_else(home)?.join("smsq"))
}

/// The first of `--config`, `SMSQ_CONFIG`, `./smsq.toml` and the user's configuration folder. The last two may be
/// missing.
fn config_file(flags: &Flags, environment: &Environment) -> Option<PathBuf> {
    let named = variable(environment, "SMSQ_CONFIG").map(PathBuf::from);
    flags.config.clone().or(named).or_else(|| {
        let user = user_folder(environment, "XDG_CONFIG_HOME", ".config");
        let files = [
            Some(PathBuf::from(FILE)),
            user.map(|folder| folder.join(FILE)),
        ];
        files.into_iter().flatten().find(|file| file.exists())
    })
}
