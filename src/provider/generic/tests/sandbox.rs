//! The built-in sandbox provider: single messages and lists.

use crate::testing::{self, Expected, accepted, case, check, joins, read, response};
use crate::{Message, Provider, RequestContext};
use std::time::Duration;

use smsq_message::phone::Phone;
use smsq_message::sms::{Class, Failure, Outcome, Timestamp};

fn provider() -> Provider {
    read("kind = 'sandbox'\nurl = 'http://127.0.0.1:8025/'").expect("a provider")
}

fn error(code: &str) -> String {
    format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#)
}

fn failure(class: Class, code: &str, reason: &str) -> Failure {
    Failure::new(class, reason).with_code(code)
}

#[test]
fn message_is_json_and_acceptance_has_an_id() {
    let mut success = case(
        "accepted",
        response(201, r#"{"id":"SB000001","segments":2}"#),
        accepted("SB000001", Some(2)),
    );
    success.request = Some(Expected {
        line: "POST http://127.0.0.1:8025/messages",
        headers: &[("content-type", "application/json")],
        body: r#"{"reference":"ref-1","text":"Hello Anna, 你好 & \"bye\"\n","to":"+8613812345678"}"#,
    });
    let known = case(
        "success before",
        response(200, r#"{"id":"SB000001","segments":2}"#),
        accepted("SB000001", Some(2)),
    );
    check(&provider(), vec![success, known]);
}

#[test]
fn codes_mean_what_the_section_says() {
    let mut throttled = response(429, error("rate_limited"));
    throttled.headers_mut().insert("retry-after", 1.into());
    check(
        &provider(),
        vec![
            case(
                "no such number",
                response(400, error("invalid_recipient")),
                Outcome::Rejected(Failure {
                    is_dead_number: true,
                    ..failure(
                        Class::Recipient,
                        "invalid_recipient",
                        "not a number that can be reached",
                    )
                }),
            ),
            case(
                "opted out",
                response(400, error("opted_out")),
                Outcome::Rejected(failure(
                    Class::OptedOut,
                    "opted_out",
                    "the recipient asked for no more messages",
                )),
            ),
            case(
                "suspended",
                response(401, error("account_suspended")),
                Outcome::AccountError {
                    failure: failure(
                        Class::Account,
                        "account_suspended",
                        "the account is suspended",
                    ),
                    listed: true,
                },
            ),
            case(
                "too fast",
                throttled,
                Outcome::Throttled {
                    failure: failure(Class::Throttle, "rate_limited", "no"),
                    retry_after: Some(Duration::from_secs(1)),
                },
            ),
            case(
                "busy",
                response(503, error("overloaded")),
                Outcome::Unavailable {
                    failure: failure(Class::Unavailable, "overloaded", "no"),
                    retry_after: None,
                },
            ),
        ],
    );
}

#[test]
fn unknown_key_has_a_suggestion() {
    let error = read("kind = 'sandbox'\nurl = 'http://localhost'\ntimout = '1s'");
    assert_eq!(
        error.expect_err("a fault"),
        "provider `cellar`: unknown key `timout`\nhint: did you mean `timeout`?"
    );
}

fn messages(count: usize) -> Vec<Message> {
    let one = |number: usize| Message {
        phone: Phone::parse(&format!("+861380000000{number}"), None).expect("a phone"),
        content: "hello".to_owned(),
        reference: format!("r{number}"),
        from: None,
        params: serde_json::Map::new(),
    };
    (1..=count).map(one).collect()
}

const STAMP: RequestContext = RequestContext { now: Timestamp::from_millis(0), nonce: 0 };

fn batching() -> Provider {
    read("kind = 'sandbox'\nurl = 'http://127.0.0.1:8025/'\nbatch = { per_call = 3 }")
        .expect("a provider")
}

/// What is made of each of three messages, in a word.
fn words(status: u16, body: &str) -> [String; 3] {
    let words = testing::words(&batching(), &messages(3), status, body);
    let first = |words: String| words.split(' ').next().unwrap_or_default().to_owned();
    let words: Vec<String> = words.into_iter().map(first).collect();
    words.try_into().expect("one for each")
}

const RESULTS: [&str; 3] = [
    r#"{"status":201,"reference":"r1","id":"SB1","segments":1}"#,
    r#"{"status":200,"reference":"r2","id":"SB2","segments":1}"#,
    r#"{"status":201,"reference":"r3","id":"SB3","segments":1}"#,
];

fn list(results: &[&str]) -> String {
    format!("[{}]", results.join(","))
}

#[test]
fn batch_is_a_list_with_each_phone_once() {
    let provider = batching();
    assert_eq!(provider.max_batch(), 3);
    let four = messages(4);
    assert!(joins(&provider, &four[..2], &four[2]));
    assert!(!joins(&provider, &four[..3], &four[3]));
    assert!(!joins(&provider, &four[..2], &four[0]));
    let request = provider.request(&four[..2], &STAMP).expect("a request");
    let expected = r#"[{"reference":"r1","text":"hello","to":"+8613800000001"},{"reference":"r2","text":"hello","to":"+8613800000002"}]"#;
    assert_eq!(request.body(), expected);
}

#[test]
fn results_are_found_in_any_order() {
    let [first, second, third] = RESULTS;
    let bad = r#"{"status":400,"reference":"r2","error":{"code":"invalid_recipient"}}"#;
    let busy = r#"{"status":429,"reference":"r3","error":{"code":"rate_limited"},"retry_after":1}"#;
    assert_eq!(words(200, &list(&[third, first, second])), ["accepted"; 3]);
    assert_eq!(words(200, &list(&[busy, bad, first])), ["accepted", "recipient", "throttle"]);
}

#[test]
fn message_without_own_result_is_unknown() {
    let [first, second, third] = RESULTS;
    let nameless = r#"{"status":201,"id":"SB1"}"#;
    let empty = r#"{"status":201,"reference":"r3"}"#;
    let odd = r#"{"status":"so","reference":"r3"}"#;
    for (results, expected) in [
        (vec![first, second], ["accepted", "accepted", "unknown"]),
        (vec![first, first, third], ["unknown", "unknown", "accepted"]),
        (vec![nameless, second, third], ["unknown", "accepted", "accepted"]),
        (vec![first, second, empty], ["accepted", "accepted", "unknown"]),
        (vec![first, second, odd], ["accepted", "accepted", "unknown"]),
        (vec![], ["unknown"; 3]),
    ] {
        assert_eq!(words(200, &list(&results)), expected, "{results:?}");
    }
    for body in ["", "{}", "[", first, "<html>", "[1,2,3]"] {
        assert_eq!(words(200, body), ["unknown"; 3], "{body}");
    }
}

#[test]
fn rejected_list_rejects_no_single_message() {
    let error = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#);
    for (status, code, expected) in [
        (400, "invalid_recipient", "batch_rejected"),
        (400, "strange", "batch_rejected"),
        (401, "account_suspended", "account"),
        (429, "rate_limited", "throttle"),
        (503, "overloaded", "unavailable"),
        (500, "strange", "unknown"),
    ] {
        assert_eq!(words(status, &error(code)), [expected; 3], "{status} {code}");
    }
}

#[test]
fn batch_has_1_to_1000_messages() {
    for count in [0, 1_001] {
        let section =
            format!("kind = 'sandbox'\nurl = 'http://localhost'\nbatch = {{ per_call = {count} }}");
        let error = read(&section).expect_err("a fault");
        assert_eq!(error, "provider `cellar`: invalid `batch.per_call`: must be 1 to 1000");
    }
}
