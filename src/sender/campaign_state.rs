//! One campaign in a running worker: when messages are claimed from it, how many go in one request, and whether it has
//! to pause or stop. Only campaigns with messages have a state.

use std::sync::Arc;
use std::time::Duration;

use smsq_limit::per_second;
use smsq_message::route::Division;
use smsq_message::route::sender_pool::PoolSender;
use smsq_message::sms::{Class, Failure, LaneId, Outcome, Timestamp};
use smsq_provider::Provider;
use smsq_store::{Campaign, CampaignStatus, CampaignStop, QueuedCampaign, QueuedLane};

use super::auto_pause::{self, AutoPause, Unlisted};
use super::request::InFlight;
use super::window::WindowState;

/// Requests in flight before the first acceptance. Where everything is rejected, the automatic pause
/// comes at most this much too late.
const UNPROVEN: u32 = 8;
/// How long a campaign without messages is remembered, with what is known about its outcomes.
const REMEMBERED: Duration = Duration::from_secs(600);

pub(super) struct CampaignState {
    campaign: Campaign,
    auto_pause: AutoPause,
    /// The parts of its queue: at least one.
    lanes: Vec<LaneState>,
    /// Where its messages are divided among senders.
    division: Option<Arc<Division>>,
    /// Its window allows nothing before this.
    not_before: Timestamp,
    /// When it had messages last.
    seen_at: Timestamp,
    window: WindowState,
    /// A message of the last request, if the provider refused the account for it.
    refused: Option<i64>,
    /// A message was accepted in this run. Until then messages go alone, so that a mistake which
    /// affects all of them shows early.
    is_proven: bool,
    /// The size of the next request: twice what the last one had.
    max_batch: u32,
    /// Requests that are claimed and may start.
    claimed: u32,
}

/// A part of the queue of a campaign.
pub(super) struct LaneState {
    number: i32,
    /// Whom its messages are sent by; `None`: the provider's own sender.
    from: Option<String>,
    /// The same, if it has limits or pauses of its own.
    pub(super) sender: Option<Arc<PoolSender>>,
    /// Its messages are not sent, but moved to the lanes of other senders.
    pub(super) moves: Option<Moves>,
    /// When its next message is due, as far as is known; `None`: it has no ready message.
    due_at: Option<Timestamp>,
    /// The limits of its campaign or its sender allow nothing before this.
    not_before: Timestamp,
}

/// How many messages are moved out of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    /// It is not divided, or its sender is switched off.
    AtOnce,
    /// Its provider is unavailable: only as many as are sent at once, because it may be available again soon.
    AsOthersAreSent,
}

impl LaneState {
    /// A lane that is sent by its provider; `None`: the part of the queue that is not divided.
    fn new(queued: &QueuedCampaign, lane: Option<&QueuedLane>) -> Self {
        Self {
            number: lane.map_or(0, |lane| lane.number),
            from: None,
            sender: None,
            moves: None,
            due_at: lane.map_or(queued.ready_at, |lane| lane.ready_at),
            not_before: Timestamp::default(),
        }
    }

    fn next_at(&self) -> Option<Timestamp> {
        self.due_at.map(|due_at| due_at.max(self.not_before))
    }

    /// How many messages a second its sender may send at most; `None`: any number.
    fn per_second(&self) -> Option<f64> {
        per_second(&self.sender.as_ref()?.rate.0)
    }
}

/// A campaign with messages, and how they are divided among senders.
pub(super) struct Served {
    pub(super) queued: QueuedCampaign,
    pub(super) sent_by: SentBy,
}

/// Who sends the messages of a campaign.
#[derive(Clone)]
pub(super) enum SentBy {
    /// The campaign's sender, or that of its provider.
    OneSender,
    /// The senders of a route, each those of its lane; `None`: not all of them have lanes yet.
    Route(Option<Arc<Division>>),
}

