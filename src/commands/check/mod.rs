//! `smsq check`: checks configuration, database and providers, and that no message is lost. Connects to the providers
//! that are used, and sends nothing.

mod settings;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use smsq_hooks::Hook;
use smsq_lifecycle::approval::ApprovalRules;
use smsq_message::sms::Timestamp;
use smsq_message::text::{counted, listed, messages};
use smsq_process::exit::Exit;
use smsq_provider::Provider;
use smsq_provider::client::{Client, Unreachable};
use smsq_store::{Campaign, CampaignStatus, POSTED, Store, StoreErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::findings::{unchecked_receipts, unsafe_settings};
use super::{Context, message_and_hint, providers, status, with_hint};
use settings::Conflict;

/// How long the server of this machine may take to accept a connection.
const MAX_CONNECT: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  smsq check && smsq send
  smsq check --offline      does not connect to providers

It resolves the host of each provider, connects and checks its certificate; no request is sent, so whether \
it accepts the credentials is not known: `smsq providers test` shows that.

Exit status: 0 no problem; 1 messages are missing; 2 there is a problem.";

/// Check configuration, database and providers, and that no message is lost; sends nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Do not connect to providers
    #[arg(long)]
    offline: bool,
}

#[derive(Default)]
struct Findings {
    text: String,
    problems: Vec<String>,
    notes: Vec<String>,
    providers: Vec<Value>,
    /// The counts of imports and messages do not agree.
    has_lost: bool,
    imports: Vec<Value>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = &context.config;
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let source = file.as_deref().unwrap_or("no file: defaults and environment");
    findings.ok("configuration", source);
    let store = findings.check_database(context).await?;
    let mut campaigns = Vec::new();
    if let Some(store) = &store {
        campaigns = store.report().campaign_totals().await?.campaigns;
        campaigns.retain(|(campaign, totals)| {
            campaign.state != CampaignStatus::Cancelled && totals.queued + totals.sending > 0
        });
    }
    let default = config.default_provider.iter();
    let mut used: BTreeSet<&str> = default.flat_map(|name| config.providers_of(name)).collect();
    let own = config.own_providers.iter().map(String::as_str);
    let mut names: BTreeSet<&str> = own.chain(used.iter().copied()).collect();
    for (campaign, totals) in &campaigns {
        findings.check_campaign(campaign, totals.queued);
        if let Some(name) = context.provider_of(campaign) {
            names.extend(config.providers_of(name));
            used.extend(config.providers_of(name));
        } else {
            let queued = messages(totals.queued);
            let finding = format!("campaign `{}` has {queued} and no provider", campaign.name);
            findings.problem("provider", &with_hint(finding, "set `default_provider`"));
        }
    }
    if names.is_empty() {
        let hint = match file {
            Some(file) => format!("describe one as [providers.NAME] in {file}"),
            None => "`smsq init` writes an example".to_owned(),
        };
        findings.ok("provider", &format!("none yet: {hint}"));
    }
    let mut configured = Vec::new();
    for name in names {
        match context.provider(name) {
            Ok(provider) => configured.push(provider),
            Err(error) => findings.problem("provider", &error),
        }
    }
    let connections = configured.iter().map(|provider| async {
        let is_ready = provider.missing_settings().is_empty() && !args.offline;
        if is_ready { Some(connect(provider).await) } else { None }
    });
    let connections = join_all(connections).await;
    for (provider, connection) in configured.iter().zip(connections) {
        let name = provider.name();
        let mut users: Vec<&Campaign> = campaigns.iter().map(|(campaign, _)| campaign).collect();
        users.retain(|campaign| {
            context
                .provider_of(campaign)
                .is_some_and(|provider| config.providers_of(provider).contains(name))
        });
        let is_used = used.contains(name);
        findings.check_provider(provider, &users, connection, is_used);
        if let Some(doubt) = unchecked_receipts(context, provider) {
            findings.note("receipts", &doubt);
        }
    }
    findings.check_settings(context, &configured, args.offline).await;
    match context.hooks() {
        Ok(hooks) if hooks.is_empty() => {}
        Ok(hooks) => {
            let names: Vec<&str> = hooks.iter().map(Hook::name).collect();
            findings.ok("hooks", &listed(names));
        }
        Err(error) => findings.problem("hooks", &error),
    }
    findings.check_approvals(context, store.as_ref()).await?;
    if let Some(store) = &store {
        findings.check_messages(store).await?;
    }
    findings.print(context)
}

