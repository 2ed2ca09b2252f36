//! Budgets: how much money the messages of a campaign, or of all campaigns in a calendar month (UTC), may cost. Amounts
//! are counted in millionths of the currency.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer};

use super::prices::Prices;
use super::sms::Timestamp;

/// The most that some messages may cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget {
    /// Millionths of the currency; more than 0.
    pub amount: i64,
    /// In capital letters.
    pub currency: String,
}

/// Why a text is not a budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("invalid budget `{0}`: write an amount and its currency, such as `500 EUR`")]
    Invalid(String),
    #[error("invalid budget `{0}`: add its currency, such as `{0} EUR`")]
    NoCurrency(String),
    #[error("invalid budget `{0}`: it must be more than 0")]
    NotPositive(String),
    #[error("invalid budget `{0}`: write an amount per month, such as `2000 EUR/month`")]
    Period(String),
    #[error("invalid budget `{0}`: there is another one in `{1}`; write one for each currency")]
    Repeated(String, String),
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(written: &str) -> Result<Self, BudgetError> {
        let text = written.trim();
        let invalid = || BudgetError::Invalid(text.to_owned());
        if text.starts_with('-') {
            return Err(BudgetError::NotPositive(text.to_owned()));
        }
        let is_amount = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = text.find(|letter| !is_amount(letter));
        let (number, rest) = text.split_at(end.unwrap_or(text.len()));
        let millionths = Prices::amount(number).ok_or_else(invalid)?;
        let amount = i64::try_from(millionths).map_err(|_| invalid())?;
        let currency = rest.trim();
        if currency.is_empty() {
            return Err(BudgetError::NoCurrency(text.to_owned()));
        }
        if !currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(invalid());
        }
        if amount == 0 {
            return Err(BudgetError::NotPositive(text.to_owned()));
        }
        Ok(Self { amount, currency: currency.to_ascii_uppercase() })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", amount(self.amount, &self.currency))
    }
}

impl Budget {
    /// Reads a column: an empty text means no budget.
    pub fn stored(text: &str) -> Result<Option<Self>, BudgetError> {
        (!text.is_empty()).then(|| text.parse()).transpose()
    }

    fn is_in(&self, prices: &Prices) -> bool {
        self.currency.eq_ignore_ascii_case(&prices.currency)
    }
}

/// Formats millionths of a currency, such as `500.00 EUR`.
pub fn amount(millionths: i64, currency: &str) -> String {
    let exact = Prices::exact(millionths.unsigned_abs());
    let sign = if millionths < 0 { "-" } else { "" };
    format!("{sign}{exact} {currency}")
}

/// The budgets of all campaigns together for a calendar month, one for each currency, such as `["2000 EUR/month"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonthlyBudgets(pub Vec<Budget>);

impl MonthlyBudgets {
    fn of(texts: &[String]) -> Result<Self, BudgetError> {
        let mut budgets = Vec::with_capacity(texts.len());
        for text in texts {
            let period = || BudgetError::Period(text.clone());
            let (budget, unit) = text.split_once('/').ok_or_else(period)?;
            if unit.trim() != "month" {
                return Err(period());
            }
            let budget: Budget = budget.parse()?;
            let is_same = |other: &Budget| other.currency == budget.currency;
            if budgets.iter().any(is_same) {
                return Err(BudgetError::Repeated(text.clone(), budget.currency));
            }
            budgets.push(budget);
        }
        Ok(Self(budgets))
    }
}

impl<'de> Deserialize<'de> for MonthlyBudgets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Self::of(&texts).map_err(serde::de::Error::custom)
    }
}

/// What happens under a budget to a message without a price, or with one in another currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unpriced {
    /// It is not sent.
    #[default]
    Refuse,
    /// It is sent, and counts as free.
    Allow,
}

/// The budgets of a worker's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetRules {
    pub monthly: MonthlyBudgets,
    pub unpriced: Unpriced,
}

/// Which budgets the messages of a campaign take from that are sent through one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pricing {
    /// From none.
    Free,
    Priced {
        campaign: Option<Budget>,
        month: Option<Budget>,
    },
    /// They must not be sent: why.
    Refused(String),
}

impl BudgetRules {
    /// `campaign`: the campaign's own budget.
    pub fn pricing(&self, campaign: Option<&Budget>, provider: &str, prices: &Prices) -> Pricing {
        let monthly = &self.monthly.0;
        if campaign.is_none() && monthly.is_empty() {
            return Pricing::Free;
        }
        let own = campaign.filter(|budget| budget.is_in(prices));
        let month = monthly.iter().find(|budget| budget.is_in(prices));
        let is_unpriced = prices.is_empty()
            || campaign.is_some() != own.is_some()
            || !monthly.is_empty() && month.is_none();
        if is_unpriced && self.unpriced == Unpriced::Refuse {
            let missing = campaign.filter(|_| own.is_none()).or(monthly.first());
            let budget = missing.map_or("", |budget| budget.currency.as_str());
            return Pricing::Refused(unpriced(provider, prices, budget));
        }
        if prices.is_empty() || own.is_none() && month.is_none() {
            return Pricing::Free;
        }
        Pricing::Priced { campaign: own.cloned(), month: month.cloned() }
    }
}

