//! Table `recipient_start`: the claims that may have reached a recipient, of all campaigns and workers. A claim whose
//! request may still start counts as starting now, an ended one as starting at its end. The row of a claim that was
//! certainly not accepted is deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::{delete, update};
use smsq_lifecycle::Admission;
use smsq_lifecycle::recipient_cap::{RecipientCap, may_have_reached};
use smsq_message::phone::Phone;
use smsq_message::sms::{Sms, State, Timestamp};
use smsq_process::boxed;

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS};
use crate::error::StoreError;
use crate::limits::rows;
use crate::queue::commit_batch::{CommitBatch, ProviderClaimed};
use crate::tables::schema::{rate_limit, recipient_start, sms};
use crate::{CHUNK, Store};

/// The row of `rate_limit` that a worker locks while it checks recipients.
const SCOPE: &str = "recipients";

/// The latest start of a request that has ended by now, by any worker's clock.
fn ended_at(batch: &CommitBatch) -> i64 {
    batch.now.plus(batch.tolerance.total).as_millis()
}

/// The starts to the recipients of a commit.
pub(crate) struct Recipients {
    is_capped: bool,
    /// The starts to each phone that was read, in milliseconds; those of delayed messages are in the future.
    starts: HashMap<String, Vec<i64>>,
}

/// Message, claim, end of the attempt, and the id of the message if it is still sending.
type Start = (i64, i64, Option<i64>, Option<i64>);

impl Recipients {
    /// Locks all recipients if there are caps, so that only one worker checks them at a time.
    pub(crate) async fn lock(
        connection: &mut Connection,
        batch: &CommitBatch,
    ) -> QueryResult<Self> {
        let is_capped = !batch.caps.0.is_empty();
        if is_capped && !connection.is_sqlite() {
            rows::lock(connection, &BTreeSet::from([SCOPE.to_owned()])).await?;
            // Nodes of a cluster only detect conflicts of rows that both have written.
            update(rate_limit::table.find(SCOPE))
                .set(rate_limit::next_us.eq(rate_limit::next_us + 1))
                .execute(connection)
                .await?;
        }
        Ok(Self { is_capped, starts: HashMap::new() })
    }

    /// Reads the starts to phones that were not read yet.
    pub(crate) async fn read(
        &mut self,
        connection: &mut Connection,
        batch: &CommitBatch,
        mut phones: Vec<String>,
    ) -> QueryResult<()> {
        phones.retain(|phone| !self.starts.contains_key(phone));
        if !self.is_capped || phones.is_empty() {
            return Ok(());
        }
        let sending = sms::id
            .eq(recipient_start::sms_id)
            .and(sms::claim.eq(recipient_start::claim))
            .and(sms::state.eq(State::Sending.code()));
        let found: Vec<(String, Start)> = recipient_start::table
            .left_join(sms::table.on(sending))
            .filter(recipient_start::phone.eq_any(&phones))
            .select((
                recipient_start::phone,
                (
                    recipient_start::sms_id,
                    recipient_start::claim,
                    recipient_start::ended_at,
                    sms::id.nullable(),
                ),
            ))
            .load(connection)
            .await?;
        for phone in phones {
            self.starts.entry(phone).or_default();
        }
        let mut unseen = Vec::new();
        for (phone, (sms_id, claim, ended, sending)) in found {
            if ended.is_none() && sending.is_none() {
                // Its worker died or did not get the answer to its commit.
                unseen.push((sms_id, claim));
            }
            let starts = self.starts.entry(phone).or_default();
            starts.push(ended.unwrap_or(ended_at(batch)));
        }
        store_ended(connection, batch, &unseen).await
    }

