//! PostgreSQL: connecting, the kinds of its errors, and the SQL that only it has.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use diesel_async::{AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::ServerUrl;
use super::version::refuse_unsupported;
use super::{ConnectError, Connection, KEEPALIVE, KnownErrors, TextValue};
use crate::store::tables::error::StoreErrorKind;

/// What begins a transaction, by the session's `synchronous_commit`, other values than these being `on`. Isolation and
/// durability are part of each transaction, because a pooler may run it in any session; in one message, and so without
/// another round trip.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on";
const BEGINS: [(&str, &str); 3] = [
    (
        "remote_apply",
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = remote_apply",
    ),
    (
        "remote_write",
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = remote_write",
    ),
    ("local", "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = local"),
];

/// A connection, and how its transactions begin.
pub(in crate::store) struct PostgresSession {
    conn: AsyncPgConnection,
    begin: &'static str,
}

impl PostgresSession {
    pub(super) fn begin(&self) -> &'static str {
        self.begin
    }
}

impl Deref for PostgresSession {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &AsyncPgConnection {
        &self.conn
    }
}

/// Makes commits survive a crash, also those of single statements where no pooler is in between.
async fn make_durable(session: &mut PostgresSession) -> Result<(), ConnectError> {
    let sql = "SELECT current_setting('synchronous_commit') AS value";
    let setting: TextValue = diesel::sql_query(sql).get_result(&mut &session.conn).await?;
    if setting.value == "off" {
        let on = "SET synchronous_commit = on";
        (&session.conn).batch_execute(on).await?;
    }
    let known = BEGINS.iter().find(|(name, _)| *name == setting.value);
    session.begin = known.map_or(BEGIN, |(_, begin)| begin);
    Ok(())
}

/// Kinds of errors by their messages.
pub(super) const ERRORS: KnownErrors<3> = [
    (StoreErrorKind::Busy, &["deadlock detected", "could not obtain lock", "lock timeout"]),
    (
        StoreErrorKind::Unavailable,
        &[
            "terminating connection",
            "is shutting down",
            "is starting up",
            "in recovery mode",
            "connection closed",
        ],
    ),
    (StoreErrorKind::Full, &["no space left on device", "could not extend file"]),
];

/// Connects to one host; an error if it must be writable and is not.
pub(super) async fn connect(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let config = config(url, host, port, patience);
    let tls = url.encrypted.then(|| encryption(url)).transpose()?;
    let connecting = async {
        let conn = if let Some(tls) = tls {
            let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
            AsyncPgConnection::try_from_client_and_connection(client, connection).await?
        } else {
            let (client, connection) = config.connect(NoTls).await?;
            AsyncPgConnection::try_from_client_and_connection(client, connection).await?
        };
        let session = PostgresSession { conn, begin: BEGIN };
        let mut connection = Connection::Postgres(Arc::new(session));
        refuse_unsupported(&mut connection).await?;
        if let Connection::Postgres(session) = &mut connection
            && let Some(session) = Arc::get_mut(session)
        {
            make_durable(session).await?;
        }
        let read_only = "(current_setting('transaction_read_only') = 'on')::int::bigint";
        if connection.number(read_only).await? == 1 && !url.takes_read_only() {
            return Err(ConnectError::replica());
        }
        Ok(connection)
    };
    // The driver limits only the time of TCP, not that of the first messages after it.
    let connected = tokio::time::timeout(patience, connecting).await;
    connected.unwrap_or_else(|_| Err(ConnectError::no_answer()))
}

