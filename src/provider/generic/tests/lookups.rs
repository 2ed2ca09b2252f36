//! Status lookups: what proves that a message was accepted or never was.

use super::with;
use crate::Provider;
use crate::testing::{
    LookupCase, assert_contains, lookup_case, lookup_request, lookup_result, lookup_results, vendor,
};

const LOOKUP: &str = r#"
json = { to = "{{ phone }}" }
message_id = "/id"
error_code = "/error"
lookup.url = "https://sms.example.net/messages"
lookup.query = { to = "{{ phone }}", since = "{{ since }}" }
lookup.list = "/list"
lookup.matches = { "/to" = "{{ phone }}", "/text" = "{{ content }}" }
lookup.message_id = "/id"
lookup.error_code = "/status"
lookup.at = "/at"
lookup.after = "1min"
lookup.rate = "5/s"
"#;
const CODES: &str = "codes = { bad = { class = 'recipient' }, broke = { class = 'account' }, \
    queued = { class = 'accepted' }, lost = { class = 'unknown' } }";
const PROOF: &str = "lookup.absent_after = '15min'\nlookup.horizon = '24h'";

fn provider(more: &str) -> Provider {
    with(&format!("{LOOKUP}{PROOF}\n{more}\n{CODES}")).unwrap_or_else(|error| panic!("{error}"))
}

