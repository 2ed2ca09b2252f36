//! What the dispatcher shows of its state.

use std::time::Duration;

use smsq_lifecycle::Transition;
use smsq_message::activity::Bottleneck;
use smsq_message::phone::mask;
use smsq_message::sms::{Sms, Timestamp};

use super::Dispatcher;
use crate::campaign_state::CampaignState;
use crate::provider_state::ProviderState;
use crate::request::InFlight;
use crate::telemetry::{MessageEvent, WorkerSnapshot};

/// A campaign that waits for longer than this is shown.
const SHOWN_WAIT: Duration = Duration::from_secs(5);

impl Dispatcher {
    /// Why no more requests start now; `None`: nothing is left to start.
    pub(super) fn bottleneck(&self) -> Option<Bottleneck> {
        let (now, instant) = (self.context.clock.now(), self.context.clock.instant());
        let working = self.providers.iter().filter(|state| state.has_work());
        if working.clone().any(|state| state.idle_until(now) > now) {
            return Some(Bottleneck::Provider);
        }
        let mut bound = working.clone().filter(|state| state.is_bound(instant));
        if let Some(state) = bound.next() {
            // After a 429 the limit is the provider's wish, not the setting.
            return Some(if state.is_throttled() {
                Bottleneck::Provider
            } else {
                Bottleneck::RateLimit
            });
        }
        let is_committing = self.committer.committing().is_some();
        match (self.free(), working.count()) {
            (0, _) => Some(Bottleneck::Concurrency),
            (_, 0) => None,
            _ => is_committing.then_some(Bottleneck::Database),
        }
    }

    /// Records the state of the worker for the operator.
    pub(super) fn record_state(&self) {
        let clock = &self.context.clock;
        let (now, steady) = (clock.now(), clock.steady());
        let busy = self.providers.iter().map(ProviderState::busy).sum();
        self.context.metrics.set_requests(busy, self.free());
        self.context.progress.set_snapshot(WorkerSnapshot {
            note: self.note(now),
            has_unstored: !self.committer.is_all_stored(),
            trouble: self.providers.iter().find_map(ProviderState::trouble),
            last_failure: self
                .providers
                .iter()
                .filter_map(ProviderState::last_failure)
                .max_by_key(|(at, _)| *at)
                .cloned(),
            providers: self
                .providers
                .iter()
                .filter(|state| !state.campaigns().is_empty())
                .map(|state| state.activity(now, steady))
                .collect(),
        });
    }

    /// What keeps the worker from sending now, the most important first.
    fn note(&self, now: Timestamp) -> Option<String> {
        self.committer
            .note()
            .or_else(|| self.quiet.note())
            .or_else(|| self.providers.iter().find_map(|state| state.note(now)))
            .or_else(|| self.lookups.note(now))
            .or_else(|| self.closed_window(now))
    }

    /// The window that opens next, if everything waits and that campaign has a window.
    fn closed_window(&self, now: Timestamp) -> Option<String> {
        if self.providers.iter().any(|state| state.claimed() > 0) {
            return None;
        }
        let mut waiting = Vec::new();
        for state in self.providers.iter().flat_map(ProviderState::campaigns) {
            if state.has_work() {
                waiting.push((state.idle_until(now, SHOWN_WAIT)?, state));
            }
        }
        let (until, state) = waiting.into_iter().min_by_key(|(until, _)| *until)?;
        state.campaign().window.as_ref()?;
        let (name, until) = (&state.campaign().name, state.shown(until));
        Some(format!("`{name}` waits for its window until {until}"))
    }

    /// Reports what happened to a message.
    pub(super) fn emit_event(
        &self,
        request: &InFlight,
        sms: &Sms,
        transition: &Transition,
        now: Timestamp,
    ) {
        self.telemetry.emit(|| {
            let state = &self.providers[request.index];
            let mut campaigns = state.campaigns().iter();
            let campaign = campaigns.find(|campaign| campaign.id() == request.campaign_id);
            let is_active = campaign.is_none_or(CampaignState::is_active);
            MessageEvent {
                sms_id: sms.id,
                phone: mask(&sms.phone),
                what: describe(transition, is_active.then(|| state.idle_until(now)), now),
            }
        });
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
        | Transition::FoundAbsent(failure)
        | Transition::NotAdmitted(failure) => {
            format!("failed: {}", failure.reason)
        }
        Transition::Unknown(failure) => format!("unknown: {}", failure.reason),
        Transition::Ready { due_at, failure, .. } => {
            let why = failure.as_ref().map_or("not started", |failure| &failure.reason);
            let Some(again_at) = again_at else {
                return format!("stays queued, because its campaign has stopped: {why}");
            };
            let wait = (*due_at).max(again_at).since(now).as_secs_f32();
            format!("will be tried again in {wait:.1} s: {why}")
        }
        Transition::Refunded => "attempt not counted".to_owned(),
    }
}
