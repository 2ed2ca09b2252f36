//! One connection to a database of any kind, and the macros for what differs between the engines.
//!
//! Every query of the store is written once. [`with_conn!`] runs it on whichever connection there is.

mod mysql;
mod pool;
mod postgres;
mod probe;
mod sqlite;
mod transaction;
mod url;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{BigInt, Text};
use diesel::{QueryResult, QueryableByName};
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::Fault;
use sqlite::InlineSqlite;

pub(super) use pool::{Lane, Location, Pool, PooledConnection};
pub use probe::{Probe, SkipLocked};
pub(super) use sqlite::{SqliteFile, run_inline};
pub(super) use transaction::{Attempts, attempt, reading, run_query, transaction, writing};
pub(super) use url::{ServerKind, ServerUrl, with_password};

/// The most rows of one statement.
pub(super) const ROWS: usize = 1_000;

/// One connection.
pub(super) enum Connection {
    Sqlite(Box<InlineSqlite>),
    Postgres(Box<AsyncPgConnection>),
    Mysql(Box<AsyncMysqlConnection>),
}

/// Runs a query, whichever engine it is for.
macro_rules! with_conn {
    ($connection:expr, |$conn:ident| $query:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite($conn) => {
                let $conn = &mut **$conn;
                $query.await
            }
            $crate::store::connection::Connection::Postgres($conn) => {
                let $conn = &mut **$conn;
                $query.await
            }
            $crate::store::connection::Connection::Mysql($conn) => {
                let $conn = &mut **$conn;
                $query.await
            }
        }
    };
}

/// Loads rows and locks them until the transaction ends. SQLite's transactions hold the lock of the whole file.
/// With the word `prepared` the statement stays prepared although it has a list made by [`in_list`].
macro_rules! load_locked {
    ($connection:expr, prepared $query:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite(conn) => {
                $crate::store::connection::Prepared($query)
                    .load(&mut **conn)
                    .await
            }
            $crate::store::connection::Connection::Postgres(conn) => {
                $crate::store::connection::Prepared($query.for_update())
                    .load(&mut **conn)
                    .await
            }
            $crate::store::connection::Connection::Mysql(conn) => {
                $crate::store::connection::Prepared($query.for_update())
                    .load(&mut **conn)
                    .await
            }
        }
    };
    ($connection:expr, $query:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite(conn) => $query.load(&mut **conn).await,
            $crate::store::connection::Connection::Postgres(conn) => {
                $query.for_update().load(&mut **conn).await
            }
            $crate::store::connection::Connection::Mysql(conn) => {
                $query.for_update().load(&mut **conn).await
            }
        }
    };
}

/// Loads and locks rows, without those that another transaction has locked.
macro_rules! load_skipping_locked {
    ($connection:expr, $query:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite(conn) => $query.load(&mut **conn).await,
            $crate::store::connection::Connection::Postgres(conn) => {
                $query.for_update().skip_locked().load(&mut **conn).await
            }
            $crate::store::connection::Connection::Mysql(conn) => {
                $query.for_update().skip_locked().load(&mut **conn).await
            }
        }
    };
}

/// Inserts a slice of rows: in one statement on servers, one by one on SQLite, where a prepared statement is
/// faster. The rows must fit into one statement.
macro_rules! insert_all {
    ($connection:expr, $table:expr, $rows:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite(conn) => {
                $crate::store::connection::one_by_one!($rows, |row| diesel::insert_into($table)
                    .values(row)
                    .execute(&mut **conn))
            }
            $crate::store::connection::Connection::Postgres(conn) => {
                let insert = diesel::insert_into($table).values(&$rows[..]);
                insert.execute(&mut **conn).await
            }
            $crate::store::connection::Connection::Mysql(conn) => {
                let insert = diesel::insert_into($table).values(&$rows[..]);
                insert.execute(&mut **conn).await
            }
        }
    };
}

/// Inserts those of the rows whose key is not taken; returns how many.
macro_rules! insert_new {
    ($connection:expr, $table:expr, $rows:expr) => {
        match $connection {
            $crate::store::connection::Connection::Sqlite(conn) => {
                $crate::store::connection::one_by_one!($rows, |row| {
                    diesel::insert_or_ignore_into($table)
                        .values(row)
                        .execute(&mut **conn)
                })
            }
            $crate::store::connection::Connection::Postgres(conn) => {
                let insert = diesel::insert_into($table).values(&$rows[..]);
                insert.on_conflict_do_nothing().execute(&mut **conn).await
            }
            $crate::store::connection::Connection::Mysql(conn) => {
                let insert = diesel::insert_or_ignore_into($table).values(&$rows[..]);
                insert.execute(&mut **conn).await
            }
        }
    };
}

/// Executes a statement for each row; returns how many rows they changed.
macro_rules! one_by_one {
    ($rows:expr, |$row:ident| $insert:expr) => {
        async {
            let mut count = 0;
            for $row in $rows {
                count += $insert.await?;
            }
            diesel::QueryResult::Ok(count)
        }
        .await
    };
}

