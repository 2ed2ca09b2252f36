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
use super::pace::Paces;
use super::recipients::{self, Recipients};
use super::search::{Found, Ready, Search, campaigns};
use super::{Server, settle};
use crate::store::pace::allotment::Allotment;
use crate::store::pace::provider_scope;
use crate::store::queue::{Claimed, Drained, Moment, Round, RoundDone, RouteClaim, RouteClaimed};
use crate::store::schema::campaign;
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
        claims: Vec::new(),
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
    if round.claims.is_empty() && round.stops.is_empty() {
        return Ok(Played { done, reached });
    }
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
    let mut found = Vec::new();
    for route in &round.claims {
        found.push(search.run(link, route).await?);
    }
    let mut marks = search.marks;
    let mut paces = Paces::hold(link, round, &campaigns).await?;
    for (provider, until) in &round.stops {
        paces.stop(&provider_scope(provider), until.as_millis());
    }
    for (route, found) in round.claims.iter().zip(found) {
        let given = give(round, route, found, &mut paces, &mut marks);
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

/// Gives moments to what one route found, and claims what got one.
fn give(
    round: &Round,
    route: &RouteClaim,
    found: Found,
    paces: &mut Paces,
    marks: &mut Marks,
) -> RouteClaimed {
    let scope = provider_scope(&route.provider);
    let mut account = paces.accounts.remove(&scope).unwrap_or_default();
    account.begin(&route.limits, round.worker_id, route.from_us, round.lease);
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
        allotment.take_back(own, held.segments, moment_us);
    }
    for held in &route.held {
        let own = paces.own.entry(held.campaign_id).or_default();
        let moment = allotment.moment(own, held.segments, route.until_us);
        done.held.push(moment);
    }
    for asked in found.asked {
        let own = paces.own.entry(asked.campaign_id).or_default();
        let permits = allotment.permits(own, asked.count);
        for ready in asked.ready.into_iter().take(permits as usize) {
            let Ready {
                key,
                mut sms,
                phone,
                segments,
            } = ready;
            marks.reached.insert(asked.campaign_id, key);
            marks.ids.push(sms.id);
            marks.note_phone(&sms, &phone);
            phone.as_str().clone_into(&mut sms.phone);
            sms.segments = Some(segments);
            let moment = allotment.moment(own, segments, i64::MAX);
            let moment = moment.unwrap_or(Moment::AtOnce);
            done.rows.push(Claimed { sms, phone, moment });
        }
        if asked.is_short {
            // Its moment is asked for once all is marked.
            done.drained.push((asked.campaign_id, Drained::Until(None)));
        }
    }
    done.next_us = allotment.next_us;
    if allotment.is_spent {
        paces.changed.insert(scope.clone());
    }
    paces.accounts.insert(scope, allotment.account);
    done
}
