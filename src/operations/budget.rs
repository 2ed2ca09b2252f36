//! Budgets of campaigns: what people write, and what is checked before one is stored.

use std::time::Duration;

use smsq_message::budget::{Budget, Pricing};
use smsq_message::prices::Prices;
use smsq_message::text::Hinted;
use smsq_process::boxed;
use smsq_store::{BudgetChange, Campaign, CampaignChange, CountStep, Store, UncountedBudget};
use tokio::time::Instant;

use super::campaign::{change_settings, check_spent};
use super::list_settings::ListSettings;
use super::{Actor, OperationError};

/// What people are told if nothing was counted in time.
pub const COUNTED_LATER: &str = "its messages wait until a worker has counted what they have cost";

/// How long the end of claims without a new budget is waited for: workers look for one each second.
const COUNT_PATIENCE: Duration = Duration::from_secs(10);
const COUNT_PAUSE: Duration = Duration::from_millis(50);

/// Reads the new budget of a campaign, such as `500 EUR`; `none` removes it.
pub fn budget(text: &str) -> Result<BudgetChange, String> {
    if text.trim() == "none" {
        return Ok(BudgetChange::Lift);
    }
    let budget: Result<Budget, _> = text.parse();
    budget.map(BudgetChange::Set).map_err(|error| error.to_string())
}

/// Fails if a budget would refuse all messages that a provider sends, or one of a route: it has no prices in the currency
/// of the budget.
pub fn check_priced(
    settings: &ListSettings,
    budget: Option<&Budget>,
    name: &str,
) -> Result<(), Hinted> {
    let none = Prices::default();
    let needed = (settings.requirements)(name, None).ok();
    let route = needed.and_then(|needed| needed.route);
    let of_route = route.iter().flat_map(|route| route.providers());
    let own = [name].into_iter().filter(|_| route.is_none());
    for provider in own.chain(of_route) {
        let prices = settings.prices.get(provider).unwrap_or(&none);
        if let Pricing::Refused(reason) = settings.budgets.pricing(budget, provider, prices) {
            return Err(Hinted::plain(reason));
        }
    }
    Ok(())
}

/// Waits until it is counted what a campaign has spent that got a budget, and counts it: false if workers may still
/// claim without the budget. Then the next worker counts, and nothing is sent before. If it has spent more, it gets back
/// the budget that it had `before`.
#[boxed]
pub async fn count_budget(
    store: &Store,
    settings: &ListSettings,
    before: &Campaign,
    budget: &Budget,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let until = Instant::now() + COUNT_PATIENCE;
    loop {
        let uncounted = store.uncounted_budgets().await?;
        let is_its = |uncounted: &&UncountedBudget| uncounted.campaign_id == before.id;
        let Some(uncounted) = uncounted.iter().find(is_its) else {
            break;
        };
        if store.count_budget(uncounted, &settings.prices).await? == CountStep::Waits {
            if Instant::now() >= until {
                return Ok(false);
            }
            tokio::time::sleep(COUNT_PAUSE).await;
        }
    }
    let checked = check_spent(store, before, budget).await;
    let present = store.campaign(&before.name).await?;
    // The end of the count has put it back, or it was counted before. The audit log says so in any case.
    let is_or_was = |campaign: &Campaign| {
        campaign.budget.as_ref() == Some(budget) || campaign.budget == before.budget
    };
    if let (Err(_), Some(campaign)) = (&checked, present.filter(is_or_was))
        && before.budget.as_ref() != Some(budget)
    {
        let change = CampaignChange {
            budget: match before.budget.clone() {
                Some(before) => BudgetChange::Set(before),
                None => BudgetChange::Lift,
            },
            ..CampaignChange::default()
        };
        change_settings(store, settings, &campaign, &change, actor).await?;
    }
    checked.map(|()| true)
}
