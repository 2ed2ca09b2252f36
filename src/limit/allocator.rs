//! Gives out permits for one provider's claim: pure, the same on every database.

use super::{Permit, PermitCost, SharedLimit};

/// What a claim asks of its limits. Instants are in microseconds of the database's clock.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTerms {
    /// Permits start at or after this.
    pub from_us: i64,
    /// And before this.
    pub until_us: i64,
    /// Limits count segments, not messages.
    pub by_segments: bool,
}

/// Gives out permits of a provider's account and of its campaigns.
pub struct PermitAllocator {
    terms: ClaimTerms,
    pub account: SharedLimit,
    /// The account's row must be written.
    pub is_changed: bool,
    /// The account's next permit, where its limits ended the claim.
    pub next_us: Option<i64>,
}

/// One campaign's own limit.
#[derive(Clone, Default)]
pub struct CampaignLimit {
    pub limit: SharedLimit,
    /// Its row must be written.
    pub is_changed: bool,
    /// Its next permit, where it, and not the account's limit, ended the campaign's part of the claim.
    pub next_us: Option<i64>,
}

impl PermitAllocator {
    /// `account` has begun. `is_changed`: its windows were filled, which must be written even if no
    /// permit is given out.
    pub fn new(terms: ClaimTerms, account: SharedLimit, is_changed: bool) -> Self {
        Self {
            terms,
            account,
            is_changed,
            next_us: None,
        }
    }

    /// Takes back a permit at which nothing started.
    pub fn give_back(&mut self, own: &mut CampaignLimit, cost: PermitCost, start_us: i64) {
        let cost = self.cost(cost);
        self.is_changed |= self.account.give_back(cost, start_us);
        own.is_changed |= own.limit.give_back(cost, start_us);
    }

    /// The most that one request may cost.
    pub fn max_request_cost(&self, own: &CampaignLimit) -> i32 {
        let account = self.account.max_request_cost();
        account.min(own.limit.max_request_cost())
    }

    /// How many of `wanted` messages get permits before the claim's end: one by one at the usual cost,
    /// or as many at a time as one request may hold.
    pub fn available(&self, own: &CampaignLimit, wanted: u32, max_batch: u32) -> u32 {
        let mut account = self.account.clone();
        let mut campaign = own.limit.clone();
        if !account.is_limited() && !campaign.is_limited() && account.earliest(1, 0) == 0 {
            return wanted;
        }
        let (cost, messages) = self.usual(own, max_batch);
        let mut count = 0;
        while count < wanted {
            let by_account = account.earliest(cost, self.terms.from_us);
            let start_us = campaign.earliest(cost, by_account);
            if start_us >= self.terms.until_us {
                return count;
            }
            account.take(cost, start_us);
            campaign.take(cost, start_us);
            count += messages;
        }
        wanted
    }

    /// Notes when the next permit can be had, where the limits ended the campaign's part.
    pub fn note_exhausted(&mut self, own: &mut CampaignLimit, max_batch: u32) {
        let (cost, _) = self.usual(own, max_batch);
        self.earliest(own, cost, self.terms.until_us);
    }

    /// The first start for a request of this cost, if that is before `until_us`; otherwise notes whose
    /// limit is exhausted.
    fn earliest(&mut self, own: &mut CampaignLimit, cost: i32, until_us: i64) -> Option<i64> {
        let by_account = self.account.earliest(cost, self.terms.from_us);
        if by_account >= until_us {
            self.next_us = Some(self.next_us.map_or(by_account, |next| next.min(by_account)));
            return None;
        }
        let start_us = own.limit.earliest(cost, by_account);
        if start_us >= until_us {
            own.next_us = Some(own.next_us.map_or(start_us, |next| next.min(start_us)));
            return None;
        }
        Some(start_us)
    }

    /// Estimates the cost of the next request, and how many messages it has.
    fn usual(&self, own: &CampaignLimit, max_batch: u32) -> (i32, u32) {
        let max_batch = i32::try_from(max_batch).unwrap_or(i32::MAX);
        let cost = self.max_request_cost(own).min(max_batch);
        if cost > 1 {
            return (cost, cost.unsigned_abs());
        }
        let usual = self.account.usual_cost().max(own.limit.usual_cost());
        (if self.terms.by_segments { usual } else { 1 }, 1)
    }

    pub fn until_us(&self) -> i64 {
        self.terms.until_us
    }

    /// Gives the next permit to one request, if it starts before `until_us`.
    pub fn allocate(
        &mut self,
        own: &mut CampaignLimit,
        cost: PermitCost,
        until_us: i64,
    ) -> Option<Permit> {
        let cost = self.cost(cost);
        let start_us = self.earliest(own, cost, until_us)?;
        if !self.account.is_limited() && !own.limit.is_limited() {
            return Some(Permit::AT_ONCE);
        }
        self.account.take(cost, start_us);
        own.limit.take(cost, start_us);
        self.is_changed = true;
        own.is_changed = true;
        Some(Permit::at(start_us))
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
