//! Stores results: locks the rows, decides the transition of each, and writes all equal transitions in one statement.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use diesel::update;
use smsq_lifecycle::transition::{
    self, CertainFailure, NewState, ResolvedTransition, RowChange, SentCounts,
};
use smsq_lifecycle::{Settled, Settlement, Transition};
use smsq_message::sms::{Acceptance, Class, Sms, State, Timestamp};

use super::attempts::{self, NewAttempt};
use super::effects::Effects;
use super::transitions::{
    self, LockedMessages, QueuedSms, SentMove, TakenNow, UnknownChange, Version, is_version,
};
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, all_removed, in_list};
use crate::limits::spending::Reserves;
use crate::recipients::dead::{self, DeadNumber, DeadNumbers};
use crate::recipients::suppression;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, sms, sms_failed, sms_rest, sms_sent};

/// The most messages that are settled in one statement.
const GROUP: usize = 1_000;

/// Messages as a worker claimed them.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClaimedRows<'a> {
    pub(in crate::queue) by_id: Option<&'a HashMap<i64, Sms>>,
    /// A row may have changed since its claim, so it is read.
    pub(in crate::queue) may_be_changed: bool,
}

impl<'a> ClaimedRows<'a> {
    /// The message as it was claimed in the claim that is settled.
    fn of(&self, settlement: &Settlement) -> Option<&'a Sms> {
        let sms = self.by_id?.get(&settlement.id)?;
        (sms.claim == settlement.claim).then_some(sms)
    }

    /// What this claim took from budgets.
    fn taken(&self, settlement: &Settlement) -> TakenNow<'a> {
        let sms = self.of(settlement);
        TakenNow::Again(sms.and_then(|sms| sms.stored.reserve.as_ref()))
    }
}

/// Stores settlements in their order; returns what was done with each, and what that changes of budgets. Of accepted
/// messages in `claimed` no row is read: if one has changed since its claim, the transaction is repeated.
pub(crate) async fn settle_all(
    connection: &mut Connection,
    settlements: &[Settlement],
    claimed: ClaimedRows<'_>,
    now: Timestamp,
) -> QueryResult<(Vec<Settled>, Effects)> {
    let mut settled = Vec::with_capacity(settlements.len());
    let mut effects = Effects::default();
    for group in groups(settlements) {
        if let [settlement] = group
            && settlement.transition == Transition::Refunded
        {
            let (refunded, changed) = refund(connection, settlement, now).await?;
            settled.push(refunded);
            effects.extend(changed);
        } else {
            let (of_group, changed) = settle_group(connection, group, claimed, now).await?;
            settled.extend(of_group);
            effects.extend(changed);
        }
    }
    Ok((settled, effects))
}

/// Divides settlements into groups that can be stored together: no message twice, refunds alone.
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
    claimed: ClaimedRows<'_>,
    now: Timestamp,
) -> QueryResult<(Vec<Settled>, Effects)> {
    let rows = read_rows(connection, group, claimed).await?;
    let requeued: Vec<(i64, i64)> = group
        .iter()
        .filter(|settlement| transition::is_requeue(settlement))
        .filter_map(|settlement| rows.get(&settlement.id))
        .map(|row| (row.id, row.campaign_id))
        .collect();
    let is_cancelled = |status| status == CampaignStatus::Cancelled;
    let cancelled = lock_campaigns(connection, &requeued, is_cancelled).await?;
    let cancelled: HashSet<i64> = cancelled.into_iter().collect();
    let (mut changes, mut effects) = (Changes::default(), Effects::default());
    let mut settled = Vec::with_capacity(group.len());
    for settlement in group {
        settled.push(match (rows.get(&settlement.id), &settlement.transition) {
            (Some(row), _) => {
                let is_cancelled = cancelled.contains(&row.id);
                let resolved = transition::resolve(settlement, &row.state(), is_cancelled);
                changes.record_attempt(settlement, row, &resolved);
                let taken = claimed.taken(settlement);
                changes.add(settlement, row, resolved, taken, now)
            }
            (None, Transition::Sent(acceptance)) => {
                let taken = claimed.taken(settlement);
                let (elsewhere, left) =
                    accept_elsewhere(connection, settlement, acceptance, taken, now).await?;
                effects.extend(left);
                elsewhere
            }
            (None, _) => Settled::Stale,
        });
    }
    effects.extend(changes.execute(connection, now).await?);
    Ok((settled, effects))
}

