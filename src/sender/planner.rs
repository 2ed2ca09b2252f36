//! What the clerk asks the database for, and to whom it hands what it got.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::batch::message;
use super::breaker::Allowed;
use super::campaign_state::CampaignState;
use super::clock::micros;
use super::dispatcher::{Dispatcher, UPKEEP};
use super::provider_state::ProviderState;
use super::request::{self, InFlight};
use super::window;
use crate::limit::{Cost, Permit, Reservation};
use crate::phone::{Phone, Region};
use crate::queue::{Admission, ClaimedSms, ProviderClaim};
use crate::sms::{Class, Failure, Sms, Timestamp};
use crate::store::{CommitBatch, CommitResult};
use crate::text::{content, segments};
use crate::window::{Recipient, Window};

/// A round claims at most so many rows for one provider, so that it stays short.
const ROUND_MOST: u32 = 1_000;
/// How often a route without an open connection looks for one, in microseconds.
const CONNECTING_US: i64 = 5_000;

impl Dispatcher {
    /// Asks for as many calls as there are idle slots, and as many messages for them as there are permits.
    pub(super) fn ask(&mut self, round: &mut CommitBatch) {
        let now_us = self.clock.now_us();
        let cap = self.cap();
        let mut free = self.free();
        let mut left = self.left();
        let horizon = self.horizon();
        let reach = self.reach;
        for route in &mut self.routes {
            for line in &mut route.lines {
                line.keep_hours(round.now, reach);
            }
            let room = free.min(cap.saturating_sub(route.busy()));
            let room = room.min(u32::try_from(left).unwrap_or(u32::MAX));
            let holds = route.holds_due(now_us);
            let usable = route.could_use(room.max(u32::from(holds)), round.now, now_us);
            if usable == 0 {
                continue;
            }
            // What is claimed for a moment must be able to start then.
            let ready = route.connected(usable, horizon, round.now);
            if ready == 0 {
                route.asleep_until_us = now_us + CONNECTING_US;
                continue;
            }
            // A probe is one message, and one that is held comes first.
            let (held_count, fresh) = match route.breaker.allowed(round.now) {
                Allowed::One if holds => (1, 0),
                _ if holds => (route.held.len(), usable.min(room)),
                _ => (0, usable.min(room)),
            };
            let held_count = held_count.min(ready as usize);
            let fresh = fresh.min(ready - u32::try_from(held_count).unwrap_or(ready));
            route.gate.look_ahead(horizon * 2);
            let size = route.call_size(round.now);
            let most = ROUND_MOST.max(fresh).min(fresh.saturating_mul(size));
            let most = most.min(u32::try_from(left).unwrap_or(u32::MAX));
            // A call is waited for until all of it may start.
            let want = route.gate.grant(most, size.min(most), now_us);
            if want == 0 && held_count == 0 {
                route.asleep_until_us = route.gate.next_us(size, now_us).unwrap_or(now_us);
                continue;
            }
            let calls = fresh.min(want);
            free -= calls;
            left = left.saturating_sub(u64::from(want));
            let from_us = now_us + micros(self.commit);
            round.claims.push(ProviderClaim {
                until_us: from_us + micros(horizon),
                held: route.held.iter().take(held_count).map(held).collect(),
                max_messages: want,
                max_requests: calls,
                campaigns: route.asks(calls, round.now),
                ..route.empty_claim(from_us)
            });
        }
        self.let_fill(round);
    }

    /// The clock has jumped, and nobody knows what the windows hold: tells all limits that they are full.
    pub(super) fn refill(&mut self, round: &mut CommitBatch) {
        round.fill_limits = true;
        let now_us = self.clock.now_us();
        let mut free = self.free();
        let mut left = self.left();
        for route in &mut self.routes {
            // Whoever is not asked is not told; but only who has no limit has anything to give.
            let asks = route.asks_all();
            let want = u32::try_from(asks.len()).unwrap_or(u32::MAX).min(free);
            let want = want.min(u32::try_from(left).unwrap_or(u32::MAX));
            free -= want;
            left = left.saturating_sub(u64::from(want));
            round.claims.push(ProviderClaim {
                max_messages: want,
                max_requests: want,
                campaigns: asks,
                ..route.empty_claim(now_us)
            });
        }
    }

