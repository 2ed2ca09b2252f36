//! `smsq set`: changes a campaign while it runs.

use serde_json::json;

use super::values::{CampaignName, WindowFlags};
use super::{Context, user_of};
use crate::exit::Exit;
use crate::operations::{change_settings, limit};
use crate::rate::Rates;
use crate::report::WindowStatus;
use crate::store::{Campaign, CampaignChange};

const EXAMPLES: &str = "\
Examples:
  smsq set welcome-3f2a91 --rate 20/s
  smsq set welcome-3f2a91 --rate none --priority 5
  smsq set welcome-3f2a91 --window 09:00-20:00 --timezone Asia/Shanghai";

/// Change a campaign's limit, priority, provider, sender or window; running workers see it within seconds
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["window", "days", "timezone", "fallback_timezone"]))]
pub struct Args {
    #[command(flatten)]
    campaign: CampaignName,
    /// Its own limit, in addition to the provider's: 100/s, 300/min, 20000/day, several with commas; `none`
    #[arg(long, value_name = "RATE", value_parser = limit, group = "change")]
    rate: Option<Rates>,
    /// Campaigns with a higher priority are sent first [default of a new campaign: 0]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        group = "change"
    )]
    priority: Option<i32>,
    /// The provider that sends it from now on
    #[arg(long, value_name = "NAME", group = "change")]
    provider: Option<String>,
    /// The sender that recipients see
    #[arg(long, value_name = "SENDER", group = "change")]
    from: Option<String>,
    #[command(flatten)]
    window: WindowFlags,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    if let Some(provider) = &args.provider {
        context.provider_section(provider)?;
    }
    let (store, campaign) = context.store_and_campaign(args.campaign.as_str()).await?;
    let change = CampaignChange {
        rate: args.rate.clone(),
        priority: args.priority,
        provider: args.provider.clone(),
        sender: args.from.clone(),
        window: args.window.request().change(campaign.window.as_ref())?,
        ..CampaignChange::default()
    };
    change_settings(&store, &campaign, &change, &user_of("set")).await?;
    let campaign = Campaign {
        rate: change.rate.unwrap_or(campaign.rate),
        priority: change.priority.unwrap_or(campaign.priority),
        provider: change.provider.or(campaign.provider),
        sender: change.sender.or(campaign.sender),
        window: change.window.applied_to(campaign.window),
        ..campaign
    };
    let object = json!({
        "campaign": campaign.name,
        "state": campaign.state.as_str(),
        "rate": campaign.rate.to_string(),
        "priority": campaign.priority,
        "provider": campaign.provider,
        "from": campaign.sender,
        "window": campaign.window.as_ref().map(WindowStatus::of),
    });
    context.report(&describe(&campaign), &object)
}

/// The settings of a campaign in a sentence.
fn describe(campaign: &Campaign) -> String {
    let limit = match campaign.rate.0.as_slice() {
        [] => "no limit of its own".to_owned(),
        _ => format!("at most {}", campaign.rate),
    };
    let provider = campaign.provider.as_deref();
    let mut message = format!(
        "campaign `{}`: {limit}, priority {}, sent by {}",
        campaign.name,
        campaign.priority,
        provider.unwrap_or("the default provider")
    );
    if let Some(window) = &campaign.window {
        message = format!("{message}, {}", window.describe());
    }
    message
}
