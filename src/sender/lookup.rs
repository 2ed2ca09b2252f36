//! Status lookups: asks a provider what became of unknown messages, one after the other, and settles
//! them by its answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use smsq_lifecycle::{Settlement, Transition};
use smsq_message::phone::Phone;
use smsq_message::sms::{Acceptance, Class, Failure, Outcome, Sms, Timestamp};
use smsq_provider::{
    AttemptSpan, Lookup, LookupResponses, LookupResult, Message, Provider, RequestContext,
};
use smsq_store::{Due, FailedAttempt, QueuedCampaign, ResendReason, StoreError, Unknown};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::WorkerContext;
use super::provider_state::ProviderState;
use super::request::Transport;

/// A series of lookups takes about this long, and has at most this many.
const SERIES: Duration = Duration::from_secs(5);
const MAX_SERIES: usize = 16;
/// The longest time from a claim to its request. Of a message that was in doubt before, only the claim's
/// time is known.
const MAX_HOLD: Duration = Duration::from_secs(60);
/// A lookup without an answer is not repeated sooner.
const RETRY: Duration = Duration::from_secs(1);
/// How much longer than its requests a lookup may take.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// How many unknown messages are remembered with the time at which they became unknown.
const REMEMBERED: usize = 100_000;

/// The messages that this worker made unknown, and that still are.
struct OwnUnknown {
    max: usize,
    /// By message: since when, on the host's clock.
    since: HashMap<i64, Instant>,
    /// How many more there are, and since when.
    beyond: u64,
    full_since: Timestamp,
}

impl OwnUnknown {
    fn new(max: usize) -> Self {
        Self { max, since: HashMap::new(), beyond: 0, full_since: Timestamp::default() }
    }

    fn add(&mut self, id: i64, now: Timestamp) {
        if self.since.len() < self.max {
            self.since.insert(id, Instant::now());
            return;
        }
        if self.beyond == 0 {
            self.full_since = now;
        }
        self.beyond += 1;
    }

    /// Returns whether the message was one of these.
    fn remove(&mut self, id: i64, unknown_at: Option<Timestamp>) -> bool {
        if self.since.remove(&id).is_some() {
            return true;
        }
        let is_beyond = self.beyond > 0 && unknown_at.is_none_or(|at| at >= self.full_since);
        self.beyond -= u64::from(is_beyond);
        is_beyond
    }
}

/// The message to look up.
struct DueLookup {
    unknown: Unknown,
    /// `None`: it has nothing to ask for, such as a phone that cannot be parsed.
    message: Option<Message>,
    campaign_id: i64,
    attempt: AttemptSpan,
    /// From then on the provider knows everything about it.
    known_at: Timestamp,
    /// For how long this worker has known it to be unknown.
    waited: Option<Duration>,
}

/// What a lookup does to its message.
enum NextLookup {
    /// It is settled, queued, or about to be.
    Settled,
    /// It is looked up again at this instant.
    At(Timestamp),
    /// It is looked up again, or this was the last time in this run.
    Scheduled,
}

/// What a series of lookups reports to the dispatcher.
pub(super) enum LookupEvent {
    /// For the next commit.
    Settle(Settlement),
    /// The provider, by its index, lists an attempt as not accepted: its campaign may have to halt.
    NotAccepted { index: usize, campaign_id: i64, outcome: Outcome },
    /// A message needs no further lookup in this run.
    Concluded,
    /// The series of this provider is over; the next one may begin then.
    Over(usize, Instant),
}

/// An active campaign with unknown messages, whoever sends it now.
#[derive(Clone)]
struct LookupCampaign {
    id: i64,
    /// The sender of messages that no lane has.
    sender: Option<String>,
    /// Those of its lanes.
    senders: BTreeMap<i32, String>,
}

