//! One connection to a database of any kind, and the macros for what differs between the engines.
//!
//! Every query of the store is written once, with one of these macros:
//! - a whole call: [`reading!`], [`writing!`], [`querying!`], [`transaction!`];
//! - in a transaction: [`with_conn!`] runs a query on whichever connection there is, [`independent!`] several at once;
//! - `SELECT`: [`load_locked!`], [`load_shared!`], [`load_skipping_locked!`];
//! - rows: [`insert_all!`], [`insert_new!`], [`insert_with_ids!`], [`replace_all!`], [`execute_each!`], [`delete_all!`].

#[cfg(test)]
mod durability_tests;
mod mysql;
pub(super) mod pool;
mod postgres;
mod probe;
mod sqlite;
pub(super) mod transaction;
mod url;
mod version;

use std::sync::Arc;
use std::time::Duration;

use diesel::backend::Backend;
use diesel::connection::SimpleConnection as _;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{ConnectionError, DatabaseErrorKind, Error};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use diesel::{QueryResult, QueryableByName};
use diesel_async::{AsyncMysqlConnection, SimpleAsyncConnection as _};

use super::tables::error::{StoreError, StoreErrorKind};
pub(super) use mysql::{by_index, foreign_client as mysql_client};
pub use pool::all_closed;
pub(super) use pool::{CONNECT_TIMEOUT, Location, Pool, PooledConnection, Purpose};
pub(super) use postgres::{
    PostgresSession, cancel as cancel_postgres, foreign_client as postgres_client,
};
pub use probe::Probe;
pub(super) use sqlite::{SqliteFile, execute_prepared, in_place, run_inline};
pub(super) use transaction::{Chunk, querying, reading, transaction, writing};
#[cfg(feature = "fuzz")]
pub use url::fuzz_server_url;
pub(super) use url::{ServerKind, ServerUrl, with_password};

/// The most rows of one statement.
pub(super) const ROWS: usize = 1_000;
/// The most rows that [`pieces`] leaves together below that.
const PIECE: usize = 128;
const STEP: usize = 16;

/// After this time without traffic the system asks whether the host of a server is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// One connection.
pub(super) enum Connection {
    Sqlite(Box<SqliteConnection>),
    /// Shared by the statements of [`independent!`].
    Postgres(Arc<PostgresSession>),
    Mysql(Box<AsyncMysqlConnection>),
}

/// What queries are written with: the prelude of diesel without `RunQueryDsl`, of which each engine has its own.
pub(super) mod prelude {
    pub(in crate::store) use diesel::prelude::{
        BoolExpressionMethods, CombineDsl, ExpressionMethods, Insertable, IntoSql, JoinOnDsl,
        NullableExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper,
    };
}

/// Runs a query on a connection to any engine. With `optional` it returns `None` where it finds no row.
macro_rules! with_conn {
    ($connection:expr, |$conn:ident| Prepared($query:expr).execute($same:ident)) => {{
        use $crate::store::connection::{Connection, Prepared, execute_prepared};
        match $connection {
            Connection::Sqlite(conn) => execute_prepared(&mut **conn, Prepared($query)),
            Connection::Postgres(conn) => {
                diesel_async::RunQueryDsl::execute(Prepared($query), &mut &***conn).await
            }
            Connection::Mysql(conn) => {
                diesel_async::RunQueryDsl::execute(Prepared($query), &mut **conn).await
            }
        }
    }};
    ($connection:expr, |$conn:ident| optional $query:expr) => {
        diesel::OptionalExtension::optional($crate::store::connection::with_conn!(
            $connection,
            |$conn| $query
        ))
    };
    ($connection:expr, |$conn:ident| $query:expr) => {{
        use $crate::store::connection::Connection;
        match $connection {
            Connection::Sqlite($conn) => {
                use diesel::RunQueryDsl as _;
                let $conn = &mut **$conn;
                $query
            }
            Connection::Postgres($conn) => {
                use diesel_async::RunQueryDsl as _;
                let $conn = &mut &***$conn;
                $query.await
            }
            Connection::Mysql($conn) => {
                use diesel_async::RunQueryDsl as _;
                let $conn = &mut **$conn;
                $query.await
            }
        }
    }};
}

