//! Turns the outcomes of a request into settlements, and learns from them about its provider and its
//! campaign.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smsq_lifecycle::{Transition, retry};
use smsq_message::activity::ActivityCounts;
use smsq_message::instant::SteadyMicros;
use smsq_message::sms::{Outcome, Sms, Timestamp};
use smsq_provider::Message;
use smsq_store::CampaignStatus;

use super::Dispatcher;
use crate::lookup::LookupEvent;
use crate::provider_state::breaker::FailedRequest;
use crate::request::{Finished, InFlight, RequestEnd, put_back};

impl Dispatcher {
    /// Adds the results of a request to the next commit.
    pub(super) fn settle_finished(&mut self, finished: Finished) {
        let Finished { request, started_at, ended_at, result } = finished;
        let was_sent = !matches!(result, RequestEnd::Late | RequestEnd::Released);
        let is_reached = !matches!(result, RequestEnd::Unreached(_));
        let now = self.results.now;
        let state = &mut self.providers[request.index];
        state.end_request(&request, was_sent);
        let in_flight = &self.context.progress.in_flight;
        in_flight.fetch_sub(u64::from(request.count()), Ordering::Relaxed);
        let mut outcomes = match result {
            RequestEnd::Late => return state.await_permit(request),
            RequestEnd::Released => {
                state.release(&request);
                return self.requeue(&request);
            }
            RequestEnd::Outcomes(outcomes) => outcomes,
            RequestEnd::Unreached(mut outcomes) => {
                state.handle_unreached(&mut outcomes);
                outcomes
            }
        };
        state.handle_sender(&request, &mut outcomes);
        state.handle_refused(&request, &mut outcomes);
        self.check_campaign(&request, &mut outcomes);
        let attempt = attempt(&request, started_at, is_reached, &outcomes);
        let state = &mut self.providers[request.index];
        let answered = is_reached.then_some((ended_at.since(started_at), ended_at));
        let telemetry = state.telemetry();
        telemetry.record(&request.rows, &outcomes, answered, now);
        let sender = request.sender.as_ref();
        let is_outage = state.learn(&self.context, attempt, sender, &outcomes, &mut self.results);
        let provider = &request.provider;
        let resends = self.context.resend_rule(provider);
        let can_lookup = request.provider.capabilities().lookup.is_some();
        let mut counts = ActivityCounts::default();
        for (sms, outcome) in request.rows.iter().zip(outcomes) {
            match &outcome {
                Outcome::Throttled { .. } => counts.throttled += 1,
                Outcome::Unavailable { .. } => counts.unavailable += 1,
                _ => {}
            }
            let attempt = retry::Attempt {
                sms,
                batch: request.rows.len(),
                is_outage,
                // Before it is sent again, the provider is asked.
                resend_before: (!can_lookup)
                    .then(|| resends.end(sms.doubt_since.or(Some(request.claimed_at)))),
            };
            let config = &self.context.settings.retry;
            let transition = retry::decide(outcome, &attempt, config, now, rand::random());
            count(&transition, &mut counts);
            match transition {
                Transition::Ready { due_at, .. } => {
                    self.context.progress.retried.fetch_add(1, Ordering::Relaxed);
                    self.expect_message(&request, due_at);
                }
                Transition::Refunded => {}
                _ => {
                    self.done += 1;
                    self.providers[request.index].forget(sms.id);
                }
            }
            self.emit_event(&request, sms, &transition, now);
            self.lookups.add(&request.provider, sms, &transition, now);
            self.results.settlements.push(request.settlement(sms, transition));
        }
        let progress = &self.context.progress;
        progress.record(now, request.campaign_id, provider.name(), counts);
        if counts.sent > 0 {
            self.keep_claimed(request.rows, request.messages);
        }
    }

    /// Keeps messages of which some were accepted, as they were claimed.
    fn keep_claimed(&mut self, rows: Vec<Sms>, messages: Vec<Message>) {
        for (sms, message) in rows.into_iter().zip(messages) {
            let sms = put_back(sms, message);
            self.results.claimed.insert(sms.id, sms);
        }
    }

