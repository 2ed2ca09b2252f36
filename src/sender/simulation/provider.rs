//! A simulated provider behind a network that loses requests and responses, with seeded randomness.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use smsq_message::sms::{Class, Failure, Outcome};
use tokio::time::Instant;

use super::START;
use super::history::Start;
use crate::request::InFlight;

/// The gateway's code says that it did not accept; without it the status would leave that open.
const OVERLOADED: &str = r#"{"error":{"code":"overloaded"}}"#;

/// The probability of each fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) unavailable: f64,
    pub(crate) throttled: f64,
    pub(crate) rejected: f64,
    /// Accepted, but the response is lost.
    pub(crate) answer_lost: f64,
    /// Not accepted, and without a response.
    pub(crate) request_lost: f64,
    pub(crate) refused: f64,
    /// The response to a batch has half of the results.
    pub(crate) cut_short: f64,
    /// One message of a request is rejected, and the others are not.
    pub(crate) one_rejected: f64,
    pub(crate) one_unavailable: f64,
}

impl Faults {
    pub(crate) fn some_of_everything() -> Self {
        Self {
            unavailable: 0.05,
            throttled: 0.02,
            rejected: 0.02,
            answer_lost: 0.02,
            request_lost: 0.02,
            ..Self::default()
        }
    }
}

/// How status lookups are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookups {
    /// The time from the acceptance of a message until it is listed.
    pub(crate) listed_after: Duration,
    /// The part of the lookups without a response, …
    pub(crate) lost: f64,
    /// … with an error, …
    pub(crate) failed: f64,
    /// … and with a list that has more pages.
    pub(crate) cut: f64,
}

/// A message that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) phone: String,
    pub(crate) reference: String,
    pub(crate) id: String,
    /// Since the start of the simulation.
    pub(crate) at: Duration,
}

#[derive(Default)]
struct Log {
    starts: Vec<Start>,
    /// When no request should have started.
    quiet_periods: Vec<(Duration, Duration)>,
    /// How many messages each phone got.
    delivered: HashMap<String, u32>,
    /// The id of each reference, and when it was accepted.
    references: HashMap<String, (String, Instant)>,
    accepted: Vec<Accepted>,
    calls: usize,
    lookups: usize,
}

/// A provider behind a network that loses requests and responses.
pub(crate) struct SimProvider {
    pub(crate) began: Instant,
    random: Mutex<StdRng>,
    pub(crate) faults: Faults,
    /// From and until, since the start of the simulation.
    pub(crate) outage: Option<(Duration, Duration)>,
    pub(crate) honours_reference: bool,
    /// For how long it does.
    pub(crate) remembers: Duration,
    /// The most messages of one request.
    pub(crate) max_batch: usize,
    pub(crate) latency: Duration,
    /// How long after a response 429 requests may still start, of messages that were claimed before all workers knew.
    pub(crate) quiet_after: Duration,
    /// `None`: there are no status lookups.
    pub(crate) lookups: Option<Lookups>,
    /// Whether it reports what became of messages.
    pub(crate) has_receipts: bool,
    log: Mutex<Log>,
}

