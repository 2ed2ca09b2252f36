//! One run of the sender, as `send` and `run` show it: the campaigns it may touch, a progress bar, the
//! signals that stop it, and how it ended.

mod ask;
mod watch;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::providers::{senderless, unset};
use super::status::lost_text;
use super::words::{duration, messages, positive, rates};
use super::{Context, hinted};
use crate::config::{MANY_CONCURRENCY, MAX_CONCURRENCY};
use crate::console::Console;
use crate::exit::Exit;
use crate::provider::Provider;
use crate::rate::Rates;
use crate::report::{Standing, shell_word};
use crate::sender::{Ended, Sender, Settings, Summary};
use crate::store::inspect::Totals;
use crate::store::{Campaign, CampaignStatus, Store};
use crate::window::local_and_utc;
use watch::watched;

pub(super) use watch::Aborted;

/// How `send` and `run` send.
#[derive(Debug, clap::Args)]
pub(crate) struct Pace {
    /// A limit beside the provider's and the campaign's: 100/s, 300/min, 20000/day; several with commas
    #[arg(long, value_name = "RATE", value_parser = rates)]
    pub(crate) rate: Option<Rates>,
    /// Messages in flight at once [default: setting `sender.slots`, 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CONCURRENCY)))]
    pub(crate) concurrency: Option<u32>,
    /// Stop after this number of messages was sent or failed
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) limit: Option<u64>,
    /// A message that was perhaps accepted: hold it, or resend it [default: setting, hold]
    #[arg(long, value_name = "WHAT", value_parser = ["hold", "resend"])]
    pub(crate) on_unknown: Option<String>,
    /// End instead of waiting for a window to open, for what is due later than any retry, or for a provider that
    /// asked to wait longer than that
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// What is to be sent.
pub(super) struct Work<'a> {
    /// `None`: all campaigns.
    pub(super) campaign: Option<&'a str>,
    pub(super) pace: &'a Pace,
    pub(super) follow: bool,
    /// Somebody at a terminal is asked before a large campaign.
    pub(super) asks: bool,
}

/// What came of it.
pub(super) struct Delivery {
    pub(super) summary: Summary,
    /// How the campaigns stand afterwards that had something to do, or the one that was named.
    pub(super) standings: Vec<Standing>,
    /// Messages of campaigns that do not exist, if all campaigns were sent.
    pub(super) lost: Vec<(i64, u64)>,
    /// The signal that stopped it.
    signal: Option<Exit>,
}

impl Delivery {
    /// Sends; `None` where the operator said no.
    pub(super) async fn run(
        context: &Context,
        store: &Store,
        work: &Work<'_>,
    ) -> anyhow::Result<Option<Self>> {
        let campaigns = campaigns(context, store, work).await?;
        let total = campaigns
            .iter()
            .map(|(_, totals)| totals.queued + totals.sending)
            .sum();
        let sender = sender(context, store, work, &campaigns)?;
        if work.asks && !ask::is_meant(context, store, work, &campaigns).await? {
            return Ok(None);
        }
        if work.follow {
            warn_of_lost(&context.console, &store.without_campaign().await?);
        }
        announce(context, &campaigns);
        if !work.pace.no_wait {
            announce_windows(context, store, &campaigns).await?;
        }
        if context.config.sender.concurrency > MANY_CONCURRENCY {
            let concurrency = context.config.sender.concurrency;
            let warning =
                format!("{concurrency} slots are many: few providers like so many connections");
            context.console.warn(&warning);
        }
        let is_idle = campaigns
            .iter()
            .all(|(_, totals)| totals.queued + totals.sending + totals.unknown == 0);
        let (summary, signal) = if is_idle && !work.follow {
            (idle(), None)
        } else {
            let total = (!work.follow).then(|| work.pace.limit.unwrap_or(u64::MAX).min(total));
            watched(&context.console, sender, total).await?
        };
        let mut standings = Vec::new();
        for (campaign, _) in &campaigns {
            // Its state may have changed meanwhile.
            let campaign = context.campaign(store, &campaign.name).await?;
            standings.push(Standing::of(store, &campaign).await?);
        }
        let lost = match work.campaign {
            Some(_) => Vec::new(),
            None => store.without_campaign().await?,
        };
        Ok(Some(Self {
            summary,
            standings,
            lost,
            signal,
        }))
    }