/// Opens a connection to the provider, as sending does. `Err` says why there is none.
async fn connect(provider: &Provider) -> Result<(), anyhow::Error> {
    let (name, origin) = (provider.name(), provider.origin());
    let client = Client::new(provider)?;
    client.try_connection().await.map_err(|unreachable| {
        let Unreachable { reason, is_certificate } = unreachable;
        let hint = if is_certificate {
            "until it is valid, `smsq send` stops its campaigns and keeps their messages".to_owned()
        } else {
            format!(
                "check `url` in [providers.{name}] and the network of this machine; until it is reached, its messages \
                 wait; `--offline` does not connect"
            )
        };
        with_hint(format!("cannot reach `{name}` at {origin}: {reason}"), hint)
    })
}

impl Findings {
    fn line(&mut self, kind: &str, subject: &str, finding: &str) {
        let _ = writeln!(self.text, "{kind:<8} {subject:<14} {finding}");
    }

    fn ok(&mut self, subject: &str, finding: &str) {
        self.line("ok", subject, finding);
    }

    fn note(&mut self, subject: &str, finding: &str) {
        self.line("note", subject, finding);
        self.notes.push(finding.to_owned());
    }

    fn problem(&mut self, subject: &str, error: &anyhow::Error) {
        let (finding, hint) = message_and_hint(error);
        self.line("problem", subject, &finding);
        if let Some(hint) = hint {
            self.line("", "", &format!("hint: {hint}"));
        }
        self.problems.push(finding);
    }

    /// The rules for approvals, and what they cannot compare.
    async fn check_approvals(
        &mut self,
        context: &Context,
        store: Option<&Store>,
    ) -> anyhow::Result<()> {
        let config = &context.config;
        let stored = match store {
            Some(store) => store.approval_rules().await?,
            None => ApprovalRules::default(),
        };
        let rules = stored.clone().with(&config.approval);
        if !rules.is_any() {
            return Ok(());
        }
        self.ok("approval", &format!("lists need it {rules}"));
        if rules != config.approval {
            let own = &config.approval;
            self.note("approval", &format!(
                "this configuration has less strict rules than the database keeps ({own}): `smsq approve --replace-rules` replaces them"
            ));
        }
        let default = config.default_provider.iter();
        let names: BTreeSet<&str> = default.flat_map(|name| config.providers_of(name)).collect();
        let own = config.own_providers.iter().map(String::as_str);
        for name in names.into_iter().chain(own).collect::<BTreeSet<&str>>() {
            if !rules.from_cost.is_empty() && !config.prices.contains_key(name) {
                self.note("approval", &format!(
                    "every list of `{name}` needs approval, because `approval.from_cost` is set and a section `[prices.{name}]` is missing"
                ));
            }
        }
        Ok(())
    }

