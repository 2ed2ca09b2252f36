//! What the clerk does between rounds: it looks at what others change, buries dead workers, and finds
//! out whether anything is left to do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::campaign_state::CampaignState;
use super::commit::DATABASE_PATIENCE;
use super::dispatcher::{Dispatcher, UPKEEP};
use super::provider_state::ProviderState;
use super::{Ended, OnUnknown, SendError};
use crate::provider::Writes;
use crate::sms::Timestamp;
use crate::store::{Campaign, CampaignStatus};

/// So many times in a row some old starts are forgotten.
const FORGETTING: u32 = 10;
/// Of closed windows' queues at most so many chunks are looked through between two rounds.
const EXPIRING: u32 = 10;
/// Who has nothing to send for so long waits for its hour.
const WORTH_SAYING: Duration = Duration::from_secs(5);

impl Dispatcher {
    pub(super) async fn upkeep_unless_away(&mut self) {
        let kept = match self.upkeep(false).await {
            Ok(()) => self.release_orphans().await,
            Err(error) => Err(error),
        };
        let kept = match kept {
            Ok(()) => self.inquire().await,
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "campaigns and workers could not be looked at");
        }
        self.upkeep_at = Instant::now() + UPKEEP;
    }

    /// Looks at what others change: campaigns, and workers that died.
    pub(super) async fn upkeep(&mut self, first: bool) -> Result<(), SendError> {
        // Before its messages are parked: what a worker of this host left says more of them.
        self.settle_journal().await?;
        let parked = self.lease.bury_dead().await?;
        let mut served = HashMap::new();
        let mut unserved = Vec::new();
        for campaign in self.database.reach().await?.campaigns().await? {
            let wanted = self.settings.campaign.as_ref();
            if wanted.is_some_and(|name| *name != campaign.name) {
                continue;
            }
            let provider = self.settings.provider_of(&campaign).map(str::to_owned);
            let Some(index) = provider.and_then(|name| self.route_of(&name)) else {
                unserved.push(campaign);
                continue;
            };
            served.insert(campaign.id, index);
            match self.routes[index].line(campaign.id) {
                Some(line) => line.refresh(campaign),
                None => self.routes[index]
                    .lines
                    .push(CampaignState::new(campaign, self.settings.auto_pause)),
            }
        }
        // A campaign that was moved leaves its old provider.
        for (index, route) in self.routes.iter_mut().enumerate() {
            route
                .lines
                .retain(|line| served.get(&line.campaign.id) == Some(&index));
        }
        self.note_unserved(unserved);
        self.keep_stops().await?;
        self.keep_hours().await?;
        if first || parked > 0 {
            self.resend_unknown().await?;
        }
        Ok(())
    }

    /// Says which campaigns this worker cannot send.
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

    /// Takes up which providers must be left alone, and which of them no longer.
    async fn keep_stops(&mut self) -> Result<(), SendError> {
        let now = self.clock.now();
        let stops = self.database.reach().await?.provider_pauses(now).await?;
        for route in &mut self.routes {
            let name = route.provider.name();
            let stop = stops.iter().find(|stop| stop.provider == name);
            let has_work = route.lines.iter().any(CampaignState::has_work);
            if let Some(note) = route.take_stop(stop, now).filter(|_| has_work) {
                self.progress.set_note((!note.is_empty()).then_some(note));
            }
        }
        Ok(())
    }

    /// Takes up the windows of the campaigns; says so where all that is left waits for one.
    async fn keep_hours(&mut self) -> Result<(), SendError> {
        let (now, reach) = (self.clock.now(), self.reach);
        let mut windows = HashMap::new();
        let mut chunks = EXPIRING;
        for line in self.routes.iter_mut().flat_map(|route| &mut route.lines) {
            line.keep_hours(now, reach);
            if let Some(window) = &line.campaign.window {
                windows.insert(line.campaign.id, window.clone());
            }
            if let Some(opens_at) = line.hours.take_closed(now).filter(|_| line.is_active()) {
                line.expiring = Some((opens_at, None));
            }
            while let Some((by, after)) = line.expiring.filter(|(by, _)| now < *by)
                && chunks > 0
            {
                chunks -= 1;
                let store = self.database.reach().await?;
                let id = line.campaign.id;
                let expired = store.expire_rows(id, by, after, now).await?;
                self.progress
                    .failed
                    .fetch_add(expired.rows, Ordering::Relaxed);
                line.expiring = expired.reached.map(|reached| (by, Some(reached)));
            }
        }
        self.windows = Arc::new(windows);
        let by_template =
            |route: &&ProviderState| route.provider.capabilities().writes == Writes::Template;
        let routes = self.routes.iter().filter(by_template);
        let lines = routes.flat_map(|route| &route.lines);
        self.templates = Arc::new(lines.map(|line| line.campaign.id).collect());
        self.say_rests(now);
        Ok(())
    }

    fn say_rests(&mut self, now: Timestamp) {
        let lines = self.routes.iter().flat_map(|route| &route.lines);
        let working = lines.filter(|line| line.has_work());
        let rests: Option<Vec<_>> = working
            .map(|line| Some((line.rests_until(now, WORTH_SAYING)?, line)))
            .collect();
        let is_busy = self.routes.iter().any(|route| route.busy() > 0);
        let first = rests.filter(|_| !is_busy).unwrap_or_default();
        let first = first.into_iter().min_by_key(|(until, _)| *until);
        let said = first.and_then(|(until, line)| {
            let name = &line.campaign.name;
            let until = line.shown(until);
            let window = line.campaign.window.as_ref();
            window.map(|_| format!("`{name}` waits for its window until {until}"))
        });
        if said.is_some() || self.rests {
            self.rests = said.is_some();
            self.progress.set_note(said);
        }
    }

    /// Puts back into the queue what may be sent again though it was perhaps accepted.
    async fn resend_unknown(&mut self) -> Result<(), SendError> {
        let most = self.settings.retry.max_attempts;
        for index in 0..self.routes.len() {
            // Who can be asked is asked first.
            if self.can_ask(index) {
                continue;
            }
            let honoured = self.routes[index].provider.capabilities().honoured_for();
            let by_operator = self.settings.sender.on_unknown == OnUnknown::Resend;
            if honoured.is_none() && !by_operator {
                continue;
            }
            let active = self.routes[index]
                .lines
                .iter()
                .filter(|line| line.is_active());
            for campaign in active.map(|line| line.campaign.id) {
                let store = self.database.reach().await?;
                let now = self.clock.now();
                match honoured {
                    Some(span) if !by_operator => {
                        let since = now.minus(span);
                        store.requeue_honoured(campaign, since, most, now).await?
                    }
                    _ => store.requeue_unknown(campaign, most, now).await?,
                };
            }
        }
        Ok(())
    }

    /// Releases rows under this worker's id that it knows nothing of: their claim was committed, but
    /// the answer got lost, so nothing was started. And parks those of workers that are on no list: one
    /// that slept through its own funeral may have claimed them, and not lived to release them.
    async fn release_orphans(&mut self) -> Result<(), SendError> {
        if Instant::now() < self.orphans_at {
            return Ok(());
        }
        self.orphans_at = Instant::now() + self.lease.length();
        let store = self.database.reach().await?;
        if self.lease.holds() {
            store.park_nobodys(self.clock.now()).await?;
        }
        let caps = self.settings.sender.max_per_recipient.0.iter();
        if let Some(longest) = caps.map(|cap| cap.window).max() {
            // Twice as long: another worker's clock may be behind.
            let before = self.clock.now().minus(longest * 2);
            for _ in 0..FORGETTING {
                if store.forget_starts(before).await? == 0 {
                    break;
                }
            }
        }
        self.resend_unknown().await?;
        let lines = self.routes.iter().flat_map(|route| &route.lines);
        let campaigns: Vec<i64> = lines.map(|line| line.campaign.id).collect();
        let unstored = self.commits.unstored.iter().map(|one| one.settlement.id);
        let known: Vec<i64> = self.claims.iter().copied().chain(unstored).collect();
        let before = self.clock.now().minus(self.lease.length());
        let worker_id = self.lease.worker_id();
        let store = self.database.reach().await?;
        let released = store
            .release_orphans(worker_id, known, before, &campaigns, self.clock.now())
            .await?;
        if released > 0 {
            tracing::warn!(
                released,
                "messages were claimed without this worker's knowing"
            );
        }
        Ok(())
    }

    /// Whether all is done, and how it ended. Of a database that is away nobody knows yet.
    pub(super) async fn is_finished_unless_away(&mut self) -> Result<Option<Ended>, SendError> {
        match self.is_finished().await {
            Err(SendError::Store(error)) if error.passes() => {
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
        let is_settled = self.commits.unstored.is_empty() && self.ended.is_empty();
        if self.routes.iter().any(|route| route.busy() > 0) || !is_settled {
            return Ok(None);
        }
        if self.is_stopping() {
            return Ok(Some(Ended::Stopped));
        }
        if self.left() == 0 {
            return Ok(Some(Ended::Limit));
        }
        let mut lines = self.routes.iter().flat_map(|route| &route.lines);
        let now = self.clock.now();
        if lines.any(|line| line.expiring.is_some_and(|(by, _)| now < by)) {
            return Ok(None);
        }
        let (now, patience) = (self.clock.now(), self.settings.retry.max_wait);
        let rests = |route: &ProviderState, line: &CampaignState| {
            if self.settings.wait {
                return line.hours.closed_until(now).is_some();
            }
            line.rests_until(now, patience).is_some()
                || route.stopped_beyond(now, patience).is_some()
        };
        let is_working = |route: &ProviderState| {
            let mut lines = route.lines.iter();
            lines.any(|line| line.is_active() && !line.empty && !rests(route, line))
        };
        if self.routes.iter().any(is_working) {
            self.awaits_no_answers();
            return Ok(None);
        }
        if self.settings.follow {
            return Ok(None);
        }
        self.confirm_finished().await
    }

    /// Everything seemed empty: asks the database once more, for each campaign.
    async fn confirm_finished(&mut self) -> Result<Option<Ended>, SendError> {
        let mut halted = Vec::new();
        let mut resting = Vec::new();
        let mut wait = false;
        let patience = self.settings.retry.max_wait;
        // A worker may have died between parking another's messages and putting them back.
        self.resend_unknown().await?;
        let now = self.clock.now();
        let lines = self.routes.iter_mut().flat_map(|route| {
            let stopped = route.stopped_beyond(now, patience);
            route
                .lines
                .iter_mut()
                .map(move |line| (line, stopped.clone()))
        });
        for (line, stopped) in lines {
            let store = self.database.reach().await?;
            let unfinished = store.unfinished(line.campaign.id).await?;
            if !unfinished.ready && !unfinished.sending {
                continue;
            }
            if line.is_active() {
                line.empty = false;
                let rests_until = line.rests_until(now, patience);
                let until = rests_until.map(|until| line.shown(until)).or(stopped);
                if let Some(until) = until
                    && !self.settings.wait
                    && !unfinished.sending
                {
                    resting.push((line.campaign.name.clone(), until));
                    continue;
                }
                line.quiet_until = if unfinished.ready {
                    now
                } else {
                    now.plus(UPKEEP / 4)
                };
                line.keep_hours(now, self.reach);
                wait = true;
            } else if line.campaign.state != CampaignStatus::Cancelled {
                let state = line.campaign.state.as_str();
                let reason = line.campaign.state_reason.clone();
                halted.push((
                    line.campaign.name.clone(),
                    reason.unwrap_or_else(|| state.to_owned()),
                ));
            }
        }
        if wait {
            self.awaits_no_answers();
            return Ok(None);
        }
        for campaign in &self.unserved {
            if campaign.state == CampaignStatus::Cancelled {
                continue;
            }
            let store = self.database.reach().await?;
            let unfinished = store.unfinished(campaign.id).await?;
            if unfinished.ready || unfinished.sending {
                let reason = match campaign.state {
                    CampaignStatus::Active => None,
                    state => Some(state.as_str().to_owned()),
                };
                let reason = reason.map(|state| campaign.state_reason.clone().unwrap_or(state));
                let reason = reason.unwrap_or_else(|| self.why_unserved(campaign));
                halted.push((campaign.name.clone(), reason));
            }
        }
        if self.awaits_answers().await? {
            return Ok(None);
        }
        Ok(Some(if !halted.is_empty() {
            Ended::Halted(halted)
        } else if !resting.is_empty() {
            Ended::Waiting(resting)
        } else {
            Ended::Done
        }))
    }
}
