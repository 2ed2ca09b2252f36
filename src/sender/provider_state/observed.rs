//! What the operator sees of a provider: its state now, and how its last requests ended.

use std::time::Duration;

use super::ProviderState;
use crate::activity::{LastError, ProviderActivity};
use crate::metrics::ProviderMetrics;
use crate::rate::Rates;
use crate::sender::latency::RecentLatencies;
use crate::sms::{Outcome, Sms, Timestamp};

/// How the last requests of a provider ended.
pub(super) struct Observed {
    last_success_at: Option<Timestamp>,
    last_error: Option<LastError>,
    latencies: RecentLatencies,
    metrics: ProviderMetrics,
}

impl Observed {
    pub(super) fn new(metrics: ProviderMetrics) -> Self {
        Self {
            last_success_at: None,
            last_error: None,
            latencies: RecentLatencies::default(),
            metrics,
        }
    }
}

impl ProviderState {
    /// Notes how a request ended. `answered`: how long it took and when it ended, in microseconds of the host's steady
    /// clock; `None` without a connection.
    pub(in crate::sender) fn observe(
        &mut self,
        rows: &[Sms],
        outcomes: &[Outcome],
        answered: Option<(i64, i64)>,
        now: Timestamp,
    ) {
        let observed = &mut self.observed;
        if let Some((took_us, ended_us)) = answered {
            observed.latencies.add(took_us, ended_us);
            let took = Duration::from_micros(took_us.try_into().unwrap_or(0));
            observed.metrics.note_request(took);
        }
        observed.metrics.note_outcomes(outcomes);
        for (sms, outcome) in rows.iter().zip(outcomes) {
            if let Outcome::Accepted(acceptance) = outcome {
                let segments = acceptance.segments.or(sms.segments).unwrap_or(1);
                let segments = segments.try_into().unwrap_or(1);
                observed
                    .metrics
                    .note_accepted(segments, now.since(sms.due_at));
            }
        }
        let is_accepted = |outcome: &Outcome| matches!(outcome, Outcome::Accepted(_));
        if outcomes.iter().any(is_accepted) {
            observed.last_success_at = Some(now);
        }
        // A rejection says something about one recipient or text, not about the provider.
        let is_of_provider = |outcome: &&Outcome| {
            matches!(
                outcome,
                Outcome::Throttled { .. }
                    | Outcome::Unavailable { .. }
                    | Outcome::Unknown(_)
                    | Outcome::AccountError { .. }
            )
        };
        let mut errors = outcomes.iter().rev().filter(is_of_provider);
        if let Some(failure) = errors.find_map(Outcome::failure) {
            let reason = failure.reason.clone();
            observed.last_error = Some(LastError { at: now, reason });
        }
    }

    /// In the metrics of a run that has ended, it is neither down nor throttled.
    pub(in crate::sender) fn reset_metrics(&self) {
        self.observed.metrics.set_state(false, None);
    }

    /// Its state for the operator, which the metrics get too. `steady_us` is now on the host's steady clock.
    pub(in crate::sender) fn activity(&self, now: Timestamp, steady_us: i64) -> ProviderActivity {
        let throttled_until = Some(self.paused_until).filter(|until| *until > now);
        let metrics = &self.observed.metrics;
        metrics.set_state(self.breaker.is_open(), throttled_until);
        ProviderActivity {
            name: self.provider.name().to_owned(),
            in_flight: self.in_flight,
            breaker_open: self.breaker.is_open(),
            unavailable_since: self.breaker.open_since(),
            probing_at: self.breaker.probe_at(),
            throttled_until,
            last_success_at: self.observed.last_success_at,
            last_error: self.observed.last_error.clone(),
            latency_ms: self.observed.latencies.percentiles(steady_us),
            rate_limit: Rates(self.limits.clone()).to_string(),
        }
    }
}
