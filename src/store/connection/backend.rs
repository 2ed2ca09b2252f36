//! One backend of diesel for all engines. The dialect is a value, so each query is compiled once.

use diesel::QueryResult;
use diesel::backend::{
    Backend, DieselReserveSpecialization, SqlDialect, TrustedBackend, sql_dialect,
};
use diesel::expression::{Concat, array_comparison};
use diesel::query_builder::{
    All, AstPass, BoxedLimitOffsetClause, Distinct, IntoBoxedClause, LimitClause,
    LimitOffsetClause, NoLimitClause, NoOffsetClause, OffsetClause, ParenthesisWrapper,
    QueryBuilder, QueryFragment, Replace, SupportsCombinationClause, Union,
};
use diesel::serialize::ToSql;
use diesel::sql_types::{HasSqlType, SingleValue, TypeMetadata};

use super::dialect::{AnyEngine, Dialect};
use super::values::{Array, Binds, Cell, Kind};

impl Backend for AnyEngine {
    type QueryBuilder = SqlBuilder;
    type RawValue<'a> = Cell<'a>;
    type BindCollector<'a> = Binds<'a>;
}

impl TypeMetadata for AnyEngine {
    type TypeMetadata = Kind;
    type MetadataLookup = ();
}

/// Marks what of the SQL is written by this module.
#[derive(Debug)]
pub struct OfDialect;

impl sql_dialect::on_conflict_clause::SupportsOnConflictClause for OfDialect {}
impl sql_dialect::on_conflict_clause::PgLikeOnConflictClause for OfDialect {}

impl SqlDialect for AnyEngine {
    type ReturningClause = sql_dialect::returning_clause::PgLikeReturningClause;
    type OnConflictClause = OfDialect;
    type InsertWithDefaultKeyword = sql_dialect::default_keyword_for_insert::IsoSqlDefaultKeyword;
    type BatchInsertSupport = sql_dialect::batch_insert_support::PostgresLikeBatchInsertSupport;
    type ConcatClause = OfDialect;
    type DefaultValueClauseForInsert = sql_dialect::default_value_clause::AnsiDefaultValueClause;
    type EmptyFromClauseSyntax = sql_dialect::from_clause_syntax::AnsiSqlFromClauseSyntax;
    type SelectStatementSyntax = sql_dialect::select_statement_syntax::AnsiSqlSelectStatement;
    type ExistsSyntax = sql_dialect::exists_syntax::AnsiSqlExistsSyntax;
    type ArrayComparison = OfDialect;
    type AliasSyntax = sql_dialect::alias_syntax::AsAliasSyntax;
    type WindowFrameClauseGroupSupport =
        sql_dialect::window_frame_clause_group_support::NoGroupWindowFrameUnit;
    type WindowFrameExclusionSupport =
        sql_dialect::window_frame_exclusion_support::NoFrameFrameExclusionSupport;
    type AggregateFunctionExpressions =
        sql_dialect::aggregate_function_expressions::NoAggregateFunctionExpressions;
    type BuiltInWindowFunctionRequireOrder =
        sql_dialect::built_in_window_function_require_order::NoOrderRequired;
}

impl DieselReserveSpecialization for AnyEngine {}
impl TrustedBackend for AnyEngine {}

/// Writes SQL with the quotes and parameters of a dialect.
#[derive(Debug)]
pub struct SqlBuilder {
    sql: String,
    dialect: Dialect,
    parameters: u32,
}

impl SqlBuilder {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { sql: String::with_capacity(512), dialect, parameters: 0 }
    }

    /// What is written so far.
    pub(super) fn sql_mut(&mut self) -> &mut String {
        &mut self.sql
    }
}

