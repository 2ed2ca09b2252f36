//! The configuration: the modules' own sections, gathered, layered (defaults, file, environment,
//! flags) and checked when it is read, so that nobody below has to doubt a setting.

mod fault;
mod layers;
mod prices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

pub use self::fault::{Fault, Origin};
use self::layers::Layers;
pub use self::prices::Prices;
use crate::phone::Region;
use crate::{import, logging, provider, sender, store};

/// The reference manual: every setting, its default, what it means.
pub const DEFAULT: &str = include_str!("../../config/default.toml");
/// The name of the file, in the current folder and in the user's.
pub const FILE: &str = "smsq.toml";
/// The default of `database.url`.
pub const DATABASE: &str = "sqlite://smsq.db";
/// More slots than that are allowed, but they need a reason.
pub const MANY_CONCURRENCY: u32 = 256;
/// So much longer than a provider's timeout a worker's lease must be.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);
/// The most slots that can be asked for.
pub const MAX_CONCURRENCY: u32 = 4096;

/// The variables of the process's environment.
pub type Environment = BTreeMap<String, String>;

/// What the command line says about the configuration.
#[derive(Debug, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub database: Option<String>,
    pub concurrency: Option<u32>,
    pub on_unknown: Option<String>,
}

/// Every setting of smsq.
#[derive(Debug)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    pub default_provider: Option<String>,
    pub default_region: Option<Region>,
    pub database: store::Config,
    pub sender: sender::Config,
    pub retry: crate::queue::retry::Config,
    pub circuit_breaker: sender::breaker::Config,
    pub auto_pause: sender::AutoPauseConfig,
    pub import: import::Config,
    pub retention: store::RetentionConfig,
    pub redis: import::consumer::RedisConfig,
    pub log: logging::Config,
    /// The stanzas by name, those that are built in among them, with the case of every key.
    pub providers: BTreeMap<String, toml::Table>,
    /// The names of the providers that the operator describes.
    pub own_providers: Vec<String>,
    /// What providers charge, by their names.
    pub prices: BTreeMap<String, Prices>,
}

#[derive(Deserialize)]
struct Sections {
    default_provider: String,
    default_region: String,
    database: store::Config,
    sender: sender::Config,
    retry: crate::queue::retry::Config,
    circuit_breaker: sender::breaker::Config,
    auto_pause: sender::AutoPauseConfig,
    import: import::Config,
    retention: store::RetentionConfig,
    redis: import::consumer::RedisConfig,
    log: logging::Config,
}

impl Config {
    /// Reads and checks all layers.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, Fault> {
        let file = file(flags, environment);
        let mut layers = Layers::read(file.as_deref(), environment)?;
        if let Some(url) = &flags.database {
            layers.add_flag("--database", "database.url", url.clone());
        }
        if let Some(concurrency) = flags.concurrency {
            layers.add_flag(
                "--concurrency",
                "sender.concurrency",
                concurrency.to_string(),
            );
        }
        if let Some(on_unknown) = &flags.on_unknown {
            layers.add_flag("--on-unknown", "sender.on_unknown", on_unknown.clone());
        }
        let sections: Sections = layers
            .merged()
            .and_then(::config::Config::try_deserialize)
            .map_err(|error| typed_fault(&layers, &error))?;
        sections.check(&layers)?;
        let default_region = set(sections.default_region)
            .map(|region| region.parse())
            .transpose()
            .map_err(|_| layers.fault("default_region", wanted("default_region")))?;
        let own_providers: Vec<String> = layers.own_providers().cloned().collect();
        let default_provider = match (set(sections.default_provider), own_providers.as_slice()) {
            (None, [only]) => Some(only.clone()),
            (named, _) => named,
        };
        let providers = layers.stanzas(builtin())?;
        let prices = layers.prices(&providers)?;
        Ok(Self {
            default_provider,
            default_region,
            database: sections.database,
            sender: sections.sender,
            retry: sections.retry,
            circuit_breaker: sections.circuit_breaker,
            auto_pause: sections.auto_pause,
            import: sections.import,
            retention: sections.retention,
            redis: sections.redis,
            log: sections.log,
            providers,
            own_providers,
            prices,
            file,
        })
    }
}

