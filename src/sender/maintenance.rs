//! What a worker does once a second, in a task of its own: checks that no newer smsq has changed the tables, reads which
//! campaigns have messages and what others changed, reclaims the messages of dead workers, and fails what expires before
//! its window opens.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smsq_lifecycle::Settlement;
use smsq_lifecycle::resend::ResendRule;
use smsq_limit::MIN_TOLERANCE;
use smsq_message::route::sender_pool::{PoolSender, SendersOff};
use smsq_message::sms::Timestamp;
use smsq_message::window::SendWindow;
use smsq_provider::Provider;
#[cfg(test)]
use smsq_store::{CommitBatch, Orphans};
use smsq_store::{
    CountStep, ProviderPause, QueuePosition, QueuedCampaign, StoreError, StoreErrorKind,
    UncountedBudget,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::context::WorkerContext;
use super::lease::{DeadWorker, LostMarks};
use super::local_files::journal::{Journal, JournalFile};
use super::window::WindowState;

/// How often campaigns and workers are read.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How soon again, at the earliest.
const SHORTEST_TICK: Duration = Duration::from_millis(100);
/// How many chunks of old starts per recipient are removed at a time.
const PRUNED_CHUNKS: u32 = 10;
/// How many chunks of expiring messages are looked through at a time.
const EXPIRED_CHUNKS: u32 = 10;
/// How long a round waits for the end of a commit.
const COMMIT_PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Maintenance {
    context: Arc<WorkerContext>,
    providers: Vec<Arc<Provider>>,
    journal: Journal,
    /// The dead workers that were found last.
    dead: Vec<DeadWorker>,
    /// The active campaigns with a window.
    windows: HashMap<i64, Expiry>,
    tidy_at: Instant,
    /// Counts what campaigns have spent before they got their budgets.
    counting: JoinSet<()>,
    /// The worker seems to have nothing left to do.
    quiet: watch::Receiver<bool>,
    /// The last round failed.
    is_failing: bool,
}

/// What expires while a campaign's window is closed.
struct Expiry {
    window: SendWindow,
    state: WindowState,
    /// Messages that expire before this instant are failed, and where in the queue to continue.
    expiring: Option<(Timestamp, Option<QueuePosition>)>,
}

pub(super) enum MaintenanceEvent {
    /// They must be settled before the messages of dead workers are reclaimed, because they say more about them.
    Left(LeftResults, oneshot::Sender<()>),
    Read(DatabaseSnapshot),
    /// Nothing could be read.
    Failed(StoreError),
}

/// Results that earlier workers left.
pub(super) struct LeftResults {
    pub(super) journals: Vec<JournalFile>,
    /// Claims that the database has lost.
    pub(super) lost: Vec<LostMarks>,
    /// By the marks of dead workers.
    pub(super) marked: Vec<Settlement>,
}

impl LeftResults {
    fn is_empty(&self) -> bool {
        self.journals.is_empty() && self.lost.is_empty() && self.marked.is_empty()
    }
}

/// What the database says of the things that others may have changed.
pub(super) struct DatabaseSnapshot {
    pub(super) read_at: Instant,
    /// The campaigns with messages that this run is to send.
    pub(super) queued: Vec<QueuedCampaign>,
    pub(super) pauses: Vec<ProviderPause>,
    pub(super) senders_off: SendersOff,
    /// There are more messages to fail that expire.
    pub(super) is_expiring: bool,
}

impl Maintenance {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        providers: Vec<Arc<Provider>>,
        journal: Journal,
        quiet: watch::Receiver<bool>,
    ) -> Self {
        let tidy_at = Instant::now() + context.lease.length();
        Self {
            context,
            providers,
            journal,
            dead: Vec::new(),
            windows: HashMap::new(),
            tidy_at,
            counting: JoinSet::new(),
            quiet,
            is_failing: false,
        }
    }

    /// Works until the task is aborted. Reads at once where the worker has become quiet, because its run may be over.
    pub(super) async fn run(mut self, events: mpsc::UnboundedSender<MaintenanceEvent>) {
        loop {
            let began = Instant::now();
            let was_quiet = *self.quiet.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                Ok(()) = self.quiet.changed(), if !was_quiet => {
                    tokio::time::sleep_until(began + SHORTEST_TICK).await;
                }
            }
            let failed = self.round(&events).await.err();
            let was_failing = std::mem::replace(&mut self.is_failing, failed.is_some());
            if let Some(error) = failed {
                if matches!(error.kind(), StoreErrorKind::Newer | StoreErrorKind::LostCommits) {
                    self.context.lease.give_up();
                    self.context.stop.stop_for(error.clone());
                }
                if !was_failing {
                    tracing::warn!(%error, "campaigns and workers could not be read");
                }
                // Without a dispatcher no one needs to know.
                drop(events.send(MaintenanceEvent::Failed(error)));
            }
        }
    }

    async fn round(
        &mut self,
        events: &mpsc::UnboundedSender<MaintenanceEvent>,
    ) -> Result<(), StoreError> {
        // What the worker would do next may be wrong.
        let store = self.context.database.reach().await?;
        store.check_file()?;
        store.check_schema().await?;
        let (left, _) = self.find_left().await?;
        if !left.is_empty() {
            let (done, settled) = oneshot::channel();
            let sent = events.send(MaintenanceEvent::Left(left, done));
            if sent.is_err() || settled.await.is_err() {
                return Ok(());
            }
        }
        self.count_budgets().await?;
        // Before the reading: the end of the run is decided by what is queued then.
        let is_tidied = self.tidy().await?;
        let is_quiet = *self.quiet.borrow();
        let snapshot = self.read(is_tidied || is_quiet).await?;
        // Without a dispatcher no one needs it.
        drop(events.send(MaintenanceEvent::Read(snapshot)));
        Ok(())
    }

    /// Says that this worker knows the budgets that are not counted yet, and begins to count them in a task of its own.
    async fn count_budgets(&mut self) -> Result<(), StoreError> {
        let context = Arc::clone(&self.context);
        let store = context.database.reach().await?;
        let uncounted = store.uncounted_budgets().await?;
        if uncounted.is_empty()
            || timeout(COMMIT_PATIENCE, context.database.commits_ended()).await.is_err()
        {
            return Ok(());
        }
        for budget in &uncounted {
            store.know_budget(budget, context.lease.worker_id()).await?;
        }
        // A panic in it has been logged.
        while self.counting.try_join_next().is_some() {}
        if self.counting.is_empty() {
            self.counting.spawn(async move {
                for budget in &uncounted {
                    if let Err(error) = count(&context, budget).await {
                        tracing::warn!(%error, "what a campaign has spent could not be counted");
                    }
                }
            });
        }
        Ok(())
    }

    /// What is found when the worker begins. Waits where a second look must show whether a worker is dead.
    pub(super) async fn find_left_at_start(&mut self) -> Result<LeftResults, StoreError> {
        let (left, is_undecided) = self.find_left().await?;
        if !is_undecided {
            return Ok(left);
        }
        tokio::time::sleep(TICK).await;
        Ok(self.find_left().await?.0)
    }

    /// Finds dead workers, and results that they or workers that ended left. Returns whether another look may find more.
    async fn find_left(&mut self) -> Result<(LeftResults, bool), StoreError> {
        let lease = &self.context.lease;
        self.context.marks.remove_abandoned();
        let found = lease.find_dead().await?;
        self.dead = found.dead;
        // What these workers have written is complete now.
        let mut journals = self.journal.files().await;
        journals.retain(|file| !self.context.marks.is_settled(&file.path));
        let left = LeftResults {
            lost: found.lost,
            marked: lease.marked_results(&self.dead).await?,
            journals,
        };
        Ok((left, found.is_undecided))
    }

    /// Reclaims the messages of the dead workers that were found, and reads what others changed. Where it `requeues`,
    /// unknown messages that may be sent again are queued first: a worker may have died after it reclaimed another's
    /// messages.
    pub(super) async fn read(&mut self, requeues: bool) -> Result<DatabaseSnapshot, StoreError> {
        let context = Arc::clone(&self.context);
        let reclaimed = context.lease.reclaim(std::mem::take(&mut self.dead)).await?;
        let mut read_at = Instant::now();
        let mut queued = self.queued().await?;
        if (requeues || reclaimed > 0) && self.requeue_unknown(&queued).await? > 0 {
            read_at = Instant::now();
            queued = self.queued().await?;
        }
        let store = context.database.reach().await?;
        let pauses = store.provider_pauses(context.clock.now()).await?;
        let senders_off = store.senders_off().await?;
        let is_expiring = self.expire(&queued).await?;
        Ok(DatabaseSnapshot { read_at, queued, pauses, senders_off, is_expiring })
    }

    /// The campaigns with messages that this run is to send. Campaigns whose messages are divided among senders have
    /// all their lanes.
    async fn queued(&self) -> Result<Vec<QueuedCampaign>, StoreError> {
        let store = self.context.database.reach().await?;
        let mut queued = store.queued_campaigns().await?;
        // Before any of their messages is claimed.
        store.hooks().watch(&queued, self.context.clock.now()).await?;
        let mut are_opened = false;
        for QueuedCampaign { campaign, lanes, .. } in &queued {
            if let Some(route) = self.context.settings.route_of(campaign) {
                let is_open = |(provider, sender): (&str, &Arc<PoolSender>)| {
                    let mut opened = lanes.iter();
                    opened.any(|lane| lane.provider == provider && lane.sender == *sender.from)
                };
                if !route.senders().all(is_open) {
                    store.open_lanes(campaign.id, &route).await?;
                    are_opened = true;
                }
            }
        }
        if are_opened {
            queued = store.queued_campaigns().await?;
        }
        if let Some(name) = &self.context.settings.campaign {
            queued.retain(|queued| queued.campaign.name == *name);
        }
        Ok(queued)
    }

    /// Fails messages that expire before their window opens again. Returns whether there may be more.
    async fn expire(&mut self, queued: &[QueuedCampaign]) -> Result<bool, StoreError> {
        let now = self.context.clock.now();
        let mut known = std::mem::take(&mut self.windows);
        for QueuedCampaign { campaign, .. } in queued {
            let Some(window) = campaign.window.as_ref().filter(|_| campaign.may_send()) else {
                continue;
            };
            let expiry = known
                .remove(&campaign.id)
                .filter(|expiry| expiry.window == *window)
                .unwrap_or_else(|| Expiry {
                    window: window.clone(),
                    state: WindowState::default(),
                    expiring: None,
                });
            self.windows.insert(campaign.id, expiry);
        }
        let mut chunks = EXPIRED_CHUNKS;
        let mut is_expiring = false;
        for (id, expiry) in &mut self.windows {
            expiry.state.check(Some(&expiry.window), now, MIN_TOLERANCE);
            if let Some(opens_at) = expiry.state.take_next_opening(now) {
                expiry.expiring = Some((opens_at, None));
            }
            while let Some((by, after)) = expiry.expiring.filter(|(by, _)| now < *by)
                && chunks > 0
            {
                chunks -= 1;
                let store = self.context.database.reach().await?;
                let expired = store.expire_rows(*id, by, after, now).await?;
                let failed = &self.context.progress.failed;
                failed.fetch_add(expired.rows, Ordering::Relaxed);
                expiry.expiring = expired.reached.map(|reached| (by, Some(reached)));
            }
            is_expiring |= expiry.expiring.is_some_and(|(by, _)| now < by);
        }
        Ok(is_expiring)
    }

    /// Once a lease: reclaims the messages of workers on no list, because one that was suspended while it was declared
    /// dead may have claimed them afterwards, and ended. Removes old starts per recipient. Returns whether it was time.
    async fn tidy(&mut self) -> Result<bool, StoreError> {
        let context = Arc::clone(&self.context);
        let lease = &context.lease;
        if Instant::now() < self.tidy_at {
            return Ok(false);
        }
        self.tidy_at = Instant::now() + lease.length();
        let store = context.database.reach().await?;
        if lease.holds() {
            store.workers().reclaim_without_worker(context.clock.now()).await?;
        }
        store.decide_abandoned_batches(context.clock.now()).await?;
        store.prune_approvals().await?;
        let caps = context.settings.sender.max_per_recipient.0.iter();
        if let Some(longest) = caps.map(|cap| cap.window).max() {
            // Twice as long, because another worker's clock may be behind.
            let before = context.clock.now().minus(longest * 2);
            for _ in 0..PRUNED_CHUNKS {
                if store.prune_recipient_starts(before).await? == 0 {
                    break;
                }
            }
        }
        #[cfg(test)]
        if context.database.faults.releases_beside_commits {
            let now = context.clock.now();
            let orphans = Orphans {
                known: context.claimed.all(),
                claimed_before: now.minus(lease.length()),
                campaigns: self.queued().await?.iter().map(|queued| queued.campaign.id).collect(),
            };
            let batch =
                CommitBatch { orphans: Some(orphans), ..CommitBatch::new(lease.worker_id(), now) };
            context.database.reach().await?.commit(&batch).await?;
        }
        Ok(true)
    }

    /// Queues unknown messages of active campaigns that may be sent again. Returns how many.
    async fn requeue_unknown(&self, queued: &[QueuedCampaign]) -> Result<u64, StoreError> {
        let context = &self.context;
        let mut requeued = 0;
        for QueuedCampaign { campaign, .. } in queued.iter().filter(|queued| queued.has_unknown) {
            let names = context.settings.providers_of(campaign);
            let is_shared = names.len() > 1;
            for name in names {
                let mut providers = self.providers.iter();
                let Some(provider) = providers.find(|known| known.name() == name) else {
                    continue;
                };
                // A provider that can be asked is asked first.
                let can_lookup = provider.capabilities().lookup.is_some();
                if can_lookup || !campaign.may_send() {
                    continue;
                }
                let now = context.clock.now();
                let honoured = match context.resend_rule(provider) {
                    ResendRule::Never => continue,
                    ResendRule::Within(span) => Some((name, now.minus(span))),
                    // Those of the other providers are not this one's.
                    ResendRule::Always if is_shared => Some((name, Timestamp::default())),
                    ResendRule::Always => None,
                };
                let max_attempts = context.settings.retry.max_attempts;
                let store = context.database.reach().await?;
                requeued += store.requeue_unknown(campaign.id, honoured, max_attempts, now).await?;
            }
        }
        Ok(requeued)
    }
}

async fn count(context: &WorkerContext, budget: &UncountedBudget) -> Result<CountStep, StoreError> {
    let store = context.database.reach().await?;
    store.count_budget(budget, &context.settings.prices).await
}
