//! The counts of the gateway: arrivals, acceptances, references. All of them are behind one lock, so that they are
//! consistent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::SandboxConfig;
use super::receipts::{FinalState, Planned, ReceiptQueue, SandboxReceipt};

const SECOND: Duration = Duration::from_secs(1);

/// The figures of `GET /stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Messages that arrived, accepted or not.
    pub requests: u64,
    /// Messages that a real gateway would send.
    pub accepted: u64,
    pub distinct_references: u64,
    pub distinct_recipients: u64,
    /// Acceptances of a recipient and text that were already accepted with another reference or without one.
    pub repeated: u64,
    /// The most messages in any window of 1000 ms, by arrival.
    pub max_in_any_second: u64,
    /// HTTP requests: fewer than messages if some contained a list.
    pub calls: u64,
    /// Receipts that were returned by `GET /receipts`, and those that were posted.
    pub receipts: u64,
    pub receipts_posted: u64,
}

/// One accepted message of `GET /messages`. No `Debug`: phones are personal data.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedMessage {
    pub id: String,
    pub reference: Option<String>,
    pub to: String,
    /// Milliseconds since the gateway started.
    pub at_ms: u64,
}

/// What is kept of a message for its receipts, for as long as the gateway runs: some 130 bytes.
struct LogEntry {
    reference: Option<Box<str>>,
    to: Box<str>,
    /// Milliseconds since the gateway started.
    at_ms: u64,
}

/// What becomes of a message in the end. No `Debug`: phones are personal data.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct MessageOutcome {
    pub id: String,
    pub reference: Option<String>,
    pub to: String,
    /// `delivered`, `undelivered`, `expired`, `rejected`, or `no_report`: no receipt says it.
    pub state: &'static str,
    /// A later receipt says something else.
    pub contradicted: bool,
}

/// The state behind the counts. Stores 64-bit hashes instead of texts to save memory.
pub(super) struct Counters {
    hasher: RandomState,
    started_at: Instant,
    stats: Stats,
    arrivals: LastSecond,
    admitted: LastSecond,
    /// The number of the message of each reference.
    references: HashMap<u64, u64>,
    recipients: HashSet<u64>,
    /// The reference of the first acceptance of each recipient and text.
    texts: HashMap<u64, Option<u64>>,
    /// Messages whose one-time fault has occurred.
    once: HashSet<u64>,
    /// Recipients and texts whose last message was refused.
    refused: HashSet<u64>,
    /// Accepted messages, in the order of their numbers.
    entries: Vec<LogEntry>,
    /// Messages that were rejected without a response.
    rejected: Vec<LogEntry>,
    started: jiff::Timestamp,
    /// For `GET /receipts`, and for posting: of accepted and of rejected messages.
    drained: [ReceiptQueue; 2],
    posted: [ReceiptQueue; 2],
    /// Without the outages that have begun.
    config: SandboxConfig,
    outage_until: Option<Instant>,
}

/// Which messages `GET /messages` lists with their states.
pub(super) struct StatesPage {
    pub(super) id: Option<String>,
    pub(super) since: Option<jiff::Timestamp>,
    pub(super) until: Option<jiff::Timestamp>,
    /// From 1.
    pub(super) page: usize,
    pub(super) limit: usize,
}

/// Times in the last second.
#[derive(Default)]
struct LastSecond(VecDeque<Instant>);

impl LastSecond {
    /// How many times are less than a second ago.
    fn count(&mut self, now: Instant) -> usize {
        let is_old = |at: &Instant| now.duration_since(*at) >= SECOND;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.len()
    }

    fn add(&mut self, count: usize, now: Instant) {
        self.0.extend(std::iter::repeat_n(now, count));
    }
}

/// The state when a request arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The number of its first message, counted from 1, and of its last.
    pub(super) number: u64,
    pub(super) last: u64,
    /// Which HTTP request it is, counted from 1.
    pub(super) call: u64,
    pub(super) over_limit: bool,
    pub(super) outage: bool,
    /// How long the listener must close.
    pub(super) refuse: Option<Duration>,
}

