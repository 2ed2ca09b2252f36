//! One connection to a database of any kind. Every query of the store is written once, with diesel, and made into a
//! [`Statement`] in the dialect of the database; the drivers run statements, whatever their query was.
//!
//! - a query alone: [`Store::read`], [`Store::read_first`], [`Store::read_one`], [`Store::write`];
//! - several in one transaction: [`transaction!`], with the functions of [`Run`] on its connection;
//! - rows: [`NewRows`], [`execute_each`].
//!
//! [`Store::read`]: super::Store::read
//! [`Store::read_first`]: super::Store::read_first
//! [`Store::read_one`]: super::Store::read_one
//! [`Store::write`]: super::Store::write

mod backend;
mod dialect;
#[cfg(test)]
mod durability_tests;
mod error;
mod in_dialect;
mod mysql;
mod observer;
pub(super) mod pool;
mod postgres;
mod probe;
mod query;
mod snapshot;
mod sqlite;
mod statement;
pub(super) mod transaction;
mod url;
mod values;
mod version;

use std::sync::Arc;
use std::time::Duration;

use diesel::sql_types::{BigInt, Text};
use futures_util::future::try_join_all;

use super::error::StoreErrorKind;
pub(super) use dialect::{AnyEngine, Dialect};
pub(super) use error::{DatabaseError, QueryResult, sqlite_message};
pub(super) use in_dialect::{in_dialect, statement_in_dialect};
pub(super) use mysql::foreign_client as mysql_client;
use observer::MakeObserver;
pub use observer::{ObservedStatement, Observer};
pub use pool::all_closed;
pub(super) use pool::{CONNECT_TIMEOUT, Location, Pool};
use postgres::PostgresSession;
pub(super) use postgres::{cancel as cancel_postgres, foreign_client as postgres_client};
pub use probe::Probe;
use query::Pending;
use query::TakeRow;
pub(super) use query::{NewRows, Run, delete_all, execute_each};
pub use snapshot::{InDialects, record_statements, recorded_statements};
pub(super) use sqlite::{SqliteFile, in_place};
use statement::Statement;
pub(super) use transaction::{Chunk, querying, transaction};
#[cfg(feature = "fuzz")]
pub use url::fuzz_server_url;
pub(super) use url::{ServerKind, ServerUrl, with_password};
use values::Kind;
pub(super) use values::{Cell, Value};

/// The most rows of one statement.
pub(super) const ROWS: usize = 1_000;
/// The most rows that [`pieces`] leaves together below that.
const PIECE: usize = 128;
const STEP: usize = 16;

/// After this time without traffic the system asks whether the host of a server is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// One connection.
pub(super) struct Connection {
    driver: Driver,
    /// For tests.
    observer: Option<Observer>,
}

enum Driver {
    Sqlite(Box<rusqlite::Connection>),
    /// Shared by the statements of [`independent!`].
    Postgres(Arc<PostgresSession>),
    Mysql(Box<mysql_async::Conn>),
}

/// What queries are written with: the prelude of diesel with [`Run`] in the place of its `RunQueryDsl`.
pub(super) mod prelude {
    pub(crate) use diesel::prelude::{
        BoolExpressionMethods, CombineDsl, ExpressionMethods, Insertable, IntoSql, JoinOnDsl,
        NullableExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper,
    };

    pub(crate) use super::query::Run;
}

/// Runs futures of statements that do not depend on each other, each with the connection under the given name. PostgreSQL
/// gets the statements of all futures without waiting for the answers of the others; other engines run one future after
/// the other.
macro_rules! independent {
    ($connection:expr, $(|$conn:ident| $future:expr),+ $(,)?) => {{
        let connection = &mut *$connection;
        if let Some(shared) = connection.shared() {
            tokio::try_join!(biased; $({
                let mut handle = shared.shared().expect("it is shared");
                async move {
                    let $conn = &mut handle;
                    $future.await
                }
            }),+)
        } else {
            async {
                Ok(($({
                    let $conn = &mut *connection;
                    $future.await?
                }),+))
            }
            .await
        }
    }};
}

