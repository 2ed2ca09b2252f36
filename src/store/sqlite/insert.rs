//! Import on SQLite: row by row on prepared statements, which is as fast as it gets here.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::super::foreign::LossyText;
use super::super::schema::{import, sms, sms_failed, sms_key, sms_sent, suppression};
use super::super::{Batch, Enqueued, StoreError};
use super::Sqlite;
use crate::sms::{Class, NewSms, Timestamp};

/// Dedupe keys come in any order, so an import touches all of their index: it is kept in memory (in
/// KiB), and written back seldom (in pages).
const IMPORTING: &str = "PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 16384";

/// What became of one row of a batch.
enum Enqueuing {
    Accepted,
    Duplicate,
    Suppressed,
    Unchanged,
}

impl Sqlite {
    pub(in crate::store) async fn begin_import(
        &self,
        campaign_id: i64,
        file: &str,
        hash: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let (file, hash) = (file.to_owned(), hash.to_owned());
        self.write(move |conn| {
            conn.batch_execute(IMPORTING)?;
            diesel::insert_into(import::table)
                .values((
                    import::campaign_id.eq(campaign_id),
                    import::file.eq(file),
                    import::hash.eq(hash),
                    import::created_at.eq(now.as_millis()),
                ))
                .returning(import::id)
                .get_result(conn)
        })
        .await
    }

    pub(in crate::store) async fn enqueue(&self, batch: Batch) -> Result<Enqueued, StoreError> {
        self.write(move |conn| {
            let fates = decide(conn, &batch)?;
            let mut done = Enqueued::default();
            for (row, transition) in batch.rows.iter().zip(fates) {
                match transition {
                    Enqueuing::Accepted => {
                        insert(conn, &batch, row)?;
                        done.accepted += 1;
                    }
                    Enqueuing::Duplicate => done.duplicates.push(row.line),
                    Enqueuing::Suppressed => done.suppressed.push(row.line),
                    Enqueuing::Unchanged => done.unchanged.push(row.line),
                }
            }
            count(conn, &batch, &done)?;
            Ok(done)
        })
        .await
    }

    pub(in crate::store) async fn suppress(
        &self,
        phones: Vec<(String, Option<String>)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut phones = phones;
        // In their order, as keys are taken: scattered ones would touch all of the table.
        phones.sort_unstable();
        self.write(move |conn| {
            conn.batch_execute(IMPORTING)?;
            let mut added = 0;
            for (phone, reason) in phones {
                added += diesel::insert_or_ignore_into(suppression::table)
                    .values((
                        suppression::phone.eq(phone),
                        suppression::reason.eq(reason),
                        suppression::created_at.eq(now.as_millis()),
                    ))
                    .execute(conn)?;
            }
            Ok(added as u64)
        })
        .await
    }
}

/// What becomes of each row of the batch, its key taken where it is accepted. Keys are taken in their
/// order, because scattered ones would touch all of their index again and again; of equal ones the
/// first row of the file comes first.
fn decide(conn: &mut SqliteConnection, batch: &Batch) -> QueryResult<Vec<Enqueuing>> {
    let suppressing: bool = diesel::select(diesel::dsl::exists(
        suppression::table.select(suppression::phone),
    ))
    .get_result(conn)?;
    let mut order: Vec<usize> = (0..batch.rows.len()).collect();
    // Of rows that name the same dead letter, the first of the file replaces it.
    if batch.rows.iter().all(|row| row.replaces.is_none()) {
        order.sort_by(|one, other| {
            let key = |index: &usize| batch.rows[*index].dedupe_key.as_str();
            key(one).cmp(key(other))
        });
    }
    let mut fates: Vec<Enqueuing> = batch.rows.iter().map(|_| Enqueuing::Duplicate).collect();
    for index in order {
        fates[index] = decide_one(conn, batch, &batch.rows[index], suppressing)?;
    }
    Ok(fates)
}

fn decide_one(
    conn: &mut SqliteConnection,
    batch: &Batch,
    row: &NewSms,
    suppressing: bool,
) -> QueryResult<Enqueuing> {
    if suppressing && is_suppressed(conn, &row.phone)? {
        return Ok(Enqueuing::Suppressed);
    }
    if let Some(id) = row.replaces
        && let Some(transition) = replace(conn, batch, row, id)?
    {
        return Ok(transition);
    }
    let is_new = insert_key(conn, batch.campaign_id, &row.dedupe_key)?;
    Ok(if is_new {
        Enqueuing::Accepted
    } else {
        Enqueuing::Duplicate
    })
}

