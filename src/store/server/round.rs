//! The round on servers: settle, halt, claim, in one transaction. Rows are held first and the shared pace
//! last, so that workers wait for each other only while moments are given out and committed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;
use rand::RngExt;

use super::Server;
use super::claim::{self, Candidate, Floors};
use super::link::{Link, on};
use super::{pace, settle};
use crate::rate::Rates;
use crate::sms::{Cause, Class, Sms};
use crate::store::pace::allotment::{Allotment, Own};
use crate::store::pace::{Pace, campaign_scope, provider_scope};
use crate::store::queue::{
    Admission, Claimed, Drained, Fate, Moment, Round, RoundDone, RouteClaim, RouteClaimed,
    Settlement,
};
use crate::store::schema::{campaign, sms, suppression};
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
    let mut search = Search {
        round,
        campaigns: &campaigns,
        floors,
        skips_locked,
        held: HashMap::new(),
    };
    let mut found = Vec::new();
    for route in &round.claims {
        found.push(search.run(link, route).await?);
    }
    let suppressed = suppressed(link, round, &found).await?;
    let mut paces = Paces::hold(link, round, &campaigns).await?;
    for (provider, until) in &round.stops {
        paces.stop(&provider_scope(provider), until.as_millis());
    }
    let nonce = format!("{:016x}", rand::rng().random::<u64>());
    let mut marks = Marks::default();
    for (route, found) in round.claims.iter().zip(found) {
        let give = Give {
            round,
            route,
            suppressed: &suppressed,
            nonce: &nonce,
        };
        done.claims.push(give.out(found, &mut paces, &mut marks));
    }
    paces.keep(link).await?;
    marks.write(link, round, &nonce).await?;
    reached.extend(marks.reached);
    Ok(Played { done, reached })
}

/// A campaign as a claim needs it.
struct Standing {
    state: CampaignState,
    reason: Option<String>,
    limits: Rates,
}

async fn campaigns(link: &mut Link, round: &Round) -> QueryResult<HashMap<i64, Standing>> {
    let ids: BTreeSet<i64> = round
        .claims
        .iter()
        .flat_map(|route| {
            let held = route.held.iter().chain(&route.returned);
            let held = held.map(|held| held.campaign_id);
            held.chain(route.asks.iter().map(|ask| ask.campaign_id))
        })
        .collect();
    let rows: Vec<(i64, i32, Option<String>, String)> = on!(link, |conn| campaign::table
        .filter(campaign::id.eq_any(&ids))
        .select((
            campaign::id,
            campaign::state,
            campaign::state_reason,
            campaign::rate,
        ))
        .load(conn))?;
    Ok(rows
        .into_iter()
        .map(|(id, state, reason, rate)| {
            let standing = Standing {
                state: CampaignState::of(state),
                reason,
                limits: rate.parse().unwrap_or_default(),
            };
            (id, standing)
        })
        .collect())
}

/// What one route found: candidates in the order of turns, and campaigns that have no more.
#[derive(Default)]
struct Found {
    asked: Vec<(i64, u32, Vec<Candidate>)>,
    drained: Vec<(i64, Drained)>,
}

/// Looks for rows for whoever asks; the same campaign may be asked twice.
struct Search<'a> {
    round: &'a Round,
    campaigns: &'a HashMap<i64, Standing>,
    floors: &'a Floors,
    skips_locked: bool,
    /// The last key found of each campaign: a row that is held already must not be found again.
    held: HashMap<i64, (i64, i64)>,
}

impl Search<'_> {
    async fn run(&mut self, link: &mut Link, route: &RouteClaim) -> QueryResult<Found> {
        let mut found = Found::default();
        let mut want = route.want;
        for ask in &route.asks {
            if want == 0 {
                break;
            }
            let campaign_id = ask.campaign_id;
            match self.campaigns.get(&campaign_id) {
                Some(standing) if standing.state == CampaignState::Active => {}
                Some(standing) => {
                    let halted = Drained::Halted(standing.state, standing.reason.clone());
                    found.drained.push((campaign_id, halted));
                    continue;
                }
                None => continue,
            }
            let wanted = claim::Wanted {
                campaign_id,
                now: self.round.now,
                after: self.held.get(&campaign_id).copied(),
                count: want.min(ask.at_most),
            };
            let rows = claim::due(link, self.floors, self.skips_locked, wanted).await?;
            if let Some(key) = rows.iter().map(Candidate::key).max() {
                self.held.insert(campaign_id, key);
            }
            let got = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            if got < wanted.count {
                let next = claim::next_due(link, campaign_id).await?;
                found.drained.push((campaign_id, Drained::Until(next)));
            }
            want -= got.min(want);
            found.asked.push((campaign_id, wanted.count, rows));
        }
        Ok(found)
    }
}

