//! Section `[import]`: limits that stop an import before anything is written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use smsq_message::phone::Numbers;

/// Section `[import]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `None`: any number of rows may be rejected.
    #[serde(deserialize_with = "reject_limit")]
    pub max_rejects: Option<RejectLimit>,
    /// The number of messages from which a user at a terminal must confirm; 0: never.
    pub ask_from: u64,
    /// What the numbers of a list are that do not begin with `+` or `00`.
    pub numbers: Numbers,
    /// How long a query may take whose rows are a list.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub query_timeout: Duration,
}

/// Reads an empty text as no limit.
fn reject_limit<'de, D: Deserializer<'de>>(source: D) -> Result<Option<RejectLimit>, D::Error> {
    let text = String::deserialize(source)?;
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(de::Error::custom),
    }
}

/// How many rows may be rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RejectLimit {
    Percent(f64),
    Rows(u64),
}

impl FromStr for RejectLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let limit = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().ok();
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
                percent.map(Self::Percent)
            }
            None => text.parse().ok().map(Self::Rows),
        };
        limit.ok_or_else(|| {
            format!("invalid share `{text}`: use a number or a percentage, such as `100` or `5%`")
        })
    }
}

impl fmt::Display for RejectLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Rows(rows) => write!(f, "{rows}"),
        }
    }
}

impl RejectLimit {
    #[expect(clippy::cast_precision_loss, reason = "exact up to far more rows than a list has")]
    /// Whether `rejected` out of `rows` is within the limit.
    pub fn allows(self, rejected: u64, rows: u64) -> bool {
        match self {
            Self::Percent(percent) => rejected as f64 * 100.0 <= percent * rows as f64,
            Self::Rows(limit) => rejected <= limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reject_limit_is_a_percentage_or_a_count() {
        let read = |text: &str| text.parse::<RejectLimit>();
        assert_eq!(read(" 2.5 %"), Ok(RejectLimit::Percent(2.5)));
        assert_eq!(read("100"), Ok(RejectLimit::Rows(100)));
        for bad in ["", "%", "101%", "-1%", "few"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let percent = RejectLimit::Percent(5.0);
        assert!(percent.allows(5, 100) && !percent.allows(6, 100) && percent.allows(0, 0));
        assert!(!RejectLimit::Rows(0).allows(1, 100));
    }
}
