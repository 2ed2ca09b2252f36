//! How messages move between the tables on servers, all that go the same way at once, always by id.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::{QueryResult, delete, insert_into, update};
use diesel_async::RunQueryDsl;

use super::all_removed;
use super::link::{Link, on};
use crate::queue::Settlement;
use crate::queue::transition::{RowState, number_taken};
use crate::sms::{Acceptance, Failure, State, Timestamp};
use crate::store::foreign::LossyText;
use crate::store::schema::{sms, sms_failed, sms_key, sms_sent};

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "coalesce"]
    fn or_else(value: Nullable<Integer>, fallback: Nullable<Integer>) -> Nullable<Integer>;

    /// A count that another program wrote may leave no room for one more.
    #[sql_name = "least"]
    fn max_messages(count: Integer, most: Integer) -> Integer;
}

/// What a count is taken for, so that it can be added to.
const MOST: i32 = 2_000_000_000;

/// What a settlement needs to know of a message.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) campaign_id: i64,
    import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub(super) phone: String,
    segments: Option<i32>,
    state: i32,
    in_doubt: bool,
    attempts: i32,
    claim: i64,
    reference: Option<String>,
    late_accepted: i32,
    late_message_id: Option<String>,
    late_claims: Option<String>,
    unknown_at: Option<i64>,
    created_at: i64,
}

/// A row of the ledger.
#[derive(Clone, Debug, Insertable)]
#[diesel(table_name = sms_sent)]
#[expect(clippy::struct_field_names, reason = "they are the columns")]
pub(super) struct Sent {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: String,
    reference: Option<String>,
    provider: String,
    message_id: Option<String>,
    segments: Option<i32>,
    price: Option<String>,
    attempts: i32,
    accepted: i32,
    accepted_claims: Option<String>,
    claim: i64,
    created_at: i64,
    sent_at: i64,
}

/// How a move to the ledger counts.
#[derive(Default)]
pub(super) struct Taken {
    /// Attempts that were not counted yet.
    pub(super) counted: i32,
    /// Acceptances beside those that the row has noted.
    pub(super) accepted: i32,
    /// The ledger's `accepted_claims`.
    pub(super) claims: Option<String>,
}

/// A cause as its columns have it, and how many attempts count with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fault {
    class: &'static str,
    code: Option<String>,
    reason: String,
    counted: i32,
}

impl Row {
    pub(super) fn standing(&self) -> RowState {
        RowState {
            claim: self.claim,
            state: self.state,
            in_doubt: self.in_doubt,
            is_only_doubt: self.unknown_at.is_some(),
            late_accepted: self.late_accepted,
            late_message_id: self.late_message_id.clone(),
            late_claims: self.late_claims.clone(),
        }
    }

    /// The ledger's row of this message.
    pub(super) fn sent(&self, provider: String, acceptance: Acceptance, taken: Taken) -> Sent {
        Sent {
            id: self.id,
            campaign_id: self.campaign_id,
            import_id: self.import_id,
            phone: self.phone.clone(),
            reference: self.reference.clone(),
            provider,
            message_id: acceptance.message_id,
            segments: acceptance.segments.or(self.segments),
            price: acceptance.price,
            attempts: self.attempts.saturating_add(taken.counted),
            accepted: self.late_accepted.saturating_add(taken.accepted),
            accepted_claims: taken.claims,
            claim: self.claim,
            created_at: self.created_at,
            sent_at: 0,
        }
    }
}

impl Fault {
    pub(super) fn of(failure: &Failure, counted: i32) -> Self {
        Self {
            class: failure.class.as_str(),
            code: failure.code.clone(),
            reason: failure.reason.clone(),
            counted,
        }
    }
}

/// The rows of these messages.
pub(super) async fn rows(link: &mut Link, ids: &[i64]) -> QueryResult<Vec<Row>> {
    on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .order(sms::id)
        .select(Row::as_select())
        .load(conn))
}

pub(super) async fn to_sent(
    link: &mut Link,
    mut sent: Vec<Sent>,
    now: Timestamp,
) -> QueryResult<()> {
    if sent.is_empty() {
        return Ok(());
    }
    sent.sort_unstable_by_key(|row| row.id);
    let ids: Vec<i64> = sent.iter().map(|row| row.id).collect();
    for row in &mut sent {
        row.sent_at = now.as_millis();
    }
    for rows in sent.chunks(1_000) {
        on!(link, |conn| insert_into(sms_sent::table)
            .values(rows)
            .execute(conn))?;
    }
    let removed = on!(link, |conn| delete(sms::table.filter(sms::id.eq_any(&ids)))
        .execute(conn))?;
    all_removed(removed, ids.len())
}

