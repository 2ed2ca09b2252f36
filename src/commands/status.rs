//! `smsq status`: how the campaigns stand and who sends, now or as it goes on.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::Context;
use super::signals::Signals;
use super::words::{campaign_name, duration, messages};
use crate::exit::Exit;
use crate::report::{self, Active, Standing, in_words};
use crate::sms::Timestamp;
use crate::store::inspect::Totals;
use crate::store::{ProviderPause, Store};

const EXAMPLES: &str = "\
Examples:
  smsq status
  smsq status --campaign welcome-3f2a91 --format json
  smsq status --watch                  look again every second until nothing is left to send";

const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Show how many messages are queued, sent, failed and unknown, campaign by campaign
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// Look again every second until nothing is left to send; Ctrl-C ends it
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store_to_read().await?;
    let mut signals = args.watch.then(Signals::listen).transpose()?;
    let mut pace = Pace::default();
    loop {
        let standings = standings(args, context, &store).await?;
        let workers = Active::all(&store).await?;
        let now = store.now().await?;
        let lost = match &args.campaign {
            Some(_) => Vec::new(),
            None => store.without_campaign().await?,
        };
        if args.watch && context.console.terminal && !context.is_json() {
            context.console.clear()?;
        }
        let notes = Notes::gather(&store, &standings, now).await?;
        let bar = args.watch.then(|| {
            let totals = standings.iter().map(|one| one.totals).sum();
            pace.look(&totals, now)
        });
        print(
            args,
            context,
            &standings,
            &lost,
            (&workers, now),
            (&notes, bar),
        )?;
        let Some(signals) = signals.as_mut() else {
            return Ok(Exit::Done);
        };
        if standings.iter().all(Standing::is_over) {
            return Ok(Exit::Done);
        }
        tokio::select! {
            exit = signals.next() => return Ok(exit),
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    }
}

async fn standings(args: &Args, context: &Context, store: &Store) -> anyhow::Result<Vec<Standing>> {
    Ok(match &args.campaign {
        Some(name) => {
            let campaign = context.campaign(store, name).await?;
            vec![Standing::of(store, &campaign).await?]
        }
        None => Standing::all(store).await?,
    })
}

fn print(
    args: &Args,
    context: &Context,
    standings: &[Standing],
    lost: &[(i64, u64)],
    (workers, now): (&[Active], Timestamp),
    (notes, bar): (&Notes, Option<String>),
) -> anyhow::Result<()> {
    if context.is_json() {
        let mut object = object(args.campaign.is_some(), standings)?;
        object["workers"] = serde_json::to_value(workers)?;
        note_lost(&mut object, lost);
        object["stops"] = notes.stops_json();
        object["last_failures"] = notes.failures_json();
        return context.print_json(&object);
    }
    if standings.is_empty() && lost.is_empty() {
        context
            .console
            .say("there is no campaign yet: `smsq import` makes one");
        return Ok(());
    }
    let mut text = match standings {
        [] => String::new(),
        standings => report::standings_text(standings),
    };
    for (campaign, count) in lost {
        let _ = writeln!(text, "{}", lost_text(*campaign, *count));
    }
    if let Some(bar) = bar {
        text.push('\n');
        text.push_str(&bar);
    }
    if !workers.is_empty() {
        text.push('\n');
        text.push_str(&Active::text(workers, now));
    }
    text.push_str(&notes.text());
    Ok(context.console.data(&text)?)
}

/// `3 messages of campaign 77, which does not exist: they are not sent`.
pub(super) fn lost_text(campaign: i64, count: u64) -> String {
    let are = if count == 1 { "it is" } else { "they are" };
    format!(
        "{} of campaign {campaign}, which does not exist: {are} not sent",
        messages(count)
    )
}

/// Adds the messages of campaigns that do not exist, if there are any.
pub(super) fn note_lost(object: &mut Value, lost: &[(i64, u64)]) {
    if !lost.is_empty() {
        let lost = lost.iter();
        object["without_campaign"] = lost
            .map(|(campaign, count)| json!({ "campaign_id": campaign, "messages": count }))
            .collect();
    }
}

/// Why messages wait.
struct Notes {
    /// Providers that asked to be left alone.
    stops: Vec<ProviderPause>,
    /// By campaign: what the last attempt of a message met that waits for another one.
    failures: Vec<(String, String)>,
}

impl Notes {
    async fn gather(store: &Store, standings: &[Standing], now: Timestamp) -> anyhow::Result<Self> {
        let mut failures = Vec::new();
        for one in standings.iter().filter(|one| one.totals.queued > 0) {
            if let Some(reason) = store.last_failure(&one.campaign).await? {
                failures.push((one.campaign.clone(), reason));
            }
        }
        let stops = store.provider_pauses(now).await?;
        Ok(Self { stops, failures })
    }

