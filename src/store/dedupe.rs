//! Decides which rows of an import are new, duplicate, suppressed or unchanged: reads the existing rows first, then
//! decides without the database.

use std::collections::{BTreeSet, HashMap, HashSet};

use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::sql_types::{Nullable, Text};

use super::column_types::LossyText;
use super::connection::prelude::*;
use super::connection::{Connection, Prepared, ROWS, in_list, load_locked, querying, with_conn};
use super::schema::{sms, sms_failed, sms_key, sms_sent};
use super::{Store, StoreError, suppression};
use crate::sms::{Class, NewSms};

/// The class of failure that stands for a sent message that did not arrive and was not fixed yet.
const UNDELIVERED: &str = "undelivered";
const UNDELIVERED_CLASS: &str = "CASE WHEN delivery_state IN ('undelivered', 'expired') \
     AND resent_at IS NULL THEN 'undelivered' END";

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
    /// A row that names a failed message, or one that did not arrive, and has its phone and text.
    Unchanged {
        was_sent: bool,
    },
}

impl Store {
    /// Decides for the rows of an import into a campaign, without writing.
    pub async fn decide(
        &self,
        campaign_id: i64,
        rows: &[&NewSms],
    ) -> Result<Vec<Decision>, StoreError> {
        let existing = querying!(self, Read, |connection| ExistingRows::read(
            connection,
            campaign_id,
            rows,
            false
        ))?;
        Ok(decide(campaign_id, rows, &existing))
    }

    /// The messages with these ids.
    pub async fn origins(&self, ids: &[i64]) -> Result<HashMap<i64, FailedOrigin>, StoreError> {
        let mut origins = HashMap::new();
        for ids in ids.chunks(ROWS) {
            let found: HashMap<i64, FailedOrigin> =
                querying!(self, Read, |connection| FailedOrigin::read(
                    connection, ids, false
                ))?;
            origins.extend(found);
        }
        Ok(origins)
    }
}

/// A message that a row of a failures file names.
pub struct FailedOrigin {
    pub campaign_id: i64,
    pub(super) import_id: Option<i64>,
    phone: String,
    /// `None` if it was sent, unless it was not delivered.
    content: Option<String>,
    /// `None` if it has no key; the phone if it was sent.
    dedupe_key: Option<String>,
    /// Otherwise it is queued again or sent.
    has_failed: bool,
    /// It was sent, and did not arrive: a row that replaces it is a message of its own.
    pub(super) is_undelivered: bool,
}

impl FailedOrigin {
    /// Whether the row has the phone, the text or the key of the message. If not, the message belongs to another
    /// database and has the same id by chance.
    pub fn shares_with(&self, row: &NewSms) -> bool {
        self.phone == row.phone
            || self.content.as_ref() == Some(&row.content)
            || self.dedupe_key.as_ref() == Some(&row.dedupe_key)
    }

    /// Reads the messages with these ids from all tables. `lock`: locks the failed ones until the end of the
    /// transaction.
    async fn read(
        connection: &mut Connection,
        ids: &[i64],
        lock: bool,
    ) -> QueryResult<HashMap<i64, Self>> {
        /// Id, campaign, import, phone, content, dedupe key and class of failure.
        type Row = (
            i64,
            i64,
            Option<i64>,
            LossyText,
            Option<LossyText>,
            Option<LossyText>,
            Option<String>,
        );
        macro_rules! rows {
            ($table:ident, $content:expr, $key:expr, $class:expr) => {
                $table::table
                    .filter($table::id.eq_any(ids))
                    .order($table::id)
                    .select((
                        $table::id,
                        $table::campaign_id,
                        $table::import_id,
                        $table::phone,
                        $content,
                        $key,
                        $class,
                    ))
            };
        }
        let null = || None::<String>.into_sql::<Nullable<Text>>();
        let (content, key) = (sms_failed::content.nullable(), sms_failed::dedupe_key);
        let failed = || rows!(sms_failed, content, key, sms_failed::class.nullable());
        let queued = || rows!(sms, sms::content.nullable(), sms::dedupe_key, null());
        // Their keys are not stored, and most are the phone.
        let undelivered = || sql::<Nullable<Text>>(UNDELIVERED_CLASS);
        let sent = || {
            rows!(
                sms_sent,
                sms_sent::content,
                sms_sent::phone.nullable(),
                undelivered()
            )
        };
        // In the order in which a message moves, so that one that moves meanwhile is found.
        let failed: Vec<Row> = if lock {
            load_locked!(connection, failed())?
        } else {
            with_conn!(connection, |conn| failed().load(conn))?
        };
        let queued: Vec<Row> = with_conn!(connection, |conn| queued().load(conn))?;
        let sent: Vec<Row> = if lock {
            load_locked!(connection, sent())?
        } else {
            with_conn!(connection, |conn| sent().load(conn))?
        };
        let mut origins = HashMap::new();
        for (id, campaign_id, import_id, phone, content, key, class) in
            failed.into_iter().chain(queued).chain(sent)
        {
            // A cancelled message has lost its key, which another message may have now.
            let is_cancelled = class.as_deref() == Some(Class::Cancelled.as_str());
            let is_undelivered = class.as_deref() == Some(UNDELIVERED);
            origins.entry(id).or_insert(Self {
                campaign_id,
                import_id,
                phone: phone.text,
                content: content.map(String::from),
                dedupe_key: key.filter(|_| !is_cancelled).map(String::from),
                has_failed: class.is_some(),
                is_undelivered,
            });
        }
        Ok(origins)
    }
}

/// The rows of the database that a batch concerns.
#[derive(Default)]
pub(super) struct ExistingRows {
    keys: HashSet<String>,
    suppressed: HashSet<String>,
    /// The messages that rows of the batch name.
    pub(super) origins: HashMap<i64, FailedOrigin>,
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
        let has_suppressed = suppression::has_any(connection).await?;
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
                let phones = rows.iter().map(|row| row.phone.as_str());
                let found = suppression::among(connection, phones).await?;
                existing.suppressed.extend(found);
            }
            let named: BTreeSet<i64> = rows.iter().filter_map(|row| row.replaces).collect();
            if !named.is_empty() {
                let named: Vec<i64> = named.into_iter().collect();
                let origins = FailedOrigin::read(connection, &named, lock).await?;
                existing.origins.extend(origins);
            }
        }
        Ok(existing)
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
    let origin = existing.origins.get(&id)?;
    if !origin.has_failed {
        // It was retried meanwhile.
        return origin.shares_with(row).then_some(Decision::Duplicate);
    }
    if replaced.contains(&id) {
        return None;
    }
    let same_phone = origin.phone == row.phone;
    let same_content = origin.content.as_ref() == Some(&row.content);
    if same_phone && same_content {
        return Some(Decision::Unchanged {
            was_sent: origin.is_undelivered,
        });
    }
    let same_key =
        origin.campaign_id == campaign_id && origin.dedupe_key.as_ref() == Some(&row.dedupe_key);
    if !same_phone && !same_content && !same_key {
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
