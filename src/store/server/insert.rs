//! Import on servers: what a batch meets is read first, what becomes of each row is decided, and all of
//! it is written in a few statements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::{QueryResult, delete, insert_into, update};
use diesel_async::RunQueryDsl;

use super::known::{Enqueuing, Known, decide};
use super::link::{Link, on};
use super::{Server, ask_number, moves};
use crate::sms::{NewSms, Timestamp};
use crate::store::schema::{import, sms, sms_failed, suppression};
use crate::store::{Batch, Enqueued, Fault, StoreError};

/// Rows of one statement.
pub(super) const ROWS: usize = 1_000;
/// And of texts: well below the 1 MiB that the smallest `max_allowed_packet` in use allows.
const BYTES: usize = 512 * 1024;
/// So long an import waits for a server that is away.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Server {
    pub(in crate::store) async fn begin_import(
        &self,
        campaign_id: i64,
        file: &str,
        hash: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let (file, hash): (Arc<str>, Arc<str>) = (file.into(), hash.into());
        self.transaction(|link| {
            let (file, hash) = (Arc::clone(&file), Arc::clone(&hash));
            Box::pin(async move {
                on!(link, |conn| insert_into(import::table)
                    .values((
                        import::campaign_id.eq(campaign_id),
                        import::file.eq(&*file),
                        import::hash.eq(&*hash),
                        import::created_at.eq(now.as_millis()),
                    ))
                    .execute(conn))?;
                last_id(link).await
            })
        })
        .await
    }

    /// A server that is away for a moment is waited for; a batch whose commit nobody answered is looked
    /// up before it is queued again.
    pub(in crate::store) async fn enqueue(&self, batch: Batch) -> Result<Enqueued, StoreError> {
        let batch = Arc::new(batch);
        let decided: Arc<Mutex<Option<Enqueued>>> = Arc::default();
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            let done = self
                .transaction(|link| {
                    let (batch, decided) = (Arc::clone(&batch), Arc::clone(&decided));
                    Box::pin(async move { enqueue_once(link, &batch, &decided).await })
                })
                .await;
            match done {
                Err(error) if is_away(&error) && began.elapsed() < PATIENCE => {
                    tracing::warn!(%error, "the database is away; the import waits for it");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                done => return done,
            }
        }
    }

    pub(in crate::store) async fn suppress(
        &self,
        phones: Vec<(String, Option<String>)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut phones = phones;
        phones.sort();
        phones.dedup_by(|one, other| one.0 == other.0);
        let mut added = 0;
        for chunk in phones.chunks(ROWS) {
            let chunk: Arc<[(String, Option<String>)]> = chunk.into();
            added += self
                .transaction(|link| {
                    let chunk = Arc::clone(&chunk);
                    Box::pin(async move { suppress(link, &chunk, now).await })
                })
                .await?;
        }
        Ok(added as u64)
    }
}

/// Whether somebody else may bring the server back, or make it the one that is written.
fn is_away(error: &StoreError) -> bool {
    matches!(error.fault(), Fault::Away | Fault::Replica)
}

/// The id that the last insert of this connection made.
pub(super) async fn last_id(link: &mut Link) -> QueryResult<i64> {
    let expression = match link {
        Link::Postgres(_) => "lastval()",
        Link::Mysql(_) => "CAST(last_insert_id() AS SIGNED)",
    };
    ask_number(link, expression).await
}

pub(super) async fn suppress(
    link: &mut Link,
    phones: &[(String, Option<String>)],
    now: Timestamp,
) -> QueryResult<usize> {
    let rows: Vec<_> = phones
        .iter()
        .map(|(phone, reason)| {
            (
                suppression::phone.eq(phone),
                suppression::reason.eq(reason),
                suppression::created_at.eq(now.as_millis()),
            )
        })
        .collect();
    match link {
        Link::Postgres(conn) => {
            insert_into(suppression::table)
                .values(&rows)
                .on_conflict_do_nothing()
                .execute(conn)
                .await
        }
        Link::Mysql(conn) => {
            diesel::insert_or_ignore_into(suppression::table)
                .values(&rows)
                .execute(conn)
                .await
        }
    }
}

async fn enqueue_once(
    link: &mut Link,
    batch: &Batch,
    decided: &Mutex<Option<Enqueued>>,
) -> QueryResult<Enqueued> {
    let before = decided.lock().ok().and_then(|decided| decided.clone());
    if let Some(done) = before
        && is_committed(link, batch).await?
    {
        return Ok(done);
    }
    let done = enqueue(link, batch).await?;
    if let Ok(mut decided) = decided.lock() {
        *decided = Some(done.clone());
    }
    Ok(done)
}

/// Whether the batch is counted already: the answer to its commit was lost.
async fn is_committed(link: &mut Link, batch: &Batch) -> QueryResult<bool> {
    let last_line: i64 = on!(link, |conn| import::table
        .find(batch.import_id)
        .select(import::last_line)
        .for_update()
        .first(conn))?;
    Ok(last_line == signed(batch.last_line))
}

