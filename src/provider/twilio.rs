//! Twilio: one message per request, no idempotency key. The list of messages to a phone tells whether one was
//! taken; our reference is not in it, so the text and the moment decide.
//! <https://www.twilio.com/docs/messaging/api/message-resource>

use bytes::Bytes;
use http::Request;
use http::header::AUTHORIZATION;
use jiff::fmt::rfc2822;
use serde_json::Value;

use super::answer::{Answer, acceptance, count, scalar, taken};
use super::capabilities::{Attempt, Fit, LookupResult, Reference, Sought, Writes};
use super::sign::basic;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, all, form, get, post, unclear};
use super::{Message, ProviderError, RequestContext};
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
        _stamp: &RequestContext,
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
        let outcome = match answer.scalar("/sid") {
            Some(id) if answer.status.is_success() => taken(
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
    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        _attempt: Attempt,
        _stamp: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let mut url = messages_url(common);
        url.query_pairs_mut()
            .append_pair("To", message.phone.as_str())
            .append_pair("PageSize", "100");
        let request = get(&url, &[(AUTHORIZATION, authorization(common))]);
        Some(request.map(|request| vec![request]))
    }

    fn ids(&self, answer: &Answer<'_>) -> Vec<String> {
        let entries = answer.list("/messages").iter();
        entries.filter_map(|entry| scalar(entry, "/sid")).collect()
    }

    fn found(&self, common: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        let json = answer.json.as_ref();
        let is_list = json.is_some_and(|json| json["messages"].is_array());
        if !answer.status.is_success() || !is_list {
            return unclear(answer.reason("", answer.scalar("/message")));
        }
        let fit = |entry: &Value| {
            let text = scalar(entry, "/date_created");
            let at =
                text.and_then(|text| rfc2822::DateTimeParser::new().parse_timestamp(text).ok());
            sought.fit(at.map(|at| Timestamp::from_millis(at.as_millisecond())))
        };
        let has_template = common.parameters.template.is_some();
        let is_text = |entry: &Value| entry["body"].as_str() == Some(&sought.message.content);
        let mut may_be_listed = false;
        for entry in answer.list("/messages") {
            let id = scalar(entry, "/sid");
            if scalar(entry, "/direction").as_deref() == Some("inbound")
                || sought.is_other(id.as_deref())
            {
                continue;
            }
            match (fit(entry), id) {
                (Fit::Near, Some(id))
                    if !has_template && is_text(entry) && !sought.has_twin(true) =>
                {
                    return LookupResult::Found(acceptance(&id, None, None));
                }
                (Fit::Near, _) => may_be_listed = true,
                (Fit::Doubtful, _) => may_be_listed |= has_template || is_text(entry),
                (Fit::Other, _) => {}
            }
        }
        let has_more = json.and_then(|json| json.get("next_page_uri")) != Some(&Value::Null);
        if may_be_listed {
            unclear("the provider has other messages to this phone at that time".to_owned())
        } else if has_more {
            unclear("the provider's list goes on".to_owned())
        } else {
            LookupResult::Absent
        }
    }
}

#[cfg(test)]
mod tests;
