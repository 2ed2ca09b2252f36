//! When a campaign's messages may start: hours of the day, days of the week, and whose clock they are read
//! from. All of it is pure: an instant comes in, and the span in which messages may start comes out.
//!
//! An instant is inside where the clock on the wall says so. So a window that opens in an hour that daylight
//! saving skips opens when the hour after it begins, and an hour that comes twice counts both times.

mod days;
mod hours;
mod zone;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

pub use days::{Days, DaysError};
pub use hours::{Hours, HoursError};
pub use zone::{Zone, ZoneError, local_and_utc};

use crate::sms::Timestamp;

/// The key of a message's `params` that names the zone of its recipient.
pub const TIMEZONE: &str = "timezone";
/// Within so many seconds every window opens, if it ever does.
const LOOK_AHEAD: i64 = 9 * DAY;
const DAY: i64 = 86_400;

/// When a campaign's messages may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub hours: Hours,
    pub days: Days,
    pub clock: Clock,
}

/// Whose clock says what time it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// One for all.
    Of(Zone),
    /// That of the zone which the message names in its `params`, else this one.
    Row(Zone),
    /// All clocks of the country that the phone's code belongs to, else this one.
    Recipient(Zone),
}

impl Clock {
    /// The zone for all, or for those whose own is not known.
    pub fn zone(&self) -> &Zone {
        match self {
            Self::Of(zone) | Self::Row(zone) | Self::Recipient(zone) => zone,
        }
    }
}

/// From when, and until before when, messages may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub opens_at: Timestamp,
    pub closes_at: Timestamp,
}

impl Span {
    pub fn contains(&self, now: Timestamp) -> bool {
        (self.opens_at..self.closes_at).contains(&now)
    }
}

/// What of a message decides about its clock.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// E.164 with `+`.
    pub phone: &'a str,
    /// The imported columns, a JSON object.
    pub params: &'a str,
}

impl Window {
    /// The span in which any message of the campaign may start: the one that `now` is in, or the next. `None`
    /// where that depends on the message.
    pub fn for_all(&self, now: Timestamp) -> Option<Span> {
        match &self.clock {
            Clock::Of(zone) => Some(self.span(std::slice::from_ref(zone), now)),
            Clock::Row(_) | Clock::Recipient(_) => None,
        }
    }

    /// The span in which a message to this recipient may start: the one that `now` is in, or the next. Where
    /// the country's clocks are so far apart that they are never inside at once, the stated zone decides.
    pub fn for_one(&self, recipient: Recipient<'_>, now: Timestamp) -> Span {
        let (zones, stated) = match &self.clock {
            Clock::Of(zone) => (Vec::new(), zone),
            Clock::Row(zone) => (timezone(recipient.params).into_iter().collect(), zone),
            Clock::Recipient(zone) => (Zone::of_phone(recipient.phone), zone),
        };
        if zones.is_empty() {
            return self.span(std::slice::from_ref(stated), now);
        }
        self.common(&zones, now)
            .unwrap_or_else(|| self.span(std::slice::from_ref(stated), now))
    }

    /// When sending that takes so long is over, if it begins at `now` and rests outside the window.
    pub fn end_of(&self, now: Timestamp, mut left: Duration) -> Timestamp {
        let zone = std::slice::from_ref(self.clock.zone());
        let mut at = now;
        loop {
            let span = self.span(zone, at);
            let begins = span.opens_at.max(at);
            let room = span.closes_at.since(begins);
            if left <= room || room.is_zero() {
                return begins.plus(left);
            }
            left -= room;
            at = span.closes_at;
        }
    }

    /// How much of the time between two instants lies within the window.
    pub fn open_between(&self, from: Timestamp, until: Timestamp) -> Duration {
        let zone = std::slice::from_ref(self.clock.zone());
        let mut open = Duration::ZERO;
        let mut at = from;
        while at < until {
            let span = self.span(zone, at);
            let closes_at = span.closes_at.min(until);
            open += closes_at.since(span.opens_at.max(at));
            at = span.closes_at;
        }
        open
    }

    fn span(&self, zones: &[Zone], now: Timestamp) -> Span {
        // A week has every hour of every day at least once, whatever is switched: only an hour that a zone
        // skips on its one day waits for another week, and then nothing starts.
        self.common(zones, now).unwrap_or(Span {
            opens_at: now.plus(Duration::from_secs(LOOK_AHEAD.unsigned_abs())),
            closes_at: now.plus(Duration::from_secs(LOOK_AHEAD.unsigned_abs())),
        })
    }

