//! `smsq providers show`: a provider's settings, limits and secrets.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table};
use serde_json::json;

use super::masked;
use crate::commands::{Context, words};
use crate::exit::Exit;
use crate::provider::{Provider, Reference, Writes};
use crate::sender::OnUnknown;

pub(super) fn run(name: &str, context: &Context) -> anyhow::Result<Exit> {
    let stanza = context.stanza(name)?;
    let sources = masked::sources(stanza, context);
    let masked = masked::stanza(stanza);
    // Missing secrets must not keep the rest from being shown.
    let provider = masked::provider(name, &masked)?;
    if context.is_json() {
        context.print_json(&json!({
            "name": name,
            "kind": provider.kind(),
            "url": provider.origin(),
            "default": context.config.default_provider.as_deref() == Some(name),
            "rate": provider.rates().to_string(),
            "rate_counts": counted(&provider),
            "timeout_ms": crate::sms::millis(provider.timeout()),
            "honours_reference": provider.honours_reference(),
            "capabilities": provider.capabilities(),
            "missing": provider.missing(),
            "codes": provider.codes(),
            "secrets": sources.iter().map(masked::Source::json).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    let mut settings = masked;
    settings.remove("secrets");
    // Shown below, in a form to read.
    settings.remove("codes");
    let named = toml::Table::from_iter([(name.to_owned(), settings.into())]);
    let mut shown = toml::Table::from_iter([("providers".to_owned(), named.into())]).to_string();
    let limit = match provider.rates().0.as_slice() {
        [] => "none".to_owned(),
        _ => format!("{} {}", provider.rates(), counted(&provider)),
    };
    let _ = writeln!(shown, "\nlimit      {limit}");
    let _ = writeln!(
        shown,
        "no answer  within {}: {}",
        words::duration(provider.timeout()),
        on_timeout(&provider, context.config.sender.on_unknown)
    );
    shown.push_str(&supported(&provider));
    for source in &sources {
        let is_set = if source.value.is_some() {
            "set"
        } else {
            "MISSING"
        };
        let _ = writeln!(
            shown,
            "secret     {}: {}, {is_set}",
            source.name, source.place
        );
    }
    shown.push_str(&codes(&provider));
    context.console.data(&shown)?;
    for key in provider.missing() {
        context.console.warn(&format!(
            "`{key}` is not set: nothing can be sent before it is"
        ));
    }
    if sources.iter().any(|source| source.value.is_none()) {
        context
            .console
            .warn("a secret is missing: nothing can be sent before it is set");
    }
    Ok(Exit::Done)
}

fn on_timeout(provider: &Provider, on_unknown: OnUnknown) -> String {
    let capabilities = provider.capabilities();
    let by_operator = on_unknown == OnUnknown::Resend;
    let otherwise = match capabilities.honoured_for() {
        _ if by_operator => "sent again, and may arrive twice".to_owned(),
        Some(span) => format!(
            "sent again with the same reference, which this provider takes only once in {}",
            words::duration(span)
        ),
        None => "unknown and waits for `smsq retry --unknown` or `smsq settle`".to_owned(),
    };
    let Some(lookup) = capabilities.lookup else {
        return format!("the message is {otherwise}");
    };
    let after = words::duration(lookup.after);
    match lookup.absent_after {
        Some(absent) => format!(
            "the message is unknown; this provider is asked for it after {after}, and what it does not \
             know after {} was never accepted and is sent; where it cannot tell, the message is {otherwise}",
            words::duration(absent)
        ),
        None => format!(
            "the message is unknown; this provider is asked for it after {after}; where it cannot tell, the \
             message is {otherwise}"
        ),
    }
}

/// What the vendor can do.
fn supported(provider: &Provider) -> String {
    let capabilities = provider.capabilities();
    let sends = match capabilities.writes {
        Writes::Text => "the text of each message",
        Writes::Template => "a template of the provider's, filled with columns",
    };
    let reference = match capabilities.reference {
        Reference::None => "none is sent along",
        Reference::Echoed => "sent along, for reports",
        Reference::Honoured { .. } => "accepted once",
    };
    let receipts = if capabilities.receipts { "yes" } else { "no" };
    let carried = match provider.most_per_call() {
        1 => "one message a request".to_owned(),
        most => format!("up to {most} messages a request"),
    };
    format!("sends      {sends}, {carried}\nreference  {reference}\nreceipts   {receipts}\n")
}

/// The codes that are known, and what they mean.
fn codes(provider: &Provider) -> String {
    let codes = provider.codes();
    if codes.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    for one in codes {
        let told: Vec<String> = [one.reason, one.advice].into_iter().flatten().collect();
        table.add_row([one.code, one.class.to_owned(), told.join(": ")]);
    }
    let lines = table.trim_fmt();
    let lines = lines.lines().map(|line| format!("  {}\n", line.trim()));
    format!("codes\n{}", lines.collect::<String>())
}

fn counted(provider: &Provider) -> &'static str {
    if provider.rates_count_segments() {
        "segments"
    } else {
        "messages"
    }
}
