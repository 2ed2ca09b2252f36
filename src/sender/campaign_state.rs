//! One campaign as the clerk sees it: when it is asked for messages, how many go together, and what tells that
//! it must not go on.

use std::time::Duration;

use super::auto_pause::{self, AutoPause};
use super::request::InFlight;
use super::window::Hours;
use crate::provider::Provider;
use crate::sms::{Class, Failure, Outcome, Timestamp};
use crate::store::{Campaign, CampaignStatus, QueuePlace, Shortfall};

/// A campaign that was found empty is asked again after this: others may add to it.
const POLL: Duration = Duration::from_secs(1);

/// Requests in flight for a campaign before its first acceptance: where all are rejected, the auto-pause
/// comes no more than this too late.
const UNPROVEN: u32 = 8;

/// One campaign on a route.
pub(super) struct CampaignState {
    pub(super) campaign: Campaign,
    pub(super) auto_pause: AutoPause,
    /// Nothing is due before this.
    pub(super) quiet_until: Timestamp,
    /// When the next message is due, as far as was heard.
    due_at: Option<Timestamp>,
    pub(super) hours: Hours,
    /// By when what is queued must expire to be failed, and where in the queue to go on looking.
    pub(super) expiring: Option<(Timestamp, Option<QueuePlace>)>,
    /// It had nothing left when it was asked last.
    pub(super) empty: bool,
    /// A message of the request that was refused last, while nothing else happened since.
    pub(super) refused: Option<i64>,
    /// A message was accepted in this run: until then all of them go alone, so that what is wrong with all
    /// shows before many are burnt.
    pub(super) proven: bool,
    /// So many messages may go in the next call: twice as many as did of late.
    pub(super) max_batch: u32,
    /// Calls that were started and have not ended.
    pub(super) in_flight: u32,
}

impl CampaignState {
    pub(super) fn new(campaign: Campaign, config: auto_pause::Config) -> Self {
        Self {
            campaign,
            auto_pause: AutoPause::new(config),
            quiet_until: Timestamp::default(),
            due_at: None,
            hours: Hours::default(),
            expiring: None,
            empty: false,
            refused: None,
            proven: false,
            max_batch: 1,
            in_flight: 0,
        }
    }

    /// How many more calls it may have in flight: few until one of its messages was accepted.
    pub(super) fn room(&self) -> u32 {
        if self.proven {
            u32::MAX
        } else {
            UNPROVEN.saturating_sub(self.in_flight)
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.campaign.state == CampaignStatus::Active
    }

    /// Whether it may have something to send now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.is_active() && self.quiet_until <= now && self.room() > 0
    }

    /// Whether it had something to send when it was asked last.
    pub(super) fn has_work(&self) -> bool {
        self.is_active() && !self.empty
    }

    pub(super) fn halt(&mut self, state: CampaignStatus, reason: Option<String>) {
        self.campaign.state = state;
        self.campaign.state_reason = reason;
    }

