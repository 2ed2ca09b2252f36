//! `smsq providers`: lists the providers, shows their settings, sends a test message.

mod redact;
mod test;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use comfy_table::{ContentArrangement, Table};
use serde_json::json;
use smsq_import::{ProviderRequirements, RowCheck};
use smsq_message::phone::Phone;
use smsq_message::prices::Prices;
use smsq_message::rate::Rates;
use smsq_message::route::{Route, RouteConfig};
use smsq_message::sms::NewSms;
use smsq_message::text::{Hinted, duration};
use smsq_operations::{Requirements, unknown_provider};
use smsq_process::exit::Exit;
use smsq_provider::{Capabilities, ContentMode, Message, Provider, PullShape, Reference, Webhook};
use smsq_report::shell_word;
use smsq_sender::OnUnknown;

use super::{Context, user_of, with_hint};
use crate::config::{Config, Environment};

/// A placeholder as long as the references that messages get when they are claimed.
const REFERENCE: &str = "00000000-0000-0000-0000-000000000000";

const EXAMPLES: &str = "\
Examples:
  smsq providers list
  smsq providers show cellar                   settings, limits, which secrets are missing
  smsq providers test cellar --to +447700900123   send one real message, and show it
  smsq providers resume cellar                 end the wait that its `Retry-After` asked for

A provider is a section [providers.NAME] of smsq.toml; `smsq init` writes an example.";

/// List, show or test providers, or end a provider's wait
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all providers: yours and the built-in ones
    List,
    /// Show a provider's settings, limits and secrets (where they come from, not their values)
    Show {
        /// The provider
        name: String,
    },
    /// Call a provider again that asked to wait (`Retry-After`)
    Resume {
        /// The provider
        name: String,
    },
    /// Send one real message through a provider, and print request and response; it may cost money
    Test(test::Args),
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::List => list(context)?,
        Action::Show { name } => show(name, context)?,
        Action::Resume { name } => return resume(name, context).await,
        Action::Test(args) => return test::run(args, context).await,
    }
    Ok(Exit::Done)
}

/// What providers and routes require of messages. Each provider is read once, without its secrets.
pub(super) fn requirements(
    sections: BTreeMap<String, toml::Table>,
    routes: BTreeMap<String, RouteConfig>,
    prices: BTreeMap<String, Prices>,
    environment: Environment,
) -> Requirements {
    let known: Mutex<BTreeMap<String, Arc<Provider>>> = Mutex::default();
    let provider = move |name: &str| -> Result<Arc<Provider>, Hinted> {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match (known.get(name), sections.get(name)) {
            (Some(provider), _) => Ok(Arc::clone(provider)),
            (None, Some(section)) => {
                let provider =
                    redact::provider(name, section, &environment).map_err(Hinted::from)?;
                let provider = Arc::new(provider);
                known.insert(name.to_owned(), Arc::clone(&provider));
                Ok(provider)
            }
            (None, None) => Err(unknown_provider(name, sections.keys().map(String::as_str))),
        }
    };
    Arc::new(move |name, sender| {
        if let Some(config) = routes.get(name) {
            return route_requirements(name, config, sender.as_ref(), &prices, &provider);
        }
        let provider = provider(name)?;
        let reads_columns = provider.reads_columns();
        let columns = provider.columns().into_iter().filter(|_| reads_columns);
        let template = provider.template_text().filter(|_| reads_columns);
        Ok(ProviderRequirements {
            provider: name.to_owned(),
            needs_sender: provider.needs_sender(),
            route: provider
                .senders()
                .filter(|_| sender.is_none())
                .map(|pool| Arc::new(Route::of_pool(Arc::clone(pool)))),
            rates: provider.rates().clone(),
            columns: columns.map(str::to_owned).collect(),
            template: template.map(str::to_owned),
            check: reads_columns.then(|| row_check(provider, sender)),
        })
    })
}