impl Counters {
    pub(super) fn new(config: &SandboxConfig) -> Self {
        Self {
            hasher: RandomState::new(),
            started_at: Instant::now(),
            stats: Stats::default(),
            arrivals: LastSecond::default(),
            admitted: LastSecond::default(),
            references: HashMap::new(),
            recipients: HashSet::new(),
            texts: HashMap::new(),
            once: HashSet::new(),
            refused: HashSet::new(),
            entries: Vec::new(),
            rejected: Vec::new(),
            started: jiff::Timestamp::now(),
            drained: Default::default(),
            posted: Default::default(),
            config: config.clone(),
            outage_until: None,
        }
    }

    /// Counts a request with `count` messages. `now` must not go back from call to call.
    pub(super) fn arrive(&mut self, count: usize, now: Instant) -> Arrival {
        let number = self.stats.requests + 1;
        let last = self.stats.requests + count as u64;
        self.stats.calls += 1;
        self.stats.requests = last;
        let in_second = self.arrivals.count(now) + count;
        self.arrivals.add(count, now);
        self.stats.max_in_any_second = self.stats.max_in_any_second.max(in_second as u64);
        let limit = self.config.limit.map_or(usize::MAX, |limit| limit.get() as usize);
        let over_limit = self.admitted.count(now) + count > limit;
        if self.config.limit.is_some() && !over_limit {
            self.admitted.add(count, now);
        }
        let faults = &mut self.config.faults;
        let refuse = faults.refuse.take_if(|outage| last >= outage.after);
        if let Some(outage) = faults.outage.take_if(|outage| last >= outage.after) {
            self.outage_until = Some(now + outage.lasts);
        }
        Arrival {
            number,
            last,
            call: self.stats.calls,
            over_limit,
            outage: self.outage_until.is_some_and(|until| now < until),
            refuse: refuse.map(|outage| outage.lasts),
        }
    }

    /// Whether the message gets its fault now: the first time.
    pub(super) fn first_time(&mut self, to: &str, text: &str, reference: Option<&str>) -> bool {
        let key = match reference {
            Some(reference) => self.hasher.hash_one(reference),
            None => self.hasher.hash_one((to, text)),
        };
        self.once.insert(key)
    }

    /// Whether the message is refused now: the first time. What comes again after a refusal has another reference, so the
    /// next message to this recipient with this text is taken for it.
    pub(super) fn refuses_now(&mut self, to: &str, text: &str) -> bool {
        let key = self.hasher.hash_one((to, text));
        self.refused.insert(key) || !self.refused.remove(&key)
    }

    /// Accepts the message, unless its reference is known and honoured. Returns the number of the message, and whether
    /// it is new.
    pub(super) fn accept(
        &mut self,
        to: &str,
        text: &str,
        reference: Option<&str>,
        now: Instant,
    ) -> (u64, bool) {
        let number = self.stats.accepted + 1;
        let key = reference.map(|reference| self.hasher.hash_one(reference));
        if let Some(key) = key {
            let known = *self.references.entry(key).or_insert(number);
            if known != number && self.honours(known, now) {
                return (known, false);
            }
            self.references.insert(key, number);
        }
        self.stats.accepted = number;
        self.recipients.insert(self.hasher.hash_one(to));
        let text = self.hasher.hash_one((to, text));
        match self.texts.get(&text) {
            None => drop(self.texts.insert(text, key)),
            Some(first) if key.is_some() && *first == key => {}
            Some(_) => self.stats.repeated += 1,
        }
        let entry = self.entry(to, reference, now);
        self.entries.push(entry);
        (number, true)
    }

    /// Whether the reference of this accepted message is not accepted again.
    fn honours(&self, number: u64, now: Instant) -> bool {
        let forgets_after = self.config.faults.forget_references_after;
        let is_remembered = forgets_after.is_none_or(|span| {
            let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let accepted_at = self.entries.get(index).map_or(0, |entry| entry.at_ms);
            u128::from(self.since_start(now).saturating_sub(accepted_at)) < span.as_millis()
        });
        is_remembered && !self.config.ignore_references
    }

