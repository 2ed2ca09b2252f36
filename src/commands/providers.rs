//! `smsq providers`: who can send, with which settings, and whether it works.

mod masked;
mod show;
mod test;

use comfy_table::Table;
use serde_json::json;

use super::Context;
use crate::exit::Exit;
use crate::provider::Provider;

const EXAMPLES: &str = "\
Examples:
  smsq providers list
  smsq providers show cellar                   settings, limits, which secrets are missing
  smsq providers test cellar --to +447700900123   send one real message, and see the whole exchange

A provider is a section [providers.NAME] of smsq.toml; `smsq init` writes an example.";

/// List the providers, show the settings of one, or send one test message through it
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
    /// Send one real message through a provider, and show request and answer; it may cost money
    Test(test::Args),
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::List => list(context),
        Action::Show { name } => show::run(name, context),
        Action::Test(args) => test::run(args, context).await,
    }
}

/// The provider with names in the place of its secrets: for its limits and for what it would send.
pub(super) fn without_secrets(context: &Context, name: &str) -> anyhow::Result<Provider> {
    let masked = masked::stanza(context.stanza(name)?);
    Ok(masked::provider(name, &masked)?)
}

fn list(context: &Context) -> anyhow::Result<Exit> {
    let config = &context.config;
    let text = |stanza: &toml::Table, key: &str| {
        let value = stanza.get(key).and_then(toml::Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let default = config.default_provider.as_deref();
    if context.is_json() {
        let providers: Vec<_> = config
            .providers
            .iter()
            .map(|(name, stanza)| {
                json!({
                    "name": name,
                    "kind": text(stanza, "kind"),
                    "default": default == Some(name),
                    "builtin": !config.own_providers.contains(name),
                })
            })
            .collect();
        context.print_json(&json!({ "providers": providers }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["provider", "kind", "address", ""]);
    for (name, stanza) in &config.providers {
        let address = text(stanza, "url");
        let address = address.split('?').next().unwrap_or_default();
        let remark = match (default == Some(name), config.own_providers.contains(name)) {
            (true, _) => "default",
            (false, true) => "",
            (false, false) => "built in",
        };
        table.add_row([name, &text(stanza, "kind"), address, remark]);
    }
    let lines = table.trim_fmt();
    let lines = lines.lines().map(|line| format!("{}\n", line.trim_start()));
    context.console.data(&lines.collect::<String>())?;
    Ok(Exit::Done)
}
