//! Time zones, found by IANA name or by the country of a phone number.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::phone;
use crate::sms::Timestamp;
use crate::text::{closest, listed};

/// Bundled, so that zones are the same on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zones of each country, by its two-letter code.
static COUNTRIES: LazyLock<HashMap<&'static str, Vec<Zone>>> = LazyLock::new(|| {
    let lines = include_str!("countries.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(country, zones)| {
            (country, zones.split(' ').filter_map(|zone| zone.parse().ok()).collect())
        })
        .collect()
});

/// A time zone of the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of this name, in any case.
    pub(super) fn named(name: &str) -> Option<Self> {
        let zone = ZONES.get(name.trim()).ok()?;
        zone.iana_name().is_some().then_some(Self(zone))
    }

    /// All zones of the countries in which this number is valid. Empty for numbers without a country.
    pub(super) fn of_phone(phone: &str) -> Vec<Self> {
        let regions = phone::regions(phone);
        let zones = regions.iter().filter_map(|region| COUNTRIES.get(region.to_string().as_str()));
        zones.flatten().cloned().collect()
    }

    /// The offset from UTC at an instant and the instant of its next change, in seconds.
    pub(super) fn offset(&self, at: i64) -> Option<(i64, i64)> {
        let at = jiff::Timestamp::from_second(at).ok()?;
        let offset = self.0.to_offset(at).seconds();
        let change = self.0.following(at).next();
        let changes_at = change.map_or(i64::MAX, |change| change.timestamp().as_second());
        Some((i64::from(offset), changes_at))
    }

    /// This machine's zone, if it is one of the database.
    pub fn of_machine() -> Option<Self> {
        Self::named(TimeZone::system().iana_name()?)
    }

    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }

    /// `2026-11-21 09:00 Asia/Shanghai`.
    pub fn format_local(&self, at: Timestamp) -> String {
        match jiff::Timestamp::from_millisecond(at.as_millis()) {
            Ok(instant) => {
                let local = instant.to_zoned(self.0.clone());
                format!("{} {self}", local.strftime("%Y-%m-%d %H:%M"))
            }
            Err(_) => at.to_string(),
        }
    }
}

/// The codes of the countries with several time zones, in which a number does not tell its zone.
pub fn countries_with_several_zones() -> Vec<&'static str> {
    let several = COUNTRIES.iter().filter(|(_, zones)| zones.len() > 1);
    let mut countries: Vec<&str> = several.map(|(country, _)| *country).collect();
    countries.sort_unstable();
    countries
}

/// An instant in this machine's time zone and in UTC: `2026-12-24 09:00 CET (08:00 UTC)`.
pub fn local_and_utc(at: Timestamp) -> String {
    in_zone_and_utc(at, &TimeZone::system())
}

fn in_zone_and_utc(at: Timestamp, zone: &TimeZone) -> String {
    let Ok(instant) = jiff::Timestamp::from_millisecond(at.as_millis()) else {
        return at.to_string();
    };
    let local = instant.to_zoned(zone.clone());
    let utc = instant.to_zoned(TimeZone::UTC);
    let time = if local.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
    let shown = local.strftime(&format!("%Y-%m-%d {time} %Z")).to_string();
    if local.offset() == utc.offset() {
        return shown;
    }
    let day = if local.date() == utc.date() { "" } else { "%Y-%m-%d " };
    format!("{shown} ({} UTC)", utc.strftime(&format!("{day}{time}")))
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| {
            let name = text.trim();
            let known: Vec<_> = ZONES.available().collect();
            let names = known.iter().map(jiff::tz::TimeZoneName::as_str);
            let hint = match closest(name, names) {
                Some(closest) => format!("; did you mean `{closest}`?"),
                None => ": write it like `Europe/Berlin` or `UTC`".to_owned(),
            };
            format!("unknown time zone {}{hint}", listed([name]))
        })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_zone_suggests_the_closest_name() {
        for (text, name) in
            [("Asia/Shanghai", "Asia/Shanghai"), ("europe/berlin", "Europe/Berlin"), ("UTC", "UTC")]
        {
            let zone: Zone = text.parse().expect("a zone");
            assert_eq!(zone.to_string(), name);
        }
        let error = |text: &str| text.parse::<Zone>().expect_err("no zone");
        assert_eq!(
            error("Asia/Shangai"),
            "unknown time zone `Asia/Shangai`; did you mean `Asia/Shanghai`?"
        );
        assert_eq!(error("Berlin"), "unknown time zone `Berlin`; did you mean `Europe/Berlin`?");
        assert_eq!(
            error("New York"),
            "unknown time zone `New York`; did you mean `America/New_York`?"
        );
        for text in ["x", "Mars"] {
            let expected =
                format!("unknown time zone `{text}`: write it like `Europe/Berlin` or `UTC`");
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn instant_is_printed_in_local_time_and_utc() {
        let at = |text: &str| {
            let at: jiff::Timestamp = text.parse().expect("an instant");
            Timestamp::from_millis(at.as_millisecond())
        };
        for (instant, zone, shown) in [
            ("2026-12-24T08:00:00Z", "Europe/Berlin", "2026-12-24 09:00 CET (08:00 UTC)"),
            (
                "2026-12-24T23:00:05Z",
                "Asia/Shanghai",
                "2026-12-25 07:00:05 CST (2026-12-24 23:00:05 UTC)",
            ),
            ("2026-12-24T08:00:00Z", "UTC", "2026-12-24 08:00 UTC"),
        ] {
            let zone = ZONES.get(zone).expect("a zone");
            assert_eq!(in_zone_and_utc(at(instant), &zone), shown);
        }
    }

    #[test]
    fn every_zone_of_the_country_list_is_known() {
        for line in include_str!("countries.txt").lines() {
            let Some((country, zones)) = line.split_once(' ').filter(|_| !line.starts_with('#'))
            else {
                continue;
            };
            let named: Vec<&str> = zones.split(' ').collect();
            let known: Vec<String> = COUNTRIES[country].iter().map(Zone::to_string).collect();
            assert_eq!(known, named, "{country}");
        }
    }

    #[test]
    fn phone_has_the_zones_of_its_country() {
        let zones = |phone: &str| -> Vec<String> {
            Zone::of_phone(phone).iter().map(Zone::to_string).collect()
        };
        assert_eq!(zones("+8613812345678"), ["Asia/Shanghai"]);
        assert_eq!(zones("+447400123456"), ["Europe/London"]);
        let us = zones("+12025550123");
        assert!(us.contains(&"Pacific/Honolulu".to_owned()), "{us:?}");
        assert!(!us.contains(&"Pacific/Guam".to_owned()), "{us:?}");
        assert_eq!(zones("+16712345678"), ["Pacific/Guam"]);
        assert_eq!(zones("+870773111632"), Vec::<String>::new());
        assert_eq!(zones(""), Vec::<String>::new());
    }
}
