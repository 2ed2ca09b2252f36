//! The task that commits claims and results and starts requests. Each commit is one transaction for
//! everything that has finished and everything that may start; while it runs, the next one gathers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::breaker::CircuitBreaker;
use super::clock::{Clock, micros};
use super::commit::Commits;
use super::database::Database;
use super::journal::Journal;
use super::lease::Lease;
use super::lookup::StatusLookups;
use super::provider_state::ProviderState;
use super::request::{Finished, Shared, Transport};
use super::{Ended, Event, Progress, SendError, Settings};
use crate::limit::MIN_TOLERANCE;
use crate::provider::Provider;
use crate::queue::admission::AdmissionRules;
use crate::queue::batch::alone;
use crate::sms::{Sms, Timestamp};
use crate::store::{Campaign, CommitBatch};
use crate::window::SendWindow;

/// How often campaigns and workers are looked at.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How long a request has at least to start in, in microseconds.
const MIN_SPAN_US: i64 = 5_000;
/// A tolerance is a multiple of this, and is kept while it is at most twice this too wide: a worker
/// that changes it counts as another user of the limit, and is no longer its only one.
const STEP_US: i64 = 2_000;

/// What a dispatcher is made of.
pub(super) struct Parts {
    pub(super) database: Database,
    pub(super) providers: BTreeMap<String, Arc<Provider>>,
    pub(super) transports: BTreeMap<String, Transport>,
    pub(super) settings: Settings,
    pub(super) clock: Arc<Clock>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) progress: Arc<Progress>,
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
}

pub(super) struct Dispatcher {
    pub(super) database: Database,
    pub(super) settings: Settings,
    pub(super) clock: Arc<Clock>,
    pub(super) lease: Arc<Lease>,
    pub(super) providers: Vec<ProviderState>,
    pub(super) progress: Arc<Progress>,
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
    stop: watch::Receiver<bool>,
    pub(super) shared: Arc<Shared>,
    pub(super) finished: mpsc::UnboundedReceiver<Finished>,
    /// Requests, lookups and the heartbeat; they end with the dispatcher.
    pub(super) tasks: JoinSet<()>,
    /// How many messages need no further attempt.
    pub(super) done: u64,
    pub(super) tick_at: Instant,
    pub(super) orphans_at: Instant,
    /// Claimed messages whose settlement is not committed.
    pub(super) claimed: HashSet<i64>,
    /// Requests start within this of their permits: as near as the clock's error allows.
    pub(super) tolerance: Duration,
    /// How often the clock had been set at the last plan.
    pub(super) jumps: u32,
    /// By how many microseconds altogether.
    set_by_us: i64,
    /// The clock was set, and the limits do not know it.
    pub(super) fill_limits: bool,
    pub(super) commits: Commits,
    pub(super) journal: Journal,
    /// Since when the database could not say whether everything is done.
    pub(super) away_since: Option<Instant>,
    pub(super) lookups: StatusLookups,
    /// Of the campaigns that have one.
    pub(super) windows: Arc<HashMap<i64, SendWindow>>,
    /// Campaigns whose recipients read the provider's template and not the text of the message.
    pub(super) by_template: Arc<HashSet<i64>>,
    /// The operator was told that everything waits for a window.
    pub(super) is_waiting_noted: bool,
    /// Campaigns whose provider this worker does not know.
    pub(super) unserved: Vec<Campaign>,
}