/// What a route requires: of each row, what the provider of its phone requires.
fn route_requirements(
    name: &str,
    config: &RouteConfig,
    sender: Option<&String>,
    prices: &BTreeMap<String, Prices>,
    provider: impl Fn(&str) -> Result<Arc<Provider>, Hinted>,
) -> Result<ProviderRequirements, Hinted> {
    let route = Route::new(name, config, |name| {
        Ok::<_, Hinted>(provider(name)?.route_member(prices.get(name)))
    })?;
    let route = match sender {
        None => route,
        Some(from) => {
            if let Some(lacking) = route.without_sender(from) {
                return Err(Hinted::new(
                    format!(
                        "provider `{lacking}` of route `{name}` does not list the sender `{from}`"
                    ),
                    format!("add it to `senders` in [providers.{lacking}], or omit `--from`"),
                ));
            }
            route.with_sender(from)
        }
    };
    let route = Arc::new(route);
    let read = route.providers().map(provider);
    let providers = read.collect::<Result<Vec<_>, Hinted>>()?;
    let by_template = || providers.iter().filter(|provider| provider.reads_columns());
    let columns: BTreeSet<String> = by_template()
        .flat_map(|provider| provider.columns().into_iter().map(str::to_owned))
        .collect();
    let template = by_template().find_map(|provider| provider.template_text());
    let needs_sender = sender.is_none() && providers.iter().any(|each| each.needs_sender());
    let check = |provider: &Arc<Provider>| {
        let provider = Arc::clone(provider);
        provider.reads_columns().then(|| row_check(provider, sender.cloned()))
    };
    let checks: Vec<Option<RowCheck>> = providers.iter().map(check).collect();
    let has_check = checks.iter().any(Option::is_some);
    let of_home = {
        move |row: &NewSms, route: Option<&Route>| {
            let chosen = route.and_then(|route| route.choose(&row.phone, |_, _| true));
            match chosen.and_then(|(provider, _)| checks[provider].as_ref()) {
                Some(check) => check(row, route),
                None => Ok(None),
            }
        }
    };
    Ok(ProviderRequirements {
        provider: name.to_owned(),
        needs_sender,
        rates: Rates::default(),
        columns: columns.into_iter().collect(),
        template: template.map(str::to_owned),
        check: has_check.then(|| Arc::new(of_home) as RowCheck),
        route: Some(route),
    })
}

fn row_check(provider: Arc<Provider>, sender: Option<String>) -> RowCheck {
    Arc::new(move |row, _| {
        let phone = Phone::parse(&row.phone, None).map_err(|error| error.to_string())?;
        let from = sender.clone().or_else(|| provider.pool_sender(&phone));
        let message = Message {
            phone,
            content: row.content.clone(),
            reference: REFERENCE.to_owned(),
            from,
            params: serde_json::from_str(&row.params).unwrap_or_default(),
        };
        provider.validate(&message).map_err(|failure| failure.reason)?;
        Ok(provider.preview(&message))
    })
}

/// The provider whose requests can be shown: without secrets, and without what may be one.
fn to_show(context: &Context, name: &str) -> anyhow::Result<Provider> {
    let section = context.provider_section(name)?;
    let section = redact::section(section, &redact::provider(name, section, &context.environment)?);
    Ok(redact::provider(name, &section, &context.environment)?)
}

/// The error if a required setting is missing.
pub(super) fn missing_settings(provider: &Provider) -> Option<anyhow::Error> {
    let name = provider.name();
    let missing = provider.missing_settings();
    let keys: Vec<String> = missing.iter().map(|key| format!("`{key}`")).collect();
    let message = format!("provider `{name}`: missing {}", keys.join(", "));
    let hint = format!("set it in [providers.{name}]");
    (!missing.is_empty()).then(|| with_hint(message, hint))
}

/// The error for a campaign without a sender whose provider needs one.
pub(super) fn missing_sender(provider: &str, campaign: &str) -> anyhow::Error {
    let word = shell_word(campaign);
    with_hint(
        format!("missing sender: campaign `{campaign}` and provider `{provider}` have none"),
        format!(
            "set `from` in [providers.{provider}], or `smsq set --campaign {word} --from SENDER`"
        ),
    )
}

/// The error if several providers are configured, and none is chosen.
pub(super) fn ambiguous(config: &Config, hint: &str) -> anyhow::Error {
    let names = config.own_providers.join(", ");
    let message = format!("missing provider: several are configured ({names})");
    with_hint(message, hint)
}

/// A table without borders; the last column is not padded.
fn table(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.add_rows(rows);
    let lines = table.trim_fmt();
    let lines = lines.lines().map(|line| format!("{}\n", line.trim()));
    lines.collect()
}

