//! `smsq check`: checks configuration, database and providers, and that no message is lost. Sends nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Context, message_and_hint, providers, serve, status, with_hint};
use crate::exit::Exit;
use crate::provider::Provider;
use crate::store::{Campaign, CampaignStatus, POSTED, Store, StoreError, StoreErrorKind};
use crate::text::{counted, messages};

const EXAMPLES: &str = "\
Example:
  smsq check && smsq send

Exit status: 0 no problem; 1 messages are missing; 2 smsq cannot run.";

/// Check configuration, database and providers, and that no message is lost; sends nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

#[derive(Default)]
struct Findings {
    text: String,
    problems: Vec<String>,
    notes: Vec<String>,
    /// The counts of imports and messages do not agree.
    has_lost: bool,
    imports: Vec<Value>,
}

pub(crate) async fn run(_: &Args, context: &Context) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = &context.config;
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let source = file
        .as_deref()
        .unwrap_or("no file: defaults and environment");
    findings.ok("configuration", source);
    let store = findings.check_database(context).await?;
    let mut campaigns = Vec::new();
    if let Some(store) = &store {
        campaigns = store.campaign_totals().await?;
        campaigns.retain(|(campaign, totals)| {
            campaign.state != CampaignStatus::Cancelled && totals.queued + totals.sending > 0
        });
    }
    let own = config.own_providers.iter().chain(&config.default_provider);
    let mut names: BTreeSet<&String> = own.collect();
    for (campaign, totals) in &campaigns {
        if let Some(name) = context.provider_of(campaign) {
            names.insert(name);
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
    for name in names {
        match context.provider(name) {
            Ok(provider) => {
                let mut users: Vec<&Campaign> = campaigns.iter().map(|(it, _)| it).collect();
                users.retain(|campaign| context.provider_of(campaign) == Some(name));
                findings.check_provider(&provider, &users);
                if let Some(doubt) = serve::unchecked_receipts(context, &provider) {
                    findings.note("receipts", &doubt);
                }
            }
            Err(error) => findings.problem("provider", &error),
        }
    }
    if let Some(store) = &store {
        findings.check_messages(store).await?;
    }
    findings.print(context)
}

/// Settings of the database server that weaken the promises of smsq.
async fn unsafe_settings(store: &Store) -> Result<Option<String>, StoreError> {
    let settings = store.unsafe_settings().await?.join(", ");
    let note = format!("{settings}: after a crash of its host messages may be sent twice");
    Ok((!settings.is_empty()).then_some(note))
}

pub(super) async fn warn_of_unsafe_settings(
    context: &Context,
    store: &Store,
) -> Result<(), StoreError> {
    if let Some(settings) = unsafe_settings(store).await? {
        context.console.warn(&settings);
    }
    Ok(())
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
            let encryption = if probe.is_encrypted {
                "encrypted"
            } else {
                "not encrypted"
            };
            let (version, host, skip_locked) = (&probe.version, &probe.host, probe.skip_locked);
            let finding = format!("{version} at {host}, {encryption}; tried: {skip_locked}");
            self.ok("server", &finding);
            if let Some(settings) = unsafe_settings(&store).await? {
                self.note("server", &settings);
            }
        }
        Ok(Some(store))
    }

    /// Checks the settings of a provider that these campaigns use. Whether it accepts the credentials is not tried.
    fn check_provider(&mut self, provider: &Provider, campaigns: &[&Campaign]) {
        let name = provider.name();
        match providers::missing_settings(provider) {
            None => self.ok("provider", &format!("`{name}` at {}", provider.origin())),
            Some(error) => self.problem("provider", &error),
        }
        for doubt in provider.warnings() {
            self.note("provider", &format!("`{name}`: {doubt}"));
        }
        if !provider.needs_sender() {
            return;
        }
        for campaign in campaigns.iter().filter(|it| it.sender.is_none()) {
            self.problem("sender", &providers::missing_sender(name, &campaign.name));
        }
        if campaigns.iter().all(|it| it.sender.is_some()) {
            let finding =
                format!("`{name}` has no `from`: every campaign needs a sender (`--from`)");
            self.note("sender", &finding);
        }
    }

    /// Compares the counts of imports with the messages.
    async fn check_messages(&mut self, store: &Store) -> anyhow::Result<()> {
        let audit = store.check_counts().await?;
        self.has_lost = !audit.is_sound();
        let campaigns = store.campaigns().await?;
        for import in &audit.imports {
            let campaign = campaigns.iter().find(|it| it.id == import.campaign_id);
            let campaign = campaign.map(|campaign| campaign.name.as_str());
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
