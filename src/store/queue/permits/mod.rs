//! What limits, budgets and caps let a commit claim.

pub(crate) mod budgets;
pub(crate) mod caps;
pub(crate) mod limits;
