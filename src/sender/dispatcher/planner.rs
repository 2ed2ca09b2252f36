//! Plans what a commit claims, and starts the requests that it claimed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Dispatcher;
use crate::limit::HORIZON;
use crate::phone::Phone;
use crate::provider::Message;
use crate::queue::{ClaimedSms, ProviderClaim};
use crate::sender::breaker::Allowed;
use crate::sender::clock::micros;
use crate::sender::maintenance::TICK;
use crate::sender::provider_state::ProviderState;
use crate::sender::request::{self, InFlight};
use crate::sms::{Sms, Timestamp};
use crate::store::{CommitBatch, CommitResult, ProviderClaimed};

/// The most messages that one commit claims for a provider.
const MAX_CLAIM: u32 = 1_000;
/// How often a provider without an open connection looks for one, in microseconds.
const CONNECTING_US: i64 = 5_000;
/// The longest that permits are asked for beyond a commit. With the longest expected commit it is less
/// than what the limits allow.
const LONGEST_HORIZON: Duration = Duration::from_secs(4);

impl Dispatcher {
    /// Asks for as many requests as may start, and as many messages for them as there are permits.
    pub(super) fn plan_claims(&mut self, batch: &mut CommitBatch) {
        let now_us = self.context.clock.now_us();
        let share = self.provider_share();
        let mut free = self.free();
        let mut left = self.left();
        let horizon = self.horizon();
        for state in &mut self.providers {
            for campaign in &mut state.campaigns {
                campaign.check_window(batch.now, self.tolerance);
            }
            let room = free.min(share.saturating_sub(state.busy()));
            let room = room.min(saturated(left));
            let has_held = state.holds_due(now_us);
            let usable = state.could_use(room.max(u32::from(has_held)), batch.now, now_us);
            if usable == 0 {
                continue;
            }
            // A request that gets a permit must be able to start then.
            let ready = state.connected(usable, horizon, batch.now);
            if ready == 0 {
                state.next_us = now_us + CONNECTING_US;
                continue;
            }
            // Held requests come first; a probe is a single one.
            let (held, fresh) = match state.breaker.allowed(batch.now) {
                Allowed::One if has_held => (1, 0),
                _ if has_held => (state.held.len(), usable.min(room)),
                _ => (0, usable.min(room)),
            };
            let held = held.min(ready as usize);
            let fresh = fresh.min(ready - saturated(held as u64));
            state.limiter.look_ahead(horizon * 2);
            let size = state.max_batch(batch.now);
            let most = MAX_CLAIM.max(fresh).min(fresh.saturating_mul(size));
            let most = most.min(saturated(left));
            // A full request is waited for.
            let messages = state.limiter.grant(most, size.min(most), now_us);
            if messages == 0 && held == 0 {
                state.next_us = state.limiter.next_us(size, now_us).unwrap_or(now_us);
                continue;
            }
            let requests = fresh.min(messages);
            free -= requests;
            left = left.saturating_sub(u64::from(messages));
            let from_us = now_us + micros(self.committer.expected());
            let held = state.held.iter().take(held);
            batch.claims.push(ProviderClaim {
                until_us: from_us + micros(horizon),
                held: held.map(InFlight::reservation).collect(),
                max_messages: messages,
                max_requests: requests,
                campaigns: state.take_turn(requests, batch.now),
                ..state.empty_claim(from_us)
            });
        }
        self.set_batch_keys(batch);
    }

    /// Tells all limits that their windows are full: the clock was set, so what they hold is not known.
    pub(super) fn plan_full_limits(&mut self, batch: &mut CommitBatch) {
        batch.fill_limits = true;
        let now_us = self.context.clock.now_us();
        let mut free = self.free();
        let mut left = self.left();
        for state in &self.providers {
            // Only limits that are claimed from are written. Campaigns without a limit may have messages
            // to give.
            let campaigns = state.one_of_each();
            let messages = saturated(campaigns.len() as u64).min(free);
            let messages = messages.min(saturated(left));
            free -= messages;
            left = left.saturating_sub(u64::from(messages));
            batch.claims.push(ProviderClaim {
                max_messages: messages,
                max_requests: messages,
                campaigns,
                ..state.empty_claim(now_us)
            });
        }
    }

