//! Purging on servers, a chunk a transaction: rows are held before they are counted and deleted.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::{QueryResult, delete, update};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::moves::drop_keys;
use super::{Server, all_removed};
use crate::sms::{State, Timestamp};
use crate::store::foreign::LossyText;
use crate::store::purge::{FailedRow, PurgeChunk, QueuedRow, SentRow, Stretch, Tallies};
use crate::store::schema::{
    campaign, import, purged, recipient_start, sms, sms_failed, sms_key, sms_sent,
};
use crate::store::{CHUNK, StoreError};

impl Server {
    pub(in crate::store) async fn purge(
        &self,
        stretch: Stretch,
        now: Timestamp,
    ) -> Result<PurgeChunk, StoreError> {
        let stretch = Arc::new(stretch);
        self.transaction(|link| {
            let stretch = Arc::clone(&stretch);
            Box::pin(async move { purge(link, &stretch, now).await })
        })
        .await
    }
}

async fn purge(link: &mut Link, stretch: &Stretch, now: Timestamp) -> QueryResult<PurgeChunk> {
    let mut tallies = Tallies::default();
    let last = match stretch {
        Stretch::Sent(campaign_id, before) => {
            sent(link, *campaign_id, *before, &mut tallies).await?
        }
        Stretch::Failed(after, before) => failed(link, *after, *before, &mut tallies).await?,
        Stretch::Unknown(campaign_id, before) => {
            unknown(link, *campaign_id, *before, &mut tallies).await?
        }
        Stretch::Keys(campaign_id) => return leftover_keys(link, *campaign_id).await,
        Stretch::Phone(phones) => person(link, phones, &mut tallies).await?,
    };
    give_up_keys(link, &tallies).await?;
    count(link, &tallies, now).await?;
    Ok(PurgeChunk {
        purged: tallies.purged(),
        last,
    })
}

async fn sent(
    link: &mut Link,
    campaign_id: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let rows: Vec<SentRow> = on!(link, |conn| sms_sent::table
        .filter(sms_sent::campaign_id.eq(campaign_id))
        .filter(sms_sent::sent_at.lt(before.as_millis()))
        .order((sms_sent::sent_at, sms_sent::id))
        .limit(CHUNK)
        .select(SentRow::as_select())
        .for_update()
        .load(conn))?;
    drop_sent(link, rows, tallies).await
}

async fn drop_sent(
    link: &mut Link,
    rows: Vec<SentRow>,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let removed = on!(link, |conn| delete(
        sms_sent::table.filter(sms_sent::id.eq_any(&ids))
    )
    .execute(conn))?;
    all_removed(removed, ids.len())?;
    for row in rows {
        tallies.add_sent(row);
    }
    Ok(ids.last().copied())
}

async fn failed(
    link: &mut Link,
    after: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let looked_at: Vec<(i64, i64)> = on!(link, |conn| sms_failed::table
        .filter(sms_failed::id.gt(after))
        .order(sms_failed::id)
        .limit(CHUNK)
        .select((sms_failed::id, sms_failed::failed_at))
        .load(conn))?;
    let old = looked_at
        .iter()
        .filter(|(_, failed_at)| *failed_at < before.as_millis());
    let ids: Vec<i64> = old.map(|(id, _)| *id).collect();
    drop_failed(link, &ids, tallies).await?;
    Ok(looked_at.last().map(|(id, _)| *id))
}

/// Those of them that are still there.
async fn drop_failed(link: &mut Link, ids: &[i64], tallies: &mut Tallies) -> QueryResult<()> {
    let rows: Vec<FailedRow> = on!(link, |conn| sms_failed::table
        .filter(sms_failed::id.eq_any(ids))
        .order(sms_failed::id)
        .select(FailedRow::as_select())
        .for_update()
        .load(conn))?;
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let removed = on!(link, |conn| delete(
        sms_failed::table.filter(sms_failed::id.eq_any(&ids))
    )
    .execute(conn))?;
    all_removed(removed, ids.len())?;
    for row in rows {
        tallies.add_failed(row);
    }
    Ok(())
}

async fn unknown(
    link: &mut Link,
    campaign_id: i64,
    before: Timestamp,
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let ids: Vec<i64> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::state.eq(State::Unknown.code()))
        .filter(sms::claimed_at.lt(before.as_millis()))
        .limit(CHUNK)
        .select(sms::id)
        .load(conn))?;
    let unknown = [State::Unknown.code()];
    drop_queued(link, &ids, &unknown, tallies).await?;
    Ok(ids.last().copied())
}

/// Those of them that are still there, in one of these states.
async fn drop_queued(
    link: &mut Link,
    ids: &[i64],
    states: &[i32],
    tallies: &mut Tallies,
) -> QueryResult<()> {
    let rows: Vec<QueuedRow> = on!(link, |conn| sms::table
        .filter(sms::id.eq_any(ids))
        .filter(sms::state.eq_any(states))
        .order(sms::id)
        .select(QueuedRow::as_select())
        .for_update()
        .load(conn))?;
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let removed = on!(link, |conn| delete(sms::table.filter(sms::id.eq_any(&ids)))
        .execute(conn))?;
    all_removed(removed, ids.len())?;
    for row in rows {
        tallies.add_queued(row);
    }
    Ok(())
}

