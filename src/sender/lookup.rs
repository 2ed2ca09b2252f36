//! Asking a provider what became of messages of which nobody knows whether it took them: when to ask, one
//! question at a time, and what the answer means for the message.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::SendError;
use super::campaign_state::note_outcomes;
use super::dispatcher::Dispatcher;
use super::request::Transport;
use crate::phone::Phone;
use crate::provider::{Answers, Attempt, Lookup, LookupResult, Message, Provider, RequestContext};
use crate::queue::{Settlement, Transition};
use crate::sms::{Class, Failure, Outcome, Sms, Timestamp};
use crate::store::{CampaignStatus, CampaignStop, Due, Unknown};

/// A round of questions takes about so long, and has at most so many.
const ROUND: Duration = Duration::from_secs(5);
const MOST: u32 = 16;
/// Of a message that was in doubt before, only the claim's moment is known: the request started within so long.
const HELD: Duration = Duration::from_secs(60);
/// A question that had no answer is not repeated sooner.
const AGAIN: Duration = Duration::from_secs(1);
/// Of more messages than this the worker does not remember since when they are unknown.
const REMEMBERED: usize = 100_000;

/// The messages that this worker made unknown, and that still are.
struct Remembered {
    most: usize,
    /// By message: since when, by a clock that nobody sets.
    since: HashMap<i64, Instant>,
    /// How many more there are, and since when there are more.
    beyond: u64,
    full_since: Timestamp,
}

impl Remembered {
    fn new(most: usize) -> Self {
        Self {
            most,
            since: HashMap::new(),
            beyond: 0,
            full_since: Timestamp::default(),
        }
    }

    fn add(&mut self, id: i64, now: Timestamp) {
        if self.since.len() < self.most {
            self.since.insert(id, Instant::now());
            return;
        }
        if self.beyond == 0 {
            self.full_since = now;
        }
        self.beyond += 1;
    }

    /// The message is unknown no more. True if it was one of these.
    fn remove(&mut self, id: i64, unknown_at: Option<Timestamp>) -> bool {
        if self.since.remove(&id).is_some() {
            return true;
        }
        let is_beyond = self.beyond > 0 && unknown_at.is_none_or(|at| at >= self.full_since);
        self.beyond -= u64::from(is_beyond);
        is_beyond
    }
}

/// What came of a question.
pub(super) struct Answered {
    question: Question,
    asked_at: Timestamp,
    said: Said,
}

enum Said {
    Answers(Vec<Response<Bytes>>),
    /// No answer came.
    Nothing,
    /// There is no request for it.
    CannotAsk,
}

/// What the tasks that ask tell the dispatcher.
pub(super) enum Heard {
    Answered(usize, Box<Answered>),
    /// The round of this route's questions is over; the next may begin then.
    Over(usize, Instant),
}

struct Question {
    unknown: Unknown,
    message: Message,
    campaign_id: i64,
    attempt: Attempt,
    /// From then on the provider knows all that it will ever know of it.
    known_at: Timestamp,
    /// How long this worker knows it to be unknown.
    waited: Option<Duration>,
}

/// All questions of a worker.
pub(super) struct StatusLookups {
    remembered: Remembered,
    /// Routes that are being asked.
    busy: Vec<usize>,
    /// When each route may be asked next.
    free_at: HashMap<usize, Instant>,
    tell: mpsc::UnboundedSender<Heard>,
    pub(super) heard: mpsc::UnboundedReceiver<Heard>,
    /// Findings that wait for the next round.
    pub(super) found: Vec<Settlement>,
    /// Campaigns that must not go on, by what was found.
    pub(super) campaign_stops: Vec<CampaignStop>,
    /// Since when nothing else is to be done.
    waits_since: Option<Timestamp>,
}

