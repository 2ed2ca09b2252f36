//! Vonage's SMS API: a form in, always 200 out, with a result for every segment of the message. It takes no
//! idempotency key and cannot be asked without a contract for reports.
//! <https://developer.vonage.com/en/api/sms>

use bytes::Bytes;
use http::Request;
use serde_json::Value;

use super::answer::{Answer, scalar, taken};
use super::sign::basic;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, form, post};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;
use crate::text::segments::outside_gsm7;

pub(super) const KEYS: &[&str] = &["ttl", "callback"];

pub(super) struct Vonage {
    /// Milliseconds.
    ttl: Option<u32>,
    callback: Option<String>,
}

impl Vonage {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            ttl: stanza.optional("ttl")?,
            callback: stanza.optional("callback")?,
        })
    }
}

impl Calls for Vonage {
    fn needs_sender(&self) -> bool {
        true
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        let fits = |key: &str| key.len() == 8 && key.bytes().all(|it| it.is_ascii_hexdigit());
        common.doubt("api_key", "an API key (8 hex digits)", fits)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let is_gsm = outside_gsm7(&message.content).next().is_none();
        let ttl = self.ttl.map(|ttl| ttl.to_string());
        let mut pairs = vec![
            ("from", common.sender(message)?),
            ("to", message.phone.digits()),
            ("text", &message.content),
            ("type", if is_gsm { "text" } else { "unicode" }),
            ("client-ref", &message.reference),
        ];
        pairs.extend(ttl.as_deref().map(|ttl| ("ttl", ttl)));
        pairs.extend(self.callback.as_deref().map(|url| ("callback", url)));
        let authorization = basic(common.secret("api_key"), common.secret("api_secret"));
        post(
            &common.at(&["sms", "json"]),
            FORM,
            Some(authorization),
            form(pairs),
        )
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let parts = answer.list("/messages");
        let is_taken = |part: &&Value| scalar(part, "/status").as_deref() == Some("0");
        let taken_parts: Vec<&Value> = parts.iter().filter(is_taken).collect();
        let is_strange = |part: &&Value| {
            scalar(part, "/client-ref").is_some_and(|it| it != messages[0].reference)
        };
        if !answer.status.is_success() {
            return vec![answer.failed(&common.codes, None, None)];
        }
        if parts.is_empty() {
            return vec![answer.unknown(" without a result")];
        }
        if parts.iter().any(|part| is_strange(&part)) {
            return vec![answer.unknown(" for another message")];
        }
        let failed = parts.iter().find(|part| !is_taken(part));
        vec![match (failed, taken_parts.as_slice()) {
            (None, all) => match scalar(all[0], "/message-id") {
                Some(id) => taken(&id, i32::try_from(all.len()).ok(), price(all)),
                None => answer.unknown(" without a `message-id`"),
            },
            (Some(failed), []) => {
                let code = scalar(failed, "/status");
                answer.failed(
                    &common.codes,
                    code.as_deref(),
                    scalar(failed, "/error-text"),
                )
            }
            (Some(_), some) => {
                let (some, all) = (some.len(), parts.len());
                answer.unknown(&format!(" and took only {some} of {all} parts"))
            }
        }]
    }
}

/// The price, where there is one part only: that of several is nowhere in the answer.
fn price(parts: &[&Value]) -> Option<String> {
    let [only] = parts else { return None };
    scalar(only, "/message-price")
}

#[cfg(test)]
mod tests;
