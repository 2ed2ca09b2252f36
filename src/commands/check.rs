//! `smsq check`: checks configuration, database and providers, and that no message is lost. Sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Context, message_and_hint, providers, status};
use crate::exit::Exit;
use crate::provider::Provider;
use crate::store::report::Audit;
use crate::store::{CampaignStatus, Fault, Probe, Store, StoreError};
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

/// A provider that campaigns use, and the campaign if it has no sender.
struct Use {
    provider: String,
    without_sender: Option<String>,
}

pub(crate) async fn run(_: &Args, context: &Context) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = &context.config;
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let source = file
        .as_deref()
        .unwrap_or("no file: defaults and environment");
    findings.ok("configuration", source);
    let store = match context.try_store_to_read().await {
        Ok(store) => Some(store),
        Err(error) if error.fault() == Fault::Missing => {
            findings.ok("database", "does not exist yet: `smsq import` creates it");
            None
        }
        Err(error) if error.fault() == Fault::NoTables => {
            findings.ok("database", &format!("{error}: `smsq import` creates them"));
            None
        }
        Err(error) => return Err(context.explain_store_error(&error)),
    };
    let mut uses = Vec::new();
    if let Some(store) = &store {
        findings.ok("database", store.place());
        if let Some(probe) = store.probe().await? {
            findings.ok("server", &describe(&probe));
            if let Some(settings) = unsafe_settings(store).await? {
                findings.note("server", &settings);
            }
        }
        uses = providers_in_use(store, context, &mut findings).await?;
    }
    let own = config.own_providers.iter().chain(&config.default_provider);
    let of_campaigns = uses.iter().map(|one| &one.provider);
    let names: BTreeSet<&String> = own.chain(of_campaigns).collect();
    if names.is_empty() {
        let hint = match file {
            Some(file) => format!("describe one as [providers.NAME] in {file}"),
            None => "`smsq init` writes an example".to_owned(),
        };
        findings.ok("provider", &format!("none yet: {hint}"));
    }
    for name in names {
        match context.provider(name) {
            Ok(provider) => findings.check_provider(&provider, &uses),
            Err(error) => {
                let (message, hint) = message_and_hint(&error);
                findings.problem("provider", &message, hint.as_deref());
            }
        }
    }
    if let Some(store) = &store {
        findings.check_messages(store).await?;
    }
    findings.print(context)
}

fn describe(probe: &Probe) -> String {
    let encryption = if probe.is_encrypted {
        "encrypted"
    } else {
        "not encrypted"
    };
    format!(
        "{} at {}, {encryption}; tried: {}",
        probe.version, probe.host, probe.skip_locked
    )
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

/// The providers of campaigns that have something left to send.
async fn providers_in_use(
    store: &Store,
    context: &Context,
    findings: &mut Findings,
) -> anyhow::Result<Vec<Use>> {
    let mut uses = Vec::new();
    for (campaign, totals) in store.campaign_totals().await? {
        let has_work = totals.queued + totals.sending > 0;
        if !has_work || campaign.state == CampaignStatus::Cancelled {
            continue;
        }
        let default = context.config.default_provider.clone();
        if let Some(provider) = campaign.provider.or(default) {
            let without_sender = campaign.sender.is_none().then_some(campaign.name);
            uses.push(Use {
                provider,
                without_sender,
            });
        } else {
            let queued = messages(totals.queued);
            let finding = format!("campaign `{}` has {queued} and no provider", campaign.name);
            findings.problem("provider", &finding, Some("set `default_provider`"));
        }
    }
    Ok(uses)
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

    fn problem(&mut self, subject: &str, finding: &str, hint: Option<&str>) {
        self.line("problem", subject, finding);
        if let Some(hint) = hint {
            self.line("", "", &format!("hint: {hint}"));
        }
        self.problems.push(finding.to_owned());
    }

    /// Checks the settings of a provider. Whether it accepts the credentials is not tried.
    fn check_provider(&mut self, provider: &Provider, uses: &[Use]) {
        let name = provider.name();
        match providers::missing_settings(provider) {
            None => self.ok("provider", &format!("`{name}` at {}", provider.origin())),
            Some((finding, hint)) => self.problem("provider", &finding, Some(&hint)),
        }
        for doubt in provider.doubts() {
            self.note("provider", &format!("`{name}`: {doubt}"));
        }
        if !provider.needs_sender() {
            return;
        }
        let campaigns: Vec<&String> = uses
            .iter()
            .filter(|one| one.provider == name)
            .filter_map(|one| one.without_sender.as_ref())
            .collect();
        for campaign in &campaigns {
            let (finding, hint) = providers::missing_sender(name, campaign);
            self.problem("sender", &finding, Some(&hint));
        }
        if campaigns.is_empty() {
            let finding =
                format!("`{name}` has no `from`: every campaign needs a sender (`--from`)");
            self.note("sender", &finding);
        }
    }

    /// Compares the counts of imports with the messages.
    async fn check_messages(&mut self, store: &Store) -> anyhow::Result<()> {
        let audit = store.check_counts().await?;
        self.has_lost = !audit.is_sound();
        let campaigns = store.campaigns().await?.into_iter();
        let campaigns: BTreeMap<i64, String> = campaigns
            .map(|campaign| (campaign.id, campaign.name))
            .collect();
        for import in &audit.imports {
            let campaign = campaigns.get(&import.campaign_id);
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
            } else if !import.finished {
                let campaign = campaign.map_or("", String::as_str);
                let finding = format!(
                    "`{file}` was not read to its end for campaign `{campaign}`: import it again"
                );
                self.note(&subject, &finding);
            }
        }
        self.check_origins(&audit);
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

    /// Messages whose import or campaign does not exist.
    fn check_origins(&mut self, audit: &Audit) {
        if audit.strangers > 0 {
            let finding = format!("{} of an unknown import", messages(audit.strangers));
            self.line("problem", "messages", &finding);
        }
        for (campaign, count) in &audit.homeless {
            let finding = status::missing_campaign(*campaign, *count);
            self.line("problem", "messages", &finding);
        }
    }

    fn print(self, context: &Context) -> anyhow::Result<Exit> {
        if context.is_json() {
            context.print_json(&json!({
                "sound": !self.has_lost,
                "problems": self.problems,
                "notes": self.notes,
                "imports": self.imports,
            }))?;
        } else {
            context.console.print(&self.text)?;
        }
        Ok(match (self.problems.is_empty(), self.has_lost) {
            (false, _) => Exit::CouldNotRun,
            (true, true) => Exit::Incomplete,
            (true, false) => Exit::Done,
        })
    }
}
