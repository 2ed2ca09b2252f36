//! `smsq settle`: the operator decides what became of unknown messages.

use clap::ValueEnum;
use serde_json::json;

use super::values::campaign_name;
use super::{Context, user_of};
use crate::exit::Exit;
use crate::operations::{self, SettledAs};
use crate::text::messages;

const EXAMPLES: &str = "\
Examples:
  smsq report --campaign welcome-3f2a91 --failed       which are unknown
  smsq settle --campaign welcome-3f2a91 --unknown sent
  smsq settle --campaign welcome-3f2a91 --unknown failed --phone +8613812345678

Look the messages up at the provider first. To send them again instead: `smsq retry --unknown`.";

/// Record what became of unknown messages, after you have looked them up at the provider
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
    /// Outcome to record
    #[arg(long, value_name = "OUTCOME")]
    unknown: SettleAs,
    /// Only the message to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SettleAs {
    /// The provider accepted them
    Sent,
    /// The provider never accepted them
    Failed,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(&args.campaign).await?;
    let phone = context.phone_flag(args.phone.as_deref())?;
    let outcome = match args.unknown {
        SettleAs::Sent => SettledAs::Sent,
        SettleAs::Failed => SettledAs::Failed,
    };
    let actor = user_of("settle");
    let settled = operations::settle(&store, &campaign, outcome, phone.as_deref(), &actor).await?;
    let message = match settled {
        0 => "no unknown message matches: nothing was changed".to_owned(),
        _ => format!("settled {} as {}", messages(settled), outcome.as_str()),
    };
    let object = json!({ "campaign": campaign.name, "settled": settled, "as": outcome.as_str() });
    context.report(&message, &object)
}
