//! Its requests and answers.

use super::super::testing::{asks, means, message, vendor};

#[test]
fn the_alphabet_is_chosen_here() {
    let provider = vendor("kannel", "from = 'SHOP'\ndlr_url = 'http://e.example/d'");
    asks(
        &provider,
        &[message()],
        &[
            "GET http://127.0.0.1:13013/cgi-bin/sendsms?username=KANNEL_USERNAME&password=KANNEL_PASSWORD&to=%2B8613812345678&text=Hello",
            "&charset=UTF-8&coding=2&from=SHOP&dlr-mask=19&dlr-url=http%3A%2F%2Fe.example%2Fd%3Freference%3Dref-1%26type%3D%25d",
        ],
    );
    let mut plain = message();
    plain.content = "5 €".to_owned();
    asks(
        &provider,
        &[plain],
        &["&text=5+%E2%82%AC&charset=UTF-8&coding=0&"],
    );
}

#[test]
fn its_words_decide() {
    means(
        &vendor("kannel", ""),
        &[
            (202, "0: Accepted for delivery", "accepted"),
            (202, "3: Queued for later delivery", "accepted"),
            (202, "Sent. Message splits: 2", "accepted"),
            (202, "0: Accepted for", "unknown"),
            (202, "<html>", "unknown"),
            (200, "", "unknown"),
            (403, "Authorization failed for sendsms", "account"),
            (403, "Not routable. Do not try again.", "recipient"),
            (403, "other", "perhaps refused"),
            (400, "Missing receiver number, rejected", "recipient"),
            (400, "Number(s) has/have been denied", "content"),
            (503, "Temporal failure, try again later.", "unavailable"),
            (503, "<html>", "unknown"),
            (500, "Sending failed.", "unknown"),
        ],
    );
}
