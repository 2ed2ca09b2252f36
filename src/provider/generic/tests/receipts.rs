//! Receipts of every vendor that lists them: the request of the first page, what its documented answer says, and
//! answers that are wrong.

use crate::phone::Phone;
use crate::provider::testing::{context, read, response, vendor};
use crate::provider::{
    AwaitedMessage, Provider, PullShape, ReceiptCursor, ReceiptPage, ReceiptQuery, ReceiptRoad,
};
use crate::receipt::Receipt;
use crate::sms::{Outcome, Timestamp};

use PullShape::{Drain, Sweep};
use ReceiptRoad::{Pull, Recheck};

const SINCE: Timestamp = Timestamp::from_millis(1_763_712_000_000);
pub(super) const UNTIL: Timestamp = Timestamp::from_millis(1_763_715_600_000);

/// The first page of an hour.
fn first_page(page: &ReceiptCursor) -> ReceiptQuery<'_> {
    ReceiptQuery::Page {
        since: SINCE,
        until: UNTIL,
        page,
    }
}

/// Method, URL and body of a request.
fn line(provider: &Provider, road: ReceiptRoad, query: &ReceiptQuery<'_>) -> String {
    let request = provider.receipts(road, query, &context());
    let request = request.unwrap_or_else(|outcome| panic!("{}: {outcome:?}", provider.name()));
    let body = String::from_utf8_lossy(request.body()).into_owned();
    format!("{} {} {body}", request.method(), request.uri())
}

fn parsed(
    provider: &Provider,
    road: ReceiptRoad,
    query: &ReceiptQuery<'_>,
    status: u16,
    body: &str,
) -> Result<ReceiptPage, Outcome> {
    let response = response(status, body.to_owned());
    provider.parse_receipts(road, query, &response, &context())
}

/// `reference id phone: state (class code: reason) at instant`.
pub(super) fn words(receipt: &Receipt) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let failure = receipt.failure.as_ref().map(|failure| {
        let code = failure.code.as_deref().unwrap_or("-");
        format!(" ({} {code}: {})", failure.class, failure.reason)
    });
    let at = receipt.at.map(|at| format!(" at {at}"));
    let part = receipt
        .part
        .map(|part| format!(" part {}/{}", part.number, part.total));
    format!(
        "{} {} {}: {}{}{}{}",
        word(&receipt.reference),
        word(&receipt.message_id),
        word(&receipt.phone),
        receipt.state,
        failure.unwrap_or_default(),
        at.unwrap_or_default(),
        part.unwrap_or_default()
    )
}

struct Documented {
    vendor: &'static str,
    settings: &'static str,
    road: ReceiptRoad,
    shape: PullShape,
    /// Method, URL and body.
    request: &'static str,
    body: &'static str,
    receipts: &'static [&'static str],
}

const URL: &str = "url = 'https://x1.api.infobip.com'";

