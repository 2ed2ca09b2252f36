//! Helpers for tests of providers: tables of messages with their requests, and of answers with their outcomes.

use bytes::Bytes;
use http::{Request, Response};
use jiff::fmt::rfc2822::DateTimePrinter;
use smsq_message::phone::Phone;
use smsq_message::sms::{Acceptance, Class, Failure, Outcome, Timestamp};

use super::capabilities::{AttemptSpan, LookupResponses, LookupResult};
use super::config::section::ProviderError;
use super::receipts::PullShape;
use super::registry::builtin;
use super::{Message, Provider, RequestContext};

/// One row of a table. A `request` of `None` is not checked.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) message: Message,
    pub(super) context: RequestContext,
    /// Method and url, headers that must be there, and the body.
    pub(super) request: Option<Expected>,
    pub(super) response: Response<Bytes>,
    pub(super) outcome: Outcome,
}

pub(super) struct Expected {
    pub(super) line: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: &'static str,
}

/// The case of a plain message.
pub(super) fn case(name: &'static str, response: Response<Bytes>, outcome: Outcome) -> Case {
    Case { name, message: message(), context: context(), request: None, response, outcome }
}

pub(super) fn check(provider: &Provider, cases: Vec<Case>) {
    for case in cases {
        let name = case.name;
        let messages = [case.message];
        if let Some(expected) = case.request {
            let request = provider
                .request(&messages, &case.context)
                .unwrap_or_else(|outcome| panic!("{name}: {outcome:?}"));
            check_request(name, &request, &expected);
        }
        let mut outcomes = provider.parse(&messages, &case.response, &case.context);
        if let [Outcome::Accepted(acceptance) | Outcome::Duplicate(acceptance)] = &mut outcomes[..]
        {
            let awaits = provider.awaits_receipts();
            assert_eq!(acceptance.awaits_receipt, awaits, "{name}");
            acceptance.awaits_receipt = false;
        }
        assert_eq!(outcomes, [case.outcome], "{name}");
    }
}

fn check_request(name: &str, request: &Request<Bytes>, expected: &Expected) {
    let line = format!("{} {}", request.method(), request.uri());
    assert_eq!(line, expected.line, "{name}");
    for (header, value) in expected.headers {
        let found = request.headers().get(*header);
        let found = found.map(http::HeaderValue::as_bytes);
        assert_eq!(found, Some(value.as_bytes()), "{name}: {header}");
    }
    let body = String::from_utf8_lossy(request.body());
    assert_eq!(body, expected.body, "{name}");
}

pub(super) fn message() -> Message {
    let params = serde_json::json!({ "name": "Anna & \"Bob\"", "order": "4711" });
    Message {
        phone: Phone::parse("+8613812345678", None).expect("a phone"),
        content: "Hello Anna, 你好 & \"bye\"\n".to_owned(),
        reference: "ref-1".to_owned(),
        from: None,
        params: params.as_object().expect("an object").clone(),
    }
}

pub(super) fn context() -> RequestContext {
    RequestContext { now: Timestamp::from_millis(1_700_000_000_000), nonce: 7 }
}

pub(super) fn response(status: u16, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}

pub(super) fn accepted(id: &str, segments: Option<i32>) -> Outcome {
    Outcome::Accepted(Acceptance {
        message_id: Some(id.to_owned()),
        segments,
        price: None,
        awaits_receipt: false,
    })
}

/// An answer that leaves it open whether the message was accepted.
pub(super) fn unknown(reason: &str) -> Outcome {
    Outcome::Unknown(unclear_answer(reason))
}

pub(super) fn unclear_answer(reason: &str) -> Failure {
    Failure { is_answer: true, ..Failure::new(Class::Unknown, reason) }
}

/// Reads the section in `source`, with the environment variable `TOKEN`.
pub(super) fn read(source: &str) -> Result<Provider, String> {
    let environment = |name: &str| (name == "TOKEN").then(|| "hunter2".to_owned());
    read_with(source, &environment).map_err(|error| error.to_string())
}

