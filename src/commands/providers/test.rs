//! `smsq providers test`: sends one real message, and prints request and response without secrets.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use serde_json::json;
use smsq_message::phone::Region;
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::route::Route;
use smsq_message::sms::{Outcome, Timestamp};
use smsq_message::text::{duration, segments};
use smsq_process::exit::Exit;
use smsq_provider::client::Client;
use smsq_provider::{
    AwaitedMessage, Message, Provider, PullShape, ReceiptCursor, ReceiptPage, ReceiptPath,
    ReceiptPull, ReceiptQuery, RequestContext,
};
use smsq_store::{Access, SinglePermit, SingleRequest, Store, StoreErrorKind};
use tokio::time::Instant;

use crate::commands::values::span;
use crate::commands::{Context, with_hint};

/// How much of a body is shown, in bytes.
const SHOWN_BODY: usize = 4_096;

/// How long before its start a permit is taken.
const PERMIT_AHEAD: Duration = Duration::from_secs(1);
/// How often a permit is asked for.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The clocks of this machine and of the provider differ by less than this.
const MARGIN: Duration = Duration::from_secs(600);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The provider
    name: String,
    /// The recipient: your own phone
    #[arg(long, value_name = "PHONE")]
    to: String,
    /// The text of the message
    #[arg(long, value_name = "TEXT", default_value = "smsq: this is a test message")]
    text: String,
    /// The sender that the recipient sees
    #[arg(long, value_name = "SENDER")]
    from: Option<String>,
    /// A column for the provider's template; repeatable
    #[arg(long = "param", value_name = "COLUMN=VALUE", value_parser = parameter)]
    params: Vec<(String, String)>,
    /// How long to wait for the delivery receipt, where the provider lists receipts; 0s: not at all
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1min")]
    wait: Duration,
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
    if args.from.is_none() && provider.needs_sender() {
        return Err(smsq_operations::sender_needed(name).into());
    }
    let shown = super::to_show(context, name);
    let params = args.params.iter();
    let phone = context.phone(&args.to, args.region)?;
    let from = args.from.clone().or_else(|| provider.pool_sender(&phone));
    if let (None, Some(pool)) = (&from, provider.senders()) {
        let problem = Route::of_pool(Arc::clone(pool)).no_sender(phone.as_str());
        return Err(with_hint(problem, "add one to `senders`, or name one with `--from`"));
    }
    let message = [Message {
        from,
        phone,
        content: args.text.clone(),
        reference: format!("test-{:032x}", rand::random::<u128>() >> 16),
        params: params.map(|(column, value)| (column.clone(), value.as_str().into())).collect(),
    }];
    let request_context = RequestContext {
        now: Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()),
        nonce: rand::random(),
    };
    if let Some(text) = provider.preview(&message[0]) {
        console.status(&format!("text as the recipient sees it: {text}"));
    }
    if let Ok(provider) = shown
        && let Ok(request) = provider.request(&message, &request_context)
    {
        let head = format!("{} {}", request.method(), request.uri());
        console.status(&exchange('>', &head, request.headers(), request.body()));
    }
    let mut status = None;
    let outcome = match provider.request(&message, &request_context) {
        Err(outcome) => outcome,
        Ok(request) => match send(context, &provider, &message[0], request).await? {
            Err(outcome) => outcome,
            Ok(response) => {
                let head = response.status().to_string();
                let shown = exchange('<', &head, response.headers(), response.body());
                console.status(&provider.hide_secrets(&shown));
                status = Some(response.status().as_u16());
                provider.parse(&message, &response, &request_context).remove(0)
            }
        },
    };
    let receipt = match &outcome {
        Outcome::Accepted(acceptance) if provider.pull().is_some() && !args.wait.is_zero() => {
            let sent = TestMessage {
                message: &message[0],
                message_id: acceptance.message_id.as_deref(),
                at: request_context.now,
            };
            await_receipt(args, context, &provider, &sent).await?
        }
        _ => None,
    };
    print(context, name, status, &outcome, receipt.as_ref())?;
    Ok(match outcome {
        Outcome::Accepted(_) | Outcome::Duplicate(_) => Exit::Done,
        _ => Exit::Incomplete,
    })
}

