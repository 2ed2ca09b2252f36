//! Section `[import]`: what makes an import stop before anything is written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// Section `[import]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `None`: what is good is imported, however many rows are not.
    #[serde(deserialize_with = "allowance")]
    pub max_rejects: Option<RejectLimit>,
    /// From so many messages on, somebody at a terminal is asked before they are sent; 0 is never.
    pub ask_from: u64,
}

/// An empty text is not set.
fn allowance<'de, D: Deserializer<'de>>(source: D) -> Result<Option<RejectLimit>, D::Error> {
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
        let percent = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|share| (0.0..=100.0).contains(share))
        };
        let read = match text.strip_suffix('%') {
            Some(share) => percent(share).map(Self::Percent),
            None => text.parse().ok().map(Self::Rows),
        };
        read.ok_or_else(|| format!("`{text}` is no share of rows; write it like `5%` or `100`"))
    }
}

impl fmt::Display for RejectLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(share) => write!(f, "{share}%"),
            Self::Rows(rows) => write!(f, "{rows}"),
        }
    }
}

impl RejectLimit {
    #[expect(
        clippy::cast_precision_loss,
        reason = "nobody counts so many rows to the last one"
    )]
    /// Whether so many of so many rows may be rejected.
    #[must_use]
    pub fn allows(self, rejected: u64, rows: u64) -> bool {
        match self {
            Self::Percent(share) => rejected as f64 * 100.0 <= share * rows as f64,
            Self::Rows(most) => rejected <= most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_rows_is_a_percentage_or_a_count() {
        let read = |text: &str| text.parse::<RejectLimit>();
        assert_eq!(read(" 2.5 %"), Ok(RejectLimit::Percent(2.5)));
        assert_eq!(read("100"), Ok(RejectLimit::Rows(100)));
        for bad in ["", "%", "101%", "-1%", "few"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(
            RejectLimit::Percent(5.0).allows(5, 100) && !RejectLimit::Percent(5.0).allows(6, 100)
        );
        assert!(RejectLimit::Percent(5.0).allows(0, 0) && !RejectLimit::Rows(0).allows(1, 100));
    }
}
