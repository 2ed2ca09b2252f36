//! What a run has done so far, and the state of its worker: written by the worker, and read by the publisher and by the
//! command that runs it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smsq_message::activity::{ActivityCounts, ActivityRow, Bottleneck, ProviderActivity, span_of};
use smsq_message::sms::Timestamp;
use tokio::time::Instant;

use super::bottleneck::WaitTimes;

/// What a run has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages that their provider accepted.
    pub sent: AtomicU64,
    pub failed: AtomicU64,
    pub unknown: AtomicU64,
    /// Messages of requests that were started.
    pub attempts: AtomicU64,
    /// Messages queued for another attempt.
    pub retried: AtomicU64,
    pub in_flight: AtomicU64,
    /// How often the worker has got or renewed its lease.
    pub heartbeats: AtomicU64,
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// What is not published yet, by span, campaign and provider.
    counts: BTreeMap<(Timestamp, i64, String), ActivityCounts>,
    waits: WaitTimes,
    snapshot: WorkerSnapshot,
}

/// The state of a worker at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerSnapshot {
    /// What keeps the worker from sending.
    pub(crate) note: Option<String>,
    /// Results wait in memory, because the database cannot store them.
    pub(crate) has_unstored: bool,
    pub(crate) trouble: Option<String>,
    /// The last reason why a message was not accepted, and when.
    pub(crate) last_failure: Option<(Instant, String)>,
    pub(crate) providers: Vec<ProviderActivity>,
}

impl Progress {
    /// What the operator should know now, such as a provider or a database that is unavailable.
    pub fn note(&self) -> Option<String> {
        self.recorded().snapshot.note.clone()
    }

    /// Whether results wait in memory, because the database cannot store them.
    pub fn has_unstored_results(&self) -> bool {
        self.recorded().snapshot.has_unstored
    }

    /// Why nothing was accepted in this run, until something is.
    pub fn trouble(&self) -> Option<String> {
        self.recorded().snapshot.trouble.clone()
    }

    /// The last reason why a message was not accepted, and when.
    pub fn last_failure(&self) -> Option<(Instant, String)> {
        self.recorded().snapshot.last_failure.clone()
    }

    pub(crate) fn set_snapshot(&self, snapshot: WorkerSnapshot) {
        self.recorded().snapshot = snapshot;
    }

    /// The state of the providers at the last snapshot.
    pub(super) fn providers(&self) -> Vec<ProviderActivity> {
        self.recorded().snapshot.providers.clone()
    }

    /// Adds to how long the dispatcher waited for a reason.
    pub(crate) fn add_wait(&self, reason: Option<Bottleneck>, took: Duration) {
        self.recorded().waits.add(reason, took);
    }

    pub(crate) fn waits(&self) -> WaitTimes {
        self.recorded().waits.clone()
    }

    /// Adds what happened to messages of a campaign.
    pub(crate) fn record(
        &self,
        at: Timestamp,
        campaign_id: i64,
        provider: &str,
        counts: ActivityCounts,
    ) {
        for (total, count) in [
            (&self.sent, counts.sent),
            (&self.failed, counts.failed),
            (&self.unknown, counts.unknown),
        ] {
            total.fetch_add(count, Ordering::Relaxed);
        }
        self.keep(ActivityRow {
            at: span_of(at),
            campaign_id,
            provider: provider.to_owned(),
            counts,
        });
    }

    /// Keeps counts until they are published.
    pub(super) fn keep(&self, row: ActivityRow) {
        if !row.counts.is_empty() {
            let key = (row.at, row.campaign_id, row.provider);
            *self.recorded().counts.entry(key).or_default() += row.counts;
        }
    }

    /// Takes out the counts that are not published yet.
    pub(super) fn take_counts(&self) -> Vec<ActivityRow> {
        let row = |((at, campaign_id, provider), counts)| ActivityRow {
            at,
            campaign_id,
            provider,
            counts,
        };
        let counts = std::mem::take(&mut self.recorded().counts);
        counts.into_iter().map(row).collect()
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
