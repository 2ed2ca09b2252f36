//! Asking a provider what became of messages of which nobody knows whether it took them: when to ask, one
//! question at a time, and what the answer means for the message.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::SendError;
use super::clerk::Clerk;
use super::slot::Transport;
use crate::phone::Phone;
use crate::provider::{Finding, LookUp, Message, Provider, Stamp};
use crate::sms::{Cause, Class, Sms, Timestamp};
use crate::store::{Due, Fate, Settlement, Unknown};

/// A round of questions takes about so long, and has at most so many.
const ROUND: Duration = Duration::from_secs(5);
const MOST: u32 = 16;
/// Of a message that another run sent, only the claim's moment is known: the request started within so long.
const HELD: Duration = Duration::from_secs(60);
/// A question that had no answer is not repeated sooner.
const AGAIN: Duration = Duration::from_secs(1);
/// Of more messages than this the worker does not remember when they ended; they count as another run's.
const REMEMBERED: usize = 100_000;

/// A message that this worker parked.
struct Parked {
    claim: i64,
    ended_at: Timestamp,
    /// No earlier attempt was in doubt.
    alone: bool,
}

/// What came of a question.
pub(super) struct Answered {
    question: Question,
    asked_at: Timestamp,
    /// `None`: no answer came.
    finding: Option<Finding>,
}

/// What the tasks that ask tell the clerk.
pub(super) enum Heard {
    Answered(usize, Box<Answered>),
    /// The round of this route's questions is over.
    Over(usize),
}

struct Question {
    unknown: Unknown,
    message: Message,
    sent_at: Timestamp,
    /// From then on the provider knows all that it will ever know of it.
    known_at: Timestamp,
    /// No earlier attempt may have been accepted.
    alone: bool,
}

/// All questions of a worker.
pub(super) struct Inquiry {
    parked: HashMap<i64, Parked>,
    /// Routes that are being asked.
    busy: Vec<usize>,
    /// When each route may be asked next.
    free_at: HashMap<usize, Instant>,
    tell: mpsc::UnboundedSender<Heard>,
    pub(super) heard: mpsc::UnboundedReceiver<Heard>,
    /// Findings that wait for the next round.
    pub(super) found: Vec<Settlement>,
    /// Since when nothing else is to be done.
    waits_since: Option<Timestamp>,
}

impl Inquiry {
    pub(super) fn new() -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        Self {
            parked: HashMap::new(),
            busy: Vec::new(),
            free_at: HashMap::new(),
            tell,
            heard,
            found: Vec::new(),
            waits_since: None,
        }
    }

    /// Remembers what became of a message, if its provider can be asked.
    pub(super) fn note(&mut self, provider: &Provider, sms: &Sms, fate: &Fate, now: Timestamp) {
        if self.parked.len() < REMEMBERED
            && matches!(fate, Fate::Unknown(_))
            && provider.supports().look_up.is_some()
        {
            let parked = Parked {
                claim: sms.claim,
                ended_at: now,
                alone: !sms.in_doubt,
            };
            self.parked.insert(sms.id, parked);
        }
    }

    pub(super) fn is_busy(&self, route: usize) -> bool {
        self.busy.contains(&route)
    }

    /// When its attempt had ended at the latest.
    fn ended_at(&self, unknown: &Unknown, provider: &Provider) -> Timestamp {
        match self.parked.get(&unknown.id) {
            Some(parked) if parked.claim == unknown.claim => parked.ended_at,
            _ => claimed_at(unknown).plus(provider.timeout() + HELD),
        }
    }

    /// Whether there is no other attempt than the last that may have been accepted.
    fn is_alone(&self, unknown: &Unknown) -> bool {
        match self.parked.get(&unknown.id) {
            Some(parked) if parked.claim == unknown.claim => parked.alone,
            // A claim after its time was no attempt: the one before it was.
            _ => {
                let expires_at = unknown.expires_at;
                unknown.attempts <= 1 && expires_at.is_none_or(|at| Some(at) > unknown.claimed_at)
            }
        }
    }
}

/// So long after an attempt its provider has said what it can say.
pub(super) fn patience(look_up: &LookUp) -> Duration {
    look_up.absent_after.unwrap_or(look_up.after * 4)
}

/// The longest that a run waits for answers when all else is done.
fn longest(look_up: &LookUp, provider: &Provider) -> Duration {
    patience(look_up) + provider.timeout() + HELD + AGAIN
}

/// When to ask again: ever more rarely, once when the provider must know, and then not in this run.
fn next_at(
    look_up: &LookUp,
    provider: &Provider,
    (claimed_at, ended_at): (Timestamp, Timestamp),
    now: Timestamp,
) -> Timestamp {
    let age = now.since(claimed_at);
    let known_at = ended_at.plus(patience(look_up));
    if now < known_at {
        claimed_at.plus(age.max(look_up.after) * 2).min(known_at)
    } else {
        now.plus(age.max(longest(look_up, provider)) * 2)
    }
}

fn claimed_at(unknown: &Unknown) -> Timestamp {
    Timestamp::from_millis(unknown.claimed_at.unwrap_or_default())
}