/// Sends the request within the limits that all workers share.
async fn send(
    context: &Context,
    provider: &Provider,
    message: &Message,
    request: Request<Bytes>,
) -> anyhow::Result<Result<Response<Bytes>, Outcome>> {
    let client = Client::new(provider)?;
    // Before the permit, which is for the start of the request. What is wrong with it, the request says.
    drop(client.try_connection().await);
    if !provider.rates().0.is_empty() || provider.senders().is_some() {
        match context.configured_store(Access::Existing).await {
            Ok(store) => await_permit(context, &store, provider, message).await?,
            Err(error)
                if matches!(error.kind(), StoreErrorKind::Missing | StoreErrorKind::NoTables) =>
            {
                let note = "there is no database: nothing else counts towards the rate limit";
                context.console.status(note);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(client.send(request).await)
}

/// Takes a permit, and waits for its start.
async fn await_permit(
    context: &Context,
    store: &Store,
    provider: &Provider,
    message: &Message,
) -> anyhow::Result<()> {
    let text = provider.preview(message);
    let text = text.as_deref().unwrap_or(&message.content);
    let from = message.from.as_deref();
    let pool = provider.senders();
    let request = SingleRequest {
        account: provider.account(),
        rates: provider.rates(),
        sender: from.and_then(|from| Some(&**pool?.sender(from)?)),
        by_segments: provider.rates_count_segments(),
        segments: segments::count(text).count,
    };
    let mut is_told = false;
    loop {
        let wait = match store.take_permit(request, PERMIT_AHEAD).await?? {
            SinglePermit::Taken(wait) => {
                tokio::time::sleep(wait).await;
                return Ok(());
            }
            SinglePermit::NotBefore(wait) => wait,
        };
        if !is_told {
            let (account, left) = (provider.account(), duration(wait));
            let limit = match provider.rates().0.as_slice() {
                [] => "a limit".to_owned(),
                _ => format!("the limit of {}", provider.rates()),
            };
            context.console.status(&format!(
                "waiting {left} for {limit} of account `{account}`, or for a pause that it asked for"
            ));
            is_told = true;
        }
        tokio::time::sleep(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)).await;
    }
}

fn print(
    context: &Context,
    name: &str,
    status: Option<u16>,
    outcome: &Outcome,
    receipt: Option<&Receipt>,
) -> anyhow::Result<()> {
    let word = match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Duplicate(_) => "accepted before",
        Outcome::Rejected(_) | Outcome::BatchRejected(_) => "rejected",
        Outcome::Throttled { .. } => "throttled",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Unavailable { .. } => "unavailable",
        Outcome::Unknown(_) => "unknown",
        Outcome::AccountError { .. } => "account error",
    };
    let details = match outcome {
        Outcome::Accepted(acceptance) | Outcome::Duplicate(acceptance) => json!(acceptance),
        failed => json!(failed.failure()),
    };
    let mut object = json!({ "provider": name, "outcome": word, "status": status });
    for (key, value) in details.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    let detail = |key: &str, before: &str| {
        let text = details[key].as_str();
        text.map(|text| format!("{before}{text}")).unwrap_or_default()
    };
    if let Some(receipt) = receipt {
        object["receipt"] = json!({
            "state": receipt.state,
            "failure": receipt.failure,
            "at": receipt.at.map(|at| at.to_string()),
        });
    }
    let mut text = match outcome.failure() {
        None => format!("accepted by `{name}`{}\n", detail("message_id", " as ")),
        Some(failure) => {
            format!("{word}: {} ({}{})\n", failure.reason, failure.class, detail("code", ", code "))
        }
    };
    if let Some(receipt) = receipt {
        let why = receipt.failure.as_ref().map(|failure| {
            let code = failure.code.as_deref().unwrap_or("without a code");
            format!(": {} ({}, code {code})", failure.reason, failure.class)
        });
        let _ = writeln!(text, "{}{}", receipt.state, why.unwrap_or_default());
    }
    context.print(&text, &object)
}

/// The test message, as its receipt is searched for.
struct TestMessage<'a> {
    message: &'a Message,
    message_id: Option<&'a str>,
    at: Timestamp,
}

