//! `smsq check`: is everything in order? Configuration, database, providers, and the promise that
//! nothing is lost; sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::words::{counted, messages};
use super::{Context, message_and_hint, providers};
use crate::exit::Exit;
use crate::provider::Provider;
use crate::store::inspect::Audit;
use crate::store::{CampaignStatus, Fault, Probe, Store, StoreError};

const EXAMPLES: &str = "\
Example:
  smsq check && smsq send

Exit status: 0 all in order; 1 the counts do not add up; 2 something keeps smsq from running.";

/// Check configuration, database and providers, and that no message is lost; sends nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// What was found, as text and as JSON.
#[derive(Default)]
struct Findings {
    text: String,
    /// What keeps smsq from running.
    problems: Vec<String>,
    notes: Vec<String>,
    is_sound: bool,
    imports: Vec<Value>,
}

pub(crate) async fn run(_: &Args, context: &Context) -> anyhow::Result<Exit> {
    let mut findings = Findings {
        is_sound: true,
        ..Findings::default()
    };
    let file = match &context.config.file {
        Some(file) => file.display().to_string(),
        None => "no file: the defaults and the environment".to_owned(),
    };
    findings.line("configuration", &file);
    let store = match context.try_store_to_read().await {
        Ok(store) => Some(store),
        Err(error) if error.fault() == Fault::Missing => {
            findings.line("database", "not there yet: `smsq import` makes it");
            None
        }
        Err(error) if error.fault() == Fault::NoTables => {
            findings.line("database", &format!("{error}: `smsq import` makes them"));
            None
        }
        Err(error) => return Err(context.store_error(&error)),
    };
    let mut senderless = Vec::new();
    let mut needed: BTreeSet<String> = context.config.own_providers.iter().cloned().collect();
    needed.extend(context.config.default_provider.clone());
    if let Some(store) = &store {
        findings.line("database", store.place());
        if let Some(probe) = store.probe().await? {
            findings.line("server", &server(&probe));
            if let Some(finding) = unsafe_settings(store).await? {
                findings.note("server", &finding);
            }
        }
        senderless = providers_in_use(store, context, &mut findings).await?;
        needed.extend(senderless.iter().map(|(name, _)| name.clone()));
    }
    if needed.is_empty() {
        let way = match &context.config.file {
            Some(file) => format!("describe one as [providers.NAME] in {}", file.display()),
            None => "`smsq init` writes an example".to_owned(),
        };
        findings.line("provider", &format!("none yet: {way}"));
    }
    for name in needed {
        match context.provider(&name) {
            Ok(provider) => {
                findings.provider(&provider);
                findings.sender(&provider, &senderless);
            }
            Err(error) => {
                let (message, hint) = message_and_hint(&error);
                findings.problem("provider", &message, hint.as_deref());
            }
        }
    }
    if let Some(store) = &store {
        findings.audit(store).await?;
    }
    findings.tell(context)
}

fn server(probe: &Probe) -> String {
    let secrecy = if probe.is_encrypted {
        "encrypted"
    } else {
        "in the clear"
    };
    format!(
        "{} at {}, {secrecy}; tried: {}",
        probe.version, probe.host, probe.skip_locked
    )
}

/// Settings of the server that smsq cannot change, and that do not keep it from running.
pub(super) async fn unsafe_settings(store: &Store) -> Result<Option<String>, StoreError> {
    let settings = store.unsafe_settings().await?.join(", ");
    let note = format!("{settings}: after a crash of its host messages may be sent twice");
    Ok((!settings.is_empty()).then_some(note))
}

/// The providers that campaigns with something left to do depend on, each with its campaign if that names no sender.
async fn providers_in_use(
    store: &Store,
    context: &Context,
    findings: &mut Findings,
) -> anyhow::Result<Vec<(String, Option<String>)>> {
    let mut names = Vec::new();
    for (campaign, totals) in store.campaign_totals().await? {
        let is_over = totals.queued + totals.sending == 0;
        if is_over || campaign.state == CampaignStatus::Cancelled {
            continue;
        }
        let default = context.config.default_provider.clone();
        if let Some(name) = campaign.provider.or(default) {
            let is_senderless = campaign.sender.is_none();
            names.push((name, is_senderless.then_some(campaign.name)));
            continue;
        }
        let (name, queued) = (&campaign.name, messages(totals.queued));
        let finding = format!("campaign `{name}` has {queued} to send and no provider");
        findings.problem("provider", &finding, Some("set `default_provider`"));
    }
    Ok(names)
}

