//! Purging on SQLite, a chunk a transaction.

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::super::foreign::LossyText;
use super::super::purge::{FailedRow, PurgeChunk, QueuedRow, SentRow, Stretch, Tallies};
use super::super::schema::{
    campaign, import, purged, recipient_start, sms, sms_failed, sms_key, sms_sent,
};
use super::super::{CHUNK, StoreError};
use super::Sqlite;
use crate::sms::{State, Timestamp};

impl Sqlite {
    pub(in crate::store) async fn purge(
        &self,
        stretch: Stretch,
        now: Timestamp,
    ) -> Result<PurgeChunk, StoreError> {
        self.write(move |conn| {
            let mut tallies = Tallies::default();
            let last = match &stretch {
                Stretch::Sent(campaign_id, before) => {
                    sent(conn, *campaign_id, *before, &mut tallies)?
                }
                Stretch::Failed(after, before) => failed(conn, *after, *before, &mut tallies)?,
                Stretch::Unknown(campaign_id, before) => {
                    unknown(conn, *campaign_id, *before, &mut tallies)?
                }
                Stretch::Keys(campaign_id) => return leftover_keys(conn, *campaign_id),
                Stretch::Phone(phones) => person(conn, phones, &mut tallies)?,
            };
            give_up_keys(conn, &tallies)?;
            count(conn, &tallies, now)?;
            Ok(PurgeChunk {
                purged: tallies.purged(),
                last,
            })
        })
        .await
    }
}

fn sent(
    conn: &mut SqliteConnection,
    campaign_id: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let rows: Vec<SentRow> = sms_sent::table
        .filter(sms_sent::campaign_id.eq(campaign_id))
        .filter(sms_sent::sent_at.lt(before.as_millis()))
        .order((sms_sent::sent_at, sms_sent::id))
        .limit(CHUNK)
        .select(SentRow::as_select())
        .load(conn)?;
    drop_sent(conn, rows, tallies)
}

fn drop_sent(
    conn: &mut SqliteConnection,
    rows: Vec<SentRow>,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    diesel::delete(sms_sent::table.filter(sms_sent::id.eq_any(&ids))).execute(conn)?;
    for row in rows {
        tallies.add_sent(row);
    }
    Ok(ids.last().copied())
}

fn failed(
    conn: &mut SqliteConnection,
    after: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let mut rows: Vec<FailedRow> = sms_failed::table
        .filter(sms_failed::id.gt(after))
        .order(sms_failed::id)
        .limit(CHUNK)
        .select(FailedRow::as_select())
        .load(conn)?;
    let last = rows.last().map(|row| row.id);
    rows.retain(|row| row.failed_at < before.as_millis());
    drop_failed(conn, rows, tallies)?;
    Ok(last)
}

fn drop_failed(
    conn: &mut SqliteConnection,
    rows: Vec<FailedRow>,
    tallies: &mut Tallies,
) -> QueryResult<()> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    diesel::delete(sms_failed::table.filter(sms_failed::id.eq_any(&ids))).execute(conn)?;
    for row in rows {
        tallies.add_failed(row);
    }
    Ok(())
}

fn unknown(
    conn: &mut SqliteConnection,
    campaign_id: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let rows: Vec<QueuedRow> = sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Unknown.code()))
        .filter(sms::claimed_at.lt(before.as_millis()))
        .limit(CHUNK)
        .select(QueuedRow::as_select())
        .load(conn)?;
    drop_queued(conn, rows, tallies)
}

fn drop_queued(
    conn: &mut SqliteConnection,
    rows: Vec<QueuedRow>,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    diesel::delete(sms::table.filter(sms::id.eq_any(&ids))).execute(conn)?;
    for row in rows {
        tallies.add_queued(row);
    }
    Ok(ids.last().copied())
}

