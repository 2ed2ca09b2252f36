//! What became of the rows of a list, as counts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::estimate::{Cost, SegmentTotals};
use super::rejection::Rejection;

/// How many duplicates are reported by line.
pub(super) const MAX_REPEATS: usize = 5;

/// What became of the rows: `rows = accepted + duplicates + suppressed + rejected`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: u64,
    pub accepted: u64,
    /// Rows whose message is in the campaign already, including the unchanged ones.
    pub duplicates: u64,
    /// Rows of a failures file that were not changed: `smsq retry` sends these again.
    pub unchanged: u64,
    pub suppressed: u64,
    pub rejected: u64,
    pub reasons: RejectionCounts,
    pub rejects_file: Option<PathBuf>,
    /// The first duplicates.
    pub repeats: Vec<Repeat>,
    /// Of the accepted messages.
    pub segments: SegmentTotals,
    /// Of the accepted messages.
    pub non_mobile: NonMobileCounts,
    /// Of the accepted messages.
    pub cost: Cost,
}

/// Rejected rows by kind of reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectionCounts(BTreeMap<&'static str, u64>);

impl RejectionCounts {
    pub(super) fn add(&mut self, rejected: &[(u64, Rejection)]) {
        for (_, rejection) in rejected {
            *self.0.entry(rejection.kind).or_default() += 1;
        }
    }

    /// Returns the sum of several counts.
    pub fn sum<'r>(all: impl Iterator<Item = &'r Self>) -> Self {
        let mut sum = Self::default();
        for (kind, count) in all.flat_map(|one| &one.0) {
            *sum.0.entry(kind).or_default() += count;
        }
        sum
    }

    /// Returns kind and count, most frequent first.
    pub fn sorted(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(kind, count)| (*kind, *count)).collect();
        all.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
        all
    }
}

/// Numbers that rarely receive text messages: by kind, how many and the line of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonMobileCounts(BTreeMap<&'static str, (u64, u64)>);

impl NonMobileCounts {
    pub(super) fn add(&mut self, kind: &'static str, line: u64) {
        self.0.entry(kind).or_insert((0, line)).0 += 1;
    }

    /// Returns kind, count and first line.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        let all = self.0.iter();
        all.map(|(kind, (count, line))| (*kind, *count, *line))
    }
}

/// A row whose message exists already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub line: u64,
    /// The first row of the file with the same key; `None` if an earlier import had it.
    pub first: Option<u64>,
}
