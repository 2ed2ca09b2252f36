//! How long messages are kept.

use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::sms::Timestamp;

/// How long messages are kept once they are settled: `90d`, `12w`, `6mo`, `1y`; at least one day.
#[derive(Clone, Copy, Debug)]
pub struct Age(jiff::Span);

impl Age {
    /// Messages that were settled before this instant are older.
    #[must_use]
    pub fn before(self, now: Timestamp) -> Timestamp {
        let now = jiff::Timestamp::from_millisecond(now.as_millis());
        let before = now.and_then(|now| now.to_zoned(TimeZone::UTC).checked_sub(self.0));
        // 0 if it is before the calendar begins.
        before.map_or(Timestamp::default(), |before| {
            Timestamp::from_millis(before.timestamp().as_millisecond())
        })
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = text
            .trim()
            .parse()
            .map_err(|_| format!("invalid age `{text}`: write it like `90d`, `6mo` or `1y`"))?;
        let (age, now) = (Self(span), jiff::Timestamp::now().as_millisecond());
        let now = Timestamp::from_millis(now);
        if now.since(age.before(now)) < Duration::from_secs(24 * 60 * 60) {
            return Err(format!("invalid age `{text}`: messages are kept for at least a day"));
        }
        Ok(age)
    }
}
