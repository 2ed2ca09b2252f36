//! Runs queries and transactions: again if another transaction or a lost connection was the reason of a failure,
//! but never twice if the commit may have succeeded.

use std::future::Future;
use std::time::{Duration, Instant};

use rand::RngExt;

use super::error::{DatabaseError, QueryResult};
use super::pool::{Pool, PooledConnection};
use super::{Connection, sqlite};
use crate::error::{StoreError, StoreErrorKind};

/// How often a transaction that conflicts with another is begun again before the caller gets the error.
const CONFLICT_RETRIES: u32 = 20;
/// How often one is begun again that failed for an unknown reason, such as a cancelled statement.
const OTHER_RETRIES: u32 = 2;
/// A transaction that takes longer counts as lost with its connection.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait for another program's lock on a SQLite file, without blocking other tasks.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `$run` on a connection for a purpose, and again while [`Attempts`] allows it. The value of `$run` is a result,
/// and whether a commit was asked for. A store with a limit ends all of it then, wherever it waits.
macro_rules! with_retries {
    ($store:expr, $purpose:ident, |$connection:ident| $run:expr) => {{
        use $crate::connection::pool::Purpose;
        use $crate::connection::transaction::{Attempts, within};
        let pool = &*$store.pool;
        let mut attempts = Attempts::default();
        // In a box, because what calls it would have a copy for each of its two ways.
        let work = Box::pin(async {
            loop {
                let mut pooled = match pool.take(Purpose::$purpose).await {
                    Ok(pooled) => pooled,
                    Err(error) if attempts.waits_for_file(&error).await => continue,
                    Err(error) => break Err(error),
                };
                let done = {
                    let $connection = pooled.connection();
                    $run
                };
                if let Some(result) = attempts.finish(pooled, done).await {
                    break result;
                }
            }
        });
        within($store.limit, pool, work).await
    }};
}

/// Runs a future of queries on a connection for a purpose, without a transaction.
macro_rules! querying {
    ($store:expr, $purpose:ident, |$connection:ident| $work:expr) => {{
        use $crate::connection::transaction::{run_query, with_retries};
        with_retries!($store, $purpose, |$connection| {
            run_query($connection.is_sqlite(), $work).await
        })
    }};
}

/// Runs a future of several statements in one transaction. The future is made anew for each attempt.
///
/// If the answer to the commit was lost, the caller gets the error and must find out whether the commit succeeded.
macro_rules! transaction {
    ($store:expr, |$connection:ident| $work:expr) => {{
        use $crate::connection::transaction::{run_transaction, with_retries};
        with_retries!($store, Write, |$connection| {
            run_transaction($connection.is_sqlite(), async {
                if let Err(error) = $connection.begin_transaction().await {
                    return (Err(error), false);
                }
                match $work.await {
                    Ok(done) => ($connection.commit().await.map(|()| done), true),
                    Err(error) => (Err(error), false),
                }
            })
            .await
        })
    }};
}

pub(crate) use {querying, transaction, with_retries};

/// The number of rows of one transaction of a command.
pub(crate) struct Chunk {
    /// If this is 0, no rows are left.
    pub(crate) examined: u64,
    pub(crate) moved: u64,
}

impl Chunk {
    /// All rows were moved.
    pub(crate) fn all(rows: usize) -> Self {
        Self { examined: rows as u64, moved: rows as u64 }
    }
}

impl Connection {
    pub(crate) async fn begin_transaction(&mut self) -> QueryResult<()> {
        let begin = self.begin();
        self.run(begin).await
    }

    pub(crate) async fn commit(&mut self) -> QueryResult<()> {
        self.run("COMMIT").await
    }
}

/// Runs `work` for at most `limit`. After that its connection is closed, and so are the idle ones, whose server is likely
/// to stand still for them, too; whether a commit succeeded is not known.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    pool: &Pool,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(limit) = limit else {
        return work.await;
    };
    if let Ok(done) = tokio::time::timeout(limit, work).await {
        return done;
    }
    pool.close_idle();
    let reason = format!("does not answer within {limit:?}");
    let kind = StoreErrorKind::Unavailable;
    Err(StoreError::new(pool.name(), kind, reason))
}

