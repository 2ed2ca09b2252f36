//! Queries on MySQL and MariaDB. The server writes all values as text.

use std::time::Duration;

use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Column, Conn, Error, Value};
use smsq_message::sms::millis;

use super::{QueryError, RowWriter, SourceQuery, check_names};

/// The character set of bytes.
const BINARY: u16 = 63;
/// Errors of a query that took too long: of MySQL and of MariaDB.
const TOO_SLOW: [u16; 2] = [3024, 1969];

/// Reads a query; returns the names of its columns.
pub(super) async fn read(
    mut conn: Conn,
    query: &SourceQuery<'_>,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, QueryError> {
    let (limit, query) = (query.limit, query.statement());
    let failed = |error: Error| failure(error, limit);
    let version: Option<String> = conn.query_first("SELECT VERSION()").await.map_err(failed)?;
    let setting = if version.is_some_and(|version| version.contains("MariaDB")) {
        format!("SET SESSION max_statement_time = {}", limit.as_secs_f64())
    } else {
        format!("SET SESSION max_execution_time = {}", millis(limit))
    };
    conn.query_drop(setting).await.map_err(failed)?;
    for begin in ["SET SESSION TRANSACTION READ ONLY", "START TRANSACTION READ ONLY"] {
        conn.query_drop(begin).await.map_err(failed)?;
    }
    // A prepared statement is one statement. What returns nothing, such as a `CALL`, is not run: it could end the
    // transaction that only reads.
    let statement = conn.prep(query).await.map_err(failed)?;
    let returns_rows = !statement.columns().is_empty();
    conn.close(statement).await.map_err(failed)?;
    if !returns_rows {
        return Err(QueryError::no_columns());
    }
    let mut result = conn.query_iter(query).await.map_err(failed)?;
    let columns = result.columns_ref();
    let names: Vec<String> = columns.iter().map(|column| column.name_str().into_owned()).collect();
    check_names(&names)?;
    if let Some(column) = columns.iter().find(|column| !is_known(column)) {
        let name = column.name_str();
        let type_name =
            format!("{:?}", column.column_type()).trim_start_matches("MYSQL_TYPE_").to_lowercase();
        let cast = format!("CAST({name} AS CHAR)");
        return Err(QueryError::of_type(&name, &type_name, &cast));
    }
    while let Some(row) = result.next().await.map_err(failed)? {
        let mut cells = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            cells.push(match row.as_ref(index) {
                Some(Value::Bytes(bytes)) => {
                    let text = std::str::from_utf8(bytes);
                    Some(text.map_err(|_| QueryError::not_utf8(name))?)
                }
                _ => None,
            });
        }
        write(&names, &cells)?;
    }
    Ok(names)
}

/// Ends what another connection runs. If that fails, the server ends it after its time.
pub(super) async fn kill(mut conn: Conn, id: u32) {
    if let Err(error) = conn.query_drop(format!("KILL QUERY {id}")).await {
        tracing::debug!(%error, "a query could not be ended");
    }
}

fn is_known(column: &Column) -> bool {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_BIT
        | ColumnType::MYSQL_TYPE_GEOMETRY
        | ColumnType::MYSQL_TYPE_VECTOR => false,
        ColumnType::MYSQL_TYPE_VARCHAR
        | ColumnType::MYSQL_TYPE_VAR_STRING
        | ColumnType::MYSQL_TYPE_STRING
        | ColumnType::MYSQL_TYPE_TINY_BLOB
        | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
        | ColumnType::MYSQL_TYPE_LONG_BLOB
        | ColumnType::MYSQL_TYPE_BLOB => column.character_set() != BINARY,
        _ => true,
    }
}

fn failure(error: Error, limit: Duration) -> QueryError {
    match error {
        Error::Server(error) if TOO_SLOW.contains(&error.code) => QueryError::too_slow(limit),
        Error::Server(error) => QueryError::of_database(&error.message, Some(&error.state)),
        other => QueryError::new(other.to_string().replace("Input/output error: ", "")),
    }
}
