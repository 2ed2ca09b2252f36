//! Reads the rows of the database that decide which rows of an import are new; see [`crate::queue::dedupe`].

use std::collections::{BTreeSet, HashMap};

use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::sql_types::{Nullable, Text};

use super::column_types::LossyText;
use super::connection::prelude::*;
use super::connection::{Connection, Prepared, ROWS, in_list, load_locked, querying, with_conn};
use super::schema::{sms, sms_failed, sms_key, sms_sent};
use super::{Store, StoreError, suppression};
use crate::queue::dedupe::{Decision, ExistingRows, FailedOrigin, decide};
use crate::sms::{Class, NewSms};

/// The class of failure that stands for a sent message that did not arrive and was not fixed yet.
const UNDELIVERED: &str = "undelivered";
const UNDELIVERED_CLASS: &str = "CASE WHEN delivery_state IN ('undelivered', 'expired') \
     AND resent_at IS NULL THEN 'undelivered' END";

impl Store {
    /// Decides for the rows of an import into a campaign, without writing.
    pub async fn decide(
        &self,
        campaign_id: i64,
        rows: &[&NewSms],
    ) -> Result<Vec<Decision>, StoreError> {
        let existing = querying!(self, Read, |connection| read_existing(
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
                querying!(self, Read, |connection| read_origins(
                    connection, ids, false
                ))?;
            origins.extend(found);
        }
        Ok(origins)
    }
}

/// Reads the messages with these ids from all tables. `lock`: locks the failed ones until the end of the
/// transaction.
async fn read_origins(
    connection: &mut Connection,
    ids: &[i64],
    lock: bool,
) -> QueryResult<HashMap<i64, FailedOrigin>> {
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
        origins.entry(id).or_insert(FailedOrigin {
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

/// Reads the rows of the database that a batch concerns. `lock`: locks the failed messages until the end of the transaction.
pub(super) async fn read_existing(
    connection: &mut Connection,
    campaign_id: i64,
    rows: &[&NewSms],
    lock: bool,
) -> QueryResult<ExistingRows> {
    let mut existing = ExistingRows::default();
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
            let origins = read_origins(connection, &named, lock).await?;
            existing.origins.extend(origins);
        }
    }
    Ok(existing)
}
