//! MySQL and MariaDB: connecting, the kinds of their errors, and the SQL that only they have.

use std::time::Duration;

use diesel::mysql::{Mysql, MysqlQueryBuilder};
use diesel::query_builder::{BoxedSqlQuery, QueryBuilder as _, QueryFragment, SqlQuery};
use diesel::sql_types::BigInt;
use diesel::{QueryResult, sql_query};
use diesel_async::AsyncMysqlConnection;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, SslOpts};
use secrecy::ExposeSecret;

use super::url::ServerUrl;
use super::version::refuse_unsupported;
use super::{ConnectError, Connection, KEEPALIVE, KnownErrors, Prepared};
use crate::store::tables::error::StoreErrorKind;

pub(super) const BEGIN: &str = "START TRANSACTION";

/// Each statement is committed when it is answered, fewer rows are locked than by default, values that are too long
/// are errors, messages are in the language of [`ERRORS`], and lock waits are short.
const SESSION: [&str; 6] = [
    "SET SESSION autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lc_messages = 'en_US'",
    "SET SESSION innodb_lock_wait_timeout = 10",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
];

/// Kinds of errors by their messages, which are English in every session.
pub(super) const ERRORS: KnownErrors<5> = [
    (
        StoreErrorKind::Busy,
        &[
            "deadlock found",
            "lock wait timeout",
            "record has changed since last read",
            "try restarting transaction",
        ],
    ),
    (StoreErrorKind::Replica, &["read-only", "read only", "read_only"]),
    (StoreErrorKind::TooLarge, &["packet too large", "packet is too large", "max_allowed_packet"]),
    (StoreErrorKind::Full, &["is full", "no space left"]),
    (
        StoreErrorKind::Unavailable,
        &[
            "input/output error",
            "connection to the server is closed",
            "connection closed",
            "broken pipe",
            "reset by peer",
            "gone away",
            "connection was killed",
            "shutdown in progress",
            "wsrep has not yet prepared",
            "not connected to primary component",
            "packets out of order",
        ],
    ),
];

/// A query of one table with the index that it must use, and the values of its parameters.
pub(in crate::store) fn by_index<const VALUES: usize>(
    query: &impl QueryFragment<Mysql>,
    index: &str,
    values: [i64; VALUES],
) -> QueryResult<Prepared<BoxedSqlQuery<'static, Mysql, SqlQuery>>> {
    let mut builder = MysqlQueryBuilder::new();
    query.to_sql(&mut builder, &Mysql)?;
    let hint = format!(" FORCE INDEX (`{index}`) WHERE ");
    let sql = builder.finish().replacen(" WHERE ", &hint, 1);
    let query =
        values.into_iter().fold(sql_query(sql).into_boxed(), BoxedSqlQuery::bind::<BigInt, i64>);
    Ok(Prepared(query))
}

/// Connects to one host; an error if it must be writable and is not.
pub(super) async fn connect(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let options = options(url, host, port).client_found_rows(true).init(SESSION.to_vec());
    let connecting = async {
        let mut conn = Conn::new(options).await?;
        check_node(&mut conn, url).await?;
        let conn = AsyncMysqlConnection::try_from(conn).await?;
        let mut connection = Connection::Mysql(Box::new(conn));
        refuse_unsupported(&mut connection).await?;
        Ok(connection)
    };
    match tokio::time::timeout(patience, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(ConnectError::no_answer()),
    }
}

/// Connects to one host of another program's database, without any check of it.
pub(in crate::store) async fn foreign_client(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Conn, ConnectError> {
    let session = ["SET NAMES utf8mb4", "SET SESSION lc_messages = 'en_US'"];
    let connecting = Conn::new(options(url, host, port).init(session.to_vec()));
    match tokio::time::timeout(patience, connecting).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(ConnectError::no_answer()),
    }
}

fn options(url: &ServerUrl, host: &str, port: u16) -> OptsBuilder {
    let options = OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port)
        .user(Some(&url.user))
        .pass(url.password.as_ref().map(ExposeSecret::expose_secret))
        .db_name(Some(&url.database))
        .prefer_socket(false)
        .socket(url.socket.as_ref().map(|path| path.display().to_string()))
        .stmt_cache_size(0)
        .tcp_keepalive(u32::try_from(KEEPALIVE.as_millis()).ok());
    if !url.encrypted {
        return options;
    }
    let encryption = match &url.authority {
        Some(file) => SslOpts::default().with_root_certs(vec![file.clone().into()]),
        None => SslOpts::default(),
    };
    options.ssl_opts(Some(encryption))
}

/// Returns an error for a replica, and for a node that is not part of its cluster.
async fn check_node(conn: &mut Conn, url: &ServerUrl) -> Result<(), ConnectError> {
    let read_only = "SELECT CAST(@@global.read_only AS CHAR)";
    let read_only: Option<String> = conn.query_first(read_only).await?;
    let is_read_only = read_only.is_some_and(|value| value != "0" && value != "OFF");
    if is_read_only && !url.takes_read_only() {
        return Err(ConnectError::replica());
    }
    let ready = "SHOW STATUS LIKE 'wsrep_ready'";
    let ready: Option<(String, String)> = conn.query_first(ready).await?;
    let size = "SHOW STATUS LIKE 'wsrep_cluster_size'";
    let size: Option<(String, String)> = conn.query_first(size).await?;
    if size.is_none_or(|(_, size)| size == "0") {
        return Ok(());
    }
    if ready.is_some_and(|(_, ready)| ready != "ON") {
        return Err(ConnectError::new(
            StoreErrorKind::Unavailable,
            "is a node that is not part of its cluster",
        ));
    }
    // Reads wait until the commits of other nodes are applied here.
    Ok(conn.query_drop("SET SESSION wsrep_sync_wait = 7").await?)
}

impl From<mysql_async::Error> for ConnectError {
    fn from(error: mysql_async::Error) -> Self {
        use mysql_async::{DriverError, Error, IoError};
        let kind = match &error {
            Error::Server(error) if matches!(error.code, 1044 | 1045 | 1698) => {
                StoreErrorKind::Denied
            }
            // MySQL names any method for a user that does not exist.
            Error::Driver(DriverError::UnknownAuthPlugin { .. }) => StoreErrorKind::Denied,
            Error::Server(error) if error.code == 1049 => StoreErrorKind::NoDatabase,
            Error::Io(IoError::Tls(_)) | Error::Driver(DriverError::NoClientSslFlagFromServer) => {
                StoreErrorKind::Encryption
            }
            Error::Io(error) if error.to_string().contains("certificate") => {
                StoreErrorKind::Encryption
            }
            _ => StoreErrorKind::Unavailable,
        };
        let message = match error {
            Error::Server(error) => error.message,
            // The prefix is repeated for the inner error.
            other => other.to_string().replace("Input/output error: ", ""),
        };
        Self::new(kind, message)
    }
}