/// Why messages through this provider cannot be sent under a budget in `currency`.
pub fn unpriced(provider: &str, prices: &Prices, currency: &str) -> String {
    let otherwise = "or set `unpriced = \"allow\"` in `[limits]`";
    if prices.is_empty() {
        format!(
            "there is a budget, but `{provider}` has no prices: add a section `[prices.{provider}]`, {otherwise}"
        )
    } else {
        let other = match prices.currency.as_str() {
            "" => "without a currency".to_owned(),
            other => format!("in {other}"),
        };
        format!(
            "the budget is in {currency}, but the prices in `[prices.{provider}]` are {other}: change one of them, {otherwise}"
        )
    }
}

/// The month and currency of what a claim takes, such as `2026-11/EUR`.
pub fn month_key(now: Timestamp, currency: &str) -> String {
    format!("{}/{currency}", month(now))
}

/// The currency of such a key.
pub fn currency_of(month_key: &str) -> &str {
    month_key.split_once('/').map_or("", |(_, currency)| currency)
}

/// The calendar month of an instant in UTC, such as `2026-11`.
pub fn month(now: Timestamp) -> String {
    first_day(now).strftime("%Y-%m").to_string()
}

/// The first day of the next calendar month in UTC, such as `2026-12-01`.
pub fn next_month(now: Timestamp) -> String {
    let first = first_day(now);
    let next = first.last_of_month().tomorrow();
    next.unwrap_or(first).to_string()
}

fn first_day(now: Timestamp) -> Date {
    let instant = jiff::Timestamp::from_millisecond(now.as_millis());
    instant
        .map_or(date(1970, 1, 1), |instant| instant.to_zoned(TimeZone::UTC).date().first_of_month())
}

/// The scope of a campaign's counter in table `rate_limit`, by the key of its month.
pub fn campaign_budget_scope(campaign_id: i64, month_key: &str) -> String {
    format!("{}{}", campaign_budgets(campaign_id), currency_of(month_key))
}

/// What the scopes of the counters of a campaign begin with.
pub fn campaign_budgets(campaign_id: i64) -> String {
    format!("budget/campaign/{campaign_id}/")
}

/// The scope of a month's counter in table `rate_limit`.
pub fn month_budget_scope(month_key: &str) -> String {
    format!("budget/month/{month_key}")
}

/// What the scopes of the counters of a month begin with.
pub fn months(now: Timestamp) -> String {
    month_budget_scope(&month_key(now, ""))
}

/// How much more a message cost than it took from its budget, by a price that the provider wrote, such as
/// `-0.0075 USD`: 0 if that is not one in this currency.
pub fn correction(taken: i64, currency: &str, price: &str) -> i64 {
    let price = charged(currency, price);
    price.map_or(0, |price| price.saturating_sub(taken))
}

/// A price that the provider wrote, in millionths; `None` if it is not one in this currency.
pub fn charged(currency: &str, price: &str) -> Option<i64> {
    let mut words = price.split_whitespace();
    let (Some(one), Some(other), None) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    let number = if other.eq_ignore_ascii_case(currency) {
        one
    } else if one.eq_ignore_ascii_case(currency) {
        other
    } else {
        return None;
    };
    i64::try_from(written(number)?).ok()
}

/// Whether a provider wrote a price of 0, in any currency.
pub fn is_zero(price: &str) -> bool {
    price.split_whitespace().any(|word| written(word) == Some(0))
}

