//! What the clerk makes of a message that came back: its fate, and what it tells of its provider and
//! its campaign.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::breaker::{Attempt, Toll};
use super::campaign_state::{CampaignState, is_in_its_right_mind, note_outcomes, note_refusals};
use super::clock::micros;
use super::dispatcher::Dispatcher;
use super::planner::held;
use super::request::{Finished, InFlight, RequestResult};
use super::{Event, retry};
use crate::phone::mask;
use crate::queue::{Settlement, Transition};
use crate::sms::{Failure, Outcome, Sms, Timestamp};
use crate::store::{CampaignStatus, CampaignStop, CommitBatch, ProviderPause};

/// A claimed call that did not start is given back to the queue rather than kept for longer.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

impl Dispatcher {
    pub(super) fn conclude(&mut self, ended: Finished, round: &mut CommitBatch) {
        let Finished {
            job,
            started_us,
            end,
        } = ended;
        let route = &mut self.routes[job.route];
        route.in_flight -= 1;
        if let Some(line) = route.line(job.campaign_id) {
            line.in_flight = line.in_flight.saturating_sub(1);
        }
        let in_flight = &self.progress.in_flight;
        in_flight.fetch_sub(u64::from(job.count()), Ordering::Relaxed);
        let is_reached = !matches!(end, RequestResult::Unreached(_));
        match end {
            // It is held, and its claims with it.
            RequestResult::Lapsed => {
                route.breaker.probe_released();
                route.held.push(job);
                // Its moment is given back, and may be the next.
                route.asleep_until_us = 0;
                route.held_until_us = 0;
            }
            RequestResult::Released => {
                route.breaker.probe_released();
                self.release(&job, round);
            }
            RequestResult::Outcomes(mut outcomes) | RequestResult::Unreached(mut outcomes) => {
                if !is_reached && route.has_accepted {
                    outcomes.iter_mut().for_each(try_again);
                } else if !is_reached && route.failing_since.is_none() {
                    warn_unreached(route.provider.name(), &outcomes);
                }
                self.note_campaign(&job, &mut outcomes, round);
                let attempt = attempt(&job, started_us, is_reached, &outcomes);
                let free = self.note_provider(&job, attempt, &outcomes, round);
                for (sms, outcome) in job.rows.iter().zip(outcomes) {
                    let transition = self.transition(&job, sms, outcome, free, round.now);
                    self.count(&transition);
                    if !matches!(transition, Transition::Ready { .. } | Transition::Refunded) {
                        self.finished += 1;
                        self.routes[job.route].breaker.forget(sms.id);
                    }
                    self.tell(&job, sms, &transition, round.now);
                    self.claims.remove(&sms.id);
                    self.inquiry
                        .note(&job.provider, sms, &transition, round.now);
                    round.settlements.push(settlement(&job, sms, transition));
                }
            }
        }
    }

    /// Gives back what was claimed and will not be started: all of it at a stop, else that of campaigns
    /// which must not go on, and what would start long after its claim: who asks the provider what became of a
    /// message takes the time of its claim for that of its attempt. And calls of several while only probes are
    /// sent, which are one message.
    pub(super) fn release_held(&mut self, round: &mut CommitBatch) {
        let stopping = self.is_stopping();
        let worker_id = self.lease.worker_id();
        let now = round.now;
        let soon_us = self.clock.now_us().saturating_add(micros(LONGEST_HOLD));
        for index in 0..self.routes.len() {
            for job in std::mem::take(&mut self.routes[index].held) {
                let route = &mut self.routes[index];
                let waits =
                    route.held_until_us > soon_us || route.stopped_until > now.plus(LONGEST_HOLD);
                let waits = waits || now.since(job.claimed_at) > LONGEST_HOLD;
                let is_away = route.breaker.probe_at().is_some() && job.count() > 1;
                let line = route.line(job.campaign_id);
                // What was claimed under another id was parked when this worker was taken for dead.
                let goes_on = !stopping && !is_away && !waits && job.worker_id == worker_id;
                let goes_on = goes_on && job.is_open(&self.clock);
                if goes_on && line.is_some_and(|line| line.is_active()) {
                    route.held.push(job);
                } else {
                    self.release(&job, round);
                }
            }
        }
    }

    fn release(&mut self, job: &InFlight, round: &mut CommitBatch) {
        self.routes[job.route].released.push(held(job));
        for sms in &job.rows {
            self.claims.remove(&sms.id);
            let transition = released(round.now);
            round.settlements.push(settlement(job, sms, transition));
        }
    }

