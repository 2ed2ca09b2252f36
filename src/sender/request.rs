//! A slot sends one call, with one message in it or several: it waits for the call's moment, makes sure that
//! it may still start, and brings back what came of each message.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Progress;
use super::clock::{Clock, micros};
use super::lease::Lease;
use super::window;
use crate::limit::MIN_TOLERANCE;
use crate::limit::Permit;
use crate::provider::client::{Client, Promise, Unanswered};
use crate::provider::{Message, Provider, RequestContext};
use crate::sms::{Class, Failure, Outcome, Sms, Timestamp};
use crate::window::{Recipient, Window};

/// An answer of so many bytes is read beside the other tasks, not between them.
const LARGE_ANSWER: usize = 16 << 10;

/// How a request reaches its provider.
#[derive(Clone)]
pub(super) enum Transport {
    Http(Arc<Client>),
    #[cfg(test)]
    Simulated(Arc<super::simulation::World>),
}

impl Transport {
    /// Notes that a call will need a connection soon.
    #[cfg_attr(
        not(test),
        expect(clippy::unnecessary_wraps, reason = "a simulated provider has none")
    )]
    pub(super) fn promise(&self) -> Option<Promise> {
        match self {
            Self::Http(gateway) => Some(gateway.promise()),
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// How many of `calls` more calls can start without waiting for a connection. Opens connections for others, as
    /// many as are needed at this rate to have enough of them for so long.
    pub(super) fn prepare(&self, calls: u32, per_second: Option<f64>, ahead: Duration) -> u32 {
        match self {
            Self::Http(gateway) => gateway.prepare(calls, per_second, ahead),
            #[cfg(test)]
            Self::Simulated(_) => calls,
        }
    }

    /// Waits until a connection is open for the request; true where one was open already.
    async fn connect(&self, request: &Request<Bytes>) -> Result<bool, Outcome> {
        match self {
            Self::Http(gateway) => gateway.connect(request).await,
            #[cfg(test)]
            Self::Simulated(_) => Ok(true),
        }
    }

    async fn exchange(
        &self,
        job: &InFlight,
        request: Request<Bytes>,
        until: Option<Instant>,
    ) -> Result<Response<Bytes>, Unanswered> {
        #[cfg(not(test))]
        let _ = job;
        match self {
            Self::Http(gateway) => gateway.exchange(request, until).await,
            #[cfg(test)]
            Self::Simulated(world) => world.send(job, request).await.map_err(Unanswered::Ended),
        }
    }

    /// Asks for a message; no simulated provider can be asked.
    pub(super) async fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        match self {
            Self::Http(gateway) => gateway.send(request).await,
            #[cfg(test)]
            Self::Simulated(_) => Err(Outcome::Unknown(Failure::new(Class::Unknown, "no answer"))),
        }
    }
}

/// Claimed messages of one campaign on their way, in one request.
pub(super) struct InFlight {
    /// Never empty.
    pub(super) rows: Vec<Sms>,
    /// The same, in the same order.
    pub(super) messages: Vec<Message>,
    pub(super) campaign_id: i64,
    pub(super) permit: Permit,
    /// When its campaign's messages may start.
    pub(super) window: Option<Window>,
    /// It starts within so long of its moment.
    pub(super) reach: Duration,
    pub(super) claimed_at: Timestamp,
    /// The clock's count of jumps when it was claimed.
    pub(super) jumps: u32,
    /// Under which of this worker's ids it was claimed.
    pub(super) worker_id: i64,
    /// Where in the clerk's list its provider stands.
    pub(super) route: usize,
    pub(super) provider: Arc<Provider>,
    pub(super) transport: Transport,
}

/// What became of a job.
pub(super) enum RequestResult {
    /// What came of each message, in their order.
    Outcomes(Vec<Outcome>),
    /// There was no connection to the provider, with what came of each message.
    Unreached(Vec<Outcome>),
    /// Its moment passed before it could start: it wants another.
    Lapsed,
    /// It was not started, and shall not be: stop, the lease ran out, its time did, or its window closed.
    Released,
}

pub(super) struct Finished {
    pub(super) job: InFlight,
    /// When its request started, in microseconds of the host's steady clock.
    pub(super) started_us: i64,
    pub(super) end: RequestResult,
}

impl InFlight {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// Whether all of it is inside its window at this moment.
    pub(super) fn is_open(&self, clock: &Clock) -> bool {
        let Some(window) = &self.window else {
            return true;
        };
        self.messages.iter().zip(&self.rows).all(|(message, sms)| {
            let recipient = Recipient {
                phone: message.phone.as_str(),
                params: &sms.params,
            };
            window::is_open(window, recipient, clock)
        })
    }

    /// The same for each of its messages.
    fn all(&self, outcome: Outcome) -> RequestResult {
        RequestResult::Outcomes(outcome.of_all(self.rows.len()))
    }
}

/// What all slots of a worker share.
pub(super) struct Surroundings {
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ended: mpsc::UnboundedSender<Finished>,
    pub(super) progress: Arc<Progress>,
}

/// Reports the job even if its slot panics: nobody knows then how far it came.
struct Reporting<'a> {
    job: Option<InFlight>,
    around: &'a Surroundings,
    started_us: i64,
}

impl Reporting<'_> {
    fn report(&mut self, end: RequestResult) {
        if let Some(job) = self.job.take() {
            let ended = Finished {
                job,
                started_us: self.started_us,
                end,
            };
            // A clerk that is gone has no use for it.
            drop(self.around.ended.send(ended));
        }
    }
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        let Some(job) = &self.job else { return };
        let failure = Failure::new(Class::Unknown, "sending was broken off inside smsq");
        let end = job.all(Outcome::Unknown(failure));
        self.report(end);
    }
}