impl Served {
    /// The lanes that a provider sends, and those whose messages it moves.
    fn lanes(&self, provider: &Provider) -> Vec<LaneState> {
        let queued = &self.queued;
        let undivided = [None].into_iter().chain(queued.lanes.iter().map(Some));
        let division = match &self.sent_by {
            SentBy::Route(Some(division)) => division,
            SentBy::Route(None) => return Vec::new(),
            SentBy::OneSender => {
                let from = queued.campaign.sender.as_deref();
                let sender = from.and_then(|from| provider.senders()?.sender(from));
                let of_campaign = |lane: Option<&QueuedLane>| LaneState {
                    from: from.map(str::to_owned),
                    sender: sender.cloned(),
                    ..LaneState::new(queued, lane)
                };
                return undivided.map(of_campaign).collect();
            }
        };
        let name = provider.name();
        let is_away = division.outage(name).is_some();
        let lane = |lane: Option<&QueuedLane>| {
            let owner = lane.and_then(|lane| division.owner(lane.number));
            let state = LaneState::new(queued, lane);
            match owner.filter(|owner| owner.is_on) {
                Some(owner) if owner.provider == name => Some(LaneState {
                    from: owner.from().map(str::to_owned),
                    sender: owner.is_listed.then(|| Arc::clone(owner.sender)),
                    ..state
                }),
                Some(owner) if owner.outage.is_none() => None,
                _ if is_away => None,
                Some(_) => Some(LaneState { moves: Some(Moves::AsOthersAreSent), ..state }),
                None => Some(LaneState { moves: Some(Moves::AtOnce), ..state }),
            }
        };
        undivided.filter_map(lane).collect()
    }

    fn division(&self) -> Option<&Arc<Division>> {
        match &self.sent_by {
            SentBy::Route(division) => division.as_ref(),
            SentBy::OneSender => None,
        }
    }
}

/// The status that a campaign gets, and why.
pub(super) type Halt = (CampaignStatus, String);

impl CampaignState {
    pub(super) fn new(
        served: Served,
        provider: &Provider,
        config: auto_pause::Config,
        now: Timestamp,
    ) -> Self {
        Self {
            auto_pause: AutoPause::new(config),
            lanes: served.lanes(provider),
            division: served.division().cloned(),
            campaign: served.queued.campaign,
            not_before: Timestamp::default(),
            seen_at: now,
            window: WindowState::default(),
            refused: None,
            is_proven: false,
            max_batch: 1,
            claimed: 0,
        }
    }

    pub(super) fn campaign(&self) -> &Campaign {
        &self.campaign
    }

    pub(super) fn id(&self) -> i64 {
        self.campaign.id
    }

    pub(super) fn division(&self) -> Option<&Arc<Division>> {
        self.division.as_ref()
    }

    /// Whether another provider than this one can send its messages now.
    pub(super) fn has_other_provider(&self, name: &str) -> bool {
        let division = self.division.as_ref();
        division.is_some_and(|division| division.has_other(name))
    }

    /// Whether it is sent by several providers, each a part of it.
    pub(super) fn is_shared(&self) -> bool {
        let division = self.division.as_ref();
        division.is_some_and(|division| division.route().is_shared())
    }

    /// The lanes that this provider sends, each with its sender; `None`: the provider's own.
    pub(super) fn lanes(&self) -> impl Iterator<Item = (LaneId, Option<&String>)> {
        let lanes = self.lanes.iter().filter(|lane| lane.moves.is_none());
        lanes.map(|lane| (self.lane_id(lane), lane.from.as_ref()))
    }

    pub(super) fn lane_id(&self, lane: &LaneState) -> LaneId {
        LaneId { campaign_id: self.campaign.id, lane: lane.number }
    }

    /// The lanes with something to send now, from the one after the last turn.
    pub(super) fn due_lanes(&self, turn: usize, now: Timestamp) -> Vec<&LaneState> {
        let is_due = |lane: &&LaneState| lane.next_at().is_some_and(|at| at <= now);
        let mut due: Vec<&LaneState> = self.lanes.iter().filter(is_due).collect();
        let count = due.len().max(1);
        due.rotate_left(turn % count);
        due
    }

    fn lane_mut(&mut self, number: i32) -> Option<&mut LaneState> {
        self.lanes.iter_mut().find(|lane| lane.number == number)
    }

    /// Whom the messages of a lane are sent by.
    pub(super) fn sender_name(&self, number: i32) -> Option<&String> {
        let lane = self.lanes.iter().find(|lane| lane.number == number)?;
        lane.from.as_ref()
    }

    /// The sender of a lane, if it has limits or pauses of its own.
    pub(super) fn pool_sender(&self, number: i32) -> Option<&Arc<PoolSender>> {
        let lane = self.lanes.iter().find(|lane| lane.number == number)?;
        lane.sender.as_ref()
    }

    /// Whether it has a limit of its own, or one of its senders.
    pub(super) fn is_limited(&self) -> bool {
        !self.campaign.rate.0.is_empty() || self.has_limited_senders()
    }

    /// Whether a limit of one of its senders delays its messages.
    pub(super) fn has_limited_senders(&self) -> bool {
        self.lanes.iter().any(|lane| lane.per_second().is_some())
    }

