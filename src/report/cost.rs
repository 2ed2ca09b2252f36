//! What the sent messages cost by the price table of each provider, and to which countries they went.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;
use smsq_message::phone;
use smsq_message::prices::Prices;
use smsq_message::text::messages;
use smsq_store::report::SentCount;

/// The price tables by provider.
pub type PriceTables = BTreeMap<String, Prices>;

/// What messages cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Millionths by currency.
    amounts: BTreeMap<String, u64>,
    /// Messages with a known price.
    priced: u64,
    /// Messages without one.
    pub(super) unpriced: u64,
}

/// The messages to one country, or through one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `GB +44`, or the provider's name.
    pub name: String,
    pub sent: u64,
    pub segments: u64,
    /// `None` if no provider has prices.
    pub cost: Option<Cost>,
}

/// The sent messages by country and by provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bill {
    #[serde(skip)]
    pub sent: u64,
    pub cost: Option<Cost>,
    /// Most messages first.
    pub countries: Vec<Part>,
    pub providers: Vec<Part>,
}

impl Bill {
    /// `purged` messages were sent too, but their recipients are no longer known.
    pub(super) fn new(counts: &[SentCount], purged: u64, prices: &PriceTables) -> Self {
        let is_priced = counts.iter().any(|count| prices.contains_key(&count.provider));
        let no_cost = is_priced.then(Cost::default);
        let mut cost = no_cost.clone();
        let mut countries = BTreeMap::new();
        let mut providers = BTreeMap::new();
        for count in counts {
            let table = prices.get(&count.provider);
            if let Some(cost) = &mut cost {
                cost.add(count, table);
            }
            let country = phone::country(&count.phone).unwrap_or_else(|| "elsewhere".to_owned());
            for (parts, name) in
                [(&mut countries, country), (&mut providers, count.provider.clone())]
            {
                let part = parts.entry(name.clone()).or_insert_with(|| Part {
                    name,
                    sent: 0,
                    segments: 0,
                    cost: no_cost.clone(),
                });
                part.sent += count.messages;
                part.segments += count.segments;
                if let Some(cost) = &mut part.cost {
                    cost.add(count, table);
                }
            }
        }
        if let Some(cost) = &mut cost {
            cost.unpriced += purged;
        }
        Self {
            sent: counts.iter().map(|count| count.messages).sum(),
            cost,
            countries: sorted(countries),
            providers: sorted(providers),
        }
    }
}

fn sorted(parts: BTreeMap<String, Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = parts.into_values().collect();
    parts.sort_by(|left, right| (right.sent, &left.name).cmp(&(left.sent, &right.name)));
    parts
}

impl Cost {
    fn add(&mut self, count: &SentCount, table: Option<&Prices>) {
        if let Some(table) = table
            && let Some(price) = table.of(&count.phone)
        {
            let amount = self.amounts.entry(table.currency.clone()).or_default();
            *amount = amount.saturating_add(price.saturating_mul(count.billed));
            self.priced += count.messages;
        } else {
            self.unpriced += count.messages;
        }
    }

    /// `12.34 EUR + 3.00 USD`.
    pub(super) fn amount(&self) -> String {
        self.formatted(Prices::rounded)
    }

    /// As [`Self::amount`], with two decimal places.
    pub(super) fn estimate(&self) -> String {
        self.formatted(Prices::estimated)
    }

    fn formatted(&self, format: fn(u64) -> String) -> String {
        if self.amounts.is_empty() {
            return format(0);
        }
        let amounts = self.amounts.iter();
        let amounts: Vec<String> =
            amounts.map(|(currency, amount)| format!("{} {currency}", format(*amount))).collect();
        amounts.join(" + ").trim_end().to_owned()
    }

    /// What `waiting` messages will cost if they are like these; `None`: there are none, or it is not known.
    pub(super) fn to_come(&self, waiting: u64) -> Option<Self> {
        if self.priced == 0 || waiting == 0 {
            return None;
        }
        let share = |amount: &u64| {
            let amount = u128::from(*amount) * u128::from(waiting) / u128::from(self.priced);
            u64::try_from(amount).unwrap_or(u64::MAX)
        };
        let amounts = self.amounts.iter();
        Some(Self {
            amounts: amounts.map(|(currency, amount)| (currency.clone(), share(amount))).collect(),
            priced: waiting,
            unpriced: 0,
        })
    }

