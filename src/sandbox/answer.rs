//! Decides how the gateway responds to a message or a list of messages, without I/O.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shared;
use super::counters::{self, Arrival, Counters};
use super::faults::{Fault, mix, unit_interval};
use super::log::LogEvent;

/// The body of `POST /messages`, or one item of a list.
#[derive(Deserialize)]
struct SendRequest<'a> {
    #[serde(borrow)]
    to: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    reference: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
}

impl SendRequest<'_> {
    fn digits(&self) -> &str {
        self.to.strip_prefix('+').unwrap_or(&self.to)
    }
}

/// How a request is answered.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) retry_after: Option<Duration>,
    /// The delay before it is sent.
    pub(super) wait: Duration,
    pub(super) mode: ResponseMode,
}

/// How much of a response is sent; for a list, the greatest mode counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResponseMode {
    Whole,
    /// A router's 503 in place of the response.
    Replaced,
    /// Half of the body.
    Cut,
    /// The connection is closed without a response.
    None,
}

/// The prefix of the numbers that trigger faults; four digits follow. They are in a range of personal numbers, which
/// are not mobile phones.
const RESERVED: &str = "1500555";

/// The defaults of the faults file.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const SLOW_FOR: Duration = Duration::from_secs(15);
const EARLY_FOR: Duration = Duration::from_millis(300);

/// The longest list.
const MAX_LIST: usize = 1_000;

/// A message, or why it is rejected before any fault.
type Parsed<'a> = Result<SendRequest<'a>, Answer>;

/// Responds to the message or the list of messages in `body`.
pub(super) fn respond(state: &Shared, body: &[u8]) -> Answer {
    let (messages, is_list) = parse_body(body);
    let mut counters = state.counters();
    // Read under the lock, so that arrivals are in order.
    let now = Instant::now();
    let arrival = counters.arrive(messages.len(), now);
    let mut answer = match fault_for_all(state, &arrival) {
        Some(fault) => fault,
        None if is_list => decide_all(state, &mut counters, &messages, &arrival, now),
        None => decide(state, &mut counters, &messages[0], arrival.number, now),
    };
    drop(counters);
    if let Some(outage) = arrival.refuse {
        state.refuse.send_replace(outage);
    }
    if answer.mode == ResponseMode::Replaced {
        answer.status = 503;
        answer.body = json!({ "message": "no healthy upstream" });
    }
    answer.wait += state.config.latency;
    if !state.config.jitter.is_zero() {
        let part = unit_interval(mix(arrival.number ^ mix(!state.config.faults.seed)));
        answer.wait += state.config.jitter.mul_f64(part);
    }
    answer
}

/// Logs the messages in `body`.
pub(super) fn log_arrival(state: &Shared, body: &[u8]) {
    let Some(log) = &state.log else { return };
    let now = Instant::now();
    for message in parse_body(body).0.iter().flatten() {
        let arrived = LogEvent::Arrived {
            to: &message.to,
            reference: message.reference.as_deref(),
            from: message.from.as_deref(),
        };
        log.write(now, arrived);
    }
}

/// The messages in `body`, and whether they are a list.
fn parse_body(body: &[u8]) -> (Vec<Parsed<'_>>, bool) {
    if !body.trim_ascii_start().starts_with(b"[") {
        return (vec![parse_message(body)], false);
    }
    match serde_json::from_slice::<Vec<&RawValue>>(body) {
        Ok(list) if (1..=MAX_LIST).contains(&list.len()) => {
            let messages = list.iter().map(|item| parse_message(item.get().as_bytes()));
            (messages.collect(), true)
        }
        _ => {
            let detail = "a list of 1 to 1000 messages is needed";
            (vec![Err(error(400, "bad_request", detail))], false)
        }
    }
}

/// Decides on a list: a result for each message. A fault of one that delays, cuts or prevents the response applies to
/// the whole list.
fn decide_all(
    state: &Shared,
    counters: &mut Counters,
    messages: &[Parsed<'_>],
    arrival: &Arrival,
    now: Instant,
) -> Answer {
    if state.config.all_or_none
        && let Some(rejection) = messages.iter().find_map(rejection)
    {
        return rejection;
    }
    let mut all = answer(200, Value::Null);
    let mut results = Vec::new();
    for (message, number) in messages.iter().zip(arrival.number..) {
        let answer = decide(state, counters, message, number, now);
        all.wait = all.wait.max(answer.wait);
        all.mode = all.mode.max(answer.mode);
        let reference = message.as_ref().ok().and_then(|message| message.reference.as_deref());
        let mut result = json!({ "status": answer.status, "reference": reference });
        if let Some(wait) = answer.retry_after {
            result["retry_after"] = wait.as_secs().into();
        }
        for (key, value) in answer.body.as_object().into_iter().flatten() {
            result[key] = value.clone();
        }
        results.push(result);
    }
    if state.config.faults.is_short(arrival.call) {
        results.truncate(results.len() / 2);
    }
    all.body = results.into();
    all
}

/// Why a message is always rejected.
fn rejection(message: &Parsed<'_>) -> Option<Answer> {
    match message {
        Err(invalid) => Some(invalid.clone()),
        Ok(message) => match reserved(message.digits()) {
            ReservedNumber::Always(answer) if answer.status == 400 => Some(answer),
            _ => None,
        },
    }
}

fn parse_message(body: &[u8]) -> Parsed<'_> {
    let message = match serde_json::from_slice::<SendRequest<'_>>(body) {
        Ok(message) if !message.to.is_empty() && !message.text.is_empty() => message,
        _ => {
            let detail = "`to` and `text` are needed, in JSON";
            return Err(error(400, "bad_request", detail));
        }
    };
    let digits = message.digits();
    if !(5..=15).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(error(400, "invalid_recipient", "not a number"));
    }
    Ok(message)
}

