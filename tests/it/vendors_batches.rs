//! Several messages in one request, for every vendor that takes them: what comes back of it, good and bad, settles
//! each message on its own, and nobody's result is taken for another's.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};
use smsq::phone::Phone;
use smsq::provider::{Message, Provider, RequestContext, builtin};
use smsq::sms::{Outcome, Timestamp};

/// What a vendor answers to three messages that it takes.
struct Taken {
    kind: &'static str,
    settings: &'static str,
    status: u16,
    /// The list of results; Alibaba has none, and speaks of all.
    list: Option<&'static str>,
    /// What surrounds the list `@list`.
    whole: &'static str,
    /// One result, with `@phone`, `@digits`, `@bare` (without `86`), `@reference` and `@id` of its message.
    entry: &'static str,
}

const TAKEN: [Taken; 8] = [
    Taken {
        kind: "aliyun",
        settings: "template = 'SMS_1'\nparams = { code = 'order' }",
        status: 200,
        list: None,
        whole: r#"{"Code":"OK","Message":"OK","BizId":"m","RequestId":"r"}"#,
        entry: "",
    },
    Taken {
        kind: "clicksend",
        settings: "",
        status: 200,
        list: Some("/data/messages"),
        whole: r#"{"http_code":200,"response_code":"SUCCESS","data":{"messages":@list}}"#,
        entry: r#"{"to":"@phone","message_id":"@id","message_parts":1,"custom_string":"@reference","status":"SUCCESS"}"#,
    },
    Taken {
        kind: "huawei",
        settings: "template = '1'\nparams = ['order']\nchannel = '88'",
        status: 200,
        list: Some("/result"),
        whole: r#"{"code":"000000","description":"Success","result":@list}"#,
        entry: r#"{"originTo":"@phone","smsMsgId":"@id","status":"000000"}"#,
    },
    Taken {
        kind: "infobip",
        settings: "url = 'https://x1.api.infobip.com'",
        status: 200,
        list: Some("/messages"),
        whole: r#"{"bulkId":"b","messages":@list}"#,
        entry: r#"{"messageId":"@reference","destination":"@digits","status":{"groupId":1,"id":26},"details":{"messageCount":1}}"#,
    },
    Taken {
        kind: "messagebird",
        settings: "",
        status: 201,
        list: Some("/recipients/items"),
        whole: r#"{"id":"m","recipients":{"items":@list}}"#,
        entry: r#"{"recipient":@digits,"status":"sent"}"#,
    },
    Taken {
        kind: "sinch",
        settings: "batch = { per_call = 100 }",
        status: 201,
        list: Some("/to"),
        whole: r#"{"id":"m","to":@list,"canceled":false}"#,
        entry: r#""@digits""#,
    },
    Taken {
        kind: "tencent",
        settings: "template = '1'\nparams = ['order']\nsdk_app_id = '1400'",
        status: 200,
        list: Some("/Response/SendStatusSet"),
        whole: r#"{"Response":{"SendStatusSet":@list,"RequestId":"r"}}"#,
        entry: r#"{"SerialNo":"@id","PhoneNumber":"@phone","Fee":1,"Code":"Ok"}"#,
    },
    Taken {
        kind: "yunpian",
        settings: "",
        status: 200,
        list: Some("/data"),
        whole: r#"{"total_count":3,"data":@list}"#,
        entry: r#"{"code":0,"msg":"ok","count":1,"mobile":"@bare","sid":"@id"}"#,
    },
];

