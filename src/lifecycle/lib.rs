//! Decisions about queued messages, as pure functions that the store and the sender share: what a result does to its
//! row, when a message is tried again, and which messages share a request.

pub mod admission;
pub mod approval;
pub mod batch;
pub mod dedupe;
pub mod delivery;
pub mod recipient_cap;
pub mod resend;
pub mod retry;
pub mod schedule;
#[cfg(test)]
mod testing;
pub mod transition;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smsq_limit::{Account, ClaimTerms, Permit, Reservation};
use smsq_message::instant::DbMicros;
use smsq_message::phone::Phone;
use smsq_message::prices::Prices;
use smsq_message::rate::Rate;
use smsq_message::route::sender_pool::{PoolSender, SenderPool};
use smsq_message::sms::{Acceptance, Class, Failure, LaneId, Sms, Timestamp};

/// Whether a claimed message can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Send {
        phone: Phone,
        segments: i32,
    },
    /// It goes back into the queue without an attempt, because it is outside its window.
    Wait {
        phone: Phone,
        until: Timestamp,
    },
    /// It fails without a request, and without an attempt.
    Fail(Failure),
}

impl Admission {
    /// The phone of a message that does not fail.
    pub fn phone(&self) -> Option<&Phone> {
        match self {
            Self::Send { phone, .. } | Self::Wait { phone, .. } => Some(phone),
            Self::Fail(_) => None,
        }
    }
}

/// The result of one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    pub id: i64,
    pub claim: i64,
    /// The provider that accepted it, for `sms_sent`.
    pub provider: String,
    #[serde(flatten)]
    pub transition: Transition,
}

/// What the result of a claim does to its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Transition {
    Sent(Acceptance),
    Failed(Failure),
    /// It cannot be sent, so it fails without an attempt.
    NotAdmitted(Failure),
    /// Back into the queue. `counted`: this was an attempt.
    Ready {
        due_at: Timestamp,
        failure: Option<Failure>,
        counted: bool,
        in_doubt: bool,
    },
    Unknown(Failure),
    /// The message is unknown, and a status lookup or a receipt said that the provider rejected it. It had only this
    /// attempt, so it fails.
    FoundRejected(Failure),
    /// The message is unknown, and a status lookup found that the provider has none of its attempts, so it fails.
    FoundAbsent(Failure),
    /// The attempt was part of an outage and is not counted, whether the message is queued or has failed.
    Refunded,
}

impl Transition {
    /// Back into the queue until an instant, without an attempt.
    pub const fn wait_until(due_at: Timestamp) -> Self {
        Self::Ready { due_at, failure: None, counted: false, in_doubt: false }
    }

    /// How and why the attempt ended; `None` if it was accepted, or if this is not the end of an attempt.
    pub fn failed_attempt(&self) -> Option<(AttemptOutcome, &Failure)> {
        match self {
            Self::Failed(failure) => Some((AttemptOutcome::Failed, failure)),
            Self::Unknown(failure) => Some((AttemptOutcome::Unknown, failure)),
            // Without a failure no request was started.
            Self::Ready { failure, in_doubt, .. } => failure.as_ref().map(|failure| {
                let outcome = match failure.class {
                    _ if *in_doubt => AttemptOutcome::Unknown,
                    Class::Throttle => AttemptOutcome::Throttled,
                    _ => AttemptOutcome::Retry,
                };
                (outcome, failure)
            }),
            Self::Sent(_)
            | Self::NotAdmitted(_)
            | Self::FoundRejected(_)
            | Self::FoundAbsent(_)
            | Self::Refunded => None,
        }
    }
}

/// How an attempt ended that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It is certain that it was not accepted, and the message is tried again.
    Retry,
    /// The same, because it was too fast for the provider.
    Throttled,
    Failed,
    /// Perhaps accepted.
    Unknown,
}

impl AttemptOutcome {
    /// The word in table `attempt`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The row has a newer claim or is gone, but the message was accepted, and is recorded as sent.
    Late,
    /// The row has a newer claim or is gone: nothing was changed.
    Stale,
}

/// What a worker wants to send through one provider.
#[derive(Clone, Debug)]
pub struct ProviderClaim {
    pub provider: String,
    /// Its limits are those of this account.
    pub account: Account,
    /// It also sends the campaigns without a provider.
    pub is_default: bool,
    /// The routes that it is part of: it sends lanes of their campaigns, too.
    pub routes: Arc<BTreeSet<String>>,
    /// The worker's own limits for the provider's account.
    pub limits: Vec<Rate>,
    /// Limits count segments, not messages.
    pub by_segments: bool,
    /// Permits start in `from..until`.
    pub from: DbMicros,
    pub until: DbMicros,
    /// Requests that were not started and need no new permit.
    pub released: Vec<Reservation>,
    /// Claimed requests whose permit has lapsed and that need a new one.
    pub held: Vec<Reservation>,
    /// At most this many new messages of all campaigns.
    pub max_messages: u32,
    /// In at most this many requests.
    pub max_requests: u32,
    /// In the order in which they are claimed from.
    pub lanes: Vec<LaneClaim>,
    /// The provider's senders, if they have limits of their own.
    pub pool: Option<Arc<SenderPool>>,
    /// What its messages cost, for budgets.
    pub prices: Arc<Prices>,
}