impl LookupCampaign {
    /// `None` where nothing of the campaign may be sent or looked up.
    fn of(queued: &QueuedCampaign) -> Option<Self> {
        let campaign = &queued.campaign;
        let is_wanted = queued.has_unknown && campaign.may_send();
        is_wanted.then(|| Self {
            id: campaign.id,
            sender: campaign.sender.clone(),
            senders: queued.lanes.iter().map(|lane| (lane.number, lane.sender.clone())).collect(),
        })
    }

    /// The sender of a message from this lane; `None`: its provider's own.
    fn sender_of(&self, lane: i32) -> Option<String> {
        let of_lane = self.senders.get(&lane).filter(|name| !name.is_empty());
        of_lane.or(self.sender.as_ref()).cloned()
    }
}

/// All status lookups of a worker.
pub(super) struct StatusLookups {
    context: Arc<WorkerContext>,
    /// Of the last reading of the database.
    campaigns: Vec<LookupCampaign>,
    own: Arc<Mutex<OwnUnknown>>,
    /// Providers with a series.
    busy: Vec<usize>,
    /// When the last series ended.
    ended_at: Instant,
    /// When each provider's next series may begin.
    free_at: HashMap<usize, Instant>,
    sender: mpsc::UnboundedSender<LookupEvent>,
    events: mpsc::UnboundedReceiver<LookupEvent>,
    /// Since when nothing else is left to do, and no lookup was concluded.
    waits_since: Option<Timestamp>,
    /// Whose answers the end of the run waits for, and for how long.
    awaited: Option<(String, Timestamp)>,
}

