//! Requests, answers and status lookups.

use std::collections::BTreeSet;

use smsq_message::sms::{Outcome, Timestamp};

use crate::capabilities::AttemptSpan;
use crate::testing::{
    LookupCase, assert_contains, assert_outcomes, assert_request, context, joins, lookup_case,
    lookup_request, lookup_requests, lookup_result, lookup_results, message, messages, vendor,
    words,
};

const SETTINGS: &str = "from = '阿里云'\ntemplate = 'SMS_1'\nparams = { code = 'order' }";

#[test]
fn single_message_is_a_signed_query() {
    let provider = vendor("aliyun", SETTINGS);
    assert_request(
        &provider,
        &[message()],
        &[
            "POST https://dysmsapi.aliyuncs.com/?OutId=ref-1&PhoneNumbers=13812345678\
             &SignName=%E9%98%BF%E9%87%8C%E4%BA%91&TemplateCode=SMS_1\
             &TemplateParam=%7B%22code%22%3A%224711%22%7D\n",
            "x-acs-action: SendSms\n",
            "x-acs-date: 2023-11-14T22:13:20Z\n",
            "x-acs-signature-nonce: 00000000000000000000000000000007\n",
            "accept: application/json\n",
            "SignedHeaders=accept;host;x-acs-action;x-acs-content-sha256;x-acs-date;",
        ],
    );
    let other = vendor("aliyun", &format!("{SETTINGS}\nurl = 'http://127.0.0.1:8080/'"));
    let sign = |provider: &crate::Provider| {
        let request = provider.request(&[message()], &context()).expect("a request");
        request.headers()["authorization"].clone()
    };
    assert_ne!(sign(&provider), sign(&other), "the host is signed");
}

