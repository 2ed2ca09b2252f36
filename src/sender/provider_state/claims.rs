//! What a provider claims in a commit: how many requests can start, in turns of its campaigns, and
//! what it learns from the result.

use std::sync::Arc;
use std::time::Duration;

use smsq_lifecycle::{ClaimedSms, LaneClaim, ProviderClaim};
use smsq_limit::{Account, Permit, PermitCost, max_request_cost, per_second};
use smsq_message::instant::{DbMicros, SteadyMicros};
use smsq_message::sms::Timestamp;
use smsq_store::{CommitBatch, ProviderClaimed};

use super::ProviderState;
use super::breaker::Allowed;
use crate::campaign_state::{CampaignState, LaneState, Moves};
use crate::clock::Clock;
use crate::maintenance::TICK;
use crate::request::{InFlight, take_message};

/// The most messages that one commit claims for a provider.
const MAX_CLAIM: u32 = 1_000;
/// How often a provider without an open connection looks for one.
const CONNECTING: Duration = Duration::from_millis(5);
/// From how many lanes of a campaign one commit claims where their senders have no limits: each costs a statement.
const LANES_AT_ONCE: usize = 8;
/// A limit delays requests whose permits start later than this after their claim.
const DELAYED: Duration = Duration::from_millis(20);

/// When a commit was planned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlanTime {
    pub(crate) planned_at: SteadyMicros,
    /// What is claimed in it does not start after this.
    pub(crate) start_by: SteadyMicros,
    /// How often the clock had been set.
    pub(crate) jumps: u32,
}

/// What a claim may ask for.
pub(crate) struct ClaimRoom {
    pub(crate) requests: u32,
    /// How many of these requests start when others end.
    pub(crate) prefetch: u32,
    pub(crate) messages: u32,
    /// The first permit may be at this instant.
    pub(crate) from: DbMicros,
    /// For how long after the first permit others are asked for.
    pub(crate) horizon: Duration,
}

impl ProviderState {
    /// How many requests wait for a permit and may get one now.
    fn waiting(&self, instant: DbMicros) -> u32 {
        if self.next_permit_at > instant {
            return 0;
        }
        u32::try_from(self.awaiting_permit.len()).unwrap_or(u32::MAX)
    }

