//! What the gateway has seen: arrivals, acceptances, references. Everything that is counted is counted here,
//! under one lock, so that the figures of one moment fit together.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Behaviour;
use super::faults::Away;

/// The most accepted messages that are kept one by one; beyond, they are only counted.
const KEPT: usize = 200_000;

const SECOND: Duration = Duration::from_secs(1);

/// The figures of `GET /stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Orders that came, whatever became of them.
    pub requests: u64,
    /// Messages that a real gateway would have sent.
    pub accepted: u64,
    pub distinct_references: u64,
    pub distinct_recipients: u64,
    /// Acceptances of a recipient and text that were accepted before, under another reference or none.
    pub repeated: u64,
    /// The most orders in any window of 1000 ms, by arrival.
    pub max_in_any_second: u64,
    /// HTTP requests that the orders came in: fewer, where several came in a list.
    pub calls: u64,
}

/// One accepted message of `GET /messages`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub id: String,
    pub reference: Option<String>,
    pub to: String,
    /// Milliseconds since the gateway started.
    pub at_ms: u64,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .field("reference", &self.reference)
            .field("to", &crate::phone::mask(&self.to))
            .field("at_ms", &self.at_ms)
            .finish()
    }
}

/// The counts behind the figures. Hashes of 64 bits stand for the texts, so that memory stays small.
#[derive(Debug)]
pub(super) struct Ledger {
    hasher: RandomState,
    started_at: Instant,
    stats: Stats,
    arrivals: Window,
    admitted: Window,
    limit: Option<NonZeroU32>,
    honour_references: bool,
    /// Reference to the number of its message.
    references: HashMap<u64, u64>,
    recipients: HashSet<u64>,
    /// Recipient and text to the reference of their first acceptance.
    texts: HashMap<u64, Option<u64>>,
    /// Whose fault happened already.
    once: HashSet<u64>,
    entries: Vec<Entry>,
    refuse: Option<Away>,
    outage: Option<Away>,
    outage_until: Option<Instant>,
}

/// Arrivals of the last second.
#[derive(Debug, Default)]
struct Window(VecDeque<Instant>);

impl Window {
    fn drop_before(&mut self, now: Instant) {
        while self
            .0
            .front()
            .is_some_and(|first| now.duration_since(*first) >= SECOND)
        {
            self.0.pop_front();
        }
    }
}

/// What a request finds when it arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Of its first order, counted from 1, and of its last.
    pub(super) number: u64,
    pub(super) last: u64,
    /// Which HTTP request it is, counted from 1.
    pub(super) call: u64,
    pub(super) over_limit: bool,
    pub(super) outage: bool,
    /// The listener is to close for so long.
    pub(super) refuse: Option<Duration>,
}

/// What became of an order that is fit to be accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Registered {
    New(u64),
    /// The reference is known.
    Known(u64),
}

impl Ledger {
    pub(super) fn new(behaviour: &Behaviour) -> Self {
        Self {
            hasher: RandomState::new(),
            started_at: Instant::now(),
            stats: Stats::default(),
            arrivals: Window::default(),
            admitted: Window::default(),
            limit: behaviour.limit,
            honour_references: behaviour.honour_references,
            references: HashMap::new(),
            recipients: HashSet::new(),
            texts: HashMap::new(),
            once: HashSet::new(),
            entries: Vec::new(),
            refuse: behaviour.faults.refuse,
            outage: behaviour.faults.outage,
            outage_until: None,
        }
    }

    /// Counts a request with so many orders. `now` must not go back from call to call.
    pub(super) fn arrive(&mut self, count: usize, now: Instant) -> Arrival {
        let number = self.stats.requests + 1;
        self.stats.calls += 1;
        self.stats.requests += count as u64;
        self.arrivals.drop_before(now);
        self.arrivals.0.extend(std::iter::repeat_n(now, count));
        let in_second = u64::try_from(self.arrivals.0.len()).unwrap_or(u64::MAX);
        self.stats.max_in_any_second = self.stats.max_in_any_second.max(in_second);
        let last = self.stats.requests;
        let refuse = self.refuse.take_if(|away| last >= away.after);
        if let Some(away) = self.outage.take_if(|away| last >= away.after) {
            self.outage_until = Some(now + away.lasts);
        }
        Arrival {
            number,
            last,
            call: self.stats.calls,
            over_limit: self.is_over_limit(count, now),
            outage: self.outage_until.is_some_and(|until| now < until),
            refuse: refuse.map(|away| away.lasts),
        }
    }