    /// Delays or fails a message whose recipient has reached a cap; `None` if it may start.
    pub(crate) fn check_cap(
        &mut self,
        sms: &Sms,
        phone: &Phone,
        batch: &CommitBatch,
    ) -> Option<Admission> {
        if !self.is_capped {
            return None;
        }
        let cap =
            RecipientCap { caps: &batch.caps, now: batch.now, tolerance: batch.tolerance.total };
        let starts = self.starts.entry(phone.as_str().to_owned()).or_default();
        let capped = cap.check(sms, phone, starts);
        starts.push(capped.as_ref().map_or(ended_at(batch), |(_, at)| *at));
        capped.map(|(admission, _)| admission)
    }
}

/// Stores the claims of a commit, whose requests may start after it.
pub(crate) async fn store_claimed(
    connection: &mut Connection,
    batch: &CommitBatch,
    claims: &[ProviderClaimed],
) -> QueryResult<()> {
    if batch.caps.0.is_empty() {
        return Ok(());
    }
    let claimed = claims.iter().flat_map(|claim| &claim.rows);
    let rows: Vec<_> = claimed
        .map(|row| {
            (
                recipient_start::sms_id.eq(row.sms.id),
                recipient_start::claim.eq(row.sms.claim),
                recipient_start::phone.eq(row.phone.as_str()),
            )
        })
        .collect();
    for rows in rows.chunks(ROWS) {
        NewRows::of(recipient_start::table, rows).insert(connection).await?;
    }
    Ok(())
}

/// Stores the ends of claims, and deletes claims that reached no recipient.
pub(crate) async fn store_settled(
    connection: &mut Connection,
    batch: &CommitBatch,
) -> QueryResult<()> {
    if batch.caps.0.is_empty() {
        return Ok(());
    }
    let claims = |reached: bool| -> Vec<(i64, i64)> {
        batch
            .settlements
            .iter()
            .filter(|settlement| may_have_reached(settlement) == Some(reached))
            .map(|settlement| (settlement.id, settlement.claim))
            .collect()
    };
    store_ended(connection, batch, &claims(true)).await?;
    for (claim, ids) in by_claim(&claims(false)) {
        delete(
            recipient_start::table
                .filter(recipient_start::claim.eq(claim))
                .filter(recipient_start::sms_id.eq_any(&ids)),
        )
        .execute(connection)
        .await?;
    }
    if batch.fill_limits {
        // The clock has jumped, so all of them count as ended now.
        update(recipient_start::table)
            .filter(recipient_start::ended_at.is_not_null())
            .set(recipient_start::ended_at.eq(ended_at(batch)))
            .execute(connection)
            .await?;
    }
    Ok(())
}

async fn store_ended(
    connection: &mut Connection,
    batch: &CommitBatch,
    claims: &[(i64, i64)],
) -> QueryResult<()> {
    for (claim, ids) in by_claim(claims) {
        update(
            recipient_start::table
                .filter(recipient_start::claim.eq(claim))
                .filter(recipient_start::sms_id.eq_any(&ids))
                .filter(recipient_start::ended_at.is_null()),
        )
        .set(recipient_start::ended_at.eq(ended_at(batch)))
        .execute(connection)
        .await?;
    }
    Ok(())
}

/// The ids of messages by the number of their claim, which is equal for most.
fn by_claim(claims: &[(i64, i64)]) -> BTreeMap<i64, BTreeSet<i64>> {
    let mut by_claim: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for (sms_id, claim) in claims {
        by_claim.entry(*claim).or_default().insert(*sms_id);
    }
    by_claim
}

impl Store {
    /// Deletes some of the starts that ended before an instant; returns how many.
    #[boxed]
    pub async fn prune_recipient_starts(&self, before: Timestamp) -> Result<u64, StoreError> {
        let ends: Vec<Option<i64>> = self
            .read(
                recipient_start::table
                    .filter(recipient_start::ended_at.lt(before))
                    .order(recipient_start::ended_at)
                    .limit(CHUNK)
                    .select(recipient_start::ended_at),
            )
            .await?;
        let Some(Some(last)) = ends.last() else {
            return Ok(0);
        };
        let deleted: usize = self
            .write(delete(recipient_start::table.filter(recipient_start::ended_at.le(*last))))
            .await?;
        Ok(deleted as u64)
    }
}
