//! Finds out whether anything is left to do, and ends the run.

use std::sync::Arc;
use std::time::Duration;

use smsq_store::{Campaign, CampaignStatus, QueuedCampaign, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Dispatcher, is_idle};
use crate::campaign_state::CampaignState;
use crate::commit::DATABASE_PATIENCE;
use crate::lookup::LookupEvent;
use crate::maintenance::DatabaseSnapshot;
use crate::provider_state::ProviderState;
use crate::{Ended, SendError};

/// The longest wait for the last requests when the worker must end.
const LAST_REQUESTS: Duration = Duration::from_secs(30);

/// A worker that seems to have nothing left to do: it is over where the database says the same.
pub(super) struct Quiet {
    /// Announces to maintenance that the worker is quiet.
    announce: watch::Sender<bool>,
    /// Maintenance has more messages to fail that expire.
    is_expiring: bool,
    since: Option<Instant>,
    /// How the run ends, by the last reading since then; `None`: there is something left, or nothing was read.
    ended: Option<Ended>,
    /// Since when the database could not be read, and why.
    failing: Option<(Instant, StoreError)>,
}

impl Quiet {
    /// The other end is for maintenance.
    pub(super) fn new() -> (Self, watch::Receiver<bool>) {
        let (announce, is_quiet) = watch::channel(false);
        let quiet = Self { announce, is_expiring: false, since: None, ended: None, failing: None };
        (quiet, is_quiet)
    }

