//! `smsq pause`, `resume` and `cancel`: change the state of a campaign. Running workers see it within seconds.

use anyhow::bail;
use serde_json::json;

use super::Context;
use super::values::campaign_name;
use crate::exit::Exit;
use crate::store::CampaignStatus;
use crate::text::messages;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
}

pub(crate) async fn pause(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(&args.campaign).await?;
    let (name, state) = (&campaign.name, CampaignStatus::Paused);
    let message = match campaign.state {
        CampaignStatus::Cancelled => {
            bail!("campaign `{name}` is cancelled and has no messages to pause")
        }
        CampaignStatus::Paused => format!("campaign `{name}` was already paused"),
        CampaignStatus::Active | CampaignStatus::Stopped => {
            let reason = Some("paused by `smsq pause`");
            store.set_campaign_state(campaign.id, state, reason).await?;
            format!("paused campaign `{name}`; running workers stop within seconds")
        }
    };
    let object = json!({ "campaign": name, "state": state.as_str() });
    context.report(&message, &object)
}

pub(crate) async fn resume(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(&args.campaign).await?;
    let (name, state) = (&campaign.name, CampaignStatus::Active);
    let message = if campaign.state == state {
        format!("campaign `{name}` was already active")
    } else {
        store.set_campaign_state(campaign.id, state, None).await?;
        let before = campaign.state.as_str();
        format!("campaign `{name}` is active again (it was {before}); next: `smsq send`")
    };
    let object = json!({ "campaign": name, "state": state.as_str() });
    context.report(&message, &object)
}

pub(crate) async fn cancel(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(&args.campaign).await?;
    let (name, state) = (&campaign.name, CampaignStatus::Cancelled);
    // The state first: then running workers put no message back into the queue.
    let reason = Some("cancelled by `smsq cancel`");
    store.set_campaign_state(campaign.id, state, reason).await?;
    let cancelled = store.cancel_rows(campaign.id, store.now().await?).await?;
    let message = format!(
        "cancelled campaign `{name}`: {} will not be sent; requests in flight are still settled",
        messages(cancelled)
    );
    let object = json!({ "campaign": name, "state": state.as_str(), "moved": cancelled });
    context.report(&message, &object)
}
