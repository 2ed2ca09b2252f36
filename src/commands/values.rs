//! Parses values of the command line.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use smsq_message::window::{Days, Zone};
use smsq_operations::{HoursChoice, WindowRequest, ZoneChoice};

pub(crate) use smsq_import::{assignment, campaign_name};

/// A duration such as `30min`.
pub(crate) fn span(text: &str) -> Result<Duration, &'static str> {
    let span = SpanParser::new().parse_unsigned_duration(text.trim());
    span.map_err(|_| "write a duration such as `30min` or `2h`")
}

/// A number from 1.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

/// The campaign of a command, `NAME` or `--campaign NAME`.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct CampaignName {
    /// The campaign
    #[arg(value_name = "NAME", value_parser = campaign_name)]
    name: Option<String>,
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
}

impl CampaignName {
    pub(crate) fn as_str(&self) -> &str {
        let name = self.name.as_deref().or(self.campaign.as_deref());
        name.expect("one of the two is required")
    }
}

/// The sending window of a campaign.
#[derive(Debug, Default, clap::Args)]
pub(super) struct WindowFlags {
    /// Send only between these hours, such as 09:00-20:00; `none` removes the window [default: at any hour]
    #[arg(long, value_name = "HOURS")]
    window: Option<HoursChoice>,
    /// On these days, such as mon-fri or mon,wed,sat-sun [default: daily]
    #[arg(long, value_name = "DAYS")]
    days: Option<Days>,
    /// The time zone of the window: a zone such as Asia/Shanghai, `recipient` (of the phone's country) or `column` (of column `timezone`, or `--column timezone=COLUMN`)
    #[arg(long, value_name = "ZONE")]
    timezone: Option<ZoneChoice>,
    /// The time zone of recipients whose own is unknown
    #[arg(long, value_name = "ZONE")]
    fallback_timezone: Option<Zone>,
}

impl WindowFlags {
    pub(super) fn request(&self) -> WindowRequest {
        WindowRequest {
            hours: self.window,
            days: self.days,
            zone: self.timezone.clone(),
            fallback: self.fallback_timezone.clone(),
        }
    }
}
