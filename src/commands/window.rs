//! The flags of `import`, `run` and `set` for a campaign's sending window.

use anyhow::bail;

use super::with_hint;
use crate::import;
use crate::sms::Timestamp;
use crate::store::WindowChange;
use crate::window::{Days, Hours, SendWindow, Zone, ZoneSource, countries_with_several_zones};

#[derive(Debug, Default, clap::Args)]
pub(super) struct WindowFlags {
    /// Send only between these hours, such as 09:00-20:00; `none` removes the window [default: at any hour]
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    window: Option<HoursArg>,
    /// On these days, such as mon-fri or mon,wed,sat-sun [default: daily]
    #[arg(long, value_name = "DAYS")]
    days: Option<Days>,
    /// The time zone of the window: a zone such as Asia/Shanghai, `recipient` (of the phone's country) or `column` (of column `timezone`, or `--column timezone=COLUMN`)
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    timezone: Option<ZoneArg>,
    /// The time zone of recipients whose own is unknown
    #[arg(long, value_name = "ZONE")]
    fallback_timezone: Option<Zone>,
}

#[derive(Clone, Copy, Debug)]
enum HoursArg {
    None,
    Between(Hours),
}

#[derive(Clone, Debug)]
enum ZoneArg {
    Zone(Zone),
    Column,
    Recipient,
}

fn hours(text: &str) -> Result<HoursArg, String> {
    match text.trim() {
        "none" => Ok(HoursArg::None),
        text => text.parse().map(HoursArg::Between),
    }
}

fn zone(text: &str) -> Result<ZoneArg, String> {
    match text.trim() {
        "column" => Ok(ZoneArg::Column),
        "recipient" => Ok(ZoneArg::Recipient),
        text => text.parse().map(ZoneArg::Zone),
    }
}

impl WindowFlags {
    /// Sets the flag of that name; returns whether there is one.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "window" => self.window = Some(hours(value)?),
            "days" => self.days = Some(value.parse()?),
            "timezone" => self.timezone = Some(zone(value)?),
            "fallback-timezone" => self.fallback_timezone = Some(value.parse()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether each row has its own time zone.
    pub(super) fn is_by_column(&self) -> bool {
        matches!(self.timezone, Some(ZoneArg::Column))
    }

    /// How the flags change a campaign's window.
    pub(super) fn change(&self, current: Option<&SendWindow>) -> anyhow::Result<WindowChange> {
        let has_more =
            self.days.is_some() || self.timezone.is_some() || self.fallback_timezone.is_some();
        let hours = match (self.window, has_more, current) {
            (None, false, _) => return Ok(WindowChange::Keep),
            (None, true, Some(current)) => current.hours,
            (None, true, None) => {
                return Err(with_hint(
                    "missing `--window`: days and a time zone need one",
                    "add the hours: `--window 09:00-20:00`",
                ));
            }
            (Some(HoursArg::None), false, _) => return Ok(WindowChange::Lift),
            (Some(HoursArg::None), true, _) => {
                bail!("`--window none` cannot be combined with days or a time zone")
            }
            (Some(HoursArg::Between(hours)), ..) => hours,
        };
        let days = self.days.or(current.map(|window| window.days));
        Ok(WindowChange::Set(SendWindow {
            hours,
            days: days.unwrap_or(Days::DAILY),
            zone: self.zone(current.map(|window| &window.zone))?,
        }))
    }

    fn zone(&self, current: Option<&ZoneSource>) -> anyhow::Result<ZoneSource> {
        let fallback = || match (&self.fallback_timezone, current) {
            (Some(zone), _)
            | (None, Some(ZoneSource::Column(zone) | ZoneSource::Recipient(zone))) => {
                Ok(zone.clone())
            }
            _ => Err(with_hint(
                format!(
                    "missing `--fallback-timezone`: not every recipient's time zone is known; countries with several \
                     zones are {}",
                    countries_with_several_zones().join(", ")
                ),
                "add one such as `--fallback-timezone Europe/Berlin`",
            )),
        };
        match (&self.timezone, current) {
            (Some(ZoneArg::Zone(zone)), _) | (None, Some(ZoneSource::Fixed(zone))) => {
                if self.fallback_timezone.is_some() {
                    bail!(
                        "`--fallback-timezone` needs `--timezone recipient` or `--timezone column`"
                    );
                }
                Ok(ZoneSource::Fixed(zone.clone()))
            }
            (Some(ZoneArg::Column), _) | (None, Some(ZoneSource::Column(_))) => {
                Ok(ZoneSource::Column(fallback()?))
            }
            (Some(ZoneArg::Recipient), _) | (None, Some(ZoneSource::Recipient(_))) => {
                Ok(ZoneSource::Recipient(fallback()?))
            }
            (None, None) => Err(with_hint(
                "missing `--timezone`: a sending window needs one",
                "add `--timezone Asia/Shanghai`, or `--timezone recipient --fallback-timezone Asia/Shanghai`",
            )),
        }
    }
}

/// Fails if the messages expire before the window opens.
pub(super) fn check_opens(
    window: &SendWindow,
    schedule: import::Schedule,
    now: Timestamp,
) -> anyhow::Result<()> {
    let span = window.for_all(schedule.due_at.unwrap_or(now));
    match (span, schedule.expires_at) {
        (Some(span), Some(expires_at)) if expires_at <= span.opens_at => Err(with_hint(
            format!(
                "nothing would be sent: the window {} opens at {}, and `--expires` is {}",
                window.describe(),
                window.format_local(span.opens_at),
                window.format_local(expires_at)
            ),
            "set a later `--expires`, or widen the window",
        )),
        _ => Ok(()),
    }
}
