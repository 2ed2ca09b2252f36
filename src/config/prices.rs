//! What a provider charges for a segment, by the prefix of the recipient's number: `[prices.NAME]`. Amounts are
//! counted in millionths of the currency, so that a sum of many is exact.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Digits behind the point that count.
const PLACES: usize = 6;
/// Where no prefix fits.
const OTHER: &str = "other";

/// A provider's prices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    pub currency: String,
    /// Millionths per segment, by the digits that a number starts with.
    prefixes: BTreeMap<String, u64>,
    other: Option<u64>,
}

/// A key of a price table that is not understood, and what it must be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) wanted: &'static str,
}

impl Prices {
    pub(super) fn read(table: &Table) -> Result<Self, Wrong> {
        let mut prices = Self::default();
        for (key, value) in table {
            let wrong = |wanted| Wrong {
                key: key.clone(),
                wanted,
            };
            if key == "currency" {
                let currency = value.as_str().filter(|text| !text.trim().is_empty());
                currency
                    .ok_or_else(|| wrong("a text like \"EUR\""))?
                    .clone_into(&mut prices.currency);
                continue;
            }
            let price = amount(value).ok_or_else(|| wrong("the price of a segment, like 0.075"))?;
            let digits = key.strip_prefix('+').unwrap_or(key);
            if key == OTHER {
                prices.other = Some(price);
            } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                prices.prefixes.insert(digits.to_owned(), price);
            } else {
                return Err(wrong(
                    "`currency`, `other` or the digits that numbers start with",
                ));
            }
        }
        Ok(prices)
    }

    /// Millionths per segment to a number in E.164; the longest prefix that fits counts.
    pub fn of(&self, phone: &str) -> Option<u64> {
        let digits = phone.strip_prefix('+').unwrap_or(phone);
        (1..=digits.len())
            .rev()
            .find_map(|length| self.prefixes.get(digits.get(..length)?))
            .copied()
            .or(self.other)
    }

    /// Millionths as a sum of money: two places, and more only below 1, where they matter.
    pub fn rounded(millionths: u64) -> String {
        match millionths {
            0..1_000_000 => Self::shown(millionths),
            _ => Self::shown(millionths.saturating_add(5_000) / 10_000 * 10_000),
        }
    }

    /// The most digits that have a price of their own.
    pub fn longest_prefix(&self) -> usize {
        let lengths = self.prefixes.keys().map(String::len);
        lengths.max().unwrap_or(0)
    }

    /// Millionths as an amount: `12.34`, with more places only where they are needed.
    pub fn shown(millionths: u64) -> String {
        let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
        let part = format!("{part:06}");
        let part = part.trim_end_matches('0');
        format!("{whole}.{part:0<2}")
    }
}

fn amount(value: &Value) -> Option<u64> {
    let text = match value {
        Value::Integer(whole) => whole.to_string(),
        Value::Float(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > PLACES {
        return None;
    }
    let millionths: u64 = format!("{part:0<PLACES$}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(millionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Prices, Wrong> {
        Prices::read(&text.parse().expect("TOML"))
    }

    #[test]
    fn the_longest_prefix_that_fits_counts() {
        let prices =
            read("currency = 'EUR'\n44 = 0.04\n'+4474' = '0.0355'\nother = 1").expect("prices");
        for (phone, price) in [
            ("+447400123456", 35_500),
            ("+442079460018", 40_000),
            ("+8613800138000", 1_000_000),
        ] {
            assert_eq!(prices.of(phone), Some(price), "{phone}");
        }
        assert_eq!(read("44 = 0.04").expect("prices").of("+491512345678"), None);
        assert_eq!(prices.currency, "EUR");
    }

    #[test]
    fn what_is_no_price_is_named() {
        for (text, key) in [
            ("44 = -1", "44"),
            ("44 = 'much'", "44"),
            ("44 = 0.00000001", "44"),
            ("germany = 0.1", "germany"),
            ("currency = 3", "currency"),
            ("44 = [1]", "44"),
        ] {
            assert_eq!(read(text).expect_err(text).key, key);
        }
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        for (millionths, shown) in [
            (0, "0.00"),
            (40_000, "0.04"),
            (12_340_000, "12.34"),
            (35_500, "0.0355"),
            (1, "0.000001"),
        ] {
            assert_eq!(Prices::shown(millionths), shown);
        }
    }

    #[test]
    fn sum_of_money_has_two_places_from_1_up() {
        for (millionths, shown) in [
            (245_000, "0.245"),
            (120_372_000, "120.37"),
            (225_750_000, "225.75"),
            (1_995_000, "2.00"),
        ] {
            assert_eq!(Prices::rounded(millionths), shown);
        }
    }
}
