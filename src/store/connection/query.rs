//! Runs queries: on the connection of a transaction with [`Run`], and alone with the functions of the [`Store`].

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use diesel::deserialize::FromSqlRow;
use diesel::insertable::CanInsertInSingleQuery;
use diesel::query_builder::{AsQuery, AstPass, InsertStatement, Query, QueryFragment, QueryId};
use diesel::query_dsl::CompatibleType;
use diesel::query_dsl::methods::LimitDsl;
use diesel::result::Error;
use diesel::sql_types::BigInt;
use diesel::{Insertable, Table, insert_into};
use futures_util::FutureExt as _;

use super::backend::SqlBuilder;
use super::dialect::{AnyEngine, Dialect};
use super::error::{DatabaseError, QueryResult};
use super::statement::{Statement, binds_of};
use super::transaction::{run_query, with_retries};
use super::values::AnyRow;
use super::{Connection, all_removed, in_list, pieces};
use crate::Store;
use crate::error::StoreError;

/// A statement until its answer comes. On SQLite it has run already.
pub(crate) type Pending<'c, T, E = DatabaseError> =
    Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>;

/// The SQL types of the rows of a query that are read as `U`.
type RowsAs<Q, U> = <<Q as AsQuery>::SqlType as CompatibleType<U, AnyEngine>>::SqlType;

/// Adds a row to those that were read.
pub(super) type TakeRow<T> = fn(&mut T, AnyRow<'_>) -> QueryResult<()>;

fn take_row<U, ST>(taken: &mut Vec<U>, row: AnyRow<'_>) -> QueryResult<()>
where
    U: FromSqlRow<ST, AnyEngine>,
{
    taken.push(U::build_from_row(&row).map_err(Error::DeserializationError)?);
    Ok(())
}

/// A row that is read at most once; an error where none is found.
pub(crate) struct FirstRow<'c, U, E = DatabaseError> {
    rows: Pending<'c, Vec<U>, E>,
    missing: E,
}

impl<'c, U: Send + 'c, E: Send + 'c> FirstRow<'c, U, E> {
    /// `None` where no row is found.
    pub(crate) async fn optional(self) -> Result<Option<U>, E> {
        Ok(self.rows.await?.into_iter().next())
    }
}

impl<'c, U: Send + 'c, E: Send + 'c> IntoFuture for FirstRow<'c, U, E> {
    type Output = Result<U, E>;
    type IntoFuture = Pending<'c, U, E>;

    fn into_future(self) -> Self::IntoFuture {
        let missing = self.missing;
        Box::pin(self.rows.map(|rows| rows?.into_iter().next().ok_or(missing)))
    }
}

/// Runs a query on a connection, and changes how it is run.
pub(crate) trait Run: QueryId + Sized {
    /// Loads the rows.
    fn load<'c, U>(self, connection: &'c mut Connection) -> Pending<'c, Vec<U>>
    where
        Self: AsQuery,
        Self::Query: QueryFragment<AnyEngine>,
        Self::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Self, U>, AnyEngine> + Send + 'c,
    {
        let query = self.as_query();
        match Statement::of(connection.dialect(), &query) {
            Ok(statement) => connection.rows(statement, take_row::<U, RowsAs<Self, U>>),
            Err(error) => failed(error),
        }
    }

    /// Loads the only row.
    fn get_result<'c, U>(self, connection: &'c mut Connection) -> FirstRow<'c, U>
    where
        Self: AsQuery,
        Self::Query: QueryFragment<AnyEngine>,
        Self::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Self, U>, AnyEngine> + Send + 'c,
    {
        let query = self.as_query();
        let rows = match Statement::of(connection.dialect(), &query) {
            Ok(statement) => {
                let statement = Statement { is_single: true, ..statement };
                connection.rows(statement, take_row::<U, RowsAs<Self, U>>)
            }
            Err(error) => failed(error),
        };
        FirstRow { rows, missing: DatabaseError::NotFound }
    }

    /// Loads the first row.
    fn first<'c, U>(self, connection: &'c mut Connection) -> FirstRow<'c, U>
    where
        Self: LimitDsl,
        Self::Output: AsQuery + QueryId,
        <Self::Output as AsQuery>::Query: QueryFragment<AnyEngine>,
        <Self::Output as AsQuery>::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Self::Output, U>, AnyEngine> + Send + 'c,
    {
        LimitDsl::limit(self, 1).get_result(connection)
    }

    /// Executes a statement; returns how many rows it changed.
    fn execute(self, connection: &mut Connection) -> Pending<'_, usize>
    where
        Self: QueryFragment<AnyEngine>,
    {
        match Statement::of(connection.dialect(), &self) {
            Ok(statement) => connection.changes(statement),
            Err(error) => failed(error),
        }
    }

    /// Keeps the statement prepared although its SQL depends on a list, whose lengths are few: see [`super::in_list`].
    fn kept(self) -> With<Self> {
        With { is_kept: true, ..With::new(self) }
    }

    /// Locks the rows until the transaction ends. SQLite's transactions hold the lock of the whole file.
    fn locked(self) -> With<Self> {
        With { lock: Lock::Update, ..With::new(self) }
    }

    /// No other transaction changes the rows until this one ends. Only PostgreSQL has a lock that others can share.
    fn locked_shared(self) -> With<Self> {
        With { lock: Lock::Share, ..With::new(self) }
    }

    /// Locks the rows, except those that another transaction has locked, which are left out. The statement stays prepared.
    fn skipping_locked(self) -> With<Self> {
        With { lock: Lock::SkipLocked, is_kept: true, ..With::new(self) }
    }
}

