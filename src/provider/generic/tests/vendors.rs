//! Requests and answers of vendors that are only a section.

use crate::testing::{
    assert_contains, assert_outcomes, assert_request, lookup_request, message, vendor,
};

#[test]
fn messagebird() {
    let provider = vendor("messagebird", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://rest.messagebird.com/messages\n",
            "authorization: AccessKey MESSAGEBIRD_ACCESS_KEY\n",
            r#""originator":"SHOP","recipients":["8613812345678"],"reference":"ref-1"}"#,
        ],
    );
    assert_outcomes(
        &provider,
        &[
            (201, r#"{"id":"m1"}"#, "accepted m1"),
            (422, r#"{"errors":[{"code":10,"description":"no"}]}"#, "content"),
            (422, r#"{"errors":[{"code":25}]}"#, "account"),
            (401, r#"{"errors":[{"code":2}]}"#, "account"),
            (429, "", "throttle"),
            (503, "", "unknown"),
        ],
    );
    assert_contains(
        &lookup_request(&provider),
        &[
            "GET https://rest.messagebird.com/messages?from=2023-11-13T22%3A13%3A20Z&limit=50&recipient=8613812345678\n",
        ],
    );
}

#[test]
fn plivo() {
    let provider = vendor("plivo", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.plivo.com/v1/Account/PLIVO_AUTH_ID/Message/\n",
            "authorization: Basic UExJVk9fQVVUSF9JRDpQTElWT19BVVRIX1RPS0VO\n",
            r#"{"dst":"+8613812345678","src":"+14155550100","text":"Hello"#,
        ],
    );
    assert_outcomes(
        &provider,
        &[
            (202, r#"{"message_uuid":["m1"]}"#, "accepted m1"),
            (202, r#"{"message_uuid":[]}"#, "unknown"),
            (402, "", "account"),
            (401, "", "account"),
            (400, r#"{"error":"no"}"#, "content"),
            (429, "", "throttle"),
            (500, "", "unknown"),
        ],
    );
}

#[test]
fn sinch() {
    let provider = vendor("sinch", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://eu.sms.api.sinch.com/xms/v1/SINCH_SERVICE_PLAN/batches\n",
            "authorization: Bearer SINCH_API_TOKEN\n",
            r#""client_reference":"ref-1","delivery_report":"per_recipient","from":"SHOP","to":["8613812345678"],"type":"mt_text"}"#,
        ],
    );
    assert_outcomes(
        &provider,
        &[
            (201, r#"{"id":"b1"}"#, "accepted b1"),
            (400, r#"{"code":"syntax_invalid_parameter_format","text":"no"}"#, "content"),
            (401, "", "account"),
            (403, r#"{"code":"unknown_campaign"}"#, "account"),
            (500, "", "unknown"),
        ],
    );
    assert_contains(
        &lookup_request(&provider),
        &["/batches?client_reference=ref-1&page_size=30&start_date=2023-11-13T22%3A13%3A20Z\n"],
    );
}

#[test]
fn clicksend() {
    let provider = vendor("clicksend", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://rest.clicksend.com/v3/sms/send\n",
            r#""custom_string":"ref-1","from":"SHOP","source":"smsq","to":"+8613812345678"}]}"#,
        ],
    );
    let item = |status: &str| {
        format!(
            r#"{{"data":{{"messages":[{{"to":"+8613812345678","custom_string":"ref-1","message_id":"m1","status":"{status}"}}]}}}}"#
        )
    };
    assert_outcomes(
        &provider,
        &[
            (200, &item("SUCCESS"), "accepted m1"),
            (200, &item("INVALID_RECIPIENT"), "recipient"),
            (200, &item("INSUFFICIENT_CREDIT"), "account"),
            (200, &item("THROTTLED"), "unknown"),
            (200, &item("SOMETHING_NEW"), "unknown"),
            (401, "", "account"),
            (429, "", "throttle"),
        ],
    );
}

#[test]
fn elks() {
    let provider = vendor("46elks", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.46elks.com/a1/sms\n",
            "from=SHOP&message=Hello",
            "&to=%2B8613812345678",
        ],
    );
    assert_outcomes(
        &provider,
        &[
            (200, r#"{"id":"s1","parts":2}"#, "accepted s1"),
            (400, "Invalid to number", "content"),
            (403, "Not enough credits", "account"),
            (401, "", "account"),
            (500, "", "unknown"),
        ],
    );
}

#[test]
fn jasmin() {
    let provider = vendor("jasmin", "");
    let mut plain = message();
    plain.content = "Aç😀".to_owned();
    assert_request(
        &provider,
        &[plain],
        &[
            "POST http://127.0.0.1:1401/send\n",
            "coding=8&from=SHOP&hex-content=004100e7d83dde00&password=JASMIN_PASSWORD&tags=ref-1&to=%2B8613812345678&username=JASMIN_USERNAME",
        ],
    );
    assert_outcomes(
        &provider,
        &[
            (200, "Success \"0703\"", "accepted 0703"),
            (200, "Success", "unknown"),
            (403, "Error \"Authentication failure for username:x\"", "account"),
            (403, "Error \"User throughput exceeded\"", "throttle"),
            (
                403,
                "Error \"Cannot charge submit_sm, check RouterPB log file for details\"",
                "account",
            ),
            (403, "Error \"else\"", "unlisted_account"),
            (412, "Error \"No route found\"", "account"),
            (412, "Error \"Failover route has no bound connectors\"", "unavailable"),
            (500, "Error \"Cannot send submit_sm, check SMPPClientManagerPB log\"", "unknown"),
            (503, "Error \"No interceptorpb connection\"", "unavailable"),
            (503, "", "unavailable"),
            (400, "Error \"Mandatory argument [to] is not found.\"", "content"),
        ],
    );
}

#[test]
fn vonage_messages() {
    let provider = vendor("vonage-messages", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.nexmo.com/v1/messages\n",
            r#"{"channel":"sms","client_ref":"ref-1","from":"SHOP","message_type":"text","sms":{"encoding_type":"auto"},"text":"Hello"#,
        ],
    );
    let error = |code: u32| {
        format!(
            r#"{{"type":"https://developer.nexmo.com/api-errors/messages-olympus#{code}","title":"t","detail":"no"}}"#
        )
    };
    assert_outcomes(
        &provider,
        &[
            (202, r#"{"message_uuid":"m1"}"#, "accepted m1"),
            (202, "{}", "unknown"),
            (429, &error(1000), "throttle"),
            (422, &error(1020), "content"),
            (422, &error(1170), "recipient"),
            (402, &error(1070), "account"),
            (500, &error(1100), "unknown"),
            (401, "", "unlisted_account"),
        ],
    );
}
