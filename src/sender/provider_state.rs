//! One provider in a running worker: its limiter, its circuit breaker, its pauses, and how its
//! campaigns take turns.

use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Allowed, CircuitBreaker};
use super::campaign_state::CampaignState;
use super::request::{InFlight, Transport};
use crate::limit::{LONG_WINDOW, LocalLimiter, Permit, Reservation, max_request_cost};
use crate::provider::Provider;
use crate::queue::{CampaignClaim, ProviderClaim};
use crate::rate::Rate;
use crate::sms::Timestamp;
use crate::store::ProviderPause;

/// The pause after "too fast" where the provider names none; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct ProviderState {
    pub(super) provider: Arc<Provider>,
    pub(super) transport: Transport,
    /// It sends the campaigns that name no provider.
    pub(super) is_default: bool,
    limits: Vec<Rate>,
    pub(super) limiter: LocalLimiter,
    pub(super) breaker: CircuitBreaker,
    pub(super) paused_until: Timestamp,
    /// Why the provider asked for the pause.
    pub(super) pause_reason: Option<String>,
    /// Pauses since the last acceptance.
    pauses: u32,
    /// It accepted a message in this run.
    pub(super) has_accepted: bool,
    /// Since when every attempt has failed.
    pub(super) failing_since: Option<Timestamp>,
    pub(super) campaigns: Vec<CampaignState>,
    pub(super) in_flight: u32,
    /// Claimed requests that lost their permit.
    pub(super) held: Vec<InFlight>,
    /// Requests that were not started: their permits go back to the limits.
    pub(super) released: Vec<Reservation>,
    /// The account's limits give no permit before this.
    pub(super) next_us: i64,
    /// No limit gives a permit to held requests before this.
    pub(super) next_held_us: i64,
    /// The number of turns so far.
    turn: usize,
}

impl ProviderState {
    pub(super) fn new(
        provider: Arc<Provider>,
        transport: Transport,
        limits: Vec<Rate>,
        breaker: CircuitBreaker,
        now_us: i64,
    ) -> Self {
        Self {
            provider,
            transport,
            is_default: false,
            limiter: LocalLimiter::new(&limits, now_us),
            limits,
            breaker,
            paused_until: Timestamp::default(),
            pause_reason: None,
            pauses: 0,
            has_accepted: false,
            failing_since: None,
            campaigns: Vec::new(),
            in_flight: 0,
            held: Vec::new(),
            released: Vec::new(),
            next_us: 0,
            next_held_us: 0,
            turn: 0,
        }
    }

