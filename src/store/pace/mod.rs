//! The shared limit. Every message gets a moment at which it may start, and the moments are spaced so
//! that no sliding window ever holds more than the limit, whoever sends and however often it restarts.
//! Pure arithmetic over one row of table `pace`, in microseconds of the database's clock.
//!
//! A worker knows that clock with an error. It starts a request when its own clock shows the middle of
//! the moment's *reach*, give or take what the error leaves of it; so the true start lies within the
//! reach of the moment, whatever the error was. Moments are spaced for the widest reach in use, and so
//! the starts of workers whose clocks differ never share a window with one too many. Where one worker has
//! had all moments of a window to itself, its error is the same for all of them and does not count: they
//! are spaced for the grace alone, however far away the database is.

pub(super) mod allotment;
mod buckets;
pub(super) mod declared;
mod memory;

use std::time::Duration;

use super::queue::Stop;
use crate::rate::Rate;
use buckets::bucket_us;
use memory::{Last, Memory, Turn};

/// Between the first and the last instant at which a request may start lies no more than this.
pub const GRACE: Duration = Duration::from_millis(10);
/// How far past the commit moments are given out.
pub const HORIZON: Duration = Duration::from_millis(50);
/// A worker works off an error of its clock by no more than this part of the time that passes. All
/// spaces are wider by as much.
pub const SLEWED: i64 = 500;
/// No worker asks for moments further ahead.
pub const FURTHEST: Duration = Duration::from_secs(10);

/// One call costs at most this part of a limit, unless it is one message. No window may hold the limit and a
/// call more, so that much of it is lost; what the grace takes comes to a little more than one percent.
const CALL_PART: u32 = 40;

/// Windows from here up are counted in buckets, shorter ones are kept by spacing alone.
pub const BUCKETED: Duration = Duration::from_secs(3_600);

/// One row of table `pace`: the limit of a provider's account or of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    pub(super) next_us: i64,
    pub(super) cost_max: i32,
    pub(super) stopped_until: i64,
    /// What the provider said when it asked for that.
    pub(super) stop_reason: Option<String>,
    memory: Memory,
    limits: Vec<Rate>,
    spacing_us: i64,
    /// What the spaces are wide enough for.
    grace_us: i64,
    /// The space that a change of worker takes, beside the usual one.
    change_us: i64,
    taker: Taker,
}

/// Who takes moments now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taker {
    worker_id: i64,
    reach_us: i64,
    is_alone: bool,
}

/// The row of a provider's account.
pub(super) fn provider_scope(provider: &str) -> String {
    format!("provider/{provider}")
}

/// The provider of such a row.
pub(super) fn provider_of(scope: &str) -> &str {
    scope.strip_prefix("provider/").unwrap_or(scope)
}

/// The row of a campaign.
pub(super) fn campaign_scope(campaign_id: i64) -> String {
    format!("campaign/{campaign_id}")
}

/// `next_us, cost_max, buckets, stopped_until, stop_reason`.
pub(super) type Columns = (i64, i32, String, i64, Option<String>);

impl Pace {
    /// The row's columns, `scope` left out, in the order of the table.
    pub(super) fn of((next_us, cost_max, buckets, stopped_until, stop_reason): Columns) -> Self {
        Self {
            next_us,
            cost_max,
            stopped_until,
            stop_reason,
            ..Self::default()
        }
        .with_buckets_json(&buckets)
    }

    /// The counts of its long windows and what else it remembers, as column `buckets` keeps it.
    pub(super) fn buckets_json(&self) -> String {
        serde_json::to_string(&self.memory).unwrap_or_else(|_| "{}".to_owned())
    }

    /// An unreadable memory is taken as none.
    pub(super) fn with_buckets_json(mut self, json: &str) -> Self {
        self.memory = serde_json::from_str(json).unwrap_or_default();
        self
    }

