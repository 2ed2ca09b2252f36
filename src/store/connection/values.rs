//! Values of parameters and of rows, in the form that each driver has them. The types of columns are checked.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::{IntErrorKind, ParseIntError};
use std::ops::Range;

use diesel::QueryResult;
use diesel::deserialize::{self, FromSql, FromSqlRef};
use diesel::query_builder::BindCollector;
use diesel::result::Error;
use diesel::row::{Field, PartialRow, Row, RowIndex, RowSealed};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{self, HasSqlType};
use mysql_async::Value as MysqlValue;
use mysql_async::consts::ColumnType;
use rusqlite::types::ValueRef;
use tokio_postgres::Column;
use tokio_postgres::types::Type;

use super::dialect::AnyEngine;
use crate::positive;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    SmallInt,
    Integer,
    BigInt,
    Double,
    Text,
    Binary,
    /// A type that the store does not use, and that diesel asks for.
    Unused,
    IntegerList,
    BigIntList,
    TextList,
}

macro_rules! kinds {
    ($($type:ident => $kind:ident,)*) => {$(
        impl HasSqlType<sql_types::$type> for AnyEngine {
            fn metadata((): &mut ()) -> Kind {
                Kind::$kind
            }
        }
    )*};
}

kinds! {
    Bool => Bool, SmallInt => SmallInt, Integer => Integer, BigInt => BigInt, Double => Double,
    Text => Text, Binary => Binary, Float => Unused, Date => Unused, Time => Unused,
    Timestamp => Unused,
}

/// All values of a list as one parameter: an array of PostgreSQL.
#[derive(Debug)]
pub struct Array<ST>(PhantomData<ST>);

impl<ST> HasSqlType<Array<ST>> for AnyEngine
where
    Self: HasSqlType<ST>,
{
    fn metadata(lookup: &mut ()) -> Kind {
        match <Self as HasSqlType<ST>>::metadata(lookup) {
            Kind::Integer => Kind::IntegerList,
            Kind::BigInt => Kind::BigIntList,
            Kind::Text => Kind::TextList,
            _ => Kind::Unused,
        }
    }
}

/// The value of a parameter. What the query owns is borrowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'q> {
    Null,
    Bool(bool),
    Integer(i32),
    BigInt(i64),
    Double(f64),
    Text(Cow<'q, str>),
    Binary(Cow<'q, [u8]>),
    List(Vec<Value<'q>>),
}

impl Value<'_> {
    pub(super) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(value) => Value::Integer(value),
            Self::BigInt(value) => Value::BigInt(value),
            Self::Double(value) => Value::Double(value),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Binary(bytes) => Value::Binary(Cow::Owned(bytes.into_owned())),
            Self::List(list) => Value::List(list.into_iter().map(Value::into_owned).collect()),
        }
    }
}

/// The values of a statement's parameters, in order.
#[derive(Clone, Debug, Default)]
pub struct Binds<'q>(pub(super) Vec<(Kind, Value<'q>)>);

impl<'q> BindCollector<'q, AnyEngine> for Binds<'q> {
    type Buffer = Value<'q>;

    fn push_bound_value<T, U>(&mut self, bind: &'q U, lookup: &mut ()) -> QueryResult<()>
    where
        AnyEngine: HasSqlType<T>,
        U: ToSql<T, AnyEngine> + ?Sized + 'q,
    {
        let kind = <AnyEngine as HasSqlType<T>>::metadata(lookup);
        let mut output = Output::new(Value::Null, lookup);
        let is_null = bind.to_sql(&mut output).map_err(Error::SerializationError)?;
        let value = match is_null {
            IsNull::No => output.into_inner(),
            IsNull::Yes => Value::Null,
        };
        self.0.push((kind, value));
        Ok(())
    }

    fn push_null_value(&mut self, kind: Kind) -> QueryResult<()> {
        self.0.push((kind, Value::Null));
        Ok(())
    }
}

macro_rules! to_sql {
    ($($type:ident, $rust:ty, |$value:ident| $made:expr;)*) => {$(
        impl ToSql<sql_types::$type, AnyEngine> for $rust {
            fn to_sql<'b>(&'b self, output: &mut Output<'b, '_, AnyEngine>) -> serialize::Result {
                let $value = self;
                output.set_value($made);
                Ok(IsNull::No)
            }
        }
    )*};
}