/// What one attempt returned, and whether its commit was asked for.
type Attempted<T> = (QueryResult<T>, bool);

/// Runs one query.
pub(crate) async fn run_query<T>(
    is_sqlite: bool,
    query: impl Future<Output = QueryResult<T>>,
) -> Attempted<T> {
    let done = if is_sqlite { sqlite::run_inline(query) } else { query.await };
    (done, false)
}

/// Runs a transaction to its end.
pub(crate) async fn run_transaction<T>(
    is_sqlite: bool,
    transaction: impl Future<Output = Attempted<T>>,
) -> Attempted<T> {
    if is_sqlite {
        return sqlite::run_inline(transaction);
    }
    let done = tokio::time::timeout(TRANSACTION_TIMEOUT, transaction).await;
    done.unwrap_or_else(|_| (Err(DatabaseError::lost("does not answer")), true))
}

/// The attempts at one query or transaction.
pub(crate) struct Attempts {
    began: Instant,
    conflicts: u32,
    losses: u32,
    others: u32,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { began: Instant::now(), conflicts: 0, losses: 0, others: 0 }
    }
}

impl Attempts {
    /// Waits for a SQLite file that could not be opened because another process creates it or changes its mode; false if
    /// that has taken too long, or the error is another one.
    pub(crate) async fn waits_for_file(&self, error: &StoreError) -> bool {
        let is_locked = error.kind() == StoreErrorKind::Busy;
        let waits = is_locked && self.began.elapsed() < LOCK_TIMEOUT;
        if waits {
            pause(20).await;
        }
        waits
    }

    /// Ends an attempt. Returns the result, or `None` if the query or transaction is to be run again.
    pub(crate) async fn finish<T>(
        &mut self,
        pooled: PooledConnection<'_>,
        attempted: Attempted<T>,
    ) -> Option<Result<T, StoreError>> {
        let (done, may_be_committed) = attempted;
        match done {
            Ok(done) => {
                pooled.give_back();
                Some(Ok(done))
            }
            Err(error) => {
                let error = pooled.store_error(&error);
                self.failed(pooled, error, may_be_committed).await.map(Err)
            }
        }
    }

    /// Gives the connection back, or closes what cannot be used any more. Returns the error, or `None` if the query or
    /// transaction is to be run again.
    async fn failed(
        &mut self,
        mut pooled: PooledConnection<'_>,
        error: StoreError,
        may_be_committed: bool,
    ) -> Option<StoreError> {
        if pooled.connection().is_sqlite() {
            pooled.roll_back().await;
            let is_locked = error.kind() == StoreErrorKind::Busy && !may_be_committed;
            if is_locked && self.began.elapsed() < LOCK_TIMEOUT {
                pause(20).await;
                return None;
            }
            return Some(error);
        }
        // Whatever the code says, a lost connection cannot roll back.
        let kind = match error.kind() {
            known @ (StoreErrorKind::Unavailable
            | StoreErrorKind::Replica
            | StoreErrorKind::TooLarge) => known,
            _ if !pooled.can_roll_back().await => StoreErrorKind::Unavailable,
            known => known,
        };
        if may_be_committed && kind != StoreErrorKind::Busy {
            // A commit that fails for any other reason may have succeeded.
            pooled.close_all();
            return Some(error.with_kind(StoreErrorKind::Unavailable));
        }
        match kind {
            StoreErrorKind::Busy if self.conflicts < CONFLICT_RETRIES => {
                self.conflicts += 1;
                pooled.give_back();
                pause(10 * self.conflicts).await;
                None
            }
            StoreErrorKind::Unavailable | StoreErrorKind::Replica => {
                pooled.close_all();
                self.losses += 1;
                (self.losses > 1).then(|| error.with_kind(kind))
            }
            // On a new connection, in case this one is the reason.
            StoreErrorKind::Other if self.others < OTHER_RETRIES => {
                self.others += 1;
                drop(pooled);
                pause(20 * self.others).await;
                None
            }
            _ => {
                pooled.roll_back().await;
                Some(error)
            }
        }
    }
}

/// Waits for a random time of at most this many milliseconds.
async fn pause(most: u32) {
    let wait = rand::rng().random_range(0..=u64::from(most));
    tokio::time::sleep(Duration::from_millis(wait)).await;
}
