//! Sends one request, with one message or several: waits for its permit, makes sure that it may still
//! start, and reports the outcome of each message.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use smsq_lifecycle::{Settlement, Transition, retry};
use smsq_limit::{Permit, PermitCost, Reservation, Tolerance};
use smsq_message::defect::Defect;
use smsq_message::instant::{DbMicros, SteadyMicros};
use smsq_message::phone::Phone;
use smsq_message::route::sender_pool::PoolSender;
use smsq_message::sms::{Class, Failure, LaneId, Outcome, Sms, Timestamp};
use smsq_message::window::{Recipient, SendWindow};
use smsq_provider::client::{Client, OpenConnection, ReservedConnection, Unanswered};
use smsq_provider::{Message, Provider, RequestContext};
use smsq_store::StartedClaim;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::context::WorkerContext;
use super::window;

/// A response from this size in bytes is parsed on a thread that other tasks do not wait for.
const LARGE_RESPONSE: usize = 16 << 10;
/// A request may contain the time, so it is built again if it has waited longer than this.
const FRESH: Duration = Duration::from_millis(500);
/// How often a request that lost its connection opens another.
const CONNECTS: u32 = 3;

/// The connection of a request.
enum Connected {
    Http(OpenConnection),
    #[cfg(test)]
    Simulated,
}

/// How a request reaches its provider.
#[derive(Clone)]
pub(super) enum Transport {
    Http(Arc<Client>),
    #[cfg(test)]
    Simulated(Arc<super::simulation::SimProvider>),
}

