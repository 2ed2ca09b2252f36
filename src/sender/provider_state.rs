//! One provider as the clerk sees it: its gate, its breaker, how long it must be left alone, and how the
//! campaigns take turns on it.

use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Allowed, CircuitBreaker};
use super::campaign_state::CampaignState;
use super::request::{InFlight, Transport};
use super::results::stop_note;
use super::window::Hours;
use crate::limit::LocalLimiter;
use crate::limit::{LONG_WINDOW, max_request_cost};
use crate::limit::{Permit, Reservation};
use crate::provider::Provider;
use crate::queue::{CampaignClaim, ProviderClaim};
use crate::rate::Rate;
use crate::sms::Timestamp;
use crate::store::ProviderPause;

/// The wait after "too fast" where the provider names none; it doubles while that goes on.
const FIRST_STOP: Duration = Duration::from_secs(1);
const LONGEST_STOP: Duration = Duration::from_secs(60);

pub(super) struct ProviderState {
    pub(super) provider: Arc<Provider>,
    pub(super) transport: Transport,
    /// Campaigns that name no provider are sent here.
    pub(super) is_default: bool,
    pub(super) limits: Vec<Rate>,
    pub(super) gate: LocalLimiter,
    pub(super) breaker: CircuitBreaker,
    pub(super) stopped_until: Timestamp,
    /// What the provider said when it asked for that.
    pub(super) stop_reason: Option<String>,
    stops: u32,
    /// It took a message in this run.
    pub(super) has_accepted: bool,
    /// Since when nothing was accepted, while something was tried.
    pub(super) failing_since: Option<Timestamp>,
    pub(super) lines: Vec<CampaignState>,
    pub(super) in_flight: u32,
    /// Claimed calls that lost their moment.
    pub(super) held: Vec<InFlight>,
    /// Moments of calls that were not started: others may have them.
    pub(super) released: Vec<Reservation>,
    /// The account's limits have no moment before this.
    pub(super) asleep_until_us: i64,
    /// No limit has a moment for what is held before this.
    pub(super) held_until_us: i64,
    /// Whose turn it is.
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
            gate: LocalLimiter::new(&limits, now_us),
            limits,
            breaker,
            stopped_until: Timestamp::default(),
            stop_reason: None,
            stops: 0,
            has_accepted: false,
            failing_since: None,
            lines: Vec::new(),
            in_flight: 0,
            held: Vec::new(),
            released: Vec::new(),
            asleep_until_us: 0,
            held_until_us: 0,
            turn: 0,
        }
    }

    pub(super) fn busy(&self) -> u32 {
        self.in_flight + u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn line(&mut self, campaign_id: i64) -> Option<&mut CampaignState> {
        self.lines
            .iter_mut()
            .find(|line| line.campaign.id == campaign_id)
    }

    /// Takes up what the database says of it: for how long it must be left alone. Returns a note for the operator
    /// where it must, and an empty one where that has ended early.
    pub(super) fn take_stop(
        &mut self,
        stop: Option<&ProviderPause>,
        now: Timestamp,
    ) -> Option<String> {
        if let Some(stop) = stop {
            self.stopped_until = stop.until;
            self.stop_reason = Some(stop.reason.clone());
            return Some(stop_note(&stop.provider, &stop.reason, stop.until));
        }
        if self.stopped_until <= now {
            return None;
        }
        self.stopped_until = Timestamp::default();
        self.asleep_until_us = 0;
        self.held_until_us = 0;
        Some(String::new())
    }

    /// Until when it must be left alone, where that is longer than `patience`, and why.
    pub(super) fn stopped_beyond(&self, now: Timestamp, patience: Duration) -> Option<String> {
        (self.stopped_until > now.plus(patience)).then(|| {
            let (name, until) = (self.provider.name(), self.stopped_until);
            let why = self.stop_reason.as_deref().unwrap_or("it gave no reason");
            format!("{until}, as `{name}` asked ({why})")
        })
    }

    /// Until when it sends nothing, as far as that is known: it asked for a pause, or it is away.
    pub(super) fn rests_until(&self, now: Timestamp) -> Timestamp {
        match self.breaker.allowed(now) {
            Allowed::None(Some(probe_at)) => self.stopped_until.max(probe_at),
            _ => self.stopped_until,
        }
    }

    /// The clock was set: what waits for a moment waits as long as before.
    pub(super) fn shift(&mut self, by_us: i64) {
        let shifted =
            |at: Timestamp| Timestamp::from_millis(at.as_millis().saturating_add(by_us / 1_000));
        self.asleep_until_us = 0;
        self.held_until_us = 0;
        self.stopped_until = shifted(self.stopped_until);
        self.failing_since = self.failing_since.map(shifted);
        self.gate.shift(by_us);
        self.breaker.shift(by_us);
        for line in &mut self.lines {
            line.quiet_until = Timestamp::default();
            line.hours = Hours::default();
        }
    }

    /// Whether claimed messages wait for a moment that may be had now.
    pub(super) fn holds_due(&self, now_us: i64) -> bool {
        !self.held.is_empty() && self.held_until_us <= now_us
    }

    /// How many of `free` slots it could use now, were its gate open.
    pub(super) fn could_use(&self, free: u32, now: Timestamp, now_us: i64) -> u32 {
        let rested = now >= self.stopped_until && now_us >= self.asleep_until_us;
        let due = self.holds_due(now_us) || self.lines.iter().any(|line| line.is_due(now));
        if !rested || !due {
            return 0;
        }
        match self.breaker.allowed(now) {
            Allowed::Any => free,
            Allowed::One => free.min(1),
            Allowed::None(_) => 0,
        }
    }

    /// How many of `usable` calls can start at their moments: those whose connection is open; the others' are
    /// opened. Without a limit calls have no moment, and open their own.
    pub(super) fn connected(&self, usable: u32, ahead: Duration, now: Timestamp) -> u32 {
        let due = || self.lines.iter().filter(|line| line.is_due(now));
        let own = due().map(|line| per_second(&line.campaign.rate.0));
        let own = own.reduce(|one, other| Some(one? + other?)).flatten();
        let is_limited = |line: &CampaignState| !line.campaign.rate.0.is_empty();
        if self.limits.is_empty() && !due().any(is_limited) {
            return usable;
        }
        // A campaign that was found empty is asked all the same, but no connection is opened for it.
        if due().all(|line| line.empty) && self.held.is_empty() {
            return self.transport.prepare(0, None, ahead).clamp(1, usable);
        }
        let rates = per_second(&self.limits).into_iter().chain(own);
        self.transport
            .prepare(usable, rates.reduce(f64::min), ahead)
    }

    /// The next moment at which it may have something to do, besides answers.
    pub(super) fn wakes_at_us(&self, now: Timestamp) -> Option<i64> {
        let quiet = self
            .lines
            .iter()
            .filter(|line| line.is_active() && line.room() > 0);
        let quiet_until = quiet.map(|line| line.quiet_until).min();
        let held_until = (!self.held.is_empty())
            .then(|| Timestamp::from_millis(self.held_until_us / 1_000).max(now));
        let due_at = quiet_until.into_iter().chain(held_until).min()?;
        let allowed_at = match self.breaker.allowed(now) {
            Allowed::None(None) => return None,
            Allowed::None(Some(probe_at)) => probe_at,
            Allowed::Any | Allowed::One => Timestamp::default(),
        };
        let at = due_at.max(allowed_at).max(self.stopped_until);
        Some(
            at.as_millis()
                .saturating_mul(1_000)
                .max(self.asleep_until_us),
        )
    }

    /// A claim that asks for nothing.
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

    /// The held calls that got a new moment, the first of them one by one.
    pub(super) fn regain(&mut self, moments: Vec<Option<Permit>>) -> Vec<InFlight> {
        let mut jobs = Vec::new();
        let mut moments = moments.into_iter();
        for mut job in std::mem::take(&mut self.held) {
            match moments.next() {
                Some(Some(moment)) => {
                    job.permit = moment;
                    jobs.push(job);
                }
                Some(None) => {
                    // It has none any more: the old one was given back.
                    job.permit = Permit::AT_ONCE;
                    self.held.push(job);
                }
                None => self.held.push(job),
            }
        }
        jobs
    }

    /// How many messages a call may have now, by the provider, its limits and the campaigns that are due.
    pub(super) fn call_size(&self, now: Timestamp) -> u32 {
        if self.breaker.probe_at().is_some() {
            return 1;
        }
        let due = self.lines.iter().filter(|line| line.is_due(now));
        let sizes = due.map(|line| line.max_batch);
        let by_limits = max_request_cost(&self.limits).unsigned_abs();
        sizes.max().unwrap_or(1).min(by_limits).max(1)
    }

    /// Takes note of how many messages the calls of each campaign had: that many found together, and twice as
    /// many may.
    pub(super) fn note_sizes(&mut self, jobs: &[InFlight]) {
        let most = u32::try_from(self.provider.most_per_call()).unwrap_or(u32::MAX);
        for line in &mut self.lines {
            let its = jobs
                .iter()
                .filter(|job| job.campaign_id == line.campaign.id);
            if let Some(largest) = its.map(InFlight::count).max() {
                line.note_size(largest, most);
            }
        }
    }

    /// Whom to ask for messages in so many calls: by priority, and in turns among equals.
    pub(super) fn asks(&mut self, calls: u32, now: Timestamp) -> Vec<CampaignClaim> {
        let probing = self.breaker.probe_at().is_some();
        let mut due: Vec<Due> = self
            .lines
            .iter()
            .filter(|line| line.is_due(now))
            .map(|line| Due {
                priority: line.campaign.priority,
                campaign_id: line.campaign.id,
                max_batch: if probing { 1 } else { line.max_batch },
                room: line.room(),
            })
            .collect();
        if due.is_empty() {
            return Vec::new();
        }
        self.turn = self.turn.wrapping_add(1);
        due.sort_unstable_by_key(|due| (-i64::from(due.priority), due.campaign_id));
        due.chunk_by(|one, other| one.priority == other.priority)
            .flat_map(|equals| in_turn(equals, self.turn, calls))
            .collect()
    }

    /// Every campaign once.
    pub(super) fn asks_all(&self) -> Vec<CampaignClaim> {
        let ask = |line: &CampaignState| CampaignClaim {
            campaign_id: line.campaign.id,
            max_messages: 1,
            max_batch: 1,
        };
        self.lines.iter().map(ask).collect()
    }

    /// The provider said "too fast". Returns until when it is to be left alone, where that is news.
    pub(super) fn throttled(
        &mut self,
        retry_after: Option<Duration>,
        now: Timestamp,
        now_us: i64,
    ) -> Option<Timestamp> {
        let again = now >= self.stopped_until;
        if again {
            self.gate.slow_down(now_us);
            self.stops = self.stops.saturating_add(1);
        }
        let usual =
            FIRST_STOP.saturating_mul(2_u32.saturating_pow(self.stops.saturating_sub(1).min(10)));
        let until = now.plus(retry_after.unwrap_or(usual.min(LONGEST_STOP)));
        if !again && until <= self.stopped_until {
            return None;
        }
        if !again && retry_after.is_none() {
            return None;
        }
        self.stopped_until = self.stopped_until.max(until);
        Some(self.stopped_until)
    }

    /// The provider took a message.
    pub(super) fn accepted(&mut self) {
        self.has_accepted = true;
        self.stops = 0;
        self.failing_since = None;
    }
}

