//! A statement: SQL in the dialect of a database, with the values of its parameters. Making it is all that is done with the
//! type of a query; what runs it is compiled once.

use diesel::query_builder::QueryFragment;

use super::backend::sql;
use super::dialect::{AnyEngine, Dialect};
use super::error::QueryResult;
use super::snapshot;
use super::values::{Binds, Kind, Value};

/// SQL with the values of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Statement<'q> {
    pub(super) sql: String,
    pub(super) binds: Vec<(Kind, Value<'q>)>,
    /// It stays prepared on its connection.
    pub(super) is_kept: bool,
    /// Only the first row is read.
    pub(super) is_single: bool,
}

impl<'q> Statement<'q> {
    pub(super) fn of(
        dialect: Dialect,
        query: &'q (dyn QueryFragment<AnyEngine> + 'q),
    ) -> QueryResult<Self> {
        let is_kept = query.is_safe_to_cache_prepared(AnyEngine::of(dialect))?;
        Ok(Self { is_kept, ..Self::kept(dialect, query)? })
    }

    /// A statement that stays prepared in any case.
    pub(super) fn kept(
        dialect: Dialect,
        query: &'q (dyn QueryFragment<AnyEngine> + 'q),
    ) -> QueryResult<Self> {
        let binds = binds_of(dialect, query)?;
        let sql = sql(dialect, query)?;
        snapshot::made(query);
        Ok(Self { sql, binds, is_kept: true, is_single: false })
    }

    /// The statement without what it borrows from its query.
    pub(super) fn into_owned(self) -> Statement<'static> {
        let binds = self.binds.into_iter();
        Statement {
            sql: self.sql,
            binds: binds.map(|(kind, value)| (kind, value.into_owned())).collect(),
            is_kept: self.is_kept,
            is_single: self.is_single,
        }
    }
}

/// The values of a query's parameters.
pub(super) fn binds_of<'q>(
    dialect: Dialect,
    query: &'q (dyn QueryFragment<AnyEngine> + 'q),
) -> QueryResult<Vec<(Kind, Value<'q>)>> {
    let mut binds = Binds::default();
    query.collect_binds(&mut binds, &mut (), AnyEngine::of(dialect))?;
    Ok(binds.0)
}
