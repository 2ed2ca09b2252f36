//! What a provider charges for a segment, by the first digits of the recipient's number. Amounts are counted in
//! millionths of the currency, so that sums are exact.

use std::collections::BTreeMap;

use indicatif::HumanCount;
use toml::{Table, Value};

/// Decimal places of a price.
const PLACES: usize = 6;
/// The key of the price where no prefix fits.
const OTHER: &str = "other";

/// A provider's prices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    pub currency: String,
    /// Millionths per segment, by the digits that a number begins with.
    prefixes: BTreeMap<String, u64>,
    other: Option<u64>,
}

/// An invalid entry of a price table.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidPrice {
    pub key: String,
    pub expected: &'static str,
}

impl Prices {
    /// Parses a section `[prices.NAME]`.
    pub fn from_toml(table: &Table) -> Result<Self, InvalidPrice> {
        let mut prices = Self::default();
        for (key, value) in table {
            let invalid = |expected| InvalidPrice { key: key.clone(), expected };
            if key == "currency" {
                let currency = value.as_str().filter(|text| !text.trim().is_empty());
                currency
                    .ok_or_else(|| invalid("a text like \"EUR\""))?
                    .clone_into(&mut prices.currency);
                continue;
            }
            let price =
                amount(value).ok_or_else(|| invalid("the price of a segment, like 0.075"))?;
            let digits = key.strip_prefix('+').unwrap_or(key);
            if key == OTHER {
                prices.other = Some(price);
            } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                prices.prefixes.insert(digits.to_owned(), price);
            } else {
                return Err(invalid("`currency`, `other` or the digits that numbers begin with"));
            }
        }
        Ok(prices)
    }

    /// Millionths per segment to a number in E.164, or to all numbers with these first digits: the price of the
    /// longest prefix that fits.
    pub fn of(&self, phone: &str) -> Option<u64> {
        self.prefixes.get(self.prefix_of(phone)).copied().or(self.other)
    }

    /// The longest of its prefixes that a number in E.164 begins with; empty: none.
    pub fn prefix_of<'a>(&self, phone: &'a str) -> &'a str {
        let digits = phone.strip_prefix('+').unwrap_or(phone);
        let mut lengths = (1..=digits.len()).rev();
        let fits =
            |length: usize| digits.get(..length).filter(|known| self.prefixes.contains_key(*known));
        lengths.find_map(fits).unwrap_or_default()
    }

    /// Whether nothing has a price.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.other.is_none()
    }

    /// The lowest price of a segment, in millionths.
    pub fn lowest(&self) -> Option<u64> {
        self.prefixes.values().copied().chain(self.other).min()
    }

    /// A decimal number in millionths, if it is exact.
    pub fn amount(text: &str) -> Option<u64> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(decimals) || decimals.len() > PLACES
        {
            return None;
        }
        format!("{whole}{decimals:0<PLACES$}").parse().ok()
    }

    /// The number of digits of the longest prefix.
    pub fn longest_prefix(&self) -> usize {
        self.prefixes.keys().map(String::len).max().unwrap_or(0)
    }

    /// Formats millionths with two decimal places, and with all of them below 1: `30,654.88`.
    pub fn rounded(millionths: u64) -> String {
        match millionths {
            0..1_000_000 => Self::exact(millionths),
            _ => Self::with_cents(millionths),
        }
    }

    /// Formats an estimate in millionths with two decimal places.
    pub fn estimated(millionths: u64) -> String {
        match millionths {
            1..10_000 => "0.01".to_owned(),
            _ => Self::with_cents(millionths),
        }
    }

    fn with_cents(millionths: u64) -> String {
        let cents = millionths.saturating_add(5_000) / 10_000;
        format!("{}.{:02}", HumanCount(cents / 100), cents % 100)
    }

    /// Formats millionths with all decimal places, at least two: `12.34`.
    pub fn exact(millionths: u64) -> String {
        let decimals = format!("{:06}", millionths % 1_000_000);
        let decimals = decimals.trim_end_matches('0');
        format!("{}.{decimals:0<2}", millionths / 1_000_000)
    }
}

/// A decimal number in millionths, if it is exact.
fn amount(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(whole) => Prices::amount(&whole.to_string()),
        Value::Float(number) => Prices::amount(&number.to_string()),
        Value::String(text) => Prices::amount(text.trim()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Prices, InvalidPrice> {
        Prices::from_toml(&text.parse().expect("TOML"))
    }

    #[test]
    fn longest_prefix_that_fits_counts() {
        let prices =
            parse("currency = 'EUR'\n44 = 0.04\n'+4474' = '0.0355'\nother = 1").expect("prices");
        for (phone, price) in
            [("+447400123456", 35_500), ("+442079460018", 40_000), ("+8613800138000", 1_000_000)]
        {
            assert_eq!(prices.of(phone), Some(price), "{phone}");
        }
        assert_eq!(parse("44 = 0.04").expect("prices").of("+491512345678"), None);
        assert_eq!((prices.currency.as_str(), prices.longest_prefix()), ("EUR", 4));
    }

    #[test]
    fn invalid_entries_are_named() {
        for (text, key) in [
            ("44 = -1", "44"),
            ("44 = 'much'", "44"),
            ("44 = 0.00000001", "44"),
            ("44 = '99999999999999999999'", "44"),
            ("germany = 0.1", "germany"),
            ("currency = 3", "currency"),
            ("44 = [1]", "44"),
        ] {
            assert_eq!(parse(text).expect_err(text).key, key);
        }
    }

    #[test]
    fn amounts_are_exact_or_rounded() {
        for (millionths, exact, rounded) in [
            (0, "0.00", "0.00"),
            (40_000, "0.04", "0.04"),
            (35_500, "0.0355", "0.0355"),
            (1, "0.000001", "0.000001"),
            (245_000, "0.245", "0.245"),
            (120_372_000, "120.372", "120.37"),
            (1_995_000, "1.995", "2.00"),
            (999_995_000, "999.995", "1,000.00"),
            (30_654_876_000, "30654.876", "30,654.88"),
        ] {
            assert_eq!(Prices::exact(millionths), exact);
            assert_eq!(Prices::rounded(millionths), rounded);
        }
    }
}
