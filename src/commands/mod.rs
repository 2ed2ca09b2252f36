//! The commands, one file each: its arguments, and `run`. What they share stands here: the context
//! they run in, and how a fault becomes a message with a hint.

pub mod campaign;
pub mod check;
pub mod completions;
mod delivery;
pub mod import;
pub mod init;
mod moment;
pub mod providers;
pub mod purge;
pub mod report;
pub mod retry;
pub mod run;
pub mod sandbox;
pub mod send;
pub mod set;
pub mod settle;
mod signals;
pub mod status;
pub mod suppress;
mod window;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::anyhow;
use clap::ValueEnum;
use clap::error::ErrorKind;
use serde_json::json;

use crate::config::{self, Config, Environment, Flags};
use crate::console::{self, Console, Talk};
use crate::exit::Exit;
use crate::phone::{Phone, Region};
use crate::provider::{Provider, ProviderError};
use crate::report::ReportError;
use crate::sender::SendError;
use crate::store::{Access, Campaign, Fault, Store, StoreError};
use crate::text::{did_you_mean, printable, printable_json};

/// The queue of practice; the real list never gets into it, nor it into the real list.
pub(crate) const PRACTICE: &str = "smsq-practice.db";

/// What a command runs in.
pub struct Context {
    pub console: Console,
    pub format: Format,
    pub config: Config,
    environment: Environment,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Csv,
    Html,
}

/// A fault that knows what the operator may do about it.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// A fault with a hint, where there is one.
pub(crate) fn hinted(message: impl fmt::Display, hint: Option<impl fmt::Display>) -> anyhow::Error {
    match hint {
        Some(hint) => Hinted {
            message: message.to_string(),
            hint: hint.to_string(),
        }
        .into(),
        None => anyhow!("{message}"),
    }
}

/// Prints a fault of the command line, or the help that was asked for. With `is_json` a fault is also an
/// object on standard output.
pub fn usage(error: &clap::Error, is_json: bool) -> Exit {
    let plain = error.to_string();
    let shown = printable(&plain);
    // Nobody is left to be told when neither stream can be written.
    if shown == plain {
        error.print().unwrap_or_default();
    } else {
        // An argument, perhaps the name of a file, would steer the terminal: without colours, then.
        Console::new(Talk::Some, console::Format::Text).say(shown.trim_end());
    }
    if !error.use_stderr() {
        return Exit::Done;
    }
    if is_json {
        let (message, hint) = usage_parts(error);
        let console = Console::new(Talk::Some, console::Format::Json);
        print_error_json(&console, &message, Some(&hint));
    }
    Exit::CouldNotRun
}

/// What clap prints in paragraphs, as a message and a hint.
fn usage_parts(error: &clap::Error) -> (String, String) {
    if matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let hint = "`smsq --help` lists the commands";
        return ("no command is given".to_owned(), hint.to_owned());
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let message = first.trim_start_matches("error: ").split_whitespace();
    let tips: Vec<&str> = paragraphs
        .filter_map(|paragraph| paragraph.trim().strip_prefix("tip: "))
        .collect();
    let hint = match tips.as_slice() {
        [] => "`--help` behind the command explains it".to_owned(),
        tips => tips.join("; "),
    };
    (message.collect::<Vec<_>>().join(" "), hint)
}

fn print_error_json(console: &Console, message: &str, hint: Option<&str>) {
    let object = json!({ "error": { "message": message, "hint": hint } });
    // Nobody is left to be told when standard output cannot be written either.
    let json = format!("{object:#}\n");
    console.data(&printable_json(&json)).unwrap_or_default();
}

/// The causes joined by `: `, and what the operator may do about it.
fn message_and_hint(error: &anyhow::Error) -> (String, Option<String>) {
    let message = format!("{error:#}");
    let hinted = error
        .chain()
        .find_map(|failure| failure.downcast_ref::<Hinted>());
    let hint = hinted
        .map(|hinted| hinted.hint.as_str())
        .or_else(|| store_fault(error)?.hint())
        .map(str::to_owned);
    match message.split_once("\nhint: ") {
        Some((message, written)) => (message.to_owned(), hint.or(Some(written.to_owned()))),
        None => (message, hint),
    }
}

fn store_fault(error: &anyhow::Error) -> Option<&StoreError> {
    let sent = || match error.downcast_ref() {
        Some(SendError::Store(fault)) => Some(fault),
        _ => None,
    };
    let reported = || match error.downcast_ref() {
        Some(ReportError::Store(fault)) => Some(fault),
        _ => None,
    };
    error.downcast_ref().or_else(sent).or_else(reported)
}

/// Prints why a command could not run: the causes joined by `: `, and below them the hint. With `--format json`
/// they are also an object on standard output.
pub fn report_error(console: &Console, error: &anyhow::Error) -> Exit {
    let (message, hint) = message_and_hint(error);
    console.error(&message, hint.as_deref());
    if console.format == console::Format::Json {
        print_error_json(console, &message, hint.as_deref());
    }
    match error.downcast_ref::<delivery::Aborted>() {
        Some(aborted) => aborted.exit,
        None => Exit::CouldNotRun,
    }
}

