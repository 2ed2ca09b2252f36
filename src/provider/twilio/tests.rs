//! Its requests, its answers and its look-up.

use super::super::testing::{asks, finding, holds, means, message, question, vendor};

const SETTINGS: &str = "from = '+15005550006'";

#[test]
fn a_message_is_a_form() {
    asks(
        &vendor(
            "twilio",
            &format!("{SETTINGS}\ncallback = 'https://e.example/t'"),
        ),
        &[message()],
        &[
            "POST https://api.twilio.com/2010-04-01/Accounts/TWILIO_ACCOUNT_SID/Messages.json\n",
            "authorization: Basic VFdJTElPX0FDQ09VTlRfU0lEOlRXSUxJT19BVVRIX1RPS0VO\n",
            "To=%2B8613812345678&From=%2B15005550006&Body=Hello+Anna",
            "&StatusCallback=https%3A%2F%2Fe.example%2Ft%3Freference%3Dref-1",
        ],
    );
    asks(
        &vendor(
            "twilio",
            "messaging_service = 'MG1'\ntemplate = 'HX1'\nparams = { 1 = 'order' }",
        ),
        &[message()],
        &["MessagingServiceSid=MG1&ContentSid=HX1&ContentVariables=%7B%221%22%3A%224711%22%7D"],
    );
}

#[test]
fn its_answers_mean_what_its_codes_say() {
    let error = |code: u32| format!(r#"{{"code":{code},"message":"no","status":400}}"#);
    means(
        &vendor("twilio", SETTINGS),
        &[
            (
                201,
                r#"{"sid":"SM1","to":"+8613812345678","num_segments":"2"}"#,
                "accepted SM1",
            ),
            (201, r#"{"sid":"SM1","to":"+8613812345679"}"#, "unknown"),
            (201, r#"{"status":"queued"}"#, "unknown"),
            (400, &error(21211), "recipient"),
            (400, &error(21610), "opted_out"),
            (401, &error(20003), "account"),
            (404, &error(20404), "account"),
            (429, &error(20429), "throttle"),
            (400, &error(21611), "throttle"),
            (400, &error(99999), "content"),
            (401, "", "perhaps refused"),
            (429, "", "throttle"),
            (500, "", "unknown"),
            (503, "", "unknown"),
        ],
    );
}

#[test]
fn its_list_tells_whether_a_text_went_out_at_that_moment() {
    let provider = vendor("twilio", SETTINGS);
    holds(
        &question(&provider),
        &["Messages.json?To=%2B8613812345678&PageSize=100\n"],
    );
    let body = serde_json::Value::from(message().content);
    let list = |body: &str, at: &str, direction: &str| {
        format!(
            r#"{{"messages":[{{"sid":"SM1","body":{body},"date_created":"{at}","direction":"{direction}"}}]}}"#
        )
    };
    let (near, far) = (
        "Tue, 14 Nov 2023 22:13:21 +0000",
        "Tue, 14 Nov 2023 20:00:00 +0000",
    );
    let (ours, text) = ("outbound-api", body.to_string());
    for (minutes, answer, expected) in [
        (1, list(&text, near, ours), "found SM1"),
        (99, list("\"another\"", near, ours), "unclear"),
        (99, list(&text, far, ours), "absent"),
        (99, list(&text, near, "inbound"), "absent"),
        (99, list(&text, "soon", ours), "found SM1"),
        (99, r#"{"messages":[]}"#.to_owned(), "absent"),
        (14, r#"{"messages":[]}"#.to_owned(), "unclear"),
        (99, "{}".to_owned(), "unclear"),
    ] {
        assert_eq!(
            finding(&provider, minutes, 200, &answer),
            expected,
            "{answer}"
        );
    }
    let entry = r#"{"date_created":"Tue, 14 Nov 2023 23:00:00 +0000"}"#;
    let full = format!(r#"{{"messages":[{}]}}"#, [entry; 100].join(","));
    assert_eq!(finding(&provider, 99, 200, &full), "unclear");
    assert_eq!(finding(&provider, 99, 401, r#"{"messages":[]}"#), "unclear");
}
