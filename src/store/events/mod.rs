//! What happened: events for hooks, and activity for pages.

pub(super) mod activity;
pub(super) mod hooks;
pub(super) mod outbox;
