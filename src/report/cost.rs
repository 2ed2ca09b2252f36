//! What was sent costs, by the price table of each provider, and where it went.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::phone;
use crate::store::report::SentCount;

/// A provider's prices.
pub struct Tariff {
    pub currency: String,
    /// The longest prefix that has a price of its own.
    pub digits: usize,
    /// The digits come with a `+`.
    pub price: PriceOf,
}

/// Millionths of a currency for a segment to a number with these first digits.
pub type PriceOf = Box<dyn Fn(&str) -> Option<u64> + Send + Sync>;

/// The tariffs by provider.
pub type Tariffs = BTreeMap<String, Tariff>;

/// What messages cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Millionths by currency.
    amounts: BTreeMap<String, u64>,
    /// Messages that no price is known for.
    unpriced: u64,
}

/// A part of what was sent: what went to one country, or through one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `GB +44`, or the provider's name.
    pub name: String,
    pub sent: u64,
    pub segments: u64,
    /// `null` where no provider has prices.
    pub cost: Option<Cost>,
}

/// All that was sent, and its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    pub sent: u64,
    pub cost: Option<Cost>,
    /// The most messages first.
    pub countries: Vec<Part>,
    pub providers: Vec<Part>,
}

impl Bill {
    /// `forgotten` were sent too, but nobody knows whereto.
    pub(super) fn of(counts: &[SentCount], forgotten: u64, tariffs: &Tariffs) -> Self {
        let is_priced = counts
            .iter()
            .any(|count| tariffs.contains_key(&count.provider));
        let cost = is_priced.then(Cost::default);
        let mut bill = Self {
            cost: cost.clone(),
            ..Self::default()
        };
        let mut countries = BTreeMap::new();
        let mut providers = BTreeMap::new();
        for count in counts {
            let tariff = tariffs.get(&count.provider);
            bill.sent += count.messages;
            if let Some(cost) = &mut bill.cost {
                cost.add(count, tariff);
            }
            let keys = [
                (&mut countries, country(&count.prefix)),
                (&mut providers, count.provider.clone()),
            ];
            for (parts, name) in keys {
                let part = parts.entry(name.clone()).or_insert_with(|| Part {
                    name,
                    sent: 0,
                    segments: 0,
                    cost: cost.clone(),
                });
                part.sent += count.messages;
                part.segments += count.segments;
                if let Some(cost) = &mut part.cost {
                    cost.add(count, tariff);
                }
            }
        }
        if let Some(cost) = &mut bill.cost {
            cost.unpriced += forgotten;
        }
        bill.countries = sorted(countries);
        bill.providers = sorted(providers);
        bill
    }
}

fn sorted(parts: BTreeMap<String, Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = parts.into_values().collect();
    parts.sort_by(|one, other| (other.sent, &one.name).cmp(&(one.sent, &other.name)));
    parts
}

fn country(prefix: &str) -> String {
    phone::country_of_prefix(prefix).unwrap_or_else(|| "elsewhere".to_owned())
}

impl Cost {
    fn add(&mut self, count: &SentCount, tariff: Option<&Tariff>) {
        let price = tariff.and_then(|tariff| (tariff.price)(&count.prefix));
        match (tariff, price) {
            (Some(tariff), Some(price)) => {
                let amount = self.amounts.entry(tariff.currency.clone()).or_default();
                *amount = amount.saturating_add(price.saturating_mul(count.billed));
            }
            _ => self.unpriced += count.messages,
        }
    }

    /// `12.34 EUR + 3.00 USD`, rounded to hundredths.
    pub(super) fn text(&self) -> String {
        let mut amounts: Vec<String> = self
            .amounts
            .iter()
            .map(|(currency, amount)| format!("{} {currency}", rounded(*amount)))
            .collect();
        if amounts.is_empty() {
            amounts.push("0.00".to_owned());
        }
        amounts.join(" + ").trim_end().to_owned()
    }