    /// The first span in which the clocks of all zones are inside.
    fn common(&self, zones: &[Zone], now: Timestamp) -> Option<Span> {
        let from = now.as_millis().div_euclid(1_000);
        let mut at = from;
        while at <= from + LOOK_AHEAD {
            let mut opens = at;
            let mut closes = i64::MAX;
            for zone in zones {
                let (one_opens, one_closes) = self.next(zone, at)?;
                opens = opens.max(one_opens);
                closes = closes.min(one_closes);
            }
            if opens == at {
                return Some(Span {
                    opens_at: Timestamp::from_millis(at.saturating_mul(1_000)),
                    closes_at: Timestamp::from_millis(closes.saturating_mul(1_000)),
                });
            }
            at = opens;
        }
        None
    }

    /// When one clock is inside next, or already: first and last second, the last one outside.
    fn next(&self, zone: &Zone, from: i64) -> Option<(i64, i64)> {
        let mut at = from;
        let mut opened = None;
        while at <= from + LOOK_AHEAD {
            let (offset, changes_at) = zone.reading(at)?;
            let local = at + offset;
            let next = if self.has(local) {
                opened.get_or_insert(at);
                at + self.hours.closes() - local.rem_euclid(DAY)
            } else if let Some(opened) = opened {
                return Some((opened, at));
            } else {
                at + self.until_opening(local)
            };
            at = next.min(changes_at);
        }
        opened.map(|opened| (opened, at))
    }

    /// Whether a clock that shows so many seconds since 1970 is inside.
    fn has(&self, local: i64) -> bool {
        let hours = self.hours.opens()..self.hours.closes();
        self.days.has(local.div_euclid(DAY)) && hours.contains(&local.rem_euclid(DAY))
    }

    /// Seconds until a clock that is outside and goes on evenly is inside.
    fn until_opening(&self, local: i64) -> i64 {
        let (today, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let opening = (0..=7)
            .filter(|ahead| self.days.has(today + ahead))
            .map(|ahead| ahead * DAY + self.hours.opens() - time)
            .find(|ahead| *ahead > 0);
        opening.unwrap_or(DAY)
    }
}

/// The zone that a row names, if it is one.
fn timezone(params: &str) -> Option<Zone> {
    #[derive(Deserialize)]
    struct Named {
        timezone: Option<String>,
    }
    let named: Named = serde_json::from_str(params).ok()?;
    named.timezone?.parse().ok()
}

impl Window {
    /// For people: `09:00-20:00 mon-fri by the clock of Asia/Shanghai`.
    pub fn told(&self) -> String {
        let zone = self.clock.zone();
        let clock = match &self.clock {
            Clock::Of(_) => format!("by the clock of {zone}"),
            Clock::Row(_) => format!("by the row's own time zone, else {zone}"),
            Clock::Recipient(_) => format!("by the clocks of the recipient's country, else {zone}"),
        };
        format!("{} {} {clock}", self.hours, self.days)
    }

    /// An instant as the window's clock shows it: `2026-11-21 09:00 Asia/Shanghai`.
    pub fn shown(&self, at: Timestamp) -> String {
        self.clock.zone().shown(at)
    }
}

/// As it stands in `campaign.send_window`: `09:00-20:00 mon-fri Asia/Shanghai`, or with the word `row` or
/// `recipient` before the zone for all others.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.hours, self.days)?;
        match &self.clock {
            Clock::Of(zone) => write!(f, "{zone}"),
            Clock::Row(zone) => write!(f, "row {zone}"),
            Clock::Recipient(zone) => write!(f, "recipient {zone}"),
        }
    }
}

/// Why a text is no window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no window: write it like `09:00-20:00 mon-fri Asia/Shanghai`")]
pub struct WindowError(String);

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let read = || {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (hours, days, clock) = match words[..] {
                [hours, days, zone] => (hours, days, Clock::Of(zone.parse().ok()?)),
                [hours, days, "row", zone] => (hours, days, Clock::Row(zone.parse().ok()?)),
                [hours, days, "recipient", zone] => {
                    (hours, days, Clock::Recipient(zone.parse().ok()?))
                }
                _ => return None,
            };
            Some(Self {
                hours: hours.parse().ok()?,
                days: days.parse().ok()?,
                clock,
            })
        };
        read().ok_or_else(|| WindowError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
