//! The round on servers: settle, halt, claim, in one transaction. Rows are held first and the shared pace
//! last, so that workers wait for each other only while moments are given out and committed.

use std::collections::HashMap;
use std::sync::Arc;

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;
use rand::RngExt;

use super::claim::{self, Floors, Marks};
use super::link::{Link, on};
use super::pace::{self, Estimate, LockedLimits};
use super::recipients::{self, Recipients};
use super::search::{Found, Search, campaigns};
use super::{Server, settle};
use crate::limit::DeclaredLimits;
use crate::limit::provider_scope;
use crate::limit::{CampaignLimit, PermitAllocator};
use crate::queue::ProviderClaim;
use crate::queue::batch::{self, Batches};
use crate::rate::Rate;
use crate::store::queue::{CommitBatch, CommitResult, ProviderClaimed, Shortfall};
use crate::store::schema::{campaign, worker};
use crate::store::{CampaignStatus, StoreError};

impl Server {
    pub(in crate::store) async fn round(
        &self,
        round: Arc<CommitBatch>,
    ) -> Result<CommitResult, StoreError> {
        let floors = Arc::clone(&self.floors);
        let skips_locked = self.skips_locked().await?;
        let played = self
            .transaction(|link| {
                let (round, floors) = (Arc::clone(&round), Arc::clone(&floors));
                Box::pin(async move { play(link, &round, &floors, skips_locked).await })
            })
            .await?;
        for (campaign_id, key) in played.reached {
            self.floors.raise(campaign_id, key);
        }
        Ok(played.done)
    }
}

/// What a round did, and the last key that it claimed of each campaign.
struct Played {
    done: CommitResult,
    reached: HashMap<i64, (i64, i64)>,
}

async fn play(
    link: &mut Link,
    round: &CommitBatch,
    floors: &Floors,
    skips_locked: bool,
) -> QueryResult<Played> {
    let mut done = CommitResult {
        settled: settle::settle_all(link, &round.settlements, round.now).await?,
        ..CommitResult::default()
    };
    recipients::end(link, round).await?;
    for halt in &round.campaign_stops {
        on!(link, |conn| update(campaign::table.find(halt.campaign_id))
            .filter(campaign::state.eq(CampaignStatus::Active.code()))
            .set((
                campaign::state.eq(halt.state.code()),
                campaign::state_reason.eq(&halt.reason),
            ))
            .execute(conn))?;
    }
    let mut reached = HashMap::new();
    if round.claims.is_empty() {
        pace::stop(link, &round.pauses).await?;
        return Ok(Played { done, reached });
    }
    let Some(declared) = declared(link, round).await? else {
        done.is_worker_missing = true;
        done.claims
            .resize_with(round.claims.len(), ProviderClaimed::default);
        pace::stop(link, &round.pauses).await?;
        return Ok(Played { done, reached });
    };
    let campaigns = campaigns(link, round).await?;
    let nonce = format!("{:016x}", rand::rng().random::<u64>());
    let mut search = Search {
        round,
        campaigns: &campaigns,
        floors,
        skips_locked,
        nonce: &nonce,
        suppressing: None,
        held: HashMap::new(),
        marks: Marks::default(),
        recipients: Recipients::hold(link, round).await?,
    };
    let mut estimates = Estimate::of_all(link, round, &campaigns).await?;
    let mut found = Vec::new();
    for (route, estimate) in round.claims.iter().zip(&mut estimates) {
        found.push(search.run(link, route, estimate).await?);
    }
    let mut marks = search.marks;
    let mut paces = LockedLimits::hold(link, round, &campaigns, &declared).await?;
    for stop in &round.pauses {
        paces.stop(stop);
    }
    for (route, found) in round.claims.iter().zip(found) {
        let limits = declared.agreed(&route.provider, &route.limits);
        let given = give((round, route), &limits, found, &mut paces, &mut marks);
        done.claims.push(given);
    }
    paces.keep(link).await?;
    marks.write(link, round, &nonce).await?;
    recipients::begin(link, round, &done.claims).await?;
    for (campaign_id, shortfalls) in done
        .claims
        .iter_mut()
        .flat_map(|claim| &mut claim.shortfalls)
    {
        if let Shortfall::Until(next) = shortfalls {
            *next = claim::next_due(link, *campaign_id).await?;
        }
    }
    reached.extend(marks.reached);
    Ok(Played { done, reached })
}

