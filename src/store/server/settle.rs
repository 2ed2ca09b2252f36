//! Settling on servers: many messages a statement, each row held until all of them are where they belong.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::moves::{self, Fault, Row};
use super::{insert, mysql, postgres};
use crate::queue::transition::{self, ResolvedTransition, cancelled};
use crate::queue::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, State, Timestamp};
use crate::store::CampaignStatus;
use crate::store::foreign::LossyText;
use crate::store::schema::{sms, sms_failed, sms_sent};

/// Settles all, in this order; what was done of each.
pub(super) async fn settle_all(
    link: &mut Link,
    settlements: &[Settlement],
    now: Timestamp,
) -> QueryResult<Vec<Settled>> {
    let mut settled = vec![Settled::Stale; settlements.len()];
    for wave in waves(settlements) {
        settle_wave(link, settlements, &wave, now, &mut settled).await?;
    }
    Ok(settled)
}

/// So many messages are settled at once at the most: a statement has room for so many numbers.
const WAVE: usize = 1_000;

/// The places of settlements that can be settled at once: none of the same message, refunds alone.
fn waves(settlements: &[Settlement]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut seen = BTreeSet::new();
    for (place, settlement) in settlements.iter().enumerate() {
        let is_refund = settlement.transition == Transition::Refunded;
        let fits = !is_refund && seen.insert(settlement.id);
        match waves.last_mut() {
            Some(wave) if fits && wave.len() < WAVE => wave.push(place),
            _ => {
                waves.push(vec![place]);
                seen.clear();
                seen.insert(settlement.id);
            }
        }
        if is_refund {
            waves.push(Vec::new());
            seen.clear();
        }
    }
    waves.retain(|wave| !wave.is_empty());
    waves
}

async fn settle_wave(
    link: &mut Link,
    settlements: &[Settlement],
    wave: &[usize],
    now: Timestamp,
    settled: &mut [Settled],
) -> QueryResult<()> {
    if let [place] = wave
        && settlements[*place].transition == Transition::Refunded
    {
        settled[*place] = refund(link, &settlements[*place], now).await?;
        return Ok(());
    }
    let ids: BTreeSet<i64> = wave.iter().map(|place| settlements[*place].id).collect();
    let rows = held_rows(link, &ids).await?;
    let cancelled = cancelled_among(link, settlements, wave, &rows).await?;
    let mut plan = Plan::default();
    for place in wave {
        let settlement = &settlements[*place];
        settled[*place] = match rows.get(&settlement.id) {
            Some(row) => {
                let is_cancelled = cancelled.contains(&row.campaign_id);
                let verdict = transition::resolve(settlement, &row.standing(), is_cancelled);
                plan.add(settlement, row, verdict, now)
            }
            None => match &settlement.transition {
                Transition::Sent(acceptance) => {
                    accept_elsewhere(link, settlement, acceptance, now).await?
                }
                _ => Settled::Stale,
            },
        };
    }
    plan.execute(link, now).await
}

/// The rows of these messages, held until the transaction ends, always in the same order.
async fn held_rows(link: &mut Link, ids: &BTreeSet<i64>) -> QueryResult<HashMap<i64, Row>> {
    let rows: Vec<Row> = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids.iter().copied()))
        .order(sms::id)
        .select(Row::as_select())
        .for_update()
        .load(conn))?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Those campaigns that are cancelled, of messages that would wait; none of them becomes so before this
/// transaction ends.
async fn cancelled_among(
    link: &mut Link,
    settlements: &[Settlement],
    wave: &[usize],
    rows: &HashMap<i64, Row>,
) -> QueryResult<BTreeSet<i64>> {
    let waiting = wave.iter().map(|place| &settlements[*place]);
    let waiting = waiting.filter(|settlement| transition::is_requeue(settlement));
    let campaigns: BTreeSet<i64> = waiting
        .filter_map(|settlement| rows.get(&settlement.id))
        .map(|row| row.campaign_id)
        .collect();
    if campaigns.is_empty() {
        return Ok(campaigns);
    }
    Ok(hold_states(link, &campaigns)
        .await?
        .into_iter()
        .filter(|(_, state)| *state == CampaignStatus::Cancelled.code())
        .map(|(id, _)| id)
        .collect())
}

