//! What the gateway answers to an order, or to a list of orders: a decision without any I/O.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Desk;
use super::faults::{Fault, mixed, unit};
use super::ledger::{self, Ledger, Registered};

/// The body of `POST /messages`, or one of a list.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The later ones outdo the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    Whole,
    /// The body is half of its JSON.
    Cut,
    /// The connection is dropped.
    None,
}

/// How a number begins that makes the gateway misbehave; four digits follow. It is in a range of personal numbers
/// that are not mobile phones, so it is on nobody's list.
const RESERVED: &str = "1500555";

/// The most orders in one list.
const MOST: usize = 1_000;

/// What came in one request.
enum Orders<'a> {
    One(Result<Order<'a>, Answer>),
    List(Vec<Result<Order<'a>, Answer>>),
}

/// Takes the order in `body`, or the list of them, or misbehaves as it is told.
pub(super) fn to_orders(desk: &Desk, body: &[u8]) -> Answer {
    let orders = read_all(body);
    let count = match &orders {
        Orders::One(_) => 1,
        Orders::List(orders) => orders.len(),
    };
    let mut ledger = desk.ledger();
    // Read under the lock, so that arrivals are in order.
    let now = Instant::now();
    let arrival = ledger.arrive(count, now);
    let mut answer = match (closed_to_all(desk, &arrival), orders) {
        (Some(closed), _) => closed,
        (None, Orders::One(Err(nonsense))) => nonsense,
        (None, Orders::One(Ok(order))) => decide(desk, &mut ledger, &order, arrival.number, now),
        (None, Orders::List(orders)) => decide_all(desk, &mut ledger, &orders, &arrival, now),
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

fn read_all(body: &[u8]) -> Orders<'_> {
    if !body.trim_ascii_start().starts_with(b"[") {
        return Orders::One(read(body));
    }
    match serde_json::from_slice::<Vec<&RawValue>>(body) {
        Ok(list) if (1..=MOST).contains(&list.len()) => {
            let orders = list.iter().map(|order| read(order.get().as_bytes()));
            Orders::List(orders.collect())
        }
        _ => Orders::One(Err(error(
            400,
            "bad_request",
            "a list of 1 to 1000 messages is needed",
        ))),
    }
}

/// What becomes of a list: a result for each of its orders; but what keeps an answer from coming, or from
/// coming whole, keeps all of it.
fn decide_all(
    desk: &Desk,
    ledger: &mut Ledger,
    orders: &[Result<Order<'_>, Answer>],
    arrival: &ledger::Arrival,
    now: Instant,
) -> Answer {
    if desk.behaviour.all_or_none
        && let Some(bad) = orders.iter().find_map(turned_down)
    {
        return bad;
    }
    let mut all = answer(200, String::new());
    let mut results = Vec::new();
    for (order, number) in orders.iter().zip(arrival.number..) {
        let (one, reference) = match order {
            Ok(order) => (
                decide(desk, ledger, order, number, now),
                order.reference.as_deref(),
            ),
            Err(nonsense) => (nonsense.clone(), None),
        };
        all.wait = all.wait.max(one.wait);
        all.manner = all.manner.max(one.manner);
        results.push(result(&one, reference));
    }
    if desk.behaviour.faults.is_short(arrival.call) {
        results.truncate(results.len() / 2);
    }
    all.body = serde_json::Value::Array(results).to_string();
    all
}

/// Why an order would be turned down whenever it came.
fn turned_down(order: &Result<Order<'_>, Answer>) -> Option<Answer> {
    match order {
        Err(nonsense) => Some(nonsense.clone()),
        Ok(order) => match reserved(order.digits()) {
            Reserved::Always(answer) if answer.status == 400 => Some(answer),
            _ => None,
        },
    }
}

/// The answer to one order of a list, as the list's answer holds it.
fn result(answer: &Answer, reference: Option<&str>) -> serde_json::Value {
    let mut result = serde_json::Map::new();
    result.insert("status".to_owned(), answer.status.into());
    result.insert("reference".to_owned(), reference.into());
    if let Some(wait) = answer.retry_after {
        result.insert("retry_after".to_owned(), wait.as_secs().into());
    }
    if let Ok(serde_json::Value::Object(body)) = serde_json::from_str(&answer.body) {
        result.extend(body);
    }
    result.into()
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
    let fault = match reserved(order.digits()) {
        Reserved::None => faults.befalling(number),
        Reserved::Always(answer) => return answer,
        Reserved::Once(fault) => ledger
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
    if account_from.is_some_and(|from| arrival.last >= from) {
        return Some(suspended());
    }
    if arrival.outage {
        return Some(overloaded());
    }
    arrival
        .over_limit
        .then(|| throttled(Duration::from_secs(1)))
}

enum Reserved {
    None,
    Once(Fault),
    Always(Answer),
}

/// What the table of [`super`] says of this number, without `+`.
fn reserved(digits: &str) -> Reserved {
    let line = digits.strip_prefix(RESERVED).filter(|line| line.len() == 4);
    match line.and_then(|line| line.as_bytes().first()) {
        Some(b'1') => Reserved::Always(error(400, "invalid_recipient", "no such number")),
        Some(b'2') => Reserved::Always(error(400, "opted_out", "the recipient has opted out")),
        Some(b'3') => Reserved::Once(Fault::Unavailable),
        Some(b'4') => Reserved::Once(Fault::Throttle),
        Some(b'5') => Reserved::Once(Fault::NoAnswer),
        Some(b'6') => Reserved::Once(Fault::Slow),
        Some(b'7') => Reserved::Once(Fault::Broken),
        Some(b'8') => Reserved::Always(overloaded()),
        Some(b'9') => Reserved::Always(suspended()),
        _ => Reserved::None,
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

fn accepted(acceptance: &Registered, text: &str) -> Answer {
    let (status, number) = match acceptance {
        Registered::New(number) => (201, *number),
        Registered::Known(number) => (200, *number),
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