/// A campaign that is to be asked.
#[derive(Clone, Copy)]
struct Due {
    priority: i32,
    campaign_id: i64,
    max_batch: u32,
    /// It may have so many more calls.
    room: u32,
}

/// How many messages the limits allow in a second, as far as they are kept by spacing.
fn per_second(limits: &[Rate]) -> Option<f64> {
    let short = limits.iter().filter(|rate| rate.window < LONG_WINDOW);
    short.map(|rate| rate.per_second()).reduce(f64::min)
}

/// Everybody gets an equal share of the calls first, then whoever has more gets the rest.
fn in_turn(equals: &[Due], turn: usize, calls: u32) -> Vec<CampaignClaim> {
    let count = equals.len();
    let share = calls
        .div_ceil(u32::try_from(count).unwrap_or(u32::MAX))
        .max(1);
    let order = (0..count).map(|index| equals[(turn + index) % count]);
    let ask = |due: Due, calls: u32| CampaignClaim {
        campaign_id: due.campaign_id,
        max_messages: calls.min(due.room).saturating_mul(due.max_batch),
        max_batch: due.max_batch,
    };
    let mut asks: Vec<CampaignClaim> = order.clone().map(|due| ask(due, share)).collect();
    if count > 1 {
        let unbounded = order.filter(|due| due.room == u32::MAX);
        asks.extend(unbounded.map(|due| ask(due, calls)));
    }
    asks
}
