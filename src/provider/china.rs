//! Phone numbers and times as vendors in mainland China write them: without country code and time zone.

use jiff::{civil, tz};

use crate::phone::Phone;
use crate::sms::Timestamp;

const FORMAT: &str = "%Y-%m-%d %H:%M:%S";

pub(super) fn is_mainland(phone: &Phone) -> bool {
    phone.as_str().starts_with("+86")
}

/// Mainland numbers without country code, others with it, all without `+`.
pub(super) fn national_number(phone: &Phone) -> &str {
    let digits = phone.digits();
    match digits.strip_prefix("86") {
        Some(mainland) if mainland.len() == 11 => mainland,
        _ => digits,
    }
}

/// Reads a time in Shanghai.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let local = civil::DateTime::strptime(FORMAT, text).ok()?;
    let instant = tz::offset(8).to_timestamp(local).ok()?;
    Some(Timestamp::from_millis(instant.as_millisecond()))
}

/// The time in Shanghai; empty where it is outside the calendar.
pub(super) fn format_time(at: Timestamp) -> String {
    let instant = jiff::Timestamp::from_millisecond(at.as_millis());
    instant.map_or_else(
        |_| String::new(),
        |instant| {
            let local = tz::offset(8).to_datetime(instant);
            local.strftime(FORMAT).to_string()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_time_can_be_parsed() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(format_time(at), "2023-11-15 06:13:20");
        assert_eq!(parse_time(&format_time(at)), Some(at));
        assert_eq!(parse_time("2023-11-15T06:13:20Z"), None);
        assert_eq!(format_time(Timestamp::from_millis(i64::MAX)), "");
    }

    #[test]
    fn mainland_numbers_lose_their_country_code() {
        for (phone, expected) in [
            ("+8613812345678", "13812345678"),
            ("+85261234567", "85261234567"),
            ("+447400123456", "447400123456"),
        ] {
            let phone = Phone::parse(phone, None).expect("a phone");
            assert_eq!(national_number(&phone), expected);
            assert_eq!(
                is_mainland(&phone),
                expected.len() == 11 && expected.starts_with('1')
            );
        }
    }
}