    fn transition(
        &self,
        job: &InFlight,
        sms: &Sms,
        outcome: Outcome,
        free: bool,
        now: Timestamp,
    ) -> Transition {
        let outcome = match outcome {
            // Of several messages one refusal is one witness: none of them is used up by it.
            Outcome::AccountError {
                failure,
                listed: false,
            } if job.count() > 1 => Outcome::BatchRejected(failure),
            // The whole provider rests for as long as it asked; the message does not, for that may end earlier.
            Outcome::Throttled { failure, .. } => Outcome::Throttled {
                failure,
                retry_after: None,
            },
            outcome => outcome,
        };
        let resend = matches!(outcome, Outcome::Unknown(_)) && !self.can_ask(job.route);
        let resend = resend && self.may_resend(job.route, job.claimed_at, now);
        let config = &self.settings.retry;
        let transition = retry::decide(&outcome, sms, config, resend, now, rand::random());
        match outcome {
            Outcome::Unavailable { failure, .. } if free => Transition::Ready {
                due_at: now,
                failure: Some(failure),
                counted: false,
                in_doubt: false,
            },
            Outcome::Unknown(failure) => match transition {
                // It would be sent when its reference is forgotten.
                Transition::Ready { due_at, .. }
                    if !self.may_resend(job.route, job.claimed_at, due_at) =>
                {
                    Transition::Unknown(failure)
                }
                transition => transition,
            },
            _ => transition,
        }
    }

    /// What the outcomes tell of the campaign: the brake, and an account that is refused.
    fn note_campaign(&mut self, job: &InFlight, outcomes: &mut [Outcome], round: &mut CommitBatch) {
        let Some(line) = self.routes[job.route].line(job.campaign_id) else {
            return;
        };
        if let Some(failure) = outcomes.iter().rev().find_map(Outcome::failure) {
            self.progress.set_last_error(&failure.reason);
        }
        let refused = note_refusals(line, job, outcomes);
        let other = note_outcomes(line, &job.provider, outcomes);
        if let Some((state, reason)) = refused.or(other)
            && line.is_active()
        {
            line.halt(state, Some(reason.clone()));
            round.campaign_stops.push(CampaignStop {
                campaign_id: job.campaign_id,
                state,
                reason,
            });
        }
    }

    /// What the outcomes tell of the provider: one request is one witness. True when its failure was part of
    /// an outage.
    fn note_provider(
        &mut self,
        job: &InFlight,
        attempt: Attempt,
        outcomes: &[Outcome],
        round: &mut CommitBatch,
    ) -> bool {
        let started_us = attempt.started_us;
        let ended_us = self.clock.steady_us();
        let now = round.now;
        let now_us = self.clock.now_us();
        let route = &mut self.routes[job.route];
        let name = route.provider.name().to_owned();
        let took_any = outcomes.iter().any(is_in_its_right_mind);
        if took_any {
            route.accepted();
            route.breaker.read(started_us, ended_us);
            self.progress.set_trouble(None);
        }
        let throttled = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Throttled {
                failure,
                retry_after,
            } => Some((*retry_after, failure)),
            _ => None,
        });
        let throttled = throttled.max_by_key(|(retry_after, _)| *retry_after);
        let failed = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Unavailable { failure, .. } | Outcome::Unknown(failure) => Some(failure),
            _ => None,
        });
        let refused = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Outcome::AccountError { .. }));
        if let Some((retry_after, failure)) = throttled {
            let longest = self.settings.retry.max_retry_after;
            let retry_after = retry_after.map(|retry_after| retry_after.min(longest));
            if let Some(until) = route.throttled(retry_after, now, now_us) {
                let why = &failure.reason;
                self.progress.set_note(Some(stop_note(&name, why, until)));
                route.stop_reason = Some(why.clone());
                round.pauses.push(ProviderPause {
                    provider: name,
                    until,
                    reason: why.clone(),
                });
            }
            route.breaker.answered(started_us);
            if !took_any {
                self.note_failing(job.route, failure, round);
            }
            return false;
        }
        let Some(failure) = failed.filter(|_| !took_any && !refused) else {
            if route.breaker.answered(started_us) {
                tracing::warn!(provider = name, "the provider is back");
            }
            if route.breaker.probe_at().is_none() && route.stopped_until <= now {
                self.progress.set_note(None);
            }
            return false;
        };
        let toll = route.breaker.failed(attempt, ended_us, now, rand::random());
        if let Toll::Free(refunds) = &toll {
            let refunds = refunds.iter().map(|earlier| refund(*earlier, &name));
            round.settlements.extend(refunds);
        }
        self.note_failing(job.route, failure, round);
        matches!(toll, Toll::Free(_))
    }

    fn note_failing(&mut self, index: usize, failure: &Failure, round: &mut CommitBatch) {
        let now = round.now;
        let route = &mut self.routes[index];
        let name = route.provider.name();
        let why = &failure.reason;
        if let Some(probe_at) = route.breaker.probe_at() {
            let wait = probe_at.since(now).as_secs_f32();
            self.progress.set_note(Some(format!(
                "`{name}` is away ({why}): next try in {wait:.1} s"
            )));
        } else if route.stopped_until <= now {
            let note = format!("the last attempt at `{name}` failed: {why}");
            self.progress.set_note(Some(note));
        }
        if !route.has_accepted {
            let trouble = format!("`{name}` never took a message; the last failure: {why}");
            self.progress.set_trouble(Some(trouble));
        }
        let since = *route.failing_since.get_or_insert(now);
        if now.since(since) < self.settings.retry.give_up_after {
            return;
        }
        let reason = format!(
            "`{name}` took no message since {since}; the last: {}",
            failure.reason
        );
        for line in route.lines.iter_mut().filter(|line| line.is_active()) {
            line.halt(CampaignStatus::Stopped, Some(reason.clone()));
            round.campaign_stops.push(CampaignStop {
                campaign_id: line.campaign.id,
                state: CampaignStatus::Stopped,
                reason: reason.clone(),
            });
        }
    }

    fn count(&self, transition: &Transition) {
        let counter = match transition {
            Transition::Sent(_) => &self.progress.sent,
            Transition::Failed(_) | Transition::FoundRejected(_) | Transition::NotAdmitted(_) => {
                &self.progress.failed
            }
            Transition::Unknown(_) => &self.progress.unknown,
            Transition::Ready { .. } => &self.progress.retried,
            Transition::Refunded => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, job: &InFlight, sms: &Sms, transition: &Transition, now: Timestamp) {
        let Some(events) = &self.events else { return };
        let route = &self.routes[job.route];
        let mut lines = route.lines.iter();
        let line = lines.find(|line| line.campaign.id == job.campaign_id);
        let again_at = line
            .is_none_or(CampaignState::is_active)
            .then(|| route.rests_until(now));
        let event = Event {
            sms_id: sms.id,
            phone: mask(&sms.phone),
            what: story(transition, again_at, now),
        };
        // Nobody listens any more: nothing is lost but the commentary.
        drop(events.send(event));
    }
}

