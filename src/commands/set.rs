//! `smsq set`: changes a campaign while it runs, or switches a sender off.

use serde_json::json;
use smsq_message::rate::Rates;
use smsq_operations::{
    COUNTED_LATER, budget, change_settings, check_priced, count_budget, limit, switch_sender,
};
use smsq_process::exit::Exit;
use smsq_report::WindowStatus;
use smsq_store::{BudgetChange, Campaign, CampaignChange};

use super::values::{WindowFlags, campaign_name};
use super::{Context, user_of, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq set welcome-3f2a91 --rate 20/s
  smsq set welcome-3f2a91 --rate none --priority 5
  smsq set welcome-3f2a91 --budget 600EUR
  smsq set welcome-3f2a91 --window 09:00-20:00 --timezone Asia/Shanghai
  smsq set --sender +12025550111 off   its messages go to the other senders";

/// Change a campaign's limit, budget, priority, provider, sender or window, or switch a sender off; running workers see it within
/// seconds
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["window", "days", "timezone", "fallback_timezone"]))]
#[command(group = clap::ArgGroup::new("subject").required(true).args(["name", "campaign", "sender"]))]
pub struct Args {
    /// The campaign
    #[arg(value_name = "NAME", value_parser = campaign_name)]
    name: Option<String>,
    /// The campaign
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// Switch a sender of a pool off: its messages go to the other senders; or on again
    #[arg(
        long,
        num_args = 2,
        value_names = ["SENDER", "on|off"],
        group = "change",
        conflicts_with_all = ["rate", "budget", "priority", "from", "window", "days", "timezone", "fallback_timezone"]
    )]
    sender: Vec<String>,
    /// Its own limit, in addition to the provider's: 100/s, 300/min, 20000/day, several with commas; `none`
    #[arg(long, value_name = "RATE", value_parser = limit, group = "change")]
    rate: Option<Rates>,
    /// The most that its messages may cost: "600 EUR"; `none`
    #[arg(long, value_name = "AMOUNT", value_parser = budget, allow_hyphen_values = true, group = "change")]
    budget: Option<BudgetChange>,
    /// Campaigns with a higher priority are sent first [default of a new campaign: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, group = "change")]
    priority: Option<i32>,
    /// The provider or route that sends it from now on; with `--sender` the provider that has the sender
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
        (context.list_settings().requirements)(provider, None)?;
    }
    if let [sender, state] = args.sender.as_slice() {
        return switch(sender, state, args.provider.as_deref(), context).await;
    }
    let name = args
        .name
        .as_ref()
        .or(args.campaign.as_ref())
        .expect("one of the two is required without `--sender`");
    let (store, campaign) = context.store_and_campaign(name).await?;
    let change = CampaignChange {
        rate: args.rate.clone(),
        priority: args.priority,
        provider: args.provider.clone().into(),
        sender: args.from.clone().into(),
        window: args.window.request().change(campaign.window.as_ref())?,
        budget: args.budget.clone().unwrap_or_default(),
        ..CampaignChange::default()
    };
    let settings = context.list_settings();
    let provider = args.provider.as_ref().or(campaign.provider.as_ref());
    if let (BudgetChange::Set(budget), Some(provider)) =
        (&change.budget, provider.or(settings.default_provider.as_ref()))
    {
        check_priced(&settings, Some(budget), provider)?;
    }
    let actor = user_of("set");
    change_settings(&store, &settings, &campaign, &change, &actor).await?;
    if let BudgetChange::Set(budget) = &change.budget
        && !count_budget(&store, &settings, &campaign, budget, &actor).await?
    {
        context.console.warn(COUNTED_LATER);
    }
    let campaign = Campaign { settings: campaign.settings.with(change), ..campaign };
    let object = json!({
        "campaign": campaign.name,
        "state": campaign.state.as_str(),
        "rate": campaign.rate.to_string(),
        "priority": campaign.priority,
        "provider": campaign.provider,
        "from": campaign.sender,
        "window": campaign.window.as_ref().map(WindowStatus::of),
        "budget": campaign.budget.as_ref().map(ToString::to_string),
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
    if let Some(budget) = &campaign.budget {
        message = format!("{message}, budget {budget}");
    }
    message
}

/// Switches a sender on or off. The provider need not be named where only one has the sender.
async fn switch(
    sender: &str,
    state: &str,
    provider: Option<&str>,
    context: &Context,
) -> anyhow::Result<Exit> {
    let on = match state {
        "on" => true,
        "off" => false,
        _ => {
            let message = format!("invalid state `{state}` of sender `{sender}`");
            return Err(with_hint(message, "write `on` or `off`"));
        }
    };
    let requirements = context.list_settings().requirements;
    if let Some(provider) = provider {
        requirements(provider, None)?;
    }
    let has_sender = |name: &&String| {
        let route = requirements(name, None).ok().and_then(|needed| needed.route);
        route.is_some_and(|route| route.senders().any(|(_, known)| *known.from == *sender))
    };
    let is_asked = |name: &&String| provider.is_none_or(|provider| provider == *name);
    let names = context.config.providers.keys().filter(is_asked);
    let known: Vec<&String> = names.filter(has_sender).collect();
    let provider = match known.as_slice() {
        [provider] => provider.as_str(),
        [] => {
            let of = provider.map_or_else(String::new, |provider| format!(" of `{provider}`"));
            let message = format!("unknown sender `{sender}`{of}");
            let hint = "write it as in `senders` of its provider's section";
            return Err(with_hint(message, hint));
        }
        several => {
            let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
            let message =
                format!("sender `{sender}` belongs to several providers: {}", names.join(", "));
            return Err(with_hint(message, "choose one with `--provider NAME`"));
        }
    };
    let store = context.store().await?;
    let is_changed = switch_sender(&store, provider, sender, on, &user_of("set")).await?;
    let already = if is_changed { "" } else { " already" };
    let effect = match (on, is_changed) {
        (_, false) => "",
        (true, true) => ": its messages are sent by it again",
        (false, true) => ": running workers move its messages to the other senders",
    };
    let message = format!("sender `{sender}` of `{provider}` is{already} {state}{effect}");
    let object = json!({ "provider": provider, "sender": sender, "state": state });
    context.report(&message, &object)
}
