//! One provider in a running worker: its campaigns, its requests, its pauses, and what their outcomes
//! say about it. Its fields are private to this module.

pub mod breaker;
mod claims;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use smsq_lifecycle::{Settlement, Transition};
use smsq_limit::{Account, LocalLimiter, Permit, Reservation, per_second};
use smsq_message::activity::ProviderActivity;
use smsq_message::instant::{DbMicros, SteadyMicros};
use smsq_message::prices::Prices;
use smsq_message::rate::{Rate, Rates};
use smsq_message::route::ProviderOutage;
use smsq_message::route::sender_pool::PoolSender;
use smsq_message::sms::{Failure, Outcome, Timestamp};
use smsq_message::text::duration;
use smsq_metrics::Metrics;
use smsq_provider::Provider;
use smsq_store::{CampaignStatus, ProviderPause};
use tokio::time::Instant;

use super::campaign_state::{CampaignState, Served};
use super::clock::Clock;
use super::context::{Results, WorkerContext};
use super::request::{InFlight, Transport};
use super::telemetry::ProviderTelemetry;
use super::{Settings, auto_pause};
use breaker::{Allowed, AttemptCharge, CircuitBreaker, FailedRequest};

pub(super) use claims::{ClaimRoom, PlanTime};

/// How many times the requests that may be in flight are claimed ahead at most. A fast gateway answers all of them before
/// the commit that settles the first of them ends.
const MOST_AHEAD: u32 = 3;
/// A claimed request that did not start is released rather than held for longer than this.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// The pause after "too fast" where the provider names none; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a sender of a pool waits that the provider refuses.
const REFUSED_SENDER: Duration = Duration::from_secs(600);

/// Everything that a worker knows of one provider.
///
/// Whether a request may start depends on the limits of the account, the pauses that the provider asked for, the circuit
/// breaker and the campaigns at once, and each outcome changes several of them; so one type has all of it, and answers
/// what can be claimed and when to ask again. Its fields are private, because their counts must agree: a request is
/// `claimed_ahead`, then `in_flight`, and `awaiting_permit` if its permit has passed. The price is a large type; what
/// is decided alone is apart from it: breaker, limiter, and the state of each campaign.
pub(super) struct ProviderState {
    index: usize,
    provider: Arc<Provider>,
    transport: Transport,
    /// It sends the campaigns that name no provider.
    is_default: bool,
    /// The names of the routes that it is part of.
    routes: Arc<BTreeSet<String>>,
    limits: Vec<Rate>,
    prices: Arc<Prices>,
    limiter: LocalLimiter,
    breaker: CircuitBreaker,
    paused_until: Timestamp,
    /// Why the provider asked for the pause.
    pause_reason: Option<String>,
    /// Pauses since the last acceptance.
    pauses: u32,
    /// It responded to a message in this run.
    has_responded: bool,
    /// Since when every attempt has failed, and why the last one did.
    failing: Option<(Timestamp, String)>,
    /// Why its limits cannot be read.
    no_limit: Option<String>,
    campaigns: Vec<CampaignState>,
    in_flight: u32,
    /// Claimed requests that have not started: most were claimed ahead, and start when others end.
    claimed_ahead: VecDeque<InFlight>,
    /// How many requests ended since the last commit began.
    ended: u32,
    /// How many requests end during a commit.
    ended_in_commit: u32,
    /// Claimed requests that lost their permit, and wait for another.
    awaiting_permit: Vec<InFlight>,
    /// Requests that were not started: their permits go back to the limits.
    released: Vec<Reservation>,
    /// The account's limits give no permit before this.
    next_at: DbMicros,
    /// No limit gives a permit to a request that waits before this.
    next_permit_at: DbMicros,
    /// The number of turns so far.
    turn: usize,
    telemetry: ProviderTelemetry,
}