    /// Whether nothing more shall be sent in this run.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.summary.ended, Ended::Stopped | Ended::Limit)
    }

    /// Several, one after the other, as one.
    pub(super) fn joined(deliveries: Vec<Self>) -> Option<Self> {
        deliveries.into_iter().reduce(|mut all, next| {
            let sum = &mut all.summary;
            let next_summary = next.summary;
            sum.elapsed += next_summary.elapsed;
            sum.attempts += next_summary.attempts;
            sum.sent += next_summary.sent;
            sum.failed += next_summary.failed;
            sum.unknown += next_summary.unknown;
            sum.retried += next_summary.retried;
            sum.trouble = next_summary.trouble.or(sum.trouble.take());
            sum.ended = match (
                std::mem::replace(&mut sum.ended, Ended::Done),
                next_summary.ended,
            ) {
                (Ended::Halted(mut halted), Ended::Halted(more)) => {
                    halted.extend(more);
                    Ended::Halted(halted)
                }
                (Ended::Waiting(mut waiting), Ended::Waiting(more)) => {
                    waiting.extend(more);
                    Ended::Waiting(waiting)
                }
                (halted @ Ended::Halted(_), Ended::Done | Ended::Limit | Ended::Waiting(_))
                | (halted @ Ended::Waiting(_), Ended::Done | Ended::Limit) => halted,
                (_, ended) => ended,
            };
            all.standings.extend(next.standings);
            all.lost.extend(next.lost);
            all.signal = all.signal.or(next.signal);
            all
        })
    }

    /// Messages that were sent, per second.
    pub(super) fn rate(&self) -> f64 {
        let sent = u32::try_from(self.summary.sent).map_or(f64::MAX, f64::from);
        sent / self.summary.elapsed.as_secs_f64().max(0.001)
    }

    pub(super) fn exit(&self) -> Exit {
        let totals: Totals = self.standings.iter().map(|one| one.totals).sum();
        let is_halted =
            |one: &Standing| matches!(one.state, "paused" | "stopped") && one.totals.queued > 0;
        match (&self.summary.ended, self.signal) {
            (Ended::Stopped, signal) => signal.unwrap_or(Exit::Interrupted),
            (Ended::Halted(_) | Ended::Waiting(_), _) => Exit::Halted,
            (Ended::Done | Ended::Limit, _) if self.standings.iter().any(is_halted) => Exit::Halted,
            (Ended::Done | Ended::Limit, _)
                if totals.failed + totals.unknown > 0 || !self.lost.is_empty() =>
            {
                Exit::Incomplete
            }
            (Ended::Done | Ended::Limit, _) => Exit::Done,
        }
    }

    /// `sent 487 messages in 12 s (40/s)`, and what else there is to count.
    pub(super) fn text(&self) -> String {
        let summary = &self.summary;
        if summary.attempts == 0 && summary.sent + summary.failed + summary.unknown == 0 {
            return "nothing was sent\n".to_owned();
        }
        let mut text = format!(
            "sent {} in {}",
            messages(summary.sent),
            duration(summary.elapsed)
        );
        if summary.sent > 0 {
            let _ = write!(text, " ({:.0}/s)", self.rate());
        }
        for (count, word) in [
            (summary.retried, "tried again"),
            (summary.failed, "failed"),
            (summary.unknown, "unknown"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {word}");
            }
        }
        text.push('\n');
        text
    }

    /// Why it ended before the end, and what to do about it.
    pub(super) fn explain(&self, console: &Console) {
        let queued: u64 = self.standings.iter().map(|one| one.totals.queued).sum();
        if let Some(trouble) = &self.summary.trouble {
            console.say(&format!(
                "{trouble}; is its `url` right? `smsq providers test` shows the whole exchange"
            ));
        }
        match &self.summary.ended {
            Ended::Stopped if queued == 0 => console.say("stopped"),
            Ended::Stopped => console.say(&format!(
                "stopped; {} left: `smsq send` goes on from here",
                messages(queued)
            )),
            Ended::Limit if queued > 0 => {
                console.say(&format!("limit reached; {} left", messages(queued)));
            }
            Ended::Halted(campaigns) => {
                for (campaign, reason) in campaigns {
                    let hint = self.way_on(campaign);
                    console.error(&format!("campaign `{campaign}`: {reason}"), Some(&hint));
                }
            }
            Ended::Waiting(campaigns) => {
                for (campaign, until) in campaigns {
                    console.say(&format!(
                        "campaign `{campaign}` waits until {until}; nothing was lost: `smsq send` goes on then"
                    ));
                }
            }
            Ended::Done | Ended::Limit => {}
        }
        warn_of_lost(console, &self.lost);
        for one in &self.standings {
            if one.totals.failed + one.totals.unknown > 0 {
                console.say(&format!(
                    "`smsq report --campaign {} --failed` says who was not reached and why",
                    shell_word(&one.campaign)
                ));
            }
        }
    }

    fn way_on(&self, campaign: &str) -> String {
        let word = shell_word(campaign);
        let standing = self.standings.iter().find(|one| one.campaign == campaign);
        match standing.map(|one| one.state) {
            Some("paused") => {
                format!("nothing was lost; `smsq resume --campaign {word}`, then `smsq send`")
            }
            _ => "nothing was lost; mend it and `smsq send` again".to_owned(),
        }
    }
}

