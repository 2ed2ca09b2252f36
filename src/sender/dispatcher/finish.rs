//! Finds out whether anything is left to do, and how a run ends.

use tokio::time::Instant;

use super::Dispatcher;
use crate::sender::campaign_state::CampaignState;
use crate::sender::commit::DATABASE_PATIENCE;
use crate::sender::maintenance::Reading;
use crate::sender::provider_state::ProviderState;
use crate::sender::{Ended, SendError};
use crate::store::{Campaign, CampaignStatus, QueuedCampaign, StoreError};

/// A worker that seems to have nothing left to do: it is over where the database says the same.
#[derive(Default)]
pub(super) struct Quiet {
    since: Option<Instant>,
    /// How the run ends, by the last reading since then; `None`: there is something left, or nothing was read.
    ended: Option<Ended>,
    /// Since when the database could not be read, and why.
    failing: Option<(Instant, StoreError)>,
}

impl Dispatcher {
    /// Whether everything is done, and how it ended. Waits for an unreachable database.
    pub(super) async fn check_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let is_busy = self.providers.iter().any(|state| state.claimed() > 0);
        if is_busy || !self.committer.is_all_stored() || !self.finished.is_empty() {
            self.end_quiet();
            return Ok(None);
        }
        if self.context.is_stopping() {
            return Ok(Some(Ended::Stopped));
        }
        if self.left() == 0 {
            return Ok(Some(Ended::Limit));
        }
        if self.is_working() {
            self.lookups.stop_waiting();
            self.end_quiet();
            return Ok(None);
        }
        if self.is_expiring || self.context.settings.follow {
            return Ok(None);
        }
        if self.quiet.since.is_none() {
            self.quiet.since = Some(Instant::now());
            self.announce_quiet.send_replace(true);
        }
        if let Some((since, error)) = &self.quiet.failing
            && (!error.is_temporary() || since.elapsed() >= DATABASE_PATIENCE)
        {
            return Err(error.clone().into());
        }
        let Some(ended) = self.quiet.ended.take() else {
            return Ok(None);
        };
        match self.lookups.is_awaited(&self.providers).await {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(ended)),
            Err(error) => {
                self.note_unread(error);
                Ok(None)
            }
        }
    }

    /// Takes over a reading of the database while the worker is quiet.
    pub(super) fn check_reading(&mut self, reading: &Reading) {
        if self.quiet.failing.take().is_some() {
            self.context.progress.set_note(None);
        }
        if self
            .quiet
            .since
            .is_some_and(|since| reading.read_at >= since)
        {
            self.quiet.ended = self.end_of_run(&reading.queued);
            if self.quiet.ended.is_none() {
                self.lookups.stop_waiting();
            }
        }
    }

    /// The database could not be read.
    pub(super) fn note_unread(&mut self, error: StoreError) {
        if self.quiet.since.is_none() {
            return;
        }
        tracing::warn!(%error, "cannot check whether messages are left");
        let note = format!("{error}; waiting");
        self.context.progress.set_note(Some(note));
        let since = self.quiet.failing.take().map(|(since, _)| since);
        self.quiet.failing = Some((since.unwrap_or_else(Instant::now), error));
    }

    fn end_quiet(&mut self) {
        if self.quiet.since.is_some() {
            self.quiet = Quiet::default();
            self.announce_quiet.send_replace(false);
        }
    }

    /// Whether any campaign has messages that this run will send.
    fn is_working(&self) -> bool {
        let now = self.context.clock.now();
        let patience = self.context.settings.retry.max_wait;
        let is_resting = |provider: &ProviderState, state: &CampaignState| {
            if self.context.settings.wait {
                return state.is_closed(now);
            }
            state.rests_until(now, patience).is_some()
                || provider.paused_beyond(now, patience).is_some()
        };
        self.providers.iter().any(|provider| {
            let mut campaigns = provider.campaigns().iter();
            campaigns.any(|state| state.has_work() && !is_resting(provider, state))
        })
    }

    /// How the run ends where these are all campaigns with messages; `None`: some are still to be sent.
    fn end_of_run(&self, queued: &[QueuedCampaign]) -> Option<Ended> {
        let now = self.context.clock.now();
        let patience = self.context.settings.retry.max_wait;
        let (mut halted, mut waiting) = (Vec::new(), Vec::new());
        for queued in queued.iter().filter(|queued| queued.is_unfinished()) {
            let campaign = &queued.campaign;
            if campaign.state != CampaignStatus::Active {
                halted.extend(halt_of(campaign));
                continue;
            }
            let provider = self.context.settings.provider_of(campaign);
            let Some(index) = provider.and_then(|name| self.provider_index(name)) else {
                halted.push((campaign.name.clone(), self.why_unserved(campaign)));
                continue;
            };
            let provider = &self.providers[index];
            let mut states = provider.campaigns().iter();
            let state = states.find(|state| state.id() == campaign.id)?;
            let until = state
                .rests_until(now, patience)
                .map(|until| state.shown(until))
                .or_else(|| provider.paused_beyond(now, patience))
                .filter(|_| !self.context.settings.wait && !queued.is_sending)?;
            waiting.push((campaign.name.clone(), until));
        }
        Some(if !halted.is_empty() {
            Ended::Halted(halted)
        } else if !waiting.is_empty() {
            Ended::Waiting(waiting)
        } else {
            Ended::Done
        })
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
