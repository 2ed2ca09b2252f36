//! The limits that workers declare for the accounts of providers in column `worker.limits`. The smallest limit of any
//! registered worker applies to all of them, even if that worker sends nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use smsq_message::rate::{Rate, RateError, Rates};

/// The limits of one worker by provider, in the format of the configuration.
type ByProvider = BTreeMap<String, String>;

/// The key of a route among the limits. No provider has a slash in its name.
fn route_key(name: &str) -> String {
    format!("route/{name}")
}

/// The limits of all registered workers.
pub struct DeclaredLimits {
    own: ByProvider,
    /// The other workers, by their ids; an error if nothing is known of the limits of one.
    others: Vec<(i64, Result<ByProvider, serde_json::Error>)>,
}

/// A worker has declared something that is not a limit. It may be stricter than all others, so nothing may start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limits that worker {worker_id} declares cannot be read ({problem}): end that worker, or correct its row"
)]
pub struct UnreadableLimits {
    worker_id: i64,
    problem: String,
}

impl DeclaredLimits {
    /// From the `id` and `limits` of all workers; `None` if `worker_id` is not among them, because another worker has
    /// reclaimed its messages.
    pub fn of(workers: Vec<(i64, String)>, worker_id: i64) -> Option<Self> {
        let mut own = None;
        let mut others = Vec::new();
        for (id, limits) in workers {
            let limits: Result<ByProvider, _> = serde_json::from_str(&limits);
            if id == worker_id {
                // It declares them again.
                own = Some(limits.unwrap_or_default());
            } else {
                others.push((id, limits));
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

    /// Declares the routes of this worker by their names, as [`Route::fingerprint`](smsq_message::route::Route::fingerprint) has
    /// them; returns the new value of its column.
    pub fn declare_routes(&mut self, routes: &BTreeMap<String, String>) -> Option<String> {
        let of_routes = routes.iter().map(|(name, table)| (route_key(name), table.clone()));
        self.own.extend(of_routes);
        serde_json::to_string(&self.own).ok()
    }

    /// The first route that another worker declares differently: its name, and the worker.
    pub fn other_route(&self, routes: &BTreeMap<String, String>) -> Option<(String, i64)> {
        routes.iter().find_map(|(name, table)| {
            let differs = |declared: &&(i64, Result<ByProvider, serde_json::Error>)| {
                let declared = declared.1.as_ref().ok();
                let other = declared.and_then(|declared| declared.get(&route_key(name)));
                other.is_some_and(|other| other != table)
            };
            let (worker_id, _) = self.others.iter().find(differs)?;
            Some((name.clone(), *worker_id))
        })
    }

    /// The smallest limit of any worker for each length of window.
    pub fn agreed(&self, provider: &str, limits: &[Rate]) -> Result<Vec<Rate>, UnreadableLimits> {
        let mut smallest: BTreeMap<Duration, NonZeroU32> = BTreeMap::new();
        let mut include = |rate: Rate| {
            let least = smallest.entry(rate.window).or_insert(rate.limit);
            *least = rate.limit.min(*least);
        };
        limits.iter().copied().for_each(&mut include);
        for (worker_id, by_provider) in &self.others {
            let unreadable = |problem: String| UnreadableLimits { worker_id: *worker_id, problem };
            let declared = by_provider.as_ref().map_err(|error| unreadable(error.to_string()))?;
            if let Some(limits) = declared.get(provider) {
                let rates: Rates =
                    limits.parse().map_err(|error: RateError| unreadable(error.to_string()))?;
                rates.0.into_iter().for_each(&mut include);
            }
        }
        Ok(smallest.into_iter().map(|(window, limit)| Rate { limit, window }).collect())
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
                (4, "{}".to_owned()),
            ]
        };
        let cellar = rates("10/s");
        let claims = || [("cellar", cellar.as_slice()), ("attic", &[])];
        let mut declared = DeclaredLimits::of(workers("{}"), 1).expect("listed");
        let row = declared.declare(claims()).expect("a change");
        assert_eq!(row, r#"{"cellar":"10/s"}"#);
        assert_eq!(declared.declare(claims()), None);
        let agreed = |provider, own: &str| {
            let agreed = declared.agreed(provider, &rates(own));
            Rates(agreed.expect("readable")).to_string()
        };
        assert_eq!(agreed("cellar", "10/s"), "10/s,5/hour");
        assert_eq!(agreed("attic", ""), "1/day");
        assert_eq!(agreed("shed", "7/s,8/s"), "7/s");
        let mut again = DeclaredLimits::of(workers(&row), 1).expect("listed");
        assert_eq!(again.declare(claims()), None);
        assert!(DeclaredLimits::of(workers("{}"), 9).is_none());
    }

    #[test]
    fn route_that_another_worker_has_otherwise_is_found() {
        let other = r#"{"cellar":"5/s","route/main":"x"}"#.to_owned();
        let workers = || vec![(1, r#"{"cellar":"10/s"}"#.to_owned()), (2, other.clone())];
        let mut declared = DeclaredLimits::of(workers(), 1).expect("listed");
        let routes = |table: &str| BTreeMap::from([("main".to_owned(), table.to_owned())]);
        assert_eq!(declared.other_route(&routes("x")), None);
        let differing = declared.other_route(&routes("y"));
        assert_eq!(differing, Some(("main".to_owned(), 2)));
        let other_name = BTreeMap::from([("night".to_owned(), "y".to_owned())]);
        assert_eq!(declared.other_route(&other_name), None);
        let row = declared.declare_routes(&routes("x")).expect("a row");
        assert_eq!(row, r#"{"cellar":"10/s","route/main":"x"}"#);
        // Its limits are those that it had.
        assert_eq!(declared.declare([("cellar", rates("10/s").as_slice())]), None);
    }

    #[test]
    fn unreadable_limit_of_a_worker_is_never_no_limit() {
        let agreed = |other: &str, provider| {
            let workers = vec![(1, "{}".to_owned()), (2, other.to_owned())];
            let declared = DeclaredLimits::of(workers, 1).expect("listed");
            let agreed = declared.agreed(provider, &rates("10/s"));
            agreed.map_err(|error| error.to_string())
        };
        let newer = r#"{"cellar":"5/s;20/fortnight"}"#;
        let error = agreed(newer, "cellar").expect_err("unreadable");
        assert!(error.contains("worker 2"), "{error}");
        assert!(error.contains("5/s;20/fortnight"), "{error}");
        assert_eq!(agreed(newer, "attic"), Ok(rates("10/s")));
        for all in ["unreadable", "", "[]", r#"{"attic":7}"#] {
            assert!(agreed(all, "cellar").is_err(), "{all}");
        }
        // A worker corrects its own row.
        let own = vec![(1, "unreadable".to_owned())];
        let mut own = DeclaredLimits::of(own, 1).expect("listed");
        let limits = rates("10/s");
        let row = own.declare([("cellar", limits.as_slice())]);
        assert_eq!(row.as_deref(), Some(r#"{"cellar":"10/s"}"#));
    }
}
