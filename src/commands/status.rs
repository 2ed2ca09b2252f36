//! `smsq status`: how the campaigns stand and who sends, now or as it goes on.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::Context;
use super::signals::Signals;
use super::words::{campaign_name, messages};
use crate::exit::Exit;
use crate::report::{self, Active, Standing};
use crate::sms::Timestamp;
use crate::store::inspect::Totals;
use crate::store::{Stop, Store};

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
        print(args, context, &standings, &lost, (&workers, now), &notes)?;
        let is_over =
            |one: &Standing| matches!(one.state, "done" | "cancelled") && one.totals.sending == 0;
        let Some(signals) = signals.as_mut() else {
            return Ok(Exit::Done);
        };
        if standings.iter().all(is_over) {
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
    notes: &Notes,
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
    stops: Vec<Stop>,
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
        let stops = store.stops(now).await?;
        Ok(Self { stops, failures })
    }

    fn text(&self) -> String {
        let failures = self
            .failures
            .iter()
            .map(|(campaign, reason)| format!("`{campaign}`: the last attempt failed: {reason}\n"));
        let stops = self.stops.iter().map(|stop| {
            format!(
                "`{name}` asked to wait until {} ({}); `smsq providers resume {name}` does not wait\n",
                stop.until,
                stop.reason,
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
