//! What became of the rows of a list, as counts.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use super::error::{DEAD, Rejection};
use super::estimate::{EstimatedCost, SegmentTotals, most_frequent_first};

/// How many duplicates are reported by line.
const MAX_REPEATS: usize = 5;

/// What became of the rows: `rows = accepted + duplicates + suppressed + rejected`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: u64,
    pub accepted: u64,
    /// Rows whose message is in the campaign already, including the unchanged ones.
    pub duplicates: u64,
    /// Rows of a file of failed or undelivered messages that were not changed.
    pub unchanged: u64,
    /// Those of them that were sent and did not arrive; `smsq retry` sends the others again.
    pub unchanged_sent: u64,
    pub suppressed: u64,
    pub rejected: u64,
    /// Rejected rows by kind of reason.
    pub reasons: BTreeMap<&'static str, u64>,
    pub rejects_file: Option<PathBuf>,
    /// The first duplicates within the file: their lines, and the lines of the rows that they repeat.
    pub repeats: Vec<(u64, u64)>,
    /// Of the accepted messages.
    pub segments: SegmentTotals,
    /// Accepted messages to numbers that rarely receive text messages: by kind, how many and the first line.
    pub non_mobile: BTreeMap<&'static str, (u64, u64)>,
    /// Of the accepted messages.
    pub cost: EstimatedCost,
}

impl Summary {
    pub(super) fn add_rejected(&mut self, rejected: &[(u64, Rejection)]) {
        self.rejected += rejected.len() as u64;
        for (_, rejection) in rejected {
            *self.reasons.entry(rejection.kind).or_default() += 1;
        }
    }

    /// Counts an accepted message to a number that rarely receives text messages.
    pub(super) fn add_non_mobile(&mut self, kind: &'static str, line: u64) {
        self.non_mobile.entry(kind).or_insert((0, line)).0 += 1;
    }

    /// Returns the number of rejected rows whose number does not exist.
    pub fn dead(&self) -> u64 {
        self.reasons.get(DEAD).copied().unwrap_or_default()
    }

    /// Returns the kinds of reasons with the number of rejected rows, most frequent first.
    pub fn frequent_reasons(&self) -> Vec<(&'static str, u64)> {
        most_frequent_first(&self.reasons)
    }

    /// Adds the counts of another list.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        self.suppressed += other.suppressed;
        self.rejected += other.rejected;
        for (kind, count) in &other.reasons {
            *self.reasons.entry(kind).or_default() += count;
        }
        self.segments.messages += other.segments.messages;
        self.segments.total += other.segments.total;
        self.segments.gsm7 += other.segments.gsm7;
        self.segments.ucs2 += other.segments.ucs2;
        self.cost.amount += other.cost.amount;
        self.cost.unpriced += other.cost.unpriced;
    }

    /// Counts a duplicate in `line`; `first` is the first row of the file with the same key.
    pub(super) fn add_duplicate(&mut self, line: u64, first: Option<u64>) {
        self.duplicates += 1;
        let room = MAX_REPEATS - self.repeats.len();
        let repeat = first.map(|first| (line, first));
        self.repeats.extend(repeat.into_iter().take(room));
    }
}

/// The keys of the rows read so far, and where each was first.
pub struct SeenKeys {
    rows: HashMap<u64, (usize, u64)>,
    max: usize,
    file: usize,
    hasher: RandomState,
}

impl SeenKeys {
    /// Remembers at most `max` keys, so that memory is bounded.
    pub(super) fn new(max: usize) -> Self {
        Self { rows: HashMap::new(), max, file: 0, hasher: RandomState::new() }
    }

    /// The rows that follow are of another file.
    pub(super) fn next_file(&mut self) {
        self.file += 1;
    }

    /// Returns whether the key is new, and the first line of the current file with it.
    pub(super) fn insert(&mut self, key: &str, line: u64) -> (bool, Option<u64>) {
        let hash = self.hasher.hash_one(key);
        if let Some((file, line)) = self.rows.get(&hash) {
            return (false, Some(*line).filter(|_| *file == self.file));
        }
        if self.rows.len() < self.max {
            self.rows.insert(hash, (self.file, line));
        }
        (true, None)
    }
}
