//! A rate limit: a number of messages in any window of a length.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// `N/s`, `N/min`, `N/hour`, `N/day`, or over several of them: `1/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub limit: NonZeroU32,
    /// A whole number of seconds, at least one.
    pub window: Duration,
}

/// The units as a rate is printed, longest first.
const PRINTED: [(&str, u64); 4] = [("day", 86_400), ("hour", 3_600), ("min", 60), ("s", 1)];

impl Rate {
    /// The longest window: 31 days.
    pub const MAX_WINDOW: Duration = Duration::from_secs(31 * 86_400);

    pub fn per_second(self) -> f64 {
        f64::from(self.limit.get()) / self.window.as_secs_f64()
    }
}

/// A text that is not a rate, or not a list of rates.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RateError {
    #[error("invalid rate `{0}`: write it like `100/s`, `300/min`, `20000/day` or `1/10s`")]
    Invalid(String),
    #[error("invalid rate: {0} limits, at most {max} can be combined", max = Rates::MAX)]
    TooMany(usize),
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let fault = || RateError::Invalid(text.to_owned());
        let (limit, window) = text.trim().split_once('/').ok_or_else(fault)?;
        let limit: NonZeroU32 = limit.trim().replace('_', "").parse().map_err(|_| fault())?;
        let window = window.trim();
        let unit = window.trim_start_matches(|c: char| c.is_ascii_digit());
        let count: u64 = match window.strip_suffix(unit).unwrap_or_default() {
            "" => 1,
            count => count.parse().map_err(|_| fault())?,
        };
        let seconds = match unit.trim().to_ascii_lowercase().as_str() {
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hour" | "hours" => 3_600,
            "d" | "day" | "days" => 86_400,
            _ => return Err(fault()),
        };
        let window = count.checked_mul(seconds).map(Duration::from_secs);
        match window {
            Some(window) if !window.is_zero() && window <= Self::MAX_WINDOW => {
                Ok(Self { limit, window })
            }
            _ => Err(fault()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.window.as_secs();
        let (unit, size) =
            PRINTED.into_iter().find(|(_, size)| seconds.is_multiple_of(*size)).unwrap_or(("s", 1));
        match seconds / size {
            1 => write!(f, "{}/{unit}", self.limit),
            count => write!(f, "{}/{count}{unit}", self.limit),
        }
    }
}

/// One rate or a list of them, as the configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates(pub Vec<Rate>);

impl Rates {
    /// The most limits of one list. The column of the database has room for them.
    const MAX: usize = 16;

    /// How many messages a second the lowest limit allows; `None` without a limit.
    pub fn per_second(&self) -> Option<f64> {
        let limits = self.0.iter().map(|rate| rate.per_second());
        limits.reduce(f64::min)
    }

    /// How long this many messages take at the lowest limit, in whole seconds; `None` without a limit.
    pub fn span_of(&self, messages: u64) -> Option<Duration> {
        let messages = u32::try_from(messages).map_or(f64::MAX, f64::from);
        Duration::try_from_secs_f64((messages / self.per_second()?).ceil()).ok()
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rate) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{rate}")?;
        }
        Ok(())
    }
}

/// Rates with commas between them; an empty text means no limit.
impl FromStr for Rates {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let count = text.split(',').count();
        if count > Self::MAX {
            return Err(RateError::TooMany(count));
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(String),
            Many(Vec<String>),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::One(text) => text,
            Written::Many(texts) => texts.join(","),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rate_is_read_in_all_its_forms() {
        for (text, limit, seconds) in [
            ("100/s", 100, 1),
            ("300/min", 300, 60),
            ("20000/day", 20_000, 86_400),
            ("20_000 / day", 20_000, 86_400),
            ("1/10s", 1, 10),
            ("5/2hours", 5, 7_200),
        ] {
            let rate: Rate = text.parse().expect("a rate");
            assert_eq!((rate.limit.get(), rate.window.as_secs()), (limit, seconds), "{text}");
        }
    }

    #[test]
    fn invalid_rate_is_named_in_the_error() {
        for text in [
            "",
            "100",
            "0/s",
            "-1/s",
            "1/0s",
            "1/fortnight",
            "1/s/s",
            "1.5/s",
            "1/99999999999999999999s",
            "1/32day",
        ] {
            let error = text.parse::<Rate>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn list_of_rates_has_an_end() {
        let list = |count: usize| vec!["4294967295/2678400s"; count].join(",");
        assert!(list(Rates::MAX).parse::<Rates>().is_ok());
        assert!(list(Rates::MAX).len() < 1_024, "the column is longer");
        let error = list(Rates::MAX + 1).parse::<Rates>();
        assert_eq!(error, Err(RateError::TooMany(Rates::MAX + 1)));
    }

    proptest! {
        #[test]
        fn printed_rate_is_read_back(limit in 1_u32.., seconds in 1_u64..=2_678_400) {
            let rate = Rate {
                limit: NonZeroU32::new(limit).expect("from one up"),
                window: Duration::from_secs(seconds),
            };
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }
}
