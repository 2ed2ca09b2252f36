//! What the dispatcher does once a second: reads what others changed, reclaims dead workers' messages,
//! fails what expires, and finds out whether anything is left to do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::campaign_state::CampaignState;
use super::commit::DATABASE_PATIENCE;
use super::dispatcher::{Dispatcher, TICK};
use super::provider_state::ProviderState;
use super::{Ended, OnUnknown, SendError};
use crate::provider::ContentMode;
use crate::sms::Timestamp;
use crate::store::{Campaign, CampaignStatus};

/// How many chunks of old starts per recipient are removed at a time.
const PRUNED_CHUNKS: u32 = 10;
/// How many chunks of expiring messages are looked through at a time.
const EXPIRED_CHUNKS: u32 = 10;
/// The operator is told of a wait that is longer than this.
const NOTED_WAIT: Duration = Duration::from_secs(5);

impl Dispatcher {
    /// Does the work of one second. A database that is away is no error.
    pub(super) async fn tick(&mut self) {
        if let Err(error) = self.maintain_all().await {
            tracing::warn!(%error, "campaigns and workers could not be looked at");
        }
        self.tick_at = Instant::now() + TICK;
    }

    async fn maintain_all(&mut self) -> Result<(), SendError> {
        self.maintain(false).await?;
        self.release_orphans().await?;
        self.start_lookups().await
    }

    /// Reads campaigns, pauses and windows, and reclaims the messages of dead workers.
    pub(super) async fn maintain(&mut self, is_first: bool) -> Result<(), SendError> {
        // Before a dead worker's messages become unknown: its journal knows more about them.
        self.settle_journal().await?;
        let reclaimed = self.lease.reclaim_dead().await?;
        let mut served = HashMap::new();
        let mut unserved = Vec::new();
        for campaign in self.database.reach().await?.campaigns().await? {
            let wanted = self.settings.campaign.as_ref();
            if wanted.is_some_and(|name| *name != campaign.name) {
                continue;
            }
            let provider = self.settings.provider_of(&campaign).map(str::to_owned);
            let Some(index) = provider.and_then(|name| self.provider_index(&name)) else {
                unserved.push(campaign);
                continue;
            };
            served.insert(campaign.id, index);
            let state = &mut self.providers[index];
            if let Some(known) = state.campaign(campaign.id) {
                known.refresh(campaign);
            } else {
                let new = CampaignState::new(campaign, self.settings.auto_pause);
                state.campaigns.push(new);
            }
        }
        // A campaign that was moved leaves its old provider.
        for (index, state) in self.providers.iter_mut().enumerate() {
            let is_here =
                |campaign: &CampaignState| served.get(&campaign.campaign.id) == Some(&index);
            state.campaigns.retain(is_here);
        }
        self.note_unserved(unserved);
        self.read_pauses().await?;
        self.read_windows().await?;
        if is_first || reclaimed > 0 {
            self.requeue_unknown().await?;
        }
        Ok(())
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
        match self.settings.provider_of(campaign) {
            Some(provider) => {
                format!("this worker started without its provider `{provider}`")
            }
            None => "it has no provider, and there is no `default_provider`".to_owned(),
        }
    }

    async fn read_pauses(&mut self) -> Result<(), SendError> {
        let now = self.clock.now();
        let pauses = self.database.reach().await?.provider_pauses(now).await?;
        for state in &mut self.providers {
            let name = state.provider.name();
            let pause = pauses.iter().find(|pause| pause.provider == name);
            let note = state.take_pause(pause, now);
            if let Some(note) = note.filter(|_| state.has_work()) {
                self.progress.set_note((!note.is_empty()).then_some(note));
            }
        }
        Ok(())
    }

    /// Reads the campaigns' windows, and fails messages that expire before one opens again.
    async fn read_windows(&mut self) -> Result<(), SendError> {
        let (now, tolerance) = (self.clock.now(), self.tolerance);
        let mut windows = HashMap::new();
        let mut chunks = EXPIRED_CHUNKS;
        let states = self.providers.iter_mut();
        for state in states.flat_map(|state| &mut state.campaigns) {
            state.check_window(now, tolerance);
            let id = state.campaign.id;
            if let Some(window) = &state.campaign.window {
                windows.insert(id, window.clone());
            }
            if let Some(opens_at) = state.window.take_next_opening(now)
                && state.is_active()
            {
                state.expiring = Some((opens_at, None));
            }
            while let Some((by, after)) = state.expiring.filter(|(by, _)| now < *by)
                && chunks > 0
            {
                chunks -= 1;
                let store = self.database.reach().await?;
                let expired = store.expire_rows(id, by, after, now).await?;
                let failed = &self.progress.failed;
                failed.fetch_add(expired.rows, Ordering::Relaxed);
                state.expiring = expired.reached.map(|reached| (by, Some(reached)));
            }
        }
        self.windows = Arc::new(windows);
        let is_template =
            |state: &&ProviderState| state.provider.capabilities().sends == ContentMode::Template;
        let states = self.providers.iter().filter(is_template);
        let campaigns = states.flat_map(|state| &state.campaigns);
        self.by_template = Arc::new(campaigns.map(|state| state.campaign.id).collect());
        self.note_waiting(now);
        Ok(())
    }

