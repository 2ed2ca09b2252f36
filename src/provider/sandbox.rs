//! The practice gateway as a provider: `POST {url}/messages` with JSON answers 201 with `id` and `segments`.
//! It accepts one message per reference.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, Uri};
use serde::Serialize;
use url::Url;

use super::codes::Codes;
use super::generic::not_one;
use super::quote::Private;
use super::reading::Reading;
use super::stanza::{Connection, Stanza};
use super::supports::{Reference, Supports, Writes};
use super::{Message, ProviderError, Stamp};
use crate::sms::Outcome;

/// A provider of `kind = "sandbox"`.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    base: Url,
    messages: Uri,
    reading: Reading,
    connection: Connection,
}

/// The request's body.
#[derive(Serialize)]
struct Order<'a> {
    to: &'a str,
    text: &'a str,
    reference: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
}

impl Sandbox {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        stanza.check_keys(&[&["url", "codes"][..], &Connection::KEYS[..]].concat())?;
        let url: String = stanza.required("url")?;
        let base = stanza.address("url", url.trim_end_matches('/'))?;
        let messages = format!("{}/messages", base.as_str().trim_end_matches('/'));
        let mut codes = Codes::read(stanza)?;
        if codes.is_empty() {
            codes = own_codes()?;
        }
        Ok(Self {
            name: stanza.name.to_owned(),
            base,
            messages: messages
                .parse()
                .map_err(|_| stanza.fault("url", "is no address of a gateway"))?,
            reading: Reading {
                accepted: vec![200, 201],
                unknown_status: Vec::new(),
                message_id: Some("/id".to_owned()),
                error_code: Some("/error/code".to_owned()),
                error_reason: Some("/error/message".to_owned()),
                message_id_text: None,
                error_text: None,
                segments: Some("/segments".to_owned()),
                codes,
            },
            connection: Connection::read(stanza)?,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.reading.codes
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn request(&self, messages: &[Message]) -> Result<Request<Bytes>, Outcome> {
        let [message] = messages else {
            return Err(not_one(messages.len()));
        };
        let order = Order {
            to: message.phone.as_str(),
            text: &message.content,
            reference: &message.reference,
            from: message.from.as_deref(),
        };
        let body = serde_json::to_vec(&order).expect("texts alone always make JSON");
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.messages.clone();
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        Ok(request)
    }

    pub(super) fn answer(
        &self,
        messages: &[Message],
        response: &Response<Bytes>,
        stamp: &Stamp,
    ) -> Vec<Outcome> {
        let private = Private {
            contents: messages.iter().map(|it| it.content.as_str()).collect(),
            secrets: Vec::new(),
        };
        let outcome = self.reading.outcome(response, &private, stamp.now);
        vec![outcome; messages.len()]
    }
}

/// Its memory of references ends with its process, which a campaign in practice does not outlive.
pub(super) fn supports() -> Supports {
    Supports {
        writes: Writes::Text,
        most_per_call: 1,
        reference: Reference::Honoured {
            span: Duration::from_secs(30 * 86_400),
        },
        look_up: None,
        receipts: false,
    }
}

/// The codes of the stanza that comes with smsq, for one that lists none.
fn own_codes() -> Result<Codes, ProviderError> {
    let source: toml::Table = include_str!("../../config/providers/sandbox.toml")
        .parse()
        .expect("a test parses it");
    let table = source["providers"]["sandbox"]
        .as_table()
        .expect("a test reads it");
    Codes::read(&Stanza {
        name: "sandbox",
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Provider;
    use super::super::testing::{Expected, accepted, case, check, read, response};
    use crate::sms::{Cause, Class, Outcome};
    use std::time::Duration;

    fn provider() -> Provider {
        read("kind = 'sandbox'\nurl = 'http://127.0.0.1:8025/'").expect("a provider")
    }

    fn error(code: &str) -> String {
        format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#)
    }

    fn cause(class: Class, code: &str, reason: &str) -> Cause {
        Cause::new(class, reason).with_code(code)
    }

    #[test]
    fn an_order_is_json_and_an_acceptance_has_an_id() {
        let mut taken = case(
            "taken",
            response(201, r#"{"id":"SB000001","segments":2}"#),
            accepted("SB000001", Some(2)),
        );
        taken.request = Some(Expected {
            line: "POST http://127.0.0.1:8025/messages",
            headers: &[("content-type", "application/json")],
            body: r#"{"to":"+8613812345678","text":"Hello Anna, 你好 & \"bye\"\n","reference":"ref-1"}"#,
        });
        let known = case(
            "taken before",
            response(200, r#"{"id":"SB000001","segments":2}"#),
            accepted("SB000001", Some(2)),
        );
        check(&provider(), vec![taken, known]);
    }

    #[test]
    fn the_codes_of_the_gateway_mean_what_its_stanza_says() {
        let mut throttled = response(429, error("rate_limited"));
        throttled.headers_mut().insert("retry-after", 1.into());
        check(
            &provider(),
            vec![
                case(
                    "no such number",
                    response(400, error("invalid_recipient")),
                    Outcome::Rejected(cause(
                        Class::Recipient,
                        "invalid_recipient",
                        "not a number that can be reached",
                    )),
                ),
                case(
                    "opted out",
                    response(400, error("opted_out")),
                    Outcome::Rejected(cause(
                        Class::OptedOut,
                        "opted_out",
                        "the recipient asked for no more messages",
                    )),
                ),
                case(
                    "suspended",
                    response(401, error("account_suspended")),
                    Outcome::Refused {
                        cause: cause(
                            Class::Account,
                            "account_suspended",
                            "the account is suspended",
                        ),
                        listed: true,
                    },
                ),
                case(
                    "too fast",
                    throttled,
                    Outcome::Throttled {
                        cause: cause(Class::Throttle, "rate_limited", "no"),
                        retry_after: Some(Duration::from_secs(1)),
                    },
                ),
                case(
                    "busy",
                    response(503, error("overloaded")),
                    Outcome::Unavailable {
                        cause: cause(Class::Unavailable, "overloaded", "no"),
                        retry_after: None,
                    },
                ),
            ],
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_the_closest_known() {
        let error = read("kind = 'sandbox'\nurl = 'http://localhost'\ntimout = '1s'");
        assert_eq!(
            error.expect_err("a fault"),
            "provider `cellar`: unknown key `timout`\nhint: did you mean `timeout`?"
        );
    }
}
