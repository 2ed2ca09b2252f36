//! The round on SQLite: settle, halt, claim, in one transaction under the file's write lock.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::super::queue::{CommitBatch, CommitResult, ProviderClaimed, Shortfall};
use super::super::recipients::Promised;
use super::super::schema::{campaign, pace, sms, suppression, worker};
use super::super::{CampaignStatus, StoreError};
use super::claim::{Due, claim_rows, keep_readable, next_due, put_back};
use super::insert::is_suppressed;
use super::recipients;
use super::{Sqlite, settle};
use crate::limit::DeclaredLimits;
use crate::limit::{CampaignLimit, PermitAllocator};
use crate::limit::{SharedLimit, SharedLimitRow, campaign_scope, provider_scope};
use crate::queue::batch::{self, BatchItem, Batches};
use crate::queue::{Admission, CampaignClaim, ProviderClaim, Settlement, Transition};
use crate::rate::Rates;
use crate::sms::{Class, Failure};

/// Rows that one ask may refuse in one round, so that a round stays short.
const REFUSALS: u64 = 1_000;

impl Sqlite {
    pub(in crate::store) async fn round(
        &self,
        round: Arc<CommitBatch>,
    ) -> Result<CommitResult, StoreError> {
        self.write(move |conn| {
            let mut done = CommitResult::default();
            for settlement in &round.settlements {
                done.settled
                    .push(settle::settle(conn, settlement, round.now)?);
            }
            recipients::end(conn, &round)?;
            for halt in &round.campaign_stops {
                diesel::update(campaign::table.find(halt.campaign_id))
                    .filter(campaign::state.eq(CampaignStatus::Active.code()))
                    .set((
                        campaign::state.eq(halt.state.code()),
                        campaign::state_reason.eq(&halt.reason),
                    ))
                    .execute(conn)?;
            }
            for stop in &round.pauses {
                let scope = provider_scope(&stop.provider);
                let mut stopped = load(conn, &scope)?;
                stopped.pause(stop.until, &stop.reason);
                keep(conn, &scope, &stopped)?;
            }
            if round.claims.is_empty() {
                return Ok(done);
            }
            let Some(declared) = declared(conn, &round)? else {
                done.is_worker_missing = true;
                done.claims
                    .resize_with(round.claims.len(), ProviderClaimed::default);
                return Ok(done);
            };
            let mut promised = Promised::default();
            for route in &round.claims {
                let claim = Claim::begin(conn, &round, route, (&declared, &mut promised))?;
                done.claims.push(claim.run(conn)?);
            }
            Ok(done)
        })
        .await
    }
}

/// The limits of all workers, this one's own among them; `None` when it is on the list no more.
fn declared(
    conn: &mut SqliteConnection,
    round: &CommitBatch,
) -> QueryResult<Option<DeclaredLimits>> {
    let workers: Vec<(i64, String)> = worker::table
        .select((worker::id, worker::limits))
        .load(conn)?;
    let mut declared = DeclaredLimits::of(workers, round.worker_id);
    let changed = declared
        .as_mut()
        .and_then(|all| all.declare(crate::store::queue::limits_of(round)));
    if let Some(limits) = changed {
        diesel::update(worker::table.find(round.worker_id))
            .set(worker::limits.eq(limits))
            .execute(conn)?;
    }
    Ok(declared)
}

/// One provider's part of a round.
struct Claim<'a> {
    round: &'a CommitBatch,
    route: &'a ProviderClaim,
    allocator: PermitAllocator,
    suppressing: bool,
    done: ProviderClaimed,
    /// What was given to messages of this round that wait for their recipients' sake.
    promised: &'a mut Promised,
}

/// What became of a claimed row.
enum Admitted {
    Ready(Box<BatchItem<()>>),
    Refused,
    /// It is back in the queue.
    Waits,
}

/// A campaign's own part of it.
struct Turn {
    campaign_id: i64,
    state: CampaignStatus,
    reason: Option<String>,
    provider: Option<String>,
    own: CampaignLimit,
}

