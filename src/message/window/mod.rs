//! Sending windows: the hours and days in which a campaign's messages may start, in the time zone of the campaign,
//! of each row or of each recipient's country. Pure: an instant goes in, the span that contains or follows it
//! comes out.
//!
//! Windows are evaluated in local wall-clock time: one that opens in an hour that daylight saving skips opens when
//! the next hour begins, and an hour that is repeated counts twice.

mod hours;
mod zone;

use std::fmt;
use std::slice;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

pub use hours::{Days, Hours};
pub use zone::{Zone, countries_with_several_zones, local_and_utc};

use super::sms::Timestamp;

/// The key of a message's `params` that names the recipient's time zone.
pub const TIMEZONE: &str = "timezone";
/// Every window opens within this many seconds: a week, and a clock change.
const LOOK_AHEAD: i64 = 9 * DAY;
const DAY: i64 = 86_400;

/// When a campaign's messages may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWindow {
    pub hours: Hours,
    pub days: Days,
    pub zone: ZoneSource,
}

/// Which time zone a window is evaluated in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneSource {
    /// One zone for all messages.
    Fixed(Zone),
    /// The zone in the message's `params`, or this one if it has none.
    Column(Zone),
    /// Every zone of the recipient's country at once, or this one if the country is unknown.
    Recipient(Zone),
}

impl ZoneSource {
    /// The zone for all messages, or the fallback.
    pub fn zone(&self) -> &Zone {
        match self {
            Self::Fixed(zone) | Self::Column(zone) | Self::Recipient(zone) => zone,
        }
    }
}

/// The time in which messages may start; `closes_at` is outside.
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

/// The parts of a message that decide its time zone.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// E.164 with `+`.
    pub phone: &'a str,
    /// The imported columns, a JSON object.
    pub params: &'a str,
}

impl SendWindow {
    /// The span for every message of the campaign that contains `now`, or the next one. `None` if it depends on the
    /// message.
    pub fn for_all(&self, now: Timestamp) -> Option<Span> {
        match &self.zone {
            ZoneSource::Fixed(zone) => Some(self.span(slice::from_ref(zone), now)),
            ZoneSource::Column(_) | ZoneSource::Recipient(_) => None,
        }
    }

    /// Whether messages may start at `now`, by the fallback zone if the zone depends on the message.
    pub fn contains(&self, now: Timestamp) -> bool {
        let span = self.span(slice::from_ref(self.zone.zone()), now);
        span.contains(now)
    }

    /// The span for a message to this recipient that contains `now`, or the next one. The fallback zone decides
    /// where the zones of the recipient's country are never inside the window at the same time.
    pub fn for_one(&self, recipient: Recipient<'_>, now: Timestamp) -> Span {
        let zones = match &self.zone {
            ZoneSource::Fixed(_) => Vec::new(),
            ZoneSource::Column(_) => timezone_of(recipient.params).into_iter().collect(),
            ZoneSource::Recipient(_) => Zone::of_phone(recipient.phone),
        };
        let common = self.intersection(&zones, now).filter(|_| !zones.is_empty());
        common.unwrap_or_else(|| self.span(slice::from_ref(self.zone.zone()), now))
    }

    /// When sending that takes `left` and begins at `now` ends, pausing outside the window.
    pub fn end_of(&self, now: Timestamp, mut left: Duration) -> Timestamp {
        let zone = slice::from_ref(self.zone.zone());
        let mut at = now;
        loop {
            let span = self.span(zone, at);
            let begins_at = span.opens_at.max(at);
            let room = span.closes_at.since(begins_at);
            if left <= room || room.is_zero() {
                return begins_at.plus(left);
            }
            left -= room;
            at = span.closes_at;
        }
    }

    /// How much of the time between two instants is inside the window.
    pub fn open_between(&self, from: Timestamp, until: Timestamp) -> Duration {
        let zone = slice::from_ref(self.zone.zone());
        let mut open = Duration::ZERO;
        let mut at = from;
        while at < until {
            let span = self.span(zone, at);
            open += span.closes_at.min(until).since(span.opens_at.max(at));
            at = span.closes_at;
        }
        open
    }

    /// The next span, empty where a week has none: a window whose only hour of the week is skipped by a clock change.
    fn span(&self, zones: &[Zone], now: Timestamp) -> Span {
        let later = now.plus(Duration::from_secs(LOOK_AHEAD.unsigned_abs()));
        self.intersection(zones, now).unwrap_or(Span { opens_at: later, closes_at: later })
    }

