//! Approvals: which lists wait until a second person has looked at them, and when an approval ends.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use smsq_message::budget::{Budget, amount};
use smsq_message::sms::Timestamp;
use smsq_message::text::messages;

/// An approval ends if nothing starts for this long after it was given, or after the messages are due.
const LAPSES_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Section `[approval]`: which lists wait for a second person. In the database: the strictest rules that any process
/// has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRules {
    /// Lists that give a campaign at least this number of messages; 0: none.
    pub from_messages: u64,
    /// Lists that cost at least this much, with one amount for each currency; empty: none.
    #[serde(deserialize_with = "cost")]
    pub from_cost: Vec<Budget>,
}

fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Budget>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let budget = Budget::stored(&text).map_err(serde::de::Error::custom)?;
    Ok(budget.into_iter().collect())
}

impl ApprovalRules {
    pub fn is_any(&self) -> bool {
        self.from_messages > 0 || !self.from_cost.is_empty()
    }

    /// The rules with which everything waits that waits with one of both.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        let limits = [self.from_messages, other.from_messages].into_iter();
        self.from_messages = limits.filter(|limit| *limit > 0).min().unwrap_or(0);
        for limit in &other.from_cost {
            let mut known = self.from_cost.iter_mut();
            match known.find(|known| known.currency == limit.currency) {
                Some(known) => known.amount = known.amount.min(limit.amount),
                None => self.from_cost.push(limit.clone()),
            }
        }
        self
    }
}

impl fmt::Display for ApprovalRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_messages = (self.from_messages > 0).then(|| messages(self.from_messages));
        let of_cost = self.from_cost.iter().map(ToString::to_string);
        let limits: Vec<String> = of_messages.into_iter().chain(of_cost).collect();
        if limits.is_empty() {
            return f.write_str("never");
        }
        write!(f, "from {}", limits.join(", or from "))
    }
}

/// A list, as far as the rules ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFacts {
    /// Messages of the list.
    pub accepted: u64,
    /// Their cost in millionths of the currency, and how many of them have no known price.
    pub cost: u64,
    pub unpriced: u64,
    /// `None`: its provider has no prices, or its providers have prices in several currencies.
    pub currency: Option<String>,
}

impl ListFacts {
    /// Of a list whose messages were not priced.
    pub fn of_unknown_cost(accepted: u64) -> Self {
        Self { accepted, ..Self::default() }
    }
}

impl ApprovalRules {
    /// The least number of messages of its campaign with which a list needs approval; `None`: their number does not
    /// decide that.
    pub fn least_total(&self, list: &ListFacts) -> Option<u64> {
        if self.reason(0, list).is_some() {
            return None;
        }
        let of_messages = (self.from_messages > 0).then_some(self.from_messages);
        let of_cost = self.from_cost.iter().filter_map(|limit| {
            let currency = list.currency.as_ref()?;
            let is_its = limit.currency.eq_ignore_ascii_case(currency) && list.cost > 0;
            let amount = u128::from(limit.amount.unsigned_abs());
            let total = (amount * u128::from(list.accepted)).div_ceil(u128::from(list.cost.max(1)));
            is_its.then(|| u64::try_from(total).unwrap_or(u64::MAX))
        });
        of_messages.into_iter().chain(of_cost).min()
    }

    /// Why a list needs approval after which its campaign has `total` messages; `None`: it needs none. The price of the
    /// others is taken to be that of this list. What is not known needs approval.
    pub fn reason(&self, total: u64, list: &ListFacts) -> Option<String> {
        let total = total.max(list.accepted);
        if self.from_messages > 0 && total >= self.from_messages {
            let limit = self.from_messages;
            let total = messages(total);
            return Some(format!("it has {total}, and `approval.from_messages` is {limit}"));
        }
        let limit = self.from_cost.first()?;
        let Some(currency) = &list.currency else {
            return Some(format!(
                "its cost is not known, because its provider has no prices in one currency, and `approval.from_cost` is {limit}"
            ));
        };
        if list.unpriced > 0 {
            let unpriced = messages(list.unpriced);
            return Some(format!(
                "its cost is not known, because {unpriced} have no price, and `approval.from_cost` is {limit}"
            ));
        }
        let spent = u128::from(list.cost) * u128::from(total) / u128::from(list.accepted.max(1));
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        let mut limits = self.from_cost.iter();
        let of_currency = limits.find(|limit| limit.currency.eq_ignore_ascii_case(currency));
        // What is in another currency is not compared, so it needs approval.
        let is_cheap = of_currency.is_some_and(|limit| spent < limit.amount);
        let limit = of_currency.unwrap_or(limit);
        (!is_cheap).then(|| {
            let spent = amount(spent, currency);
            format!("it costs about {spent}, and `approval.from_cost` is {limit}")
        })
    }
}

