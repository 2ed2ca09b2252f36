//! An instant in a query of diesel is its milliseconds since the Unix epoch. The language lets only the crate of the
//! instant say so; all else about columns is in the store.

use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::sql_types::SqlType;

use crate::sms::Timestamp;

impl<ST> AsExpression<ST> for Timestamp
where
    ST: SqlType + TypedExpressionType,
    i64: AsExpression<ST>,
{
    type Expression = <i64 as AsExpression<ST>>::Expression;

    fn as_expression(self) -> Self::Expression {
        self.as_millis().as_expression()
    }
}
