//! Text that another program wrote and that may not be UTF-8: SQLite stores any bytes in any column, and one such
//! row must not stop the others.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::mysql::{Mysql, MysqlValue};
use diesel::pg::{Pg, PgValue};
use diesel::sql_types::{Binary, Text};
use diesel::sqlite::{Sqlite, SqliteValue};

/// Text in which whatever is not UTF-8 was replaced.
#[derive(Clone, Debug, PartialEq, Eq, FromSqlRow)]
pub(super) struct LossyText {
    pub(super) text: String,
    /// Something was replaced.
    pub(super) is_garbled: bool,
}

impl FromSql<Text, Sqlite> for LossyText {
    fn from_sql(value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, Sqlite>>::from_sql(value)?;
        Ok(bytes.into())
    }
}

impl FromSql<Text, Pg> for LossyText {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(value.as_bytes().to_vec().into())
    }
}

impl FromSql<Text, Mysql> for LossyText {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        Ok(value.as_bytes().to_vec().into())
    }
}

impl From<Vec<u8>> for LossyText {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self {
                text,
                is_garbled: false,
            },
            Err(error) => Self {
                text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                is_garbled: true,
            },
        }
    }
}

impl From<LossyText> for String {
    fn from(lossy: LossyText) -> Self {
        lossy.text
    }
}
