//! Allocates permits to the requests of one provider's claim.

use smsq_message::instant::DbMicros;

use super::shared::SharedLimit;
use super::{Permit, PermitCost};

/// When the permits of a claim start, and what they cost.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTerms {
    /// Permits start at or after this.
    pub from: DbMicros,
    /// Permits start before this.
    pub until: DbMicros,
    /// Limits count segments, not messages.
    pub by_segments: bool,
}

/// A limit of a provider's account, of a campaign or of a sender in one claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimLimit {
    pub limit: SharedLimit,
    /// Of the counter of a budget: what is spent.
    pub spent: i64,
    /// Its row must be stored.
    pub is_changed: bool,
    /// The start of its next permit, if it ended a part of the claim.
    pub next_at: Option<DbMicros>,
}

impl ClaimLimit {
    fn give_back(&mut self, cost: i32, start_at: DbMicros) {
        self.is_changed |= self.limit.give_back(cost, start_at);
    }

    fn take(&mut self, cost: i32, start_at: DbMicros) {
        self.limit.take(cost, start_at);
        self.is_changed = true;
    }

    /// The first start from `from` on, if that is before `until`. Otherwise it is kept.
    fn earliest(&mut self, cost: i32, from: DbMicros, until: DbMicros) -> Option<DbMicros> {
        let start_at = self.limit.earliest(cost, from);
        if start_at < until {
            return Some(start_at);
        }
        self.next_at = Some(self.next_at.map_or(start_at, |next| next.min(start_at)));
        None
    }
}

/// Allocates permits under the limits of a provider's account, and under the own limits of each request: those of its
/// campaign and of its sender.
pub struct PermitAllocator {
    pub terms: ClaimTerms,
    pub account: ClaimLimit,
}

impl PermitAllocator {
    /// Takes back an unused permit.
    pub fn give_back(&mut self, own: &mut [ClaimLimit], cost: PermitCost, start_at: DbMicros) {
        let cost = self.cost(cost);
        for limit in self.all(own) {
            limit.give_back(cost, start_at);
        }
    }

    /// The most that one request may cost.
    pub fn max_request_cost(&self, own: &[ClaimLimit]) -> i32 {
        let account = self.account.limit.max_request_cost();
        own.iter().map(|own| own.limit.max_request_cost()).fold(account, i32::min)
    }

    /// Estimates how many of `wanted` messages get a permit before the end of the claim.
    pub fn available(&self, own: &[ClaimLimit], wanted: u32, max_batch: u32) -> u32 {
        let own_limits = own.iter().map(|own| &own.limit);
        let mut limits: Vec<SharedLimit> = [&self.account.limit]
            .into_iter()
            .chain(own_limits)
            .filter(|limit| {
                limit.is_limited() || limit.earliest(1, DbMicros::default()) != DbMicros::default()
            })
            .cloned()
            .collect();
        if limits.is_empty() {
            return wanted;
        }
        let (cost, messages) = self.usual(own, max_batch);
        let mut count = 0;
        while count < wanted {
            let limited = limits.iter();
            let start_at = limited.fold(self.terms.from, |at, limit| limit.earliest(cost, at));
            if start_at >= self.terms.until {
                return count;
            }
            for limit in &mut limits {
                limit.take(cost, start_at);
            }
            count += messages;
        }
        wanted
    }

    /// Keeps the start of the next permit after the limits ended the lane's part of the claim.
    pub fn keep_next(&mut self, own: &mut [ClaimLimit], max_batch: u32) {
        let (cost, _) = self.usual(own, max_batch);
        self.earliest(own, cost, self.terms.until);
    }

