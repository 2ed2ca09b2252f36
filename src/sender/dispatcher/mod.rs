//! The task that commits claims and results and starts requests. Each commit is one transaction for
//! everything that has finished and everything that may start. While it runs, requests that were
//! claimed ahead start, and the next commit gathers.

mod finish;
mod planner;
mod results;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::campaign_state::CampaignState;
use super::clock::{Clock, micros};
use super::commit::{CommitOutcome, Committer};
use super::context::{Claimed, Results, WorkerContext};
use super::database::Database;
use super::journal::{Journal, JournalFile};
use super::lease::Lease;
use super::lookup::{LookupEvent, StatusLookups};
use super::maintenance::{Maintenance, MaintenanceEvent, Reading, TICK};
use super::provider_state::{PlanTime, ProviderState};
use super::publisher::Publisher;
use super::recorder::{Recorder, WorkerSnapshot};
use super::request::{Finished, Transport};
use super::{Bottleneck, Ended, MessageEvent, Progress, SendError, Settings};
use crate::limit::{MIN_TOLERANCE, Tolerance};
use crate::metrics::Metrics;
use crate::provider::{ContentMode, Provider};
use crate::queue::admission::AdmissionRules;
use crate::store::{Campaign, CampaignStatus, CommitBatch, Orphans, QueuedCampaign};
use finish::Quiet;

/// The longest wait for the last requests when the worker must end.
const LAST_REQUESTS: Duration = Duration::from_secs(30);
/// The longest wait for the last publication.
const LAST_PUBLICATION: Duration = Duration::from_secs(2);
/// How often the state of the providers is recorded.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(500);
/// Waits that are longer than this are shown to the operator.
const NOTED_WAIT: Duration = Duration::from_secs(5);
/// How long a request has at least to start in, in microseconds.
const MIN_SPAN_US: i64 = 5_000;
/// The same while no limit delays anything: requests that were claimed ahead keep their permits.
const WIDE_SPREAD: Duration = Duration::from_millis(100);
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
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Option<mpsc::UnboundedSender<MessageEvent>>,
}

pub(super) struct Dispatcher {
    context: Arc<WorkerContext>,
    providers: Vec<ProviderState>,
    committer: Committer,
    lookups: StatusLookups,
    events: Option<mpsc::UnboundedSender<MessageEvent>>,
    /// Requests report here; `finished` is the other end.
    reports: mpsc::UnboundedSender<Finished>,
    finished: mpsc::UnboundedReceiver<Finished>,
    readings: mpsc::UnboundedReceiver<MaintenanceEvent>,
    /// Requests, lookups, maintenance and the heartbeat; they end with the dispatcher.
    tasks: JoinSet<()>,
    /// The task that writes to the database what this worker does.
    publisher: JoinSet<()>,
    /// Ends that task after a last publication.
    stop_publishing: watch::Sender<bool>,
    /// When the state of the providers is recorded next.
    snapshot_at: Instant,
    /// How many messages need no further attempt.
    done: u64,
    /// Requests start within this of their permits: as near as the clock's error allows.
    tolerance: Duration,
    /// By the clock of this worker, requests start within this of their permits.
    spread: Duration,
    /// The results for the next commit.
    results: Results,
    /// How often the clock had been set at the last plan.
    jumps: u32,
    /// When the running commit was planned.
    planned: PlanTime,
    /// When orphans are released next.
    orphans_at: Instant,
    /// What maintenance found while a commit ran.
    journals: Vec<(Vec<JournalFile>, oneshot::Sender<()>)>,
    /// By how many microseconds altogether.
    set_by_us: i64,
    /// The clock was set, and the limits do not know it.
    fill_limits: bool,
    /// When a commit last changed what a [`Reading`] reads: older ones do not count.
    changed_at: Instant,
    quiet: Quiet,
    /// Tells maintenance that the worker is quiet.
    announce_quiet: watch::Sender<bool>,
    admission: Arc<AdmissionRules>,
    /// Maintenance has more messages to fail that expire.
    is_expiring: bool,
    /// The operator sees a note that everything waits for a window.
    is_waiting_noted: bool,
    /// Campaigns whose provider this worker does not know.
    unserved: Vec<Campaign>,
}

