//! A slot sends one message: it waits for the message's moment, makes sure that it may still start,
//! and brings back what came of it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::{mpsc, watch};

use super::Progress;
use super::clock::{Clock, micros};
use super::hours;
use super::lease::Lease;
use crate::provider::gateway::Gateway;
use crate::provider::{Message, Provider, Stamp};
use crate::sms::{Cause, Class, Outcome, Sms, Timestamp};
use crate::store::Moment;
use crate::store::pace::GRACE;
use crate::window::{Recipient, Window};

/// How a request reaches its provider.
#[derive(Clone)]
pub(super) enum Transport {
    Http(Arc<Gateway>),
    #[cfg(test)]
    Simulated(Arc<super::simulation::World>),
}

impl Transport {
    async fn send(&self, job: &Job, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        #[cfg(not(test))]
        let _ = job;
        match self {
            Self::Http(gateway) => gateway.send(request).await,
            #[cfg(test)]
            Self::Simulated(world) => world.send(job, request).await,
        }
    }

    /// Asks for a message; no simulated provider can be asked.
    pub(super) async fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Outcome> {
        match self {
            Self::Http(gateway) => gateway.send(request).await,
            #[cfg(test)]
            Self::Simulated(_) => Err(Outcome::Unknown(Cause::new(Class::Unknown, "no answer"))),
        }
    }
}

/// A claimed message on its way.
pub(super) struct Job {
    pub(super) sms: Sms,
    pub(super) message: Message,
    pub(super) moment: Moment,
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

impl Job {
    /// Whether it is inside its window at this moment.
    pub(super) fn is_open(&self, clock: &Clock) -> bool {
        let recipient = Recipient {
            phone: self.message.phone.as_str(),
            params: &self.sms.params,
        };
        let window = self.window.as_ref();
        window.is_none_or(|window| hours::is_open(window, recipient, clock))
    }
}

/// What became of a job.
pub(super) enum End {
    Outcome(Outcome),
    /// Its moment passed before it could start: it wants another.
    Lapsed,
    /// It was not started, and shall not be: stop, the lease ran out, its time did, or its window closed.
    Released,
}

pub(super) struct Ended {
    pub(super) job: Job,
    /// When its request started, in microseconds of the host's steady clock.
    pub(super) started_us: i64,
    pub(super) end: End,
}

/// What all slots of a worker share.
pub(super) struct Surroundings {
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ended: mpsc::UnboundedSender<Ended>,
    pub(super) progress: Arc<Progress>,
}

/// Reports the job even if its slot panics: nobody knows then how far it came.
struct Reporting<'a> {
    job: Option<Job>,
    around: &'a Surroundings,
    started_us: i64,
}

impl Reporting<'_> {
    fn report(&mut self, end: End) {
        if let Some(job) = self.job.take() {
            let ended = Ended {
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
        let cause = Cause::new(Class::Unknown, "sending was broken off inside smsq");
        self.report(End::Outcome(Outcome::Unknown(cause)));
    }
}

/// Sends one message and reports it to the clerk.
pub(super) async fn send(job: Job, around: Arc<Surroundings>) {
    let mut reporting = Reporting {
        job: Some(job),
        around: &around,
        started_us: around.clock.steady_us(),
    };
    let Some(job) = &reporting.job else { return };
    let end = attempt(job, &around, &mut reporting.started_us).await;
    reporting.report(end);
}

async fn attempt(job: &Job, around: &Surroundings, started_us: &mut i64) -> End {
    if let Moment::At(moment_us) = job.moment {
        let mut stop = around.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return End::Released,
            () = wait_until(&around.clock, moment_us, job) => {}
        }
    }
    let stamp = Stamp {
        now: around.clock.now(),
        nonce: rand::random(),
    };
    let messages = std::slice::from_ref(&job.message);
    let request = match job.provider.request(messages, &stamp) {
        Ok(request) => request,
        Err(outcome) => return End::Outcome(outcome),
    };
    let too_late = job
        .sms
        .expires_at
        .is_some_and(|expires_at| expires_at <= stamp.now);
    let closed = !job.is_open(&around.clock);
    if *around.stop.borrow() || !around.lease.covers(job.worker_id) || too_late || closed {
        return End::Released;
    }
    if let Moment::At(moment_us) = job.moment
        && !(job.jumps == around.clock.jumps() && is_now(&around.clock, moment_us, job.reach))
    {
        return End::Lapsed;
    }
    *started_us = around.clock.steady_us();
    around.progress.attempts.fetch_add(1, Ordering::Relaxed);
    let outcome = match job.transport.send(job, request).await {
        Err(outcome) => outcome,
        Ok(response) => {
            let stamp = Stamp {
                now: around.clock.now(),
                ..stamp
            };
            let mut outcomes = job.provider.answer(messages, &response, &stamp);
            outcomes.pop().unwrap_or_else(|| {
                Outcome::Unknown(Cause::new(Class::Unknown, "the answer names no message"))
            })
        }
    };
    End::Outcome(outcome)
}

async fn wait_until(clock: &Clock, moment_us: i64, job: &Job) {
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
    let half = (middle - clock.error_us()).min(micros(GRACE) / 2);
    middle - half..=middle + half
}
