//! Requests and answers.

use crate::testing::{assert_outcomes, assert_request, message, vendor};

#[test]
fn request_names_the_alphabet() {
    let provider = vendor("vonage", "from = 'SHOP'");
    let start = "POST https://rest.nexmo.com/sms/json\n";
    assert_request(
        &provider,
        &[message()],
        &[start, "client-ref=ref-1&from=SHOP&text=Hello", "&to=8613812345678&type=unicode"],
    );
    let mut plain = message();
    plain.content = "Ça va? 5 €".to_owned();
    assert_request(&provider, &[plain], &["&type=text"]);
}

#[test]
fn all_parts_must_be_accepted() {
    let part = |status: u8, more: &str| {
        format!(r#"{{"to":"8613812345678","status":"{status}","message-id":"m{status}"{more}}}"#)
    };
    let parts = |parts: &[String]| format!(r#"{{"messages":[{}]}}"#, parts.join(","));
    let ok = || part(0, "");
    assert_outcomes(
        &vendor("vonage", "from = 'SHOP'"),
        &[
            (200, &parts(&[ok()]), "accepted m0"),
            (200, &parts(&[ok(), ok()]), "accepted m0"),
            (200, &parts(&[ok(), part(1, "")]), "unknown"),
            (200, &parts(&[part(0, r#","client-ref":"ref-2""#)]), "unknown"),
            (200, &parts(&[ok()]).replace("678", "679"), "unknown"),
            (200, &parts(&[part(1, "")]), "throttle"),
            (200, &parts(&[part(9, "")]), "account"),
            (200, &parts(&[part(6, "")]), "recipient"),
            (200, &parts(&[part(12, "")]), "content"),
            (200, &parts(&[part(5, "")]), "unknown"),
            (200, &parts(&[part(99, "")]), "unknown"),
            (200, &parts(&[]), "unknown"),
            (401, "", "unlisted_account"),
            (500, &parts(&[ok()]), "unknown"),
        ],
    );
}
