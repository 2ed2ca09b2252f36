//! Times in the time zone of this machine.

use std::time::Duration;

use jiff::tz::TimeZone;
use smsq_message::sms::Timestamp;

/// Formats times in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTime(TimeZone);

impl Default for LocalTime {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl LocalTime {
    /// The time zone of this machine, or of `TZ`.
    pub fn system() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self(TimeZone::get(name).expect("a zone"))
    }

    fn format(&self, at: Timestamp, pattern: &str) -> String {
        match jiff::Timestamp::from_millisecond(at.as_millis()) {
            Ok(instant) => instant.to_zoned(self.0.clone()).strftime(pattern).to_string(),
            Err(_) => at.to_string(),
        }
    }

    /// `2025-11-21 10:00:00 CET`.
    pub(super) fn exact(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// `21 Nov 2025, 10:00 CET`.
    pub fn short(&self, at: Timestamp) -> String {
        self.format(at, "%-d %b %Y, %H:%M %Z")
    }

    /// `21 Nov 2025, 10:00:00 CET`.
    pub fn seconds(&self, at: Timestamp) -> String {
        self.format(at, "%-d %b %Y, %H:%M:%S %Z")
    }

    /// From one time to another; a common day is printed once.
    pub(super) fn span(&self, first: Timestamp, last: Timestamp) -> String {
        let day = "%-d %b %Y";
        if self.format(first, day) == self.format(last, day) {
            let first = self.format(first, "%-d %b %Y, %H:%M:%S");
            format!("{first} to {}", self.format(last, "%H:%M:%S %Z"))
        } else {
            format!("{} to {}", self.short(first), self.short(last))
        }
    }

    /// A label of the chart, as precise as its spans are wide.
    pub fn tick(&self, at: Timestamp, width: Duration) -> String {
        let pattern = match width.as_secs() {
            0..60 => "%H:%M:%S",
            60..3_600 => "%H:%M",
            3_600..86_400 => "%-d %b, %H:%M",
            _ => "%-d %b %Y",
        };
        self.format(at, pattern)
    }

    /// The offset from UTC, within a day.
    pub(super) fn offset(&self, at: Timestamp) -> Duration {
        let Ok(instant) = jiff::Timestamp::from_millisecond(at.as_millis()) else {
            return Duration::ZERO;
        };
        let seconds = self.0.to_offset(instant).seconds();
        let ahead = seconds.rem_euclid(86_400).unsigned_abs();
        Duration::from_secs(u64::from(ahead))
    }

    /// `Europe/Berlin (CET, UTC+01)`.
    pub(super) fn name(&self, at: Timestamp) -> String {
        let short = self.format(at, "%Z");
        match self.0.iana_name() {
            Some(name) if name != short => {
                format!("{name} ({short}, UTC{})", self.format(at, "%:z"))
            }
            _ => short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_with_their_zone() {
        let at = Timestamp::from_millis(1_763_715_600_000);
        let local = LocalTime::named("Europe/Berlin");
        assert_eq!(local.exact(at), "2025-11-21 10:00:00 CET");
        assert_eq!(local.short(at), "21 Nov 2025, 10:00 CET");
        assert_eq!(local.name(at), "Europe/Berlin (CET, UTC+01:00)");
        assert_eq!(local.offset(at), Duration::from_secs(3_600));
        let later = at.plus(Duration::from_secs(65));
        assert_eq!(local.span(at, later), "21 Nov 2025, 10:00:00 to 10:01:05 CET");
        let next_day = at.plus(Duration::from_secs(86_400));
        assert_eq!(local.span(at, next_day), "21 Nov 2025, 10:00 CET to 22 Nov 2025, 10:00 CET");
        assert_eq!(LocalTime::default().name(at), "UTC");
    }
}