    fn all<'a>(
        &'a mut self,
        own: &'a mut [ClaimLimit],
    ) -> impl Iterator<Item = &'a mut ClaimLimit> {
        [&mut self.account].into_iter().chain(own)
    }

    /// The first start of a request with this cost, if that is before `until`. Otherwise it is kept for the limit
    /// that is exhausted. What one limit allows at an instant, it allows later, too.
    fn earliest(&mut self, own: &mut [ClaimLimit], cost: i32, until: DbMicros) -> Option<DbMicros> {
        let from = self.terms.from;
        self.all(own).try_fold(from, |at, limit| limit.earliest(cost, at, until))
    }

    /// Estimates the cost and the number of messages of the next request.
    fn usual(&self, own: &[ClaimLimit], max_batch: u32) -> (i32, u32) {
        let max_batch = i32::try_from(max_batch).unwrap_or(i32::MAX);
        let cost = self.max_request_cost(own).min(max_batch);
        if cost > 1 {
            return (cost, cost.unsigned_abs());
        }
        let usual = own
            .iter()
            .map(|own| own.limit.usual_cost())
            .fold(self.account.limit.usual_cost(), i32::max);
        (if self.terms.by_segments { usual } else { 1 }, 1)
    }

    /// Allocates the next permit to a request, if that starts before `until`.
    pub fn allocate(
        &mut self,
        own: &mut [ClaimLimit],
        cost: PermitCost,
        until: DbMicros,
    ) -> Option<Permit> {
        let cost = self.cost(cost);
        let start_at = self.earliest(own, cost, until)?;
        if self.all(own).all(|limit| !limit.limit.is_limited()) {
            return Some(Permit::AT_ONCE);
        }
        for limit in self.all(own) {
            limit.take(cost, start_at);
        }
        Some(Permit::at(start_at))
    }

    fn cost(&self, cost: PermitCost) -> i32 {
        let cost = if self.terms.by_segments { cost.segments } else { cost.messages };
        cost.max(1)
    }
}

#[cfg(test)]
mod tests {
    use smsq_message::rate::Rates;
    use smsq_message::sms::Timestamp;

    use super::*;
    use crate::Tolerance;

    fn at(us: i64) -> DbMicros {
        DbMicros::new(us)
    }

    /// The space between two messages under a limit of 10 per second: a tenth of the window and its tolerance.
    const SPACE: i64 = 101_200;

    fn limit(text: &str) -> ClaimLimit {
        let limits = text.parse::<Rates>().expect("rates").0;
        let mut claim = ClaimLimit::default();
        claim.limit.begin(&limits, 1, at(0), Tolerance::MIN);
        claim
    }

    fn paused(until: i64) -> ClaimLimit {
        let mut claim = ClaimLimit::default();
        claim.limit.pause(Timestamp::from_millis(until), "why");
        claim
    }

    fn allocator(account: ClaimLimit, until: i64, by_segments: bool) -> PermitAllocator {
        PermitAllocator {
            terms: ClaimTerms { from: at(0), until: at(until), by_segments },
            account,
        }
    }

    fn cost(messages: i32, segments: i32) -> PermitCost {
        PermitCost { messages, segments }
    }

    /// The starts of single messages until the end of the claim.
    fn starts(allocator: &mut PermitAllocator, own: &mut [ClaimLimit]) -> Vec<Option<DbMicros>> {
        let until = allocator.terms.until;
        let permits = std::iter::from_fn(|| allocator.allocate(own, cost(1, 1), until));
        permits.take(1_000).map(|permit| permit.start_at).collect()
    }

    #[test]
    fn request_without_a_limit_starts_at_once() {
        let mut own = [limit("")];
        let mut allocator = allocator(limit(""), 1, false);
        assert_eq!(allocator.allocate(&mut own, cost(1, 1), at(1)), Some(Permit::AT_ONCE));
        assert!(!own[0].is_changed && !allocator.account.is_changed);
    }

    #[test]
    fn permits_are_spaced_by_any_of_their_limits() {
        for (account, own) in [("10/s", ""), ("", "10/s"), ("10/s", "20/s"), ("20/s", "10/s")] {
            let mut own = [limit(own)];
            let mut allocator = allocator(limit(account), 2 * SPACE, false);
            let expected = [Some(at(0)), Some(at(SPACE))];
            assert_eq!(starts(&mut allocator, &mut own), expected);
            assert!(own[0].is_changed && allocator.account.is_changed);
        }
    }

    #[test]
    fn exhausted_limit_keeps_the_earliest_start_after_the_claim() {
        let (mut own, mut allocator) = ([limit("")], allocator(limit("10/s"), SPACE, false));
        assert_eq!(starts(&mut allocator, &mut own), [Some(at(0))]);
        assert_eq!(allocator.account.next_at, Some(at(SPACE)));
        assert_eq!(own[0].next_at, None);
        assert_eq!(allocator.allocate(&mut own, cost(5, 5), at(SPACE)), None);
        assert_eq!(allocator.account.next_at, Some(at(SPACE)));
        let later = allocator.allocate(&mut own, cost(1, 1), at(SPACE + 1));
        assert_eq!(later, Some(Permit::at(at(SPACE))));

        let (mut own, mut allocator) = ([limit("10/s")], self::allocator(limit(""), SPACE, false));
        starts(&mut allocator, &mut own);
        assert_eq!(own[0].next_at, Some(at(SPACE)));
        assert_eq!(allocator.account.next_at, None);
    }

