//! Budgets of campaigns: what people write, and what is checked before one is stored.

use super::{ListSettings, OperationError, Refused};
use crate::budget::{Budget, Pricing, amount};
use crate::prices::Prices;
use crate::store::{BudgetChange, Campaign, Store};
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

/// Fails if a budget would refuse all messages that a provider sends: it has no prices in the currency of the budget.
pub fn check_priced(
    settings: &ListSettings,
    budget: Option<&Budget>,
    provider: &str,
) -> Result<(), Hinted> {
    let none = Prices::default();
    let prices = settings.prices.get(provider).unwrap_or(&none);
    match settings.budgets.pricing(budget, provider, prices) {
        Pricing::Refused(reason) => Err(Hinted::plain(reason)),
        Pricing::Free | Pricing::Priced { .. } => Ok(()),
    }
}

/// Fails if a campaign has spent more than its new budget.
pub(super) async fn check_spent(
    store: &Store,
    campaign: &Campaign,
    budget: &Budget,
) -> Result<(), OperationError> {
    let spent = store.spent(campaign.id, &budget.currency).await?;
    if spent <= budget.amount {
        return Ok(());
    }
    Err(OperationError::Refused(Refused::Spent {
        campaign: campaign.name.clone(),
        budget: budget.to_string(),
        spent: amount(spent, &budget.currency),
    }))
}