/// Runs futures of statements that do not depend on each other, each with the connection under the given name. PostgreSQL
/// gets the statements of all futures without waiting for the answers of the others; other engines run one future after
/// the other.
macro_rules! independent {
    ($connection:expr, $(|$conn:ident| $future:expr),+ $(,)?) => {{
        use $crate::store::connection::Connection;
        match &mut *$connection {
            Connection::Postgres(shared) => tokio::try_join!(biased; $({
                let shared = std::sync::Arc::clone(shared);
                async move {
                    let $conn = &mut Connection::Postgres(shared);
                    $future.await
                }
            }),+),
            other => async {
                Ok(($({
                    let $conn = &mut *other;
                    $future.await?
                }),+))
            }
            .await,
        }
    }};
}

/// Loads rows and locks them until the transaction ends. SQLite's transactions hold the lock of the whole file.
/// With the word `prepared` the statement stays prepared although it has a list made by [`in_list`].
macro_rules! load_locked {
    ($connection:expr, prepared $query:expr) => {
        $crate::store::connection::load_locked!($connection, $query, |query| {
            $crate::store::connection::Prepared(query)
        })
    };
    ($connection:expr, $query:expr) => {
        $crate::store::connection::load_locked!($connection, $query, |query| query)
    };
    ($connection:expr, $query:expr, |$locked:ident| $changed:expr) => {{
        use $crate::store::connection::Connection;
        match $connection {
            Connection::Sqlite(conn) => {
                let $locked = $query;
                diesel::RunQueryDsl::load($changed, &mut **conn)
            }
            Connection::Postgres(conn) => {
                let $locked = $query.for_update();
                diesel_async::RunQueryDsl::load($changed, &mut &***conn).await
            }
            Connection::Mysql(conn) => {
                let $locked = $query.for_update();
                diesel_async::RunQueryDsl::load($changed, &mut **conn).await
            }
        }
    }};
}

/// Loads rows that no other transaction changes until this one ends. Only PostgreSQL has a lock that others can share.
macro_rules! load_shared {
    ($connection:expr, $query:expr) => {
        match $connection {
            $crate::store::connection::Connection::Postgres(conn) => {
                diesel_async::RunQueryDsl::load($query.for_share(), &mut &***conn).await
            }
            other => $crate::store::connection::load_locked!(other, $query),
        }
    };
}

/// Loads and locks rows, except those that another transaction has locked. The statement stays prepared.
///
/// With `by` MySQL and MariaDB use all columns of this index: otherwise they may start at its first entry that equals
/// the constants of the query, and read deleted entries. The values are those of the query's parameters.
macro_rules! load_skipping_locked {
    ($connection:expr, $query:expr, by $index:literal, $values:expr) => {
        match &mut *$connection {
            $crate::store::connection::Connection::Mysql(conn) => {
                let query = $query.for_update().skip_locked();
                let query = $crate::store::connection::by_index(&query, $index, $values)?;
                diesel_async::RunQueryDsl::load(query, &mut **conn).await
            }
            other => $crate::store::connection::load_skipping_locked!(other, $query),
        }
    };
    ($connection:expr, $query:expr) => {{
        use $crate::store::connection::{Connection, Prepared};
        match $connection {
            Connection::Sqlite(conn) => diesel::RunQueryDsl::load(Prepared($query), &mut **conn),
            Connection::Postgres(conn) => {
                let query = Prepared($query.for_update().skip_locked());
                diesel_async::RunQueryDsl::load(query, &mut &***conn).await
            }
            Connection::Mysql(conn) => {
                let query = Prepared($query.for_update().skip_locked());
                diesel_async::RunQueryDsl::load(query, &mut **conn).await
            }
        }
    }};
}

/// Inserts a slice of rows: in few prepared statements on servers, one by one on SQLite, where that is faster. The rows
/// must fit into one statement.
macro_rules! insert_all {
    ($connection:expr, $table:expr, $rows:expr) => {
        $crate::store::connection::insert!($connection, $table, $rows, insert_into, |insert| insert)
    };
}

