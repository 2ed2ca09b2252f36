//! Parses values of the command line.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;

use crate::sms::Timestamp;
use crate::text::is_printable;

/// A duration such as `30min`.
pub(crate) fn span(text: &str) -> Result<Duration, &'static str> {
    let span = SpanParser::new().parse_unsigned_duration(text.trim());
    span.map_err(|_| "write a duration such as `30min` or `2h`")
}

/// A number from 1.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

/// The name of a campaign: printable, at most 100 characters.
pub(crate) fn campaign_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let problem = if name.is_empty() {
        "the name is empty"
    } else if !name.chars().all(is_printable) {
        "the name contains a character that cannot be printed"
    } else if name.chars().count() > 100 {
        "the name is longer than 100 characters"
    } else if matches!(name, "." | "..") {
        "the name is part of URLs, where `.` and `..` are folders"
    } else {
        return Ok(name.to_owned());
    };
    Err(problem.to_owned())
}

/// The campaign of a command, `NAME` or `--campaign NAME`.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct CampaignName {
    /// The campaign
    #[arg(value_name = "NAME", value_parser = campaign_name)]
    name: Option<String>,
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
}

impl CampaignName {
    pub(crate) fn as_str(&self) -> &str {
        let name = self.name.as_deref().or(self.campaign.as_deref());
        name.expect("one of the two is required")
    }
}

/// `NAME=VALUE`, both without surrounding spaces and not empty.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as `NAME=COLUMN`, such as `phone=手机号`".to_owned()),
    }
}

/// A time: an instant, or a duration from now. `2026-12-24T09:00:00+01:00`, `2026-12-24 09:00` in this machine's time zone, or `+2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeArg {
    At(Timestamp),
    In(Duration),
}

impl TimeArg {
    pub(crate) fn after(self, start: Timestamp) -> Timestamp {
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

impl FromStr for TimeArg {
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

    #[test]
    fn campaign_name_is_printable_and_short() {
        assert_eq!(campaign_name(" 夏季促销 ").as_deref(), Ok("夏季促销"));
        for bad in ["", "  ", ".", " ..", "a\nb", "a\u{202e}b", &"x".repeat(101)] {
            assert!(campaign_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn assignment_needs_name_and_value() {
        let read = assignment("phone=手机号");
        assert_eq!(read, Ok(("phone".to_owned(), "手机号".to_owned())));
        for bad in ["phone", "=x", "phone=", ""] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }

    fn parsed(text: &str) -> Option<String> {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        Some(match TimeArg::parse(text, &zone)? {
            TimeArg::At(at) => at.to_string(),
            TimeArg::In(span) => format!("{span:?}"),
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