pub(super) async fn hold_states(
    link: &mut Link,
    campaigns: &BTreeSet<i64>,
) -> QueryResult<Vec<(i64, i32)>> {
    let campaigns: Vec<i64> = campaigns.iter().copied().collect();
    match link {
        Link::Postgres(conn) => postgres::hold_states(conn, &campaigns).await,
        Link::Mysql(conn) => mysql::hold_states(conn, &campaigns).await,
    }
}

/// What goes where, so that all that go the same way go at once.
#[derive(Default)]
struct Plan {
    sent: Vec<moves::Sent>,
    /// Message, the provider's id for it, and the claims noted.
    noted: Vec<(i64, Option<String>, String)>,
    /// By class, code, reason and attempts.
    failed: BTreeMap<Fault, Vec<i64>>,
    parked: BTreeMap<Fault, Vec<i64>>,
    ready: BTreeMap<(i64, Option<Fault>, i32, bool), Vec<i64>>,
    cancelled: BTreeMap<i32, Vec<i64>>,
    /// Phones for the suppression list, and why.
    opted_out: BTreeMap<String, Option<String>>,
}

impl Plan {
    fn add(
        &mut self,
        settlement: &Settlement,
        row: &Row,
        verdict: ResolvedTransition,
        now: Timestamp,
    ) -> Settled {
        let id = settlement.id;
        if let ResolvedTransition::Failed { failure, .. }
        | ResolvedTransition::Unknown { failure, .. } = &verdict
            && let Some(reason) = transition::opted_out(settlement, failure, now)
        {
            self.opted_out.insert(row.phone.clone(), Some(reason));
        }
        match verdict {
            ResolvedTransition::Stale => return Settled::Stale,
            ResolvedTransition::Noted(claims) => {
                let message_id = match &settlement.transition {
                    Transition::Sent(acceptance) => acceptance.message_id.clone(),
                    _ => None,
                };
                self.noted
                    .extend(claims.map(|claims| (id, message_id, claims)));
                return Settled::Late;
            }
            ResolvedTransition::Sent {
                acceptance,
                counted,
                accepted,
                claims,
                settled,
            } => {
                let provider = settlement.provider.clone();
                let taken = moves::Taken {
                    counted,
                    accepted,
                    claims,
                };
                self.sent.push(row.sent(provider, acceptance, taken));
                return settled;
            }
            ResolvedTransition::Failed { failure, counted } => {
                self.failed
                    .entry(Fault::of(&failure, counted))
                    .or_default()
                    .push(id);
            }
            ResolvedTransition::Unknown { failure, counted } => {
                self.parked
                    .entry(Fault::of(&failure, counted))
                    .or_default()
                    .push(id);
            }
            ResolvedTransition::Ready {
                due_at,
                failure,
                counted,
                in_doubt,
            } => {
                let failure = failure.map(|failure| Fault::of(&failure, counted));
                let way = (due_at.as_millis(), failure, counted, in_doubt);
                self.ready.entry(way).or_default().push(id);
            }
            ResolvedTransition::Cancelled { counted } => {
                self.cancelled.entry(counted).or_default().push(id);
            }
        }
        Settled::Done
    }

    async fn execute(self, link: &mut Link, now: Timestamp) -> QueryResult<()> {
        let opted_out: Vec<_> = self.opted_out.into_iter().collect();
        if !opted_out.is_empty() {
            insert::suppress(link, &opted_out, now).await?;
        }
        moves::to_sent(link, self.sent, now).await?;
        for (id, message_id, claims) in self.noted {
            on!(link, |conn| update(sms::table.find(id))
                .set((
                    sms::late_accepted.eq(sms::late_accepted + 1),
                    sms::late_message_id.eq(&message_id),
                    sms::late_claims.eq(&claims),
                ))
                .execute(conn))?;
        }
        for (fault, ids) in self.failed {
            moves::to_failed(link, &ids, &fault, now).await?;
        }
        for (fault, ids) in self.parked {
            moves::park(link, &ids, &fault, now).await?;
        }
        for ((due_at, fault, counted, in_doubt), ids) in self.ready {
            moves::to_ready(link, &ids, due_at, fault.as_ref(), counted, in_doubt).await?;
        }
        for (counted, ids) in self.cancelled {
            moves::give_up_keys(link, &ids).await?;
            moves::to_failed(link, &ids, &Fault::of(&cancelled(), counted), now).await?;
        }
        Ok(())
    }
}

