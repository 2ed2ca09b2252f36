//! Delivers the events of all hooks while a process runs, and finds out which campaigns are done or stuck.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use smsq_message::event::{CampaignFacts, EventKind, body};
use smsq_message::sms::Timestamp;
use smsq_store::{
    Campaign, CampaignStatus, Delivered, HookRow, NewEvent, Outgoing, QueuedCampaign, Store,
    StoreError, WatchedCampaign,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::delivery::{Before, DeliveryAttempt, ReceiverAnswer, decide, pause};
use super::stuck::Seen;
use super::{Hook, stuck};

/// How often due events are looked for, and campaigns.
const POLL: Duration = Duration::from_secs(1);
/// How long the lease of a hook lasts without being renewed.
const LEASE: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// The most events that are read at once.
const PAGE: i64 = 500;
/// What became of this number of events is stored together, or of fewer after this time.
const RESULTS: usize = 100;
const STORE_EVERY: Duration = Duration::from_millis(250);
/// How often old events are deleted, and how long they are kept after they were delivered or given up, or if they never
/// were.
const TIDY_EVERY: Duration = Duration::from_secs(60);
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
const KEPT_WAITING: Duration = Duration::from_secs(30 * 24 * 3_600);
/// While more events of a hook wait, `message.delivered` is only counted.
const MAX_WAITING: i64 = 1_000_000;
/// How often a lease is tried again that another process has.
const TRY_EVERY: Duration = Duration::from_millis(250);

/// Delivers events.
pub struct HookRunner {
    store: Store,
    hooks: Vec<Hook>,
    stuck_after: Duration,
    /// A random number, which names this process in the leases.
    holder: i64,
}

/// What is left after [`HookRunner::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Events that wait.
    pub left: u64,
}

/// The failures of a hook in a row.
#[derive(Clone, Copy, Debug)]
struct FailureStreak {
    count: u32,
    /// Nothing is delivered before.
    until: Instant,
}

impl Default for FailureStreak {
    fn default() -> Self {
        Self { count: 0, until: Instant::now() }
    }
}

/// When a session must end.
#[derive(Clone)]
struct End {
    stop: watch::Receiver<bool>,
    at: Option<Instant>,
}

