//! A message for tests of decisions.

use smsq_message::sms::{Sms, StoredColumns, Timestamp};

/// A message that was never attempted.
pub(super) fn sms() -> Sms {
    Sms {
        id: 1,
        campaign_id: 1,
        lane: 0,
        phone: "+12025550123".to_owned(),
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: Some(1),
        in_doubt: false,
        doubt_since: None,
        tried_elsewhere: false,
        is_reference_reused: false,
        resend_approved: false,
        due_at: Timestamp::default(),
        expires_at: None,
        attempts: 0,
        claim: 1,
        reference: "r".to_owned(),
        stored: StoredColumns::default(),
    }
}