/// Inserts rows into a table whose ids the database gives; returns the ids, in the order of the rows.
macro_rules! insert_with_ids {
    ($connection:expr, $table:ident, $rows:expr) => {{
        use $crate::store::connection::{Connection, insert_all, pieces};
        match &mut *$connection {
            Connection::Postgres(conn) => {
                let mut all: Vec<i64> = Vec::with_capacity($rows.len());
                async {
                    for rows in pieces(&$rows[..]) {
                        let insert = diesel::insert_into($table::table)
                            .values(rows)
                            .returning($table::id);
                        let ids = diesel_async::RunQueryDsl::get_results(insert, &mut &***conn);
                        let mut ids: Vec<i64> = ids.await?;
                        ids.sort_unstable();
                        all.extend(ids);
                    }
                    diesel::QueryResult::Ok(all)
                }
                .await
            }
            other => {
                async {
                    // The ids of one statement are in order, and so are those of a transaction on SQLite.
                    let mut all: Vec<i64> = Vec::with_capacity($rows.len());
                    for rows in pieces(&$rows[..]) {
                        insert_all!(other, $table::table, rows)?;
                        all.extend(other.inserted_ids(rows.len()).await?);
                    }
                    diesel::QueryResult::Ok(all)
                }
                .await
            }
        }
    }};
}

/// Inserts the rows whose key is not in the table yet; returns how many.
macro_rules! insert_new {
    ($connection:expr, $table:expr, $rows:expr) => {
        $crate::store::connection::insert!(
            $connection,
            $table,
            $rows,
            insert_or_ignore_into,
            |insert| insert.on_conflict_do_nothing()
        )
    };
}

/// Inserts rows in the place of those with the same key. `$changed` does so on PostgreSQL, which has no `REPLACE`.
macro_rules! replace_all {
    ($connection:expr, $table:expr, $rows:expr, |$insert:ident| $changed:expr) => {
        $crate::store::connection::insert!($connection, $table, $rows, replace_into, |$insert| {
            $changed
        })
    };
}

/// Inserts rows with `$insert_into` on SQLite and MySQL, and with a changed `INSERT` on PostgreSQL.
macro_rules! insert {
    ($connection:expr, $table:expr, $rows:expr, $insert_into:ident, |$insert:ident| $changed:expr) => {{
        use $crate::store::connection::Connection;
        match $connection {
            Connection::Sqlite(conn) => $rows.iter().try_fold(0, |count, row| {
                let insert = diesel::$insert_into($table).values(row);
                let inserted = diesel::RunQueryDsl::execute(insert, &mut **conn)?;
                diesel::QueryResult::Ok(count + inserted)
            }),
            Connection::Postgres(conn) => {
                let shared = &***conn;
                let inserts = $crate::store::connection::pieces(&$rows[..]).map(|rows| {
                    let $insert = diesel::insert_into($table).values(rows);
                    let insert = $crate::store::connection::Prepared($changed);
                    async move { diesel_async::RunQueryDsl::execute(insert, &mut { shared }).await }
                });
                let inserted: diesel::QueryResult<Vec<usize>> =
                    futures_util::future::try_join_all(inserts).await;
                inserted.map(|inserted| inserted.iter().sum())
            }
            Connection::Mysql(conn) => {
                let mut inserted = 0;
                async {
                    for rows in $crate::store::connection::pieces(&$rows[..]) {
                        let insert = diesel::$insert_into($table).values(rows);
                        let insert = $crate::store::connection::Prepared(insert);
                        inserted += diesel_async::RunQueryDsl::execute(insert, &mut **conn).await?;
                    }
                    diesel::QueryResult::Ok(inserted)
                }
                .await
            }
        }
    }};
}

