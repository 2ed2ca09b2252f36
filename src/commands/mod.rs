//! The commands, one module each: the arguments, and `run`. Here: the context that they run in, and how an
//! error becomes a message with a hint.

pub mod approve;
pub mod campaign;
pub mod check;
pub mod completions;
mod findings;
pub mod hooks;
pub mod import;
pub mod init;
pub mod man;
pub mod practice;
pub mod prove;
pub mod providers;
pub mod purge;
pub mod receipts;
pub mod report;
pub mod retry;
pub mod run;
pub mod sandbox;
pub mod schedule;
pub mod send;
pub mod serve;
pub mod set;
pub mod settle;
pub(crate) mod signals;
pub mod status;
pub mod suppress;
mod values;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use clap::error::ErrorKind;
use serde_json::{Value, json};
use smsq_hooks::subscriptions;
use smsq_import::ImportError;
use smsq_message::phone::{Phone, Region};
use smsq_message::text::{Hinted, did_you_mean, printable, printable_json};
use smsq_operations::{Actor, ListSettings, OperationError, unknown_provider};
use smsq_process::console::{Console, Verbosity};
use smsq_process::exit::Exit;
use smsq_process::identity;
use smsq_process::jobs::Jobs;
use smsq_prove::ProveError;
use smsq_provider::Provider;
use smsq_report::ReportError;
use smsq_sender::SendError;
use smsq_serve::{receipt_token, receipt_url};
use smsq_store::{Access, Campaign, Mode, Store, StoreError, StoreErrorKind};
use url::Url;

use crate::config::{self, Config, Environment, Flags, user_folder};
use signals::SignalWatch;

pub use smsq_report::Format;

/// The database of practice runs: practice messages are never mixed with real ones.
pub(crate) const PRACTICE: &str = "smsq-practice.db";

/// How long an aborted process waits for tasks that were dropped: a worker writes what it knows to a file.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Waits until no job runs and no task of this process uses the database; false if that takes longer than the stop of the
/// process may.
pub(crate) async fn all_ended(jobs: &Jobs) -> bool {
    let stop = jobs.stop();
    stop.begin();
    let closed = async {
        let in_time = stop.within(smsq_store::all_closed()).await.is_some();
        in_time || tokio::time::timeout(LAST_WRITES, smsq_store::all_closed()).await.is_ok()
    };
    let (ended, closed) = tokio::join!(jobs.ended(), closed);
    ended && closed
}

/// The console, configuration and environment that a command runs with.
pub struct Context {
    pub console: Console,
    pub format: Format,
    pub config: Config,
    /// Whether the command practises.
    mode: Mode,
    environment: Environment,
    signals: SignalWatch,
    jobs: Jobs,
    /// Those that were read.
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
}

/// An error with what the user can do about it; it is printed on a `hint:` line.
fn with_hint(message: impl fmt::Display, hint: impl fmt::Display) -> anyhow::Error {
    Hinted::new(message.to_string(), hint.to_string()).into()
}

/// The user who runs a command, such as `pause`.
fn user_of(command: &str) -> Actor {
    Actor { who: identity::user_and_host(), by: format!("`smsq {command}`") }
}

/// A folder for files of the database: beside the file of an embedded one; for a server in the user's state folder, or in
/// the working directory.
async fn data_folder(context: &Context, store: &Store, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(file) = store.file() {
        let mut path = file.as_os_str().to_owned();
        path.push(format!("-{name}"));
        return Ok(path.into());
    }
    let folder = context.state_folder();
    let name = format!("{name}-{:x}", store.created_at().await?);
    Ok(folder.unwrap_or_default().join(name))
}

/// Prints an error of the command line, with `is_json` also as an object on standard output, or the help that
/// was asked for.
pub fn usage(error: &clap::Error, is_json: bool) -> Exit {
    let plain = error.to_string();
    let shown = printable(&plain);
    let console = Console::new(Verbosity::Normal, is_json);
    if shown == plain {
        // A failure to print cannot be reported.
        error.print().unwrap_or_default();
    } else {
        // An argument contains control characters, which clap would print.
        console.status(shown.trim_end());
    }
    if !error.use_stderr() {
        return Exit::Done;
    }
    if is_json {
        let (message, hint) = usage_message_and_hint(error);
        print_error_json(&console, &message, Some(&hint));
    }
    Exit::CouldNotRun
}