impl Taken {
    fn provider(&self) -> Provider {
        let stanza = format!("kind = '{}'\nfrom = 'SHOP'\n{}", self.kind, self.settings);
        let stanza: toml::Table = stanza.parse().expect("TOML");
        let read = Provider::from_stanza(self.kind, &stanza, &|name| Some(name.to_lowercase()));
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    fn body(&self) -> Value {
        let entry = |message: &Message| {
            let digits = message.phone.digits();
            self.entry
                .replace("@phone", message.phone.as_str())
                .replace("@digits", digits)
                .replace("@bare", &digits[2..])
                .replace("@reference", &message.reference)
                .replace("@id", &format!("m{}", message.reference))
        };
        let list: Vec<String> = messages().iter().map(entry).collect();
        let body = self
            .whole
            .replace("@list", &format!("[{}]", list.join(",")));
        serde_json::from_str(&body).expect(self.kind)
    }

    /// With the entries that `change` leaves of the list.
    fn changed(&self, change: impl FnOnce(&mut Vec<Value>)) -> Option<String> {
        let mut body = self.body();
        let list = body.pointer_mut(self.list?).and_then(Value::as_array_mut);
        change(list.expect(self.kind));
        Some(body.to_string())
    }
}

/// Three messages with one text.
fn messages() -> Vec<Message> {
    let one = |at: u32| Message {
        phone: Phone::parse(&format!("+861381234567{at}"), None).expect("a phone"),
        content: "Hello".to_owned(),
        reference: format!("0f7a-{at}"),
        from: None,
        params: json!({ "order": "4711" })
            .as_object()
            .expect("an object")
            .clone(),
    };
    (0..3).map(one).collect()
}

fn stamp() -> RequestContext {
    RequestContext {
        now: Timestamp::from_millis(1_700_000_000_000),
        nonce: 7,
    }
}

fn answered(provider: &Provider, status: u16, body: impl Into<Bytes>) -> Vec<Outcome> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let outcomes = provider.answer(&messages(), &response, &stamp());
    assert_eq!(outcomes.len(), 3);
    outcomes
}

/// `a` for accepted, `?` for unknown, `x` for anything else, message by message.
fn marks(outcomes: &[Outcome]) -> String {
    let mark = |outcome: &Outcome| match outcome {
        Outcome::Accepted(_) => 'a',
        Outcome::Unknown(_) => '?',
        _ => 'x',
    };
    outcomes.iter().map(mark).collect()
}

#[test]
fn every_vendor_of_several_is_in_the_table_and_takes_them_all() {
    for (kind, _) in builtin() {
        let stanza: toml::Table = format!("kind = '{kind}'\nurl = 'https://h.example'")
            .parse()
            .expect("TOML");
        let provider = Provider::from_stanza(kind, &stanza, &|_| Some("s".to_owned()));
        let takes_several = provider.is_ok_and(|provider| provider.most_per_call() > 1);
        let is_listed = TAKEN.iter().any(|taken| taken.kind == *kind);
        assert!(is_listed || !takes_several, "{kind}");
    }
    for taken in &TAKEN {
        let (kind, provider) = (taken.kind, taken.provider());
        let all = messages();
        assert!(
            (0..3).all(|at| provider.joins(&all[..at], &all[at])),
            "{kind}"
        );
        let request = provider.request(&all, &stamp());
        assert!(request.is_ok(), "{kind}: {request:?}");
        let outcomes = answered(&provider, taken.status, taken.body().to_string());
        assert_eq!(marks(&outcomes), "aaa", "{kind}");
        // The order of the results says nothing, but where it is the vendor's way.
        if let Some(turned) = taken.changed(|list| list.reverse()) {
            let marks = marks(&answered(&provider, taken.status, turned));
            let expected = if kind == "tencent" { "?a?" } else { "aaa" };
            assert_eq!(marks, expected, "{kind}");
        }
    }
}

#[test]
fn who_has_no_result_of_its_own_is_unknown() {
    for taken in &TAKEN {
        let (kind, provider) = (taken.kind, taken.provider());
        let says = |body: Option<String>| Some(marks(&answered(&provider, taken.status, body?)));
        // One list tells whose a result is by its place.
        let by_place = kind == "tencent";
        for (what, expected, found) in [
            (
                "short",
                "a?a",
                says(taken.changed(|list| drop(list.remove(1)))),
            ),
            ("empty", "???", says(taken.changed(Vec::clear))),
            (
                "twice",
                "?aa",
                says(taken.changed(|list| list.push(list[0].clone()))),
            ),
            (
                "null",
                "aa?",
                says(taken.changed(|list| list[2] = Value::Null)),
            ),
            (
                "a number",
                "aa?",
                says(taken.changed(|list| list[2] = json!(7))),
            ),
        ] {
            let is_counted = by_place && !["null", "a number"].contains(&what);
            let expected = if is_counted { "???" } else { expected };
            assert!(
                found.as_deref().is_none_or(|found| found == expected),
                "{kind} {what}: {found:?}"
            );
        }
        let other = taken.body().to_string();
        let other = ["+861381234567", "861381234567", "1381234567"]
            .iter()
            .fold(other, |body, phone| {
                body.replace(&format!("{phone}1"), &format!("{phone}9"))
            });
        let other = says(taken.list.map(|_| other));
        assert!(
            other.as_deref().is_none_or(|found| found == "a?a"),
            "{kind}: {other:?}"
        );
    }
}