impl SimProvider {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            began: Instant::now(),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            faults,
            outage: None,
            honours_reference: false,
            remembers: Duration::from_secs(30 * 86_400),
            max_batch: 1,
            latency: Duration::from_millis(80),
            quiet_after: Duration::from_millis(250),
            lookups: None,
            has_receipts: false,
            log: Mutex::default(),
        }
    }

    pub(crate) async fn send(
        &self,
        job: &InFlight,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Outcome> {
        let body: Value = serde_json::from_slice(request.body()).expect("our own JSON");
        let orders = match &body {
            Value::Array(orders) => orders.as_slice(),
            order => std::slice::from_ref(order),
        };
        assert_eq!(orders.len(), job.rows.len());
        let at = self.began.elapsed();
        let starts = job.rows.iter().zip(orders).map(|(sms, order)| Start {
            at,
            ended: None,
            worker_id: job.worker_id,
            sms_id: sms.id,
            claim: sms.claim,
            phone: text(order, "to"),
            reference: text(order, "reference"),
            delivered: false,
        });
        let numbers = self.note(starts.collect());
        let answer = self.treat(numbers.clone(), body.is_array()).await;
        let ended = Some(self.began.elapsed());
        let mut log = self.log.lock().expect("no panic");
        for start in &mut log.starts[numbers] {
            start.ended = ended;
        }
        answer
    }

    fn note(&self, starts: Vec<Start>) -> Range<usize> {
        let mut log = self.log.lock().expect("no panic");
        let first = log.starts.len();
        log.starts.extend(starts);
        log.calls += 1;
        first..log.starts.len()
    }

    async fn treat(
        &self,
        numbers: Range<usize>,
        is_list: bool,
    ) -> Result<Response<Bytes>, Outcome> {
        let (dice, wait) = {
            let mut random = self.random.lock().expect("no panic");
            (random.random::<f64>(), random.random_range(0.5..1.5))
        };
        let since = self.began.elapsed();
        if self.outage.is_some_and(|(from, until)| (from..until).contains(&since)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            return Err(unavailable("connection refused"));
        }
        tokio::time::sleep(self.latency.mul_f64(wait)).await;
        self.answer(dice, numbers, is_list).await
    }

    async fn answer(
        &self,
        dice: f64,
        numbers: Range<usize>,
        is_list: bool,
    ) -> Result<Response<Bytes>, Outcome> {
        let faults = self.faults;
        let mut edge = 0.0;
        let mut falls_in = |part: f64| {
            edge += part;
            dice < edge
        };
        if falls_in(faults.unavailable) {
            return Ok(response(503, OVERLOADED));
        }
        if falls_in(faults.throttled) {
            self.begin_quiet_period(Duration::from_secs(2));
            let mut throttled = response(429, "{}");
            throttled.headers_mut().insert("retry-after", http::HeaderValue::from_static("2"));
            return Ok(throttled);
        }
        if falls_in(faults.rejected) {
            return Ok(response(400, r#"{"error":"bad"}"#));
        }
        if falls_in(faults.refused) {
            return Ok(response(401, "{}"));
        }
        if falls_in(faults.answer_lost) {
            numbers.for_each(|number| drop(self.deliver(number)));
            return lost().await;
        }
        if falls_in(faults.request_lost) {
            return lost().await;
        }
        if !is_list {
            return Ok(match self.refusal() {
                Some(503) => response(503, OVERLOADED),
                Some(status) => response(status, "{}"),
                None => response(201, &json!({ "id": self.deliver(numbers.start) }).to_string()),
            });
        }
        let count = numbers.len();
        let one = |number: usize| {
            let reference = self.log.lock().expect("no panic").starts[number].reference.clone();
            match self.refusal() {
                Some(503) => json!({
                    "status": 503,
                    "reference": reference,
                    "error": { "code": "overloaded" },
                }),
                Some(status) => json!({ "status": status, "reference": reference }),
                None => {
                    json!({ "status": 201, "reference": reference, "id": self.deliver(number) })
                }
            }
        };
        let mut results: Vec<Value> = numbers.map(one).collect();
        if falls_in(faults.cut_short) {
            results.truncate(count / 2);
        }
        Ok(response(200, &Value::from(results).to_string()))
    }

    /// Why one message of a request with a response is rejected, if it is.
    fn refusal(&self) -> Option<u16> {
        let dice = self.random.lock().expect("no panic").random::<f64>();
        let Faults { one_rejected, one_unavailable, .. } = self.faults;
        match dice {
            _ if dice < one_rejected => Some(400),
            _ if dice < one_rejected + one_unavailable => Some(503),
            _ => None,
        }
    }

    fn begin_quiet_period(&self, span: Duration) {
        let now = self.began.elapsed();
        let quiet_period = (now + self.quiet_after, now + span);
        self.log.lock().expect("no panic").quiet_periods.push(quiet_period);
    }

    fn deliver(&self, number: usize) -> String {
        let mut log = self.log.lock().expect("no panic");
        let id = format!("m{}", log.references.len());
        let start = &log.starts[number];
        let (phone, reference) = (start.phone.clone(), start.reference.clone());
        if let Some((known, at)) = log.references.get(&reference).cloned()
            && self.honours_reference
            && at.elapsed() < self.remembers
        {
            return known;
        }
        log.starts[number].delivered = true;
        log.accepted.push(Accepted {
            phone: phone.clone(),
            reference: reference.clone(),
            id: id.clone(),
            at: self.began.elapsed(),
        });
        log.references.insert(reference, (id.clone(), Instant::now()));
        *log.delivered.entry(phone).or_default() += 1;
        id
    }

    /// Lists the messages to the phone in the request.
    pub(crate) async fn lookup(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        let lookups = self.lookups.expect("it has lookups");
        let dice = self.random.lock().expect("no panic").random::<f64>();
        tokio::time::sleep(self.latency).await;
        if dice < lookups.lost {
            return lost().await;
        }
        let (now, clock) = (self.began.elapsed(), START.plus(self.began.elapsed()));
        let to = request.uri().query().unwrap_or_default();
        let (_, to) = url::form_urlencoded::parse(to.as_bytes())
            .find(|(key, _)| key == "to")
            .expect("a phone");
        let mut log = self.log.lock().expect("no panic");
        log.lookups += 1;
        let listed: Vec<Value> = log
            .accepted
            .iter()
            .filter(|message| message.phone == to && message.at + lookups.listed_after <= now)
            .map(|message| {
                let at = START.plus(message.at).to_string();
                json!({ "id": message.id, "reference": message.reference, "at": at })
            })
            .collect();
        let is_cut = dice >= 1.0 - lookups.cut;
        let list = json!({ "messages": listed, "next": is_cut.then_some("2") });
        let is_failed = dice < lookups.lost + lookups.failed;
        let mut answer = response(if is_failed { 500 } else { 200 }, &list.to_string());
        let date = jiff::Timestamp::from_millisecond(clock.as_millis()).expect("a date");
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let date = http::HeaderValue::from_str(&date).expect("a header");
        answer.headers_mut().insert("date", date);
        Ok(answer)
    }

    /// The number of status lookups with a response.
    pub(crate) fn lookups_answered(&self) -> usize {
        self.log.lock().expect("no panic").lookups
    }

    /// All messages that were accepted so far.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        self.log.lock().expect("no panic").accepted.clone()
    }

    /// All requests so far, and when none should have started.
    pub(crate) fn history(&self) -> (Vec<Start>, Vec<(Duration, Duration)>) {
        let log = self.log.lock().expect("no panic");
        (log.starts.clone(), log.quiet_periods.clone())
    }

    /// The number of requests.
    pub(crate) fn calls(&self) -> usize {
        self.log.lock().expect("no panic").calls
    }

    /// The number of messages in requests.
    pub(crate) fn starts(&self) -> usize {
        self.log.lock().expect("no panic").starts.len()
    }

    pub(crate) fn delivered(&self) -> HashMap<String, u32> {
        self.log.lock().expect("no panic").delivered.clone()
    }

    /// The time from the first start to the last.
    pub(crate) fn span(&self) -> Duration {
        let log = self.log.lock().expect("no panic");
        let starts = || log.starts.iter().map(|start| start.at);
        let first = starts().min().expect("something was sent");
        let last = starts().max().expect("something was sent");
        last.saturating_sub(first)
    }
}

fn text(order: &Value, key: &str) -> String {
    order[key].as_str().expect("a text").to_owned()
}

fn response(status: u16, body: &str) -> Response<Bytes> {
    Response::builder()
        .status(status)
        .body(Bytes::copy_from_slice(body.as_bytes()))
        .expect("a response")
}

fn unavailable(reason: &str) -> Outcome {
    Outcome::Unavailable { failure: Failure::new(Class::Unavailable, reason), retry_after: None }
}

async fn lost() -> Result<Response<Bytes>, Outcome> {
    tokio::time::sleep(Duration::from_secs(10)).await;
    Err(Outcome::Unknown(Failure::new(Class::Unknown, "no answer within 10 s")))
}
