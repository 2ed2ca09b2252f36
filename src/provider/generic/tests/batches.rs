//! Batches.

use super::{CELLAR, with};
use crate::Provider;
use crate::testing::{
    BATCH_REJECTED, assert_request, joins, lookup_result, message, messages, read, vendor, words,
};

/// Whether each of `count` messages joins those before it.
fn join(provider: &Provider, count: u32) -> bool {
    let all = messages(count);
    let mut places = 0..all.len();
    places.all(|at| joins(provider, &all[..at], &all[at]))
}

#[test]
fn messages_with_one_text_share_request_and_reference() {
    let provider = vendor("messagebird", "");
    assert_eq!(provider.max_batch(), 50);
    assert!(join(&provider, 22));
    assert_request(
        &provider,
        &messages(3),
        &[
            r#""recipients":["8613812345678","8613812345679","8613812345680"],"reference":"batch-ref-1"}"#,
        ],
    );
    assert_request(&provider, &messages(1), &[r#""reference":"ref-1"}"#]);
    let mut two = messages(2);
    two[1].content = "another".to_owned();
    assert!(!joins(&provider, &two[..1], &two[1]));
    let mut two = messages(2);
    two[1].from = Some("OTHER".to_owned());
    assert!(!joins(&provider, &two[..1], &two[1]));
    // A request contains a phone only once.
    assert!(!joins(&provider, &messages(1), &messages(1)[0]));
}

#[test]
fn phone_without_one_result_is_unknown() {
    let provider = vendor("messagebird", "");
    let three = messages(3);
    let body = |phones: &[&str]| {
        let items: Vec<String> = phones
            .iter()
            .map(|phone| format!(r#"{{"recipient":{phone},"status":"sent"}}"#))
            .collect();
        let items = items.join(",");
        format!(r#"{{"id":"m1","recipients":{{"totalCount":3,"items":[{items}]}}}}"#)
    };
    let (first, second, third) = ("8613812345678", "8613812345679", "\"+8613812345680\"");
    let success = "accepted m1";
    let none = ["unknown"; 3];
    for (status, body, expected) in [
        (201, body(&[third, first, second]), [success; 3]),
        (201, body(&[first, third]), [success, "unknown", success]),
        (201, body(&[first, second, "8613900000000"]), [success, success, "unknown"]),
        (201, body(&[first, first, second, third]), ["unknown", success, success]),
        (201, body(&[first, "null", "{}", "[]"]), [success, "unknown", "unknown"]),
        (201, body(&[]), none),
        (201, r#"{"id":"m1"}"#.to_owned(), none),
        (201, r#"{"id":"m1","recipients":{"items":"all"}}"#.to_owned(), none),
        (201, body(&[first, second, third]).replace("\"m1\"", "{}"), none),
        (201, body(&[first, second, third]).replace("]}}", ""), none),
        (201, "<html>OK</html>".to_owned(), none),
        (503, String::new(), none),
        (500, body(&[first, second, third]), none),
        (429, String::new(), ["throttle"; 3]),
        (401, r#"{"errors":[{"code":2}]}"#.to_owned(), ["account"; 3]),
        // It could be any of them, and none was accepted.
        (422, r#"{"errors":[{"code":10}]}"#.to_owned(), [BATCH_REJECTED; 3]),
        (400, "{}".to_owned(), [BATCH_REJECTED; 3]),
    ] {
        assert_eq!(words(&provider, &three, status, &body), expected, "{status} {body}");
    }
    let long = "x".repeat(10_000);
    let body = body(&[first, second, third]).replace("m1", &long);
    assert_eq!(words(&provider, &three, 201, &body), vec![format!("accepted {}", &long[..255]); 3]);
}

#[test]
fn messages_with_different_texts_have_own_results() {
    let provider = vendor("clicksend", "");
    let mut three = messages(3);
    three[1].content = "Bye".to_owned();
    three[2].from = Some("OTHER".to_owned());
    assert!(joins(&provider, &three[..2], &three[2]));
    assert_request(
        &provider,
        &three,
        &[
            r#"{"messages":[{"body":"Hello"#,
            r#"{"body":"Bye","custom_string":"ref-2","from":"SHOP","source":"smsq","to":"+8613812345679"}"#,
            r#""custom_string":"ref-3","from":"OTHER""#,
        ],
    );
    let item = |at: usize, phone: &str, status: &str| {
        format!(
            r#"{{"to":"{phone}","message_id":"m{at}","message_parts":1,"custom_string":"ref-{at}","status":"{status}"}}"#
        )
    };
    let (first, second, third) = ("+8613812345678", "+8613812345679", "+8613812345680");
    let body = |items: &[String]| {
        let items = items.join(",");
        format!(r#"{{"http_code":200,"response_code":"SUCCESS","data":{{"messages":[{items}]}}}}"#)
    };
    for (status, body, expected) in [
        (
            200,
            body(&[
                item(2, second, "INVALID_RECIPIENT"),
                item(1, first, "SUCCESS"),
                item(3, third, "THROTTLED"),
            ]),
            ["accepted m1", "recipient", "unknown"],
        ),
        (
            200,
            body(&[item(1, first, "SUCCESS"), item(2, third, "SUCCESS")]),
            ["accepted m1", "unknown", "unknown"],
        ),
        (
            200,
            body(&[
                item(1, first, "INSUFFICIENT_CREDIT"),
                item(2, second, "NEW"),
                item(3, third, "SUCCESS"),
            ]),
            ["account", "unknown", "accepted m3"],
        ),
        (401, body(&[]), ["account"; 3]),
        (400, body(&[item(1, first, "INVALID_RECIPIENT")]), [BATCH_REJECTED, "unknown", "unknown"]),
    ] {
        assert_eq!(words(&provider, &three, status, &body), expected, "{status} {body}");
    }
    // Alone, an error may name its message.
    let alone = body(&[item(1, first, "INVALID_RECIPIENT")]);
    assert_eq!(words(&provider, &three[..1], 400, &alone), ["recipient"]);
    let other = body(&[item(1, second, "SUCCESS")]);
    // It is about the only message, however the vendor writes its number.
    assert_eq!(words(&provider, &three[..1], 200, &other), ["accepted m1"]);
}

#[test]
fn shared_reference_is_never_reported_absent() {
    let alone = vendor("sinch", "");
    assert_eq!(alone.max_batch(), 1);
    assert!(!join(&alone, 2));
    let nothing = r#"{"count":0,"batches":[]}"#;
    assert_eq!(lookup_result(&alone, 60, 200, nothing), "absent");
    let provider = vendor("sinch", "batch = { per_call = 100 }");
    assert!(join(&provider, 3));
    assert_request(
        &provider,
        &messages(2),
        &[
            r#""client_reference":"batch-ref-1","delivery_report":"per_recipient","from":"SHOP","to":["8613812345678","8613812345679"]"#,
        ],
    );
    let success = r#"{"id":"b1","to":["8613812345679","8613812345678"]}"#;
    assert_eq!(words(&provider, &messages(2), 201, success), ["accepted b1"; 2]);
    let short = r#"{"id":"b1","to":["8613812345679"]}"#;
    assert_eq!(words(&provider, &messages(2), 201, short), ["unknown", "accepted b1"]);
    assert_eq!(lookup_result(&provider, 60, 200, nothing), "unclear");
    // A lookup by number shows the requests of batches.
    let provider = vendor("messagebird", "");
    let entry = |reference: &str| {
        format!(r#"{{"items":[{{"id":"m1","reference":"{reference}"}}],"totalCount":1}}"#)
    };
    for (reference, expected) in
        [("ref-1", "found m1"), ("ref-2", "absent"), ("batch-ref-2", "unclear")]
    {
        assert_eq!(lookup_result(&provider, 60, 200, &entry(reference)), expected);
    }
}

#[test]
fn joined_phones_and_ordered_results() {
    let provider = with(
        "form = { to = '{{ phone | digits }}', text = '{{ content }}' }\nmessage_id = '/ids/*'\n\
         batch = { per_call = 3, repeat = 'form.to', separator = ',', results = '/ids' }",
    );
    let provider = provider.unwrap_or_else(|error| panic!("{error}"));
    assert!(join(&provider, 3));
    assert!(!join(&provider, 4));
    assert_request(&provider, &messages(2), &["&to=8613812345678%2C8613812345679"]);
    let two = messages(2);
    assert_eq!(words(&provider, &two, 200, r#"{"ids":["a","b"]}"#), ["accepted a", "accepted b"]);
    for body in [r#"{"ids":["a"]}"#, r#"{"ids":["a","b","c"]}"#, "{}"] {
        assert_eq!(words(&provider, &two, 200, body), ["unknown"; 2], "{body}");
    }
    let provider = with(
        "query = { to = '{{ phone }}', n = '{{ params.name }}' }\n\
         batch = { per_call = 9, repeat = 'query.to', separator = ';' }",
    );
    let provider = provider.unwrap_or_else(|error| panic!("{error}"));
    assert_request(&provider, &two, &["&to=%2B8613812345678%3B%2B8613812345679\n"]);
    let list = with(
        "form = { to = ['{{ phone | digits }}'] }\nbatch = { per_call = 9, repeat = 'form.to' }",
    );
    assert_request(
        &list.unwrap_or_else(|error| panic!("{error}")),
        &two,
        &["\nto=8613812345678&to=8613812345679"],
    );
    // Without `results` the response is about all messages.
    assert_eq!(words(&provider, &two, 200, ""), ["accepted"; 2]);
    assert_eq!(words(&provider, &two, 413, ""), [BATCH_REJECTED; 2]);
    // A body that only ends with its connection may be missing.
    assert_eq!(words(&provider, &two, 400, ""), ["unknown"; 2]);
    let mut other = message();
    other.params["name"] = "Bob".into();
    other.phone = two[1].phone.clone();
    assert!(!joins(&provider, &two[..1], &other));
}

#[test]
fn request_and_response_can_be_lists() {
    let provider = with(
        "json = [{ to = '{{ phone }}' }]\nmessage_id = '/*/id'\n\
         batch = { per_call = 2, repeat = 'json', results = '', matches = { '/to' = '{{ phone }}' } }",
    );
    let provider = provider.unwrap_or_else(|error| panic!("{error}"));
    let two = messages(2);
    assert_request(&provider, &two[..1], &[r#"[{"to":"+8613812345678"}]"#]);
    assert_request(&provider, &two, &[r#"[{"to":"+8613812345678"},{"to":"+8613812345679"}]"#]);
    let body = r#"[{"to":"8613812345679","id":"b"},{"to":"8613812345678","id":"a"}]"#;
    assert_eq!(words(&provider, &two, 200, body), ["accepted a", "accepted b"]);
}

#[test]
fn already_accepted_code_says_nothing_about_a_batch() {
    let more = "[batch]\nper_call = 9\nrepeat = 'json.to'\nseparator = ' '";
    let source = CELLAR.replace("[codes]", &format!("{more}\n[codes]"));
    let provider = read(&source).unwrap_or_else(|error| panic!("{error}"));
    let known = r#"{"error":{"code":409}}"#;
    assert_eq!(words(&provider, &messages(1), 409, known), ["duplicate"]);
    assert_eq!(words(&provider, &messages(2), 409, known), ["unknown"; 2]);
    assert_eq!(
        words(&provider, &messages(2), 200, r#"{"id":"x","error":{"code":30001}}"#),
        ["throttle"; 2]
    );
}

#[test]
fn error_that_lists_or_hides_results_proves_nothing_about_others() {
    let provider = read(
        "kind = 'generic'\nurl = 'http://127.0.0.1:1'\nmessage_id = '/results/*/id'\nerror_code = ['/code', '/results/*/code']\n\
         json = { messages = [{ to = '{{ phone }}' }] }\n\
         [batch]\nper_call = 9\nrepeat = 'json.messages'\nresults = '/results'\n\
         matches = { '/to' = '{{ phone }}' }\n\
         [codes]\nbad = { class = 'recipient' }\nwhole = { class = 'content' }",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let three = messages(3);
    let bad = |phone: &str| format!(r#"{{"to":"{phone}","code":"bad"}}"#);
    let (first, second) = (bad("+8613812345678"), bad("+8613812345679"));
    let rejected = BATCH_REJECTED;
    let html = "<html>Unprocessable</html>".to_owned();
    for (status, body, expected) in [
        (422, format!(r#"{{"results":[{first},{second}]}}"#), [rejected, rejected, "unknown"]),
        (
            400,
            format!(r#"{{"results":[{first},{second},{first}]}}"#),
            ["unknown", rejected, "unknown"],
        ),
        (400, format!(r#"{{"code":"whole","results":[{first}]}}"#), [rejected; 3]),
        (422, r#"{"results":[]}"#.to_owned(), [rejected; 3]),
        (422, r#"{"detail":"no"}"#.to_owned(), [rejected; 3]),
        (400, r#"{"results":{"+8613812345678":"ok"}}"#.to_owned(), ["unknown"; 3]),
        (422, html.clone(), ["unknown"; 3]),
        (400, html.clone(), ["unknown"; 3]),
        (413, html.clone(), [rejected; 3]),
        (401, html.clone(), ["unlisted_account"; 3]),
        (429, html.clone(), ["throttle"; 3]),
    ] {
        assert_eq!(words(&provider, &three, status, &body), expected, "{status} {body}");
    }
    assert_eq!(words(&provider, &messages(1), 422, &html), ["content"]);
}

#[test]
fn message_that_cannot_be_filled_is_sent_alone() {
    let provider = with(
        "json = { all = [{ to = '{{ phone }}', city = '{{ params.city }}' }] }\n\
         batch = { per_call = 9, repeat = 'json.all' }",
    );
    let provider = provider.unwrap_or_else(|error| panic!("{error}"));
    let mut two = messages(2);
    two[0].params.insert("city".to_owned(), "Bonn".into());
    assert!(joins(&provider, &[], &two[1]));
    assert!(!joins(&provider, &two[..1], &two[1]));
    two[1].params.insert("city".to_owned(), "Rome".into());
    assert!(joins(&provider, &two[..1], &two[1]));
}

#[test]
fn invalid_batch_is_an_error() {
    let json = "json = { to = ['{{ phone }}'], t = '{{ phone }}', n = 1 }";
    for (json, batch, expected) in [
        (json, "repeat = 'json.to'", "missing key `batch.per_call`"),
        (json, "per_call = 2", "missing key `batch.repeat`"),
        (
            json,
            "per_call = 'two', repeat = 'json.to'",
            "`batch.per_call`: must be a whole number, not string",
        ),
        (json, "per_call = 0, repeat = 'json.to'", "`batch.per_call`: must be 1 to 1000"),
        (json, "per_call = 2, repeat = 'json.to'", "`batch.repeat`: `{{ phone }}` is outside"),
        (json, "per_call = 2, repeat = 'json.t'", "set `separator`"),
        (json, "per_call = 2, repeat = 'json.n'", "must be a list with one entry"),
        (json, "per_call = 2, repeat = 'json.x'", "`json.x` is not in the request"),
        (json, "per_call = 2, repeat = 'form.to'", "`form.to` is not in the request"),
        (json, "per_call = 2, repeat = 'to'", "`to` is not in the request"),
        (json, "per_call = 2, repeat = 'json.t', separator = ''", "`batch.separator`"),
        (
            json,
            "per_call = 2, repeat = 'json.to', result = '/a'",
            "unknown key `batch.result`\nhint: did you mean `results`?",
        ),
        (
            json,
            "per_call = 2, repeat = 'json.to', results = 'a'",
            "`batch.results`: must be a JSON pointer",
        ),
        (
            json,
            "per_call = 2, repeat = 'json.to', matches = { '/a' = '{{ phone }}' }",
            "needs `results`",
        ),
        (
            json,
            "per_call = 2, repeat = 'json.to', results = '/a', matches = { '/a' = 'sent' }",
            "must contain `{{ phone }}` or `{{ reference }}`",
        ),
        (
            "honours_reference = true\njson = { to = ['{{ phone }}'], r = '{{ reference }}' }",
            "per_call = 2, repeat = 'json.to'",
            "`honours_reference`: is impossible",
        ),
    ] {
        let error = with(&format!("{json}\nbatch = {{ {batch} }}")).map(|_| ()).expect_err(batch);
        assert!(
            error.starts_with("provider `cellar`: ") && error.contains(expected),
            "{batch}: {error}"
        );
    }
}
