//! Batches of every vendor that has them: each message gets its own result, whatever the response contains.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};
use smsq_message::phone::Phone;
use smsq_message::sms::{Outcome, Timestamp};
use smsq_provider::{Message, Provider, RequestContext};

use crate::vendors::{AcceptedBatch, EXAMPLES, Example, batch_provider};

/// A vendor's response to three messages that it accepts.
struct Case {
    kind: &'static str,
    example: &'static AcceptedBatch,
    status: u16,
    list: Option<&'static str>,
}

static ACCEPTED: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let case = |(kind, example): (&&'static str, &'static Example)| {
        let example = example.batch.as_ref()?;
        Some(Case { kind, example, status: example.status, list: example.list.as_deref() })
    };
    EXAMPLES.iter().filter_map(case).collect()
});

impl Case {
    fn provider(&self) -> Provider {
        batch_provider(self.kind)
    }

    fn body(&self) -> Value {
        let entry = |message: &Message| {
            let digits = message.phone.digits();
            self.example
                .entry
                .replace("@phone", message.phone.as_str())
                .replace("@digits", digits)
                .replace("@bare", &digits[2..])
                .replace("@reference", &message.reference)
                .replace("@id", &format!("m{}", message.reference))
        };
        let list: Vec<String> = messages().iter().map(entry).collect();
        let body = self.example.whole.replace("@list", &format!("[{}]", list.join(",")));
        serde_json::from_str(&body).expect(self.kind)
    }

    /// The body with the list as `change` leaves it.
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
        params: json!({ "order": "4711" }).as_object().expect("an object").clone(),
    };
    (0..3).map(one).collect()
}

fn context() -> RequestContext {
    RequestContext { now: Timestamp::from_millis(1_700_000_000_000), nonce: 7 }
}

fn answered(provider: &Provider, status: u16, body: impl Into<Bytes>) -> Vec<Outcome> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let outcomes = provider.parse(&messages(), &response, &context());
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
fn accepted_batch_is_read() {
    for case in ACCEPTED.iter() {
        let (kind, provider) = (case.kind, case.provider());
        let all = messages();
        assert!(
            all.iter().all(|message| provider.batch_key(message) == provider.batch_key(&all[0])),
            "{kind}"
        );
        let request = provider.request(&all, &context());
        assert!(request.is_ok(), "{kind}: {request:?}");
        let outcomes = answered(&provider, case.status, case.body().to_string());
        assert_eq!(marks(&outcomes), "aaa", "{kind}");
        // Results are matched by id, except where the vendor matches them by position.
        if let Some(turned) = case.changed(|list| list.reverse()) {
            let marks = marks(&answered(&provider, case.status, turned));
            let expected = if kind == "tencent" { "?a?" } else { "aaa" };
            assert_eq!(marks, expected, "{kind}");
        }
    }
}

#[test]
fn message_without_own_result_is_unknown() {
    for case in ACCEPTED.iter() {
        let (kind, provider) = (case.kind, case.provider());
        let marks_of = |body: Option<String>| Some(marks(&answered(&provider, case.status, body?)));
        // One vendor matches results by position.
        let by_place = kind == "tencent";
        for (what, expected, found) in [
            ("short", "a?a", marks_of(case.changed(|list| drop(list.remove(1))))),
            ("empty", "???", marks_of(case.changed(Vec::clear))),
            ("twice", "?aa", marks_of(case.changed(|list| list.push(list[0].clone())))),
            ("null", "aa?", marks_of(case.changed(|list| list[2] = Value::Null))),
            ("a number", "aa?", marks_of(case.changed(|list| list[2] = json!(7)))),
        ] {
            let is_counted = by_place && !["null", "a number"].contains(&what);
            let expected = if is_counted { "???" } else { expected };
            assert!(
                found.as_deref().is_none_or(|found| found == expected),
                "{kind} {what}: {found:?}"
            );
        }
        let other = case.body().to_string();
        let other = ["+861381234567", "861381234567", "1381234567"]
            .iter()
            .fold(other, |body, phone| body.replace(&format!("{phone}1"), &format!("{phone}9")));
        let other = marks_of(case.list.map(|_| other));
        assert!(other.as_deref().is_none_or(|found| found == "a?a"), "{kind}: {other:?}");
    }
}

#[test]
fn cut_or_unrelated_batch_response_accepts_nothing() {
    let deep = "[".repeat(100_000);
    let html = "<html><h1>200 OK</h1>accepted</html>";
    for case in ACCEPTED.iter() {
        let (kind, provider) = (case.kind, case.provider());
        let body = case.body().to_string();
        for end in 0..body.len() {
            let marks = marks(&answered(&provider, case.status, body[..end].to_owned()));
            assert_eq!(marks, "???", "{kind} {end}");
        }
        for body in [html, "", "null", "[]", "{}", "\"OK\"", "0", &deep] {
            let marks = marks(&answered(&provider, case.status, body.to_owned()));
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
    for case in ACCEPTED.iter() {
        let (kind, provider) = (case.kind, case.provider());
        for status in [400, 401, 404, 422, 429, 500, 502, 503] {
            let all = marks(&answered(&provider, status, case.body().to_string()));
            assert_eq!(all, "???", "{kind} {status}");
            let some = case.changed(|list| list.truncate(1));
            let some = some.map(|body| marks(&answered(&provider, status, body)));
            assert!(some.is_none_or(|some| some == "???"), "{kind} {status}");
        }
    }
}

/// A JSON pointer to every value of the document.
fn places(json: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match json {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), all));
        }
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(index, value)| places(value, &format!("{at}/{index}"), all)),
        _ => {}
    }
}

#[test]
fn malformed_result_changes_no_other_message() {
    let long = json!("x".repeat(10_000));
    let wrong = [json!(null), json!({}), json!([[7]]), json!(""), long];
    for case in ACCEPTED.iter() {
        let (kind, provider, whole) = (case.kind, case.provider(), case.body());
        let right = answered(&provider, case.status, whole.to_string());
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for place in all {
            for wrong in &wrong {
                let mut broken = whole.clone();
                *broken.pointer_mut(&place).expect("a place") = wrong.clone();
                let outcomes = answered(&provider, case.status, broken.to_string());
                let entry = case.list.and_then(|list| place.strip_prefix(list)?.get(1..2));
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

static PROVIDERS: LazyLock<Vec<(&Case, Provider)>> = LazyLock::new(|| {
    let all = ACCEPTED.iter();
    all.map(|case| (case, case.provider())).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn mutated_response_gives_every_message_one_outcome(
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~]{0,3}", 0_usize..4), 1..6),
        status in prop_oneof![Just(200_u16), Just(201), 400_u16..600],
    ) {
        for (case, provider) in PROVIDERS.iter() {
            let mut body = case.body().to_string().into_bytes();
            for (at, text, cut) in &edits {
                let at = at.index(body.len() + 1);
                let end = (at + cut).min(body.len());
                body.splice(at..end, text.bytes());
            }
            let marks = marks(&answered(provider, status, body));
            prop_assert!(status < 300 || !marks.contains('a'), "{} {}", case.kind, marks);
        }
    }
}