impl ProviderState {
    /// `index` is its place among the providers of the worker.
    pub(super) fn new(
        index: usize,
        provider: Arc<Provider>,
        transport: Transport,
        settings: &Settings,
        metrics: &Metrics,
        now: DbMicros,
    ) -> Self {
        let mut limits = provider.rates().0.clone();
        limits.extend(settings.rate.iter().flat_map(|rates| &rates.0).copied());
        Self {
            telemetry: ProviderTelemetry::new(metrics.provider(provider.name(), &limits)),
            index,
            prices: Arc::new(settings.prices.get(provider.name()).cloned().unwrap_or_default()),
            is_default: settings.is_default(provider.name()),
            routes: Arc::new(settings.routes_of(provider.name())),
            provider,
            transport,
            limiter: LocalLimiter::new(&limits, now),
            limits,
            breaker: CircuitBreaker::new(settings.breaker.clone()),
            paused_until: Timestamp::default(),
            pause_reason: None,
            pauses: 0,
            has_responded: false,
            failing: None,
            no_limit: None,
            campaigns: Vec::new(),
            in_flight: 0,
            claimed_ahead: VecDeque::new(),
            ended: 0,
            ended_in_commit: 0,
            awaiting_permit: Vec::new(),
            released: Vec::new(),
            next_at: DbMicros::default(),
            next_permit_at: DbMicros::default(),
            turn: 0,
        }
    }

