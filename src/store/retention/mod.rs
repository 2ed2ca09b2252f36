//! Deletes what is old, and everything about one person.

pub(super) mod purge;
pub(super) mod removal;
