//! What is known of recipients: who gets no messages, whose number does not exist, and what they replied.

pub(super) mod dead;
pub(super) mod replies;
pub(super) mod suppression;