    /// Takes up the row under the limits that hold for all workers. A request of this worker starts
    /// within `reach` of its moment.
    pub fn begin(&mut self, limits: &[Rate], worker_id: i64, now_us: i64, reach: Duration) {
        self.memory.forget(now_us);
        self.limits = limits.to_vec();
        let longest = self.longest_window();
        let idle = self.next_us.saturating_add(longest) < now_us;
        if self.cost_max < 1 || idle {
            self.cost_max = 1;
        }
        self.space(worker_id, micros(reach), now_us);
        self.spacing_us = self.spacing(self.cost_max, self.grace_us);
        self.loosen();
        // A clock that was set back must not hold everybody up until it has caught up.
        let furthest = now_us
            .saturating_add(longest.max(self.spacing_us.saturating_mul(i64::from(self.cost_max))))
            .saturating_add(self.grace_us + micros(FURTHEST));
        self.next_us = self.next_us.min(furthest);
    }

    /// Under a wider limit than that of the last moment, the next one may be earlier.
    fn loosen(&mut self) {
        let Some(last) = self.memory.last else { return };
        if self.limit_spacing() < last.spacing_us {
            let widest_us = self.taker.reach_us.max(self.memory.furthest_reach());
            let spacing = self.spacing(self.cost_max, widest_us);
            let next_us = spacing.saturating_mul(i64::from(last.cost.max(1)));
            self.next_us = self.next_us.min(last.at_us.saturating_add(next_us));
        }
    }

    /// What the limits alone want between two messages of cost 1, whoever sends.
    fn limit_spacing(&self) -> i64 {
        self.spacing(1, micros(GRACE))
    }

    /// How wide the spaces must be for this worker now, and how much more where it follows another.
    fn space(&mut self, worker_id: i64, reach_us: i64, now_us: i64) {
        let reach_us = reach_us.max(micros(GRACE));
        let widest_us = reach_us.max(self.memory.furthest_reach());
        let turn = self.memory.turn;
        let same = turn.filter(|turn| turn.worker_id == worker_id && turn.reach_us == reach_us);
        let settled_us = self.longest_window().saturating_add(widest_us);
        let is_alone = same.is_some_and(|turn| turn.since_us.saturating_add(settled_us) < now_us);
        self.grace_us = if is_alone { micros(GRACE) } else { widest_us };
        self.change_us = match (turn, same) {
            // What the other took was spaced for itself alone.
            (Some(turn), None) if turn.is_alone => widest_us - micros(GRACE),
            _ => 0,
        };
        self.taker = Taker {
            worker_id,
            reach_us,
            is_alone,
        };
    }

    /// Whether there is anything to keep; without, every message may start at once.
    pub fn is_limited(&self) -> bool {
        self.spacing_us > 0 || !self.limits.is_empty()
    }

    /// The dearest message of late: what the next one will cost, at a guess.
    pub fn usual_cost(&self) -> i32 {
        self.cost_max.max(1)
    }

    /// What may start at one moment with hardly any of the limit lost, unless it is one message.
    pub fn call_cost(&self) -> i32 {
        call_cost(&self.limits)
    }

    /// Nothing may start before `until`; a later end that is known already stays.
    pub(super) fn stop(&mut self, stop: &Stop) {
        let until = stop.until.as_millis();
        if until > self.stopped_until {
            self.stopped_until = until;
            self.stop_reason = Some(stop.reason.clone());
        }
    }

    /// The first moment, at or after `from_us`, at which a message of `cost` may start.
    pub fn earliest(&self, cost: i32, from_us: i64) -> i64 {
        let mut moment = from_us.max(self.stopped_until.saturating_mul(1_000));
        if self.spacing_us > 0 {
            let dearer = i64::from((cost - self.cost_max).max(0));
            let spacing = self.spacing_for(cost.max(self.cost_max));
            let next_us = self.next_us.saturating_add(self.change_us);
            moment = moment.max(next_us.saturating_add(dearer.saturating_mul(spacing)));
        }
        for rate in self.long_windows() {
            if let Some(buckets) = self.memory.windows.get(&rate.window.as_secs()) {
                moment = moment.max(buckets.earliest(*rate, cost, moment));
            }
        }
        moment
    }

