//! When a schedule fires: a cron expression in a time zone. The local time decides, so that a time that the clock shows
//! twice fires once, and one that it skips fires when it has skipped it.

use std::fmt;
use std::str::FromStr;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset};
use smsq_message::sms::Timestamp;
use smsq_message::text::Hinted;
use smsq_message::window::Zone;

/// How a local time is written, to the minute; the order of texts is that of times.
const FORMAT: &str = "%Y-%m-%dT%H:%M";

/// The period in which a key gets at most one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Day,
    /// From Monday on.
    Week,
    Month,
    /// Each run.
    Run,
}

impl Per {
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Run];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Run => "run",
        }
    }

    /// The name of the period that a local time is in: `2026-11-24`, `2026-W48`, `2026-11`, or `2026-11-24T09:00`. Later
    /// periods have greater names.
    pub fn period(self, local: DateTime) -> String {
        match self {
            Self::Day => local.strftime("%Y-%m-%d").to_string(),
            Self::Week => {
                let week = local.date().iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => local.strftime("%Y-%m").to_string(),
            Self::Run => written(local),
        }
    }

    /// The local time at which the period of a local time has ended.
    fn end(self, local: DateTime) -> DateTime {
        let day = local.date();
        let next: Option<Date> = match self {
            Self::Run => return local,
            Self::Day => day.tomorrow().ok(),
            Self::Week => {
                let passed = i64::from(day.weekday().to_monday_zero_offset());
                day.checked_add((7 - passed).days()).ok()
            }
            Self::Month => day.first_of_month().checked_add(1.month()).ok(),
        };
        next.unwrap_or(day).to_datetime(Time::midnight())
    }
}

impl FromStr for Per {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|per| per.as_str() == text)
            .ok_or_else(|| format!("invalid period `{text}`: use `day`, `week`, `month` or `run`"))
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One time at which a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fire {
    /// What a clock in the time zone shows, or skips.
    pub local: DateTime,
    pub at: Timestamp,
}

/// Fires that are due together, of which only the last one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    pub first: Fire,
    pub last: Fire,
    pub count: u64,
}

/// A cron expression of five fields in a time zone.
pub struct CronTime {
    expression: String,
    cron: Cron,
    zone: Zone,
}

impl CronTime {
    pub fn new(expression: &str, zone: Zone) -> Result<Self, Hinted> {
        let expression = expression.trim();
        let invalid = |reason: &str| {
            Hinted::new(
                format!("invalid cron expression `{expression}`: {reason}"),
                "write five fields: minute, hour, day, month and weekday; `0 9 * * *` is every day at 09:00",
            )
        };
        let fields = expression.split_whitespace().count();
        if fields > 5 {
            return Err(invalid(&format!(
                "it has {fields} fields; seconds and years are not possible"
            )));
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| invalid(&error.to_string()))?;
        let time = Self { expression: expression.to_owned(), cron, zone };
        let start = Date::constant(2026, 1, 1).to_datetime(Time::midnight());
        if time.next(start).is_none() {
            return Err(invalid("it has no date"));
        }
        Ok(time)
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first fire after a local time; `None`: there is none. Times that the clock skips together are one fire.
    pub fn next(&self, after: DateTime) -> Option<Fire> {
        let mut fire = self.found(after)?;
        while let Some(following) = self.found(fire.local).filter(|next| next.at == fire.at) {
            fire = following;
        }
        Some(fire)
    }

    fn found(&self, after: DateTime) -> Option<Fire> {
        let local = self.cron.find_next_occurrence(&after, false).ok()?;
        Some(self.fire(local))
    }

    /// The first fire after an instant.
    pub fn next_after(&self, now: Timestamp) -> Option<Fire> {
        let local = self.local(now);
        // The clock may have been set back: it shows times again that have fired.
        let mut fire = self.next(local.checked_sub(26.hours()).ok()?)?;
        while fire.at <= now {
            fire = self.next(fire.local)?;
        }
        Some(fire)
    }

    /// What is to be run at `now`, if a fire that was due then did not run yet: the last one, and the missed ones before it.
    pub fn latest(&self, due: Fire, now: Timestamp) -> (Fire, Option<Missed>) {
        let (mut latest, mut missed) = (due, None);
        while let Some(next) = self.next(latest.local).filter(|next| next.at <= now) {
            let count = missed.map_or(0, |missed: Missed| missed.count);
            missed = Some(Missed { first: due, last: latest, count: count + 1 });
            latest = next;
        }
        (latest, missed)
    }

    /// The fire at this local time.
    pub fn fire(&self, local: DateTime) -> Fire {
        Fire { local, at: self.instant(local) }
    }

    /// When the period of a local time ends.
    pub fn period_end(&self, per: Per, local: DateTime) -> Timestamp {
        self.instant(per.end(local))
    }

    /// What a clock in the time zone shows.
    pub fn local(&self, at: Timestamp) -> DateTime {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
        self.zone.time_zone().to_datetime(at)
    }

    /// The first time that the clock shows `local`; if it skips that, when it has skipped it.
    fn instant(&self, local: DateTime) -> Timestamp {
        let zone = self.zone.time_zone();
        let at = |offset: Offset| offset.to_timestamp(local).unwrap_or_default();
        let at = match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            AmbiguousOffset::Gap { after, .. } => {
                let before_change = at(after);
                let change = zone.following(before_change).next();
                change.map_or(before_change, |change| change.timestamp())
            }
        };
        Timestamp::from_millis(at.as_millisecond())
    }
}

/// A local time as a text.
pub(super) fn written(local: DateTime) -> String {
    local.strftime(FORMAT).to_string()
}

/// Reads what [`written`] has made.
pub(super) fn read_local(text: &str) -> Option<DateTime> {
    DateTime::strptime(FORMAT, text).ok()
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
