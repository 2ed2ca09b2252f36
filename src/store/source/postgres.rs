//! Queries on PostgreSQL. The server writes all values as text; only truth values are changed.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use smsq_message::sms::millis;
use smsq_message::text::mask_values;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Kind, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{QueryError, RowWriter, SourceQuery, check_names};

/// Types of one value with a text that every program writes alike.
const KNOWN: [Type; 23] = [
    Type::BOOL,
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::NUMERIC,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::MONEY,
    Type::OID,
    Type::TEXT,
    Type::VARCHAR,
    Type::BPCHAR,
    Type::CHAR,
    Type::NAME,
    Type::DATE,
    Type::TIME,
    Type::TIMETZ,
    Type::TIMESTAMP,
    Type::TIMESTAMPTZ,
    Type::INTERVAL,
    Type::UUID,
    Type::JSON,
    Type::JSONB,
];

/// The server ends the query of a client that was killed. Servers before PostgreSQL 14 do not have the setting, and those
/// on some systems refuse it.
const CHECK_CLIENT: &str = "SELECT set_config(name, '2000', TRUE) FROM pg_settings \
     WHERE name = 'client_connection_check_interval' AND version() LIKE '%linux%'";

/// Reads a query; returns the names of its columns.
pub(super) async fn read(
    client: &Client,
    query: &SourceQuery<'_>,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, QueryError> {
    let (limit, query) = (query.limit, query.statement());
    let failed = |error: tokio_postgres::Error| failure(&error, limit);
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {}; SET LOCAL datestyle = 'ISO'; {CHECK_CLIENT}",
        millis(limit)
    );
    client.batch_execute(&begin).await.map_err(failed)?;
    // A prepared statement is one statement.
    let statement = client.prepare(query).await.map_err(failed)?;
    let columns = statement.columns();
    let names: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    if names.is_empty() {
        return Err(QueryError::no_columns());
    }
    check_names(&names)?;
    if let Some(column) = columns.iter().find(|column| !is_known(column.type_())) {
        let (name, type_name) = (column.name(), column.type_().name());
        return Err(QueryError::of_type(name, type_name, &format!("{name}::text")));
    }
    let is_truth: Vec<bool> = columns.iter().map(|column| *column.type_() == Type::BOOL).collect();
    let stream = client.simple_query_raw(query).await.map_err(failed)?;
    let mut stream = pin!(stream);
    while let Some(message) = stream.try_next().await.map_err(failed)? {
        let SimpleQueryMessage::Row(row) = message else {
            continue;
        };
        let cells: Vec<Option<&str>> = is_truth
            .iter()
            .enumerate()
            .map(|(index, is_truth)| match row.get(index) {
                Some("t") if *is_truth => Some("true"),
                Some("f") if *is_truth => Some("false"),
                value => value,
            })
            .collect();
        write(&names, &cells)?;
    }
    Ok(names)
}

fn is_known(of: &Type) -> bool {
    match of.kind() {
        Kind::Enum(_) => true,
        Kind::Domain(inner) => is_known(inner),
        _ => KNOWN.contains(of) || of.name() == "citext",
    }
}

fn failure(error: &tokio_postgres::Error, limit: Duration) -> QueryError {
    if error.code() == Some(&SqlState::QUERY_CANCELED) {
        return QueryError::too_slow(limit);
    }
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(words), _) => QueryError {
            hint: words.hint().map(mask_values),
            ..QueryError::of_database(words.message(), error.code().map(SqlState::code))
        },
        (None, Some(cause)) => QueryError::new(format!("{error}: {cause}")),
        (None, None) => QueryError::new(error.to_string()),
    }
}