impl<Q: QueryId> Run for Q {}

fn failed<'c, T: Send + 'c, E: Send + 'c>(error: E) -> Pending<'c, T, E> {
    Box::pin(std::future::ready(Err(error)))
}

/// How the rows of a query are locked.
#[derive(Clone, Copy)]
enum Lock {
    None,
    Update,
    Share,
    SkipLocked,
}

/// A query with what diesel does not know of how it is run.
pub(crate) struct With<Q> {
    query: Q,
    lock: Lock,
    is_kept: bool,
    index: Option<&'static str>,
}

impl<Q> With<Q> {
    fn new(query: Q) -> Self {
        Self { query, lock: Lock::None, is_kept: false, index: None }
    }

    /// MySQL and MariaDB use all columns of this index of the query's only table: otherwise they may start at its first
    /// entry that equals the constants of the query, and read deleted entries.
    pub(crate) fn by_index(self, index: &'static str) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl<Q: QueryFragment<AnyEngine>> QueryFragment<AnyEngine> for With<Q> {
    fn to_sql(&self, builder: &mut SqlBuilder, backend: &AnyEngine) -> diesel::QueryResult<()> {
        self.query.to_sql(builder, backend)?;
        let sql = builder.sql_mut();
        sql.push_str(match (backend.0, self.lock) {
            (Dialect::Sqlite, _) | (_, Lock::None) => "",
            (Dialect::Postgres, Lock::Share) => " FOR SHARE",
            (_, Lock::Update | Lock::Share) => " FOR UPDATE",
            (_, Lock::SkipLocked) => " FOR UPDATE SKIP LOCKED",
        });
        if let (Dialect::Mysql, Some(index)) = (backend.0, self.index) {
            *sql = sql.replacen(" WHERE ", &format!(" FORCE INDEX (`{index}`) WHERE "), 1);
        }
        Ok(())
    }

    fn is_safe_to_cache_prepared(&self, backend: &AnyEngine) -> diesel::QueryResult<bool> {
        Ok(self.is_kept || self.query.is_safe_to_cache_prepared(backend)?)
    }

    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, AnyEngine>) -> diesel::QueryResult<()> {
        self.query.walk_ast(pass)
    }
}

impl<Q> QueryId for With<Q> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: Query> Query for With<Q> {
    type SqlType = Q::SqlType;
}

/// Rows for a table. They must fit into one statement.
pub(crate) struct NewRows<'r, T, R> {
    table: T,
    rows: &'r [R],
}

impl<T: Copy, R> Copy for NewRows<'_, T, R> {}

impl<T: Copy, R> Clone for NewRows<'_, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'r, T, R> NewRows<'r, T, R> {
    // Without the bounds of the statements, which the compiler can only check when it knows both types.
    pub(crate) fn of(table: T, rows: &'r [R]) -> Self {
        Self { table, rows }
    }
}

/// What is done with a row whose key the table has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is an error.
    Refused,
    /// The row is left out.
    Ignored,
    /// The new row takes its place.
    Replaced,
    /// It is an error. PostgreSQL returns the ids of the rows.
    RefusedWithIds,
}

/// The first word of an `INSERT`.
struct Insert(Existing);

/// What follows the values of an `INSERT`.
struct AfterValues(Existing);