    /// Gives back the moments of messages that were not started: a restart must not cost a slow limit
    /// what it allows for an hour.
    pub(super) fn return_moments(&mut self, round: &mut CommitBatch) {
        let now_us = self.clock.now_us();
        for route in &mut self.routes {
            let returned = std::mem::take(&mut route.released);
            if returned.iter().all(|held| held.unused_us.is_none()) {
                continue;
            }
            round.claims.push(ProviderClaim {
                released: returned,
                ..route.empty_claim(now_us)
            });
        }
    }

    /// Hands out what was claimed.
    pub(super) fn dispatch(&mut self, round: &CommitBatch, done: CommitResult) {
        for refused in done.claims.iter().map(|claimed| claimed.refused) {
            self.progress.failed.fetch_add(refused, Ordering::Relaxed);
            self.finished += refused;
        }
        let now = self.clock.now();
        let now_us = self.clock.now_us();
        let early_us = micros(self.commit) + micros(self.horizon()) / 2;
        for (asked, claimed) in round.claims.iter().zip(done.claims) {
            let Some(index) = self.route_of(&asked.provider) else {
                continue;
            };
            let count = u32::try_from(claimed.rows.len()).unwrap_or(u32::MAX);
            let route = &mut self.routes[index];
            // What a refill asks for was never granted.
            if !round.fill_limits {
                route
                    .gate
                    .return_unused(asked.max_messages.saturating_sub(count));
            }
            let mut jobs = route.regain(claimed.held);
            let mut rows = claimed.rows.into_iter().peekable();
            while let Some(first) = rows.next() {
                let call = first.request;
                let mut together = vec![first];
                while let Some(next) = rows.next_if(|row| row.request == call) {
                    together.push(next);
                }
                jobs.extend(self.job(index, round, together));
            }
            let mut messages = 0;
            for job in &mut jobs {
                job.reach = round.tolerance;
                job.jumps = self.jumps;
                messages += job.count();
            }
            let route = &mut self.routes[index];
            route.gate.note_started(messages, now_us);
            route.note_sizes(&jobs);
            for (campaign_id, shortfalls) in claimed.shortfalls {
                if let Some(line) = route.line(campaign_id) {
                    line.shortfalls(shortfalls, now);
                }
            }
            // Early enough that the next moment is still ahead when its row is committed, and soon enough
            // to see that a limit was changed.
            let latest_us = now_us + micros(UPKEEP);
            let asleep_until_us =
                |next_us: i64| (next_us - early_us).clamp(now_us + 1_000, latest_us);
            let by_campaigns = claimed.limited.iter().map(|(_, next_us)| *next_us);
            let first_us = claimed.next_us.into_iter().chain(by_campaigns).min();
            if let Some(next_us) = first_us {
                route.held_until_us = asleep_until_us(next_us);
            }
            if let Some(next_us) = claimed.next_us {
                route.asleep_until_us = asleep_until_us(next_us);
            }
            for (campaign_id, next_us) in claimed.limited {
                if let Some(line) = route.line(campaign_id) {
                    let until_us = asleep_until_us(next_us);
                    line.limited(Timestamp::from_millis((until_us + 999) / 1_000));
                }
            }
            for job in jobs {
                self.start(job);
            }
        }
    }

    fn start(&mut self, job: InFlight) {
        let route = &mut self.routes[job.route];
        route.in_flight += 1;
        route.breaker.probe();
        if let Some(line) = route.line(job.campaign_id) {
            line.in_flight += 1;
        }
        let promise = job.transport.promise();
        self.claims.extend(job.rows.iter().map(|sms| sms.id));
        let in_flight = &self.progress.in_flight;
        in_flight.fetch_add(u64::from(job.count()), Ordering::Relaxed);
        let around = Arc::clone(&self.around);
        self.tasks.spawn(request::send(job, promise, around));
    }

    /// The rows of one call.
    fn job(
        &mut self,
        index: usize,
        round: &CommitBatch,
        rows: Vec<ClaimedSms>,
    ) -> Option<InFlight> {
        let first = rows.first()?;
        let (campaign_id, moment) = (first.sms.campaign_id, first.permit);
        let route = &mut self.routes[index];
        let (from, window) = match route.line(campaign_id) {
            Some(line) => {
                line.empty = false;
                (line.campaign.sender.clone(), line.campaign.window.clone())
            }
            None => (None, None),
        };
        let messages = rows
            .iter()
            .map(|row| message(&row.sms, &row.phone, from.clone()))
            .collect();
        Some(InFlight {
            messages,
            rows: rows.into_iter().map(|row| row.sms).collect(),
            campaign_id,
            permit: moment,
            window,
            reach: self.reach,
            claimed_at: round.now,
            jumps: self.jumps,
            worker_id: round.worker_id,
            route: index,
            provider: Arc::clone(&route.provider),
            transport: route.transport.clone(),
        })
    }

