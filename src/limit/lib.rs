//! Rate limits: how many messages may start in any window, in one process or in many. Pure arithmetic: the clock, the
//! stored state and the limits are arguments.

mod allocator;
mod declared;
mod local;
mod long_window;
mod shared;
mod state;

use std::sync::Arc;
use std::time::Duration;

pub use allocator::{ClaimLimit, ClaimTerms, PermitAllocator};
pub use declared::{DeclaredLimits, UnreadableLimits};
pub use local::LocalLimiter;
pub use shared::SharedLimit;
use smsq_message::instant::DbMicros;
use smsq_message::rate::Rate;
use smsq_message::route::sender_pool::PoolSender;
use smsq_message::sms::LaneId;

/// The shortest span between the first and the last instant at which a permitted request may start.
pub const MIN_TOLERANCE: Duration = Duration::from_millis(10);
/// Permits start at most this long after the commit that allocates them.
pub const HORIZON: Duration = Duration::from_millis(50);
/// A worker corrects its clock by at most one part in this many of the time that passes. Permits are spaced wider by
/// the same part.
pub const SLEW_DIVISOR: i64 = 500;
/// No worker asks for permits that start later than this.
const MAX_LOOK_AHEAD: Duration = Duration::from_secs(10);
/// One request costs at most this part of a limit, unless it is a single message. Up to this part of a limit can stay
/// unused, because a request must fit into the window as a whole.
const REQUEST_PART: u32 = 40;
/// Windows of at least this length are counted in buckets; shorter ones are kept by spacing permits.
pub const LONG_WINDOW: Duration = Duration::from_secs(3_600);

/// How long after its permit a request may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// By the database's clock, for any error of the worker's clock.
    pub total: Duration,
    /// Between the first and the last instant by the worker's own clock.
    pub spread: Duration,
}

impl Tolerance {
    pub const MIN: Self = Self { total: MIN_TOLERANCE, spread: MIN_TOLERANCE };
}

/// Permission to start one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// `None`: at once, because no limit applies.
    pub start_at: Option<DbMicros>,
}

impl Permit {
    pub const AT_ONCE: Self = Self { start_at: None };

    pub const fn at(start_at: DbMicros) -> Self {
        Self { start_at: Some(start_at) }
    }
}

/// What a request costs if messages are counted, and if segments are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitCost {
    pub messages: i32,
    pub segments: i32,
}

impl PermitCost {
    pub fn of_message(segments: i32) -> Self {
        Self { messages: 1, segments: segments.max(1) }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            segments: self.segments.saturating_add(other.segments),
        }
    }
}

/// A claimed request that has not started.
#[derive(Clone, Debug)]
pub struct Reservation {
    pub lane: LaneId,
    /// Its sender, if that has limits or pauses of its own.
    pub sender: Option<Arc<PoolSender>>,
    pub cost: PermitCost,
    /// The start of its unused permit, which is given back.
    pub unused: Option<DbMicros>,
}

/// The most that one request may cost under these limits.
pub fn max_request_cost(limits: &[Rate]) -> i32 {
    let parts = limits.iter().map(|rate| rate.limit.get() / REQUEST_PART);
    let smallest = parts.min().unwrap_or(u32::MAX).max(1);
    i32::try_from(smallest).unwrap_or(i32::MAX)
}

/// How many messages a second the limits allow, as far as they are kept by spacing.
pub fn per_second(limits: &[Rate]) -> Option<f64> {
    let short = limits.iter().filter(|rate| rate.window < LONG_WINDOW);
    short.map(|rate| rate.per_second()).reduce(f64::min)
}

/// An account at a provider: limits and pauses are those of an account. Provider sections of the configuration with the
/// same `account` share it; without that key its name is that of the section. No name has a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Its scope in table `rate_limit`.
    pub fn scope(&self) -> String {
        format!("provider/{}", self.0)
    }

    /// The scope of one of its senders in table `rate_limit`.
    pub fn sender_scope(&self, sender: &str) -> String {
        format!("sender/{}/{sender}", self.0)
    }

    /// The account of such a scope, and the sender if it is that of one.
    pub fn of_scope(scope: &str) -> (Self, Option<&str>) {
        let sender = scope.strip_prefix("sender/");
        match sender.and_then(|scope| scope.split_once('/')) {
            Some((account, sender)) => (Self::new(account), Some(sender)),
            None => (Self::new(scope.strip_prefix("provider/").unwrap_or(scope)), None),
        }
    }
}

/// The scope of a campaign in table `rate_limit`.
pub fn campaign_scope(campaign_id: i64) -> String {
    format!("campaign/{campaign_id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_a_request_is_the_sum_of_its_messages() {
        let cost = |messages, segments| PermitCost { messages, segments };
        assert_eq!(PermitCost::of_message(3), cost(1, 3));
        assert_eq!(PermitCost::of_message(0), cost(1, 1));
        assert_eq!(PermitCost::of_message(3).plus(cost(2, 5)), cost(3, 8));
    }

    #[test]
    fn scopes_name_their_account_sender_or_campaign() {
        let world = Account::new("world");
        assert_eq!(world.scope(), "provider/world");
        assert_eq!(Account::of_scope("provider/world"), (world.clone(), None));
        assert_eq!(campaign_scope(7), "campaign/7");
        let scope = world.sender_scope("A/B");
        assert_eq!(scope, "sender/world/A/B");
        assert_eq!(Account::of_scope(&scope), (world, Some("A/B")));
    }
}