/// Messages that no campaign has are never sent.
fn warn_of_lost(console: &Console, lost: &[(i64, u64)]) {
    for (campaign, count) in lost {
        console.error(
            &lost_text(*campaign, *count),
            Some("give them the `campaign_id` of a campaign in table `campaign`"),
        );
    }
}

/// The campaigns to send and their counts: the one that was named, or all that have something to do.
async fn campaigns(
    context: &Context,
    store: &Store,
    work: &Work<'_>,
) -> anyhow::Result<Vec<(Campaign, Totals)>> {
    if let Some(name) = work.campaign {
        let campaign = context.campaign(store, name).await?;
        let totals = store.totals(Some(campaign.id)).await?;
        return match campaign.state {
            CampaignStatus::Cancelled => Err(hinted(
                format!("campaign `{name}` is cancelled"),
                Some("import its list again, or `smsq resume` it"),
            )),
            _ => Ok(vec![(campaign, totals)]),
        };
    }
    let mut campaigns = store.campaign_totals().await?;
    campaigns.retain(|(campaign, totals)| {
        let has_work = totals.queued + totals.sending + totals.unknown > 0;
        has_work && campaign.state != CampaignStatus::Cancelled
    });
    Ok(campaigns)
}

/// The sender gives a stopped campaign another chance.
fn announce(context: &Context, campaigns: &[(Campaign, Totals)]) {
    for (campaign, _) in campaigns {
        if campaign.state == CampaignStatus::Stopped {
            let reason = campaign
                .state_reason
                .as_deref()
                .unwrap_or("no reason was noted");
            let name = &campaign.name;
            let said = format!("campaign `{name}` was stopped ({reason}): trying again");
            context.console.say(&said);
        }
    }
}