    fn is_over_limit(&mut self, count: usize, now: Instant) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        self.admitted.drop_before(now);
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
        let over = self.admitted.0.len() + count > limit;
        if !over {
            self.admitted.0.extend(std::iter::repeat_n(now, count));
        }
        over
    }

    /// Whether this is the first time that a fault befalls the message.
    pub(super) fn first_time(&mut self, to: &str, text: &str, reference: Option<&str>) -> bool {
        let key = match reference {
            Some(reference) => self.hasher.hash_one(reference),
            None => self.hasher.hash_one((to, text)),
        };
        self.once.insert(key)
    }

    /// Takes the message, unless it honours its reference.
    pub(super) fn accept(
        &mut self,
        to: &str,
        text: &str,
        reference: Option<&str>,
        now: Instant,
    ) -> Registered {
        let number = self.stats.accepted + 1;
        let key = reference.map(|reference| self.hasher.hash_one(reference));
        if let Some(key) = key {
            match self.references.entry(key) {
                Slot::Occupied(known) if self.honour_references => {
                    return Registered::Known(*known.get());
                }
                Slot::Occupied(_) => {}
                Slot::Vacant(slot) => {
                    slot.insert(number);
                    self.stats.distinct_references += 1;
                }
            }
        }
        self.stats.accepted = number;
        if self.recipients.insert(self.hasher.hash_one(to)) {
            self.stats.distinct_recipients += 1;
        }
        match self.texts.entry(self.hasher.hash_one((to, text))) {
            Slot::Vacant(slot) => {
                slot.insert(key);
            }
            Slot::Occupied(first) => {
                if key.is_none() || *first.get() != key {
                    self.stats.repeated += 1;
                }
            }
        }
        if self.entries.len() < KEPT {
            let at = now.duration_since(self.started_at).as_millis();
            self.entries.push(Entry {
                id: id(number),
                reference: reference.map(str::to_owned),
                to: to.to_owned(),
                at_ms: u64::try_from(at).unwrap_or(u64::MAX),
            });
        }
        Registered::New(number)
    }

    pub(super) fn stats(&self) -> Stats {
        self.stats
    }

    /// All, or those with the reference.
    pub(super) fn messages(
        &self,
        after: usize,
        limit: usize,
        reference: Option<&str>,
    ) -> Vec<Entry> {
        self.entries
            .iter()
            .filter(|entry| reference.is_none() || entry.reference.as_deref() == reference)
            .skip(after)
            .take(limit)
            .cloned()
            .collect()
    }
}

/// The id of the so many-th accepted message.
pub(super) fn id(number: u64) -> String {
    format!("SB{number:06}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ledger(behaviour: &Behaviour) -> (Ledger, Instant) {
        let ledger = Ledger::new(behaviour);
        let start = ledger.started_at;
        (ledger, start)
    }

    #[test]
    fn a_known_reference_is_not_accepted_again() {
        let (mut ledger, now) = ledger(&Behaviour::default());
        assert_eq!(ledger.accept("+1", "a", Some("r"), now), Registered::New(1));
        assert_eq!(
            ledger.accept("+1", "a", Some("r"), now),
            Registered::Known(1)
        );
        let stats = ledger.stats();
        assert_eq!((stats.accepted, stats.repeated), (1, 0));
    }

    #[test]
    fn the_same_text_under_another_reference_is_repeated() {
        let (mut ledger, now) = ledger(&Behaviour::default());
        for reference in [Some("r"), Some("s"), None] {
            ledger.accept("+1", "a", reference, now);
        }
        ledger.accept("+1", "another text", Some("t"), now);
        let stats = ledger.stats();
        assert_eq!((stats.accepted, stats.repeated), (4, 2));
        assert_eq!(
            (stats.distinct_references, stats.distinct_recipients),
            (3, 1)
        );
    }

    #[test]
    fn a_reference_that_is_not_honoured_shows_as_accepted_more_often() {
        let (mut ledger, now) = ledger(&Behaviour {
            honour_references: false,
            ..Behaviour::default()
        });
        ledger.accept("+1", "a", Some("r"), now);
        ledger.accept("+1", "a", Some("r"), now);
        let stats = ledger.stats();
        assert_eq!(
            (stats.accepted, stats.distinct_references, stats.repeated),
            (2, 1, 0)
        );
    }

    #[test]
    fn the_limit_admits_so_many_in_any_second() {
        let (mut ledger, start) = ledger(&Behaviour {
            limit: NonZeroU32::new(2),
            ..Behaviour::default()
        });
        let over: Vec<bool> = [0, 400, 999, 1_000, 1_399, 1_400]
            .into_iter()
            .map(|at| {
                ledger
                    .arrive(1, start + Duration::from_millis(at))
                    .over_limit
            })
            .collect();
        assert_eq!(over, [false, false, true, false, true, false]);
    }

    #[test]
    fn an_outage_begins_after_so_many_requests_and_ends() {
        let mut behaviour = Behaviour::default();
        behaviour.faults.outage = "2 for 1s".parse().ok();
        let (mut ledger, start) = ledger(&behaviour);
        let out: Vec<bool> = [0, 10, 1_009, 1_010, 9_000]
            .into_iter()
            .map(|at| ledger.arrive(1, start + Duration::from_millis(at)).outage)
            .collect();
        assert_eq!(out, [false, true, true, false, false]);
    }

    proptest! {
        #[test]
        fn the_fullest_second_is_exact(mut at in prop::collection::vec(0_u64..5_000_000, 1..200)) {
            at.sort_unstable();
            let (mut ledger, start) = ledger(&Behaviour::default());
            for micros in &at {
                ledger.arrive(1, start + Duration::from_micros(*micros));
            }
            let fullest = at
                .iter()
                .map(|first| at.iter().filter(|it| (*first..first + 1_000_000).contains(*it)).count())
                .max();
            prop_assert_eq!(Some(usize::try_from(ledger.stats().max_in_any_second).expect("small")), fullest);
        }
    }
}