impl Transport {
    /// Announces a request that needs a connection soon.
    #[cfg_attr(
        not(test),
        expect(clippy::unnecessary_wraps, reason = "a simulated provider has none")
    )]
    pub(super) fn reserve(&self) -> Option<ReservedConnection> {
        match self {
            Self::Http(client) => Some(client.reserve()),
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// How many of `requests` more requests can start without waiting for a connection. Opens
    /// connections for the others, as many as are needed at this rate for the time `ahead`.
    pub(super) fn prepare(&self, requests: u32, per_second: Option<f64>, ahead: Duration) -> u32 {
        match self {
            Self::Http(client) => client.prepare(requests, per_second, ahead),
            #[cfg(test)]
            Self::Simulated(_) => requests,
        }
    }

    /// Waits until the request has an open connection.
    async fn connect(&self, request: &Request<Bytes>) -> Result<Connected, Outcome> {
        match self {
            Self::Http(client) => client.connect(request.uri()).await.map(Connected::Http),
            #[cfg(test)]
            Self::Simulated(_) => Ok(Connected::Simulated),
        }
    }

    async fn exchange(
        &self,
        in_flight: &InFlight,
        request: Request<Bytes>,
        connected: Connected,
    ) -> Result<Response<Bytes>, Unanswered> {
        #[cfg(not(test))]
        let _ = in_flight;
        match (self, connected) {
            (Self::Http(client), Connected::Http(connection)) => {
                client.exchange(connection, request).await
            }
            #[cfg(test)]
            (Self::Simulated(provider), Connected::Simulated) => {
                let answer = provider.send(in_flight, request).await;
                answer.map_err(Unanswered::Ended)
            }
            #[cfg(test)]
            _ => unreachable!("the connection is of this transport"),
        }
    }

    /// Sends a status lookup.
    pub(super) async fn lookup(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        match self {
            Self::Http(client) => client.send(request).await,
            #[cfg(test)]
            Self::Simulated(provider) => provider.lookup(request).await,
        }
    }
}

/// Claimed messages of one campaign in one request.
pub(super) struct InFlight {
    /// Never empty. Content and reference are in `messages`.
    pub(super) rows: Vec<Sms>,
    /// The same messages, in the same order.
    pub(super) messages: Vec<Message>,
    pub(super) campaign_id: i64,
    /// The number of their lane.
    pub(super) lane: i32,
    /// Their sender, if it has limits or pauses of its own.
    pub(super) sender: Option<Arc<PoolSender>>,
    pub(super) permit: Permit,
    /// The campaign's.
    pub(super) window: Option<SendWindow>,
    /// How long after its permit it may start.
    pub(super) tolerance: Tolerance,
    pub(super) claimed_at: Timestamp,
    /// It does not start after this. A new permit changes nothing.
    pub(super) start_by: SteadyMicros,
    /// How often the clock had been set when it got its permit.
    pub(super) jumps: u32,
    /// The worker id that claimed it.
    pub(super) worker_id: i64,
    /// The index of its provider.
    pub(super) index: usize,
    pub(super) provider: Arc<Provider>,
    pub(super) transport: Transport,
}

/// How a request ended.
pub(super) enum RequestEnd {
    /// The outcome of each message, in their order.
    Outcomes(Vec<Outcome>),
    /// There was no connection to the provider.
    Unreached(Vec<Outcome>),
    /// Its permit passed before it could start: it needs another.
    Late,
    /// It was not started and must not be: the worker stops, its lease ended, its claim is too old, a
    /// message expired or is in doubt for too long, or the window closed.
    Released,
}

pub(super) struct Finished {
    pub(super) request: InFlight,
    pub(super) started_at: SteadyMicros,
    pub(super) ended_at: SteadyMicros,
    pub(super) result: RequestEnd,
}

impl InFlight {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn cost(&self) -> PermitCost {
        self.rows
            .iter()
            .map(|sms| PermitCost::of_message(sms.segments.unwrap_or(1)))
            .fold(PermitCost::default(), PermitCost::plus)
    }

    /// What it has reserved of the limits, while it has not started.
    pub(super) fn reservation(&self) -> Reservation {
        Reservation {
            lane: LaneId { campaign_id: self.campaign_id, lane: self.lane },
            sender: self.sender.clone(),
            cost: self.cost(),
            unused: self.permit.start_at,
        }
    }

    /// Whether its claim is too old for a request: another worker may have claimed its messages since.
    pub(super) fn is_overdue(&self, clock: &Clock) -> bool {
        clock.steady() >= self.start_by
    }

    /// Whether the window is open for all its messages.
    pub(super) fn is_open(&self, clock: &Clock) -> bool {
        let Some(window) = &self.window else {
            return true;
        };
        self.messages.iter().zip(&self.rows).all(|(message, sms)| {
            let recipient = Recipient { phone: message.phone.as_str(), params: &sms.params };
            window::is_open(window, recipient, clock)
        })
    }

    /// The messages and their claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = (i64, i64)> {
        self.rows.iter().map(|sms| (sms.id, sms.claim))
    }

    /// The claims with what identifies their messages, for the marks.
    fn started_claims(&self) -> impl Iterator<Item = StartedClaim> {
        self.rows.iter().zip(&self.messages).map(|(sms, message)| StartedClaim {
            id: sms.id,
            claim: sms.claim,
            provider: self.provider.name().to_owned(),
            reference: message.reference.clone(),
            created_at: sms.stored.created_at,
            claimed_at: self.claimed_at,
        })
    }

    pub(super) fn settlement(&self, sms: &Sms, transition: Transition) -> Settlement {
        Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: self.provider.name().to_owned(),
            transition,
        }
    }

    fn all(&self, outcome: Outcome) -> RequestEnd {
        RequestEnd::Outcomes(outcome.of_all(self.rows.len()))
    }
}

/// Builds the provider's message out of a row. It takes content and reference, so that they are kept
/// once.
pub(super) fn take_message(sms: &mut Sms, phone: Phone, from: Option<String>) -> Message {
    Message {
        phone,
        content: std::mem::take(&mut sms.content),
        reference: std::mem::take(&mut sms.reference),
        from,
        params: serde_json::from_str(&sms.params).unwrap_or_default(),
    }
}

/// Puts back what [`take_message`] took, and the phone that is stored now.
pub(super) fn put_back(mut sms: Sms, message: Message) -> Sms {
    message.phone.as_str().clone_into(&mut sms.phone);
    sms.content = message.content;
    sms.reference = message.reference;
    sms
}

/// Reports the request even if its task is ended or panics: its messages are unknown then.
struct ReportOnDrop<'a> {
    request: Option<InFlight>,
    reports: &'a mpsc::UnboundedSender<Finished>,
    clock: &'a Clock,
    started_at: SteadyMicros,
}

