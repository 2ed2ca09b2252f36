//! The task that commits claims and results and starts requests. Each commit is one transaction for
//! everything that has finished and everything that may start. While it runs, requests that were
//! claimed ahead start, and the next commit gathers.

mod campaigns;
mod ending;
mod planner;
mod results;
mod telemetry;
mod timing;

use std::collections::BTreeMap;
use std::sync::Arc;

use smsq_lifecycle::admission::AdmissionRules;
use smsq_metrics::Metrics;
use smsq_provider::Provider;
use smsq_store::{Campaign, CommitBatch};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::Clock;
use super::commit::{CommitOutcome, Committer};
use super::context::{Claimed, Results, StopSignal, WorkerContext};
use super::database::Database;
use super::lease::Lease;
use super::local_files::journal::Journal;
use super::local_files::marks::Marks;
use super::local_files::{LocalFiles, left};
use super::lookup::StatusLookups;
use super::maintenance::{LeftResults, Maintenance, MaintenanceEvent, TICK};
use super::provider_state::{PlanTime, ProviderState};
use super::request::{Finished, Transport};
use super::telemetry::{MessageEvent, Progress, Publisher, Telemetry};
use super::{Ended, SendError, Settings};
use ending::Quiet;
use timing::Timing;

/// What a dispatcher is made of.
pub(super) struct Parts {
    pub(super) database: Database,
    pub(super) providers: Vec<(Arc<Provider>, Transport)>,
    pub(super) settings: Settings,
    pub(super) clock: Arc<Clock>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) progress: Arc<Progress>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Option<mpsc::UnboundedSender<MessageEvent>>,
}

/// The single task that decides what a worker commits and which requests it starts.
///
/// A transaction for each message would be as slow as the database's disk, so one transaction settles all that has
/// finished and claims all that can start, and what finishes meanwhile goes into the next one. All state of providers
/// and campaigns belongs to this task, so it needs no locks, and each decision sees all others. The price is that it
/// must never wait for one thing alone: requests, lookups, heartbeats and maintenance are tasks that report to it, and
/// it does what all of them need before it waits again.
pub(super) struct Dispatcher {
    context: Arc<WorkerContext>,
    providers: Vec<ProviderState>,
    committer: Committer,
    lookups: StatusLookups,
    telemetry: Telemetry,
    timing: Timing,
    quiet: Quiet,
    /// Requests report here; `finished` is the other end.
    reports: mpsc::UnboundedSender<Finished>,
    finished: mpsc::UnboundedReceiver<Finished>,
    maintenance: mpsc::UnboundedReceiver<MaintenanceEvent>,
    /// Requests, lookups, maintenance and the heartbeat; they end with the dispatcher.
    tasks: JoinSet<()>,
    /// How many messages need no further attempt.
    done: u64,
    /// The results for the next commit.
    results: Results,
    /// When the running commit was planned.
    planned: PlanTime,
    /// When orphans are released next.
    orphans_at: Instant,
    /// What earlier workers left, found while a commit ran.
    left: Vec<(LeftResults, oneshot::Sender<()>)>,
    /// When a commit last changed what maintenance reads: older readings do not count.
    changed_at: Instant,
    admission: Arc<AdmissionRules>,
    /// Campaigns whose provider this worker does not know.
    unserved: Vec<Campaign>,
}

fn publisher(context: &WorkerContext) -> Publisher {
    let lease = Arc::clone(&context.lease);
    Publisher::new(
        Arc::clone(&context.progress),
        Arc::clone(&context.clock),
        context.database.clone(),
        context.settings.sender.concurrency,
        move || lease.worker_id(),
    )
}