impl ProviderClaim {
    /// Whether this provider sends a campaign that has this provider or route.
    pub fn serves(&self, provider: Option<&str>) -> bool {
        provider.map_or(self.is_default, |name| name == self.provider || self.routes.contains(name))
    }

    /// The claimed requests that have not started.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.held.iter().chain(&self.released)
    }

    /// The lanes that it claims from, and of its requests that have not started, with their senders.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneId, Option<&Arc<PoolSender>>)> {
        let reserved =
            self.reservations().map(|reserved| (reserved.lane, reserved.sender.as_ref()));
        self.lanes.iter().map(|lane| (lane.id, lane.sender.as_ref())).chain(reserved)
    }

    pub fn terms(&self) -> ClaimTerms {
        ClaimTerms { from: self.from, until: self.until, by_segments: self.by_segments }
    }

    /// The unused permits and their starts, the latest first, so that each one is the last when it is given back.
    pub fn unused(&self) -> Vec<(DbMicros, &Reservation)> {
        let mut unused: Vec<(DbMicros, &Reservation)> = self
            .reservations()
            .filter_map(|reservation| Some((reservation.unused?, reservation)))
            .collect();
        unused.sort_unstable_by_key(|(start_at, _)| std::cmp::Reverse(*start_at));
        unused
    }
}

/// How many messages of one lane a worker wants.
#[derive(Clone, Debug)]
pub struct LaneClaim {
    pub id: LaneId,
    /// To claim, or to move.
    pub max_messages: u32,
    /// At most this many of them in one request.
    pub max_batch: u32,
    /// Who sends them, if that sender has limits or pauses of its own.
    pub sender: Option<Arc<PoolSender>>,
    /// Its messages are not sent, but moved to the lanes of their senders.
    pub is_divided: bool,
}

impl LaneClaim {
    /// A claim of single messages from the part of a campaign's queue that is not divided.
    pub const fn undivided(campaign_id: i64, max_messages: u32) -> Self {
        Self {
            id: LaneId::undivided(campaign_id),
            max_messages,
            max_batch: 1,
            sender: None,
            is_divided: false,
        }
    }
}

/// A claimed message.
#[derive(Clone, Debug)]
pub struct ClaimedSms {
    pub sms: Sms,
    pub phone: Phone,
    /// The number of its request. Messages of one request follow each other.
    pub request: u32,
    /// The permit of the request.
    pub permit: Permit,
}

#[cfg(test)]
mod tests {
    use smsq_limit::PermitCost;

    use super::*;

    #[test]
    fn attempt_that_was_not_accepted_has_an_outcome() {
        use AttemptOutcome as A;
        let failure = |class| Failure::new(class, "why");
        let ready = |class, in_doubt| Transition::Ready {
            due_at: Timestamp::default(),
            failure: Some(failure(class)),
            counted: true,
            in_doubt,
        };
        let other = || failure(Class::Account);
        for (transition, expected) in [
            (Transition::Failed(other()), Some((A::Failed, "failed"))),
            (Transition::Unknown(other()), Some((A::Unknown, "unknown"))),
            (ready(Class::Account, false), Some((A::Retry, "retry"))),
            (ready(Class::Throttle, false), Some((A::Throttled, "throttled"))),
            (ready(Class::Throttle, true), Some((A::Unknown, "unknown"))),
            (Transition::wait_until(Timestamp::default()), None),
            (Transition::Sent(Acceptance::default()), None),
            (Transition::NotAdmitted(other()), None),
            (Transition::FoundRejected(other()), None),
            (Transition::FoundAbsent(other()), None),
            (Transition::Refunded, None),
        ] {
            let failed = transition.failed_attempt();
            let outcome = failed.map(|(outcome, _)| (outcome, outcome.as_str()));
            assert_eq!(outcome, expected, "{transition:?}");
        }
    }

    fn claim(is_default: bool) -> ProviderClaim {
        ProviderClaim {
            provider: "world".to_owned(),
            account: Account::new("world"),
            is_default,
            routes: Arc::new(BTreeSet::from(["main".to_owned()])),
            limits: Vec::new(),
            by_segments: true,
            from: DbMicros::new(1),
            until: DbMicros::new(2),
            released: Vec::new(),
            held: Vec::new(),
            max_messages: 1,
            max_requests: 1,
            lanes: Vec::new(),
            pool: None,
            prices: Arc::default(),
        }
    }

    #[test]
    fn provider_serves_its_campaigns_and_routes_and_as_default_the_rest() {
        for is_default in [false, true] {
            let claim = claim(is_default);
            let names = [None, Some("world"), Some("main"), Some("other")];
            let serves = names.map(|name| claim.serves(name));
            assert_eq!(serves, [is_default, true, true, false]);
        }
    }

    #[test]
    fn unused_permits_are_listed_from_the_latest() {
        let reserved = |unused: Option<i64>| Reservation {
            lane: LaneId::default(),
            sender: None,
            cost: PermitCost::of_message(1),
            unused: unused.map(DbMicros::new),
        };
        let claim = ProviderClaim {
            held: vec![reserved(Some(2)), reserved(None)],
            released: vec![reserved(Some(1)), reserved(Some(3))],
            ..claim(false)
        };
        let unused = claim.unused();
        let starts: Vec<i64> = unused.iter().map(|(start_at, _)| start_at.as_micros()).collect();
        assert_eq!(starts, [3, 2, 1]);
    }
}