/// Reads the rows of these messages, and locks them in the order of their ids unless all of them were accepted: those
/// are moved only if nothing else has changed them.
async fn read_rows(
    connection: &mut Connection,
    group: &[Settlement],
    claimed: ClaimedRows<'_>,
) -> QueryResult<HashMap<i64, QueuedSms>> {
    let mut known = HashMap::with_capacity(group.len());
    let mut ids = Vec::new();
    let is_sent = |settlement: &Settlement| matches!(settlement.transition, Transition::Sent(_));
    for settlement in group {
        let sms = claimed.of(settlement).filter(|_| !claimed.may_be_changed);
        if let (Some(sms), Transition::Sent(acceptance)) = (sms, &settlement.transition) {
            known.insert(sms.id, QueuedSms::claimed(sms, acceptance.awaits_receipt));
        } else {
            ids.push(settlement.id);
        }
    }
    if ids.is_empty() {
        return Ok(known);
    }
    ids.sort_unstable();
    let rows: Vec<QueuedSms> = if group.iter().all(is_sent) {
        transitions::rows(connection, &ids).await?
    } else {
        let ids = in_list(ids);
        sms::table
            .filter(sms::id.eq_any(&ids))
            .order(sms::id)
            .select(QueuedSms::as_select())
            .kept()
            .locked()
            .load(connection)
            .await?
    };
    known.extend(rows.into_iter().map(|row| (row.id, row)));
    Ok(known)
}

/// Of messages with their campaigns, the ids of those whose campaign has a wanted status. No campaign changes its
/// status before this transaction ends.
pub(crate) async fn lock_campaigns(
    connection: &mut Connection,
    messages: &[(i64, i64)],
    is_wanted: impl Fn(CampaignStatus) -> bool,
) -> QueryResult<Vec<i64>> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let campaigns: BTreeSet<i64> = messages.iter().map(|(_, campaign)| *campaign).collect();
    let statuses: Vec<(i64, CampaignStatus)> = campaign::table
        .filter(campaign::id.eq_any(&campaigns))
        .order(campaign::id)
        .select((campaign::id, campaign::state))
        .locked_shared()
        .load(connection)
        .await?;
    let wanted: BTreeSet<i64> =
        statuses.into_iter().filter(|(_, status)| is_wanted(*status)).map(|(id, _)| id).collect();
    Ok(messages
        .iter()
        .filter(|(_, campaign)| wanted.contains(campaign))
        .map(|(id, _)| *id)
        .collect())
}

/// The changes of a transaction. All messages that change in the same way are written at once.
#[derive(Default)]
struct Changes {
    sent: Vec<SentMove>,
    /// Late acceptances: message, provider, and column `late_claims`.
    noted: Vec<(i64, Version, String, Acceptance, String)>,
    others: BTreeMap<RowChange, Vec<i64>>,
    /// What these messages have taken from budgets.
    reserves: Reserves,
    attempts: Vec<NewAttempt>,
    /// Phones for the suppression list, and why.
    opted_out: BTreeMap<String, Option<String>>,
    dead: DeadNumbers,
}

impl Changes {
    /// Keeps the end of an attempt that was not accepted, also if an earlier one was accepted meanwhile.
    fn record_attempt(
        &mut self,
        settlement: &Settlement,
        row: &QueuedSms,
        resolved: &ResolvedTransition,
    ) {
        if *resolved == ResolvedTransition::Stale {
            return;
        }
        if let Some((outcome, failure)) = settlement.transition.failed_attempt() {
            self.attempts.push(NewAttempt {
                sms_id: settlement.id,
                claim: settlement.claim,
                provider: settlement.provider.clone(),
                outcome,
                failure: failure.clone(),
                reference: row.reference(),
            });
        }
    }

    fn add(
        &mut self,
        settlement: &Settlement,
        row: &QueuedSms,
        resolved: ResolvedTransition,
        taken: TakenNow<'_>,
        now: Timestamp,
    ) -> Settled {
        let id = settlement.id;
        match resolved {
            ResolvedTransition::Stale => Settled::Stale,
            ResolvedTransition::Noted(claims) => {
                if let (Transition::Sent(acceptance), Some(claims)) =
                    (&settlement.transition, claims)
                {
                    let provider = settlement.provider.clone();
                    let acceptance = acceptance.clone();
                    self.noted.push((id, row.version(), provider, acceptance, claims));
                }
                Settled::Late
            }
            ResolvedTransition::Sent { provider, acceptance, counts, settled } => {
                let taken = taken_now(settlement, row, taken);
                self.sent.push(row.sent(&provider, acceptance, counts, taken, now));
                settled
            }
            ResolvedTransition::Changed(change) => {
                let failure = match &change.to {
                    NewState::Failed(certain) => Some(certain.failure()),
                    NewState::Unknown(failure, _) => Some(failure),
                    NewState::Ready(_) | NewState::Cancelled(_) => None,
                };
                if let Some(failure) = failure
                    && let Some(reason) = transition::opted_out(settlement, failure, now)
                {
                    self.opted_out.insert(row.phone.clone(), Some(reason));
                }
                if let Some(failure) = failure.filter(|failure| failure.is_dead_number) {
                    let number = DeadNumber::new(&settlement.provider, failure);
                    self.dead.insert(row.phone.clone(), number);
                }
                self.reserves.extend(row.reserve().map(|reserve| (id, reserve)));
                self.others.entry(change).or_default().push(id);
                Settled::Done
            }
        }
    }

