//! Delivery receipts: fetches them, applies those that came before their message, and ends the wait for those that never
//! came. `send`, `receipts` and `serve` do this with [`ReceiptPuller`]. One process of several fetches the receipts of a
//! provider, and another takes over when its lease ends.

mod cadence;
mod pull;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use smsq_message::sms::{Failure, Timestamp};
use smsq_metrics::Metrics;
use smsq_provider::Provider;
use smsq_provider::client::ClientError;
use smsq_store::{ReceiptsApplied, Store, StoreError, TriedAt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use pull::PulledProvider;

/// Section `[receipts]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How long `send` and `run` wait for receipts after everything is sent.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub wait: Duration,
    /// How long after it was sent a message without a receipt is `no_report`.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub no_report_after: Duration,
}
/// The longest time between two tries of receipts that came before their message.
const APPLY_EVERY: Duration = Duration::from_secs(1);
/// The time between two looks for messages whose receipt never came.
const END_EVERY: Duration = Duration::from_secs(60);

/// Which receipts are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullMode {
    /// What is due by the cadence of each provider.
    Due,
    /// All that is awaited.
    Now,
    /// All that is awaited, from the repeatable source of each provider.
    Recheck,
}

/// What one pass over the providers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullSummary {
    /// Receipts that the providers returned.
    pub fetched: u64,
    pub applied: ReceiptsApplied,
    /// Messages whose wait for a receipt ended without one.
    pub no_report: u64,
    /// Providers whose receipts another process fetches at this moment.
    pub busy: Vec<String>,
    /// Providers that could not be asked, and why.
    pub failed: Vec<(String, Failure)>,
}

impl std::ops::AddAssign for PullSummary {
    fn add_assign(&mut self, other: Self) {
        self.fetched += other.fetched;
        self.applied += other.applied;
        self.no_report += other.no_report;
        self.busy = other.busy;
        self.failed = other.failed;
    }
}

/// Fetches and applies the receipts of several providers.
pub struct ReceiptPuller {
    store: Store,
    providers: Vec<PulledProvider>,
    /// Providers whose receipts can only be fetched by another process.
    fetched_elsewhere: BTreeSet<String>,
    /// That of campaigns that name none.
    default_provider: Option<String>,
    no_report_after: Duration,
    /// A random number, which names this process in the leases.
    holder: i64,
    stop: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    /// When it last ended the wait for receipts that never came.
    ended_at: Option<Instant>,
}

impl ReceiptPuller {
    /// Uses the providers whose receipts can be fetched. Ends soon after `stop` is true.
    pub fn new(
        store: Store,
        providers: &BTreeMap<String, Arc<Provider>>,
        config: &Config,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, ClientError> {
        let pulled: Result<Vec<PulledProvider>, ClientError> = providers
            .values()
            .filter(|provider| provider.pull().is_some())
            .map(PulledProvider::new)
            .collect();
        Ok(Self {
            providers: pulled?,
            ..Self::applying(store, &BTreeMap::new(), config.no_report_after, stop)
        })
    }

    /// Fetches nothing: it applies receipts that are posted, or that other processes fetch.
    pub fn applying(
        store: Store,
        providers: &BTreeMap<String, Arc<Provider>>,
        no_report_after: Duration,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            store,
            providers: Vec::new(),
            fetched_elsewhere: providers
                .values()
                .filter(|provider| provider.pull().is_some())
                .map(|provider| provider.name().to_owned())
                .collect(),
            default_provider: None,
            no_report_after,
            holder: rand::random::<i64>(),
            stop,
            metrics: Arc::default(),
            ended_at: None,
        }
    }

    /// The provider of campaigns that name none; without it, any provider may be theirs.
    #[must_use]
    pub fn with_default(mut self, provider: Option<String>) -> Self {
        self.default_provider = provider;
        self
    }

    /// Counts new receipts in these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Whether the receipts of any of the providers can be fetched.
    pub fn can_pull(&self) -> bool {
        !self.providers.is_empty()
    }

