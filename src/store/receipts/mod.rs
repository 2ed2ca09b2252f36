//! Delivery receipts, and the messages that await them.

pub(super) mod awaiting;
pub(super) mod inbox;