impl StatusLookups {
    pub(super) fn new() -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        Self {
            remembered: Remembered::new(REMEMBERED),
            busy: Vec::new(),
            free_at: HashMap::new(),
            tell,
            heard,
            found: Vec::new(),
            campaign_stops: Vec::new(),
            waits_since: None,
        }
    }

    /// Remembers what became of a message, if its provider can be asked.
    pub(super) fn note(
        &mut self,
        provider: &Provider,
        sms: &Sms,
        transition: &Transition,
        now: Timestamp,
    ) {
        if matches!(transition, Transition::Unknown(_)) && provider.capabilities().lookup.is_some()
        {
            self.remembered.add(sms.id, now);
        }
    }

    pub(super) fn is_busy(&self, route: usize) -> bool {
        self.busy.contains(&route)
    }
}

/// When its attempt had ended at the latest.
fn ended_at(unknown: &Unknown, provider: &Provider) -> Timestamp {
    let by_claim = || claimed_at(unknown).plus(provider.timeout() + HELD);
    unknown_at(unknown).unwrap_or_else(by_claim)
}

/// So long after an attempt its provider has said what it can say.
pub(super) fn patience(lookup: &Lookup) -> Duration {
    lookup.absent_after.unwrap_or(lookup.after * 4)
}

/// The longest that a run waits for answers when all else is done.
fn longest(lookup: &Lookup, provider: &Provider) -> Duration {
    patience(lookup) + provider.timeout() + HELD + AGAIN
}

/// When to ask again: ever more rarely, once when the provider must know, and then not in this run.
fn next_at(
    lookup: &Lookup,
    provider: &Provider,
    (claimed_at, ended_at): (Timestamp, Timestamp),
    now: Timestamp,
) -> Timestamp {
    let age = now.since(claimed_at);
    let known_at = ended_at.plus(patience(lookup));
    if now < known_at {
        claimed_at.plus(age.max(lookup.after) * 2).min(known_at)
    } else {
        now.plus(age.max(longest(lookup, provider)) * 2)
    }
}

fn claimed_at(unknown: &Unknown) -> Timestamp {
    Timestamp::from_millis(unknown.claimed_at.unwrap_or_default())
}

fn unknown_at(unknown: &Unknown) -> Option<Timestamp> {
    unknown.unknown_at.map(Timestamp::from_millis)
}

impl Dispatcher {
    /// Asks the providers for what is due, each at its own pace.
    pub(super) async fn inquire(&mut self) -> Result<(), SendError> {
        for index in 0..self.routes.len() {
            let provider = Arc::clone(&self.routes[index].provider);
            let Some(lookup) = provider.capabilities().lookup else {
                continue;
            };
            if self.is_stopping() || self.inquiry.is_busy(index) {
                continue;
            }
            let spacing = spacing(&lookup);
            let free_at = self.inquiry.free_at.get(&index).copied();
            let free_at = free_at.unwrap_or_else(Instant::now);
            if free_at > Instant::now() + ROUND {
                continue;
            }
            let questions = self.questions(index, &provider, &lookup).await?;
            if questions.is_empty() {
                continue;
            }
            let begins_at = free_at.max(Instant::now());
            self.inquiry.busy.push(index);
            let tell = self.inquiry.tell.clone();
            let clock = Arc::clone(&self.clock);
            let transport = self.routes[index].transport.clone();
            self.tasks.spawn(async move {
                let mut pace = RequestPacing {
                    next_at: begins_at,
                    spacing,
                };
                for question in questions {
                    tokio::time::sleep_until(pace.next_at).await;
                    let asked_at = clock.now();
                    let said = ask(&provider, &transport, asked_at, &question, &mut pace).await;
                    let answered = Answered {
                        question,
                        asked_at,
                        said,
                    };
                    // A clerk that is gone has no use for it.
                    drop(tell.send(Heard::Answered(index, Box::new(answered))));
                }
                drop(tell.send(Heard::Over(index, pace.next_at)));
            });
        }
        Ok(())
    }