fn list(more: &str, entries: &[(&str, &str, &str, &str)]) -> String {
    let entry = |(id, text, at, status): &(&str, &str, &str, &str)| serde_json::json!({ "id": id, "to": "8613812345678", "text": text, "at": at, "status": status });
    let list: Vec<_> = entries.iter().map(entry).collect();
    format!(r#"{{"list":{},{more}}}"#, serde_json::Value::from(list))
}

#[test]
fn absence_needs_a_list_that_is_complete() {
    for (keys, whole, partial) in [
        (
            "lookup.more = '/next'",
            vec![r#""next":null"#, r#""next":"""#, r#""next":false"#],
            vec![r#""next":"/p2""#, r#""next":true"#, r#""other":null"#],
        ),
        (
            "lookup.total = '/total'",
            vec![r#""total":0"#, r#""total":"0""#],
            vec![r#""total":1"#, r#""total":null"#, r#""other":0"#],
        ),
        (
            "lookup.more = '/next'\nlookup.total = '/total'",
            vec![r#""next":null,"total":0"#],
            vec![r#""next":null,"total":1"#, r#""next":"x","total":0"#],
        ),
        ("lookup.more = false", vec![r#""x":1"#], vec![]),
    ] {
        let provider = provider(keys);
        for more in whole {
            assert_eq!(lookup_result(&provider, 20, 200, &list(more, &[])), "absent", "{more}");
        }
        for more in partial {
            assert_eq!(lookup_result(&provider, 20, 200, &list(more, &[])), "unclear", "{more}");
        }
    }
}

#[test]
fn absence_needs_time_a_horizon_and_the_date_of_the_answer() {
    let provider = provider("lookup.more = false");
    let empty = list(r#""x":1"#, &[]);
    let found = |case| lookup_results(&provider, case, &[(200, empty.as_str())]);
    assert_eq!(found(lookup_case(15)), "absent");
    assert_eq!(found(lookup_case(14)), "too soon by 60 s");
    assert_eq!(found(lookup_case(22 * 60)), "absent");
    assert_eq!(found(lookup_case(24 * 60)), "unclear");
    for (ahead, expected) in [
        (Some(-900), "too soon by 840 s"),
        (Some(-61), "too soon by 1 s"),
        (Some(900), "absent"),
        (Some(4_000), "unclear"),
        (Some(-4_000), "unclear"),
        (None, "unclear"),
    ] {
        let skewed = LookupCase { ahead, ..lookup_case(16) };
        assert_eq!(found(skewed), expected, "{ahead:?}");
    }
    let doubted = LookupCase { alone: false, ..lookup_case(20) };
    assert_eq!(found(doubted), "unclear");
    assert_contains(&lookup_request(&provider), &["since=2023-11-13T22%3A13%3A20Z"]);
}

#[test]
fn entry_that_has_or_may_have_our_reference_is_not_absent() {
    let by_phone = LOOKUP.replace(
        r#""/to" = "{{ phone }}", "/text" = "{{ content }}""#,
        r#""/ref" = "{{ reference }}""#,
    );
    let source = format!("{by_phone}{PROOF}\nlookup.more = false\n{CODES}");
    let provider = with(&source).unwrap_or_else(|error| panic!("{error}"));
    let reference = crate::testing::message().reference;
    let (near, never) = ("2023-11-14T22:13:21Z", "0001-01-01T00:00:00Z");
    let of = |text: &str| format!(r#""ref":"{text}""#);
    let padded = of(&format!(" {} ", reference.to_uppercase()));
    for (status, reference, at, expected) in [
        (200, of(&reference), near, "found m"),
        (200, of(&reference), never, "found m"),
        (200, of(&reference), "2031-01-01T00:00:00Z", "found m"),
        (200, padded, near, "unclear"),
        (200, r#""ref":null"#.to_owned(), near, "unclear"),
        (200, r#""ref":["x"]"#.to_owned(), near, "unclear"),
        (200, of(""), near, "unclear"),
        (200, r#""x":1"#.to_owned(), near, "unclear"),
        (200, of("another"), near, "absent"),
        // Of other messages of the account.
        (200, r#""ref":null"#.to_owned(), never, "absent"),
        (206, of("another"), near, "unclear"),
    ] {
        let body = format!(r#"{{"list":[{{"id":"m","at":"{at}",{reference}}}]}}"#);
        let found = lookup_result(&provider, 20, status, &body);
        assert_eq!(found, expected, "{status} {body}");
    }
    for body in [r#"{"list":[null]}"#, r#"{"list":["m"]}"#, r#"{"list":[{}]}"#] {
        assert_eq!(lookup_result(&provider, 20, 200, body), "unclear", "{body}");
    }
}

#[test]
fn answer_that_may_be_a_part_or_failed_proves_no_absence() {
    let codes = "codes = { busy = { class = 'unavailable' }, ok = { class = 'accepted' } }";
    let source = format!("{LOOKUP}{PROOF}\nlookup.more = false\n{codes}");
    let provider = with(&source).unwrap_or_else(|error| panic!("{error}"));
    let result = |status, header, more: &str| {
        let case = LookupCase { header, ..lookup_case(20) };
        lookup_results(&provider, case, &[(status, &list(more, &[]))])
    };
    for (status, more, expected) in [
        (200, r#""x":1"#, "absent"),
        (200, r#""error":"ok""#, "absent"),
        (200, r#""error":null"#, "absent"),
        (200, r#""error":"busy""#, "unclear"),
        (200, r#""error":"E17""#, "unclear"),
        (202, r#""x":1"#, "unclear"),
        (206, r#""x":1"#, "unclear"),
        (207, r#""x":1"#, "unclear"),
    ] {
        assert_eq!(result(status, None, more), expected, "{status} {more}");
    }
    for (name, value, expected) in [
        ("link", "</list?page=2>; rel=\"next\"", "unclear"),
        ("link", "</a>; rel=prev, </b>; REL=\"last Next\"", "unclear"),
        ("link", "</next>; rel=\"first\"; title=\"next\"", "absent"),
        // Made before the provider could know of the message, 20 minutes ago.
        ("age", "600", "too soon by 300 s"),
        ("age", "1200", "too soon by 900 s"),
        ("age", "0", "absent"),
        ("age", "soon", "unclear"),
    ] {
        assert_eq!(result(200, Some((name, value)), r#""x":1"#), expected, "{name}: {value}");
    }
}

#[test]
fn time_and_code_of_an_entry_decide() {
    let provider = provider("lookup.more = false");
    let text = crate::testing::message().content;
    let (near, that_day, other_day) =
        ("2023-11-14T22:13:21Z", "2023-11-14T20:00:00Z", "2023-11-13T20:00:00Z");
    for (entry, expected) in [
        (("m", text.as_str(), near, ""), "found m"),
        (("m", &text, near, "queued"), "found m"),
        (("m", &text, near, "delivered"), "found m"),
        // It may be the entry of another message with this text, or of another attempt.
        (("m", &text, near, "bad"), "unclear"),
        (("m", &text, near, "broke"), "unclear"),
        (("m", &text, near, "lost"), "unclear"),
        (("", &text, near, ""), "unclear"),
        (("m", &text, that_day, ""), "unclear"),
        (("m", &text, that_day, "bad"), "unclear"),
        (("m", &text, other_day, ""), "absent"),
        (("m", "another", near, ""), "absent"),
    ] {
        let body = list(r#""x":1"#, &[entry]);
        assert_eq!(lookup_result(&provider, 20, 200, &body), expected, "{body}");
    }
    let twin = LookupCase { others: &["m1"], ..lookup_case(20) };
    let one = [("m1", text.as_str(), near, "")];
    let two = [one[0], ("m2", &text, near, "")];
    let found =
        |entries: &[_]| lookup_results(&provider, twin, &[(200, &list(r#""x":1"#, entries))]);
    assert_eq!(found(&one), "absent");
    assert_eq!(found(&two), "found m2");
    for (unsettled, expected) in [(text.as_str(), "unclear"), ("another", "found m1")] {
        let twin = LookupCase { unsettled: &[unsettled], ..lookup_case(20) };
        let body = list(r#""x":1"#, &one);
        assert_eq!(lookup_results(&provider, twin, &[(200, &body)]), expected);
    }
}

#[test]
fn accepted_entry_wins_and_a_rejected_one_counts_alone() {
    let keys = "lookup.more = '/next'";
    let by_reference = LOOKUP
        .replace(r#""/to" = "{{ phone }}""#, r#""/ref" = "{{ reference }}""#)
        .replace(r#", "/text" = "{{ content }}""#, "");
    let provider = with(&format!("{by_reference}{keys}\n{PROOF}\n{CODES}"))
        .unwrap_or_else(|error| panic!("{error}"));
    let own = crate::testing::message().reference;
    let body = |entries: &[(&str, &str, &str)], next: &str| {
        let entry = |(id, reference, status): &(&str, &str, &str)| serde_json::json!({ "id": id, "ref": reference, "status": status });
        let list: Vec<_> = entries.iter().map(entry).collect();
        format!(r#"{{"list":{},"next":{next}}}"#, serde_json::Value::from(list))
    };
    let own = own.as_str();
    for (entries, next, expected) in [
        (vec![("m1", own, "bad")], "null", "recipient"),
        (vec![("m1", own, "bad")], r#""/p2""#, "unclear"),
        (vec![("m1", own, "bad"), ("m2", own, "queued")], "null", "found m2"),
        (vec![("m1", own, "lost"), ("m2", own, "queued")], "null", "found m2"),
        (vec![("m1", own, "bad"), ("m2", own, "broke")], "null", "unclear"),
        (vec![("m1", own, "bad"), ("m2", own, "lost")], "null", "unclear"),
        (vec![("m1", own, "bad"), ("m2", "other", "queued")], "null", "recipient"),
        // What was refused stays listed, and says nothing about the attempt with the new reference.
        (vec![("m0", "old", "bad")], "null", "absent"),
        (vec![("m0", "old", "bad"), ("m1", own, "")], "null", "found m1"),
        (vec![("m0", "old", "queued")], "null", "found refused old"),
        (vec![("m0", "old", "queued"), ("m1", own, "")], "null", "found m1"),
    ] {
        let case = LookupCase { refused: &["old"], ..lookup_case(20) };
        let body = body(&entries, next);
        assert_eq!(lookup_results(&provider, case, &[(200, &body)]), expected, "{body}");
    }
    // Two answers count as one list.
    let (bad, good) = (body(&[("m1", own, "bad")], "null"), body(&[("m2", own, "")], "null"));
    let unreadable = (500, "");
    for (answers, expected) in [
        ([(200, bad.as_str()), (200, good.as_str())], "found m2"),
        ([(200, &bad), unreadable], "unclear"),
        ([unreadable, (200, &good)], "found m2"),
    ] {
        assert_eq!(lookup_results(&provider, lookup_case(20), &answers), expected);
    }
}

#[test]
fn absent_after_needs_a_horizon_and_a_sign_of_the_last_page() {
    for (more, expected) in [
        (
            "lookup.absent_after = '1h'\nlookup.more = false",
            "invalid `lookup.absent_after`: needs `horizon`",
        ),
        (PROOF, "`lookup.absent_after`: needs `more`, `total`"),
        ("lookup.more = true", "`lookup.more`: must be a JSON pointer"),
        ("lookup.more = 'next'", "`lookup.more`: must be a JSON pointer"),
        ("lookup.total = 'n'", "`lookup.total`: must be a JSON pointer"),
    ] {
        let error = with(&format!("{LOOKUP}{more}")).expect_err(more);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn plivo_lookup_covers_more_than_a_day() {
    let plivo = vendor("plivo", "");
    assert_contains(
        &lookup_request(&plivo),
        &["message_time__gte=2023-11-13+22%3A13%3A20&to_number=8613812345678"],
    );
    let entry = |at: &str| {
        format!(
            r#"{{"meta":{{"next":null}},"objects":[{{"message_uuid":"m1","to_number":"8613812345678","message_time":"{at}"}}]}}"#
        )
    };
    for (at, expected) in [
        ("2023-11-14 22:13:21+00:00", "unclear"),
        ("2023-11-14 20:00:00+00:00", "unclear"),
        ("2023-11-13 20:00:00+00:00", "absent"),
    ] {
        assert_eq!(lookup_result(&plivo, 90, 200, &entry(at)), expected, "{at}");
    }
    let twin = LookupCase { others: &["m1"], ..lookup_case(90) };
    let near = entry("2023-11-14 22:13:21+00:00");
    assert_eq!(lookup_results(&plivo, twin, &[(200, near.as_str())]), "absent");
}
