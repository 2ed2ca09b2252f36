//! A time in an option of an import.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use smsq_message::sms::Timestamp;

/// A time: an instant, or a duration from now. `2026-12-24T09:00:00+01:00`, `2026-12-24 09:00` in this machine's time zone, or `+2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    At(Timestamp),
    In(Duration),
}

impl When {
    pub fn after(self, start: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => start.plus(span),
        }
    }

    fn parse(text: &str, zone: &TimeZone) -> Option<Self> {
        if let Some(span) = text.strip_prefix('+') {
            let span = SpanParser::new().parse_unsigned_duration(span);
            return span.ok().map(Self::In);
        }
        let local = |text: &str| {
            let local: DateTime = text.parse().ok()?;
            Some(local.to_zoned(zone.clone()).ok()?.timestamp())
        };
        let at: jiff::Timestamp = text.parse().ok().or_else(|| local(text))?;
        Some(Self::At(Timestamp::from_millis(at.as_millisecond())))
    }
}

impl FromStr for When {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::parse(text.trim(), &TimeZone::system()).ok_or(
            "use a time such as `2026-12-24T09:00:00Z`, `2026-12-24 09:00` (this machine's time zone) or `+2h`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        Some(match When::parse(text, &zone)? {
            When::At(at) => at.to_string(),
            When::In(span) => format!("{span:?}"),
        })
    }

    #[test]
    fn time_is_read_in_every_form() {
        for (text, expected) in [
            ("2026-12-24T09:00:00Z", "2026-12-24T09:00:00Z"),
            ("2026-12-24T09:00:00+08:00", "2026-12-24T01:00:00Z"),
            ("2026-12-24 09:00", "2026-12-24T08:00:00Z"),
            ("2026-12-24T09:00:30", "2026-12-24T08:00:30Z"),
            ("2026-12-24", "2026-12-23T23:00:00Z"),
            ("+2h", "7200s"),
            ("+90min", "5400s"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_time_is_rejected() {
        for text in ["", "tomorrow", "09:00", "+", "+soon", "+-2h", "2026-13-01"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
