//! Records the SQL of queries in the dialects of all engines, whichever runs them: for a snapshot of all statements.

use std::cell::RefCell;
use std::collections::BTreeSet;

use diesel::query_builder::QueryFragment;

use super::backend::sql;
use super::dialect::{AnyEngine, Dialect};

/// A query in the SQL of SQLite, PostgreSQL and MySQL.
pub type InDialects = [String; 3];

thread_local! {
    static RECORDED: RefCell<Option<BTreeSet<InDialects>>> = const { RefCell::new(None) };
}

/// Begins to record the queries that this thread makes.
pub fn record_statements() {
    RECORDED.set(Some(BTreeSet::new()));
}

/// The queries that this thread has made since [`record_statements`], each once.
pub fn recorded_statements() -> BTreeSet<InDialects> {
    RECORDED.take().unwrap_or_default()
}

pub(super) fn made(query: &dyn QueryFragment<AnyEngine>) {
    RECORDED.with_borrow_mut(|recorded| {
        if let Some(recorded) = recorded {
            let dialects = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];
            recorded.insert(
                dialects
                    .map(|dialect| sql(dialect, query).unwrap_or_else(|error| error.to_string())),
            );
        }
    });
}
