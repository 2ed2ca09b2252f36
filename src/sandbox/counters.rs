//! The counts of the gateway: arrivals, acceptances, references. All of them are behind one lock, so that they are
//! consistent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::SandboxConfig;

/// How many accepted messages are stored; more are only counted.
const MAX_ENTRIES: usize = 200_000;

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
    entries: Vec<AcceptedMessage>,
    /// Without the outages that have begun.
    config: SandboxConfig,
    outage_until: Option<Instant>,
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
            entries: Vec::new(),
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
        let limit = self
            .config
            .limit
            .map_or(usize::MAX, |limit| limit.get() as usize);
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

    /// Whether this is the first time that the message gets a fault.
    pub(super) fn first_time(&mut self, to: &str, text: &str, reference: Option<&str>) -> bool {
        let key = match reference {
            Some(reference) => self.hasher.hash_one(reference),
            None => self.hasher.hash_one((to, text)),
        };
        self.once.insert(key)
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
            if known != number && !self.config.ignore_references {
                return (known, false);
            }
        }
        self.stats.accepted = number;
        self.recipients.insert(self.hasher.hash_one(to));
        let text = self.hasher.hash_one((to, text));
        match self.texts.get(&text) {
            None => drop(self.texts.insert(text, key)),
            Some(first) if key.is_some() && *first == key => {}
            Some(_) => self.stats.repeated += 1,
        }
        if self.entries.len() < MAX_ENTRIES {
            let at = now.duration_since(self.started_at).as_millis();
            self.entries.push(AcceptedMessage {
                id: id(number),
                reference: reference.map(str::to_owned),
                to: to.to_owned(),
                at_ms: u64::try_from(at).unwrap_or(u64::MAX),
            });
        }
        (number, true)
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            distinct_references: self.references.len() as u64,
            distinct_recipients: self.recipients.len() as u64,
            ..self.stats
        }
    }

    /// The first messages, or those with the reference.
    pub(super) fn messages(&self, reference: Option<&str>, limit: usize) -> Vec<AcceptedMessage> {
        let is_wanted = |entry: &&AcceptedMessage| {
            reference.is_none() || entry.reference.as_deref() == reference
        };
        let entries = self.entries.iter().filter(is_wanted);
        entries.take(limit).cloned().collect()
    }
}

/// The id of the accepted message with this number.
pub(super) fn id(number: u64) -> String {
    format!("SB{number:06}")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::sandbox::Outage;
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
    fn same_text_with_another_reference_is_repeated() {
        let (mut counters, now) = counters(&SandboxConfig::default());
        for reference in [Some("r"), Some("s"), None] {
            counters.accept("+1", "a", reference, now);
        }
        counters.accept("+1", "another text", Some("t"), now);
        let stats = counters.stats();
        assert_eq!((stats.accepted, stats.repeated), (4, 2));
        assert_eq!(
            (stats.distinct_references, stats.distinct_recipients),
            (3, 1)
        );
    }

    #[test]
    fn ignored_reference_is_accepted_again() {
        let (mut counters, now) = counters(&SandboxConfig {
            ignore_references: true,
            ..SandboxConfig::default()
        });
        counters.accept("+1", "a", Some("r"), now);
        counters.accept("+1", "a", Some("r"), now);
        let stats = counters.stats();
        assert_eq!(
            (stats.accepted, stats.distinct_references, stats.repeated),
            (2, 1, 0)
        );
    }

    #[test]
    fn limit_applies_to_any_second() {
        let (mut counters, start) = counters(&SandboxConfig {
            limit: NonZeroU32::new(2),
            ..SandboxConfig::default()
        });
        let over: Vec<bool> = [0, 400, 999, 1_000, 1_399, 1_400]
            .into_iter()
            .map(|at| {
                counters
                    .arrive(1, start + Duration::from_millis(at))
                    .over_limit
            })
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
                .map(|first| at.iter().filter(|it| (*first..first + 1_000_000).contains(*it)).count())
                .max();
            prop_assert_eq!(Some(usize::try_from(counters.stats().max_in_any_second).expect("small")), fullest);
        }
    }
}