    pub(super) fn busy(&self) -> u32 {
        self.in_flight + u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn campaign(&mut self, campaign_id: i64) -> Option<&mut CampaignState> {
        self.campaigns
            .iter_mut()
            .find(|state| state.campaign.id == campaign_id)
    }

    pub(super) fn has_work(&self) -> bool {
        self.campaigns.iter().any(CampaignState::has_work)
    }

    /// Asks the limits again, because what they said before may have changed.
    pub(super) fn wake(&mut self) {
        self.next_us = 0;
        self.next_held_us = 0;
    }

    /// Takes over the pause in the database. Returns a note for the operator, empty where a pause has
    /// ended early.
    pub(super) fn take_pause(
        &mut self,
        pause: Option<&ProviderPause>,
        now: Timestamp,
    ) -> Option<String> {
        if let Some(pause) = pause {
            self.paused_until = pause.until;
            self.pause_reason = Some(pause.reason.clone());
            return Some(pause_note(&pause.provider, &pause.reason, pause.until));
        }
        if self.paused_until <= now {
            return None;
        }
        self.paused_until = Timestamp::default();
        self.wake();
        Some(String::new())
    }

    /// Until when it is paused, where that is longer than `patience`, and why.
    pub(super) fn paused_beyond(&self, now: Timestamp, patience: Duration) -> Option<String> {
        (self.paused_until > now.plus(patience)).then(|| {
            let (name, until) = (self.provider.name(), self.paused_until);
            let why = self.pause_reason.as_deref().unwrap_or("it gave no reason");
            format!("{until}, as `{name}` asked ({why})")
        })
    }

    /// Until when it sends nothing, as far as is known: it is paused, or down.
    pub(super) fn rests_until(&self, now: Timestamp) -> Timestamp {
        match self.breaker.allowed(now) {
            Allowed::None(Some(probe_at)) => self.paused_until.max(probe_at),
            _ => self.paused_until,
        }
    }

    /// Follows a clock that was set.
    pub(super) fn shift(&mut self, by_us: i64) {
        let shifted =
            |at: Timestamp| Timestamp::from_millis(at.as_millis().saturating_add(by_us / 1_000));
        self.wake();
        self.paused_until = shifted(self.paused_until);
        self.failing_since = self.failing_since.map(shifted);
        self.limiter.shift(by_us);
        self.breaker.shift(by_us);
        self.campaigns
            .iter_mut()
            .for_each(CampaignState::forget_times);
    }

    /// Whether held requests can get a permit now.
    pub(super) fn holds_due(&self, now_us: i64) -> bool {
        !self.held.is_empty() && self.next_held_us <= now_us
    }

    /// How many of `free` requests it could start now, apart from its limits.
    pub(super) fn could_use(&self, free: u32, now: Timestamp, now_us: i64) -> u32 {
        let is_rested = now >= self.paused_until && now_us >= self.next_us;
        let is_due = || self.campaigns.iter().any(|state| state.is_due(now));
        if !is_rested || !(self.holds_due(now_us) || is_due()) {
            return 0;
        }
        match self.breaker.allowed(now) {
            Allowed::Any => free,
            Allowed::One => free.min(1),
            Allowed::None(_) => 0,
        }
    }

    /// How many of `usable` requests can start at their permits because their connection is open; opens
    /// connections for the others. Requests without a limit open their own.
    pub(super) fn connected(&self, usable: u32, ahead: Duration, now: Timestamp) -> u32 {
        let due = || self.campaigns.iter().filter(|state| state.is_due(now));
        let own = due().map(|state| per_second(&state.campaign.rate.0));
        let own = own.reduce(|one, other| Some(one? + other?)).flatten();
        let is_limited = |state: &CampaignState| !state.campaign.rate.0.is_empty();
        if self.limits.is_empty() && !due().any(is_limited) {
            return usable;
        }
        // A campaign that had no message is asked again, but no connection is opened for it.
        if due().all(|state| state.is_empty) && self.held.is_empty() {
            return self.transport.prepare(0, None, ahead).clamp(1, usable);
        }
        let rates = per_second(&self.limits).into_iter().chain(own);
        self.transport
            .prepare(usable, rates.reduce(f64::min), ahead)
    }

    /// When it may have something to do next, apart from results.
    pub(super) fn wakes_at_us(&self, now: Timestamp) -> Option<i64> {
        let ready = self.campaigns.iter();
        let ready = ready.filter(|state| state.is_active() && state.room() > 0);
        let next_at = ready.map(|state| state.next_at).min();
        let held_at = (!self.held.is_empty())
            .then(|| Timestamp::from_millis(self.next_held_us / 1_000).max(now));
        let due_at = next_at.into_iter().chain(held_at).min()?;
        let allowed_at = match self.breaker.allowed(now) {
            Allowed::None(None) => return None,
            Allowed::None(Some(probe_at)) => probe_at,
            Allowed::Any | Allowed::One => Timestamp::default(),
        };
        let at = due_at.max(allowed_at).max(self.paused_until);
        Some(at.as_millis().saturating_mul(1_000).max(self.next_us))
    }

    /// A claim of nothing.
    pub(super) fn empty_claim(&self, from_us: i64) -> ProviderClaim {
        ProviderClaim {
            provider: self.provider.name().to_owned(),
            is_default: self.is_default,
            limits: self.limits.clone(),
            by_segments: self.provider.rates_count_segments(),
            from_us,
            until_us: from_us,
            released: Vec::new(),
            held: Vec::new(),
            max_messages: 0,
            max_requests: 0,
            campaigns: Vec::new(),
        }
    }

    /// Takes out the held requests that got a new permit. `permits` belong to the first of them.
    pub(super) fn take_permitted(&mut self, permits: Vec<Option<Permit>>) -> Vec<InFlight> {
        let mut permitted = Vec::new();
        let mut permits = permits.into_iter();
        for mut request in std::mem::take(&mut self.held) {
            match permits.next() {
                Some(Some(permit)) => {
                    request.permit = permit;
                    permitted.push(request);
                }
                Some(None) => {
                    // The old permit was given back.
                    request.permit = Permit::AT_ONCE;
                    self.held.push(request);
                }
                None => self.held.push(request),
            }
        }
        permitted
    }

    /// How many messages a request may have now, by its limits and the campaigns that are due.
    pub(super) fn max_batch(&self, now: Timestamp) -> u32 {
        if self.breaker.is_open() {
            return 1;
        }
        let due = self.campaigns.iter().filter(|state| state.is_due(now));
        let largest = due.map(|state| state.max_batch).max().unwrap_or(1);
        let by_limits = max_request_cost(&self.limits).unsigned_abs();
        largest.min(by_limits).max(1)
    }

    /// Notes how many messages the requests of each campaign had.
    pub(super) fn note_sizes(&mut self, requests: &[InFlight]) {
        let max = u32::try_from(self.provider.max_batch()).unwrap_or(u32::MAX);
        for state in &mut self.campaigns {
            let own = requests
                .iter()
                .filter(|request| request.campaign_id == state.campaign.id);
            if let Some(largest) = own.map(InFlight::count).max() {
                state.note_size(largest, max);
            }
        }
    }

    /// Which campaigns to ask for messages, for this many requests: by priority, and in turns among
    /// equals.
    pub(super) fn take_turn(&mut self, requests: u32, now: Timestamp) -> Vec<CampaignClaim> {
        let mut due: Vec<&CampaignState> = self
            .campaigns
            .iter()
            .filter(|state| state.is_due(now))
            .collect();
        if due.is_empty() {
            return Vec::new();
        }
        self.turn = self.turn.wrapping_add(1);
        due.sort_unstable_by_key(|state| (-i64::from(state.campaign.priority), state.campaign.id));
        let is_probing = self.breaker.is_open();
        due.chunk_by(|one, other| one.campaign.priority == other.campaign.priority)
            .flat_map(|equals| share(equals, self.turn, requests, is_probing))
            .collect()
    }

    /// Asks every campaign for one message.
    pub(super) fn one_of_each(&self) -> Vec<CampaignClaim> {
        let claim = |state: &CampaignState| CampaignClaim {
            campaign_id: state.campaign.id,
            max_messages: 1,
            max_batch: 1,
        };
        self.campaigns.iter().map(claim).collect()
    }

    /// Notes that the provider said "too fast". Returns until when it is paused, where that is new.
    pub(super) fn throttled(
        &mut self,
        retry_after: Option<Duration>,
        now: Timestamp,
        now_us: i64,
    ) -> Option<Timestamp> {
        let is_first = now >= self.paused_until;
        if is_first {
            self.limiter.slow_down(now_us);
            self.pauses = self.pauses.saturating_add(1);
        }
        let doublings = self.pauses.saturating_sub(1).min(10);
        let usual = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings));
        let until = now.plus(retry_after.unwrap_or(usual.min(LONGEST_PAUSE)));
        if !is_first && (until <= self.paused_until || retry_after.is_none()) {
            return None;
        }
        self.paused_until = self.paused_until.max(until);
        Some(self.paused_until)
    }

    pub(super) fn note_accepted(&mut self) {
        self.has_accepted = true;
        self.pauses = 0;
        self.failing_since = None;
    }
}

