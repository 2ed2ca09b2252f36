//! Accounts that several provider sections share, with `account = "…"`: the smallest of their limits is the limit of all.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use smsq_message::rate::{Rate, Rates};
use toml::{Table, Value};

use super::RateSetting;

/// Sections of one account whose limits differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAccount {
    pub account: String,
    /// The names of all its sections.
    pub sections: Vec<String>,
    /// The limit of all of them.
    pub rates: Rates,
}

/// The name of the account of a section.
pub fn account_of<'a>(name: &'a str, section: &'a Table) -> &'a str {
    section.get("account").and_then(Value::as_str).unwrap_or(name)
}

/// Gives the sections `own` of each account the smallest of their limits; returns the accounts whose sections differed. A
/// limit that cannot be read is an error of its section.
pub fn share_limits(sections: &mut BTreeMap<String, Table>, own: &[String]) -> Vec<SharedAccount> {
    let mut accounts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, section) in sections.iter().filter(|(name, _)| own.contains(name)) {
        let account = account_of(name, section).to_owned();
        accounts.entry(account).or_default().push(name.clone());
    }
    let mut differing = Vec::new();
    for (account, names) in accounts.into_iter().filter(|(_, names)| names.len() > 1) {
        let of_section = |name: &String| rates_of(sections.get(name)?);
        let Some(limits) = names.iter().map(of_section).collect::<Option<Vec<Rates>>>() else {
            continue;
        };
        let rates = smallest(&limits);
        if limits.iter().all(|limits| smallest(std::slice::from_ref(limits)) == rates) {
            continue;
        }
        for name in &names {
            if let Some(section) = sections.get_mut(name) {
                section.insert("rate".to_owned(), rates.to_string().into());
            }
        }
        differing.push(SharedAccount { account, sections: names, rates });
    }
    differing
}

fn rates_of(section: &Table) -> Option<Rates> {
    let rate = section.get("rate").cloned().map(Value::try_into::<RateSetting>);
    rate.transpose().ok().map(|rate| rate.unwrap_or_default().0)
}

/// The smallest limit for each length of window.
fn smallest(limits: &[Rates]) -> Rates {
    let mut smallest: BTreeMap<Duration, NonZeroU32> = BTreeMap::new();
    for rate in limits.iter().flat_map(|limits| &limits.0) {
        let least = smallest.entry(rate.window).or_insert(rate.limit);
        *least = rate.limit.min(*least);
    }
    let rates = smallest.into_iter().map(|(window, limit)| Rate { limit, window });
    Rates(rates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_one_account_get_its_smallest_limits() {
        let sections: Table = r#"
            [cellar]
            rate = ["10/s", "100/day"]
            [attic]
            account = "cellar"
            rate = "20/s"
            [shed]
            account = "garden"
            rate = "5/s"
            [twilio]
            account = "cellar"
            rate = "1/s"
        "#
        .parse()
        .expect("TOML");
        let mut sections: BTreeMap<String, Table> = sections
            .into_iter()
            .map(|(name, section)| (name, section.try_into().expect("a table")))
            .collect();
        let own = ["cellar", "attic", "shed"].map(str::to_owned);
        let differing = share_limits(&mut sections, &own);
        let rates = |name: &str| rates_of(&sections[name]).expect("rates").to_string();
        assert_eq!(rates("cellar"), "10/s,100/day");
        assert_eq!(rates("attic"), "10/s,100/day");
        assert_eq!(rates("shed"), "5/s");
        assert_eq!(rates("twilio"), "1/s", "a section that is built in");
        let [shared] = &differing[..] else {
            panic!("{differing:?}");
        };
        assert_eq!(shared.account, "cellar");
        assert_eq!(shared.sections, ["attic", "cellar"]);
        assert_eq!(share_limits(&mut sections, &own), []);
    }
}
