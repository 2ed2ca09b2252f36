//! MySQL and MariaDB: how they are reached, how their faults are told apart, and the few words that they
//! have for themselves.

use std::time::Duration;

use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::AsyncMysqlConnection;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, SslOpts};
use secrecy::ExposeSecret;

use super::address::Address;
use super::link::Link;
use super::{Refusal, Symptom};
use crate::store::Fault;

/// The server's clock, in milliseconds since the Unix epoch; diesel's sessions are at UTC.
pub(super) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(3)) DIV 1000";
pub(super) const BEGIN: &str = "START TRANSACTION";

/// Each statement stands once it is answered, less is locked than by default, nothing is cut off unsaid, faults are told in a language that
/// [`symptom`] reads, and nobody waits for a lock for long.
const SESSION: [&str; 6] = [
    "SET SESSION autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION lc_messages = 'en_US'",
    "SET SESSION innodb_lock_wait_timeout = 10",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
];

/// Settings, each with the value that a crash of the host asks for.
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

/// Connects to one host, if it can be written.
pub(super) async fn connect(
    address: &Address,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Link, Refusal> {
    let mut options = OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port)
        .user(Some(&address.user))
        .pass(address.password.as_ref().map(ExposeSecret::expose_secret))
        .db_name(Some(&address.database))
        .prefer_socket(false)
        .socket(
            address
                .socket
                .as_ref()
                .map(|path| path.display().to_string()),
        )
        .stmt_cache_size(0)
        .client_found_rows(true)
        .tcp_keepalive(Some(30_000_u32))
        .init(SESSION.to_vec());
    if address.encrypted {
        let mut encryption = SslOpts::default();
        if let Some(file) = &address.authority {
            encryption = encryption.with_root_certs(vec![file.clone().into()]);
        }
        options = options.ssl_opts(Some(encryption));
    }
    let late = |_| Refusal::new(Fault::Away, "does not answer");
    let connecting = async {
        let mut conn = Conn::new(options).await.map_err(|error| refusal(&error))?;
        look_at(&mut conn, address).await?;
        AsyncMysqlConnection::try_from(conn)
            .await
            .map_err(|error| Refusal::new(Fault::Away, error.to_string()))
    };
    let conn = tokio::time::timeout(patience, connecting)
        .await
        .map_err(late)??;
    Ok(Link::Mysql(Box::new(conn)))
}

/// Refuses a replica, and a node that its cluster has left behind.
async fn look_at(conn: &mut Conn, address: &Address) -> Result<(), Refusal> {
    let failed = |error| refusal(&error);
    let read_only: Option<String> = conn
        .query_first("SELECT CAST(@@global.read_only AS CHAR)")
        .await
        .map_err(failed)?;
    let is_read_only = read_only.is_some_and(|word| word != "0" && word != "OFF");
    if is_read_only && !address.takes_read_only() {
        return Err(Refusal::read_only());
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
        return Err(Refusal::new(
            Fault::Away,
            "is a node that its cluster has left behind",
        ));
    }
    // What another node has committed is seen here before anything is decided on it.
    conn.query_drop("SET SESSION wsrep_sync_wait = 7")
        .await
        .map_err(failed)
}

fn refusal(error: &mysql_async::Error) -> Refusal {
    use mysql_async::Error as Fail;
    let fault = match error {
        Fail::Server(error) if matches!(error.code, 1044 | 1045 | 1698) => Fault::Denied,
        Fail::Server(error) if error.code == 1049 => Fault::NoDatabase,
        Fail::Io(mysql_async::IoError::Tls(_))
        | Fail::Driver(mysql_async::DriverError::NoClientSslFlagFromServer) => Fault::Encryption,
        Fail::Io(error) if error.to_string().contains("certificate") => Fault::Encryption,
        _ => Fault::Away,
    };
    let said = match error {
        Fail::Server(error) => error.message.clone(),
        // It says so once for itself, and once for what it wraps.
        other => other.to_string().replace("Input/output error: ", ""),
    };
    Refusal::new(fault, said)
}

/// What kind of fault an error tells of. Diesel hands on the codes of a few; words, which are English in every
/// session, only say sooner what a retry would find out.
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
    let said = information.message().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&[
        "deadlock found",
        "lock wait timeout",
        "record has changed since last read",
        "try restarting transaction",
    ]) {
        Symptom::Conflict
    } else if says(&["read-only", "read only", "read_only"]) {
        Symptom::ReadOnly
    } else if says(&[
        "packet too large",
        "packet is too large",
        "max_allowed_packet",
    ]) {
        Symptom::TooLarge
    } else if says(&["is full", "no space left"]) {
        Symptom::Full
    } else if says(&[
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

/// Holds campaigns' states until the transaction ends.
pub(super) async fn hold_states(
    conn: &mut AsyncMysqlConnection,
    campaigns: &[i64],
) -> QueryResult<Vec<(i64, i32)>> {
    use crate::store::schema::campaign;
    use diesel::prelude::*;
    use diesel_async::RunQueryDsl;
    campaign::table
        .filter(campaign::id.eq_any(campaigns))
        .order(campaign::id)
        .select((campaign::id, campaign::state))
        .for_update()
        .load(conn)
        .await
}
