//! PostgreSQL: connecting, the classes of its errors, and the SQL that only it has.

use std::sync::Arc;
use std::time::Duration;

use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::AsyncPgConnection;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{ConnectError, Connection, ServerUrl, Symptom};
use crate::store::Fault;

/// The server's clock, in milliseconds since the Unix epoch.
pub(super) const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// Makes commits survive a crash. A stricter setting, such as to wait for a standby, stays.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";
/// Server settings by which commits survive a crash of the host: name, expression, and the safe value.
pub(super) const CRASH_SAFE: [(&str, &str, &str); 2] = [
    ("fsync", "current_setting('fsync')", "on"),
    (
        "full_page_writes",
        "current_setting('full_page_writes')",
        "on",
    ),
];
/// The level is part of each transaction, because a pooler may run it in any session.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Connects to one host; an error where it cannot be written and must be.
pub(super) async fn connect(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Connection, ConnectError> {
    let mut config = Config::new();
    config
        .user(&url.user)
        .dbname(&url.database)
        .application_name("smsq")
        .connect_timeout(patience)
        .port(port);
    match &url.socket {
        Some(path) => config.host_path(path),
        None => config.host(host),
    };
    if let Some(password) = &url.password {
        config.password(password.expose_secret());
    }
    let connected = if url.encrypted {
        config.ssl_mode(tokio_postgres::config::SslMode::Require);
        let tls = MakeRustlsConnect::new(encryption(url)?);
        let (client, connection) = config
            .connect(tls)
            .await
            .map_err(|error| connect_error(&error))?;
        AsyncPgConnection::try_from_client_and_connection(client, connection).await
    } else {
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        let (client, connection) = config
            .connect(NoTls)
            .await
            .map_err(|error| connect_error(&error))?;
        AsyncPgConnection::try_from_client_and_connection(client, connection).await
    };
    let away = |error| ConnectError::away(&error);
    let conn = connected.map_err(|error| ConnectError::away(&error))?;
    let mut connection = Connection::Postgres(Box::new(conn));
    connection.run(DURABLE).await.map_err(away)?;
    let is_writable = connection.word("current_setting('transaction_read_only')");
    match is_writable.await.as_deref() {
        Ok("off") => Ok(connection),
        Ok(_) if url.takes_read_only() => Ok(connection),
        Ok(_) => Err(ConnectError::read_only()),
        Err(error) => Err(ConnectError::away(error)),
    }
}

/// Certificates are always checked, against the system's authorities or those of the url.
fn encryption(url: &ServerUrl) -> Result<rustls::ClientConfig, ConnectError> {
    let unusable = |why: String| ConnectError::new(Fault::Encryption, why);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let Some(file) = &url.authority else {
        let builder = builder
            .with_platform_verifier()
            .map_err(|error| unusable(error.to_string()))?;
        return Ok(builder.with_no_client_auth());
    };
    let unreadable = |why: String| unusable(format!("`{}`: {why}", file.display()));
    let mut roots = rustls::RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unreadable(error.to_string()))?;
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn connect_error(error: &tokio_postgres::Error) -> ConnectError {
    let fault = match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => Fault::NoDatabase,
        Some(code)
            if *code == SqlState::INVALID_PASSWORD
                || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            Fault::Denied
        }
        None if error.to_string().contains("TLS") => Fault::Encryption,
        _ => Fault::Away,
    };
    let message = error.as_db_error().map(|error| error.message().to_owned());
    let message = message.unwrap_or_else(|| {
        let cause = std::error::Error::source(error);
        cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
    });
    ConnectError::new(fault, message)
}

/// The class of an error. Diesel keeps the codes of a few errors only, and messages may be in any language: they
/// only save a retry.
pub(super) fn symptom(error: &Error) -> Symptom {
    let Error::DatabaseError(kind, information) = error else {
        return Symptom::Other;
    };
    let message = information.message();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match kind {
        DatabaseErrorKind::SerializationFailure => Symptom::Conflict,
        DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
            Symptom::Lost
        }
        DatabaseErrorKind::ReadOnlyTransaction => Symptom::ReadOnly,
        DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::CheckViolation => Symptom::Refused,
        _ if has(&["deadlock detected", "could not obtain lock", "lock timeout"]) => {
            Symptom::Conflict
        }
        _ if has(&[
            "terminating connection",
            "is shutting down",
            "is starting up",
            "in recovery mode",
            "connection closed",
        ]) =>
        {
            Symptom::Lost
        }
        _ if has(&["No space left on device", "could not extend file"]) => Symptom::Full,
        _ => Symptom::Other,
    }
}