pub(super) fn read_with(
    source: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Provider, ProviderError> {
    let section: toml::Table = source.parse().expect("toml");
    Provider::from_section("cellar", &section, environment)
}

/// The built-in vendor with `more` in its section; each secret is the name of its variable.
pub(super) fn vendor(kind: &str, more: &str) -> Provider {
    let section: toml::Table = format!("kind = '{kind}'\n{more}").parse().expect("toml");
    let environment = |name: &str| Some(name.to_owned());
    Provider::from_section("cellar", &section, &environment)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// What a vendor posts, and answers to requests for receipts: `config/providers/NAME.example.toml`.
#[derive(serde::Deserialize)]
pub(super) struct Example {
    #[serde(default)]
    pub(super) posted: Vec<PostedExample>,
    #[serde(default)]
    pub(super) fetched: Vec<FetchedExample>,
}

/// A request that is written like HTTP, and the receipts and replies in it.
#[derive(serde::Deserialize)]
pub(super) struct PostedExample {
    pub(super) request: String,
    pub(super) reads: Vec<String>,
}

/// The request for the first page of receipts, and the receipts in its answer.
#[derive(serde::Deserialize)]
pub(super) struct FetchedExample {
    #[serde(default)]
    pub(super) recheck: bool,
    pub(super) shape: PullShape,
    #[serde(default)]
    pub(super) settings: String,
    /// Method, URL and body.
    pub(super) request: String,
    pub(super) body: String,
    pub(super) reads: Vec<String>,
    /// Method, URL and body of the request for the page after it.
    pub(super) next_request: Option<String>,
}

/// The examples of all vendors that have a file of examples.
pub(super) fn examples() -> impl Iterator<Item = (&'static str, Example)> {
    builtin().iter().filter_map(|(kind, _)| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/providers");
        let text = std::fs::read_to_string(format!("{folder}/{kind}.example.toml")).ok()?;
        let example = toml::from_str(&text).unwrap_or_else(|error| panic!("{kind}: {error}"));
        Some((*kind, example))
    })
}

/// Messages to `count` mainland numbers, each with its own reference.
pub(super) fn messages(count: u32) -> Vec<Message> {
    let one = |at: u32| Message {
        phone: Phone::parse(&format!("+86138123456{:02}", 78 + at), None).expect("a phone"),
        reference: format!("ref-{}", at + 1),
        ..message()
    };
    (0..count).map(one).collect()
}

/// Whether `next` can share a request with `batch`.
pub(super) fn joins(provider: &Provider, batch: &[Message], next: &Message) -> bool {
    let key = provider.batch_key(next);
    batch.is_empty()
        || (batch.len() < provider.max_batch()
            && key.is_some()
            && batch
                .iter()
                .all(|message| message.phone != next.phone && provider.batch_key(message) == key))
}

/// Method, url, headers and body of a request, line by line.
pub(super) fn request_text(request: &Request<Bytes>) -> String {
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        text.extend([name.as_str(), ": ", &value, "\n"]);
    }
    text + &String::from_utf8_lossy(request.body())
}

/// Checks that the request for `messages` contains all `parts`.
pub(super) fn assert_request(provider: &Provider, messages: &[Message], parts: &[&str]) {
    let request = provider.request(messages, &context());
    assert_contains(&request.unwrap_or_else(|outcome| panic!("{outcome:?}")), parts);
}

pub(super) fn assert_contains(request: &Request<Bytes>, parts: &[&str]) {
    let text = request_text(request);
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}

/// The word of a message whose whole batch was rejected.
pub(super) const BATCH_REJECTED: &str = "batch_rejected";

/// The class of each outcome, or `accepted` with the id.
pub(super) fn words(
    provider: &Provider,
    messages: &[Message],
    status: u16,
    body: &str,
) -> Vec<String> {
    let outcomes = provider.parse(messages, &response(status, body.to_owned()), &context());
    outcomes.iter().map(word).collect()
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Accepted(acceptance) => match &acceptance.message_id {
            Some(id) => format!("accepted {id}"),
            None => "accepted".to_owned(),
        },
        Outcome::Duplicate(acceptance) => match &acceptance.message_id {
            Some(id) => format!("duplicate {id}"),
            None => "duplicate".to_owned(),
        },
        Outcome::AccountError { listed: false, .. } => "unlisted_account".to_owned(),
        Outcome::BatchRejected(_) => BATCH_REJECTED.to_owned(),
        Outcome::Rejected(failure)
        | Outcome::Unknown(failure)
        | Outcome::Throttled { failure, .. }
        | Outcome::Deferred { failure, .. }
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => failure.class.as_str().to_owned(),
    }
}

