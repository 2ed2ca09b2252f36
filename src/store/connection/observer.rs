//! Shows what is run on connections to an observer, for tests of how a database runs it.

use std::sync::Arc;

use super::statement::Statement;
use super::values::Value;
use crate::Store;

/// What is run on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedStatement {
    pub sql: String,
    /// The values of its parameters as literals of SQL; lists are arrays of PostgreSQL.
    pub values: Vec<String>,
    /// It stays prepared on its connection.
    pub is_kept: bool,
}

/// Gets everything that is run on a connection.
pub type Observer = Arc<dyn Fn(ObservedStatement) + Send + Sync>;

/// Makes an observer for each new connection.
pub(super) type MakeObserver = Box<dyn Fn() -> Observer + Send + Sync>;

impl Store {
    /// Gives each connection that this store opens from now on an observer that `make` makes.
    ///
    /// # Panics
    ///
    /// Where the store is observed already.
    #[doc(hidden)]
    pub fn observe(&self, make: impl Fn() -> Observer + Send + Sync + 'static) {
        self.pool.observe(Box::new(make));
    }
}

impl From<&str> for ObservedStatement {
    fn from(sql: &str) -> Self {
        Self { sql: sql.to_owned(), values: Vec::new(), is_kept: false }
    }
}

impl From<&Statement<'_>> for ObservedStatement {
    fn from(statement: &Statement<'_>) -> Self {
        Self {
            sql: statement.sql.clone(),
            values: statement.binds.iter().map(|(_, value)| literal(value)).collect(),
            is_kept: statement.is_kept,
        }
    }
}

fn literal(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Binary(bytes) => format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', "''")),
        Value::List(values) => {
            let values: Vec<String> = values.iter().map(literal).collect();
            format!("ARRAY[{}]", values.join(", "))
        }
    }
}
