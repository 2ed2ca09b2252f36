//! `smsq providers test`: sends one real message, and prints request and response without secrets.

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use crate::commands::Context;
use crate::exit::Exit;
use crate::phone::Region;
use crate::provider::client::Client;
use crate::provider::{Message, RequestContext};
use crate::sms::{Outcome, Timestamp};

/// How much of a body is shown, in bytes.
const SHOWN_BODY: usize = 4_096;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The provider
    name: String,
    /// The recipient: your own phone
    #[arg(long, value_name = "PHONE")]
    to: String,
    /// The text of the message
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "smsq: this is a test message"
    )]
    text: String,
    /// The sender that the recipient sees
    #[arg(long, value_name = "SENDER")]
    from: Option<String>,
    /// A column for the provider's template; repeatable
    #[arg(long = "param", value_name = "COLUMN=VALUE", value_parser = parameter)]
    params: Vec<(String, String)>,
    /// The country of a number without a country code, such as GB
    #[arg(long)]
    region: Option<Region>,
}

fn parameter(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((column, value)) if !column.is_empty() => Ok((column.to_owned(), value.to_owned())),
        _ => Err("write it as COLUMN=VALUE"),
    }
}

pub(super) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (name, console) = (args.name.as_str(), &context.console);
    let provider = context.provider(name)?;
    let without_secrets = super::without_secrets(context, name)?;
    let params = args.params.iter();
    let message = [Message {
        phone: context.phone(&args.to, args.region)?,
        content: args.text.clone(),
        reference: format!("test-{:032x}", rand::random::<u128>() >> 16),
        from: args.from.clone(),
        params: params
            .map(|(column, value)| (column.clone(), value.as_str().into()))
            .collect(),
    }];
    let request_context = RequestContext {
        now: Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()),
        nonce: rand::random(),
    };
    if let Some(text) = provider.preview(&message[0]) {
        console.status(&format!("text as the recipient sees it: {text}"));
    }
    if let Ok(request) = without_secrets.request(&message, &request_context) {
        let head = format!("{} {}", request.method(), request.uri());
        console.status(&exchange('>', &head, request.headers(), request.body()));
    }
    let mut status = None;
    let outcome = match provider.request(&message, &request_context) {
        Err(outcome) => outcome,
        Ok(request) => match Client::new(&provider, 1)?.send(request).await {
            Err(outcome) => outcome,
            Ok(response) => {
                let head = response.status().to_string();
                let shown = exchange('<', &head, response.headers(), response.body());
                console.status(&provider.hide_secrets(&shown));
                status = Some(response.status().as_u16());
                provider
                    .parse(&message, &response, &request_context)
                    .remove(0)
            }
        },
    };
    print(context, name, status, &outcome)?;
    Ok(match outcome {
        Outcome::Accepted(_) => Exit::Done,
        _ => Exit::Incomplete,
    })
}

fn print(
    context: &Context,
    name: &str,
    status: Option<u16>,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    let word = match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Rejected(_) | Outcome::BatchRejected(_) => "rejected",
        Outcome::Throttled { .. } => "throttled",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Unavailable { .. } => "unavailable",
        Outcome::Unknown(_) => "unknown",
        Outcome::AccountError { .. } => "account error",
    };
    let details = match outcome {
        Outcome::Accepted(acceptance) => json!(acceptance),
        failed => json!(failed.failure()),
    };
    let mut object = json!({ "provider": name, "outcome": word, "status": status });
    for (key, value) in details.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    let detail = |key: &str, before: &str| {
        let text = details[key].as_str();
        text.map(|text| format!("{before}{text}"))
            .unwrap_or_default()
    };
    let text = match outcome.failure() {
        None => format!("accepted by `{name}`{}\n", detail("message_id", " as ")),
        Some(failure) => format!(
            "{word}: {} ({}{})\n",
            failure.reason,
            failure.class,
            detail("code", ", code ")
        ),
    };
    context.print(&text, &object)
}

/// A request or a response, each line after `mark`.
fn exchange(mark: char, head: &str, headers: &HeaderMap, body: &Bytes) -> String {
    let mut shown = format!("{mark} {head}\n");
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let _ = writeln!(shown, "{mark} {name}: {value}");
    }
    let body = &body[..body.len().min(SHOWN_BODY)];
    for line in String::from_utf8_lossy(body).lines() {
        let _ = writeln!(shown, "{mark} {line}");
    }
    shown.trim_end().to_owned()
}