/// The answers are from the vendors' documentation, shortened.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn documented() -> Vec<Documented> {
    let pull = |vendor, settings, shape, request, body, receipts| Documented {
        vendor,
        settings,
        road: Pull,
        shape,
        request,
        body,
        receipts,
    };
    vec![
        pull(
            "infobip",
            URL,
            Drain,
            "GET https://x1.api.infobip.com/sms/3/reports?limit=1000 ",
            r#"{"results":[
                {"messageId":"ref-1","to":"41793026727","doneAt":"2025-11-21T09:00:00.000+0000",
                 "status":{"groupId":3,"id":5,"description":"Message delivered to handset"},
                 "error":{"groupId":0,"id":0,"name":"NO_ERROR"}},
                {"messageId":"ref-2","to":"41793026728","doneAt":"2025-11-21T10:00:00.000+0100",
                 "status":{"groupId":2,"id":4},
                 "error":{"groupId":1,"id":1,"name":"EC_UNKNOWN_SUBSCRIBER","description":"Unknown Subscriber"}},
                {"messageId":"ref-3","to":"41793026729","status":{"groupId":3,"id":2}},
                {"messageId":"ref-4","to":"41793026730","status":{"groupId":4,"id":29}},
                {"messageId":"ref-5","to":"41793026731","status":{"groupId":5,"id":10,"description":"Rejected DND"}},
                {"messageId":"ref-6","to":"41793026732","status":{"groupId":77,"id":1}}]}"#,
            &[
                "ref-1 ref-1 41793026727: delivered at 2025-11-21T09:00:00Z",
                "ref-2 ref-2 41793026728: undelivered (recipient EC_UNKNOWN_SUBSCRIBER: the number is not in use) at 2025-11-21T09:00:00Z",
                "ref-3 ref-3 41793026729: accepted",
                "ref-4 ref-4 41793026730: no_report",
                "ref-5 ref-5 41793026731: rejected (opted_out 10: on the list of those who want no messages)",
                "ref-6 ref-6 41793026732: unlisted",
            ],
        ),
        Documented {
            road: Recheck,
            ..pull(
                "infobip",
                URL,
                Sweep,
                "GET https://x1.api.infobip.com/sms/3/logs?limit=1000&sentSince=2025-11-21T08%3A00%3A00.000%2B0000&sentUntil=2025-11-21T09%3A00%3A00.000%2B0000&useCursor=true ",
                r#"{"results":[{"messageId":"ref-1","to":"41793026727","status":{"groupId":4,"id":15}}],
                    "cursor":{"limit":1000,"nextCursor":"abc"}}"#,
                &["ref-1 ref-1 41793026727: expired (expired 15: 4 15)"],
            )
        },
        pull(
            "clicksend",
            "receipts = { enabled = true }",
            Drain,
            "GET https://rest.clicksend.com/v3/sms/receipts?limit=100&page=1 ",
            r#"{"http_code":200,"response_code":"SUCCESS","data":{"total":2,"data":[
                {"timestamp_send":1763712000,"timestamp":"1763712060","message_id":"A1","status_code":"201",
                 "status_text":"Success: Message received on handset.","error_code":null,"custom_string":"ref-1"},
                {"timestamp":1763712061,"message_id":"A2","status_code":301,"error_code":"10","error_text":"absent","custom_string":"ref-2"}]}}"#,
            &[
                "ref-1 A1 -: delivered at 2025-11-21T08:01:00Z",
                "ref-2 A2 -: undelivered (recipient 10: absent) at 2025-11-21T08:01:01Z",
            ],
        ),
        pull(
            "sinch",
            "",
            Sweep,
            "GET https://eu.sms.api.sinch.com/xms/v1/SINCH_SERVICE_PLAN/delivery_reports?end_date=2025-11-21T09%3A00%3A00Z&page=0&page_size=100&start_date=2025-11-21T08%3A00%3A00Z ",
            r#"{"count":2,"page":0,"page_size":100,"delivery_reports":[
                {"type":"recipient_delivery_report_sms","batch_id":"01F","recipient":"44231235674","code":0,
                 "status":"Delivered","at":"2025-11-21T08:02:03.123Z","client_reference":"ref-1"},
                {"batch_id":"01G","recipient":"44231235675","code":408,"status":"FAILED","at":"2025-11-21T08:02:04Z",
                 "operator_status_at":"2025-11-21T08:02:01Z","client_reference":"ref-2"}]}"#,
            &[
                "ref-1 01F 44231235674: delivered at 2025-11-21T08:02:03Z",
                "ref-2 01G 44231235675: undelivered (content 408: rejected by the provider) at 2025-11-21T08:02:01Z",
            ],
        ),
        pull(
            "telnyx",
            "",
            Sweep,
            "GET https://api.telnyx.com/v2/detail_records?filter%5Bcreated_at%5D%5Bgte%5D=2025-11-21&filter%5Bdirection%5D=outbound&filter%5Brecord_type%5D=messaging&page%5Bnumber%5D=1&page%5Bsize%5D=50 ",
            r#"{"data":[
                {"record_type":"message_detail_record","uuid":"3ca7","completed_at":"2025-11-21T08:00:01Z","cld":"+15551234567","status":"delivered","errors":[]},
                {"uuid":"3ca8","cld":"+15551234568","status":"dlr_timeout"},
                {"uuid":"3ca9","cld":"+15551234569","status":"failed","errors":["40300"]}],
                "meta":{"page_number":1}}"#,
            &[
                "- 3ca7 +15551234567: delivered at 2025-11-21T08:00:01Z",
                "- 3ca8 +15551234568: no_report",
                "- 3ca9 +15551234569: undelivered (opted_out 40300: the recipient asked for no more messages)",
            ],
        ),
        pull(
            "messagebird",
            "",
            Sweep,
            "GET https://rest.messagebird.com/messages?direction=mt&from=2025-11-21T08%3A00%3A00Z&limit=100&offset=0&until=2025-11-21T09%3A00%3A00Z ",
            r#"{"offset":0,"limit":100,"count":1,"totalCount":1,"items":[{"id":"e8077d80","reference":"batch-ref-1",
                "recipients":{"totalCount":2,"items":[
                  {"recipient":31612345678,"status":"delivered","statusDatetime":"2025-11-21T08:13:55+00:00"},
                  {"recipient":31612345679,"status":"delivery_failed","statusReason":"opted out","statusErrorCode":103,"statusDatetime":"2025-11-21T08:13:56+00:00"}]}}]}"#,
            &[
                "batch-ref-1 e8077d80 31612345678: delivered at 2025-11-21T08:13:55Z",
                "batch-ref-1 e8077d80 31612345679: undelivered (opted_out 103: the recipient asked for no more messages) at 2025-11-21T08:13:56Z",
            ],
        ),
        pull(
            "plivo",
            "",
            Sweep,
            "GET https://api.plivo.com/v1/Account/PLIVO_AUTH_ID/Message/?limit=20&message_direction=outbound&message_time__gte=2025-11-21+08%3A00%3A00&message_time__lt=2025-11-21+09%3A00%3A00&offset=0 ",
            r#"{"meta":{"limit":20,"next":null,"offset":0},"objects":[
                {"message_uuid":"e1","to_number":"+14155550101","message_state":"delivered","error_code":"000"},
                {"message_uuid":"e2","to_number":"+14155550102","message_state":"undelivered","error_code":"30"}]}"#,
            &[
                "- e1 +14155550101: delivered",
                "- e2 +14155550102: undelivered (content 30: blocked as spam)",
            ],
        ),
        pull(
            "46elks",
            "",
            Sweep,
            "GET https://api.46elks.com/a1/sms?end=2025-11-21T08%3A00%3A00Z&limit=100&start=2025-11-21T09%3A00%3A00Z ",
            r#"{"data":[{"id":"s17","to":"+46700000001","status":"delivered","created":"2025-11-21T08:01:11.123456","delivered":"2025-11-21T08:01:15.654321"},
                {"id":"s18","to":"+46700000002","status":"failed"}],"next":"2025-11-21T08:01:11.123456"}"#,
            &[
                "- s17 +46700000001: delivered at 2025-11-21T08:01:15Z",
                "- s18 +46700000002: undelivered (recipient -: failed)",
            ],
        ),
        pull(
            "sms-gate",
            "",
            Sweep,
            "GET https://api.sms-gate.app/3rdparty/v1/messages?from=2025-11-21T08%3A00%3A00Z&limit=100&offset=0&to=2025-11-21T09%3A00%3A00Z ",
            r#"[{"id":"ref-1","deviceId":"d","state":"Delivered","recipients":[{"phoneNumber":"+79990001234","state":"Delivered"}],
                 "states":{"Pending":"2025-11-21T08:00:00Z","Delivered":"2025-11-21T08:00:09.5Z"}},
                {"id":"ref-2","state":"Failed","recipients":[{"phoneNumber":"+79990001235","state":"Failed","error":"RESULT_ERROR_GENERIC_FAILURE"}],"states":{}}]"#,
            &[
                "ref-1 ref-1 +79990001234: delivered at 2025-11-21T08:00:09Z",
                "ref-2 ref-2 +79990001235: undelivered (recipient -: RESULT_ERROR_GENERIC_FAILURE)",
            ],
        ),
        pull(
            "vonage",
            "receipts = { enabled = true }",
            Sweep,
            "GET https://api.nexmo.com/v2/reports/records?account_id=VONAGE_API_KEY&date_end=2025-11-21T09%3A00%3A00Z&date_start=2025-11-21T08%3A00%3A00Z&direction=outbound&product=SMS ",
            r#"{"_links":{"self":{"href":"https://api.nexmo.com/v2/reports/records?x=1"}},"request_status":"SUCCESS","records":[
                {"message_id":"0A","client_ref":"ref-1","to":"447700900000","status":"delivered","error_code":"0","date_finalized":"2025-11-21T08:05:00+0000"},
                {"message_id":"0B","client_ref":"ref-2","to":"447700900001","status":"failed","error_code":"9","date_finalized":"2025-11-21T08:05:01+0000"}]}"#,
            &[
                "ref-1 0A 447700900000: delivered at 2025-11-21T08:05:00Z part 0/0",
                "ref-2 0B 447700900001: undelivered (opted_out 9: the recipient asked for no more messages) at 2025-11-21T08:05:01Z part 0/0",
            ],
        ),
        pull(
            "vonage-messages",
            "receipts = { enabled = true }",
            Sweep,
            "GET https://api.nexmo.com/v2/reports/records?account_id=VONAGE_API_KEY&date_end=2025-11-21T09%3A00%3A00Z&date_start=2025-11-21T08%3A00%3A00Z&direction=outbound&product=MESSAGES ",
            r#"{"records":[{"message_id":"aaa","client_ref":"ref-1","to":"447700900000","status":"undeliverable"}]}"#,
            &["ref-1 aaa 447700900000: undelivered (recipient -: undeliverable)"],
        ),
        pull(
            "twilio",
            "",
            Sweep,
            "GET https://api.twilio.com/2010-04-01/Accounts/TWILIO_ACCOUNT_SID/Messages.json?DateSent%3E=2025-11-21&PageSize=1000 ",
            r#"{"messages":[
                {"sid":"SM1","to":"+15558675310","status":"delivered","error_code":null,"date_updated":"Fri, 21 Nov 2025 08:03:04 +0000"},
                {"sid":"SM2","to":"+15558675311","status":"undelivered","error_code":30005,"error_message":null,"date_updated":"Fri, 21 Nov 2025 08:03:05 +0000"},
                {"sid":"SM3","to":"+15558675312","status":"failed","error_code":21610,"date_updated":"Fri, 21 Nov 2025 08:03:06 +0000"},
                {"sid":"SM4","to":"+15558675313","status":"sending","error_code":null}],
                "next_page_uri":"/2010-04-01/Accounts/AC1/Messages.json?Page=1"}"#,
            &[
                "- SM1 +15558675310: delivered at 2025-11-21T08:03:04Z",
                "- SM2 +15558675311: undelivered (recipient 30005: the number is not in use) at 2025-11-21T08:03:05Z",
                "- SM3 +15558675312: undelivered (opted_out 21610: the recipient asked for no more messages) at 2025-11-21T08:03:06Z",
                "- SM4 +15558675313: accepted",
            ],
        ),
        pull(
            "yunpian",
            "receipts = { enabled = true }",
            Drain,
            "POST https://sms.yunpian.com/v2/sms/pull_status.json apikey=YUNPIAN_API_KEY&page_size=100",
            r#"[{"error_msg":"DELIVRD","sid":1097,"uid":"ref-1","user_receive_time":"2025-11-21 16:10:21","mobile":"15205201314","report_status":"SUCCESS"},
                {"error_msg":"UNDELIV:1","sid":1098,"uid":"ref-2","user_receive_time":"2025-11-21 16:10:22","mobile":"15205201315","report_status":"FAIL"},
                {"error_msg":"EXPIRED","sid":1099,"uid":null,"mobile":"15205201316","report_status":"FAIL"}]"#,
            &[
                "ref-1 1097 15205201314: delivered at 2025-11-21T08:10:21Z",
                "ref-2 1098 15205201315: undelivered (recipient UNDELIV:1: the phone was not reached) at 2025-11-21T08:10:22Z",
                "- 1099 15205201316: expired (expired EXPIRED: FAIL EXPIRED)",
            ],
        ),
        Documented {
            road: Recheck,
            ..pull(
                "yunpian",
                "receipts = { enabled = true }",
                Sweep,
                "POST https://sms.yunpian.com/v2/sms/get_record.json apikey=YUNPIAN_API_KEY&end_time=2025-11-21+17%3A00%3A00&page_num=1&page_size=100&start_time=2025-11-21+16%3A00%3A00",
                r#"[{"sid":"1097","mobile":"15205201314","report_status":"SUCCESS","user_receive_time":"2025-11-21 16:10:21","uid":"ref-1"}]"#,
                &["ref-1 1097 15205201314: delivered at 2025-11-21T08:10:21Z"],
            )
        },
        pull(
            "tencent",
            "sdk_app_id = '1400'\ntemplate = '1'\nreceipts = { enabled = true }",
            Drain,
            r#"POST https://sms.tencentcloudapi.com/ {"Limit":100,"SmsSdkAppId":"1400"}"#,
            r#"{"Response":{"PullSmsSendStatusSet":[
                {"UserReceiveTime":1763712600,"CountryCode":"86","PhoneNumber":"+8613811112222","SerialNo":"2019:1","ReportStatus":"SUCCESS","Description":"DELIVRD","SessionContext":"ref-1"},
                {"UserReceiveTime":1763712601,"PhoneNumber":"+8613811112223","SerialNo":"2019:2","ReportStatus":"FAIL","Description":"UNDELIV","SessionContext":""}],
                "RequestId":"r"}}"#,
            &[
                "ref-1 2019:1 +8613811112222: delivered at 2025-11-21T08:10:00Z",
                "- 2019:2 +8613811112223: undelivered (recipient UNDELIV: the phone was not reached) at 2025-11-21T08:10:01Z",
            ],
        ),
    ]
}

