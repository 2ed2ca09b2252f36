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
    let object = json!({ "campaign": name, "state": state.as_str() });
    match campaign.state {
        CampaignStatus::Cancelled => {
            bail!("campaign `{name}` is cancelled and has no messages to pause")
        }
        CampaignStatus::Paused => {
            context.report(&format!("campaign `{name}` was already paused"), &object)
        }
        CampaignStatus::Active | CampaignStatus::Stopped => {
            let reason = Some("paused by `smsq pause`");
            store.set_campaign_state(campaign.id, state, reason).await?;
            let message = format!("paused campaign `{name}`; running workers stop within seconds");
            context
                .report_change(&store, "pause", Some(name), &message, &object)
                .await
        }
    }
}

pub(crate) async fn resume(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(&args.campaign).await?;
    let (name, state) = (&campaign.name, CampaignStatus::Active);
    let object = json!({ "campaign": name, "state": state.as_str() });
    if campaign.state == state {
        return context.report(&format!("campaign `{name}` was already active"), &object);
    }
    store.set_campaign_state(campaign.id, state, None).await?;
    let before = campaign.state.as_str();
    let message = format!("resumed campaign `{name}`, which was {before}; next: `smsq send`");
    context
        .report_change(&store, "resume", Some(name), &message, &object)
        .await
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
    context
        .report_change(&store, "cancel", Some(name), &message, &object)
        .await
}