to_sql! {
    Bool, bool, |value| Value::Bool(*value);
    SmallInt, i16, |value| Value::Integer(i32::from(*value));
    Integer, i32, |value| Value::Integer(*value);
    BigInt, i64, |value| Value::BigInt(*value);
    Double, f64, |value| Value::Double(*value);
    Text, str, |text| Value::Text(Cow::Borrowed(text));
    Binary, [u8], |bytes| Value::Binary(Cow::Borrowed(bytes));
}

impl<ST, I> ToSql<Array<ST>, AnyEngine> for Vec<I>
where
    AnyEngine: HasSqlType<ST>,
    I: ToSql<ST, AnyEngine>,
{
    fn to_sql<'b>(&'b self, output: &mut Output<'b, '_, AnyEngine>) -> serialize::Result {
        let mut list = Binds(Vec::with_capacity(self.len()));
        for item in self {
            list.push_bound_value::<ST, I>(item, output.metadata_lookup())?;
        }
        output.set_value(Value::List(list.0.into_iter().map(|(_, value)| value).collect()));
        Ok(IsNull::No)
    }
}

/// A value in a row, as its driver has it. It is read as the type of its column only; SQLite converts between types.
#[derive(Clone, Debug)]
pub enum Cell<'a> {
    /// In the binary format.
    Postgres(&'a Type, &'a [u8]),
    Mysql(ColumnType, &'a MysqlValue),
    Sqlite(ValueRef<'a>),
    /// A number that is read as text.
    Written(String),
}

impl Cell<'_> {
    fn integer(&self) -> deserialize::Result<i64> {
        Ok(match self {
            Self::Postgres(column, bytes) => match **column {
                Type::BOOL => i64::from(bytes != &[0]),
                Type::INT2 => i64::from(i16::from_be_bytes((*bytes).try_into()?)),
                Type::INT4 => i64::from(i32::from_be_bytes((*bytes).try_into()?)),
                Type::INT8 => i64::from_be_bytes((*bytes).try_into()?),
                _ => return Err(self.is_not("a whole number")),
            },
            Self::Mysql(_, MysqlValue::Int(value)) | Self::Sqlite(ValueRef::Integer(value)) => {
                *value
            }
            Self::Mysql(_, MysqlValue::UInt(value)) => i64::try_from(*value)?,
            // A sum; or a column that the operator changed, whose fraction is left out.
            Self::Mysql(
                ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL,
                MysqlValue::Bytes(bytes),
            ) => std::str::from_utf8(bytes)?.split('.').next().unwrap_or_default().parse()?,
            #[expect(clippy::cast_possible_truncation, reason = "as SQLite does")]
            Self::Sqlite(ValueRef::Real(value)) => *value as i64,
            Self::Sqlite(ValueRef::Text(text) | ValueRef::Blob(text)) => leading_integer(text),
            _ => return Err(self.is_not("a whole number")),
        })
    }

    fn short_integer(&self) -> deserialize::Result<i32> {
        let value = self.integer()?;
        match self {
            // Another program may have written any number; one that is too large must not keep others from being read.
            #[expect(clippy::cast_possible_truncation, reason = "as SQLite does")]
            Self::Sqlite(_) => Ok(value as i32),
            _ => Ok(value.try_into()?),
        }
    }

    fn double(&self) -> deserialize::Result<f64> {
        Ok(match self {
            Self::Postgres(column, bytes) if **column == Type::FLOAT8 => {
                f64::from_be_bytes((*bytes).try_into()?)
            }
            Self::Mysql(_, MysqlValue::Double(value)) | Self::Sqlite(ValueRef::Real(value)) => {
                *value
            }
            #[expect(clippy::cast_precision_loss, reason = "as SQLite does")]
            Self::Sqlite(ValueRef::Integer(value)) => *value as f64,
            _ => return Err(self.is_not("a number")),
        })
    }

    /// The bytes of a text.
    pub(crate) fn bytes(&mut self) -> deserialize::Result<&[u8]> {
        let number = match self {
            Self::Sqlite(ValueRef::Integer(value)) => Some(value.to_string()),
            Self::Sqlite(ValueRef::Real(value)) => Some(value.to_string()),
            _ => None,
        };
        if let Some(number) = number {
            *self = Self::Written(number);
        }
        Ok(match self {
            Self::Postgres(column, bytes) if is_text(column) => bytes,
            Self::Mysql(_, MysqlValue::Bytes(bytes)) => bytes,
            Self::Sqlite(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
            Self::Written(text) => text.as_bytes(),
            _ => return Err(self.is_not("a text")),
        })
    }

    fn is_not(&self, expected: &str) -> Box<dyn std::error::Error + Send + Sync> {
        let found = match self {
            Self::Postgres(column, _) => column.name().to_owned(),
            Self::Mysql(column, _) => format!("{column:?}"),
            Self::Sqlite(value) => value.data_type().to_string(),
            Self::Written(_) => "TEXT".to_owned(),
        };
        format!("a column of type {found} is not {expected}").into()
    }
}

fn is_text(column: &Type) -> bool {
    matches!(*column, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::BYTEA)
}

/// The number at the start of a text, as SQLite converts it; 0 without one.
fn leading_integer(text: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_start();
    let digits = text.trim_start_matches(['+', '-']);
    let sign = text.len() - digits.len();
    let end = digits.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(digits.len());
    text[..sign + end].parse().unwrap_or_else(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        IntErrorKind::NegOverflow => i64::MIN,
        _ => 0,
    })
}

