//! Counts the group commits of each worker, in its row and in its memory. A row that is behind its worker shows that the
//! database lost commits: it was restored or replaced, or a standby took over that did not have them.

use smsq_process::boxed;

use crate::connection::DatabaseError;
use diesel::update;

use super::workers::Worker;
use crate::WorkerStore;
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, querying};
use crate::error::{StoreError, StoreErrorKind};
use crate::tables::schema::{reclaimed_worker, worker};

/// What a worker knows of its group commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitCount {
    pub worker_id: i64,
    /// Identifies its registration.
    pub token: String,
    /// How many are certainly stored.
    pub confirmed: i64,
    /// The answer to the next one was lost, so it may be stored, too.
    pub is_uncertain: bool,
}

impl CommitCount {
    /// Of a worker that was just registered.
    pub fn new(worker_id: i64, token: String) -> Self {
        Self { worker_id, token, confirmed: 0, is_uncertain: false }
    }

    /// How many of the certain commits are lost, by the worker's row; `None`: by its absence.
    fn lost(&self, stored: Option<i64>) -> i64 {
        self.confirmed - stored.unwrap_or(0)
    }
}

/// Raises the count in the worker's row. Each attempt at a commit sets the same number, so one that is repeated finds
/// either number and counts once. Returns false if the worker was declared dead; fails if the database lost commits.
///
/// It comes before the messages of the commit are locked, as who declares a worker dead deletes its row first.
pub(super) async fn raise(
    connection: &mut Connection,
    count: Option<&CommitCount>,
) -> QueryResult<bool> {
    let Some(count) = count else {
        return Ok(true);
    };
    let next = count.confirmed + 1;
    let most = if count.is_uncertain { next } else { count.confirmed };
    let raised = update(
        worker::table
            .find(count.worker_id)
            .filter(worker::token.eq(&count.token))
            .filter(worker::commits.between(count.confirmed, most)),
    )
    .set(worker::commits.eq(next))
    .kept()
    .execute(connection)
    .await?;
    if raised == 1 || is_reclaimed(connection, &count.token).await? {
        return Ok(raised == 1);
    }
    // `Store::commit_counted` finds out what is lost.
    Err(DatabaseError::new(StoreErrorKind::LostCommits, "lost commits"))
}

async fn is_reclaimed(connection: &mut Connection, token: &str) -> QueryResult<bool> {
    let found: Option<String> = reclaimed_worker::table
        .find(token)
        .select(reclaimed_worker::token)
        .first(connection)
        .optional()
        .await?;
    Ok(found.is_some())
}

impl WorkerStore<'_> {
    /// Whether a worker was declared dead: false also if it was never registered here.
    #[boxed]
    pub async fn is_reclaimed(&self, token: &str) -> Result<bool, StoreError> {
        querying!(self, Read, |connection| is_reclaimed(connection, token))
    }

    /// An error of the kind `LostCommits` if the database does not have all commits of the worker. `workers` are all that
    /// are registered, read after `count` was.
    #[boxed]
    pub async fn check_count(
        &self,
        count: &CommitCount,
        workers: &[Worker],
    ) -> Result<(), StoreError> {
        let own = |row: &&Worker| row.id == count.worker_id && row.token == count.token;
        let stored = workers.iter().find(own).map(|row| row.commits);
        match stored {
            Some(stored) if stored >= count.confirmed => return Ok(()),
            None if self.is_reclaimed(&count.token).await? => return Ok(()),
            _ => {}
        }
        let CommitCount { worker_id, confirmed, .. } = count;
        let lost = count.lost(stored);
        let what = match stored {
            Some(_) => format!("lost the last {lost} of {confirmed} commits of worker {worker_id}"),
            None => format!("lost worker {worker_id} and all {lost} of its commits"),
        };
        Err(StoreError::new(
            self.location(),
            StoreErrorKind::LostCommits,
            format!("{what}: it was restored or replaced, or a standby took over"),
        ))
    }
}
