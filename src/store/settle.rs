//! Stores results: the rows are locked, what becomes of each is resolved, and all that go the same way are moved
//! in one statement.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;

use super::connection::{Connection, Prepared, in_list, load_locked, with_conn};
use super::lossy_text::LossyText;
use super::schema::{campaign, sms, sms_failed, sms_sent};
use super::transitions::{self, FailureColumns, Requeue, Row, SentCounts, SentRow};
use super::{CampaignStatus, suppression};
use crate::queue::transition::{self, ResolvedTransition, cancelled};
use crate::queue::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, State, Timestamp};

/// The most messages that are settled in one statement.
const GROUP: usize = 1_000;

/// Settles all in their order; returns what was done of each.
pub(super) async fn settle_all(
    connection: &mut Connection,
    settlements: &[Settlement],
    now: Timestamp,
) -> QueryResult<Vec<Settled>> {
    let mut settled = Vec::with_capacity(settlements.len());
    for group in groups(settlements) {
        if let [settlement] = group
            && settlement.transition == Transition::Refunded
        {
            settled.push(refund(connection, settlement, now).await?);
        } else {
            settled.extend(settle_group(connection, group, now).await?);
        }
    }
    Ok(settled)
}

/// Settlements that can be stored together: no message twice, refunds alone.
fn groups(settlements: &[Settlement]) -> Vec<&[Settlement]> {
    let mut groups = Vec::new();
    let mut rest = settlements;
    while !rest.is_empty() {
        let mut seen = BTreeSet::new();
        let fits = |one: &&Settlement| {
            one.transition != Transition::Refunded && seen.insert(one.id) && seen.len() <= GROUP
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count);
        groups.push(group);
        rest = others;
    }
    groups
}

async fn settle_group(
    connection: &mut Connection,
    group: &[Settlement],
    now: Timestamp,
) -> QueryResult<Vec<Settled>> {
    let rows = lock_rows(connection, group).await?;
    let cancelled = cancelled_among(connection, group, &rows).await?;
    let mut moves = Moves::default();
    let mut settled = Vec::with_capacity(group.len());
    for settlement in group {
        settled.push(match (rows.get(&settlement.id), &settlement.transition) {
            (Some(row), _) => {
                let is_cancelled = cancelled.contains(&row.campaign_id);
                let resolved = transition::resolve(settlement, &row.state(), is_cancelled);
                moves.add(settlement, row, resolved, now)
            }
            (None, Transition::Sent(acceptance)) => {
                accept_elsewhere(connection, settlement, acceptance, now).await?
            }
            (None, _) => Settled::Stale,
        });
    }
    moves.execute(connection, now).await?;
    Ok(settled)
}

/// The rows of these messages, locked in the order of their ids.
async fn lock_rows(
    connection: &mut Connection,
    group: &[Settlement],
) -> QueryResult<HashMap<i64, Row>> {
    let mut ids: Vec<i64> = group.iter().map(|settlement| settlement.id).collect();
    ids.sort_unstable();
    let ids = in_list(&ids);
    let rows: QueryResult<Vec<Row>> = load_locked!(
        connection,
        prepared sms::table
            .filter(sms::id.eq_any(&ids))
            .order(sms::id)
            .select(Row::as_select())
    );
    Ok(rows?.into_iter().map(|row| (row.id, row)).collect())
}

/// The cancelled campaigns of messages that would be requeued; none is cancelled before this transaction ends.
async fn cancelled_among(
    connection: &mut Connection,
    group: &[Settlement],
    rows: &HashMap<i64, Row>,
) -> QueryResult<BTreeSet<i64>> {
    let requeued = group.iter().filter(|one| transition::is_requeue(one));
    let campaigns: BTreeSet<i64> = requeued
        .filter_map(|settlement| rows.get(&settlement.id))
        .map(|row| row.campaign_id)
        .collect();
    let statuses = lock_statuses(connection, &campaigns).await?;
    let is_cancelled = |(_, status): &(i64, CampaignStatus)| *status == CampaignStatus::Cancelled;
    Ok(statuses
        .into_iter()
        .filter(is_cancelled)
        .map(|(id, _)| id)
        .collect())
}