impl Sections {
    /// The bounds that types do not express.
    fn check(&self, layers: &Layers) -> Result<(), Fault> {
        let (sender, retry, breaker, auto_pause) = (
            &self.sender,
            &self.retry,
            &self.circuit_breaker,
            &self.auto_pause,
        );
        let some_time = Duration::from_millis(1);
        // Where only the shorter one was written, it is the one to blame.
        let written = |longest, shortest| {
            if layers.is_default(longest) {
                shortest
            } else {
                longest
            }
        };
        let longest_wait = written("retry.max_wait", "retry.first_wait");
        let longest_probe = written("circuit_breaker.max_probe", "circuit_breaker.first_probe");
        let bounds = [
            ("database.url", !self.database.url.is_empty()),
            (
                "sender.concurrency",
                (1..=MAX_CONCURRENCY).contains(&sender.concurrency),
            ),
            ("sender.lease", sender.lease >= Duration::from_secs(5)),
            ("retry.max_attempts", retry.max_attempts >= 0),
            ("retry.first_wait", retry.first_wait >= some_time),
            (longest_wait, retry.max_wait >= retry.first_wait),
            ("retry.give_up_after", retry.give_up_after >= some_time),
            ("retry.max_retry_after", retry.max_retry_after >= some_time),
            ("circuit_breaker.failures", breaker.failures >= 1),
            (
                "circuit_breaker.first_probe",
                breaker.first_probe >= some_time,
            ),
            (longest_probe, breaker.max_probe >= breaker.first_probe),
            (
                "auto_pause.window",
                (1..=100_000).contains(&auto_pause.window),
            ),
            (
                "auto_pause.rejected",
                auto_pause.rejected <= auto_pause.window,
            ),
            ("retention.older_than", self.retention.is_sound()),
        ];
        match bounds.into_iter().find(|(_, holds)| !holds) {
            Some((key, _)) => Err(layers.fault(key, wanted(key))),
            None => Ok(()),
        }
    }
}

/// What a setting must be, for people.
fn wanted(key: &str) -> &'static str {
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
        "retry.max_attempts" | "import.ask_from" | "auto_pause.unlisted" => {
            "a whole number, 0 or more"
        }
        "retry.max_wait" => "a duration like `10min`, not shorter than `retry.first_wait`",
        "circuit_breaker.failures" => "a whole number, 1 or more",
        "circuit_breaker.max_probe" => {
            "a duration like `30s`, not shorter than `circuit_breaker.first_probe`"
        }
        "auto_pause.window" => "a whole number from 1 to 100000",
        "auto_pause.rejected" => "a whole number, not more than `auto_pause.window`",
        "retention.older_than" => "an age of a day or more, like `90d`, `6mo` or `1y`, or empty",
        "import.max_rejects" => {
            "a share of the rows like `5%`, or a number of them like `100`, as a text"
        }
        "log.level" => "`off`, `error`, `warn`, `info`, `debug` or `trace`",
        "log.format" => "`text` or `json`",
        "retry.first_wait" => "a duration like `5s`, not longer than `retry.max_wait`",
        "circuit_breaker.first_probe" => {
            "a duration like `1s`, not longer than `circuit_breaker.max_probe`"
        }
        "retry.give_up_after" | "retry.max_retry_after" => "a duration like `30min` or `24h`",
        _ => "a section of settings",
    }
}

fn typed_fault(layers: &Layers, error: &::config::ConfigError) -> Fault {
    use ::config::ConfigError::{At, NotFound, Type};
    match error {
        Type { key: Some(key), .. } | At { key: Some(key), .. } | NotFound(key) => {
            layers.fault(key, wanted(key))
        }
        other => Fault::Syntax {
            origin: Origin::Default,
            reason: other.to_string(),
        },
    }
}

/// The first of: `--config`, `SMSQ_CONFIG`, `./smsq.toml`, the user's config folder. The first two
/// are asked for, so they must exist; the others are read where they do.
fn file(flags: &Flags, environment: &Environment) -> Option<PathBuf> {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    if let Some(file) = &flags.config {
        return Some(file.clone());
    }
    if let Some(file) = variable("SMSQ_CONFIG") {
        return Some(PathBuf::from(file));
    }
    let home = || Some(Path::new(variable("HOME")?).join(".config"));
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    [
        Some(PathBuf::from(FILE)),
        folder.map(|folder| folder.join("smsq").join(FILE)),
    ]
    .into_iter()
    .flatten()
    .find(|file| file.exists())
}

/// An empty text is not set.
fn set(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// The stanzas that come with smsq and work as they stand; the others are examples to copy.
fn builtin() -> BTreeMap<String, toml::Table> {
    provider::builtin()
        .iter()
        .filter_map(|(name, text)| {
            let text: toml::Table = text
                .parse()
                .expect("the embedded stanzas are valid, a test says so");
            let stanza = text.get("providers")?.get(name)?.as_table()?;
            Some(((*name).to_owned(), stanza.clone()))
        })
        .collect()
}