macro_rules! from_sql {
    ($($type:ident, $rust:ty, |$cell:ident| $value:expr;)*) => {$(
        impl FromSql<sql_types::$type, AnyEngine> for $rust {
            fn from_sql($cell: Cell<'_>) -> deserialize::Result<Self> {
                Ok($value)
            }
        }
    )*};
}

from_sql! {
    Bool, bool, |cell| cell.integer()? != 0;
    SmallInt, i16, |cell| i16::try_from(cell.integer()?)?;
    Integer, i32, |cell| cell.short_integer()?;
    BigInt, i64, |cell| cell.integer()?;
    BigInt, u64, |cell| positive(cell.integer()?);
    Double, f64, |cell| cell.double()?;
}

impl<'a> FromSqlRef<'a, sql_types::Text, AnyEngine> for &'a str {
    fn from_sql(cell: &'a mut Cell<'_>) -> deserialize::Result<Self> {
        Ok(std::str::from_utf8(cell.bytes()?)?)
    }
}

impl<'a> FromSqlRef<'a, sql_types::Binary, AnyEngine> for &'a [u8] {
    fn from_sql(cell: &'a mut Cell<'_>) -> deserialize::Result<Self> {
        cell.bytes()
    }
}

/// A row of any driver.
#[derive(Clone, Copy)]
pub(super) enum AnyRow<'a> {
    Postgres(&'a tokio_postgres::Row),
    Mysql(&'a mysql_async::Row),
    Sqlite(&'a rusqlite::Row<'a>),
}

impl std::fmt::Debug for AnyRow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rows have phones.
        f.debug_struct("AnyRow").finish_non_exhaustive()
    }
}

impl RowSealed for AnyRow<'_> {}

impl<'a> Row<'a, AnyEngine> for AnyRow<'a> {
    type Field<'f>
        = AnyField<'f>
    where
        'a: 'f,
        Self: 'f;
    type InnerPartialRow = Self;

    fn field_count(&self) -> usize {
        match self {
            Self::Postgres(row) => row.len(),
            Self::Mysql(row) => row.len(),
            Self::Sqlite(row) => row.as_ref().column_count(),
        }
    }

    fn get<'b, I>(&'b self, index: I) -> Option<AnyField<'b>>
    where
        'a: 'b,
        Self: RowIndex<I>,
    {
        let index = self.idx(index)?;
        Some(AnyField { row: *self, index })
    }

    fn partial_row(&self, range: Range<usize>) -> PartialRow<'_, Self> {
        PartialRow::new(self, range)
    }
}

impl RowIndex<usize> for AnyRow<'_> {
    fn idx(&self, index: usize) -> Option<usize> {
        (index < self.field_count()).then_some(index)
    }
}

