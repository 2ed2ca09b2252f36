//! Signatures, requests and answers.

use super::{azure_signature, ovh_signature, smsglobal_mac};
use crate::signing::sha256;
use crate::testing::{
    assert_contains, assert_outcomes, assert_request, lookup_request, message, vendor,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;

fn get(url: &str) -> Request<Bytes> {
    let request = Request::get(url).body(Bytes::new());
    request.expect("a request")
}

/// From the tests of the vendor's Java client.
#[test]
fn smsglobal_mac_is_that_of_the_vendors_example() {
    let secret = "a8dfa0dc19c7439914c74c6c92a95d25";
    let request = get("https://api.smsglobal.com/v2/sms/");
    let mac = smsglobal_mac(secret, &request, 1_471_398_353, 1_174_249);
    assert_eq!(mac, "iX34qsNi2hqcoeNVtA/W5D+Hj6eMO3mIThfcYNJPaPM=");
}

/// From the vendor's documentation.
#[test]
fn ovh_signature_is_that_of_the_vendors_example() {
    let keys = ["EXEgWIz07P0HYwtQDs7cNIqCiQaWSuHF", "MtSwSrPpNjqfVSmJhLbPyr2i45lSwPU1"];
    let request = get("https://eu.api.ovh.com/1.0/domains/");
    let signature = ovh_signature(keys, &request, 1_366_560_945);
    assert_eq!(signature, "$1$d3705e8afb27a0d2970a322b96550abfc67bb798");
}

#[test]
fn smsglobal_requests_and_lookups_are_signed() {
    let provider = vendor("smsglobal", "from = 'SHOP'\ncallback = 'https://example.net/s'");
    let signature =
        r#"authorization: MAC id="SMSGLOBAL_API_KEY", ts="1700000000", nonce="7", mac=""#;
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://api.smsglobal.com/v2/sms\n",
            signature,
            r#""destination":"8613812345678""#,
            r#""notifyUrl":"https://example.net/s?reference=ref-1""#,
            r#""origin":"SHOP""#,
        ],
    );
    assert_contains(
        &lookup_request(&provider),
        &["GET https://api.smsglobal.com/v2/sms?destination=8613812345678&limit=100\n", signature],
    );
}

#[test]
fn smsglobal_message_is_accepted_with_a_documented_status() {
    let answer = |status: &str| {
        format!(
            r#"{{"messages":[{{"id":"m","destination":"8613812345678","status":"{status}"}}]}}"#
        )
    };
    assert_outcomes(
        &vendor("smsglobal", ""),
        &[
            (200, &answer("sent"), "accepted m"),
            (200, &answer("invalidNumber"), "recipient"),
            (200, &answer("noCredits"), "account"),
            (200, &answer("rejected"), "unknown"),
            (200, &answer("new"), "unknown"),
            (402, "{}", "account"),
            (403, "{}", "account"),
            (500, &answer("sent"), "unknown"),
        ],
    );
}

#[test]
fn ovh_requests_are_signed() {
    assert_request(
        &vendor("ovh", "from = 'SHOP'\nno_stop_clause = true"),
        &[message()],
        &[
            "POST https://eu.api.ovh.com/1.0/sms/OVH_SMS_SERVICE_NAME/jobs\n",
            "x-ovh-application: OVH_APPLICATION_KEY\n",
            "x-ovh-consumer: OVH_CONSUMER_KEY\n",
            "x-ovh-timestamp: 1700000000\n",
            "x-ovh-signature: $1$",
            r#""coding":"8bit""#,
            r#""noStopClause":true,"receivers":["+8613812345678"],"sender":"SHOP"}"#,
        ],
    );
}

#[test]
fn ovh_names_invalid_numbers_in_its_answer() {
    let answer = |ids: &str, valid: &str, invalid: &str| {
        format!(r#"{{"ids":{ids},"validReceivers":{valid},"invalidReceivers":{invalid}}}"#)
    };
    let phone = r#"["+8613812345678"]"#;
    assert_outcomes(
        &vendor("ovh", ""),
        &[
            (200, &answer("[7]", phone, "[]"), "accepted 7"),
            (200, &answer("[]", "[]", phone), "recipient"),
            (200, &answer("[7]", r#"["+33600000000"]"#, "[]"), "unknown"),
            (200, &answer("[]", "[]", "[]"), "unknown"),
            (200, r#"{"invalidReceivers":["+8613812345678"]}"#, "unknown"),
            (403, r#"{"errorCode":"INVALID_CREDENTIAL"}"#, "account"),
            (500, &answer("[]", "[]", phone), "unknown"),
        ],
    );
}

/// From the vendor's Python client, with a fixed time.
#[test]
fn azure_signature_is_that_of_the_vendors_client() {
    let request =
        Request::post("https://example.communication.azure.com/sms?api-version=2021-03-07")
            .body(Bytes::from_static(br#"{"message":"Hello"}"#))
            .expect("a request");
    let (date, hash) =
        ("Tue, 14 Nov 2023 22:13:20 GMT", "vQ1idAbORUOasXueJu1W3mZlF+AHBdTqhXVO9iS+KOQ=");
    let signature = azure_signature("c2VjcmV0LWtleS1vZi1hLXRlc3Q=", &request, date, hash);
    assert_eq!(signature, "V6k6cOsZ39AwA1gB4x5+ZBPGC611u1el88J6SAihiXg=");
    assert_eq!(STANDARD.encode(sha256(request.body())), hash);
}

#[test]
fn azure_requests_are_signed() {
    assert_request(
        &vendor("azure", "url = 'https://example.communication.azure.com'\nfrom = '+18005550100'"),
        &[message()],
        &[
            "POST https://example.communication.azure.com/sms?api-version=2021-03-07\n",
            "authorization: HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=",
            "x-ms-content-sha256: ",
            "x-ms-date: Tue, 14 Nov 2023 22:13:20 GMT\n",
            r#""from":"+18005550100""#,
            r#""smsRecipients":[{"to":"+8613812345678"}]"#,
            r#""smsSendOptions":{"enableDeliveryReport":true,"tag":"ref-1"}"#,
        ],
    );
}

#[test]
fn azure_message_is_accepted_by_the_status_of_its_result() {
    let answer = |result: &str| format!(r#"{{"value":[{{"to":"+8613812345678",{result}}}]}}"#);
    let azure = vendor("azure", "url = 'https://example.communication.azure.com'");
    assert_outcomes(
        &azure,
        &[
            (
                202,
                &answer(r#""messageId":"m","httpStatusCode":202,"successful":true"#),
                "accepted m",
            ),
            (
                202,
                &answer(
                    r#""httpStatusCode":400,"errorMessage":"Invalid To phone number format.","successful":false"#,
                ),
                "recipient",
            ),
            (202, &answer(r#""httpStatusCode":500,"successful":false"#), "unknown"),
            (202, &answer(r#""messageId":"m","httpStatusCode":429,"successful":false"#), "unknown"),
            (202, &answer(r#""httpStatusCode":202"#), "unknown"),
            (202, r#"{"value":[]}"#, "unknown"),
            (401, r#"{"error":{"code":"Denied"}}"#, "account"),
            (404, "{}", "account"),
            (429, "{}", "throttle"),
            (500, "{}", "unknown"),
        ],
    );
}
