//! PostgreSQL: how it is reached, how its faults are told apart, and the few words that it has for itself.

use std::sync::Arc;
use std::time::Duration;

use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::AsyncPgConnection;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::Address;
use super::link::Link;
use super::{Refusal, Symptom};
use crate::store::Fault;

/// The server's clock, in milliseconds since the Unix epoch.
pub(super) const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// What is committed survives a crash; a setting that waits for more, such as for a standby, stays.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";
/// Settings, each with the value that a crash of the host asks for.
pub(super) const CRASH_SAFE: [(&str, &str, &str); 2] = [
    ("fsync", "current_setting('fsync')", "on"),
    (
        "full_page_writes",
        "current_setting('full_page_writes')",
        "on",
    ),
];
/// Each transaction says so itself: a pooler may hand it to any session.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Connects to one host, if it can be written.
pub(super) async fn connect(
    address: &Address,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Link, Refusal> {
    let mut config = Config::new();
    config
        .user(&address.user)
        .dbname(&address.database)
        .application_name("smsq")
        .connect_timeout(patience)
        .port(port);
    match &address.socket {
        Some(path) => config.host_path(path),
        None => config.host(host),
    };
    if let Some(password) = &address.password {
        config.password(password.expose_secret());
    }
    let connected = if address.encrypted {
        config.ssl_mode(tokio_postgres::config::SslMode::Require);
        let tls = MakeRustlsConnect::new(encryption(address)?);
        let (client, connection) = config.connect(tls).await.map_err(|error| refusal(&error))?;
        AsyncPgConnection::try_from_client_and_connection(client, connection).await
    } else {
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        let (client, connection) = config
            .connect(NoTls)
            .await
            .map_err(|error| refusal(&error))?;
        AsyncPgConnection::try_from_client_and_connection(client, connection).await
    };
    let conn = connected.map_err(|error| Refusal::new(Fault::Away, error.to_string()))?;
    let mut link = Link::Postgres(Box::new(conn));
    link.run(DURABLE)
        .await
        .map_err(|error| Refusal::new(Fault::Away, error.to_string()))?;
    let is_writable = super::ask_word(&mut link, "current_setting('transaction_read_only')").await;
    match is_writable.as_deref() {
        Ok("off") => Ok(link),
        Ok(_) if address.takes_read_only() => Ok(link),
        Ok(_) => Err(Refusal::read_only()),
        Err(error) => Err(Refusal::new(Fault::Away, error.to_string())),
    }
}

/// Certificates are always checked: against the system's authorities, or against one's own.
fn encryption(address: &Address) -> Result<rustls::ClientConfig, Refusal> {
    let unusable = |why: String| Refusal::new(Fault::Encryption, why);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let Some(file) = &address.authority else {
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

fn refusal(error: &tokio_postgres::Error) -> Refusal {
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
    let said = error.as_db_error().map(|error| error.message().to_owned());
    let said = said.unwrap_or_else(|| {
        let cause = std::error::Error::source(error);
        cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
    });
    Refusal::new(fault, said)
}

/// What kind of fault an error tells of. Diesel hands on the codes of a few, and words may be in any language:
/// they only say sooner what a retry would find out.
pub(super) fn symptom(error: &Error) -> Symptom {
    let Error::DatabaseError(kind, information) = error else {
        return Symptom::Other;
    };
    let said = information.message();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
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
        _ if says(&["deadlock detected", "could not obtain lock", "lock timeout"]) => {
            Symptom::Conflict
        }
        _ if says(&[
            "terminating connection",
            "is shutting down",
            "is starting up",
            "in recovery mode",
            "connection closed",
        ]) =>
        {
            Symptom::Lost
        }
        _ if says(&["No space left on device", "could not extend file"]) => Symptom::Full,
        _ => Symptom::Other,
    }
}

/// Holds campaigns' states until the transaction ends; others may hold them too.
pub(super) async fn hold_states(
    conn: &mut AsyncPgConnection,
    campaigns: &[i64],
) -> QueryResult<Vec<(i64, i32)>> {
    use crate::store::schema::campaign;
    use diesel::prelude::*;
    use diesel_async::RunQueryDsl;
    campaign::table
        .filter(campaign::id.eq_any(campaigns))
        .order(campaign::id)
        .select((campaign::id, campaign::state))
        .for_share()
        .load(conn)
        .await
}