/// Which of the candidates' phones nothing is sent to.
async fn suppressed(
    link: &mut Link,
    round: &Round,
    found: &[Found],
) -> QueryResult<HashSet<String>> {
    let candidates = found.iter().flat_map(|found| &found.asked);
    if candidates.clone().all(|(_, _, rows)| rows.is_empty()) {
        return Ok(HashSet::new());
    }
    let is_used: bool = on!(link, |conn| diesel::select(diesel::dsl::exists(
        suppression::table.select(suppression::phone)
    ))
    .get_result(conn))?;
    if !is_used {
        return Ok(HashSet::new());
    }
    let phones: Vec<String> = candidates
        .flat_map(|(_, _, rows)| rows)
        .filter_map(|row| match (round.admit)(&row.clone().claimed("")) {
            Admission::Send { phone, .. } => Some(phone.as_str().to_owned()),
            Admission::Refuse(_) => None,
        })
        .collect();
    let listed: Vec<String> = on!(link, |conn| suppression::table
        .filter(suppression::phone.eq_any(&phones))
        .select(suppression::phone)
        .load(conn))?;
    Ok(listed.into_iter().collect())
}

/// The shared limits of a round: those that anybody spends from are held.
struct Paces {
    accounts: BTreeMap<String, Pace>,
    own: HashMap<i64, Own>,
    changed: BTreeSet<String>,
}

impl Paces {
    async fn hold(
        link: &mut Link,
        round: &Round,
        campaigns: &HashMap<i64, Standing>,
    ) -> QueryResult<Self> {
        let limited: BTreeMap<i64, &Rates> = campaigns
            .iter()
            .filter(|(_, standing)| !standing.limits.0.is_empty())
            .map(|(id, standing)| (*id, &standing.limits))
            .collect();
        let of_routes = round
            .claims
            .iter()
            .map(|route| provider_scope(&route.provider));
        let seen = pace::look(link, &of_routes.collect()).await?;
        let now = round.now.as_millis();
        let mut scopes: BTreeSet<String> = limited.keys().map(|id| campaign_scope(*id)).collect();
        scopes.extend(
            round
                .stops
                .iter()
                .map(|(provider, _)| provider_scope(provider)),
        );
        for route in &round.claims {
            let scope = provider_scope(&route.provider);
            // Another worker's limit holds for those who have none, too.
            let others = seen
                .get(&scope)
                .is_some_and(|pace| pace.slowest_until > now);
            if !route.limits.is_empty() || others || !limited.is_empty() {
                scopes.insert(scope);
            }
        }
        let mut accounts = pace::hold(link, &scopes).await?;
        let mut own = HashMap::new();
        for (id, limits) in limited {
            let mut pace = accounts.remove(&campaign_scope(id)).unwrap_or_default();
            let from_us = round.claims.iter().map(|route| route.from_us).min();
            let from_us = from_us.unwrap_or(0);
            pace.begin(&limits.0, round.worker_id, from_us, round.lease);
            if round.refill {
                pace.refill(from_us);
            }
            let is_spent = false;
            own.insert(id, Own { pace, is_spent });
        }
        for (scope, pace) in seen {
            accounts.entry(scope).or_insert(pace);
        }
        Ok(Self {
            accounts,
            own,
            changed: BTreeSet::new(),
        })
    }

    fn stop(&mut self, scope: &str, until: i64) {
        let pace = self.accounts.entry(scope.to_owned()).or_default();
        pace.stopped_until = pace.stopped_until.max(until);
        self.changed.insert(scope.to_owned());
    }

