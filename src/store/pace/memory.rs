//! What a limit's row remembers beside its next moment, as JSON: the counts of its long windows, and what
//! its workers have said of themselves. All of it lapses, so nobody has to tidy up after the dead.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::buckets::Buckets;

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
    pub(super) last: Option<Last>,
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

/// The last moment that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) at_us: i64,
    pub(super) cost: i32,
    /// What the limits of then wanted between two messages of cost 1.
    pub(super) spacing_us: i64,
}

impl Memory {
    /// Drops what has lapsed.
    pub(super) fn forget(&mut self, now_us: i64) {
        self.reaches.retain(|_, until_us| *until_us > now_us);
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
}
