//! What the clerk makes of a message that came back: its fate, and what it tells of its provider and
//! its campaign.

use std::sync::atomic::Ordering;

use super::breaker::{Attempt, Toll};
use super::claiming::held;
use super::clerk::Clerk;
use super::slot::{End, Ended, Job};
use super::{Event, retry};
use crate::phone::mask;
use crate::sms::{Cause, Class, Outcome, Timestamp};
use crate::store::{CampaignState, Fate, Halt, Round, Settlement};

impl Clerk {
    pub(super) fn conclude(&mut self, ended: Ended, round: &mut Round) {
        let Ended {
            job,
            started_us,
            end,
        } = ended;
        let route = &mut self.routes[job.route];
        route.in_flight -= 1;
        self.progress.in_flight.fetch_sub(1, Ordering::Relaxed);
        match end {
            // It is held, and its claim with it.
            End::Lapsed => {
                route.breaker.probe_released();
                route.held.push(job);
                // Its moment is given back, and may be the next.
                route.asleep_until_us = 0;
                route.held_until_us = 0;
            }
            End::Released => {
                route.breaker.probe_released();
                route.returned.push(held(&job));
                round
                    .settlements
                    .push(settlement(&job, released(round.now)));
            }
            End::Outcome(outcome) => {
                let fate = self.fate(&job, started_us, outcome, round);
                self.count(&fate);
                self.tell(&job, &fate, round.now);
                self.claims.remove(&job.sms.id);
                self.inquiry.note(&job, &fate, round.now);
                round.settlements.push(settlement(&job, fate));
            }
        }
    }

    /// Gives back what was claimed and will not be started: all of it at a stop, else that of campaigns
    /// which must not go on.
    pub(super) fn release_held(&mut self, round: &mut Round) {
        let stopping = self.is_stopping();
        let worker_id = self.lease.worker_id();
        for route in &mut self.routes {
            for job in std::mem::take(&mut route.held) {
                let line = route.line(job.sms.campaign_id);
                // What was claimed under another id was parked when this worker was taken for dead.
                let goes_on = !stopping && job.worker_id == worker_id;
                let goes_on = goes_on && job.is_open(&self.clock);
                if goes_on && line.is_some_and(|line| line.is_active()) {
                    route.held.push(job);
                    continue;
                }
                self.claims.remove(&job.sms.id);
                route.returned.push(held(&job));
                round
                    .settlements
                    .push(settlement(&job, released(round.now)));
            }
        }
    }

    fn fate(
        &mut self,
        job: &Job,
        started_us: i64,
        mut outcome: Outcome,
        round: &mut Round,
    ) -> Fate {
        self.note_campaign(job, &mut outcome, round);
        let free = self.note_provider(job, started_us, &outcome, round);
        let resend = matches!(outcome, Outcome::Unknown(_)) && !self.can_ask(job.route);
        let resend = resend && self.may_resend(job.route, job.claimed_at, round.now);
        let config = &self.settings.retry;
        let fate = retry::decide(
            &outcome,
            &job.sms,
            config,
            resend,
            round.now,
            rand::random(),
        );
        match outcome {
            Outcome::Unavailable { cause, .. } if free => Fate::Ready {
                due_at: round.now,
                cause: Some(cause),
                counted: false,
                in_doubt: false,
            },
            Outcome::Throttled { cause, .. } => Fate::Ready {
                due_at: self.routes[job.route].stopped_until.max(round.now),
                cause: Some(cause),
                counted: false,
                in_doubt: false,
            },
            Outcome::Unknown(cause) => match fate {
                // It would be sent when its reference is forgotten.
                Fate::Ready { due_at, .. }
                    if !self.may_resend(job.route, job.claimed_at, due_at) =>
                {
                    Fate::Unknown(cause)
                }
                fate => fate,
            },
            _ => fate,
        }
    }

    /// What the outcome tells of the campaign: the brake, and an account that is refused.
    fn note_campaign(&mut self, job: &Job, outcome: &mut Outcome, round: &mut Round) {
        let route = &mut self.routes[job.route];
        let provider = route.provider.name().to_owned();
        let Some(line) = route.line(job.sms.campaign_id) else {
            return;
        };
        let refused = line.refused.take();
        let halt = match outcome {
            Outcome::Refused { cause, listed } => {
                let by_two = refused.is_some_and(|id| id != job.sms.id);
                *listed = *listed || by_two || !line.is_active();
                line.refused = Some(job.sms.id);
                listed.then(|| {
                    (
                        CampaignState::Stopped,
                        format!("`{provider}` refuses the account: {}", cause.reason),
                    )
                })
            }
            Outcome::Rejected(cause) if cause.class != Class::OptedOut => {
                line.brake.note(true).map(|(rejected, seen)| {
                    let last = &cause.reason;
                    let why = format!(
                        "{rejected} of the last {seen} messages were rejected; the last: {last}"
                    );
                    (CampaignState::Paused, why)
                })
            }
            Outcome::Accepted(_) => {
                line.brake.note(false);
                None
            }
            _ => None,
        };
        if let Some((state, reason)) = halt
            && line.is_active()
        {
            line.halt(state, Some(reason.clone()));
            round.halts.push(Halt {
                campaign_id: job.sms.campaign_id,
                state,
                reason,
            });
        }
    }

