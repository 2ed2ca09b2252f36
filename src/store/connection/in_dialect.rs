//! SQL that each engine has its own of, as a part of a query or a whole one.

use std::marker::PhantomData;

use diesel::QueryResult;
use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, TypedExpressionType, ValidGrouping,
    is_aggregate,
};
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Text, Untyped};

use super::dialect::{AnyEngine, Dialect};

/// The SQL that `text` writes in a dialect, an expression of type `ST` or with [`Untyped`] a statement.
pub(crate) struct InDialect<ST, F> {
    text: F,
    values: Vec<String>,
    sql_type: PhantomData<ST>,
}

/// An expression of the SQL type `ST`. It must not depend on anything but the dialect.
pub(crate) fn in_dialect<ST, F>(text: F) -> InDialect<ST, F>
where
    F: Fn(Dialect) -> String,
{
    InDialect { text, values: Vec::new(), sql_type: PhantomData }
}

/// A statement, with the values of its parameters.
pub(crate) fn statement_in_dialect<F>(text: F, values: Vec<String>) -> InDialect<Untyped, F>
where
    F: Fn(Dialect) -> String,
{
    InDialect { text, values, sql_type: PhantomData }
}

impl<ST, F: Fn(Dialect) -> String> QueryFragment<AnyEngine> for InDialect<ST, F> {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        let sql = (self.text)(pass.backend().0);
        pass.push_sql(&sql);
        for value in &self.values {
            pass.push_bind_param_value_only::<Text, _>(value)?;
        }
        Ok(())
    }
}

impl<ST: TypedExpressionType, F> Expression for InDialect<ST, F> {
    type SqlType = ST;
}

impl<ST, F, T> AppearsOnTable<T> for InDialect<ST, F> where Self: Expression {}

impl<ST, F, T> SelectableExpression<T> for InDialect<ST, F> where Self: Expression {}

impl<ST, F, G> ValidGrouping<G> for InDialect<ST, F> {
    type IsAggregate = is_aggregate::No;
}

impl<ST, F> QueryId for InDialect<ST, F> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<F> Query for InDialect<Untyped, F> {
    type SqlType = Untyped;
}