/// Decides on one message.
fn decide(
    state: &Shared,
    counters: &mut Counters,
    message: &Parsed<'_>,
    number: u64,
    now: Instant,
) -> Answer {
    let message = match message {
        Ok(message) => message,
        Err(invalid) => return invalid.clone(),
    };
    let faults = &state.config.faults;
    let reference = message.reference.as_deref().filter(|reference| !reference.is_empty());
    let fault = match reserved(message.digits()) {
        ReservedNumber::None => faults.fault_for(number),
        ReservedNumber::Always(answer) => return answer,
        ReservedNumber::Once(fault) => {
            let is_now = if fault.is_refusal() {
                counters.refuses_now(&message.to, &message.text)
            } else {
                counters.first_time(&message.to, &message.text, reference)
            };
            is_now.then_some(fault)
        }
    };
    match fault {
        Some(Fault::Unavailable) => return overloaded(),
        Some(Fault::Throttle) => return throttled(faults.retry_after.unwrap_or(RETRY_AFTER)),
        _ => {}
    }
    let seed = faults.seed;
    if faults.receipts.rejects(seed, number) {
        counters.reject(&message.to, reference, now);
        let mut answer = answer(500, Value::Null);
        answer.mode = ResponseMode::None;
        return answer;
    }
    let (accepted, is_new) = counters.accept(&message.to, &message.text, reference, now);
    let id = counters::id(accepted);
    if let Some(log) = state.log.as_ref().filter(|_| is_new) {
        let (to, id) = (&*message.to, &*id);
        log.write(now, LogEvent::Accepted { to, reference, id });
    }
    let body = json!({ "id": id, "segments": segments(&message.text) });
    let mut answer = answer(if is_new { 201 } else { 200 }, body);
    if faults.receipts.is_early(seed, accepted) {
        answer.wait = faults.receipts.early_for.unwrap_or(EARLY_FOR);
    }
    match fault {
        Some(Fault::UnavailableAfter) => answer.mode = ResponseMode::Replaced,
        Some(Fault::NoAnswer) => answer.mode = ResponseMode::None,
        Some(Fault::Broken) => answer.mode = ResponseMode::Cut,
        Some(Fault::Slow) => answer.wait = faults.slow_for.unwrap_or(SLOW_FOR),
        _ => {}
    }
    answer
}

/// Faults that apply to every request.
fn fault_for_all(state: &Shared, arrival: &Arrival) -> Option<Answer> {
    let account_from = state.config.faults.account_from;
    if account_from.is_some_and(|from| arrival.last >= from) {
        Some(suspended())
    } else if arrival.outage {
        Some(overloaded())
    } else {
        arrival.over_limit.then(|| throttled(RETRY_AFTER))
    }
}

enum ReservedNumber {
    None,
    Once(Fault),
    Always(Answer),
}

/// The behaviour of a number without `+`, by the table in [`super`].
fn reserved(digits: &str) -> ReservedNumber {
    use ReservedNumber::{Always, Once};
    let rest = digits.strip_prefix(RESERVED).filter(|rest| rest.len() == 4);
    match rest.and_then(|rest| rest.as_bytes().first()) {
        Some(b'0') => Once(Fault::UnavailableAfter),
        Some(b'1') => Always(error(400, "invalid_recipient", "no such number")),
        Some(b'2') => Always(error(400, "opted_out", "the recipient has opted out")),
        Some(b'3') => Once(Fault::Unavailable),
        Some(b'4') => Once(Fault::Throttle),
        Some(b'5') => Once(Fault::NoAnswer),
        Some(b'6') => Once(Fault::Slow),
        Some(b'7') => Once(Fault::Broken),
        Some(b'8') => Always(overloaded()),
        Some(b'9') => Always(suspended()),
        _ => ReservedNumber::None,
    }
}

pub(super) fn answer(status: u16, body: Value) -> Answer {
    Answer { status, body, retry_after: None, wait: Duration::ZERO, mode: ResponseMode::Whole }
}

pub(super) fn error(status: u16, code: &str, message: &str) -> Answer {
    answer(status, json!({ "error": { "code": code, "message": message } }))
}

fn overloaded() -> Answer {
    error(503, "overloaded", "try again later")
}

fn suspended() -> Answer {
    error(401, "account_suspended", "the account is suspended")
}

fn throttled(retry_after: Duration) -> Answer {
    Answer { retry_after: Some(retry_after), ..error(429, "rate_limited", "too many requests") }
}

/// Counts segments as a simple gateway does: ASCII is GSM-7, everything else is UCS-2.
fn segments(text: &str) -> usize {
    let (units, single, part) = if text.is_ascii() {
        (text.len(), 160, 153)
    } else {
        (text.encode_utf16().count(), 70, 67)
    };
    if units <= single { 1 } else { units.div_ceil(part) }
}
