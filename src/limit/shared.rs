//! A limit that all workers share: one row of the database. Each request gets an instant at which it may start. These
//! instants are spaced so that no sliding window has more starts than the limit, also across workers and restarts.
//!
//! A worker knows the database's clock with an error. It starts a request when its own clock shows the middle of the
//! *tolerance* after the permitted instant, so the true start is within the tolerance for any error. Instants are
//! spaced for the widest tolerance in use, so that workers with different clocks do not exceed a window. All starts of
//! one worker have the same error, so if a worker has been the only user for a whole window, its instants are spaced
//! only for the spread of its starts by its own clock.

use smsq_message::defect::Defect;
use smsq_message::instant::{DbMicros, micros};
use smsq_message::rate::Rate;
use smsq_message::sms::Timestamp;

use super::long_window::bucket_us;
use super::state::{LastPermit, LimitState, Usage};
use super::{
    LONG_WINDOW, MAX_LOOK_AHEAD, MIN_TOLERANCE, SLEW_DIVISOR, Tolerance, max_request_cost,
};

/// The limit of a provider's account or of a campaign. Instants are in microseconds.
///
/// Counting starts in a sliding window needs every start, of all workers, and workers know the time with an error. A row
/// that has only the next permitted instant needs neither: each permit moves it by a spacing that is wide enough for
/// any window and any error. The price is a part of the limit: the tolerance, once in each window. A worker
/// that is the only user for a window gets it back, because its starts all have the same error: with a database 50 ms
/// away that is the difference between 94 % and 98 % of a limit per second. Windows of an hour or more are counted, so
/// that they can be used as fast as the shorter ones allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLimit {
    next_us: i64,
    max_cost: i32,
    /// In milliseconds.
    paused_until: i64,
    /// Why the provider asked for the pause.
    pause_reason: Option<String>,
    state: LimitState,
    /// The stored state, if it cannot be read.
    unreadable: Option<String>,
    limits: Vec<Rate>,
    spacing_us: i64,
    /// The tolerance that is part of the spacing.
    tolerance_us: i64,
    /// Additional space if another worker had the last permit.
    handover_us: i64,
    /// `next_us` of the row if it is implausibly late: the database's clock was set back.
    stale_next_us: Option<i64>,
    user: User,
}

/// The worker that takes permits now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct User {
    worker_id: i64,
    tolerance_us: i64,
    is_alone: bool,
}

/// `next_us, cost_max, buckets, stopped_until, stop_reason` of a row.
type SharedLimitRow = (i64, i32, String, i64, Option<String>);

impl SharedLimit {
    pub fn from_row(row: SharedLimitRow) -> Self {
        let (next_us, max_cost, state, paused_until, pause_reason) = row;
        Self {
            next_us,
            max_cost,
            paused_until,
            pause_reason,
            state: serde_json::from_str(&state).unwrap_or_default(),
            unreadable: serde_json::from_str::<LimitState>(&state).is_err().then_some(state),
            ..Self::default()
        }
    }

    /// Whether it is not known what was used of it. It must be filled after it has begun.
    pub fn is_unreadable(&self) -> bool {
        self.unreadable.is_some()
    }

    pub fn to_row(&self) -> SharedLimitRow {
        let state = || serde_json::to_string(&self.state).unwrap_or_else(|_| "{}".to_owned());
        let state = self.unreadable.clone().unwrap_or_else(state);
        let reason = self.pause_reason.clone();
        (self.next_us, self.max_cost, state, self.paused_until, reason)
    }

    /// Applies the limits that all workers agreed on. A request of this worker starts within
    /// `tolerance` of its permitted instant.
    pub fn begin(&mut self, limits: &[Rate], worker_id: i64, now: DbMicros, tolerance: Tolerance) {
        let now_us = now.as_micros();
        self.state.prune(now_us);
        self.limits = limits.to_vec();
        let longest = self.longest_window();
        let is_idle = self.next_us.saturating_add(longest) < now_us;
        if self.max_cost < 1 || is_idle {
            self.max_cost = 1;
        }
        self.set_tolerance(worker_id, tolerance, now_us);
        self.spacing_us = self.spacing(self.max_cost, self.tolerance_us);
        self.apply_wider_limit();
        // If the clock was set back, workers do not wait until it has caught up.
        let furthest = now_us
            .saturating_add(longest.max(self.spacing_us.saturating_mul(i64::from(self.max_cost))))
            .saturating_add(self.tolerance_us + micros(MAX_LOOK_AHEAD));
        self.stale_next_us = (self.next_us > furthest).then_some(self.next_us);
        self.next_us = self.next_us.min(furthest);
        if (now_us..furthest).contains(&self.state.full_until_us) {
            self.next_us = self.next_us.max(self.state.full_until_us);
        }
    }