/// Handles a row that names the message it comes from; `None` when there is no such message.
fn replace(
    conn: &mut SqliteConnection,
    batch: &Batch,
    row: &NewSms,
    id: i64,
) -> QueryResult<Option<Enqueuing>> {
    type Letter = (
        LossyText,
        LossyText,
        String,
        i64,
        Option<i64>,
        Option<LossyText>,
    );
    let letter: Option<Letter> = sms_failed::table
        .find(id)
        .select((
            sms_failed::phone,
            sms_failed::content,
            sms_failed::class,
            sms_failed::campaign_id,
            sms_failed::import_id,
            sms_failed::dedupe_key,
        ))
        .first(conn)
        .optional()?;
    let Some((phone, content, class, campaign_id, import_id, key)) = letter else {
        let known = stands_elsewhere(conn, row, id)?;
        return Ok(known.then_some(Enqueuing::Duplicate));
    };
    if phone.text == row.phone && content.text == row.content {
        return Ok(Some(Enqueuing::Unchanged));
    }
    // A cancelled message has given up its key; who has it now is somebody else.
    let key = key
        .map(String::from)
        .filter(|_| class != Class::Cancelled.as_str());
    let same_key = campaign_id == batch.campaign_id && key.as_deref() == Some(&row.dedupe_key);
    if phone.text != row.phone && content.text != row.content && !same_key {
        // The file is of another database, where the id was somebody else's.
        return Ok(None);
    }
    if !same_key && !insert_key(conn, batch.campaign_id, &row.dedupe_key)? {
        return Ok(Some(Enqueuing::Duplicate));
    }
    // The old key stays: the list that the letter came from, imported again, must not bring it back.
    diesel::delete(sms_failed::table.find(id)).execute(conn)?;
    if let Some(import_id) = import_id {
        diesel::update(import::table.find(import_id))
            .set(import::replaced.eq(import::replaced + 1))
            .execute(conn)?;
    }
    Ok(Some(Enqueuing::Accepted))
}

/// Whether the message that the row names was retried meanwhile; one of the same id that shares nothing
/// with the row is another database's.
fn stands_elsewhere(conn: &mut SqliteConnection, row: &NewSms, id: i64) -> QueryResult<bool> {
    let shared = sms::phone
        .eq(&row.phone)
        .or(sms::content.eq(&row.content))
        .or(sms::dedupe_key.eq(&row.dedupe_key).assume_not_null());
    let queued = diesel::select(diesel::dsl::exists(sms::table.find(id).filter(shared)));
    let sent = sms_sent::table
        .find(id)
        .filter(sms_sent::phone.eq(&row.phone));
    Ok(queued.get_result(conn)? || diesel::select(diesel::dsl::exists(sent)).get_result(conn)?)
}

/// Remembers who is in a campaign; false when it is known already.
pub(super) fn insert_key(
    conn: &mut SqliteConnection,
    campaign_id: i64,
    key: &str,
) -> QueryResult<bool> {
    let inserted = diesel::insert_or_ignore_into(sms_key::table)
        .values((
            sms_key::campaign_id.eq(campaign_id),
            sms_key::dedupe_key.eq(key),
        ))
        .execute(conn)?;
    Ok(inserted == 1)
}

fn insert(conn: &mut SqliteConnection, batch: &Batch, row: &NewSms) -> QueryResult<()> {
    diesel::insert_into(sms::table)
        .values((
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
        ))
        .execute(conn)?;
    Ok(())
}

pub(super) fn is_suppressed(conn: &mut SqliteConnection, phone: &str) -> QueryResult<bool> {
    diesel::select(diesel::dsl::exists(suppression::table.find(phone))).get_result(conn)
}

fn count(conn: &mut SqliteConnection, batch: &Batch, done: &Enqueued) -> QueryResult<()> {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let known = done.duplicates.len() + done.unchanged.len();
    let counted = diesel::update(import::table.find(batch.import_id))
        .filter(import::finished_at.is_null())
        .set((
            import::last_line.eq(signed(batch.last_line)),
            import::row_count.eq(import::row_count + signed(batch.row_count)),
            import::accepted.eq(import::accepted + signed(done.accepted)),
            import::duplicates.eq(import::duplicates + signed(batch.duplicates + known as u64)),
            import::suppressed.eq(import::suppressed + signed(done.suppressed.len() as u64)),
            import::rejected.eq(import::rejected + signed(batch.rejected)),
        ))
        .execute(conn)?;
    if counted == 0 {
        return Err(diesel::result::Error::NotFound);
    }
    Ok(())
}