    pub(super) fn wakes_at_us(&self) -> Option<i64> {
        let may_claim = self.lease.holds() && self.commits.claim_at().is_none();
        if self.is_stopping() || self.free() == 0 || self.left() == 0 || !may_claim {
            return None;
        }
        let now = self.clock.now();
        let open = self.routes.iter().filter(|route| route.busy() < self.cap());
        open.filter_map(|route| route.wakes_at_us(now)).min()
    }

    pub(super) fn route_of(&self, provider: &str) -> Option<usize> {
        self.routes
            .iter()
            .position(|route| route.provider.name() == provider)
    }

    fn free(&self) -> u32 {
        let busy: u32 = self.routes.iter().map(ProviderState::busy).sum();
        self.settings.sender.concurrency.saturating_sub(busy)
    }

    /// Messages that may still be claimed: one that goes back to the queue is not one of those of the limit.
    pub(super) fn left(&self) -> u64 {
        let Some(limit) = self.settings.limit else {
            return u64::MAX;
        };
        let held = self.routes.iter().flat_map(|route| &route.held);
        let held: u64 = held.map(|job| u64::from(job.count())).sum();
        let in_flight = self.progress.in_flight.load(Ordering::Relaxed);
        limit.saturating_sub(self.finished + in_flight + held)
    }

    /// One provider's part of the slots: a slow one must not take them all from the others.
    fn cap(&self) -> u32 {
        let in_use = self
            .routes
            .iter()
            .filter(|route| route.lines.iter().any(CampaignState::has_work));
        let count = u32::try_from(in_use.count()).unwrap_or(1).max(1);
        (self.settings.sender.concurrency / count).max(1)
    }
}

pub(super) fn held(job: &InFlight) -> Reservation {
    let loads = job
        .rows
        .iter()
        .map(|sms| Cost::of_message(sms.segments.unwrap_or(1)));
    Reservation {
        campaign_id: job.campaign_id,
        cost: loads.fold(Cost::default(), Cost::plus),
        unused_us: match job.permit {
            Permit {
                start_at_us: Some(moment_us),
            } => Some(moment_us),
            Permit::AT_ONCE => None,
        },
    }
}

/// By what a worker judges claimed messages.
pub(super) struct Rules {
    pub(super) now: Timestamp,
    pub(super) reach: Duration,
    pub(super) region: Option<Region>,
    /// Of the campaigns that have one.
    pub(super) windows: Arc<HashMap<i64, Window>>,
    /// Campaigns whose recipients read the provider's template and not the text of the message.
    pub(super) templates: Arc<HashSet<i64>>,
}

impl Rules {
    /// Whether a claimed message can be sent at all, and now.
    pub(super) fn admit(&self, sms: &Sms) -> Admission {
        let expires_by = |at: Timestamp| sms.expires_at.is_some_and(|expires_at| expires_at <= at);
        let expired = |why| Admission::Fail(Failure::new(Class::Expired, why));
        if expires_by(self.now) {
            return expired("its time ran out before it was sent");
        }
        let phone = match Phone::parse(&sms.phone, self.region) {
            Ok(phone) => phone,
            Err(error) => {
                return Admission::Fail(Failure::new(Class::Recipient, error.to_string()));
            }
        };
        if !self.templates.contains(&sms.campaign_id)
            && let Err(error) = content::check_characters(&sms.content)
        {
            return Admission::Fail(Failure::new(Class::Content, error.to_string()));
        }
        match self.waits_until(sms, &phone) {
            Some(until) if expires_by(until) => {
                expired("its time runs out before its window opens again")
            }
            Some(until) => Admission::Wait { phone, until },
            None => Admission::Send {
                phone,
                segments: sms
                    .segments
                    .unwrap_or_else(|| segments::count(&sms.content).count),
            },
        }
    }

    fn waits_until(&self, sms: &Sms, phone: &Phone) -> Option<Timestamp> {
        let window = self.windows.get(&sms.campaign_id)?;
        let recipient = Recipient {
            phone: phone.as_str(),
            params: &sms.params,
        };
        window::waits_until(|at| window.for_one(recipient, at), self.now, self.reach)
    }
}
