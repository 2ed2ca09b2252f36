//! Requests, answers and status lookups.

use crate::testing::{
    assert_contains, assert_outcomes, assert_request, lookup_request, lookup_result, message,
    vendor,
};

const FIXED: &str = "device_id = 'd1'";

#[test]
fn message_has_our_id_and_its_device() {
    let provider = vendor("sms-gate", "device_id = 'd1'\nttl = 60");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.sms-gate.app/3rdparty/v1/messages\n",
            r#"{"deviceId":"d1","id":"ref-1","phoneNumbers":["+8613812345678"],"textMessage":{"text":"Hello"#,
            r#"},"ttl":60,"withDeliveryReport":true}"#,
        ],
    );
    assert!(provider.capabilities().honoured_for().is_some());
    let without_setting = vendor("sms-gate", "");
    assert_eq!(without_setting.capabilities().honoured_for(), None);
}

#[test]
fn known_reference_counts_only_with_fixed_device() {
    let rows = [
        (202, r#"{"id":"ref-1","state":"Pending"}"#, "accepted ref-1"),
        (202, r#"{"id":"ref-2","state":"Pending"}"#, "unknown"),
        (202, "{}", "unknown"),
        (400, r#"{"message":"no"}"#, "content"),
        (401, "", "account"),
        (503, "", "throttle"),
        (500, "", "unknown"),
    ];
    assert_outcomes(&vendor("sms-gate", FIXED), &rows);
    assert_outcomes(&vendor("sms-gate", ""), &rows);
    assert_outcomes(&vendor("sms-gate", FIXED), &[(409, "", "duplicate ref-1")]);
    assert_outcomes(&vendor("sms-gate", ""), &[(409, "", "unknown")]);
}

#[test]
fn lookup_asks_by_reference() {
    let provider = vendor("sms-gate", FIXED);
    let url = "GET https://api.sms-gate.app/3rdparty/v1/messages/ref-1\n";
    assert_contains(&lookup_request(&provider), &[url]);
    for (minutes, status, body, expected) in [
        (1, 200, r#"{"id":"ref-1"}"#, "found ref-1"),
        (9, 200, r#"{"id":"ref-2"}"#, "unclear"),
        (9, 404, r#"{"message":"message not found"}"#, "absent"),
        (4, 404, r#"{"message":"message not found"}"#, "too soon by 60 s"),
        (720 * 60, 404, r#"{"message":"message not found"}"#, "unclear"),
        (9, 404, "<html>", "unclear"),
        (9, 400, r#"{"message":"several messages"}"#, "unclear"),
    ] {
        assert_eq!(lookup_result(&provider, minutes, status, body), expected, "{body}");
    }
}
