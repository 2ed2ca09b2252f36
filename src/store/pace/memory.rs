//! What a limit's row remembers beside its next moment, as JSON: the counts of its long windows, and what
//! its workers have said of themselves. All of it lapses, so nobody has to tidy up after the dead.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::buckets::Buckets;
use crate::rate::Rate;

/// Instants in microseconds of the database's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    /// By the length of the window in seconds.
    pub(super) windows: BTreeMap<u64, Buckets>,
    /// How far past its moment a message may have started, and until when that matters.
    reaches: BTreeMap<i64, i64>,
    /// Who took the last moment.
    pub(super) turn: Option<Turn>,
    /// The long limits that workers go by.
    words: BTreeMap<i64, Word>,
}

/// A run of moments that one worker took, with nobody between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) worker_id: i64,
    pub(super) reach_us: i64,
    pub(super) since_us: i64,
    /// The last moment was spaced for this worker alone.
    pub(super) is_alone: bool,
}

/// What a worker holds for the limit; others go by it too while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Word {
    until_us: i64,
    /// Limits, each with its window in seconds.
    limits: Vec<(NonZeroU32, u64)>,
}

impl Memory {
    /// Drops what has lapsed.
    pub(super) fn forget(&mut self, now_us: i64) {
        self.reaches.retain(|_, until_us| *until_us > now_us);
        self.words.retain(|_, word| word.until_us > now_us);
    }

    /// Notes that a message may start so far past its moment, which matters until a moment.
    pub(super) fn note_reach(&mut self, reach_us: i64, until_us: i64) {
        let until = self.reaches.entry(reach_us).or_default();
        *until = until_us.max(*until);
    }

    /// The furthest that any message of late may have started past its moment.
    pub(super) fn furthest_reach(&self) -> i64 {
        self.reaches.keys().next_back().copied().unwrap_or(0)
    }

    /// Notes the long limits that a worker goes by; returns the smallest that anybody does, by window.
    pub(super) fn agree(&mut self, worker_id: i64, own: &[Rate], until_us: i64) -> Vec<Rate> {
        self.words.remove(&worker_id);
        let mut smallest: BTreeMap<u64, NonZeroU32> = BTreeMap::new();
        let limits: Vec<(NonZeroU32, u64)> = own
            .iter()
            .map(|rate| (rate.limit, rate.window.as_secs()))
            .collect();
        let others = self.words.values().flat_map(|word| &word.limits);
        for (limit, seconds) in others.chain(&limits) {
            let least = smallest.entry(*seconds).or_insert(*limit);
            *least = (*least).min(*limit);
        }
        if !limits.is_empty() {
            self.words.insert(worker_id, Word { until_us, limits });
        }
        smallest
            .into_iter()
            .map(|(seconds, limit)| Rate {
                limit,
                window: Duration::from_secs(seconds),
            })
            .collect()
    }
}