impl<'n> RowIndex<&'n str> for AnyRow<'_> {
    fn idx(&self, name: &'n str) -> Option<usize> {
        match self {
            Self::Postgres(row) => row.columns().iter().position(|column| column.name() == name),
            Self::Mysql(row) => {
                row.columns_ref().iter().position(|column| column.name_str() == name)
            }
            Self::Sqlite(row) => row.as_ref().column_index(name).ok(),
        }
    }
}

/// A field of a row.
#[derive(Debug)]
pub(super) struct AnyField<'a> {
    row: AnyRow<'a>,
    index: usize,
}

impl<'a> Field<'a, AnyEngine> for AnyField<'a> {
    fn field_name(&self) -> Option<&str> {
        match self.row {
            AnyRow::Postgres(row) => row.columns().get(self.index).map(Column::name),
            AnyRow::Mysql(row) => {
                let column = row.columns_ref().get(self.index)?;
                std::str::from_utf8(column.name_ref()).ok()
            }
            AnyRow::Sqlite(row) => row.as_ref().column_name(self.index).ok(),
        }
    }

    fn value(&self) -> Option<Cell<'_>> {
        match self.row {
            AnyRow::Postgres(row) => {
                row.get::<_, Option<PostgresCell<'_>>>(self.index).map(|PostgresCell(bytes)| {
                    Cell::Postgres(row.columns()[self.index].type_(), bytes)
                })
            }
            AnyRow::Mysql(row) => match row.as_ref(self.index)? {
                MysqlValue::NULL => None,
                value => Some(Cell::Mysql(row.columns_ref()[self.index].column_type(), value)),
            },
            AnyRow::Sqlite(row) => match row.get_ref(self.index) {
                Err(_) | Ok(ValueRef::Null) => None,
                Ok(value) => Some(Cell::Sqlite(value)),
            },
        }
    }
}

/// The bytes of a value of any type.
struct PostgresCell<'a>(&'a [u8]);

impl<'a> tokio_postgres::types::FromSql<'a> for PostgresCell<'a> {
    fn from_sql(
        _: &Type,
        bytes: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(column: &Type, bytes: &[u8]) -> Option<i64> {
        Cell::Postgres(column, bytes).integer().ok()
    }

    #[test]
    fn number_is_read_by_the_type_of_its_column() {
        assert_eq!(integer(&Type::BOOL, &[1]), Some(1));
        assert_eq!(integer(&Type::INT2, &(-2_i16).to_be_bytes()), Some(-2));
        assert_eq!(integer(&Type::INT4, &7_i32.to_be_bytes()), Some(7));
        assert_eq!(integer(&Type::INT8, &i64::MIN.to_be_bytes()), Some(i64::MIN));
        // Of the length of a whole number.
        for column in [Type::TEXT, Type::NUMERIC, Type::FLOAT8] {
            assert_eq!(integer(&column, &7_i64.to_be_bytes()), None, "{column}");
        }
        assert_eq!(integer(&Type::INT8, &[0; 4]), None);
        let text = MysqlValue::Bytes(b"12".to_vec());
        assert!(Cell::Mysql(ColumnType::MYSQL_TYPE_VAR_STRING, &text).integer().is_err());
        let sum = Cell::Mysql(ColumnType::MYSQL_TYPE_NEWDECIMAL, &text).integer();
        assert_eq!(sum.expect("a sum"), 12);
        let decimal = MysqlValue::Bytes(b"-7.90".to_vec());
        let changed = Cell::Mysql(ColumnType::MYSQL_TYPE_NEWDECIMAL, &decimal).integer();
        assert_eq!(changed.expect("a number"), -7);
        assert!(Cell::Postgres(&Type::INT4, b"abcd").bytes().is_err());
    }

    #[test]
    fn text_is_converted_to_a_number_as_sqlite_does() {
        let sqlite = rusqlite::Connection::open_in_memory().expect("a database");
        for text in
            ["12", " 7", "-3 apples", "+5", "1.9", "apples", "", "--1", "99999999999999999999"]
        {
            let select = "SELECT CAST(? AS INTEGER)";
            let expected: i64 = sqlite.query_row(select, [text], |row| row.get(0)).expect("a row");
            assert_eq!(leading_integer(text.as_bytes()), expected, "{text}");
        }
    }
}
