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
use crate::phone::Phone;
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

/// Rows that one ask may refuse in one round, so that a round stays short.
const REFUSALS: u64 = 1_000;

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
    for (campaign_id, drained) in done.claims.iter_mut().flat_map(|claim| &mut claim.drained) {
        if let Drained::Until(next) = drained {
            *next = claim::next_due(link, *campaign_id).await?;
        }
    }
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

/// What one route found, in the order of turns.
#[derive(Default)]
struct Found {
    asked: Vec<Asked>,
    halted: Vec<(i64, Drained)>,
    refused: u64,
}

/// What one ask found: messages that can be sent, `count` at the most.
struct Asked {
    campaign_id: i64,
    count: u32,
    ready: Vec<Ready>,
    /// There were no more.
    is_short: bool,
}

/// A message that can be sent, held but not yet claimed.
struct Ready {
    key: (i64, i64),
    sms: Sms,
    phone: Phone,
    segments: i32,
}

/// Looks for rows for whoever asks; the same campaign may be asked twice.
struct Search<'a> {
    round: &'a Round,
    campaigns: &'a HashMap<i64, Standing>,
    floors: &'a Floors,
    skips_locked: bool,
    nonce: &'a str,
    /// Whether the suppression list has anybody on it, once that was asked.
    suppressing: Option<bool>,
    /// The last key found of each campaign: a row that is held already must not be found again.
    held: HashMap<i64, (i64, i64)>,
    marks: Marks,
}

impl Search<'_> {
    async fn run(&mut self, link: &mut Link, route: &RouteClaim) -> QueryResult<Found> {
        let mut found = Found::default();
        let mut want = route.want;
        for ask in &route.asks {
            if want == 0 {
                break;
            }
            match self.campaigns.get(&ask.campaign_id) {
                Some(standing) if standing.state == CampaignState::Active => {}
                Some(standing) => {
                    let halted = Drained::Halted(standing.state, standing.reason.clone());
                    found.halted.push((ask.campaign_id, halted));
                    continue;
                }
                None => continue,
            }
            let count = want.min(ask.at_most);
            let asked = self
                .ask(link, ask.campaign_id, count, &mut found.refused)
                .await?;
            want -= u32::try_from(asked.ready.len()).unwrap_or(want).min(want);
            found.asked.push(asked);
        }
        Ok(found)
    }

    async fn ask(
        &mut self,
        link: &mut Link,
        campaign_id: i64,
        count: u32,
        refused: &mut u64,
    ) -> QueryResult<Asked> {
        let mut asked = Asked {
            campaign_id,
            count,
            ready: Vec::new(),
            is_short: false,
        };
        let before = *refused;
        while asked.ready.len() < count as usize && *refused - before < REFUSALS {
            let missing = count - u32::try_from(asked.ready.len()).unwrap_or(count);
            let wanted = claim::Wanted {
                campaign_id,
                now: self.round.now,
                after: self.held.get(&campaign_id).copied(),
                count: missing,
            };
            let rows = claim::due(link, self.floors, self.skips_locked, wanted).await?;
            asked.is_short = rows.len() < missing as usize;
            if let Some(key) = rows.iter().map(Candidate::key).max() {
                self.held.insert(campaign_id, key);
            }
            let suppressed = self.suppressed(link, &rows).await?;
            for row in rows {
                match self.admit(row, &suppressed) {
                    Some(ready) => asked.ready.push(ready),
                    None => *refused += 1,
                }
            }
            if asked.is_short {
                break;
            }
        }
        Ok(asked)
    }

    /// Which of these rows' phones nothing is sent to.
    async fn suppressed(
        &mut self,
        link: &mut Link,
        rows: &[Candidate],
    ) -> QueryResult<HashSet<String>> {
        if rows.is_empty() {
            return Ok(HashSet::new());
        }
        let suppressing = match self.suppressing {
            Some(suppressing) => suppressing,
            None => on!(link, |conn| diesel::select(diesel::dsl::exists(
                suppression::table.select(suppression::phone)
            ))
            .get_result(conn))?,
        };
        self.suppressing = Some(suppressing);
        if !suppressing {
            return Ok(HashSet::new());
        }
        let phones = rows
            .iter()
            .map(|row| (self.round.admit)(&row.clone().claimed("")));
        let phones: Vec<String> = phones
            .filter_map(|admission| match admission {
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

    /// A message that can be sent; any other is claimed, refused, and settled with the round.
    fn admit(&mut self, row: Candidate, suppressed: &HashSet<String>) -> Option<Ready> {
        let is_garbled = row.is_garbled();
        let key = row.key();
        let sms = row.claimed(self.nonce);
        let admission = if is_garbled {
            self.marks.rewritten.push(sms.clone());
            let why = "another program wrote it, and not in UTF-8";
            Admission::Refuse(Cause::new(Class::Content, why))
        } else {
            (self.round.admit)(&sms)
        };
        let cause = match admission {
            Admission::Send { phone, segments } if !suppressed.contains(phone.as_str()) => {
                return Some(Ready {
                    key,
                    sms,
                    phone,
                    segments,
                });
            }
            Admission::Send { phone, .. } => {
                self.marks.note_phone(&sms, &phone);
                Cause::new(Class::Suppressed, "the phone is on the suppression list")
            }
            Admission::Refuse(cause) => cause,
        };
        self.marks.ids.push(sms.id);
        self.marks.refused.push(Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: String::new(),
            fate: Fate::Refused(cause),
        });
        None
    }
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
    /// The phone as it is in the row from now on.
    fn note_phone(&mut self, sms: &Sms, phone: &Phone) {
        if sms.phone != phone.as_str() {
            let mut row = sms.clone();
            phone.as_str().clone_into(&mut row.phone);
            self.rewritten.push(row);
        }
    }

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
    let mut allotment = Allotment::new(route, account);
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