    /// Why it is not known whether the run is over.
    pub(super) fn note(&self) -> Option<String> {
        let (_, error) = self.failing.as_ref()?;
        Some(format!("{error}; waiting"))
    }
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
        if self.quiet.is_expiring || self.context.settings.follow {
            return Ok(None);
        }
        if self.quiet.since.is_none() {
            self.quiet.since = Some(Instant::now());
            self.quiet.announce.send_replace(true);
        }
        if let Some((since, error)) = &self.quiet.failing
            && (!error.is_temporary() || since.elapsed() >= DATABASE_PATIENCE)
        {
            return Err(error.clone().into());
        }
        let Some(ended) = self.quiet.ended.take() else {
            return Ok(None);
        };
        let awaited = self.lookups.is_awaited(&self.providers);
        match self.context.while_patient(Instant::now(), awaited).await? {
            Ok(true) => {
                self.lookups.start(&self.providers, &mut self.tasks);
                Ok(None)
            }
            Ok(false) => Ok(Some(ended)),
            Err(error) => {
                self.warn_unread(error);
                Ok(None)
            }
        }
    }

    /// Checks by a reading of the database whether the run of a quiet worker is over. Returns whether it continues; false
    /// also where this reading does not count.
    pub(super) fn check_quiet(&mut self, snapshot: &DatabaseSnapshot) -> bool {
        self.quiet.is_expiring = snapshot.is_expiring;
        self.quiet.failing = None;
        let Some(since) = self.quiet.since else {
            return true;
        };
        // What lookups have queued since the reading is not in it.
        let read_at = snapshot.read_at;
        if read_at < since || !self.lookups.is_idle_since(read_at) {
            return false;
        }
        self.quiet.ended = self.end_of_run(&snapshot.queued);
        let continues = self.quiet.ended.is_none();
        if continues {
            self.lookups.stop_waiting();
        }
        continues
    }

    /// The database could not be read.
    pub(super) fn warn_unread(&mut self, error: StoreError) {
        if self.quiet.since.is_none() {
            return;
        }
        tracing::warn!(%error, "cannot check whether messages are left");
        let since = self.quiet.failing.take().map(|(since, _)| since);
        self.quiet.failing = Some((since.unwrap_or_else(Instant::now), error));
    }

    fn end_quiet(&mut self) {
        if self.quiet.since.is_some() {
            self.quiet.since = None;
            self.quiet.ended = None;
            self.quiet.failing = None;
            self.quiet.announce.send_replace(false);
        }
    }

    /// Whether any campaign has messages that this run will send.
    fn is_working(&self) -> bool {
        let now = self.context.clock.now();
        let patience = self.context.settings.retry.max_wait;
        let is_idle = |provider: &ProviderState, state: &CampaignState| {
            if self.context.settings.wait {
                return state.is_closed(now);
            }
            state.idle_until(now, patience).is_some()
                || provider.paused_beyond(now, patience).is_some()
        };
        self.providers.iter().any(|provider| {
            let mut campaigns = provider.campaigns().iter();
            campaigns.any(|state| state.has_work() && !is_idle(provider, state))
        })
    }

    /// How the run ends where these are all campaigns with messages; `None`: some are still to be sent.
    fn end_of_run(&self, queued: &[QueuedCampaign]) -> Option<Ended> {
        let now = self.context.clock.now();
        let patience = self.context.settings.retry.max_wait;
        let (mut halted, mut waiting) = (Vec::new(), Vec::new());
        let has_rest =
            |queued: &&QueuedCampaign| queued.is_unfinished() || queued.campaign.has_waiting();
        for queued in queued.iter().filter(has_rest) {
            let campaign = &queued.campaign;
            if !campaign.may_send() || campaign.has_waiting() {
                halted.extend(halt_of(campaign));
            }
            if !campaign.may_send() || !queued.is_unfinished() {
                continue;
            }
            let providers = self.providers_of(campaign);
            if providers.is_empty() {
                halted.push((campaign.name.clone(), self.why_unserved(campaign)));
                continue;
            }
            if self.context.settings.wait || queued.is_sending {
                return None;
            }
            // Of several providers, those that have some of its messages.
            let mut until = None;
            for index in providers {
                let provider = &self.providers[index];
                let mut states = provider.campaigns().iter();
                let state = states.find(|state| state.id() == campaign.id)?;
                if state.has_work() || !state.is_shared() {
                    let idle = state.idle_until(now, patience);
                    let idle = idle.map(|until| state.shown(until));
                    until = Some(idle.or_else(|| provider.paused_beyond(now, patience))?);
                }
            }
            waiting.push((campaign.name.clone(), until?));
        }
        Some(if !halted.is_empty() {
            Ended::Halted(halted)
        } else if !waiting.is_empty() {
            Ended::Waiting(waiting)
        } else {
            Ended::Done
        })
    }

    /// Ends after an error: waits for the requests in flight, and leaves what is known to the next
    /// worker.
    pub(super) async fn leave(&mut self) {
        self.context.lease.give_up();
        let timeouts = self.providers.iter().map(|state| state.provider().timeout());
        let patience = timeouts.max().unwrap_or_default().min(LAST_REQUESTS);
        let deadline = Instant::now() + patience;
        while self.providers.iter().any(ProviderState::is_in_flight) {
            match tokio::time::timeout_at(deadline, self.finished.recv()).await {
                Ok(Some(request)) => self.settle_finished(request),
                Ok(None) | Err(_) => break,
            }
        }
        // Requests without a response by now are reported as unknown.
        self.tasks.shutdown().await;
        self.committer.shutdown().await;
        self.context.marks.close();
        self.write_journal();
        self.publish_last().await;
    }

    /// Ends a run that is over.
    pub(super) async fn end(&mut self) -> Result<(), SendError> {
        // Awaited: a heartbeat after the worker's end would register it again.
        self.tasks.shutdown().await;
        self.settle_last().await?;
        self.publish_last().await;
        let ended = self.context.while_patient(Instant::now(), self.context.lease.end()).await;
        if let Err(error) = ended.and_then(|ended| ended) {
            tracing::warn!(%error, "cannot remove this worker's row; another worker will remove it");
        }
        Ok(())
    }

    /// Stores what lookups found out while the run ended.
    async fn settle_last(&mut self) -> Result<(), SendError> {
        while let Some(event) = self.lookups.try_next_event() {
            self.take_lookup(event);
        }
        let batch = self.batch_of_results();
        if !is_idle(&batch) {
            self.committer.begin(Arc::new(batch));
            self.committer.finish().await?;
        }
        Ok(())
    }

    async fn publish_last(&mut self) {
        self.record_state();
        self.telemetry.publish_last().await;
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

/// The name of a campaign that must not continue, and why; `None` where it was cancelled.
fn halt_of(campaign: &Campaign) -> Option<(String, String)> {
    if campaign.state == CampaignStatus::Cancelled {
        return None;
    }
    let reason = campaign.state_reason.as_deref().unwrap_or(campaign.state.as_str());
    Some((campaign.name.clone(), reason.to_owned()))
}