impl<'a> Claim<'a> {
    fn begin(
        conn: &mut SqliteConnection,
        round: &'a CommitBatch,
        route: &'a ProviderClaim,
        (declared, promised): (&DeclaredLimits, &'a mut Promised),
    ) -> QueryResult<Self> {
        let mut account = load(conn, &provider_scope(&route.provider))?;
        let limits = declared.agreed(&route.provider, &route.limits);
        account.begin(&limits, round.worker_id, route.from_us, round.tolerance);
        if round.fill_limits {
            account.fill(route.from_us);
        }
        Ok(Self {
            round,
            route,
            allocator: PermitAllocator::new(route.terms(), account, round.fill_limits),
            suppressing: diesel::select(diesel::dsl::exists(
                suppression::table.select(suppression::phone),
            ))
            .get_result(conn)?,
            done: ProviderClaimed::default(),
            promised,
        })
    }

    fn run(mut self, conn: &mut SqliteConnection) -> QueryResult<ProviderClaimed> {
        for (moment_us, held) in self.route.unused() {
            let mut turn = self.turn(conn, held.campaign_id)?;
            self.allocator
                .give_back(&mut turn.own, held.cost, moment_us);
            turn.keep(conn)?;
        }
        for held in &self.route.held {
            let mut turn = self.turn(conn, held.campaign_id)?;
            let until_us = self.route.until_us;
            let moment = self.allocator.allocate(&mut turn.own, held.cost, until_us);
            self.done.held.push(moment);
            self.keep(conn, &turn)?;
        }
        let mut want = self.route.max_messages;
        for ask in &self.route.campaigns {
            if want == 0 || batch::count(&self.done.rows) >= self.route.max_requests {
                break;
            }
            want -= self.ask(conn, *ask, want)?;
        }
        if self.allocator.is_changed {
            let scope = provider_scope(&self.route.provider);
            keep(conn, &scope, &self.allocator.account)?;
        }
        self.done.next_us = self.allocator.next_us;
        Ok(self.done)
    }

    /// Claims for one campaign, `want` rows at the most; returns how many it got.
    fn ask(
        &mut self,
        conn: &mut SqliteConnection,
        ask: CampaignClaim,
        want: u32,
    ) -> QueryResult<u32> {
        let mut turn = self.turn(conn, ask.campaign_id)?;
        if turn.state != CampaignStatus::Active {
            let halted = Shortfall::Halted(turn.state, turn.reason);
            self.done.shortfalls.push((ask.campaign_id, halted));
            return Ok(0);
        }
        if !self.route.serves(turn.provider.as_deref()) {
            self.done
                .shortfalls
                .push((ask.campaign_id, Shortfall::Moved));
            return Ok(0);
        }
        let wanted = want.min(ask.max_messages);
        let permits = self.allocator.available(&turn.own, wanted, ask.max_batch);
        let begun = batch::count(&self.done.rows);
        let left = self.route.max_requests.saturating_sub(begun);
        let (round, route) = (self.round, self.route);
        let mut filling = Batches::begin(
            route,
            ask,
            left,
            self.allocator.max_request_cost(&turn.own),
            &*round.fill,
        );
        let mut left_over = Vec::new();
        let mut short = false;
        let mut found = 0;
        let mut passed_over = 0;
        while found < permits && passed_over < REFUSALS && left_over.is_empty() && !short {
            let missing = permits - found;
            let rows = claim_rows(conn, ask.campaign_id, self.round, missing)?;
            short = rows.len() < missing as usize;
            for row in rows {
                match self.admit(conn, row)? {
                    Admitted::Ready(ready) => {
                        found += 1;
                        left_over.extend(filling.place(*ready));
                    }
                    Admitted::Waits => passed_over += 1,
                    Admitted::Refused => {
                        passed_over += 1;
                        self.done.refused += 1;
                    }
                }
            }
        }
        let own = &mut turn.own;
        let (rows, without) = filling.permit(begun, &mut self.allocator, own, |(), _, _| ());
        for ready in left_over.into_iter().chain(without) {
            put_back(conn, ready.sms.id)?;
            recipients::forget(conn, round, &ready.sms)?;
        }
        if short {
            let shortfalls = Shortfall::Until(next_due(conn, ask.campaign_id)?);
            self.done.shortfalls.push((ask.campaign_id, shortfalls));
        }
        if permits < wanted {
            self.allocator.note_exhausted(&mut turn.own, ask.max_batch);
        }
        let claimed = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.done.rows.extend(rows);
        self.keep(conn, &turn)?;
        Ok(claimed)
    }

    /// Keeps what a campaign spent of its own limit, and when that has more.
    fn keep(&mut self, conn: &mut SqliteConnection, turn: &Turn) -> QueryResult<()> {
        let next_us = turn.own.next_us.map(|next_us| (turn.campaign_id, next_us));
        self.done.limited.extend(next_us);
        turn.keep(conn)
    }

    /// A claimed row that can be sent; any other waits, or is refused.
    fn admit(
        &mut self,
        conn: &mut SqliteConnection,
        Due {
            mut sms,
            is_garbled,
        }: Due,
    ) -> QueryResult<Admitted> {
        let mut admission = if is_garbled {
            keep_readable(conn, &sms)?;
            let why = "another program wrote it, and not in UTF-8";
            Admission::Fail(Failure::new(Class::Content, why))
        } else {
            (self.round.admit)(&sms)
        };
        if let Admission::Send { phone, .. } | Admission::Wait { phone, .. } = &admission {
            if sms.phone != phone.as_str() {
                phone.as_str().clone_into(&mut sms.phone);
                diesel::update(sms::table.find(sms.id))
                    .set(sms::phone.eq(&sms.phone))
                    .execute(conn)?;
            }
            if self.suppressing && is_suppressed(conn, &sms.phone)? {
                let why = "the phone is on the suppression list";
                admission = Admission::Fail(Failure::new(Class::Suppressed, why));
            }
        }
        if let Admission::Send { phone, .. } = &admission
            && let Some(kept) =
                recipients::keep_cap(conn, self.round, (&sms, phone), self.promised)?
        {
            admission = kept;
        }
        let (transition, admitted) = match admission {
            Admission::Send { phone, segments } => {
                return Ok(Admitted::Ready(Box::new(BatchItem {
                    key: (),
                    sms,
                    phone,
                    segments,
                })));
            }
            Admission::Wait { until, .. } => (Transition::wait_until(until), Admitted::Waits),
            Admission::Fail(failure) => (Transition::NotAdmitted(failure), Admitted::Refused),
        };
        let settlement = Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: String::new(),
            transition,
        };
        settle::settle(conn, &settlement, self.round.now)?;
        Ok(admitted)
    }

