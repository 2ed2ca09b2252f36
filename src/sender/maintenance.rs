//! What a worker does once a second, in a task of its own: reads what others changed, reclaims the
//! messages of dead workers, and fails what expires before its window opens.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::context::WorkerContext;
use super::journal::{Journal, JournalFile};
use super::window::WindowState;
use crate::limit::MIN_TOLERANCE;
use crate::provider::Provider;
use crate::queue::resend::ResendRule;
use crate::sms::Timestamp;
use crate::store::{Campaign, CampaignStatus, ProviderPause, QueuePosition, StoreError};
#[cfg(test)]
use crate::store::{CommitBatch, Orphans};
use crate::window::SendWindow;

/// How often campaigns and workers are read.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How many chunks of old starts per recipient are removed at a time.
const PRUNED_CHUNKS: u32 = 10;
/// How many chunks of expiring messages are looked through at a time.
const EXPIRED_CHUNKS: u32 = 10;

pub(super) struct Maintenance {
    context: Arc<WorkerContext>,
    providers: Vec<Arc<Provider>>,
    journal: Journal,
    /// The active campaigns with a window.
    windows: HashMap<i64, Expiry>,
    tidy_at: Instant,
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
    /// Results that an earlier worker left. They must be settled before its messages are reclaimed,
    /// because they say more about them.
    Journal(Vec<JournalFile>, oneshot::Sender<()>),
    Read(Reading),
}

/// What others may have changed.
pub(super) struct Reading {
    pub(super) read_at: Instant,
    /// All campaigns that this run is to send.
    pub(super) campaigns: Vec<Campaign>,
    pub(super) pauses: Vec<ProviderPause>,
    /// There are more messages to fail that expire.
    pub(super) is_expiring: bool,
}

impl Maintenance {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        providers: Vec<Arc<Provider>>,
        journal: Journal,
    ) -> Self {
        let tidy_at = Instant::now() + context.lease.length();
        Self {
            context,
            providers,
            journal,
            windows: HashMap::new(),
            tidy_at,
            is_failing: false,
        }
    }

    /// Works until the task is aborted.
    pub(super) async fn run(mut self, events: mpsc::UnboundedSender<MaintenanceEvent>) {
        loop {
            tokio::time::sleep(TICK).await;
            let done = self.round(&events).await;
            match &done {
                Err(error) if !self.is_failing => {
                    tracing::warn!(%error, "campaigns and workers could not be read");
                }
                _ => {}
            }
            self.is_failing = done.is_err();
        }
    }

    async fn round(
        &mut self,
        events: &mpsc::UnboundedSender<MaintenanceEvent>,
    ) -> Result<(), StoreError> {
        let files = self.journal.files().await;
        if !files.is_empty() {
            let (done, settled) = oneshot::channel();
            let sent = events.send(MaintenanceEvent::Journal(files, done));
            if sent.is_err() || settled.await.is_err() {
                return Ok(());
            }
        }
        let reading = self.read(false).await?;
        let campaigns = reading.campaigns.clone();
        // Without a dispatcher no one needs the reading.
        drop(events.send(MaintenanceEvent::Read(reading)));
        self.tidy(&campaigns).await
    }

    /// Reclaims the messages of dead workers, and reads what others changed.
    pub(super) async fn read(&mut self, is_first: bool) -> Result<Reading, StoreError> {
        let context = Arc::clone(&self.context);
        let reclaimed = context.lease.reclaim_dead().await?;
        let read_at = Instant::now();
        let mut campaigns = context.database.reach().await?.campaigns().await?;
        let wanted = context.settings.campaign.as_ref();
        campaigns.retain(|campaign| wanted.is_none_or(|name| *name == campaign.name));
        let store = context.database.reach().await?;
        let pauses = store.provider_pauses(context.clock.now()).await?;
        let is_expiring = self.expire(&campaigns).await?;
        if is_first || reclaimed > 0 {
            self.requeue_unknown(&campaigns).await?;
        }
        Ok(Reading {
            read_at,
            campaigns,
            pauses,
            is_expiring,
        })
    }

    /// Fails messages that expire before their window opens again. Returns whether there may be more.
    async fn expire(&mut self, campaigns: &[Campaign]) -> Result<bool, StoreError> {
        let now = self.context.clock.now();
        let mut known = std::mem::take(&mut self.windows);
        for campaign in campaigns {
            let (CampaignStatus::Active, Some(window)) = (campaign.state, &campaign.window) else {
                continue;
            };
            let before = known.remove(&campaign.id);
            let expiry = before.filter(|expiry| expiry.window == *window);
            let expiry = expiry.unwrap_or_else(|| Expiry {
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
    /// dead may have claimed them afterwards, and ended. Removes old starts per recipient.
    async fn tidy(&mut self, campaigns: &[Campaign]) -> Result<(), StoreError> {
        let context = Arc::clone(&self.context);
        let lease = &context.lease;
        if Instant::now() < self.tidy_at {
            return Ok(());
        }
        self.tidy_at = Instant::now() + lease.length();
        let store = context.database.reach().await?;
        if lease.holds() {
            store.reclaim_without_worker(context.clock.now()).await?;
        }
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
                known: context.claimed.ids(),
                claimed_before: now.minus(lease.length()),
                campaigns: campaigns.iter().map(|campaign| campaign.id).collect(),
            };
            let batch = CommitBatch {
                orphans: Some(orphans),
                ..CommitBatch::new(lease.worker_id(), now)
            };
            context.database.reach().await?.commit(&batch).await?;
        }
        self.requeue_unknown(campaigns).await
    }

    async fn requeue_unknown(&self, campaigns: &[Campaign]) -> Result<(), StoreError> {
        for campaign in campaigns {
            if let Some(provider) = self.provider_of(campaign) {
                requeue_unknown(&self.context, provider, campaign).await?;
            }
        }
        Ok(())
    }

    fn provider_of(&self, campaign: &Campaign) -> Option<&Provider> {
        let name = self.context.settings.provider_of(campaign)?;
        let mut providers = self.providers.iter();
        let found = providers.find(|provider| provider.name() == name);
        found.map(Arc::as_ref)
    }
}

/// Queues unknown messages of an active campaign again that may be sent again.
pub(super) async fn requeue_unknown(
    context: &WorkerContext,
    provider: &Provider,
    campaign: &Campaign,
) -> Result<(), StoreError> {
    // A provider that can be asked is asked first.
    let can_lookup = provider.capabilities().lookup.is_some();
    if can_lookup || campaign.state != CampaignStatus::Active {
        return Ok(());
    }
    let now = context.clock.now();
    let honoured = match context.resend_rule(provider) {
        ResendRule::Never => return Ok(()),
        ResendRule::Within(span) => Some((provider.name(), now.minus(span))),
        ResendRule::Always => None,
    };
    let max_attempts = context.settings.retry.max_attempts;
    let store = context.database.reach().await?;
    store
        .requeue_unknown(campaign.id, honoured, max_attempts, now)
        .await?;
    Ok(())
}
