//! Requests and responses of every built-in vendor: no response causes a panic, and none counts as accepted
//! without proof.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Response;
use proptest::prelude::*;
use serde_json::{Value, json};
use smsq::phone::Phone;
use smsq::provider::{Message, Provider, RequestContext, builtin};
use smsq::sms::{Outcome, Timestamp};

/// The response of each vendor to a message that it accepts, with `@phone`, `@digits` and `@reference` of the message.
const ACCEPTED: [(&str, u16, &str); 20] = [
    (
        "46elks",
        200,
        r#"{"id":"s1","status":"created","to":"@phone","cost":3500,"parts":1}"#,
    ),
    (
        "aliyun",
        200,
        r#"{"Code":"OK","Message":"OK","BizId":"900619746936498440^0","RequestId":"r"}"#,
    ),
    ("aws-sms", 200, r#"{"MessageId":"m1"}"#),
    (
        "aws-sns",
        200,
        "<PublishResponse><PublishResult><MessageId>m1</MessageId></PublishResult></PublishResponse>",
    ),
    (
        "clicksend",
        200,
        r#"{"http_code":200,"response_code":"SUCCESS","data":{"messages":[{"to":"@phone","message_id":"m1","message_parts":1,"custom_string":"@reference","status":"SUCCESS"}]}}"#,
    ),
    (
        "huawei",
        200,
        r#"{"code":"000000","description":"Success","result":[{"originTo":"@phone","smsMsgId":"m1","status":"000000"}]}"#,
    ),
    (
        "infobip",
        200,
        r#"{"bulkId":"b","messages":[{"messageId":"@reference","destination":"@digits","status":{"groupId":1,"id":26,"name":"PENDING_ACCEPTED"},"details":{"messageCount":1}}]}"#,
    ),
    (
        "jasmin",
        200,
        r#"Success "07033084-5cfd-4812-90a4-e4d24ffb6e3d""#,
    ),
    ("kannel", 202, "0: Accepted for delivery"),
    (
        "messagebird",
        201,
        r#"{"id":"m1","recipients":{"items":[{"recipient":8613812345678,"status":"sent"}]}}"#,
    ),
    (
        "plivo",
        202,
        r#"{"message":"message(s) queued","message_uuid":["m1"],"api_id":"a"}"#,
    ),
    ("sandbox", 201, r#"{"id":"SB000001","segments":1}"#),
    (
        "sinch",
        201,
        r#"{"id":"b1","to":["@digits"],"canceled":false}"#,
    ),
    (
        "sms-gate",
        202,
        r#"{"id":"@reference","state":"Pending","recipients":[]}"#,
    ),
    (
        "telnyx",
        200,
        r#"{"data":{"id":"t1","parts":1,"to":[{"phone_number":"@phone","status":"queued"}]}}"#,
    ),
    (
        "tencent",
        200,
        r#"{"Response":{"SendStatusSet":[{"SerialNo":"s1","PhoneNumber":"@phone","Fee":1,"Code":"Ok"}],"RequestId":"r"}}"#,
    ),
    (
        "twilio",
        201,
        r#"{"sid":"SM1","to":"@phone","status":"queued","num_segments":"1"}"#,
    ),
    (
        "vonage",
        200,
        r#"{"message-count":"1","messages":[{"to":"@digits","message-id":"m1","status":"0","client-ref":"@reference"}]}"#,
    ),
    ("vonage-messages", 202, r#"{"message_uuid":"m1"}"#),
    (
        "yunpian",
        200,
        r#"{"code":0,"msg":"ok","count":1,"fee":0.05,"unit":"RMB","mobile":"@phone","sid":3310228982}"#,
    ),
];

/// What a template vendor needs to send at all.
const SETTINGS: &str = "from = 'SHOP'\n";

pub(crate) fn provider(kind: &str) -> Provider {
    let more = match kind {
        "aliyun" => "template = 'SMS_1'\nparams = { code = 'order' }",
        "tencent" => "template = '1'\nparams = ['order']\nsdk_app_id = '1400'",
        "huawei" => "template = '1'\nparams = ['order']\nchannel = '88'",
        "infobip" => "url = 'https://x1.api.infobip.com'",
        "sandbox" => "url = 'http://127.0.0.1:8025'",
        _ => "",
    };
    let from = if kind == "sandbox" { "" } else { SETTINGS };
    let section = format!("kind = '{kind}'\n{from}{more}");
    let section: toml::Table = section.parse().expect("TOML");
    let provider = Provider::from_section(kind, &section, &|name| Some(name.to_lowercase()));
    provider.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) static PROVIDERS: LazyLock<Vec<(&str, Provider)>> = LazyLock::new(|| {
    ACCEPTED
        .iter()
        .map(|(kind, ..)| (*kind, provider(kind)))
        .collect()
});

pub(crate) fn message() -> Message {
    let params = json!({ "order": "4711" });
    Message {
        phone: Phone::parse("+8613812345678", None).expect("a phone"),
        content: "Hello Anna, 你好".to_owned(),
        reference: "0f7a-ref-1".to_owned(),
        from: None,
        params: params.as_object().expect("an object").clone(),
    }
}

pub(crate) fn context() -> RequestContext {
    RequestContext {
        now: Timestamp::from_millis(1_700_000_000_000),
        nonce: 7,
    }
}

fn filled(body: &str) -> String {
    let message = message();
    body.replace("@phone", message.phone.as_str())
        .replace("@digits", message.phone.digits())
        .replace("@reference", &message.reference)
}

fn answered(provider: &Provider, status: u16, body: impl Into<Bytes>) -> Outcome {
    let mut response = Response::new(body.into());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    let mut outcomes = provider.parse(&[message()], &response, &context());
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn is_accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

#[test]
fn every_vendor_builds_a_request_and_accepts_its_response() {
    let listed: Vec<&str> = ACCEPTED.iter().map(|(kind, ..)| *kind).collect();
    for (kind, _) in builtin() {
        assert!(*kind == "generic" || listed.contains(kind), "{kind}");
    }
    for (kind, status, body) in ACCEPTED {
        let provider = provider(kind);
        let request = provider.request(&[message()], &context());
        let request = request.unwrap_or_else(|outcome| panic!("{kind}: {outcome:?}"));
        let again = provider
            .request(&[message()], &context())
            .expect("a request");
        assert_eq!(request.uri(), again.uri(), "{kind}");
        assert_eq!(request.headers(), again.headers(), "{kind}");
        assert_eq!(request.body(), again.body(), "{kind}");
        let outcome = answered(&provider, status, filled(body));
        let Outcome::Accepted(acceptance) = outcome else {
            panic!("{kind}: {outcome:?}");
        };
        assert_eq!(acceptance.message_id.is_some(), kind != "kannel", "{kind}");
    }
}

#[test]
fn cut_response_is_never_accepted() {
    for (kind, status, body) in ACCEPTED {
        let provider = provider(kind);
        let body = filled(body);
        for end in 0..body.len() {
            let outcome = answered(
                &provider,
                status,
                Bytes::copy_from_slice(&body.as_bytes()[..end]),
            );
            assert!(
                matches!(outcome, Outcome::Unknown(_)),
                "{kind} {end}: {outcome:?}"
            );
        }
    }
}

#[test]
fn response_of_a_proxy_is_never_accepted() {
    let html = "<html><body><h1>200 OK</h1>Success, message accepted, id 4711</body></html>";
    let large = format!("[{}0]", "0,".repeat(1 << 16));
    let deep = "[".repeat(100_000);
    for (kind, status, _) in ACCEPTED {
        let provider = provider(kind);
        for body in [
            html,
            "",
            "null",
            "[]",
            "{}",
            "\"OK\"",
            "0",
            "\u{0}\u{0}",
            &large,
            &deep,
        ] {
            for status in [status, 200] {
                let outcome = answered(&provider, status, body.to_owned());
                assert!(
                    matches!(outcome, Outcome::Unknown(_)),
                    "{kind} {status}: {outcome:?}"
                );
            }
            for status in [400, 404, 429, 500, 502, 503, 504] {
                assert!(
                    !is_accepted(&answered(&provider, status, body.to_owned())),
                    "{kind} {status}"
                );
            }
        }
    }
}

/// Every place of the document, as pointers.
fn places(json: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match json {
        Value::Object(map) => map.iter().for_each(|(key, one)| {
            places(one, &format!("{at}/{key}"), all);
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, one)| {
            places(one, &format!("{at}/{index}"), all);
        }),
        _ => {}
    }
}

#[test]
fn wrong_type_is_accepted_only_with_a_message_id() {
    let wrong = [
        json!(null),
        json!({}),
        json!([]),
        json!([[7]]),
        json!({ "a": 1 }),
        json!(""),
    ];
    for (kind, status, body) in ACCEPTED {
        let provider = provider(kind);
        let Ok(whole) = serde_json::from_str::<Value>(&filled(body)) else {
            continue;
        };
        let Outcome::Accepted(right) = answered(&provider, status, whole.to_string()) else {
            panic!("{kind}");
        };
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for place in all {
            for wrong in &wrong {
                let mut broken = whole.clone();
                *broken.pointer_mut(&place).expect("a place") = wrong.clone();
                match answered(&provider, status, broken.to_string()) {
                    Outcome::Accepted(acceptance) => {
                        assert_eq!(
                            acceptance.message_id, right.message_id,
                            "{kind} {place} {wrong}"
                        );
                    }
                    Outcome::Unknown(_) => {}
                    outcome => panic!("{kind} {place} {wrong}: {outcome:?}"),
                }
            }
        }
    }
}

#[test]
fn long_message_id_is_truncated() {
    for (kind, status, body) in ACCEPTED {
        let provider = provider(kind);
        let id = "x".repeat(10_000);
        let long = [r#""m1""#, r#""s1""#, r#""t1""#, r#""b1""#, r#""SM1""#]
            .iter()
            .fold(filled(body), |body, old| {
                body.replace(old, &format!("\"{id}\""))
            });
        let outcome = answered(&provider, status, long);
        let Outcome::Accepted(acceptance) = outcome else {
            panic!("{kind}: {outcome:?}");
        };
        assert!(
            acceptance.message_id.is_none_or(|id| id.len() <= 255),
            "{kind}"
        );
    }
}

pub(crate) fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(OK|Ok|0|000000|SUCCESS|[a-zA-Z0-9+.]{0,12})".prop_map(Value::from),
    ];
    let key = "(Code|code|Response|Error|messages|message|data|errors|id|status|result|items|to|sid|[a-z]{1,4})";
    leaf.prop_recursive(4, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn error_status_never_accepts_and_nothing_panics(
        document in documents(),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        status in prop_oneof![Just(200_u16), Just(201), Just(202), 400_u16..600],
        as_noise: bool,
    ) {
        let body = if as_noise { noise } else { document.to_string().into_bytes() };
        for (kind, provider) in PROVIDERS.iter() {
            let outcome = answered(provider, status, body.clone());
            // With any status, a vendor's code may mean that it already has the message.
            let may_be_known = ["sandbox", "clicksend", "yunpian"].contains(kind);
            prop_assert!(status < 300 || may_be_known || !is_accepted(&outcome), "{}: {:?}", kind, outcome);
        }
    }
}
