//! Queries on SQLite files.

use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::deserialize::FromSql;
use diesel::result::Error;
use diesel::row::{Field as _, Row};
use diesel::sql_types::Binary;
use diesel::sqlite::{Sqlite, SqliteConnection, SqliteType};

use super::{QueryError, RowWriter, check_names};
use crate::store::connection::{SqliteFile, in_place, message};

/// Reads a query; returns the names of its columns. The limit is checked at each row.
pub(super) fn read(
    file: &SqliteFile,
    query: &str,
    limit: Duration,
    write: &mut RowWriter<'_>,
) -> Result<Vec<String>, QueryError> {
    in_place(|| {
        let mut connection = file
            .connect_to_foreign()
            .map_err(|error| QueryError::new(error.reason()))?;
        // Also where the query has no rows.
        let names = names(&mut connection, query)?;
        let end = Instant::now().checked_add(limit);
        let mut is_checked = false;
        let rows = LoadConnection::load(&mut connection, diesel::sql_query(query));
        for row in rows.map_err(failure)? {
            let row = row.map_err(failure)?;
            if !is_checked {
                // As a part of another query, columns with the same name have got others.
                check_names(&names_of(&row))?;
                is_checked = true;
            }
            if end.is_some_and(|end| Instant::now() > end) {
                return Err(QueryError::too_slow(limit));
            }
            let mut values = Vec::with_capacity(names.len());
            for (index, name) in names.iter().enumerate() {
                let field = row.get(index);
                let value = field.as_ref().and_then(|field| field.value());
                values.push(match value {
                    None => None,
                    Some(value) if value.value_type() == Some(SqliteType::Binary) => {
                        let cast = format!("CAST({name} AS TEXT)");
                        return Err(QueryError::of_type(name, "blob", &cast));
                    }
                    Some(value) => {
                        let bytes: Vec<u8> = FromSql::<Binary, Sqlite>::from_sql(value)
                            .map_err(|error| QueryError::new(error.to_string()))?;
                        let text = String::from_utf8(bytes);
                        Some(text.map_err(|_| QueryError::not_utf8(name))?)
                    }
                });
            }
            let cells: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            write(&names, &cells)?;
        }
        Ok(names)
    })
}

/// The names of the columns of a query. SQLite would ignore what follows a first statement, so only what can be a part of
/// another query is one.
fn names(connection: &mut SqliteConnection, query: &str) -> Result<Vec<String>, QueryError> {
    let part = format!(
        "SELECT smsq.* FROM (SELECT 1) LEFT JOIN (SELECT * FROM (\n{query}\n) LIMIT 0) AS smsq"
    );
    let reason = match first_names(connection, &part) {
        Ok(names) => {
            check_names(&names)?;
            return Ok(names);
        }
        Err(reason) => reason,
    };
    // The words of the database for the statement as it was given.
    match first_names(connection, query) {
        Err(error) => Err(failure(error)),
        Ok(_) if message(&reason).contains("syntax error") => Err(QueryError::hinted(
            "the query is not a single `SELECT`",
            "remove what follows the first `;`",
        )),
        Ok(_) => Err(failure(reason)),
    }
}

/// The names of the columns of the first row, if there is one.
fn first_names(connection: &mut SqliteConnection, query: &str) -> Result<Vec<String>, Error> {
    let mut rows = LoadConnection::load(connection, diesel::sql_query(query))?;
    let Some(row) = rows.next().transpose()? else {
        return Ok(Vec::new());
    };
    Ok(names_of(&row))
}

fn names_of<'a>(row: &impl Row<'a, Sqlite>) -> Vec<String> {
    let name = |index| Some(row.get(index)?.field_name()?.to_owned());
    (0..row.field_count()).filter_map(name).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn failure(error: Error) -> QueryError {
    QueryError::new(message(&error))
}