    /// What is to be asked of a provider now; nobody else asks for it meanwhile.
    async fn questions(
        &self,
        index: usize,
        provider: &Provider,
        lookup: &Lookup,
    ) -> Result<Vec<Question>, SendError> {
        let now = self.clock.now();
        let fitting = ROUND.as_millis() / spacing(lookup).as_millis().max(1);
        let most = u32::try_from(fitting).unwrap_or(MOST).clamp(1, MOST) as usize;
        let mut questions = Vec::new();
        let lines = self.routes[index].lines.iter();
        for line in lines.filter(|line| line.is_active()) {
            let due = Due {
                campaign_id: line.campaign.id,
                by: now,
                claimed_by: now.minus(lookup.after),
            };
            let limit = i64::try_from(most - questions.len()).unwrap_or_default();
            for unknown in self.database.reach().await?.unknown_due(due, limit).await? {
                let attempt = Attempt {
                    started_after: claimed_at(&unknown),
                    started_before: unknown_at(&unknown),
                };
                let ended_at = ended_at(&unknown, provider);
                let until = next_at(lookup, provider, (attempt.started_after, ended_at), now);
                let store = self.database.reach().await?;
                if !store.postpone_unknown(&unknown, until).await? {
                    continue;
                }
                let Some(message) = self.message(&unknown, line.campaign.sender.as_ref()) else {
                    continue;
                };
                let since = self.inquiry.remembered.since.get(&unknown.id);
                questions.push(Question {
                    message,
                    campaign_id: line.campaign.id,
                    attempt,
                    known_at: ended_at.plus(patience(lookup)),
                    waited: since.map(Instant::elapsed),
                    unknown: Unknown {
                        due_at: until.as_millis(),
                        ..unknown
                    },
                });
            }
            if questions.len() >= most {
                break;
            }
        }
        Ok(questions)
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

    /// Takes up what a provider said, and what else was said meanwhile.
    pub(super) async fn hear(&mut self, first: Heard) {
        let mut heard = Some(first);
        while let Some(one) = heard {
            match one {
                Heard::Over(index, free_at) => {
                    self.inquiry.free_at.insert(index, free_at);
                    self.inquiry.busy.retain(|busy| *busy != index);
                }
                Heard::Answered(index, answered) => {
                    if let Err(error) = self.settle_answered(index, *answered).await {
                        // It stays unknown, and is asked for again.
                        tracing::warn!(%error, "what a provider said of a message could not be kept");
                    }
                }
            }
            heard = self.inquiry.heard.try_recv().ok();
        }
    }

    async fn settle_answered(
        &mut self,
        index: usize,
        Answered {
            question,
            asked_at,
            said,
        }: Answered,
    ) -> Result<(), SendError> {
        let now = self.clock.now();
        let provider = Arc::clone(&self.routes[index].provider);
        let Some(lookup) = provider.capabilities().lookup else {
            return Ok(());
        };
        let mut is_sending = false;
        let finding = match said {
            Said::Answers(responses) => {
                // In this order: one that is settled meanwhile is among the others.
                let unsettled = self.unsettled(&provider, &question, &responses).await?;
                let others = self.others(&provider, &question, &responses).await?;
                is_sending = unsettled.iter().any(|(is_sending, _)| *is_sending);
                let texts: Vec<String> = unsettled.into_iter().map(|(_, text)| text).collect();
                let answers = Answers {
                    responses: &responses,
                    asked_at,
                    others: &others,
                    unsettled: &texts,
                };
                let found = provider.found(&question.message, question.attempt, &answers);
                waited(found, &question, &lookup)
            }
            Said::Nothing => {
                let until = now.plus(lookup.after.max(AGAIN));
                let store = self.database.reach().await?;
                store.postpone_unknown(&question.unknown, until).await?;
                return Ok(());
            }
            Said::CannotAsk => {
                LookupResult::Unclear(Failure::new(Class::Unknown, "it cannot be asked for"))
            }
        };
        let is_over = asked_at >= question.known_at;
        let never_had = finding == LookupResult::Absent;
        match finding {
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
            LookupResult::Unclear(_) if is_sending => {
                let until = now.plus(AGAIN);
                let store = self.database.reach().await?;
                store.postpone_unknown(&question.unknown, until).await?;
                return Ok(());
            }
            LookupResult::TooSoon(left) if is_over => {
                let until = now.plus(left + AGAIN);
                let store = self.database.reach().await?;
                store.postpone_unknown(&question.unknown, until).await?;
            }
            _ => {}
        }
        let started_after = question.attempt.started_after;
        if never_had || is_over && self.may_resend(index, started_after, now) {
            self.ready(&question.unknown, !never_had, now).await?;
        }
        Ok(())
    }

    /// Other messages to the same phone of which one may be what the provider lists: whether they are being sent, and
    /// their texts.
    async fn unsettled(
        &self,
        provider: &Provider,
        question: &Question,
        responses: &[Response<Bytes>],
    ) -> Result<Vec<(bool, String)>, SendError> {
        if provider.ids(responses).is_empty() {
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
        let ids = provider.ids(responses);
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let store = self.database.reach().await?;
        let sent = store.ids_sent(provider.name(), &ids).await?;
        let region = self.settings.default_region;
        let is_its = |phone: &str| {
            Phone::parse(phone, region).is_ok_and(|phone| phone == question.message.phone)
        };
        let its = sent.into_iter().filter(|(_, phone)| is_its(phone));
        Ok(its.map(|(id, _)| id).collect())
    }

    /// What the provider's own entry says of a message that it did not accept, as its answer would have.
    async fn settle_not_accepted(
        &mut self,
        index: usize,
        question: &Question,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<(), SendError> {
        let provider = Arc::clone(&self.routes[index].provider);
        let name = provider.name();
        let why = self.routes[index]
            .line(question.campaign_id)
            .and_then(|line| {
                let why = match &outcome {
                    Outcome::AccountError { failure, .. } => {
                        let reason = format!("`{name}` refuses the account: {}", failure.reason);
                        Some((CampaignStatus::Stopped, reason))
                    }
                    outcome => note_outcomes(line, &provider, std::slice::from_ref(outcome)),
                };
                let (state, reason) = why.filter(|_| line.is_active())?;
                Some((state, reason))
            });
        let retry = &self.settings.retry;
        let wait = match outcome {
            Outcome::Rejected(failure) => {
                self.forget(&question.unknown);
                self.progress.failed.fetch_add(1, Ordering::Relaxed);
                self.settle(
                    &provider,
                    &question.unknown,
                    Transition::FoundRejected(failure),
                );
                None
            }
            Outcome::Deferred { retry_after, .. } => Some(retry_after.unwrap_or(retry.max_wait)),
            Outcome::Throttled { retry_after, .. } | Outcome::Unavailable { retry_after, .. } => {
                Some(retry_after.unwrap_or(retry.first_wait))
            }
            _ => Some(Duration::ZERO),
        };
        if let Some(wait) = wait {
            self.ready(&question.unknown, false, now.plus(wait)).await?;
        }
        if let Some((state, reason)) = why {
            if let Some(line) = self.routes[index].line(question.campaign_id) {
                line.halt(state, Some(reason.clone()));
            }
            self.inquiry.campaign_stops.push(CampaignStop {
                campaign_id: question.campaign_id,
                state,
                reason,
            });
        }
        Ok(())
    }

    fn settle(&mut self, provider: &Provider, unknown: &Unknown, transition: Transition) {
        self.inquiry.found.push(Settlement {
            id: unknown.id,
            claim: unknown.claim,
            provider: provider.name().to_owned(),
            transition,
        });
    }

    /// Puts it back into the queue.
    async fn ready(
        &mut self,
        unknown: &Unknown,
        in_doubt: bool,
        due_at: Timestamp,
    ) -> Result<(), SendError> {
        let most = self.settings.retry.max_attempts;
        let one = (unknown.id, unknown.claim);
        let store = self.database.reach().await?;
        if store.ready_unknown(one, in_doubt, most, due_at).await? {
            self.forget(unknown);
            self.progress.retried.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// It is unknown no more.
    fn forget(&mut self, unknown: &Unknown) {
        let unknown_at = unknown_at(unknown);
        if self.inquiry.remembered.remove(unknown.id, unknown_at) {
            self.progress.unknown.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is still something to ask before the run ends; says so.
    pub(super) async fn awaits_answers(&mut self) -> Result<bool, SendError> {
        let now = self.clock.now();
        let since = *self.inquiry.waits_since.get_or_insert(now);
        for route in &self.routes {
            let Some(lookup) = route.provider.capabilities().lookup else {
                continue;
            };
            let until = since.plus(longest(&lookup, &route.provider));
            if now >= until {
                continue;
            }
            for line in route.lines.iter().filter(|line| line.is_active()) {
                let due = Due {
                    campaign_id: line.campaign.id,
                    by: until,
                    claimed_by: until.minus(lookup.after),
                };
                if self.database.reach().await?.is_unknown_due(due).await? {
                    let name = route.provider.name();
                    let left = until.since(now).as_secs();
                    self.progress.set_note(Some(format!(
                        "`{name}` is asked what became of messages it may have taken: for up to {left} s; \
                         Ctrl-C leaves them unknown"
                    )));
                    return Ok(true);
                }
            }
        }
        // Questions on the way may still be answered.
        Ok(!self.inquiry.busy.is_empty() && now < since.plus(ROUND))
    }

    /// There is something else to do.
    pub(super) fn awaits_no_answers(&mut self) {
        if self.inquiry.waits_since.take().is_some() {
            self.progress.set_note(None);
        }
    }
}

/// When the next request may be made.
struct RequestPacing {
    next_at: Instant,
    spacing: Duration,
}

async fn ask(
    provider: &Provider,
    transport: &Transport,
    asked_at: Timestamp,
    question: &Question,
    pace: &mut RequestPacing,
) -> Said {
    // What the answer means is judged by when it was asked for: what came since it may not know.
    let context = RequestContext {
        now: asked_at,
        nonce: rand::random(),
    };
    let requests = provider.lookup(&question.message, question.attempt, &context);
    let Some(Ok(requests)) = requests else {
        return Said::CannotAsk;
    };
    let mut responses = Vec::with_capacity(requests.len());
    for request in requests {
        tokio::time::sleep_until(pace.next_at).await;
        pace.next_at = pace.next_at.max(Instant::now()) + pace.spacing;
        match transport.ask(request).await {
            Ok(response) => responses.push(response),
            Err(_) => return Said::Nothing,
        }
    }
    Said::Answers(responses)
}

/// Absence is believed only if this worker, where it saw the attempt, has itself waited for long enough: the
/// database's clock may have been set since.
fn waited(finding: LookupResult, question: &Question, lookup: &Lookup) -> LookupResult {
    let (LookupResult::Absent, Some(waited)) = (&finding, question.waited) else {
        return finding;
    };
    match lookup
        .absent_after
        .and_then(|span| span.checked_sub(waited))
    {
        Some(left) if !left.is_zero() => LookupResult::TooSoon(left),
        _ => finding,
    }
}

/// Between two questions, so that no window ever holds too many.
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
        let mut remembered = Remembered::new(2);
        for id in 1..=4 {
            remembered.add(id, at(id * 10));
        }
        // Another run's, from before.
        assert!(!remembered.remove(9, Some(at(5))));
        for id in [4, 1, 3, 2] {
            assert!(remembered.remove(id, Some(at(id * 10))), "{id}");
        }
        assert!(!remembered.remove(4, Some(at(40))));
    }
}
