//! Receipts of every vendor that lists them: the request of the first page, what its documented answer says, and
//! answers that are wrong.

use crate::Provider;
use crate::receipts::{AwaitedMessage, ReceiptCursor, ReceiptPage, ReceiptPath, ReceiptQuery};
use crate::registry::{builtin, builtin_section};
use crate::testing::{FetchedExample, context, examples, read, response, vendor};

use ReceiptPath::{Pull, Recheck};
use smsq_message::phone::Phone;
use smsq_message::receipt::Receipt;
use smsq_message::sms::{Outcome, Timestamp};

const SINCE: Timestamp = Timestamp::from_millis(1_763_712_000_000);
pub(super) const UNTIL: Timestamp = Timestamp::from_millis(1_763_715_600_000);

/// The first page of an hour.
fn first_page(page: &ReceiptCursor) -> ReceiptQuery<'_> {
    ReceiptQuery::Page { since: SINCE, until: UNTIL, page }
}

/// Method, URL and body of a request.
fn line(provider: &Provider, path: ReceiptPath, query: &ReceiptQuery<'_>) -> String {
    let request = provider.receipts(path, query, &context());
    let request = request.unwrap_or_else(|outcome| panic!("{}: {outcome:?}", provider.name()));
    let body = String::from_utf8_lossy(request.body()).into_owned();
    format!("{} {} {body}", request.method(), request.uri())
}

fn parsed(
    provider: &Provider,
    path: ReceiptPath,
    query: &ReceiptQuery<'_>,
    status: u16,
    body: &str,
) -> Result<ReceiptPage, Outcome> {
    let response = response(status, body.to_owned());
    provider.parse_receipts(path, query, &response, &context())
}

/// `reference id phone: state (class code: reason) at instant`.
pub(super) fn words(receipt: &Receipt) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let failure = receipt.failure.as_ref().map(|failure| {
        let code = failure.code.as_deref().unwrap_or("-");
        format!(" ({} {code}: {})", failure.class, failure.reason)
    });
    let at = receipt.at.map(|at| format!(" at {at}"));
    let part = receipt.part.map(|part| format!(" part {}/{}", part.number, part.total));
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

fn fetched() -> impl Iterator<Item = (&'static str, FetchedExample)> {
    examples().flat_map(|(name, example)| example.fetched.into_iter().map(move |case| (name, case)))
}

#[test]
fn vendors_documented_answers_are_read() {
    let page = ReceiptCursor::default();
    let query = first_page(&page);
    for (name, case) in fetched() {
        let provider = vendor(name, &case.settings);
        let pull = provider.pull().unwrap_or_else(|| panic!("{name} is off"));
        let (path, source) = match &pull.recheck {
            Some(recheck) if case.recheck => (Recheck, recheck),
            _ => (Pull, &pull.source),
        };
        assert_eq!(source.shape, case.shape, "{name}");
        assert_eq!(line(&provider, path, &query), case.request, "{name}");
        let page = parsed(&provider, path, &query, 200, &case.body);
        let page = page.unwrap_or_else(|outcome| panic!("{name}: {outcome:?}"));
        let found: Vec<String> = page.receipts.iter().map(words).collect();
        assert_eq!(found, case.reads, "{name}");
        if let Some(expected) = case.next_request {
            let next = page.next.unwrap_or_else(|| panic!("{name} has no next page"));
            assert_eq!(line(&provider, path, &first_page(&next)), expected, "{name}");
        }
    }
}

#[test]
fn every_vendor_with_a_next_page_has_an_example_of_it() {
    for (name, _) in builtin() {
        let receipts = builtin_section(name).and_then(|section| section.get("receipts").cloned());
        let has_next = |table: &toml::Value| table.get("next").is_some();
        let recheck = receipts.as_ref().and_then(|table| table.get("recheck"));
        for (table, is_recheck) in [(receipts.as_ref(), false), (recheck, true)] {
            if table.is_some_and(has_next) {
                let mut shown = fetched().filter(|(vendor, case)| {
                    vendor == name && case.recheck == is_recheck && case.next_request.is_some()
                });
                assert!(shown.next().is_some(), "{name}: add `next_request` to its example");
            }
        }
    }
}

