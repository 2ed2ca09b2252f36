//! What vendors post: their documented examples, wrong requests, and signatures that their own libraries made.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, Method};
use proptest::prelude::*;
use smsq_message::phone::Phone;
use smsq_message::sms::Timestamp;

use super::receipts::{UNTIL as NOW, words};
use crate::Provider;
use crate::testing::{PostedExample, assert_request, examples, message, read, vendor};
use crate::webhook::{Posted, PostedRequest, WebhookError};

const FORM: &str = "content-type: application/x-www-form-urlencoded";

/// Reads a request that is written like HTTP: method and URL, headers, an empty line, and the body.
fn post_at(provider: &Provider, request: &str, now: Timestamp) -> Result<Posted, WebhookError> {
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    post_bytes(provider, head, body.as_bytes(), now)
}

fn post_bytes(
    provider: &Provider,
    head: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<Posted, WebhookError> {
    let mut lines = head.lines();
    let first = lines.next().expect("a line");
    let (method, url) = first.trim().split_once(' ').expect("method and URL");
    let method: Method = method.parse().expect("a method");
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a header");
        let name: HeaderName = name.trim().parse().expect("a name");
        headers.append(name, value.parse().expect("a value"));
    }
    provider.parse_webhook(&PostedRequest { method: &method, url, headers: &headers, body, now })
}

fn post(provider: &Provider, request: &str) -> Result<Posted, WebhookError> {
    post_at(provider, request, NOW)
}

/// The receipts, and the replies as `phone> text`.
fn found(posted: &Posted) -> Vec<String> {
    let replies = posted.replies.iter();
    let replies = replies.map(|reply| {
        // E.164 where the section says which country numbers are of.
        let phones = reply.region.map(|_| reply.phones(None)).unwrap_or_default();
        let phone = phones.first().map_or(reply.phone.as_str(), Phone::as_str);
        format!("{phone}> {}", reply.text)
    });
    posted.receipts.iter().map(words).chain(replies).collect()
}

/// Settings that leave the signature out.
fn unsigned(vendor: &str) -> &'static str {
    match vendor {
        "infobip" => "url = 'https://x1.api.infobip.com'\nwebhook = { signature = 'none' }",
        _ => "webhook = { signature = 'none' }",
    }
}

