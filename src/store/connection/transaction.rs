//! How a query or a transaction is run: again where only other transactions or a lost connection were in its
//! way, and never twice where its commit may have succeeded.

use std::future::Future;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use rand::RngExt;

use super::{Connection, Pool, PooledConnection, Symptom, lost, sqlite};
use crate::store::{Fault, StoreError};

/// How often a transaction that conflicts with another is begun again before the caller gets the error.
const CONFLICT_RETRIES: u32 = 20;
/// How often one is begun again that failed for a reason that may have passed, such as a cancelled statement.
const OTHER_RETRIES: u32 = 2;
/// A transaction that takes longer counts as lost with its connection.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for another program's lock on a SQLite file. Other tasks go on meanwhile.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs one query on a connection of a lane.
macro_rules! run_query {
    ($store:expr, $lane:ident, |$conn:ident| $query:expr) => {{
        use $crate::store::connection::{Attempts, Connection, Lane, run_inline};
        let pool = &*$store.pool;
        let mut attempts = Attempts::default();
        loop {
            let mut pooled = match pool.take(Lane::$lane).await {
                Ok(pooled) => pooled,
                Err(error) => break Err(error),
            };
            let done = match pooled.connection() {
                Connection::Sqlite($conn) => run_inline(async {
                    let $conn = &mut **$conn;
                    $query.await
                }),
                Connection::Postgres($conn) => {
                    let $conn = &mut **$conn;
                    $query.await
                }
                Connection::Mysql($conn) => {
                    let $conn = &mut **$conn;
                    $query.await
                }
            };
            if let Some(result) = attempts.judge(pool, pooled, done).await {
                break result;
            }
        }
    }};
}

/// Runs a query that only reads.
macro_rules! reading {
    ($store:expr, |$conn:ident| $query:expr) => {
        $crate::store::connection::run_query!($store, Read, |$conn| $query)
    };
}

/// Runs one statement that writes.
macro_rules! writing {
    ($store:expr, |$conn:ident| $query:expr) => {
        $crate::store::connection::run_query!($store, Write, |$conn| $query)
    };
}

/// Runs a future of several statements in one transaction. It is made anew for each attempt.
///
/// Where the answer to the commit was lost, the caller gets the error and must find out whether it succeeded.
macro_rules! transaction {
    ($store:expr, |$connection:ident| $work:expr) => {{
        use $crate::store::connection::{Attempts, Lane, attempt};
        let pool = &*$store.pool;
        let mut attempts = Attempts::default();
        loop {
            let mut pooled = match pool.take(Lane::Write).await {
                Ok(pooled) => pooled,
                Err(error) => break Err(error),
            };
            let (done, at_commit) = {
                let is_sqlite = pooled.connection().is_sqlite();
                let work = async {
                    let $connection = pooled.connection();
                    let begun = $connection.begin_transaction().await;
                    match begun {
                        Ok(()) => match $work.await {
                            Ok(done) => ($connection.commit().await.map(|()| done), true),
                            Err(error) => (Err(error), false),
                        },
                        Err(error) => (Err(error), false),
                    }
                };
                attempt(is_sqlite, work).await
            };
            attempts.may_be_committed = at_commit;
            if let Some(result) = attempts.judge(pool, pooled, done).await {
                break result;
            }
        }
    }};
}

pub(in crate::store) use {reading, run_query, transaction, writing};

impl Connection {
    pub(in crate::store) async fn begin_transaction(&mut self) -> QueryResult<()> {
        let begin = self.begin();
        self.run(begin).await
    }

    pub(in crate::store) async fn commit(&mut self) -> QueryResult<()> {
        self.run("COMMIT").await
    }
}

/// Runs a transaction to its end; returns its result, and whether its commit was asked for.
pub(in crate::store) async fn attempt<T>(
    is_sqlite: bool,
    transaction: impl Future<Output = (QueryResult<T>, bool)>,
) -> (QueryResult<T>, bool) {
    if is_sqlite {
        return sqlite::run_inline(transaction);
    }
    let done = tokio::time::timeout(TRANSACTION_TIMEOUT, transaction).await;
    done.unwrap_or_else(|_| (Err(lost("does not answer")), true))
}

/// The attempts at one query or transaction.
pub(in crate::store) struct Attempts {
    began: Instant,
    conflicts: u32,
    losses: u32,
    others: u32,
    /// The commit of the last attempt was asked for.
    pub(in crate::store) may_be_committed: bool,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            conflicts: 0,
            losses: 0,
            others: 0,
            may_be_committed: false,
        }
    }
}

impl Attempts {
    /// Gives the connection back, or closes what cannot be used any more. Returns the result, or `None` where
    /// the query or transaction is to be run again.
    pub(in crate::store) async fn judge<T>(
        &mut self,
        pool: &Pool,
        mut pooled: PooledConnection<'_>,
        done: QueryResult<T>,
    ) -> Option<Result<T, StoreError>> {
        let error = match done {
            Ok(done) => {
                pooled.give_back();
                return Some(Ok(done));
            }
            Err(error) => error,
        };
        let may_be_committed = std::mem::take(&mut self.may_be_committed);
        if pooled.connection().is_sqlite() {
            let failed = pooled.store_error(&error);
            pooled.roll_back().await;
            let is_locked = failed.fault() == Fault::Busy && !may_be_committed;
            if is_locked && self.began.elapsed() < LOCK_TIMEOUT {
                pause(20).await;
                return None;
            }
            return Some(Err(failed));
        }
        let mut symptom = pooled.symptom(&error);
        // Messages may be in any language, and a lost connection is found out in all of them.
        let is_certain = matches!(
            symptom,
            Symptom::Lost | Symptom::ReadOnly | Symptom::TooLarge
        );
        if !is_certain && !pooled.can_roll_back().await {
            symptom = Symptom::Lost;
        }
        if may_be_committed && symptom != Symptom::Conflict {
            // A commit that fails for any other reason may have succeeded.
            pooled.close_all();
            return Some(Err(pool.error(Symptom::Lost, &error)));
        }
        match symptom {
            Symptom::Conflict if self.conflicts < CONFLICT_RETRIES => {
                self.conflicts += 1;
                pooled.give_back();
                pause(10 * self.conflicts).await;
                None
            }
            Symptom::Lost | Symptom::ReadOnly => {
                pooled.close_all();
                self.losses += 1;
                (self.losses > 1).then(|| Err(pool.error(symptom, &error)))
            }
            // On a new connection, in case this one is at fault.
            Symptom::Other if self.others < OTHER_RETRIES => {
                self.others += 1;
                pause(20 * self.others).await;
                None
            }
            _ => {
                pooled.roll_back().await;
                Some(Err(pool.error(symptom, &error)))
            }
        }
    }
}

/// Waits for a random time of at most this many milliseconds.
async fn pause(most: u32) {
    let wait = rand::rng().random_range(0..=u64::from(most));
    tokio::time::sleep(Duration::from_millis(wait)).await;
}
