//! What an import writes: its messages, their keys, and how far it came, in one transaction a batch.

use std::collections::HashSet;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::schema::{campaign, import, sms_key};
use super::{CHUNK, Store, StoreError};
use crate::sms::{NewSms, Timestamp};
use crate::window::{Recipient, Window};

/// A part of a file, to be queued in one transaction.
#[derive(Clone)]
pub struct Batch {
    pub import_id: i64,
    pub campaign_id: i64,
    pub now: Timestamp,
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// The campaign's: where every recipient has hours of their own, a message is due when they begin.
    pub window: Option<Window>,
    pub rows: Vec<NewSms>,
    /// Rows of the file since the last batch, rejected ones too.
    pub row_count: u64,
    pub rejected: u64,
    /// Duplicates that were found before the database was asked.
    pub duplicates: u64,
    /// The last line that this batch accounts for.
    pub last_line: u64,
}

impl Batch {
    /// When a row's message is due. A window that is the same for all is not looked at: the campaign waits as
    /// one, and goes on at once where its window is changed.
    pub(super) fn due_at_of(&self, row: &NewSms) -> i64 {
        let own = self.window.as_ref();
        let own = own.filter(|window| window.for_all(self.due_at).is_none());
        let recipient = Recipient {
            phone: &row.phone,
            params: &row.params,
        };
        let opens_at = own.map(|window| window.for_one(recipient, self.due_at).opens_at);
        opens_at
            .map_or(self.due_at, |at| at.max(self.due_at))
            .as_millis()
    }
}

/// What an import says of its texts, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextNote<'a> {
    /// The text of all its messages, with placeholders.
    pub template: Option<&'a str>,
    /// Where there is no template: the text of its first message.
    pub sample: Option<&'a str>,
    /// Accepted messages in either alphabet, since the last note.
    pub gsm7: u64,
    pub ucs2: u64,
}

/// What became of a batch; lines are those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    pub accepted: u64,
    pub duplicates: Vec<u64>,
    pub suppressed: Vec<u64>,
    /// Dead letters that came back unchanged: `retry` is what their owner wants.
    pub unchanged: Vec<u64>,
}

impl Store {
    /// The lists that were imported, by the names that they were imported under.
    pub async fn imported_files(&self) -> Result<Vec<String>, StoreError> {
        reading!(self, |conn| import::table
            .select(import::file)
            .distinct()
            .load(conn))
    }

    /// Starts an import of the file with this name and hash; returns its id.
    pub async fn begin_import(
        &self,
        campaign_id: i64,
        file: &str,
        hash: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.begin_import(campaign_id, file, hash, now).await,
            Self::Server(server) => server.begin_import(campaign_id, file, hash, now).await,
        }
    }

    /// Queues what is new of a batch; an error where its import has ended.
    pub async fn enqueue(&self, batch: Batch) -> Result<Enqueued, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.enqueue(batch).await,
            Self::Server(server) => server.enqueue(batch).await,
        }
    }

    /// Adds to what the import says of its texts; `None` leaves what is there.
    pub async fn note_texts(&self, import_id: i64, note: TextNote<'_>) -> Result<(), StoreError> {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        writing!(self, |conn| diesel::update(import::table.find(import_id))
            .set((
                note.template.map(|text| import::template.eq(text)),
                note.sample.map(|text| import::sample.eq(text)),
                import::gsm7.eq(import::gsm7 + signed(note.gsm7)),
                import::ucs2.eq(import::ucs2 + signed(note.ucs2)),
            ))
            .execute(conn))?;
        Ok(())
    }

    pub async fn finish_import(&self, import_id: i64, now: Timestamp) -> Result<(), StoreError> {
        writing!(self, |conn| diesel::update(import::table.find(import_id))
            .set(import::finished_at.eq(now.as_millis()))
            .execute(conn))?;
        Ok(())
    }

    /// Ends the import with this hash, if it has not ended, so that it can queue nothing more; returns the last
    /// line that it accounts for. `None`: this database knows no such import.
    pub async fn end_import(&self, hash: &str, now: Timestamp) -> Result<Option<u64>, StoreError> {
        writing!(self, |conn| diesel::update(
            import::table
                .filter(import::hash.eq(hash))
                .filter(import::finished_at.is_null())
        )
        .set(import::finished_at.eq(now.as_millis()))
        .execute(conn))?;
        let last: Vec<i64> = reading!(self, |conn| import::table
            .filter(import::hash.eq(hash))
            .select(import::last_line)
            .limit(1)
            .load(conn))?;
        let last = last.into_iter().next();
        Ok(last.map(|line| u64::try_from(line).unwrap_or(0)))
    }

    pub async fn is_import_ended(&self, import_id: i64) -> Result<bool, StoreError> {
        let open: Vec<i64> = reading!(self, |conn| import::table
            .filter(import::id.eq(import_id))
            .filter(import::finished_at.is_null())
            .select(import::id)
            .load(conn))?;
        Ok(open.is_empty())
    }

    /// Which of these dedupe keys the campaign has already.
    pub async fn known_keys(
        &self,
        campaign_id: i64,
        keys: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        let mut known = HashSet::new();
        for keys in keys.chunks(usize::try_from(CHUNK).unwrap_or(1)) {
            let found: Vec<String> = reading!(self, |conn| sms_key::table
                .filter(sms_key::campaign_id.eq(campaign_id))
                .filter(sms_key::dedupe_key.eq_any(keys))
                .select(sms_key::dedupe_key)
                .load(conn))?;
            known.extend(found);
        }
        Ok(known)
    }

    /// Another campaign that messages of a file with this hash were put into since a moment, and when.
    pub async fn imported_elsewhere(
        &self,
        hash: &str,
        name: &str,
        since: Timestamp,
    ) -> Result<Option<(String, Timestamp)>, StoreError> {
        let found: Vec<(String, i64)> = reading!(self, |conn| import::table
            .inner_join(campaign::table.on(campaign::id.eq(import::campaign_id)))
            .filter(import::hash.eq(hash))
            .filter(import::created_at.ge(since.as_millis()))
            .filter(import::accepted.gt(0))
            .filter(campaign::name.ne(name))
            .order(import::id.desc())
            .select((campaign::name, import::created_at))
            .limit(1)
            .load(conn))?;
        let found = found.into_iter().next();
        Ok(found.map(|(name, at)| (name, Timestamp::from_millis(at))))
    }
}