/// A request as the breaker sees it: with its message, where that may be what is wrong with it.
/// Says why a provider is not reached at its first failure: the url may be wrong.
fn warn_unreached(provider: &str, outcomes: &[Outcome]) {
    if let Some(Outcome::Unavailable { failure, .. }) = outcomes.first() {
        tracing::warn!(
            provider,
            reason = failure.reason,
            "the provider cannot be reached"
        );
    }
}

fn attempt(job: &InFlight, started_us: i64, is_reached: bool, outcomes: &[Outcome]) -> Attempt {
    let certain = job.rows.iter().zip(outcomes).filter_map(|(sms, outcome)| {
        matches!(outcome, Outcome::Unavailable { .. }).then_some((sms.id, sms.claim))
    });
    let message = match job.rows.as_slice() {
        [one] if is_reached => Some(one.id),
        _ => None,
    };
    Attempt {
        started_us,
        message,
        certain: certain.collect(),
    }
}

/// A provider that has taken messages is away, whatever is wrong with the connection to it now.
fn try_again(outcome: &mut Outcome) {
    if let Outcome::AccountError { failure, .. } = outcome {
        *outcome = Outcome::Unavailable {
            failure: failure.clone(),
            retry_after: None,
        };
    }
}

/// That a provider is not to be called, for the operator.
pub(super) fn stop_note(provider: &str, why: &str, until: Timestamp) -> String {
    format!("`{provider}` asked to wait until {until} ({why})")
}

/// What happened and what will happen next, in the operator's words. Nothing is tried again before `again_at`;
/// `None`: not in this run.
fn story(transition: &Transition, again_at: Option<Timestamp>, now: Timestamp) -> String {
    match transition {
        Transition::Sent(acceptance) => match &acceptance.message_id {
            Some(id) => format!("sent ({id})"),
            None => "sent".to_owned(),
        },
        Transition::Failed(failure)
        | Transition::FoundRejected(failure)
        | Transition::NotAdmitted(failure) => {
            format!("failed: {}", failure.reason)
        }
        Transition::Unknown(failure) => format!("unknown, parked: {}", failure.reason),
        Transition::Ready {
            due_at, failure, ..
        } => {
            let why = failure
                .as_ref()
                .map_or("not started", |failure| &failure.reason);
            let Some(again_at) = again_at else {
                return format!("stays in the queue, its campaign does not go on: {why}");
            };
            let wait = (*due_at).max(again_at).since(now).as_secs_f32();
            format!("will be tried again in {wait:.1} s: {why}")
        }
        Transition::Refunded => "attempt given back".to_owned(),
    }
}

fn settlement(job: &InFlight, sms: &Sms, transition: Transition) -> Settlement {
    Settlement {
        id: sms.id,
        claim: sms.claim,
        provider: job.provider.name().to_owned(),
        transition,
    }
}

fn refund((id, claim): (i64, i64), provider: &str) -> Settlement {
    Settlement {
        id,
        claim,
        provider: provider.to_owned(),
        transition: Transition::Refunded,
    }
}

/// It was never started: ready again, and no attempt.
fn released(now: Timestamp) -> Transition {
    Transition::Ready {
        due_at: now,
        failure: None,
        counted: false,
        in_doubt: false,
    }
}
