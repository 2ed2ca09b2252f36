//! Decides when an imported message is due.

use crate::sms::{NewSms, Timestamp};
use crate::window::{Recipient, SendWindow};

/// When a row's message is due, at `due_at` or later. A window that is the same for all recipients is ignored: the sender
/// checks it for the whole campaign, so a change takes effect at once.
pub(crate) fn due_at(row: &NewSms, window: Option<&SendWindow>, due_at: Timestamp) -> Timestamp {
    let Some(window) = window.filter(|window| window.for_all(due_at).is_none()) else {
        return due_at;
    };
    let recipient = Recipient {
        phone: &row.phone,
        params: &row.params,
    };
    window.for_one(recipient, due_at).opens_at.max(due_at)
}