    #[test]
    fn next_start_is_kept_for_the_limit_that_ended_the_claim() {
        let (mut own, mut allocator) = ([limit("10/s")], allocator(limit("20/s"), 1, false));
        starts(&mut allocator, &mut own);
        own[0].next_at = None;
        allocator.account.next_at = None;
        allocator.keep_next(&mut own, 1);
        assert!(allocator.account.next_at.is_some());
        assert_eq!(own[0].next_at, None);
    }

    #[test]
    fn request_costs_its_messages_or_its_segments() {
        for (by_segments, expected) in [(false, 2), (true, 3)] {
            let mut own = [limit("")];
            let mut allocator = allocator(limit("10/s"), i64::MAX, by_segments);
            let end = allocator.terms.until;
            allocator.allocate(&mut own, cost(2, 3), end);
            assert_eq!(allocator.account.limit.usual_cost(), expected);
            let free = allocator.allocate(&mut own, cost(0, 0), end);
            let next = allocator.allocate(&mut own, cost(1, 1), end);
            assert_ne!(free, next);
        }
    }

    #[test]
    fn unused_permit_is_given_back_to_all_limits() {
        let (mut own, mut allocator) = ([limit("10/s")], allocator(limit("10/s"), SPACE, true));
        let before = (allocator.account.limit.clone(), own[0].limit.clone());
        allocator.allocate(&mut own, cost(1, 1), at(SPACE));
        own[0].is_changed = false;
        allocator.account.is_changed = false;
        allocator.give_back(&mut own, cost(1, 1), at(0));
        assert!(own[0].is_changed && allocator.account.is_changed);
        for (limit, before) in [(&allocator.account.limit, before.0), (&own[0].limit, before.1)] {
            assert_eq!(limit.earliest(1, at(0)), before.earliest(1, at(0)));
        }
    }

    #[test]
    fn request_costs_at_most_what_all_limits_allow() {
        let most =
            |account, own| allocator(limit(account), 1, false).max_request_cost(&[limit(own)]);
        assert_eq!(most("4000/s", "400/s"), 10);
        assert_eq!(most("400/s", "4000/s"), 10);
        assert_eq!(most("", ""), i32::MAX);
    }

    #[test]
    fn estimate_of_permits_is_what_is_allocated() {
        for (account, own, until) in [
            ("10/s", "", 5 * SPACE),
            ("", "10/s", 5 * SPACE + 1),
            ("10/s", "5/s", 5 * SPACE),
            ("10/s", "10/s", 1),
            ("10/s", "10/s", 0),
        ] {
            let mut own = [limit(own)];
            let mut allocator = allocator(limit(account), until, false);
            let estimate = allocator.available(&own, 1_000, 1);
            assert_eq!(starts(&mut allocator, &mut own).len(), estimate as usize);
        }
    }

    #[test]
    fn estimate_is_at_most_what_is_wanted() {
        let available = |account, own, wanted, max_batch| {
            allocator(account, SPACE, false).available(&[own], wanted, max_batch)
        };
        assert_eq!(available(limit(""), limit(""), 7, 1), 7);
        assert_eq!(available(limit("100/s"), limit(""), 3, 1), 3);
        // A pause applies without a limit.
        assert_eq!(available(paused(1_000), limit(""), 7, 1), 0);
        assert_eq!(available(paused(1), limit(""), 7, 1), 7);
        // Batches of twenty.
        assert_eq!(available(limit("800/s"), limit(""), 1_000, 100), 60);
        assert_eq!(available(limit("800/s"), limit(""), 50, 100), 50);
        assert_eq!(available(limit("800/s"), limit(""), 1_000, 1), 80);
    }

    #[test]
    fn estimate_in_segments_is_by_their_usual_number() {
        let mut own = [limit("")];
        let mut allocator = allocator(limit("10/s"), i64::MAX, true);
        allocator.allocate(&mut own, cost(1, 3), at(i64::MAX));
        for (by_segments, max_batch, expected) in
            [(true, 1, (3, 1)), (false, 1, (1, 1)), (true, 9, (3, 1))]
        {
            allocator.terms.by_segments = by_segments;
            assert_eq!(allocator.usual(&own, max_batch), expected);
        }
        let mut batches = self::allocator(limit("100/s"), 1, true);
        assert_eq!(batches.usual(&own, 9), (2, 2));
        batches.account = limit("");
        assert_eq!(batches.usual(&own, 9), (9, 9));
        assert_eq!(batches.usual(&own, u32::MAX), (i32::MAX, i32::MAX.unsigned_abs()));
    }
}