fn list(context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let mut objects = Vec::new();
    let header = "provider kind sends batch reference lookup receipts address";
    let mut rows: Vec<Vec<String>> = vec![header.split(' ').map(str::to_owned).collect()];
    for (name, section) in &config.providers {
        let is_default = config.default_provider.as_ref() == Some(name);
        let is_own = config.own_providers.contains(name);
        let kind = section.get("kind").and_then(toml::Value::as_str);
        let kind = kind.unwrap_or_default();
        let mut object =
            json!({ "name": name, "kind": kind, "default": is_default, "builtin": !is_own });
        let mut row = vec![name.clone(), kind.to_owned()];
        match redact::provider(name, section, &context.environment) {
            Ok(provider) => {
                let capabilities = provider.capabilities();
                let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
                row.extend([
                    capabilities.sends.as_str().to_owned(),
                    match capabilities.max_batch {
                        1 => "-".to_owned(),
                        most => most.to_string(),
                    },
                    capabilities.reference.as_str().to_owned(),
                    yes(capabilities.lookup.is_some()),
                    how_receipts_come(capabilities),
                    provider.origin(),
                    match (is_default, is_own) {
                        (true, _) => "default",
                        (false, true) => "",
                        (false, false) => "built in",
                    }
                    .to_owned(),
                ]);
                object["url"] = json!(provider.origin());
                object["capabilities"] = json!(capabilities);
            }
            Err(error) => {
                row.resize(8, String::new());
                row.push("invalid: see `smsq check`".to_owned());
                object["fault"] = json!(error.to_string());
            }
        }
        rows.push(row);
        objects.push(object);
    }
    context.print(&table(rows), &json!({ "providers": objects }))
}