impl End {
    fn is_here(&self) -> bool {
        *self.stop.borrow() || self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Sleeps until an instant, or until the end.
    async fn sleep(&mut self, until: Instant) {
        let until = self.at.map_or(until, |at| at.min(until));
        tokio::select! {
            () = sleep_until(until) => {}
            // If the sender is gone, nothing can stop it.
            Ok(_) = self.stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// The clock of the database, read now and then.
#[derive(Clone, Copy)]
struct OutboxClock {
    read: Timestamp,
    at: Instant,
}

impl OutboxClock {
    async fn read(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { read: store.now().await?, at: Instant::now() })
    }

    fn now(self) -> Timestamp {
        self.read.plus(self.at.elapsed())
    }
}

impl HookRunner {
    pub fn new(store: Store, hooks: Vec<Hook>, stuck_after: Duration) -> Self {
        Self { store, hooks, stuck_after, holder: rand::random() }
    }

    /// Delivers events until it is stopped, and ends the requests that run then.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        let end = End { stop, at: None };
        if self.hooks.is_empty() {
            return;
        }
        let hooks = join_all(self.hooks.iter().map(|hook| self.run_hook(hook, end.clone())));
        tokio::join!(hooks, self.run_looks(end.clone()), self.run_tidying(end));
    }

    async fn run_hook(&self, hook: &Hook, mut end: End) {
        let mut failing = FailureStreak::default();
        while !end.is_here() {
            let done = self.session(hook, &mut failing, &mut end.clone()).await;
            if let Err(error) = done {
                tracing::warn!(hook = hook.name(), %error, "events could not be delivered");
            }
            end.sleep(Instant::now() + POLL).await;
        }
    }

    async fn run_looks(&self, mut end: End) {
        while !end.is_here() {
            if let Err(error) = self.look().await {
                tracing::warn!(%error, "campaigns could not be read for their events");
            }
            end.sleep(Instant::now() + POLL).await;
        }
    }

    async fn run_tidying(&self, mut end: End) {
        while !end.is_here() {
            if let Err(error) = self.tidy().await {
                tracing::warn!(%error, "old events could not be deleted");
            }
            end.sleep(Instant::now() + TIDY_EVERY).await;
        }
    }

    /// Delivers what is due for at most this time.
    pub async fn drain(&self, limit: Duration) -> Result<Drained, StoreError> {
        let (_stop, stopped) = watch::channel(false);
        let end = End { stop: stopped, at: Some(Instant::now() + limit) };
        self.look().await?;
        for done in join_all(self.hooks.iter().map(|hook| self.drain_hook(hook, end.clone()))).await
        {
            done?;
        }
        let mut left = 0;
        for hook in &self.hooks {
            left += self.store.hooks().waiting(hook.name()).await?;
        }
        Ok(Drained { left })
    }

    async fn drain_hook(&self, hook: &Hook, mut end: End) -> Result<(), StoreError> {
        let mut failing = FailureStreak::default();
        loop {
            self.session(hook, &mut failing, &mut end.clone()).await?;
            let due = self.store.hooks().next_due(hook.name()).await?;
            let now = self.store.now().await?;
            let row = self.store.hooks().row(hook.name()).await?;
            let is_off = row.is_some_and(|row| row.off_at.is_some());
            if end.is_here() || is_off || failing.count > 0 || due.is_none_or(|due| due > now) {
                return Ok(());
            }
            // Another process has the lease.
            end.sleep(Instant::now() + TRY_EVERY).await;
        }
    }

    /// Delivers what is due, if no other process does, until nothing is due.
    async fn session(
        &self,
        hook: &Hook,
        failing: &mut FailureStreak,
        end: &mut End,
    ) -> Result<(), StoreError> {
        let (hooks, name) = (self.store.hooks(), hook.name());
        let due = hooks.next_due(name).await?;
        let mut clock = OutboxClock::read(&self.store).await?;
        let is_due = due.is_some_and(|due| due <= clock.now());
        if !is_due || failing.until > Instant::now() {
            return Ok(());
        }
        let is_off = |row: Option<&HookRow>| row.is_some_and(|row| row.off_at.is_some());
        if is_off(hooks.row(name).await?.as_ref()) {
            return Ok(());
        }
        let until = clock.now().plus(LEASE);
        let Some(row) = hooks.lease(name, self.holder, clock.now(), until).await? else {
            return Ok(());
        };
        let mut session = DeliverySession {
            failing_since: row.failing_since,
            off: None,
            results: Vec::new(),
            stored: Instant::now(),
        };
        let mut renewed = Instant::now();
        let mut in_flight = FuturesUnordered::new();
        let mut known: HashSet<i64> = HashSet::new();
        let mut queue: VecDeque<Outgoing> = VecDeque::new();
        let mut is_exhausted = is_off(Some(&row));
        loop {
            if renewed.elapsed() >= RENEW_EVERY {
                clock = OutboxClock::read(&self.store).await?;
                let until = clock.now().plus(LEASE);
                let lease = hooks.lease(name, self.holder, clock.now(), until).await?;
                // Switched on or off by a command, or taken by another process.
                is_exhausted |= lease.is_none() || is_off(lease.as_ref());
                renewed = Instant::now();
            }
            let ends = end.is_here() || session.off.is_some();
            let width = if failing.count > 0 { 1 } else { hook.width() };
            let may_start = !ends && failing.until <= Instant::now() && in_flight.len() < width;
            if may_start && queue.is_empty() && !is_exhausted {
                // Those that were delivered are not read again.
                self.store_results(hook, &mut session, clock.now()).await?;
                let found = hooks.due(name, clock.now(), PAGE).await?;
                queue.extend(found.into_iter().filter(|event| !known.contains(&event.id)));
                is_exhausted = queue.is_empty();
            }
            while may_start
                && in_flight.len() < width
                && let Some(event) = queue.pop_front()
            {
                known.insert(event.id);
                in_flight.push(deliver(hook, event, clock.now()));
            }
            if in_flight.is_empty() {
                self.store_results(hook, &mut session, clock.now()).await?;
                if ends || (queue.is_empty() && is_exhausted) {
                    break;
                }
                let next = failing.until.min(renewed + RENEW_EVERY);
                end.sleep(next).await;
                continue;
            }
            tokio::select! {
                Some((event, answer)) = in_flight.next() => {
                    known.remove(&event.id);
                    session.add(hook, &event, answer, failing, clock.now());
                }
                () = sleep_until(renewed + RENEW_EVERY) => {}
            }
            if session.results.len() >= RESULTS || session.stored.elapsed() >= STORE_EVERY {
                self.store_results(hook, &mut session, clock.now()).await?;
            }
        }
        hooks.release(name, self.holder).await
    }

    async fn store_results(
        &self,
        hook: &Hook,
        session: &mut DeliverySession,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if !session.results.is_empty() {
            let results = std::mem::take(&mut session.results);
            self.store.hooks().finish(hook.name(), &results, session.off.as_deref(), now).await?;
        }
        session.stored = Instant::now();
        Ok(())
    }

    /// Deletes old events, also those of hooks that are not configured any more, and finds out whether too many wait.
    async fn tidy(&self) -> Result<(), StoreError> {
        let (hooks, now) = (self.store.hooks(), self.store.now().await?);
        for name in hooks.names().await? {
            hooks.purge(&name, now.minus(KEPT), now.minus(KEPT_WAITING)).await?;
        }
        for subscription in self.store.subscriptions().all() {
            let name = &subscription.hook;
            subscription.set_full(hooks.has_more_waiting(name, MAX_WAITING).await?);
        }
        Ok(())
    }

    /// Stores the events of campaigns that are done or stuck.
    async fn look(&self) -> Result<(), StoreError> {
        let hooks = self.store.hooks();
        if !hooks.watches_campaigns() {
            return Ok(());
        }
        let watched = hooks.watched().await?;
        let queued = self.store.queued_campaigns().await?;
        let now = self.store.now().await?;
        hooks.watch(&queued, now).await?;
        if watched.is_empty() {
            return Ok(());
        }
        let accepted = self.accepted(now).await?;
        for known in &watched {
            let queued = queued.iter().find(|queued| queued.campaign.id == known.campaign_id);
            match queued.filter(|queued| queued.is_unfinished()) {
                Some(queued) => {
                    let accepted_at = accepted.get(&known.campaign_id).copied();
                    self.check_stuck(known, queued, accepted_at, now).await?;
                }
                None => self.check_done(known, now).await?,
            }
        }
        Ok(())
    }

    /// When a message was accepted last, by campaign, within the time after which one is stuck.
    async fn accepted(&self, now: Timestamp) -> Result<BTreeMap<i64, Timestamp>, StoreError> {
        let since = now.minus(self.stuck_after);
        let rows = self.store.activity(since, now).await?;
        let mut accepted = BTreeMap::new();
        // In the order of time.
        for row in rows.iter().filter(|row| row.counts.sent > 0) {
            accepted.insert(row.campaign_id, row.at);
        }
        Ok(accepted)
    }

    async fn check_done(&self, known: &WatchedCampaign, now: Timestamp) -> Result<(), StoreError> {
        let id = known.campaign_id;
        let campaigns = self.store.campaigns().await?;
        let campaign = campaigns.into_iter().find(|campaign| campaign.id == id);
        let events = match &campaign {
            Some(campaign) => {
                let state = match campaign.state {
                    CampaignStatus::Cancelled => campaign.state.as_str(),
                    _ => "done",
                };
                let kind = EventKind::CampaignDone;
                self.campaign_events(kind, campaign, state, None, now).await?
            }
            // It was removed.
            None => Vec::new(),
        };
        self.store.hooks().end_watch(id, &events, now).await?;
        Ok(())
    }

    async fn check_stuck(
        &self,
        known: &WatchedCampaign,
        queued: &QueuedCampaign,
        accepted_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let campaign = &queued.campaign;
        let is_paused = campaign.state == CampaignStatus::Paused;
        let found = stuck::look(
            known,
            queued,
            Seen {
                accepted_at,
                is_paused_by_worker: is_paused
                    && self.store.is_changed_by_worker(&campaign.name).await?,
                stuck_after: self.stuck_after,
                now,
            },
        );
        if found == *known {
            return Ok(());
        }
        let mut events = Vec::new();
        if found.stuck_at == Some(now) {
            let state = queued.campaign.state.as_str();
            let since = accepted_at.max(found.due_since);
            let kind = EventKind::CampaignStuck;
            events = self.campaign_events(kind, &queued.campaign, state, since, now).await?;
        }
        self.store.hooks().change_watch(known, &found, &events, now).await?;
        Ok(())
    }

    /// The events about a campaign, for all hooks that want them.
    async fn campaign_events(
        &self,
        kind: EventKind,
        campaign: &Campaign,
        state: &str,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Vec<NewEvent>, StoreError> {
        if !self.store.subscriptions().want_any(&[kind]) {
            return Ok(Vec::new());
        }
        let totals = self.store.report().totals(Some(campaign.id)).await?;
        let facts = CampaignFacts {
            campaign: &campaign.name,
            state,
            reason: campaign.state_reason.as_deref(),
            queued: totals.queued + totals.sending,
            sent: totals.sent,
            failed: totals.failed,
            unknown: totals.unknown,
            cancelled: totals.cancelled,
            since: since.map(|since| since.to_string()),
        };
        let event = |hook: &str| NewEvent {
            hook: hook.to_owned(),
            kind,
            body: body(kind.as_str(), now, &facts),
            phone: None,
        };
        let wanted = self.store.subscriptions().of(kind);
        Ok(wanted.map(|subscription| event(&subscription.hook)).collect())
    }
}

async fn deliver(hook: &Hook, event: Outgoing, at: Timestamp) -> (Outgoing, ReceiverAnswer) {
    let attempt = DeliveryAttempt { id: &event.event_id, body: &event.body, at };
    let answer = hook.deliver(&attempt).await;
    (event, answer)
}

/// What one session has learned and not stored.
struct DeliverySession {
    failing_since: Option<Timestamp>,
    /// Why the hook is switched off.
    off: Option<String>,
    results: Vec<(i64, Delivered)>,
    stored: Instant,
}

impl DeliverySession {
    fn add(
        &mut self,
        hook: &Hook,
        event: &Outgoing,
        answer: ReceiverAnswer,
        failing: &mut FailureStreak,
        now: Timestamp,
    ) {
        let before = Before {
            attempts: event.attempts(),
            first_wait: hook.first_wait,
            failing_since: self.failing_since,
        };
        let verdict = decide(answer, before, now, rand::random());
        if verdict.result == Delivered::Done {
            self.failing_since = None;
            *failing = FailureStreak::default();
        } else {
            self.failing_since.get_or_insert(now);
            // Requests that ran together fail together.
            if failing.until <= Instant::now() {
                failing.count += 1;
                failing.until = Instant::now() + pause(failing.count, hook.first_wait);
            }
        }
        if let Some(reason) = verdict.off
            && self.off.is_none()
        {
            tracing::warn!(hook = hook.name(), %reason, "the hook is off: `smsq hooks test` switches it on again");
            self.off = Some(reason);
        }
        self.results.push((event.id, verdict.result));
    }
}
