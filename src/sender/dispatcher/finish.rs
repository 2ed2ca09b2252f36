//! Finds out whether anything is left to do, and how a run ends.

use tokio::time::Instant;

use super::Dispatcher;
use crate::sender::campaign_state::CampaignState;
use crate::sender::commit::DATABASE_PATIENCE;
use crate::sender::maintenance::{TICK, requeue_unknown};
use crate::sender::provider_state::ProviderState;
use crate::sender::{Ended, SendError};
use crate::store::{Campaign, CampaignStatus};

impl Dispatcher {
    /// Whether everything is done, and how it ended. Waits for an unreachable database.
    pub(super) async fn check_finished(&mut self) -> Result<Option<Ended>, SendError> {
        match self.is_finished().await {
            Err(SendError::Store(error)) if error.is_temporary() => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= DATABASE_PATIENCE {
                    return Err(error.into());
                }
                tracing::warn!(%error, "cannot check whether messages are left");
                self.context
                    .progress
                    .set_note(Some(format!("{error}; waiting")));
                Ok(None)
            }
            finished => {
                if self.away_since.take().is_some() {
                    self.context.progress.set_note(None);
                }
                finished
            }
        }
    }

    async fn is_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let is_busy = self.providers.iter().any(|state| state.claimed() > 0);
        if is_busy || !self.committer.is_all_stored() || !self.finished.is_empty() {
            return Ok(None);
        }
        if self.context.is_stopping() {
            return Ok(Some(Ended::Stopped));
        }
        if self.left() == 0 {
            return Ok(Some(Ended::Limit));
        }
        let (now, patience) = (
            self.context.clock.now(),
            self.context.settings.retry.max_wait,
        );
        if self.is_expiring {
            return Ok(None);
        }
        let is_resting = |provider: &ProviderState, state: &CampaignState| {
            if self.context.settings.wait {
                return state.is_closed(now);
            }
            state.rests_until(now, patience).is_some()
                || provider.paused_beyond(now, patience).is_some()
        };
        let is_working = |provider: &ProviderState| {
            let mut campaigns = provider.campaigns().iter();
            campaigns.any(|state| state.has_work() && !is_resting(provider, state))
        };
        if self.providers.iter().any(is_working) {
            self.lookups.stop_waiting();
            return Ok(None);
        }
        if self.context.settings.follow {
            return Ok(None);
        }
        self.confirm_finished().await
    }

    /// Asks the database about each campaign, because none seemed to have anything left.
    async fn confirm_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let mut halted = Vec::new();
        let mut waiting = Vec::new();
        let mut is_unfinished = false;
        let patience = self.context.settings.retry.max_wait;
        // A worker may have died after it reclaimed another's messages, before it queued them again.
        for provider in &self.providers {
            for state in provider.campaigns() {
                requeue_unknown(&self.context, provider.provider(), state.campaign()).await?;
            }
        }
        let now = self.context.clock.now();
        for provider in &mut self.providers {
            let paused = provider.paused_beyond(now, patience);
            for state in provider.campaigns_mut() {
                let store = self.context.database.reach().await?;
                let unfinished = store.unfinished(state.id()).await?;
                if !unfinished.ready && !unfinished.sending {
                    continue;
                }
                if !state.is_active() {
                    halted.extend(halt_of(state.campaign()));
                    continue;
                }
                state.note_messages();
                let rests_until = state.rests_until(now, patience);
                let until = rests_until.map(|until| state.shown(until));
                if let Some(until) = until.or_else(|| paused.clone())
                    && !self.context.settings.wait
                    && !unfinished.sending
                {
                    waiting.push((state.campaign().name.clone(), until));
                    continue;
                }
                state.ask_at(if unfinished.ready {
                    now
                } else {
                    now.plus(TICK / 4)
                });
                state.check_window(now, self.tolerance);
                is_unfinished = true;
            }
        }
        if is_unfinished {
            self.lookups.stop_waiting();
            return Ok(None);
        }
        for campaign in &self.unserved {
            let store = self.context.database.reach().await?;
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
        if self.lookups.is_awaited(&self.providers).await? {
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