impl StatusLookups {
    pub(super) fn new(context: Arc<WorkerContext>) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            context,
            campaigns: Vec::new(),
            own: Arc::new(Mutex::new(OwnUnknown::new(REMEMBERED))),
            busy: Vec::new(),
            ended_at: Instant::now(),
            free_at: HashMap::new(),
            sender,
            events,
            waits_since: None,
            awaited: None,
        }
    }

    /// Takes over which campaigns have unknown messages.
    pub(super) fn take_campaigns(&mut self, queued: &[QueuedCampaign]) {
        self.campaigns = queued.iter().filter_map(LookupCampaign::of).collect();
    }

    pub(super) async fn next_event(&mut self) -> Option<LookupEvent> {
        self.events.recv().await
    }

    pub(super) fn try_next_event(&mut self) -> Option<LookupEvent> {
        self.events.try_recv().ok()
    }

    /// Remembers a message that became unknown, if its provider can be asked.
    pub(super) fn add(
        &mut self,
        provider: &Provider,
        sms: &Sms,
        transition: &Transition,
        now: Timestamp,
    ) {
        let can_lookup = provider.capabilities().lookup.is_some();
        if matches!(transition, Transition::Unknown(_)) && can_lookup {
            locked(&self.own).add(sms.id, now);
        }
    }

    /// Starts a series of lookups at each provider that is idle.
    pub(super) fn start(&mut self, providers: &[ProviderState], tasks: &mut JoinSet<()>) {
        for (index, state) in providers.iter().enumerate() {
            let Some(lookup) = state.provider().capabilities().lookup.clone() else {
                continue;
            };
            let now = Instant::now();
            let free_at = self.free_at.get(&index).copied().unwrap_or(now);
            let is_busy = self.busy.contains(&index) || free_at > now + SERIES;
            if is_busy || self.context.is_stopping() {
                continue;
            }
            let series = Series {
                context: Arc::clone(&self.context),
                own: Arc::clone(&self.own),
                events: self.sender.clone(),
                index,
                provider: Arc::clone(state.provider()),
                transport: state.transport().clone(),
                campaigns: self.campaigns.clone(),
                next_at: free_at.max(now),
                spacing: spacing(&lookup),
                lookup,
            };
            self.busy.push(index);
            tasks.spawn(series.run());
        }
    }

    /// The series of a provider is over.
    pub(super) fn end(&mut self, index: usize, free_at: Instant) {
        self.free_at.insert(index, free_at);
        self.busy.retain(|busy| *busy != index);
        self.ended_at = Instant::now();
    }

    /// Whether no series has run since then: none has queued a message.
    pub(super) fn is_idle_since(&self, at: Instant) -> bool {
        self.busy.is_empty() && at >= self.ended_at
    }

    /// A lookup was concluded: many lookups take longer than one.
    pub(super) fn restart_wait(&mut self) {
        if let Some(since) = &mut self.waits_since {
            *since = self.context.clock.now();
        }
    }

    /// Whether there is still something to look up before the run ends.
    pub(super) async fn is_awaited(
        &mut self,
        providers: &[ProviderState],
    ) -> Result<bool, StoreError> {
        let now = self.context.clock.now();
        let since = *self.waits_since.get_or_insert(now);
        for state in providers {
            let Some(lookup) = &state.provider().capabilities().lookup else {
                continue;
            };
            let until = since.plus(longest_wait(lookup, state.provider()));
            if now >= until {
                continue;
            }
            for campaign in &self.campaigns {
                let filter = Due {
                    campaign_id: campaign.id,
                    provider: state.provider().name(),
                    by: until,
                    claimed_by: until.minus(lookup.after),
                };
                let store = self.context.database.reach().await?;
                if store.is_unknown_due(filter).await? {
                    self.awaited = Some((state.provider().name().to_owned(), until));
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// There is something else to do.
    pub(super) fn stop_waiting(&mut self) {
        self.waits_since = None;
        self.awaited = None;
    }

    /// Whose answers the end of the run waits for.
    pub(super) fn note(&self, now: Timestamp) -> Option<String> {
        let (name, until) = self.awaited.as_ref()?;
        let left = until.since(now).as_secs();
        Some(format!(
            "asking `{name}` for the status of unknown messages, for up to {left} s (Ctrl-C leaves them unknown)"
        ))
    }
}

fn locked(own: &Mutex<OwnUnknown>) -> MutexGuard<'_, OwnUnknown> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long after an attempt the provider knows everything about it.
fn settling_time(lookup: &Lookup) -> Duration {
    lookup.absent_after.unwrap_or(lookup.after * 4)
}

/// The longest that a run waits for answers when all else is done.
fn longest_wait(lookup: &Lookup, provider: &Provider) -> Duration {
    settling_time(lookup) + provider.timeout() + MAX_HOLD + RETRY
}

/// When to ask again: at growing intervals, once when the provider must know, and then not in this run.
fn next_at(
    lookup: &Lookup,
    provider: &Provider,
    claimed_at: Timestamp,
    known_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let age = now.since(claimed_at);
    if now < known_at {
        claimed_at.plus(age.max(lookup.after) * 2).min(known_at)
    } else {
        now.plus(age.max(longest_wait(lookup, provider)) * 2)
    }
}

fn claimed_at(unknown: &Unknown) -> Timestamp {
    Timestamp::from_millis(unknown.claimed_at.unwrap_or_default())
}

fn unknown_at(unknown: &Unknown) -> Option<Timestamp> {
    unknown.unknown_at.map(Timestamp::from_millis)
}

/// Lookups at one provider, one after the other.
struct Series {
    context: Arc<WorkerContext>,
    own: Arc<Mutex<OwnUnknown>>,
    events: mpsc::UnboundedSender<LookupEvent>,
    /// The provider's.
    index: usize,
    provider: Arc<Provider>,
    lookup: Lookup,
    transport: Transport,
    campaigns: Vec<LookupCampaign>,
    /// When the next request may be made, and the time between two.
    next_at: Instant,
    spacing: Duration,
}

impl Series {
    async fn run(mut self) {
        if let Err(error) = self.look_up_all().await {
            // The messages stay unknown, and are looked up again.
            tracing::warn!(%error, "a status lookup could not be stored");
        }
        self.report(LookupEvent::Over(self.index, self.next_at));
    }

    async fn look_up_all(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        for due in self.due_lookups().await? {
            // A provider that answers slowly does not make it longer.
            if began.elapsed() > SERIES {
                break;
            }
            tokio::time::sleep_until(self.next_at).await;
            self.look_up(due).await?;
        }
        Ok(())
    }

    /// Asks for one message. Its next lookup is scheduled when it has an answer: if this worker dies before, or loses
    /// the database, another one asks as soon as the lease is over.
    async fn look_up(&mut self, mut due: DueLookup) -> Result<(), StoreError> {
        let asked_at = self.context.clock.now();
        let requests = self.requests(&due, asked_at);
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        let lease = (self.provider.timeout() + self.spacing) * count + LEASE_MARGIN;
        let leased_until = asked_at.plus(lease);
        if !self.postpone(&due.unknown, leased_until).await? {
            return Ok(());
        }
        due.unknown.due_at = leased_until.as_millis();
        let next = if requests.is_empty() {
            NextLookup::Scheduled
        } else {
            let responses = self.send(requests).await;
            self.settle_answered(&due, asked_at, responses).await?
        };
        let is_last = asked_at >= due.known_at;
        let until = match next {
            NextLookup::Settled => None,
            NextLookup::At(until) => Some(until),
            NextLookup::Scheduled => {
                let claimed_at = due.attempt.started_after;
                Some(next_at(&self.lookup, &self.provider, claimed_at, due.known_at, asked_at))
            }
        };
        if let Some(until) = until {
            self.postpone(&due.unknown, until).await?;
        }
        if matches!(next, NextLookup::Settled) || is_last && matches!(next, NextLookup::Scheduled) {
            self.report(LookupEvent::Concluded);
        }
        Ok(())
    }

    fn report(&self, event: LookupEvent) {
        // Without a dispatcher no one needs it.
        drop(self.events.send(event));
    }

    /// The messages to look up now.
    async fn due_lookups(&self) -> Result<Vec<DueLookup>, StoreError> {
        let (provider, lookup) = (&self.provider, &self.lookup);
        let now = self.context.clock.now();
        let fitting = SERIES.as_millis() / self.spacing.as_millis().max(1);
        let max = usize::try_from(fitting).map_or(MAX_SERIES, |max| max.clamp(1, MAX_SERIES));
        let mut due_lookups = Vec::new();
        for campaign in &self.campaigns {
            let filter = Due {
                campaign_id: campaign.id,
                provider: provider.name(),
                by: now,
                claimed_by: now.minus(lookup.after),
            };
            let limit = i64::try_from(max - due_lookups.len()).unwrap_or_default();
            let store = self.context.database.reach().await?;
            for unknown in store.unknown_due(filter, limit).await? {
                let doubt_since = unknown.doubt_since.map(Timestamp::from_millis);
                let attempt = AttemptSpan {
                    started_after: doubt_since.unwrap_or_else(|| claimed_at(&unknown)),
                    started_before: unknown_at(&unknown),
                    is_only: unknown.is_only_attempt(),
                };
                let latest_end = claimed_at(&unknown).plus(provider.timeout() + MAX_HOLD);
                let ended_at = unknown_at(&unknown).unwrap_or(latest_end);
                let since = locked(&self.own).since.get(&unknown.id).copied();
                due_lookups.push(DueLookup {
                    message: self.message(&unknown, campaign.sender_of(unknown.lane)),
                    campaign_id: campaign.id,
                    attempt,
                    known_at: ended_at.plus(settling_time(lookup)),
                    waited: since.map(|since| since.elapsed()),
                    unknown,
                });
            }
            if due_lookups.len() >= max {
                break;
            }
        }
        Ok(due_lookups)
    }

    async fn postpone(&self, unknown: &Unknown, until: Timestamp) -> Result<bool, StoreError> {
        let store = self.context.database.reach().await?;
        store.postpone_lookup(unknown, until).await
    }

    fn message(&self, unknown: &Unknown, from: Option<String>) -> Option<Message> {
        let region = self.context.settings.default_region;
        Some(Message {
            phone: Phone::parse(&unknown.phone, region).ok()?,
            content: unknown.content.clone(),
            reference: unknown.reference.clone()?,
            from,
            params: serde_json::from_str(&unknown.params).unwrap_or_default(),
        })
    }

    /// The requests that ask for the message; none if it cannot be asked for.
    fn requests(&self, due: &DueLookup, asked_at: Timestamp) -> Vec<Request<Bytes>> {
        // The answer is judged by this instant: the provider may not know what happened since.
        let context = RequestContext { now: asked_at, nonce: rand::random() };
        let message = due.message.as_ref();
        let requests =
            message.and_then(|message| self.provider.lookup(message, due.attempt, &context));
        requests.and_then(Result::ok).unwrap_or_default()
    }

    /// The response to each request; `None` if one has none.
    async fn send(&mut self, requests: Vec<Request<Bytes>>) -> Option<Vec<Response<Bytes>>> {
        let mut responses = Vec::with_capacity(requests.len());
        for request in requests {
            tokio::time::sleep_until(self.next_at).await;
            self.next_at = self.next_at.max(Instant::now()) + self.spacing;
            responses.push(self.transport.lookup(request).await.ok()?);
        }
        Some(responses)
    }

    async fn settle_answered(
        &self,
        due: &DueLookup,
        asked_at: Timestamp,
        responses: Option<Vec<Response<Bytes>>>,
    ) -> Result<NextLookup, StoreError> {
        let now = self.context.clock.now();
        let (Some(responses), Some(message)) = (responses, &due.message) else {
            return Ok(NextLookup::At(now.plus(self.lookup.after.max(RETRY))));
        };
        // In this order: a message that is settled meanwhile is among the others.
        let unsettled = self.unsettled(due, message, &responses).await?;
        let others = self.others(message, &responses).await?;
        let is_other_sending = unsettled.iter().any(|(is_sending, _)| *is_sending);
        let texts: Vec<String> = unsettled.into_iter().map(|(_, text)| text).collect();
        let refused = self.refused(due, message).await?;
        let answers = LookupResponses {
            responses: &responses,
            asked_at,
            others: &others,
            unsettled: &texts,
            refused: &refused.keys().cloned().collect::<Vec<_>>(),
        };
        let found = self.provider.parse_lookup(message, due.attempt, &answers);
        let result = confirm_absence(found, due, &self.lookup);
        let is_last = asked_at >= due.known_at;
        let is_absent = result == LookupResult::Absent;
        match result {
            LookupResult::Found(acceptance) => {
                self.settle_as_sent(&due.unknown, due.unknown.claim, acceptance);
                return Ok(NextLookup::Settled);
            }
            LookupResult::FoundRefused { reference, acceptance } => {
                let claim = refused.get(&reference).copied();
                let claim = claim.unwrap_or(due.unknown.claim);
                warn_contradiction(self.provider.name(), due.unknown.id, &reference);
                self.settle_as_sent(&due.unknown, claim, acceptance);
                return Ok(NextLookup::Settled);
            }
            // Of several attempts, one that was not accepted says nothing about the others.
            LookupResult::NotAccepted(outcome) if due.unknown.is_only_attempt() => {
                return self.settle_not_accepted(due, outcome, now).await;
            }
            // It may be clear once the other message is settled.
            LookupResult::Unclear(_) if is_other_sending => {
                return Ok(NextLookup::At(now.plus(RETRY)));
            }
            LookupResult::TooSoon(left) if is_last => {
                return Ok(NextLookup::At(now.plus(left + RETRY)));
            }
            _ => {}
        }
        let doubt_since = due.unknown.doubt_since.map(Timestamp::from_millis);
        let may_resend = now < self.context.resend_rule(&self.provider).end(doubt_since);
        if is_absent {
            let why = "the provider does not have it, and no attempts are left";
            let failure = Failure::new(Class::Unavailable, why);
            let failed = Transition::FoundAbsent(failure);
            return self.requeue_or_fail(due, ResendReason::Absent, failed, now).await;
        }
        if is_last
            && may_resend
            && self.requeue(&due.unknown, ResendReason::MayBeSentTwice, now).await?
        {
            return Ok(NextLookup::Settled);
        }
        Ok(NextLookup::Scheduled)
    }

    /// Puts a message back into the queue that was certainly not accepted, or settles it as failed if no attempts are
    /// left.
    async fn requeue_or_fail(
        &self,
        due: &DueLookup,
        reason: ResendReason,
        or_failed: Transition,
        due_at: Timestamp,
    ) -> Result<NextLookup, StoreError> {
        let unknown = &due.unknown;
        let max_attempts = self.context.settings.retry.max_attempts;
        if max_attempts > 0 && unknown.attempts >= max_attempts {
            self.settle_as_failed(unknown, or_failed);
            return Ok(NextLookup::Settled);
        }
        if self.requeue(unknown, reason, due_at).await? {
            return Ok(NextLookup::Settled);
        }
        // Its campaign is not active: it is asked for again when it is.
        Ok(NextLookup::At(self.context.clock.now().plus(RETRY)))
    }

    /// The acceptance of a claim of the message, which is the last one or an earlier one.
    fn settle_as_sent(&self, unknown: &Unknown, claim: i64, acceptance: Acceptance) {
        self.forget(unknown);
        let progress = &self.context.progress;
        progress.sent.fetch_add(1, Ordering::Relaxed);
        let accepted = Unknown { claim, ..unknown.clone() };
        self.settle(&accepted, Transition::Sent(acceptance));
    }

    /// The references of the attempts of the message that this provider answered as not accepted, and their claims.
    async fn refused(
        &self,
        due: &DueLookup,
        message: &Message,
    ) -> Result<BTreeMap<String, i64>, StoreError> {
        let store = self.context.database.reach().await?;
        let attempts = store.failed_attempts(&[due.unknown.id]).await?;
        let is_other = |attempt: &FailedAttempt| {
            attempt.provider == self.provider.name()
                && attempt.reference.as_ref() != Some(&message.reference)
        };
        let refused = attempts.into_iter().filter(is_other);
        Ok(refused.filter_map(|attempt| Some((attempt.reference?, attempt.claim))).collect())
    }

    fn settle_as_failed(&self, unknown: &Unknown, failed: Transition) {
        self.forget(unknown);
        let progress = &self.context.progress;
        progress.failed.fetch_add(1, Ordering::Relaxed);
        self.settle(unknown, failed);
    }

    /// Other messages to the same phone that may be the one which the provider lists: whether they are
    /// being sent, and their texts.
    async fn unsettled(
        &self,
        due: &DueLookup,
        message: &Message,
        responses: &[Response<Bytes>],
    ) -> Result<Vec<(bool, String)>, StoreError> {
        if self.provider.lookup_ids(responses).is_empty() {
            return Ok(Vec::new());
        }
        let store = self.context.database.reach().await?;
        let phone = message.phone.as_str();
        store.unsettled_to(phone, due.unknown.id).await
    }

    /// The ids that the provider gave to other messages to the same phone.
    async fn others(
        &self,
        message: &Message,
        responses: &[Response<Bytes>],
    ) -> Result<BTreeSet<String>, StoreError> {
        let ids = self.provider.lookup_ids(responses);
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let store = self.context.database.reach().await?;
        let sent = store.sent_ids(self.provider.name(), &ids).await?;
        let region = self.context.settings.default_region;
        let is_same =
            |phone: &str| Phone::parse(phone, region).is_ok_and(|phone| phone == message.phone);
        let same = sent.into_iter().filter(|(_, phone)| is_same(phone));
        Ok(same.map(|(id, _)| id).collect())
    }

    /// Handles a message that the provider lists as not accepted, as its answer would have been.
    async fn settle_not_accepted(
        &self,
        due: &DueLookup,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<NextLookup, StoreError> {
        let retry = &self.context.settings.retry;
        let wait = match &outcome {
            Outcome::Rejected(failure) => {
                let failed = Transition::FoundRejected(failure.clone());
                self.settle_as_failed(&due.unknown, failed);
                None
            }
            Outcome::Deferred { retry_after, .. } => Some(retry_after.unwrap_or(retry.max_wait)),
            Outcome::Throttled { retry_after, .. } | Outcome::Unavailable { retry_after, .. } => {
                Some(retry_after.unwrap_or(retry.first_wait))
            }
            _ => Some(Duration::ZERO),
        };
        let mut next = NextLookup::Settled;
        if let (Some(wait), Some(failure)) = (wait, outcome.failure()) {
            // Before the campaign may stop: nothing is queued in a campaign that is not active.
            let due_at = now.plus(wait);
            let failed = Transition::FoundRejected(failure.clone());
            let reason = ResendReason::NotAccepted;
            next = self.requeue_or_fail(due, reason, failed, due_at).await?;
        }
        self.report(LookupEvent::NotAccepted {
            index: self.index,
            campaign_id: due.campaign_id,
            outcome,
        });
        Ok(next)
    }

    fn settle(&self, unknown: &Unknown, transition: Transition) {
        self.report(LookupEvent::Settle(Settlement {
            id: unknown.id,
            claim: unknown.claim,
            provider: self.provider.name().to_owned(),
            transition,
        }));
    }

    async fn requeue(
        &self,
        unknown: &Unknown,
        reason: ResendReason,
        due_at: Timestamp,
    ) -> Result<bool, StoreError> {
        let max_attempts = self.context.settings.retry.max_attempts;
        let (id, claim) = (unknown.id, unknown.claim);
        let store = self.context.database.reach().await?;
        let is_queued = store.requeue_message(id, claim, reason, max_attempts, due_at).await?;
        if is_queued {
            self.forget(unknown);
            let progress = &self.context.progress;
            progress.retried.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_queued)
    }

    /// Removes a message from the unknown ones, once it is settled or queued.
    fn forget(&self, unknown: &Unknown) {
        if locked(&self.own).remove(unknown.id, unknown_at(unknown)) {
            let unknown = &self.context.progress.unknown;
            unknown.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The provider has accepted an attempt that it had answered as not accepted: the message may have been sent twice.
fn warn_contradiction(provider: &str, id: i64, reference: &str) {
    tracing::error!(
        provider,
        id,
        reference,
        "the provider lists an attempt as accepted that it had answered as not accepted"
    );
}

/// "Absent" counts only if this worker, where it sent the message, has waited long enough on the host's
/// own clock: the database's may have been set since.
fn confirm_absence(result: LookupResult, due: &DueLookup, lookup: &Lookup) -> LookupResult {
    let (LookupResult::Absent, Some(waited)) = (&result, due.waited) else {
        return result;
    };
    let left = lookup.absent_after.and_then(|span| span.checked_sub(waited));
    match left {
        Some(left) if !left.is_zero() => LookupResult::TooSoon(left),
        _ => result,
    }
}

/// The time between two lookups, so that no window ever holds too many.
fn spacing(lookup: &Lookup) -> Duration {
    let rates = lookup.rate.0.iter();
    let spans = rates.map(|rate| rate.window / rate.limit.get());
    spans.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_messages_beyond_the_remembered_are_counted() {
        let at = Timestamp::from_millis;
        let mut own = OwnUnknown::new(2);
        for id in 1..=4 {
            own.add(id, at(id * 10));
        }
        // From an earlier run.
        assert!(!own.remove(9, Some(at(5))));
        for id in [4, 1, 3, 2] {
            assert!(own.remove(id, Some(at(id * 10))), "{id}");
        }
        assert!(!own.remove(4, Some(at(40))));
    }
}
