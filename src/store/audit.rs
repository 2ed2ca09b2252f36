//! Table `audit`: what people changed, what workers paused or stopped, and when.

use std::ops::AddAssign;
use std::slice::from_ref;

use diesel::update;
use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use super::Store;
use super::connection::prelude::*;
use super::connection::{Connection, NewRows, QueryResult, transaction};
use super::error::StoreError;
use super::tables::schema::audit;

/// The verbs of changes of a campaign's state, by people and by workers.
pub const STATE_VERBS: [&str; 5] = ["pause", "resume", "cancel", "paused", "stopped"];
const WORKER: &str = "worker";

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Insertable, Serialize)]
#[diesel(table_name = audit, treat_none_as_default_value = false)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// The name of a token, the user of a command such as `ann@web1`, or `worker`.
    pub who: String,
    /// A verb, such as `pause`.
    pub what: String,
    pub campaign: Option<String>,
    /// Without phones and texts.
    pub detail: String,
}

impl AuditEntry {
    /// A change of a campaign that a worker made.
    pub(super) fn of_worker(at: Timestamp, campaign: String, what: &str, reason: &str) -> Self {
        Self {
            at,
            who: WORKER.to_owned(),
            what: what.to_owned(),
            detail: format!("{what} `{campaign}`: {reason}"),
            campaign: Some(campaign),
        }
    }

    /// Whether a worker made the change.
    pub fn is_by_worker(&self) -> bool {
        self.who == WORKER
    }

    /// Returns the id of its row.
    pub(super) async fn insert(&self, connection: &mut Connection) -> QueryResult<i64> {
        Ok(NewRows::of(audit::table, from_ref(self)).insert_with_ids(connection).await?[0])
    }
}

type Describe<T> = dyn Fn(&T) -> Option<String> + Send + Sync;

/// A change in one transaction or several, with its entry in the audit log: the first transaction that changes anything
/// writes the entry, and the others update it. So it says what was changed, also if the rest fails.
pub struct Audited<T = u64> {
    entry: AuditEntry,
    describe: Box<Describe<T>>,
    /// The row of the entry, once it is written.
    id: Option<i64>,
    done: T,
}

impl<T: Clone + Default + AddAssign> Audited<T> {
    /// `describe`: what was done, without phones and texts; `None`: nothing.
    pub fn new(
        who: &str,
        what: &str,
        campaign: Option<&str>,
        describe: impl Fn(&T) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            entry: AuditEntry {
                at: Timestamp::default(),
                who: who.to_owned(),
                what: what.to_owned(),
                campaign: campaign.map(str::to_owned),
                detail: String::new(),
            },
            describe: Box::new(describe),
            id: None,
            done: T::default(),
        }
    }

    /// Without an entry, because no person asked for the change.
    pub fn unrecorded() -> Self {
        Self::new("", "", None, |_| None)
    }

    /// Who makes the change; empty: no person.
    pub(super) fn who(&self) -> &str {
        &self.entry.who
    }

    /// What was done so far.
    pub fn done(&self) -> &T {
        &self.done
    }

    /// Writes the entry in the transaction that does `step`; returns its id.
    pub(super) async fn write(
        &self,
        connection: &mut Connection,
        step: &T,
        now: Timestamp,
    ) -> QueryResult<Option<i64>> {
        let mut done = self.done.clone();
        done += step.clone();
        let detail = (self.describe)(&done);
        match (detail, self.id) {
            (Some(detail), Some(id)) => {
                update(audit::table.find(id))
                    .set(audit::detail.eq(detail))
                    .execute(connection)
                    .await?;
                Ok(Some(id))
            }
            (Some(detail), None) => {
                let entry = AuditEntry { at: now, detail, ..self.entry.clone() };
                entry.insert(connection).await.map(Some)
            }
            (None, id) => Ok(id),
        }
    }

    /// Takes what [`Self::write`] returned, after the commit.
    pub(super) fn committed(&mut self, step: T, id: Option<i64>) {
        self.done += step;
        self.id = id;
    }
}

impl Store {
    /// Records what somebody changed just now; see [`AuditEntry`].
    #[boxed]
    pub async fn record(
        &self,
        who: &str,
        what: &str,
        campaign: Option<&str>,
        detail: &str,
    ) -> Result<(), StoreError> {
        let entry = AuditEntry {
            at: self.now().await?,
            who: who.to_owned(),
            what: what.to_owned(),
            campaign: campaign.map(str::to_owned),
            detail: detail.to_owned(),
        };
        transaction!(self, |connection| entry.insert(connection)).map(drop)
    }

    /// Whether a worker made the last change of a campaign's state.
    #[boxed]
    pub async fn is_changed_by_worker(&self, campaign: &str) -> Result<bool, StoreError> {
        let last: Option<AuditEntry> = self
            .read_first(
                audit::table
                    .filter(audit::campaign.eq(campaign))
                    .filter(audit::what.eq_any(STATE_VERBS))
                    .order(audit::id.desc())
                    .select(AuditEntry::as_select()),
            )
            .optional()
            .await?;
        Ok(last.is_some_and(|entry| entry.is_by_worker()))
    }

    /// The last `most` changes, the newest first.
    #[boxed]
    pub async fn audit_entries(&self, most: i64) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(audit::table.order(audit::id.desc()).limit(most).select(AuditEntry::as_select()))
            .await
    }
}

/// Runs a transaction that returns what it did, with the entry of an [`Audited`](crate::Audited) change.
macro_rules! audited {
    ($store:expr, $audited:expr, $now:expr, |$connection:ident| $work:expr) => {{
        let done = $crate::connection::transaction!($store, |$connection| async {
            let step = $work.await?;
            let id = $audited.write($connection, &step, $now).await?;
            $crate::connection::QueryResult::Ok((step, id))
        });
        done.map(|(step, id)| {
            $audited.committed(step.clone(), id);
            step
        })
    }};
}

/// Repeats a transaction that returns a [`Chunk`] until no rows are left; returns how many were moved.
macro_rules! in_chunks {
    ($store:expr, |$connection:ident| $work:expr) => {{
        let mut audited = $crate::audit::Audited::unrecorded();
        let now = smsq_message::sms::Timestamp::default();
        $crate::audit::in_chunks!($store, audited, now, |$connection| $work)
    }};
    ($store:expr, $audited:expr, $now:expr, |$connection:ident| $work:expr) => {{
        loop {
            let mut examined = 0;
            let done = $crate::audit::audited!($store, $audited, $now, |$connection| async {
                let chunk: $crate::connection::Chunk = $work.await?;
                examined = chunk.examined;
                $crate::connection::QueryResult::Ok(chunk.moved)
            });
            match done {
                Ok(_) if examined > 0 => {}
                done => break done.map(|_| *$audited.done()),
            }
        }
    }};
}

pub(crate) use {audited, in_chunks};