    /// `excluding 3 messages without a price`, or empty.
    pub(super) fn missing(&self) -> String {
        match self.unpriced {
            0 => String::new(),
            count => format!("excluding {} without a price", messages(count)),
        }
    }
}

impl Part {
    /// The amount, if a price is known for some of the messages.
    pub(super) fn amount(&self) -> Option<String> {
        let cost = self.cost.as_ref();
        cost.filter(|cost| cost.priced > 0).map(Cost::amount)
    }
}

/// As `{amount, currency, unpriced}`; `null` for several currencies, which have no sum.
impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut amounts = self.amounts.iter();
        let (currency, amount) = match (amounts.next(), amounts.next()) {
            (_, Some(_)) => return serializer.serialize_none(),
            (Some((currency, amount)), None) => (currency.as_str(), *amount),
            (None, None) => ("", 0),
        };
        let amount = Prices::exact(amount);
        json!({ "amount": amount, "currency": currency, "unpriced": self.unpriced })
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(provider: &str, phone: &str, messages: u64, segments: u64) -> SentCount {
        SentCount {
            provider: provider.to_owned(),
            phone: phone.to_owned(),
            messages,
            segments,
            billed: segments,
        }
    }

    fn prices(currency: &str) -> Prices {
        let text = format!("currency = '{currency}'\n44 = 0.035\n4474 = 0.031");
        Prices::from_toml(&text.parse().expect("TOML")).expect("prices")
    }

    #[test]
    fn cost_is_summed_by_country_and_provider() {
        let tables = PriceTables::from([("cellar".to_owned(), prices("EUR"))]);
        let counts = [
            count("cellar", "+447400123456", 10, 20),
            count("cellar", "+442079460018", 1, 1),
            count("cellar", "+4915123456789", 5, 5),
        ];
        let bill = Bill::new(&counts, 2, &tables);
        let cost = bill.cost.expect("a cost");
        assert_eq!((cost.amount().as_str(), cost.unpriced), ("0.655 EUR", 7));
        assert_eq!(
            serde_json::to_string(&cost).expect("json"),
            r#"{"amount":"0.655","currency":"EUR","unpriced":7}"#
        );
        let countries: Vec<_> = bill
            .countries
            .iter()
            .map(|part| (part.name.as_str(), part.sent, part.segments))
            .collect();
        assert_eq!(countries, [("GB +44", 11, 21), ("DE +49", 5, 5)]);
        assert_eq!(bill.providers.len(), 1);
    }

    #[test]
    fn waiting_messages_cost_as_much_as_the_sent_ones() {
        let tables = PriceTables::from([("cellar".to_owned(), prices("EUR"))]);
        let counts =
            [count("cellar", "+447400123456", 10, 20), count("cellar", "+4915123456789", 5, 5)];
        let cost = Bill::new(&counts, 0, &tables).cost.expect("a cost");
        let to_come = |waiting| cost.to_come(waiting).map(|cost| cost.estimate());
        assert_eq!(to_come(100).as_deref(), Some("6.20 EUR"));
        assert_eq!(to_come(7).as_deref(), Some("0.43 EUR"));
        assert_eq!(to_come(0), None);
        assert_eq!(Cost::default().to_come(7), None);
    }

    #[test]
    fn two_currencies_have_no_sum() {
        let tables = PriceTables::from([
            ("cellar".to_owned(), prices("EUR")),
            ("attic".to_owned(), prices("USD")),
        ]);
        let counts =
            [count("cellar", "+447400123456", 1, 1), count("attic", "+447400123456", 100, 100)];
        let cost = Bill::new(&counts, 0, &tables).cost.expect("a cost");
        assert_eq!(cost.amount(), "0.031 EUR + 3.10 USD");
        assert_eq!(serde_json::to_string(&cost).expect("json"), "null");
    }

    #[test]
    fn report_without_prices_has_no_cost() {
        let counts = [count("cellar", "+447400123456", 1, 1)];
        let bill = Bill::new(&counts, 0, &PriceTables::new());
        assert_eq!((bill.cost, bill.sent), (None, 1));
    }
}
