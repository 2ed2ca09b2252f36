//! Allocates permits to the requests of one provider's claim.

use super::{Permit, PermitCost, SharedLimit};
use crate::instant::DbMicros;

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

/// A limit of a provider's account or of a campaign in one claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimLimit {
    pub limit: SharedLimit,
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

/// Allocates permits under the limits of a provider's account and of its campaigns.
pub struct PermitAllocator {
    pub terms: ClaimTerms,
    pub account: ClaimLimit,
}

impl PermitAllocator {
    /// Takes back an unused permit.
    pub fn give_back(&mut self, own: &mut ClaimLimit, cost: PermitCost, start_at: DbMicros) {
        let cost = self.cost(cost);
        self.account.give_back(cost, start_at);
        own.give_back(cost, start_at);
    }

    /// The most that one request may cost.
    pub fn max_request_cost(&self, own: &ClaimLimit) -> i32 {
        let account = self.account.limit.max_request_cost();
        account.min(own.limit.max_request_cost())
    }

    /// Estimates how many of `wanted` messages get a permit before the end of the claim.
    pub fn available(&self, own: &ClaimLimit, wanted: u32, max_batch: u32) -> u32 {
        let mut account = self.account.limit.clone();
        let mut campaign = own.limit.clone();
        if !account.is_limited()
            && !campaign.is_limited()
            && account.earliest(1, DbMicros::default()) == DbMicros::default()
        {
            return wanted;
        }
        let (cost, messages) = self.usual(own, max_batch);
        let mut count = 0;
        while count < wanted {
            let by_account = account.earliest(cost, self.terms.from);
            let start_at = campaign.earliest(cost, by_account);
            if start_at >= self.terms.until {
                return count;
            }
            account.take(cost, start_at);
            campaign.take(cost, start_at);
            count += messages;
        }
        wanted
    }

    /// Keeps the start of the next permit after the limits ended the campaign's part of the claim.
    pub fn keep_next(&mut self, own: &mut ClaimLimit, max_batch: u32) {
        let (cost, _) = self.usual(own, max_batch);
        self.earliest(own, cost, self.terms.until);
    }

    /// The first start of a request with this cost, if that is before `until`. Otherwise it is kept for the limit
    /// that is exhausted.
    fn earliest(&mut self, own: &mut ClaimLimit, cost: i32, until: DbMicros) -> Option<DbMicros> {
        let by_account = self.account.earliest(cost, self.terms.from, until)?;
        own.earliest(cost, by_account, until)
    }

    /// Estimates the cost and the number of messages of the next request.
    fn usual(&self, own: &ClaimLimit, max_batch: u32) -> (i32, u32) {
        let max_batch = i32::try_from(max_batch).unwrap_or(i32::MAX);
        let cost = self.max_request_cost(own).min(max_batch);
        if cost > 1 {
            return (cost, cost.unsigned_abs());
        }
        let usual = self.account.limit.usual_cost().max(own.limit.usual_cost());
        (if self.terms.by_segments { usual } else { 1 }, 1)
    }

    /// Allocates the next permit to a request, if that starts before `until`.
    pub fn allocate(
        &mut self,
        own: &mut ClaimLimit,
        cost: PermitCost,
        until: DbMicros,
    ) -> Option<Permit> {
        let cost = self.cost(cost);
        let start_at = self.earliest(own, cost, until)?;
        if !self.account.limit.is_limited() && !own.limit.is_limited() {
            return Some(Permit::AT_ONCE);
        }
        self.account.take(cost, start_at);
        own.take(cost, start_at);
        Some(Permit::at(start_at))
    }

    fn cost(&self, cost: PermitCost) -> i32 {
        let cost = if self.terms.by_segments {
            cost.segments
        } else {
            cost.messages
        };
        cost.max(1)
    }
}