impl Dispatcher {
    pub(super) async fn begin(parts: Parts) -> Result<Self, SendError> {
        let settings = parts.settings;
        let store = parts.database.reach().await?;
        let folder = settings.state_folder.as_deref();
        let journal = Journal::of(store, folder.map(Path::new)).await?;
        let lease = Lease::begin(
            parts.database.clone(),
            Arc::clone(&parts.clock),
            settings.sender.lease,
            settings.sender.concurrency,
            Arc::clone(&parts.progress),
        )
        .await?;
        let (reports, finished) = mpsc::unbounded_channel();
        let (maintenance_events, readings) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&lease).keep());
        let now_us = parts.clock.now_us();
        let providers = provider_states(
            (&parts.providers, &parts.transports),
            &settings,
            &parts.metrics,
            now_us,
        );
        let names = providers.iter().map(|state| state.provider().name());
        let recorder = Recorder::new(names.map(str::to_owned).collect());
        let context = Arc::new(WorkerContext {
            recorder,
            database: parts.database,
            clock: parts.clock,
            lease,
            settings,
            progress: parts.progress,
            metrics: parts.metrics,
            stop: parts.stop,
            claimed: Claimed::default(),
        });
        let of_states = providers.iter().map(|state| Arc::clone(state.provider()));
        let (announce_quiet, quiet) = watch::channel(false);
        let mut maintenance = Maintenance::new(
            Arc::clone(&context),
            of_states.collect(),
            journal.clone(),
            quiet,
        );
        let (stop_publishing, publishing_stopped) = watch::channel(false);
        let mut dispatcher = Self {
            publisher: JoinSet::new(),
            stop_publishing,
            snapshot_at: Instant::now(),
            committer: Committer::new(Arc::clone(&context), journal.clone()),
            lookups: StatusLookups::new(Arc::clone(&context)),
            context: Arc::clone(&context),
            providers,
            events: parts.events,
            reports,
            finished,
            readings,
            tasks,
            done: 0,
            tolerance: MIN_TOLERANCE,
            spread: MIN_TOLERANCE,
            results: Results::default(),
            jumps: 0,
            planned: PlanTime::default(),
            orphans_at: Instant::now() + context.lease.length(),
            journals: Vec::new(),
            set_by_us: 0,
            fill_limits: false,
            changed_at: Instant::now(),
            quiet: Quiet::default(),
            announce_quiet,
            admission: Arc::default(),
            is_expiring: false,
            is_waiting_noted: false,
            unserved: Vec::new(),
        };
        let journals = journal.all_files().await;
        dispatcher.committer.settle_journal(journals).await?;
        let store = context.database.reach().await?;
        store.reclaim_without_worker(context.clock.now()).await?;
        let reading = maintenance.read(true).await?;
        dispatcher.take_reading(&reading);
        dispatcher.tasks.spawn(maintenance.run(maintenance_events));
        let publisher = Publisher::new(context);
        dispatcher
            .publisher
            .spawn(publisher.run(publishing_stopped));
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
            if let Some(outcome) = self.gather().await? {
                self.take_outcome(outcome);
            }
            self.start_ready();
            if Instant::now() >= self.snapshot_at {
                self.record_snapshot();
            }
            if self.committer.committing().is_some() {
                continue;
            }
            self.settle_journals().await?;
            self.committer.settle_unstored().await?;
            // What was claimed is released before the run ends.
            if self.providers.iter().all(|state| state.claimed() == 0) {
                self.committer.check_claims()?;
            }
            let batch = self.plan();
            if !is_idle(&batch) {
                self.providers
                    .iter_mut()
                    .for_each(ProviderState::note_commit_begun);
                self.committer.begin(Arc::new(batch));
            } else if let Some(ended) = self.check_finished().await? {
                // Awaited: a heartbeat after the worker's end would register it again.
                self.tasks.shutdown().await;
                self.settle_last().await?;
                self.publish_last().await;
                if let Err(error) = self.context.lease.end().await {
                    tracing::warn!(%error, "cannot remove this worker's row; another worker will remove it");
                }
                return Ok(ended);
            }
        }
    }

    /// Takes over what a commit did.
    fn take_outcome(&mut self, committed: CommitOutcome) {
        let CommitOutcome {
            batch,
            result,
            lost_claims,
        } = committed;
        if changes_campaigns(&batch) {
            self.changed_at = Instant::now();
        }
        if lost_claims {
            self.fill_limits |= batch.fill_limits;
            for claim in &batch.claims {
                if let Some(index) = self.provider_index(&claim.provider) {
                    self.providers[index].void_held_permits();
                }
            }
        }
        if result.is_worker_missing {
            self.context.lease.forfeit(batch.worker_id);
        }
        if result.released > 0 {
            let released = result.released;
            tracing::warn!(
                released,
                "released messages whose claim this worker did not learn of"
            );
        }
        self.providers
            .iter_mut()
            .for_each(ProviderState::note_commit_ended);
        self.take_claimed(&batch, result);
    }

    /// Waits until something has finished, or until there may be something to claim. Returns the
    /// outcome of the commit if that has ended.
    async fn gather(&mut self) -> Result<Option<CommitOutcome>, SendError> {
        let is_committing = self.committer.committing().is_some();
        let mut has_finished = self.take_finished(None);
        while self.tasks.try_join_next().is_some() {}
        // Also where there is always something to send.
        while let Ok(event) = self.readings.try_recv() {
            self.take_maintenance(event);
        }
        let clock = &self.context.clock;
        let wakes_at_us = self.wakes_at_us().filter(|_| !is_committing);
        has_finished |= wakes_at_us.is_some_and(|at_us| at_us <= clock.now_us());
        if has_finished && !is_committing {
            return Ok(None);
        }
        let until = wakes_at_us.map_or(TICK, |at_us| clock.until(at_us).min(TICK));
        let wake = Instant::now() + until;
        let wake = self.committer.claim_at().map_or(wake, |at| wake.min(at));
        let is_stopping = self.context.is_stopping();
        let mut stop = self.context.stop.clone();
        let (mut lookup, mut maintenance, mut outcome, mut finished) = (None, None, None, None);
        let (bottleneck, began) = (self.bottleneck(), Instant::now());
        tokio::select! {
            biased;
            committed = self.committer.finish(), if is_committing => outcome = committed?,
            one = self.finished.recv() => finished = one,
            event = self.lookups.next_event() => lookup = event,
            event = self.readings.recv() => maintenance = event,
            _ = stop.wait_for(|stop| *stop), if !is_stopping => {}
            () = tokio::time::sleep_until(wake) => {}
        }
        self.context.progress.add_wait(bottleneck, began.elapsed());
        while let Some(event) = lookup {
            self.take_lookup(event);
            lookup = self.lookups.try_next_event();
        }
        if let Some(event) = maintenance {
            self.take_maintenance(event);
        }
        self.take_finished(finished);
        Ok(outcome)
    }

    /// Why no more requests start now; `None`: nothing is left to start.
    fn bottleneck(&self) -> Option<Bottleneck> {
        let (now, now_us) = (self.context.clock.now(), self.context.clock.now_us());
        let working = self.providers.iter().filter(|state| state.has_work());
        if working.clone().any(|state| state.rests_until(now) > now) {
            return Some(Bottleneck::Provider);
        }
        let mut bound = working.clone().filter(|state| state.is_bound(now_us));
        if let Some(state) = bound.next() {
            // After a 429 the limit is the provider's wish, not the setting.
            return Some(if state.is_throttled() {
                Bottleneck::Provider
            } else {
                Bottleneck::RateLimit
            });
        }
        let is_committing = self.committer.committing().is_some();
        match (self.free(), working.count()) {
            (0, _) => Some(Bottleneck::Concurrency),
            (_, 0) => None,
            _ => is_committing.then_some(Bottleneck::Database),
        }
    }

    /// Adds the results of this request and of all others that have finished to the next commit; false
    /// if none has.
    fn take_finished(&mut self, first: Option<Finished>) -> bool {
        self.results.now = self.context.clock.now();
        let mut next = first.or_else(|| self.finished.try_recv().ok());
        let has_finished = next.is_some();
        while let Some(one) = next {
            self.settle_finished(one);
            next = self.finished.try_recv().ok();
        }
        has_finished
    }

    fn take_maintenance(&mut self, event: MaintenanceEvent) {
        match event {
            MaintenanceEvent::Journal(files, done) => self.journals.push((files, done)),
            MaintenanceEvent::Read(reading) if self.is_current(&reading) => {
                self.take_reading(&reading);
                self.lookups.start(&self.providers, &mut self.tasks);
            }
            MaintenanceEvent::Read(_) => {}
            MaintenanceEvent::Failed(error) => self.note_unread(error),
        }
    }

    /// Whether the reading was made after this worker's last changes, which are not committed yet while
    /// they are in the next or in the running commit.
    fn is_current(&self, reading: &Reading) -> bool {
        let running = self.committer.committing();
        reading.read_at >= self.changed_at
            && self.results.campaign_stops.is_empty()
            && self.results.pauses.is_empty()
            && running.is_none_or(|batch| !changes_campaigns(batch))
    }

    /// Settles what earlier workers left.
    async fn settle_journals(&mut self) -> Result<(), SendError> {
        for (files, done) in std::mem::take(&mut self.journals) {
            match self.committer.settle_journal(files).await {
                Err(error) if !error.is_temporary() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "what an earlier worker left could not be settled");
                }
                // Without maintenance no one waits for it.
                Ok(()) => done.send(()).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Takes over what the database says of campaigns and providers.
    fn take_reading(&mut self, reading: &Reading) {
        let (now, tolerance) = (self.context.clock.now(), self.tolerance);
        let mut served: Vec<Vec<QueuedCampaign>> = vec![Vec::new(); self.providers.len()];
        let mut unserved = Vec::new();
        for queued in &reading.queued {
            let provider = self.context.settings.provider_of(&queued.campaign);
            match provider.and_then(|name| self.provider_index(name)) {
                Some(index) => served[index].push(queued.clone()),
                None if queued.is_unfinished() => unserved.push(queued.campaign.clone()),
                None => {}
            }
        }
        let all: HashSet<i64> = reading
            .queued
            .iter()
            .map(|queued| queued.campaign.id)
            .collect();
        self.note_unserved(unserved);
        let mut admission = AdmissionRules {
            region: self.context.settings.default_region,
            ..AdmissionRules::default()
        };
        for (state, served) in self.providers.iter_mut().zip(served) {
            let ids: Vec<i64> = served.iter().map(|queued| queued.campaign.id).collect();
            state.refresh_campaigns(served, &all, self.context.settings.auto_pause, now);
            for campaign in state.campaigns_mut() {
                campaign.check_window(now, tolerance);
                if let Some(window) = &campaign.campaign().window {
                    admission.windows.insert(campaign.id(), window.clone());
                }
            }
            let resends = self.context.resend_rule(state.provider());
            admission
                .resends
                .extend(ids.iter().map(|id| (*id, resends)));
            if state.provider().capabilities().sends == ContentMode::Template {
                admission.by_template.extend(ids);
            }
            let name = state.provider().name();
            let pause = reading.pauses.iter().find(|pause| pause.provider == name);
            let note = state.take_pause(pause, now);
            if let Some(note) = note.filter(|_| state.has_work()) {
                let note = (!note.is_empty()).then_some(note);
                self.context.progress.set_note(note);
            }
        }
        self.admission = Arc::new(admission);
        self.is_expiring = reading.is_expiring;
        self.check_reading(reading);
        self.note_waiting();
    }

    fn note_unserved(&mut self, unserved: Vec<Campaign>) {
        for campaign in &unserved {
            let is_new = self.unserved.iter().all(|known| known.id != campaign.id);
            if is_new && campaign.state == CampaignStatus::Active {
                let (campaign, reason) = (&campaign.name, self.why_unserved(campaign));
                tracing::warn!(campaign, reason, "a campaign cannot be sent by this worker");
            }
        }
        self.unserved = unserved;
    }

    fn why_unserved(&self, campaign: &Campaign) -> String {
        match self.context.settings.provider_of(campaign) {
            Some(provider) => {
                format!("this worker started without its provider `{provider}`")
            }
            None => "it has no provider, and there is no `default_provider`".to_owned(),
        }
    }

    /// Tells the operator where everything waits for a window.
    fn note_waiting(&mut self) {
        let now = self.context.clock.now();
        let states = self.providers.iter().flat_map(ProviderState::campaigns);
        let working = states.filter(|state| state.has_work());
        let waiting: Option<Vec<_>> = working
            .map(|state| Some((state.rests_until(now, NOTED_WAIT)?, state)))
            .collect();
        let is_busy = self.providers.iter().any(|state| state.claimed() > 0);
        let waiting = waiting.filter(|_| !is_busy).unwrap_or_default();
        let first = waiting.into_iter().min_by_key(|(until, _)| *until);
        let note = first.and_then(|(until, state)| {
            let name = &state.campaign().name;
            let until = state.shown(until);
            let window = state.campaign().window.as_ref();
            window.map(|_| format!("`{name}` waits for its window until {until}"))
        });
        if note.is_some() || self.is_waiting_noted {
            self.is_waiting_noted = note.is_some();
            self.context.progress.set_note(note);
        }
    }

    /// Decides what to settle and what to claim.
    fn plan(&mut self) -> CommitBatch {
        self.follow_clock();
        let planned_us = self.context.clock.steady_us();
        let start_by_us = planned_us.saturating_add(micros(self.context.lease.claim_span()));
        #[cfg(test)]
        let start_by_us = if self.context.database.faults.starts_overdue {
            i64::MAX
        } else {
            start_by_us
        };
        self.planned = PlanTime {
            planned_us,
            start_by_us,
            jumps: self.jumps,
        };
        self.release_held();
        let results = std::mem::take(&mut self.results);
        let mut batch = CommitBatch {
            settlements: results.settlements,
            campaign_stops: results.campaign_stops,
            pauses: results.pauses,
            ..self.empty_batch()
        };
        self.plan_returns(&mut batch);
        self.plan_orphans(&mut batch);
        if self.may_claim() {
            if std::mem::take(&mut self.fill_limits) {
                self.plan_full_limits(&mut batch);
            } else {
                self.plan_claims(&mut batch);
            }
        }
        batch
    }

    /// Releases once a lease what carries this worker's id and is not in its memory: the answer to the commit of its
    /// claim was lost. No commit runs while the next one is planned, so none of its claims can be started later.
    fn plan_orphans(&mut self, batch: &mut CommitBatch) {
        if Instant::now() < self.orphans_at || !self.context.lease.holds() {
            return;
        }
        let length = self.context.lease.length();
        self.orphans_at = Instant::now() + length;
        let served = self.providers.iter().flat_map(ProviderState::campaigns);
        let served = served.map(CampaignState::id);
        let unserved = self.unserved.iter().map(|campaign| campaign.id);
        batch.orphans = Some(Orphans {
            known: self.context.claimed.ids(),
            claimed_before: batch.now.minus(length),
            campaigns: served.chain(unserved).collect(),
        });
    }

    fn may_claim(&self) -> bool {
        let WorkerContext { lease, .. } = &*self.context;
        !self.context.is_stopping() && lease.holds() && self.committer.claim_at().is_none()
    }

    fn follow_clock(&mut self) {
        let clock = &self.context.clock;
        let jumps = clock.jumps();
        if jumps != self.jumps {
            self.jumps = jumps;
            self.fill_limits = true;
            let set_by_us = clock.set_by_us();
            for state in &mut self.providers {
                state.shift(set_by_us - self.set_by_us);
            }
            self.set_by_us = set_by_us;
        }
        self.tolerance = tolerance_for(self.tolerance, clock.error_us());
        let working = self.providers.iter().filter(|state| state.has_work());
        let has_slack = working.filter_map(ProviderState::has_slack);
        self.spread = match has_slack.reduce(|one, other| one && other) {
            Some(true) => WIDE_SPREAD,
            Some(false) | None => MIN_TOLERANCE,
        };
    }

    /// How much longer than necessary a request may take to start.
    fn slack(&self) -> Duration {
        self.spread.saturating_sub(MIN_TOLERANCE)
    }

    fn empty_batch(&self) -> CommitBatch {
        CommitBatch {
            tolerance: Tolerance {
                total: self.tolerance + self.slack(),
                spread: self.spread,
            },
            caps: self.context.settings.sender.max_per_recipient.clone(),
            admission: Arc::clone(&self.admission),
            ..CommitBatch::new(self.context.lease.worker_id(), self.context.clock.now())
        }
    }

    /// Ends after an error: waits for the requests in flight, and leaves what is known to the next
    /// worker.
    async fn leave(&mut self) {
        self.context.lease.give_up();
        let timeouts = self
            .providers
            .iter()
            .map(|state| state.provider().timeout());
        let patience = timeouts.max().unwrap_or_default().min(LAST_REQUESTS);
        let deadline = Instant::now() + patience;
        while self.providers.iter().any(ProviderState::is_in_flight) {
            match tokio::time::timeout_at(deadline, self.finished.recv()).await {
                Ok(Some(one)) => self.settle_finished(one),
                Ok(None) | Err(_) => break,
            }
        }
        // Requests without a response by now are reported as unknown.
        self.tasks.shutdown().await;
        self.committer.shutdown().await;
        self.write_journal();
        self.publish_last().await;
    }

    /// Stores what lookups found out while the run ended.
    async fn settle_last(&mut self) -> Result<(), SendError> {
        while let Some(event) = self.lookups.try_next_event() {
            self.take_lookup(event);
        }
        let results = std::mem::take(&mut self.results);
        let batch = CommitBatch {
            settlements: results.settlements,
            campaign_stops: results.campaign_stops,
            pauses: results.pauses,
            ..self.empty_batch()
        };
        if !is_idle(&batch) {
            self.committer.begin(Arc::new(batch));
            self.committer.finish().await?;
        }
        Ok(())
    }

    /// Records the state of the providers for the next publication.
    fn record_snapshot(&mut self) {
        self.snapshot_at = Instant::now() + SNAPSHOT_EVERY;
        let clock = &self.context.clock;
        let (now, steady_us) = (clock.now(), clock.steady_us());
        let used = self.providers.iter();
        let used = used.filter(|state| !state.campaigns().is_empty());
        let providers: Vec<_> = used.map(|state| state.activity(now, steady_us)).collect();
        let busy = self.providers.iter().map(ProviderState::busy).sum();
        self.context.metrics.set_requests(busy, self.free());
        self.context.recorder.set_snapshot(WorkerSnapshot {
            in_flight: providers.iter().map(|one| one.in_flight).sum(),
            providers,
        });
    }

    /// Publishes what happened since the last publication, if the database can store it soon.
    async fn publish_last(&mut self) {
        self.record_snapshot();
        self.stop_publishing.send_replace(true);
        let ended = tokio::time::timeout(LAST_PUBLICATION, self.publisher.join_next()).await;
        if ended.is_err() {
            tracing::debug!("the last activity could not be published in time");
        }
        self.publisher.shutdown().await;
        self.providers.iter().for_each(ProviderState::reset_metrics);
        self.context.metrics.set_requests(0, 0);
    }

    /// Writes to a file what is known and may not be stored. Does not wait for requests in flight.
    fn write_journal(&mut self) {
        self.take_finished(None);
        while let Some(event) = self.lookups.try_next_event() {
            if let LookupEvent::Settle(settlement) = event {
                self.results.settlements.push(settlement);
            }
        }
        let known = std::mem::take(&mut self.results.settlements);
        self.committer.write_journal(known);
    }
}

/// A run that is dropped leaves what is known, too. Simulations kill a worker by dropping it.
#[cfg(not(test))]
impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.write_journal();
    }
}

/// Whether a commit changes what a [`Reading`] reads.
fn changes_campaigns(batch: &CommitBatch) -> bool {
    !batch.campaign_stops.is_empty() || !batch.pauses.is_empty()
}

fn is_idle(batch: &CommitBatch) -> bool {
    batch.settlements.is_empty()
        && batch.campaign_stops.is_empty()
        && batch.pauses.is_empty()
        && batch.orphans.is_none()
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
    (providers, transports): (
        &BTreeMap<String, Arc<Provider>>,
        &BTreeMap<String, Transport>,
    ),
    settings: &Settings,
    metrics: &Metrics,
    now_us: i64,
) -> Vec<ProviderState> {
    let mut states = Vec::new();
    for (name, provider) in providers {
        if let Some(transport) = transports.get(name) {
            let (provider, transport) = (Arc::clone(provider), transport.clone());
            let index = states.len();
            states.push(ProviderState::new(
                index, provider, transport, settings, metrics, now_us,
            ));
        }
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