    /// Puts requests back into the queue that must not be started.
    pub(super) fn release_waiting(&mut self) {
        for index in 0..self.providers.len() {
            let released = self.providers[index].release_waiting(&self.context, self.results.now);
            for request in released {
                self.requeue(&request);
            }
        }
    }

    /// Puts the messages of a request that was not started back into the queue.
    fn requeue(&mut self, request: &InFlight) {
        let now = self.results.now;
        self.expect_message(request, now);
        let transition = Transition::wait_until(now);
        let settlements =
            request.rows.iter().map(|sms| request.settlement(sms, transition.clone()));
        self.results.settlements.extend(settlements);
    }

    fn expect_message(&mut self, request: &InFlight, due_at: Timestamp) {
        if let Some(campaign) = self.providers[request.index].campaign(request.campaign_id) {
            campaign.expect_message(request.lane, due_at);
        }
    }

    /// Takes over the result of a status lookup.
    pub(super) fn take_lookup(&mut self, event: LookupEvent) {
        match event {
            LookupEvent::Settle(settlement) => self.results.settlements.push(settlement),
            LookupEvent::NotAccepted { index, campaign_id, outcome } => {
                let state = &mut self.providers[index];
                let provider = Arc::clone(state.provider());
                let Some(campaign) = state.campaign(campaign_id) else {
                    return;
                };
                let halt = match &outcome {
                    Outcome::AccountError { failure, .. } => {
                        let (name, why) = (provider.name(), &failure.reason);
                        let reason = format!("`{name}` refuses the account: {why}");
                        Some((CampaignStatus::Stopped, reason))
                    }
                    outcome => campaign.halt_for(&provider, std::slice::from_ref(outcome)),
                };
                if let Some((state, reason)) = halt
                    && campaign.is_active()
                {
                    self.results.campaign_stops.push(campaign.stop(state, reason));
                }
            }
            LookupEvent::Concluded => self.lookups.restart_wait(),
            LookupEvent::Over(index, free_at) => self.lookups.end(index, free_at),
        }
    }

    /// Checks whether the outcomes pause or stop the campaign.
    fn check_campaign(&mut self, request: &InFlight, outcomes: &mut [Outcome]) {
        let Some(campaign) = self.providers[request.index].campaign(request.campaign_id) else {
            return;
        };
        let refused = campaign.halt_for_refusal(request, outcomes);
        let other = campaign.halt_for(&request.provider, outcomes);
        if let Some((state, reason)) = refused.or(other)
            && campaign.is_active()
        {
            self.results.campaign_stops.push(campaign.stop(state, reason));
        }
    }
}

/// The request for the circuit breaker, with its message where that may be the cause of a failure.
fn attempt(
    request: &InFlight,
    started_at: SteadyMicros,
    is_reached: bool,
    outcomes: &[Outcome],
) -> FailedRequest {
    let refundable = request.rows.iter().zip(outcomes).filter_map(|(sms, outcome)| {
        matches!(outcome, Outcome::Unavailable { .. }).then_some((sms.id, sms.claim))
    });
    let only = match request.rows.as_slice() {
        [sms] if is_reached => Some(sms),
        _ => None,
    };
    let is_refused = matches!(outcomes, [Outcome::Unavailable { .. }]);
    FailedRequest {
        started_at,
        message: only.map(|sms| sms.id),
        may_be_repeated: is_refused && only.is_some_and(|sms| sms.is_reference_reused),
        refundable: refundable.collect(),
    }
}

fn count(transition: &Transition, counts: &mut ActivityCounts) {
    match transition {
        Transition::Sent(_) => counts.sent += 1,
        Transition::Failed(_)
        | Transition::FoundRejected(_)
        | Transition::FoundAbsent(_)
        | Transition::NotAdmitted(_) => counts.failed += 1,
        Transition::Unknown(_) => counts.unknown += 1,
        Transition::Ready { .. } | Transition::Refunded => {}
    }
}
