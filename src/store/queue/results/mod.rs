//! What the result of an attempt, or a decision about a message, does to its rows.

pub(in crate::store) mod attempts;
pub(super) mod effects;
pub(in crate::store) mod settle;
pub(in crate::store) mod transitions;
