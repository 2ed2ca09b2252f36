//! Requests and answers.

use crate::testing::{assert_outcomes, assert_request, message, vendor};

#[test]
fn request_sets_the_alphabet() {
    let provider = vendor("kannel", "from = 'SHOP'\ndlr_url = 'http://e.example/d'");
    assert_request(
        &provider,
        &[message()],
        &[
            "GET http://127.0.0.1:13013/cgi-bin/sendsms?charset=UTF-8&coding=2\
             &dlr-mask=19&dlr-url=http%3A%2F%2Fe.example%2Fd%3Freference%3Dref-1%26type%3D%25d\
             &from=SHOP&password=KANNEL_PASSWORD&text=Hello",
            "&to=%2B8613812345678&username=KANNEL_USERNAME\n",
        ],
    );
    let mut plain = message();
    plain.content = "5 €".to_owned();
    assert_request(&provider, &[plain], &["&coding=0&", "&text=5+%E2%82%AC&"]);
}

#[test]
fn words_of_the_answer_decide() {
    assert_outcomes(
        &vendor("kannel", ""),
        &[
            (202, "0: Accepted for delivery", "accepted"),
            (202, "3: Queued for later delivery", "accepted"),
            (202, "Sent. Message splits: 2", "accepted"),
            (202, "0: Accepted for", "unknown"),
            (403, "0: Accepted for delivery", "unknown"),
            (202, "<html>", "unknown"),
            (200, "", "unknown"),
            (403, "Authorization failed for sendsms", "account"),
            (403, "Not routable. Do not try again.", "recipient"),
            (403, "other", "unlisted_account"),
            (400, "Missing receiver number, rejected", "recipient"),
            (400, "Number(s) has/have been denied", "content"),
            (503, "Temporal failure, try again later.", "unavailable"),
            (503, "<html>", "unknown"),
            (500, "Sending failed.", "unknown"),
        ],
    );
}
