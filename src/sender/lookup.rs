//! Status lookups: asks a provider what became of unknown messages, one after the other, and settles
//! them by its answers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::SendError;
use super::dispatcher::Dispatcher;
use super::request::Transport;
use super::results;
use crate::phone::Phone;
use crate::provider::{
    Attempt, Lookup, LookupResponses, LookupResult, Message, Provider, RequestContext,
};
use crate::queue::{Settlement, Transition};
use crate::sms::{Class, Failure, Outcome, Sms, Timestamp};
use crate::store::{CampaignStatus, CampaignStop, Due, Unknown};

/// A series of lookups takes about this long, and has at most this many.
const SERIES: Duration = Duration::from_secs(5);
const MAX_SERIES: u32 = 16;
/// The longest time from a claim to its request. Of a message that was in doubt before, only the claim's
/// time is known.
const MAX_HOLD: Duration = Duration::from_secs(60);
/// A lookup without an answer is not repeated sooner.
const RETRY: Duration = Duration::from_secs(1);
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
        Self {
            max,
            since: HashMap::new(),
            beyond: 0,
            full_since: Timestamp::default(),
        }
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
struct Question {
    unknown: Unknown,
    message: Message,
    campaign_id: i64,
    attempt: Attempt,
    /// From then on the provider knows everything about it.
    known_at: Timestamp,
    /// For how long this worker has known it to be unknown.
    waited: Option<Duration>,
}

/// A finished lookup.
pub(super) struct Answered {
    question: Question,
    asked_at: Timestamp,
    answer: Answer,
}

enum Answer {
    Responses(Vec<Response<Bytes>>),
    NoResponse,
    /// There is no request for this message.
    Unsupported,
}

/// What a series of lookups reports to the dispatcher, with the index of its provider.
pub(super) enum LookupEvent {
    Answered(usize, Box<Answered>),
    /// The series is over; the next one may begin then.
    Over(usize, Instant),
}

/// All status lookups of a worker.
pub(super) struct StatusLookups {
    own: OwnUnknown,
    /// Providers with a series.
    busy: Vec<usize>,
    /// When each provider's next series may begin.
    free_at: HashMap<usize, Instant>,
    sender: mpsc::UnboundedSender<LookupEvent>,
    pub(super) events: mpsc::UnboundedReceiver<LookupEvent>,
    /// Settlements for the next commit.
    pub(super) found: Vec<Settlement>,
    /// Campaigns to halt in the next commit.
    pub(super) stops: Vec<CampaignStop>,
    /// Since when nothing else is left to do.
    waits_since: Option<Timestamp>,
}

