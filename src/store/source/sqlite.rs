//! Queries on SQLite files. SQLite blocks the thread, and asks now and then whether the query is over.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode, Statement};
use smsq_process::jobs::Until;

use super::{QueryError, RowWriter, SourceQuery, check_names};
use crate::connection::{SqliteFile, in_place, sqlite_message};

/// How many steps of its machine SQLite makes, at most a millisecond, before it asks whether the query is over.
const STEPS: i32 = 10_000;

/// Reads a query; returns the names of its columns.
pub(super) fn read(
    file: &SqliteFile,
    query: &SourceQuery<'_>,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, QueryError> {
    in_place(|| {
        let connection =
            file.connect_to_foreign().map_err(|error| QueryError::new(error.reason()))?;
        let until = query.until.limited(query.limit);
        let asked = until.clone();
        connection
            .progress_handler(STEPS, Some(move || asked.check().is_err()))
            .map_err(|error| failure(&error))?;
        let read = read_rows(&connection, query.statement(), &until, write);
        read.map_err(|error| match until.check() {
            Err(over) if error.is_over => query.ended(over),
            _ => error.error,
        })
    })
}

/// Why the rows were not read, and whether that is because the query is over.
struct ReadError {
    error: QueryError,
    is_over: bool,
}

impl<E: Into<QueryError>> From<E> for ReadError {
    fn from(error: E) -> Self {
        Self { error: error.into(), is_over: false }
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self {
            is_over: error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted),
            error: failure(&error),
        }
    }
}

fn read_rows(
    connection: &Connection,
    query: &str,
    until: &Until,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, ReadError> {
    let mut statement = prepare(connection, query)?;
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    check_names(&names)?;
    // SQLite itself writes numbers as text.
    let mut number = connection.prepare("SELECT CAST(?1 AS TEXT)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // Also where the rows take less steps than SQLite makes before it asks.
        if let Err(over) = until.check() {
            return Err(ReadError { error: QueryError::new(over.to_string()), is_over: true });
        }
        let mut values = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            values.push(match row.get_ref(index)? {
                ValueRef::Null => None,
                ValueRef::Integer(value) => Some(value.to_string()),
                ValueRef::Real(value) => Some(number.query_row([value], |row| row.get(0))?),
                ValueRef::Text(bytes) => {
                    let text =
                        std::str::from_utf8(bytes).map_err(|_| QueryError::not_utf8(name))?;
                    Some(text.to_owned())
                }
                ValueRef::Blob(_) => {
                    let cast = format!("CAST({name} AS TEXT)");
                    return Err(QueryError::of_type(name, "blob", &cast).into());
                }
            });
        }
        let cells: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        write(&names, &cells)?;
    }
    Ok(names)
}

/// Prepares a query. Fails if it is more than one statement, if it returns nothing, or if it writes.
fn prepare<'a>(connection: &'a Connection, query: &str) -> Result<Statement<'a>, ReadError> {
    let statement = connection.prepare(query).map_err(|error| match error {
        Error::MultipleStatement => ReadError::from(QueryError::hinted(
            "the query is not a single `SELECT`",
            "remove what follows the first `;`",
        )),
        error => error.into(),
    })?;
    if !statement.readonly() {
        return Err(QueryError::hinted(
            "the query writes, and a source is read-only",
            "use a `SELECT`",
        )
        .into());
    }
    if statement.column_count() == 0 {
        return Err(QueryError::no_columns().into());
    }
    Ok(statement)
}

fn failure(error: &Error) -> QueryError {
    let words = sqlite_message(error);
    let of_query = ["syntax error", "no such ", "unrecognized token"];
    let is_of_query = of_query.iter().any(|part| words.contains(part));
    QueryError::of_database(&words, is_of_query.then_some("42000"))
}
