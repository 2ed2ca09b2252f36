//! What the messages of a list cost, by the price table of their provider.

use serde_json::{Value, json};

use super::List;
use super::needs::provider_of;
use crate::commands::Context;
use crate::commands::words::messages;
use crate::config::Prices;
use crate::import::Cost;
use crate::store::Campaign;

/// The prices of the provider that would send the campaign.
pub(super) fn of<'a>(
    list: &List,
    campaign: Option<&Campaign>,
    context: &'a Context,
) -> Option<&'a Prices> {
    let name = provider_of(list, campaign, context)?;
    context.config.prices.get(name)
}

/// `12.34 EUR`, and how many messages have no price.
pub(super) fn text(cost: Cost, currency: &str) -> String {
    let amount = format!("{} {currency}", Prices::rounded(cost.amount));
    let amount = amount.trim_end();
    match cost.unpriced {
        0 => amount.to_owned(),
        unpriced => format!(
            "{amount}, without {} that no price is known for",
            messages(unpriced)
        ),
    }
}

pub(super) fn object(cost: Cost, currency: Option<&str>) -> Value {
    match currency {
        Some(currency) => json!({
            "amount": Prices::shown(cost.amount),
            "currency": currency,
            "unpriced": cost.unpriced,
        }),
        None => Value::Null,
    }
}