/// The statuses of campaigns, none of which is changed before this transaction ends.
pub(super) async fn lock_statuses(
    connection: &mut Connection,
    campaigns: &BTreeSet<i64>,
) -> QueryResult<Vec<(i64, CampaignStatus)>> {
    if campaigns.is_empty() {
        return Ok(Vec::new());
    }
    let statuses = || {
        campaign::table
            .filter(campaign::id.eq_any(campaigns))
            .order(campaign::id)
            .select((campaign::id, campaign::state))
    };
    let rows: QueryResult<Vec<(i64, i32)>> = match connection {
        Connection::Postgres(conn) => statuses().for_share().load(&mut **conn).await,
        other => load_locked!(other, statuses()),
    };
    let of = |(id, code)| (id, CampaignStatus::of(code));
    Ok(rows?.into_iter().map(of).collect())
}

/// What goes where, so that all that go the same way go at once.
#[derive(Default)]
struct Moves {
    sent: Vec<SentRow>,
    /// Message, the provider's id of it, and the claims noted.
    noted: Vec<(i64, Option<String>, String)>,
    failed: BTreeMap<FailureColumns, Vec<i64>>,
    unknown: BTreeMap<FailureColumns, Vec<i64>>,
    ready: BTreeMap<Requeue, Vec<i64>>,
    /// By the number of attempts counted.
    cancelled: BTreeMap<i32, Vec<i64>>,
    /// Phones for the suppression list, and why.
    opted_out: BTreeMap<String, Option<String>>,
}

impl Moves {
    fn add(
        &mut self,
        settlement: &Settlement,
        row: &Row,
        resolved: ResolvedTransition,
        now: Timestamp,
    ) -> Settled {
        let id = settlement.id;
        if let ResolvedTransition::Failed { failure, .. }
        | ResolvedTransition::Unknown { failure, .. } = &resolved
            && let Some(reason) = transition::opted_out(settlement, failure, now)
        {
            self.opted_out.insert(row.phone.clone(), Some(reason));
        }
        match resolved {
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
                let counts = SentCounts {
                    attempts: counted,
                    accepted,
                    claims,
                };
                let sent = row.sent(&settlement.provider, acceptance, counts, now);
                self.sent.push(sent);
                return settled;
            }
            ResolvedTransition::Failed { failure, counted } => {
                let failure = FailureColumns::of(&failure, counted);
                self.failed.entry(failure).or_default().push(id);
            }
            ResolvedTransition::Unknown { failure, counted } => {
                let failure = FailureColumns::of(&failure, counted);
                self.unknown.entry(failure).or_default().push(id);
            }
            ResolvedTransition::Ready {
                due_at,
                failure,
                counted,
                in_doubt,
            } => {
                let requeue = Requeue {
                    due_at: due_at.as_millis(),
                    failure: failure.map(|failure| FailureColumns::of(&failure, counted)),
                    attempts: counted,
                    in_doubt,
                };
                self.ready.entry(requeue).or_default().push(id);
            }
            ResolvedTransition::Cancelled { counted } => {
                self.cancelled.entry(counted).or_default().push(id);
            }
        }
        Settled::Done
    }

    async fn execute(self, connection: &mut Connection, now: Timestamp) -> QueryResult<()> {
        let opted_out: Vec<_> = self.opted_out.into_iter().collect();
        if !opted_out.is_empty() {
            suppression::insert(connection, &opted_out, now).await?;
        }
        transitions::to_sent(connection, self.sent).await?;
        for (id, message_id, claims) in self.noted {
            with_conn!(connection, |conn| update(sms::table.find(id))
                .set((
                    sms::late_accepted.eq(sms::late_accepted + 1),
                    sms::late_message_id.eq(&message_id),
                    sms::late_claims.eq(&claims),
                ))
                .execute(conn))?;
        }
        for (failure, ids) in self.failed {
            transitions::to_failed(connection, &ids, &failure, now).await?;
        }
        for (failure, ids) in self.unknown {
            transitions::mark_unknown(connection, &ids, &failure, now).await?;
        }
        for (requeue, ids) in self.ready {
            transitions::to_ready(connection, &ids, &requeue).await?;
        }
        for (attempts, ids) in self.cancelled {
            cancel(connection, &ids, attempts, now).await?;
        }
        Ok(())
    }
}