#[test]
fn vendors_documented_answers_are_read() {
    let page = ReceiptCursor::default();
    let query = first_page(&page);
    for case in documented() {
        let name = case.vendor;
        let provider = vendor(name, case.settings);
        let pull = provider.pull().unwrap_or_else(|| panic!("{name} is off"));
        let source = match case.road {
            Pull => &pull.source,
            Recheck => pull.recheck.as_ref().expect(name),
        };
        assert_eq!(source.shape, case.shape, "{name}");
        assert_eq!(line(&provider, case.road, &query), case.request, "{name}");
        let page = parsed(&provider, case.road, &query, 200, case.body);
        let page = page.unwrap_or_else(|outcome| panic!("{name}: {outcome:?}"));
        let found: Vec<String> = page.receipts.iter().map(words).collect();
        assert_eq!(found, case.receipts, "{name}");
    }
}

#[test]
fn wrong_answers_of_vendors_are_outcomes() {
    let page = ReceiptCursor::default();
    let query = first_page(&page);
    for case in documented() {
        let provider = vendor(case.vendor, case.settings);
        for (status, body, expected) in [
            (401, r#"{"error":"wrong key"}"#, "account"),
            (429, "slow down", "throttled"),
            (500, "", "unknown"),
            (200, "<html>log in</html>", "unknown"),
            (200, r#"{"unexpected":true}"#, "unknown"),
            (200, r#""text""#, "unknown"),
        ] {
            let name = format!("{} {status} {body}", case.vendor);
            let outcome = parsed(&provider, case.road, &query, status, body).expect_err(&name);
            let word = match outcome {
                Outcome::AccountError { .. } => "account",
                Outcome::Throttled { .. } => "throttled",
                Outcome::Unavailable { .. } => "unavailable",
                Outcome::Unknown(_) => "unknown",
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(word, expected, "{name}");
        }
    }
}

const CELLAR: &str = r#"
kind = "generic"
url = "https://sms.example.net/v1/send"
headers = { Authorization = "Bearer {{ secret.token }}" }
json = { to = "{{ phone }}", text = "{{ content }}" }
secrets = { token = { env = "TOKEN" } }
message_id = "/id"
error_code = "/code"
[codes]
limit = { class = "throttle" }
[receipts]
rate = "1/s"
list = "/list"
message_id = "/id"
state = "/state"
states = { done = "delivered", "bad *" = "undelivered" }
error_code = "/code"
"#;

/// A provider with more keys in section `receipts`.
fn cellar(more: &str) -> Result<Provider, String> {
    read(&format!("{CELLAR}{more}"))
}

#[test]
fn pages_end_where_the_vendor_says_so() {
    let two = r#"{"list":[{"id":"1","state":"done"},{"id":"2","state":"done"}]"#;
    let with_next = |next: &str| format!("{two},\"next\":{next}}}");
    let drain = "pull = 'drain'\n";
    let paged = "pull = 'sweep'\nquery = { p = '{{ page }}' }\npage_size = 2\n";
    let offset = "pull = 'sweep'\nquery = { o = '{{ offset }}' }\n";
    let linked = "pull = 'sweep'\nnext = '/next'\n";
    let all = "pull = 'sweep'\nquery = { since = '{{ since }}' }\n";
    let token = ReceiptCursor {
        page: 1,
        offset: 2,
        next: Some("t".to_owned()),
    };
    let start = ReceiptCursor::default();
    for (more, page, body, expected) in [
        (drain, &start, with_next("null"), true),
        (drain, &start, r#"{"list":[]}"#.to_owned(), false),
        (paged, &start, with_next("null"), true),
        (paged, &start, r#"{"list":[{"id":"1"}]}"#.to_owned(), false),
        (offset, &start, with_next("null"), true),
        (linked, &start, with_next("\"t\""), true),
        (linked, &start, with_next("null"), false),
        (linked, &start, with_next("\"\""), false),
        // The same page again would never end.
        (linked, &token, with_next("\"t\""), false),
        (all, &start, with_next("null"), false),
    ] {
        let provider = cellar(more).expect(more);
        let found = parsed(&provider, Pull, &first_page(page), 200, &body).expect("a page");
        assert_eq!(found.next.is_some(), expected, "{more} {body}");
    }
}

#[test]
fn next_page_is_only_fetched_from_the_same_host() {
    let provider = cellar("pull = 'sweep'\nnext = '/next'\n").expect("a provider");
    for (next, expected) in [
        (
            "/v1/send?page=2",
            Some("GET https://sms.example.net/v1/send?page=2 "),
        ),
        (
            "https://sms.example.net/x",
            Some("GET https://sms.example.net/x "),
        ),
        ("https://evil.example.net/x", None),
        ("http://sms.example.net/x", None),
        ("//evil.example.net/x", None),
    ] {
        let page = ReceiptCursor {
            next: Some(next.to_owned()),
            ..ReceiptCursor::default()
        };
        let query = first_page(&page);
        if let Some(expected) = expected {
            assert_eq!(line(&provider, Pull, &query), expected);
        } else {
            let request = provider.receipts(Pull, &query, &context());
            assert!(request.is_err(), "{next}");
        }
    }
}

#[test]
fn entries_are_read_whatever_their_form() {
    let provider = cellar(
        "pull = 'drain'\nreference = '/ref'\ncode = '/code'\nreason = '/why'\nat = '/at'\n\
         zone = 'Asia/Shanghai'\npart = '/part'\nparts = '/parts'\n",
    )
    .expect("a provider");
    let body = r#"{"list":[
        {"id":7,"state":"done","at":"2025-11-21 17:00:00"},
        {"id":"8","state":"bad 3","code":31,"why":"full +8613812345678","at":1763715600},
        {"id":"8","state":"bad 3","code":31,"why":"full","at":1763715600123},
        {"id":"9","state":"limbo","at":"yesterday"},
        {"ref":"r","state":null},
        {"state":"done"},
        "text",
        {"id":"10","state":"done","part":"2","parts":3,"at":"2511211700"},
        {"id":"11","state":"done","part":0,"at":"20251121170000"}]}"#;
    let page = ReceiptCursor::default();
    let page = parsed(&provider, Pull, &first_page(&page), 200, body).expect("a page");
    let found: Vec<String> = page.receipts.iter().map(words).collect();
    let nine = "2025-11-21T09:00:00Z";
    assert_eq!(
        found,
        [
            format!("- 7 -: delivered at {nine}"),
            format!("- 8 -: undelivered (recipient 31: full +*************) at {nine}"),
            format!("- 8 -: undelivered (recipient 31: full) at {nine}"),
            "- 9 -: unlisted".to_owned(),
            "r - -: unlisted".to_owned(),
            format!("- 10 -: delivered at {nine} part 2/3"),
            format!("- 11 -: delivered at {nine}"),
        ]
    );
    let error = parsed(
        &provider,
        Pull,
        &first_page(&ReceiptCursor::default()),
        200,
        r#"{"code":"limit"}"#,
    );
    assert!(matches!(error, Err(Outcome::Throttled { .. })), "{error:?}");
}

#[test]
fn one_message_is_asked_for() {
    let provider = vendor("aliyun", "template = 'SMS_1'\nfrom = 'S'");
    let phone = Phone::stored("+8613812345678").expect("a phone");
    let asked = AwaitedMessage {
        phone: &phone,
        reference: "ref-1",
        message_id: Some("9006"),
        // The next day in Shanghai.
        sent_at: Timestamp::from_millis(1_763_740_800_000),
    };
    let query = ReceiptQuery::Message(&asked);
    assert_eq!(
        line(&provider, Pull, &query),
        "POST https://dysmsapi.aliyuncs.com/?BizId=9006&CurrentPage=1&PageSize=50&PhoneNumber=13812345678&SendDate=20251122 "
    );
    let body = |status: u8, code: &str| {
        format!(
            r#"{{"Code":"OK","SmsSendDetailDTOs":{{"SmsSendDetailDTO":[{{"PhoneNum":"13812345678","SendStatus":{status},
               "ErrCode":"{code}","OutId":"batch-x","ReceiveDate":"2025-11-22 00:00:09"}}]}}}}"#
        )
    };
    for (status, code, expected) in [
        (1, "", "accepted at 2025-11-21T16:00:09Z"),
        (3, "DELIVERED", "delivered at 2025-11-21T16:00:09Z"),
        (
            2,
            "MOBILE_NOT_ON_SERVICE",
            "undelivered (recipient MOBILE_NOT_ON_SERVICE: the number is not in use) at 2025-11-21T16:00:09Z",
        ),
        (
            2,
            "EXPIRED",
            "expired (expired EXPIRED: 2 EXPIRED) at 2025-11-21T16:00:09Z",
        ),
    ] {
        let page = parsed(&provider, Pull, &query, 200, &body(status, code)).expect("a page");
        let found: Vec<String> = page.receipts.iter().map(words).collect();
        assert_eq!(found, [format!("batch-x 9006 13812345678: {expected}")]);
        assert_eq!(page.next, None);
    }
}

