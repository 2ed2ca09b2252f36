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
use super::pace::{self, Estimate, Paces};
use super::recipients::{self, Recipients};
use super::search::{Found, Search, campaigns};
use super::{Server, settle};
use crate::rate::Rate;
use crate::store::calls::{self, Filling};
use crate::store::pace::allotment::{Allotment, Own};
use crate::store::pace::declared::DeclaredLimits;
use crate::store::pace::provider_scope;
use crate::store::queue::{Drained, Round, RoundDone, RouteClaim, RouteClaimed};
use crate::store::schema::{campaign, worker};
use crate::store::{CampaignState, StoreError};

impl Server {
    pub(in crate::store) async fn round(&self, round: Arc<Round>) -> Result<RoundDone, StoreError> {
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
    done: RoundDone,
    reached: HashMap<i64, (i64, i64)>,
}

async fn play(
    link: &mut Link,
    round: &Round,
    floors: &Floors,
    skips_locked: bool,
) -> QueryResult<Played> {
    let mut done = RoundDone {
        settled: settle::settle_all(link, &round.settlements, round.now).await?,
        ..RoundDone::default()
    };
    recipients::end(link, round).await?;
    for halt in &round.halts {
        on!(link, |conn| update(campaign::table.find(halt.campaign_id))
            .filter(campaign::state.eq(CampaignState::Active.code()))
            .set((
                campaign::state.eq(halt.state.code()),
                campaign::state_reason.eq(&halt.reason),
            ))
            .execute(conn))?;
    }
    let mut reached = HashMap::new();
    if round.claims.is_empty() {
        pace::stop(link, &round.stops).await?;
        return Ok(Played { done, reached });
    }
    let Some(declared) = declared(link, round).await? else {
        done.is_unlisted = true;
        done.claims
            .resize_with(round.claims.len(), RouteClaimed::default);
        pace::stop(link, &round.stops).await?;
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
    let mut paces = Paces::hold(link, round, &campaigns, &declared).await?;
    for stop in &round.stops {
        paces.stop(stop);
    }
    for (route, found) in round.claims.iter().zip(found) {
        let limits = declared.agreed(route);
        let given = give((round, route), &limits, found, &mut paces, &mut marks);
        done.claims.push(given);
    }
    paces.keep(link).await?;
    marks.write(link, round, &nonce).await?;
    recipients::begin(link, round, &done.claims).await?;
    for (campaign_id, drained) in done.claims.iter_mut().flat_map(|claim| &mut claim.drained) {
        if let Drained::Until(next) = drained {
            *next = claim::next_due(link, *campaign_id).await?;
        }
    }
    reached.extend(marks.reached);
    Ok(Played { done, reached })
}

/// The limits of all workers, this one's own among them; `None` when it is on the list no more.
async fn declared(link: &mut Link, round: &Round) -> QueryResult<Option<DeclaredLimits>> {
    let workers: Vec<(i64, String)> = on!(link, |conn| worker::table
        .select((worker::id, worker::limits))
        .load(conn))?;
    let mut declared = DeclaredLimits::of(workers, round.worker_id);
    let changed = declared.as_mut().and_then(|all| all.declare(&round.claims));
    if let Some(limits) = changed {
        on!(link, |conn| update(worker::table.find(round.worker_id))
            .set(worker::limits.eq(&limits))
            .execute(conn))?;
    }
    Ok(declared)
}

fn note_limited(done: &mut RouteClaimed, campaign_id: i64, own: &mut Own) {
    let next_us = own.next_us.take();
    done.limited
        .extend(next_us.map(|next_us| (campaign_id, next_us)));
}

/// Gives moments to what one route found, and claims what got one.
fn give(
    (round, route): (&Round, &RouteClaim),
    limits: &[Rate],
    found: Found,
    paces: &mut Paces,
    marks: &mut Marks,
) -> RouteClaimed {
    let scope = provider_scope(&route.provider);
    let mut account = paces.accounts.remove(&scope).unwrap_or_default();
    account.begin(limits, round.worker_id, route.from_us, round.reach);
    if round.refill {
        account.refill(route.from_us);
    }
    let mut allotment = Allotment::new(route, account, round.refill);
    let mut done = RouteClaimed {
        drained: found.halted,
        refused: found.refused,
        ..RouteClaimed::default()
    };
    for (moment_us, held) in allotment.lapsed() {
        let own = paces.own.entry(held.campaign_id).or_default();
        allotment.take_back(own, held.load, moment_us);
    }
    for held in &route.held {
        let own = paces.own.entry(held.campaign_id).or_default();
        let moment = allotment.moment(own, held.load, route.until_us);
        done.held.push(moment);
        note_limited(&mut done, held.campaign_id, own);
    }
    for asked in found.asked {
        let own = paces.own.entry(asked.ask.campaign_id).or_default();
        let per_call = asked.ask.per_call;
        let permits = allotment.permits(own, asked.count, per_call);
        let begun = calls::count(&done.rows);
        let left = route.calls.saturating_sub(begun);
        let mut filling = Filling::begin(round, route, asked.ask, left, &allotment, own);
        let mut left_over = Vec::new();
        for ready in asked.ready.into_iter().take(permits as usize) {
            left_over.extend(filling.place(ready));
        }
        let mut claimed = Vec::new();
        let (rows, without) = filling.moments(begun, &mut allotment, own, |key, sms, phone| {
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
            allotment.note_end(own, per_call);
        }
        note_limited(&mut done, asked.ask.campaign_id, own);
        if asked.is_short {
            // Its moment is asked for once all is marked.
            done.drained
                .push((asked.ask.campaign_id, Drained::Until(None)));
        }
    }
    done.next_us = allotment.next_us;
    if allotment.is_spent {
        paces.changed.insert(scope.clone());
    }
    paces.accounts.insert(scope, allotment.account);
    done
}
