//! One campaign in a running worker: when messages are claimed from it, how many go in one request, and whether it has
//! to pause or stop. Only campaigns with messages have a state.

use std::time::Duration;

use super::auto_pause::{self, AutoPause};
use super::request::InFlight;
use super::window::WindowState;
use crate::provider::Provider;
use crate::sms::{Class, Failure, Outcome, Timestamp};
use crate::store::{Campaign, CampaignStatus, CampaignStop, QueuedCampaign};

/// Requests in flight before the first acceptance. Where everything is rejected, the automatic pause
/// comes at most this much too late.
const UNPROVEN: u32 = 8;
/// How long a campaign without messages is remembered, with what is known about its outcomes.
const REMEMBERED: Duration = Duration::from_secs(600);

pub(super) struct CampaignState {
    campaign: Campaign,
    auto_pause: AutoPause,
    /// When its next message is due, as far as is known; `None`: it has no ready message.
    due_at: Option<Timestamp>,
    /// Its window or its limit allows nothing before this.
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

/// The status that a campaign gets, and why.
pub(super) type Halt = (CampaignStatus, String);

impl CampaignState {
    pub(super) fn new(queued: QueuedCampaign, config: auto_pause::Config, now: Timestamp) -> Self {
        Self {
            campaign: queued.campaign,
            auto_pause: AutoPause::new(config),
            due_at: queued.ready_at,
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
        if self.is_proven {
            u32::MAX
        } else {
            UNPROVEN.saturating_sub(self.claimed)
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.campaign.state == CampaignStatus::Active
    }

    /// Whether it has something to send now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next_at().is_some_and(|at| at <= now)
    }

    /// When to claim messages from it; `None`: not before a request has ended or messages are added.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        let due_at = self
            .due_at
            .filter(|_| self.is_active() && self.room() > 0)?;
        Some(due_at.max(self.not_before))
    }

    /// Whether it has ready messages.
    pub(super) fn has_work(&self) -> bool {
        self.is_active() && self.due_at.is_some()
    }

    /// A message goes back into its queue in the next commit.
    pub(super) fn expect_message(&mut self, due_at: Timestamp) {
        self.due_at = Some(self.due_at.map_or(due_at, |known| known.min(due_at)));
    }

    /// No message of it is due.
    pub(super) fn exhaust(&mut self) {
        self.due_at = None;
    }

    /// It has no messages. Whether to remember it.
    pub(super) fn is_remembered(&mut self, now: Timestamp) -> bool {
        self.due_at = None;
        self.claimed > 0 || now.since(self.seen_at) < REMEMBERED
    }

    /// Stops or pauses it here, and in the next commit.
    pub(super) fn stop(&mut self, state: CampaignStatus, reason: String) -> CampaignStop {
        self.halt(state, Some(reason.clone()));
        CampaignStop {
            campaign_id: self.campaign.id,
            state,
            reason,
        }
    }

    fn halt(&mut self, state: CampaignStatus, reason: Option<String>) {
        self.campaign.state = state;
        self.campaign.state_reason = reason;
    }

    /// Takes over what the database says of the campaign now.
    pub(super) fn refresh(&mut self, queued: QueuedCampaign, now: Timestamp) {
        let QueuedCampaign {
            campaign, ready_at, ..
        } = queued;
        let is_active_again = campaign.state == CampaignStatus::Active && !self.is_active();
        if is_active_again || campaign.window != self.campaign.window {
            self.forget_times();
        }
        self.campaign = campaign;
        self.due_at = ready_at;
        self.seen_at = now;
    }

    /// Checks everything again that depends on the time.
    pub(super) fn forget_times(&mut self) {
        self.not_before = Timestamp::default();
        self.window = WindowState::default();
    }

    pub(super) fn check_window(&mut self, now: Timestamp, tolerance: Duration) {
        let window = self.campaign.window.as_ref();
        if let Some(until) = self.window.check(window, now, tolerance) {
            self.wait_until(until);
        }
    }

    /// Claims nothing from it before this instant.
    pub(super) fn wait_until(&mut self, until: Timestamp) {
        self.not_before = self.not_before.max(until);
    }

    /// Whether its window is closed.
    pub(super) fn is_closed(&self, now: Timestamp) -> bool {
        self.window.closed_until(now).is_some()
    }

    /// Until when it has nothing to send, where that is longer than `patience`: its window is closed,
    /// or all its messages are due later.
    pub(super) fn idle_until(&self, now: Timestamp, patience: Duration) -> Option<Timestamp> {
        let closed_until = self.window.closed_until(now);
        closed_until.or(self.due_at.filter(|due_at| *due_at > now.plus(patience)))
    }

    /// An instant in the time zone of its window.
    pub(super) fn shown(&self, at: Timestamp) -> String {
        let window = self.campaign.window.as_ref();
        window.map_or_else(|| at.to_string(), |window| window.format_local(at))
    }

    /// Sets the size of its next request by its largest one in a claim.
    pub(super) fn set_size(&mut self, largest: u32, max: u32) {
        let next = if self.is_proven {
            largest.saturating_mul(2)
        } else {
            1
        };
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
    /// the same unlisted code again and again.
    pub(super) fn halt_for(&mut self, provider: &Provider, outcomes: &[Outcome]) -> Option<Halt> {
        let mut halt = None;
        let mut had_unknown = false;
        for outcome in outcomes {
            match outcome {
                Outcome::Accepted(_) => {
                    self.is_proven = true;
                    self.auto_pause.accepted();
                }
                Outcome::Rejected(failure) => {
                    let unlisted = self.halt_for_code(provider, failure);
                    halt = halt.or(unlisted).or(self.halt_for_rejection(failure));
                }
                // One answer may make all messages of the request unknown: it counts once.
                Outcome::Unknown(failure) if !had_unknown => {
                    had_unknown = true;
                    halt = halt.or(self.halt_for_code(provider, failure));
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

    fn halt_for_code(&mut self, provider: &Provider, failure: &Failure) -> Option<Halt> {
        let code = failure.code.as_deref()?;
        if provider.knows_code(code) {
            return None;
        }
        let times = self.auto_pause.unlisted(code)?;
        let (name, last) = (provider.name(), &failure.reason);
        let why = format!(
            "`{name}` returned the unlisted code `{code}` {times} times in a row: {last}; add it to \
             `[providers.{name}.codes]` and run `smsq send`"
        );
        Some((CampaignStatus::Stopped, why))
    }
}