/// Connects to one host of another program's database, without any check of it.
pub(in crate::store) async fn foreign_client(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Client, ConnectError> {
    let config = config(url, host, port, patience);
    let tls = url.encrypted.then(|| encryption(url)).transpose()?;
    let connecting = async {
        if let Some(tls) = tls {
            let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
            tokio::spawn(connection);
            Ok(client)
        } else {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        }
    };
    let connected = tokio::time::timeout(patience, connecting).await;
    connected.unwrap_or_else(|_| Err(ConnectError::no_answer()))
}

/// Ends the statement that a client of another program's database runs. If that fails, the server ends it after its time.
pub(in crate::store) async fn cancel(url: &ServerUrl, client: &Client) {
    let token = client.cancel_token();
    let cancelled = match url.encrypted.then(|| encryption(url)).transpose() {
        Ok(Some(tls)) => token.cancel_query(MakeRustlsConnect::new(tls)).await,
        Ok(None) => token.cancel_query(NoTls).await,
        // It was used to connect.
        Err(_) => return,
    };
    if let Err(error) = cancelled {
        tracing::debug!(%error, "a query could not be ended");
    }
}

fn config(url: &ServerUrl, host: &str, port: u16, patience: Duration) -> Config {
    let mut config = Config::new();
    config
        .user(&url.user)
        .dbname(&url.database)
        .application_name("smsq")
        .connect_timeout(patience)
        .keepalives_idle(KEEPALIVE)
        .port(port)
        .ssl_mode(if url.encrypted { SslMode::Require } else { SslMode::Disable });
    match &url.socket {
        Some(path) => config.host_path(path),
        None => config.host(host),
    };
    if let Some(password) = &url.password {
        config.password(password.expose_secret());
    }
    config
}

/// Certificates are always checked, against the authorities of the system or of the URL.
fn encryption(url: &ServerUrl) -> Result<rustls::ClientConfig, ConnectError> {
    let config = || -> Result<rustls::ClientConfig, Box<dyn std::error::Error>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?;
        let Some(file) = &url.authority else {
            return Ok(builder.with_platform_verifier()?.with_no_client_auth());
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file)? {
            roots.add(certificate?)?;
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    };
    config().map_err(|error| {
        let file = url.authority.as_ref();
        let file = file.map(|file| format!("`{}`: ", file.display()));
        let reason = format!("{}{error}", file.unwrap_or_default());
        ConnectError::new(StoreErrorKind::Encryption, reason)
    })
}

/// The kind of a login error of `PgBouncer`, whose errors all have the code of a protocol violation.
fn pooler_error_kind(message: &str) -> Option<StoreErrorKind> {
    let begins = |prefix: &&str| message.starts_with(prefix);
    let denied = ["no such user", "password authentication failed", "SASL authentication failed"];
    if message.starts_with("no such database") {
        Some(StoreErrorKind::NoDatabase)
    } else if denied.iter().any(begins) {
        Some(StoreErrorKind::Denied)
    } else {
        None
    }
}

impl From<tokio_postgres::Error> for ConnectError {
    fn from(error: tokio_postgres::Error) -> Self {
        let is = |known: &[SqlState]| error.code().is_some_and(|code| known.contains(code));
        let denied = [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION];
        let pooler_error = error
            .as_db_error()
            .filter(|error| *error.code() == SqlState::PROTOCOL_VIOLATION)
            .and_then(|error| pooler_error_kind(error.message()));
        let kind = if let Some(kind) = pooler_error {
            kind
        } else if is(&[SqlState::INVALID_CATALOG_NAME]) {
            StoreErrorKind::NoDatabase
        } else if is(&denied) {
            StoreErrorKind::Denied
        } else if error.code().is_none() && error.to_string().contains("TLS") {
            StoreErrorKind::Encryption
        } else {
            StoreErrorKind::Unavailable
        };
        let message = match (error.as_db_error(), std::error::Error::source(&error)) {
            (Some(error), _) => error.message().to_owned(),
            (None, Some(cause)) => format!("{error}: {cause}"),
            (None, None) => error.to_string(),
        };
        Self::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_errors_of_pgbouncer_are_known_by_message() {
        for (message, kind) in [
            ("no such user", Some(StoreErrorKind::Denied)),
            ("SASL authentication failed", Some(StoreErrorKind::Denied)),
            ("no such database: queue", Some(StoreErrorKind::NoDatabase)),
            ("query_wait_timeout", None),
        ] {
            assert_eq!(pooler_error_kind(message), kind, "{message}");
        }
    }
}