    fn text(&self) -> String {
        let failures = self.failures.iter().map(|(campaign, reason)| {
            format!(
                "`{campaign}`: the last attempt failed: {}\n",
                in_words(reason)
            )
        });
        let stops = self.stops.iter().map(|stop| {
            format!(
                "`{name}` asked to wait until {} ({}); `smsq providers resume {name}` does not wait\n",
                stop.until,
                in_words(&stop.reason),
                name = stop.provider
            )
        });
        let lines: String = failures.chain(stops).collect();
        if lines.is_empty() {
            lines
        } else {
            format!("\n{lines}")
        }
    }

    fn stops_json(&self) -> Value {
        let stops = self.stops.iter().map(|stop| {
            json!({
                "provider": stop.provider, "until": stop.until.to_string(), "reason": stop.reason,
            })
        });
        stops.collect()
    }

    fn failures_json(&self) -> Value {
        let failures = self.failures.iter();
        failures
            .map(|(campaign, reason)| json!({ "campaign": campaign, "reason": reason }))
            .collect()
    }
}

/// How fast messages are settled, measured over the last looks.
#[derive(Default)]
struct Pace {
    /// When, and how many were settled by then.
    looks: VecDeque<(Timestamp, u64)>,
}

/// So far back the rate is measured.
const MEASURED: Duration = Duration::from_secs(10);
/// How long the bar is, in characters.
const BAR: u64 = 40;

impl Pace {
    /// The bar of this moment: `━━━━──── 45.0 %  1,234 of 2,743, 98/s, 15 s left`.
    fn look(&mut self, totals: &Totals, now: Timestamp) -> String {
        let settled = totals.sent + totals.failed + totals.unknown + totals.cancelled;
        let left = totals.queued + totals.sending;
        self.looks.push_back((now, settled));
        // One look from before the span stays: the rate is measured from there.
        while self
            .looks
            .get(1)
            .is_some_and(|(at, _)| now.since(*at) >= MEASURED)
        {
            self.looks.pop_front();
        }
        let all = settled + left;
        let filled = (settled * BAR).checked_div(all).unwrap_or(BAR);
        let bar: String = (0..BAR)
            .map(|at| if at < filled { '━' } else { '─' })
            .collect();
        // Not all of it while something is left.
        let tenths = (settled * 1_000).checked_div(all).unwrap_or(1_000);
        let mut line = format!(
            "{bar} {}.{} %  {} of {}",
            tenths / 10,
            tenths % 10,
            HumanCount(settled),
            HumanCount(all)
        );
        let (since, before) = self.looks.front().copied().unwrap_or((now, settled));
        let millis = now.since(since).as_millis();
        let done = u128::from(settled.saturating_sub(before));
        if millis > 0 && left > 0 {
            let rate = done * 1_000 / millis;
            let _ = write!(line, ", {rate}/s");
            if let Some(wait) = (u128::from(left) * millis).checked_div(done) {
                let seconds = u64::try_from(wait / 1_000).unwrap_or(u64::MAX).max(1);
                let _ = write!(line, ", {} left", duration(Duration::from_secs(seconds)));
            }
        }
        line.push('\n');
        line
    }
}

/// One campaign's standing, or the totals and the campaigns they are made of.
pub(super) fn object(is_one: bool, standings: &[Standing]) -> anyhow::Result<Value> {
    if let ([one], true) = (standings, is_one) {
        return Ok(serde_json::to_value(one)?);
    }
    let totals: Totals = standings.iter().map(|one| one.totals).sum();
    let mut object = serde_json::to_value(totals)?;
    object["campaigns"] = serde_json::to_value(standings)?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_rate_and_time_left() {
        let mut pace = Pace::default();
        let at = |seconds: i64| Timestamp::from_millis(1_763_715_600_000 + seconds * 1_000);
        let totals = |sent, queued| Totals {
            imported: sent + queued,
            sent,
            queued,
            ..Totals::default()
        };
        let bar = |filled: usize| "━".repeat(filled) + &"─".repeat(40 - filled);
        assert_eq!(
            pace.look(&totals(0, 2_000), at(0)),
            format!("{} 0.0 %  0 of 2,000\n", bar(0))
        );
        assert_eq!(
            pace.look(&totals(900, 1_100), at(5)),
            format!("{} 45.0 %  900 of 2,000, 180/s, 6 s left\n", bar(18))
        );
        // What was long ago is not measured any more.
        pace.look(&totals(910, 1_090), at(10));
        pace.look(&totals(920, 1_080), at(20));
        assert_eq!(
            pace.look(&totals(930, 1_070), at(30)),
            format!("{} 46.5 %  930 of 2,000, 1/s, 17m 50s left\n", bar(18))
        );
        assert_eq!(
            pace.look(&totals(2_000, 0), at(31)),
            format!("{} 100.0 %  2,000 of 2,000\n", bar(40))
        );
    }
}
