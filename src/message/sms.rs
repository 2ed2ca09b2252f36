//! The types that every part of smsq uses: a message, an instant, and what a provider's answer means.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// An instant on the database's clock, in milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(
    feature = "diesel",
    derive(diesel::expression::AsExpression, diesel::deserialize::FromSqlRow),
    diesel(sql_type = diesel::sql_types::BigInt)
)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The instant `span` later; saturates.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The instant `span` earlier; saturates.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// The same instant on a clock that was set by this; saturates.
    #[must_use]
    pub fn shifted(self, by: SignedDuration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(0)))
    }

    /// How long after `earlier` this instant is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC, to the second.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.0}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// A span in whole milliseconds; saturates.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// Identifies a part of a campaign's queue: the messages of one sender of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    pub campaign_id: i64,
    /// 0: the part that is not divided.
    pub lane: i32,
}

impl LaneId {
    /// The part of a campaign's queue that is not divided.
    pub const fn undivided(campaign_id: i64) -> Self {
        Self { campaign_id, lane: 0 }
    }
}

/// One message as a worker has claimed it: a row of table `sms` in state *sending*.
#[derive(Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about earlier attempts"
)]
pub struct Sms {
    pub id: i64,
    pub campaign_id: i64,
    pub lane: i32,
    /// As in the row: E.164 with `+` when it was imported, anything when another program inserted it.
    pub phone: String,
    pub content: String,
    /// The imported columns, a JSON object of strings.
    pub params: String,
    /// `None` until it is computed at claim.
    pub segments: Option<i32>,
    /// An earlier attempt may have been accepted.
    pub in_doubt: bool,
    /// When the first of these attempts was claimed, where that is known.
    pub doubt_since: Option<Timestamp>,
    /// One of these attempts was made through another provider than the one it is claimed for.
    pub tried_elsewhere: bool,
    /// An attempt with the same reference was certainly not accepted, and it cannot be told which one the provider means.
    pub is_reference_reused: bool,
    /// An operator sends it again, whatever the doubt.
    pub resend_approved: bool,
    /// It was not to be sent before this.
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Attempts that have ended; the running one does not count.
    pub attempts: i32,
    /// Increases with every claim. A settlement names the claim it belongs to.
    pub claim: i64,
    /// Our id for the message at the provider; at most 36 characters.
    pub reference: String,
    pub stored: StoredColumns,
}

/// Columns of a claimed message that only its settlement needs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredColumns {
    /// `None`: another program inserted it.
    pub import_id: Option<i64>,
    /// As in the row: `None` until another program or an import has computed it.
    pub segments: Option<i32>,
    pub dedupe_key: Option<String>,
    pub created_at: Timestamp,
    /// `None`: it takes from no budget.
    pub reserve: Option<Reserve>,
}

/// What a claim has taken from budgets for its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// In millionths of the currency.
    pub amount: i64,
    /// The month and currency, such as `2026-11/EUR`.
    pub month: Arc<str>,
}

/// Phones and texts are personal data: neither is printed.
impl fmt::Debug for Sms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sms")
            .field("id", &self.id)
            .field("campaign_id", &self.campaign_id)
            .field("phone", &crate::phone::mask(&self.phone))
            .field("attempts", &self.attempts)
            .field("claim", &self.claim)
            .field("in_doubt", &self.in_doubt)
            .finish_non_exhaustive()
    }
}

/// A message to be queued by an import.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NewSms {
    /// The line of the file where its row starts; the header is line 1.
    pub line: u64,
    /// E.164 with `+`.
    pub phone: String,
    pub content: String,
    /// The imported columns, a JSON object of strings.
    pub params: String,
    pub segments: i32,
    pub dedupe_key: String,
    /// The `smsq_id` of a failures file: the failed message that this row replaces.
    pub replaces: Option<i64>,
}

/// The state of a message in table `sms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready = 0,
    Sending = 1,
    Unknown = 2,
}

impl State {
    /// The value in column `sms.state`.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// Why a message did not arrive, or not yet: the kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// This phone can never be reached.
    Recipient,
    /// This text can never be sent.
    Content,
    /// The recipient told the provider that they want no more messages.
    OptedOut,
    /// The account, its credentials, credit, sender or address.
    Account,
    /// Too fast.
    Throttle,
    /// A cap per recipient or per day; this message waits.
    Cap,
    /// Certainly not accepted, for a temporary reason.
    Unavailable,
    /// Perhaps accepted.
    Unknown,
    /// Its time ran out before it was sent.
    Expired,
    /// An operator cancelled its campaign.
    Cancelled,
    /// On the suppression list.
    Suppressed,
    /// An operator settled it as failed.
    Settled,
}