    pub(super) fn provider(&self) -> &Arc<Provider> {
        &self.provider
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(super) fn campaigns(&self) -> &[CampaignState] {
        &self.campaigns
    }

    pub(super) fn campaigns_mut(&mut self) -> &mut [CampaignState] {
        &mut self.campaigns
    }

    pub(super) fn campaign(&mut self, campaign_id: i64) -> Option<&mut CampaignState> {
        let mut campaigns = self.campaigns.iter_mut();
        campaigns.find(|state| state.id() == campaign_id)
    }

    /// Takes over the campaigns with messages that it sends. Others are remembered for a time, unless another provider
    /// sends them now: `elsewhere`.
    pub(super) fn refresh_campaigns(
        &mut self,
        served: Vec<Served>,
        elsewhere: &HashSet<i64>,
        config: auto_pause::Config,
        now: Timestamp,
    ) {
        let provider = Arc::clone(&self.provider);
        let mut own = HashSet::new();
        for campaign in served {
            let id = campaign.queued.campaign.id;
            own.insert(id);
            if let Some(known) = self.campaign(id) {
                known.refresh(campaign, &provider, now);
            } else {
                let new = CampaignState::new(campaign, &provider, config, now);
                self.campaigns.push(new);
            }
        }
        self.campaigns.retain_mut(|state| {
            let id = state.id();
            own.contains(&id) || (!elsewhere.contains(&id) && state.is_remembered(now))
        });
    }

    pub(super) fn has_work(&self) -> bool {
        self.campaigns.iter().any(CampaignState::has_work)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Requests in flight, and those that wait for another permit.
    pub(super) fn busy(&self) -> u32 {
        self.in_flight + u32::try_from(self.awaiting_permit.len()).unwrap_or(u32::MAX)
    }

    /// These, and requests that were claimed ahead.
    pub(super) fn claimed(&self) -> u32 {
        self.busy() + u32::try_from(self.claimed_ahead.len()).unwrap_or(u32::MAX)
    }

    /// The messages of claimed requests that are not in flight.
    pub(super) fn waiting_messages(&self) -> u32 {
        self.awaiting_permit.iter().chain(&self.claimed_ahead).map(InFlight::count).sum()
    }

    /// How many requests to claim early, so that none waits for a commit: as many as end during the commit
    /// that claims them, and as many as end during the next one. With a limit, only those that start within `ahead`,
    /// because the permits of others would pass.
    pub(super) fn prefetch(&self, share: u32, ahead: Duration) -> u32 {
        let most = match self.has_slack() {
            Some(false) => 0,
            Some(true) => self.limiter.starts_within(ahead),
            None => u32::MAX,
        };
        if self.breaker.is_open() {
            return 0;
        }
        let ended = self.ended_in_commit.saturating_mul(2);
        ended.min(most).min(share.saturating_mul(MOST_AHEAD))
    }

    /// Whether its limits and those of its campaigns allow far more than is started; `None` without a
    /// limit. Those of senders never do.
    pub(super) fn has_slack(&self) -> Option<bool> {
        let working = || self.campaigns.iter().filter(|state| state.has_work());
        if working().any(CampaignState::has_limited_senders) {
            return Some(false);
        }
        let own = working().filter_map(CampaignState::per_second);
        let limits = per_second(&self.limits).into_iter().chain(own);
        self.limiter.has_slack(limits.reduce(f64::min))
    }

    /// Whether the provider asked to slow down, so that its limit is below the configured one.
    pub(super) fn is_throttled(&self) -> bool {
        self.limiter.is_slowed()
    }

    /// Whether a limit gave fewer permits than were asked for recently.
    pub(super) fn is_bound(&self, instant: DbMicros) -> bool {
        self.limiter.is_bound(instant)
    }

    pub(super) fn begin_commit(&mut self) {
        self.ended = 0;
    }

    pub(super) fn end_commit(&mut self) {
        let fewer = self.ended_in_commit - self.ended_in_commit.div_ceil(8);
        self.ended_in_commit = self.ended.max(fewer);
    }

    /// Keeps a claimed request until it may start.
    pub(super) fn keep_claimed(&mut self, request: InFlight) {
        self.claimed_ahead.push_back(request);
    }

    /// The next claimed request whose campaign is active and whose claim is not too old. While the provider is
    /// unavailable it keeps none: they need a new permit then.
    pub(super) fn next_to_start(&mut self, clock: &Clock) -> Option<InFlight> {
        let now = clock.now();
        let is_unavailable = matches!(self.breaker.allowed(now), Allowed::None(_));
        if self.paused_until > now || is_unavailable {
            for request in std::mem::take(&mut self.claimed_ahead) {
                self.end_claim(&request);
                self.await_permit(request);
            }
        }
        let is_active = |request: &InFlight| {
            let mut campaigns = self.campaigns.iter();
            campaigns.any(|state| state.id() == request.campaign_id && state.is_active())
                && !request.is_overdue(clock)
        };
        let next = self.claimed_ahead.iter().position(is_active)?;
        self.claimed_ahead.remove(next)
    }

    /// A request starts.
    pub(super) fn begin_request(&mut self) {
        self.in_flight += 1;
        self.breaker.probe();
    }

    fn end_claim(&mut self, request: &InFlight) {
        if let Some(campaign) = self.campaign(request.campaign_id) {
            campaign.end_claim();
        }
    }

    /// A request is over; it may not have been sent.
    pub(super) fn end_request(&mut self, request: &InFlight, was_sent: bool) {
        self.in_flight -= 1;
        self.ended += 1;
        if !was_sent {
            self.breaker.probe_released();
        }
        self.end_claim(request);
    }

    /// The message needs no further attempt.
    pub(super) fn forget(&mut self, message: i64) {
        self.breaker.forget(message);
    }

    /// Keeps a request that needs another permit.
    pub(super) fn await_permit(&mut self, request: InFlight) {
        self.awaiting_permit.push(request);
        // Its permit goes back, and may be the next one.
        self.wake();
    }

    /// Gives the permit of a request that was not started back to the limits.
    pub(super) fn release(&mut self, request: &InFlight) {
        self.released.push(request.reservation());
    }

    /// Releases and returns requests that are not in flight: all at a stop, otherwise those of campaigns that must not go
    /// on, those whose claim is too old, and those that would start long after their claim, because a status lookup takes the time of
    /// the claim for that of the request. While the provider is probed, batches too: a probe is a single
    /// message.
    pub(super) fn release_waiting(
        &mut self,
        context: &WorkerContext,
        now: Timestamp,
    ) -> Vec<InFlight> {
        let soon = context.clock.instant().plus(LONGEST_HOLD);
        let waits_long = self.next_permit_at > soon || self.paused_until > now.plus(LONGEST_HOLD);
        let is_kept = |state: &mut Self, request: &InFlight| {
            let is_too_large = state.breaker.is_open() && request.count() > 1;
            let waits_long = waits_long || now.since(request.claimed_at) > LONGEST_HOLD;
            // What was claimed under another id became unknown when this worker was declared dead.
            let is_own = request.worker_id == context.lease.worker_id();
            let campaign = state.campaign(request.campaign_id);
            let is_active = campaign.is_some_and(|campaign| campaign.is_active());
            let is_overdue = request.is_overdue(&context.clock);
            let may_start = is_active && is_own && !is_overdue && !context.is_stopping();
            may_start && !is_too_large && !waits_long && request.is_open(&context.clock)
        };
        let waiting = std::mem::take(&mut self.awaiting_permit).into_iter();
        let (kept, mut released): (Vec<_>, Vec<_>) =
            waiting.partition(|request| is_kept(self, request));
        self.awaiting_permit = kept;
        let ahead = std::mem::take(&mut self.claimed_ahead).into_iter();
        let (kept, unused): (Vec<_>, Vec<_>) = ahead.partition(|request| is_kept(self, request));
        self.claimed_ahead = kept.into();
        for request in &unused {
            self.end_claim(request);
        }
        released.extend(unused);
        self.released.extend(released.iter().map(InFlight::reservation));
        released
    }

    /// After a commit whose result got lost: the permits of waiting requests may have been given back
    /// already, which must not happen twice.
    pub(super) fn void_permits(&mut self) {
        for request in &mut self.awaiting_permit {
            request.permit = Permit::AT_ONCE;
        }
    }

    /// Asks the limits again, because what they said before may have changed.
    fn wake(&mut self) {
        self.next_at = DbMicros::default();
        self.next_permit_at = DbMicros::default();
    }

    /// Sends nothing for a time if a limit cannot be read.
    fn check_limit(&mut self, unreadable: Option<String>, now: Timestamp) {
        if let Some(reason) = &unreadable {
            if self.no_limit.is_none() {
                tracing::error!(provider = self.provider.name(), reason, "nothing is sent");
            }
            self.paused_until = self.paused_until.max(now.plus(LONGEST_HOLD));
        }
        self.no_limit = unreadable;
    }

    /// Takes over the pause in the database; `None`: a pause has ended early.
    pub(super) fn take_pause(&mut self, pause: Option<&ProviderPause>, now: Timestamp) {
        if let Some(pause) = pause {
            self.paused_until = pause.until;
            self.pause_reason = Some(pause.reason.clone());
        } else if self.paused_until > now {
            self.paused_until = Timestamp::default();
            self.wake();
        }
    }

    /// Until when it is paused, where that is longer than `patience`, and why.
    pub(super) fn paused_beyond(&self, now: Timestamp, patience: Duration) -> Option<String> {
        (self.paused_until > now.plus(patience)).then(|| {
            let (name, until) = (self.provider.name(), self.paused_until);
            let why = self.pause_reason.as_deref().unwrap_or("it gave no reason");
            format!("{until}, as `{name}` asked ({why})")
        })
    }

    /// Until when it sends nothing, as far as is known: it is paused, or unavailable.
    pub(super) fn idle_until(&self, now: Timestamp) -> Timestamp {
        match self.breaker.allowed(now) {
            Allowed::None(Some(probe_at)) => self.paused_until.max(probe_at),
            _ => self.paused_until,
        }
    }

    /// Follows a clock that was set.
    pub(super) fn shift(&mut self, by: SignedDuration) {
        self.wake();
        self.paused_until = self.paused_until.shifted(by);
        if let Some((since, _)) = &mut self.failing {
            *since = since.shifted(by);
        }
        self.limiter.shift(by);
        self.breaker.shift(by);
        self.campaigns.iter_mut().for_each(CampaignState::forget_times);
    }

    /// When it may have something to do next, apart from results: with room for another request when a message is due,
    /// and when a request that waits may get a permit.
    pub(super) fn wakes_at(&self, now: Timestamp, has_room: bool) -> Option<DbMicros> {
        let with_room = self.campaigns.iter().filter(|_| has_room);
        let next_at = with_room.filter_map(CampaignState::next_at);
        let held_at =
            (!self.awaiting_permit.is_empty()).then(|| self.next_permit_at.timestamp().max(now));
        let due_at = next_at.chain(held_at).min()?;
        let allowed_at = match self.breaker.allowed(now) {
            Allowed::None(None) => return None,
            Allowed::None(Some(probe_at)) => probe_at,
            Allowed::Any | Allowed::One => Timestamp::default(),
        };
        let at = due_at.max(allowed_at).max(self.paused_until);
        Some(self.next_at.max(at.into()))
    }

    /// The provider said "too fast". Returns until when it is paused, where that is new.
    fn throttled(
        &mut self,
        retry_after: Option<Duration>,
        now: Timestamp,
        instant: DbMicros,
    ) -> Option<Timestamp> {
        let is_first = now >= self.paused_until;
        if is_first {
            self.limiter.slow_down(instant);
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

    /// A connection error after an acceptance is an outage, never a configuration error. Warns at the first failure,
    /// because the url may be wrong.
    pub(super) fn handle_unreached(&self, outcomes: &mut [Outcome]) {
        if self.has_responded {
            outcomes.iter_mut().for_each(make_unavailable);
        } else if self.failing.is_none()
            && let Some(Outcome::Unavailable { failure, .. }) = outcomes.first()
        {
            let (provider, reason) = (self.provider.name(), &failure.reason);
            tracing::warn!(provider, reason, "the provider cannot be reached");
        }
    }

    /// Makes of an answer that is about a sender of the pool one for which only this sender waits.
    pub(super) fn handle_sender(&self, request: &InFlight, outcomes: &mut [Outcome]) {
        if request.sender.is_none() {
            return;
        }
        for outcome in outcomes {
            if let Outcome::AccountError { failure, .. } = outcome
                && self.blames_sender(failure)
            {
                *outcome = Outcome::Throttled {
                    failure: failure.clone(),
                    retry_after: Some(REFUSED_SENDER),
                };
            }
        }
    }

    /// Makes an outage of an answer that refuses the account, where other providers send the campaign, too: they send the
    /// rest of it while this one is probed.
    pub(super) fn handle_refused(&mut self, request: &InFlight, outcomes: &mut [Outcome]) {
        let campaign = self.campaign(request.campaign_id);
        if campaign.is_some_and(|campaign| campaign.is_shared()) {
            outcomes.iter_mut().for_each(make_unavailable);
        }
    }

    /// Since when and why it is unavailable, if that is longer than `patience`. One that has no message for a probe
    /// counts as available: else nothing would show that it is, while the others are unavailable, too.
    pub(super) fn outage(&self, now: Timestamp, patience: Duration) -> Option<ProviderOutage> {
        let since = self.breaker.open_since()?;
        let reason = self.failing.as_ref().map(|(_, why)| why.clone());
        let is_outage = now.since(since) >= patience && !self.breaker.lacks_probe(now, patience);
        is_outage.then(|| ProviderOutage { since, reason: reason.unwrap_or_default() })
    }

    fn blames_sender(&self, failure: &Failure) -> bool {
        let code = failure.code.as_deref();
        code.is_some_and(|code| self.provider.blames_sender(code))
    }

    /// Updates breaker, pause and refunds. A request counts once, whatever its number of messages. Returns whether its
    /// failure was part of an outage.
    pub(super) fn learn(
        &mut self,
        context: &WorkerContext,
        attempt: FailedRequest,
        sender: Option<&Arc<PoolSender>>,
        outcomes: &[Outcome],
        results: &mut Results,
    ) -> bool {
        let started_at = attempt.started_at;
        let ended_at = context.clock.steady();
        let now = results.now;
        let name = self.provider.name().to_owned();
        let has_responded = outcomes.iter().any(is_definitive);
        if has_responded {
            self.has_responded = true;
            self.pauses = 0;
            self.failing = None;
            self.breaker.responded(started_at, ended_at);
        }
        let throttled = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Throttled { failure, retry_after } => Some((*retry_after, failure)),
            _ => None,
        });
        if let Some((retry_after, failure)) = throttled.max_by_key(|(after, _)| *after) {
            let wait = retry_after.map(|wait| wait.min(context.settings.retry.max_retry_after));
            if let Some(sender) = sender.filter(|_| self.blames_sender(failure)) {
                let (sender, reason) = (sender.from.to_string(), failure.reason.clone());
                tracing::warn!(provider = name, sender, reason, "a sender waits");
                results.pauses.push(ProviderPause {
                    account: Account::new(self.provider.account()),
                    sender: Some(sender),
                    until: now.plus(wait.unwrap_or(LONGEST_PAUSE)),
                    reason,
                });
                self.breaker.answered(started_at);
                return false;
            }
            if let Some(until) = self.throttled(wait, now, context.clock.instant()) {
                let reason = failure.reason.clone();
                self.pause_reason = Some(reason.clone());
                results.pauses.push(ProviderPause {
                    account: Account::new(self.provider.account()),
                    sender: None,
                    until,
                    reason,
                });
            }
            self.breaker.answered(started_at);
            if !has_responded {
                self.record_failure(context, failure, results);
            }
            return false;
        }
        let failed = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Unavailable { failure, .. } | Outcome::Unknown(failure) => Some(failure),
            _ => None,
        });
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::AccountError { .. });
        let is_refused = outcomes.iter().any(is_refused);
        let Some(failure) = failed.filter(|_| !has_responded && !is_refused) else {
            if self.breaker.answered(started_at) {
                tracing::warn!(provider = name, "the provider is available again");
            }
            return false;
        };
        let charge = self.breaker.failed(attempt, ended_at, now, rand::random());
        let is_outage = matches!(charge, AttemptCharge::Free(_));
        if let AttemptCharge::Free(refunds) = charge {
            results.settlements.extend(refunds.into_iter().map(|(id, claim)| Settlement {
                id,
                claim,
                provider: name.clone(),
                transition: Transition::Refunded,
            }));
        }
        self.record_failure(context, failure, results);
        is_outage
    }

    /// An attempt failed; stops the campaigns where all have failed for long.
    fn record_failure(
        &mut self,
        context: &WorkerContext,
        failure: &Failure,
        results: &mut Results,
    ) {
        let (now, why) = (results.now, &failure.reason);
        let name = self.provider.name().to_owned();
        let since = self.failing.as_ref().map_or(now, |(since, _)| *since);
        self.failing = Some((since, why.clone()));
        if now.since(since) < context.settings.retry.give_up_after {
            return;
        }
        let reason = format!("`{name}` has accepted no message since {since}; last error: {why}");
        let ends =
            |state: &&mut CampaignState| state.is_active() && !state.has_other_provider(&name);
        let active = self.campaigns.iter_mut().filter(ends);
        let stops = active.map(|state| state.stop(CampaignStatus::Stopped, reason.clone()));
        results.campaign_stops.extend(stops);
    }
}

