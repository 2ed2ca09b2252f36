//! Types of columns that diesel does not know.

use std::ops::Deref;

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, Text};
use smsq_message::sms::Timestamp;

use crate::connection::{AnyEngine, Cell, Value};

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

impl ToSql<BigInt, AnyEngine> for Timestamp {
    fn to_sql<'b>(&'b self, output: &mut Output<'b, '_, AnyEngine>) -> serialize::Result {
        output.set_value(Value::BigInt(self.as_millis()));
        Ok(IsNull::No)
    }
}

/// An enum that is stored as a number, which its function `of` reads.
macro_rules! stored_as_number {
    ($type:ty) => {
        const _: () = {
            use diesel::deserialize::{self, FromSql};
            use diesel::serialize::{self, IsNull, Output, ToSql};
            use diesel::sql_types::Integer;

            use crate::connection::{AnyEngine, Cell, Value};

            impl FromSql<Integer, AnyEngine> for $type {
                fn from_sql(cell: Cell<'_>) -> deserialize::Result<Self> {
                    i32::from_sql(cell).map(Self::of)
                }
            }

            impl ToSql<Integer, AnyEngine> for $type {
                fn to_sql<'b>(
                    &'b self,
                    output: &mut Output<'b, '_, AnyEngine>,
                ) -> serialize::Result {
                    output.set_value(Value::Integer(*self as i32));
                    Ok(IsNull::No)
                }
            }
        };
    };
}
pub(crate) use stored_as_number;