impl Context {
    pub(crate) fn load(
        console: Console,
        format: Format,
        flags: &Flags,
        environment: Environment,
    ) -> anyhow::Result<Self> {
        let config =
            Config::load(flags, &environment).map_err(|fault| hinted(&fault, fault.hint()))?;
        Ok(Self {
            console,
            format,
            config,
            environment,
        })
    }

    /// Looks a variable up; an empty one is not set.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        self.environment
            .get(name)
            .filter(|value| !value.is_empty())
            .cloned()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// One JSON object on a line of its own.
    pub(crate) fn print_json(&self, value: &serde_json::Value) -> anyhow::Result<()> {
        let json = format!("{value:#}\n");
        Ok(self.console.data(&printable_json(&json))?)
    }

    /// The database, which an import made: a command that changes messages never makes an empty one.
    pub(crate) async fn store(&self) -> anyhow::Result<Store> {
        self.open(Access::Existing).await
    }

    pub(crate) async fn open(&self, access: Access) -> anyhow::Result<Store> {
        Store::of(&self.config.database, access)
            .await
            .map_err(|error| self.store_error(&error))
    }

    /// The database for a command that writes nothing. After practice that is the queue of practice.
    pub(crate) async fn store_to_read(&self) -> anyhow::Result<Store> {
        self.try_store_to_read()
            .await
            .map_err(|error| self.store_error(&error))
    }

    pub(crate) async fn try_store_to_read(&self) -> Result<Store, StoreError> {
        let opened = Store::of(&self.config.database, Access::Read).await;
        match opened {
            Err(error) if error.fault() == Fault::Missing && self.has_practised() => {
                self.console.say(&format!(
                    "`smsq.db` is not there yet: this is the queue of practice, `{PRACTICE}`"
                ));
                Store::open(&format!("sqlite://{PRACTICE}"), Access::Read).await
            }
            opened => opened,
        }
    }

    /// Whether `run` practised here, and nothing is set up for anything else.
    fn has_practised(&self) -> bool {
        let config = &self.config;
        config.default_provider.is_none()
            && config.own_providers.is_empty()
            && config.database.url == config::DATABASE
            && Path::new(PRACTICE).exists()
    }

    /// A fault of the database with its hint; after practice that is where the queue of practice is.
    pub(crate) fn store_error(&self, error: &StoreError) -> anyhow::Error {
        if error.fault() == Fault::Missing && self.has_practised() {
            let hint = format!(
                "the queue of practice is `{PRACTICE}`: `smsq run` again goes on with it, and \
                 `--database sqlite://{PRACTICE}` names it"
            );
            return hinted(error, Some(hint));
        }
        hinted(error, error.hint())
    }

    /// The campaign of that name; where there is none, the closest is suggested.
    pub(crate) async fn campaign(&self, store: &Store, name: &str) -> anyhow::Result<Campaign> {
        if let Some(campaign) = store.campaign(name).await? {
            return Ok(campaign);
        }
        let campaigns = store.campaigns().await?;
        let names = campaigns.iter().map(|campaign| campaign.name.as_str());
        let hint = did_you_mean(name, names)
            .unwrap_or_else(|| "`smsq status` lists the campaigns".to_owned());
        Err(hinted(
            format!("there is no campaign `{name}` in {}", store.place()),
            Some(hint),
        ))
    }

    /// The stanza of that name; where there is none, the closest is suggested.
    pub(crate) fn stanza(&self, name: &str) -> anyhow::Result<&toml::Table> {
        let stanzas = &self.config.providers;
        stanzas.get(name).ok_or_else(|| {
            let hint =
                did_you_mean(name, stanzas.keys().map(String::as_str)).unwrap_or_else(|| {
                    "describe it as `[providers.NAME]` in smsq.toml; `smsq init` writes an example"
                        .to_owned()
                });
            hinted(format!("there is no provider `{name}`"), Some(hint))
        })
    }

    /// The phone that `raw` means, in `region` or the default one.
    pub(crate) fn phone(&self, raw: &str, region: Option<Region>) -> anyhow::Result<Phone> {
        Ok(Phone::parse(raw, region.or(self.config.default_region))?)
    }

    /// The provider of that name, its secrets read.
    pub(crate) fn provider(&self, name: &str) -> anyhow::Result<Provider> {
        let stanza = self.stanza(name)?;
        let provider = Provider::from_stanza(name, stanza, &|variable| self.variable(variable))
            .map_err(|fault| match &fault {
                ProviderError::UnsetSecret { variable, .. } => hinted(
                    &fault,
                    Some(format!("`export {variable}=…` sets it for this shell")),
                ),
                _ => fault.into(),
            })?;
        let (lease, timeout) = (self.config.sender.lease, provider.timeout());
        if lease < timeout + config::LEASE_MARGIN {
            return Err(hinted(
                format!(
                    "`sender.lease` is {lease:?}, too short for provider `{name}`: \
                     it must be 2 s more than the provider's timeout of {timeout:?}"
                ),
                Some("a worker that waits for an answer must not be taken for dead"),
            ));
        }
        Ok(provider)
    }

    /// The providers of the campaigns, by name.
    pub(crate) fn providers<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<BTreeMap<String, Provider>> {
        names
            .map(|name| Ok((name.to_owned(), self.provider(name)?)))
            .collect()
    }
}
