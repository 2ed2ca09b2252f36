//! Its requests and answers.

use super::super::testing::{asks, means, message, vendor};

#[test]
fn the_alphabet_is_said() {
    let provider = vendor("vonage", "from = 'SHOP'");
    let start = "POST https://rest.nexmo.com/sms/json\n";
    asks(
        &provider,
        &[message()],
        &[
            start,
            "from=SHOP&to=8613812345678&text=Hello",
            "&type=unicode&client-ref=ref-1",
        ],
    );
    let mut plain = message();
    plain.content = "Ça va? 5 €".to_owned();
    asks(&provider, &[plain], &["&type=text&"]);
}

#[test]
fn every_part_has_a_result_and_all_must_be_taken() {
    let part = |status: u8, more: &str| {
        format!(r#"{{"to":"8613812345678","status":"{status}","message-id":"m{status}"{more}}}"#)
    };
    let parts = |parts: &[String]| format!(r#"{{"messages":[{}]}}"#, parts.join(","));
    let ok = || part(0, "");
    means(
        &vendor("vonage", "from = 'SHOP'"),
        &[
            (200, &parts(&[ok()]), "accepted m0"),
            (200, &parts(&[ok(), ok()]), "accepted m0"),
            (200, &parts(&[ok(), part(1, "")]), "unknown"),
            (
                200,
                &parts(&[part(0, r#","client-ref":"ref-2""#)]),
                "unknown",
            ),
            (200, &parts(&[ok()]).replace("678", "679"), "accepted m0"),
            (200, &parts(&[part(1, "")]), "throttle"),
            (200, &parts(&[part(9, "")]), "account"),
            (200, &parts(&[part(6, "")]), "recipient"),
            (200, &parts(&[part(12, "")]), "content"),
            (200, &parts(&[part(5, "")]), "unknown"),
            (200, &parts(&[part(99, "")]), "unknown"),
            (200, &parts(&[]), "unknown"),
            (401, "", "perhaps refused"),
            (500, &parts(&[ok()]), "unknown"),
        ],
    );
}
