//! `smsq providers show`: a provider's settings, limits and secrets.

use std::fmt::Write as _;

use serde_json::json;

use super::masked;
use crate::commands::{Context, words};
use crate::exit::Exit;
use crate::provider::Provider;
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
            "secrets": sources.iter().map(masked::Source::json).collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    let mut settings = masked;
    settings.remove("secrets");
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
    context.console.data(&shown)?;
    if sources.iter().any(|source| source.value.is_none()) {
        context
            .console
            .warn("a secret is missing: nothing can be sent before it is set");
    }
    Ok(Exit::Done)
}

fn on_timeout(provider: &Provider, on_unknown: OnUnknown) -> &'static str {
    match (provider.honours_reference(), on_unknown) {
        (true, _) => {
            "the message is sent again with the same reference, and this provider takes it only once"
        }
        (false, OnUnknown::Hold) => {
            "the message is unknown and waits for `smsq retry --unknown` or `smsq settle`"
        }
        (false, OnUnknown::Resend) => "the message is sent again, and may arrive twice",
    }
}

fn counted(provider: &Provider) -> &'static str {
    if provider.rates_count_segments() {
        "segments"
    } else {
        "messages"
    }
}
