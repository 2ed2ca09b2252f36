//! Shows what is run on connections to an observer, for tests of how a database runs it.

use std::sync::Arc;
use std::sync::{PoisonError, RwLock};

use super::statement::Statement;
use super::values::Value;

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

static MAKE: RwLock<Option<fn() -> Observer>> = RwLock::new(None);

/// Gives each connection of this process that is opened from now on an observer that `make` makes.
pub fn observe_connections(make: Option<fn() -> Observer>) {
    *MAKE.write().unwrap_or_else(PoisonError::into_inner) = make;
}

/// The observer of a new connection.
pub(super) fn of_new_connection() -> Option<Observer> {
    let make = MAKE.read().unwrap_or_else(PoisonError::into_inner);
    make.map(|make| make())
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
