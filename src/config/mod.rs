//! The configuration: the settings of every module, merged from defaults, file, environment and flags, and checked
//! when they are read.

mod error;
mod layers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use smsq_lifecycle::approval::ApprovalRules;
use smsq_message::age::Age;
use smsq_message::budget::{BudgetRules, MonthlyBudgets, Unpriced};
use smsq_message::phone::{Countries, Dialling, Region};
use smsq_message::route::RouteConfig;
use smsq_process::logging;

pub use self::error::{ConfigError, Origin};
use self::layers::Layers;
pub use smsq_message::prices::Prices;

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
    pub database: smsq_store::Config,
    pub limits: LimitsConfig,
    pub approval: ApprovalRules,
    pub sender: smsq_sender::Config,
    pub retry: smsq_lifecycle::retry::Config,
    pub circuit_breaker: smsq_sender::provider_state::breaker::Config,
    pub auto_pause: smsq_sender::AutoPauseConfig,
    pub import: smsq_import::Config,
    pub retention: smsq_store::RetentionConfig,
    pub redis: smsq_import::consumer::RedisConfig,
    pub receipts: smsq_receipts::Config,
    pub serve: smsq_serve::Config,
    pub log: logging::Config,
    pub metrics: smsq_metrics::Config,
    pub notify: smsq_hooks::NotifyConfig,
    /// The hooks in the file.
    #[serde(skip)]
    pub hooks: Vec<smsq_hooks::HookConfig>,
    /// The file that was read.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// What names a database, providers or a configuration, as errors quote it; `None`: there are only defaults.
    #[serde(skip)]
    pub named: Option<String>,
    /// Where the database was named.
    #[serde(skip)]
    pub database_origin: Origin,
    /// The provider sections by name, built-in ones included.
    #[serde(skip)]
    pub providers: BTreeMap<String, toml::Table>,
    /// The names of the providers in the file.
    #[serde(skip)]
    pub own_providers: Vec<String>,
    /// The accounts whose sections have different limits.
    #[serde(skip)]
    pub shared_accounts: Vec<smsq_provider::SharedAccount>,
    /// Price tables by provider.
    #[serde(skip)]
    pub prices: BTreeMap<String, Prices>,
    /// By name, which no provider has.
    #[serde(skip)]
    pub routes: BTreeMap<String, RouteConfig>,
    /// The databases of other programs that lists are read from, by name.
    #[serde(skip)]
    pub sources: BTreeMap<String, smsq_store::SourceConfig>,
}

/// Section `[limits]`: what no message may exceed, whatever is imported.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    pub countries: Countries,
    /// For how long a number gets no messages after a provider said that it does not exist; `None`: it gets them.
    #[serde(deserialize_with = "age")]
    pub skip_dead: Option<Age>,
    /// How much all messages of a calendar month may cost.
    pub budget: MonthlyBudgets,
    pub unpriced: Unpriced,
}

impl LimitsConfig {
    pub fn budgets(&self) -> Arc<BudgetRules> {
        Arc::new(BudgetRules { monthly: self.budget.clone(), unpriced: self.unpriced })
    }
}

impl Config {
    /// How the number of a single message is read, and to which countries it may be sent.
    pub fn dialling(&self) -> Dialling {
        Dialling { countries: self.limits.countries, ..Dialling::from(self.default_region) }
    }

    /// The names of the providers that send by this provider or route.
    pub fn providers_of<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        match self.routes.get(name) {
            Some(route) => route.providers(),
            None => BTreeSet::from([name]),
        }
    }

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
        if !layers.is_default("database.url") {
            config.database_origin = layers.origin("database.url");
        }
        config.named = layers.named(flags);
        config.file = file;
        config.own_providers = layers.own_providers().cloned().collect();
        if let ([only], None) = (&config.own_providers[..], &config.default_provider) {
            config.default_provider = Some(only.clone());
        }
        config.providers = layers.providers()?;
        config.shared_accounts =
            smsq_provider::share_limits(&mut config.providers, &config.own_providers);
        config.prices = layers.prices(&config.providers)?;
        config.routes = layers.routes(&config.providers, &config.prices)?;
        config.hooks = layers.hooks()?;
        config.sources = layers.sources()?;
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
            if layers.is_default(longer) { shorter } else { longer }
        };
        let max_wait = changed("retry.max_wait", "retry.first_wait");
        let max_probe = changed("circuit_breaker.max_probe", "circuit_breaker.first_probe");
        let limits = [
            ("database.url", !self.database.url.expose().is_empty()),
            ("sender.concurrency", (1..=MAX_CONCURRENCY).contains(&concurrency)),
            ("sender.lease", sender.lease >= Duration::from_secs(5)),
            ("retry.max_attempts", retry.max_attempts >= 0),
            ("retry.first_wait", retry.first_wait >= shortest),
            (max_wait, retry.max_wait >= retry.first_wait),
            ("retry.give_up_after", retry.give_up_after >= shortest),
            ("retry.max_retry_after", retry.max_retry_after >= shortest),
            ("circuit_breaker.failures", breaker.failures >= 1),
            ("circuit_breaker.first_probe", breaker.first_probe >= shortest),
            (max_probe, breaker.max_probe >= breaker.first_probe),
            ("auto_pause.window", (1..=100_000).contains(&window)),
            ("auto_pause.rejected", auto_pause.rejected <= window),
            ("receipts.no_report_after", self.receipts.no_report_after >= Duration::from_secs(60)),
            ("retention.older_than", self.retention.is_valid()),
            ("import.query_timeout", self.import.query_timeout >= shortest),
            ("serve.max_waiting", self.serve.max_waiting >= 1),
            ("serve.max_campaigns", self.serve.max_campaigns >= 1),
            ("serve.receipt_key", self.serve.is_receipt_key_valid()),
            ("notify.stuck_after", self.notify.stuck_after >= Duration::from_secs(60)),
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

fn age<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Age>, D::Error> {
    let age = non_empty(deserializer)?.map(|age| age.parse());
    age.transpose().map_err(serde::de::Error::custom)
}

/// What the value of a setting must be: the comment behind its default.
fn expected(key: &str) -> &'static str {
    let mut section = String::new();
    for line in DEFAULT.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.replace(']', ".");
        } else if let Some((name, default)) = line.split_once(" = ")
            && key.strip_prefix(&section) == Some(name)
            && let Some((_, values)) = default.split_once("  # ")
        {
            return values;
        }
    }
    match key.split_once('.') {
        Some(("providers", _)) => "a section `[providers.NAME]`",
        Some(("prices", _)) => "a section `[prices.NAME]`",
        Some(("routes", _)) => "a section `[routes.NAME]`",
        Some(("sources", _)) => "a section `[sources.NAME]`",
        _ if key == "providers" => "sections `[providers.NAME]`",
        _ if key == "prices" => "sections `[prices.NAME]`",
        _ if key == "routes" => "sections `[routes.NAME]`",
        _ if key == "hooks" => "sections `[[hooks]]`",
        _ if key == "sources" => "sections `[sources.NAME]`",
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
        let files = [Some(PathBuf::from(FILE)), user.map(|folder| folder.join(FILE))];
        files.into_iter().flatten().find(|file| file.exists())
    })
}