impl QueryBuilder<AnyEngine> for SqlBuilder {
    fn push_sql(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    fn push_identifier(&mut self, identifier: &str) -> QueryResult<()> {
        let quote = self.dialect.quote();
        self.sql.push(quote);
        if identifier.contains(quote) {
            let mut twice = [0; 8];
            let twice = [quote, quote].map(|sign| sign.encode_utf8(&mut twice).to_owned()).concat();
            self.sql.push_str(&identifier.replace(quote, &twice));
        } else {
            self.sql.push_str(identifier);
        }
        self.sql.push(quote);
        Ok(())
    }

    fn push_bind_param(&mut self) {
        self.push_bind_param_value_only();
        match self.dialect {
            Dialect::Postgres => {
                self.sql.push('$');
                self.sql.push_str(itoa::Buffer::new().format(self.parameters));
            }
            Dialect::Sqlite | Dialect::Mysql => self.sql.push('?'),
        }
    }

    fn push_bind_param_value_only(&mut self) {
        self.parameters += 1;
    }

    fn finish(self) -> String {
        self.sql
    }
}

/// The SQL of a query.
pub(super) fn sql(dialect: Dialect, query: &dyn QueryFragment<AnyEngine>) -> QueryResult<String> {
    let mut builder = SqlBuilder::new(dialect);
    query.to_sql(&mut builder, AnyEngine::of(dialect))?;
    Ok(builder.finish())
}

fn dialect(pass: &AstPass<'_, '_, AnyEngine>) -> Dialect {
    pass.backend().0
}

/// MySQL and SQLite; PostgreSQL has `ON CONFLICT … DO UPDATE`.
impl QueryFragment<AnyEngine> for Replace {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        pass.push_sql("REPLACE");
        Ok(())
    }
}

impl<L, R> QueryFragment<AnyEngine, OfDialect> for Concat<L, R>
where
    L: QueryFragment<AnyEngine>,
    R: QueryFragment<AnyEngine>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        let (start, between) = match dialect(&pass) {
            Dialect::Mysql => ("CONCAT(", ","),
            Dialect::Sqlite | Dialect::Postgres => ("(", " || "),
        };
        pass.push_sql(start);
        self.left.walk_ast(pass.reborrow())?;
        pass.push_sql(between);
        self.right.walk_ast(pass.reborrow())?;
        pass.push_sql(")");
        Ok(())
    }
}

impl<T: QueryFragment<AnyEngine>> QueryFragment<AnyEngine> for ParenthesisWrapper<T> {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        // SQLite takes no parentheses around a part of a `UNION`.
        let start = match dialect(&pass) {
            Dialect::Sqlite => "SELECT * FROM (",
            Dialect::Postgres | Dialect::Mysql => "(",
        };
        pass.push_sql(start);
        self.inner.walk_ast(pass.reborrow())?;
        pass.push_sql(")");
        Ok(())
    }
}

impl SupportsCombinationClause<Union, All> for AnyEngine {}
impl SupportsCombinationClause<Union, Distinct> for AnyEngine {}

impl<T, U> QueryFragment<AnyEngine, OfDialect> for array_comparison::In<T, U>
where
    T: QueryFragment<AnyEngine>,
    U: QueryFragment<AnyEngine> + array_comparison::InExpression,
{
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        let words = ListWords { postgres: " = ANY(", others: " IN (", empty: "1=0" };
        compare_list(&self.left, &self.values, &words, pass)
    }
}

impl<T, U> QueryFragment<AnyEngine, OfDialect> for array_comparison::NotIn<T, U>
where
    T: QueryFragment<AnyEngine>,
    U: QueryFragment<AnyEngine> + array_comparison::InExpression,
{
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        let words = ListWords { postgres: " != ALL(", others: " NOT IN (", empty: "1=1" };
        compare_list(&self.left, &self.values, &words, pass)
    }
}

/// How a comparison with a list is written.
struct ListWords {
    postgres: &'static str,
    others: &'static str,
    /// Where the list is empty, which is an array on PostgreSQL.
    empty: &'static str,
}