/// Fails messages of a cancelled campaign and removes their keys.
pub(super) async fn cancel(
    connection: &mut Connection,
    ids: &[i64],
    attempts: i32,
    now: Timestamp,
) -> QueryResult<()> {
    transitions::remove_keys_of(connection, ids).await?;
    let failure = FailureColumns::of(&cancelled(), attempts);
    transitions::to_failed(connection, ids, &failure, now).await
}

/// Stores the acceptance of a message that is not in the queue.
async fn accept_elsewhere(
    connection: &mut Connection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<Settled> {
    let id = settlement.id;
    let sent: QueryResult<Vec<(i64, i32, Option<String>)>> = load_locked!(
        connection,
        sms_sent::table.find(id).select((
            sms_sent::claim,
            sms_sent::accepted,
            sms_sent::accepted_claims
        ))
    );
    if let [(claim, accepted, claims)] = sent?.as_slice() {
        let counted =
            transition::with_accepted_claim(settlement, *claim, *accepted, claims.as_deref());
        let Some(counted) = counted else {
            return Ok(Settled::Done);
        };
        with_conn!(connection, |conn| update(sms_sent::table.find(id))
            .set((
                sms_sent::accepted.eq(sms_sent::accepted + 1),
                sms_sent::accepted_claims.eq(&counted),
            ))
            .execute(conn))?;
        return Ok(Settled::Late);
    }
    let failed: QueryResult<Vec<(i64, Option<LossyText>)>> = load_locked!(
        connection,
        sms_failed::table
            .find(id)
            .select((sms_failed::campaign_id, sms_failed::dedupe_key))
    );
    let Some((campaign_id, key)) = failed?.into_iter().next() else {
        return Ok(Settled::Stale);
    };
    if let Some(key) = key {
        // A cancelled message has lost its key, but it was sent.
        transitions::add_keys(connection, campaign_id, &[key.text]).await?;
    }
    transitions::failed_to_sent(connection, settlement, acceptance, now).await?;
    Ok(Settled::Late)
}

/// The row's attempt of this claim was not given back yet. The answer to the commit of a refund may be lost.
#[diesel::dsl::auto_type]
fn is_not_refunded(claim: i64) -> _ {
    let is_refunded = sms::refunded_claim.eq(claim).assume_not_null();
    sms::refunded_claim
        .is_null()
        .or(diesel::dsl::not(is_refunded))
}

/// Gives an attempt back, whether the message is queued or has failed with it.
async fn refund(
    connection: &mut Connection,
    settlement: &Settlement,
    now: Timestamp,
) -> QueryResult<Settled> {
    let (id, claim) = (settlement.id, settlement.claim);
    let queued = with_conn!(connection, |conn| Prepared(
        update(
            sms::table
                .find(id)
                .filter(sms::claim.eq(claim))
                .filter(sms::state.eq(State::Ready.code()))
                .filter(sms::attempts.gt(0))
                .filter(is_not_refunded(claim))
        )
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(claim),
            sms::due_at.eq(now.as_millis()),
        ))
    )
    .execute(conn))?;
    if queued == 1 {
        return Ok(Settled::Done);
    }
    let failed: QueryResult<Vec<i64>> = load_locked!(
        connection,
        sms_failed::table
            .find(id)
            .filter(sms_failed::claim.eq(claim))
            .filter(sms_failed::class.eq(Class::Unavailable.as_str()))
            .select(sms_failed::campaign_id)
    );
    let Some(campaign_id) = failed?.into_iter().next() else {
        return Ok(Settled::Stale);
    };
    transitions::back_to_queue(connection, &[id], now).await?;
    with_conn!(connection, |conn| update(sms::table.find(id))
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(claim),
        ))
        .execute(conn))?;
    let statuses = lock_statuses(connection, &BTreeSet::from([campaign_id])).await?;
    if statuses == [(campaign_id, CampaignStatus::Cancelled)] {
        cancel(connection, &[id], 0, now).await?;
    }
    Ok(Settled::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_has_no_message_twice_and_refunds_are_alone() {
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
        let sizes: Vec<usize> = groups(&settlements)
            .iter()
            .map(|group| group.len())
            .collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
    }
}