    /// Gives back the permits of requests that were not started: a restart must not cost a slow limit
    /// what it allows for an hour.
    pub(super) fn plan_returns(&mut self, batch: &mut CommitBatch) {
        let now_us = self.context.clock.now_us();
        for state in &mut self.providers {
            let released = std::mem::take(&mut state.released);
            if released.iter().any(|one| one.unused_us.is_some()) {
                batch.claims.push(ProviderClaim {
                    released,
                    ..state.empty_claim(now_us)
                });
            }
        }
    }

    /// Lets the commit put messages together, where a campaign may send several in a request.
    fn set_batch_keys(&self, batch: &mut CommitBatch) {
        let claims = batch.claims.iter().flat_map(|claim| &claim.campaigns);
        let batched = claims.filter(|claim| claim.max_batch > 1);
        let batched: HashSet<i64> = batched.map(|claim| claim.campaign_id).collect();
        let mut senders = HashMap::new();
        for state in &self.providers {
            for campaign in state.campaigns.iter().map(|state| &state.campaign) {
                if batched.contains(&campaign.id) {
                    let sender = (Arc::clone(&state.provider), campaign.sender.clone());
                    senders.insert(campaign.id, sender);
                }
            }
        }
        if senders.is_empty() {
            return;
        }
        batch.batch_keys = Arc::new(move |sms, phone| {
            let (provider, from) = senders.get(&sms.campaign_id)?;
            let message = take_message(&mut sms.clone(), phone.clone(), from.clone());
            provider.batch_key(&message).map(|key| key.0)
        });
    }

    /// Starts what a commit claimed.
    pub(super) fn start_claimed(&mut self, batch: &CommitBatch, result: CommitResult) {
        for (claim, claimed) in batch.claims.iter().zip(result.claims) {
            let failed = claimed.refused;
            self.context
                .progress
                .failed
                .fetch_add(failed, Ordering::Relaxed);
            self.done += failed;
            let Some(index) = self.provider_index(&claim.provider) else {
                continue;
            };
            // What fills the limits was not granted.
            if !batch.fill_limits {
                let count = saturated(claimed.rows.len() as u64);
                let unused = claim.max_messages.saturating_sub(count);
                self.providers[index].limiter.return_unused(unused);
            }
            for request in self.requests_of(index, batch, claimed) {
                self.start(request);
            }
        }
    }

    fn requests_of(
        &mut self,
        index: usize,
        batch: &CommitBatch,
        claimed: ProviderClaimed,
    ) -> Vec<InFlight> {
        let (now, now_us) = (self.context.clock.now(), self.context.clock.now_us());
        // Early enough that the next permit is still ahead when its claim is committed, and soon enough
        // to notice that a limit was changed.
        let early_us = micros(self.committer.expected()) + micros(self.horizon()) / 2;
        let ask_at =
            |next_us: i64| (next_us - early_us).clamp(now_us + 1_000, now_us + micros(TICK));
        let mut requests = self.providers[index].take_permitted(claimed.held);
        let mut rows = claimed.rows.into_iter().peekable();
        while let Some(first) = rows.next() {
            let number = first.request;
            let mut together = vec![first];
            while let Some(next) = rows.next_if(|row| row.request == number) {
                together.push(next);
            }
            requests.extend(self.request_of(index, batch, together));
        }
        for request in &mut requests {
            request.tolerance = batch.tolerance;
            request.jumps = self.jumps;
        }
        let state = &mut self.providers[index];
        let messages = requests.iter().map(InFlight::count).sum();
        state.limiter.note_started(messages, now_us);
        state.note_sizes(&requests);
        for (campaign_id, shortfall) in claimed.shortfalls {
            if let Some(campaign) = state.campaign(campaign_id) {
                campaign.note_shortfall(shortfall, now);
            }
        }
        let by_campaigns = claimed.limited.iter().map(|(_, next_us)| *next_us);
        if let Some(next_us) = claimed.next_us.into_iter().chain(by_campaigns).min() {
            state.next_held_us = ask_at(next_us);
        }
        if let Some(next_us) = claimed.next_us {
            state.next_us = ask_at(next_us);
        }
        for (campaign_id, next_us) in claimed.limited {
            if let Some(campaign) = state.campaign(campaign_id) {
                let until_ms = (ask_at(next_us) + 999) / 1_000;
                campaign.wait_until(Timestamp::from_millis(until_ms));
            }
        }
        requests
    }

