//! Rate limits as they are stored, and what campaigns have spent.

pub(super) mod budget_count;
pub(super) mod rows;
pub(super) mod spending;