impl Class {
    pub const ALL: [Self; 12] = [
        Self::Recipient,
        Self::Content,
        Self::OptedOut,
        Self::Account,
        Self::Throttle,
        Self::Cap,
        Self::Unavailable,
        Self::Unknown,
        Self::Expired,
        Self::Cancelled,
        Self::Suppressed,
        Self::Settled,
    ];

    /// The word in the tables, the reports and the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recipient => "recipient",
            Self::Content => "content",
            Self::OptedOut => "opted_out",
            Self::Account => "account",
            Self::Throttle => "throttle",
            Self::Cap => "cap",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Suppressed => "suppressed",
            Self::Settled => "settled",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == word)
            .ok_or_else(|| format!("unknown class `{word}`"))
    }
}

/// Why a message failed: a class, the provider's code, and a reason for the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Failure {
    pub class: Class,
    pub code: Option<String>,
    /// A lowercase fragment without phones, texts and secrets; at most a few hundred bytes.
    pub reason: String,
    /// The provider says that the number does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_dead_number: bool,
    /// The reason quotes an answer from which it is not clear whether the message was accepted. Not set where no
    /// answer came, and where its status is one of an outage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_answer: bool,
}

impl Failure {
    pub fn new(class: Class, reason: impl Into<String>) -> Self {
        Self { class, code: None, reason: reason.into(), is_dead_number: false, is_answer: false }
    }

    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }
}

/// What a provider returned for a message that it accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptance {
    pub message_id: Option<String>,
    pub segments: Option<i32>,
    /// As the provider wrote it, with its currency where it gave one.
    pub price: Option<String>,
    /// Whether the provider's delivery receipt will be fetched.
    #[serde(default)]
    pub awaits_receipt: bool,
}

/// What the result of one attempt means for its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider accepted it.
    Accepted(Acceptance),
    /// The provider says that it accepted this reference before: proof only for a message in doubt.
    Duplicate(Acceptance),
    /// This message can never be sent.
    Rejected(Failure),
    /// Too fast; certainly not accepted.
    Throttled { failure: Failure, retry_after: Option<Duration> },
    /// A cap per recipient or per day; certainly not accepted; only this message waits.
    Deferred { failure: Failure, retry_after: Option<Duration> },
    /// Certainly not accepted, and worth another attempt.
    Unavailable { failure: Failure, retry_after: Option<Duration> },
    /// Perhaps accepted.
    Unknown(Failure),
    /// The account cannot send. `listed`: by a code in the provider's table, which stops the campaign at
    /// once; otherwise by a status alone, which two requests in a row must get.
    AccountError { failure: Failure, listed: bool },
    /// The provider rejected the request as a whole. None of its messages was accepted, and each is to be
    /// sent alone.
    BatchRejected(Failure),
}

impl Outcome {
    /// What the provider accepted, now or before.
    pub const fn acceptance(&self) -> Option<&Acceptance> {
        match self {
            Self::Accepted(acceptance) | Self::Duplicate(acceptance) => Some(acceptance),
            _ => None,
        }
    }

    /// The same, if it is an acceptance, of a reference that was accepted before.
    #[must_use]
    pub fn into_duplicate(self) -> Self {
        match self {
            Self::Accepted(acceptance) => Self::Duplicate(acceptance),
            other => other,
        }
    }

    /// The outcome of each of `count` messages whose request had this outcome. A rejection of several
    /// may concern only one of them.
    #[must_use]
    pub fn of_all(self, count: usize) -> Vec<Self> {
        let outcome = match self {
            Self::Rejected(failure) | Self::Deferred { failure, .. } if count > 1 => {
                let others = count - 1;
                let noun = if others == 1 { "message" } else { "messages" };
                let reason =
                    format!("rejected together with {others} other {noun}: {}", failure.reason);
                Self::BatchRejected(Failure { reason, ..failure })
            }
            outcome => outcome,
        };
        vec![outcome; count]
    }

    /// Why the message was not accepted; `None` where it was.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Accepted(_) | Self::Duplicate(_) => None,
            Self::Rejected(failure)
            | Self::BatchRejected(failure)
            | Self::Unknown(failure)
            | Self::Throttled { failure, .. }
            | Self::Deferred { failure, .. }
            | Self::Unavailable { failure, .. }
            | Self::AccountError { failure, .. } => Some(failure),
        }
    }
}
