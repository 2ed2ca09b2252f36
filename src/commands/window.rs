//! The flags of `import`, `run` and `set` that say when a campaign's messages may start.

use super::hinted;
use crate::import;
use crate::sms::Timestamp;
use crate::store::{Campaign, Store, WindowChange};
use crate::window::{Clock, Days, Hours, Window, Zone};

#[derive(Debug, Default, clap::Args)]
pub(super) struct WindowFlags {
    /// Send only between these hours, like 09:00-20:00; `none` lifts it [default: at any hour]
    #[arg(long, value_name = "HOURS", value_parser = asked_hours)]
    window: Option<AskedHours>,
    /// On these days, like mon-fri or mon,wed,sat-sun [default: daily]
    #[arg(long, value_name = "DAYS")]
    days: Option<Days>,
    /// Whose clock: a zone like Asia/Shanghai, `recipient` (the phone's country) or `column` (`timezone`, or that of `--column timezone=COLUMN`)
    #[arg(long, value_name = "ZONE", value_parser = asked_clock)]
    timezone: Option<AskedClock>,
    /// The zone of those whose own is not known
    #[arg(long, value_name = "ZONE")]
    fallback_timezone: Option<Zone>,
}

#[derive(Clone, Copy, Debug)]
enum AskedHours {
    None,
    Between(Hours),
}

#[derive(Clone, Debug)]
enum AskedClock {
    Of(Zone),
    Column,
    Recipient,
}

fn asked_hours(text: &str) -> Result<AskedHours, String> {
    match text.trim() {
        "none" => Ok(AskedHours::None),
        text => match text.parse() {
            Ok(hours) => Ok(AskedHours::Between(hours)),
            Err(error) => Err(format!("{error}")),
        },
    }
}

fn asked_clock(text: &str) -> Result<AskedClock, String> {
    match text.trim() {
        "column" => Ok(AskedClock::Column),
        "recipient" => Ok(AskedClock::Recipient),
        text => match text.parse() {
            Ok(zone) => Ok(AskedClock::Of(zone)),
            Err(error) => Err(format!("{error}")),
        },
    }
}

impl WindowFlags {
    /// Whether the rows bring their zones with them.
    pub(super) fn is_by_column(&self) -> bool {
        matches!(self.timezone, Some(AskedClock::Column))
    }

    /// What shall become of the window of a campaign that has `standing` now.
    pub(super) fn change(&self, standing: Option<&Window>) -> anyhow::Result<WindowChange> {
        let says_more =
            self.days.is_some() || self.timezone.is_some() || self.fallback_timezone.is_some();
        let asked = match self.window {
            None if !says_more => return Ok(WindowChange::Keep),
            Some(AskedHours::None) if says_more => {
                return Err(hinted(
                    "`--window none` has neither days nor a time zone",
                    None::<&str>,
                ));
            }
            Some(AskedHours::None) => return Ok(WindowChange::Lift),
            Some(AskedHours::Between(hours)) => Some(hours),
            None => None,
        };
        let hours = asked.or(standing.map(|window| window.hours));
        let hours = hours.ok_or_else(|| {
            hinted(
                "days and time zones belong to a window, and there is none",
                Some("give its hours too: `--window 09:00-20:00`"),
            )
        })?;
        let days = self.days.or(standing.map(|window| window.days));
        Ok(WindowChange::Set(Window {
            hours,
            days: days.unwrap_or(Days::DAILY),
            clock: self.clock(standing.map(|window| &window.clock))?,
        }))
    }

    fn clock(&self, standing: Option<&Clock>) -> anyhow::Result<Clock> {
        let fallback = self.fallback_timezone.clone();
        let stated = || match (fallback.clone(), standing) {
            (Some(zone), _) => Ok(zone),
            (None, Some(Clock::Row(zone) | Clock::Recipient(zone))) => Ok(zone.clone()),
            _ => Err(hinted(
                "not every recipient's time zone is known, and nothing says what holds for the others",
                Some("say it: `--fallback-timezone Europe/Berlin`"),
            )),
        };
        let clock = match (&self.timezone, standing) {
            (Some(AskedClock::Of(zone)), _) | (None, Some(Clock::Of(zone))) => {
                Clock::Of(zone.clone())
            }
            (Some(AskedClock::Column), _) | (None, Some(Clock::Row(_))) => Clock::Row(stated()?),
            (Some(AskedClock::Recipient), _) | (None, Some(Clock::Recipient(_))) => {
                Clock::Recipient(stated()?)
            }
            (None, None) => {
                return Err(hinted(
                    "a window needs to know whose clock it goes by",
                    Some(
                        "say it: `--timezone Asia/Shanghai`, or `--timezone recipient \
                         --fallback-timezone Asia/Shanghai`",
                    ),
                ));
            }
        };
        match clock {
            Clock::Of(_) if fallback.is_some() => Err(hinted(
                "`--fallback-timezone` is for `--timezone recipient` and `--timezone column`: \
                 here one zone holds for all",
                None::<&str>,
            )),
            clock => Ok(clock),
        }
    }
}

/// A window that opens too late for its messages is a mistake.
pub(super) fn check_opens(
    window: &Window,
    moments: import::Schedule,
    now: Timestamp,
) -> anyhow::Result<()> {
    let span = window.for_all(moments.due_at.unwrap_or(now));
    match (span, moments.expires_at) {
        (Some(span), Some(expires_at)) if expires_at <= span.opens_at => Err(hinted(
            format!(
                "the window {} opens at {}, and `--expires` is {}: nothing would be sent",
                window.told(),
                window.shown(span.opens_at),
                window.shown(expires_at)
            ),
            Some("let them expire later, or widen the window"),
        )),
        _ => Ok(()),
    }
}

/// A window that opens when everything that is queued has expired is a mistake.
pub(super) async fn check_outlived(
    store: &Store,
    campaign: &Campaign,
    window: &Window,
) -> anyhow::Result<()> {
    let Some(span) = window.for_all(store.now().await?) else {
        return Ok(());
    };
    let is_queued = store.next_due(campaign.id).await?.is_some();
    if is_queued && !store.outlives(campaign.id, span.opens_at).await? {
        let name = &campaign.name;
        return Err(hinted(
            format!(
                "the window {} opens at {}, when everything in campaign `{name}` has expired: \
                 nothing would be sent",
                window.told(),
                window.shown(span.opens_at)
            ),
            None::<&str>,
        ));
    }
    Ok(())
}
