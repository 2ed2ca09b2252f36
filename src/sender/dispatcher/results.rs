//! Turns the outcomes of a request into settlements, and learns from them about its provider and its
//! campaign.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Dispatcher;
use crate::phone::mask;
use crate::queue::{Settlement, Transition, retry};
use crate::sender::Event;
use crate::sender::breaker::{Attempt, AttemptCharge};
use crate::sender::campaign_state::CampaignState;
use crate::sender::clock::micros;
use crate::sender::lookup::LookupEvent;
use crate::sender::provider_state::pause_note;
use crate::sender::request::{Finished, InFlight, RequestResult};
use crate::sms::{Failure, Outcome, Sms, Timestamp};
use crate::store::{CampaignStatus, CampaignStop, CommitBatch, ProviderPause};

/// A claimed request that did not start is released rather than held for longer than this.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Adds the results of a request to the next commit.
    pub(super) fn settle_finished(&mut self, finished: Finished, batch: &mut CommitBatch) {
        let Finished {
            request,
            started_us,
            result,
        } = finished;
        let state = &mut self.providers[request.index];
        state.in_flight -= 1;
        if let Some(campaign) = state.campaign(request.campaign_id) {
            campaign.in_flight = campaign.in_flight.saturating_sub(1);
        }
        let in_flight = &self.context.progress.in_flight;
        in_flight.fetch_sub(u64::from(request.count()), Ordering::Relaxed);
        let is_reached = !matches!(result, RequestResult::Unreached(_));
        let mut outcomes = match result {
            RequestResult::Late => {
                state.breaker.probe_released();
                state.held.push(request);
                // Its permit goes back, and may be the next one.
                state.wake();
                return;
            }
            RequestResult::Released => {
                state.breaker.probe_released();
                self.release(&request, batch);
                return;
            }
            RequestResult::Outcomes(outcomes) | RequestResult::Unreached(outcomes) => outcomes,
        };
        if !is_reached && state.has_accepted {
            outcomes.iter_mut().for_each(make_unavailable);
        } else if !is_reached && state.failing_since.is_none() {
            warn_unreached(state.provider.name(), &outcomes);
        }
        self.note_campaign(&request, &mut outcomes, batch);
        let attempt = attempt(&request, started_us, is_reached, &outcomes);
        let is_outage = self.note_provider(&request, attempt, &outcomes, batch);
        let provider = &request.provider;
        let resend_before = self.context.resend_before(provider, request.claimed_at);
        let can_lookup = request.provider.capabilities().lookup.is_some();
        for (sms, outcome) in request.rows.iter().zip(outcomes) {
            let attempt = retry::Attempt {
                sms,
                batch: request.rows.len(),
                is_outage,
                // Before it is sent again, the provider is asked.
                resend_before: resend_before.filter(|_| !can_lookup),
            };
            let config = &self.context.settings.retry;
            let transition = retry::decide(outcome, &attempt, config, batch.now, rand::random());
            self.count(&transition);
            if !matches!(transition, Transition::Ready { .. } | Transition::Refunded) {
                self.done += 1;
                self.providers[request.index].breaker.forget(sms.id);
            }
            self.emit_event(&request, sms, &transition, batch.now);
            self.lookups
                .note(&request.provider, sms, &transition, batch.now);
            batch
                .settlements
                .push(settlement(&request, sms, transition));
        }
    }

    /// Releases held requests: all at a stop, otherwise those of campaigns that must not go on, and
    /// those that would start long after their claim, because a status lookup takes the time of the
    /// claim for that of the request. While the provider is probed, batches too: a probe is a single
    /// message.
    pub(super) fn release_held(&mut self, batch: &mut CommitBatch) {
        let is_stopping = self.context.is_stopping();
        let worker_id = self.context.lease.worker_id();
        let now = batch.now;
        let soon_us = self
            .context
            .clock
            .now_us()
            .saturating_add(micros(LONGEST_HOLD));
        for index in 0..self.providers.len() {
            for request in std::mem::take(&mut self.providers[index].held) {
                let state = &mut self.providers[index];
                let waits_long = state.next_held_us > soon_us
                    || state.paused_until > now.plus(LONGEST_HOLD)
                    || now.since(request.claimed_at) > LONGEST_HOLD;
                let is_too_large = state.breaker.is_open() && request.count() > 1;
                let campaign = state.campaign(request.campaign_id);
                let is_active = campaign.is_some_and(|campaign| campaign.is_active());
                // What was claimed under another id became unknown when this worker was declared dead.
                let is_own = request.worker_id == worker_id;
                let is_kept = is_active && is_own && !is_stopping && !is_too_large && !waits_long;
                if is_kept && request.is_open(&self.context.clock) {
                    state.held.push(request);
                } else {
                    self.release(&request, batch);
                }
            }
        }
    }

    fn release(&mut self, request: &InFlight, batch: &mut CommitBatch) {
        let released = &mut self.providers[request.index].released;
        released.push(request.reservation());
        for sms in &request.rows {
            let transition = Transition::wait_until(batch.now);
            batch.settlements.push(settlement(request, sms, transition));
        }
    }

    /// Takes over the result of a status lookup.
    pub(super) fn take_lookup(&mut self, event: LookupEvent) {
        match event {
            LookupEvent::Settle(settlement) => self.found.push(settlement),
            LookupEvent::NotAccepted {
                index,
                campaign_id,
                outcome,
            } => {
                let state = &mut self.providers[index];
                let provider = Arc::clone(&state.provider);
                let Some(campaign) = state.campaign(campaign_id) else {
                    return;
                };
                let halt = match &outcome {
                    Outcome::AccountError { failure, .. } => {
                        let (name, why) = (provider.name(), &failure.reason);
                        let reason = format!("`{name}` refuses the account: {why}");
                        Some((CampaignStatus::Stopped, reason))
                    }
                    outcome => campaign.note_outcomes(&provider, std::slice::from_ref(outcome)),
                };
                if let Some((state, reason)) = halt
                    && campaign.is_active()
                {
                    self.stops.push(stop(campaign, state, reason));
                }
            }
            LookupEvent::Over(index, free_at) => self.lookups.end(index, free_at),
        }
    }

    /// Checks whether the outcomes pause or stop the campaign.
    fn note_campaign(
        &mut self,
        request: &InFlight,
        outcomes: &mut [Outcome],
        batch: &mut CommitBatch,
    ) {
        let Some(campaign) = self.providers[request.index].campaign(request.campaign_id) else {
            return;
        };
        if let Some(failure) = outcomes.iter().rev().find_map(Outcome::failure) {
            self.context.progress.set_last_error(&failure.reason);
        }
        let refused = campaign.note_refusals(request, outcomes);
        let other = campaign.note_outcomes(&request.provider, outcomes);
        if let Some((state, reason)) = refused.or(other)
            && campaign.is_active()
        {
            batch.campaign_stops.push(stop(campaign, state, reason));
        }
    }

    /// Learns about the provider: one request is one sign, however many messages it held. Returns
    /// whether its failure was part of an outage.
    fn note_provider(
        &mut self,
        request: &InFlight,
        attempt: Attempt,
        outcomes: &[Outcome],
        batch: &mut CommitBatch,
    ) -> bool {
        let started_us = attempt.started_us;
        let ended_us = self.context.clock.steady_us();
        let (now, now_us) = (batch.now, self.context.clock.now_us());
        let state = &mut self.providers[request.index];
        let name = request.provider.name().to_owned();
        let is_read = outcomes.iter().any(is_definitive);
        if is_read {
            state.note_accepted();
            state.breaker.read(started_us, ended_us);
            self.context.progress.set_trouble(None);
        }
        let throttled = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Throttled {
                failure,
                retry_after,
            } => Some((*retry_after, failure)),
            _ => None,
        });
        if let Some((retry_after, failure)) = throttled.max_by_key(|(after, _)| *after) {
            let longest = self.context.settings.retry.max_retry_after;
            let retry_after = retry_after.map(|retry_after| retry_after.min(longest));
            if let Some(until) = state.throttled(retry_after, now, now_us) {
                let why = &failure.reason;
                self.context
                    .progress
                    .set_note(Some(pause_note(&name, why, until)));
                state.pause_reason = Some(why.clone());
                batch.pauses.push(ProviderPause {
                    provider: name,
                    until,
                    reason: why.clone(),
                });
            }
            state.breaker.answered(started_us);
            if !is_read {
                self.note_failing(request.index, failure, batch);
            }
            return false;
        }
        let failed = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Unavailable { failure, .. } | Outcome::Unknown(failure) => Some(failure),
            _ => None,
        });
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::AccountError { .. });
        let is_refused = outcomes.iter().any(is_refused);
        let Some(failure) = failed.filter(|_| !is_read && !is_refused) else {
            if state.breaker.answered(started_us) {
                tracing::warn!(provider = name, "the provider is back");
            }
            if !state.breaker.is_open() && state.paused_until <= now {
                self.context.progress.set_note(None);
            }
            return false;
        };
        let charge = state.breaker.failed(attempt, ended_us, now, rand::random());
        let is_outage = matches!(charge, AttemptCharge::Free(_));
        if let AttemptCharge::Free(refunds) = charge {
            let refunds = refunds.into_iter().map(|(id, claim)| Settlement {
                id,
                claim,
                provider: name.clone(),
                transition: Transition::Refunded,
            });
            batch.settlements.extend(refunds);
        }
        self.note_failing(request.index, failure, batch);
        is_outage
    }

    fn note_failing(&mut self, index: usize, failure: &Failure, batch: &mut CommitBatch) {
        let now = batch.now;
        let state = &mut self.providers[index];
        let name = state.provider.name();
        let why = &failure.reason;
        if let Some(probe_at) = state.breaker.probe_at() {
            let wait = probe_at.since(now).as_secs_f32();
            self.context.progress.set_note(Some(format!(
                "`{name}` is away ({why}): next try in {wait:.1} s"
            )));
        } else if state.paused_until <= now {
            let note = format!("the last attempt at `{name}` failed: {why}");
            self.context.progress.set_note(Some(note));
        }
        if !state.has_accepted {
            let trouble = format!("`{name}` never took a message; the last failure: {why}");
            self.context.progress.set_trouble(Some(trouble));
        }
        let since = *state.failing_since.get_or_insert(now);
        if now.since(since) < self.context.settings.retry.give_up_after {
            return;
        }
        let reason = format!("`{name}` took no message since {since}; the last: {why}");
        let active = state.campaigns.iter_mut().filter(|state| state.is_active());
        let stops = active.map(|state| stop(state, CampaignStatus::Stopped, reason.clone()));
        batch.campaign_stops.extend(stops);
    }

    fn count(&self, transition: &Transition) {
        let counter = match transition {
            Transition::Sent(_) => &self.context.progress.sent,
            Transition::Failed(_) | Transition::FoundRejected(_) | Transition::NotAdmitted(_) => {
                &self.context.progress.failed
            }
            Transition::Unknown(_) => &self.context.progress.unknown,
            Transition::Ready { .. } => &self.context.progress.retried,
            Transition::Refunded => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn emit_event(&self, request: &InFlight, sms: &Sms, transition: &Transition, now: Timestamp) {
        let Some(events) = &self.events else { return };
        let state = &self.providers[request.index];
        let mut campaigns = state.campaigns.iter();
        let campaign = campaigns.find(|state| state.campaign.id == request.campaign_id);
        let is_active = campaign.is_none_or(CampaignState::is_active);
        let event = Event {
            sms_id: sms.id,
            phone: mask(&sms.phone),
            what: describe(transition, is_active.then(|| state.rests_until(now)), now),
        };
        // Without a listener only the display is lost.
        drop(events.send(event));
    }
}

/// Halts the campaign here, and in the next commit.
fn stop(campaign: &mut CampaignState, state: CampaignStatus, reason: String) -> CampaignStop {
    campaign.halt(state, Some(reason.clone()));
    CampaignStop {
        campaign_id: campaign.campaign.id,
        state,
        reason,
    }
}

/// The provider read the message, whether or not it accepted it.
fn is_definitive(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Accepted(_)
            | Outcome::Rejected(_)
            | Outcome::Deferred { .. }
            | Outcome::BatchRejected(_)
    )
}