    /// Tells the operator where everything waits for a window.
    fn note_waiting(&mut self, now: Timestamp) {
        let states = self.providers.iter().flat_map(|state| &state.campaigns);
        let working = states.filter(|state| state.has_work());
        let waiting: Option<Vec<_>> = working
            .map(|state| Some((state.rests_until(now, NOTED_WAIT)?, state)))
            .collect();
        let is_busy = self.providers.iter().any(|state| state.busy() > 0);
        let waiting = waiting.filter(|_| !is_busy).unwrap_or_default();
        let first = waiting.into_iter().min_by_key(|(until, _)| *until);
        let note = first.and_then(|(until, state)| {
            let name = &state.campaign.name;
            let until = state.shown(until);
            let window = state.campaign.window.as_ref();
            window.map(|_| format!("`{name}` waits for its window until {until}"))
        });
        if note.is_some() || self.is_waiting_noted {
            self.is_waiting_noted = note.is_some();
            self.progress.set_note(note);
        }
    }

    /// Queues unknown messages again that may be sent again.
    async fn requeue_unknown(&mut self) -> Result<(), SendError> {
        let max_attempts = self.settings.retry.max_attempts;
        let by_operator = self.settings.sender.on_unknown == OnUnknown::Resend;
        for state in &self.providers {
            let capabilities = state.provider.capabilities();
            let remembered = capabilities.honoured_for();
            // A provider that can be asked is asked first.
            if capabilities.lookup.is_some() || !(by_operator || remembered.is_some()) {
                continue;
            }
            for campaign in state.campaigns.iter().filter(|state| state.is_active()) {
                let id = campaign.campaign.id;
                let store = self.database.reach().await?;
                let now = self.clock.now();
                match remembered {
                    Some(span) if !by_operator => {
                        let since = now.minus(span);
                        store
                            .requeue_unknown(id, Some(since), max_attempts, now)
                            .await?
                    }
                    _ => store.requeue_unknown(id, None, max_attempts, now).await?,
                };
            }
        }
        Ok(())
    }

    /// Once a lease: releases messages under this worker's id that it does not know, because the answer
    /// to their claim got lost and nothing was started. Reclaims those of workers on no list: one that
    /// was suspended while it was declared dead may have claimed them afterwards, and ended.
    async fn release_orphans(&mut self) -> Result<(), SendError> {
        if Instant::now() < self.orphans_at {
            return Ok(());
        }
        self.orphans_at = Instant::now() + self.lease.length();
        let store = self.database.reach().await?;
        if self.lease.holds() {
            store.reclaim_without_worker(self.clock.now()).await?;
        }
        let caps = self.settings.sender.max_per_recipient.0.iter();
        if let Some(longest) = caps.map(|cap| cap.window).max() {
            // Twice as long, because another worker's clock may be behind.
            let before = self.clock.now().minus(longest * 2);
            for _ in 0..PRUNED_CHUNKS {
                if store.prune_recipient_starts(before).await? == 0 {
                    break;
                }
            }
        }
        self.requeue_unknown().await?;
        let states = self.providers.iter().flat_map(|state| &state.campaigns);
        let campaigns: Vec<i64> = states.map(|state| state.campaign.id).collect();
        let claimed = self.claimed.iter().copied();
        let known: Vec<i64> = claimed.chain(self.commits.unstored_ids()).collect();
        let before = self.clock.now().minus(self.lease.length());
        let worker_id = self.lease.worker_id();
        let store = self.database.reach().await?;
        let released = store
            .release_orphans(worker_id, known, before, &campaigns, self.clock.now())
            .await?;
        if released > 0 {
            tracing::warn!(
                released,
                "released messages whose claim this worker did not learn of"
            );
        }
        Ok(())
    }