pub(super) use independent;

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

impl From<DatabaseError> for ConnectError {
    fn from(error: DatabaseError) -> Self {
        Self::new(StoreErrorKind::Unavailable, error.to_string())
    }
}

impl Connection {
    fn new(driver: Driver) -> Self {
        Self { driver, observer: None }
    }

    /// Another handle to this connection to PostgreSQL, whose statements are sent without waiting for the answers of
    /// others; `None` on engines that run one statement after the other.
    pub(super) fn shared(&self) -> Option<Self> {
        let Driver::Postgres(session) = &self.driver else {
            return None;
        };
        let driver = Driver::Postgres(Arc::clone(session));
        Some(Self { driver, observer: self.observer.clone() })
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.driver {
            Driver::Sqlite(_) => Dialect::Sqlite,
            Driver::Postgres(_) => Dialect::Postgres,
            Driver::Mysql(_) => Dialect::Mysql,
        }
    }

    pub(super) fn is_sqlite(&self) -> bool {
        self.dialect() == Dialect::Sqlite
    }

    fn observe(&self, statement: impl Into<ObservedStatement>) {
        if let Some(observer) = &self.observer {
            observer(statement.into());
        }
    }

    /// Executes statements without parameters.
    pub(super) async fn run(&mut self, sql: &str) -> QueryResult<()> {
        self.observe(sql);
        match &mut self.driver {
            Driver::Sqlite(conn) => Ok(conn.execute_batch(sql)?),
            Driver::Postgres(session) => session.run(sql).await,
            Driver::Mysql(conn) => mysql::run(conn, sql).await,
        }
    }

