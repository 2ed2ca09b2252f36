//! Instants as vendors write them.

use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::tz::{self, TimeZone};
use smsq_message::sms::Timestamp;

/// Numbers above this are milliseconds since 1970, others seconds.
const MIN_MILLIS: i64 = 100_000_000_000;
/// Formats with an offset that neither RFC has.
const WITH_OFFSET: [&str; 3] =
    ["%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f %z"];

/// Reads RFC 3339, RFC 2822, `2026-11-23 09:00:00`, `20261123090000`, `2611230900` with or without seconds, or a number
/// of seconds or milliseconds since 1970. A time without an offset is in `zone`.
pub(super) fn parse(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.trim();
    let instant = text
        .parse()
        .ok()
        .or_else(|| parse_digits(text, zone))
        .or_else(|| rfc2822::DateTimeParser::new().parse_timestamp(text).ok())
        .or_else(|| {
            WITH_OFFSET.iter().find_map(|format| jiff::Timestamp::strptime(format, text).ok())
        })
        .or_else(|| in_zone(text.parse().ok()?, zone))?;
    Some(Timestamp::from_millis(instant.as_millisecond()))
}

fn parse_digits(text: &str, zone: &TimeZone) -> Option<jiff::Timestamp> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let format = match text.len() {
        14 => Some("%Y%m%d%H%M%S"),
        12 => Some("%y%m%d%H%M%S"),
        10 if text.starts_with('2') => Some("%y%m%d%H%M"),
        _ => None,
    };
    if let Some(time) = format.and_then(|format| DateTime::strptime(format, text).ok()) {
        return in_zone(time, zone);
    }
    match text.parse().ok()? {
        millis if millis >= MIN_MILLIS => jiff::Timestamp::from_millisecond(millis).ok(),
        seconds => jiff::Timestamp::from_second(seconds).ok(),
    }
}

fn in_zone(time: DateTime, zone: &TimeZone) -> Option<jiff::Timestamp> {
    Some(time.to_zoned(zone.clone()).ok()?.timestamp())
}

/// The zone in which vendors in mainland China write times.
pub(super) fn shanghai() -> TimeZone {
    TimeZone::fixed(tz::offset(8))
}

/// The instant in `zone`, formatted like `strftime`.
pub(super) fn format(at: Timestamp, zone: TimeZone, format: &str) -> String {
    let instant = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    instant.to_zoned(zone).strftime(format).to_string()
}

/// The instant in UTC, formatted like `strftime`.
pub(super) fn utc(at: Timestamp, format: &str) -> String {
    self::format(at, TimeZone::UTC, format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_in_every_format_of_vendors() {
        let expected = Some(Timestamp::from_millis(1_700_000_000_000));
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14T22:13:20.000+0000",
            "2023-11-15 06:13:20+0800",
            "2023-11-15 06:13:20 +0800",
            "Tue, 14 Nov 2023 22:13:20 GMT",
            "Wed, 15 Nov 2023 06:13:20 +0800",
            "2023-11-15 06:13:20",
            "2023-11-15T06:13:20",
            "20231115061320",
            "231115061320",
            "1700000000",
            "1700000000000",
        ] {
            assert_eq!(parse(text, &shanghai()), expected, "{text}");
        }
        let minute = parse("2311150613", &shanghai());
        assert_eq!(minute, Some(Timestamp::from_millis(1_699_999_980_000)));
        for text in ["", "soon", "-", "99999999999999999999", "2023-13-01 00:00:00"] {
            assert_eq!(parse(text, &TimeZone::UTC), None, "{text}");
        }
    }

    #[test]
    fn formatted_time_can_be_parsed() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let text = format(at, shanghai(), "%Y-%m-%d %H:%M:%S");
        assert_eq!(text, "2023-11-15 06:13:20");
        assert_eq!(parse(&text, &shanghai()), Some(at));
        assert_eq!(utc(at, "%Y%m%d"), "20231114");
    }
}
