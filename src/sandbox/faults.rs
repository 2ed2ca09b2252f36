//! Faults of real gateways: at which rate they occur, and when the gateway is unavailable. The choice is seeded: the
//! same messages get the same faults.

use std::num::NonZeroU64;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::fmt::serde::unsigned_duration::friendly::compact::{optional, required};
use serde::Deserialize;

const LATE_FOR: Duration = Duration::from_secs(1);

/// The faults of a gateway, as in the faults file; none by default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Another seed chooses other messages.
    pub seed: u64,
    /// Answered 503; not accepted.
    pub unavailable: FaultRate,
    /// Accepted, and answered 503 without a code, as by a router in front of the gateway.
    pub unavailable_after: FaultRate,
    /// Answered 429 with Retry-After; not accepted.
    pub throttle: FaultRate,
    /// The `Retry-After`, in whole seconds; 1 s by default.
    #[serde(with = "optional")]
    pub retry_after: Option<Duration>,
    /// Accepted, then the connection is dropped.
    pub no_answer: FaultRate,
    /// Accepted, and answered after `slow_for`.
    pub slow: FaultRate,
    /// Should be longer than the timeout of the client; 15 s by default.
    #[serde(with = "optional")]
    pub slow_for: Option<Duration>,
    /// Accepted, and the body of the response is cut.
    pub broken: FaultRate,
    /// Accepted, and the response to a list has results for its first half only.
    pub short: FaultRate,
    /// Accepted and answered `late_for` after it arrived, even if the client is gone by then.
    pub late: FaultRate,
    /// 1 s by default.
    #[serde(with = "optional")]
    pub late_for: Option<Duration>,
    /// A reference is accepted again after this time.
    #[serde(with = "optional")]
    pub forget_references_after: Option<Duration>,
    /// Connections are refused for a while.
    pub refuse: Option<Outage>,
    /// Everything is answered 503 for a while.
    pub outage: Option<Outage>,
    /// This message and every later one is answered 401.
    pub account_from: Option<u64>,
    pub receipts: ReceiptFaults,
}

/// Table `receipts` of the faults file: how long receipts take, and which messages have unusual ones.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptFaults {
    /// From the acceptance to the final receipt.
    #[serde(with = "required")]
    pub delay: Duration,
    pub undelivered: FaultRate,
    pub expired: FaultRate,
    /// Undelivered, because the recipient opted out.
    pub opted_out: FaultRate,
    /// No receipt ever says what became of it.
    pub missing: FaultRate,
    /// `accepted` before the final receipt.
    pub intermediate: FaultRate,
    /// `accepted` after the final receipt.
    pub out_of_order: FaultRate,
    /// The final receipt comes again.
    pub doubled: FaultRate,
    /// A receipt for each of two parts.
    pub per_part: FaultRate,
    /// The same, and one part is undelivered.
    pub failed_part: FaultRate,
    /// Another final receipt follows, which says something else.
    pub contradicting: FaultRate,
    /// The receipt comes `early_for` before the response to the message.
    pub early: FaultRate,
    /// 300 ms by default.
    #[serde(with = "optional")]
    pub early_for: Option<Duration>,
    /// Another receipt, for a message of another account.
    pub foreign: FaultRate,
    /// A receipt in the state `limbo` before the final one.
    pub unlisted: FaultRate,
    /// Not accepted, and the connection is dropped: only a receipt says that the message was rejected.
    pub reject_late: FaultRate,
}

/// Why a file does not describe faults.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct FaultsError {
    place: String,
    reason: String,
}

impl Faults {
    /// Parses a TOML file; `name` is its name in errors.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, FaultsError> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let number = 1 + text[..start].matches('\n').count();
            let line = text.lines().nth(number - 1).unwrap_or_default();
            let mut reason = error.message().replace('\n', ", ");
            if let Some((key, _)) = line.split_once('=')
                && !reason.contains(key.trim())
            {
                reason = format!("`{}`: {reason}", key.trim());
            }
            let place = format!("{name}:{number}");
            FaultsError { place, reason }
        })
    }

    /// Whether the HTTP request with this number, counted from 1, gets a short response.
    pub(super) fn is_short(&self, call: u64) -> bool {
        self.short.applies_to(call, mix(self.seed ^ mix(6)))
    }

    /// How long after its arrival the HTTP request with this number, counted from 1, is looked at.
    pub(super) fn delay_of(&self, call: u64) -> Option<Duration> {
        let is_late = self.late.applies_to(call, mix(self.seed ^ mix(8)));
        is_late.then(|| self.late_for.unwrap_or(LATE_FOR))
    }

    /// The fault of the message with this number, counted from 1.
    pub(super) fn fault_for(&self, number: u64) -> Option<Fault> {
        let faults = [
            (self.unavailable, 1, Fault::Unavailable),
            (self.throttle, 2, Fault::Throttle),
            (self.no_answer, 3, Fault::NoAnswer),
            (self.slow, 4, Fault::Slow),
            (self.broken, 5, Fault::Broken),
            (self.unavailable_after, 7, Fault::UnavailableAfter),
        ];
        faults
            .into_iter()
            .find(|(rate, salt, _)| rate.applies_to(number, mix(self.seed ^ mix(*salt))))
            .map(|(.., fault)| fault)
    }
}