/// A provider's pause, for the operator.
pub(super) fn pause_note(provider: &str, why: &str, until: Timestamp) -> String {
    format!("`{provider}` asked to wait until {until} ({why})")
}

/// How many messages a second the limits allow, as far as they are kept by spacing.
fn per_second(limits: &[Rate]) -> Option<f64> {
    let short = limits.iter().filter(|rate| rate.window < LONG_WINDOW);
    short.map(|rate| rate.per_second()).reduce(f64::min)
}

/// Gives every campaign an equal share of the requests first, then the rest to those that have more.
fn share(
    equals: &[&CampaignState],
    turn: usize,
    requests: u32,
    is_probing: bool,
) -> Vec<CampaignClaim> {
    let count = equals.len();
    let equal = requests
        .div_ceil(u32::try_from(count).unwrap_or(u32::MAX))
        .max(1);
    let order = (0..count).map(|index| equals[(turn + index) % count]);
    let claim = |state: &CampaignState, requests: u32| {
        let max_batch = if is_probing { 1 } else { state.max_batch };
        CampaignClaim {
            campaign_id: state.campaign.id,
            max_messages: requests.min(state.room()).saturating_mul(max_batch),
            max_batch,
        }
    };
    let mut claims: Vec<CampaignClaim> = order.clone().map(|state| claim(state, equal)).collect();
    if count > 1 {
        let unbounded = order.filter(|state| state.room() == u32::MAX);
        claims.extend(unbounded.map(|state| claim(state, requests)));
    }
    claims
}
