//! MySQL and MariaDB: connecting, the classes of their errors, and the SQL that only they have.

use std::time::Duration;

use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::AsyncMysqlConnection;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, SslOpts};
use secrecy::ExposeSecret;

use super::{ConnectError, Connection, ServerUrl, Symptom};
use crate::store::Fault;

/// The server's clock, in milliseconds since the Unix epoch; diesel's sessions are at UTC.
pub(super) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(3)) DIV 1000";
pub(super) const BEGIN: &str = "START TRANSACTION";

/// Each statement is committed when it is answered, fewer rows are locked than by default, values that are too long
/// are errors, messages are in the language that [`symptom`] reads, and lock waits are short.
const SESSION: [&str; 6] = [
    "SET SESSION autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lc_messages = 'en_US'",
    "SET SESSION innodb_lock_wait_timeout = 10",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
];

/// Server settings by which commits survive a crash of the host: name, expression, and the safe value.
pub(super) const CRASH_SAFE: [(&str, &str, &str); 2] = [
    (
        "innodb_flush_log_at_trx_commit",
        "CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR)",
        "1",
    ),
    (
        "sync_binlog",
        "IF(@@global.log_bin, CAST(@@global.sync_binlog AS CHAR), '1')",
        "1",
    ),
];

/// Connects to one host; an error where it cannot be written and must be.
pub(super) async fn connect(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let mut options = OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port)
        .user(Some(&url.user))
        .pass(url.password.as_ref().map(ExposeSecret::expose_secret))
        .db_name(Some(&url.database))
        .prefer_socket(false)
        .socket(url.socket.as_ref().map(|path| path.display().to_string()))
        .stmt_cache_size(0)
        .client_found_rows(true)
        .tcp_keepalive(Some(30_000_u32))
        .init(SESSION.to_vec());
    if url.encrypted {
        let mut encryption = SslOpts::default();
        if let Some(file) = &url.authority {
            encryption = encryption.with_root_certs(vec![file.clone().into()]);
        }
        options = options.ssl_opts(Some(encryption));
    }
    let late = |_| ConnectError::new(Fault::Away, "does not answer");
    let connecting = async {
        let mut conn = Conn::new(options)
            .await
            .map_err(|error| connect_error(&error))?;
        check_node(&mut conn, url).await?;
        AsyncMysqlConnection::try_from(conn)
            .await
            .map_err(|error| ConnectError::away(&error))
    };
    let conn = tokio::time::timeout(patience, connecting)
        .await
        .map_err(late)??;
    Ok(Connection::Mysql(Box::new(conn)))
}

/// Refuses a replica, and a node that is not part of its cluster.
async fn check_node(conn: &mut Conn, url: &ServerUrl) -> Result<(), ConnectError> {
    let failed = |error| connect_error(&error);
    let read_only: Option<String> = conn
        .query_first("SELECT CAST(@@global.read_only AS CHAR)")
        .await
        .map_err(failed)?;
    let is_read_only = read_only.is_some_and(|word| word != "0" && word != "OFF");
    if is_read_only && !url.takes_read_only() {
        return Err(ConnectError::read_only());
    }
    let ready: Option<(String, String)> = conn
        .query_first("SHOW STATUS LIKE 'wsrep_ready'")
        .await
        .map_err(failed)?;
    let clustered: Option<(String, String)> = conn
        .query_first("SHOW STATUS LIKE 'wsrep_cluster_size'")
        .await
        .map_err(failed)?;
    if clustered.is_none_or(|(_, size)| size == "0") {
        return Ok(());
    }
    if ready.is_some_and(|(_, ready)| ready != "ON") {
        return Err(ConnectError::new(
            Fault::Away,
            "is a node that is not part of its cluster",
        ));
    }
    // Reads wait until the commits of other nodes are applied here.
    conn.query_drop("SET SESSION wsrep_sync_wait = 7")
        .await
        .map_err(failed)
}

fn connect_error(error: &mysql_async::Error) -> ConnectError {
    use mysql_async::Error as Fail;
    let fault = match error {
        Fail::Server(error) if matches!(error.code, 1044 | 1045 | 1698) => Fault::Denied,
        Fail::Server(error) if error.code == 1049 => Fault::NoDatabase,
        Fail::Io(mysql_async::IoError::Tls(_))
        | Fail::Driver(mysql_async::DriverError::NoClientSslFlagFromServer) => Fault::Encryption,
        Fail::Io(error) if error.to_string().contains("certificate") => Fault::Encryption,
        _ => Fault::Away,
    };
    let message = match error {
        Fail::Server(error) => error.message.clone(),
        // The prefix is repeated for the error inside.
        other => other.to_string().replace("Input/output error: ", ""),
    };
    ConnectError::new(fault, message)
}

/// The class of an error. Diesel keeps the codes of a few errors only; messages, which are English in every session,
/// only save a retry.
pub(super) fn symptom(error: &Error) -> Symptom {
    let Error::DatabaseError(kind, information) = error else {
        return Symptom::Other;
    };
    match kind {
        DatabaseErrorKind::ReadOnlyTransaction => return Symptom::ReadOnly,
        DatabaseErrorKind::SerializationFailure => return Symptom::Conflict,
        DatabaseErrorKind::UnableToSendCommand => return Symptom::Lost,
        DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::CheckViolation => return Symptom::Refused,
        _ => {}
    }
    let message = information.message().to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&[
        "deadlock found",
        "lock wait timeout",
        "record has changed since last read",
        "try restarting transaction",
    ]) {
        Symptom::Conflict
    } else if has(&["read-only", "read only", "read_only"]) {
        Symptom::ReadOnly
    } else if has(&[
        "packet too large",
        "packet is too large",
        "max_allowed_packet",
    ]) {
        Symptom::TooLarge
    } else if has(&["is full", "no space left"]) {
        Symptom::Full
    } else if has(&[
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
    ]) {
        Symptom::Lost
    } else {
        Symptom::Other
    }
}