#[test]
fn stored_receipts_are_confirmed() {
    let provider = vendor("clicksend", "receipts = { enabled = true }");
    let request = provider.confirm_receipts(UNTIL, &context());
    let request = request.expect("a request").expect("it can be made");
    assert_eq!(request.method(), "PUT");
    assert_eq!(
        request.uri(),
        "https://rest.clicksend.com/v3/sms/receipts-read"
    );
    assert_eq!(request.body(), r#"{"date_before":"1763715600"}"#);
    let none = vendor("infobip", URL).confirm_receipts(UNTIL, &context());
    assert!(none.is_none());
}

#[test]
fn wrong_sections_are_explained() {
    for (more, expected) in [
        ("", "missing key `receipts.pull`"),
        (
            "pull = 'push'",
            "invalid `receipts.pull`: unknown value `push`",
        ),
        ("pull = 'ask'", "invalid `receipts.pull`: `\"ask\"` needs"),
        (
            "pull = 'sweep'\nquery = { to = '{{ phone }}' }",
            "invalid `receipts.pull`: `{{ message_id }}`",
        ),
        (
            "pull = 'drain'\nzone = 'Mars'",
            "invalid `receipts.zone`: unknown time zone `Mars`",
        ),
        (
            "pull = 'drain'\nevrey = '1s'",
            "unknown key `receipts.evrey`",
        ),
        (
            "pull = 'sweep'\nrecheck = { pull = 'sweep' }",
            "invalid `receipts.recheck`: is only for",
        ),
        (
            "pull = 'drain'\nquery = { a = '{{ sent }}' }",
            "invalid `receipts.query.a`: unknown placeholder `sent`",
        ),
    ] {
        let error = cellar(more).expect_err(more);
        assert!(error.contains(expected), "{more}: {error}");
    }
}
