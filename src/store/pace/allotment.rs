//! What the limits allow one worker on one provider in one round: pure, the same on every database.

use std::cmp::Reverse;

use super::super::queue::{Held, Load, Moment, RouteClaim};
use super::Pace;

/// The account's part of a round. Each campaign's own pace is handed in where it counts.
pub(in crate::store) struct Allotment<'a> {
    route: &'a RouteClaim,
    pub(in crate::store) account: Pace,
    /// A moment was given out or taken back, so the account's row has changed.
    pub(in crate::store) is_spent: bool,
    /// The first moment that the account's limits would have had next, where they ended the claim.
    pub(in crate::store) next_us: Option<i64>,
}

/// One campaign's own pace.
#[derive(Clone, Default)]
pub(in crate::store) struct Own {
    pub(in crate::store) pace: Pace,
    pub(in crate::store) is_spent: bool,
    /// The first moment that this limit would have had next, where it and not the account's ended the
    /// campaign's part of the claim.
    pub(in crate::store) next_us: Option<i64>,
}

impl<'a> Allotment<'a> {
    /// `account` has begun; that its windows were taken as full must be kept, though no moment is given out.
    pub(in crate::store) fn new(route: &'a RouteClaim, account: Pace, is_refilled: bool) -> Self {
        Self {
            route,
            account,
            is_spent: is_refilled,
            next_us: None,
        }
    }

    /// The calls whose moments come back, the latest first: each makes the one before it the last.
    pub(in crate::store) fn lapsed(&self) -> Vec<(i64, Held)> {
        let held = self.route.held.iter().chain(&self.route.returned);
        let mut lapsed: Vec<(i64, Held)> = held
            .filter_map(|held| Some((held.lapsed_us?, *held)))
            .collect();
        lapsed.sort_unstable_by_key(|(moment_us, _)| Reverse(*moment_us));
        lapsed
    }

    /// Takes back a moment at which nothing started.
    pub(in crate::store) fn take_back(&mut self, own: &mut Own, load: Load, moment_us: i64) {
        let cost = self.cost(load);
        self.account.give_back(cost, moment_us);
        self.is_spent = true;
        own.pace.give_back(cost, moment_us);
        own.is_spent = true;
    }

    /// What one call may cost at the most.
    pub(in crate::store) fn call_cost(&self, own: &Own) -> i32 {
        self.account.call_cost().min(own.pace.call_cost())
    }

    /// How many messages have a moment before the horizon, `want` at the most: one by one at the usual cost, or
    /// as many as one call may hold together.
    pub(in crate::store) fn permits(&self, own: &Own, want: u32, per_call: u32) -> u32 {
        let mut account = self.account.clone();
        let mut own_pace = own.pace.clone();
        if !account.is_limited() && !own_pace.is_limited() && account.earliest(1, 0) == 0 {
            return want;
        }
        let (cost, messages) = self.usual(own, per_call);
        let mut count = 0;
        while count < want {
            let moment = own_pace.earliest(cost, account.earliest(cost, self.route.from_us));
            if moment >= self.route.until_us {
                return count;
            }
            account.take(cost, moment);
            own_pace.take(cost, moment);
            count += messages;
        }
        want
    }

    /// Notes the moment that the next call would have, where the limits have ended the campaign's part.
    pub(in crate::store) fn note_end(&mut self, own: &mut Own, per_call: u32) {
        let (cost, _) = self.usual(own, per_call);
        self.earliest(own, cost, self.route.until_us);
    }

    /// The first moment for a call of this cost; `None`, and noted for whose limit it is, where that is
    /// not before `until_us`.
    fn earliest(&mut self, own: &mut Own, cost: i32, until_us: i64) -> Option<i64> {
        let by_account = self.account.earliest(cost, self.route.from_us);
        if by_account >= until_us {
            self.next_us = Some(self.next_us.map_or(by_account, |next| next.min(by_account)));
            return None;
        }
        let moment = own.pace.earliest(cost, by_account);
        if moment >= until_us {
            own.next_us = Some(own.next_us.map_or(moment, |next| next.min(moment)));
            return None;
        }
        Some(moment)
    }

    /// The cost of the next call, at a guess, and how many messages it has.
    fn usual(&self, own: &Own, per_call: u32) -> (i32, u32) {
        let cost = self
            .call_cost(own)
            .min(i32::try_from(per_call).unwrap_or(i32::MAX));
        if cost > 1 {
            return (cost, cost.unsigned_abs());
        }
        let usual = self.account.usual_cost().max(own.pace.usual_cost());
        (if self.route.by_segments { usual } else { 1 }, 1)
    }

    pub(in crate::store) fn until_us(&self) -> i64 {
        self.route.until_us
    }

    /// Spends the next moment on one call, where it lies before `until_us`.
    pub(in crate::store) fn moment(
        &mut self,
        own: &mut Own,
        load: Load,
        until_us: i64,
    ) -> Option<Moment> {
        let cost = self.cost(load);
        let moment = self.earliest(own, cost, until_us)?;
        if !self.account.is_limited() && !own.pace.is_limited() {
            return Some(Moment::AtOnce);
        }
        self.account.take(cost, moment);
        own.pace.take(cost, moment);
        self.is_spent = true;
        own.is_spent = true;
        Some(Moment::At(moment))
    }

    fn cost(&self, load: Load) -> i32 {
        let cost = if self.route.by_segments {
            load.segments
        } else {
            load.messages
        };
        cost.max(1)
    }
}
