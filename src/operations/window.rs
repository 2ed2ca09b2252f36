//! A request to change a campaign's sending window, which may leave out what the window has already.

use std::str::FromStr;

use smsq_message::text::Hinted;
use smsq_message::window::{
    Days, Hours, SendWindow, Zone, ZoneSource, countries_with_several_zones,
};
use smsq_store::WindowChange;

#[derive(Clone, Debug, Default)]
pub struct WindowRequest {
    pub hours: Option<HoursChoice>,
    pub days: Option<Days>,
    pub zone: Option<ZoneChoice>,
    /// For recipients whose own zone is unknown.
    pub fallback: Option<Zone>,
}

#[derive(Clone, Copy, Debug)]
pub enum HoursChoice {
    /// At any hour.
    None,
    Between(Hours),
}

#[derive(Clone, Debug)]
pub enum ZoneChoice {
    Zone(Zone),
    Column,
    Recipient,
}

impl FromStr for HoursChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "none" => Ok(Self::None),
            text => text.parse().map(Self::Between),
        }
    }
}

impl FromStr for ZoneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "column" => Ok(Self::Column),
            "recipient" => Ok(Self::Recipient),
            text => text.parse().map(Self::Zone),
        }
    }
}

impl From<SendWindow> for WindowRequest {
    fn from(window: SendWindow) -> Self {
        let (zone, fallback) = match window.zone {
            ZoneSource::Fixed(zone) => (ZoneChoice::Zone(zone), None),
            ZoneSource::Column(fallback) => (ZoneChoice::Column, Some(fallback)),
            ZoneSource::Recipient(fallback) => (ZoneChoice::Recipient, Some(fallback)),
        };
        Self {
            hours: Some(HoursChoice::Between(window.hours)),
            days: Some(window.days),
            zone: Some(zone),
            fallback,
        }
    }
}

impl WindowRequest {
    /// Whether each row has its own time zone.
    pub fn is_by_column(&self) -> bool {
        matches!(self.zone, Some(ZoneChoice::Column))
    }

    /// How the request changes a campaign's window.
    pub fn change(&self, current: Option<&SendWindow>) -> Result<WindowChange, Hinted> {
        let has_more = self.days.is_some() || self.zone.is_some() || self.fallback.is_some();
        let hours = match (self.hours, has_more, current) {
            (None, false, _) => return Ok(WindowChange::Keep),
            (None, true, Some(current)) => current.hours,
            (None, true, None) => {
                return Err(Hinted::new(
                    "missing `--window`: days and a time zone need one",
                    "add the hours: `--window 09:00-20:00`",
                ));
            }
            (Some(HoursChoice::None), false, _) => return Ok(WindowChange::Lift),
            (Some(HoursChoice::None), true, _) => {
                return Err(Hinted::plain(
                    "`--window none` cannot be combined with days or a time zone",
                ));
            }
            (Some(HoursChoice::Between(hours)), ..) => hours,
        };
        let days = self.days.or(current.map(|window| window.days));
        Ok(WindowChange::Set(SendWindow {
            hours,
            days: days.unwrap_or(Days::DAILY),
            zone: self.zone_in(current.map(|window| &window.zone))?,
        }))
    }

    fn zone_in(&self, current: Option<&ZoneSource>) -> Result<ZoneSource, Hinted> {
        let fallback = || match (&self.fallback, current) {
            (Some(zone), _)
            | (None, Some(ZoneSource::Column(zone) | ZoneSource::Recipient(zone))) => {
                Ok(zone.clone())
            }
            _ => Err(Hinted::new(
                format!(
                    "missing `--fallback-timezone`: not every recipient's time zone is known; countries with several \
                     zones are {}",
                    countries_with_several_zones().join(", ")
                ),
                "add one such as `--fallback-timezone Europe/Berlin`",
            )),
        };
        match (&self.zone, current) {
            (Some(ZoneChoice::Zone(zone)), _) | (None, Some(ZoneSource::Fixed(zone))) => {
                if self.fallback.is_some() {
                    return Err(Hinted::plain(
                        "`--fallback-timezone` needs `--timezone recipient` or `--timezone column`",
                    ));
                }
                Ok(ZoneSource::Fixed(zone.clone()))
            }
            (Some(ZoneChoice::Column), _) | (None, Some(ZoneSource::Column(_))) => {
                Ok(ZoneSource::Column(fallback()?))
            }
            (Some(ZoneChoice::Recipient), _) | (None, Some(ZoneSource::Recipient(_))) => {
                Ok(ZoneSource::Recipient(fallback()?))
            }
            (None, None) => Err(Hinted::new(
                "missing `--timezone`: a sending window needs one",
                "add `--timezone Asia/Shanghai`, or `--timezone recipient --fallback-timezone Asia/Shanghai`",
            )),
        }
    }
}