    /// Whether everything is done, and how it ended. Waits for a database that is away.
    pub(super) async fn check_finished(&mut self) -> Result<Option<Ended>, SendError> {
        match self.is_finished().await {
            Err(SendError::Store(error)) if error.is_temporary() => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= DATABASE_PATIENCE {
                    return Err(error.into());
                }
                tracing::warn!(%error, "whether all is done could not be looked at");
                self.progress.set_note(Some(format!("{error}; waiting")));
                Ok(None)
            }
            finished => {
                if self.away_since.take().is_some() {
                    self.progress.set_note(None);
                }
                finished
            }
        }
    }

    async fn is_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let is_busy = self.providers.iter().any(|state| state.busy() > 0);
        if is_busy || !self.is_all_stored() || !self.finished.is_empty() {
            return Ok(None);
        }
        if self.is_stopping() {
            return Ok(Some(Ended::Stopped));
        }
        if self.left() == 0 {
            return Ok(Some(Ended::Limit));
        }
        let (now, patience) = (self.clock.now(), self.settings.retry.max_wait);
        let mut campaigns = self.providers.iter().flat_map(|state| &state.campaigns);
        if campaigns.any(|state| state.expiring.is_some_and(|(by, _)| now < by)) {
            return Ok(None);
        }
        let is_resting = |provider: &ProviderState, state: &CampaignState| {
            if self.settings.wait {
                return state.window.closed_until(now).is_some();
            }
            state.rests_until(now, patience).is_some()
                || provider.paused_beyond(now, patience).is_some()
        };
        let is_working = |provider: &ProviderState| {
            let mut campaigns = provider.campaigns.iter();
            campaigns.any(|state| state.has_work() && !is_resting(provider, state))
        };
        if self.providers.iter().any(is_working) {
            self.stop_waiting_for_lookups();
            return Ok(None);
        }
        if self.settings.follow {
            return Ok(None);
        }
        self.confirm_finished().await
    }

    /// Asks the database about each campaign, because none seemed to have anything left.
    async fn confirm_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let mut halted = Vec::new();
        let mut waiting = Vec::new();
        let mut is_unfinished = false;
        let patience = self.settings.retry.max_wait;
        // A worker may have died after it reclaimed another's messages, before it queued them again.
        self.requeue_unknown().await?;
        let now = self.clock.now();
        for provider in &mut self.providers {
            let paused = provider.paused_beyond(now, patience);
            for state in &mut provider.campaigns {
                let store = self.database.reach().await?;
                let unfinished = store.unfinished(state.campaign.id).await?;
                if !unfinished.ready && !unfinished.sending {
                    continue;
                }
                if !state.is_active() {
                    halted.extend(halt_of(&state.campaign));
                    continue;
                }
                state.is_empty = false;
                let rests_until = state.rests_until(now, patience);
                let until = rests_until.map(|until| state.shown(until));
                if let Some(until) = until.or_else(|| paused.clone())
                    && !self.settings.wait
                    && !unfinished.sending
                {
                    waiting.push((state.campaign.name.clone(), until));
                    continue;
                }
                state.next_at = if unfinished.ready {
                    now
                } else {
                    now.plus(TICK / 4)
                };
                state.check_window(now, self.tolerance);
                is_unfinished = true;
            }
        }
        if is_unfinished {
            self.stop_waiting_for_lookups();
            return Ok(None);
        }
        for campaign in &self.unserved {
            let store = self.database.reach().await?;
            let unfinished = store.unfinished(campaign.id).await?;
            if !unfinished.ready && !unfinished.sending {
                continue;
            }
            halted.extend(match campaign.state {
                CampaignStatus::Active => {
                    Some((campaign.name.clone(), self.why_unserved(campaign)))
                }
                _ => halt_of(campaign),
            });
        }
        if self.waits_for_lookups().await? {
            return Ok(None);
        }
        Ok(Some(if !halted.is_empty() {
            Ended::Halted(halted)
        } else if !waiting.is_empty() {
            Ended::Waiting(waiting)
        } else {
            Ended::Done
        }))
    }
}

/// The name of a campaign that must not go on, and why; `None` where it was cancelled.
fn halt_of(campaign: &Campaign) -> Option<(String, String)> {
    if campaign.state == CampaignStatus::Cancelled {
        return None;
    }
    let reason = campaign.state_reason.clone();
    let reason = reason.unwrap_or_else(|| campaign.state.as_str().to_owned());
    Some((campaign.name.clone(), reason))
}