/// Splits the paragraphs that clap prints into a message and a hint.
fn usage_message_and_hint(error: &clap::Error) -> (String, String) {
    if matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let hint = "`smsq --help` lists the commands";
        return ("missing command".to_owned(), hint.to_owned());
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let message = paragraphs.next().unwrap_or_default();
    let message: Vec<&str> = message.trim_start_matches("error: ").split_whitespace().collect();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: "));
    let hint = tip.unwrap_or("`--help` after the command explains its arguments");
    (message.join(" "), hint.to_owned())
}

fn print_error_json(console: &Console, message: &str, hint: Option<&str>) {
    let object = json!({ "error": { "message": message, "hint": hint } });
    // The message is on standard error if standard output cannot be written.
    console.print(&json_text(&object)).unwrap_or_default();
}

fn json_text(value: &Value) -> String {
    printable_json(&format!("{value:#}\n")).into_owned()
}

/// The causes of an error joined by `: `, and its hint.
fn message_and_hint(error: &anyhow::Error) -> (String, Option<String>) {
    // Errors of provider sections have both in one text.
    let Hinted { message, hint } = format!("{error:#}").into();
    if hint.is_some() {
        return (message, hint);
    }
    let hint = if let Some(hinted) = error.downcast_ref::<Hinted>() {
        hinted.hint.clone()
    } else if let Some(error) = error.downcast_ref::<OperationError>() {
        error.hint()
    } else if let Some(error) = error.downcast_ref::<ImportError>() {
        error.hint()
    } else {
        let error = store_error(error);
        error.and_then(StoreError::hint).map(str::to_owned)
    };
    (message, hint)
}