    /// Permits an earlier start if the limit is wider than at the last permit.
    fn apply_wider_limit(&mut self) {
        let Some(last) = self.state.last else { return };
        if self.unit_spacing() < last.spacing_us {
            let widest_us = self.user.tolerance_us.max(self.state.widest_tolerance());
            let spacing = self.spacing(self.max_cost, widest_us);
            let next_us = spacing.saturating_mul(i64::from(last.cost.max(1)));
            self.next_us = self.next_us.min(last.at_us.saturating_add(next_us));
        }
    }

    /// The space after a message of cost 1, for the smallest tolerance.
    fn unit_spacing(&self) -> i64 {
        self.spacing(1, micros(MIN_TOLERANCE))
    }

    fn set_tolerance(&mut self, worker_id: i64, tolerance: Tolerance, now_us: i64) {
        let tolerance_us = micros(tolerance.total.max(MIN_TOLERANCE));
        let widest_us = tolerance_us.max(self.state.widest_tolerance());
        let last = self.state.usage;
        let same = last.filter(|usage| usage.is_of(worker_id, tolerance_us));
        let alone_after = self.longest_window().saturating_add(widest_us);
        let is_alone =
            same.is_some_and(|usage| usage.since_us.saturating_add(alone_after) < now_us);
        self.tolerance_us =
            if is_alone { micros(tolerance.spread.max(MIN_TOLERANCE)) } else { widest_us };
        self.handover_us = match (last, same) {
            // The permits of the other worker were spaced for that worker alone.
            (Some(usage), None) if usage.is_alone => widest_us - micros(MIN_TOLERANCE),
            _ => 0,
        };
        self.user = User { worker_id, tolerance_us, is_alone };
    }

    /// Whether any limit applies; otherwise every message may start at once.
    pub fn is_limited(&self) -> bool {
        self.spacing_us > 0 || !self.limits.is_empty()
    }

    /// The highest recent cost: an estimate of what the next message costs.
    pub fn usual_cost(&self) -> i32 {
        self.max_cost.max(1)
    }

    /// The most that one request may cost under these limits.
    pub fn max_request_cost(&self) -> i32 {
        max_request_cost(&self.limits)
    }

    /// Permits nothing before `until`, or before the end of a current pause if that is later.
    pub fn pause(&mut self, until: Timestamp, reason: &str) {
        if until.as_millis() > self.paused_until {
            self.paused_until = until.as_millis();
            self.pause_reason = Some(reason.to_owned());
        }
    }

    /// The first instant, at or after `from`, at which a message of `cost` may start.
    pub fn earliest(&self, cost: i32, from: DbMicros) -> DbMicros {
        let mut start_us = from.as_micros().max(self.paused_until.saturating_mul(1_000));
        if self.spacing_us > 0 {
            let extra = i64::from((cost - self.max_cost).max(0));
            let spacing = self.spacing_for(cost.max(self.max_cost));
            let next_us = self.next_us.saturating_add(self.handover_us);
            start_us = start_us.max(next_us.saturating_add(extra.saturating_mul(spacing)));
        }
        for rate in self.long_windows() {
            if let Some(buckets) = self.state.windows.get(&rate.window.as_secs()) {
                start_us = start_us.max(buckets.earliest(*rate, cost, start_us));
            }
        }
        DbMicros::new(start_us)
    }