#[test]
fn next_page_at_a_url_needs_no_less_than_the_first() {
    let provider = cellar(
        "pull = 'sweep'\nnext = '/next'\nquery = { from = '{{ since | epoch }}', to = '{{ until }}', \
         page = '{{ page }}', at = '{{ offset }}' }\nheaders = { X-Since = '{{ since[:10] }}' }\n",
    );
    let page =
        ReceiptCursor { next: Some("/v1/send?page=2".to_owned()), ..ReceiptCursor::default() };
    let provider = provider.expect("a provider");
    let request = provider.receipts(Pull, &first_page(&page), &context());
    let request = request.expect("a request");
    assert_eq!(request.uri(), "https://sms.example.net/v1/send?page=2");
    assert_eq!(request.headers()["x-since"], "2025-11-21");
}

#[test]
fn wrong_answers_of_vendors_are_outcomes() {
    let page = ReceiptCursor::default();
    let query = first_page(&page);
    for (vendor_name, case) in fetched() {
        let provider = vendor(vendor_name, &case.settings);
        let path = if case.recheck { Recheck } else { Pull };
        for (status, body, expected) in [
            (401, r#"{"error":"wrong key"}"#, "account"),
            (429, "slow down", "throttled"),
            (500, "", "unknown"),
            (200, "<html>log in</html>", "unknown"),
            (200, r#"{"unexpected":true}"#, "unknown"),
            (200, r#""text""#, "unknown"),
        ] {
            let name = format!("{vendor_name} {status} {body}");
            let outcome = parsed(&provider, path, &query, status, body).expect_err(&name);
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
    let token = ReceiptCursor { page: 1, offset: 2, next: Some("t".to_owned()) };
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
fn answer_without_receipts_is_never_an_acceptance() {
    // Where its answer to a message is 409, it has the message already.
    let provider = vendor("sms-gate", "");
    let page = ReceiptCursor::default();
    let outcome = parsed(&provider, Pull, &first_page(&page), 409, "").expect_err("no receipts");
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
}

#[test]
fn next_page_is_only_fetched_from_the_same_host() {
    let provider = cellar("pull = 'sweep'\nnext = '/next'\n").expect("a provider");
    for (next, expected) in [
        ("/v1/send?page=2", Some("GET https://sms.example.net/v1/send?page=2 ")),
        ("https://sms.example.net/x", Some("GET https://sms.example.net/x ")),
        ("https://evil.example.net/x", None),
        ("http://sms.example.net/x", None),
        ("//evil.example.net/x", None),
    ] {
        let page = ReceiptCursor { next: Some(next.to_owned()), ..ReceiptCursor::default() };
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
    let error =
        parsed(&provider, Pull, &first_page(&ReceiptCursor::default()), 200, r#"{"code":"limit"}"#);
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
        (2, "EXPIRED", "expired (expired EXPIRED: 2 EXPIRED) at 2025-11-21T16:00:09Z"),
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
    assert_eq!(request.uri(), "https://rest.clicksend.com/v3/sms/receipts-read");
    assert_eq!(request.body(), r#"{"date_before":"1763715600"}"#);
    let none =
        vendor("infobip", "url = 'https://x1.api.infobip.com'").confirm_receipts(UNTIL, &context());
    assert!(none.is_none());
}

#[test]
fn wrong_sections_are_explained() {
    for (more, expected) in [
        ("", "missing key `receipts.pull`"),
        ("pull = 'push'", "invalid `receipts.pull`: unknown value `push`"),
        ("pull = 'ask'", "invalid `receipts.pull`: `\"ask\"` needs"),
        (
            "pull = 'sweep'\nquery = { to = '{{ phone }}' }",
            "invalid `receipts.pull`: `{{ message_id }}`",
        ),
        ("pull = 'drain'\nzone = 'Mars'", "invalid `receipts.zone`: unknown time zone `Mars`"),
        ("pull = 'drain'\nevrey = '1s'", "unknown key `receipts.evrey`"),
        ("pull = 'sweep'\nrecheck = { pull = 'sweep' }", "invalid `receipts.recheck`: is only for"),
        (
            "pull = 'drain'\nquery = { a = '{{ sent }}' }",
            "invalid `receipts.query.a`: unknown placeholder `sent`",
        ),
    ] {
        let error = cellar(more).expect_err(more);
        assert!(error.contains(expected), "{more}: {error}");
    }
}