impl ReportOnDrop<'_> {
    fn report(&mut self, result: RequestEnd) {
        if let Some(request) = self.request.take() {
            // Without a dispatcher no one needs the result.
            drop(self.reports.send(Finished {
                request,
                started_at: self.started_at,
                ended_at: self.clock.steady(),
                result,
            }));
        }
    }
}

impl Drop for ReportOnDrop<'_> {
    fn drop(&mut self) {
        let Some(request) = &self.request else { return };
        let why = if std::thread::panicking() {
            "internal error while sending"
        } else {
            "its worker ended before the provider responded"
        };
        let failure = Failure::new(Class::Unknown, why);
        let result = request.all(Outcome::Unknown(failure));
        self.report(result);
    }
}

/// Sends one request and reports it to the dispatcher.
pub(super) async fn send(
    request: InFlight,
    mut reserved: Option<ReservedConnection>,
    context: Arc<WorkerContext>,
    reports: mpsc::UnboundedSender<Finished>,
) {
    let mut report = ReportOnDrop {
        request: Some(request),
        reports: &reports,
        clock: &context.clock,
        started_at: context.clock.steady(),
    };
    let Some(request) = &report.request else {
        return;
    };
    let result = attempt(request, &mut reserved, &context, &mut report.started_at).await;
    mark_end(request, &context, &result);
    report.report(result);
}

async fn attempt(
    in_flight: &InFlight,
    reserved: &mut Option<ReservedConnection>,
    context: &WorkerContext,
    started_at: &mut SteadyMicros,
) -> RequestEnd {
    for _ in 0..CONNECTS {
        // The connection comes first: what is checked below must hold when the first byte is written.
        let (mut made, mut request) = match build(in_flight, context) {
            Ok(built) => built,
            Err(outcome) => return in_flight.all(outcome),
        };
        let connected = tokio::select! {
            biased;
            connected = in_flight.transport.connect(&request) => connected,
            () = context.stop.stopped() => return RequestEnd::Released,
        };
        let connected = match connected {
            Ok(connected) => connected,
            Err(outcome) => {
                count_attempt(in_flight, context);
                return RequestEnd::Unreached(outcome.of_all(in_flight.rows.len()));
            }
        };
        drop(reserved.take());
        if let Some(start_at) = in_flight.permit.start_at {
            tokio::select! {
                biased;
                () = context.stop.stopped() => return RequestEnd::Released,
                () = wait_for_permit(&context.clock, start_at, in_flight) => {}
            }
        }
        // Before the check, so that writing it delays no start.
        let marks = &context.marks;
        if !Defect::LateMark.is_on()
            && !marks.start(in_flight.worker_id, in_flight.started_claims())
        {
            return RequestEnd::Released;
        }
        let now = context.clock.now();
        if now.since(made.now) > FRESH {
            (made, request) = match build(in_flight, context) {
                Ok(built) => built,
                Err(outcome) => return in_flight.all(outcome),
            };
        }
        if let Some(result) = check_start(in_flight, context, now) {
            return result;
        }
        *started_at = context.clock.steady();
        tracing::debug!(
            provider = in_flight.provider.name(),
            campaign = in_flight.campaign_id,
            messages = in_flight.rows.len(),
            started_us = started_at.as_micros(),
            "a request starts"
        );
        let exchanged = in_flight.transport.exchange(in_flight, request, connected);
        let response = match exchanged.await {
            Ok(response) => response,
            Err(Unanswered::NotConnected) => continue,
            Err(Unanswered::Ended(outcome)) => {
                count_attempt(in_flight, context);
                return in_flight.all(outcome);
            }
        };
        count_attempt(in_flight, context);
        let read = RequestContext { now: context.clock.now(), ..made };
        let outcomes = parse(response.body().len(), || {
            let messages = &in_flight.messages;
            in_flight.provider.parse(messages, &response, &read)
        });
        if outcomes.len() == in_flight.rows.len() {
            return RequestEnd::Outcomes(outcomes);
        }
        let why = format!(
            "the response has results for {} of {} messages",
            outcomes.len(),
            in_flight.rows.len()
        );
        let failure = Failure::new(Class::Unknown, why);
        return in_flight.all(Outcome::Unknown(failure));
    }
    RequestEnd::Late
}