/// Moves a row of `sms_failed` to the ledger: the message was accepted after all.
pub(super) async fn failed_to_sent(
    link: &mut Link,
    settlement: &Settlement,
    acceptance: &Acceptance,
    now: Timestamp,
) -> QueryResult<()> {
    let id = settlement.id;
    on!(link, |conn| sms_failed::table
        .find(id)
        .select((
            sms_failed::id,
            sms_failed::campaign_id,
            sms_failed::import_id,
            sms_failed::phone,
            sms_failed::reference,
            settlement.provider.as_str().into_sql::<Text>(),
            acceptance
                .message_id
                .as_deref()
                .into_sql::<Nullable<Text>>(),
            or_else(acceptance.segments, sms_failed::segments),
            acceptance.price.as_deref().into_sql::<Nullable<Text>>(),
            sms_failed::attempts,
            settlement.claim.to_string().into_sql::<Text>().nullable(),
            sms_failed::claim,
            sms_failed::created_at,
            now.as_millis().into_sql::<BigInt>(),
        ))
        .insert_into(sms_sent::table)
        .into_columns((
            sms_sent::id,
            sms_sent::campaign_id,
            sms_sent::import_id,
            sms_sent::phone,
            sms_sent::reference,
            sms_sent::provider,
            sms_sent::message_id,
            sms_sent::segments,
            sms_sent::price,
            sms_sent::attempts,
            sms_sent::accepted_claims,
            sms_sent::claim,
            sms_sent::created_at,
            sms_sent::sent_at,
        ))
        .execute(conn))?;
    let removed = on!(link, |conn| delete(sms_failed::table.find(id))
        .execute(conn))?;
    all_removed(removed, 1)
}

pub(super) async fn to_failed(
    link: &mut Link,
    ids: &[i64],
    fault: &Fault,
    now: Timestamp,
) -> QueryResult<()> {
    let mut ids = Vec::from(ids);
    if ids.is_empty() {
        return Ok(());
    }
    let taken: Vec<i64> = on!(link, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(&ids))
        .select(sms_failed::id)
        .load(conn))?;
    if !taken.is_empty() {
        park(
            link,
            &taken,
            &Fault::of(&number_taken(), fault.counted),
            now,
        )
        .await?;
        // What became of it is known, so no later answer ends the doubt.
        on!(link, |conn| update(
            sms::table.filter(sms::id.eq_any(&taken))
        )
        .set(sms::unknown_at.eq(None::<i64>))
        .execute(conn))?;
        ids.retain(|id| !taken.contains(id));
    }
    let ids = &ids;
    let moved = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .select((
            (
                sms::id,
                sms::campaign_id,
                sms::import_id,
                sms::phone,
                sms::content,
                sms::params,
                sms::segments,
                sms::expires_at,
            ),
            (
                fault.class.into_sql::<Text>(),
                fault.code.as_deref().into_sql::<Nullable<Text>>(),
                fault.reason.as_str().into_sql::<Text>(),
                max_messages(sms::attempts, MOST) + fault.counted,
                sms::claim,
                sms::reference,
                sms::dedupe_key,
                sms::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms_failed::table)
        .into_columns((
            (
                sms_failed::id,
                sms_failed::campaign_id,
                sms_failed::import_id,
                sms_failed::phone,
                sms_failed::content,
                sms_failed::params,
                sms_failed::segments,
                sms_failed::expires_at,
            ),
            (
                sms_failed::class,
                sms_failed::code,
                sms_failed::reason,
                sms_failed::attempts,
                sms_failed::claim,
                sms_failed::reference,
                sms_failed::dedupe_key,
                sms_failed::created_at,
                sms_failed::failed_at,
            ),
        ))
        .execute(conn))?;
    let removed = on!(link, |conn| delete(sms::table.filter(sms::id.eq_any(ids)))
        .execute(conn))?;
    all_removed(removed, moved)
}

/// Parks rows as unknown, in doubt from now on.
pub(super) async fn park(
    link: &mut Link,
    ids: &[i64],
    fault: &Fault,
    now: Timestamp,
) -> QueryResult<()> {
    on!(link, |conn| update(sms::table.filter(sms::id.eq_any(ids)))
        .set((
            sms::state.eq(State::Unknown.code()),
            // Before `in_doubt`: MySQL reads what an assignment to its left has set.
            sms::unknown_at.eq(crate::store::unknown::unless_in_doubt!(now)),
            sms::in_doubt.eq(true),
            sms::worker_id.eq(None::<i64>),
            sms::attempts.eq(max_messages(sms::attempts, MOST) + fault.counted),
            sms::last_class.eq(fault.class),
            sms::last_code.eq(&fault.code),
            sms::last_reason.eq(&fault.reason),
        ))
        .execute(conn))?;
    Ok(())
}

