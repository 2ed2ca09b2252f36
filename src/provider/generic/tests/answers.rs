//! Outcomes of answers.

use std::time::Duration;

use smsq_message::sms::{Acceptance, Class, Failure, Outcome};

use super::{CELLAR, with};
use crate::client::MaybeStray;
use crate::testing::{
    accepted, case, check, context, message, messages, read, response, unclear_answer, unknown,
    words,
};

fn failure(class: Class, code: &str, reason: &str) -> Failure {
    Failure::new(class, reason).with_code(code)
}

fn error(code: &str) -> String {
    format!(r#"{{"error":{{"code":{code},"message":"to +8613812345678: no"}}}}"#)
}

#[test]
fn codes_decide_before_the_status() {
    let provider = read(CELLAR).expect("a provider");
    let mut throttled = response(200, error("30001"));
    throttled.headers_mut().insert("retry-after", 9.into());
    let words = "to +*************: no";
    let retry_after = None;
    check(
        &provider,
        vec![
            case(
                "number",
                response(200, error("21211")),
                Outcome::Rejected(failure(Class::Recipient, "21211", "not a valid number")),
            ),
            case(
                "text, and the vendor's words",
                response(500, error(r#""21610""#)),
                Outcome::Rejected(failure(Class::OptedOut, "21610", words)),
            ),
            case(
                "account",
                response(400, error("20003")),
                Outcome::AccountError {
                    failure: failure(Class::Account, "20003", "wrong token"),
                    listed: true,
                },
            ),
            case(
                "throttle",
                throttled,
                Outcome::Throttled {
                    failure: failure(Class::Throttle, "30001", words),
                    retry_after: Some(Duration::from_secs(9)),
                },
            ),
            case(
                "cap",
                response(403, error("30002")),
                Outcome::Deferred { failure: failure(Class::Cap, "30002", words), retry_after },
            ),
            case(
                "unavailable",
                response(500, error("30003")),
                Outcome::Unavailable {
                    failure: failure(Class::Unavailable, "30003", words),
                    retry_after,
                },
            ),
            case(
                "unknown",
                response(400, error("30004")),
                Outcome::Unknown(failure(Class::Unknown, "30004", words)),
            ),
            case(
                "success before",
                response(409, error("409")),
                Outcome::Duplicate(Acceptance::default()),
            ),
            case(
                "unlisted",
                response(400, error("7")),
                Outcome::Rejected(failure(
                    Class::Content,
                    "7",
                    "the gateway answered 400 Bad Request: to +*************: no",
                )),
            ),
        ],
    );
}

#[test]
fn acceptance_of_another_phone_is_doubt() {
    let section = CELLAR
        .replace("message_id =", "phone = '/to'\nmessage_id =")
        .replace("409 = { class = \"accepted\" }", "");
    let provider = read(&section).expect("a provider");
    let words = |to: &str| {
        let body = format!(r#"{{"id":"g1","to":{to}}}"#);
        let outcomes = provider.parse(&[message()], &response(200, body), &context());
        match &outcomes[..] {
            [Outcome::Accepted(_)] => "accepted".to_owned(),
            [Outcome::Unknown(failure)] => failure.reason.clone(),
            other => panic!("{other:?}"),
        }
    };
    for same in
        ["\"+8613812345678\"", "8613812345678", "\"138 1234 5678\"", "\"138****5678\"", "null"]
    {
        assert_eq!(words(same), "accepted", "{same}");
    }
    for other in ["\"+8613812345679\"", "13812345679", "\"138****5679\""] {
        assert!(words(other).contains("for another phone"), "{other}");
    }
}

#[test]
fn success_needs_its_code_if_it_has_one() {
    let provider = read(CELLAR).expect("a provider");
    let reason = "the gateway answered 200 OK without a known code of success";
    check(
        &provider,
        vec![
            case("none", response(200, ""), unknown(reason)),
            case(
                "unlisted",
                response(200, r#"{"error":{"code":"x"}}"#),
                Outcome::Unknown(
                    unclear_answer(&format!(r#"{reason}: {{"error":{{"code":"x"}}}}"#))
                        .with_code("x"),
                ),
            ),
            case(
                "no id",
                response(200, r#"{"error":{"code":409}}"#),
                Outcome::Unknown(
                    unclear_answer(
                        r#"the gateway answered 200 OK without a message id at `/id`: {"error":{"code":409}}"#,
                    )
                    .with_code("409"),
                ),
            ),
        ],
    );
}

#[test]
fn without_message_id_the_status_decides() {
    let provider = with("accepted = [204]").expect("a provider");
    let success = || Outcome::Accepted(Acceptance::default());
    check(
        &provider,
        vec![
            case("listed", response(204, "<html>"), success()),
            case("another 2xx", response(200, "OK"), unknown("the gateway answered 200 OK: OK")),
        ],
    );
}

#[test]
fn error_status_with_an_id_and_without_a_code_is_doubt() {
    let keys =
        "message_id = '/id'\nerror_code = '/code'\ncodes = { bad = { class = 'recipient' } }";
    let provider = with(keys).expect("a provider");
    for (status, body, expected) in [
        (400, r#"{"id":"m1"}"#, "unknown"),
        (401, r#"{"id":"m1"}"#, "unknown"),
        (429, r#"{"id":17}"#, "unknown"),
        (307, r#"{"id":"m1","code":""}"#, "unknown"),
        // The id may be that of the error.
        (400, r#"{"id":"m1","code":"E17"}"#, "content"),
        (400, r#"{"id":"m1","code":"bad"}"#, "recipient"),
        (400, r#"{"id":null}"#, "content"),
        (400, r#"{"id":0}"#, "content"),
        (400, r#"{"id":false}"#, "content"),
        (429, r#"{"reason":"slow"}"#, "throttle"),
    ] {
        let found = words(&provider, &messages(1), status, body);
        assert_eq!(found, [expected], "{status} {body}");
    }
}

#[test]
fn status_is_certain_only_where_the_section_says_so() {
    let doubt = |status: u16, name: &str| {
        let redirect = if status < 400 { ", a redirect, which is never followed" } else { "" };
        Outcome::Unknown(Failure {
            is_answer: !matches!(status, 408 | 500..),
            ..Failure::new(
                Class::Unknown,
                format!(
                    "the gateway answered {status} {name}{redirect}; it may have accepted the message (if its \
                     documentation rules that out, set `certain_status = [{status}]`)"
                ),
            )
        })
    };
    let names = [
        (302, "Found"),
        (303, "See Other"),
        (409, "Conflict"),
        (425, "Too Early"),
        (408, "Request Timeout"),
        (500, "Internal Server Error"),
        (502, "Bad Gateway"),
        (503, "Service Unavailable"),
        (504, "Gateway Timeout"),
    ];
    for more in ["", "message_id = '/id'", "certain_status = []"] {
        let provider = with(more).expect("a provider");
        let case = |(status, name)| case(more, response(status, ""), doubt(status, name));
        check(&provider, names.map(case).into());
    }
    let provider = with(
        "certain_status = [302, 408, 409, 503]\nerror_code = '/code'\n\
                         codes = { lost = { class = 'unknown' }, busy = { class = 'throttle' } }",
    );
    let provider = provider.expect("a provider");
    let of = |status, body: &str| match words(&provider, &messages(1), status, body).as_slice() {
        [word] => word.clone(),
        words => panic!("{words:?}"),
    };
    for (status, expected) in [
        (301, "unlisted_account"),
        (302, "unavailable"),
        (303, "unknown"),
        (400, "content"),
        (408, "unavailable"),
        (409, "unavailable"),
        (499, "unknown"),
        (500, "unknown"),
        (502, "unknown"),
        (503, "unavailable"),
        (504, "unknown"),
    ] {
        assert_eq!(of(status, ""), expected, "{status}");
    }
    // A code in the body counts more.
    assert_eq!(of(503, r#"{"code":"lost"}"#), "unknown");
    assert_eq!(of(503, r#"{"code":"busy"}"#), "throttle");
    assert_eq!(of(503, r#"{"code":"other"}"#), "unavailable");
}

#[test]
fn status_of_an_earlier_or_wrong_key_is_an_error() {
    for (more, expected) in [
        ("unknown_status = [503]", "unknown key `unknown_status`\nhint: remove it: "),
        (
            "certain_status = [200]",
            "invalid `certain_status`: 200 is not in doubt\nhint: list statuses from 300 to 599",
        ),
        (
            "certain_status = [429]",
            "invalid `certain_status`: 429 is not in doubt\nhint: remove it, it is certain without: RFC 6585, 4: ",
        ),
        ("certain_status = 503", "invalid `certain_status`: must be a list"),
    ] {
        let error = with(more).expect_err(more);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn redirect_can_accept_where_the_section_says_so() {
    let provider = with("accepted = [302, 303]").expect("a provider");
    let of = |status| words(&provider, &messages(1), status, "");
    assert_eq!(of(302), ["accepted"]);
    assert_eq!(of(303), ["accepted"]);
    assert_eq!(of(301), ["unlisted_account"]);
    for status in [300, 301, 304, 307, 308, 500] {
        let error = with(&format!("accepted = [{status}]")).expect_err("refused");
        assert!(error.contains("cannot have that meaning"), "{error}");
    }
}

#[test]
fn body_that_breaks_off_decides_nothing() {
    let provider = read(CELLAR).expect("a provider");
    let of = |status, body: &str| words(&provider, &messages(1), status, body);
    for (body, expected) in [
        ("", "content"),
        ("{}", "content"),
        ("<html>", "content"),
        (r#"{"error":{"code":21211}}"#, "recipient"),
        (r#"{"error":{"code":21211}"#, "unknown"),
        ("{", "unknown"),
        ("[", "unknown"),
    ] {
        assert_eq!(of(400, body), [expected], "{body}");
    }
    assert_eq!(of(429, "{\"error\":"), ["unknown"]);
}

#[test]
fn text_matches_a_whole_code_or_a_pattern() {
    let provider = with(
        "error_text = ['', '']\naccepted = [200]\ncodes = { 1 = { class = 'accepted' }, 2 = { class = 'content' }, \
         'No route*' = { class = 'recipient' }, '*BLACKLISTED*' = { class = 'opted_out' } }",
    )
    .expect("a provider");
    for (status, body, expected) in [
        (200, "1", "accepted"),
        (200, " 1 \n", "accepted"),
        (200, "17", "unknown"),
        (200, "1: x", "unknown"),
        (200, "10", "unknown"),
        (200, "", "unknown"),
        (200, "2", "content"),
        (200, "20", "unknown"),
        (200, "No route to it", "recipient"),
        (200, "number is BLACKLISTED!", "opted_out"),
        (400, "20", "content"),
        (409, "20", "unknown"),
    ] {
        let words = words(&provider, &messages(1), status, body);
        assert_eq!(words, [expected], "{status} {body}");
    }
    let outcome = provider.parse(&[message()], &response(200, "x BLACKLISTED"), &context());
    let code = outcome[0].failure().and_then(|failure| failure.code.clone());
    assert_eq!(code.as_deref(), Some("BLACKLISTED"));
    assert!(provider.knows_code("BLACKLISTED"));
}

#[test]
fn possible_second_answer_is_doubt() {
    let provider = read(CELLAR).expect("a provider");
    let word = |status, code: &str, is_habit| {
        let mut answer = response(status, error(code));
        answer.extensions_mut().insert(MaybeStray { is_habit });
        let outcomes = provider.parse(&[message()], &answer, &context());
        assert_eq!(outcomes.len(), 1);
        matches!(outcomes[0], Outcome::Unknown(_))
    };
    for status in [400, 401, 429] {
        // Only a code of the table, at a server that ends connections with its refusals, is believed.
        let doubted = [("21211", false), ("7", true), ("7", false), ("409", true)];
        for (code, is_habit) in doubted {
            assert!(word(status, code, is_habit), "{status} {code}");
        }
        assert!(!word(status, "21211", true), "{status}");
    }
}

#[test]
fn malformed_answer_is_never_a_success() {
    let provider = with("message_id = '/id'").expect("a provider");
    let no_id = "the gateway answered 201 Created without a message id at `/id`";
    let no_json = "the gateway answered 201 Created with a body that is not JSON";
    let table = [
        ("empty", String::new(), no_json.to_owned()),
        ("truncated", r#"{"id":"SM1","#.to_owned(), format!(r#"{no_json}: {{"id":"SM1","#)),
        (
            "a proxy's page",
            "<html>\n<h1>Welcome</h1>".to_owned(),
            format!("{no_json}: <html> <h1>Welcome</h1>"),
        ),
        (
            "an id of the wrong type",
            r#"{"id":{"a":1}}"#.to_owned(),
            format!(r#"{no_id}: {{"id":{{"a":1}}}}"#),
        ),
        ("null", r#"{"id":null}"#.to_owned(), format!(r#"{no_id}: {{"id":null}}"#)),
        ("an empty id", r#"{"id":""}"#.to_owned(), format!(r#"{no_id}: {{"id":""}}"#)),
        ("a list", "[1]".to_owned(), format!("{no_id}: [1]")),
        (
            "the text again, escaped",
            r#"{"text":"Hello Anna, \u4f60\u597d & bye"}"#.to_owned(),
            no_id.to_owned(),
        ),
    ];
    let cases = table
        .into_iter()
        .map(|(name, body, reason)| case(name, response(201, body), unknown(&reason)));
    check(&provider, cases.collect());
}

#[test]
fn id_is_read_in_any_form_and_cut() {
    let provider = with("message_id = '/0/id'").expect("a provider");
    let long = "x".repeat(10_000);
    let mut plain = response(200, r#"[{"id":"SM1"}]"#);
    plain.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
    check(
        &provider,
        vec![
            case("another content type", plain, accepted("SM1", None)),
            case(
                "a number",
                response(200, r#"[{"id":12345678901}]"#),
                accepted("12345678901", None),
            ),
            case(
                "a byte order mark",
                response(200, "\u{feff}[{\"id\":\"SM1\"}]"),
                accepted("SM1", None),
            ),
            case(
                "10 kB",
                response(200, format!(r#"[{{"id":"{long}"}}]"#)),
                accepted(&long[..255], None),
            ),
        ],
    );
}
