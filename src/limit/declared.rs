//! The limits that workers declare for the accounts of providers in column `worker.limits`. The smallest limit of any
//! registered worker applies to all of them, even if that worker sends nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::rate::{Rate, Rates};

/// The limits of one worker by provider, in the format of the configuration.
type ByProvider = BTreeMap<String, String>;

/// The limits of all registered workers.
pub struct DeclaredLimits {
    own: ByProvider,
    others: Vec<ByProvider>,
}

impl DeclaredLimits {
    /// From the `id` and `limits` of all workers; `None` if `worker_id` is not among them, because another worker has
    /// reclaimed its messages.
    pub fn of(workers: Vec<(i64, String)>, worker_id: i64) -> Option<Self> {
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

    /// Sets this worker's limits by provider; returns the new value of its column if that has changed.
    pub fn declare<'a>(
        &mut self,
        claims: impl IntoIterator<Item = (&'a str, &'a [Rate])>,
    ) -> Option<String> {
        let mut is_changed = false;
        for (provider, limits) in claims {
            let limits = Rates(limits.to_vec()).to_string();
            if self.own.get(provider).map_or("", String::as_str) != limits {
                self.own.insert(provider.to_owned(), limits);
                is_changed = true;
            }
        }
        let row = is_changed.then(|| serde_json::to_string(&self.own));
        row.and_then(Result::ok)
    }

    /// The smallest limit of any worker for each length of window.
    pub fn agreed(&self, provider: &str, limits: &[Rate]) -> Vec<Rate> {
        let others = self.others.iter().filter_map(|by| by.get(provider));
        let others = others.filter_map(|limits| limits.parse::<Rates>().ok());
        let mut smallest: BTreeMap<Duration, NonZeroU32> = BTreeMap::new();
        let all = others.flat_map(|rates| rates.0).chain(limits.to_vec());
        for rate in all {
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

    fn rates(text: &str) -> Vec<Rate> {
        text.parse::<Rates>().expect("rates").0
    }

    #[test]
    fn smallest_limit_of_each_window_applies_to_its_provider() {
        let workers = |own: &str| {
            vec![
                (1, own.to_owned()),
                (2, r#"{"cellar":"5/hour,100/s"}"#.to_owned()),
                (3, r#"{"cellar":"20/hour","attic":"1/day"}"#.to_owned()),
                (4, "unreadable".to_owned()),
            ]
        };
        let cellar = rates("10/s");
        let claims = || [("cellar", cellar.as_slice()), ("attic", &[])];
        let mut declared = DeclaredLimits::of(workers("{}"), 1).expect("listed");
        let row = declared.declare(claims()).expect("a change");
        assert_eq!(row, r#"{"cellar":"10/s"}"#);
        assert_eq!(declared.declare(claims()), None);
        let agreed =
            |provider, own: &str| Rates(declared.agreed(provider, &rates(own))).to_string();
        assert_eq!(agreed("cellar", "10/s"), "10/s,5/hour");
        assert_eq!(agreed("attic", ""), "1/day");
        assert_eq!(agreed("shed", "7/s,8/s"), "7/s");
        let mut again = DeclaredLimits::of(workers(&row), 1).expect("listed");
        assert_eq!(again.declare(claims()), None);
        assert!(DeclaredLimits::of(workers("{}"), 9).is_none());
    }
}
