//! The days of a week on which messages may start.

use std::fmt;
use std::str::FromStr;

const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// 1 January 1970 was a Thursday.
const FIRST: i64 = 3;

/// At least one day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days([bool; 7]);

impl Days {
    pub const DAILY: Self = Self([true; 7]);

    /// Whether the day that began so many days after 1 January 1970 is one of them.
    pub(super) fn has(self, day: i64) -> bool {
        usize::try_from((day + FIRST).rem_euclid(7)).is_ok_and(|weekday| self.0[weekday])
    }
}

/// Why a text says no days.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` are no days; write them like `mon-fri` or `mon,wed,sat-sun`")]
pub struct DaysError(String);

impl FromStr for Days {
    type Err = DaysError;

    fn from_str(text: &str) -> Result<Self, DaysError> {
        if text.trim().eq_ignore_ascii_case("daily") {
            return Ok(Self::DAILY);
        }
        let mut days = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Some(first), Some(last)) = (weekday(first), weekday(last)) else {
                return Err(DaysError(text.to_owned()));
            };
            let count = (last + 7 - first) % 7;
            for ahead in 0..=count {
                days[(first + ahead) % 7] = true;
            }
        }
        Ok(Self(days))
    }
}

/// By its first three letters, or its whole English name.
fn weekday(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let whole = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let is_it = |day: &usize| text == NAMES[*day] || text == whole[*day];
    (0..7).find(is_it)
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DAILY {
            return f.write_str("daily");
        }
        let mut parts = Vec::new();
        let mut day = 0;
        while day < 7 {
            let length = self.0[day..].iter().take_while(|has| **has).count();
            match length {
                0 => {}
                1 => parts.push(NAMES[day].to_owned()),
                _ => parts.push(format!("{}-{}", NAMES[day], NAMES[day + length - 1])),
            }
            day += length.max(1);
        }
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_printed() {
        for (text, printed) in [
            ("mon-fri", "mon-fri"),
            ("Sat, Sunday", "sat-sun"),
            ("mon,wed,fri", "mon,wed,fri"),
            ("fri-mon", "mon,fri-sun"),
            ("mon-sun", "daily"),
            ("daily", "daily"),
        ] {
            let days: Days = text.parse().expect("days");
            assert_eq!(days.to_string(), printed);
            assert_eq!(printed.parse(), Ok(days));
        }
        for text in ["", "mon-", "mo", "mon,,tue", "weekdays"] {
            assert!(text.parse::<Days>().is_err(), "{text}");
        }
    }

    #[test]
    fn weekdays_are_counted_from_1970() {
        let thursday: Days = "thu".parse().expect("a day");
        assert!(thursday.has(0) && thursday.has(-7) && !thursday.has(1) && !thursday.has(-1));
    }
}