    /// Notes a message that is rejected without a response.
    pub(super) fn reject(&mut self, to: &str, reference: Option<&str>, now: Instant) {
        let entry = self.entry(to, reference, now);
        self.rejected.push(entry);
    }

    fn entry(&self, to: &str, reference: Option<&str>, now: Instant) -> LogEntry {
        LogEntry {
            reference: reference.map(Into::into),
            to: to.into(),
            at_ms: self.since_start(now),
        }
    }

    /// Milliseconds since the gateway started.
    fn since_start(&self, now: Instant) -> u64 {
        let at = now.duration_since(self.started_at).as_millis();
        u64::try_from(at).unwrap_or(u64::MAX)
    }

    fn date(&self, at_ms: u64) -> jiff::Timestamp {
        let span = jiff::SignedDuration::from_millis(i64::try_from(at_ms).unwrap_or(i64::MAX));
        self.started.checked_add(span).unwrap_or(self.started)
    }

    /// At most `limit` receipts that are due, each of them once; with `is_posting` those to be posted.
    pub(super) fn receipts(
        &mut self,
        is_posting: bool,
        limit: usize,
        now: Instant,
    ) -> Vec<SandboxReceipt> {
        let (now, seed) = (self.since_start(now), self.config.faults.seed);
        let faults = self.config.faults.receipts.clone();
        let queues = if is_posting { &mut self.posted } else { &mut self.drained };
        let mut queues = std::mem::take(queues);
        let planned = |is_rejected: bool, index: usize| {
            if is_rejected {
                vec![faults.rejection()]
            } else {
                faults.receipts(seed, index as u64 + 1)
            }
        };
        let mut receipts = Vec::new();
        for (queue, is_rejected) in queues.iter_mut().zip([false, true]) {
            let entries = if is_rejected { &self.rejected } else { &self.entries };
            for (index, entry) in entries.iter().enumerate().skip(queue.added) {
                queue.add(entry.at_ms, &planned(is_rejected, index));
            }
            while receipts.len() < limit {
                let Some((due, index, number)) = queue.next(now) else {
                    break;
                };
                let planned = planned(is_rejected, index)[number];
                let id = id_at(index, is_rejected);
                receipts.push(self.receipt(id, &entries[index], planned, due));
            }
        }
        if is_posting {
            self.posted = queues;
        } else {
            self.drained = queues;
        }
        receipts
    }

    fn receipt(
        &self,
        id: String,
        entry: &LogEntry,
        planned: Planned,
        at_ms: u64,
    ) -> SandboxReceipt {
        let other = |text: &str| format!("other-{text}");
        let reference = entry.reference.as_deref();
        let (id, reference) = if planned.is_foreign {
            (other(&id), reference.map(other))
        } else {
            (id, reference.map(str::to_owned))
        };
        SandboxReceipt {
            id,
            reference,
            to: entry.to.to_string(),
            state: planned.final_state.state,
            code: planned.final_state.code,
            reason: planned.final_state.reason(),
            at: format!("{:.3}", self.date(at_ms)),
            part: planned.part,
            parts: planned.part.map(|_| 2),
        }
    }

