//! What limits, budgets and caps let a commit claim.

pub(in crate::store) mod budgets;
pub(in crate::store) mod caps;
pub(in crate::store) mod limits;
