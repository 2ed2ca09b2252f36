//! Twilio: one message per request, no idempotency key. The list of messages to a phone tells whether one was
//! taken; our reference is not in it, so the text and the moment decide.
//! <https://www.twilio.com/docs/messaging/api/message-resource>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::AUTHORIZATION;
use jiff::fmt::rfc2822;
use serde_json::Value;

use super::answer::{Answer, count, receipt, scalar, taken};
use super::sign::basic;
use super::stanza::Stanza;
use super::supports::{Finding, Reference, Writes};
use super::vendor::{Calls, Common, FORM, all, form, get, post, unclear};
use super::{Message, ProviderError, Stamp};
use crate::sms::{Outcome, Timestamp};

pub(super) const KEYS: &[&str] = &[
    "messaging_service",
    "validity",
    "callback",
    "template",
    "params",
    "param_length",
    "param_urls",
    "template_text",
];

const PAGE: usize = 100;

pub(super) struct Twilio {
    messaging_service: Option<String>,
    /// Seconds.
    validity: Option<u32>,
    callback: Option<String>,
}

impl Twilio {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            messaging_service: stanza.optional("messaging_service")?,
            validity: stanza.optional("validity")?,
            callback: stanza.optional("callback")?,
        })
    }
}

fn authorization(common: &Common) -> String {
    // An API key takes the account's place as the user, never in the path.
    let user = common.secrets.named("api_key");
    let user = user.unwrap_or_else(|| common.secret("account_sid"));
    basic(user, common.secret("auth_token"))
}

fn messages_url(common: &Common) -> url::Url {
    let account = common.secret("account_sid");
    common.at(&["2010-04-01", "Accounts", account, "Messages.json"])
}

impl Calls for Twilio {
    fn writes(&self, common: &Common) -> Writes {
        match common.parameters.template {
            Some(_) => Writes::Template,
            None => Writes::Text,
        }
    }

    fn reference(&self) -> Reference {
        match self.callback {
            Some(_) => Reference::Echoed,
            None => Reference::None,
        }
    }

    fn needs_sender(&self) -> bool {
        self.messaging_service.is_none()
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        let fits = |id: &str| {
            let hex = id.strip_prefix("AC").unwrap_or_default();
            hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        common.doubt(
            "account_sid",
            "an Account SID (`AC` and 32 hex digits)",
            fits,
        )
    }

    fn in_common(&self, common: &Common, message: &Message) -> Result<Vec<String>, Outcome> {
        common.parameters.values(message)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &Stamp,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let mut pairs = vec![("To", message.phone.as_str())];
        match &self.messaging_service {
            Some(service) => pairs.push(("MessagingServiceSid", service)),
            None => pairs.push(("From", common.sender(message)?)),
        }
        let filled = common.parameters.fill(message)?;
        let variables: serde_json::Map<String, Value> = filled
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let variables = Value::Object(variables).to_string();
        match &common.parameters.template {
            None => pairs.push(("Body", &message.content)),
            Some(template) => {
                pairs.extend([
                    ("ContentSid", template.as_str()),
                    ("ContentVariables", &variables),
                ]);
            }
        }
        let validity = self.validity.map(|seconds| seconds.to_string());
        pairs.extend(
            validity
                .as_deref()
                .map(|seconds| ("ValidityPeriod", seconds)),
        );
        let callback = self.callback.as_ref().map(|url| {
            let mark = if url.contains('?') { '&' } else { '?' };
            format!("{url}{mark}reference={}", message.reference)
        });
        pairs.extend(callback.as_deref().map(|url| ("StatusCallback", url)));
        post(
            &messages_url(common),
            FORM,
            Some(authorization(common)),
            form(pairs),
        )
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let json = answer.json.as_ref();
        let outcome = match (answer.scalar("/sid"), answer.scalar("/to")) {
            (Some(_), Some(to)) if to != messages[0].phone.as_str() => {
                answer.unknown(" for another phone")
            }
            (Some(id), _) if answer.status.is_success() => taken(
                &id,
                json.and_then(|json| count(json, "/num_segments")),
                None,
            ),
            _ if answer.status.is_success() => answer.unknown(" without a `sid`"),
            _ => {
                let code = answer.scalar("/code");
                answer.failed(&common.codes, code.as_deref(), answer.scalar("/message"))
            }
        };
        all(messages, &outcome)
    }

    /// Without a date in the question: a message that still waits has no date of sending.
    fn look_up(
        &self,
        common: &Common,
        message: &Message,
        _sent_at: Timestamp,
        _stamp: &Stamp,
    ) -> Option<Result<Request<Bytes>, Outcome>> {
        let mut url = messages_url(common);
        url.query_pairs_mut()
            .append_pair("To", message.phone.as_str())
            .append_pair("PageSize", &PAGE.to_string());
        Some(get(&url, &[(AUTHORIZATION, authorization(common))]))
    }

    fn found(
        &self,
        common: &Common,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        let is_list = answer
            .json
            .as_ref()
            .is_some_and(|json| json["messages"].is_array());
        if !answer.status.is_success() || !is_list {
            return unclear(answer.reason("", answer.scalar("/message")));
        }
        let entries = answer.list("/messages");
        let made = |entry: &Value| {
            let text = scalar(entry, "/date_created")?;
            let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Some(Timestamp::from_millis(at.as_millisecond()))
        };
        // The vendor's clock, which counts whole seconds, and the time a request may take.
        let begin = sent_at.minus(Duration::from_secs(10));
        let end = sent_at.plus(Duration::from_secs(300));
        let near: Vec<&Value> = entries
            .iter()
            .filter(|entry| made(entry).is_none_or(|at| at >= begin && at <= end))
            .filter(|entry| scalar(entry, "/direction").as_deref() != Some("inbound"))
            .collect();
        let is_ours = |entry: &&&Value| {
            common.parameters.template.is_none()
                && entry["body"]
                    .as_str()
                    .is_some_and(|body| body == message.content)
        };
        if let Some(id) = near
            .iter()
            .find(is_ours)
            .and_then(|entry| scalar(entry, "/sid"))
        {
            return Finding::Found(receipt(&id, None, None));
        }
        let oldest = entries.iter().filter_map(made).min();
        let is_whole = entries.len() < PAGE || oldest.is_some_and(|at| at < begin);
        if near.is_empty() && is_whole {
            return Finding::Absent;
        }
        unclear("the provider has other messages to this phone at that time".to_owned())
    }
}

#[cfg(test)]
mod tests;
