//! What all parts of a running worker share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use smsq_lifecycle::Settlement;
use smsq_lifecycle::resend::ResendRule;
use smsq_message::sms::{Sms, Timestamp};
use smsq_metrics::Metrics;
use smsq_provider::Provider;
use smsq_store::{CampaignStop, ProviderPause, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock::Clock;
use super::database::Database;
use super::lease::Lease;
use super::local_files::marks::Marks;
use super::telemetry::Progress;
use super::{OnUnknown, Settings};

/// How long after the stop signal a worker waits for its database, which leaves some of the time for what comes after.
pub(super) const STOPPING_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct WorkerContext {
    pub(super) database: Database,
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) settings: Settings,
    pub(super) progress: Arc<Progress>,
    pub(super) stop: StopSignal,
    pub(super) claimed: Claimed,
    pub(super) marks: Arc<Marks>,
    pub(super) metrics: Arc<Metrics>,
}

impl WorkerContext {
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.sender.borrow().is_some()
    }

    /// The output of what waits for the database since `began`; an error if it takes longer than [`STOPPING_PATIENCE`]
    /// while the worker stops.
    pub(super) async fn while_patient<W: Future>(
        &self,
        began: Instant,
        work: W,
    ) -> Result<W::Output, StoreError> {
        let is_over = async {
            let stopped_at = self.stop.since().await;
            tokio::time::sleep_until(began.max(stopped_at) + STOPPING_PATIENCE).await;
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = is_over => Err(self.database.no_answer()),
        }
    }

    /// When messages in doubt are sent to this provider again. It may receive a request until it times out, so the
    /// last one starts that much earlier.
    pub(super) fn resend_rule(&self, provider: &Provider) -> ResendRule {
        if self.settings.sender.on_unknown == OnUnknown::Resend {
            return ResendRule::Always;
        }
        let Some(remembered) = provider.capabilities().honoured_for() else {
            return ResendRule::Never;
        };
        ResendRule::Within(remembered.saturating_sub(provider.timeout()))
    }
}

/// Whether the worker must stop: it starts nothing, and settles what is in flight.
pub(super) struct StopSignal {
    /// Since when it must stop.
    sender: watch::Sender<Option<Instant>>,
    /// Why the database must not be used by this worker any more.
    failed: OnceLock<StoreError>,
}

impl StopSignal {
    pub(super) fn new() -> Self {
        Self { sender: watch::Sender::new(None), failed: OnceLock::new() }
    }

    /// Waits until the worker must stop.
    pub(super) async fn stopped(&self) {
        self.since().await;
    }

    /// Waits until the worker must stop; returns since when.
    async fn since(&self) -> Instant {
        let mut stop = self.sender.subscribe();
        let stopped = stop.wait_for(Option::is_some).await;
        stopped.expect("the sender is not dropped before this").expect("it waited for an instant")
    }

    fn begin(&self) {
        self.sender.send_if_modified(|since| {
            let is_first = since.is_none();
            since.get_or_insert_with(Instant::now);
            is_first
        });
    }

    /// Stops the worker as soon as the user stops the run. Ends if no one can.
    pub(super) async fn follow(&self, mut run: watch::Receiver<bool>) {
        if run.wait_for(|stop| *stop).await.is_ok() {
            self.begin();
        }
    }

    /// Stops the worker because of an error of the database that ends the run.
    pub(super) fn stop_for(&self, error: StoreError) {
        // A second error says the same.
        let _ = self.failed.set(error);
        self.begin();
    }

    pub(super) fn error(&self) -> Option<&StoreError> {
        self.failed.get()
    }

    /// An error if results must not be stored, because the database is not the one that the worker claimed from.
    pub(super) fn check_past(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            Some(error) if error.kind() == StoreErrorKind::LostCommits => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

/// The messages and claims of this worker whose settlement is not stored yet. A message may be claimed again before the
/// result of an earlier claim is stored.
#[derive(Default)]
pub(super) struct Claimed(Mutex<HashSet<(i64, i64)>>);

impl Claimed {
    pub(super) fn add(&self, claims: impl IntoIterator<Item = (i64, i64)>) {
        self.lock().extend(claims);
    }

    pub(super) fn remove(&self, id: i64, claim: i64) {
        self.lock().remove(&(id, claim));
    }

    pub(super) fn all(&self) -> HashSet<(i64, i64)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(i64, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker has learned and not committed yet.
#[derive(Default)]
pub(super) struct Results {
    /// When they are decided.
    pub(super) now: Timestamp,
    pub(super) settlements: Vec<Settlement>,
    /// Accepted messages as they were claimed, by id.
    pub(super) claimed: HashMap<i64, Sms>,
    pub(super) campaign_stops: Vec<CampaignStop>,
    pub(super) pauses: Vec<ProviderPause>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_an_earlier_claim_leaves_the_newer_one_claimed() {
        let claimed = Claimed::default();
        claimed.add([(7, 1)]);
        claimed.add([(7, 2)]);
        claimed.remove(7, 1);
        assert_eq!(claimed.all(), HashSet::from([(7, 2)]));
    }
}
