//! PostgreSQL: connecting, running statements, and the kinds of errors at connecting.

use std::num::NonZero;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use lru::LruCache;
use postgres_protocol::types::{ArrayDimension, array_to_sql};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use tokio::sync::OnceCell;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, types};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::QueryResult;
use super::statement::Statement;
use super::url::ServerUrl;
use super::values::{AnyRow, Kind, Value};
use super::version::refuse_unsupported;
use super::{ConnectError, Connection, Driver, KEEPALIVE};
use crate::error::StoreErrorKind;

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

/// The most statements that stay prepared on a connection.
const KEPT_STATEMENTS: NonZero<usize> = NonZero::new(512).expect("it is not zero");

/// A connection, how its transactions begin, and its prepared statements.
pub(super) struct PostgresSession {
    client: Client,
    begin: &'static str,
    kept: Mutex<LruCache<String, Arc<OnceCell<tokio_postgres::Statement>>>>,
}

impl PostgresSession {
    fn new(client: Client) -> Self {
        Self { client, begin: BEGIN, kept: Mutex::new(LruCache::new(KEPT_STATEMENTS)) }
    }

    pub(super) fn begin(&self) -> &'static str {
        self.begin
    }

    /// Executes statements without parameters.
    pub(super) async fn run(&self, sql: &str) -> QueryResult<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Runs a statement, and reads its rows; returns how many rows it changed or read.
    pub(super) async fn rows(
        &self,
        statement: Statement<'static>,
        take: &mut (dyn FnMut(AnyRow<'_>) -> QueryResult<()> + Send),
    ) -> QueryResult<usize> {
        let Statement { sql, binds, is_kept, is_single } = statement;
        let rows = if is_kept {
            let prepared = self.prepared(sql, &binds).await?;
            let values = binds.into_iter().map(|(_, value)| PostgresParameter(value));
            self.client.query_raw(&prepared, values).await?
        } else {
            // Without a name, in one round trip.
            let values = binds.into_iter();
            let values = values.map(|(kind, value)| (PostgresParameter(value), type_of(kind)));
            self.client.query_typed_raw(&sql, values).await?
        };
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await? {
            take(AnyRow::Postgres(&row))?;
            if is_single {
                // The rest of the answer is read with that of the next statement.
                return Ok(1);
            }
        }
        Ok(usize::try_from(rows.rows_affected().unwrap_or_default()).unwrap_or(usize::MAX))
    }

    /// Prepares a statement, unless it is prepared. Statements that are sent at once prepare the same one once.
    async fn prepared(
        &self,
        sql: String,
        binds: &[(Kind, Value<'_>)],
    ) -> QueryResult<tokio_postgres::Statement> {
        let kept = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(kept.get_or_insert_ref(&sql, Arc::default))
        };
        let prepare = async || {
            let types: Vec<Type> = binds.iter().map(|(kind, _)| type_of(*kind)).collect();
            self.client.prepare_typed(&sql, &types).await
        };
        Ok(kept.get_or_try_init(prepare).await?.clone())
    }

    /// Makes commits survive a crash, also those of single statements where no pooler is in between.
    async fn make_durable(&mut self) -> Result<(), ConnectError> {
        let sql = "SELECT current_setting('synchronous_commit')";
        let setting: String = self.client.query_typed_one(sql, &[]).await?.get(0);
        if setting == "off" {
            self.client.batch_execute("SET synchronous_commit = on").await?;
        }
        let known = BEGINS.iter().find(|(name, _)| *name == setting);
        self.begin = known.map_or(BEGIN, |(_, begin)| begin);
        Ok(())
    }
}

/// The value of a parameter for the driver.
#[derive(Debug)]
struct PostgresParameter(Value<'static>);

impl ToSql for PostgresParameter {
    fn to_sql(
        &self,
        column: &Type,
        bytes: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        write(&self.0, column, bytes)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Writes a value in the binary format. A list is an array without NULL.
fn write(
    value: &Value<'_>,
    column: &Type,
    bytes: &mut BytesMut,
) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
    match value {
        Value::Null => Ok(IsNull::Yes),
        Value::Bool(value) => value.to_sql_checked(column, bytes),
        Value::Integer(value) if *column == Type::INT2 => {
            i16::try_from(*value)?.to_sql_checked(column, bytes)
        }
        Value::Integer(value) => value.to_sql_checked(column, bytes),
        Value::BigInt(value) => value.to_sql_checked(column, bytes),
        Value::Double(value) => value.to_sql_checked(column, bytes),
        Value::Text(text) => text.as_ref().to_sql_checked(column, bytes),
        Value::Binary(value) => value.as_ref().to_sql_checked(column, bytes),
        Value::List(values) => {
            let types::Kind::Array(element) = column.kind() else {
                return Err(format!("a list is not a {column}").into());
            };
            let dimension = ArrayDimension { len: i32::try_from(values.len())?, lower_bound: 1 };
            let write_element = |value: &Value<'_>, bytes: &mut BytesMut| {
                Ok(match write(value, element, bytes)? {
                    IsNull::Yes => postgres_protocol::IsNull::Yes,
                    IsNull::No => postgres_protocol::IsNull::No,
                })
            };
            array_to_sql([dimension], element.oid(), values, write_element, bytes)?;
            Ok(IsNull::No)
        }
    }
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Bool => Type::BOOL,
        Kind::SmallInt => Type::INT2,
        Kind::Integer => Type::INT4,
        Kind::BigInt => Type::INT8,
        Kind::Double => Type::FLOAT8,
        Kind::Text => Type::TEXT,
        Kind::Binary => Type::BYTEA,
        Kind::Unused => Type::UNKNOWN,
        Kind::IntegerList => Type::INT4_ARRAY,
        Kind::BigIntList => Type::INT8_ARRAY,
        Kind::TextList => Type::TEXT_ARRAY,
    }
}

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
        let mut session = PostgresSession::new(client(&config, tls).await?);
        session.make_durable().await?;
        let mut connection = Connection::new(Driver::Postgres(Arc::new(session)));
        refuse_unsupported(&mut connection).await?;
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
pub(crate) async fn foreign_client(
    url: &ServerUrl,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<Client, ConnectError> {
    let config = config(url, host, port, patience);
    let tls = url.encrypted.then(|| encryption(url)).transpose()?;
    match tokio::time::timeout(patience, client(&config, tls)).await {
        Ok(client) => Ok(client?),
        Err(_) => Err(ConnectError::no_answer()),
    }
}

async fn client(
    config: &Config,
    tls: Option<rustls::ClientConfig>,
) -> Result<Client, tokio_postgres::Error> {
    if let Some(tls) = tls {
        let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await?;
        tokio::spawn(connection);
        Ok(client)
    } else {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// Ends the statement that a client of another program's database runs. If that fails, the server ends it after its time.
pub(crate) async fn cancel(url: &ServerUrl, client: &Client) {
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