impl QueryFragment<AnyEngine> for Insert {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> diesel::QueryResult<()> {
        let sql = match (self.0, pass.backend().0) {
            (Existing::Ignored, Dialect::Sqlite) => "INSERT OR IGNORE",
            (Existing::Ignored, Dialect::Mysql) => "INSERT IGNORE",
            (Existing::Replaced, _) => "REPLACE",
            _ => "INSERT",
        };
        pass.push_sql(sql);
        Ok(())
    }
}

impl QueryFragment<AnyEngine> for AfterValues {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> diesel::QueryResult<()> {
        match (self.0, pass.backend().0) {
            (Existing::Ignored, Dialect::Postgres) => pass.push_sql(" ON CONFLICT DO NOTHING"),
            (Existing::RefusedWithIds, Dialect::Postgres) => pass.push_sql(" RETURNING \"id\""),
            _ => {}
        }
        Ok(())
    }
}

/// What replaces rows with the same key: `REPLACE`, which PostgreSQL does not have.
struct ReplaceOrUpsert<R, U> {
    replace: R,
    /// On PostgreSQL.
    upsert: U,
}

impl<R, U> QueryFragment<AnyEngine> for ReplaceOrUpsert<R, U>
where
    R: QueryFragment<AnyEngine>,
    U: QueryFragment<AnyEngine>,
{
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, AnyEngine>) -> diesel::QueryResult<()> {
        match pass.backend().0 {
            Dialect::Sqlite | Dialect::Mysql => self.replace.walk_ast(pass),
            Dialect::Postgres => self.upsert.walk_ast(pass),
        }
    }
}

impl<'r, T, R> NewRows<'r, T, R>
where
    T: Table + Copy,
    T::FromClause: QueryFragment<AnyEngine>,
    &'r [R]: Insertable<T>,
    <&'r [R] as Insertable<T>>::Values:
        QueryFragment<AnyEngine> + CanInsertInSingleQuery<AnyEngine>,
{
    /// Inserts the rows; returns how many.
    pub(crate) fn insert(self, connection: &mut Connection) -> Pending<'_, usize> {
        self.run(connection, |rows| self.insert_as(Existing::Refused, rows))
    }

    /// Inserts the rows whose key is not in the table yet; returns how many.
    pub(crate) fn insert_new(self, connection: &mut Connection) -> Pending<'_, usize> {
        self.run(connection, |rows| self.insert_as(Existing::Ignored, rows))
    }

    /// Inserts the rows in the place of those with the same key. `upsert` does so on PostgreSQL.
    pub(crate) fn replace<'c, Q>(
        self,
        connection: &'c mut Connection,
        upsert: impl Fn(InsertStatement<T, <&'r [R] as Insertable<T>>::Values>) -> Q,
    ) -> Pending<'c, usize>
    where
        Q: QueryFragment<AnyEngine>,
    {
        self.run(connection, |rows| ReplaceOrUpsert {
            replace: self.insert_as(Existing::Replaced, rows),
            upsert: upsert(insert_into(self.table).values(rows)),
        })
    }

    /// Inserts the rows into a table whose ids the database gives; returns the ids, in the order of the rows.
    pub(crate) async fn insert_with_ids(
        self,
        connection: &mut Connection,
    ) -> QueryResult<Vec<i64>> {
        let insert = |rows| self.insert_as(Existing::RefusedWithIds, rows);
        let mut all: Vec<i64> = Vec::with_capacity(self.rows.len());
        for rows in pieces(self.rows) {
            if connection.dialect() == Dialect::Postgres {
                let ids = {
                    let insert = insert(rows);
                    let statement = Statement::kept(Dialect::Postgres, &insert)?;
                    connection.rows(statement, take_row::<i64, BigInt>)
                };
                let mut ids = ids.await?;
                ids.sort_unstable();
                all.extend(ids);
            } else {
                // The ids of one statement are in order, and so are those of a transaction on SQLite.
                NewRows::of(self.table, rows).run(connection, insert).await?;
                all.extend(connection.inserted_ids(rows.len()).await?);
            }
        }
        Ok(all)
    }

    fn insert_as(
        &self,
        existing: Existing,
        rows: &'r [R],
    ) -> InsertStatement<T, <&'r [R] as Insertable<T>>::Values, Insert, AfterValues> {
        InsertStatement::new(self.table, rows.values(), Insert(existing), AfterValues(existing))
    }

    /// Executes inserts of the rows: in few kept statements on servers, one by one on SQLite, where that is faster.
    fn run<Q: QueryFragment<AnyEngine>>(
        self,
        connection: &mut Connection,
        insert: impl Fn(&'r [R]) -> Q,
    ) -> Pending<'_, usize> {
        let dialect = connection.dialect();
        if dialect == Dialect::Sqlite && self.rows.len() > 1 {
            let (one, all) = (insert(&self.rows[..1]), insert(self.rows));
            let statements = Statement::kept(dialect, &one)
                .and_then(|one| Ok((one.sql, binds_of(dialect, &all)?)));
            return match statements {
                Ok((sql, values)) => connection.changes_each(&sql, &values, self.rows.len()),
                Err(error) => failed(error),
            };
        }
        execute_each(connection, pieces(self.rows).map(insert))
    }
}