/// Executes a prepared statement for each item. PostgreSQL gets all of them without waiting for answers.
macro_rules! execute_each {
    ($connection:expr, $items:expr, |$item:ident| $query:expr) => {{
        use $crate::store::connection::{Connection, Prepared, execute_prepared};
        match &mut *$connection {
            Connection::Sqlite(conn) => $items
                .iter()
                .try_for_each(|$item| execute_prepared(&mut **conn, Prepared($query)).map(drop)),
            Connection::Postgres(conn) => {
                let shared = &***conn;
                let all = $items.iter().map(|$item| {
                    let query = Prepared($query);
                    async move { diesel_async::RunQueryDsl::execute(query, &mut { shared }).await }
                });
                let all: diesel::QueryResult<Vec<usize>> =
                    futures_util::future::try_join_all(all).await;
                all.map(drop)
            }
            Connection::Mysql(conn) => {
                async {
                    for $item in $items.iter() {
                        let query = Prepared($query);
                        diesel_async::RunQueryDsl::execute(query, &mut **conn).await?;
                    }
                    diesel::QueryResult::Ok(())
                }
                .await
            }
        }
    }};
}

/// Deletes the rows with these ids, all of which this transaction has locked.
macro_rules! delete_all {
    ($connection:expr, $table:ident, $ids:expr) => {{
        use $crate::store::connection::{all_removed, in_list, with_conn};
        let ids: &[i64] = $ids;
        let list = in_list(ids.iter().copied());
        let deleted = with_conn!($connection, |conn| Prepared(diesel::delete(
            $table::table.filter($table::id.eq_any(&list))
        ))
        .execute(conn));
        deleted.and_then(|deleted| all_removed(deleted, ids.len()))
    }};
}

pub(super) use {
    delete_all, execute_each, independent, insert, insert_all, insert_new, insert_with_ids,
    load_locked, load_shared, load_skipping_locked, replace_all, with_conn,
};

/// Why a host cannot be used.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    pub(super) kind: StoreErrorKind,
    pub(super) reason: String,
}

impl ConnectError {
    fn new(kind: StoreErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    fn replica() -> Self {
        Self::new(StoreErrorKind::Replica, "is a replica: it cannot be written")
    }

    pub(super) fn no_answer() -> Self {
        Self::new(StoreErrorKind::Unavailable, "does not answer")
    }
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self::new(StoreErrorKind::Unavailable, error.to_string())
    }
}

impl From<ConnectionError> for ConnectError {
    fn from(error: ConnectionError) -> Self {
        Self::new(StoreErrorKind::Unavailable, error.to_string())
    }
}

/// The value of an expression that is a whole number.
#[derive(QueryableByName)]
pub(super) struct Number {
    #[diesel(sql_type = BigInt)]
    pub(super) value: i64,
}

/// The value of an expression that is a text.
#[derive(QueryableByName)]
struct TextValue {
    #[diesel(sql_type = Text)]
    value: String,
}

impl Connection {
    /// Executes statements without parameters.
    pub(super) async fn run(&mut self, sql: &str) -> QueryResult<()> {
        match self {
            Self::Sqlite(conn) => conn.batch_execute(sql),
            Self::Postgres(conn) => (&***conn).batch_execute(sql).await,
            Self::Mysql(conn) => conn.batch_execute(sql).await,
        }
    }

    /// The value of an expression that is a whole number.
    pub(super) async fn number(&mut self, expression: &str) -> QueryResult<i64> {
        let sql = format!("SELECT {expression} AS value");
        let row: Number = with_conn!(self, |conn| diesel::sql_query(sql).get_result(conn))?;
        Ok(row.value)
    }

    /// The id of the last insert on this connection.
    pub(super) async fn last_id(&mut self) -> QueryResult<i64> {
        let expression = match self {
            Self::Sqlite(_) => "last_insert_rowid()",
            Self::Postgres(_) => "lastval()",
            Self::Mysql(_) => "CAST(last_insert_id() AS SIGNED)",
        };
        self.number(expression).await
    }