    /// The first span from `now` on in which the local times of all zones are inside the window.
    fn intersection(&self, zones: &[Zone], now: Timestamp) -> Option<Span> {
        let from = now.as_millis().div_euclid(1_000);
        let mut at = from;
        while at <= from + LOOK_AHEAD {
            let mut opens = at;
            let mut closes = i64::MAX;
            for zone in zones {
                let (zone_opens, zone_closes) = self.next_in(zone, at)?;
                opens = opens.max(zone_opens);
                closes = closes.min(zone_closes);
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

    /// The first seconds, from `from` on, at which one zone's local time enters and leaves the window.
    fn next_in(&self, zone: &Zone, from: i64) -> Option<(i64, i64)> {
        let mut at = from;
        let mut opened = None;
        while at <= from + LOOK_AHEAD {
            let (offset, changes_at) = zone.offset(at)?;
            let local = at + offset;
            let next = if self.contains_local(local) {
                opened.get_or_insert(at);
                at + self.hours.closes - local.rem_euclid(DAY)
            } else if let Some(opened) = opened {
                return Some((opened, at));
            } else {
                at + self.until_opening(local)
            };
            at = next.min(changes_at);
        }
        opened.map(|opened| (opened, at))
    }

    /// Whether a local time, in seconds since 1970, is inside.
    fn contains_local(&self, local: i64) -> bool {
        let hours = self.hours.opens..self.hours.closes;
        self.days.contains(local.div_euclid(DAY)) && hours.contains(&local.rem_euclid(DAY))
    }

    /// Seconds from a local time outside the window to its next opening, without clock changes.
    fn until_opening(&self, local: i64) -> i64 {
        let (today, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        (0..=7)
            .filter(|ahead| self.days.contains(today + ahead))
            .map(|ahead| ahead * DAY + self.hours.opens - time)
            .find(|ahead| *ahead > 0)
            .unwrap_or(DAY)
    }

    /// For people: `09:00-20:00 mon-fri in Asia/Shanghai`.
    pub fn describe(&self) -> String {
        let zone = self.zone.zone();
        let place = match &self.zone {
            ZoneSource::Fixed(_) => format!("in {zone}"),
            ZoneSource::Column(_) => format!("in the row's time zone, else {zone}"),
            ZoneSource::Recipient(_) => format!("in the recipient's country, else {zone}"),
        };
        format!("{} {} {place}", self.hours, self.days)
    }

    /// An instant in the window's time zone: `2026-11-21 09:00 Asia/Shanghai`.
    pub fn format_local(&self, at: Timestamp) -> String {
        self.zone.zone().format_local(at)
    }
}

/// The zone in a message's columns, if there is a valid one.
fn timezone_of(params: &str) -> Option<Zone> {
    #[derive(Deserialize)]
    struct TimezoneColumn {
        timezone: Option<String>,
    }
    let columns: TimezoneColumn = serde_json::from_str(params).ok()?;
    Zone::named(&columns.timezone?)
}

/// The value of `campaign.send_window`: `09:00-20:00 mon-fri Asia/Shanghai`, with `column` or `recipient` before a
/// fallback zone.
impl fmt::Display for SendWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.hours, self.days)?;
        match &self.zone {
            ZoneSource::Fixed(zone) => write!(f, "{zone}"),
            ZoneSource::Column(zone) => write!(f, "column {zone}"),
            ZoneSource::Recipient(zone) => write!(f, "recipient {zone}"),
        }
    }
}

impl FromStr for SendWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (hours, days, source, zone): (_, _, fn(Zone) -> ZoneSource, _) = match words[..] {
                [hours, days, zone] => (hours, days, ZoneSource::Fixed, zone),
                [hours, days, "column", zone] => (hours, days, ZoneSource::Column, zone),
                [hours, days, "recipient", zone] => (hours, days, ZoneSource::Recipient, zone),
                _ => return None,
            };
            Some(Self {
                hours: hours.parse().ok()?,
                days: days.parse().ok()?,
                zone: source(Zone::named(zone)?),
            })
        };
        parse().ok_or_else(|| {
            format!(
                "invalid sending window `{text}`: write it like `09:00-20:00 mon-fri Asia/Shanghai`"
            )
        })
    }
}

#[cfg(test)]
mod tests;
