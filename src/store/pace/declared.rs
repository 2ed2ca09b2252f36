//! The rate limits that workers declare for each provider's account, as column `worker.limits` keeps
//! them. The smallest holds for all workers as long as the one that declared it is on the list,
//! whether or not that one sends anything.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::super::queue::RouteClaim;
use crate::rate::{Rate, Rates};

/// One worker's limits by provider, written as in the configuration.
type ByProvider = BTreeMap<String, String>;

/// All listed workers' limits, as one transaction of a worker sees them.
pub(in crate::store) struct DeclaredLimits {
    own: ByProvider,
    others: Vec<ByProvider>,
}

impl DeclaredLimits {
    /// From the `id` and `limits` of all workers; `None` when `worker_id` is not among them: another
    /// worker has declared it dead.
    pub(in crate::store) fn of(workers: Vec<(i64, String)>, worker_id: i64) -> Option<Self> {
        let mut own = None;
        let mut others = Vec::new();
        for (id, limits) in workers {
            let limits: ByProvider = serde_json::from_str(&limits).unwrap_or_default();
            if id == worker_id {
                own = Some(limits);
            } else if !limits.is_empty() {
                others.push(limits);
            }
        }
        own.map(|own| Self { own, others })
    }

    /// Takes up the limits that this worker claims under; returns what its row must hold now, where
    /// that has changed.
    pub(in crate::store) fn declare(&mut self, claims: &[RouteClaim]) -> Option<String> {
        let mut changed = false;
        for claim in claims {
            let limits = Rates(claim.limits.clone()).to_string();
            if self.own.get(&claim.provider).map_or("", String::as_str) != limits {
                self.own.insert(claim.provider.clone(), limits);
                changed = true;
            }
        }
        let row = changed.then(|| serde_json::to_string(&self.own));
        row.and_then(Result::ok)
    }

    /// The limits that hold for a claim: for each length of window the smallest of any worker.
    pub(in crate::store) fn agreed(&self, claim: &RouteClaim) -> Vec<Rate> {
        let others = self.others.iter().filter_map(|by| by.get(&claim.provider));
        let others = others.filter_map(|limits| limits.parse::<Rates>().ok());
        let mut smallest: BTreeMap<Duration, NonZeroU32> = BTreeMap::new();
        for rate in others.flat_map(|rates| rates.0).chain(claim.limits.clone()) {
            let least = smallest.entry(rate.window).or_insert(rate.limit);
            *least = rate.limit.min(*least);
        }
        let rates = smallest.into_iter();
        rates
            .map(|(window, limit)| Rate { limit, window })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(provider: &str, limits: &str) -> RouteClaim {
        RouteClaim {
            provider: provider.to_owned(),
            is_default: false,
            limits: limits.parse::<Rates>().expect("rates").0,
            by_segments: false,
            from_us: 0,
            until_us: 0,
            returned: Vec::new(),
            held: Vec::new(),
            want: 0,
            calls: 0,
            asks: Vec::new(),
        }
    }

    #[test]
    fn smallest_limit_of_each_window_holds_for_its_provider() {
        let workers = |own: &str| {
            vec![
                (1, own.to_owned()),
                (2, r#"{"cellar":"5/hour,100/s"}"#.to_owned()),
                (3, r#"{"cellar":"20/hour","attic":"1/day"}"#.to_owned()),
                (4, "unreadable".to_owned()),
            ]
        };
        let claims = [claim("cellar", "10/s"), claim("attic", "")];
        let mut declared = DeclaredLimits::of(workers("{}"), 1).expect("listed");
        let row = declared.declare(&claims).expect("a change");
        assert_eq!(row, r#"{"cellar":"10/s"}"#);
        assert_eq!(declared.declare(&claims), None);
        let agreed = |claim| Rates(declared.agreed(claim)).to_string();
        assert_eq!(agreed(&claims[0]), "10/s,5/hour");
        assert_eq!(agreed(&claims[1]), "1/day");
        assert_eq!(agreed(&claim("shed", "7/s,8/s")), "7/s");
        let mut again = DeclaredLimits::of(workers(&row), 1).expect("listed");
        assert_eq!(again.declare(&claims), None);
        assert!(DeclaredLimits::of(workers("{}"), 9).is_none());
    }
}
