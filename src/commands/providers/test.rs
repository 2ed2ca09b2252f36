//! `smsq providers test`: one real message, and the whole exchange with its secrets hidden.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use serde_json::json;

use super::masked;
use crate::commands::Context;
use crate::exit::Exit;
use crate::phone::Region;
use crate::provider::client::Client;
use crate::provider::{Message, Provider, RequestContext};
use crate::sms::{Outcome, Timestamp};

/// So much of an answer is shown.
const SHOWN_BODY: usize = 4_096;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which provider
    name: String,
    /// Who gets the message: your own phone
    #[arg(long, value_name = "PHONE")]
    to: String,
    /// What it says
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "smsq: this is a test message"
    )]
    text: String,
    /// The sender that the recipient sees
    #[arg(long, value_name = "SENDER")]
    from: Option<String>,
    /// Fills a parameter of the provider's template: the column and its value
    #[arg(long = "param", value_name = "COLUMN=VALUE", value_parser = column)]
    params: Vec<(String, String)>,
    /// Where a number without a country code is at home, like GB
    #[arg(long)]
    region: Option<Region>,
}

fn column(text: &str) -> Result<(String, String), String> {
    let (column, value) = text
        .split_once('=')
        .filter(|(column, _)| !column.is_empty())
        .ok_or("write it as COLUMN=VALUE")?;
    Ok((column.to_owned(), value.to_owned()))
}

pub(super) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let provider = context.provider(&args.name)?;
    let stanza = context.stanza(&args.name)?;
    let sources = masked::sources(stanza, context);
    let twin = masked::provider(&args.name, &masked::stanza(stanza))?;
    let message = [Message {
        phone: context.phone(&args.to, args.region)?,
        content: args.text.clone(),
        reference: format!("test-{:032x}", rand::random::<u128>() >> 16),
        from: args.from.clone(),
        params: args
            .params
            .iter()
            .map(|(column, value)| (column.clone(), value.as_str().into()))
            .collect(),
    }];
    let stamp = RequestContext {
        now: Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()),
        nonce: rand::random(),
    };
    if let Some(Ok(text)) = provider.preview(&message[0]) {
        context
            .console
            .say(&format!("the recipient will see: {text}"));
    }
    let mut answered = None;
    let outcome = match provider.request(&message, &stamp) {
        Err(outcome) => outcome,
        Ok(request) => {
            if let Ok(request) = twin.request(&message, &stamp) {
                context.console.say(&shown_request(&request));
            }
            match Client::new(&provider, 1)?.send(request).await {
                Err(outcome) => outcome,
                Ok(response) => {
                    let text = masked::text(shown_response(&response), &sources, &provider);
                    context.console.say(&text);
                    answered = Some(response.status().as_u16());
                    let mut outcomes = provider.answer(&message, &response, &stamp);
                    outcomes.remove(0)
                }
            }
        }
    };
    tell(context, &provider, answered, &outcome)?;
    Ok(match outcome {
        Outcome::Accepted(_) => Exit::Done,
        _ => Exit::Incomplete,
    })
}

fn tell(
    context: &Context,
    provider: &Provider,
    status: Option<u16>,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    let (word, failure) = match outcome {
        Outcome::Accepted(acceptance) => {
            let said = match &acceptance.message_id {
                Some(id) => format!("accepted by `{}` as {id}\n", provider.name()),
                None => format!("accepted by `{}`\n", provider.name()),
            };
            if context.is_json() {
                context.print_json(&json!({
                    "provider": provider.name(), "outcome": "accepted", "status": status,
                    "message_id": acceptance.message_id, "segments": acceptance.segments,
                    "price": acceptance.price,
                }))?;
            } else {
                context.console.data(&said)?;
            }
            return Ok(());
        }
        Outcome::Rejected(failure) | Outcome::BatchRejected(failure) => ("rejected", failure),
        Outcome::Throttled { failure, .. } => ("throttled", failure),
        Outcome::Deferred { failure, .. } => ("capped", failure),
        Outcome::Unavailable { failure, .. } => ("unavailable", failure),
        Outcome::Unknown(failure) => ("unknown", failure),
        Outcome::AccountError { failure, .. } => ("refused", failure),
    };
    if context.is_json() {
        return context.print_json(&json!({
            "provider": provider.name(), "outcome": word, "status": status,
            "class": failure.class, "code": failure.code, "reason": failure.reason,
        }));
    }
    let code = match &failure.code {
        Some(code) => format!(", code {code}"),
        None => String::new(),
    };
    let said = format!("{word}: {} ({}{code})\n", failure.reason, failure.class);
    Ok(context.console.data(&said)?)
}

fn shown_request(request: &Request<Bytes>) -> String {
    let head = format!("> {} {}\n", request.method(), request.uri());
    head + &shown_message('>', request.headers(), request.body())
}

fn shown_response(response: &Response<Bytes>) -> String {
    let head = format!("< {}\n", response.status());
    head + &shown_message('<', response.headers(), response.body())
}

fn shown_message(mark: char, headers: &HeaderMap, body: &Bytes) -> String {
    let mut shown = String::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let _ = writeln!(shown, "{mark} {name}: {value}");
    }
    let cut = &body[..body.len().min(SHOWN_BODY)];
    for line in String::from_utf8_lossy(cut).lines() {
        let _ = writeln!(shown, "{mark} {line}");
    }
    shown.trim_end().to_owned()
}
