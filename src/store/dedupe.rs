//! Decides which rows of an import are new, duplicate, suppressed or unchanged: reads the existing rows first, then
//! decides without the database.

use std::collections::{BTreeSet, HashMap, HashSet};

use diesel::QueryResult;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::column_types::LossyText;
use super::connection::{
    Connection, Prepared, ROWS, in_list, load_locked, run_query, with_conn, with_retries,
};
use super::schema::{sms, sms_failed, sms_key, sms_sent, suppression};
use super::suppression as suppressed;
use super::{Store, StoreError};
use crate::sms::{Class, NewSms};

/// What to do with one row of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    New {
        /// Its key must be added to the campaign.
        with_key: bool,
        /// The failed message that it replaces.
        replaces: Option<i64>,
    },
    Duplicate,
    Suppressed,
    Unchanged,
}

impl Store {
    /// Decides for the rows of an import into a campaign, without writing.
    pub async fn decide(
        &self,
        campaign_id: i64,
        rows: &[&NewSms],
    ) -> Result<Vec<Decision>, StoreError> {
        let existing = with_retries!(self, Read, |connection| {
            run_query(
                connection.is_sqlite(),
                ExistingRows::read(connection, campaign_id, rows, false),
            )
            .await
        })?;
        Ok(decide(campaign_id, rows, &existing))
    }
}

/// A failed message that a row may replace.
#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
pub(super) struct FailedSms {
    pub(super) id: i64,
    pub(super) campaign_id: i64,
    pub(super) import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub(super) phone: String,
    #[diesel(deserialize_as = LossyText)]
    pub(super) content: String,
    pub(super) class: String,
    pub(super) dedupe_key: Option<LossyText>,
}

/// The rows of the database that a batch concerns.
#[derive(Default)]
pub(super) struct ExistingRows {
    pub(super) keys: HashSet<String>,
    pub(super) suppressed: HashSet<String>,
    pub(super) failed: HashMap<i64, FailedSms>,
    /// Phone, text and key of queued messages that rows of the batch name.
    pub(super) queued: HashMap<i64, (String, String, Option<String>)>,
    pub(super) sent: HashMap<i64, String>,
}

impl ExistingRows {
    /// `lock`: locks the failed messages until the end of the transaction.
    pub(super) async fn read(
        connection: &mut Connection,
        campaign_id: i64,
        rows: &[&NewSms],
        lock: bool,
    ) -> QueryResult<Self> {
        let mut existing = Self::default();
        let has_suppressed = suppressed::has_any(connection).await?;
        for rows in rows.chunks(ROWS) {
            let mut keys: Vec<&str> = rows.iter().map(|row| row.dedupe_key.as_str()).collect();
            // Keys in random order are slow on SQLite.
            keys.sort_unstable();
            let keys = in_list(keys);
            let found: Vec<String> = with_conn!(connection, |conn| Prepared(
                sms_key::table
                    .filter(sms_key::campaign_id.eq(campaign_id))
                    .filter(sms_key::dedupe_key.eq_any(&keys))
                    .select(sms_key::dedupe_key)
            )
            .load(conn))?;
            existing.keys.extend(found);
            if has_suppressed {
                let phones: Vec<&str> = rows.iter().map(|row| row.phone.as_str()).collect();
                let phones = in_list(phones);
                let found: Vec<String> = with_conn!(connection, |conn| Prepared(
                    suppression::table
                        .filter(suppression::phone.eq_any(&phones))
                        .select(suppression::phone)
                )
                .load(conn))?;
                existing.suppressed.extend(found);
            }
            let named: BTreeSet<i64> = rows.iter().filter_map(|row| row.replaces).collect();
            if !named.is_empty() {
                existing.read_named(connection, &named, lock).await?;
            }
        }
        Ok(existing)
    }

