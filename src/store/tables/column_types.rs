//! Types of columns that diesel does not know.

use std::ops::Deref;

use diesel::deserialize::{self, FromSql, FromSqlRow, Queryable};
use diesel::sql_types::{BigInt, Integer, Text};
use smsq_message::sms::Timestamp;

use super::campaign_status::CampaignStatus;
use crate::connection::{AnyEngine, Cell};

/// Text that another program wrote and that may not be UTF-8: SQLite stores any bytes in any column, and MySQL in the
/// binary columns of keys. Invalid bytes are replaced.
#[derive(Clone, Debug, PartialEq, Eq, FromSqlRow)]
pub struct LossyText {
    pub(crate) text: String,
    /// Bytes were replaced.
    pub(crate) is_garbled: bool,
}

impl FromSql<Text, AnyEngine> for LossyText {
    fn from_sql(mut cell: Cell<'_>) -> deserialize::Result<Self> {
        Ok(cell.bytes()?.to_vec().into())
    }
}

impl From<Vec<u8>> for LossyText {
    fn from(bytes: Vec<u8>) -> Self {
        let valid = String::from_utf8(bytes);
        Self {
            is_garbled: valid.is_err(),
            text: valid
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        }
    }
}

impl From<String> for LossyText {
    fn from(text: String) -> Self {
        Self { text, is_garbled: false }
    }
}

impl Deref for LossyText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<LossyText> for String {
    fn from(lossy: LossyText) -> Self {
        lossy.text
    }
}

/// Instants are stored as milliseconds since the Unix epoch.
impl FromSql<BigInt, AnyEngine> for Timestamp {
    fn from_sql(cell: Cell<'_>) -> deserialize::Result<Self> {
        i64::from_sql(cell).map(Self::from_millis)
    }
}

impl Queryable<BigInt, AnyEngine> for Timestamp {
    type Row = Self;

    fn build(row: Self) -> deserialize::Result<Self> {
        Ok(row)
    }
}

impl FromSql<Integer, AnyEngine> for CampaignStatus {
    fn from_sql(cell: Cell<'_>) -> deserialize::Result<Self> {
        i32::from_sql(cell).map(Self::of)
    }
}
