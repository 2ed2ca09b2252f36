//! Requests, answers and status lookups.

use smsq_message::phone::Phone;

use crate::testing::{
    BATCH_REJECTED, LookupCase, assert_contains, assert_outcomes, assert_request, context, joins,
    lookup_case, lookup_request, lookup_result, lookup_results, message, messages, vendor, words,
};

#[test]
fn messages_with_one_text_share_a_request() {
    let provider = vendor("yunpian", "");
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://sms.yunpian.com/v2/sms/single_send.json\n",
            "apikey=YUNPIAN_API_KEY&mobile=13812345678&text=Hello",
            "&uid=ref-1",
        ],
    );
    let several = messages(2);
    let request = provider.request(&several, &context()).expect("a request");
    assert_contains(
        &request,
        &[
            "POST https://sms.yunpian.com/v2/sms/batch_send.json\n",
            "&mobile=13812345678%2C13812345679&text=Hello",
        ],
    );
    assert!(!String::from_utf8_lossy(request.body()).contains("uid"));
}

#[test]
fn other_text_and_foreign_number_are_sent_alone() {
    let provider = vendor("yunpian", "");
    let [first, mut next] = <[_; 2]>::try_from(messages(2)).expect("two");
    let success = [first];
    assert!(joins(&provider, &success, &next));
    next.content.push('!');
    assert!(!joins(&provider, &success, &next));
    let abroad = |phone| {
        let mut message = message();
        message.phone = Phone::parse(phone, None).expect("a phone");
        message
    };
    let (one, other) = (abroad("+447400123456"), abroad("+447400123457"));
    assert!(!joins(&provider, &success, &one));
    assert!(!joins(&provider, std::slice::from_ref(&one), &other));
    assert_request(&provider, &[one], &["&mobile=%2B447400123456&"]);
}

#[test]
fn codes_decide() {
    let provider = vendor("yunpian", "");
    let code = |code: i32| format!(r#"{{"code":{code},"msg":"m","sid":1}}"#);
    assert_outcomes(
        &provider,
        &[
            (200, &code(0), "accepted 1"),
            (200, r#"{"code":0,"sid":3310228982,"mobile":"13812345678"}"#, "accepted 3310228982"),
            (200, r#"{"code":0,"sid":1,"mobile":"13812345679"}"#, "unknown"),
            (200, r#"{"code":0}"#, "unknown"),
            (400, &code(3), "account"),
            (400, &code(8), "cap"),
            (400, &code(17), "cap"),
            (400, &code(4), "content"),
            (400, &code(10), "opted_out"),
            (400, &code(-4), "throttle"),
            (400, &code(-50), "unknown"),
            (400, &code(99), "content"),
            (200, &code(99), "unknown"),
            (500, &code(0), "unknown"),
        ],
    );
}

#[test]
fn message_without_result_is_unknown() {
    let provider = vendor("yunpian", "");
    let three = messages(3);
    let item = |code: i32, mobile: &str| {
        format!(r#"{{"code":{code},"msg":"m","count":1,"mobile":"{mobile}","sid":7}}"#)
    };
    let (first, second) = ("13812345678", "13812345679");
    let body = |items: &[String]| format!(r#"{{"total_count":1,"data":[{}]}}"#, items.join(","));
    for (status, body, expected) in [
        (
            200,
            body(&[item(10, second), item(0, first), item(22, "+8613812345680")]),
            ["accepted 7", "opted_out", "cap"],
        ),
        (
            200,
            body(&[item(0, first), item(0, second), item(0, second)]),
            ["accepted 7", "unknown", "unknown"],
        ),
        (
            200,
            body(&[item(0, first), item(0, "13900000000")]),
            ["accepted 7", "unknown", "unknown"],
        ),
        (200, body(&[]), ["unknown"; 3]),
        (200, r#"{"code":0}"#.to_owned(), ["unknown"; 3]),
        (200, r#"{"data":"x"}"#.to_owned(), ["unknown"; 3]),
        (400, r#"{"code":3,"msg":"m"}"#.to_owned(), ["account"; 3]),
        // It could be any of them, and none was accepted.
        (400, r#"{"code":4,"msg":"m"}"#.to_owned(), [BATCH_REJECTED; 3]),
        (502, "<html>".to_owned(), ["unknown"; 3]),
    ] {
        assert_eq!(words(&provider, &three, status, &body), expected, "{body}");
    }
}

#[test]
fn lookup_finds_message_by_reference_or_text() {
    let provider = vendor("yunpian", "");
    assert_contains(
        &lookup_request(&provider),
        &[
            "POST https://sms.yunpian.com/v2/sms/get_record.json\n",
            "&mobile=13812345678&start_time=2023-11-15+06%3A12%3A20&end_time=2023-11-15+06%3A18%3A20&",
        ],
    );
    let text = serde_json::Value::from(message().content);
    let record = |time: &str, text: &serde_json::Value, uid: &str| {
        format!(
            r#"{{"sid":"s","mobile":"13812345678","send_time":"2023-11-15 {time}","text":{text},"uid":{uid}}}"#
        )
    };
    let ours = record("06:13:21", &text, "null");
    let other = record("06:13:21", &"other".into(), "null");
    let result_of = |body: &str| lookup_result(&provider, 60, 200, body);
    assert_eq!(result_of(&format!("[{ours}]")), "found s");
    let by_reference = record("06:13:21", &"cut".into(), "\"ref-1\"");
    assert_eq!(result_of(&format!("[{other},{by_reference}]")), "found s");
    // The text of another message of ours, which has another reference.
    let of_another = record("06:13:21", &text, "\"ref-9\"");
    for body in [
        "[]".to_owned(),
        "{}".to_owned(),
        "<html>".to_owned(),
        format!("[{other}]"),
        format!("[{ours},{ours}]"),
        format!("[{of_another}]"),
        format!("[{}]", record("05:13:21", &text, "null")),
    ] {
        assert_eq!(result_of(&body), "unclear", "{body}");
    }
    assert_eq!(lookup_result(&provider, 60, 500, &format!("[{ours}]")), "unclear");
    let two = format!("[{ours},{}]", ours.replace("\"s\"", "\"s2\""));
    let twin = LookupCase { others: &["s"], ..lookup_case(60) };
    assert_eq!(lookup_results(&provider, twin, &[(200, &two)]), "found s2");
    assert_eq!(lookup_results(&provider, twin, &[(200, &format!("[{ours}]"))]), "unclear");
    let own_text = crate::testing::message().content;
    for (unsettled, expected) in [(own_text.as_str(), "unclear"), ("another", "found s")] {
        let twin = LookupCase { unsettled: &[unsettled], ..lookup_case(60) };
        assert_eq!(lookup_results(&provider, twin, &[(200, &format!("[{ours}]"))]), expected);
    }
}
