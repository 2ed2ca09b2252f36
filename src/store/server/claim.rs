//! Claiming on servers: the next due rows, held from everybody else until they bear this worker's mark.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use crate::sms::{Sms, State, Timestamp};
use crate::store::foreign::Foreign;
use crate::store::schema::sms;

/// Beside the floor everything is looked at again after this: others may have put back what lies below.
const RESCAN: Duration = Duration::from_secs(1);

/// The last key claimed of each campaign, `(due_at, id)`. What lies before it is gone, but the index may
/// not have forgotten it yet: a claim that begins there walks over none of that.
#[derive(Default)]
pub(super) struct Floors(Mutex<HashMap<i64, Floor>>);

#[derive(Clone, Copy)]
struct Floor {
    key: (i64, i64),
    rescan_at: Instant,
}

impl Floors {
    fn of(&self, campaign_id: i64) -> Option<(i64, i64)> {
        let floors = self.0.lock().ok()?;
        let floor = floors.get(&campaign_id)?;
        (Instant::now() < floor.rescan_at).then_some(floor.key)
    }

    /// What was claimed is committed.
    pub(super) fn raise(&self, campaign_id: i64, key: (i64, i64)) {
        if let Ok(mut floors) = self.0.lock() {
            let rescan_at = Instant::now() + RESCAN;
            let floor = floors.entry(campaign_id).or_insert(Floor { key, rescan_at });
            if floor.rescan_at <= Instant::now() {
                floor.rescan_at = rescan_at;
            }
            floor.key = key;
        }
    }
}

#[derive(Clone, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub(super) struct Candidate {
    pub(super) id: i64,
    campaign_id: i64,
    phone: Foreign,
    content: Foreign,
    params: Foreign,
    segments: Option<i32>,
    in_doubt: bool,
    expires_at: Option<i64>,
    attempts: i32,
    claim: i64,
    reference: Option<String>,
    pub(super) due_at: i64,
}

impl Candidate {
    pub(super) fn is_garbled(&self) -> bool {
        self.phone.is_garbled || self.content.is_garbled || self.params.is_garbled
    }

    /// The message as it is once it is claimed.
    pub(super) fn claimed(self, nonce: &str) -> Sms {
        Sms {
            id: self.id,
            campaign_id: self.campaign_id,
            phone: self.phone.text,
            content: self.content.text,
            params: self.params.text,
            segments: self.segments,
            in_doubt: self.in_doubt,
            expires_at: self.expires_at.map(Timestamp::from_millis),
            attempts: self.attempts,
            claim: self.claim + 1,
            reference: self
                .reference
                .unwrap_or_else(|| format!("{nonce}{}", self.id)),
        }
    }
}

/// The campaign's next due rows, `count` at the most, held until the transaction ends; rows that another
/// holds are passed over. Fewer than `count` says that there are no more, whoever holds them.
pub(super) async fn due(
    link: &mut Link,
    floors: &Floors,
    campaign_id: i64,
    now: Timestamp,
    count: u32,
) -> QueryResult<Vec<Candidate>> {
    if let Some((due_at, id)) = floors.of(campaign_id) {
        let rows: Vec<Candidate> = on!(link, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.le(now.as_millis()))
            .filter(sms::due_at.ge(due_at))
            .filter(sms::due_at.gt(due_at).or(sms::id.gt(id)))
            .order((sms::due_at, sms::id))
            .limit(i64::from(count))
            .select(Candidate::as_select())
            .for_update()
            .skip_locked()
            .load(conn))?;
        if rows.len() >= count as usize {
            return Ok(rows);
        }
    }
    on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .filter(sms::due_at.le(now.as_millis()))
        .order((sms::due_at, sms::id))
        .limit(i64::from(count))
        .select(Candidate::as_select())
        .for_update()
        .skip_locked()
        .load(conn))
}

/// Marks rows as this worker's. A reference is set once and kept: the nonce and the message's id.
pub(super) async fn mark(
    link: &mut Link,
    ids: &[i64],
    worker_id: i64,
    now: Timestamp,
    nonce: &str,
) -> QueryResult<()> {
    let reference = diesel::dsl::sql::<Nullable<Text>>("coalesce(reference, concat(")
        .bind::<Text, _>(nonce)
        .sql(", id))");
    on!(link, |conn| update(
        sms::table.filter(sms::id.eq_any(ids))
    )
    .set((
        sms::state.eq(State::Sending.code()),
        sms::claim.eq(sms::claim + 1),
        sms::worker_id.eq(worker_id),
        sms::claimed_at.eq(now.as_millis()),
        sms::reference.eq(reference.clone()),
    ))
    .execute(conn))?;
    Ok(())
}

/// The moment at which the next row is due; `None` when none is ready.
pub(super) async fn next_due(
    link: &mut Link,
    campaign_id: i64,
) -> QueryResult<Option<Timestamp>> {
    let due: Option<i64> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .select(diesel::dsl::min(sms::due_at))
        .first(conn))?;
    Ok(due.map(Timestamp::from_millis))
}
