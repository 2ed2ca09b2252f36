//! Claiming rows on SQLite, and reading what other programs may have written into them.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use super::super::foreign::LossyText;
use super::super::queue::CommitBatch;
use super::super::schema::sms;
use crate::sms::{Sms, State, Timestamp};

/// The claim. It is written out because diesel prepares its own updates anew each time.
///
/// The next rows are found on the index alone and in its order; the reference is set once and kept.
#[derive(QueryId)]
struct ClaimDue {
    campaign_id: i64,
    worker_id: i64,
    now: i64,
    count: i64,
}

impl QueryFragment<diesel::sqlite::Sqlite> for ClaimDue {
    fn walk_ast<'b>(&'b self, mut sql: AstPass<'_, 'b, diesel::sqlite::Sqlite>) -> QueryResult<()> {
        sql.push_sql(
            "UPDATE sms SET state = 1, claim = min(claim, 9223372036854775806) + 1, worker_id = ",
        );
        sql.push_bind_param::<BigInt, _>(&self.worker_id)?;
        sql.push_sql(", claimed_at = ");
        sql.push_bind_param::<BigInt, _>(&self.now)?;
        sql.push_sql(
            ", reference = coalesce(reference, lower(hex(randomblob(16)))) \
             WHERE id IN (SELECT id FROM sms WHERE state = 0 AND campaign_id = ",
        );
        sql.push_bind_param::<BigInt, _>(&self.campaign_id)?;
        sql.push_sql(" AND due_at <= ");
        sql.push_bind_param::<BigInt, _>(&self.now)?;
        sql.push_sql(" ORDER BY due_at, id LIMIT ");
        sql.push_bind_param::<BigInt, _>(&self.count)?;
        sql.push_sql(
            ") RETURNING id, campaign_id, phone, content, params, segments, in_doubt, \
             expires_at, attempts, claim, reference, due_at",
        );
        Ok(())
    }
}

impl Query for ClaimDue {
    type SqlType = (
        (BigInt, BigInt, Text, Text, Text, Nullable<Integer>, Bool),
        (Nullable<BigInt>, Integer, BigInt, Nullable<Text>, BigInt),
    );
}

impl RunQueryDsl<SqliteConnection> for ClaimDue {}

type Row = (
    (i64, i64, LossyText, LossyText, LossyText, Option<i32>, bool),
    (Option<i64>, i32, i64, Option<LossyText>, i64),
);

/// A claimed row, as far as it could be read.
pub(super) struct Due {
    pub(super) sms: Sms,
    pub(super) is_garbled: bool,
}

pub(super) fn claim_rows(
    conn: &mut SqliteConnection,
    campaign_id: i64,
    round: &CommitBatch,
    count: u32,
) -> QueryResult<Vec<Due>> {
    let claim = ClaimDue {
        campaign_id,
        worker_id: round.worker_id,
        now: round.now.as_millis(),
        count: i64::from(count),
    };
    let mut rows: Vec<Row> = claim.get_results(conn)?;
    rows.sort_unstable_by_key(|row| (row.1.4, row.0.0));
    Ok(rows.into_iter().map(due_of).collect())
}

fn due_of(row: Row) -> Due {
    let (
        (id, campaign_id, phone, content, params, segments, in_doubt),
        (expires_at, attempts, claim, reference, _),
    ) = row;
    let is_garbled = phone.is_garbled || content.is_garbled || params.is_garbled;
    let sms = Sms {
        id,
        campaign_id,
        phone: phone.text,
        content: content.text,
        params: params.text,
        segments,
        in_doubt,
        expires_at: expires_at.map(Timestamp::from_millis),
        attempts,
        claim,
        reference: reference.map(String::from).unwrap_or_default(),
    };
    Due { sms, is_garbled }
}

/// A row that was claimed in this transaction and found no call: nobody has seen its claim, which is undone.
pub(super) fn put_back(conn: &mut SqliteConnection, id: i64) -> QueryResult<usize> {
    diesel::update(sms::table.find(id))
        .set((
            sms::state.eq(State::Ready.code()),
            sms::claim.eq(sms::claim - 1),
            sms::worker_id.eq(None::<i64>),
        ))
        .execute(conn)
}

/// What can be read of the row takes its place: whoever reads it from now on can.
pub(super) fn keep_readable(conn: &mut SqliteConnection, sms: &Sms) -> QueryResult<usize> {
    diesel::update(sms::table.find(sms.id))
        .set((
            sms::phone.eq(&sms.phone),
            sms::content.eq(&sms.content),
            sms::params.eq(&sms.params),
        ))
        .execute(conn)
}

pub(super) fn next_due(
    conn: &mut SqliteConnection,
    campaign_id: i64,
) -> QueryResult<Option<Timestamp>> {
    let due: Option<i64> = sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Ready.code()))
        .select(diesel::dsl::min(sms::due_at))
        .first(conn)?;
    Ok(due.map(Timestamp::from_millis))
}

#[cfg(test)]
mod tests;