    fn turn(&self, conn: &mut SqliteConnection, campaign_id: i64) -> QueryResult<Turn> {
        let row: Option<(i32, Option<String>, String, Option<String>)> = campaign::table
            .find(campaign_id)
            .select((
                campaign::state,
                campaign::state_reason,
                campaign::rate,
                campaign::provider,
            ))
            .get_result(conn)
            .optional()?;
        let (state, reason, rate, provider) = row.unwrap_or_default();
        let limits: Rates = rate.parse().unwrap_or_default();
        let mut own = SharedLimit::default();
        if !limits.0.is_empty() {
            own = load(conn, &campaign_scope(campaign_id))?;
            own.begin(
                &limits.0,
                self.round.worker_id,
                self.route.from_us,
                self.round.tolerance,
            );
            if self.round.fill_limits {
                own.fill(self.route.from_us);
            }
        }
        Ok(Turn {
            campaign_id,
            state: CampaignStatus::of(state),
            reason,
            provider,
            own: CampaignLimit {
                limit: own,
                is_changed: self.round.fill_limits,
                next_us: None,
            },
        })
    }
}

impl Turn {
    fn keep(&self, conn: &mut SqliteConnection) -> QueryResult<()> {
        if self.own.is_changed && self.own.limit.is_limited() {
            keep(conn, &campaign_scope(self.campaign_id), &self.own.limit)?;
        }
        Ok(())
    }
}

pub(super) fn load(conn: &mut SqliteConnection, scope: &str) -> QueryResult<SharedLimit> {
    let row: Option<SharedLimitRow> = pace::table
        .find(scope)
        .select((
            pace::next_us,
            pace::cost_max,
            pace::buckets,
            pace::stopped_until,
            pace::stop_reason,
        ))
        .get_result(conn)
        .optional()?;
    Ok(row.map(SharedLimit::from_row).unwrap_or_default())
}

pub(super) fn keep(
    conn: &mut SqliteConnection,
    scope: &str,
    kept: &SharedLimit,
) -> QueryResult<()> {
    let (next_us, cost_max, state, until, reason) = kept.to_row();
    diesel::replace_into(pace::table)
        .values((
            pace::scope.eq(scope),
            pace::next_us.eq(next_us),
            pace::cost_max.eq(cost_max),
            pace::buckets.eq(state),
            pace::stopped_until.eq(until),
            pace::stop_reason.eq(reason),
        ))
        .execute(conn)?;
    Ok(())
}