#[test]
fn an_answer_to_several_that_is_cut_off_or_somebody_elses_accepts_none() {
    let deep = "[".repeat(100_000);
    let html = "<html><h1>200 OK</h1>accepted</html>";
    for taken in &TAKEN {
        let (kind, provider) = (taken.kind, taken.provider());
        let body = taken.body().to_string();
        for end in 0..body.len() {
            let marks = marks(&answered(&provider, taken.status, body[..end].to_owned()));
            assert_eq!(marks, "???", "{kind} {end}");
        }
        for body in [html, "", "null", "[]", "{}", "\"OK\"", "0", &deep] {
            let marks = marks(&answered(&provider, taken.status, body.to_owned()));
            assert_eq!(marks, "???", "{kind} {body}");
        }
        for status in [400, 401, 404, 422, 429, 500, 502, 503] {
            let marks = marks(&answered(&provider, status, body.clone()));
            assert!(!marks.contains('a'), "{kind} {status}");
        }
    }
}

#[test]
fn error_status_with_accepted_entries_resends_none() {
    for taken in &TAKEN {
        let (kind, provider) = (taken.kind, taken.provider());
        for status in [400, 401, 404, 422, 429, 500, 502, 503] {
            let all = marks(&answered(&provider, status, taken.body().to_string()));
            assert_eq!(all, "???", "{kind} {status}");
            let some = taken.changed(|list| list.truncate(1));
            let some = some.map(|body| marks(&answered(&provider, status, body)));
            assert!(some.is_none_or(|some| some == "???"), "{kind} {status}");
        }
    }
}

/// Every place of the document, as pointers.
fn places(json: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match json {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, one)| places(one, &format!("{at}/{key}"), all)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(index, one)| places(one, &format!("{at}/{index}"), all)),
        _ => {}
    }
}

#[test]
fn a_wrong_type_or_a_long_id_in_one_result_never_changes_another() {
    let long = json!("x".repeat(10_000));
    let wrong = [json!(null), json!({}), json!([[7]]), json!(""), long];
    for taken in &TAKEN {
        let (kind, provider, whole) = (taken.kind, taken.provider(), taken.body());
        let right = answered(&provider, taken.status, whole.to_string());
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for place in all {
            for wrong in &wrong {
                let mut broken = whole.clone();
                *broken.pointer_mut(&place).expect("a place") = wrong.clone();
                let outcomes = answered(&provider, taken.status, broken.to_string());
                let entry = taken
                    .list
                    .and_then(|list| place.strip_prefix(list)?.get(1..2));
                for (at, (outcome, right)) in outcomes.iter().zip(&right).enumerate() {
                    if entry.is_some_and(|entry| entry != at.to_string()) {
                        assert_eq!(outcome, right, "{kind} {place} {wrong}");
                    }
                    if let Outcome::Accepted(acceptance) = outcome {
                        let id = acceptance.message_id.as_deref();
                        assert!(id.is_some_and(|id| id.len() <= 255), "{kind} {place}");
                    }
                }
            }
        }
    }
}

static PROVIDERS: LazyLock<Vec<(&Taken, Provider)>> = LazyLock::new(|| {
    let all = TAKEN.iter();
    all.map(|taken| (taken, taken.provider())).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn whatever_is_done_to_an_answer_every_message_has_one_outcome(
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~]{0,3}", 0_usize..4), 1..6),
        status in prop_oneof![Just(200_u16), Just(201), 400_u16..600],
    ) {
        for (taken, provider) in PROVIDERS.iter() {
            let mut body = taken.body().to_string().into_bytes();
            for (at, text, cut) in &edits {
                let at = at.index(body.len() + 1);
                let end = (at + cut).min(body.len());
                body.splice(at..end, text.bytes());
            }
            let marks = marks(&answered(provider, status, body));
            prop_assert!(status < 300 || !marks.contains('a'), "{} {}", taken.kind, marks);
        }
    }
}
