//! Decides when an imported message is due.

use smsq_message::sms::{NewSms, Timestamp};
use smsq_message::window::{Recipient, SendWindow};

/// When a row's message is due, at `due_at` or later. A window that is the same for all recipients is ignored: the sender
/// checks it for the whole campaign, so a change takes effect at once.
pub fn due_at(row: &NewSms, window: Option<&SendWindow>, due_at: Timestamp) -> Timestamp {
    let Some(window) = window.filter(|window| window.for_all(due_at).is_none()) else {
        return due_at;
    };
    let recipient = Recipient { phone: &row.phone, params: &row.params };
    window.for_one(recipient, due_at).opens_at.max(due_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_due_when_the_window_of_its_recipient_opens() {
        let row =
            NewSms { params: r#"{"timezone":"Asia/Shanghai"}"#.to_owned(), ..NewSms::default() };
        let due = |window: &str, millis| {
            let window: Option<SendWindow> = window.parse().ok();
            due_at(&row, window.as_ref(), Timestamp::from_millis(millis)).as_millis()
        };
        // At 1:00 UTC it is 9:00 in Shanghai.
        let opens_at = 3_600_000;
        assert_eq!(due("09:00-20:00 daily column UTC", 5), opens_at);
        assert_eq!(due("09:00-20:00 daily column UTC", opens_at + 5), opens_at + 5);
        assert_eq!(due("09:00-20:00 daily Asia/Shanghai", 5), 5);
        assert_eq!(due("", 5), 5);
    }
}
