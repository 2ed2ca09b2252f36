//! `smsq providers`: who can send, with which settings, and whether it works.

mod masked;
mod show;
mod test;

use comfy_table::Table;
use serde_json::json;

use super::Context;
use crate::exit::Exit;
use crate::provider::Provider;
use crate::report::shell_word;

const EXAMPLES: &str = "\
Examples:
  smsq providers list
  smsq providers show cellar                   settings, limits, which secrets are missing
  smsq providers test cellar --to +447700900123   send one real message, and see the whole exchange
  smsq providers resume cellar                 do not wait as long as its `Retry-After` asked for

A provider is a section [providers.NAME] of smsq.toml; `smsq init` writes an example.";

/// List the providers, show or test one, or call it again after a wait
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all providers: yours and those that are built in
    List,
    /// Show a provider's settings, limits and secrets (where they come from, never what they are)
    Show {
        /// Which provider
        name: String,
    },
    /// Call a provider again at once that asked to wait (`Retry-After`)
    Resume {
        /// Which provider
        name: String,
    },
    /// Send one real message through a provider, and show request and answer; it may cost money
    Test(test::Args),
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::List => list(context),
        Action::Show { name } => show::run(name, context),
        Action::Resume { name } => resume(name, context).await,
        Action::Test(args) => test::run(args, context).await,
    }
}

/// The provider with names in the place of its secrets: for its limits and for what it would send.
pub(super) fn without_secrets(context: &Context, name: &str) -> anyhow::Result<Provider> {
    let masked = masked::stanza(context.stanza(name)?);
    Ok(masked::provider(name, &masked)?)
}

/// What is wrong where a setting is missing without which nothing can be sent, and what to do.
pub(super) fn unset(provider: &Provider) -> Option<(String, String)> {
    let name = provider.name();
    let missing = provider.missing();
    let keys: Vec<String> = missing.iter().map(|key| format!("`{key}`")).collect();
    (!keys.is_empty()).then(|| {
        (
            format!("provider `{name}`: {} is not set", keys.join(", ")),
            format!("set it in [providers.{name}]"),
        )
    })
}

/// The same for a campaign without a sender, where its provider `name` needs one and has none.
pub(super) fn senderless(name: &str, campaign: &str) -> (String, String) {
    let word = shell_word(campaign);
    (
        format!("campaign `{campaign}` names no sender, and provider `{name}` has none"),
        format!("set `from` in [providers.{name}], or `smsq set --campaign {word} --from SENDER`"),
    )
}

fn list(context: &Context) -> anyhow::Result<Exit> {
    let config = &context.config;
    let default = config.default_provider.as_deref();
    let mut listed = Vec::new();
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "provider",
        "kind",
        "sends",
        "batch",
        "reference",
        "look-up",
        "receipts",
        "address",
        "",
    ]);
    for (name, stanza) in &config.providers {
        let masked = masked::stanza(stanza);
        let own = config.own_providers.contains(name);
        let remark = match (default == Some(name), own) {
            (true, _) => "default",
            (false, true) => "",
            (false, false) => "built in",
        };
        let kind = kind_of(stanza);
        let provider = match masked::provider(name, &masked) {
            Ok(provider) => provider,
            Err(error) => {
                let row = [
                    name,
                    kind,
                    "",
                    "",
                    "",
                    "",
                    "",
                    "",
                    "faulty: see `smsq check`",
                ];
                table.add_row(row);
                listed.push(json!({
                    "name": name, "kind": kind, "default": default == Some(name),
                    "builtin": !own, "fault": error.to_string(),
                }));
                continue;
            }
        };
        let capabilities = provider.capabilities();
        let yes = |truth: bool| if truth { "yes" } else { "-" };
        let batch = match capabilities.most_per_call {
            1 => "-".to_owned(),
            most => most.to_string(),
        };
        table.add_row([
            name,
            kind,
            capabilities.writes.as_str(),
            &batch,
            capabilities.reference.as_str(),
            yes(capabilities.lookup.is_some()),
            yes(capabilities.receipts),
            &provider.origin(),
            remark,
        ]);
        listed.push(json!({
            "name": name,
            "kind": kind,
            "default": default == Some(name),
            "builtin": !own,
            "url": provider.origin(),
            "capabilities": capabilities,
        }));
    }
    if context.is_json() {
        context.print_json(&json!({ "providers": listed }))?;
        return Ok(Exit::Done);
    }
    let lines = table.trim_fmt();
    let lines = lines.lines().map(|line| format!("{}\n", line.trim()));
    context.console.data(&lines.collect::<String>())?;
    Ok(Exit::Done)
}

/// Ends the wait that a provider asked for, for all workers.
async fn resume(name: &str, context: &Context) -> anyhow::Result<Exit> {
    context.stanza(name)?;
    let store = context.store().await?;
    let resumed = store.end_provider_pause(name, store.now().await?).await?;
    if context.is_json() {
        context.print_json(&json!({ "provider": name, "resumed": resumed }))?;
    }
    context.console.say(&if resumed {
        format!("`{name}` is called again; running workers notice within seconds")
    } else {
        format!("`{name}` did not ask to wait: nothing was changed")
    });
    Ok(Exit::Done)
}

/// As it is written in the stanza.
fn kind_of(stanza: &toml::Table) -> &str {
    let kind = stanza.get("kind").and_then(toml::Value::as_str);
    kind.unwrap_or_default()
}