fn compare_list<'b, L, V>(
    left: &'b L,
    values: &'b V,
    words: &ListWords,
    mut pass: AstPass<'_, 'b, AnyEngine>,
) -> QueryResult<()>
where
    L: QueryFragment<AnyEngine>,
    V: QueryFragment<AnyEngine> + array_comparison::InExpression,
{
    let is_postgres = dialect(&pass) == Dialect::Postgres;
    if values.is_empty() && !is_postgres {
        pass.push_sql(words.empty);
        return Ok(());
    }
    left.walk_ast(pass.reborrow())?;
    pass.push_sql(if is_postgres { words.postgres } else { words.others });
    values.walk_ast(pass.reborrow())?;
    pass.push_sql(")");
    Ok(())
}

impl<ST, I> QueryFragment<AnyEngine, OfDialect> for array_comparison::Many<ST, I>
where
    ST: SingleValue,
    I: ToSql<ST, AnyEngine>,
    AnyEngine: HasSqlType<ST>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        if dialect(&pass) == Dialect::Postgres {
            return pass.push_bind_param::<Array<ST>, Vec<I>>(&self.values);
        }
        // Its length is part of the SQL.
        pass.unsafe_to_cache_prepared();
        for (index, value) in self.values.iter().enumerate() {
            if index > 0 {
                pass.push_sql(", ");
            }
            pass.push_bind_param::<ST, I>(value)?;
        }
        Ok(())
    }
}

/// A clause of a query that may be missing.
trait OptionalClause {
    const IS_SET: bool;
}

impl OptionalClause for NoLimitClause {
    const IS_SET: bool = false;
}

impl OptionalClause for NoOffsetClause {
    const IS_SET: bool = false;
}

impl<L> OptionalClause for LimitClause<L> {
    const IS_SET: bool = true;
}

impl<O> OptionalClause for OffsetClause<O> {
    const IS_SET: bool = true;
}

/// The limit of a query that has an offset only.
fn no_limit(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => " LIMIT -1",
        Dialect::Mysql => " LIMIT 18446744073709551615",
        Dialect::Postgres => "",
    }
}

impl<L, O> QueryFragment<AnyEngine> for LimitOffsetClause<L, O>
where
    L: QueryFragment<AnyEngine> + OptionalClause,
    O: QueryFragment<AnyEngine> + OptionalClause,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        if O::IS_SET && !L::IS_SET {
            pass.push_sql(no_limit(dialect(&pass)));
        }
        self.limit_clause.walk_ast(pass.reborrow())?;
        self.offset_clause.walk_ast(pass)
    }
}

impl QueryFragment<AnyEngine> for BoxedLimitOffsetClause<'_, AnyEngine> {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, AnyEngine>) -> QueryResult<()> {
        match (&self.limit, &self.offset) {
            (Some(limit), _) => limit.walk_ast(pass.reborrow())?,
            (None, Some(_)) => pass.push_sql(no_limit(dialect(&pass))),
            (None, None) => {}
        }
        self.offset.as_ref().map_or(Ok(()), |offset| offset.walk_ast(pass))
    }
}

impl<'a> IntoBoxedClause<'a, AnyEngine> for LimitOffsetClause<NoLimitClause, NoOffsetClause> {
    type BoxedClause = BoxedLimitOffsetClause<'a, AnyEngine>;

    fn into_boxed(self) -> Self::BoxedClause {
        BoxedLimitOffsetClause { limit: None, offset: None }
    }
}

impl<'a, L> IntoBoxedClause<'a, AnyEngine> for LimitOffsetClause<LimitClause<L>, NoOffsetClause>
where
    L: QueryFragment<AnyEngine> + Send + 'a,
{
    type BoxedClause = BoxedLimitOffsetClause<'a, AnyEngine>;

    fn into_boxed(self) -> Self::BoxedClause {
        BoxedLimitOffsetClause { limit: Some(Box::new(self.limit_clause)), offset: None }
    }
}
