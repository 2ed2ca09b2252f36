//! What the gateway answers to an order: a decision without any I/O.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Desk;
use super::faults::{Fault, mixed, unit};
use super::ledger::{self, Acceptance, Ledger};

/// The body of `POST /messages`.
#[derive(Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    to: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    reference: Option<Cow<'a, str>>,
}

impl Order<'_> {
    fn digits(&self) -> &str {
        self.to.strip_prefix('+').unwrap_or(&self.to)
    }
}

/// How a request is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) retry_after: Option<Duration>,
    /// Before it is sent.
    pub(super) wait: Duration,
    pub(super) manner: Manner,
    /// The listener closes for so long.
    pub(super) refuse: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Whole,
    /// The body is half of its JSON.
    Cut,
    /// The connection is dropped.
    None,
}

/// Takes the order in `body`, or misbehaves as it is told.
pub(super) fn to_order(desk: &Desk, body: &[u8]) -> Answer {
    let order = read(body);
    let mut ledger = desk.ledger();
    // Read under the lock, so that arrivals are in order.
    let now = Instant::now();
    let arrival = ledger.arrive(now);
    let mut answer = match (closed_to_all(desk, &arrival), order) {
        (Some(closed), _) => closed,
        (None, Err(nonsense)) => nonsense,
        (None, Ok(order)) => decide(desk, &mut ledger, &order, arrival.number, now),
    };
    drop(ledger);
    answer.wait += desk.behaviour.latency;
    if !desk.behaviour.jitter.is_zero() {
        let part = unit(mixed(arrival.number ^ mixed(!desk.behaviour.faults.seed)));
        answer.wait += desk.behaviour.jitter.mul_f64(part);
    }
    answer.refuse = arrival.refuse;
    answer
}

fn read(body: &[u8]) -> Result<Order<'_>, Answer> {
    let order = match serde_json::from_slice::<Order<'_>>(body) {
        Ok(order) if !order.to.is_empty() && !order.text.is_empty() => order,
        _ => {
            return Err(error(
                400,
                "bad_request",
                "`to` and `text` are needed, in JSON",
            ));
        }
    };
    let digits = order.digits();
    if !(5..=15).contains(&digits.len()) || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Err(error(400, "invalid_recipient", "not a number"));
    }
    Ok(order)
}

/// What becomes of an order that makes sense.
fn decide(
    desk: &Desk,
    ledger: &mut Ledger,
    order: &Order<'_>,
    number: u64,
    now: Instant,
) -> Answer {
    let faults = &desk.behaviour.faults;
    let reference = order.reference.as_deref().filter(|it| !it.is_empty());
    let digits = order.digits();
    let fault = match magic(&digits[digits.len() - 4..]) {
        Magic::None => faults.befalling(number),
        Magic::Always(answer) => return answer,
        Magic::Once(fault) => ledger
            .first_time(&order.to, &order.text, reference)
            .then_some(fault),
    };
    match fault {
        Some(Fault::Unavailable) => return overloaded(),
        Some(Fault::Throttle) => return throttled(faults.retry_after),
        _ => {}
    }
    let acceptance = ledger.accept(&order.to, &order.text, reference, now);
    let mut answer = accepted(&acceptance, &order.text);
    match fault {
        Some(Fault::NoAnswer) => answer.manner = Manner::None,
        Some(Fault::Broken) => answer.manner = Manner::Cut,
        Some(Fault::Slow) => answer.wait = faults.slow_for,
        _ => {}
    }
    answer
}

/// What befalls every order alike.
fn closed_to_all(desk: &Desk, arrival: &ledger::Arrival) -> Option<Answer> {
    let account_from = desk.behaviour.faults.account_from;
    if account_from.is_some_and(|from| arrival.number >= from) {
        return Some(suspended());
    }
    if arrival.outage {
        return Some(overloaded());
    }
    arrival
        .over_limit
        .then(|| throttled(Duration::from_secs(1)))
}

enum Magic {
    None,
    Once(Fault),
    Always(Answer),
}

/// The table of [`super`].
fn magic(last_digits: &str) -> Magic {
    match last_digits {
        "0001" => Magic::Always(error(400, "invalid_recipient", "no such number")),
        "0002" => Magic::Always(error(400, "opted_out", "the recipient has opted out")),
        "0003" => Magic::Once(Fault::Unavailable),
        "0004" => Magic::Once(Fault::Throttle),
        "0005" => Magic::Once(Fault::NoAnswer),
        "0006" => Magic::Once(Fault::Slow),
        "0007" => Magic::Once(Fault::Broken),
        "0008" => Magic::Always(overloaded()),
        "0009" => Magic::Always(suspended()),
        _ => Magic::None,
    }
}

fn answer(status: u16, body: String) -> Answer {
    Answer {
        status,
        body,
        retry_after: None,
        wait: Duration::ZERO,
        manner: Manner::Whole,
        refuse: None,
    }
}

/// `code` and `message` must need no escape.
pub(super) fn error(status: u16, code: &str, message: &str) -> Answer {
    let body = format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#);
    answer(status, body)
}

fn overloaded() -> Answer {
    error(503, "overloaded", "try again later")
}

fn suspended() -> Answer {
    error(401, "account_suspended", "the account is suspended")
}

fn throttled(retry_after: Duration) -> Answer {
    Answer {
        retry_after: Some(retry_after),
        ..error(429, "rate_limited", "too many requests")
    }
}

fn accepted(acceptance: &Acceptance, text: &str) -> Answer {
    let (status, number) = match acceptance {
        Acceptance::New(number) => (201, *number),
        Acceptance::Known(number) => (200, *number),
    };
    let id = ledger::id(number);
    let segments = segments(text);
    answer(status, format!(r#"{{"id":"{id}","segments":{segments}}}"#))
}

/// As a simple gateway counts them: ASCII is GSM-7, anything else is UCS-2.
fn segments(text: &str) -> usize {
    let (units, single, part) = if text.is_ascii() {
        (text.len(), 160, 153)
    } else {
        (text.encode_utf16().count(), 70, 67)
    };
    if units <= single {
        1
    } else {
        units.div_ceil(part)
    }
}
