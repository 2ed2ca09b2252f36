//! The way of messages through the queue: claimed, settled, unknown, put back, cancelled; and the workers.

pub(super) mod candidates;
pub(super) mod claim;
pub(super) mod commit;
pub(super) mod commit_batch;
pub(super) mod commit_count;
pub(super) mod lanes;
pub(super) mod lost_claims;
pub(super) mod operator;
pub(crate) mod permits;
pub(super) mod queue_state;
pub(super) mod results;
pub(super) mod stops;
pub(super) mod unknown;
pub(super) mod watch;
pub(super) mod workers;