/// Sending waits for campaigns that start later and for the windows that are closed now.
async fn announce_windows(
    context: &Context,
    store: &Store,
    campaigns: &[(Campaign, Totals)],
) -> anyhow::Result<()> {
    for (campaign, totals) in campaigns {
        if totals.queued > 0
            && campaign.window.is_none()
            && let Some(first) = store.first_due(campaign.id).await?
        {
            let now = store.now().await?;
            if first.attempts == 0 && first.due_at > now {
                context.console.say(&format!(
                    "campaign `{}` starts {}: waiting for {} (`--no-wait` ends instead)",
                    campaign.name,
                    local_and_utc(first.due_at),
                    duration(first.due_at.since(now))
                ));
            }
        }
        let Some(window) = campaign.window.as_ref().filter(|_| totals.queued > 0) else {
            continue;
        };
        let now = store.now().await?;
        if let Some(span) = window.for_all(now).filter(|span| !span.contains(now)) {
            context.console.say(&format!(
                "campaign `{}` may be sent {}: waiting until {}, for {} (`--no-wait` ends instead)",
                campaign.name,
                window.told(),
                window.shown(span.opens_at),
                duration(span.opens_at.since(now))
            ));
        }
    }
    Ok(())
}

fn sender(
    context: &Context,
    store: &Store,
    work: &Work<'_>,
    campaigns: &[(Campaign, Totals)],
) -> anyhow::Result<Sender> {
    let config = &context.config;
    let default = config.default_provider.as_deref();
    let mut needed = BTreeSet::new();
    let mut senderless = Vec::new();
    let mut with_work = 0;
    for (campaign, totals) in campaigns {
        let has_work = totals.queued + totals.sending > 0;
        if has_work
            && matches!(
                campaign.state,
                CampaignStatus::Active | CampaignStatus::Stopped
            )
        {
            let name = campaign.provider.as_deref().or(default);
            let name = name.ok_or_else(|| no_provider(&config.own_providers))?;
            needed.insert(name);
            with_work += 1;
            if campaign.sender.is_none() {
                senderless.push((name, &campaign.name));
            }
        }
    }
    if work.follow {
        needed.insert(default.ok_or_else(|| no_provider(&config.own_providers))?);
    }
    let mut providers = context.providers(needed.into_iter())?;
    if let Some((message, hint)) = providers.values().find_map(unset) {
        return Err(hinted(message, Some(&hint)));
    }
    senderless.retain(|(name, _)| providers.get(*name).is_some_and(Provider::needs_sender));
    let can_send = work.follow || senderless.len() < with_work;
    for (name, campaign) in senderless {
        let (message, hint) = self::senderless(name, campaign);
        if !can_send {
            return Err(hinted(message, Some(&hint)));
        }
        // It stops, and the others go on.
        context.console.warn(&format!("{message}: {hint}"));
    }
    // What others queue meanwhile may need one of these; a faulty one must not stop the rest.
    for name in &config.own_providers {
        if !providers.contains_key(name)
            && let Ok(provider) = context.provider(name)
        {
            providers.insert(name.clone(), provider);
        }
    }
    let settings = Settings {
        sender: config.sender.clone(),
        retry: config.retry.clone(),
        breaker: config.circuit_breaker.clone(),
        auto_pause: config.auto_pause,
        default_provider: config.default_provider.clone(),
        default_region: config.default_region,
        campaign: work.campaign.map(str::to_owned),
        rate: work.pace.rate.clone(),
        limit: work.pace.limit,
        follow: work.follow,
        wait: !work.pace.no_wait,
        state_folder: state_folder(context),
    };
    Ok(Sender::new(store.clone(), providers, settings))
}

/// Where programs keep what outlives them, by the XDG base directory specification.
fn state_folder(context: &Context) -> Option<PathBuf> {
    let state = context.variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(context.variable("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("smsq"))
}

fn no_provider(own: &[String]) -> anyhow::Error {
    if !own.is_empty() {
        let message = format!(
            "several providers are configured ({}), and none is chosen",
            own.join(", ")
        );
        return hinted(message, Some("set `default_provider` in smsq.toml"));
    }
    hinted(
        "no provider is configured: nobody can send these messages",
        Some(
            "`smsq init` writes an example; `smsq run FILE` without one practises on this machine",
        ),
    )
}

/// What a run does that finds nothing to do.
fn idle() -> Summary {
    Summary {
        ended: Ended::Done,
        elapsed: Duration::ZERO,
        attempts: 0,
        sent: 0,
        failed: 0,
        unknown: 0,
        retried: 0,
        trouble: None,
    }
}