    /// The states of messages that were accepted or rejected in this span, and whether there are more.
    pub(super) fn states(&self, page: &StatesPage, now: Instant) -> (Vec<Value>, bool) {
        let now = self.since_start(now);
        // There may be millions, so that instants are compared as numbers.
        let since_start = |at: jiff::Timestamp| at.duration_since(self.started).as_millis();
        let (since, until) = (page.since.map(since_start), page.until.map(since_start));
        let lists = [(&self.entries, false), (&self.rejected, true)];
        let all = lists.into_iter().flat_map(|(entries, is_rejected)| {
            let numbered = entries.iter().enumerate();
            numbered.map(move |(index, entry)| (index, entry, is_rejected))
        });
        let is_wanted = |index: usize, entry: &LogEntry, is_rejected: bool| {
            let at = i128::from(entry.at_ms);
            since.is_none_or(|since| at >= since)
                && until.is_none_or(|until| at <= until)
                && page.id.as_ref().is_none_or(|id| *id == id_at(index, is_rejected))
        };
        let mut wanted = all
            .filter(|(index, entry, is_rejected)| is_wanted(*index, entry, *is_rejected))
            .skip(page.page.saturating_sub(1).saturating_mul(page.limit));
        let states = wanted
            .by_ref()
            .take(page.limit)
            .map(|(index, entry, is_rejected)| self.state(index, entry, is_rejected, now))
            .collect();
        (states, wanted.next().is_some())
    }

    /// A message with its state.
    fn state(&self, index: usize, entry: &LogEntry, is_rejected: bool, now: u64) -> Value {
        let number = (!is_rejected).then_some(index as u64 + 1);
        let (faults, seed) = (&self.config.faults.receipts, self.config.faults.seed);
        let (final_state, after) = match number {
            None => (Some(faults.rejection().final_state), faults.delay),
            Some(number) => (faults.final_state(seed, number), faults.known_after(seed, number)),
        };
        let known =
            entry.at_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let final_state = final_state.filter(|_| known <= now);
        json!({
            "id": id_at(index, is_rejected),
            "reference": entry.reference,
            "to": entry.to,
            "accepted_at": format!("{:.3}", self.date(entry.at_ms)),
            "state": final_state.map_or("accepted", |final_state| final_state.state),
            "code": final_state.and_then(|final_state| final_state.code),
            "reason": final_state.and_then(FinalState::reason),
            "state_at": final_state.map(|_| format!("{:.3}", self.date(known))),
        })
    }

    /// What becomes of every message in the end.
    pub(super) fn outcomes(&self) -> Vec<MessageOutcome> {
        let (faults, seed) = (&self.config.faults.receipts, self.config.faults.seed);
        let outcome = |id: String, entry: &LogEntry, state: &'static str| MessageOutcome {
            id,
            reference: entry.reference.as_deref().map(str::to_owned),
            to: entry.to.to_string(),
            state,
            contradicted: false,
        };
        let accepted = self.entries.iter().zip(1..).map(|(entry, number)| {
            let end = faults.final_state(seed, number);
            let is_other = |receipt: &Planned| {
                receipt.part.is_none()
                    && receipt.final_state.is_final()
                    && !receipt.is_foreign
                    && Some(receipt.final_state) != end
            };
            MessageOutcome {
                contradicted: faults.receipts(seed, number).iter().any(is_other),
                ..outcome(id(number), entry, end.map_or("no_report", |end| end.state))
            }
        });
        let rejected = self
            .rejected
            .iter()
            .enumerate()
            .map(|(index, entry)| outcome(id_at(index, true), entry, "rejected"));
        accepted.chain(rejected).collect()
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            distinct_references: self.references.len() as u64,
            distinct_recipients: self.recipients.len() as u64,
            receipts: self.drained.iter().map(ReceiptQueue::returned).sum(),
            receipts_posted: self.posted.iter().map(ReceiptQueue::returned).sum(),
            ..self.stats
        }
    }

    /// The first messages, or those with the reference.
    pub(super) fn messages(&self, reference: Option<&str>, limit: usize) -> Vec<AcceptedMessage> {
        let entries = self.entries.iter().zip(1..);
        let wanted = entries
            .filter(|(entry, _)| reference.is_none() || entry.reference.as_deref() == reference);
        let message = |(entry, number): (&LogEntry, u64)| AcceptedMessage {
            id: id(number),
            reference: entry.reference.as_deref().map(str::to_owned),
            to: entry.to.to_string(),
            at_ms: entry.at_ms,
        };
        wanted.take(limit).map(message).collect()
    }
}

