//! A moment on the command line: an instant, or so long from now.

use std::str::FromStr;
use std::time::Duration;

use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::sms::Timestamp;

/// `2026-12-24T09:00:00+01:00`, `2026-12-24 09:00` in this machine's time zone, or `+2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    In(Duration),
}

impl Moment {
    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => now.plus(span),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text.trim(), &TimeZone::system()).ok_or_else(|| {
            format!(
                "`{text}` is no moment; write it like `2026-12-24T09:00:00Z`, \
                 `2026-12-24 09:00` (this machine's time) or `+2h`"
            )
        })
    }
}

fn parse(text: &str, zone: &TimeZone) -> Option<Moment> {
    if let Some(span) = text.strip_prefix('+') {
        let span: jiff::SignedDuration = span.parse().ok()?;
        return Duration::try_from(span).ok().map(Moment::In);
    }
    let at = text
        .parse::<jiff::Timestamp>()
        .or_else(|_| {
            let local: DateTime = text.parse()?;
            local
                .to_zoned(zone.clone())
                .map(|zoned: Zoned| zoned.timestamp())
        })
        .ok()?;
    Some(Moment::At(Timestamp::from_millis(at.as_millisecond())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<String> {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        match parse(text, &zone)? {
            Moment::At(at) => Some(at.to_string()),
            Moment::In(span) => Some(format!("{span:?}")),
        }
    }

    #[test]
    fn moments_are_read_as_people_write_them() {
        for (text, meant) in [
            ("2026-12-24T09:00:00Z", "2026-12-24T09:00:00Z"),
            ("2026-12-24T09:00:00+08:00", "2026-12-24T01:00:00Z"),
            ("2026-12-24 09:00", "2026-12-24T08:00:00Z"),
            ("2026-12-24T09:00:30", "2026-12-24T08:00:30Z"),
            ("2026-12-24", "2026-12-23T23:00:00Z"),
            ("+2h", "7200s"),
            ("+90min", "5400s"),
        ] {
            assert_eq!(at(text).as_deref(), Some(meant), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_named() {
        for text in ["", "tomorrow", "09:00", "+", "+soon", "+-2h", "2026-13-01"] {
            assert_eq!(at(text), None, "{text}");
        }
        let message = "tomorrow".parse::<Moment>().expect_err("no moment");
        assert!(message.starts_with("`tomorrow` is no moment"), "{message}");
    }
}