fn show(name: &str, context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let section = context.provider_section(name)?;
    let secrets = redact::secrets(section, context);
    // With placeholders for the secrets, so that settings are shown although a secret is missing.
    let provider = redact::provider(name, section, &context.environment)?;
    let mut settings = redact::section(section, &provider);
    let rates = provider.rates();
    let unit = if provider.rates_count_segments() { "segments" } else { "messages" };
    if context.is_json() {
        return context.print_json(&json!({
            "name": name,
            "kind": provider.kind(),
            "url": provider.origin(),
            "default": config.default_provider.as_deref() == Some(name),
            "rate": rates.to_string(),
            "rate_counts": unit,
            "timeout_ms": smsq_message::sms::millis(provider.timeout()),
            "honours_reference": provider.capabilities().honoured_for().is_some(),
            "capabilities": provider.capabilities(),
            "missing": provider.missing_settings(),
            "codes": provider.codes(),
            "secrets": secrets,
        }));
    }
    // Secrets and codes are shown below.
    settings.remove("secrets");
    settings.remove("codes");
    let named = toml::Table::from_iter([(name.to_owned(), settings.into())]);
    let mut text = toml::Table::from_iter([("providers".to_owned(), named.into())]).to_string();
    let limit = match rates.0.as_slice() {
        [] => "none".to_owned(),
        _ => format!("{rates} {unit}"),
    };
    let timeout = duration(provider.timeout());
    let capabilities = provider.capabilities();
    let after_timeout = after_timeout(capabilities, config.sender.on_unknown);
    let _ = writeln!(text, "\nlimit      {limit}");
    let _ = writeln!(text, "timeout    {timeout}: {after_timeout}");
    text.push_str(&describe(capabilities));
    for secret in &secrets {
        let state = if secret.is_set { "set" } else { "MISSING" };
        let _ = writeln!(text, "secret     {}: {}, {state}", secret.name, secret.source);
    }
    let codes = provider.codes();
    if !codes.is_empty() {
        let rows = codes.into_iter().map(|code| {
            let meaning: Vec<String> = [code.reason, code.advice].into_iter().flatten().collect();
            vec![code.code, code.class.to_owned(), meaning.join(": ")]
        });
        text.push_str("codes\n");
        for line in table(rows).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    context.console.print(&text)?;
    for key in provider.missing_settings() {
        let warning = format!("missing `{key}`: nothing can be sent without it");
        context.console.warn(&warning);
    }
    if secrets.iter().any(|secret| !secret.is_set) {
        context.console.warn("missing secret: nothing can be sent without it");
    }
    Ok(())
}

/// What happens to a message whose request timed out.
fn after_timeout(capabilities: &Capabilities, on_unknown: OnUnknown) -> String {
    let otherwise = match capabilities.honoured_for() {
        _ if on_unknown == OnUnknown::Resend => "sent again, and may arrive twice".to_owned(),
        Some(span) => format!(
            "sent again with the same reference, which this provider accepts only once in {}",
            duration(span)
        ),
        None => "unknown until `smsq retry --unknown` or `smsq settle`".to_owned(),
    };
    let Some(lookup) = &capabilities.lookup else {
        return format!("the message is {otherwise}");
    };
    let looked_up = format!("the message is looked up after {}", duration(lookup.after));
    let absent = lookup.absent_after.map(|after| {
        let after = duration(after);
        format!("; if the provider does not know it after {after}, it is sent again")
    });
    format!("{looked_up}{}; without a clear result it is {otherwise}", absent.unwrap_or_default())
}

fn describe(capabilities: &Capabilities) -> String {
    let sends = match capabilities.sends {
        ContentMode::Text => "the text of each message",
        ContentMode::Template => "a template of the provider, filled with columns",
    };
    let batch = match capabilities.max_batch {
        1 => "one message per request".to_owned(),
        most => format!("up to {most} messages per request"),
    };
    let reference = match capabilities.reference {
        Reference::None => "not sent",
        Reference::Echoed => "sent, and returned in reports",
        Reference::Honoured { .. } => "each is accepted once",
    };
    let receipts = receipts(capabilities);
    let mut text =
        format!("sends      {sends}, {batch}\nreference  {reference}\nreceipts   {receipts}\n");
    if let Some(webhook) = &capabilities.webhook {
        let _ = writeln!(text, "webhook    {}", posted(webhook));
    }
    text
}

/// The shape of the vendor's list, and `posted` where the vendor posts receipts; `off`: fetching is not switched on.
fn how_receipts_come(capabilities: &Capabilities) -> String {
    let pull = capabilities.pull.as_ref();
    let shape = pull.filter(|pull| pull.is_enabled);
    let shape = shape.map(|pull| pull.source.shape.as_str());
    match (shape, capabilities.webhook.is_some()) {
        (Some(shape), true) => format!("{shape}, posted"),
        (Some(shape), false) => shape.to_owned(),
        (None, true) => "posted".to_owned(),
        (None, false) if pull.is_some() => "off".to_owned(),
        (None, false) => "-".to_owned(),
    }
}

/// How posted receipts are read, and whether their signatures are checked.
fn posted(webhook: &Webhook) -> String {
    let replies = if webhook.has_replies { " and replies" } else { "" };
    let mut text = format!("reads posted receipts{replies}; ");
    match (webhook.signature, &webhook.unchecked_because) {
        (None, _) => text.push_str("only the token in the address protects it"),
        (Some(scheme), None) => {
            let _ = write!(text, "checks the signature `{scheme}`");
        }
        (Some(scheme), Some(problem)) => {
            let _ = write!(text, "does not check the signature `{scheme}`: {problem}");
        }
    }
    if !webhook.is_enabled {
        text.push_str(
            "\n           no message awaits posted receipts: set `webhook = { enabled = true }`",
        );
    }
    if let Some(setting) = &webhook.url_setting {
        let _ = write!(
            text,
            "\n           requests have its address from `serve.public_url`, or from `{setting}`"
        );
    }
    if let Some(requires) = &webhook.requires {
        let _ = write!(text, "\n           {requires}");
    }
    text
}

/// How receipts come, and what must be switched on first.
fn receipts(capabilities: &Capabilities) -> String {
    let Some(pull) = &capabilities.pull else {
        return if capabilities.webhook.is_some() {
            "only posted; none can be fetched".to_owned()
        } else if capabilities.receipts {
            "posted to an address, which smsq does not read without a section `webhook`".to_owned()
        } else {
            "none".to_owned()
        };
    };
    let how = match pull.source.shape {
        PullShape::Drain => "fetched; the provider returns each only once",
        PullShape::Sweep => "fetched from the provider's list of messages",
        PullShape::Ask => "fetched for one message after the other",
    };
    let recheck = match pull.recheck {
        Some(_) => "; `smsq receipts --recheck` finds what was lost",
        None => "",
    };
    let mut text = format!("{how}{recheck}");
    if !pull.is_enabled {
        text = format!("switched off: set `receipts = {{ enabled = true }}`; then {text}");
    }
    if let Some(requires) = &pull.requires {
        let _ = write!(text, "\n           {requires}");
    }
    text
}

/// Ends the wait that a provider asked for, for all workers.
async fn resume(name: &str, context: &Context) -> anyhow::Result<Exit> {
    let section = context.provider_section(name)?;
    let account = smsq_provider::account_of(name, section).to_owned();
    let store = context.store().await?;
    let actor = user_of("providers resume");
    let resumed = smsq_operations::resume_provider(&store, &account, &actor).await?;
    let message = if resumed {
        format!("`{name}` is called again; running workers see it within seconds")
    } else {
        format!("`{name}` did not ask to wait: nothing was changed")
    };
    context.report(&message, &json!({ "provider": name, "resumed": resumed }))
}
