//! `smsq retry`: what failed, or is unknown, goes back into the queue.

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use serde_json::json;

use super::moment::Moment;
use super::words::{campaign_name, messages};
use super::{Context, hinted};
use crate::exit::Exit;
use crate::sms::Class;
use crate::store::{Campaign, CampaignStatus, RetryFilter};

const EXAMPLES: &str = "\
Examples:
  smsq retry --campaign welcome-3f2a91           every message that failed, once more from the start
  smsq retry --class unavailable                 only those that found the provider away
  smsq retry --class expired --expires +2h       with new time
  smsq retry --unknown --phone +8613812345678    it certainly did not arrive: send it again

A failed message gets a new reference. An unknown one keeps its own: a provider that honours
references will not send it twice, any other may. Cancelled messages only with `--class cancelled`.
A cancelled campaign gets nothing back before `smsq resume`.";

/// Put failed messages (or, with --unknown, the unknown ones) back into the queue
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only of this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// The unknown messages instead of the failed ones; they may arrive twice
    #[arg(long, conflicts_with = "class")]
    unknown: bool,
    /// Only failures of this class
    #[arg(long, value_name = "CLASS", value_parser = classes())]
    class: Option<Class>,
    /// Only failures with this code of the provider
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Only messages to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
    /// Not to be sent after this moment: 2026-12-24T09:00:00Z, "2026-12-24 09:00" or +2h
    #[arg(long, value_name = "TIME")]
    expires: Option<Moment>,
}

fn classes() -> impl clap::builder::TypedValueParser<Value = Class> {
    PossibleValuesParser::new(Class::ALL.map(Class::as_str)).try_map(|word| word.parse::<Class>())
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let now = store.now().await?;
    let campaign = match &args.campaign {
        Some(name) => Some(context.campaign(&store, name).await?),
        None => None,
    };
    if let Some(campaign) = &campaign
        && campaign.state == CampaignStatus::Cancelled
    {
        let name = &campaign.name;
        return Err(hinted(
            format!("campaign `{name}` is cancelled: its messages cannot be retried"),
            Some(format!(
                "`smsq resume --campaign {name}` makes it active again"
            )),
        ));
    }
    let expires_at = args.expires.map(|moment| moment.resolve(now));
    if expires_at.is_some_and(|at| at <= now) {
        return Err(hinted("`--expires` lies in the past", None::<&str>));
    }
    let phone = args.phone.as_deref().map(|raw| context.phone(raw, None));
    let filter = RetryFilter {
        campaign_id: campaign.as_ref().map(|campaign| campaign.id),
        class: args.class,
        code: args.code.clone(),
        phone: phone.transpose()?.map(crate::phone::Phone::into_string),
        expires_at,
    };
    let (moved, which) = if args.unknown {
        (store.retry_unknown(&filter, now).await?, "unknown")
    } else {
        (store.retry_failed(&filter, now).await?, "failed")
    };
    let campaigns = store.campaigns().await?;
    let is_cancelled = |one: &Campaign| one.state == CampaignStatus::Cancelled;
    match moved {
        0 if campaign.is_none() && campaigns.iter().any(is_cancelled) => {
            context.console.say(&format!(
                "no {which} message of a campaign that is not cancelled matches: nothing was changed"
            ));
        }
        0 => context
            .console
            .say(&format!("no {which} message matches: nothing was changed")),
        _ => context.console.say(&format!(
            "put {} back into the queue; next: `smsq send`",
            messages(moved)
        )),
    }
    if context.is_json() {
        let campaign = campaign.map(|campaign| campaign.name);
        context.print_json(&json!({ "campaign": campaign, "retried": moved }))?;
    }
    Ok(Exit::Done)
}
