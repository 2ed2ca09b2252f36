//! How delivery receipts are fetched from a provider: the settings, and what a request asks for.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smsq_message::phone::Phone;
use smsq_message::rate::Rates;
use smsq_message::receipt::Receipt;
use smsq_message::sms::Timestamp;

use super::units;

/// Which receipts one request returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullShape {
    /// The next receipts, each of which is returned only once.
    Drain,
    /// All messages of a span of time, with their states; repeatable.
    Sweep,
    /// Those of one message; repeatable.
    Ask,
}

impl PullShape {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Sweep => "sweep",
            Self::Ask => "ask",
        }
    }
}

/// The settings of a source of receipts that every shape has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptSource {
    #[serde(rename = "pull")]
    pub shape: PullShape,
    /// The time between two drains, or between the first sweeps after a message was sent.
    #[serde(default, deserialize_with = "units::span", serialize_with = "units::seconds")]
    pub every: Option<Duration>,
    /// How far back the provider's answer reaches.
    #[serde(default, deserialize_with = "units::span", serialize_with = "units::seconds")]
    pub horizon: Option<Duration>,
    /// The longest span of time of one sweep.
    #[serde(default, deserialize_with = "units::span", serialize_with = "units::seconds")]
    pub span: Option<Duration>,
    /// The rate limit of these requests, which is never that of sending.
    #[serde(deserialize_with = "units::rates", serialize_with = "units::serialize_rates")]
    pub rate: Rates,
}

/// Which source of a provider a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiptPath {
    /// Section `receipts`.
    Pull,
    /// Section `receipts.recheck`: a repeatable source for what a drain lost.
    Recheck,
}

/// How a provider's receipts are fetched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiptPull {
    #[serde(flatten)]
    pub source: ReceiptSource,
    pub recheck: Option<ReceiptSource>,
    /// What must be switched on at the vendor first, or what pulling costs.
    pub requires: Option<String>,
    /// `false`: nothing is fetched until the section says `enabled = true`.
    pub is_enabled: bool,
}

/// What one request asks for.
#[derive(Clone, Copy, Debug)]
pub enum ReceiptQuery<'a> {
    /// A page of a drain or of a sweep. A drain ignores the span.
    Page {
        since: Timestamp,
        until: Timestamp,
        page: &'a ReceiptCursor,
    },
    Message(&'a AwaitedMessage<'a>),
}

/// A sent message, as far as a request for its receipt needs it.
#[derive(Clone, Debug)]
pub struct AwaitedMessage<'a> {
    pub phone: &'a Phone,
    pub reference: &'a str,
    pub message_id: Option<&'a str>,
    pub sent_at: Timestamp,
}

/// Where a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptCursor {
    /// The number of pages before it.
    pub page: u32,
    /// The number of entries before it.
    pub offset: usize,
    /// What the response before it gave for the next one: a token, or a URL on the provider's own host.
    pub next: Option<String>,
}

/// The receipts of one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptPage {
    pub receipts: Vec<Receipt>,
    /// The next page; `None` after the last one.
    pub next: Option<ReceiptCursor>,
}
