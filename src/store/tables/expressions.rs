//! Expressions that several modules of the store use.

use diesel::ExpressionMethods as _;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::sql_types::Integer;
use smsq_message::phone::shared_calling_codes;

use super::schema::sms;

/// Whether a message is in this state. The state is part of the statement: if a parameter is compared with a column of
/// partial indexes, SQLite compiles the statement again at each execution.
#[diesel::dsl::auto_type]
pub(crate) fn in_state(state: i32) -> _ {
    let state: SqlLiteral<Integer> = sql(&state.to_string());
    sms::state.eq(state)
}

/// The digits that identify a country: a calling code, or `1` and an area code; and where several countries share a
/// longer calling code.
const COUNTRY_DIGITS: usize = 4;
const TERRITORY_DIGITS: usize = 8;

/// The SQL for the first digits of a phone: at least `digits`, and as many as identify its country.
pub(crate) fn phone_prefix(digits: usize) -> String {
    let start = |digits: usize| format!("substr(phone, 1, {})", digits + 1);
    let shared: Vec<String> =
        shared_calling_codes().iter().map(|code| format!("phone LIKE '+{code}%'")).collect();
    format!(
        "CASE WHEN {} THEN {} ELSE {} END",
        shared.join(" OR "),
        start(digits.max(TERRITORY_DIGITS)),
        start(digits.max(COUNTRY_DIGITS))
    )
}
