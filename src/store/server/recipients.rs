//! What recipients got of late, on servers: whoever claims under a cap holds one row of table `pace` from before
//! it looks until it commits, so that no two workers judge at once.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use diesel::{QueryResult, delete, insert_into, update};
use diesel_async::RunQueryDsl;

use super::insert::ROWS;
use super::link::{Link, on};
use super::pace;
use crate::phone::Phone;
use crate::queue::Admission;
use crate::queue::recipient_cap::may_have_reached;
use crate::sms::{Sms, State};
use crate::store::queue::{CommitBatch, ProviderClaimed};
use crate::store::recipients::{Promised, Start, cap, ended_at};
use crate::store::schema::{self, recipient_start, sms};

const SCOPE: &str = "recipients";

/// What a round knows of the recipients of its messages.
pub(super) struct Recipients {
    is_capped: bool,
    starts: Promised,
}

impl Recipients {
    /// Nobody else claims under a cap from here until the transaction ends.
    pub(super) async fn hold(link: &mut Link, round: &CommitBatch) -> QueryResult<Self> {
        let is_capped = !round.caps.0.is_empty();
        if is_capped && !round.claims.is_empty() {
            pace::hold(link, &BTreeSet::from([SCOPE.to_owned()])).await?;
            // In a cluster only what was written at once on two nodes is found out.
            on!(link, |conn| update(schema::pace::table.find(SCOPE))
                .set(schema::pace::next_us.eq(schema::pace::next_us + 1))
                .execute(conn))?;
        }
        Ok(Self {
            is_capped,
            starts: Promised::default(),
        })
    }

    pub(super) fn are_capped(&self) -> bool {
        self.is_capped
    }

    /// Reads what these phones got, those that were read already not again.
    pub(super) async fn look(
        &mut self,
        link: &mut Link,
        round: &CommitBatch,
        phones: Vec<String>,
    ) -> QueryResult<()> {
        let phones: BTreeSet<String> = phones.into_iter().collect();
        let new: Vec<String> = phones
            .into_iter()
            .filter(|phone| !self.starts.knows(phone))
            .collect();
        let sending = sms::id
            .eq(recipient_start::sms_id)
            .and(sms::claim.eq(recipient_start::claim))
            .and(sms::state.eq(State::Sending.code()));
        let found: Vec<(String, Start)> = on!(link, |conn| recipient_start::table
            .left_join(sms::table.on(sending))
            .filter(recipient_start::phone.eq_any(&new))
            .select((
                recipient_start::phone,
                (
                    recipient_start::sms_id,
                    recipient_start::claim,
                    recipient_start::ended_at,
                    sms::id.nullable(),
                ),
            ))
            .load(conn))?;
        for phone in &new {
            self.starts.learn(phone);
        }
        let mut unseen = Vec::new();
        for (phone, (sms_id, claim, ended, sending)) in found {
            if ended.is_none() && sending.is_none() {
                // Its worker died, or was told nothing of it: it ended unseen.
                unseen.push((sms_id, claim));
            }
            self.starts.add(&phone, ended.unwrap_or(ended_at(round)));
        }
        note_ended(link, round, &unseen).await
    }

    /// Says what becomes of a message whose recipient got enough; `None`: it may start.
    pub(super) fn keep_cap(
        &mut self,
        sms: &Sms,
        phone: &Phone,
        round: &CommitBatch,
    ) -> Option<Admission> {
        if !self.is_capped {
            return None;
        }
        let starts = self.starts.of(phone.as_str());
        let judged = cap(round).check(sms, phone, starts);
        let at = judged.as_ref().map_or(ended_at(round), |(_, at)| *at);
        self.starts.add(phone.as_str(), at);
        judged.map(|(admission, _)| admission)
    }
}

/// Notes the claims of a round: their requests may start once it is committed.
pub(super) async fn begin(
    link: &mut Link,
    round: &CommitBatch,
    claims: &[ProviderClaimed],
) -> QueryResult<()> {
    if round.caps.0.is_empty() {
        return Ok(());
    }
    let claimed = claims.iter().flat_map(|route| &route.rows);
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
        on!(link, |conn| insert_into(recipient_start::table)
            .values(rows)
            .execute(conn))?;
    }
    Ok(())
}

/// Notes which claims have ended, and gives back those that reached nobody.
pub(super) async fn end(link: &mut Link, round: &CommitBatch) -> QueryResult<()> {
    if round.caps.0.is_empty() {
        return Ok(());
    }
    let of = |wanted: bool| -> Vec<(i64, i64)> {
        let settlements = round.settlements.iter();
        settlements
            .filter(|settlement| may_have_reached(settlement) == Some(wanted))
            .map(|settlement| (settlement.id, settlement.claim))
            .collect()
    };
    note_ended(link, round, &of(true)).await?;
    for (claim, ids) in by_claim(&of(false)) {
        on!(link, |conn| delete(
            recipient_start::table
                .filter(recipient_start::claim.eq(claim))
                .filter(recipient_start::sms_id.eq_any(&ids))
        )
        .execute(conn))?;
    }
    if round.fill_limits {
        // The clock has jumped: nobody knows how long ago they were.
        on!(link, |conn| update(recipient_start::table)
            .filter(recipient_start::ended_at.is_not_null())
            .set(recipient_start::ended_at.eq(ended_at(round)))
            .execute(conn))?;
    }
    Ok(())
}

async fn note_ended(
    link: &mut Link,
    round: &CommitBatch,
    claims: &[(i64, i64)],
) -> QueryResult<()> {
    for (claim, ids) in by_claim(claims) {
        on!(link, |conn| update(
            recipient_start::table
                .filter(recipient_start::claim.eq(claim))
                .filter(recipient_start::sms_id.eq_any(&ids))
                .filter(recipient_start::ended_at.is_null())
        )
        .set(recipient_start::ended_at.eq(ended_at(round)))
        .execute(conn))?;
    }
    Ok(())
}

/// Messages by the number of their claim, which is the same for most.
fn by_claim(claims: &[(i64, i64)]) -> BTreeMap<i64, Vec<i64>> {
    let mut by_claim: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (sms_id, claim) in claims {
        by_claim.entry(*claim).or_default().push(*sms_id);
    }
    for ids in by_claim.values_mut() {
        ids.sort_unstable();
    }
    by_claim
}