    /// Takes up what the database says of the campaign now.
    pub(super) fn refresh(&mut self, campaign: Campaign) {
        let is_active_again = campaign.state == CampaignStatus::Active && !self.is_active();
        if is_active_again || campaign.window != self.campaign.window {
            self.quiet_until = Timestamp::default();
            self.hours = Hours::default();
            self.expiring = None;
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

    /// Its own limit has no moment before this.
    pub(super) fn limited(&mut self, until: Timestamp) {
        self.quiet_until = self.quiet_until.max(until);
    }

    /// Its largest call of a round had so many messages.
    pub(super) fn note_size(&mut self, largest: u32, most: u32) {
        let next = if self.proven {
            largest.saturating_mul(2)
        } else {
            1
        };
        self.max_batch = next.min(most).max(1);
    }

    pub(super) fn shortfalls(&mut self, shortfalls: Shortfall, now: Timestamp) {
        self.due_at = match shortfalls {
            Shortfall::Until(due_at) => due_at,
            Shortfall::Halted(..) | Shortfall::Moved => None,
        };
        match shortfalls {
            Shortfall::Halted(state, reason) => self.halt(state, reason),
            // The next look at the campaigns takes it to its provider.
            Shortfall::Moved => self.quiet_until = now.plus(POLL),
            Shortfall::Until(Some(due_at)) => {
                self.empty = false;
                self.quiet_until = due_at
                    .min(now.plus(POLL))
                    .max(now.plus(Duration::from_millis(1)));
            }
            Shortfall::Until(None) => {
                self.empty = true;
                self.quiet_until = now.plus(POLL);
            }
        }
    }
}

/// Why a campaign must not go on.
pub(super) type Why = (CampaignStatus, String);

/// The provider read the message, whatever it thought of it.
pub(super) fn is_in_its_right_mind(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Accepted(_)
            | Outcome::Rejected(_)
            | Outcome::Deferred { .. }
            | Outcome::BatchRejected(_)
    )
}

/// Whether the account is refused: by a code that says so, or where two requests in a row, with nobody in both,
/// were answered like that. What is refused beside others that were not is a matter of its own.
pub(super) fn note_refusals(
    line: &mut CampaignState,
    job: &InFlight,
    outcomes: &mut [Outcome],
) -> Option<Why> {
    let before = line.refused.take();
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::AccountError { .. });
    let is_whole = outcomes.iter().all(is_refused);
    let is_other = |id: i64| job.rows.iter().all(|sms| sms.id != id);
    let by_two = is_whole && before.is_some_and(is_other);
    if is_whole {
        line.refused = job.rows.first().map(|sms| sms.id);
    }
    let mut why = None;
    for outcome in outcomes {
        let Outcome::AccountError { failure, listed } = outcome else {
            continue;
        };
        // The provider was not asked where the request could not be made.
        let was_asked = !*listed || failure.code.is_some();
        *listed = *listed || by_two || !line.is_active();
        if *listed && why.is_none() {
            let name = job.provider.name();
            let verb = match (failure.class, was_asked) {
                (Class::Unavailable, _) => "cannot be called",
                (_, true) => "refuses the account",
                (_, false) => "cannot send this",
            };
            let reason = format!("`{name}` {verb}: {}", failure.reason);
            why = Some((CampaignStatus::Stopped, reason));
        }
    }
    why
}

/// What the outcomes of one request tell of the campaign: the brake, and a code that nobody has listed.
pub(super) fn note_outcomes(
    line: &mut CampaignState,
    provider: &Provider,
    outcomes: &[Outcome],
) -> Option<Why> {
    let mut why = None;
    let mut doubted = false;
    for outcome in outcomes {
        match outcome {
            Outcome::Accepted(_) => {
                line.proven = true;
                line.auto_pause.accepted();
            }
            Outcome::Rejected(failure) => {
                let unlisted = note_code(line, provider, failure);
                why = why.or(unlisted).or(note_rejected(line, failure));
            }
            // That may be one answer for all of them, which is one witness.
            Outcome::Unknown(failure) if !doubted => {
                doubted = true;
                why = why.or(note_code(line, provider, failure));
            }
            _ => {}
        }
    }
    why
}

fn note_rejected(line: &mut CampaignState, failure: &Failure) -> Option<Why> {
    if failure.class == Class::OptedOut {
        return None;
    }
    let (rejected, seen) = line.auto_pause.rejected()?;
    let last = &failure.reason;
    let why = format!("{rejected} of the last {seen} messages were rejected; the last: {last}");
    Some((CampaignStatus::Paused, why))
}

fn note_code(line: &mut CampaignState, provider: &Provider, failure: &Failure) -> Option<Why> {
    let code = failure.code.as_deref()?;
    if provider.lists(code) {
        return None;
    }
    let times = line.auto_pause.unlisted(code)?;
    let (name, last) = (provider.name(), &failure.reason);
    let why = format!(
        "`{name}` answered {times} times in a row with code `{code}`, which is not listed, and took nothing; the \
         last: {last}; say what it means in `[providers.{name}.codes]`, then `smsq send` again"
    );
    Some((CampaignStatus::Stopped, why))
}
