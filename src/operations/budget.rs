//! Budgets of campaigns: what people write, and what is checked before one is stored.

use super::{ListSettings, OperationError, Refused};
use crate::budget::{Budget, Pricing, amount};
use crate::prices::Prices;
use crate::store::{BudgetChange, Campaign, CampaignFilter, Store};
use crate::text::Hinted;

/// Reads the new budget of a campaign, such as `500 EUR`; `none` removes it.
pub fn budget(text: &str) -> Result<BudgetChange, String> {
    if text.trim() == "none" {
        return Ok(BudgetChange::Lift);
    }
    let budget: Result<Budget, _> = text.parse();
    budget
        .map(BudgetChange::Set)
        .map_err(|error| error.to_string())
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

/// Begins to count what a campaign spends that has not had a budget in this currency: also the prices of the messages that
/// may have been accepted without one.
pub async fn begin_budget(
    store: &Store,
    settings: &ListSettings,
    campaign: &Campaign,
    budget: &Budget,
) -> Result<(), OperationError> {
    let currency = budget.currency.as_str();
    if store.spent(campaign.id, currency).await?.is_some() {
        return Ok(());
    }
    let cost = |provider: &str, phone: &str, segments: u64| {
        let prices = settings.prices.get(provider);
        let prices = prices.filter(|prices| prices.currency.eq_ignore_ascii_case(currency));
        let price = prices.and_then(|prices| prices.of(phone));
        price.unwrap_or_default().saturating_mul(segments)
    };
    let digits = settings.prices.values().map(Prices::longest_prefix);
    let accepted = store
        .report()
        .sent(
            CampaignFilter::One(campaign.id),
            digits.max().unwrap_or_default(),
        )
        .await?;
    let of_sent = accepted
        .counts
        .iter()
        .map(|count| cost(&count.provider, &count.phone, count.billed));
    let unsettled = store.unsettled(campaign.id).await?;
    let of_unsettled = unsettled.iter().map(|(provider, phone, segments)| {
        let provider = provider.as_deref().unwrap_or_default();
        cost(provider, phone, u64::from(segments.unsigned_abs()))
    });
    let total = of_sent.chain(of_unsettled).fold(0, u64::saturating_add);
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    Ok(store.begin_spending(campaign.id, currency, total).await?)
}

/// Fails if a campaign has spent more than its new budget.
pub(super) async fn check_spent(
    store: &Store,
    campaign: &Campaign,
    budget: &Budget,
) -> Result<(), OperationError> {
    let spent = store.spent(campaign.id, &budget.currency).await?;
    let spent = spent.unwrap_or_default();
    if spent <= budget.amount {
        return Ok(());
    }
    Err(OperationError::Refused(Refused::Spent {
        campaign: campaign.name.clone(),
        budget: budget.to_string(),
        spent: amount(spent, &budget.currency),
    }))
}