fn written(number: &str) -> Option<u64> {
    // Some vendors write what they charge as a negative number.
    Prices::amount(number.strip_prefix('-').unwrap_or(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(text: &str) -> Budget {
        text.parse().expect(text)
    }

    fn prices(text: &str) -> Prices {
        Prices::from_toml(&text.parse().expect("TOML")).expect("prices")
    }

    #[test]
    fn budget_is_an_amount_and_a_currency() {
        for (text, stored) in [
            ("500 EUR", "500.00 EUR"),
            ("500EUR", "500.00 EUR"),
            (" 0.0355 usd ", "0.0355 USD"),
            ("12.5  GBP", "12.50 GBP"),
        ] {
            assert_eq!(budget(text).to_string(), stored);
            assert_eq!(budget(stored), budget(text));
        }
    }

    #[test]
    fn invalid_budgets_say_what_to_write() {
        let error = |text: &str| text.parse::<Budget>().expect_err(text).to_string();
        for (text, reason) in [
            ("500", "add its currency, such as `500 EUR`"),
            ("500 €uro", "write an amount and its currency"),
            ("-5 EUR", "it must be more than 0"),
            ("0 EUR", "it must be more than 0"),
            ("0.00 EUR", "it must be more than 0"),
            ("EUR", "write an amount"),
            ("", "write an amount"),
            ("5 EUR/month", "write an amount"),
            ("1,000 EUR", "write an amount"),
            ("0.00000001 EUR", "write an amount"),
            ("99999999999999999 EUR", "write an amount"),
        ] {
            assert!(error(text).contains(reason), "{text}: {}", error(text));
        }
    }

    #[test]
    fn monthly_budgets_have_one_entry_per_currency() {
        let of = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            MonthlyBudgets::of(&texts)
        };
        assert_eq!(
            of(&["2000 EUR/month", "5USD/month"]),
            Ok(MonthlyBudgets(vec![budget("2000 EUR"), budget("5 USD")]))
        );
        for texts in [
            &["2000 EUR"][..],
            &["2000 EUR/week"],
            &["2000/month"],
            &["1 EUR/month", "2 EUR/month"],
        ] {
            assert!(of(texts).is_err(), "{texts:?}");
        }
    }

    #[test]
    fn message_without_a_price_in_the_currency_is_refused() {
        let (euro, none) = (prices("currency = 'EUR'\nother = 0.04"), Prices::default());
        let monthly =
            |texts: &[&str]| MonthlyBudgets(texts.iter().map(|text| budget(text)).collect());
        let (refuse, allow) = (Unpriced::Refuse, Unpriced::Allow);
        // Campaign, month, prices, rule: the budgets that it takes from, or `None` if it is refused.
        for (own, months, prices, unpriced, expected) in [
            (None, &[][..], &none, refuse, Some((false, false))),
            (Some("5 EUR"), &[], &euro, refuse, Some((true, false))),
            (Some("5 EUR"), &["9 EUR"], &euro, refuse, Some((true, true))),
            (None, &["9 EUR"], &euro, refuse, Some((false, true))),
            (None, &["9 USD", "9 EUR"], &euro, refuse, Some((false, true))),
            (None, &["9 USD"], &euro, refuse, None),
            (None, &["9 USD"], &euro, allow, Some((false, false))),
            (Some("5 USD"), &[], &euro, refuse, None),
            (Some("5 USD"), &["9 EUR"], &euro, refuse, None),
            (Some("5 USD"), &["9 EUR"], &euro, allow, Some((false, true))),
            (Some("5 EUR"), &["9 USD"], &euro, allow, Some((true, false))),
            (Some("5 EUR"), &[], &none, refuse, None),
            (Some("5 EUR"), &[], &none, allow, Some((false, false))),
        ] {
            let rules = BudgetRules { monthly: monthly(months), unpriced };
            let of_campaign = own.map(budget);
            let pricing = match rules.pricing(of_campaign.as_ref(), "world", prices) {
                Pricing::Free => Some((false, false)),
                Pricing::Priced { campaign, month } => Some((campaign.is_some(), month.is_some())),
                Pricing::Refused(_) => None,
            };
            assert_eq!(pricing, expected, "{own:?} {months:?} {unpriced:?}");
        }
    }

    #[test]
    fn months_are_those_of_utc() {
        let at = |text: &str| {
            let instant: jiff::Timestamp = text.parse().expect("an instant");
            Timestamp::from_millis(instant.as_millisecond())
        };
        let last = at("2026-12-31T23:59:59.999Z");
        assert_eq!(month_key(last, "EUR"), "2026-12/EUR");
        assert_eq!(next_month(last), "2027-01-01");
        assert_eq!(month(at("2027-01-01T00:00:00Z")), "2027-01");
        let key = month_key(last, "EUR");
        assert_eq!(campaign_budget_scope(7, &key), "budget/campaign/7/EUR");
        assert_eq!(month_budget_scope(&key), "budget/month/2026-12/EUR");
    }

    #[test]
    fn price_of_the_vendor_corrects_what_was_taken() {
        for (price, more) in [
            ("0.05 EUR", 10_000),
            ("EUR 0.03", -10_000),
            ("-0.0355 eur", -4_500),
            ("0.05 USD", 0),
            ("0.05", 0),
            ("much EUR", 0),
            ("0.05 EUR each", 0),
            ("0.00000001 EUR", 0),
        ] {
            assert_eq!(correction(40_000, "EUR", price), more, "{price}");
        }
    }

    #[test]
    fn price_of_nothing_is_found_in_any_currency() {
        for price in ["0", "0.00", "-0.0000 USD", "EUR 0"] {
            assert!(is_zero(price), "{price}");
        }
        for price in ["0.01", "free", "", "EUR 0.0075", "."] {
            assert!(!is_zero(price), "{price}");
        }
    }
}