/// The limits of all workers, this one's own among them; `None` when it is on the list no more.
async fn declared(link: &mut Link, round: &CommitBatch) -> QueryResult<Option<DeclaredLimits>> {
    let workers: Vec<(i64, String)> = on!(link, |conn| worker::table
        .select((worker::id, worker::limits))
        .load(conn))?;
    let mut declared = DeclaredLimits::of(workers, round.worker_id);
    let changed = declared
        .as_mut()
        .and_then(|all| all.declare(crate::store::queue::limits_of(round)));
    if let Some(limits) = changed {
        on!(link, |conn| update(worker::table.find(round.worker_id))
            .set(worker::limits.eq(&limits))
            .execute(conn))?;
    }
    Ok(declared)
}

fn note_limited(done: &mut ProviderClaimed, campaign_id: i64, own: &mut CampaignLimit) {
    let next_us = own.next_us.take();
    done.limited
        .extend(next_us.map(|next_us| (campaign_id, next_us)));
}

/// Gives moments to what one route found, and claims what got one.
fn give(
    (round, route): (&CommitBatch, &ProviderClaim),
    limits: &[Rate],
    found: Found,
    paces: &mut LockedLimits,
    marks: &mut Marks,
) -> ProviderClaimed {
    let scope = provider_scope(&route.provider);
    let mut account = paces.accounts.remove(&scope).unwrap_or_default();
    account.begin(limits, round.worker_id, route.from_us, round.tolerance);
    if round.fill_limits {
        account.fill(route.from_us);
    }
    let mut allocator = PermitAllocator::new(route.terms(), account, round.fill_limits);
    let mut done = ProviderClaimed {
        shortfalls: found.halted,
        refused: found.refused,
        ..ProviderClaimed::default()
    };
    for (moment_us, held) in route.unused() {
        let own = paces.own.entry(held.campaign_id).or_default();
        allocator.give_back(own, held.cost, moment_us);
    }
    for held in &route.held {
        let own = paces.own.entry(held.campaign_id).or_default();
        let moment = allocator.allocate(own, held.cost, route.until_us);
        done.held.push(moment);
        note_limited(&mut done, held.campaign_id, own);
    }
    for asked in found.asked {
        let own = paces.own.entry(asked.ask.campaign_id).or_default();
        let max_batch = asked.ask.max_batch;
        let permits = allocator.available(own, asked.count, max_batch);
        let begun = batch::count(&done.rows);
        let left = route.max_requests.saturating_sub(begun);
        let mut filling = Batches::begin(
            route,
            asked.ask,
            left,
            allocator.max_request_cost(own),
            &*round.fill,
        );
        let mut left_over = Vec::new();
        for ready in asked.ready.into_iter().take(permits as usize) {
            left_over.extend(filling.place(ready));
        }
        let mut claimed = Vec::new();
        let (rows, without) = filling.permit(begun, &mut allocator, own, |key, sms, phone| {
            claimed.push(*key);
            marks.ids.push(sms.id);
            marks.note_phone(sms, phone);
        });
        done.rows.extend(rows);
        // What is left over is not marked, and so not claimed; it must be found again.
        let left_over = left_over.iter().chain(&without).map(|ready| ready.key);
        let first_left = left_over.min();
        let before = |key: &(i64, i64)| first_left.is_none_or(|first| *key < first);
        if let Some(reached) = claimed.into_iter().filter(before).max() {
            marks.reached.insert(asked.ask.campaign_id, reached);
        }
        if permits < asked.count {
            allocator.note_exhausted(own, max_batch);
        }
        note_limited(&mut done, asked.ask.campaign_id, own);
        if asked.is_short {
            // Its moment is asked for once all is marked.
            done.shortfalls
                .push((asked.ask.campaign_id, Shortfall::Until(None)));
        }
    }
    done.next_us = allocator.next_us;
    if allocator.is_changed {
        paces.changed.insert(scope.clone());
    }
    paces.accounts.insert(scope, allocator.account);
    done
}