    /// What the outcome tells of the provider; true when the attempt was part of an outage.
    fn note_provider(
        &mut self,
        job: &Job,
        started_us: i64,
        outcome: &Outcome,
        round: &mut Round,
    ) -> bool {
        let now = round.now;
        let now_us = self.clock.now_us();
        let route = &mut self.routes[job.route];
        let name = route.provider.name().to_owned();
        let (failing, free) = match outcome {
            Outcome::Accepted(_) | Outcome::Rejected(_) | Outcome::Capped { .. } => {
                route.accepted();
                (None, false)
            }
            Outcome::Refused { .. } => (None, false),
            Outcome::Throttled { cause, retry_after } => {
                if let Some(until) = route.throttled(*retry_after, now, now_us) {
                    let wait = until.since(now).as_secs_f32();
                    let note = format!("`{name}` asks for less: nothing is sent for {wait:.1} s");
                    self.progress.set_note(Some(note));
                    round.stops.push((name.clone(), until));
                }
                (Some(cause), false)
            }
            Outcome::Unavailable { cause, .. } | Outcome::Unknown(cause) => {
                let certain = matches!(outcome, Outcome::Unavailable { .. });
                let attempt = Attempt {
                    id: job.sms.id,
                    claim: job.sms.claim,
                    started_us,
                    certain,
                };
                match route.breaker.failed(attempt, now, rand::random()) {
                    Toll::Counted => (Some(cause), false),
                    Toll::Free(refunds) => {
                        round
                            .settlements
                            .extend(refunds.iter().map(|one| refund(one, &name)));
                        (Some(cause), true)
                    }
                }
            }
        };
        let Some(cause) = failing.cloned() else {
            if route.breaker.answered(started_us) {
                tracing::warn!(provider = name, "the provider is back");
            }
            if route.breaker.probe_at().is_none() && route.stopped_until <= now {
                self.progress.set_note(None);
            }
            return free;
        };
        if matches!(outcome, Outcome::Throttled { .. }) {
            route.breaker.answered(started_us);
        }
        self.note_failing(job.route, &cause, round);
        free
    }

    fn note_failing(&mut self, index: usize, cause: &Cause, round: &mut Round) {
        let now = round.now;
        let route = &mut self.routes[index];
        let name = route.provider.name();
        if let Some(probe_at) = route.breaker.probe_at() {
            let wait = probe_at.since(now).as_secs_f32();
            let why = &cause.reason;
            self.progress.set_note(Some(format!(
                "`{name}` is away ({why}): next try in {wait:.1} s"
            )));
        }
        let since = *route.failing_since.get_or_insert(now);
        if now.since(since) < self.settings.retry.give_up_after {
            return;
        }
        let reason = format!(
            "`{name}` took no message since {since}; the last: {}",
            cause.reason
        );
        for line in route.lines.iter_mut().filter(|line| line.is_active()) {
            line.halt(CampaignState::Stopped, Some(reason.clone()));
            round.halts.push(Halt {
                campaign_id: line.campaign.id,
                state: CampaignState::Stopped,
                reason: reason.clone(),
            });
        }
    }

    fn count(&self, fate: &Fate) {
        let counter = match fate {
            Fate::Sent(_) => &self.progress.sent,
            Fate::Failed(_) | Fate::Refused(_) => &self.progress.failed,
            Fate::Unknown(_) => &self.progress.unknown,
            Fate::Ready { .. } => &self.progress.retried,
            Fate::Refunded => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, job: &Job, fate: &Fate, now: Timestamp) {
        let Some(events) = &self.events else { return };
        let event = Event {
            sms_id: job.sms.id,
            phone: mask(&job.sms.phone),
            what: story(fate, now),
        };
        // Nobody listens any more: nothing is lost but the commentary.
        drop(events.send(event));
    }
}

/// What happened and what will happen next, in the operator's words.
fn story(fate: &Fate, now: Timestamp) -> String {
    match fate {
        Fate::Sent(receipt) => match &receipt.message_id {
            Some(id) => format!("sent ({id})"),
            None => "sent".to_owned(),
        },
        Fate::Failed(cause) | Fate::Refused(cause) => format!("failed: {}", cause.reason),
        Fate::Unknown(cause) => format!("unknown, parked: {}", cause.reason),
        Fate::Ready { due_at, cause, .. } => {
            let wait = due_at.since(now).as_secs_f32();
            let why = cause.as_ref().map_or("not started", |cause| &cause.reason);
            format!("will be tried again in {wait:.1} s: {why}")
        }
        Fate::Refunded => "attempt given back".to_owned(),
    }
}

fn settlement(job: &Job, fate: Fate) -> Settlement {
    Settlement {
        id: job.sms.id,
        claim: job.sms.claim,
        provider: job.provider.name().to_owned(),
        fate,
    }
}

fn refund(attempt: &Attempt, provider: &str) -> Settlement {
    Settlement {
        id: attempt.id,
        claim: attempt.claim,
        provider: provider.to_owned(),
        fate: Fate::Refunded,
    }
}

/// It was never started: ready again, and no attempt.
fn released(now: Timestamp) -> Fate {
    Fate::Ready {
        due_at: now,
        cause: None,
        counted: false,
        in_doubt: false,
    }
}
