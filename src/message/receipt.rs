//! Delivery receipts: what a provider reports about a message on its way to the phone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::sms::{Failure, Timestamp};

/// What a receipt reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptState {
    /// On its way: the provider accepted the message, and does not know yet whether it arrives.
    Accepted,
    Delivered,
    Undelivered,
    /// The provider gave up before the phone was reached.
    Expired,
    /// The provider does not know whether it arrived, and never will.
    NoReport,
    /// The provider rejected the message before it was sent: it was never accepted.
    Rejected,
    /// A state that the provider's section does not list, which proves nothing.
    Unlisted,
}

impl ReceiptState {
    const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Delivered,
        Self::Undelivered,
        Self::Expired,
        Self::NoReport,
        Self::Rejected,
        Self::Unlisted,
    ];

    /// The word in the configuration and in column `receipt.state`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Expired => "expired",
            Self::NoReport => "no_report",
            Self::Rejected => "rejected",
            Self::Unlisted => "unlisted",
        }
    }
}

impl fmt::Display for ReceiptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ReceiptState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == word).ok_or_else(|| format!("unknown state `{word}`"))
    }
}

/// The segment that a receipt is about, of providers that report each segment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReceiptPart {
    /// From 1; 0: the part is identified by the provider's id, which each part has of its own.
    pub number: u16,
    /// 0 where the provider does not say how many there are.
    pub total: u16,
}

/// One delivery receipt, read from a provider's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Our reference of the message, where the provider repeats it.
    pub reference: Option<String>,
    /// The provider's id of the message.
    pub message_id: Option<String>,
    /// As the provider writes it. It only tells messages with one id apart.
    pub phone: Option<String>,
    pub state: ReceiptState,
    /// Why the message was not delivered, with the provider's code.
    pub failure: Option<Failure>,
    /// When it was delivered or given up, by the provider's clock.
    pub at: Option<Timestamp>,
    pub part: Option<ReceiptPart>,
}
