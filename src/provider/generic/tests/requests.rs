//! Requests.

use std::time::Duration;

use smsq_message::sms::{Acceptance, Class, Failure, Outcome};

use super::{CELLAR, with};
use crate::testing::{Case, Expected, accepted, case, check, context, message, read, response};

fn becomes(more: &str, line: &'static str, body: &'static str) {
    let provider = with(more).unwrap_or_else(|error| panic!("{error}"));
    let expected = Expected { line, headers: &[], body };
    check(
        &provider,
        vec![Case {
            request: Some(expected),
            ..case(line, response(200, ""), Outcome::Accepted(Acceptance::default()))
        }],
    );
}

#[test]
fn message_becomes_a_json_request() {
    let mut case = case("json", response(201, r#"{"id":"SM1"}"#), accepted("SM1", None));
    case.request = Some(Expected {
        line: "POST https://sms.example.net/v1/send",
        headers: &[("authorization", "Bearer hunter2"), ("content-type", "application/json")],
        body: r#"{"ref":"ref-1","text":"Hello Anna, 你好 & \"bye\"\n","to":"+8613812345678"}"#,
    });
    let provider = read(CELLAR).unwrap_or_else(|error| panic!("{error}"));
    // Success has a code in this table, so a plain acceptance needs it.
    case.response = response(201, r#"{"id":"SM1","error":{"code":409}}"#);
    check(&provider, vec![case]);
    assert_eq!(provider.timeout(), Duration::from_secs(2));
    assert_eq!(provider.rates().0.len(), 2);
    assert!(provider.capabilities().honoured_for().is_none());
}

#[test]
fn parts_of_values_are_filled_everywhere() {
    becomes(
        "query = { to = '{{ phone[3:] }}', a = '{{ params.name[:4] }}', b = '{{ params[\"name\"][:2] }}', c = '{{ reference[4:] }}' }\n\
         method = 'GET'\nheaders = { X = '{{ phone[3:6] }}' }",
        "GET https://sms.example.net/send?a=Anna&b=An&c=1&to=13812345678",
        "",
    );
    becomes(
        "json = { to = '{% set national = phone[3:] %}{% if national[:2] == \"13\" %}{{ national }}{% endif %}' }",
        "POST https://sms.example.net/send",
        r#"{"to":"13812345678"}"#,
    );
    let provider = with("json = { to = '{{ phone[3:] }}' }\nheaders = { X = '{{ phone[3:6] }}' }");
    let request = provider.expect("a provider").request(&[message()], &context());
    assert_eq!(request.expect("a request").headers()["x"], "138");
    // The column is needed.
    let provider = with("json = { to = '{{ phone }}', x = '{{ params.lacking[:2] }}' }");
    let outcome = provider.expect("a provider").request(&[message()], &context());
    let outcome = format!("{:?}", outcome.expect_err("a missing column"));
    assert!(outcome.contains("`json.x` needs column `lacking`"), "{outcome}");
}

#[test]
fn values_are_encoded_by_the_form_the_query_and_the_url() {
    becomes(
        "form = { To = '{{ phone | digits }}', Body = '{{ content }}', n = [1, '{{ params.order }}'], flash = true }",
        "POST https://sms.example.net/send",
        "Body=Hello+Anna%2C+%E4%BD%A0%E5%A5%BD+%26+%22bye%22%0A&To=8613812345678&flash=true&n=1&n=4711",
    );
    becomes(
        "method = 'GET'\nquery = { to = '{{ phone }}', name = '{{ params.name }}' }",
        "GET https://sms.example.net/send?name=Anna+%26+%22Bob%22&to=%2B8613812345678",
        "",
    );
    becomes(
        "json = { messages = [{ to = ['{{ phone }}'], n = 1, f = 0.5, b = false }], v = '{{ params.name }}!' }",
        "POST https://sms.example.net/send",
        r#"{"messages":[{"b":false,"f":0.5,"n":1,"to":["+8613812345678"]}],"v":"Anna & \"Bob\"!"}"#,
    );
    let provider = read(
        "kind = 'generic'\nurl = 'https://h.example/{{ secret.token }}/{{ params.name }}?a={{ phone }}'\nquery = { b = '1' }\nsecrets = { token = { env = 'TOKEN' } }",
    )
    .expect("a provider");
    let request = provider.request(&[message()], &context()).expect("a request");
    assert_eq!(
        request.uri(),
        "https://h.example/hunter2/Anna%20%26%20%22Bob%22?a=%2B8613812345678&b=1"
    );
}

#[test]
fn headers_have_basic_auth_and_sender() {
    let provider = with(
        r#"headers = { authorization = "Basic {{ ('me' ~ ':' ~ secret.token) | base64 }}", x-from = "{{ from }}" }
secrets = { token = { env = "TOKEN" } }"#,
    )
    .expect("a provider");
    let mut campaign = message();
    campaign.from = Some("SHOP".to_owned());
    let request = provider.request(&[campaign], &context()).expect("a request");
    assert_eq!(request.headers()["authorization"], "Basic bWU6aHVudGVyMg==");
    assert_eq!(request.headers()["x-from"], "SHOP");
    assert!(!format!("{request:?}").contains("bWU6"));
    assert!(!format!("{provider:?}").contains("hunter2"));
    match provider.request(&[message()], &context()) {
        Err(Outcome::AccountError { failure, listed: true }) => {
            assert!(failure.reason.contains("sender"), "{}", failure.reason);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_without_column_is_rejected() {
    let provider = with("json = { to = '{{ phone }}', t = '{{ params.city }}' }").expect("read");
    let outcome = provider.request(&[message()], &context()).expect_err("rejected");
    let reason = "`json.t` needs column `city`, which the message lacks";
    assert_eq!(outcome, Outcome::Rejected(Failure::new(Class::Content, reason)));
    let provider = with("headers = { x = '{{ content }}' }").expect("read");
    let outcome = provider.request(&[message()], &context()).expect_err("rejected");
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
}