/// The id of the accepted or rejected message with this index.
fn id_at(index: usize, is_rejected: bool) -> String {
    let number = index as u64 + 1;
    if is_rejected { format!("RJ{number:06}") } else { id(number) }
}

/// The id of the accepted message with this number.
pub(super) fn id(number: u64) -> String {
    format!("SB{number:06}")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::faults::Outage;
    use proptest::prelude::*;

    fn counters(config: &SandboxConfig) -> (Counters, Instant) {
        let counters = Counters::new(config);
        let start = counters.started_at;
        (counters, start)
    }

    #[test]
    fn known_reference_is_not_accepted_again() {
        let (mut counters, now) = counters(&SandboxConfig::default());
        assert_eq!(counters.accept("+1", "a", Some("r"), now), (1, true));
        assert_eq!(counters.accept("+1", "a", Some("r"), now), (1, false));
        let stats = counters.stats();
        assert_eq!((stats.accepted, stats.repeated), (1, 0));
    }

    #[test]
    fn every_accepted_message_has_a_receipt() {
        let (mut counters, now) = counters(&SandboxConfig::default());
        let count = 250_000;
        for number in 0..count {
            counters.accept("+1", "a", Some(&number.to_string()), now);
        }
        let receipts = counters.receipts(false, usize::MAX, now);
        assert_eq!(receipts.len(), count);
        assert_eq!(receipts[count - 1].id, "SB250000");
        assert_eq!(receipts[count - 1].reference.as_deref(), Some("249999"));
    }

    #[test]
    fn same_text_with_another_reference_is_repeated() {
        let (mut counters, now) = counters(&SandboxConfig::default());
        for reference in [Some("r"), Some("s"), None] {
            counters.accept("+1", "a", reference, now);
        }
        counters.accept("+1", "another text", Some("t"), now);
        let stats = counters.stats();
        assert_eq!((stats.accepted, stats.repeated), (4, 2));
        assert_eq!((stats.distinct_references, stats.distinct_recipients), (3, 1));
    }

    #[test]
    fn ignored_reference_is_accepted_again() {
        let (mut counters, now) =
            counters(&SandboxConfig { ignore_references: true, ..SandboxConfig::default() });
        counters.accept("+1", "a", Some("r"), now);
        counters.accept("+1", "a", Some("r"), now);
        let stats = counters.stats();
        assert_eq!((stats.accepted, stats.distinct_references, stats.repeated), (2, 1, 0));
    }

    #[test]
    fn limit_applies_to_any_second() {
        let (mut counters, start) =
            counters(&SandboxConfig { limit: NonZeroU32::new(2), ..SandboxConfig::default() });
        let over: Vec<bool> = [0, 400, 999, 1_000, 1_399, 1_400]
            .into_iter()
            .map(|at| counters.arrive(1, start + Duration::from_millis(at)).over_limit)
            .collect();
        assert_eq!(over, [false, false, true, false, true, false]);
    }

    #[test]
    fn outage_begins_after_its_message_and_ends() {
        let mut config = SandboxConfig::default();
        config.faults.outage = Outage::try_from("2 for 1s".to_owned()).ok();
        let (mut counters, start) = counters(&config);
        let out: Vec<bool> = [0, 10, 1_009, 1_010, 9_000]
            .into_iter()
            .map(|at| counters.arrive(1, start + Duration::from_millis(at)).outage)
            .collect();
        assert_eq!(out, [false, true, true, false, false]);
    }

    proptest! {
        #[test]
        fn maximum_in_any_second_is_exact(mut at in prop::collection::vec(0_u64..5_000_000, 1..200)) {
            at.sort_unstable();
            let (mut counters, start) = counters(&SandboxConfig::default());
            for micros in &at {
                counters.arrive(1, start + Duration::from_micros(*micros));
            }
            let fullest = at
                .iter()
                .map(|first| at.iter().filter(|instant| (*first..first + 1_000_000).contains(*instant)).count())
                .max();
            prop_assert_eq!(Some(usize::try_from(counters.stats().max_in_any_second).expect("small")), fullest);
        }
    }
}