/// How often another connection is opened for a request whose connection was taken by another or closed.
const CONNECTS: u32 = 3;

/// Sends one call and reports it to the dispatcher.
pub(super) async fn send(job: InFlight, mut promise: Option<Promise>, around: Arc<Surroundings>) {
    let mut reporting = Reporting {
        job: Some(job),
        around: &around,
        started_us: around.clock.steady_us(),
    };
    let Some(job) = &reporting.job else { return };
    let end = attempt(job, &mut promise, &around, &mut reporting.started_us).await;
    drop(promise);
    reporting.report(end);
}

async fn attempt(
    job: &InFlight,
    promise: &mut Option<Promise>,
    around: &Surroundings,
    started_us: &mut i64,
) -> RequestResult {
    let mut stop = around.stop.clone();
    for _ in 0..CONNECTS {
        // The connection comes first: what is checked below must hold when the first byte is written.
        let (mut context, mut request) = match made(job, around) {
            Ok(made) => made,
            Err(outcome) => return job.all(outcome),
        };
        let connected = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return RequestResult::Released,
            connected = job.transport.connect(&request) => connected,
        };
        let was_open = match connected {
            Ok(was_open) => was_open,
            Err(outcome) => {
                count_attempt(job, around);
                return RequestResult::Unreached(outcome.of_all(job.rows.len()));
            }
        };
        if let Some(moment_us) = job.permit.start_at_us {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return RequestResult::Released,
                () = wait_until(&around.clock, moment_us, job) => {}
            }
        }
        if !was_open || job.permit != Permit::AT_ONCE {
            // It may hold the time.
            (context, request) = match made(job, around) {
                Ok(made) => made,
                Err(outcome) => return job.all(outcome),
            };
        }
        if let Some(end) = why_not(job, around, context.now) {
            return end;
        }
        *started_us = around.clock.steady_us();
        drop(promise.take());
        let until = match job.permit {
            Permit {
                start_at_us: Some(moment_us),
            } => Some(last_start(&around.clock, moment_us, job.reach)),
            Permit::AT_ONCE => None,
        };
        let response = match job.transport.exchange(job, request, until).await {
            Ok(response) => response,
            Err(Unanswered::NotConnected) => continue,
            Err(Unanswered::Ended(outcome)) => {
                count_attempt(job, around);
                return job.all(outcome);
            }
        };
        count_attempt(job, around);
        let context = RequestContext {
            now: around.clock.now(),
            ..context
        };
        let size = response.body().len();
        let outcomes = read_answer(size, || {
            job.provider.answer(&job.messages, &response, &context)
        });
        if outcomes.len() == job.rows.len() {
            return RequestResult::Outcomes(outcomes);
        }
        let failure = Failure::new(Class::Unknown, "the answer does not fit the request");
        return job.all(Outcome::Unknown(failure));
    }
    RequestResult::Lapsed
}

fn made(
    job: &InFlight,
    around: &Surroundings,
) -> Result<(RequestContext, Request<Bytes>), Outcome> {
    let context = RequestContext {
        now: around.clock.now(),
        nonce: rand::random(),
    };
    let request = job.provider.request(&job.messages, &context)?;
    Ok((context, request))
}

/// Why the call must not start now, where it must not.
fn why_not(job: &InFlight, around: &Surroundings, now: Timestamp) -> Option<RequestResult> {
    let is_late = |sms: &Sms| sms.expires_at.is_some_and(|at| at <= now);
    let too_late = job.rows.iter().any(is_late);
    let closed = !job.is_open(&around.clock);
    if *around.stop.borrow() || !around.lease.covers(job.worker_id) || too_late || closed {
        return Some(RequestResult::Released);
    }
    let moment_us = job.permit.start_at_us?;
    let is_now = job.jumps == around.clock.jumps() && is_now(&around.clock, moment_us, job.reach);
    (!is_now).then_some(RequestResult::Lapsed)
}

fn count_attempt(job: &InFlight, around: &Surroundings) {
    let count = u64::from(job.count());
    around.progress.attempts.fetch_add(count, Ordering::Relaxed);
}

/// The last instant at which a call of this moment may start.
fn last_start(clock: &Clock, moment_us: i64, reach: Duration) -> Instant {
    let last_us = moment_us.saturating_add(*span_us(clock, reach).end());
    Instant::now() + clock.until(last_us)
}

/// Reads an answer of so many bytes. A large one takes a while, in which the tasks of this thread move to others.
fn read_answer<T>(size: usize, read: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    if size >= LARGE_ANSWER && flavor == tokio::runtime::RuntimeFlavor::MultiThread {
        return tokio::task::block_in_place(read);
    }
    read()
}

async fn wait_until(clock: &Clock, moment_us: i64, job: &InFlight) {
    // A timer may ring early by the clock that is being corrected: once more is enough.
    for _ in 0..2 {
        let first = moment_us.saturating_add(*span_us(clock, job.reach).start());
        let left = clock.until(first);
        // Of a clock that was set meanwhile, a moment says nothing.
        if left == Duration::ZERO || job.jumps != clock.jumps() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

fn is_now(clock: &Clock, moment_us: i64, reach: Duration) -> bool {
    span_us(clock, reach).contains(&(clock.now_us() - moment_us))
}

/// How long after the moment, by this clock, a request may start: around the middle of its reach, as
/// far as the clock's error leaves room. Nothing is left where that has grown since the moment was given.
fn span_us(clock: &Clock, reach: Duration) -> RangeInclusive<i64> {
    let middle = micros(reach) / 2;
    let half = (middle - clock.error_us()).min(micros(MIN_TOLERANCE) / 2);
    middle - half..=middle + half
}