impl Findings {
    fn line(&mut self, what: &str, finding: &str) {
        let _ = writeln!(self.text, "ok       {what:<14} {finding}");
    }

    fn note(&mut self, what: &str, finding: &str) {
        let _ = writeln!(self.text, "note     {what:<14} {finding}");
        self.notes.push(finding.to_owned());
    }

    fn problem(&mut self, what: &str, finding: &str, hint: Option<&str>) {
        let _ = writeln!(self.text, "problem  {what:<14} {finding}");
        if let Some(hint) = hint {
            let _ = writeln!(self.text, "{:>23} hint: {hint}", "");
        }
        self.problems.push(finding.to_owned());
    }

    /// A provider whose stanza is sound; whether the vendor takes its credentials only the vendor knows.
    fn provider(&mut self, provider: &Provider) {
        let name = provider.name();
        match providers::unset(provider) {
            None => self.line("provider", &format!("`{name}` at {}", provider.origin())),
            Some((finding, hint)) => self.problem("provider", &finding, Some(&hint)),
        }
        for doubt in provider.doubts() {
            self.note("provider", &format!("`{name}`: {doubt}"));
        }
    }

    /// Campaigns without a sender, where the provider needs one and has none.
    fn sender(&mut self, provider: &Provider, senderless: &[(String, Option<String>)]) {
        if !provider.needs_sender() {
            return;
        }
        let name = provider.name();
        let mut is_problem = false;
        for (_, campaign) in senderless.iter().filter(|(other, _)| other == name) {
            let Some(campaign) = campaign else { continue };
            is_problem = true;
            let (finding, hint) = providers::senderless(name, campaign);
            self.problem("sender", &finding, Some(&hint));
        }
        if !is_problem {
            let finding =
                format!("`{name}` has no `from`: every campaign must name a sender with `--from`");
            self.note("sender", &finding);
        }
    }

    async fn audit(&mut self, store: &Store) -> anyhow::Result<()> {
        let audit = store.check_counts().await?;
        self.is_sound = audit.is_sound();
        let campaigns: BTreeMap<i64, String> = store
            .campaigns()
            .await?
            .into_iter()
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
            if import.expected != import.found {
                let _ = writeln!(
                    self.text,
                    "problem  import {:<7} `{}`: {} accepted, {} found",
                    import.id, import.file, import.expected, import.found
                );
            } else if !import.finished {
                let finding = format!(
                    "`{}` was not read to its end for campaign `{}`: import it again",
                    import.file,
                    campaign.map_or("", String::as_str)
                );
                self.note(&format!("import {}", import.id), &finding);
            }
        }
        self.strangers(&audit);
        if self.is_sound {
            let found = audit.imports.iter().map(|import| import.found).sum();
            let imports = counted(audit.imports.len() as u64, "import");
            let plain = match audit.plain {
                0 => String::new(),
                plain => format!(", and {plain} that other programs inserted"),
            };
            self.line(
                "nothing lost",
                &format!("{} of {imports}{plain}", messages(found)),
            );
        }
        Ok(())
    }

    fn strangers(&mut self, audit: &Audit) {
        if audit.strangers > 0 {
            let _ = writeln!(
                self.text,
                "problem  messages       {} of an import that is not known",
                messages(audit.strangers)
            );
        }
        for (campaign, count) in &audit.homeless {
            let _ = writeln!(
                self.text,
                "problem  messages       {} of campaign {campaign}, which does not exist: nobody sends them",
                messages(*count)
            );
        }
    }

    fn tell(self, context: &Context) -> anyhow::Result<Exit> {
        if context.is_json() {
            context.print_json(&json!({
                "sound": self.is_sound,
                "problems": self.problems,
                "notes": self.notes,
                "imports": self.imports,
            }))?;
        } else {
            context.console.data(&self.text)?;
        }
        Ok(match (self.problems.is_empty(), self.is_sound) {
            (false, _) => Exit::CouldNotRun,
            (true, false) => Exit::Incomplete,
            (true, true) => Exit::Done,
        })
    }
}
