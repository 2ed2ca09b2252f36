//! One connection to a server, whichever it is.

use std::future::Future;
use std::pin::Pin;

use diesel::QueryResult;
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection, SimpleAsyncConnection};

/// One connection.
pub(in crate::store) enum Link {
    Postgres(Box<AsyncPgConnection>),
    Mysql(Box<AsyncMysqlConnection>),
}

/// Runs a query, whichever server it is for.
macro_rules! on {
    ($link:expr, |$conn:ident| $query:expr) => {
        match $link {
            $crate::store::server::link::Link::Postgres($conn) => {
                let $conn = &mut **$conn;
                $query.await
            }
            $crate::store::server::link::Link::Mysql($conn) => {
                let $conn = &mut **$conn;
                $query.await
            }
        }
    };
}
pub(in crate::store) use on;

/// What is done on a connection.
pub(super) type Doing<'c, T> = Pin<Box<dyn Future<Output = QueryResult<T>> + Send + 'c>>;

impl Link {
    pub(super) async fn run(&mut self, sql: &str) -> QueryResult<()> {
        on!(self, |conn| conn.batch_execute(sql))
    }
}