    /// Whether a message of this campaign, or of any, awaits a receipt of one of the providers: it is sent, or its outcome
    /// is not known.
    pub async fn is_awaiting(&self, campaign: Option<i64>) -> Result<bool, StoreError> {
        for pulled in &self.providers {
            if self.awaits(pulled.provider.name(), campaign).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn awaits(&self, provider: &str, campaign: Option<i64>) -> Result<bool, StoreError> {
        if self.store.receipts().is_awaiting(provider, campaign).await? {
            return Ok(true);
        }
        let now = self.store.now().await?;
        let recent = now.minus(self.no_report_after)..=now;
        let tried = TriedAt { provider, is_default: self.is_default(provider) };
        let found = self.store.receipts().unknown_span(tried, campaign, &recent).await?;
        Ok(found.is_some())
    }

    fn is_default(&self, provider: &str) -> bool {
        let default = self.default_provider.as_deref();
        default.is_none_or(|default| default == provider)
    }

    /// Fetches and applies receipts until it is stopped.
    pub async fn run(mut self) {
        while !*self.stop.borrow() {
            match self.pass(PullMode::Due, true).await {
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "cannot apply receipts"),
            }
            self.wait(None).await;
        }
    }

    /// Waits until something may be due, but not beyond `until`, or until it is stopped.
    pub async fn wait(&mut self, until: Option<Instant>) {
        // Receipts that came before their message are applied meanwhile.
        let soon = Instant::now() + APPLY_EVERY;
        let next = self
            .providers
            .iter()
            .map(|pulled| pulled.next_pass)
            .chain(until)
            .fold(soon, Instant::min);
        sleep(next, &mut self.stop).await;
    }

    /// Fetches what `mode` says from each provider, applies it, and ends the wait for receipts that are too late.
    /// `is_gentle`: leaves other processes and tasks half of the database's time.
    pub async fn pass(
        &mut self,
        mode: PullMode,
        is_gentle: bool,
    ) -> Result<PullSummary, StoreError> {
        let mut summary = PullSummary::default();
        for index in 0..self.providers.len() {
            if *self.stop.borrow() {
                return Ok(summary);
            }
            let is_early = self.providers[index].next_pass > Instant::now();
            if mode == PullMode::Due && is_early {
                continue;
            }
            self.providers[index].is_current = self.pull(index, mode, &mut summary).await?;
        }
        summary.applied += self.apply(is_gentle).await?;
        let is_due = self.ended_at.is_none_or(|at| at.elapsed() >= END_EVERY);
        if mode != PullMode::Due || is_due {
            summary.no_report += self.end_waits().await?;
            self.ended_at = Some(Instant::now());
        }
        Ok(summary)
    }

    /// Ends the wait for receipts that are too late. Those that came while nothing fetched them are fetched first.
    async fn end_waits(&self) -> Result<u64, StoreError> {
        let before = self.store.now().await?.minus(self.no_report_after);
        let mut ended = 0;
        for name in self.store.receipts().awaiting_providers().await? {
            let is_behind = self.fetched_elsewhere.contains(&name)
                || self.providers.iter().any(|pulled| pulled.is_behind(&name));
            let old = Timestamp::from_millis(0)..=before;
            if !is_behind && self.store.receipts().awaiting_span(&name, &old).await?.is_some() {
                ended += self.store.receipts().end_awaiting(&name, before).await?;
            }
        }
        Ok(ended)
    }

    /// Applies all receipts that are due.
    async fn apply(&mut self, is_gentle: bool) -> Result<ReceiptsApplied, StoreError> {
        let mut all = ReceiptsApplied::default();
        loop {
            let began = Instant::now();
            let now = self.store.now().await?;
            let due = self.store.receipts().next_due().await?;
            if *self.stop.borrow() || due.is_none_or(|due| due > now) {
                return Ok(all);
            }
            let applied = self.store.receipts().apply(self.no_report_after, now).await?;
            all += applied;
            if is_gentle {
                tokio::time::sleep(began.elapsed()).await;
            }
        }
    }
}

/// Sleeps until an instant or until it is stopped.
async fn sleep(until: Instant, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = sleep_until(until) => {}
        // An error says that no one can stop it any more.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}
