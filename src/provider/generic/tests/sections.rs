//! Errors and warnings of sections.

use super::with;
use crate::testing::{read, vendor};

#[test]
fn error_names_the_provider_and_the_key() {
    for (more, expected) in [
        ("jsn = 1", "unknown key `jsn`\nhint: did you mean `json`?"),
        (
            "json = { a = '{{ fone }}' }",
            "invalid `json.a`: unknown placeholder `fone`\nhint: did you mean `phone`?",
        ),
        ("json = { a = ['{{ phone'] }", "`json.a[0]`: syntax error"),
        ("json = { a = '{{ phone | shout }}' }", "`json.a`: unknown filter"),
        ("json = { a = '{{ phone }}{{ secret.tokn }}' }", "`json.a`: `secret.tokn`"),
        ("json = { a = '{{ phone }}{{ secret }}' }", "`json.a`: `secret` needs a name"),
        ("json = { a = 1 }", "hint: put `{{ phone }}`"),
        ("form = { a = { b = 1 } }", "`form.a`"),
        ("form = { a = '{{ phone }}' }\njson = {}", "`form`: choose either"),
        (
            "secrets = { token = { env = 'NO' } }",
            "secret `token` is not set: the environment variable `NO`",
        ),
        (
            "timeout = 10",
            "`timeout`: must be a duration in quotation marks like `\"10s\"`, not integer",
        ),
        ("rate = 100", "`rate`: must be a limit in quotation marks like `\"100/s\"`"),
        ("rate = ''", "hint: leave it out for no limit"),
        ("rate = ['1/s', '']", "hint: leave it out for no limit"),
        (
            "error_code = '/c'\ncodes = { 1 = { class = 'cap', wait = 5 } }",
            "`codes.1.wait`: must be a duration in quotation marks",
        ),
        ("error_text = ['a']", "`error_text`: must be a list of two texts, not 1"),
        (
            "secrets = { token = { file = '/no/such/file' } }",
            "cannot read secret `token` from `/no/such/file`: No such file or directory (os error 2)\nhint: ",
        ),
        ("timeout = '0s'", "`timeout`"),
        (
            "json = { a = '{{ phone }}', b = '{{ nme[:2] }}' }",
            "`json.b`: unknown placeholder `nme`",
        ),
        (
            "json = { a = '{{ phone }}', b = '{{ setting.nme[:2] }}' }",
            "`json.b`: `setting.nme` is not in `settings`",
        ),
        (
            "json = { a = '{{ phone }}', b = '{% macro m() %}{% endmacro %}' }",
            "`json.b`: the only statements here are",
        ),
        ("rate = '100'", "`rate`: invalid rate `100`"),
        ("accepted = [700]", "`accepted`: 700"),
        ("accepted = []", "`accepted`"),
        ("message_id = 'id'", "`message_id`: `id` is not a JSON pointer"),
        ("codes = { 1 = { class = 'content' } }", "`codes`: needs `error_code`"),
        ("method = 'DELETE'", "`method`"),
        ("method = 'GET'", "`method`: `GET` requests have no `json`"),
        ("headers = { 'a b' = '1' }", "`headers.a b`"),
        ("headers = { content-length = '1' }", "`headers.content-length`"),
        ("honours_reference = 'yes'", "`honours_reference`"),
        (
            "honours_reference = true\nhonoured_for = '10s'\ntimeout = '10s'",
            "`honoured_for`: must be longer than `timeout`",
        ),
    ] {
        let error = with(more).map(|_| ()).expect_err(more);
        assert!(
            error.starts_with("provider `cellar`: ") && error.contains(expected),
            "{more}: {error}"
        );
    }
}

#[test]
fn invalid_url_or_kind_is_an_error() {
    for (url, expected) in [
        ("sms.example.net", "`url`: is not a URL"),
        ("ftp://a/b", "`url`: must begin"),
        ("http:x", "`url`: must begin"),
        ("http:///x", "`url`: has no host"),
        ("https:\\\\/x", "`url`: must begin"),
        ("https://me:secret@a/b", "`url`: contains a user name"),
        ("https://{{ from }}.example/", "`url`: placeholders are only"),
    ] {
        let source =
            format!("kind = 'generic'\nurl = '{url}'\njson = {{ to = '{{{{ phone }}}}' }}");
        let error = read(&source).map(|_| ()).expect_err(url);
        assert!(error.contains(expected), "{error}");
    }
    let error = read("kind = 'generic'\njson = {}").map(|_| ()).expect_err("no url");
    assert_eq!(error, "provider `cellar`: missing key `url`");
    let error = read("kind = 'genric'").map(|_| ()).expect_err("no kind");
    assert!(error.contains("did you mean `generic`?"), "{error}");
    let error = read("knd = 'generic'").map(|_| ()).expect_err("no kind");
    let expected = "provider `cellar`: unknown key `knd`\nhint: did you mean `kind`?";
    assert_eq!(error, expected);
    let error = read("url = 'http://h.example'").map(|_| ()).expect_err("no kind");
    assert_eq!(error, "provider `cellar`: missing key `kind`");
}

#[test]
fn value_of_the_wrong_type_is_never_printed() {
    for more in [
        "headers = { Authorization = 12345 }",
        "secrets = { token = 'hunter2' }",
        "secrets = { token = 12345 }",
        "message_id = 12345",
        "timeout = 12345",
        "batch = { per_call = 'hunter2', repeat = 'json' }",
    ] {
        let error = with(more).map(|_| ()).expect_err(more);
        assert!(!error.contains("12345") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn request_without_the_text_is_warned_about() {
    let warnings = |more| with(more).expect(more).warnings();
    assert!(warnings("json = { a = '{{ phone }}' }")[0].contains("`{{ content }}`"));
    assert_eq!(warnings("json = { a = '{{ phone }}', b = '{{ content }}' }"), [""; 0]);
    assert_eq!(warnings("json = { a = '{{ phone }}', b = '{{ params.name }}' }"), [""; 0]);
}

#[test]
fn sender_is_required_if_the_request_has_it() {
    let needs = |more| with(more).expect(more).needs_sender();
    assert!(needs("json = { a = '{{ phone }}', b = '{{ from }}' }"));
    assert!(!needs("from = 'S'\njson = { a = '{{ phone }}', b = '{{ from }}' }"));
    assert!(!needs("json = { a = '{{ phone }}' }"));
    for (kind, more, expected) in [
        ("aliyun", "", true),
        ("aliyun", "from = 'S'", false),
        ("tencent", "", true),
        ("tencent", "from = 'S'", false),
        ("twilio", "", true),
        ("twilio", "messaging_service = 'MG1'", false),
        ("telnyx", "messaging_profile = 'p'", false),
        ("kannel", "", false),
        ("plivo", "", false),
    ] {
        assert_eq!(vendor(kind, more).needs_sender(), expected, "{kind} {more}");
    }
}
