//! One provider as the clerk sees it: its gate, its breaker, how long it must be left alone, and the
//! campaigns that take turns on it.

use std::sync::Arc;
use std::time::Duration;

use super::brake::{self, Brake};
use super::breaker::{Allowed, Breaker};
use super::gate::Gate;
use super::hours::Hours;
use super::slot::{Job, Transport};
use crate::provider::Provider;
use crate::rate::Rate;
use crate::sms::Timestamp;
use crate::store::{Ask, Campaign, CampaignState, Drained, Held, Moment, RouteClaim};

/// A campaign that was found empty is asked again after this: others may add to it.
const POLL: Duration = Duration::from_secs(1);
/// The wait after "too fast" where the provider names none; it doubles while that goes on.
const FIRST_STOP: Duration = Duration::from_secs(1);
const LONGEST_STOP: Duration = Duration::from_secs(60);

pub(super) struct Route {
    pub(super) provider: Arc<Provider>,
    pub(super) transport: Transport,
    pub(super) limits: Vec<Rate>,
    pub(super) gate: Gate,
    pub(super) breaker: Breaker,
    pub(super) stopped_until: Timestamp,
    stops: u32,
    /// Since when nothing was accepted, while something was tried.
    pub(super) failing_since: Option<Timestamp>,
    pub(super) lines: Vec<Line>,
    pub(super) in_flight: u32,
    /// Claimed messages that lost their moment.
    pub(super) held: Vec<Job>,
    /// Moments of messages that were not started: others may have them.
    pub(super) returned: Vec<Held>,
    /// No moment is to be had before this.
    pub(super) asleep_until_us: i64,
    /// Nor for what is held.
    pub(super) held_until_us: i64,
    /// Whose turn it is.
    turn: usize,
}

/// One campaign on a route.
pub(super) struct Line {
    pub(super) campaign: Campaign,
    pub(super) brake: Brake,
    /// Nothing is due before this.
    pub(super) quiet_until: Timestamp,
    /// When the next message is due, as far as was heard.
    due_at: Option<Timestamp>,
    pub(super) hours: Hours,
    /// It had nothing left when it was asked last.
    pub(super) empty: bool,
    /// The message that was refused last, while nothing else happened since.
    pub(super) refused: Option<i64>,
}

impl Line {
    pub(super) fn new(campaign: Campaign, config: brake::Config) -> Self {
        Self {
            campaign,
            brake: Brake::new(config),
            quiet_until: Timestamp::default(),
            due_at: None,
            hours: Hours::default(),
            empty: false,
            refused: None,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.campaign.state == CampaignState::Active
    }

    /// Whether it had something to send when it was asked last.
    pub(super) fn has_work(&self) -> bool {
        self.is_active() && !self.empty
    }

    pub(super) fn halt(&mut self, state: CampaignState, reason: Option<String>) {
        self.campaign.state = state;
        self.campaign.state_reason = reason;
    }

    /// Takes up what the database says of the campaign now.
    pub(super) fn refresh(&mut self, campaign: Campaign) {
        let is_active_again = campaign.state == CampaignState::Active && !self.is_active();
        if is_active_again || campaign.window != self.campaign.window {
            self.quiet_until = Timestamp::default();
            self.hours = Hours::default();
        }
        self.campaign = campaign;
    }

    /// Outside its window it is not asked for anything.
    pub(super) fn keep_hours(&mut self, now: Timestamp, reach: Duration) {
        let window = self.campaign.window.as_ref();
        if let Some(until) = self.hours.look(window, now, reach) {
            self.quiet_until = self.quiet_until.max(until);
        }
    }

    /// Until when it has nothing to send, where that is longer than `patience`: its window is closed, or all
    /// that it has is due later.
    pub(super) fn rests_until(&self, now: Timestamp, patience: Duration) -> Option<Timestamp> {
        let closed_until = self.hours.closed_until(now);
        closed_until.or(self.due_at.filter(|due_at| *due_at > now.plus(patience)))
    }

    /// An instant as its window's clock shows it.
    pub(super) fn shown(&self, at: Timestamp) -> String {
        let window = self.campaign.window.as_ref();
        window.map_or_else(|| at.to_string(), |window| window.shown(at))
    }

    pub(super) fn drained(&mut self, drained: Drained, now: Timestamp) {
        self.due_at = match drained {
            Drained::Until(due_at) => due_at,
            Drained::Halted(..) => None,
        };
        match drained {
            Drained::Halted(state, reason) => self.halt(state, reason),
            Drained::Until(Some(due_at)) => {
                self.empty = false;
                self.quiet_until = due_at
                    .min(now.plus(POLL))
                    .max(now.plus(Duration::from_millis(1)));
            }
            Drained::Until(None) => {
                self.empty = true;
                self.quiet_until = now.plus(POLL);
            }
        }
    }
}

impl Route {
    pub(super) fn new(
        provider: Arc<Provider>,
        transport: Transport,
        limits: Vec<Rate>,
        breaker: Breaker,
        now_us: i64,
    ) -> Self {
        Self {
            provider,
            transport,
            gate: Gate::new(&limits, now_us),
            limits,
            breaker,
            stopped_until: Timestamp::default(),
            stops: 0,
            failing_since: None,
            lines: Vec::new(),
            in_flight: 0,
            held: Vec::new(),
            returned: Vec::new(),
            asleep_until_us: 0,
            held_until_us: 0,
            turn: 0,
        }
    }

