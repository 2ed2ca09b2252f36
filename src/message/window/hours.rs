//! The hours of a day and the days of a week in which messages may start.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::DAY;

const DAY_NAMES: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// The index of the weekday of 1 January 1970, a Thursday.
const EPOCH_WEEKDAY: i64 = 3;

/// A span of one day, at least a minute long. In seconds since midnight, because it may end at 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    pub(super) opens: i64,
    pub(super) closes: i64,
}

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = |problem| Err(format!("invalid hours `{text}`: {problem}"));
        let parsed = text
            .trim()
            .split_once(['-', '–'])
            .map(|(opens, closes)| (time_of_day(opens), time_of_day(closes)));
        let Some((Some(opens), Some(closes))) = parsed else {
            return error("write them like `09:00-20:00`");
        };
        match opens.cmp(&closes) {
            Ordering::Less => Ok(Self { opens, closes }),
            Ordering::Equal => error("they close when they open"),
            Ordering::Greater => error(
                "they cross midnight; a window opens and closes on the same day, at `24:00` at the latest, so that \
                 no message is sent at night by mistake",
            ),
        }
    }
}

/// Parses `9`, `9:30` or `09:30` into seconds since midnight.
fn time_of_day(text: &str) -> Option<i64> {
    let (hour, minute) = text.trim().split_once(':').unwrap_or((text.trim(), "00"));
    let number = |digits: &str| {
        let is_number = digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<i64>().ok())?
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let seconds = hour * 3_600 + minute * 60;
    (minute < 60 && seconds <= DAY).then_some(seconds)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: i64| format!("{:02}:{:02}", seconds / 3_600, seconds % 3_600 / 60);
        write!(f, "{}-{}", time(self.opens), time(self.closes))
    }
}

/// At least one day of the week; Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days([bool; 7]);

impl Days {
    pub const DAILY: Self = Self([true; 7]);

    /// Whether it contains the day that begins `day` days after 1 January 1970.
    pub(super) fn contains(self, day: i64) -> bool {
        usize::try_from((day + EPOCH_WEEKDAY).rem_euclid(7)).is_ok_and(|weekday| self.0[weekday])
    }
}

impl FromStr for Days {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case("daily") {
            return Ok(Self::DAILY);
        }
        let mut days = [false; 7];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Some(first), Some(last)) = (weekday(first), weekday(last)) else {
                return Err(format!(
                    "invalid days `{text}`: write them like `mon-fri` or `mon,wed,sat-sun`"
                ));
            };
            for ahead in 0..=(last + 7 - first) % 7 {
                days[(first + ahead) % 7] = true;
            }
        }
        Ok(Self(days))
    }
}

/// The index of an English day, written in full or by its first three letters.
fn weekday(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    DAY_NAMES.iter().position(|name| text == *name || text == name[..3])
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DAILY {
            return f.write_str("daily");
        }
        let name = |day: usize| &DAY_NAMES[day][..3];
        let mut parts = Vec::new();
        let mut day = 0;
        while day < 7 {
            let length = self.0[day..].iter().take_while(|is_in| **is_in).count();
            match length {
                0 => {}
                1 => parts.push(name(day).to_owned()),
                _ => parts.push(format!("{}-{}", name(day), name(day + length - 1))),
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
    fn hours_are_parsed_and_printed() {
        for (text, printed) in [
            ("09:00-20:00", "09:00-20:00"),
            ("9-20", "09:00-20:00"),
            (" 9:30 – 17:45 ", "09:30-17:45"),
            ("0-24", "00:00-24:00"),
        ] {
            let hours: Hours = text.parse().expect("hours");
            assert_eq!(hours.to_string(), printed);
            assert_eq!(printed.parse(), Ok(hours));
        }
    }

    #[test]
    fn invalid_hours_are_rejected_with_a_reason() {
        let error = |text: &str| text.parse::<Hours>().expect_err(text);
        for text in ["", "9", "9-", "09:60-10:00", "9-25", "24:01-25", "+9-10", "9am-5pm", "009-10"]
        {
            let expected = format!("invalid hours `{text}`: write them like `09:00-20:00`");
            assert_eq!(error(text), expected);
        }
        assert_eq!(error("09:00-09:00"), "invalid hours `09:00-09:00`: they close when they open");
        assert!(error("22:00-06:00").contains("they cross midnight"));
    }

    #[test]
    fn days_are_parsed_and_printed() {
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
        assert!(thursday.contains(0) && thursday.contains(-7));
        assert!(!thursday.contains(1) && !thursday.contains(-1));
    }
}
