//! Requests, answers and status lookups.

use crate::testing::{
    LookupCase, assert_contains, assert_outcomes, assert_request, lookup_case, lookup_request,
    lookup_result, lookup_results, message, vendor,
};

const SETTINGS: &str = "from = '+15005550006'";

#[test]
fn message_is_a_form() {
    assert_request(
        &vendor("twilio", &format!("{SETTINGS}\ncallback = 'https://e.example/t'")),
        &[message()],
        &[
            "POST https://api.twilio.com/2010-04-01/Accounts/TWILIO_ACCOUNT_SID/Messages.json\n",
            "authorization: Basic VFdJTElPX0FDQ09VTlRfU0lEOlRXSUxJT19BVVRIX1RPS0VO\n",
            "To=%2B8613812345678&From=%2B15005550006&Body=Hello+Anna",
            "&StatusCallback=https%3A%2F%2Fe.example%2Ft%3Freference%3Dref-1",
        ],
    );
    assert_request(
        &vendor("twilio", "messaging_service = 'MG1'\ntemplate = 'HX1'\nparams = { 1 = 'order' }"),
        &[message()],
        &["MessagingServiceSid=MG1&ContentSid=HX1&ContentVariables=%7B%221%22%3A%224711%22%7D"],
    );
}

#[test]
fn codes_decide() {
    let error = |code: u32| format!(r#"{{"code":{code},"message":"no","status":400}}"#);
    assert_outcomes(
        &vendor("twilio", SETTINGS),
        &[
            (201, r#"{"sid":"SM1","to":"+8613812345678","num_segments":"2"}"#, "accepted SM1"),
            (201, r#"{"sid":"SM1","to":"+8613812345679"}"#, "unknown"),
            (201, r#"{"status":"queued"}"#, "unknown"),
            (400, &error(21211), "recipient"),
            (400, &error(21610), "opted_out"),
            (401, &error(20003), "account"),
            (404, &error(20404), "account"),
            (429, &error(20429), "throttle"),
            (400, &error(21611), "throttle"),
            (400, &error(99999), "content"),
            (401, "", "unlisted_account"),
            (429, "", "throttle"),
            (500, "", "unknown"),
            (503, "", "unknown"),
        ],
    );
}

#[test]
fn lookup_finds_message_by_text_and_time() {
    let provider = vendor("twilio", SETTINGS);
    assert_contains(
        &lookup_request(&provider),
        &["Messages.json?To=%2B8613812345678&PageSize=100\n"],
    );
    let body = serde_json::Value::from(message().content);
    let list = |body: &str, at: &str, direction: &str| {
        format!(
            r#"{{"messages":[{{"sid":"SM1","body":{body},"date_created":"{at}","direction":"{direction}"}}],"next_page_uri":null}}"#
        )
    };
    let (near, that_day, other_day) = (
        "Tue, 14 Nov 2023 22:13:21 +0000",
        "Tue, 14 Nov 2023 20:00:00 +0000",
        "Mon, 13 Nov 2023 20:00:00 +0000",
    );
    let (ours, text) = ("outbound-api", body.to_string());
    let empty = r#"{"messages":[],"next_page_uri":null}"#;
    for (minutes, answer, expected) in [
        (1, list(&text, near, ours), "found SM1"),
        (99, list("\"another\"", near, ours), "unclear"),
        (99, list("\"another\"", that_day, ours), "absent"),
        (99, list(&text, that_day, ours), "unclear"),
        (99, list(&text, other_day, ours), "absent"),
        (99, list(&text, near, "inbound"), "absent"),
        (99, list(&text, "soon", ours), "found SM1"),
        (99, empty.to_owned(), "absent"),
        (99, empty.replace("null", "\"/next\""), "unclear"),
        (99, r#"{"messages":[]}"#.to_owned(), "unclear"),
        (14, empty.to_owned(), "too soon by 60 s"),
        (31 * 24 * 60, empty.to_owned(), "unclear"),
        (99, "{}".to_owned(), "unclear"),
    ] {
        assert_eq!(lookup_result(&provider, minutes, 200, &answer), expected, "{answer}");
    }
    assert_eq!(lookup_result(&provider, 99, 401, empty), "unclear");
    let twin = LookupCase { others: &["SM1"], ..lookup_case(99) };
    let answer = list(&text, near, ours);
    assert_eq!(lookup_results(&provider, twin, &[(200, &answer)]), "absent");
    let own_text = message().content;
    for (unsettled, expected) in [(own_text.as_str(), "unclear"), ("another", "found SM1")] {
        let twin = LookupCase { unsettled: &[unsettled], ..lookup_case(99) };
        assert_eq!(lookup_results(&provider, twin, &[(200, &answer)]), expected);
    }
    // A template's text is not known, so any message of that day may be it.
    let template = vendor("twilio", "from = 'SHOP'\ntemplate = 'HX1'");
    let any = list("\"another\"", that_day, ours);
    assert_eq!(lookup_result(&template, 99, 200, &any), "unclear");
}

#[test]
fn lookup_uses_the_clock_of_the_provider() {
    let provider = vendor("twilio", SETTINGS);
    let body = serde_json::Value::from(message().content);
    let empty = r#"{"messages":[],"next_page_uri":null}"#;
    for ahead in [-900, -61, -11, 0, 11, 61, 900] {
        let at = jiff::Timestamp::from_second(1_700_000_001 + ahead).expect("a time");
        let at =
            jiff::fmt::rfc2822::to_string(&at.to_zoned(jiff::tz::TimeZone::UTC)).expect("a date");
        let ours = format!(
            r#"{{"messages":[{{"sid":"SM1","body":{body},"date_created":"{at}"}}],"next_page_uri":null}}"#
        );
        let skewed = |minutes| LookupCase { ahead: Some(ahead), ..lookup_case(minutes) };
        assert_eq!(lookup_results(&provider, skewed(40), &[(200, &ours)]), "found SM1", "{ahead}");
        assert_eq!(lookup_results(&provider, skewed(40), &[(200, empty)]), "absent", "{ahead}");
        // By either clock it must be long enough ago.
        let left = format!("too soon by {} s", (60 - ahead.min(0)).min(900));
        assert_eq!(lookup_results(&provider, skewed(14), &[(200, empty)]), left, "{ahead}");
    }
    for doubtful in [
        LookupCase { ahead: None, ..lookup_case(99) },
        LookupCase { ahead: Some(3_700), ..lookup_case(99) },
        LookupCase { alone: false, ..lookup_case(99) },
    ] {
        assert_eq!(lookup_results(&provider, doubtful, &[(200, empty)]), "unclear");
    }
}
