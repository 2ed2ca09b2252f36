//! Outcomes of answers.

use std::time::Duration;

use super::{CELLAR, with};
use crate::provider::testing::{
    accepted, case, check, context, message, messages, read, response, unknown, words,
};
use crate::sms::{Acceptance, Class, Failure, Outcome};

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
                Outcome::Deferred {
                    failure: failure(Class::Cap, "30002", words),
                    retry_after,
                },
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
    for same in [
        "\"+8613812345678\"",
        "8613812345678",
        "\"138 1234 5678\"",
        "\"138****5678\"",
        "null",
    ] {
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
                Outcome::Unknown(failure(
                    Class::Unknown,
                    "x",
                    &format!(r#"{reason}: {{"error":{{"code":"x"}}}}"#),
                )),
            ),
            case(
                "no id",
                response(200, r#"{"error":{"code":409}}"#),
                Outcome::Unknown(failure(
                    Class::Unknown,
                    "409",
                    r#"the gateway answered 200 OK without a message id at `/id`: {"error":{"code":409}}"#,
                )),
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
            case(
                "another 2xx",
                response(200, "OK"),
                unknown("the gateway answered 200 OK: OK"),
            ),
        ],
    );
}

#[test]
fn status_is_certain_only_where_the_section_says_so() {
    let doubt = |status: u16, name: &str| {
        unknown(&format!(
            "the gateway answered {status} {name}; it may have accepted the message (if its documentation rules that \
             out, set `certain_status = [{status}]`)"
        ))
    };
    let names = [
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
        "certain_status = [408, 503]\nerror_code = '/code'\n\
                         codes = { lost = { class = 'unknown' }, busy = { class = 'throttle' } }",
    );
    let provider = provider.expect("a provider");
    let of = |status, body: &str| match words(&provider, &messages(1), status, body).as_slice() {
        [word] => word.clone(),
        words => panic!("{words:?}"),
    };
    for (status, expected) in [
        (408, "unavailable"),
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
        (
            "unknown_status = [503]",
            "unknown key `unknown_status`\nhint: remove it: ",
        ),
        (
            "certain_status = [200]",
            "invalid `certain_status`: 200 is not in doubt\nhint: ",
        ),
        (
            "certain_status = [429]",
            "invalid `certain_status`: 429 is not in doubt\nhint: ",
        ),
        (
            "certain_status = 503",
            "invalid `certain_status`: must be a list",
        ),
    ] {
        let error = with(more).expect_err(more);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn malformed_answer_is_never_a_success() {
    let provider = with("message_id = '/id'").expect("a provider");
    let no_id = "the gateway answered 201 Created without a message id at `/id`";
    let no_json = "the gateway answered 201 Created with a body that is not JSON";
    let table = [
        ("empty", String::new(), no_json.to_owned()),
        (
            "truncated",
            r#"{"id":"SM1","#.to_owned(),
            format!(r#"{no_json}: {{"id":"SM1","#),
        ),
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
        (
            "null",
            r#"{"id":null}"#.to_owned(),
            format!(r#"{no_id}: {{"id":null}}"#),
        ),
        (
            "an empty id",
            r#"{"id":""}"#.to_owned(),
            format!(r#"{no_id}: {{"id":""}}"#),
        ),
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
    plain
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("text/plain"));
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