/// All that is known of a phone, but for what is being sent to it at this moment.
fn person(
    conn: &mut SqliteConnection,
    phones: &[String],
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let queued: Vec<QueuedRow> = sms::table
        .filter(sms::phone.eq_any(phones))
        .filter(sms::state.ne(State::Sending.code()))
        .limit(CHUNK)
        .select(QueuedRow::as_select())
        .load(conn)?;
    let failed: Vec<FailedRow> = sms_failed::table
        .filter(sms_failed::phone.eq_any(phones))
        .limit(CHUNK)
        .select(FailedRow::as_select())
        .load(conn)?;
    let sent: Vec<SentRow> = sms_sent::table
        .filter(sms_sent::phone.eq_any(phones))
        .limit(CHUNK)
        .select(SentRow::as_select())
        .load(conn)?;
    let last_failed = failed.last().map(|row| row.id);
    let last = drop_queued(conn, queued, tallies)?;
    drop_failed(conn, failed, tallies)?;
    let last_sent = drop_sent(conn, sent, tallies)?;
    diesel::delete(
        recipient_start::table
            .filter(recipient_start::phone.eq_any(phones))
            .filter(recipient_start::ended_at.is_not_null()),
    )
    .execute(conn)?;
    let campaigns: Vec<i64> = campaign::table.select(campaign::id).load(conn)?;
    for campaign_id in campaigns {
        let keys = tallies.keys.entry(campaign_id).or_default();
        keys.extend(phones.iter().cloned());
    }
    Ok(last.or(last_failed).or(last_sent))
}

fn give_up_keys(conn: &mut SqliteConnection, tallies: &Tallies) -> QueryResult<()> {
    for (campaign_id, keys) in &tallies.keys {
        for key in keys {
            diesel::delete(sms_key::table.find((campaign_id, key))).execute(conn)?;
        }
    }
    Ok(())
}

/// The keys that no row names any more go with the campaign's last message.
fn leftover_keys(conn: &mut SqliteConnection, campaign_id: i64) -> QueryResult<PurgeChunk> {
    let was_purged = purged::table.filter(purged::campaign_id.eq(campaign_id));
    let is_kept: bool = diesel::select(
        diesel::dsl::exists(sms::table.filter(sms::campaign_id.eq(campaign_id)))
            .or(diesel::dsl::exists(
                sms_failed::table.filter(sms_failed::campaign_id.eq(campaign_id)),
            ))
            .or(diesel::dsl::exists(
                sms_sent::table.filter(sms_sent::campaign_id.eq(campaign_id)),
            ))
            .or(diesel::dsl::not(diesel::dsl::exists(was_purged))),
    )
    .get_result(conn)?;
    if is_kept {
        return Ok(PurgeChunk::default());
    }
    let keys: Vec<LossyText> = sms_key::table
        .filter(sms_key::campaign_id.eq(campaign_id))
        .select(sms_key::dedupe_key)
        .limit(CHUNK)
        .load(conn)?;
    let mut gone = 0;
    for key in &keys {
        gone += diesel::delete(sms_key::table.find((campaign_id, &key.text))).execute(conn)?;
    }
    Ok(PurgeChunk {
        last: (gone > 0).then_some(campaign_id),
        ..PurgeChunk::default()
    })
}

fn count(conn: &mut SqliteConnection, tallies: &Tallies, now: Timestamp) -> QueryResult<()> {
    for ((campaign_id, import_id), tally) in &tallies.counts {
        diesel::insert_or_ignore_into(purged::table)
            .values((
                purged::campaign_id.eq(campaign_id),
                purged::import_id.eq(import_id),
            ))
            .execute(conn)?;
        diesel::update(purged::table.find((campaign_id, import_id)))
            .set((
                purged::sent.eq(purged::sent + tally.sent),
                purged::failed.eq(purged::failed + tally.failed),
                purged::unknown.eq(purged::unknown + tally.unknown),
                purged::cancelled.eq(purged::cancelled + tally.cancelled),
                purged::segments.eq(purged::segments + tally.segments),
                purged::attempts.eq(purged::attempts + tally.attempts),
                purged::repeated.eq(purged::repeated + tally.repeated),
                purged::purged_at.eq(now.as_millis()),
            ))
            .execute(conn)?;
        // It may be the text of a message that is forgotten.
        diesel::update(import::table.find(import_id))
            .filter(import::sample.is_not_null())
            .set(import::sample.eq(None::<String>))
            .execute(conn)?;
    }
    Ok(())
}
