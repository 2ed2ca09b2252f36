//! Claiming on servers: the next due rows, held from everybody else until they bear this worker's mark.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, update};
use diesel_async::RunQueryDsl;
use rand::seq::SliceRandom;

use super::insert::ROWS;
use super::link::{Link, on};
use super::settle;
use crate::phone::Phone;
use crate::queue::Settlement;
use crate::sms::{Sms, State, Timestamp};
use crate::store::foreign::LossyText;
use crate::store::queue::CommitBatch;
use crate::store::schema::{sms, worker};

/// Beside the floor everything is looked at again after this, though it costs what was not yet swept up:
/// others may have put back what lies below, or committed late. Once nothing is left above, it is at once.
const RESCAN: Duration = Duration::from_secs(5);

/// What a claim number is taken for, so that it can grow, whatever another program wrote.
const MOST: i64 = i64::MAX - 1;

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "least"]
    fn max_messages(number: BigInt, most: BigInt) -> BigInt;

    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Text>, fallback: Nullable<Text>) -> Nullable<Text>;

    #[sql_name = "concat"]
    fn joined(text: Text, number: BigInt) -> Text;
}

/// Where locked rows cannot be skipped, rows are chosen among so many times as many.
const SPREAD: i64 = 4;

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
            let floor = floors
                .entry(campaign_id)
                .or_insert(Floor { key, rescan_at });
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
    phone: LossyText,
    content: LossyText,
    params: LossyText,
    segments: Option<i32>,
    in_doubt: bool,
    expires_at: Option<i64>,
    attempts: i32,
    claim: i64,
    reference: Option<String>,
    due_at: i64,
}

impl Candidate {
    /// Its place in the order of claims.
    pub(super) fn key(&self) -> (i64, i64) {
        (self.due_at, self.id)
    }

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
            claim: self.claim.min(MOST) + 1,
            reference: self
                .reference
                .unwrap_or_else(|| format!("{nonce}{}", self.id)),
        }
    }
}

/// A campaign's next due rows are wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) campaign_id: i64,
    pub(super) now: Timestamp,
    /// Behind this key `(due_at, id)`: what lies before it is held already in this transaction.
    pub(super) after: Option<(i64, i64)>,
    /// At most so many.
    pub(super) count: u32,
}

/// The rows, held until the transaction ends; rows that another holds are passed over. Fewer than wanted
/// says that there are no more, whoever holds them.
pub(super) async fn due(
    link: &mut Link,
    floors: &Floors,
    skips_locked: bool,
    wanted: Wanted,
) -> QueryResult<Vec<Candidate>> {
    if !skips_locked {
        return due_without_skipping(link, wanted).await;
    }
    let floor = floors.of(wanted.campaign_id);
    if floor > wanted.after
        && let Some(floor) = floor
    {
        let rows = due_after(link, wanted, floor).await?;
        if rows.len() >= wanted.count as usize {
            return Ok(rows);
        }
    }
    match wanted.after {
        Some(after) => due_after(link, wanted, after).await,
        None => {
            on!(link, |conn| sms::table
                .filter(sms::campaign_id.eq(wanted.campaign_id))
                .filter(sms::state.eq(State::Ready.code()))
                .filter(sms::due_at.le(wanted.now.as_millis()))
                .order((sms::due_at, sms::id))
                .limit(i64::from(wanted.count))
                .select(Candidate::as_select())
                .for_update()
                .skip_locked()
                .load(conn))
        }
    }
}

