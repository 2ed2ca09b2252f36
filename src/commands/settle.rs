//! `smsq settle`: the operator's word on messages of which nobody knows whether they were sent.

use clap::ValueEnum;
use serde_json::json;

use super::Context;
use super::words::{campaign_name, messages};
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  smsq report --campaign welcome-3f2a91 --failed       which are unknown
  smsq settle --campaign welcome-3f2a91 --unknown sent
  smsq settle --campaign welcome-3f2a91 --unknown failed --phone +8613812345678

Look them up in the provider's own portal first. To send them again instead: `smsq retry --unknown`.";

/// Say what became of unknown messages, after you have looked them up at the provider
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
    /// What became of them
    #[arg(long, value_name = "WHAT")]
    unknown: Word,
    /// Only the message to this phone
    #[arg(long, value_name = "PHONE")]
    phone: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// The provider has them
    Sent,
    /// The provider never had them
    Failed,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let campaign = context.campaign(&store, &args.campaign).await?;
    let phone = args.phone.as_deref().map(|raw| context.phone(raw, None));
    let phone = phone.transpose()?;
    let now = store.now().await?;
    let as_sent = args.unknown == Word::Sent;
    let settled = store
        .settle_unknown(
            campaign.id,
            as_sent,
            phone.as_ref().map(crate::phone::Phone::as_str),
            now,
        )
        .await?;
    let word = if as_sent { "sent" } else { "failed" };
    match settled {
        0 => context
            .console
            .say("no unknown message matches: nothing was changed"),
        _ => context
            .console
            .say(&format!("settled {} as {word}", messages(settled))),
    }
    if context.is_json() {
        let object = json!({ "campaign": campaign.name, "settled": settled, "as": word });
        context.print_json(&object)?;
    }
    Ok(Exit::Done)
}
