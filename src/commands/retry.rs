//! `smsq retry`: puts failed or unknown messages back into the queue.

use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;
use smsq_import::When;
use smsq_message::sms::Class;
use smsq_message::text::messages;
use smsq_message::window::local_and_utc;
use smsq_operations::{retry_failed, retry_unknown};
use smsq_process::exit::Exit;
use smsq_store::{CampaignStatus, RetryFilter};

use super::values::campaign_name;
use super::{Context, practice, user_of};

const EXAMPLES: &str = "\
Examples:
  smsq retry --campaign welcome-3f2a91           every failed message, with all attempts again
  smsq retry --class unavailable                 only those that failed while the provider was down
  smsq retry --class expired --expires +2h       with a new expiry time
  smsq retry --unknown --phone +8613812345678    it certainly did not arrive: send it again
  smsq retry --unknown --any-provider            its provider stays away: another one may send it

A failed message gets a new reference. An unknown one keeps its reference and its provider: one that \
honours references does not send it twice, any other may. With `--any-provider` a second provider, \
which does not know the reference, may send it, too. Cancelled messages need `--class cancelled`. \
Nothing returns to a cancelled campaign before `smsq resume`.";

/// Put failed messages (or, with --unknown, the unknown ones) back into the queue
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// The unknown messages instead of the failed ones; they may arrive twice
    #[arg(long, conflicts_with = "class")]
    unknown: bool,
    /// Let any provider of the campaign send them, not only the one that may have accepted them
    #[arg(long, requires = "unknown")]
    any_provider: bool,
    /// Only failures of this class
    #[arg(long, value_name = "CLASS", value_parser = classes())]
    class: Option<Class>,
    /// Only failures with this code of the provider
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Only messages to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
    /// When the messages expire: 2026-12-24T09:00:00Z, "2026-12-24 09:00" or +2h
    #[arg(long, value_name = "TIME")]
    expires: Option<When>,
}

fn classes() -> impl TypedValueParser<Value = Class> {
    PossibleValuesParser::new(Class::ALL.map(Class::as_str)).try_map(|word| word.parse::<Class>())
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let now = store.now().await?;
    let campaign = context.optional_campaign(&store, args.campaign.as_deref()).await?;
    let expires_at = args.expires.map(|time| time.after(now));
    if let Some(at) = expires_at.filter(|at| *at <= now) {
        bail!("`--expires` {} is in the past", local_and_utc(at));
    }
    let filter = RetryFilter {
        campaign_id: None,
        class: args.class,
        code: args.code.clone(),
        phone: context.phone_flag(args.phone.as_deref())?,
        expires_at,
        by_any_provider: args.any_provider,
    };
    let (actor, campaign) = (user_of("retry"), campaign.as_ref());
    let (retried, kind) = if args.unknown {
        let retried = retry_unknown(&store, campaign, filter, &actor).await?;
        (retried, "unknown")
    } else {
        let retried = retry_failed(&store, campaign, filter, &actor).await?;
        (retried, "failed")
    };
    let mut campaigns = store.campaigns().await?.into_iter();
    let message = match retried {
        0 if campaign.is_none()
            && campaigns.any(|campaign| campaign.state == CampaignStatus::Cancelled) =>
        {
            format!(
                "no {kind} message matches in a campaign that is not cancelled: nothing was changed"
            )
        }
        0 => format!("no {kind} message matches: nothing was changed"),
        _ => format!(
            "put {} back into the queue; next: `smsq send{}`",
            messages(retried),
            practice::flags(&store)
        ),
    };
    let name = campaign.map(|campaign| &campaign.name);
    let object = json!({ "campaign": name, "retried": retried });
    context.report(&message, &object)
}