/// Two ranges of the index, each entered at its first row: the rest of one moment, and what is due later.
async fn due_after(
    link: &mut Link,
    wanted: Wanted,
    (due_at, id): (i64, i64),
) -> QueryResult<Vec<Candidate>> {
    let mut rows: Vec<Candidate> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(wanted.campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .filter(sms::due_at.eq(due_at))
        .filter(sms::id.gt(id))
        .order((sms::due_at, sms::id))
        .limit(i64::from(wanted.count))
        .select(Candidate::as_select())
        .for_update()
        .skip_locked()
        .load(conn))?;
    let missing = i64::from(wanted.count) - i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if missing > 0 {
        let later: Vec<Candidate> = on!(link, |conn| sms::table
            .filter(sms::campaign_id.eq(wanted.campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.gt(due_at))
            .filter(sms::due_at.le(wanted.now.as_millis()))
            .order((sms::due_at, sms::id))
            .limit(missing)
            .select(Candidate::as_select())
            .for_update()
            .skip_locked()
            .load(conn))?;
        rows.extend(later);
    }
    Ok(rows)
}

/// Where locked rows cannot be skipped: some of the next rows are chosen at random, so that workers seldom
/// meet on one, waited for, and taken where they are still ready.
async fn due_without_skipping(link: &mut Link, wanted: Wanted) -> QueryResult<Vec<Candidate>> {
    let (due_at, id) = wanted.after.unwrap_or((i64::MIN, i64::MIN));
    let mut ids: Vec<i64> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(wanted.campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .filter(sms::due_at.le(wanted.now.as_millis()))
        .filter(sms::due_at.ge(due_at))
        .filter(sms::due_at.gt(due_at).or(sms::id.gt(id)))
        .order((sms::due_at, sms::id))
        .limit(i64::from(wanted.count) * SPREAD)
        .select(sms::id)
        .load(conn))?;
    ids.shuffle(&mut rand::rng());
    ids.truncate(wanted.count as usize);
    let mut rows: Vec<Candidate> = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(&ids))
        .filter(sms::state.eq(State::Ready.code()))
        .order(sms::id)
        .select(Candidate::as_select())
        .for_update()
        .load(conn))?;
    rows.sort_unstable_by_key(Candidate::key);
    Ok(rows)
}

/// Marks rows as this worker's. A reference is set once and kept: the nonce and the message's id.
///
/// Each must be ready to this moment, and the worker on the list; where that is not so, all begins anew.
pub(super) async fn mark(
    link: &mut Link,
    ids: &[i64],
    worker_id: i64,
    now: Timestamp,
    nonce: &str,
) -> QueryResult<()> {
    let mut marked = 0;
    for ids in ids.chunks(ROWS) {
        marked += on!(link, |conn| update(
            sms::table
                .filter(sms::id.eq_any(ids))
                .filter(sms::state.eq(State::Ready.code()))
                .filter(exists(worker::table.find(worker_id)))
        )
        .set((
            sms::state.eq(State::Sending.code()),
            sms::claim.eq(max_messages(sms::claim, MOST) + 1),
            sms::worker_id.eq(worker_id),
            sms::claimed_at.eq(now.as_millis()),
            sms::reference.eq(or_else(sms::reference, joined(nonce, sms::id).nullable())),
        ))
        .execute(conn))?;
    }
    if marked == ids.len() {
        Ok(())
    } else {
        Err(super::conflict("another worker claimed the same row"))
    }
}

/// What is written of all that was claimed.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) ids: Vec<i64>,
    /// Rows that were refused or have to wait.
    pub(super) passed_over: Vec<Settlement>,
    /// Rows whose phone is another once it is read, or whose text had to be made readable.
    pub(super) rewritten: Vec<Sms>,
    pub(super) reached: HashMap<i64, (i64, i64)>,
}

impl Marks {
    /// The phone as it is in the row from now on.
    pub(super) fn note_phone(&mut self, sms: &Sms, phone: &Phone) {
        if sms.phone != phone.as_str() {
            let mut row = sms.clone();
            phone.as_str().clone_into(&mut row.phone);
            self.rewritten.push(row);
        }
    }

    pub(super) async fn write(
        &mut self,
        link: &mut Link,
        round: &CommitBatch,
        nonce: &str,
    ) -> QueryResult<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        self.ids.sort_unstable();
        mark(link, &self.ids, round.worker_id, round.now, nonce).await?;
        for row in &self.rewritten {
            on!(link, |conn| update(sms::table.find(row.id))
                .set((
                    sms::phone.eq(&row.phone),
                    sms::content.eq(&row.content),
                    sms::params.eq(&row.params),
                ))
                .execute(conn))?;
        }
        settle::settle_all(link, &self.passed_over, round.now).await?;
        Ok(())
    }
}

/// The moment at which the next row is due; `None` when none is ready.
pub(super) async fn next_due(link: &mut Link, campaign_id: i64) -> QueryResult<Option<Timestamp>> {
    let due: Option<i64> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .select(diesel::dsl::min(sms::due_at))
        .get_result(conn))?;
    Ok(due.map(Timestamp::from_millis))
}