/// Marks how a request ended, before the dispatcher knows: when the results are stored, others use its slots. While it
/// is not known whether the provider is unavailable or refuses the account, no attempt is counted.
fn mark_end(in_flight: &InFlight, context: &WorkerContext, end: &RequestEnd) {
    let RequestEnd::Outcomes(outcomes) = end else {
        let claims = in_flight.claims();
        return claims.for_each(|(id, claim)| context.marks.withdraw(id, claim));
    };
    let claims = in_flight.started_claims();
    for ((sms, claim), outcome) in in_flight.rows.iter().zip(claims).zip(outcomes) {
        if let Outcome::Accepted(acceptance) = outcome {
            let sent = Transition::Sent(acceptance.clone());
            context.marks.answer(claim, sent);
            continue;
        }
        let mut outcome = outcome.clone();
        if let Outcome::AccountError { listed, .. } = &mut outcome {
            *listed = true;
        }
        let attempt = retry::Attempt {
            sms,
            batch: in_flight.rows.len(),
            is_outage: true,
            resend_before: None,
        };
        let (config, now) = (&context.settings.retry, context.clock.now());
        let transition = retry::decide(outcome, &attempt, config, now, rand::random());
        context.marks.answer(claim, transition);
    }
}

fn build(
    in_flight: &InFlight,
    context: &WorkerContext,
) -> Result<(RequestContext, Request<Bytes>), Outcome> {
    let made = RequestContext { now: context.clock.now(), nonce: rand::random() };
    let request = in_flight.provider.request(&in_flight.messages, &made)?;
    Ok((made, request))
}

/// How the request ends without having started, where it must not start now.
fn check_start(
    in_flight: &InFlight,
    context: &WorkerContext,
    now: Timestamp,
) -> Option<RequestEnd> {
    let is_expired = |sms: &Sms| sms.expires_at.is_some_and(|at| at <= now);
    let resends = context.resend_rule(&in_flight.provider);
    let may_be_sent = |sms: &Sms| resends.allows(sms, now);
    if context.is_stopping()
        || !context.lease.covers(in_flight.worker_id)
        || in_flight.is_overdue(&context.clock)
        || in_flight.rows.iter().any(is_expired)
        || !in_flight.rows.iter().all(may_be_sent)
        || !in_flight.is_open(&context.clock)
    {
        return Some(RequestEnd::Released);
    }
    let start_at = in_flight.permit.start_at?;
    let is_now = in_flight.jumps == context.clock.jumps()
        && start_span(&context.clock, in_flight, start_at).contains(&context.clock.instant());
    (!is_now).then_some(RequestEnd::Late)
}

fn count_attempt(in_flight: &InFlight, context: &WorkerContext) {
    let count = u64::from(in_flight.count());
    context.progress.attempts.fetch_add(count, Ordering::Relaxed);
}

/// Parses a response of this size. A large one takes long, so the other tasks of this thread move to
/// another one.
fn parse<T>(size: usize, parse: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    if size >= LARGE_RESPONSE && flavor == tokio::runtime::RuntimeFlavor::MultiThread {
        return tokio::task::block_in_place(parse);
    }
    parse()
}

async fn wait_for_permit(clock: &Clock, start_at: DbMicros, in_flight: &InFlight) {
    // A timer may fire early while the clock is being corrected; waiting once more is enough.
    for _ in 0..2 {
        let left = clock.until(*start_span(clock, in_flight, start_at).start());
        // A permit from before the clock was set is void.
        if left == Duration::ZERO || in_flight.jumps != clock.jumps() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// When a request with this permit may start, by this clock: around the middle of its tolerance, as far as the clock's
/// error allows. Empty where the error has grown since the permit was given.
fn start_span(clock: &Clock, in_flight: &InFlight, start_at: DbMicros) -> RangeInclusive<DbMicros> {
    let Tolerance { total, spread } = in_flight.tolerance;
    let middle = start_at.plus(total / 2);
    match (total / 2).checked_sub(clock.error()) {
        Some(room) => {
            let half = room.min(spread / 2);
            middle.minus(half)..=middle.plus(half)
        }
        None => middle.plus(Duration::from_micros(1))..=middle,
    }
}