impl ProviderState {
    pub(super) fn telemetry(&mut self) -> &mut ProviderTelemetry {
        &mut self.telemetry
    }

    /// In the metrics of a run that has ended, it is neither unavailable nor throttled.
    pub(super) fn reset_metrics(&self) {
        self.telemetry.metrics.set_state(false, None);
    }

    /// Its state for the operator, which the metrics get too. `steady` is now on the host's clock.
    pub(super) fn activity(&self, now: Timestamp, steady: SteadyMicros) -> ProviderActivity {
        let throttled_until = Some(self.paused_until).filter(|until| *until > now);
        let metrics = &self.telemetry.metrics;
        metrics.set_state(self.breaker.is_open(), throttled_until);
        ProviderActivity {
            name: self.provider.name().to_owned(),
            in_flight: self.in_flight,
            breaker_open: self.breaker.is_open(),
            unavailable_since: self.breaker.open_since(),
            probing_at: self.breaker.probe_at(),
            throttled_until,
            last_success_at: self.telemetry.last_success_at,
            last_error: self.telemetry.last_error.clone(),
            latency_ms: self.telemetry.latency(steady),
            rate_limit: Rates(self.limits.clone()).to_string(),
        }
    }

    /// The last reason why it did not accept a message, and when.
    pub(super) fn last_failure(&self) -> Option<&(Instant, String)> {
        self.telemetry.last_failure.as_ref()
    }

