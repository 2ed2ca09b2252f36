//! `smsq pause`, `resume` and `cancel`: change the state of a campaign. Running workers see it within seconds.

use serde_json::json;
use smsq_message::text::messages;
use smsq_operations::{CampaignAction, change_state};
use smsq_process::exit::Exit;
use smsq_store::{Campaign, CampaignStatus, Store};

use super::values::CampaignName;
use super::{Context, practice, user_of};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    campaign: CampaignName,
}

/// Changes the state of the campaign; returns its database, the campaign as it was before, and whether it was changed.
async fn change(
    args: &Args,
    context: &Context,
    action: CampaignAction,
) -> anyhow::Result<(Store, Campaign, bool)> {
    let (store, campaign) = context.store_and_campaign(args.campaign.as_str()).await?;
    let actor = user_of(action.as_str());
    let changed = change_state(&store, &campaign, action, &actor).await?;
    Ok((store, campaign, changed))
}

pub(crate) async fn pause(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (_, campaign, changed) = change(args, context, CampaignAction::Pause).await?;
    let name = &campaign.name;
    let message = if changed {
        format!("paused campaign `{name}`; running workers stop within seconds")
    } else {
        format!("campaign `{name}` was already paused")
    };
    let state = CampaignStatus::Paused.as_str();
    context.report(&message, &json!({ "campaign": name, "state": state }))
}

pub(crate) async fn resume(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign, changed) = change(args, context, CampaignAction::Resume).await?;
    let name = &campaign.name;
    let message = match campaign.state {
        _ if !changed => format!("campaign `{name}` was already active"),
        CampaignStatus::Cancelled => format!(
            "resumed campaign `{name}`, which was cancelled; its cancelled messages stay cancelled; \
             next: `smsq import`, or `smsq retry --class cancelled`"
        ),
        before => {
            let before = before.as_str();
            let flags = practice::flags(&store);
            format!("resumed campaign `{name}`, which was {before}; next: `smsq send{flags}`")
        }
    };
    let state = CampaignStatus::Active.as_str();
    context.report(&message, &json!({ "campaign": name, "state": state }))
}

pub(crate) async fn cancel(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let (store, campaign) = context.store_and_campaign(args.campaign.as_str()).await?;
    // A message that was accepted is not cancelled, also if the database has lost that.
    smsq_sender::settle_ended(&store, context.state_folder().as_deref()).await?;
    let cancelled = smsq_operations::cancel(&store, &campaign, &user_of("cancel")).await?;
    let (name, state) = (&campaign.name, CampaignStatus::Cancelled.as_str());
    let message = format!(
        "cancelled campaign `{name}`: {} will not be sent; requests in flight are still settled",
        messages(cancelled)
    );
    let object = json!({ "campaign": name, "state": state, "moved": cancelled });
    context.report(&message, &object)
}