    /// How many messages a second its own limit and those of its senders allow; `None`: any number.
    pub(super) fn per_second(&self) -> Option<f64> {
        let sending =
            self.lanes.iter().filter(|lane| lane.due_at.is_some() && lane.moves.is_none());
        let by_senders =
            sending.map(LaneState::per_second).reduce(|sum, rate| Some(sum? + rate?)).flatten();
        per_second(&self.campaign.rate.0).into_iter().chain(by_senders).reduce(f64::min)
    }

    /// A request is claimed, or got another permit.
    pub(super) fn begin_claim(&mut self) {
        self.claimed += 1;
    }

    /// A request is over, or waits for another permit.
    pub(super) fn end_claim(&mut self) {
        self.claimed = self.claimed.saturating_sub(1);
    }

    /// The size of the next request.
    pub(super) fn max_batch(&self) -> u32 {
        self.max_batch
    }

    /// How many more requests it may have.
    pub(super) fn room(&self) -> u32 {
        if self.is_proven { u32::MAX } else { UNPROVEN.saturating_sub(self.claimed) }
    }

    pub(super) fn is_active(&self) -> bool {
        self.campaign.may_send()
    }

    /// Whether it has something to send now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next_at().is_some_and(|at| at <= now)
    }

    /// When to claim messages from it; `None`: not before a request has ended or messages are added.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        let of_lanes = self.lanes.iter().filter_map(LaneState::next_at).min();
        let may_send = self.is_active() && self.room() > 0;
        Some(of_lanes.filter(|_| may_send)?.max(self.not_before))
    }

    /// When its next message is due, whatever its limits; `None`: it has no ready message.
    fn due_at(&self) -> Option<Timestamp> {
        self.lanes.iter().filter_map(|lane| lane.due_at).min()
    }

    /// Whether it has ready messages.
    pub(super) fn has_work(&self) -> bool {
        self.is_active() && self.due_at().is_some()
    }

    /// A message goes back into this lane in the next commit, or was moved into it.
    pub(super) fn expect_message(&mut self, number: i32, due_at: Timestamp) {
        if let Some(lane) = self.lane_mut(number) {
            lane.due_at = Some(lane.due_at.map_or(due_at, |known| known.min(due_at)));
        }
    }

    /// No message of this lane is due.
    pub(super) fn exhaust(&mut self, number: i32) {
        if let Some(lane) = self.lane_mut(number) {
            lane.due_at = None;
        }
    }

    /// It has no messages. Whether to remember it.
    pub(super) fn is_remembered(&mut self, now: Timestamp) -> bool {
        self.lanes.iter_mut().for_each(|lane| lane.due_at = None);
        self.claimed > 0 || now.since(self.seen_at) < REMEMBERED
    }

    /// Stops or pauses it here, and in the next commit.
    pub(super) fn stop(&mut self, state: CampaignStatus, reason: String) -> CampaignStop {
        self.halt(state, Some(reason.clone()));
        CampaignStop { campaign_id: self.campaign.id, state, reason }
    }

    fn halt(&mut self, state: CampaignStatus, reason: Option<String>) {
        self.campaign.state = state;
        self.campaign.state_reason = reason;
    }

    /// Takes over what the database says of the campaign now.
    pub(super) fn refresh(&mut self, served: Served, provider: &Provider, now: Timestamp) {
        let mut lanes = served.lanes(provider);
        for lane in &mut lanes {
            let known = self.lanes.iter().find(|known| known.number == lane.number);
            if let Some(known) = known.filter(|known| known.sender == lane.sender) {
                lane.not_before = known.not_before;
            }
        }
        let division = served.division().cloned();
        let campaign = served.queued.campaign;
        let is_active_again = campaign.may_send() && !self.is_active();
        let is_changed = is_active_again || campaign.window != self.campaign.window;
        (self.campaign, self.lanes, self.division) = (campaign, lanes, division);
        self.seen_at = now;
        if is_changed {
            self.forget_times();
        }
    }

    /// Checks everything again that depends on the time.
    pub(super) fn forget_times(&mut self) {
        self.not_before = Timestamp::default();
        let lanes = self.lanes.iter_mut();
        lanes.for_each(|lane| lane.not_before = Timestamp::default());
        self.window = WindowState::default();
    }

    pub(super) fn check_window(&mut self, now: Timestamp, tolerance: Duration) {
        let window = self.campaign.window.as_ref();
        if let Some(until) = self.window.check(window, now, tolerance) {
            self.not_before = self.not_before.max(until);
        }
    }

    /// Claims nothing from this lane before this instant.
    pub(super) fn wait_until(&mut self, number: i32, until: Timestamp) {
        if let Some(lane) = self.lane_mut(number) {
            lane.not_before = lane.not_before.max(until);
        }
    }

    /// Whether its window is closed.
    pub(super) fn is_closed(&self, now: Timestamp) -> bool {
        self.window.closed_until(now).is_some()
    }

    /// Until when it has nothing to send, where that is longer than `patience`: its window is closed,
    /// or all its messages are due later.
    pub(super) fn idle_until(&self, now: Timestamp, patience: Duration) -> Option<Timestamp> {
        let closed_until = self.window.closed_until(now);
        closed_until.or(self.due_at().filter(|due_at| *due_at > now.plus(patience)))
    }

    /// An instant in the time zone of its window.
    pub(super) fn shown(&self, at: Timestamp) -> String {
        let window = self.campaign.window.as_ref();
        window.map_or_else(|| at.to_string(), |window| window.format_local(at))
    }

    /// Sets the size of its next request by its largest one in a claim.
    pub(super) fn set_size(&mut self, largest: u32, max: u32) {
        let next = if self.is_proven { largest.saturating_mul(2) } else { 1 };
        self.max_batch = next.min(max).max(1);
    }

    /// Checks whether the account is refused: by a code that the provider's table lists, or by two
    /// requests in a row without a common message. Such answers are then marked as listed.
    pub(super) fn halt_for_refusal(
        &mut self,
        request: &InFlight,
        outcomes: &mut [Outcome],
    ) -> Option<Halt> {
        let before = self.refused.take();
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::AccountError { .. });
        let all_refused = outcomes.iter().all(is_refused);
        let is_other = |id: i64| request.rows.iter().all(|sms| sms.id != id);
        let by_two = all_refused && before.is_some_and(is_other);
        if all_refused {
            self.refused = request.rows.first().map(|sms| sms.id);
        }
        let mut halt = None;
        for outcome in outcomes {
            let Outcome::AccountError { failure, listed } = outcome else {
                continue;
            };
            // Without a code the request could not be made, and the provider said nothing.
            let was_asked = !*listed || failure.code.is_some();
            *listed = *listed || by_two || !self.is_active();
            if *listed && halt.is_none() {
                let name = request.provider.name();
                let verb = match (failure.class, was_asked) {
                    (Class::Unavailable, _) => "cannot be called",
                    (_, true) => "refuses the account",
                    (_, false) => "cannot send this",
                };
                let reason = format!("`{name}` {verb}: {}", failure.reason);
                halt = Some((CampaignStatus::Stopped, reason));
            }
        }
        halt
    }

    /// Checks whether the outcomes of one request pause or stop the campaign: too many rejections, or
    /// the same unlisted code or text again and again.
    pub(super) fn halt_for(&mut self, provider: &Provider, outcomes: &[Outcome]) -> Option<Halt> {
        let mut halt = None;
        let mut had_unknown = false;
        for outcome in outcomes {
            match outcome {
                Outcome::Accepted(_) | Outcome::Duplicate(_) => {
                    self.is_proven = true;
                    self.auto_pause.accepted();
                }
                Outcome::Rejected(failure) => {
                    let unlisted = self.halt_for_unlisted(provider, failure);
                    halt = halt.or(unlisted).or(self.halt_for_rejection(failure));
                }
                // One answer may make all messages of the request unknown: it counts once.
                Outcome::Unknown(failure) if !had_unknown => {
                    had_unknown = true;
                    halt = halt.or(self.halt_for_unlisted(provider, failure));
                }
                _ => {}
            }
        }
        halt
    }

    fn halt_for_rejection(&mut self, failure: &Failure) -> Option<Halt> {
        if failure.class == Class::OptedOut {
            return None;
        }
        let (rejected, seen) = self.auto_pause.rejected()?;
        let last = &failure.reason;
        let why = format!("{rejected} of the last {seen} messages were rejected; the last: {last}");
        Some((CampaignStatus::Paused, why))
    }

    fn halt_for_unlisted(&mut self, provider: &Provider, failure: &Failure) -> Option<Halt> {
        let (name, last) = (provider.name(), &failure.reason);
        let why = match &failure.code {
            Some(code) if provider.knows_code(code) => return None,
            Some(code) => {
                let times = self.auto_pause.unlisted(Unlisted::Code(code.clone()))?;
                format!(
                    "`{name}` returned the unlisted code `{code}` {times} times in a row: {last}; add it to \
                     `[providers.{name}.codes]` and run `smsq send`"
                )
            }
            None if failure.is_answer => {
                let times = self.auto_pause.unlisted(Unlisted::text(last))?;
                format!(
                    "`{name}` gave the same unlisted answer {times} times in a row: {last}; describe it in \
                     `[providers.{name}]` and run `smsq send`"
                )
            }
            None => return None,
        };
        Some((CampaignStatus::Stopped, why))
    }
}