    async fn keep(&self, link: &mut Link) -> QueryResult<()> {
        for scope in &self.changed {
            if let Some(account) = self.accounts.get(scope) {
                pace::keep(link, scope, account).await?;
            }
        }
        for (id, own) in &self.own {
            if own.is_spent && own.pace.is_limited() {
                pace::keep(link, &campaign_scope(*id), &own.pace).await?;
            }
        }
        Ok(())
    }
}

/// What is written of all that was claimed.
#[derive(Default)]
struct Marks {
    ids: Vec<i64>,
    refused: Vec<Settlement>,
    /// Rows whose phone is another once it is read, or whose text had to be made readable.
    rewritten: Vec<Sms>,
    reached: HashMap<i64, (i64, i64)>,
}

impl Marks {
    async fn write(&mut self, link: &mut Link, round: &Round, nonce: &str) -> QueryResult<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        self.ids.sort_unstable();
        claim::mark(link, &self.ids, round.worker_id, round.now, nonce).await?;
        for row in &self.rewritten {
            on!(link, |conn| update(sms::table.find(row.id))
                .set((
                    sms::phone.eq(&row.phone),
                    sms::content.eq(&row.content),
                    sms::params.eq(&row.params),
                ))
                .execute(conn))?;
        }
        settle::settle_all(link, &self.refused, round.now).await?;
        Ok(())
    }
}

/// Gives moments to one route's rows.
struct Give<'a> {
    round: &'a Round,
    route: &'a RouteClaim,
    suppressed: &'a HashSet<String>,
    nonce: &'a str,
}

impl Give<'_> {
    fn out(&self, found: Found, paces: &mut Paces, marks: &mut Marks) -> RouteClaimed {
        let (round, route) = (self.round, self.route);
        let scope = provider_scope(&route.provider);
        let mut account = paces.accounts.remove(&scope).unwrap_or_default();
        account.begin(&route.limits, round.worker_id, route.from_us, round.lease);
        if round.refill {
            account.refill(route.from_us);
        }
        let mut allotment = Allotment::new(route, account);
        let mut done = RouteClaimed {
            drained: found.drained,
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
        for (campaign_id, count, rows) in found.asked {
            let own = paces.own.entry(campaign_id).or_default();
            let permits = allotment.permits(own, count);
            let mut claimed = 0;
            for row in rows {
                if claimed == permits {
                    break;
                }
                marks.reached.insert(campaign_id, row.key());
                marks.ids.push(row.id);
                match self.admit(row, marks) {
                    Some((sms, phone, segments)) => {
                        let moment = allotment.moment(own, segments, i64::MAX);
                        let moment = moment.unwrap_or(Moment::AtOnce);
                        done.rows.push(Claimed { sms, phone, moment });
                        claimed += 1;
                    }
                    None => done.refused += 1,
                }
            }
        }
        done.next_us = allotment.next_us;
        if allotment.is_spent {
            paces.changed.insert(scope.clone());
        }
        paces.accounts.insert(scope, allotment.account);
        done
    }

    /// A claimed message that will be sent; any other is refused, and settled with the round.
    fn admit(&self, row: Candidate, marks: &mut Marks) -> Option<(Sms, crate::phone::Phone, i32)> {
        let is_garbled = row.is_garbled();
        let mut sms = row.claimed(self.nonce);
        let admission = if is_garbled {
            marks.rewritten.push(sms.clone());
            let why = "another program wrote it, and not in UTF-8";
            Admission::Refuse(Cause::new(Class::Content, why))
        } else {
            (self.round.admit)(&sms)
        };
        let cause = match admission {
            Admission::Send { phone, segments } => {
                if sms.phone != phone.as_str() {
                    phone.as_str().clone_into(&mut sms.phone);
                    marks.rewritten.push(sms.clone());
                }
                if !self.suppressed.contains(&sms.phone) {
                    sms.segments = Some(segments);
                    return Some((sms, phone, segments));
                }
                Cause::new(Class::Suppressed, "the phone is on the suppression list")
            }
            Admission::Refuse(cause) => cause,
        };
        marks.refused.push(Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: String::new(),
            fate: Fate::Refused(cause),
        });
        None
    }
}
