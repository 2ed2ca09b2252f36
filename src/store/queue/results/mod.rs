//! What the result of an attempt, or a decision about a message, does to its rows.

pub(crate) mod attempts;
pub(super) mod effects;
pub(crate) mod settle;
pub(crate) mod transitions;