    /// The request of these messages.
    fn request_of(
        &mut self,
        index: usize,
        batch: &CommitBatch,
        claimed: Vec<ClaimedSms>,
    ) -> Option<InFlight> {
        let first = claimed.first()?;
        let (campaign_id, permit) = (first.sms.campaign_id, first.permit);
        let state = &mut self.providers[index];
        let (mut from, mut window) = (None, None);
        if let Some(campaign) = state.campaign(campaign_id) {
            campaign.is_empty = false;
            from.clone_from(&campaign.campaign.sender);
            window.clone_from(&campaign.campaign.window);
        }
        let (messages, rows) = claimed
            .into_iter()
            .map(|mut one| (take_message(&mut one.sms, one.phone, from.clone()), one.sms))
            .unzip();
        Some(InFlight {
            rows,
            messages,
            campaign_id,
            permit,
            window,
            tolerance: batch.tolerance,
            claimed_at: batch.now,
            jumps: self.jumps,
            worker_id: batch.worker_id,
            index,
            provider: Arc::clone(&state.provider),
            transport: state.transport.clone(),
        })
    }

    fn start(&mut self, request: InFlight) {
        let state = &mut self.providers[request.index];
        state.in_flight += 1;
        state.breaker.probe();
        if let Some(campaign) = state.campaign(request.campaign_id) {
            campaign.in_flight += 1;
        }
        let promise = request.transport.promise();
        self.context
            .claimed
            .add(request.rows.iter().map(|sms| sms.id));
        let in_flight = &self.context.progress.in_flight;
        in_flight.fetch_add(u64::from(request.count()), Ordering::Relaxed);
        let (context, reports) = (Arc::clone(&self.context), self.reports.clone());
        self.tasks
            .spawn(request::send(request, promise, context, reports));
    }

    /// When there may be something to claim next.
    pub(super) fn wakes_at_us(&self) -> Option<i64> {
        if !self.may_claim() || self.free() == 0 || self.left() == 0 {
            return None;
        }
        let (now, share) = (self.context.clock.now(), self.provider_share());
        let open = self.providers.iter().filter(|state| state.busy() < share);
        open.filter_map(|state| state.wakes_at_us(now)).min()
    }

    pub(super) fn provider_index(&self, provider: &str) -> Option<usize> {
        let mut providers = self.providers.iter();
        providers.position(|state| state.provider.name() == provider)
    }

    /// How far past the commit permits are asked for: until more can be had, even when a commit that
    /// only settles comes between.
    fn horizon(&self) -> Duration {
        HORIZON
            .max(self.committer.expected() * 4)
            .min(LONGEST_HORIZON)
    }

    fn free(&self) -> u32 {
        let busy: u32 = self.providers.iter().map(ProviderState::busy).sum();
        self.context
            .settings
            .sender
            .concurrency
            .saturating_sub(busy)
    }

    /// How many messages may still be claimed. One that goes back into the queue does not count
    /// towards the limit of the run.
    pub(super) fn left(&self) -> u64 {
        let Some(limit) = self.context.settings.limit else {
            return u64::MAX;
        };
        let held = self.providers.iter().flat_map(|state| &state.held);
        let held: u64 = held.map(|request| u64::from(request.count())).sum();
        let in_flight = self.context.progress.in_flight.load(Ordering::Relaxed);
        limit.saturating_sub(self.done + in_flight + held)
    }

    /// One provider's share of the concurrency: a slow one must not take all of it from the others.
    fn provider_share(&self) -> u32 {
        let in_use = self.providers.iter().filter(|state| state.has_work());
        let count = saturated(in_use.count() as u64).max(1);
        (self.context.settings.sender.concurrency / count).max(1)
    }
}

/// Builds the provider's message out of a row. It takes content and reference, so that they are kept
/// once.
fn take_message(sms: &mut Sms, phone: Phone, from: Option<String>) -> Message {
    Message {
        phone,
        content: std::mem::take(&mut sms.content),
        reference: std::mem::take(&mut sms.reference),
        from,
        params: serde_json::from_str(&sms.params).unwrap_or_default(),
    }
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