/// Warns at the first failure to connect, because the url may be wrong.
fn warn_unreached(provider: &str, outcomes: &[Outcome]) {
    if let Some(Outcome::Unavailable { failure, .. }) = outcomes.first() {
        tracing::warn!(
            provider,
            reason = failure.reason,
            "the provider cannot be reached"
        );
    }
}

/// The request for the circuit breaker, with its message where that may be the cause of a failure.
fn attempt(request: &InFlight, started_us: i64, is_reached: bool, outcomes: &[Outcome]) -> Attempt {
    let refundable = request
        .rows
        .iter()
        .zip(outcomes)
        .filter_map(|(sms, outcome)| {
            matches!(outcome, Outcome::Unavailable { .. }).then_some((sms.id, sms.claim))
        });
    let message = match request.rows.as_slice() {
        [one] if is_reached => Some(one.id),
        _ => None,
    };
    Attempt {
        started_us,
        message,
        refundable: refundable.collect(),
    }
}

/// A provider that has accepted messages before is down, whatever the connection error says.
fn make_unavailable(outcome: &mut Outcome) {
    if let Outcome::AccountError { failure, .. } = outcome {
        *outcome = Outcome::Unavailable {
            failure: failure.clone(),
            retry_after: None,
        };
    }
}

/// Says what happened and what happens next. Nothing is tried again before `again_at`; `None`: not in
/// this run.
fn describe(transition: &Transition, again_at: Option<Timestamp>, now: Timestamp) -> String {
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
        Transition::Unknown(failure) => format!("unknown: {}", failure.reason),
        Transition::Ready {
            due_at, failure, ..
        } => {
            let why = failure
                .as_ref()
                .map_or("not started", |failure| &failure.reason);
            let Some(again_at) = again_at else {
                return format!("stays queued, because its campaign has stopped: {why}");
            };
            let wait = (*due_at).max(again_at).since(now).as_secs_f32();
            format!("will be tried again in {wait:.1} s: {why}")
        }
        Transition::Refunded => "attempt not counted".to_owned(),
    }
}

fn settlement(request: &InFlight, sms: &Sms, transition: Transition) -> Settlement {
    Settlement {
        id: sms.id,
        claim: sms.claim,
        provider: request.provider.name().to_owned(),
        transition,
    }
}