    pub(super) fn unpriced(&self) -> u64 {
        self.unpriced
    }
}

/// `{amount, currency, unpriced}`; `null` of several currencies, which make no sum.
impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            amount: String,
            currency: &'a str,
            unpriced: u64,
        }
        let mut amounts = self.amounts.iter();
        let (currency, amount) = match (amounts.next(), amounts.next()) {
            (_, Some(_)) => return serializer.serialize_none(),
            (Some((currency, amount)), None) => (currency.as_str(), *amount),
            (None, None) => ("", 0),
        };
        let written = Written {
            amount: exact(amount),
            currency,
            unpriced: self.unpriced,
        };
        written.serialize(serializer)
    }
}

/// Millionths with all their places, two at the least.
fn exact(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    let end = text.trim_end_matches('0').len();
    text[..end.max(text.len() - 4)].to_owned()
}

/// Millionths rounded to hundredths; less than half of one is shown as it is.
fn rounded(millionths: u64) -> String {
    if millionths < 5_000 {
        return exact(millionths);
    }
    let hundredths = millionths / 10_000 + u64::from(millionths % 10_000 >= 5_000);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(provider: &str, prefix: &str, messages: u64, segments: u64) -> SentCount {
        SentCount::of(provider, prefix, messages, segments)
    }

    fn tariff(currency: &str) -> Tariff {
        Tariff {
            currency: currency.to_owned(),
            digits: 4,
            price: Box::new(|phone| match phone {
                "+4474" => Some(31_000),
                other => other.starts_with("+44").then_some(35_000),
            }),
        }
    }

    #[test]
    fn cost_is_summed_by_country_and_provider() {
        let tariffs = Tariffs::from([("cellar".to_owned(), tariff("EUR"))]);
        let counts = [
            count("cellar", "+4474", 10, 20),
            count("cellar", "+4420", 1, 1),
            count("cellar", "+4915", 5, 5),
        ];
        let bill = Bill::of(&counts, 2, &tariffs);
        let cost = bill.cost.expect("a cost");
        assert_eq!((cost.text().as_str(), cost.unpriced()), ("0.66 EUR", 7));
        assert_eq!(
            serde_json::to_string(&cost).expect("json"),
            r#"{"amount":"0.655","currency":"EUR","unpriced":7}"#
        );
        let names: Vec<_> = bill
            .countries
            .iter()
            .map(|part| (part.name.as_str(), part.sent, part.segments))
            .collect();
        assert_eq!(names, [("GB +44", 11, 21), ("DE +49", 5, 5)]);
        assert_eq!(bill.providers.len(), 1);
    }

    #[test]
    fn two_currencies_make_no_sum() {
        let tariffs = Tariffs::from([
            ("cellar".to_owned(), tariff("EUR")),
            ("attic".to_owned(), tariff("USD")),
        ]);
        let counts = [
            count("cellar", "+4474", 1, 1),
            count("attic", "+4474", 100, 100),
        ];
        let cost = Bill::of(&counts, 0, &tariffs).cost.expect("a cost");
        assert_eq!(cost.text(), "0.03 EUR + 3.10 USD");
        assert_eq!(serde_json::to_string(&cost).expect("json"), "null");
    }

    #[test]
    fn without_prices_nothing_is_said_of_cost() {
        let counts = [count("cellar", "+4474", 1, 1)];
        let bill = Bill::of(&counts, 0, &Tariffs::new());
        assert_eq!((bill.cost, bill.sent), (None, 1));
    }

    #[test]
    fn amounts_are_exact_or_rounded() {
        for (millionths, whole, short) in [
            (0, "0.00", "0.00"),
            (120_372_000, "120.372", "120.37"),
            (225_750_000, "225.75", "225.75"),
            (1, "0.000001", "0.000001"),
            (999_995_000, "999.995", "1000.00"),
        ] {
            assert_eq!(
                (exact(millionths).as_str(), rounded(millionths).as_str()),
                (whole, short)
            );
        }
    }
}