/// Whether messages or settings may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalState {
    /// They need no approval.
    #[default]
    NotNeeded = 0,
    /// Messages are being added, or their import was interrupted.
    Undecided = 1,
    Waiting = 2,
    Granted = 3,
    /// They are granted, and some of them were sent.
    Begun = 4,
    /// A person said why they are not sent. They may still be granted.
    Rejected = 5,
    /// They were cancelled or have expired before they were granted. If they are put back, who added them cannot approve
    /// them.
    Ended = 6,
}

impl ApprovalState {
    /// Those whose messages may start.
    pub const FREE: [Self; 3] = [Self::NotNeeded, Self::Granted, Self::Begun];
    /// Those for which nothing waits.
    pub const NOT_WAITING: [Self; 4] = [Self::NotNeeded, Self::Granted, Self::Begun, Self::Ended];

    /// An unknown state, which a newer smsq may have written, counts as waiting.
    pub const fn of(code: i32) -> Self {
        match code {
            0 => Self::NotNeeded,
            1 => Self::Undecided,
            3 => Self::Granted,
            4 => Self::Begun,
            5 => Self::Rejected,
            6 => Self::Ended,
            _ => Self::Waiting,
        }
    }

    pub const fn code(self) -> i32 {
        self as i32
    }

    pub fn is_free(self) -> bool {
        Self::FREE.contains(&self)
    }

    /// Why a message that is due does not start, although it was granted at `granted_at`; `None`: it starts.
    pub fn lapse(
        self,
        granted_at: Timestamp,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Option<&'static str> {
        let is_late = now.since(granted_at.max(due_at)) > LAPSES_AFTER;
        (self == Self::Granted && is_late)
            .then_some("nothing was sent within 24 hours of its approval")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(from_messages: u64, from_cost: &[&str]) -> ApprovalRules {
        let from_cost = from_cost.iter().map(|text| text.parse().expect("a budget"));
        ApprovalRules { from_messages, from_cost: from_cost.collect() }
    }

    fn list(accepted: u64, cost: u64, unpriced: u64, currency: Option<&str>) -> ListFacts {
        ListFacts { accepted, cost, unpriced, currency: currency.map(str::to_owned) }
    }

    #[test]
    fn cost_that_is_not_known_needs_approval() {
        let rules = rules(0, &["1 EUR"]);
        let reason = |list: &ListFacts| rules.reason(list.accepted, list);
        assert_eq!(reason(&list(9, 900_000, 0, Some("EUR"))), None);
        assert!(reason(&list(9, 1_000_000, 0, Some("EUR"))).is_some());
        for unknown in
            [list(9, 0, 0, None), list(9, 900, 1, Some("EUR")), list(9, 900, 0, Some("USD"))]
        {
            assert!(reason(&unknown).is_some(), "{unknown:?}");
        }
    }

    #[test]
    fn price_of_other_messages_is_that_of_the_list() {
        let rules = rules(0, &["1 EUR"]);
        let of_ten = list(10, 100_000, 0, Some("EUR"));
        assert_eq!(rules.reason(99, &of_ten), None);
        assert!(rules.reason(100, &of_ten).is_some());
    }

    #[test]
    fn least_total_is_the_first_that_needs_approval() {
        for rules in [
            rules(70, &[]),
            rules(0, &["1 EUR", "1 USD"]),
            rules(70, &["1 EUR"]),
            rules(20, &["0.33 EUR"]),
        ] {
            for list in [list(10, 100_000, 0, Some("EUR")), list(3, 100_001, 0, Some("eur"))] {
                let least = rules.least_total(&list).expect("a number");
                assert!(rules.reason(least, &list).is_some(), "{rules} {list:?}");
                assert_eq!(rules.reason(least - 1, &list), None, "{rules} {list:?}");
            }
        }
        let free = list(10, 0, 0, Some("EUR"));
        assert_eq!(rules(0, &["1 EUR"]).least_total(&free), None);
        assert_eq!(rules(9, &[]).least_total(&free), None);
    }

    #[test]
    fn strictest_rules_of_two_are_kept() {
        let both = rules(0, &["5 EUR"]).with(&rules(70, &["9 EUR", "3 USD"]));
        assert_eq!(both, rules(70, &["5 EUR", "3 USD"]));
        assert_eq!(both.clone().with(&rules(90, &[])), both);
        assert_eq!(rules(0, &[]).with(&both), both);
    }

    #[test]
    fn approval_ends_where_nothing_starts_for_a_day() {
        let (at, hour) = (Timestamp::from_millis(0), Duration::from_secs(3_600));
        let lapse = |state: ApprovalState, due_in, hours| {
            state.lapse(at, at.plus(hour * due_in), at.plus(hour * hours))
        };
        assert_eq!(lapse(ApprovalState::Granted, 0, 24), None);
        assert!(lapse(ApprovalState::Granted, 0, 25).is_some());
        assert_eq!(lapse(ApprovalState::Granted, 10, 30), None);
        assert_eq!(lapse(ApprovalState::Begun, 0, 99), None);
        assert_eq!(lapse(ApprovalState::NotNeeded, 0, 99), None);
    }
}