    async fn execute(self, connection: &mut Connection, now: Timestamp) -> QueryResult<Effects> {
        let opted_out: Vec<_> = self.opted_out.into_iter().collect();
        if !opted_out.is_empty() {
            suppression::insert(connection, &opted_out, now).await?;
        }
        dead::record(connection, self.dead, now).await?;
        attempts::store(connection, self.attempts, now).await?;
        let mut effects = Effects::from(transitions::to_sent(connection, self.sent).await?);
        for (id, (claim, state, late), provider, acceptance, claims) in self.noted {
            let noted = update(sms::table.find(id).filter(is_version(claim, state, late)))
                .set((
                    sms::late_accepted.eq(sms::late_accepted + 1),
                    sms::late_provider.eq(&provider),
                    sms::late_message_id.eq(&acceptance.message_id),
                    sms::late_claims.eq(&claims),
                ))
                .execute(connection)
                .await?;
            all_removed(noted, 1)?;
            update(sms_rest::table.find(id))
                .set(sms_rest::late_awaits_receipt.eq(acceptance.awaits_receipt))
                .execute(connection)
                .await?;
        }
        for (RowChange { to, counted }, ids) in self.others {
            let messages = LockedMessages { ids: &ids, reserves: &self.reserves };
            let changed = match to {
                NewState::Failed(failure) => {
                    transitions::to_failed(connection, messages, &failure, counted, now).await?
                }
                NewState::Unknown(failure, doubt) => {
                    let change = UnknownChange { failure: &failure, doubt, counted };
                    transitions::mark_unknown(connection, messages, change, now).await?
                }
                NewState::Ready(requeue) => {
                    transitions::to_ready(connection, messages, &requeue, counted, now)
                        .await?
                        .into()
                }
                NewState::Cancelled(failure) => {
                    cancel(connection, messages, &failure, counted, now).await?
                }
            };
            effects.extend(changed);
        }
        Ok(effects)
    }
}

/// What the claim of a message that moves to `sms_sent` has cost. `given_back`: what it took, if that was given back.
fn taken_now<'a>(
    settlement: &Settlement,
    row: &QueuedSms,
    given_back: TakenNow<'a>,
) -> TakenNow<'a> {
    let row = row.state();
    let is_own = row.claim == settlement.claim;
    let is_certain = row.state == State::Ready.code() && !row.in_doubt;
    match settlement.transition {
        Transition::Sent(_) if is_own && is_certain => given_back,
        Transition::Sent(_) if is_own => TakenNow::Priced,
        // The late acceptance of an earlier claim.
        Transition::Sent(_) | Transition::Unknown(_) | Transition::Ready { in_doubt: true, .. } => {
            TakenNow::Unchanged
        }
        _ => TakenNow::Nothing,
    }
}

/// Fails messages of a cancelled campaign and removes their keys.
pub(in crate::queue) async fn cancel(
    connection: &mut Connection,
    messages: LockedMessages<'_>,
    failure: &CertainFailure,
    counted: i32,
    now: Timestamp,
) -> QueryResult<Effects> {
    transitions::remove_keys_of(connection, messages.ids).await?;
    transitions::to_failed(connection, messages, failure, counted, now).await
}

