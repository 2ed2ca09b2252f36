//! What the imports of a campaign say of its lists and texts.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::positive;
use crate::store::connection::reading;
use crate::store::schema::import;
use crate::store::{Store, StoreError};

/// One import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCount {
    /// The name of its file, or what else it came from.
    pub name: String,
    pub rows: u64,
    pub accepted: u64,
    pub duplicates: u64,
    pub suppressed: u64,
    pub rejected: u64,
    /// Accepted messages in either alphabet, as far as they were counted.
    pub gsm7: u64,
    pub ucs2: u64,
    /// The text of its messages with placeholders, or that of the first one.
    pub text: Option<String>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = import)]
struct Row {
    file: String,
    #[diesel(column_name = row_count)]
    rows: i64,
    accepted: i64,
    duplicates: i64,
    suppressed: i64,
    rejected: i64,
    gsm7: i64,
    ucs2: i64,
    template: Option<String>,
    sample: Option<String>,
}

impl Store {
    /// The imports of these campaigns, oldest first.
    pub async fn lists(&self, campaigns: &[i64]) -> Result<Vec<ListCount>, StoreError> {
        let rows: Vec<Row> = reading!(self, |conn| import::table
            .filter(import::campaign_id.eq_any(campaigns))
            .order(import::id)
            .select(Row::as_select())
            .load(conn))?;
        let lists = rows.into_iter().map(|row| ListCount {
            name: row.file,
            rows: positive(row.rows),
            accepted: positive(row.accepted),
            duplicates: positive(row.duplicates),
            suppressed: positive(row.suppressed),
            rejected: positive(row.rejected),
            gsm7: positive(row.gsm7),
            ucs2: positive(row.ucs2),
            text: row.template.or(row.sample),
        });
        Ok(lists.collect())
    }
}