pub(super) use {insert_all, insert_new, load_locked, load_skipping_locked, one_by_one, with_conn};

/// The class of a database error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symptom {
    /// Another transaction was in the way: the same again may succeed.
    Conflict,
    /// The connection is lost, and so is the answer to its last statement.
    Lost,
    /// The server has become a replica.
    ReadOnly,
    Full,
    /// A constraint of a table forbids the row: the same again fails again.
    Refused,
    /// The statement was larger than the server takes.
    TooLarge,
    /// Any other error of the server: the same again may succeed.
    Other,
}

/// Why a host cannot be used.
#[derive(Clone, Debug)]
struct ConnectError {
    fault: Fault,
    reason: String,
}

impl ConnectError {
    fn new(fault: Fault, reason: impl Into<String>) -> Self {
        Self {
            fault,
            reason: reason.into(),
        }
    }

    fn away(error: &impl ToString) -> Self {
        Self::new(Fault::Away, error.to_string())
    }

    fn read_only() -> Self {
        Self::new(Fault::Replica, "is a replica: it cannot be written")
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Word {
    #[diesel(sql_type = Text)]
    value: String,
}

impl Connection {
    /// Executes statements without parameters.
    pub(super) async fn run(&mut self, sql: &str) -> QueryResult<()> {
        with_conn!(self, |conn| conn.batch_execute(sql))
    }

    /// The value of an expression that is a whole number.
    pub(super) async fn number(&mut self, expression: &str) -> QueryResult<i64> {
        let sql = format!("SELECT {expression} AS value");
        let row: Number = with_conn!(self, |conn| diesel::sql_query(sql).get_result(conn))?;
        Ok(row.value)
    }

    /// The value of an expression that is a text.
    async fn word(&mut self, expression: &str) -> QueryResult<String> {
        let sql = format!("SELECT {expression} AS value");
        let row: Word = with_conn!(self, |conn| diesel::sql_query(sql).get_result(conn))?;
        Ok(row.value)
    }

    /// The id that the last insert of this connection made.
    pub(super) async fn last_id(&mut self) -> QueryResult<i64> {
        let expression = match self {
            Self::Sqlite(_) => "last_insert_rowid()",
            Self::Postgres(_) => "lastval()",
            Self::Mysql(_) => "CAST(last_insert_id() AS SIGNED)",
        };
        self.number(expression).await
    }

    /// Gives SQLite the memory that inserts in random order of their keys need.
    pub(super) async fn prepare_import(&mut self) -> QueryResult<()> {
        match self {
            Self::Sqlite(_) => self.run(sqlite::IMPORTING).await,
            Self::Postgres(_) | Self::Mysql(_) => Ok(()),
        }
    }

    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    fn begin(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => sqlite::BEGIN,
            Self::Postgres(_) => postgres::BEGIN,
            Self::Mysql(_) => mysql::BEGIN,
        }
    }

    fn symptom(&self, error: &Error) -> Symptom {
        match self {
            Self::Sqlite(_) => Symptom::Other,
            Self::Postgres(_) => postgres::symptom(error),
            Self::Mysql(_) => mysql::symptom(error),
        }
    }
}

/// A query that stays prepared on its connection, where diesel prepares it anew each time: an `UPDATE`, or one
/// with an `IN` list made by [`in_list`].
pub(super) struct Prepared<Q>(pub(super) Q);

impl<DB: Backend, Q: QueryFragment<DB>> QueryFragment<DB> for Prepared<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _: &DB) -> QueryResult<bool> {
        Ok(true)
    }
}

impl<Q> QueryId for Prepared<Q> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Query> Query for Prepared<Q> {
    type SqlType = Q::SqlType;
}

/// The values with the last one repeated up to a power of two, so that few different statements are prepared.
pub(super) fn in_list<T: Clone>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    if let Some(last) = values.last().cloned() {
        values.resize(values.len().next_power_of_two(), last);
    }
    values
}

/// Another transaction was in the way of this one: it is done again from its start.
pub(super) fn conflict(why: &str) -> Error {
    Error::DatabaseError(
        DatabaseErrorKind::SerializationFailure,
        Box::new(why.to_owned()),
    )
}

/// Fails where a statement removed fewer rows than this transaction has locked: MariaDB reports success when a
/// `DELETE` is killed or reaches its time limit before its first row.
pub(super) fn all_removed(removed: usize, locked: usize) -> Result<(), Error> {
    if removed == locked {
        Ok(())
    } else {
        Err(conflict("rows were not removed"))
    }
}

fn lost(why: &str) -> Error {
    Error::DatabaseError(
        DatabaseErrorKind::UnableToSendCommand,
        Box::new(why.to_owned()),
    )
}

fn message(error: &Error) -> String {
    match error {
        Error::DatabaseError(_, information) => information.message().to_owned(),
        other => other.to_string(),
    }
}