#[test]
fn batch_has_parameters_per_message() {
    let provider = vendor("aliyun", SETTINGS);
    let mut two = messages(2);
    two[1].params["order"] = "a\"b".into();
    assert!(joins(&provider, &two[..1], &two[1]));
    assert_request(
        &provider,
        &two,
        &[
            "?OutId=batch-ref-1&TemplateCode=SMS_1\n",
            "x-acs-action: SendBatchSms\n",
            "SignedHeaders=accept;content-type;host;",
            "PhoneNumberJson=%5B%2213812345678%22%2C%2213812345679%22%5D",
            "TemplateParamJson=%5B%7B%22code%22%3A%224711%22%7D%2C%7B%22code%22%3A%22a%5C%22b%22%7D%5D",
        ],
    );
    let success = words(&provider, &two, 200, r#"{"Code":"OK","BizId":"9^0"}"#);
    assert_eq!(success, ["accepted 9^0", "accepted 9^0"]);
    // It could be either of the two.
    let bad = words(&provider, &two, 200, r#"{"Code":"isv.MOBILE_NUMBER_ILLEGAL"}"#);
    assert_eq!(bad, ["batch_rejected", "batch_rejected"]);
}

#[test]
fn invalid_message_is_sent_alone_and_rejected() {
    let provider = vendor("aliyun", SETTINGS);
    let mut two = messages(2);
    two[1].params.remove("order");
    assert!(!joins(&provider, &two[..1], &two[1]));
    assert!(!joins(&provider, &two[1..], &two[0]));
    let alone = provider.request(&two[1..], &context());
    assert!(matches!(alone, Err(Outcome::Rejected(_))), "{alone:?}");
    let same = [message(), message()];
    assert!(!joins(&provider, &same[..1], &same[1]), "a phone once in a call");
    let bare = vendor("aliyun", "");
    assert_eq!(bare.missing_settings(), ["template"]);
    let refused = bare.request(&[message()], &context());
    assert!(matches!(refused, Err(Outcome::AccountError { listed: true, .. })));
}

#[test]
fn codes_decide() {
    let code = |code: &str| format!(r#"{{"Code":"{code}","Message":"m","RequestId":"r"}}"#);
    assert_outcomes(
        &vendor("aliyun", SETTINGS),
        &[
            (200, r#"{"Code":"OK","BizId":"1^0"}"#, "accepted 1^0"),
            (200, r#"{"Code":"OK","BizId":7}"#, "accepted 7"),
            (200, r#"{"Code":"OK"}"#, "unknown"),
            (500, r#"{"Code":"OK","BizId":"1^0"}"#, "unknown"),
            (200, &code("isv.MOBILE_NUMBER_ILLEGAL"), "recipient"),
            (200, &code("isv.BUSINESS_LIMIT_CONTROL"), "cap"),
            (200, &code("isv.DAY_LIMIT_CONTROL"), "throttle"),
            (200, &code("isv.AMOUNT_NOT_ENOUGH"), "account"),
            (200, &code("isp.SYSTEM_ERROR"), "unknown"),
            (200, &code("isv.SOMETHING_NEW"), "content"),
            (200, &code("SomethingElse"), "unknown"),
            (400, &code("Throttling.User"), "throttle"),
            (404, &code("InvalidAccessKeyId.NotFound"), "account"),
            (503, "", "unknown"),
        ],
    );
}

#[test]
fn lookup_asks_for_phone_and_day_in_shanghai() {
    let provider = vendor("aliyun", SETTINGS);
    assert_contains(
        &lookup_request(&provider),
        &[
            "?CurrentPage=1&PageSize=50&PhoneNumber=13812345678&SendDate=20231115\n",
            "x-acs-action: QuerySendDetails\n",
        ],
    );
    let list = |entries: &str, count: u32| {
        format!(
            r#"{{"Code":"OK","TotalCount":{count},"SmsSendDetailDTOs":{{"SmsSendDetailDTO":[{entries}]}}}}"#
        )
    };
    let entry = |out_id: &str, at: &str| {
        format!(r#"{{"OutId":"{out_id}","SendDate":"{at}","TemplateCode":"SMS_1"}}"#)
    };
    // The attempt was at 06:13:20 in Shanghai.
    let (near, far) = ("2023-11-15 06:13:25", "2023-11-15 05:00:00");
    for (body, minutes, expected) in [
        (list(&entry("ref-1", near), 1), 1, "found ref-1"),
        (list(&entry("other", near), 1), 90, "unclear"),
        (list(&entry("batch-ref-9", near), 1), 1, "found batch-ref-9"),
        (list(&entry("batch-ref-1", far), 1), 1, "found batch-ref-1"),
        (list(&entry("other", far), 1), 90, "absent"),
        (list(&entry("batch-ref-9", far), 1), 90, "unclear"),
        (list("", 0), 90, "absent"),
        (list("", 0), 59, "too soon by 60 s"),
        (list("", 0), 31 * 24 * 60, "unclear"),
        (list("", 60), 90, "unclear"),
        (r#"{"Code":"isv.X"}"#.to_owned(), 90, "unclear"),
        (r#"{"Code":"OK"}"#.to_owned(), 90, "unclear"),
        ("<html>".to_owned(), 90, "unclear"),
    ] {
        assert_eq!(lookup_result(&provider, minutes, 200, &body), expected, "{body}");
    }
    assert_eq!(lookup_result(&provider, 90, 500, &list("", 0)), "unclear");
    let batch = |content: &str| {
        let entry =
            entry("batch-ref-9", near).replace('}', &format!(r#","Content":"{content}"}}"#));
        list(&entry, 1)
    };
    assert_eq!(lookup_result(&provider, 90, 200, &batch("no. 4711")), "found batch-ref-9");
    assert_eq!(lookup_result(&provider, 90, 200, &batch("no. 4712")), "unclear");
    let other = LookupCase { others: &["batch-ref-9"], ..lookup_case(90) };
    assert_eq!(lookup_results(&provider, other, &[(200, &batch("no. 4711"))]), "absent");
    let twin = LookupCase { unsettled: &["another"], ..lookup_case(90) };
    assert_eq!(lookup_results(&provider, twin, &[(200, &batch("no. 4711"))]), "unclear");
}

#[test]
fn lookup_asks_for_both_days_around_midnight() {
    let provider = vendor("aliyun", SETTINGS);
    // 23:59:58 and 00:30 on 14 and 15 November, and noon.
    for (millis, days) in [
        (1_699_977_598_000, ["20231114", "20231115"].as_slice()),
        (1_699_979_400_000, &["20231114", "20231115"]),
        (1_700_020_800_000, &["20231115"]),
    ] {
        let at = Timestamp::from_millis(millis);
        let attempt = AttemptSpan { started_after: at, started_before: Some(at), is_only: true };
        let requests = lookup_requests(&provider, attempt);
        assert_eq!(requests.len(), days.len());
        for (request, day) in requests.iter().zip(days) {
            assert_contains(request, &[&format!("&SendDate={day}\n")]);
        }
        let nonces: BTreeSet<_> = requests
            .iter()
            .map(|request| request.headers()["x-acs-signature-nonce"].clone())
            .collect();
        assert_eq!(nonces.len(), days.len());
    }
    let empty = r#"{"Code":"OK","TotalCount":0,"SmsSendDetailDTOs":{"SmsSendDetailDTO":[]}}"#;
    let ours = empty.replace("[]", r#"[{"OutId":"ref-1"}]"#);
    let busy = r#"{"Code":"isv.BUSINESS_LIMIT_CONTROL"}"#;
    for (answers, expected) in
        [([empty, &ours], "found ref-1"), ([empty, empty], "absent"), ([empty, busy], "unclear")]
    {
        let answers = answers.map(|body| (200, body));
        assert_eq!(lookup_results(&provider, lookup_case(90), &answers), expected);
    }
}