    /// Why it accepted nothing in this run, although something was tried.
    pub(super) fn trouble(&self) -> Option<String> {
        let (_, why) = self.failing.as_ref().filter(|_| !self.has_responded)?;
        let name = self.provider.name();
        Some(format!("`{name}` has not accepted a message yet; last error: {why}"))
    }

    /// What keeps the messages of its campaigns from being sent.
    pub(super) fn note(&self, now: Timestamp) -> Option<String> {
        let (name, wait) = (self.provider.name(), |at: Timestamp| duration(at.since(now)));
        let failure = self.failing.as_ref().map(|(_, why)| why);
        if !self.has_work() && self.claimed() == 0 {
            None
        } else if let Some(why) = &self.no_limit {
            Some(format!("nothing is sent to `{name}`: {why}"))
        } else if let (Some(why), Some(probe_at)) = (failure, self.breaker.probe_at()) {
            let wait = wait(probe_at);
            Some(format!("`{name}` is unavailable ({why}): next attempt in {wait}"))
        } else if self.paused_until > now {
            let (why, wait) = (self.pause_reason.as_deref()?, wait(self.paused_until));
            Some(format!("`{name}` asked to slow down ({why}): next attempt in {wait}"))
        } else {
            failure.map(|why| format!("the last attempt at `{name}` failed: {why}"))
        }
    }
}

/// The provider read the message, whether or not it accepted it.
fn is_definitive(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Accepted(_)
            | Outcome::Duplicate(_)
            | Outcome::Rejected(_)
            | Outcome::Deferred { .. }
            | Outcome::BatchRejected(_)
    )
}

fn make_unavailable(outcome: &mut Outcome) {
    if let Outcome::AccountError { failure, .. } = outcome {
        *outcome = Outcome::Unavailable { failure: failure.clone(), retry_after: None };
    }
}
