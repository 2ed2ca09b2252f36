//! `smsq pause`, `resume` and `cancel`: the state of a campaign. Running workers see it within seconds.

use serde_json::json;

use super::words::{campaign_name, messages};
use super::{Context, hinted};
use crate::exit::Exit;
use crate::store::{Campaign, CampaignStatus};

const PAUSE_EXAMPLES: &str = "\
Example:
  smsq pause --campaign welcome-3f2a91";

const RESUME_EXAMPLES: &str = "\
Example:
  smsq resume --campaign welcome-3f2a91 && smsq send";

const CANCEL_EXAMPLES: &str = "\
Example:
  smsq cancel --campaign welcome-3f2a91";

/// Pause a campaign: its messages wait until `resume`; what is on its way is still settled
#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct PauseArgs {
    /// Which campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
}

/// Let a paused, stopped or cancelled campaign go on; messages that were cancelled stay cancelled
#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct ResumeArgs {
    /// Which campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
}

/// Cancel a campaign: what was never sent will not be, and can be imported again; nothing is asked
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub struct CancelArgs {
    /// Which campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: String,
}

pub(crate) async fn pause(args: &PauseArgs, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let campaign = context.campaign(&store, &args.campaign).await?;
    let name = &campaign.name;
    let said = match campaign.state {
        CampaignStatus::Cancelled => {
            return Err(hinted(
                format!("campaign `{name}` is cancelled: nothing of it is left to pause"),
                None::<&str>,
            ));
        }
        CampaignStatus::Paused => format!("campaign `{name}` is paused already"),
        CampaignStatus::Active | CampaignStatus::Stopped => {
            let reason = Some("paused by `smsq pause`");
            store
                .set_campaign_state(campaign.id, CampaignStatus::Paused, reason)
                .await?;
            format!("paused campaign `{name}`; running workers stop within seconds")
        }
    };
    tell(context, &campaign, CampaignStatus::Paused, &said, None)?;
    Ok(Exit::Done)
}

pub(crate) async fn resume(args: &ResumeArgs, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let campaign = context.campaign(&store, &args.campaign).await?;
    let name = &campaign.name;
    let said = match campaign.state {
        CampaignStatus::Active => format!("campaign `{name}` is active already"),
        before => {
            store
                .set_campaign_state(campaign.id, CampaignStatus::Active, None)
                .await?;
            let before = before.as_str();
            format!("campaign `{name}` is active again (it was {before}); next: `smsq send`")
        }
    };
    tell(context, &campaign, CampaignStatus::Active, &said, None)?;
    Ok(Exit::Done)
}

pub(crate) async fn cancel(args: &CancelArgs, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let campaign = context.campaign(&store, &args.campaign).await?;
    // The state first: from then on running workers put nothing back.
    store
        .set_campaign_state(
            campaign.id,
            CampaignStatus::Cancelled,
            Some("cancelled by `smsq cancel`"),
        )
        .await?;
    let moved = store.cancel_rows(campaign.id, store.now().await?).await?;
    let said = format!(
        "cancelled campaign `{}`: {} will not be sent; what is on its way is still settled",
        campaign.name,
        messages(moved)
    );
    tell(
        context,
        &campaign,
        CampaignStatus::Cancelled,
        &said,
        Some(moved),
    )?;
    Ok(Exit::Done)
}

fn tell(
    context: &Context,
    campaign: &Campaign,
    state: CampaignStatus,
    said: &str,
    moved: Option<u64>,
) -> anyhow::Result<()> {
    context.console.say(said);
    if context.is_json() {
        let mut object = json!({ "campaign": campaign.name, "state": state.as_str() });
        if let Some(moved) = moved {
            object["moved"] = moved.into();
        }
        context.print_json(&object)?;
    }
    Ok(())
}
