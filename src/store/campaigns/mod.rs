//! Campaigns, their approvals and their schedules.

pub(super) mod approval_decisions;
pub(super) mod approvals;
pub(super) mod campaign;
pub(super) mod schedules;
