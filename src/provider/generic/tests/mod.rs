//! The generic provider, case by case.

mod answers;
mod batches;
mod infobip;
mod kannel;
mod lookups;
mod receipts;
mod requests;
mod sandbox;
mod sections;
mod sms_gate;
mod telnyx;
mod vendors;
mod vonage;
mod webhooks;

use proptest::prelude::*;

use crate::testing::{context, message, read, response};
use crate::{Message, Provider};

const CELLAR: &str = r#"
kind = "generic"
url = "https://sms.example.net/v1/send"
headers = { Authorization = "Bearer {{ secret.token }}" }
json = { to = "{{ phone }}", text = "{{ content }}", ref = "{{ reference }}" }
secrets = { token = { env = "TOKEN" } }
message_id = "/id"
error_code = "/error/code"
error_reason = "/error/message"
rate = ["100/s", "20000/day"]
timeout = "2s"
[codes]
21211 = { class = "recipient", reason = "not a valid number" }
20003 = { class = "account", reason = "wrong token" }
21610 = { class = "opted_out" }
30001 = { class = "throttle" }
30002 = { class = "cap" }
30003 = { class = "unavailable" }
30004 = { class = "unknown" }
409 = { class = "accepted" }
"#;

/// A section of the few keys there must be, and `more`.
fn with(more: &str) -> Result<Provider, String> {
    let json = if more.contains("form") || more.contains("query") || more.contains("json") {
        ""
    } else {
        "json = { to = '{{ phone }}' }\n"
    };
    read(&format!("kind = 'generic'\nurl = 'https://sms.example.net/send'\n{json}{more}"))
}

proptest! {
    #[test]
    fn any_answer_has_one_outcome_per_message(
        status in 100_u16..1000,
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            r#"\{"id":"?[a-z0-9]{0,9}"?,"error":\{"code":"?[0-9]{0,5}"?\}?\}?"#.prop_map(String::into_bytes),
        ],
        retry_after in prop::option::of("[ -~]{0,12}"),
        count in 0_usize..4,
    ) {
        let provider = read(CELLAR).expect("a provider");
        let mut response = response(status, body);
        if let Some(value) = retry_after.and_then(|text| text.parse().ok()) {
            response.headers_mut().insert("retry-after", value);
        }
        let messages: Vec<Message> = vec![message(); count];
        prop_assert_eq!(provider.parse(&messages, &response, &context()).len(), count);
    }

    #[test]
    fn json_values_are_unchanged(content in "\\PC{0,60}", name in any::<String>()) {
        let provider = with("json = { to = '{{ phone }}', t = '{{ content }}', n = '{{ params.name }}' }").expect("read");
        let mut sent = message();
        sent.content.clone_from(&content);
        sent.params.insert("name".to_owned(), name.clone().into());
        let request = provider.request(&[sent], &context()).expect("a request");
        let body: serde_json::Value = serde_json::from_slice(request.body()).expect("JSON");
        prop_assert_eq!(&body["t"], &content);
        prop_assert_eq!(&body["n"], &name);
    }
}