async fn accept_elsewhere(
    link: &mut Link,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<Settled> {
    let id = settlement.id;
    let ledger: Vec<(i64, i32, Option<String>)> = on!(link, |conn| sms_sent::table
        .find(id)
        .select((
            sms_sent::claim,
            sms_sent::accepted,
            sms_sent::accepted_claims
        ))
        .for_update()
        .load(conn))?;
    if let [(claim, accepted, claims)] = ledger.as_slice() {
        let counted =
            transition::with_accepted_claim(settlement, *claim, *accepted, claims.as_deref());
        let Some(counted) = counted else {
            return Ok(Settled::Done);
        };
        on!(link, |conn| update(sms_sent::table.find(id))
            .set((
                sms_sent::accepted.eq(sms_sent::accepted + 1),
                sms_sent::accepted_claims.eq(&counted),
            ))
            .execute(conn))?;
        return Ok(Settled::Late);
    }
    let keys: Vec<(i64, Option<LossyText>)> = on!(link, |conn| sms_failed::table
        .find(id)
        .select((sms_failed::campaign_id, sms_failed::dedupe_key))
        .for_update()
        .load(conn))?;
    let Some((campaign_id, key)) = keys.into_iter().next() else {
        return Ok(Settled::Stale);
    };
    if let Some(key) = key {
        // A cancelled message gave up its key, and was sent nevertheless.
        moves::take_keys(link, campaign_id, &[key.text]).await?;
    }
    moves::failed_to_sent(link, settlement, acceptance, now).await?;
    Ok(Settled::Late)
}

/// Gives an attempt back, whether the message still waits or this was its last.
async fn refund(link: &mut Link, settlement: &Settlement, now: Timestamp) -> QueryResult<Settled> {
    let id = settlement.id;
    let waiting = on!(link, |conn| update(
        sms::table
            .find(id)
            .filter(sms::claim.eq(settlement.claim))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::attempts.gt(0))
            .filter(crate::store::queue::is_not_refunded(settlement.claim))
    )
    .set((
        sms::attempts.eq(sms::attempts - 1),
        sms::refunded_claim.eq(settlement.claim),
        sms::due_at.eq(now.as_millis()),
    ))
    .execute(conn))?;
    if waiting == 1 {
        return Ok(Settled::Done);
    }
    let found: Vec<i64> = on!(link, |conn| sms_failed::table
        .find(id)
        .filter(sms_failed::claim.eq(settlement.claim))
        .filter(sms_failed::class.eq(Class::Unavailable.as_str()))
        .select(sms_failed::campaign_id)
        .for_update()
        .load(conn))?;
    let Some(campaign_id) = found.into_iter().next() else {
        return Ok(Settled::Stale);
    };
    moves::back_to_queue(link, &[id], now).await?;
    on!(link, |conn| update(sms::table.find(id))
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(settlement.claim),
        ))
        .execute(conn))?;
    let states = hold_states(link, &BTreeSet::from([campaign_id])).await?;
    if states
        .iter()
        .any(|(_, state)| *state == CampaignStatus::Cancelled.code())
    {
        moves::give_up_keys(link, &[id]).await?;
        moves::to_failed(link, &[id], &Fault::of(&cancelled(), 0), now).await?;
    }
    Ok(Settled::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_settled_twice_at_once_and_refunds_stand_alone() {
        let settlement = |id, transition| Settlement {
            id,
            claim: 1,
            provider: String::new(),
            transition,
        };
        let sent = || Transition::Sent(Acceptance::default());
        let settlements = [
            settlement(1, sent()),
            settlement(2, sent()),
            settlement(1, sent()),
            settlement(3, Transition::Refunded),
            settlement(4, sent()),
        ];
        let expected: [&[usize]; 4] = [&[0, 1], &[2], &[3], &[4]];
        assert_eq!(waves(&settlements), expected);
    }
}