    /// How many of `free` requests it could start now, apart from its limits.
    fn could_use(&self, free: u32, now: Timestamp, instant: DbMicros) -> u32 {
        let may_ask = now >= self.paused_until && instant >= self.next_at;
        let is_due = || self.campaigns.iter().any(|state| state.is_due(now));
        if !may_ask || !(self.waiting(instant) > 0 || is_due()) {
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
    fn connected(&self, usable: u32, ahead: Duration, now: Timestamp) -> u32 {
        if usable == 0 {
            return 0;
        }
        let due = || self.campaigns.iter().filter(|state| state.is_due(now));
        let own =
            due().map(CampaignState::per_second).reduce(|sum, rate| Some(sum? + rate?)).flatten();
        if self.limits.is_empty() && !due().any(CampaignState::is_limited) {
            return usable;
        }
        let rates = per_second(&self.limits).into_iter().chain(own);
        self.transport.prepare(usable, rates.reduce(f64::min), ahead)
    }

    /// Asks for as many requests as may start, and as many messages for them as there are permits.
    pub(crate) fn plan_claim(
        &mut self,
        room: &ClaimRoom,
        now: Timestamp,
        instant: DbMicros,
    ) -> Option<ProviderClaim> {
        // Those that wait count as in flight already.
        let waiting = self.waiting(instant);
        let usable = self.could_use(room.requests.saturating_add(waiting), now, instant);
        if usable == 0 {
            return None;
        }
        // A request that gets a permit must be able to start then.
        let prefetch = usable.min(room.prefetch);
        let startable = prefetch + self.connected(usable - prefetch, room.horizon, now);
        if startable == 0 {
            self.next_at = instant.plus(CONNECTING);
            return None;
        }
        // Requests that wait come first; a probe is a single one.
        let held = waiting.min(startable);
        let fresh = room.requests.min(startable - held);
        self.limiter.look_ahead(room.horizon * 2);
        let size = self.max_batch(now);
        let most = MAX_CLAIM.max(fresh).min(fresh.saturating_mul(size));
        let most = most.min(room.messages);
        // A full request is waited for.
        let messages = self.limiter.grant(most, size.min(most), instant);
        if messages < most {
            self.limiter.set_bound(instant);
        }
        if messages == 0 && held == 0 {
            self.next_at = self.limiter.next_at(size, instant).unwrap_or(instant);
            return None;
        }
        let requests = fresh.min(messages);
        Some(ProviderClaim {
            until: room.from.plus(room.horizon),
            held: self
                .awaiting_permit
                .iter()
                .take(held as usize)
                .map(InFlight::reservation)
                .collect(),
            max_messages: messages,
            max_requests: requests,
            lanes: self.take_turn(requests, now),
            ..self.empty_claim(room.from)
        })
    }

    /// Gives back the permits of requests that were not started: a restart must not cost a slow limit
    /// what it allows for an hour.
    pub(crate) fn plan_return(&mut self, instant: DbMicros) -> Option<ProviderClaim> {
        let released = std::mem::take(&mut self.released);
        let has_unused = released.iter().any(|request| request.unused.is_some());
        has_unused.then(|| ProviderClaim { released, ..self.empty_claim(instant) })
    }

    /// A claim of nothing.
    pub(crate) fn empty_claim(&self, from: DbMicros) -> ProviderClaim {
        ProviderClaim {
            provider: self.provider.name().to_owned(),
            account: Account::new(self.provider.account()),
            is_default: self.is_default,
            routes: Arc::clone(&self.routes),
            limits: self.limits.clone(),
            by_segments: self.provider.rates_count_segments(),
            from,
            until: from,
            released: Vec::new(),
            held: Vec::new(),
            max_messages: 0,
            max_requests: 0,
            lanes: Vec::new(),
            pool: self.provider.senders().cloned(),
            prices: Arc::clone(&self.prices),
        }
    }

    /// Takes back messages that were granted for a claim and not claimed.
    pub(crate) fn return_unused(&mut self, messages: u32) {
        self.limiter.return_unused(messages);
    }

    /// Takes over what a commit claimed. Returns the requests to start. `early`: how long before the next
    /// permit it is asked for.
    pub(crate) fn take_claimed(
        &mut self,
        claimed: ProviderClaimed,
        batch: &CommitBatch,
        plan: PlanTime,
        early: Duration,
        clock: &Clock,
    ) -> Vec<InFlight> {
        let instant = clock.instant();
        self.check_limit(claimed.halted, clock.now());
        // Soon enough to notice that a limit was changed.
        let soonest = instant.plus(Duration::from_millis(1));
        let ask_at = |next: DbMicros| next.minus(early).clamp(soonest, instant.plus(TICK));
        let mut requests = self.take_permitted(claimed.held);
        let mut rows = claimed.rows.into_iter().peekable();
        while let Some(first) = rows.next() {
            let number = first.request;
            let mut together = vec![first];
            while let Some(next) = rows.next_if(|row| row.request == number) {
                together.push(next);
            }
            requests.extend(self.request_of(batch, plan, together));
        }
        for request in &mut requests {
            request.tolerance = batch.tolerance;
            request.jumps = plan.jumps;
            if let Some(campaign) = self.campaign(request.campaign_id) {
                campaign.begin_claim();
            }
        }
        let cost =
            requests.iter().map(InFlight::cost).fold(PermitCost::default(), PermitCost::plus);
        self.limiter.record_started(cost, instant);
        self.set_sizes(&requests);
        for id in claimed.exhausted {
            if let Some(campaign) = self.campaign(id.campaign_id) {
                campaign.exhaust(id.lane);
            }
        }
        let is_delayed =
            requests.iter().any(|request| request.permit.start_at > Some(instant.plus(DELAYED)));
        if claimed.next_at.is_some() || !claimed.limited.is_empty() || is_delayed {
            self.limiter.set_bound(instant);
        }
        let by_lanes = claimed.limited.iter().map(|(_, next_at)| *next_at);
        if let Some(next_at) = claimed.next_at.into_iter().chain(by_lanes).min() {
            self.next_permit_at = ask_at(next_at);
        }
        if let Some(next_at) = claimed.next_at {
            self.next_at = ask_at(next_at);
        }
        for (id, next_at) in claimed.limited {
            if let Some(campaign) = self.campaign(id.campaign_id) {
                let until = ask_at(next_at).plus(Duration::from_micros(999));
                campaign.wait_until(id.lane, until.timestamp());
            }
        }
        for (id, retry_at) in claimed.over_budget {
            if let Some(campaign) = self.campaign(id.campaign_id) {
                campaign.wait_until(id.lane, retry_at.timestamp());
            }
        }
        requests
    }

    /// Takes out the requests that got a new permit. `permits` belong to the first of them: while a
    /// commit runs, none is taken out, and others are added at the end.
    fn take_permitted(&mut self, permits: Vec<Option<Permit>>) -> Vec<InFlight> {
        let mut permitted = Vec::new();
        let mut permits = permits.into_iter();
        for mut request in std::mem::take(&mut self.awaiting_permit) {
            match permits.next() {
                Some(Some(permit)) => {
                    request.permit = permit;
                    permitted.push(request);
                }
                Some(None) => {
                    // The old permit was given back.
                    request.permit = Permit::AT_ONCE;
                    self.awaiting_permit.push(request);
                }
                None => self.awaiting_permit.push(request),
            }
        }
        permitted
    }

    /// The request of these messages.
    fn request_of(
        &mut self,
        batch: &CommitBatch,
        plan: PlanTime,
        claimed: Vec<ClaimedSms>,
    ) -> Option<InFlight> {
        let first = claimed.first()?;
        let (campaign_id, lane, permit) = (first.sms.campaign_id, first.sms.lane, first.permit);
        let (mut from, mut sender, mut window) = (None, None, None);
        if let Some(state) = self.campaign(campaign_id) {
            from = state.sender_name(lane).cloned();
            sender = state.pool_sender(lane).cloned();
            window.clone_from(&state.campaign().window);
        }
        let (messages, rows) = claimed
            .into_iter()
            .map(|mut one| (take_message(&mut one.sms, one.phone, from.clone()), one.sms))
            .unzip();
        Some(InFlight {
            rows,
            messages,
            campaign_id,
            lane,
            sender,
            permit,
            window,
            tolerance: batch.tolerance,
            claimed_at: batch.now,
            start_by: plan.start_by,
            jumps: plan.jumps,
            worker_id: batch.worker_id,
            index: self.index,
            provider: Arc::clone(&self.provider),
            transport: self.transport.clone(),
        })
    }

    /// How many messages a request may have now, by its limits and the campaigns that are due.
    fn max_batch(&self, now: Timestamp) -> u32 {
        if self.breaker.is_open() {
            return 1;
        }
        let due = self.campaigns.iter().filter(|state| state.is_due(now));
        let largest = due.map(CampaignState::max_batch).max().unwrap_or(1);
        let by_limits = max_request_cost(&self.limits).unsigned_abs();
        largest.min(by_limits).max(1)
    }

    /// Sets how many messages the next requests of each campaign may have.
    fn set_sizes(&mut self, requests: &[InFlight]) {
        let max = u32::try_from(self.provider.max_batch()).unwrap_or(u32::MAX);
        for state in &mut self.campaigns {
            let own = requests.iter().filter(|request| request.campaign_id == state.id());
            if let Some(largest) = own.map(InFlight::count).max() {
                state.set_size(largest, max);
            }
        }
    }

    /// Which lanes to ask for messages, for this many requests: by the priority of their campaigns, and in turns among
    /// equals.
    fn take_turn(&mut self, requests: u32, now: Timestamp) -> Vec<LaneClaim> {
        let mut due: Vec<&CampaignState> =
            self.campaigns.iter().filter(|state| state.is_due(now)).collect();
        if due.is_empty() {
            return Vec::new();
        }
        self.turn = self.turn.wrapping_add(1);
        due.sort_unstable_by_key(|state| (-i64::from(state.campaign().priority), state.id()));
        let is_probing = self.breaker.is_open();
        due.chunk_by(|one, other| one.campaign().priority == other.campaign().priority)
            .flat_map(|equals| share(equals, self.turn, now, requests, is_probing))
            .collect()
    }
}

/// Gives every campaign an equal share of the requests first, then the rest to those that have more.
fn share(
    equals: &[&CampaignState],
    turn: usize,
    now: Timestamp,
    requests: u32,
    is_probing: bool,
) -> Vec<LaneClaim> {
    let count = equals.len();
    let equal = requests.div_ceil(u32::try_from(count).unwrap_or(u32::MAX)).max(1);
    let order = (0..count).map(|index| equals[(turn + index) % count]);
    let claims = |state: &CampaignState, most: u32| {
        let max_batch = if is_probing { 1 } else { state.max_batch() };
        let requests = most.min(state.room());
        share_lanes(state, state.due_lanes(turn, now), requests, max_batch)
    };
    let mut all: Vec<LaneClaim> = order.clone().flat_map(|state| claims(state, equal)).collect();
    if count > 1 {
        let unbounded = order.filter(|state| state.room() == u32::MAX);
        all.extend(unbounded.flat_map(|state| claims(state, requests)));
    }
    all
}

/// Gives the first lanes of a campaign equal shares of its requests: as many as may have a permit, where limits of
/// senders delay them. Lanes whose messages are moved need no request. Those of unavailable providers wait until this
/// provider has sent what was moved before.
fn share_lanes(
    state: &CampaignState,
    due: Vec<&LaneState>,
    requests: u32,
    max_batch: u32,
) -> Vec<LaneClaim> {
    let sending = due.iter().filter(|lane| lane.moves.is_none()).count();
    let most = if state.has_limited_senders() { usize::MAX } else { LANES_AT_ONCE };
    let count = u32::try_from(sending.min(most)).unwrap_or(u32::MAX);
    let each = requests.div_ceil(count.max(1));
    let mut left = requests;
    let claim = |lane: &LaneState| {
        let max_messages = match lane.moves {
            Some(Moves::AtOnce) => u32::MAX,
            Some(Moves::AsOthersAreSent) if sending > 0 => 0,
            Some(Moves::AsOthersAreSent) => requests.saturating_mul(max_batch),
            None => {
                let own = each.min(left);
                left -= own;
                own.saturating_mul(max_batch)
            }
        };
        (max_messages > 0).then(|| LaneClaim {
            id: state.lane_id(lane),
            max_messages,
            max_batch,
            sender: lane.sender.clone(),
            is_divided: lane.moves.is_some(),
        })
    };
    due.into_iter().filter_map(claim).collect()
}