async fn enqueue(link: &mut Link, batch: &Batch) -> QueryResult<Enqueued> {
    let known = Known::read(link, batch).await?;
    let fates = decide(batch, &known);
    let mut done = Enqueued::default();
    let mut accepted: Vec<&NewSms> = Vec::new();
    let mut keys: Vec<String> = Vec::new();
    let mut replaced: Vec<i64> = Vec::new();
    for (row, transition) in batch.rows.iter().zip(fates) {
        match transition {
            Enqueuing::New { with_key, replaces } => {
                accepted.push(row);
                if with_key {
                    keys.push(row.dedupe_key.clone());
                }
                replaced.extend(replaces);
            }
            Enqueuing::Duplicate => done.duplicates.push(row.line),
            Enqueuing::Suppressed => done.suppressed.push(row.line),
            Enqueuing::Unchanged => done.unchanged.push(row.line),
        }
    }
    done.accepted = accepted.len() as u64;
    take(link, batch.campaign_id, keys).await?;
    replace(link, &replaced, &known).await?;
    for rows in chunks(&accepted) {
        insert(link, batch, rows).await?;
    }
    count(link, batch, &done).await?;
    Ok(done)
}

/// Takes keys that were not known; another import may have taken one meanwhile, then all begins anew.
async fn take(link: &mut Link, campaign_id: i64, mut keys: Vec<String>) -> QueryResult<()> {
    keys.sort_unstable();
    for keys in keys.chunks(ROWS) {
        if moves::take_keys(link, campaign_id, keys).await? < keys.len() {
            return Err(super::conflict("another import took one of the keys"));
        }
    }
    Ok(())
}

async fn replace(link: &mut Link, replaced: &[i64], known: &Known) -> QueryResult<()> {
    let mut by_import: BTreeMap<i64, i64> = BTreeMap::new();
    for letter in replaced.iter().filter_map(|id| known.letters.get(id)) {
        if let Some(import_id) = letter.import_id {
            *by_import.entry(import_id).or_default() += 1;
        }
    }
    for ids in replaced.chunks(ROWS) {
        let removed = on!(link, |conn| delete(
            sms_failed::table.filter(sms_failed::id.eq_any(ids))
        )
        .execute(conn))?;
        super::all_removed(removed, ids.len())?;
    }
    for (import_id, count) in by_import {
        on!(link, |conn| update(import::table.find(import_id))
            .set(import::replaced.eq(import::replaced + count))
            .execute(conn))?;
    }
    Ok(())
}

/// What one statement may hold: few rows where texts are long, since a server takes only so much at once.
fn chunks<'a, 'b>(mut rows: &'a [&'b NewSms]) -> Vec<&'a [&'b NewSms]> {
    let mut chunks = Vec::new();
    while !rows.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&&NewSms| {
            bytes += row.phone.len() + row.content.len() + row.params.len() + row.dedupe_key.len();
            bytes <= BYTES
        };
        let count = rows.iter().take(ROWS).take_while(fits).count().max(1);
        let (chunk, rest) = rows.split_at(count);
        chunks.push(chunk);
        rows = rest;
    }
    chunks
}

async fn insert(link: &mut Link, batch: &Batch, rows: &[&NewSms]) -> QueryResult<()> {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                sms::campaign_id.eq(batch.campaign_id),
                sms::import_id.eq(batch.import_id),
                sms::phone.eq(&row.phone),
                sms::content.eq(&row.content),
                sms::params.eq(&row.params),
                sms::segments.eq(row.segments),
                sms::due_at.eq(batch.due_at_of(row)),
                sms::expires_at.eq(batch.expires_at.map(Timestamp::as_millis)),
                sms::dedupe_key.eq(&row.dedupe_key),
                sms::created_at.eq(batch.now.as_millis()),
            )
        })
        .collect();
    on!(link, |conn| insert_into(sms::table)
        .values(&rows)
        .execute(conn))?;
    Ok(())
}

async fn count(link: &mut Link, batch: &Batch, done: &Enqueued) -> QueryResult<()> {
    let known = done.duplicates.len() + done.unchanged.len();
    let counted = on!(link, |conn| update(import::table.find(batch.import_id))
        .filter(import::finished_at.is_null())
        .set((
            import::last_line.eq(signed(batch.last_line)),
            import::row_count.eq(import::row_count + signed(batch.row_count)),
            import::accepted.eq(import::accepted + signed(done.accepted)),
            import::duplicates.eq(import::duplicates + signed(batch.duplicates + known as u64)),
            import::suppressed.eq(import::suppressed + signed(done.suppressed.len() as u64)),
            import::rejected.eq(import::rejected + signed(batch.rejected)),
        ))
        .execute(conn))?;
    if counted == 0 {
        return Err(diesel::result::Error::NotFound);
    }
    Ok(())
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