impl StatusLookups {
    pub(super) fn new() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            own: OwnUnknown::new(REMEMBERED),
            busy: Vec::new(),
            free_at: HashMap::new(),
            sender,
            events,
            found: Vec::new(),
            stops: Vec::new(),
            waits_since: None,
        }
    }

    /// Remembers a message that became unknown, if its provider can be asked.
    pub(super) fn note(
        &mut self,
        provider: &Provider,
        sms: &Sms,
        transition: &Transition,
        now: Timestamp,
    ) {
        let can_lookup = provider.capabilities().lookup.is_some();
        if matches!(transition, Transition::Unknown(_)) && can_lookup {
            self.own.add(sms.id, now);
        }
    }
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
    (claimed_at, ended_at): (Timestamp, Timestamp),
    now: Timestamp,
) -> Timestamp {
    let age = now.since(claimed_at);
    let known_at = ended_at.plus(settling_time(lookup));
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

impl Dispatcher {
    /// Starts a series of lookups at each provider that has unknown messages due and is idle.
    pub(super) async fn start_lookups(&mut self) -> Result<(), SendError> {
        for index in 0..self.providers.len() {
            let provider = Arc::clone(&self.providers[index].provider);
            let Some(lookup) = provider.capabilities().lookup else {
                continue;
            };
            if self.is_stopping() || self.lookups.busy.contains(&index) {
                continue;
            }
            let now = Instant::now();
            let free_at = self.lookups.free_at.get(&index).copied().unwrap_or(now);
            if free_at > now + SERIES {
                continue;
            }
            let questions = self.questions(index, &provider, &lookup).await?;
            if questions.is_empty() {
                continue;
            }
            self.lookups.busy.push(index);
            let events = self.lookups.sender.clone();
            let clock = Arc::clone(&self.clock);
            let transport = self.providers[index].transport.clone();
            self.tasks.spawn(async move {
                let mut pacing = Pacing {
                    next_at: free_at.max(Instant::now()),
                    spacing: spacing(&lookup),
                };
                for question in questions {
                    tokio::time::sleep_until(pacing.next_at).await;
                    let asked_at = clock.now();
                    let answer = ask(&provider, &transport, asked_at, &question, &mut pacing).await;
                    let answered = Box::new(Answered {
                        question,
                        asked_at,
                        answer,
                    });
                    // Without a dispatcher no one needs the answer.
                    drop(events.send(LookupEvent::Answered(index, answered)));
                }
                drop(events.send(LookupEvent::Over(index, pacing.next_at)));
            });
        }
        Ok(())
    }

    /// The messages to look up now. They are leased: no other worker asks for them meanwhile.
    async fn questions(
        &self,
        index: usize,
        provider: &Provider,
        lookup: &Lookup,
    ) -> Result<Vec<Question>, SendError> {
        let now = self.clock.now();
        let fitting = SERIES.as_millis() / spacing(lookup).as_millis().max(1);
        let max = u32::try_from(fitting).unwrap_or(MAX_SERIES);
        let max = max.clamp(1, MAX_SERIES) as usize;
        let mut questions = Vec::new();
        let campaigns = self.providers[index].campaigns.iter();
        for state in campaigns.filter(|state| state.is_active()) {
            let campaign = &state.campaign;
            let due = Due {
                campaign_id: campaign.id,
                by: now,
                claimed_by: now.minus(lookup.after),
            };
            let limit = i64::try_from(max - questions.len()).unwrap_or_default();
            for unknown in self.database.reach().await?.unknown_due(due, limit).await? {
                let attempt = Attempt {
                    started_after: claimed_at(&unknown),
                    started_before: unknown_at(&unknown),
                };
                let latest_end = claimed_at(&unknown).plus(provider.timeout() + MAX_HOLD);
                let ended_at = unknown_at(&unknown).unwrap_or(latest_end);
                let until = next_at(lookup, provider, (attempt.started_after, ended_at), now);
                if !self.postpone(&unknown, until).await? {
                    continue;
                }
                let Some(message) = self.message(&unknown, campaign.sender.as_ref()) else {
                    continue;
                };
                let since = self.lookups.own.since.get(&unknown.id);
                questions.push(Question {
                    message,
                    campaign_id: campaign.id,
                    attempt,
                    known_at: ended_at.plus(settling_time(lookup)),
                    waited: since.map(Instant::elapsed),
                    unknown: Unknown {
                        due_at: until.as_millis(),
                        ..unknown
                    },
                });
            }
            if questions.len() >= max {
                break;
            }
        }
        Ok(questions)
    }

    async fn postpone(&self, unknown: &Unknown, until: Timestamp) -> Result<bool, SendError> {
        let store = self.database.reach().await?;
        Ok(store.postpone_lookup(unknown, until).await?)
    }

    fn message(&self, unknown: &Unknown, from: Option<&String>) -> Option<Message> {
        Some(Message {
            phone: Phone::parse(&unknown.phone, self.settings.default_region).ok()?,
            content: unknown.content.clone(),
            reference: unknown.reference.clone()?,
            from: from.cloned(),
            params: serde_json::from_str(&unknown.params).unwrap_or_default(),
        })
    }

    /// Settles by an answer, and by those that came meanwhile.
    pub(super) async fn take_lookups(&mut self, first: LookupEvent) {
        let mut event = Some(first);
        while let Some(one) = event {
            match one {
                LookupEvent::Over(index, free_at) => {
                    self.lookups.free_at.insert(index, free_at);
                    self.lookups.busy.retain(|busy| *busy != index);
                }
                LookupEvent::Answered(index, answered) => {
                    if let Err(error) = self.settle_answered(index, *answered).await {
                        // The message stays unknown, and is looked up again.
                        tracing::warn!(%error, "the result of a status lookup could not be stored");
                    }
                }
            }
            event = self.lookups.events.try_recv().ok();
        }
    }

    async fn settle_answered(&mut self, index: usize, answered: Answered) -> Result<(), SendError> {
        let Answered {
            question,
            asked_at,
            answer,
        } = answered;
        let now = self.clock.now();
        let provider = Arc::clone(&self.providers[index].provider);
        let Some(lookup) = provider.capabilities().lookup else {
            return Ok(());
        };
        let mut is_other_sending = false;
        let result = match answer {
            Answer::Responses(responses) => {
                // In this order: a message that is settled meanwhile is among the others.
                let unsettled = self.unsettled(&provider, &question, &responses).await?;
                let others = self.others(&provider, &question, &responses).await?;
                is_other_sending = unsettled.iter().any(|(is_sending, _)| *is_sending);
                let texts: Vec<String> = unsettled.into_iter().map(|(_, text)| text).collect();
                let answers = LookupResponses {
                    responses: &responses,
                    asked_at,
                    others: &others,
                    unsettled: &texts,
                };
                let found = provider.parse_lookup(&question.message, question.attempt, &answers);
                confirm_absence(found, &question, &lookup)
            }
            Answer::NoResponse => {
                let until = now.plus(lookup.after.max(RETRY));
                self.postpone(&question.unknown, until).await?;
                return Ok(());
            }
            Answer::Unsupported => {
                LookupResult::Unclear(Failure::new(Class::Unknown, "it cannot be asked for"))
            }
        };
        let is_last = asked_at >= question.known_at;
        let is_absent = result == LookupResult::Absent;
        match result {
            LookupResult::Found(acceptance) => {
                self.forget(&question.unknown);
                self.progress.sent.fetch_add(1, Ordering::Relaxed);
                self.progress.set_trouble(None);
                self.settle(&provider, &question.unknown, Transition::Sent(acceptance));
                return Ok(());
            }
            // Of several attempts, one that was not accepted says nothing about the others.
            LookupResult::NotAccepted(outcome) if question.attempt.started_before.is_some() => {
                return self
                    .settle_not_accepted(index, &question, outcome, now)
                    .await;
            }
            // It may be clear once the other message is settled.
            LookupResult::Unclear(_) if is_other_sending => {
                self.postpone(&question.unknown, now.plus(RETRY)).await?;
                return Ok(());
            }
            LookupResult::TooSoon(left) if is_last => {
                let until = now.plus(left + RETRY);
                self.postpone(&question.unknown, until).await?;
            }
            _ => {}
        }
        let resend_before = self.resend_before(index, question.attempt.started_after);
        let may_resend = resend_before.is_some_and(|before| now < before);
        if is_absent || is_last && may_resend {
            self.requeue(&question.unknown, !is_absent, now).await?;
        }
        Ok(())
    }

    /// Other messages to the same phone that may be the one which the provider lists: whether they are
    /// being sent, and their texts.
    async fn unsettled(
        &self,
        provider: &Provider,
        question: &Question,
        responses: &[Response<Bytes>],
    ) -> Result<Vec<(bool, String)>, SendError> {
        if provider.lookup_ids(responses).is_empty() {
            return Ok(Vec::new());
        }
        let store = self.database.reach().await?;
        let phone = question.message.phone.as_str();
        Ok(store.unsettled_to(phone, question.unknown.id).await?)
    }

    /// The ids that the provider gave to other messages to the same phone.
    async fn others(
        &self,
        provider: &Provider,
        question: &Question,
        responses: &[Response<Bytes>],
    ) -> Result<BTreeSet<String>, SendError> {
        let ids = provider.lookup_ids(responses);
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let store = self.database.reach().await?;
        let sent = store.sent_ids(provider.name(), &ids).await?;
        let region = self.settings.default_region;
        let is_same = |phone: &str| {
            Phone::parse(phone, region).is_ok_and(|phone| phone == question.message.phone)
        };
        let same = sent.into_iter().filter(|(_, phone)| is_same(phone));
        Ok(same.map(|(id, _)| id).collect())
    }

    /// Handles a message that the provider lists as not accepted, as its answer would have been.
    async fn settle_not_accepted(
        &mut self,
        index: usize,
        question: &Question,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<(), SendError> {
        let provider = Arc::clone(&self.providers[index].provider);
        let mut stop = None;
        if let Some(campaign) = self.providers[index].campaign(question.campaign_id) {
            let halt = match &outcome {
                Outcome::AccountError { failure, .. } => {
                    let (name, why) = (provider.name(), &failure.reason);
                    let reason = format!("`{name}` refuses the account: {why}");
                    Some((CampaignStatus::Stopped, reason))
                }
                outcome => campaign.note_outcomes(&provider, std::slice::from_ref(outcome)),
            };
            let halt = halt.filter(|_| campaign.is_active());
            stop = halt.map(|(state, reason)| results::stop(campaign, state, reason));
        }
        let retry = &self.settings.retry;
        let wait = match outcome {
            Outcome::Rejected(failure) => {
                self.forget(&question.unknown);
                self.progress.failed.fetch_add(1, Ordering::Relaxed);
                let transition = Transition::FoundRejected(failure);
                self.settle(&provider, &question.unknown, transition);
                None
            }
            Outcome::Deferred { retry_after, .. } => Some(retry_after.unwrap_or(retry.max_wait)),
            Outcome::Throttled { retry_after, .. } | Outcome::Unavailable { retry_after, .. } => {
                Some(retry_after.unwrap_or(retry.first_wait))
            }
            _ => Some(Duration::ZERO),
        };
        if let Some(wait) = wait {
            self.requeue(&question.unknown, false, now.plus(wait))
                .await?;
        }
        self.lookups.stops.extend(stop);
        Ok(())
    }

    fn settle(&mut self, provider: &Provider, unknown: &Unknown, transition: Transition) {
        self.lookups.found.push(Settlement {
            id: unknown.id,
            claim: unknown.claim,
            provider: provider.name().to_owned(),
            transition,
        });
    }

    async fn requeue(
        &mut self,
        unknown: &Unknown,
        in_doubt: bool,
        due_at: Timestamp,
    ) -> Result<(), SendError> {
        let max_attempts = self.settings.retry.max_attempts;
        let one = (unknown.id, unknown.claim);
        let store = self.database.reach().await?;
        let is_queued = store.requeue_message(one, in_doubt, max_attempts, due_at);
        if is_queued.await? {
            self.forget(unknown);
            self.progress.retried.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that the message is no longer unknown.
    fn forget(&mut self, unknown: &Unknown) {
        if self.lookups.own.remove(unknown.id, unknown_at(unknown)) {
            self.progress.unknown.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is still something to look up before the run ends; tells the operator.
    pub(super) async fn waits_for_lookups(&mut self) -> Result<bool, SendError> {
        let now = self.clock.now();
        let since = *self.lookups.waits_since.get_or_insert(now);
        for state in &self.providers {
            let Some(lookup) = state.provider.capabilities().lookup else {
                continue;
            };
            let until = since.plus(longest_wait(&lookup, &state.provider));
            if now >= until {
                continue;
            }
            for campaign in state.campaigns.iter().filter(|state| state.is_active()) {
                let due = Due {
                    campaign_id: campaign.campaign.id,
                    by: until,
                    claimed_by: until.minus(lookup.after),
                };
                if self.database.reach().await?.is_unknown_due(due).await? {
                    let name = state.provider.name();
                    let left = until.since(now).as_secs();
                    self.progress.set_note(Some(format!(
                        "`{name}` is asked what became of messages it may have taken: for up to {left} s; \
                         Ctrl-C leaves them unknown"
                    )));
                    return Ok(true);
                }
            }
        }
        // Running lookups may still be answered.
        Ok(!self.lookups.busy.is_empty() && now < since.plus(SERIES))
    }

    /// There is something else to do.
    pub(super) fn stop_waiting_for_lookups(&mut self) {
        if self.lookups.waits_since.take().is_some() {
            self.progress.set_note(None);
        }
    }
}

/// When the next lookup request may be made.
struct Pacing {
    next_at: Instant,
    spacing: Duration,
}

async fn ask(
    provider: &Provider,
    transport: &Transport,
    asked_at: Timestamp,
    question: &Question,
    pacing: &mut Pacing,
) -> Answer {
    // The answer is judged by this instant: the provider may not know what happened since.
    let context = RequestContext {
        now: asked_at,
        nonce: rand::random(),
    };
    let requests = provider.lookup(&question.message, question.attempt, &context);
    let Some(Ok(requests)) = requests else {
        return Answer::Unsupported;
    };
    let mut responses = Vec::with_capacity(requests.len());
    for request in requests {
        tokio::time::sleep_until(pacing.next_at).await;
        pacing.next_at = pacing.next_at.max(Instant::now()) + pacing.spacing;
        match transport.lookup(request).await {
            Ok(response) => responses.push(response),
            Err(_) => return Answer::NoResponse,
        }
    }
    Answer::Responses(responses)
}

/// "Absent" counts only if this worker, where it sent the message, has waited long enough on the host's
/// own clock: the database's may have been set since.
fn confirm_absence(result: LookupResult, question: &Question, lookup: &Lookup) -> LookupResult {
    let (LookupResult::Absent, Some(waited)) = (&result, question.waited) else {
        return result;
    };
    let left = lookup
        .absent_after
        .and_then(|span| span.checked_sub(waited));
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
