//! Decisions about queued messages, as pure functions that the store and the sender share: what a
//! result does to its row, when a message is tried again, which messages go in one request.

pub mod admission;
pub mod batch;
pub mod recipient_cap;
pub mod retry;
pub mod transition;

use serde::{Deserialize, Serialize};

use crate::limit::{ClaimTerms, Permit, Reservation};
use crate::phone::Phone;
use crate::rate::Rate;
use crate::sms::{Acceptance, Failure, Sms, Timestamp};

/// Whether a claimed message can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Send {
        phone: Phone,
        segments: i32,
    },
    /// It goes back into the queue without an attempt: it is outside its window.
    Wait {
        phone: Phone,
        until: Timestamp,
    },
    /// It fails without a request, and without an attempt.
    Fail(Failure),
}

/// The result of one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    pub id: i64,
    pub claim: i64,
    /// Who accepted it, for `sms_sent`.
    pub provider: String,
    #[serde(flatten)]
    pub transition: Transition,
}

/// What a result is to do to its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Transition {
    Sent(Acceptance),
    Failed(Failure),
    /// It fails at admission, without an attempt.
    NotAdmitted(Failure),
    /// Back into the queue. `counted`: this was an attempt.
    Ready {
        due_at: Timestamp,
        failure: Option<Failure>,
        counted: bool,
        in_doubt: bool,
    },
    Unknown(Failure),
    /// A status lookup found that the provider rejected this attempt of an unknown message, and no
    /// earlier attempt may have been accepted: it fails.
    FoundRejected(Failure),
    /// The attempt was part of an outage and is not counted after all, whether the message is queued
    /// or has failed.
    Refunded,
}

impl Transition {
    /// Back into the queue, without an attempt, until an instant.
    pub const fn wait_until(due_at: Timestamp) -> Self {
        Self::Ready {
            due_at,
            failure: None,
            counted: false,
            in_doubt: false,
        }
    }
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The row had a newer claim or none, but the message was accepted, and is recorded as sent.
    Late,
    /// The row had a newer claim or none: nothing was changed.
    Stale,
}

/// What a worker wants of one provider's campaigns.
#[derive(Clone, Debug)]
pub struct ProviderClaim {
    pub provider: String,
    /// It also sends the campaigns that name no provider.
    pub is_default: bool,
    /// The worker's own limits for the provider's account.
    pub limits: Vec<Rate>,
    /// Limits count segments, not messages.
    pub by_segments: bool,
    /// Permits start in `from_us..until_us`, in microseconds of the database's clock.
    pub from_us: i64,
    pub until_us: i64,
    /// Requests that were not started and need no other permit.
    pub released: Vec<Reservation>,
    /// Claimed requests that lost their permit and want another.
    pub held: Vec<Reservation>,
    /// At most this many new messages, over all campaigns.
    pub max_messages: u32,
    /// In at most this many requests.
    pub max_requests: u32,
    /// In the order of their turns.
    pub campaigns: Vec<CampaignClaim>,
}

impl ProviderClaim {
    /// Whether a campaign with this provider is sent by this one.
    pub fn serves(&self, provider: Option<&str>) -> bool {
        provider.map_or(self.is_default, |name| name == self.provider)
    }

    pub fn terms(&self) -> ClaimTerms {
        ClaimTerms {
            from_us: self.from_us,
            until_us: self.until_us,
            by_segments: self.by_segments,
        }
    }

    /// The permits to give back, the latest first: each makes the one before it the last.
    pub fn unused(&self) -> Vec<(i64, Reservation)> {
        let all = self.held.iter().chain(&self.released);
        let mut unused: Vec<(i64, Reservation)> = all
            .filter_map(|reservation| Some((reservation.unused_us?, *reservation)))
            .collect();
        unused.sort_unstable_by_key(|(start_us, _)| std::cmp::Reverse(*start_us));
        unused
    }
}

/// What a worker wants of one campaign.
#[derive(Clone, Copy, Debug)]
pub struct CampaignClaim {
    pub campaign_id: i64,
    pub max_messages: u32,
    /// At most this many of them in one request.
    pub max_batch: u32,
}

/// A claimed message.
#[derive(Clone, Debug)]
pub struct ClaimedSms {
    pub sms: Sms,
    pub phone: Phone,
    /// The messages of one provider with the same number, which follow each other, go in one request.
    pub request: u32,
    /// The request's.
    pub permit: Permit,
}