impl Clerk {
    /// Asks the providers for what is due, each at its own pace.
    pub(super) async fn inquire(&mut self) -> Result<(), SendError> {
        for index in 0..self.routes.len() {
            let provider = Arc::clone(&self.routes[index].provider);
            let Some(look_up) = provider.supports().look_up else {
                continue;
            };
            if self.is_stopping() || self.inquiry.is_busy(index) {
                continue;
            }
            let spacing = spacing(&look_up);
            let free_at = self.inquiry.free_at.get(&index).copied();
            let free_at = free_at.unwrap_or_else(Instant::now);
            if free_at > Instant::now() + ROUND {
                continue;
            }
            let questions = self.questions(index, &provider, &look_up).await?;
            if questions.is_empty() {
                continue;
            }
            let count = u32::try_from(questions.len()).unwrap_or(MOST);
            let begins_at = free_at.max(Instant::now());
            self.inquiry
                .free_at
                .insert(index, begins_at + spacing * count);
            self.inquiry.busy.push(index);
            let tell = self.inquiry.tell.clone();
            let clock = Arc::clone(&self.clock);
            let transport = self.routes[index].transport.clone();
            self.tasks.spawn(async move {
                for (at, question) in (0..).zip(questions) {
                    tokio::time::sleep_until(begins_at + spacing * at).await;
                    let asked_at = clock.now();
                    let finding = ask(&provider, &transport, asked_at, &question).await;
                    let answered = Answered {
                        question,
                        asked_at,
                        finding,
                    };
                    // A clerk that is gone has no use for it.
                    drop(tell.send(Heard::Answered(index, Box::new(answered))));
                }
                drop(tell.send(Heard::Over(index)));
            });
        }
        Ok(())
    }

    /// What is to be asked of a provider now; nobody else asks for it meanwhile.
    async fn questions(
        &self,
        index: usize,
        provider: &Provider,
        look_up: &LookUp,
    ) -> Result<Vec<Question>, SendError> {
        let now = self.clock.now();
        let fitting = ROUND.as_millis() / spacing(look_up).as_millis().max(1);
        let most = u32::try_from(fitting).unwrap_or(MOST).clamp(1, MOST) as usize;
        let mut questions = Vec::new();
        let lines = self.routes[index].lines.iter();
        for line in lines.filter(|line| line.is_active()) {
            let due = Due {
                campaign_id: line.campaign.id,
                by: now,
                claimed_by: now.minus(look_up.after),
            };
            let limit = i64::try_from(most - questions.len()).unwrap_or_default();
            for unknown in self.database.reach().await?.unknown_due(due, limit).await? {
                let sent_at = claimed_at(&unknown);
                let ended_at = self.inquiry.ended_at(&unknown, provider);
                let until = next_at(look_up, provider, (sent_at, ended_at), now);
                let store = self.database.reach().await?;
                if !store.postpone_unknown(&unknown, until).await? {
                    continue;
                }
                let Some(message) = self.message(&unknown, line.campaign.sender.as_ref()) else {
                    continue;
                };
                questions.push(Question {
                    message,
                    sent_at,
                    known_at: ended_at.plus(patience(look_up)),
                    alone: self.inquiry.is_alone(&unknown),
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
                Heard::Over(index) => self.inquiry.busy.retain(|busy| *busy != index),
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
            finding,
        }: Answered,
    ) -> Result<(), SendError> {
        let now = self.clock.now();
        let provider = Arc::clone(&self.routes[index].provider);
        let Some(look_up) = provider.supports().look_up else {
            return Ok(());
        };
        let Some(finding) = finding else {
            let until = now.plus(look_up.after.max(AGAIN));
            let store = self.database.reach().await?;
            store.postpone_unknown(&question.unknown, until).await?;
            return Ok(());
        };
        let Unknown { id, claim, .. } = question.unknown;
        if let Finding::Found(receipt) = finding {
            self.forget(id);
            self.progress.sent.fetch_add(1, Ordering::Relaxed);
            self.inquiry.found.push(Settlement {
                id,
                claim,
                provider: provider.name().to_owned(),
                fate: Fate::Sent(receipt),
            });
            return Ok(());
        }
        if asked_at < question.known_at {
            return Ok(());
        }
        let never_had =
            finding == Finding::Absent && look_up.absent_after.is_some() && question.alone;
        if never_had || self.may_resend(index, question.sent_at, now) {
            let most = self.settings.retry.max_attempts;
            let store = self.database.reach().await?;
            if store
                .ready_unknown((id, claim), !never_had, most, now)
                .await?
            {
                self.forget(id);
                self.progress.retried.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// It is unknown no more.
    fn forget(&mut self, id: i64) {
        if self.inquiry.parked.remove(&id).is_some() {
            self.progress.unknown.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is still something to ask before the run ends; says so.
    pub(super) async fn awaits_answers(&mut self) -> Result<bool, SendError> {
        let now = self.clock.now();
        let since = *self.inquiry.waits_since.get_or_insert(now);
        for route in &self.routes {
            let Some(look_up) = route.provider.supports().look_up else {
                continue;
            };
            let until = since.plus(longest(&look_up, &route.provider));
            if now >= until {
                continue;
            }
            for line in route.lines.iter().filter(|line| line.is_active()) {
                let due = Due {
                    campaign_id: line.campaign.id,
                    by: until,
                    claimed_by: until.minus(look_up.after),
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

async fn ask(
    provider: &Provider,
    transport: &Transport,
    asked_at: Timestamp,
    Question {
        message, sent_at, ..
    }: &Question,
) -> Option<Finding> {
    // What the answer means is judged by when it was asked for: what came since it may not know.
    let stamp = Stamp {
        now: asked_at,
        nonce: rand::random(),
    };
    let Ok(request) = provider.look_up(message, *sent_at, &stamp)? else {
        let cause = Cause::new(Class::Unknown, "it cannot be asked for");
        return Some(Finding::Unclear(cause));
    };
    let response = transport.ask(request).await.ok()?;
    Some(provider.found(message, *sent_at, &response, &stamp))
}

/// Between two questions, so that no window ever holds too many.
fn spacing(look_up: &LookUp) -> Duration {
    let rates = look_up.rate.0.iter();
    let spans = rates.map(|rate| rate.window / rate.limit.get());
    spans.max().unwrap_or_default()
}