/// A fault of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Unavailable,
    UnavailableAfter,
    Throttle,
    NoAnswer,
    Slow,
    Broken,
}

impl Fault {
    /// Whether the message is not accepted.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Unavailable | Self::Throttle)
    }
}

/// Which messages get a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum FaultRate {
    #[default]
    None,
    /// Every Nth message.
    Every(NonZeroU64),
    /// Each with this probability.
    Part(f64),
}

impl FaultRate {
    pub(super) fn applies_to(self, number: u64, salt: u64) -> bool {
        match self {
            Self::None => false,
            Self::Every(count) => number.is_multiple_of(count.get()),
            Self::Part(part) => unit_interval(mix(number ^ salt)) < part,
        }
    }
}

/// The finalizer of `SplitMix64`: makes independent numbers of consecutive ones.
pub(super) fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Converts random bits to a number from 0 up to 1.
pub(super) fn unit_interval(bits: u64) -> f64 {
    let top = u32::try_from(bits >> 32).unwrap_or(u32::MAX);
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}

impl TryFrom<String> for FaultRate {
    type Error = String;

    /// `5%`, `0.5 %`, `every 20`.
    fn try_from(text: String) -> Result<Self, String> {
        let fault = || format!("invalid fault rate `{text}`: write it like `5%` or `every 20`");
        let trimmed = text.trim();
        if let Some(count) = trimmed.strip_prefix("every ") {
            return count.trim().parse().map(Self::Every).map_err(|_| fault());
        }
        let percent = trimmed.strip_suffix('%').ok_or_else(fault)?;
        let percent: f64 = percent.trim().parse().map_err(|_| fault())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(fault());
        }
        Ok(Self::Part(percent / 100.0))
    }
}

/// A time in which the gateway is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Outage {
    /// The number of messages after which it begins.
    pub after: u64,
    pub lasts: Duration,
}

impl TryFrom<String> for Outage {
    type Error = String;

    /// `1000 for 5s`.
    fn try_from(text: String) -> Result<Self, String> {
        let fault = || {
            format!(
                "invalid outage `{text}`: write it like `1000 for 5s`, after message 1000 for 5 seconds"
            )
        };
        let (after, lasts) = text.split_once("for").ok_or_else(fault)?;
        let lasts = SpanParser::new().parse_unsigned_duration(lasts.trim());
        Ok(Self {
            after: after.trim().parse().map_err(|_| fault())?,
            lasts: lasts.map_err(|_| fault())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_a_file() {
        let faults = Faults::from_toml(
            "faults.toml",
            "seed = 7\nunavailable = '5%'\nthrottle = 'every 20'\nslow_for = '2s'\nrefuse = '1000 for 500ms'\naccount_from = 9\n",
        )
        .expect("faults");
        assert_eq!(faults.unavailable, FaultRate::Part(0.05));
        assert_eq!(faults.throttle, FaultRate::Every(NonZeroU64::new(20).expect("not 0")));
        assert_eq!(faults.slow_for, Some(Duration::from_secs(2)));
        let refuse = Outage { after: 1_000, lasts: Duration::from_millis(500) };
        assert_eq!(faults.refuse, Some(refuse));
        assert_eq!(faults.account_from, Some(9));
    }

    #[test]
    fn invalid_faults_are_named_with_their_line() {
        for (text, expected) in [
            ("unavailable = '5'", "f:1: `unavailable`: invalid fault rate `5`"),
            ("\nslow = '101%'", "f:2: `slow`: invalid fault rate `101%`"),
            ("seed = 1\nbroken = 'every 0'\n", "f:2: `broken`: invalid fault rate `every 0`"),
            ("refuse = 'soon'", "f:1: `refuse`: invalid outage `soon`"),
            ("slow_for = 'soon'", "f:1: `slow_for`: "),
            ("seed = 'x'", "f:1: `seed`: "),
            ("# no\nunavailabel = '5%'", "f:2: unknown field `unavailabel`"),
            ("seed = \n", "f:1: `seed`: "),
        ] {
            let error = Faults::from_toml("f", text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn fault_rate_applies_to_its_share_of_messages() {
        let faults = Faults {
            unavailable: FaultRate::Part(0.05),
            broken: FaultRate::Part(0.02),
            ..Faults::default()
        };
        let applies_to =
            |fault| (1..=100_000).filter(|number| faults.fault_for(*number) == Some(fault)).count();
        assert!((4_700..5_300).contains(&applies_to(Fault::Unavailable)));
        assert!((1_700..2_100).contains(&applies_to(Fault::Broken)));
        assert_eq!(faults.fault_for(77), faults.clone().fault_for(77));
    }

    #[test]
    fn fault_rate_applies_to_every_nth_message() {
        let faults = Faults {
            slow: FaultRate::Every(NonZeroU64::new(20).expect("not 0")),
            ..Faults::default()
        };
        let hit: Vec<u64> = (1..=60).filter(|number| faults.fault_for(*number).is_some()).collect();
        assert_eq!(hit, [20, 40, 60]);
    }
}
