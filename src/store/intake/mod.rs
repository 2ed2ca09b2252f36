//! How messages come into the queue: from lists and from requests, without duplicates.

pub(super) mod dedupe;
pub(super) mod enqueue;
pub(super) mod imports;
pub(super) mod posted;