    /// The ids of the rows that the last insert on this connection added: in one statement, or on SQLite in one
    /// transaction.
    pub(super) async fn inserted_ids(&mut self, rows: usize) -> QueryResult<Vec<i64>> {
        let last = self.last_id().await?;
        let step = match self {
            Self::Mysql(_) => self.number("CAST(@@auto_increment_increment AS SIGNED)").await?,
            Self::Sqlite(_) | Self::Postgres(_) => 1,
        };
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let first = match self {
            // The first id of the statement.
            Self::Mysql(_) => last,
            Self::Sqlite(_) | Self::Postgres(_) => last - rows + 1,
        };
        Ok((0..rows).map(|index| first + index * step).collect())
    }

    /// Gives SQLite more memory for inserts in random order of their keys.
    pub(super) async fn prepare_import(&mut self) -> QueryResult<()> {
        match self {
            Self::Sqlite(_) => self.run(sqlite::IMPORTING).await,
            Self::Postgres(_) | Self::Mysql(_) => Ok(()),
        }
    }

    /// The names of the columns by which unknown messages are indexed, for conditions together with `state = 2`: reference and
    /// when they were claimed. MySQL has no indexes of a part of a table, so it has columns for them.
    pub(super) fn unknown_columns(&self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => ("reference", "claimed_at"),
            Self::Mysql(_) => ("unknown_reference", "unknown_claimed_at"),
        }
    }

    /// The condition of the index of references, for a condition on `reference` in `sms_sent`: another program wrote it.
    pub(super) fn other_reference(&self) -> &'static str {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => "substr(reference, 17) <> CAST(id AS TEXT)",
            Self::Mysql(_) => "TRUE",
        }
    }

    /// A statement that updates rows by their ids from a list of JSON objects, its parameter. `set` assigns their
    /// members, columns of `v`; `members` are their names and types.
    pub(super) fn update_from_json(
        &self,
        table: &str,
        set: &str,
        members: &[(&str, &str)],
    ) -> String {
        let list = |member: fn(&str, &str) -> String| {
            let members = members.iter().map(|(name, kind)| member(name, kind));
            members.collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Sqlite(_) => {
                let members = list(|name, _| format!("value ->> '{name}' AS {name}"));
                let values = format!("(SELECT {members} FROM json_each(?)) AS v");
                format!("UPDATE {table} SET {set} FROM {values} WHERE {table}.id = v.id")
            }
            Self::Postgres(_) => {
                let members = list(|name, kind| format!("{name} {kind}"));
                let values = format!("jsonb_to_recordset(CAST($1 AS jsonb)) AS v({members})");
                format!("UPDATE {table} SET {set} FROM {values} WHERE {table}.id = v.id")
            }
            Self::Mysql(_) => {
                let members = list(|name, kind| format!("{name} {kind} PATH '$.{name}'"));
                let values = format!("JSON_TABLE(?, '$[*]' COLUMNS ({members})) AS v");
                format!("UPDATE {table} JOIN {values} ON {table}.id = v.id SET {set}")
            }
        }
    }

    /// A table `queue` of the ids of the campaigns that table `sms` has, without reading each of its rows.
    pub(super) fn campaigns_in_queue(&self) -> &'static str {
        match self {
            // From each id to the next one in the index.
            Self::Sqlite(_) | Self::Postgres(_) => {
                "(WITH RECURSIVE next (campaign_id) AS (\
                 SELECT (SELECT sms.campaign_id FROM sms ORDER BY sms.campaign_id LIMIT 1) \
                 UNION ALL \
                 SELECT (SELECT sms.campaign_id FROM sms WHERE sms.campaign_id > next.campaign_id \
                 ORDER BY sms.campaign_id LIMIT 1) FROM next WHERE next.campaign_id IS NOT NULL) \
                 SELECT campaign_id FROM next WHERE campaign_id IS NOT NULL) AS queue"
            }
            // A range of the index cannot depend on another row, and a grouped query reads the whole index where there
            // are no statistics. This reads the first message of each campaign.
            Self::Mysql(_) => {
                "(SELECT STRAIGHT_JOIN DISTINCT campaign.id AS campaign_id FROM campaign \
                 JOIN sms ON sms.campaign_id = campaign.id) AS queue"
            }
        }
    }

    /// A number as an integer of 32 bits.
    pub(super) fn integer(&self, expression: &str) -> String {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => format!("CAST({expression} AS INTEGER)"),
            // MySQL has no such type here, and reads a wider one.
            Self::Mysql(_) => format!("CAST({expression} AS SIGNED)"),
        }
    }

    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    fn begin(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => sqlite::BEGIN,
            Self::Postgres(conn) => conn.begin(),
            Self::Mysql(_) => mysql::BEGIN,
        }
    }

    /// The error of a statement on this connection, as callers see it.
    fn store_error(&self, database: &str, error: &Error) -> StoreError {
        if let Error::RollbackTransaction = error {
            // Only the count of commits fails so.
            let reason = "lost commits";
            return StoreError::new(database, StoreErrorKind::LostCommits, reason);
        }
        let kind = match self {
            Self::Sqlite(_) => return sqlite::store_error(database, error),
            Self::Postgres(_) => server_error_kind(error, &postgres::ERRORS),
            Self::Mysql(_) => server_error_kind(error, &mysql::ERRORS),
        };
        StoreError::new(database, kind, message(error))
    }
}