    /// Spends the moment on a message of `cost`.
    pub fn take(&mut self, cost: i32, moment_us: i64) {
        self.cost_max = self.cost_max.max(cost);
        self.spacing_us = self.spacing_for(self.cost_max);
        self.next_us =
            moment_us.saturating_add(self.spacing_us.saturating_mul(i64::from(cost.max(1))));
        self.note_taken(moment_us);
        self.memory.last = (self.spacing_us > 0).then(|| Last {
            at_us: moment_us,
            cost,
            spacing_us: self.limit_spacing(),
        });
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            let buckets = self.memory.windows.entry(rate.window.as_secs());
            buckets.or_default().count(rate, cost, moment_us);
        }
    }

    /// Takes back a moment at which nothing started. Where somebody has a later moment already, the
    /// short windows stay as they are: that one was spaced from this.
    pub fn give_back(&mut self, cost: i32, moment_us: i64) {
        let spacing = self.spacing_us.saturating_mul(i64::from(cost.max(1)));
        if self.next_us == moment_us.saturating_add(spacing) {
            self.next_us = moment_us;
            self.memory.last = None;
        }
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if let Some(buckets) = self.memory.windows.get_mut(&rate.window.as_secs()) {
                buckets.discount(rate, cost, moment_us);
            }
        }
    }

    /// Takes every window as full from now: the clock jumped, and nobody knows what they hold.
    pub fn refill(&mut self, now_us: i64) {
        let longest = self.longest_window();
        self.next_us = now_us.saturating_add(longest).saturating_add(self.grace_us);
        self.memory.last = None;
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if let Some(buckets) = self.memory.windows.get_mut(&rate.window.as_secs()) {
                buckets.gather(now_us.div_euclid(bucket_us(rate)));
            }
        }
    }

    fn note_taken(&mut self, moment_us: i64) {
        let longest = self.longest_window();
        if longest == 0 {
            return;
        }
        let Taker {
            worker_id,
            reach_us,
            is_alone,
        } = self.taker;
        // So long it may share a window with what comes after it.
        let until_us = moment_us.saturating_add(longest + 2 * reach_us);
        self.memory.note_reach(reach_us, until_us);
        let same = |turn: &Turn| turn.worker_id == worker_id && turn.reach_us == reach_us;
        let turn = self.memory.turn.filter(same);
        self.memory.turn = Some(Turn {
            worker_id,
            reach_us,
            since_us: turn.map_or(moment_us, |turn| turn.since_us),
            is_alone,
        });
        self.change_us = 0;
    }

    /// The longest window that is kept by spacing, with room for a clock that is being corrected.
    fn longest_window(&self) -> i64 {
        let windows = self.short_windows().map(window_us);
        windows
            .max()
            .map_or(0, |longest| longest + longest / SLEWED)
    }

    fn short_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window < BUCKETED)
    }

    fn long_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window >= BUCKETED)
    }

    fn spacing(&self, cost_max: i32, grace_us: i64) -> i64 {
        self.short_windows()
            .map(|rate| spacing_us(*rate, cost_max, grace_us))
            .max()
            .unwrap_or(0)
    }

    fn spacing_for(&self, cost_max: i32) -> i64 {
        self.spacing_us.max(self.spacing(cost_max, self.grace_us))
    }
}

/// What one call may cost under these limits.
pub fn call_cost(limits: &[Rate]) -> i32 {
    let parts = limits.iter().map(|rate| rate.limit.get() / CALL_PART);
    let least = parts.min().unwrap_or(u32::MAX).max(1);
    i32::try_from(least).unwrap_or(i32::MAX)
}

/// The distance between two messages of cost 1, so that any `N` costs in a row span more than a window
/// and a grace. A dear message counts whole in the window that it opens, hence the `cost_max`.
fn spacing_us(rate: Rate, cost_max: i32, grace_us: i64) -> i64 {
    let limit = i64::from(rate.limit.get());
    let room = (limit + 1 - i64::from(cost_max)).max(1);
    let span = window_us(&rate) + window_us(&rate) / SLEWED + grace_us;
    (span + room - 1) / room
}

fn window_us(rate: &Rate) -> i64 {
    micros(rate.window)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod workers_tests;
