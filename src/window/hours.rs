//! The hours of a day between which messages may start.

use std::fmt;
use std::str::FromStr;

/// From, and until before, within one day; at least a minute long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// In seconds since midnight.
    opens: i64,
    closes: i64,
}

impl Hours {
    /// In seconds since midnight.
    pub const fn opens(self) -> i64 {
        self.opens
    }

    /// In seconds since midnight, up to the whole day.
    pub const fn closes(self) -> i64 {
        self.closes
    }
}

/// Why a text says no hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoursError {
    #[error("`{0}` is no window; write it like `09:00-20:00`")]
    Unreadable(String),
    #[error("`{0}` is an empty window: it closes when it opens")]
    Empty(String),
    #[error(
        "`{0}` crosses midnight: a window opens and closes on the same day, `24:00` at the latest, \
         so that nobody is texted at night by mistake"
    )]
    CrossesMidnight(String),
}

impl FromStr for Hours {
    type Err = HoursError;

    fn from_str(text: &str) -> Result<Self, HoursError> {
        let read = || {
            let (opens, closes) = text.trim().split_once(['-', '–'])?;
            Some((moment(opens)?, moment(closes)?))
        };
        let (opens, closes) = read().ok_or_else(|| HoursError::Unreadable(text.to_owned()))?;
        match opens.cmp(&closes) {
            std::cmp::Ordering::Less => Ok(Self { opens, closes }),
            std::cmp::Ordering::Equal => Err(HoursError::Empty(text.to_owned())),
            std::cmp::Ordering::Greater => Err(HoursError::CrossesMidnight(text.to_owned())),
        }
    }
}

/// `9`, `9:30` or `09:30`, in seconds since midnight.
fn moment(text: &str) -> Option<i64> {
    let (hour, minute) = text.trim().split_once(':').unwrap_or((text.trim(), "00"));
    let number = |text: &str, longest: usize| -> Option<i64> {
        let is_number = !text.is_empty() && text.len() <= longest;
        let is_number = is_number && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let (hour, minute) = (number(hour, 2)?, number(minute, 2)?);
    let seconds = hour * 3_600 + minute * 60;
    (minute < 60 && seconds <= super::DAY).then_some(seconds)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |seconds: i64| format!("{:02}:{:02}", seconds / 3_600, seconds % 3_600 / 60);
        write!(f, "{}-{}", clock(self.opens), clock(self.closes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_as_people_write_them() {
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
    fn what_is_no_window_says_why() {
        for text in [
            "",
            "9",
            "9-",
            "09:60-10:00",
            "9-25",
            "24:01-25",
            "+9-10",
            "9am-5pm",
            "009-10",
        ] {
            let error = text.parse::<Hours>().expect_err(text);
            assert!(matches!(error, HoursError::Unreadable(_)), "{error}");
        }
        let said = |text: &str| text.parse::<Hours>().expect_err("no hours").to_string();
        assert_eq!(
            said("09:00-09:00"),
            "`09:00-09:00` is an empty window: it closes when it opens"
        );
        assert!(said("22:00-06:00").starts_with("`22:00-06:00` crosses midnight:"));
    }
}