/// All that is known of a phone, but for what is being sent to it at this moment. It is looked for without
/// holding what it is not.
async fn person(
    link: &mut Link,
    phones: &[String],
    tallies: &mut Tallies,
) -> QueryResult<Option<i64>> {
    let queued: Vec<i64> = on!(link, |conn| sms::table
        .filter(sms::phone.eq_any(phones))
        .filter(sms::state.ne(State::Sending.code()))
        .limit(CHUNK)
        .select(sms::id)
        .load(conn))?;
    let failed: Vec<i64> = on!(link, |conn| sms_failed::table
        .filter(sms_failed::phone.eq_any(phones))
        .limit(CHUNK)
        .select(sms_failed::id)
        .load(conn))?;
    let sent: Vec<i64> = on!(link, |conn| sms_sent::table
        .filter(sms_sent::phone.eq_any(phones))
        .limit(CHUNK)
        .select(sms_sent::id)
        .load(conn))?;
    let states = [State::Ready.code(), State::Unknown.code()];
    drop_queued(link, &queued, &states, tallies).await?;
    drop_failed(link, &failed, tallies).await?;
    let rows: Vec<SentRow> = on!(link, |conn| sms_sent::table
        .filter(sms_sent::id.eq_any(&sent))
        .order(sms_sent::id)
        .select(SentRow::as_select())
        .for_update()
        .load(conn))?;
    drop_sent(link, rows, tallies).await?;
    on!(link, |conn| delete(
        recipient_start::table
            .filter(recipient_start::phone.eq_any(phones))
            .filter(recipient_start::ended_at.is_not_null())
    )
    .execute(conn))?;
    let campaigns: Vec<i64> = on!(link, |conn| campaign::table.select(campaign::id).load(conn))?;
    for campaign_id in campaigns {
        let keys = tallies.keys.entry(campaign_id).or_default();
        keys.extend(phones.iter().cloned());
    }
    let found = queued.last().or(failed.last()).or(sent.last());
    Ok(found.copied())
}

async fn give_up_keys(link: &mut Link, tallies: &Tallies) -> QueryResult<()> {
    for (campaign_id, keys) in &tallies.keys {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        drop_keys(link, *campaign_id, &keys).await?;
    }
    Ok(())
}

/// The keys that no row names any more go with the campaign's last message. The keys are read first: an
/// import that takes one meanwhile has its message there when the messages are looked for.
async fn leftover_keys(link: &mut Link, campaign_id: i64) -> QueryResult<PurgeChunk> {
    let keys: Vec<LossyText> = on!(link, |conn| sms_key::table
        .filter(sms_key::campaign_id.eq(campaign_id))
        .order(sms_key::dedupe_key)
        .select(sms_key::dedupe_key)
        .limit(CHUNK)
        .for_update()
        .load(conn))?;
    let is_kept = has_messages(link, campaign_id).await?;
    let was_purged: Vec<i64> = on!(link, |conn| purged::table
        .filter(purged::campaign_id.eq(campaign_id))
        .limit(1)
        .select(purged::import_id)
        .load(conn))?;
    if is_kept || was_purged.is_empty() || keys.is_empty() {
        return Ok(PurgeChunk::default());
    }
    let keys: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
    let gone = drop_keys(link, campaign_id, &keys).await?;
    Ok(PurgeChunk {
        last: (gone > 0).then_some(campaign_id),
        ..PurgeChunk::default()
    })
}

/// Whether anything of a campaign is left. No `EXISTS`: MariaDB may take one that is killed for false.
async fn has_messages(link: &mut Link, campaign_id: i64) -> QueryResult<bool> {
    let queued: Vec<i64> = on!(link, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .limit(1)
        .select(sms::id)
        .load(conn))?;
    let failed: Vec<i64> = on!(link, |conn| sms_failed::table
        .filter(sms_failed::campaign_id.eq(campaign_id))
        .limit(1)
        .select(sms_failed::id)
        .load(conn))?;
    let sent: Vec<i64> = on!(link, |conn| sms_sent::table
        .filter(sms_sent::campaign_id.eq(campaign_id))
        .limit(1)
        .select(sms_sent::id)
        .load(conn))?;
    Ok(!(queued.is_empty() && failed.is_empty() && sent.is_empty()))
}

async fn count(link: &mut Link, tallies: &Tallies, now: Timestamp) -> QueryResult<()> {
    for (&(campaign_id, import_id), tally) in &tallies.counts {
        let new = (
            purged::campaign_id.eq(campaign_id),
            purged::import_id.eq(import_id),
        );
        match link {
            Link::Postgres(conn) => {
                diesel::insert_into(purged::table)
                    .values(new)
                    .on_conflict_do_nothing()
                    .execute(conn)
                    .await?
            }
            Link::Mysql(conn) => {
                diesel::insert_or_ignore_into(purged::table)
                    .values(new)
                    .execute(conn)
                    .await?
            }
        };
        on!(link, |conn| update(
            purged::table.find((campaign_id, import_id))
        )
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
        .execute(conn))?;
        // It may be the text of a message that is forgotten.
        on!(link, |conn| update(import::table.find(import_id))
            .filter(import::sample.is_not_null())
            .set(import::sample.eq(None::<String>))
            .execute(conn))?;
    }
    Ok(())
}
