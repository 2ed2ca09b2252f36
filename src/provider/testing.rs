//! The table driver for the tests of providers: a message and the request it becomes, an answer and the
//! outcome it means. Every kind of provider runs its cases through [`check`].

use bytes::Bytes;
use http::{Request, Response};

use super::{Message, Provider, Stamp};
use crate::phone::Phone;
use crate::sms::{Cause, Class, Outcome, Receipt, Timestamp};

/// One line of a table. What is `None` is not looked at.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) message: Message,
    pub(super) stamp: Stamp,
    /// Method and url, headers that must be there, and the body.
    pub(super) request: Option<Expected>,
    pub(super) response: Response<Bytes>,
    pub(super) outcome: Outcome,
}

pub(super) struct Expected {
    pub(super) line: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: &'static str,
}

/// The case of a plain message.
pub(super) fn case(name: &'static str, response: Response<Bytes>, outcome: Outcome) -> Case {
    Case {
        name,
        message: message(),
        stamp: stamp(),
        request: None,
        response,
        outcome,
    }
}

pub(super) fn check(provider: &Provider, cases: Vec<Case>) {
    for case in cases {
        let name = case.name;
        let messages = [case.message];
        if let Some(expected) = case.request {
            let request = provider
                .request(&messages, &case.stamp)
                .unwrap_or_else(|outcome| panic!("{name}: {outcome:?}"));
            check_request(name, &request, &expected);
        }
        let outcomes = provider.answer(&messages, &case.response, &case.stamp);
        assert_eq!(outcomes, [case.outcome], "{name}");
    }
}

fn check_request(name: &str, request: &Request<Bytes>, expected: &Expected) {
    let line = format!("{} {}", request.method(), request.uri());
    assert_eq!(line, expected.line, "{name}");
    for (header, value) in expected.headers {
        let found = request.headers().get(*header);
        let found = found.map(http::HeaderValue::as_bytes);
        assert_eq!(found, Some(value.as_bytes()), "{name}: {header}");
    }
    let body = String::from_utf8_lossy(request.body());
    assert_eq!(body, expected.body, "{name}");
}

pub(super) fn message() -> Message {
    let params = serde_json::json!({ "name": "Anna & \"Bob\"", "order": "4711" });
    Message {
        phone: Phone::parse("+8613812345678", None).expect("a phone"),
        content: "Hello Anna, 你好 & \"bye\"\n".to_owned(),
        reference: "ref-1".to_owned(),
        from: None,
        params: params.as_object().expect("an object").clone(),
    }
}

pub(super) fn stamp() -> Stamp {
    Stamp {
        now: Timestamp::from_millis(1_700_000_000_000),
        nonce: 7,
    }
}

pub(super) fn response(status: u16, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}

pub(super) fn accepted(id: &str, segments: Option<i32>) -> Outcome {
    Outcome::Accepted(Receipt {
        message_id: Some(id.to_owned()),
        segments,
        price: None,
    })
}

pub(super) fn unknown(reason: &str) -> Outcome {
    Outcome::Unknown(Cause::new(Class::Unknown, reason))
}

/// The stanza in `source`, with the variable `TOKEN` set.
pub(super) fn read(source: &str) -> Result<Provider, String> {
    let stanza: toml::Table = source.parse().expect("toml");
    let environment = |name: &str| (name == "TOKEN").then(|| "hunter2".to_owned());
    Provider::from_stanza("cellar", &stanza, &environment).map_err(|error| error.to_string())
}
