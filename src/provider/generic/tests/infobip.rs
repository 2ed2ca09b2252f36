//! Requests, answers and status lookups.

use crate::testing::{
    assert_contains, assert_outcomes, assert_request, lookup_request, lookup_result, message,
    messages, vendor, words,
};

const SETTINGS: &str = "url = 'https://x1.api.infobip.com'\nfrom = 'SHOP'";

#[test]
fn each_message_has_its_id_and_text() {
    assert_request(
        &vendor("infobip", SETTINGS),
        &messages(2),
        &[
            "POST https://x1.api.infobip.com/sms/3/messages\n",
            "authorization: App INFOBIP_API_KEY\n",
            r#"{"messages":[{"content":{"text":"Hello"#,
            r#""destinations":[{"messageId":"ref-2","to":"8613812345679"}],"sender":"SHOP"}],"options":"#,
        ],
    );
    assert_eq!(vendor("infobip", "from = 'SHOP'").missing_settings(), ["url"]);
}

fn result(reference: &str, phone: &str, group: u8, id: u32) -> String {
    format!(
        r#"{{"messageId":"{reference}","destination":"{phone}","status":{{"groupId":{group},"id":{id}}},"details":{{"messageCount":2}}}}"#
    )
}

fn answer(results: &[String]) -> String {
    format!(r#"{{"bulkId":"b","messages":[{}]}}"#, results.join(","))
}

#[test]
fn results_are_found_by_reference() {
    let provider = vendor("infobip", SETTINGS);
    let (first, second) = ("8613812345678", "8613812345679");
    let mixed = answer(&[result("ref-2", second, 5, 12), result("ref-1", first, 1, 26)]);
    assert_eq!(words(&provider, &messages(2), 200, &mixed), ["accepted ref-1", "account"]);
    let short = answer(&[result("ref-1", first, 1, 26)]);
    assert_eq!(words(&provider, &messages(2), 200, &short), ["accepted ref-1", "unknown"]);
    let twice = answer(&[result("ref-1", first, 1, 26), result("ref-1", first, 5, 6)]);
    let body = |group, id| answer(&[result("ref-1", first, group, id)]);
    assert_outcomes(
        &provider,
        &[
            (200, &twice, "unknown"),
            (200, &answer(&[result("ref-1", second, 1, 26)]), "unknown"),
            (200, &body(5, 23), "duplicate ref-1"),
            (200, &body(1, 999), "accepted ref-1"),
            (200, &body(5, 999), "content"),
            (200, &body(2, 999), "unknown"),
            (200, &body(5, 20), "cap"),
            (200, &body(5, 21), "unavailable"),
            (401, r#"{"errorCode":"E401"}"#, "account"),
            (400, r#"{"errorCode":"E400","description":"no"}"#, "content"),
            (429, "", "throttle"),
            (500, &body(1, 26), "unknown"),
        ],
    );
}

#[test]
fn lookup_reads_the_logs() {
    let provider = vendor("infobip", SETTINGS);
    assert_contains(
        &lookup_request(&provider),
        &["GET https://x1.api.infobip.com/sms/3/logs?messageId=ref-1\n"],
    );
    assert!(provider.capabilities().honoured_for().is_some());
    let none = r#"{"results":[]}"#;
    let entry = |group: u8, id: u8| {
        format!(
            r#"{{"results":[{{"messageId":"ref-1","status":{{"groupId":{group},"id":{id}}}}}]}}"#
        )
    };
    for (minutes, body, expected) in [
        (1, r#"{"results":[{"messageId":"ref-1"}]}"#, "found ref-1"),
        (20, r#"{"results":[{"messageId":"ref-2"}]}"#, "unclear"),
        (20, none, "absent"),
        (14, none, "too soon by 60 s"),
        (48 * 60, none, "unclear"),
        (1, &entry(5, 12), "account"),
        (1, &entry(5, 6), "recipient"),
        (1, &entry(5, 23), "found ref-1"),
        (1, &entry(2, 4), "found ref-1"),
        (1, &entry(3, 5), "found ref-1"),
        (20, "{}", "unclear"),
    ] {
        assert_eq!(lookup_result(&provider, minutes, 200, body), expected, "{body}");
    }
    assert_eq!(message().reference, "ref-1");
}