impl Dispatcher {
    pub(super) async fn begin(parts: Parts) -> Result<Self, SendError> {
        let settings = parts.settings;
        let store = parts.database.reach().await?;
        let folder = settings.state_folder.as_deref();
        let files = LocalFiles::of(store, folder).await?;
        left::refuse_others(&files).await?;
        let journal = Journal::new(files.clone());
        let marks = Arc::new(Marks::new(files));
        let lease = Lease::begin(
            parts.database.clone(),
            Arc::clone(&parts.clock),
            settings.sender.lease,
            settings.sender.concurrency,
            Arc::clone(&parts.progress),
            Arc::clone(&marks),
        )
        .await?;
        let (reports, finished) = mpsc::unbounded_channel();
        let (maintenance_events, maintained) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&lease).keep());
        let now = parts.clock.instant();
        let own_providers =
            parts.providers.iter().map(|(provider, _)| Arc::clone(provider)).collect();
        let providers = parts
            .providers
            .into_iter()
            .enumerate()
            .map(|(index, (provider, transport))| {
                let metrics = &parts.metrics;
                ProviderState::new(index, provider, transport, &settings, metrics, now)
            })
            .collect();
        let context = Arc::new(WorkerContext {
            database: parts.database,
            clock: parts.clock,
            lease,
            settings,
            progress: parts.progress,
            metrics: parts.metrics,
            stop: StopSignal::new(),
            claimed: Claimed::default(),
            marks,
        });
        let (quiet, is_quiet) = Quiet::new();
        let shared = || Arc::clone(&context);
        let stopping = shared();
        tasks.spawn(async move { stopping.stop.follow(parts.stop).await });
        let mut maintenance = Maintenance::new(shared(), own_providers, journal.clone(), is_quiet);
        let mut dispatcher = Self {
            committer: Committer::new(shared(), journal.clone()),
            lookups: StatusLookups::new(shared()),
            telemetry: Telemetry::begin(publisher(&context), parts.events),
            timing: Timing::default(),
            quiet,
            context: shared(),
            providers,
            reports,
            finished,
            maintenance: maintained,
            tasks,
            done: 0,
            results: Results::default(),
            planned: PlanTime::default(),
            orphans_at: Instant::now() + context.lease.length(),
            left: Vec::new(),
            changed_at: Instant::now(),
            admission: Arc::default(),
            unserved: Vec::new(),
        };
        let left = maintenance.find_left_at_start().await?;
        dispatcher.committer.settle_left(left).await?;
        let store = context.database.reach().await?;
        store.workers().reclaim_without_worker(context.clock.now()).await?;
        let snapshot = maintenance.read(true).await?;
        dispatcher.declare_routes().await?;
        dispatcher.take_snapshot(&snapshot);
        dispatcher.tasks.spawn(maintenance.run(maintenance_events));
        Ok(dispatcher)
    }

    /// Fails if another worker has another route of the same name: each would move what the other one divided.
    async fn declare_routes(&self) -> Result<(), SendError> {
        let context = &self.context;
        let sections = context.settings.routes.iter().filter(|(_, route)| !route.is_pool());
        let routes: BTreeMap<String, String> =
            sections.map(|(name, route)| (name.clone(), route.fingerprint())).collect();
        if routes.is_empty() {
            return Ok(());
        }
        let (worker_id, now) = (context.lease.worker_id(), context.clock.now());
        let store = context.database.reach().await?;
        let workers = store.workers();
        let Some((route, other)) = workers.declare_routes(worker_id, &routes, now).await? else {
            return Ok(());
        };
        if let Err(error) = context.lease.end().await {
            tracing::warn!(%error, "cannot remove this worker's row");
        }
        Err(SendError::OtherRoute { route, worker_id: other })
    }

    /// Sends until there is nothing left to do, or until the stop signal.
    pub(super) async fn run(mut self) -> Result<Ended, SendError> {
        let ended = self.work().await;
        if ended.is_err() {
            self.leave().await;
        }
        match self.context.stop.error() {
            Some(error) => Err(error.clone().into()),
            None => ended,
        }
    }

    async fn work(&mut self) -> Result<Ended, SendError> {
        loop {
            if let Some(outcome) = self.gather().await? {
                self.take_outcome(outcome);
            }
            self.start_claimed();
            if self.telemetry.is_snapshot_due() {
                self.record_state();
            }
            if self.committer.committing().is_some() {
                continue;
            }
            self.context.marks.check()?;
            self.context.stop.check_past()?;
            self.settle_left().await?;
            self.committer.settle_unstored().await?;
            // What was claimed is released before the run ends.
            if self.providers.iter().all(|state| state.claimed() == 0) {
                self.committer.check_claims()?;
            }
            let batch = self.plan();
            if !is_idle(&batch) {
                self.providers.iter_mut().for_each(ProviderState::begin_commit);
                self.committer.begin(Arc::new(batch));
            } else if let Some(ended) = self.check_finished().await? {
                self.end().await?;
                return Ok(ended);
            }
        }
    }

    /// Takes over what a commit did.
    fn take_outcome(&mut self, committed: CommitOutcome) {
        let CommitOutcome { batch, result, lost_claims } = committed;
        if changes_campaigns(&batch) {
            self.changed_at = Instant::now();
        }
        if lost_claims {
            self.timing.fill_limits |= batch.fill_limits;
            for claim in &batch.claims {
                if let Some(index) = self.provider_index(&claim.provider) {
                    self.providers[index].void_permits();
                }
            }
        }
        if result.is_worker_missing {
            self.context.lease.forfeit(batch.worker_id);
        }
        if result.released > 0 {
            let released = result.released;
            tracing::warn!(released, "released messages whose claim this worker did not learn of");
        }
        self.providers.iter_mut().for_each(ProviderState::end_commit);
        self.take_claimed(&batch, result);
    }

    /// Waits until something has finished, or until there may be something to claim. Returns the
    /// outcome of the commit if that has ended.
    async fn gather(&mut self) -> Result<Option<CommitOutcome>, SendError> {
        let is_committing = self.committer.committing().is_some();
        let mut has_finished = self.take_finished(None);
        while self.tasks.try_join_next().is_some() {}
        // Also where there is always something to send.
        while let Ok(event) = self.maintenance.try_recv() {
            self.take_maintenance(event);
        }
        let clock = &self.context.clock;
        let wakes_at = self.wakes_at().filter(|_| !is_committing);
        has_finished |= wakes_at.is_some_and(|at| at <= clock.instant());
        if has_finished && !is_committing {
            return Ok(None);
        }
        let until = wakes_at.map_or(TICK, |at| clock.until(at).min(TICK));
        let mut wake = Instant::now() + until;
        if let Some(claim_at) = self.committer.claim_at() {
            wake = wake.min(claim_at);
        }
        let is_stopping = self.context.is_stopping();
        let (mut lookup, mut maintenance, mut outcome, mut finished) = (None, None, None, None);
        let (bottleneck, began) = (self.bottleneck(), Instant::now());
        tokio::select! {
            biased;
            committed = self.committer.finish(), if is_committing => outcome = committed?,
            request = self.finished.recv() => finished = request,
            event = self.lookups.next_event() => lookup = event,
            event = self.maintenance.recv() => maintenance = event,
            () = self.context.stop.stopped(), if !is_stopping => {}
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

    /// Adds the results of this request and of all others that have finished to the next commit; false
    /// if none has.
    fn take_finished(&mut self, first: Option<Finished>) -> bool {
        self.results.now = self.context.clock.now();
        let mut next = first.or_else(|| self.finished.try_recv().ok());
        let has_finished = next.is_some();
        while let Some(request) = next {
            self.settle_finished(request);
            next = self.finished.try_recv().ok();
        }
        has_finished
    }

    fn take_maintenance(&mut self, event: MaintenanceEvent) {
        match event {
            MaintenanceEvent::Left(left, done) => self.left.push((left, done)),
            MaintenanceEvent::Read(snapshot) if self.is_current(&snapshot) => {
                self.take_snapshot(&snapshot);
            }
            MaintenanceEvent::Read(_) => {}
            MaintenanceEvent::Failed(error) => self.warn_unread(error),
        }
    }

    /// Settles what earlier workers left.
    async fn settle_left(&mut self) -> Result<(), SendError> {
        for (left, done) in std::mem::take(&mut self.left) {
            let settling = self.committer.settle_left(left);
            match self.context.while_patient(Instant::now(), settling).await? {
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

    /// A batch that commits the results so far.
    fn batch_of_results(&mut self) -> CommitBatch {
        let results = std::mem::take(&mut self.results);
        CommitBatch {
            settlements: results.settlements,
            claimed: results.claimed,
            campaign_stops: results.campaign_stops,
            pauses: results.pauses,
            tolerance: self.timing.tolerance(),
            caps: self.context.settings.sender.max_per_recipient.clone(),
            budgets: Arc::clone(&self.context.settings.budgets),
            admission: Arc::clone(&self.admission),
            ..CommitBatch::new(self.context.lease.worker_id(), self.context.clock.now())
        }
    }
}

/// Whether a commit changes what maintenance reads.
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