impl TestMessage<'_> {
    fn is_its(&self, receipt: &Receipt) -> bool {
        let by_reference = receipt.reference.as_ref() == Some(&self.message.reference);
        let by_id =
            receipt.message_id.is_some() && receipt.message_id.as_deref() == self.message_id;
        by_reference || by_id
    }
}

/// Waits for the receipt that says what became of the message. Receipts of other messages that the provider returns only
/// once go into the database.
async fn await_receipt(
    args: &Args,
    context: &Context,
    provider: &Provider,
    sent: &TestMessage<'_>,
) -> anyhow::Result<Option<Receipt>> {
    let Some(pull) = provider.pull() else {
        return Ok(None);
    };
    let store = match pull.source.shape {
        PullShape::Drain => {
            let Ok(store) = context.open(Access::Existing).await else {
                context.console.status(
                    "its receipt is not fetched: without a database, those of other messages would be lost",
                );
                return Ok(None);
            };
            Some(store)
        }
        _ => None,
    };
    let spans = pull.source.rate.0.iter();
    let spacing = spans.map(|rate| rate.window / rate.limit.get()).max();
    let spacing = spacing.unwrap_or_default().max(Duration::from_secs(1));
    let client = Client::new(provider)?;
    let wait = duration(args.wait);
    context.console.status(&format!("waiting for its receipt, for up to {wait}"));
    let until = Instant::now() + args.wait;
    loop {
        let mut page = ReceiptCursor::default();
        loop {
            let found = match fetch_page(provider, pull, &client, sent, &page).await {
                Ok(found) => found,
                Err(outcome) => {
                    let reason = outcome.failure().map(|failure| failure.reason.clone());
                    let reason = reason.unwrap_or_default();
                    context.console.warn(&format!("its receipt cannot be fetched: {reason}"));
                    return Ok(None);
                }
            };
            if let Some(store) = &store {
                let now = store.now().await?;
                store.receipts().add(provider.name(), &found.receipts, now).await?;
            }
            let is_final = |receipt: &&Receipt| {
                sent.is_its(receipt)
                    && !matches!(receipt.state, ReceiptState::Accepted | ReceiptState::Unlisted)
            };
            if let Some(receipt) = found.receipts.iter().find(is_final) {
                return Ok(Some(receipt.clone()));
            }
            match found.next {
                Some(next) if Instant::now() < until => page = next,
                _ => break,
            }
            tokio::time::sleep(spacing.min(Duration::from_secs(60))).await;
        }
        if Instant::now() + spacing > until {
            context.console.status(&format!("no receipt came in {wait}; it may come later"));
            return Ok(None);
        }
        tokio::time::sleep(spacing).await;
    }
}

/// Fetches one page of receipts, or the message's own.
async fn fetch_page(
    provider: &Provider,
    pull: &ReceiptPull,
    client: &Client,
    sent: &TestMessage<'_>,
    page: &ReceiptCursor,
) -> Result<ReceiptPage, Outcome> {
    let now = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
    let context = RequestContext { now, nonce: rand::random() };
    let asked = AwaitedMessage {
        phone: &sent.message.phone,
        reference: &sent.message.reference,
        message_id: sent.message_id,
        sent_at: sent.at,
    };
    let query = match pull.source.shape {
        PullShape::Ask => ReceiptQuery::Message(&asked),
        PullShape::Drain | PullShape::Sweep => {
            ReceiptQuery::Page { since: sent.at.minus(MARGIN), until: now.plus(MARGIN), page }
        }
    };
    let request = provider.receipts(ReceiptPath::Pull, &query, &context)?;
    let response = client.send(request).await?;
    provider.parse_receipts(ReceiptPath::Pull, &query, &response, &context)
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