pub(super) async fn to_ready(
    link: &mut Link,
    ids: &[i64],
    due_at: i64,
    fault: Option<&Fault>,
    counted: i32,
    in_doubt: bool,
) -> QueryResult<()> {
    let ready = (
        sms::state.eq(State::Ready.code()),
        sms::worker_id.eq(None::<i64>),
        sms::due_at.eq(due_at),
        sms::attempts.eq(max_messages(sms::attempts, MOST) + counted),
        sms::in_doubt.eq(in_doubt),
    );
    let rows = || sms::table.filter(sms::id.eq_any(ids));
    match fault {
        None => on!(link, |conn| update(rows()).set(ready).execute(conn))?,
        Some(fault) => on!(link, |conn| update(rows())
            .set((
                ready,
                sms::last_class.eq(fault.class),
                sms::last_code.eq(&fault.code),
                sms::last_reason.eq(&fault.reason),
            ))
            .execute(conn))?,
    };
    Ok(())
}

/// Moves rows of `sms_failed` back to the queue as they were: attempts, claim, reference and all.
pub(super) async fn back_to_queue(link: &mut Link, ids: &[i64], now: Timestamp) -> QueryResult<()> {
    let moved = on!(link, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .select((
            (
                sms_failed::id,
                sms_failed::campaign_id,
                sms_failed::import_id,
                sms_failed::phone,
                sms_failed::content,
                sms_failed::params,
                sms_failed::segments,
                sms_failed::expires_at,
            ),
            (
                sms_failed::class.nullable(),
                sms_failed::code,
                sms_failed::reason.nullable(),
                sms_failed::attempts,
                sms_failed::claim,
                sms_failed::reference,
                sms_failed::dedupe_key,
                sms_failed::created_at,
                now.as_millis().into_sql::<BigInt>(),
            ),
        ))
        .insert_into(sms::table)
        .into_columns((
            (
                sms::id,
                sms::campaign_id,
                sms::import_id,
                sms::phone,
                sms::content,
                sms::params,
                sms::segments,
                sms::expires_at,
            ),
            (
                sms::last_class,
                sms::last_code,
                sms::last_reason,
                sms::attempts,
                sms::claim,
                sms::reference,
                sms::dedupe_key,
                sms::created_at,
                sms::due_at,
            ),
        ))
        .execute(conn))?;
    let removed = on!(link, |conn| delete(
        sms_failed::table.filter(sms_failed::id.eq_any(ids))
    )
    .execute(conn))?;
    all_removed(removed, moved)
}

/// Forgets that the recipients of these messages are in their campaigns.
pub(super) async fn give_up_keys(link: &mut Link, ids: &[i64]) -> QueryResult<()> {
    let keys: Vec<(i64, Option<LossyText>)> = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .select((sms::campaign_id, sms::dedupe_key))
        .load(conn))?;
    let mut campaigns: Vec<i64> = keys.iter().map(|(campaign_id, _)| *campaign_id).collect();
    campaigns.sort_unstable();
    campaigns.dedup();
    for campaign_id in campaigns {
        let of = keys.iter().filter(|(id, _)| *id == campaign_id);
        let keys: Vec<&str> = of
            .filter_map(|(_, key)| key.as_ref().map(|key| key.text.as_str()))
            .collect();
        drop_keys(link, campaign_id, &keys).await?;
    }
    Ok(())
}

/// Removes these keys of a campaign, where they are there; returns how many.
pub(super) async fn drop_keys(
    link: &mut Link,
    campaign_id: i64,
    keys: &[&str],
) -> QueryResult<usize> {
    let held: Vec<String> = on!(link, |conn| sms_key::table
        .filter(sms_key::campaign_id.eq(campaign_id))
        .filter(sms_key::dedupe_key.eq_any(keys))
        .order(sms_key::dedupe_key)
        .select(sms_key::dedupe_key)
        .for_update()
        .load(conn))?;
    if held.is_empty() {
        return Ok(0);
    }
    let removed = on!(link, |conn| delete(
        sms_key::table
            .filter(sms_key::campaign_id.eq(campaign_id))
            .filter(sms_key::dedupe_key.eq_any(&held))
    )
    .execute(conn))?;
    all_removed(removed, held.len())?;
    Ok(removed)
}

/// Remembers who is in a campaign; returns how many of these were not known yet.
pub(super) async fn take_keys(
    link: &mut Link,
    campaign_id: i64,
    keys: &[String],
) -> QueryResult<usize> {
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            (
                sms_key::campaign_id.eq(campaign_id),
                sms_key::dedupe_key.eq(key),
            )
        })
        .collect();
    match link {
        Link::Postgres(conn) => {
            insert_into(sms_key::table)
                .values(&rows)
                .on_conflict_do_nothing()
                .execute(conn)
                .await
        }
        Link::Mysql(conn) => {
            diesel::insert_or_ignore_into(sms_key::table)
                .values(&rows)
                .execute(conn)
                .await
        }
    }
}
