//! `smsq send`: sends what is queued until nothing is left to do.

use serde_json::{Value, json};

use super::Context;
use super::delivery::{Delivery, Pace, Work};
use super::words::campaign_name;
use super::{check, purge, status};
use crate::exit::Exit;
use crate::store::Access;

const EXAMPLES: &str = "\
Examples:
  smsq send                                    everything that is queued
  smsq send --campaign welcome-3f2a91 --rate 20/s
  smsq send --limit 10                         ten messages first, then look at the report
  smsq send --follow                           stay, and send what others put into the queue

Ctrl-C stops it: what is on its way is settled first, and the next `send` goes on from there. A
second Ctrl-C does not wait; what was on its way is then unknown.";

/// Send what is queued until nothing is left to do
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all that are neither paused nor cancelled]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Stay when nothing is left, and wait for more
    #[arg(long, conflicts_with = "no_wait")]
    follow: bool,
    /// Do not ask before a large campaign
    #[arg(long, short)]
    yes: bool,
    #[arg(hide = true, value_name = "FILE", value_parser = refuse_list)]
    _list: Option<String>,
}

/// A list on the command line was meant for another command.
fn refuse_list(text: &str) -> Result<String, String> {
    Err(format!(
        "`send` takes no list, it sends what is queued; did you mean `smsq run {text}`?"
    ))
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    // Who waits for other programs makes the database that they write to.
    let access = if args.follow && context.config.default_provider.is_some() {
        Access::Create
    } else {
        Access::Existing
    };
    let store = context.open(access).await?;
    purge::by_the_way(context, &store).await?;
    if let Some(finding) = check::unsafe_settings(&store).await? {
        context.console.warn(&finding);
    }
    let work = Work {
        campaign: args.campaign.as_deref(),
        pace: &args.pace,
        follow: args.follow,
        asks: !args.yes && !args.follow,
    };
    let Some(delivery) = Delivery::run(context, &store, &work).await? else {
        context.console.say("nothing was sent");
        return Ok(Exit::CouldNotRun);
    };
    if context.is_json() {
        context.print_json(&object(args.campaign.is_some(), &delivery)?)?;
    } else {
        context.console.data(&delivery.text())?;
    }
    delivery.explain(&context.console);
    Ok(delivery.exit())
}

/// The standing of what was sent, and how it went.
pub(super) fn object(is_one: bool, delivery: &Delivery) -> anyhow::Result<Value> {
    let mut object = status::object(is_one, &delivery.standings)?;
    object["elapsed_ms"] = json!(crate::sms::millis(delivery.summary.elapsed));
    object["rate"] = json!((delivery.rate() * 10.0).round() / 10.0);
    object["attempts"] = json!(delivery.summary.attempts);
    status::note_lost(&mut object, &delivery.lost);
    Ok(object)
}
