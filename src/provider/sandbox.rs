//! The practice gateway as a provider: `POST {url}/messages` with JSON answers 201 with `id` and `segments`.
//! It accepts one message per reference. A list of messages answers 200 with a list of results, each of which
//! names its reference, and has the status and the body that the message would have had alone.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::answer::{Answer, scalar};
use super::capabilities::{Capabilities, Reference, Writes};
use super::codes::Codes;
use super::generic::not_one;
use super::quote::Private;
use super::reading::Reading;
use super::stanza::{Connection, Stanza};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

/// A provider of `kind = "sandbox"`.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    base: Url,
    messages: Uri,
    reading: Reading,
    per_call: usize,
    honours_reference: bool,
    connection: Connection,
}

const KEYS: [&str; 4] = ["url", "codes", "per_call", "honours_reference"];

/// As many as the gateway takes.
const MOST: usize = 1_000;

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
        stanza.check_keys(&[&KEYS[..], &Connection::KEYS[..]].concat())?;
        let url: String = stanza.required("url")?;
        let base = stanza.address("url", url.trim_end_matches('/'))?;
        let messages = format!("{}/messages", base.as_str().trim_end_matches('/'));
        let per_call = stanza.optional("per_call")?.unwrap_or(1);
        if !(1..=MOST).contains(&per_call) {
            return Err(stanza.fault("per_call", "must be 1 to 1000"));
        }
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
            per_call,
            honours_reference: stanza.optional("honours_reference")?.unwrap_or(true),
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

    pub(super) fn capabilities(&self) -> Capabilities {
        let reference = if self.honours_reference {
            Reference::Honoured { span: HONOURED_FOR }
        } else {
            Reference::Echoed
        };
        Capabilities {
            writes: Writes::Text,
            most_per_call: self.per_call,
            reference,
            lookup: None,
            receipts: false,
        }
    }

    pub(super) fn joins(&self, taken: &[Message], next: &Message) -> bool {
        taken.len() < self.per_call && taken.iter().all(|one| one.phone != next.phone)
    }

    pub(super) fn request(&self, messages: &[Message]) -> Result<Request<Bytes>, Outcome> {
        let orders: Vec<Order<'_>> = messages.iter().map(order).collect();
        let body = match orders.as_slice() {
            [] => return Err(not_one(0)),
            [one] => serde_json::to_vec(one),
            several => serde_json::to_vec(several),
        };
        let body = body.expect("texts alone always make JSON");
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
        context: &RequestContext,
    ) -> Vec<Outcome> {
        let private = Private::new(messages.iter().map(|it| it.content.as_str()), None);
        let read =
            |response: &Response<Bytes>| self.reading.outcome(response, &private, context.now);
        let answer = Answer::read(response, &private, context.now);
        if messages.len() < 2 || response.status() != StatusCode::OK {
            return read(response).of_all(messages.len());
        }
        // Two results with one reference are none.
        let mut results: HashMap<String, Option<&Value>> = HashMap::new();
        for result in answer.list("") {
            let reference = scalar(result, "/reference").unwrap_or_default();
            let its = results.entry(reference);
            its.and_modify(|its| *its = None).or_insert(Some(result));
        }
        let one = |message: &Message| {
            let its = results.get(&message.reference).copied().flatten();
            let response = its.and_then(alone);
            response.map_or_else(
                || answer.unknown(" without a result for this message"),
                |response| read(&response),
            )
        };
        messages.iter().map(one).collect()
    }
}

fn order(message: &Message) -> Order<'_> {
    Order {
        to: message.phone.as_str(),
        text: &message.content,
        reference: &message.reference,
        from: message.from.as_deref(),
    }
}

/// The answer that a message of a list would have had alone.
fn alone(result: &Value) -> Option<Response<Bytes>> {
    let status: u16 = result.get("status")?.as_u64()?.try_into().ok()?;
    let mut response = Response::new(Bytes::from(result.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    if let Some(seconds) = result.get("retry_after").and_then(Value::as_u64) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Some(response)
}

/// The gateway's memory of references ends with its process, which a campaign in practice does not outlive.
const HONOURED_FOR: Duration = Duration::from_secs(30 * 86_400);

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
mod tests;