#[test]
fn vendors_documented_requests_are_read() {
    let mut wrong = Vec::new();
    for (name, example) in examples() {
        for PostedExample { request, reads } in example.posted {
            let provider = vendor(name, unsigned(name));
            match post(&provider, &request) {
                Ok(posted) if found(&posted) == reads => {}
                other => {
                    wrong.push(format!("{name}: {request}\n{:?}", other.map(|text| found(&text))));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn entries_that_cannot_be_read_are_counted() {
    let provider = vendor("tencent", "webhook = { signature = 'none' }");
    let request = "POST https://e.example/r/x/t?a=1\ncontent-type: application/json\n\n\
        [{\"sid\":\"1\",\"report_status\":\"SUCCESS\"}, {\"mobile\":\"13811112222\",\"content\":\"T\"}, 7, \
         {\"text\":\"T\"}, {\"mobile\":\"13811112222\",\"text\":\"T\"}]";
    let posted = post(&provider, request).expect("a list");
    assert_eq!((posted.receipts.len(), posted.replies.len()), (1, 1));
    assert_eq!(posted.unreadable, 3);
}

#[test]
fn long_query_is_not_copied_for_each_entry() {
    let provider = vendor("tencent", "");
    let long = "x".repeat(40_000);
    let head = format!("POST https://e.example/r/x/t?q={long}\ncontent-type: application/json");
    let entries = vec![r#"{"sid":"1","report_status":"SUCCESS"}"#; 5_000].join(",");
    let body = format!("[{entries}]");
    let posted = post_bytes(&provider, &head, body.as_bytes(), NOW).expect("a list");
    assert_eq!(posted.receipts.len(), 5_000);
}

#[test]
fn webhook_of_vendor_checks_signature_and_reads_replies() {
    for (name, example) in examples() {
        let settings = unsigned(name).replace("webhook = { signature = 'none' }", "");
        let provider = vendor(name, &settings);
        let Some(webhook) = provider.webhook() else {
            assert!(example.posted.is_empty(), "{name}");
            continue;
        };
        assert_eq!(webhook.is_checked, webhook.signature.is_some(), "{name}");
        // How MSG91 and Gupshup post replies is not documented.
        let has_replies = !["sandbox", "msg91", "gupshup"].contains(&name);
        assert_eq!(webhook.has_replies, has_replies, "{name}");
        let is_explained = webhook.requires.is_some() || webhook.url_setting.is_some();
        assert!(is_explained || name == "sandbox", "{name}");
    }
    assert!(vendor("aws-sns", "").webhook().is_none());
}

#[test]
fn doubled_receipts_and_unknown_states_are_kept() {
    let provider = vendor("sandbox", "");
    let entry = r#"{"id":"1","state":"delivered"}"#;
    let limbo = r#"{"id":"2","state":"limbo"}"#;
    let body = format!(
        "POST https://e.example/\n\n[{entry},{entry},{limbo},{{\"state\":\"delivered\"}},\"text\",null,7]"
    );
    let posted = post(&provider, &body).expect("receipts");
    assert_eq!(found(&posted), ["- 1 -: delivered", "- 1 -: delivered", "- 2 -: unlisted"]);
}

#[test]
fn requests_that_cannot_be_read_are_explained() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("[{}1{}]", "{\"id\":".repeat(10_000), "}".repeat(10_000));
    let head = "POST https://e.example/r";
    let texts: [(&[u8], &str); 9] = [
        (b"", "the request is empty"),
        (b" \r\n", "the request is empty"),
        (b"{\"id\":\"1\",\"state\":\"delivered\"", "invalid JSON at line 1, column 29"),
        (b"+447700900000", "invalid JSON at line 1"),
        (b"\"delivered +447700900000\"", "the request has no receipt"),
        (b"{}", "the request has no receipt"),
        (b"7", "the request has no receipt"),
        (deep.as_bytes(), "invalid JSON at line 1"),
        (deep_object.as_bytes(), "invalid JSON at line 1"),
    ];
    let provider = vendor("sandbox", "");
    for (body, expected) in texts {
        let error = post_bytes(&provider, head, body, NOW).expect_err(expected);
        let WebhookError::Unreadable(problem) = &error else {
            panic!("{error:?}");
        };
        assert!(problem.starts_with(expected), "{problem}");
        assert!(!problem.contains("4477"), "{problem}");
    }
    // What is not UTF-8 does not lose the rest.
    let cut = post_bytes(&provider, head, b"{\"id\":\"\xff\"}", NOW);
    assert_eq!(cut.map(|posted| posted.receipts.len()), Ok(1));
    let bom = post_bytes(&provider, head, b"\xef\xbb\xbf[]", NOW);
    assert_eq!(bom, Ok(Posted::default()));

    let infobip = vendor("infobip", "url = 'https://x1.api.infobip.com'");
    let error = post(&infobip, "POST https://e.example/r\n\n{\"other\":1}");
    assert_eq!(
        error,
        Err(WebhookError::Unreadable("the request has no list at `/results`".to_owned()))
    );
    let kannel = vendor("kannel", "");
    assert!(post(&kannel, "GET https://e.example/r").is_err());
    let yunpian = vendor("yunpian", "");
    let request = format!("POST https://e.example/r\n{FORM}\n\nsms_status=%5B");
    assert!(matches!(post(&yunpian, &request), Err(WebhookError::Unreadable(_))));
    let sns = vendor("aws-sns", "");
    assert_eq!(post(&sns, "POST https://e.example/r\n\n{}"), Err(WebhookError::NotConfigured));
}

#[test]
fn form_that_is_not_utf8_is_read() {
    let head = format!("POST https://e.example/r\n{FORM}");
    let provider = vendor("46elks", "");
    let posted = post_bytes(&provider, &head, b"id=s1&status=delivered&note=%FF\xfe", NOW);
    assert_eq!(found(&posted.expect("a receipt")), ["- s1 -: delivered"]);
}

#[test]
fn subscription_must_be_confirmed_once() {
    let provider = vendor("aws-sms", "");
    let body = "POST https://e.example/r\n\n{\"Type\":\"SubscriptionConfirmation\",\"Message\":\"You have chosen to subscribe\",\"SubscribeURL\":\"https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription\"}";
    let error = post(&provider, body).expect_err("not confirmed").to_string();
    assert!(
        error.contains("open https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription once"),
        "{error}"
    );
}

#[test]
fn answers_are_those_that_vendors_want() {
    for (name, expected) in [
        ("jasmin", ("text/plain; charset=utf-8", "ACK/Jasmin")),
        ("yunpian", ("text/plain; charset=utf-8", "SUCCESS")),
        ("aliyun", ("application/json", r#"{"code":0,"msg":"ok"}"#)),
        ("tencent", ("application/json", r#"{"result":0,"errmsg":"OK"}"#)),
        ("twilio", ("text/plain; charset=utf-8", "")),
        ("aws-sns", ("text/plain; charset=utf-8", "")),
    ] {
        assert_eq!(vendor(name, "").webhook_answer(), expected, "{name}");
    }
}

#[test]
fn jasmin_is_asked_for_receipts_where_an_address_is_set() {
    assert_request(
        &vendor("jasmin", "dlr_url = 'https://e.example/r/t'"),
        &[message()],
        &[
            "&dlr=yes&dlr-level=3&dlr-method=POST&dlr-url=https%3A%2F%2Fe.example%2Fr%2Ft%3Freference%3Dref-1",
        ],
    );
    let plain = vendor("jasmin", "").request(&[message()], &crate::testing::context());
    let body = plain.expect("a request").into_body();
    assert!(!String::from_utf8_lossy(&body).contains("dlr"));
}

#[test]
fn callbacks_are_sent_where_they_are_set() {
    for (name, expected) in [
        ("messagebird", r#""reportUrl":"https://e.example/r""#),
        ("plivo", r#""url":"https://e.example/r""#),
        ("sinch", r#""callback_url":"https://e.example/r""#),
        ("vonage-messages", r#""webhook_url":"https://e.example/r""#),
        ("46elks", "whendelivered=https%3A%2F%2Fe.example%2Fr"),
    ] {
        let provider = vendor(name, "callback = 'https://e.example/r'");
        assert_request(&provider, &[message()], &[expected]);
    }
}

const URL: &str = "https://example.net/receipts/x/t0ken?reference=ref-1";
const BIRD_URL: &str = "https://example.net/receipts/x/t0ken?id=1&reference=ref-1&status=delivered";
const KEY: &str = "hunter2hunter2hunter2hunter2hunter2";
const LONG_KEY: &str = "hunter2hunter2hunter2hunter2hunter2hunter2hunter2hunter2hunter2hunter2";
const TELNYX_KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
const BODY: &str = r#"{"message_uuid":"aaa","status":"delivered"}"#;

/// The vendor with this secret of its webhook.
fn signed(name: &str, secret: &str) -> Provider {
    vendor(name, &format!("webhook = {{ secret = {{ env = '{secret}' }} }}"))
}

/// A request that is signed with the secret. The signatures are from the vendors' libraries for Python, or, where there
/// are none, from its `hmac`.
struct Signed {
    vendor: &'static str,
    secret: &'static str,
    request: String,
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn signatures() -> Vec<Signed> {
    let with = |vendor, secret, head: &str, body: &str| Signed {
        vendor,
        secret,
        request: format!("{head}\n\n{body}"),
    };
    let twilio = "MessageSid=SM1&MessageStatus=delivered&To=%2B15558675310";
    let plivo = "Status=delivered&MessageUUID=u-1&To=14155550100";
    let vonage = "messageId=0A&status=delivered&client-ref=a%26b%3Dc&timestamp=1763715600&sig=";
    let claims = "eyJpc3MiOiJNZXNzYWdlQmlyZCIsIm5iZiI6MTc2MzcxNTU5OSwiZXhwIjoxNzYzNzE1NjMwLCJqdGkiOiJqIiwidXJsX2hhc2giOiI1YjRkZTdhNzBlZmVkZDhhMjUzM2YyMGZmZTBiZWJhYTdhYjJjY2U4NDJiNjRmNTBhYjhjMjU0ODJlOGRiMGZiIn0";
    let mut all = vec![
        // The example of the vendor's documentation.
        with(
            "twilio",
            "12345",
            &format!(
                "POST https://mycompany.com/myapp.php?foo=1&bar=2\n{FORM}\nX-Twilio-Signature: RSOYDt4T1cUTdK1PDd93/VVr8B8="
            ),
            "Digits=1234&To=%2B18005551212&From=%2B14158675309&Caller=%2B14158675309&CallSid=CA1234567890ABCDE",
        ),
        with(
            "twilio",
            "hunter2",
            &format!("POST {URL}\n{FORM}\nX-Twilio-Signature: VVLwhINyZGlezpv076RVNYrP1TY="),
            twilio,
        ),
        with(
            "twilio",
            "hunter2",
            &format!(
                "POST {URL}\n{FORM}\nX-Twilio-Webhooks-Signature-Settings: key=k,algorithm=HMAC_SHA256\nX-Twilio-Signature: HTRj6wxgHKHr73ULAhVOpAyCRGALAQCRKJPT3lKudkM="
            ),
            twilio,
        ),
        with(
            "twilio",
            "hunter2",
            &format!("POST {URL}\n{FORM}\nX-Twilio-Signature: W6pNnW5sSlfYUxZCIHE6XSkA1Fg="),
            "MessageSid=SM1",
        ),
        // Doubled parameters are signed once.
        with(
            "twilio",
            "hunter2",
            &format!(
                "POST https://example.net:443/receipts/x/t0ken?reference=ref-1\n{FORM}\nX-Twilio-Signature: W6pNnW5sSlfYUxZCIHE6XSkA1Fg="
            ),
            "MessageSid=SM1&MessageSid=SM1",
        ),
        with(
            "plivo",
            "hunter2",
            &format!(
                "POST {URL}\n{FORM}\nX-Plivo-Signature-V3: AAAA,/ElmLhX+ttchZdZf8Hp04ym1WtrJ4vgABfEm8IjOLBQ=\nX-Plivo-Signature-V3-Nonce: n0nce"
            ),
            plivo,
        ),
        with(
            "plivo",
            "hunter2",
            &format!(
                "POST https://example.net/receipts/x/t0ken\n{FORM}\nX-Plivo-Signature-Ma-V3: myHVHbTkK816i3Eu7/t8eDzyu2HpWyyRDm5P9BmL4Wc=\nX-Plivo-Signature-V3-Nonce: n0nce"
            ),
            plivo,
        ),
        with(
            "plivo",
            "hunter2",
            &format!(
                "GET {URL}&Status=sent\nX-Plivo-Signature-V3: zBeYv++CbMR3dttdHkrBituOr0R3y5bumWw9ARtOyc4=\nX-Plivo-Signature-V3-Nonce: n0nce"
            ),
            "",
        ),
        with(
            "plivo",
            "hunter2",
            &format!(
                "POST {URL}\n{FORM}\nX-Plivo-Signature-V2: Q1zngscqcrQcqdmdggA6jJ7cNDsKzvHPtcWUDStDVa8=\nX-Plivo-Signature-V2-Nonce: n0nce"
            ),
            plivo,
        ),
        with(
            "vonage-messages",
            KEY,
            &format!(
                "POST {URL}\nAuthorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpYXQiOjE3NjM3MTU2MDAsImp0aSI6IngiLCJpc3MiOiJWb25hZ2UiLCJwYXlsb2FkX2hhc2giOiI2YTIxNWU1YzUzNjg3N2VhOTRjN2I4YWNmNjQ1ODg2ZmQxYmI3NTZkZmYwYWFmMzI4NTFkMWFkY2M2ZWNkNmNiIiwiYXBpX2tleSI6ImsifQ.Prq795s4vDSDfdCThidUYrP2ragWhYx3kkrJJEvqj70"
            ),
            BODY,
        ),
        with(
            "telnyx",
            TELNYX_KEY,
            &format!(
                "POST {URL}\ntelnyx-timestamp: 1763715600\ntelnyx-signature-ed25519: pfF9Vq0/BphxNcEbK/t3b/wZsUMnm/wRiqZh6jPHvW3afpkZjnZcZig8NFoZfyre3t4gZlXKWLySMVM7RAslCw=="
            ),
            BODY,
        ),
        with(
            "sinch",
            "hunter2",
            &format!(
                "POST {URL}\nx-sinch-webhook-signature-timestamp: 1763715600\nx-sinch-webhook-signature-nonce: n0nce\nx-sinch-webhook-signature: n8u22HRAeP6SyRcFnHAeVWwxHBeCt1okqlNzjWyAkwg="
            ),
            BODY,
        ),
        with(
            "sms-gate",
            "hunter2",
            &format!(
                "POST {URL}\nX-Timestamp: 1763715600\nX-Signature: 061bab56f54c08056c8ca2894e4c0d1ecc24cf4e36f71233708e11be7525b908"
            ),
            BODY,
        ),
    ];
    for sig in [
        "3e27415715842f315cd854a787affbb4",
        "3E27415715842F315CD854A787AFFBB4",
        "e437366497b694bffa41722ef5c0f944",
        "662e71e5c5f857d504d1b266d4d7ba13867f31ab",
        "bf31c2c83a8e913ecfbacbf5fcf5929bf9ca46943404ce3f76c8e3638e537e2c",
        "bdf5fe51d900f96fd8a380131405a786483bd10736b556f401e88e1cd9fcd23e03103a3bb1dfe76186ace1761645719a7d9cc55f25e00bfc632a2244b9922644",
    ] {
        let form = format!("POST https://example.net/r\n{FORM}");
        all.push(with("vonage", "hunter2", &form, &format!("{vonage}{sig}")));
        all.push(with(
            "vonage",
            "hunter2",
            &format!("GET https://example.net/r?{vonage}{sig}"),
            "",
        ));
        let json = format!(
            r#"{{"sig":"{sig}","messageId":"0A","status":"delivered","client-ref":"a&b=c","timestamp":"1763715600"}}"#
        );
        all.push(with("vonage", "hunter2", "POST https://example.net/r", &json));
    }
    for (head, signature, secret) in [
        (
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
            "S9qkFK3GIn5sYl8iyin6udQtcRXulR2BtGS2W61Lr5s",
            KEY,
        ),
        (
            "eyJhbGciOiJIUzM4NCIsInR5cCI6IkpXVCJ9",
            "qJYrOO5MTRr5L7FwXh0nEDolql-274lzvYBKSGt06__yGLSk9ij-7wDcxGB0IDUu",
            LONG_KEY,
        ),
        (
            "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9",
            "HHUNu0QqM3zuDFdNj_5kVZMcokupeF-F-6CU-xdpYoGKi21omD1MPn27a_oeRBSqKeJpYTcGmr9ldDxSb2iiUQ",
            LONG_KEY,
        ),
    ] {
        let line =
            format!("GET {BIRD_URL}\nMessageBird-Signature-JWT: {head}.{claims}.{signature}");
        all.push(with("messagebird", secret, &line, ""));
    }
    all
}

fn is_signature_error(result: &Result<Posted, WebhookError>) -> bool {
    matches!(result, Err(WebhookError::Signature(problem)) if !problem.contains("hunter2"))
}

#[test]
fn right_signatures_are_accepted() {
    for case in signatures() {
        let result = post(&signed(case.vendor, case.secret), &case.request);
        assert!(result.is_ok(), "{result:?}\n{}", case.request);
    }
}

#[test]
fn other_requests_with_the_same_signature_are_rejected() {
    for case in signatures() {
        let provider = signed(case.vendor, case.secret);
        let name = &case.request;
        assert!(is_signature_error(&post(&signed(case.vendor, "hunter3"), name)), "{name}");
        // Of the version 2 of Plivo only the URL is signed.
        if name.contains("delivered") && !name.contains("Signature-V2") {
            let changed = name.replace("delivered", "deliverec");
            assert!(is_signature_error(&post(&provider, &changed)), "{changed}");
        }
        let signs_url = ["twilio", "plivo", "messagebird"].contains(&case.vendor);
        if signs_url {
            for (from, to) in [
                ("https://", "http://"),
                (".net/", ".nex/"),
                ("t0ken", "t1ken"),
                ("ref-1", "ref-2"),
            ] {
                let changed = name.replace(from, to);
                if changed == *name || (from == "ref-1" && name.contains("Signature-V2")) {
                    continue;
                }
                assert!(is_signature_error(&post(&provider, &changed)), "{changed}");
            }
        }
    }
}

#[test]
fn plivo_v3_refuses_signatures_of_the_url_alone() {
    let cases = signatures().into_iter();
    for case in cases.filter(|case| case.vendor == "plivo") {
        let secret = case.secret;
        let webhook =
            format!("webhook = {{ signature = 'plivo-v3', secret = {{ env = '{secret}' }} }}");
        let result = post(&vendor("plivo", &webhook), &case.request);
        let is_version_2 = case.request.contains("Signature-V2");
        assert_eq!(is_signature_error(&result), is_version_2, "{}", case.request);
    }
}

#[test]
fn requests_without_signature_are_rejected() {
    for case in signatures() {
        let provider = signed(case.vendor, case.secret);
        let (head, body) = case.request.split_once("\n\n").expect("head and body");
        let is_signature = |line: &&str| {
            let line = line.to_ascii_lowercase();
            line.contains("signature") || line.contains("authorization")
        };
        let head: Vec<&str> = head.lines().filter(|line| !is_signature(line)).collect();
        let request = format!("{}\n\n{body}", head.join("\n")).replace("sig", "gis");
        let result = post(&provider, &request);
        if case.vendor == "vonage-messages" {
            assert_eq!(result, Err(WebhookError::Unsigned));
        } else {
            assert!(is_signature_error(&result), "{request}");
        }
        let doubled = case.request.replace("\nX-", "\nX-Twilio-Signature: AAAA\nX-");
        if case.vendor == "twilio" {
            assert!(is_signature_error(&post(&provider, &doubled)), "{doubled}");
        }
    }
}

#[test]
fn old_and_future_signatures_are_rejected() {
    let minutes = |count: i64| Timestamp::from_millis(NOW.as_millis() + 60_000 * count);
    for case in signatures() {
        let provider = signed(case.vendor, case.secret);
        let (age, has_time) = match case.vendor {
            "twilio" | "plivo" => (0, false),
            "vonage" | "vonage-messages" => (25 * 60, true),
            "sinch" => (24 * 60, true),
            "messagebird" => (1, true),
            _ => (5, true),
        };
        let at = |now| post_at(&provider, &case.request, now);
        assert!(at(minutes(age)).is_ok(), "{}", case.request);
        assert_eq!(is_signature_error(&at(minutes(age + 1))), has_time, "{}", case.request);
        let is_early = is_signature_error(&at(minutes(-6)));
        assert_eq!(is_early, has_time, "{}", case.request);
    }
}

#[test]
fn tokens_of_another_kind_are_rejected() {
    let bird = signed("messagebird", KEY);
    for token in [
        // Expired, for a request with a body, of another issuer.
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJNZXNzYWdlQmlyZCIsIm5iZiI6MTc2MzcxNTIwMCwiZXhwIjoxNzYzNzE1MzAwLCJ1cmxfaGFzaCI6IjViNGRlN2E3MGVmZWRkOGEyNTMzZjIwZmZlMGJlYmFhN2FiMmNjZTg0MmI2NGY1MGFiOGMyNTQ4MmU4ZGIwZmIifQ.oTBDn0hr006MXRNST0-FH4WOmQqE9RcDMOMhklo507g",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJNZXNzYWdlQmlyZCIsIm5iZiI6MTc2MzcxNTU5OSwiZXhwIjoxNzYzNzE1NjMwLCJ1cmxfaGFzaCI6IjViNGRlN2E3MGVmZWRkOGEyNTMzZjIwZmZlMGJlYmFhN2FiMmNjZTg0MmI2NGY1MGFiOGMyNTQ4MmU4ZGIwZmIiLCJwYXlsb2FkX2hhc2giOiJkOWZjOTFkNDVjMDk2YjVlMjdkYzYzMDRkODAxNWRjNWNiMGE5NTljZDA3OGNhMjVmYWZjZjIzMzMwODc3MjhlIn0.uDcDI4rtI8uNK2Kj_Jj90z7NvuoCizVdWbzmZ_JqyBE",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJPdGhlciIsIm5iZiI6MTc2MzcxNTU5OSwiZXhwIjoxNzYzNzE1NjMwLCJ1cmxfaGFzaCI6IjViNGRlN2E3MGVmZWRkOGEyNTMzZjIwZmZlMGJlYmFhN2FiMmNjZTg0MmI2NGY1MGFiOGMyNTQ4MmU4ZGIwZmIifQ.xi5UUk2D9CyqwQhE0kAx7cC0ehYi-SKWIIl3MORO3oI",
        // The algorithm `none`.
        "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJpYXQiOjE3NjM3MTU2MDB9.",
        "",
        "a",
        "a.b.c",
        "a.b.c.d",
        "..",
    ] {
        let request = format!("GET {BIRD_URL}\nMessageBird-Signature-JWT: {token}");
        assert!(is_signature_error(&post(&bird, &request)), "{token}");
    }
    // A query with this body has no payload hash.
    let vonage = signed("vonage-messages", LONG_KEY);
    for value in [
        // HS512, which the vendor does not use.
        "Bearer eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9.eyJpYXQiOjE3NjM3MTU2MDAsImlzcyI6IlZvbmFnZSIsInBheWxvYWRfaGFzaCI6IjZhMjE1ZTVjNTM2ODc3ZWE5NGM3YjhhY2Y2NDU4ODZmZDFiYjc1NmRmZjBhYWYzMjg1MWQxYWRjYzZlY2Q2Y2IifQ.IFyhX8kYiyy5KgyF-_Ts3OgTuQwPGKSh4QBDydr1UYW2NwtK8kTftiF2hHcZB7UBqmCVrEVTcChBz3bq4w4LCQ",
        "Bearer eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJpYXQiOjE3NjM3MTU2MDB9.",
        "Basic aHVudGVyMg==",
        "Bearer",
    ] {
        let request = format!("POST {URL}\nAuthorization: {value}\n\n{BODY}");
        assert!(is_signature_error(&post(&vonage, &request)), "{value}");
    }
    let telnyx = signed("telnyx", "hunter2");
    let error = post(
        &telnyx,
        &format!("POST {URL}\ntelnyx-timestamp: 1\ntelnyx-signature-ed25519: AAAA\n\n{BODY}"),
    );
    assert!(is_signature_error(&error), "{error:?}");
}

#[test]
fn body_of_a_twilio_request_must_be_signed() {
    let provider = signed("twilio", "hunter2");
    let hashed = format!(
        "{URL}&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
    );
    let json = r#"{"property": "value", "boolean": true}"#;
    let request = |url: &str, body: &str| {
        format!(
            "POST {url}\nX-Twilio-Signature: afUcWUkYjsZLmBpHUD7SnDHT3nY=\ncontent-type: application/json\n\n{body}"
        )
    };
    // The section reads forms, so the signature is checked against one.
    let provider_of_json =
        vendor("twilio", "webhook = { secret = { env = 'hunter2' }, format = 'json' }");
    assert!(post(&provider_of_json, &request(&hashed, json)).is_ok());
    assert!(is_signature_error(&post(&provider_of_json, &request(&hashed, "{\"a\":1}"))));
    assert!(is_signature_error(&post(&provider_of_json, &request(URL, json))));
    assert!(is_signature_error(&post(&provider, &request(URL, json))));
}

#[test]
fn missing_secret_leaves_the_token_of_the_address() {
    let section: toml::Table = "kind = 'vonage'".parse().expect("toml");
    let environment = |name: &str| (name != "VONAGE_SIGNATURE_SECRET").then(|| "t".to_owned());
    let provider = Provider::from_section("v", &section, &environment).expect("a provider");
    let webhook = provider.webhook().expect("a webhook");
    assert!(!webhook.is_checked);
    assert_eq!(
        webhook.unchecked_because.as_deref(),
        Some("the environment variable `VONAGE_SIGNATURE_SECRET` is not set")
    );
    let posted = post(&provider, "GET https://e.example/r?messageId=1&status=delivered");
    assert_eq!(found(&posted.expect("a receipt")), ["- 1 -: delivered part 0/0"]);

    // The secret of an API key signs no webhooks.
    let key = "secrets = { api_key = { env = 'K' } }";
    let provider = vendor("twilio", key);
    assert!(!provider.webhook().expect("a webhook").is_checked);
    let own = format!("{key}\nwebhook = {{ secret = {{ env = 'ACCOUNT_TOKEN' }} }}");
    assert!(vendor("twilio", &own).webhook().expect("a webhook").is_checked);
}

#[test]
fn secret_of_a_webhook_can_be_a_file_and_is_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, "s3cr3t-of-the-webhook\n").expect("writes");
    let more = format!("webhook = {{ secret = {{ file = '{}' }} }}", path.display());
    let provider = vendor("vonage", &more);
    assert!(provider.webhook().expect("a webhook").is_checked);
    assert!(!provider.hide_secrets("x s3cr3t-of-the-webhook").contains("s3cr3t"));
}

const CELLAR: &str = r#"
kind = "generic"
url = "https://sms.example.net/v1/send"
json = { to = "{{ phone }}" }
[webhook]
"#;

#[test]
fn wrong_sections_are_explained() {
    let needed = "message_id = '/id'\nstate = '/s'\nstates = {}\n";
    let read = |more: &str| read(&format!("{CELLAR}{more}"));
    for (more, expected) in [
        ("", "missing key `webhook.state`"),
        ("state = '/s'\nstates = {}", "missing key `webhook.message_id`"),
        (
            &format!("{needed}signature = 'twilo'\nsecret = {{ env = 'TOKEN' }}"),
            "invalid `webhook.signature`: unknown value `twilo`",
        ),
        (&format!("{needed}signature = 'twilio'"), "missing key `webhook.secret`"),
        (
            &format!("{needed}signature = 'twilio'\nsecret = 'hunter2'"),
            "invalid `webhook.secret`: must be the name",
        ),
        (
            &format!("{needed}signature = 'twilio'\nsecret = {{ value = 'hunter2' }}"),
            "invalid `webhook.secret`: must be the name",
        ),
        (
            &format!("{needed}signature = 'twilio'\nsecret = {{ file = '/no/such/file' }}"),
            "cannot read secret",
        ),
        (&format!("{needed}fromat = 'json'"), "unknown key `webhook.fromat`"),
        (&format!("{needed}format = 'xml'"), "invalid `webhook.format`: unknown value `xml`"),
        (&format!("{needed}reply_text = '/t'"), "missing key `webhook.reply_phone`"),
        (&format!("{needed}reply_matches = {{ event = 'x' }}"), "invalid `webhook.reply_matches`"),
        (&format!("{needed}zone = 'Mars'"), "invalid `webhook.zone`"),
    ] {
        let error = read(more).expect_err(more);
        assert!(error.contains(expected), "{more}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert!(read(needed).expect("a provider").webhook().is_some());
}

#[test]
fn webhook_reads_entries_like_receipts() {
    let section = format!(
        "{CELLAR}format = 'json'\nlist = ''\n[receipts]\npull = 'drain'\nrate = '1/s'\nlist = '/list'\n\
         message_id = '/id'\nstate = '/state'\nstates = {{ done = 'delivered' }}"
    );
    let provider = read(&section).expect("a provider");
    for body in [r#"{"id":"1","state":"done"}"#, r#"[{"id":"1","state":"done"}]"#] {
        let posted = post(&provider, &format!("POST https://e.example/r?reference=x\n\n{body}"));
        assert_eq!(found(&posted.expect("a receipt")), ["- 1 -: delivered"], "{body}");
    }
}

/// Every vendor, with and without the check of its signature.
static WEBHOOKS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let names = examples().filter(|(_, example)| !example.posted.is_empty());
    let both = |name| {
        let settings = unsigned(name);
        let signed = settings.replace("webhook = { signature = 'none' }", "");
        [vendor(name, settings), vendor(name, &signed)]
    };
    names.flat_map(|(name, _)| both(name)).collect()
});

fn posted_bodies() -> Vec<Vec<u8>> {
    examples()
        .flat_map(|(_, example)| example.posted)
        .map(|posted| match posted.request.split_once("\n\n") {
            Some((_, body)) => body.as_bytes().to_vec(),
            None => Vec::new(),
        })
        .collect()
}

proptest! {
    #[test]
    fn any_request_is_read_or_rejected(
        is_get in any::<bool>(),
        is_form in any::<bool>(),
        query in "[ -~]{0,40}",
        token in prop_oneof!["[a-zA-Z0-9._ =+/-]{0,60}", "eyJhbGciOiJIUzI1NiJ9\\.[a-zA-Z0-9_-]{0,20}\\.[a-zA-Z0-9_-]{43}"],
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[\\[\\]{}\":,a-z0-9=&%/]{0,200}".prop_map(String::into_bytes),
            prop::sample::select(posted_bodies()),
        ],
    ) {
        let method = if is_get { "GET" } else { "POST" };
        let mut head = format!("{method} https://e.example:1/r?{query}");
        if is_form {
            head.extend(["\n", FORM]);
        }
        for name in [
            "authorization", "x-twilio-signature", "messagebird-signature-jwt", "telnyx-signature-ed25519",
            "telnyx-timestamp", "x-plivo-signature-v3", "x-plivo-signature-v3-nonce", "x-signature",
            "x-timestamp", "x-sinch-webhook-signature", "x-sinch-webhook-signature-nonce",
            "x-sinch-webhook-signature-timestamp",
        ] {
            head.extend(["\n", name, ": ", token.trim()]);
        }
        for provider in WEBHOOKS.iter() {
            let result = post_bytes(provider, &head, &body, NOW);
            let is_checked = provider.webhook().is_some_and(|webhook| webhook.is_checked);
            prop_assert!(!is_checked || result.is_err(), "{result:?}");
        }
    }
}

#[test]
fn messages_await_posted_receipts_where_that_is_enabled() {
    for (settings, expected) in [
        ("", false),
        ("webhook = { enabled = true }", true),
        ("webhook = { enabled = false }", false),
    ] {
        let provider = vendor("jasmin", settings);
        assert_eq!(provider.awaits_receipts(), expected, "{settings}");
        let accepted = crate::testing::response(200, "Success \"1\"");
        let context = crate::testing::context();
        let outcomes = provider.parse(&[message()], &accepted, &context);
        let [smsq_message::sms::Outcome::Accepted(acceptance)] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(acceptance.awaits_receipt, expected, "{settings}");
    }
}