/// Checks the outcomes of answers to one message.
pub(super) fn assert_outcomes(provider: &Provider, table: &[(u16, &str, &str)]) {
    for (status, body, expected) in table {
        let words = words(provider, &[message()], *status, body);
        assert_eq!(words, [*expected], "{status} {body}");
    }
}

/// The circumstances of a status lookup.
#[derive(Clone, Copy)]
pub(super) struct LookupCase<'a> {
    /// After the attempt.
    pub(super) minutes: u64,
    /// Seconds by which the vendor's clock is ahead; `None`: the answer has no date.
    pub(super) ahead: Option<i64>,
    /// No earlier attempt may have been accepted.
    pub(super) alone: bool,
    /// Ids of other messages to the phone.
    pub(super) others: &'a [&'a str],
    /// The texts of other messages to the phone that are not settled.
    pub(super) unsettled: &'a [&'a str],
    /// The references of attempts that were answered as not accepted.
    pub(super) refused: &'a [&'a str],
    /// Another header of the answers.
    pub(super) header: Option<(&'static str, &'static str)>,
}

/// With equal clocks.
pub(super) fn lookup_case(minutes: u64) -> LookupCase<'static> {
    LookupCase {
        minutes,
        ahead: Some(0),
        alone: true,
        others: &[],
        unsettled: &[],
        refused: &[],
        header: None,
    }
}

/// An attempt that started at the time of [`context`].
pub(super) fn attempt() -> AttemptSpan {
    AttemptSpan { started_after: context().now, started_before: Some(context().now), is_only: true }
}

/// The result of a lookup this long after the attempt.
pub(super) fn lookup_result(provider: &Provider, minutes: u64, status: u16, body: &str) -> String {
    lookup_results(provider, lookup_case(minutes), &[(status, body)])
}

/// The result of all answers to a lookup.
pub(super) fn lookup_results(
    provider: &Provider,
    case: LookupCase<'_>,
    answers: &[(u16, &str)],
) -> String {
    let sent_at = context().now;
    let asked_at = sent_at.plus(std::time::Duration::from_secs(60 * case.minutes));
    let dated = |(status, body): &(u16, &str)| {
        let mut response = response(*status, (*body).to_owned());
        if let Some(ahead) = case.ahead {
            let seconds = asked_at.as_millis() / 1_000 + ahead;
            let date = jiff::Timestamp::from_second(seconds).expect("an instant");
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date);
            let date = date.expect("a date").parse().expect("a header");
            response.headers_mut().insert("date", date);
        }
        if let Some((name, value)) = case.header {
            let value = http::HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    };
    let responses: Vec<Response<Bytes>> = answers.iter().map(dated).collect();
    let unsettled = case.unsettled.iter().map(|text| (*text).to_owned());
    let unsettled: Vec<String> = unsettled.collect();
    let others = case.others.iter().map(|id| (*id).to_owned()).collect();
    let answers = LookupResponses {
        responses: &responses,
        asked_at,
        others: &others,
        unsettled: &unsettled,
        refused: &case.refused.iter().map(|reference| (*reference).to_owned()).collect::<Vec<_>>(),
    };
    let mut attempt = attempt();
    attempt.started_before = attempt.started_before.filter(|_| case.alone);
    match provider.parse_lookup(&message(), attempt, &answers) {
        LookupResult::Found(acceptance) => {
            format!("found {}", acceptance.message_id.unwrap_or_default())
        }
        LookupResult::FoundRefused { reference, .. } => format!("found refused {reference}"),
        LookupResult::NotAccepted(outcome) => word(&outcome),
        LookupResult::Absent => "absent".to_owned(),
        LookupResult::TooSoon(left) => format!("too soon by {} s", left.as_secs()),
        LookupResult::Unclear(_) => "unclear".to_owned(),
    }
}

/// The first request of a lookup.
pub(super) fn lookup_request(provider: &Provider) -> Request<Bytes> {
    lookup_requests(provider, attempt()).remove(0)
}

pub(super) fn lookup_requests(provider: &Provider, attempt: AttemptSpan) -> Vec<Request<Bytes>> {
    let requests = provider.lookup(&message(), attempt, &context());
    let requests = requests.expect("a lookup");
    requests.unwrap_or_else(|outcome| panic!("{outcome:?}"))
}
