//! Telnyx: one message per request, with our reference as the idempotency key. The same bytes under the same key
//! are accepted once in a day, so a request holds nothing that changes from attempt to attempt.
//! <https://developers.telnyx.com/api/messaging/send-message>

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, Method, Request};
use serde_json::json;

use super::answer::{Answer, count, scalar, taken};
use super::capabilities::Reference;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, JSON, all, http};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &["messaging_profile", "callback"];

/// Only successes are remembered, and only so long.
const HONOURED_FOR: Duration = Duration::from_secs(24 * 3_600);

pub(super) struct Telnyx {
    messaging_profile: Option<String>,
    callback: Option<String>,
}

impl Telnyx {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            messaging_profile: stanza.optional("messaging_profile")?,
            callback: stanza.optional("callback")?,
        })
    }
}

impl Calls for Telnyx {
    fn reference(&self) -> Reference {
        Reference::Honoured { span: HONOURED_FOR }
    }

    fn needs_sender(&self) -> bool {
        self.messaging_profile.is_none()
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        common.doubt("api_key", "an API key (`KEY…`)", |key| {
            key.starts_with("KEY")
        })
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let mut body = json!({
            "to": message.phone.as_str(),
            "text": message.content,
            "type": "SMS",
        });
        match (&self.messaging_profile, common.from(message)) {
            (Some(_), None) => {}
            _ => body["from"] = common.sender(message)?.into(),
        }
        if let Some(profile) = &self.messaging_profile {
            body["messaging_profile_id"] = profile.as_str().into();
        }
        if let Some(url) = &self.callback {
            let mark = if url.contains('?') { '&' } else { '?' };
            body["webhook_url"] = format!("{url}{mark}reference={}", message.reference).into();
        }
        let headers = [
            (CONTENT_TYPE, JSON.to_owned()),
            (
                AUTHORIZATION,
                format!("Bearer {}", common.secret("api_key")),
            ),
            (
                HeaderName::from_static("idempotency-key"),
                message.reference.clone(),
            ),
        ];
        let url = common.at(&["v2", "messages"]);
        http(Method::POST, &url, &headers, body.to_string().into())
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let json = answer.json.as_ref();
        let outcome = match answer.scalar("/data/id") {
            Some(id) if answer.status.is_success() => {
                let price = answer.scalar("/data/cost/amount").map(|amount| {
                    let currency = answer.scalar("/data/cost/currency").unwrap_or_default();
                    format!("{amount} {currency}").trim().to_owned()
                });
                taken(&id, json.and_then(|json| count(json, "/data/parts")), price)
            }
            _ if answer.status.is_success() => answer.unknown(" without an id"),
            _ => {
                let first = answer.list("/errors").first();
                let of = |key| first.and_then(|error| scalar(error, key));
                let title = of("/title");
                // One code for two things, and the title tells them apart.
                let is_stop = title.as_ref().is_some_and(|title| title.contains("STOP"));
                let suffix = if is_stop { " STOP" } else { "" };
                let code = of("/code").map(|code| code + suffix);
                let words = of("/detail").or(title);
                answer.failed(&common.codes, code.as_deref(), words)
            }
        };
        all(messages, &outcome)
    }
}

#[cfg(test)]
mod tests;
