//! Reads the rows of the database that decide which rows of an import are new; see [`smsq_lifecycle::dedupe`].

use std::collections::{BTreeSet, HashMap};

use smsq_lifecycle::dedupe::{Decision, ExistingRows, FailedOrigin, decide};
use smsq_message::sms::{NewSms, Timestamp};
use smsq_process::boxed;

use crate::ImportStore;
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, ROWS, in_list, querying};
use crate::error::StoreError;
use crate::recipients::{dead, suppression};
use crate::tables::column_types::LossyText;
use crate::tables::schema::{message, sms_failed, sms_key, sms_sent};

impl ImportStore<'_> {
    /// Decides for the rows of an import into a campaign, without writing.
    #[boxed]
    pub async fn decide(
        &self,
        campaign_id: i64,
        rows: &[&NewSms],
        now: Timestamp,
    ) -> Result<Vec<Decision>, StoreError> {
        let existing = querying!(self, Read, |connection| async {
            let dead_since = dead::since(connection, self.skip_dead, now).await?;
            read_existing(connection, campaign_id, rows, dead_since, false).await
        })?;
        Ok(decide(campaign_id, rows, &existing))
    }

    /// The messages with these ids.
    #[boxed]
    pub async fn origins(&self, ids: &[i64]) -> Result<HashMap<i64, FailedOrigin>, StoreError> {
        let mut origins = HashMap::new();
        for ids in ids.chunks(ROWS) {
            let found: HashMap<i64, FailedOrigin> =
                querying!(self, Read, |connection| read_origins(connection, ids, false))?;
            origins.extend(found);
        }
        Ok(origins)
    }
}

/// Reads the messages with these ids. `lock`: locks the failed and the sent ones until the end of the transaction.
async fn read_origins(
    connection: &mut Connection,
    ids: &[i64],
    lock: bool,
) -> QueryResult<HashMap<i64, FailedOrigin>> {
    /// Id, campaign, import, phone, content, dedupe key, state, delivery, and when it was fixed.
    type Row = (
        i64,
        i64,
        Option<i64>,
        LossyText,
        Option<LossyText>,
        Option<LossyText>,
        String,
        Option<String>,
        Option<i64>,
    );
    macro_rules! lock_in {
        ($table:ident) => {
            let _: Vec<i64> = $table::table
                .filter($table::id.eq_any(ids))
                .order($table::id)
                .select($table::id)
                .locked()
                .load(connection)
                .await?;
        };
    }
    if lock {
        lock_in!(sms_failed);
        lock_in!(sms_sent);
    }
    let rows: Vec<Row> = message::table
        .filter(message::id.eq_any(ids))
        .select((
            message::id,
            message::campaign_id,
            message::import_id,
            message::phone,
            message::content,
            message::dedupe_key,
            message::state,
            message::delivery,
            message::resent_at,
        ))
        .load(connection)
        .await?;
    let origin = |row: Row| {
        let (id, campaign_id, import_id, phone, content, key, state, delivery, resent_at) = row;
        let is_undelivered = matches!(delivery.as_deref(), Some("undelivered" | "expired"));
        let is_undelivered = is_undelivered && resent_at.is_none();
        // A cancelled message has lost its key, which another message may have now.
        let is_cancelled = state == "cancelled";
        let origin = FailedOrigin {
            campaign_id,
            import_id,
            phone: phone.text,
            content: content.map(String::from),
            dedupe_key: key.filter(|_| !is_cancelled).map(String::from),
            has_failed: is_cancelled || is_undelivered || state == "failed",
            is_undelivered,
        };
        (id, origin)
    };
    Ok(rows.into_iter().map(origin).collect())
}

/// Reads the rows of the database that a batch concerns. `lock`: locks the failed messages until the end of the transaction.
pub(super) async fn read_existing(
    connection: &mut Connection,
    campaign_id: i64,
    rows: &[&NewSms],
    dead_since: Option<Timestamp>,
    lock: bool,
) -> QueryResult<ExistingRows> {
    let mut existing = ExistingRows::default();
    let has_suppressed = suppression::has_any(connection).await?;
    for rows in rows.chunks(ROWS) {
        let mut keys: Vec<&str> = rows.iter().map(|row| row.dedupe_key.as_str()).collect();
        // Keys in random order are slow on SQLite.
        keys.sort_unstable();
        let keys = in_list(keys);
        let found: Vec<String> = sms_key::table
            .filter(sms_key::campaign_id.eq(campaign_id))
            .filter(sms_key::dedupe_key.eq_any(&keys))
            .select(sms_key::dedupe_key)
            .kept()
            .load(connection)
            .await?;
        existing.keys.extend(found);
        if has_suppressed {
            let phones = rows.iter().map(|row| row.phone.as_str());
            let found = suppression::among(connection, phones).await?;
            existing.suppressed.extend(found);
        }
        if let Some(since) = dead_since {
            let phones = rows.iter().map(|row| row.phone.as_str());
            existing.dead.extend(dead::among(connection, phones, since).await?);
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