    /// Takes the permit for a message of `cost`.
    pub fn take(&mut self, cost: i32, start_at: DbMicros) {
        let start_us = start_at.as_micros();
        self.max_cost = self.max_cost.max(cost);
        self.spacing_us = self.spacing_for(self.max_cost);
        self.next_us =
            start_us.saturating_add(self.spacing_us.saturating_mul(i64::from(cost.max(1))));
        self.set_usage(start_us);
        self.state.last = (self.spacing_us > 0).then(|| LastPermit {
            at_us: start_us,
            cost,
            spacing_us: self.unit_spacing(),
        });
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            let buckets = self.state.windows.entry(rate.window.as_secs());
            buckets.or_default().add(rate, cost, start_us);
        }
    }

    /// Takes back an unused permit. Short windows do not change if a later permit was allocated, because that was spaced
    /// from this one. Returns whether the row changes: a worker that has not noticed that the clock was set must not
    /// replace a row that another worker has filled.
    pub fn give_back(&mut self, cost: i32, start_at: DbMicros) -> bool {
        let start_us = start_at.as_micros();
        if self.stale_next_us.is_some() {
            return false;
        }
        let spacing = self.spacing_us.saturating_mul(i64::from(cost.max(1)));
        if self.next_us == start_us.saturating_add(spacing) {
            self.next_us = start_us;
            self.state.last = None;
        }
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if let Some(buckets) = self.state.windows.get_mut(&rate.window.as_secs()) {
                buckets.subtract(rate, cost, start_us);
            }
        }
        true
    }

    /// Counts every window as full from now: the clock was set, so their contents are not known.
    pub fn fill(&mut self, now: DbMicros) {
        let now_us = now.as_micros();
        let is_unreadable = self.unreadable.take().is_some();
        let longest = self.longest_window();
        if let Some(stale_next_us) = self.stale_next_us {
            self.state.full_until_us = stale_next_us.saturating_add(longest);
        }
        self.next_us = now_us.saturating_add(longest).saturating_add(self.tolerance_us);
        self.state.last = None;
        let windows: Vec<Rate> = self.long_windows().copied().collect();
        for rate in windows {
            if is_unreadable {
                let buckets = self.state.windows.entry(rate.window.as_secs());
                let all = i32::try_from(rate.limit.get()).unwrap_or(i32::MAX);
                buckets.or_default().add(rate, all, now_us);
            }
            if let Some(buckets) = self.state.windows.get_mut(&rate.window.as_secs()) {
                buckets.merge_into(now_us.div_euclid(bucket_us(rate)));
            }
        }
    }

    fn set_usage(&mut self, start_us: i64) {
        let longest = self.longest_window();
        if longest == 0 {
            return;
        }
        let User { worker_id, tolerance_us, is_alone } = self.user;
        // Until then it may be in the same window as a later permit.
        let until_us = start_us.saturating_add(longest + 2 * tolerance_us);
        self.state.keep_tolerance(tolerance_us, until_us);
        let usage = self.state.usage;
        let same = usage.filter(|usage| usage.is_of(worker_id, tolerance_us));
        self.state.usage = Some(Usage {
            worker_id,
            tolerance_us,
            since_us: same.map_or(start_us, |usage| usage.since_us),
            is_alone,
        });
        self.handover_us = 0;
    }

    /// The longest window that is kept by spacing, with room for a clock that is being corrected.
    fn longest_window(&self) -> i64 {
        let windows = self.short_windows().map(|rate| micros(rate.window));
        windows.max().map_or(0, |longest| longest + longest / SLEW_DIVISOR)
    }

    fn short_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window < LONG_WINDOW)
    }

    fn long_windows(&self) -> impl Iterator<Item = &Rate> {
        self.limits.iter().filter(|rate| rate.window >= LONG_WINDOW)
    }

    fn spacing(&self, max_cost: i32, tolerance_us: i64) -> i64 {
        self.short_windows()
            .map(|rate| spacing_us(*rate, max_cost, tolerance_us))
            .max()
            .unwrap_or(0)
    }

    fn spacing_for(&self, max_cost: i32) -> i64 {
        self.spacing_us.max(self.spacing(max_cost, self.tolerance_us))
    }
}

/// The space between two messages of cost 1, so that messages that cost as much as the limit span more than a window and
/// a tolerance. A message of `max_cost` counts as a whole in the window that it begins.
fn spacing_us(rate: Rate, max_cost: i32, tolerance_us: i64) -> i64 {
    let limit = i64::from(rate.limit.get());
    let room = (limit + 1 - i64::from(max_cost)).max(1);
    let window_us = micros(rate.window);
    let span = window_us + window_us / SLEW_DIVISOR + tolerance_us;
    let permits = if Defect::PermitTwice.is_on() { 2 } else { 1 };
    (span + room - 1) / room / permits
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod workers_tests;
