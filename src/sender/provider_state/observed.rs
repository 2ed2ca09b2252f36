//! What the operator sees of a provider: its state now, and how its last requests ended.

use super::ProviderState;
use crate::activity::{LastError, ProviderActivity};
use crate::rate::Rates;
use crate::sender::latency::RecentLatencies;
use crate::sms::{Outcome, Timestamp};

/// How the last requests of a provider ended.
#[derive(Default)]
pub(super) struct Observed {
    last_success_at: Option<Timestamp>,
    last_error: Option<LastError>,
    latencies: RecentLatencies,
}

impl ProviderState {
    /// Notes how a request ended. `answered`: how long it took and when it ended, in microseconds of the host's steady
    /// clock; `None` without a connection.
    pub(in crate::sender) fn observe(
        &mut self,
        outcomes: &[Outcome],
        answered: Option<(i64, i64)>,
        now: Timestamp,
    ) {
        let observed = &mut self.observed;
        if let Some((took_us, ended_us)) = answered {
            observed.latencies.add(took_us, ended_us);
        }
        let is_accepted = |outcome: &Outcome| matches!(outcome, Outcome::Accepted(_));
        if outcomes.iter().any(is_accepted) {
            observed.last_success_at = Some(now);
        }
        if let Some(failure) = outcomes.iter().rev().find_map(Outcome::failure) {
            let reason = failure.reason.clone();
            observed.last_error = Some(LastError { at: now, reason });
        }
    }

    /// Its state for the operator. `steady_us` is now on the host's steady clock.
    pub(in crate::sender) fn activity(&self, now: Timestamp, steady_us: i64) -> ProviderActivity {
        ProviderActivity {
            name: self.provider.name().to_owned(),
            in_flight: self.in_flight,
            breaker_open: self.breaker.is_open(),
            probing_at: self.breaker.probe_at(),
            throttled_until: Some(self.paused_until).filter(|until| *until > now),
            last_success_at: self.observed.last_success_at,
            last_error: self.observed.last_error.clone(),
            latency_ms: self.observed.latencies.percentiles(steady_us),
            rate_limit: Rates(self.limits.clone()).to_string(),
        }
    }
}
