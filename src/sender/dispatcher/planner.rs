//! Plans what a commit claims, and starts the requests that were claimed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smsq_limit::HORIZON;
use smsq_message::defect::Defect;
use smsq_message::instant::DbMicros;
#[cfg(test)]
use smsq_message::instant::SteadyMicros;
use smsq_message::sms::LaneId;
use smsq_store::{CommitBatch, CommitResult, Orphans};
use tokio::time::Instant;

use super::Dispatcher;
use crate::campaign_state::CampaignState;
use crate::context::WorkerContext;
use crate::provider_state::{ClaimRoom, PlanTime, ProviderState};
use crate::request::{self, InFlight, take_message};

/// Upper bound of [`Dispatcher::horizon`]. With the longest expected commit it stays below the longest look-ahead that
/// limits allow for.
const LONGEST_HORIZON: Duration = Duration::from_secs(4);

impl Dispatcher {
    /// Decides what to settle and what to claim.
    pub(super) fn plan(&mut self) -> CommitBatch {
        self.follow_clock();
        let planned_at = self.context.clock.steady();
        let start_by = planned_at.plus(self.context.lease.claim_span());
        #[cfg(test)]
        let start_by =
            if self.context.database.faults.starts_overdue { SteadyMicros::MAX } else { start_by };
        self.planned = PlanTime { planned_at, start_by, jumps: self.timing.jumps };
        self.release_waiting();
        let mut batch = self.batch_of_results();
        self.plan_returns(&mut batch);
        self.plan_orphans(&mut batch);
        if self.may_claim() {
            if std::mem::take(&mut self.timing.fill_limits) {
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
        let served =
            self.providers.iter().flat_map(ProviderState::campaigns).map(CampaignState::id);
        let unserved = self.unserved.iter().map(|campaign| campaign.id);
        let (known, claimed_before) = if Defect::Orphans.is_on() {
            (HashSet::new(), batch.now)
        } else {
            (self.context.claimed.all(), batch.now.minus(length))
        };
        batch.orphans =
            Some(Orphans { known, claimed_before, campaigns: served.chain(unserved).collect() });
    }

    fn may_claim(&self) -> bool {
        let WorkerContext { lease, .. } = &*self.context;
        !self.context.is_stopping() && lease.holds() && self.committer.claim_at().is_none()
    }

    fn follow_clock(&mut self) {
        let working = self.providers.iter().filter(|state| state.has_work());
        let has_slack =
            working.filter_map(ProviderState::has_slack).reduce(|one, other| one && other);
        if let Some(set_by) = self.timing.follow(&self.context.clock, has_slack) {
            for state in &mut self.providers {
                state.shift(set_by);
            }
        }
    }

    /// Asks for as many requests as may start, and as many messages for them as there are permits.
    fn plan_claims(&mut self, batch: &mut CommitBatch) {
        let now = self.context.clock.instant();
        let share = self.provider_share();
        // With slack, permits from before the end of the commit are good, and no request waits for its own: it starts
        // at least the clock's error after it.
        let (expected, early) = (self.committer.expected(), self.timing.slack() / 2);
        let first_permit = expected.saturating_sub(early).min(self.context.lease.claim_span() / 2);
        let ready_before = early.saturating_sub(expected);
        // Together with the horizon it leaves permits that are good for these claims.
        let from = now.plus(first_permit).minus(self.context.clock.error().min(ready_before));
        let horizon = self.horizon();
        let (mut free, mut left, ahead) = (self.free(), self.left(), self.ahead());
        for state in &mut self.providers {
            for campaign in state.campaigns_mut() {
                campaign.check_window(batch.now, self.timing.tolerance);
            }
            let messages = saturated(left);
            let prefetch = state.prefetch(share, ahead);
            let requests = (share + prefetch)
                .saturating_sub(state.claimed())
                .min(free + prefetch)
                .min(messages);
            let room =
                ClaimRoom { requests, prefetch: requests.min(prefetch), messages, from, horizon };
            if let Some(claim) = state.plan_claim(&room, batch.now, now) {
                free = free.saturating_sub(claim.max_requests);
                left = left.saturating_sub(u64::from(claim.max_messages));
                batch.claims.push(claim);
            }
        }
        self.set_batch_keys(batch);
    }

    /// After a clock jump: marks all windows of all limits as full, because their contents are unknown.
    fn plan_full_limits(&self, batch: &mut CommitBatch) {
        batch.fill_limits = true;
        let now = self.context.clock.instant();
        let claims = self.providers.iter().map(|state| state.empty_claim(now));
        batch.claims.extend(claims);
    }

    fn plan_returns(&mut self, batch: &mut CommitBatch) {
        let now = self.context.clock.instant();
        let returns = self.providers.iter_mut();
        batch.claims.extend(returns.filter_map(|state| state.plan_return(now)));
    }

    /// Lets the commit put messages together, where a campaign may send several in a request.
    fn set_batch_keys(&self, batch: &mut CommitBatch) {
        let batched: HashSet<i64> = batch
            .claims
            .iter()
            .flat_map(|claim| &claim.lanes)
            .filter(|lane| lane.max_batch > 1)
            .map(|lane| lane.id.campaign_id)
            .collect();
        let mut senders = HashMap::new();
        for state in &self.providers {
            let campaigns =
                state.campaigns().iter().filter(|campaign| batched.contains(&campaign.id()));
            for (lane, from) in campaigns.flat_map(CampaignState::lanes) {
                senders.insert(lane, (Arc::clone(state.provider()), from.cloned()));
            }
        }
        if senders.is_empty() {
            return;
        }
        batch.batch_keys = Arc::new(move |sms, phone| {
            let (campaign_id, lane) = (sms.campaign_id, sms.lane);
            let (provider, from) = senders.get(&LaneId { campaign_id, lane })?;
            let message = take_message(&mut sms.clone(), phone.clone(), from.clone());
            provider.batch_key(&message).map(|key| key.0)
        });
    }

    /// Takes over what a commit claimed.
    pub(super) fn take_claimed(&mut self, batch: &CommitBatch, result: CommitResult) {
        if !result.claims.is_empty() {
            let mut claims = result.claims.iter();
            let has_messages = claims.any(|claimed| !claimed.rows.is_empty());
            let took = self.context.clock.steady().since(self.planned.planned_at);
            let within = self.context.lease.claim_span();
            self.committer.record_claims(has_messages, took, within);
        }
        for (claim, claimed) in batch.claims.iter().zip(result.claims) {
            let failed = claimed.refused;
            self.context.progress.failed.fetch_add(failed, Ordering::Relaxed);
            self.done += failed;
            let Some(index) = self.provider_index(&claim.provider) else {
                continue;
            };
            // Early enough that the next permit is still ahead when its claim is committed.
            let early = self.committer.expected() + self.horizon() / 2;
            let state = &mut self.providers[index];
            // What fills the limits was not granted.
            if !batch.fill_limits {
                let claimed = saturated(claimed.rows.len() as u64);
                state.return_unused(claim.max_messages.saturating_sub(claimed));
            }
            let clock = &self.context.clock;
            let divided = claimed.divided.clone();
            let requests = state.take_claimed(claimed, batch, self.planned, early, clock);
            // Another provider may send them.
            for id in divided {
                let states = self.providers.iter_mut();
                for campaign in states.filter_map(|state| state.campaign(id.campaign_id)) {
                    campaign.expect_message(id.lane, batch.now);
                }
            }
            for request in requests {
                self.context.claimed.add(request.claims());
                self.providers[index].keep_claimed(request);
            }
        }
    }

    /// Starts as many claimed requests as may be in flight.
    pub(super) fn start_claimed(&mut self) {
        if self.context.is_stopping() {
            return;
        }
        let context = Arc::clone(&self.context);
        for index in 0..self.providers.len() {
            while self.room_of(index) > 0 {
                let Some(request) = self.providers[index].next_to_start(&context.clock) else {
                    break;
                };
                self.start(request);
            }
        }
    }

    /// How long after its plan a request that is claimed early starts at most: half of the slack after its commit.
    fn ahead(&self) -> Duration {
        self.committer.expected() + self.timing.slack() / 2
    }

    /// How many more requests of a provider may be in flight.
    fn room_of(&self, index: usize) -> u32 {
        let busy = self.providers[index].busy();
        self.free().min(self.provider_share().saturating_sub(busy))
    }

    fn start(&mut self, request: InFlight) {
        self.providers[request.index].begin_request();
        let reserved = request.transport.reserve();
        let in_flight = &self.context.progress.in_flight;
        in_flight.fetch_add(u64::from(request.count()), Ordering::Relaxed);
        let (context, reports) = (Arc::clone(&self.context), self.reports.clone());
        self.tasks.spawn(request::send(request, reserved, context, reports));
    }

    /// When there may be something to claim next.
    pub(super) fn wakes_at(&self) -> Option<DbMicros> {
        if !self.may_claim() {
            return None;
        }
        let (now, share, left) = (self.context.clock.now(), self.provider_share(), self.left());
        let ahead = self.ahead();
        let wakes_at = |state: &ProviderState| {
            let has_room = left > 0 && state.claimed() < share + state.prefetch(share, ahead);
            state.wakes_at(now, has_room)
        };
        self.providers.iter().filter_map(wakes_at).min()
    }

    pub(super) fn provider_index(&self, provider: &str) -> Option<usize> {
        let mut providers = self.providers.iter();
        providers.position(|state| state.provider().name() == provider)
    }

    /// The span of permits to request: it covers the next two commits.
    fn horizon(&self) -> Duration {
        HORIZON
            .max(self.committer.expected() * 4)
            .min(LONGEST_HORIZON)
            .min(self.context.lease.claim_span() / 2)
    }

    /// How many more requests may be in flight.
    pub(super) fn free(&self) -> u32 {
        let busy: u32 = self.providers.iter().map(ProviderState::busy).sum();
        self.context.settings.sender.concurrency.saturating_sub(busy)
    }

    /// How many messages may still be claimed. One that goes back into the queue does not count
    /// towards the limit of the run.
    pub(super) fn left(&self) -> u64 {
        let Some(limit) = self.context.settings.limit else {
            return u64::MAX;
        };
        let waiting: u64 =
            self.providers.iter().map(|state| u64::from(state.waiting_messages())).sum();
        let in_flight = self.context.progress.in_flight.load(Ordering::Relaxed);
        limit.saturating_sub(self.done + in_flight + waiting)
    }

    /// One provider's share of the concurrency: a slow one must not take all of it from the others.
    fn provider_share(&self) -> u32 {
        let in_use = self.providers.iter().filter(|state| state.has_work());
        let count = saturated(in_use.count() as u64).max(1);
        (self.context.settings.sender.concurrency / count).max(1)
    }
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
