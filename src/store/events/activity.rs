//! What workers publish: counts of what happened to messages, and what each worker does now.

use crate::connection::QueryResult;
use std::collections::BTreeMap;

use diesel::{delete, update};
use smsq_message::activity::{ActivityCounts, ActivityRow, WorkerActivity};
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, transaction};
use crate::error::StoreError;
use crate::tables::schema::{activity, worker};
use crate::{Store, positive, signed};

/// A row of table `activity`.
type Columns = (Timestamp, i64, String, i64, i64, i64, i64, i64);

impl Store {
    /// Adds counts to those of their spans, and stores what the worker does now. `rows` are in the order of their keys,
    /// so that workers lock them in the same order.
    #[boxed]
    pub async fn publish(
        &self,
        worker_id: i64,
        doing: &WorkerActivity,
        rows: &[ActivityRow],
    ) -> Result<(), StoreError> {
        let json = serde_json::to_string(doing).unwrap_or_default();
        transaction!(self, |connection| async {
            for row in rows {
                add(connection, row).await?;
            }
            update(worker::table.find(worker_id))
                .set(worker::activity.eq(&json))
                .kept()
                .execute(connection)
                .await?;
            Ok(())
        })
    }

    /// What happened in the spans that begin at `since` or later and before `until`, in the order of time.
    #[boxed]
    pub async fn activity(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<ActivityRow>, StoreError> {
        let rows: Vec<Columns> = self
            .read(
                activity::table
                    .filter(activity::at.ge(since))
                    .filter(activity::at.lt(until))
                    .order((activity::at, activity::campaign_id, activity::provider)),
            )
            .await?;
        Ok(rows.into_iter().map(row).collect())
    }

    /// What workers do now, by their ids, of those that have published it.
    #[boxed]
    pub async fn worker_activities(&self) -> Result<BTreeMap<i64, WorkerActivity>, StoreError> {
        let rows: Vec<(i64, Option<String>)> = self
            .read(
                worker::table
                    .filter(worker::activity.is_not_null())
                    .select((worker::id, worker::activity)),
            )
            .await?;
        let read = rows.into_iter().filter_map(|(id, json)| {
            // One that cannot be read counts as not published.
            let doing = serde_json::from_str(&json?).ok()?;
            Some((id, doing))
        });
        Ok(read.collect())
    }

    /// Deletes the counts of spans that began earlier. Returns their number.
    #[boxed]
    pub async fn prune_activity(&self, before: Timestamp) -> Result<u64, StoreError> {
        let deleted: usize =
            self.write(delete(activity::table).filter(activity::at.lt(before))).await?;
        Ok(deleted as u64)
    }
}

/// Adds to the counts of a span. The update comes first, because an insert that finds a row locks it for reading on
/// MySQL, and two workers that do so wait for each other.
async fn add(connection: &mut Connection, row: &ActivityRow) -> QueryResult<()> {
    let counts = row.counts;
    let key = (row.at, row.campaign_id, row.provider.as_str());
    let change = (
        activity::sent.eq(activity::sent + signed(counts.sent)),
        activity::failed.eq(activity::failed + signed(counts.failed)),
        activity::unknown.eq(activity::unknown + signed(counts.unknown)),
        activity::throttled.eq(activity::throttled + signed(counts.throttled)),
        activity::unavailable.eq(activity::unavailable + signed(counts.unavailable)),
    );
    let updated = update(activity::table.find(key)).set(change).kept().execute(connection).await?;
    if updated > 0 {
        return Ok(());
    }
    let new = [(
        activity::at.eq(row.at),
        activity::campaign_id.eq(row.campaign_id),
        activity::provider.eq(row.provider.as_str()),
        activity::sent.eq(signed(counts.sent)),
        activity::failed.eq(signed(counts.failed)),
        activity::unknown.eq(signed(counts.unknown)),
        activity::throttled.eq(signed(counts.throttled)),
        activity::unavailable.eq(signed(counts.unavailable)),
    )];
    if NewRows::of(activity::table, &new).insert_new(connection).await? == 0 {
        // Another worker was faster.
        update(activity::table.find(key)).set(change).kept().execute(connection).await?;
    }
    Ok(())
}

fn row(columns: Columns) -> ActivityRow {
    let (at, campaign_id, provider, sent, failed, unknown, throttled, unavailable) = columns;
    ActivityRow {
        at,
        campaign_id,
        provider,
        counts: ActivityCounts {
            sent: positive(sent),
            failed: positive(failed),
            unknown: positive(unknown),
            throttled: positive(throttled),
            unavailable: positive(unavailable),
        },
    }
}