/// Executes a statement for each query, all of which stay prepared; returns how many rows they changed. PostgreSQL gets
/// all of them without waiting for answers.
pub(crate) fn execute_each<Q: QueryFragment<AnyEngine>>(
    connection: &mut Connection,
    queries: impl Iterator<Item = Q>,
) -> Pending<'_, usize> {
    let dialect = connection.dialect();
    let statements: QueryResult<Vec<_>> =
        queries.map(|query| Ok(Statement::kept(dialect, &query)?.into_owned())).collect();
    match statements {
        Ok(statements) => connection.changes_all(statements),
        Err(error) => failed(error),
    }
}

/// Deletes rows by their ids with `query`; this transaction has locked all of them.
pub(crate) async fn delete_all<Q: QueryFragment<AnyEngine> + QueryId>(
    connection: &mut Connection,
    ids: &[i64],
    query: impl FnOnce(Vec<i64>) -> Q,
) -> QueryResult<()> {
    let deleted = query(in_list(ids.iter().copied())).kept().execute(connection);
    all_removed(deleted.await?, ids.len())
}

impl Store {
    /// Loads the rows of a query that only reads.
    pub(crate) fn read<'c, Q, U>(&'c self, query: Q) -> Pending<'c, Vec<U>, StoreError>
    where
        Q: AsQuery,
        Q::Query: QueryFragment<AnyEngine>,
        Q::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Q, U>, AnyEngine> + Send + 'c,
    {
        let query = query.as_query();
        self.read_statement(Statement::of(self.dialect(), &query), take_row::<U, RowsAs<Q, U>>)
    }

    /// Loads the only row of a query that only reads.
    pub(crate) fn read_one<'c, Q, U>(&'c self, query: Q) -> FirstRow<'c, U, StoreError>
    where
        Q: AsQuery,
        Q::Query: QueryFragment<AnyEngine>,
        Q::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Q, U>, AnyEngine> + Send + 'c,
    {
        let query = query.as_query();
        let statement = Statement::of(self.dialect(), &query);
        let statement = statement.map(|statement| Statement { is_single: true, ..statement });
        let missing = DatabaseError::NotFound.of(self.location());
        FirstRow { rows: self.read_statement(statement, take_row::<U, RowsAs<Q, U>>), missing }
    }

    /// Loads the first row of a query that only reads.
    pub(crate) fn read_first<'c, Q, U>(&'c self, query: Q) -> FirstRow<'c, U, StoreError>
    where
        Q: LimitDsl,
        Q::Output: AsQuery,
        <Q::Output as AsQuery>::Query: QueryFragment<AnyEngine>,
        <Q::Output as AsQuery>::SqlType: CompatibleType<U, AnyEngine>,
        U: FromSqlRow<RowsAs<Q::Output, U>, AnyEngine> + Send + 'c,
    {
        self.read_one(LimitDsl::limit(query, 1))
    }

    fn read_statement<'c, T: Default + Send + 'c>(
        &'c self,
        statement: QueryResult<Statement<'_>>,
        take: TakeRow<T>,
    ) -> Pending<'c, T, StoreError> {
        let statement = match statement {
            Ok(statement) => statement.into_owned(),
            Err(error) => return failed(error.of(self.location())),
        };
        Box::pin(async move {
            with_retries!(self, Read, |connection| {
                run_query(connection.is_sqlite(), async {
                    connection.rows(statement.clone(), take).await
                })
                .await
            })
        })
    }

    /// Executes one statement that writes; returns how many rows it changed.
    pub(crate) fn write<Q>(&self, query: Q) -> Pending<'_, usize, StoreError>
    where
        Q: QueryFragment<AnyEngine>,
    {
        let statement = match Statement::of(self.dialect(), &query) {
            Ok(statement) => statement.into_owned(),
            Err(error) => return failed(error.of(self.location())),
        };
        Box::pin(async move {
            with_retries!(self, Write, |connection| {
                run_query(connection.is_sqlite(), async {
                    connection.changes(statement.clone()).await
                })
                .await
            })
        })
    }
}