fn store_error(error: &anyhow::Error) -> Option<&StoreError> {
    if let Some(SendError::Store(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(ReportError::Store(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(OperationError::Store(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(ProveError::Store(error)) = error.downcast_ref() {
        return Some(error);
    }
    error.downcast_ref()
}

/// The error of a database that may be used again later.
fn temporary(error: &anyhow::Error) -> Option<&StoreError> {
    let error = match error.downcast_ref() {
        Some(ImportError::Store(error)) => Some(error),
        _ => store_error(error),
    };
    error.filter(|error| {
        matches!(
            error.kind(),
            StoreErrorKind::Busy
                | StoreErrorKind::Full
                | StoreErrorKind::Unavailable
                | StoreErrorKind::Replica
        )
    })
}

/// Prints the error of a command and its hint, with `--format json` also as an object on standard output.
pub fn report_error(console: &Console, error: &anyhow::Error) -> Exit {
    let (message, hint) = message_and_hint(error);
    console.error(&message, hint.as_deref());
    if console.is_json {
        print_error_json(console, &message, hint.as_deref());
    }
    exit_of(error)
}

/// The exit code of a command that ended with an error.
fn exit_of(error: &anyhow::Error) -> Exit {
    let aborted = error.downcast_ref().map(|send::Aborted { exit, .. }| *exit);
    let stopped = error.downcast_ref().map(|signals::Stopped(exit)| *exit);
    let uncounted = error.downcast_ref();
    let uncounted = uncounted.map(|send::StoppedWithoutCounts(exit)| *exit);
    let by_signal = aborted.or(stopped).or(uncounted);
    let has_lost =
        store_error(error).is_some_and(|error| error.kind() == StoreErrorKind::LostCommits);
    let otherwise = if has_lost { Exit::Halted } else { Exit::CouldNotRun };
    by_signal.unwrap_or(otherwise)
}

impl Context {
    /// Where workers leave files about databases of servers.
    fn state_folder(&self) -> Option<PathBuf> {
        user_folder(&self.environment, "XDG_STATE_HOME", ".local/state")
    }

    pub(crate) fn load(
        console: Console,
        format: Format,
        flags: &Flags,
        environment: Environment,
        signals: SignalWatch,
        jobs: Jobs,
    ) -> anyhow::Result<Self> {
        let config = Config::load(flags, &environment).map_err(|error| match error.hint() {
            Some(hint) => with_hint(&error, hint),
            None => anyhow!("{error}"),
        })?;
        Ok(Self {
            console,
            format,
            config,
            mode: Mode::Real,
            environment,
            signals,
            jobs,
            providers: Mutex::default(),
        })
    }

    /// An environment variable; an empty one counts as unset.
    fn variable(&self, name: &str) -> Option<String> {
        config::variable(&self.environment, name).cloned()
    }

    fn is_json(&self) -> bool {
        self.console.is_json
    }

    fn print_json(&self, value: &Value) -> anyhow::Result<()> {
        Ok(self.console.print(&json_text(value))?)
    }

    /// Prints data: `text`, or with `--format json` an object.
    fn print(&self, text: &str, object: &Value) -> anyhow::Result<()> {
        if self.is_json() {
            return self.print_json(object);
        }
        Ok(self.console.print(text)?)
    }

    /// Reports what a command did: a sentence on standard error, and with `--format json` an object on standard
    /// output.
    fn report(&self, message: &str, object: &Value) -> anyhow::Result<Exit> {
        self.console.status(message);
        if self.is_json() {
            self.print_json(object)?;
        }
        Ok(Exit::Done)
    }

    /// Opens the database, which must exist; after a practice run, and if nothing else is configured, the practice
    /// database.
    async fn store(&self) -> Result<Store, StoreError> {
        self.existing_store(Access::Existing).await
    }

    /// The same, for reading.
    async fn store_to_read(&self) -> Result<Store, StoreError> {
        self.existing_store(Access::Read).await
    }

    async fn existing_store(&self, access: Access) -> Result<Store, StoreError> {
        match self.configured_store(access).await {
            Err(error) if error.kind() == StoreErrorKind::Missing && self.has_practised() => {
                let store = Store::open(&format!("sqlite://{PRACTICE}"), access).await?;
                Ok(self.with_rules(store, "; `smsq.db` does not exist yet"))
            }
            opened => opened,
        }
    }

    /// Opens the database that is configured. Where it may be changed, it keeps the strictest rules for approvals.
    async fn configured_store(&self, access: Access) -> Result<Store, StoreError> {
        let store = Store::of(&self.config.database, access, self.mode).await?;
        if access != Access::Read && self.config.approval.is_any() {
            store.keep_approval_rules(&self.config.approval).await?;
        }
        Ok(self.with_rules(store, ""))
    }

    /// A database with the rules for its messages. No hook hears of practice, which is said with `why`.
    fn with_rules(&self, opened: Store, why: &str) -> Store {
        let store = opened.skipping_dead(self.config.limits.skip_dead);
        if !store.mode().is_practice() {
            let (hooks, notify) = (&self.config.hooks, &self.config.notify);
            return store.with_subscriptions(subscriptions(hooks, notify));
        }
        if self.mode == Mode::Real {
            let location = store.location();
            self.console.always(&format!(
                "`{location}` is a practice database: no phone gets its messages{why}"
            ));
        }
        store
    }

    /// A command that practises opens no other database, also where another process has created it a moment ago.
    async fn open(&self, access: Access) -> anyhow::Result<Store> {
        let store = self.configured_store(access).await?;
        if self.mode.is_practice() {
            self.check_mode(&store)?;
        }
        Ok(store)
    }

    /// Says that messages go to the default database where the user may mean the practice database.
    fn say_which_database(&self) {
        if self.has_practised() {
            self.console.warn(&format!(
                "the messages go to `smsq.db`, not to the practice database `{PRACTICE}`: `smsq run --practice` uses that one"
            ));
        }
    }

    /// Whether `run` practised in this folder, and nothing else is configured.
    fn has_practised(&self) -> bool {
        let config = &self.config;
        config.default_provider.is_none()
            && config.own_providers.is_empty()
            && config.database.url.expose() == config::DATABASE
            && Path::new(PRACTICE).exists()
    }

    /// The campaign of that name.
    async fn campaign(&self, store: &Store, name: &str) -> anyhow::Result<Campaign> {
        if let Some(campaign) = store.campaign(name).await? {
            return Ok(campaign);
        }
        let campaigns = store.campaigns().await?;
        let names = campaigns.iter().map(|campaign| campaign.name.as_str());
        let hint = did_you_mean(name, names)
            .unwrap_or_else(|| "`smsq status` lists the campaigns".to_owned());
        let place = store.location();
        Err(with_hint(format!("unknown campaign `{name}` in {place}"), hint))
    }

    /// The campaign of that name; `None` if none is named.
    async fn optional_campaign(
        &self,
        store: &Store,
        name: Option<&str>,
    ) -> anyhow::Result<Option<Campaign>> {
        match name {
            Some(name) => Ok(Some(self.campaign(store, name).await?)),
            None => Ok(None),
        }
    }

    /// The existing database, and the campaign of that name in it.
    async fn store_and_campaign(&self, name: &str) -> anyhow::Result<(Store, Campaign)> {
        let store = self.store().await?;
        let campaign = self.campaign(&store, name).await?;
        Ok((store, campaign))
    }

    /// The name of the provider of a campaign.
    fn provider_of<'a>(&'a self, campaign: &'a Campaign) -> Option<&'a String> {
        let default = self.config.default_provider.as_ref();
        campaign.provider.as_ref().or(default)
    }

    /// The settings `[providers.NAME]`.
    fn provider_section(&self, name: &str) -> anyhow::Result<&toml::Table> {
        let sections = &self.config.providers;
        let unknown = || unknown_provider(name, sections.keys().map(String::as_str));
        Ok(sections.get(name).ok_or_else(unknown)?)
    }

    /// The settings of imports.
    fn list_settings(&self) -> ListSettings {
        let (sections, routes) = (self.config.providers.clone(), self.config.routes.clone());
        ListSettings {
            created_for: self.mode,
            default_provider: self.config.default_provider.clone(),
            providers: sections.keys().chain(routes.keys()).cloned().collect(),
            requirements: providers::requirements(
                sections,
                routes,
                self.config.prices.clone(),
                self.environment.clone(),
            ),
            prices: self.config.prices.clone(),
            budgets: self.config.limits.budgets(),
            approval: self.config.approval.clone(),
            sources: self.config.sources.clone(),
            query_timeout: self.config.import.query_timeout,
        }
    }

    /// Where the provider posts receipts, and the setting that takes it; `None` if requests do not contain it.
    fn receipt_address<'a>(&self, provider: &'a Provider) -> Option<(&'a str, Url)> {
        let webhook = provider.capabilities().webhook.as_ref()?;
        let setting = webhook.url_setting.as_deref()?;
        let serve = &self.config.serve;
        let (base, key) = (serve.public_url.as_ref()?, serve.receipt_key()?);
        let url = receipt_url(base, key, provider.name());
        webhook.is_enabled.then_some((setting, url))
    }

    /// Parses a phone number, in `region` or the default one.
    fn phone(&self, raw: &str, region: Option<Region>) -> anyhow::Result<Phone> {
        Ok(Phone::parse(raw, region.or(self.config.default_region))?)
    }

    /// Parses the phone of `--phone`.
    fn phone_flag(&self, raw: Option<&str>) -> anyhow::Result<Option<String>> {
        let phone = raw.map(|raw| self.phone(raw, None)).transpose()?;
        Ok(phone.map(Phone::into_string))
    }

    /// The provider of that name with its secrets. If its messages await posted receipts, its requests have the address
    /// for them.
    fn provider(&self, name: &str) -> anyhow::Result<Arc<Provider>> {
        let mut known = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = known.get(name) {
            return Ok(Arc::clone(provider));
        }
        let section = self.provider_section(name)?;
        let read =
            |section| Provider::from_section(name, section, &|variable| self.variable(variable));
        let mut provider = read(section)?;
        if let Some((setting, url)) = self.receipt_address(&provider)
            && !section.contains_key(setting)
        {
            let mut section = section.clone();
            section.insert(setting.to_owned(), url.to_string().into());
            provider = read(&section)?;
        }
        // Vendors quote the address in their errors.
        if let Some(key) = self.config.serve.receipt_key() {
            provider.hide(&receipt_token(key, name));
        }
        let (lease, timeout) = (self.config.sender.lease, provider.timeout());
        if lease < timeout + config::LEASE_MARGIN {
            return Err(with_hint(
                format!(
                    "`sender.lease` is {lease:?}, too short for provider `{name}`: it must be at least 2 s longer \
                     than the provider's timeout of {timeout:?}"
                ),
                "otherwise a worker that waits for a response would be considered dead",
            ));
        }
        let provider = Arc::new(provider);
        known.insert(name.to_owned(), Arc::clone(&provider));
        Ok(provider)
    }
}