    /// Reads the rows of a statement. On SQLite it is over when this returns.
    fn rows<'c, T: Default + Send + 'c>(
        &'c mut self,
        statement: Statement<'_>,
        take: TakeRow<T>,
    ) -> Pending<'c, T> {
        self.observe(&statement);
        let mut taken = T::default();
        match &mut self.driver {
            Driver::Sqlite(conn) => {
                let done = sqlite::rows(conn, &statement, &mut |row| take(&mut taken, row));
                ready(done.map(|()| taken))
            }
            Driver::Postgres(session) => {
                let owned = statement.into_owned();
                Box::pin(async move {
                    session.rows(owned, &mut |row| take(&mut taken, row)).await?;
                    Ok(taken)
                })
            }
            Driver::Mysql(conn) => {
                let owned = statement.into_owned();
                Box::pin(async move {
                    mysql::rows(conn, owned, &mut |row| take(&mut taken, row)).await?;
                    Ok(taken)
                })
            }
        }
    }

    /// Executes a statement; returns how many rows it changed. On SQLite it is over when this returns.
    fn changes(&mut self, statement: Statement<'_>) -> Pending<'_, usize> {
        self.observe(&statement);
        match &mut self.driver {
            Driver::Sqlite(conn) => ready(sqlite::changes(conn, &statement)),
            Driver::Postgres(session) => {
                let owned = statement.into_owned();
                Box::pin(async move { session.rows(owned, &mut |_| Ok(())).await })
            }
            Driver::Mysql(conn) => Box::pin(mysql::changes(conn, statement.into_owned())),
        }
    }

    /// Executes statements; returns how many rows they changed. PostgreSQL gets all of them without waiting for answers.
    fn changes_all(&mut self, statements: Vec<Statement<'static>>) -> Pending<'_, usize> {
        for statement in &statements {
            self.observe(statement);
        }
        match &mut self.driver {
            Driver::Sqlite(conn) => {
                let changes = statements.iter().map(|statement| sqlite::changes(conn, statement));
                ready(changes.sum())
            }
            Driver::Postgres(session) => Box::pin(async move {
                let changes = statements
                    .into_iter()
                    .map(async |statement| session.rows(statement, &mut |_| Ok(())).await);
                Ok(try_join_all(changes).await?.iter().sum())
            }),
            Driver::Mysql(conn) => Box::pin(async move {
                let mut changed = 0;
                for statement in statements {
                    changed += mysql::changes(conn, statement).await?;
                }
                Ok(changed)
            }),
        }
    }

    /// Executes `sql` on SQLite once for each row, with the values of all rows; returns how many rows were changed.
    fn changes_each(
        &mut self,
        sql: &str,
        values: &[(Kind, Value<'_>)],
        rows: usize,
    ) -> Pending<'_, usize> {
        let Driver::Sqlite(conn) = &mut self.driver else {
            unreachable!("servers get several rows in one statement");
        };
        let mut values = values.chunks(values.len() / rows.max(1));
        let observer = &self.observer;
        ready(sqlite::changes_each(conn, sql, &mut || {
            let values = values.next()?;
            if let Some(observer) = observer {
                let binds = values.to_vec();
                let statement =
                    Statement { sql: sql.to_owned(), binds, is_kept: true, is_single: false };
                observer((&statement).into());
            }
            Some(values)
        }))
    }

    /// The value of an expression that is a whole number.
    pub(super) async fn number(&mut self, expression: &str) -> QueryResult<i64> {
        diesel::select(diesel::dsl::sql::<BigInt>(expression)).get_result(self).await
    }

    /// The value of an expression that is a text.
    async fn text(&mut self, expression: &str) -> QueryResult<String> {
        diesel::select(diesel::dsl::sql::<Text>(expression)).get_result(self).await
    }

    /// The id of the last insert on this connection.
    pub(super) async fn last_id(&mut self) -> QueryResult<i64> {
        match &self.driver {
            Driver::Sqlite(conn) => Ok(conn.last_insert_rowid()),
            Driver::Postgres(_) => self.number("lastval()").await,
            Driver::Mysql(conn) => {
                let id = conn.last_insert_id().unwrap_or_default();
                Ok(i64::try_from(id).unwrap_or(i64::MAX))
            }
        }
    }

    /// The ids of the rows that the last insert on this connection added: in one statement, or on SQLite in one
    /// transaction.
    pub(super) async fn inserted_ids(&mut self, rows: usize) -> QueryResult<Vec<i64>> {
        let last = self.last_id().await?;
        let step = match self.dialect() {
            Dialect::Mysql => self.number("CAST(@@auto_increment_increment AS SIGNED)").await?,
            Dialect::Sqlite | Dialect::Postgres => 1,
        };
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let first = match self.dialect() {
            // The first id of the statement.
            Dialect::Mysql => last,
            Dialect::Sqlite | Dialect::Postgres => last - rows + 1,
        };
        Ok((0..rows).map(|index| first + index * step).collect())
    }

    /// Gives SQLite more memory for inserts in random order of their keys.
    pub(super) async fn prepare_import(&mut self) -> QueryResult<()> {
        match self.dialect() {
            Dialect::Sqlite => self.run(sqlite::IMPORTING).await,
            Dialect::Postgres | Dialect::Mysql => Ok(()),
        }
    }

    /// The statement that begins a transaction.
    fn begin(&self) -> &'static str {
        match &self.driver {
            Driver::Sqlite(_) => sqlite::BEGIN,
            Driver::Postgres(session) => session.begin(),
            Driver::Mysql(_) => mysql::BEGIN,
        }
    }
}

fn ready<'c, T: Send + 'c>(done: QueryResult<T>) -> Pending<'c, T> {
    Box::pin(std::future::ready(done))
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

/// Returns an error if a statement removed fewer rows than this transaction has locked: MariaDB reports success if a
/// `DELETE` is killed or reaches its time limit before its first row.
pub(super) fn all_removed(removed: usize, locked: usize) -> QueryResult<()> {
    if removed == locked { Ok(()) } else { Err(DatabaseError::conflict("rows were not removed")) }
}