    /// Opens the database, if it exists.
    async fn check_database(&mut self, context: &Context) -> anyhow::Result<Option<Store>> {
        let store = match context.store_to_read().await {
            Ok(store) => store,
            Err(error) if error.kind() == StoreErrorKind::Missing => {
                self.ok("database", "does not exist yet: `smsq import` creates it");
                return Ok(None);
            }
            Err(error) if error.kind() == StoreErrorKind::NoTables => {
                self.ok("database", &format!("{error}: `smsq import` creates them"));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        self.ok("database", store.location());
        if let Some(probe) = store.probe().await? {
            let encryption = if probe.is_encrypted { "encrypted" } else { "not encrypted" };
            let (version, host) = (&probe.version, &probe.host);
            self.ok("server", &format!("{version} at {host}, {encryption}"));
            if let Some(settings) = unsafe_settings(&store).await? {
                self.note("server", &settings);
            }
        }
        Ok(Some(store))
    }

    /// Notes a campaign that does not send its messages.
    fn check_campaign(&mut self, campaign: &Campaign, queued: u64) {
        if queued == 0 || campaign.state == CampaignStatus::Active {
            return;
        }
        let (name, queued) = (&campaign.name, messages(queued));
        let state = campaign.state.as_str();
        let reason = campaign.state_reason.as_deref().unwrap_or(state);
        let finding = format!("campaign `{name}` has {queued} and sends nothing: {reason}");
        self.note("campaign", &finding);
    }

    /// Checks the settings that cannot work together.
    async fn check_settings(
        &mut self,
        context: &Context,
        providers: &[Arc<Provider>],
        offline: bool,
    ) {
        let config = &context.config;
        let now = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
        for conflict in settings::conflicts(config, providers, now) {
            match conflict {
                Conflict::Problem(subject, error) => self.problem(subject, &error),
                Conflict::Note(subject, note) => self.note(subject, &note),
            }
        }
        let is_awaited = |provider: &&Arc<Provider>| {
            provider.webhook().is_some_and(|webhook| webhook.is_enabled)
        };
        let Some(awaited) = providers.iter().find(is_awaited).filter(|_| !offline) else {
            return;
        };
        let listen = config.serve.listen;
        let connected = timeout(MAX_CONNECT, TcpStream::connect(listen)).await;
        if config.serve.receipt_key().is_some() && !matches!(connected, Ok(Ok(_))) {
            let name = awaited.name();
            self.note(
                "receipts",
                &format!(
                    "`{name}` posts receipts to `smsq serve`, which does not run at `{listen}` (`serve.listen`); \
                     without it, here or elsewhere, none arrive"
                ),
            );
        }
    }

    /// Checks a provider that these campaigns use, and whether it was reached; `None`: not tried. Whether it accepts
    /// the credentials is not tried.
    fn check_provider(
        &mut self,
        provider: &Provider,
        campaigns: &[&Campaign],
        connection: Option<anyhow::Result<()>>,
        is_used: bool,
    ) {
        let (name, origin) = (provider.name(), provider.origin());
        let mut object = json!({ "name": name, "address": origin, "reachable": null });
        if let Some(connection) = &connection {
            object["reachable"] = connection.is_ok().into();
            let reason = connection.as_ref().err().map(|error| message_and_hint(error).0);
            object["reason"] = reason.into();
        }
        self.providers.push(object);
        match (providers::missing_settings(provider), connection) {
            (Some(error), _) => self.problem("provider", &error),
            (None, Some(Ok(()))) => {
                self.ok("provider", &format!("`{name}` at {origin}, connected"));
            }
            (None, None) => {
                self.ok("provider", &format!("`{name}` at {origin}, not connected (`--offline`)"));
            }
            (None, Some(Err(error))) if is_used => self.problem("provider", &error),
            (None, Some(Err(error))) => {
                let (finding, _) = message_and_hint(&error);
                self.note("provider", &format!("{finding}; no campaign uses it now"));
            }
        }
        for doubt in provider.warnings() {
            self.note("provider", &format!("`{name}`: {doubt}"));
        }
        if !provider.needs_sender() {
            return;
        }
        for campaign in campaigns.iter().filter(|campaign| campaign.sender.is_none()) {
            self.problem("sender", &providers::missing_sender(name, &campaign.name));
        }
        if campaigns.iter().all(|campaign| campaign.sender.is_some()) {
            let finding =
                format!("`{name}` has no `from`: every campaign needs a sender (`--from`)");
            self.note("sender", &finding);
        }
    }

    /// Compares the counts of imports with the messages.
    async fn check_messages(&mut self, store: &Store) -> anyhow::Result<()> {
        let audit = store.report().check_counts().await?;
        self.has_lost = !audit.is_sound();
        let campaigns = store.campaigns().await?;
        for import in &audit.imports {
            let campaign = campaigns
                .iter()
                .find(|campaign| campaign.id == import.campaign_id)
                .map(|campaign| campaign.name.as_str());
            self.imports.push(json!({
                "import": import.id,
                "campaign": campaign,
                "file": import.file,
                "accepted": import.expected,
                "found": import.found,
                "finished": import.finished,
            }));
            let (subject, file) = (format!("import {}", import.id), &import.file);
            if import.expected != import.found {
                let (expected, found) = (import.expected, import.found);
                let finding = format!("`{file}`: {expected} accepted, {found} found");
                self.line("problem", &subject, &finding);
            } else if !import.finished && import.file != POSTED {
                let campaign = campaign.unwrap_or_default();
                let finding = format!(
                    "`{file}` was not read to its end for campaign `{campaign}`: import it again"
                );
                self.note(&subject, &finding);
            }
        }
        if audit.without_import > 0 {
            let finding = format!("{} of an unknown import", messages(audit.without_import));
            self.line("problem", "messages", &finding);
        }
        for (campaign, count) in &audit.without_campaign {
            let finding = status::missing_campaign(*campaign, *count);
            self.line("problem", "messages", &finding);
        }
        if !self.has_lost {
            let found = audit.imports.iter().map(|import| import.found).sum();
            let imports = counted(audit.imports.len() as u64, "import");
            let inserted = match audit.plain {
                0 => String::new(),
                plain => format!(", and {plain} inserted by other programs"),
            };
            let finding = format!("{} of {imports}{inserted}", messages(found));
            self.ok("nothing lost", &finding);
        }
        Ok(())
    }

    fn print(self, context: &Context) -> anyhow::Result<Exit> {
        let object = json!({
            "sound": !self.has_lost,
            "problems": self.problems,
            "notes": self.notes,
            "providers": self.providers,
            "imports": self.imports,
        });
        context.print(&self.text, &object)?;
        Ok(match (self.problems.is_empty(), self.has_lost) {
            (false, _) => Exit::CouldNotRun,
            (true, true) => Exit::Incomplete,
            (true, false) => Exit::Done,
        })
    }
}