    pub(super) fn busy(&self) -> u32 {
        self.in_flight + u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn line(&mut self, campaign_id: i64) -> Option<&mut Line> {
        self.lines
            .iter_mut()
            .find(|line| line.campaign.id == campaign_id)
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
        let due = self.holds_due(now_us)
            || self
                .lines
                .iter()
                .any(|line| line.is_active() && line.quiet_until <= now);
        if !rested || !due {
            return 0;
        }
        match self.breaker.allowed(now) {
            Allowed::Any => free,
            Allowed::One => free.min(1),
            Allowed::None(_) => 0,
        }
    }

    /// The next moment at which it may have something to do, besides answers.
    pub(super) fn wakes_at_us(&self, now: Timestamp) -> Option<i64> {
        let quiet = self.lines.iter().filter(|line| line.is_active());
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
    pub(super) fn empty_claim(&self, from_us: i64) -> RouteClaim {
        RouteClaim {
            provider: self.provider.name().to_owned(),
            limits: self.limits.clone(),
            by_segments: self.provider.rates_count_segments(),
            from_us,
            until_us: from_us,
            returned: Vec::new(),
            held: Vec::new(),
            want: 0,
            asks: Vec::new(),
        }
    }

    /// The held messages that got a new moment, the first of them one by one.
    pub(super) fn regain(&mut self, moments: Vec<Option<Moment>>) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut moments = moments.into_iter();
        for mut job in std::mem::take(&mut self.held) {
            match moments.next() {
                Some(Some(moment)) => {
                    job.moment = moment;
                    jobs.push(job);
                }
                Some(None) => {
                    // It has none any more: the old one was given back.
                    job.moment = Moment::AtOnce;
                    self.held.push(job);
                }
                None => self.held.push(job),
            }
        }
        jobs
    }

    /// Whom to ask for `want` messages: by priority, and in turns among equals.
    pub(super) fn asks(&mut self, want: u32, now: Timestamp) -> Vec<Ask> {
        let mut due: Vec<(i32, i64)> = self
            .lines
            .iter()
            .filter(|line| line.is_active() && line.quiet_until <= now)
            .map(|line| (line.campaign.priority, line.campaign.id))
            .collect();
        if due.is_empty() {
            return Vec::new();
        }
        self.turn = self.turn.wrapping_add(1);
        due.sort_unstable_by_key(|(priority, id)| (-i64::from(*priority), *id));
        due.chunk_by(|one, other| one.0 == other.0)
            .flat_map(|equals| in_turn(equals, self.turn, want))
            .collect()
    }

    /// Every campaign once.
    pub(super) fn asks_all(&self) -> Vec<Ask> {
        let ask = |line: &Line| Ask {
            campaign_id: line.campaign.id,
            at_most: 1,
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
        self.stops = 0;
        self.failing_since = None;
    }
}

/// Everybody gets an equal share first, then whoever has more gets the rest.
fn in_turn(equals: &[(i32, i64)], turn: usize, want: u32) -> Vec<Ask> {
    let count = equals.len();
    let share = want
        .div_ceil(u32::try_from(count).unwrap_or(u32::MAX))
        .max(1);
    let order = (0..count).map(|index| equals[(turn + index) % count].1);
    let mut asks: Vec<Ask> = order
        .clone()
        .map(|campaign_id| Ask {
            campaign_id,
            at_most: share,
        })
        .collect();
    if count > 1 {
        asks.extend(order.map(|campaign_id| Ask {
            campaign_id,
            at_most: want,
        }));
    }
    asks
}
