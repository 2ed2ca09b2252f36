//! What all parts of a running worker share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::clock::Clock;
use super::database::Database;
use super::lease::Lease;
use super::marks::Marks;
use super::telemetry::Progress;
use super::{OnUnknown, Settings};
use crate::metrics::Metrics;
use crate::provider::Provider;
use crate::queue::Settlement;
use crate::queue::resend::ResendRule;
use crate::sms::Timestamp;
use crate::store::{CampaignStop, ProviderPause};

pub(super) struct WorkerContext {
    pub(super) database: Database,
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) settings: Settings,
    pub(super) progress: Arc<Progress>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) claimed: Claimed,
    pub(super) marks: Arc<Marks>,
    pub(super) metrics: Arc<Metrics>,
}

impl WorkerContext {
    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
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

/// The messages that this worker claimed and whose settlement is not stored yet.
#[derive(Default)]
pub(super) struct Claimed(Mutex<HashSet<i64>>);

impl Claimed {
    pub(super) fn add(&self, ids: impl IntoIterator<Item = i64>) {
        self.lock().extend(ids);
    }

    pub(super) fn remove(&self, id: i64) {
        self.lock().remove(&id);
    }

    pub(super) fn ids(&self) -> HashSet<i64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker has learned and not committed yet.
#[derive(Default)]
pub(super) struct Results {
    /// When they are decided.
    pub(super) now: Timestamp,
    pub(super) settlements: Vec<Settlement>,
    pub(super) campaign_stops: Vec<CampaignStop>,
    pub(super) pauses: Vec<ProviderPause>,
}
