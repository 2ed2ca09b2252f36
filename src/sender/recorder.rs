//! What a worker has to publish: counts since the last publication, and the state of its providers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::activity::{ActivityCounts, ActivityRow, ProviderActivity, span_of};
use crate::sms::Timestamp;

/// Written by the dispatcher, and read by the publisher.
pub(super) struct Recorder {
    /// The names of the providers by their indexes.
    providers: Vec<String>,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    /// By span, campaign and the index of the provider.
    counts: HashMap<(Timestamp, i64, usize), ActivityCounts>,
    snapshot: WorkerSnapshot,
}

/// The state of the providers at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerSnapshot {
    /// Requests in flight.
    pub(super) in_flight: u32,
    pub(super) providers: Vec<ProviderActivity>,
}

impl Recorder {
    pub(super) fn new(providers: Vec<String>) -> Self {
        Self {
            providers,
            recorded: Mutex::default(),
        }
    }

    /// Adds what happened to messages of a campaign; `provider` is an index.
    pub(super) fn add(
        &self,
        at: Timestamp,
        campaign_id: i64,
        provider: usize,
        counts: ActivityCounts,
    ) {
        if !counts.is_empty() {
            let key = (span_of(at), campaign_id, provider);
            *self.lock().counts.entry(key).or_default() += counts;
        }
    }

    pub(super) fn set_snapshot(&self, snapshot: WorkerSnapshot) {
        self.lock().snapshot = snapshot;
    }

    pub(super) fn snapshot(&self) -> WorkerSnapshot {
        self.lock().snapshot.clone()
    }

    /// The counts that were not taken yet, in no order.
    pub(super) fn take(&self) -> Vec<ActivityRow> {
        let counts = std::mem::take(&mut self.lock().counts);
        let row = |((at, campaign_id, provider), counts): ((_, _, usize), _)| ActivityRow {
            at,
            campaign_id,
            provider: self.providers[provider].clone(),
            counts,
        };
        counts.into_iter().map(row).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
