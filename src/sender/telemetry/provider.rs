//! How the last requests of a provider ended, for the operator.

use std::time::Duration;

use smsq_message::activity::{LastError, LatencyMillis};
use smsq_message::instant::SteadyMicros;
use smsq_message::sms::{Outcome, Sms, Timestamp};
use smsq_metrics::ProviderMetrics;
use tokio::time::Instant;

use super::latency::RecentLatencies;

pub(crate) struct ProviderTelemetry {
    pub(crate) metrics: ProviderMetrics,
    pub(crate) last_success_at: Option<Timestamp>,
    /// Not of a single recipient or text.
    pub(crate) last_error: Option<LastError>,
    /// Of any message.
    pub(crate) last_failure: Option<(Instant, String)>,
    latencies: RecentLatencies,
}

impl ProviderTelemetry {
    pub(crate) fn new(metrics: ProviderMetrics) -> Self {
        Self {
            metrics,
            last_success_at: None,
            last_error: None,
            last_failure: None,
            latencies: RecentLatencies::default(),
        }
    }

    /// Records how a request ended. `answered`: how long it took and when it ended; `None` without a
    /// connection.
    pub(crate) fn record(
        &mut self,
        rows: &[Sms],
        outcomes: &[Outcome],
        answered: Option<(Duration, SteadyMicros)>,
        now: Timestamp,
    ) {
        if let Some((took, ended_at)) = answered {
            self.latencies.add(took, ended_at);
            self.metrics.record_request(took);
        }
        self.metrics.record_outcomes(outcomes);
        for (sms, outcome) in rows.iter().zip(outcomes) {
            // A rejection says something about one recipient or text, not about the provider.
            let is_of_provider = match outcome {
                Outcome::Accepted(acceptance) | Outcome::Duplicate(acceptance) => {
                    let segments = acceptance.segments.or(sms.segments).unwrap_or(1);
                    let (segments, delay) =
                        (segments.try_into().unwrap_or(1), now.since(sms.due_at));
                    self.metrics.record_accepted(segments, delay);
                    self.last_success_at = Some(now);
                    false
                }
                Outcome::Throttled { .. }
                | Outcome::Unavailable { .. }
                | Outcome::Unknown(_)
                | Outcome::AccountError { .. } => true,
                _ => false,
            };
            let Some(failure) = outcome.failure() else {
                continue;
            };
            let reason = failure.reason.clone();
            if is_of_provider {
                let reason = reason.clone();
                self.last_error = Some(LastError { at: now, reason });
            }
            self.last_failure = Some((Instant::now(), reason));
        }
    }

    /// Of the requests that ended recently.
    pub(crate) fn latency(&self, now: SteadyMicros) -> Option<LatencyMillis> {
        self.latencies.percentiles(now)
    }
}