    async fn read_named(
        &mut self,
        connection: &mut Connection,
        ids: &BTreeSet<i64>,
        lock: bool,
    ) -> QueryResult<()> {
        let failed = sms_failed::table
            .filter(sms_failed::id.eq_any(ids))
            .order(sms_failed::id);
        let failed: Vec<FailedSms> = if lock {
            load_locked!(connection, failed.select(FailedSms::as_select()))?
        } else {
            with_conn!(connection, |conn| failed
                .select(FailedSms::as_select())
                .load(conn))?
        };
        let queued: Vec<(i64, LossyText, LossyText, Option<LossyText>)> =
            with_conn!(connection, |conn| sms::table
                .filter(sms::id.eq_any(ids))
                .select((sms::id, sms::phone, sms::content, sms::dedupe_key))
                .load(conn))?;
        let sent: Vec<(i64, LossyText)> = with_conn!(connection, |conn| sms_sent::table
            .filter(sms_sent::id.eq_any(ids))
            .select((sms_sent::id, sms_sent::phone))
            .load(conn))?;
        let failed = failed.into_iter().map(|failed| (failed.id, failed));
        self.failed.extend(failed);
        let queued = queued.into_iter().map(|(id, phone, content, key)| {
            (id, (phone.text, content.text, key.map(String::from)))
        });
        self.queued.extend(queued);
        let sent = sent.into_iter().map(|(id, phone)| (id, phone.text));
        self.sent.extend(sent);
        Ok(())
    }

    /// Whether the message that the row names was retried meanwhile. If it has neither phone, text nor key of the
    /// row, the row names a message of another database.
    fn is_retried(&self, row: &NewSms, id: i64) -> bool {
        let queued = self.queued.get(&id).is_some_and(|(phone, content, key)| {
            *phone == row.phone || *content == row.content || key.as_ref() == Some(&row.dedupe_key)
        });
        queued || self.sent.get(&id).is_some_and(|phone| *phone == row.phone)
    }
}

/// Decides for each row; of rows with equal keys only the first is new.
pub(super) fn decide(campaign_id: i64, rows: &[&NewSms], existing: &ExistingRows) -> Vec<Decision> {
    let mut taken: HashSet<&str> = HashSet::new();
    let mut replaced: HashSet<i64> = HashSet::new();
    let mut decisions = Vec::with_capacity(rows.len());
    for row in rows {
        let is_new = |taken: &HashSet<&str>| {
            !existing.keys.contains(&row.dedupe_key) && !taken.contains(row.dedupe_key.as_str())
        };
        let decision = if existing.suppressed.contains(&row.phone) {
            Decision::Suppressed
        } else if let Some(decision) = row
            .replaces
            .and_then(|id| replacing(campaign_id, existing, row, id, &replaced, is_new(&taken)))
        {
            decision
        } else if is_new(&taken) {
            Decision::New {
                with_key: true,
                replaces: None,
            }
        } else {
            Decision::Duplicate
        };
        if let Decision::New { with_key, replaces } = &decision {
            if *with_key {
                taken.insert(&row.dedupe_key);
            }
            replaced.extend(replaces);
        }
        decisions.push(decision);
    }
    decisions
}

/// Decides for a row that names a message; `None` if this database has no such message.
fn replacing(
    campaign_id: i64,
    existing: &ExistingRows,
    row: &NewSms,
    id: i64,
    replaced: &HashSet<i64>,
    is_new: bool,
) -> Option<Decision> {
    let failed = existing.failed.get(&id).filter(|_| !replaced.contains(&id));
    let Some(failed) = failed else {
        return existing.is_retried(row, id).then_some(Decision::Duplicate);
    };
    if failed.phone == row.phone && failed.content == row.content {
        return Some(Decision::Unchanged);
    }
    // A cancelled message has lost its key, which another message may have now.
    let key = failed.dedupe_key.as_ref().map(|key| &key.text);
    let key = key.filter(|_| failed.class != Class::Cancelled.as_str());
    let same_key = failed.campaign_id == campaign_id && key == Some(&row.dedupe_key);
    if failed.phone != row.phone && failed.content != row.content && !same_key {
        // The file is from another database, in which the id belongs to another message.
        return None;
    }
    // The old key is kept, so that another import of the original list does not add the old row.
    if same_key || is_new {
        Some(Decision::New {
            with_key: !same_key,
            replaces: Some(id),
        })
    } else {
        Some(Decision::Duplicate)
    }
}