/// Stores the acceptance of a message that is not in the queue.
async fn accept_elsewhere(
    connection: &mut Connection,
    settlement: &Settlement,
    acceptance: &Acceptance,
    taken: TakenNow<'_>,
    now: Timestamp,
) -> QueryResult<(Settled, Effects)> {
    let id = settlement.id;
    let sent: Vec<(i64, i32, Option<String>)> = sms_sent::table
        .find(id)
        .select((sms_sent::claim, sms_sent::accepted, sms_sent::accepted_claims))
        .locked()
        .load(connection)
        .await?;
    if let [(claim, accepted, claims)] = sent.as_slice() {
        let counted =
            transition::with_accepted_claim(settlement, *claim, *accepted, claims.as_deref());
        let Some(counted) = counted else {
            return Ok((Settled::Done, Effects::default()));
        };
        update(sms_sent::table.find(id))
            .set((
                sms_sent::accepted.eq(sms_sent::accepted + 1),
                sms_sent::accepted_claims.eq(&counted),
            ))
            .execute(connection)
            .await?;
        return Ok((Settled::Late, Effects::default()));
    }
    let failed: Vec<(i64, Option<LossyText>, String)> = sms_failed::table
        .find(id)
        .select((sms_failed::campaign_id, sms_failed::dedupe_key, sms_failed::class))
        .locked()
        .load(connection)
        .await?;
    let Some((campaign_id, key, class)) = failed.into_iter().next() else {
        return Ok((Settled::Stale, Effects::default()));
    };
    transitions::take_key_of_cancelled(connection, campaign_id, &class, key).await?;
    transitions::back_to_queue(connection, &[id], now).await?;
    let rows = transitions::rows(connection, &[id]).await?;
    let sent = rows.iter().map(|row| {
        let counts =
            SentCounts { attempts: 0, accepted: 1, claims: Some(settlement.claim.to_string()) };
        row.sent(&settlement.provider, acceptance.clone(), counts, taken, now)
    });
    let spending = transitions::to_sent(connection, sent.collect()).await?;
    Ok((Settled::Late, spending.into()))
}

/// The attempt of this claim was not refunded yet: a refund is repeated if the answer to its commit was lost.
#[diesel::dsl::auto_type]
fn is_not_refunded(claim: i64) -> _ {
    let is_refunded = sms::refunded_claim.eq(claim).assume_not_null();
    sms::refunded_claim.is_null().or(diesel::dsl::not(is_refunded))
}

/// Refunds an attempt of a message that is queued or failed with this attempt.
async fn refund(
    connection: &mut Connection,
    settlement: &Settlement,
    now: Timestamp,
) -> QueryResult<(Settled, Effects)> {
    let (id, claim) = (settlement.id, settlement.claim);
    let queued = update(
        sms::table
            .find(id)
            .filter(sms::claim.eq(claim))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::attempts.gt(0))
            .filter(is_not_refunded(claim)),
    )
    .set((sms::attempts.eq(sms::attempts - 1), sms::refunded_claim.eq(claim), sms::due_at.eq(now)))
    .kept()
    .execute(connection)
    .await?;
    if queued == 1 {
        return Ok((Settled::Done, Effects::default()));
    }
    let failed: Vec<i64> = sms_failed::table
        .find(id)
        .filter(sms_failed::claim.eq(claim))
        .filter(sms_failed::class.eq(Class::Unavailable.as_str()))
        .select(sms_failed::campaign_id)
        .locked()
        .load(connection)
        .await?;
    let Some(campaign_id) = failed.into_iter().next() else {
        return Ok((Settled::Stale, Effects::default()));
    };
    transitions::back_to_queue(connection, &[id], now).await?;
    update(sms::table.find(id))
        .set((
            sms::attempts.eq(sms::attempts - 1),
            sms::refunded_claim.eq(claim),
            // It was answered as not accepted.
            sms::reference.eq(None::<String>),
        ))
        .execute(connection)
        .await?;
    attempts::retried(connection, id, claim).await?;
    let is_cancelled = |status| status == CampaignStatus::Cancelled;
    let cancelled = lock_campaigns(connection, &[(id, campaign_id)], is_cancelled).await?;
    let mut effects = Effects::default();
    // It had failed, so it is not in doubt, and has taken nothing.
    if !cancelled.is_empty()
        && let Ok(failure) = CertainFailure::unless_in_doubt(transition::cancelled(), false)
    {
        let messages = LockedMessages { ids: &cancelled, reserves: &Reserves::new() };
        effects = cancel(connection, messages, &failure, 0, now).await?;
    }
    Ok((Settled::Done, effects))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_has_no_message_twice_and_refunds_are_alone() {
        let settlement =
            |id, transition| Settlement { id, claim: 1, provider: String::new(), transition };
        let sent = || Transition::Sent(Acceptance::default());
        let settlements = [
            settlement(1, sent()),
            settlement(2, sent()),
            settlement(1, sent()),
            settlement(3, Transition::Refunded),
            settlement(4, sent()),
        ];
        let sizes: Vec<usize> = groups(&settlements).iter().map(|group| group.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
    }
}