impl Dispatcher {
    pub(super) async fn begin(parts: Parts) -> Result<Self, SendError> {
        let settings = parts.settings;
        let store = parts.database.reach().await?;
        let journal = Journal::of(store, settings.state_folder.as_deref()).await?;
        let lease = Lease::begin(
            parts.database.clone(),
            Arc::clone(&parts.clock),
            settings.sender.lease,
            settings.sender.concurrency,
        )
        .await?;
        let (sender, finished) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&lease).keep());
        let now_us = parts.clock.now_us();
        let providers = provider_states(&parts.providers, &parts.transports, &settings, now_us);
        let mut dispatcher = Self {
            database: parts.database,
            shared: Arc::new(Shared {
                clock: Arc::clone(&parts.clock),
                lease: Arc::clone(&lease),
                stop: parts.stop.clone(),
                finished: sender,
                progress: Arc::clone(&parts.progress),
            }),
            providers,
            orphans_at: Instant::now() + settings.sender.lease,
            settings,
            clock: parts.clock,
            lease,
            progress: parts.progress,
            events: parts.events,
            stop: parts.stop,
            finished,
            tasks,
            done: 0,
            tick_at: Instant::now(),
            claimed: HashSet::new(),
            tolerance: MIN_TOLERANCE,
            jumps: 0,
            set_by_us: 0,
            fill_limits: false,
            commits: Commits::new(),
            journal,
            away_since: None,
            lookups: StatusLookups::new(),
            windows: Arc::default(),
            by_template: Arc::default(),
            is_waiting_noted: false,
            unserved: Vec::new(),
        };
        dispatcher.settle_journal().await?;
        let now = dispatcher.clock.now();
        let store = dispatcher.database.reach().await?;
        store.reclaim_without_worker(now).await?;
        dispatcher.maintain(true).await?;
        Ok(dispatcher)
    }

    /// Sends until there is nothing left to do, or until the stop signal.
    pub(super) async fn run(mut self) -> Result<Ended, SendError> {
        let ended = self.work().await;
        if ended.is_err() {
            self.leave().await;
        }
        ended
    }

    async fn work(&mut self) -> Result<Ended, SendError> {
        loop {
            if self.tick_at <= Instant::now() {
                self.tick().await;
            }
            let finished = self.gather().await;
            let batch = Arc::new(self.plan(finished));
            if !is_idle(&batch) {
                let result = self.commit(&batch).await?;
                if result.is_worker_missing {
                    self.lease.forfeit(batch.worker_id);
                }
                self.start_claimed(&batch, result);
            }
            self.settle_unstored().await?;
            self.check_claims()?;
            if let Some(ended) = self.check_finished().await? {
                self.tasks.abort_all();
                if let Err(error) = self.lease.end().await {
                    tracing::warn!(%error, "this worker stays on the list until another finds it gone");
                }
                return Ok(ended);
            }
        }
    }

    /// Waits until something has finished, or until there may be something to claim.
    async fn gather(&mut self) -> Vec<Finished> {
        let mut finished = Vec::new();
        while let Ok(one) = self.finished.try_recv() {
            finished.push(one);
        }
        while self.tasks.try_join_next().is_some() {}
        let now_us = self.clock.now_us();
        let wakes_at_us = self.wakes_at_us();
        if !finished.is_empty() || wakes_at_us.is_some_and(|at_us| at_us <= now_us) {
            return finished;
        }
        let is_stopping = self.is_stopping();
        let until = wakes_at_us.map_or(TICK, |at_us| self.clock.until(at_us));
        let wake = (Instant::now() + until).min(self.tick_at);
        let wake = self.commits.claim_at().map_or(wake, |at| wake.min(at));
        let mut lookup = None;
        tokio::select! {
            biased;
            one = self.finished.recv() => finished.extend(one),
            event = self.lookups.events.recv() => lookup = event,
            _ = self.stop.wait_for(|stop| *stop), if !is_stopping => {}
            () = tokio::time::sleep_until(wake) => {}
        }
        if let Some(event) = lookup {
            self.take_lookups(event).await;
        }
        while let Ok(one) = self.finished.try_recv() {
            finished.push(one);
        }
        finished
    }

    /// Decides what to settle and what to claim.
    fn plan(&mut self, finished: Vec<Finished>) -> CommitBatch {
        self.follow_clock();
        let mut batch = self.empty_batch(self.clock.now());
        batch.settlements.append(&mut self.lookups.found);
        batch.campaign_stops.append(&mut self.lookups.stops);
        for one in finished {
            self.settle_finished(one, &mut batch);
        }
        self.release_held(&mut batch);
        self.plan_returns(&mut batch);
        if !self.is_stopping() && self.lease.holds() && self.commits.claim_at().is_none() {
            if std::mem::take(&mut self.fill_limits) {
                self.plan_full_limits(&mut batch);
            } else {
                self.plan_claims(&mut batch);
            }
        }
        batch
    }

    fn follow_clock(&mut self) {
        let jumps = self.clock.jumps();
        if jumps != self.jumps {
            self.jumps = jumps;
            self.fill_limits = true;
            let set_by_us = self.clock.set_by_us();
            for state in &mut self.providers {
                state.shift(set_by_us - self.set_by_us);
            }
            self.set_by_us = set_by_us;
        }
        self.tolerance = tolerance_for(self.tolerance, self.clock.error_us());
    }

    pub(super) fn empty_batch(&self, now: Timestamp) -> CommitBatch {
        let (tolerance, region) = (self.tolerance, self.settings.default_region);
        let windows = Arc::clone(&self.windows);
        let by_template = Arc::clone(&self.by_template);
        let admit = move |sms: &Sms| {
            let rules = AdmissionRules {
                now,
                tolerance,
                region,
                window: windows.get(&sms.campaign_id),
                sends_content: !by_template.contains(&sms.campaign_id),
            };
            rules.admit(sms)
        };
        CommitBatch {
            worker_id: self.lease.worker_id(),
            now,
            tolerance,
            settlements: Vec::new(),
            campaign_stops: Vec::new(),
            pauses: Vec::new(),
            fill_limits: false,
            claims: Vec::new(),
            caps: self.settings.sender.max_per_recipient.clone(),
            admit: Arc::new(admit),
            fill: Arc::new(alone),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

fn is_idle(batch: &CommitBatch) -> bool {
    batch.settlements.is_empty()
        && batch.campaign_stops.is_empty()
        && batch.pauses.is_empty()
        && batch.claims.is_empty()
}

/// The tolerance that allows for the clock's error on both sides.
fn tolerance_for(current: Duration, error_us: i64) -> Duration {
    let needed_us = error_us.saturating_mul(2).saturating_add(MIN_SPAN_US);
    let current_us = micros(current);
    let is_tight = needed_us + 2 * STEP_US >= current_us || current <= MIN_TOLERANCE;
    if needed_us <= current_us && is_tight {
        return current;
    }
    let steps_us = (needed_us / STEP_US + 1).saturating_mul(STEP_US);
    Duration::from_micros(steps_us.unsigned_abs()).max(MIN_TOLERANCE)
}

fn provider_states(
    providers: &BTreeMap<String, Arc<Provider>>,
    transports: &BTreeMap<String, Transport>,
    settings: &Settings,
    now_us: i64,
) -> Vec<ProviderState> {
    let mut states = Vec::new();
    for (name, provider) in providers {
        let Some(transport) = transports.get(name) else {
            continue;
        };
        let mut limits = provider.rates().0.clone();
        limits.extend(settings.rate.iter().flat_map(|rates| &rates.0).copied());
        let breaker = CircuitBreaker::new(settings.breaker.clone());
        let (provider, transport) = (Arc::clone(provider), transport.clone());
        let mut state = ProviderState::new(provider, transport, limits, breaker, now_us);
        state.is_default = settings.default_provider.as_ref() == Some(name);
        states.push(state);
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_allows_for_the_error_and_seldom_changes() {
        assert_eq!(tolerance_for(MIN_TOLERANCE, 0), MIN_TOLERANCE);
        assert_eq!(tolerance_for(MIN_TOLERANCE, 2_500), MIN_TOLERANCE);
        let far = tolerance_for(MIN_TOLERANCE, 25_000);
        assert_eq!(far, Duration::from_millis(56));
        for error_us in [24_000, 25_400] {
            assert_eq!(tolerance_for(far, error_us), far);
        }
        assert!(tolerance_for(far, 26_000) > far);
        assert_eq!(tolerance_for(far, 1_000), MIN_TOLERANCE);
        for error_us in 0..100_000 {
            let span_us = micros(tolerance_for(MIN_TOLERANCE, error_us)) - 2 * error_us;
            let allowed = MIN_SPAN_US..=micros(MIN_TOLERANCE);
            assert!(allowed.contains(&span_us), "{error_us}");
        }
    }
}
