//! MySQL and MariaDB: connecting, running statements, and the kinds of errors at connecting.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Params, SslOpts};
use secrecy::ExposeSecret;

use super::error::QueryResult;
use super::statement::Statement;
use super::url::ServerUrl;
use super::values::{AnyRow, Kind, Value};
use super::version::refuse_unsupported;
use super::{ConnectError, Connection, Driver, KEEPALIVE};
use crate::error::StoreErrorKind;

pub(super) const BEGIN: &str = "START TRANSACTION";

/// Each statement is committed when it is answered, fewer rows are locked than by default, values that are too long
/// are errors, messages are in English, and lock waits are short.
const SESSION: [&str; 6] = [
    "SET SESSION autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lc_messages = 'en_US'",
    "SET SESSION innodb_lock_wait_timeout = 10",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
];

/// The most statements that stay prepared on a connection.
const KEPT_STATEMENTS: usize = 512;

fn parameters(values: Vec<(Kind, Value<'static>)>) -> Params {
    if values.is_empty() {
        return Params::Empty;
    }
    Params::Positional(values.into_iter().map(|(_, value)| parameter(value)).collect())
}

fn parameter(value: Value<'static>) -> mysql_async::Value {
    match value {
        Value::Null => mysql_async::Value::NULL,
        Value::Bool(value) => mysql_async::Value::Int(i64::from(value)),
        Value::Integer(value) => mysql_async::Value::Int(i64::from(value)),
        Value::BigInt(value) => mysql_async::Value::Int(value),
        Value::Double(value) => mysql_async::Value::Double(value),
        Value::Text(text) => mysql_async::Value::Bytes(text.into_owned().into_bytes()),
        Value::Binary(bytes) => mysql_async::Value::Bytes(bytes.into_owned()),
        Value::List(_) => unreachable!("lists are parameters on PostgreSQL only"),
    }
}

/// Executes statements without parameters.
pub(super) async fn run(conn: &mut Conn, sql: &str) -> QueryResult<()> {
    Ok(conn.query_drop(sql).await?)
}

/// Reads the rows of a statement, all of them in any case: the connection cannot be used before.
pub(super) async fn rows(
    conn: &mut Conn,
    statement: Statement<'static>,
    take: &mut (dyn FnMut(AnyRow<'_>) -> QueryResult<()> + Send),
) -> QueryResult<()> {
    let prepared = conn.prep(statement.sql).await?;
    let mut rows = conn.exec_iter(&prepared, parameters(statement.binds)).await?;
    let mut taken = Ok(());
    while let Some(row) = rows.next().await? {
        if taken.is_ok() {
            taken = take(AnyRow::Mysql(&row));
        }
    }
    drop(rows);
    if !statement.is_kept {
        conn.close(prepared).await?;
    }
    taken
}

/// Executes a statement; returns how many rows it changed.
pub(super) async fn changes(conn: &mut Conn, statement: Statement<'static>) -> QueryResult<usize> {
    let prepared = conn.prep(statement.sql).await?;
    conn.exec_drop(&prepared, parameters(statement.binds)).await?;
    let changed = usize::try_from(conn.affected_rows()).unwrap_or(usize::MAX);
    if !statement.is_kept {
        conn.close(prepared).await?;
    }
    Ok(changed)
}

/// Connects to one host; an error if it must be writable and is not.
pub(super) async fn connect(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let options = options(url, host, port)
        .client_found_rows(true)
        .stmt_cache_size(KEPT_STATEMENTS)
        .init(SESSION.to_vec());
    let connecting = async {
        let mut conn = Conn::new(options).await?;
        check_node(&mut conn, url).await?;
        let mut connection = Connection::new(Driver::Mysql(Box::new(conn)));
        refuse_unsupported(&mut connection).await?;
        Ok(connection)
    };
    match tokio::time::timeout(patience, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(ConnectError::no_answer()),
    }
}

/// Connects to one host of another program's database, without any check of it.
pub(crate) async fn foreign_client(
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
