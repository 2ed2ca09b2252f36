//! Statements of others, for `smsq prove`: its judge reads the tables with SQL of its own.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{Nullable, Text};
use smsq_process::boxed;

use super::Store;
use super::connection::transaction;
use super::error::StoreError;

/// A row with one column.
#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

impl Store {
    /// The values of column `value`, a text, that are not NULL.
    #[boxed]
    pub async fn query(&self, sql: &str) -> Result<Vec<String>, StoreError> {
        let rows: Vec<TextRow> = self.read(diesel::sql_query(sql)).await?;
        Ok(rows.into_iter().filter_map(|row| row.value).collect())
    }

    /// Holds the lock of a SQLite file for this long, like another program. Blocks its thread.
    #[boxed]
    pub async fn hold_lock(&self, span: Duration) -> Result<(), StoreError> {
        transaction!(self, |connection| async {
            connection.run("SELECT 1").await?;
            std::thread::sleep(span);
            Ok(())
        })
    }
}
