//! Requests and answers.

use smsq_message::sms::Timestamp;

use crate::RequestContext;
use crate::capabilities::Reference;
use crate::testing::{assert_outcomes, assert_request, context, message, request_text, vendor};

const SETTINGS: &str = "from = '+13125550100'\ncallback = 'https://e.example/t?a=1'";

#[test]
fn message_is_the_same_request_at_every_attempt() {
    let provider = vendor("telnyx", SETTINGS);
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.telnyx.com/v2/messages\n",
            "idempotency-key: ref-1\n",
            "authorization: Bearer TELNYX_API_KEY\n",
            r#"{"from":"+13125550100","text":"Hello"#,
            r#""to":"+8613812345678","type":"SMS","webhook_url":"https://e.example/t?a=1&reference=ref-1"}"#,
        ],
    );
    let at = |context: &RequestContext| {
        request_text(&provider.request(&[message()], context).expect("a request"))
    };
    let later = RequestContext { now: Timestamp::from_millis(1_800_000_000_000), nonce: 8 };
    assert_eq!(at(&context()), at(&later));
    assert!(matches!(provider.capabilities().reference, Reference::Honoured { .. }));
}

#[test]
fn codes_decide() {
    let error = |code: u32, title: &str| {
        format!(r#"{{"errors":[{{"code":"{code}","title":"{title}","detail":"no"}}]}}"#)
    };
    let success = r#"{"data":{"id":"t1","parts":1,"to":[{"phone_number":"+8613812345678","status":"queued"}],"cost":{"amount":"0.004","currency":"USD"}}}"#;
    assert_outcomes(
        &vendor("telnyx", SETTINGS),
        &[
            (200, success, "accepted t1"),
            (200, &success.replace("678", "679"), "unknown"),
            (200, r#"{"data":{}}"#, "unknown"),
            (400, &error(40300, "Blocked due to STOP message"), "opted_out"),
            (400, &error(40300, "Blocked"), "account"),
            (400, &error(40310, ""), "recipient"),
            (400, &error(40302, ""), "content"),
            (401, &error(10009, ""), "account"),
            (429, &error(10011, ""), "throttle"),
            (422, &error(90000, ""), "content"),
            (500, &error(10007, ""), "unknown"),
            (504, "", "unknown"),
        ],
    );
}