/// A query that stays prepared on its connection, although diesel would prepare it each time: an `UPDATE`, a
/// `UNION`, or a query with a list made by [`in_list`].
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

impl<Q, C> diesel::RunQueryDsl<C> for Prepared<Q> {}

impl<Q: Query> Query for Prepared<Q> {
    type SqlType = Q::SqlType;
}

/// The values with the last one repeated up to a power of two, so that few different statements are prepared.
pub(super) fn in_list<T: Clone>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    if let Some(last) = values.last().cloned() {
        values.resize(values.len().next_power_of_two(), last);
    }
    values
}

/// Rows in pieces of few different sizes, so that few different statements are prepared: of [`ROWS`], else of at most
/// [`PIECE`], in steps of [`STEP`] from there on.
pub(super) fn pieces<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = match rows.len() {
            0 => return None,
            left if left >= ROWS => ROWS,
            left if left >= STEP => left.min(PIECE) / STEP * STEP,
            left => left,
        };
        rows.split_off(..size)
    })
}

/// The error of a conflict with another transaction, after which this one is repeated.
pub(super) fn conflict(why: &str) -> Error {
    Error::DatabaseError(DatabaseErrorKind::SerializationFailure, Box::new(why.to_owned()))
}

/// Returns an error if a statement removed fewer rows than this transaction has locked: MariaDB reports success if a
/// `DELETE` is killed or reaches its time limit before its first row.
pub(super) fn all_removed(removed: usize, locked: usize) -> Result<(), Error> {
    if removed == locked { Ok(()) } else { Err(conflict("rows were not removed")) }
}

/// Kinds of errors, each with words of their messages in lower case.
type KnownErrors<const COUNT: usize> = [(StoreErrorKind, &'static [&'static str]); COUNT];

/// The kind of a server's error. Diesel keeps the codes of a few errors only. Messages only save a retry, because
/// PostgreSQL's may be in any language.
fn server_error_kind(error: &Error, known: &[(StoreErrorKind, &[&str])]) -> StoreErrorKind {
    let Error::DatabaseError(kind, information) = error else {
        return StoreErrorKind::Other;
    };
    match kind {
        DatabaseErrorKind::SerializationFailure => StoreErrorKind::Busy,
        DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
            StoreErrorKind::Unavailable
        }
        DatabaseErrorKind::ReadOnlyTransaction => StoreErrorKind::Replica,
        DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::CheckViolation => StoreErrorKind::Constraint,
        _ => {
            let message = information.message().to_lowercase();
            let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
            let found = known.iter().find(|(_, words)| has(words));
            found.map_or(StoreErrorKind::Other, |(kind, _)| *kind)
        }
    }
}

fn lost(why: &str) -> Error {
    Error::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(why.to_owned()))
}

pub(super) fn message(error: &Error) -> String {
    match error {
        Error::DatabaseError(_, information) => information.message().to_owned(),
        other => other.to_string(),
    }
}
