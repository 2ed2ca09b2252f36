//! Twilio: one message per request, without an idempotency key. A lookup lists the messages to a phone, which show no
//! reference: the text and the time identify a message.
//! <https://www.twilio.com/docs/messaging/api/message-resource>

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request};
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value;
use smsq_message::sms::Outcome;

use super::{Vendor, callback_url, form, ids_in, names_another_phone, post_form, request};
use crate::capabilities::{
    AttemptSpan, ContentMode, LookupResult, LookupTarget, Reference, TimeMatch,
};
use crate::config::SharedSettings;
use crate::config::section::Section;
use crate::config::template_params::Order;
use crate::response::{ResponseView, accepted, count, scalar};
use crate::signing::basic;
use crate::{
    Adapter, BatchKey, Message, NewAdapter, RequestContext, RequestResult, Requests, account_error,
    found, times, unclear,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    messaging_service: Option<String>,
    /// In seconds.
    validity: Option<u32>,
    callback: Option<String>,
}

type Twilio = Vendor<Settings>;

pub(crate) fn new(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let mut twilio = Twilio::with_template(section, shared, Order::Named)?;
    let config = &mut twilio.config;
    let sends = match config.template.settings.template {
        Some(_) => ContentMode::Template,
        None => ContentMode::Text,
    };
    let reference = match twilio.settings.callback {
        Some(_) => Reference::Echoed,
        None => Reference::None,
    };
    config.capabilities.set(sends, 1, reference);
    config.requires_sender = twilio.settings.messaging_service.is_none();
    Ok(Box::new(twilio))
}

impl Twilio {
    /// An API key replaces the account as the user, but not in the path.
    fn authorization(&self) -> String {
        let user = match self.config.secrets.get("api_key") {
            Some(key) => key,
            None => self.config.secret("account_sid"),
        };
        basic(user, self.config.secret("auth_token"))
    }

    fn messages_url(&self) -> url::Url {
        let account = self.config.secret("account_sid");
        self.config.url_with(&["2010-04-01", "Accounts", account, "Messages.json"])
    }
}

impl Adapter for Twilio {
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        self.config.template.values(message).map(BatchKey)
    }

    fn request(&self, messages: &[Message], _context: &RequestContext) -> RequestResult {
        let message = &messages[0];
        let settings = &self.settings;
        let mut pairs = vec![("To", message.phone.as_str())];
        match &settings.messaging_service {
            Some(service) => pairs.push(("MessagingServiceSid", service)),
            None => pairs.push(("From", self.config.required_sender(message)?)),
        }
        let variables = self.config.template.json(message)?;
        match &self.config.template.settings.template {
            None => pairs.push(("Body", &message.content)),
            Some(template) => {
                pairs.push(("ContentSid", template));
                pairs.push(("ContentVariables", &variables));
            }
        }
        let validity = settings.validity.map(|seconds| seconds.to_string());
        if let Some(seconds) = &validity {
            pairs.push(("ValidityPeriod", seconds));
        }
        let callback = settings.callback.as_ref();
        let callback = callback.map(|url| callback_url(url, message));
        pairs.extend(callback.iter().map(|url| ("StatusCallback", url.as_str())));
        post_form(&self.messages_url(), &self.authorization(), form(pairs))
    }

    fn sign(&self, mut request: Request<Bytes>, _: &RequestContext) -> RequestResult {
        let authorization = HeaderValue::from_str(&self.authorization());
        let mut authorization =
            authorization.map_err(|_| account_error("a secret is not allowed in a header"))?;
        authorization.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, authorization);
        Ok(request)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let outcome = match (response.scalar("/sid"), &response.json) {
            (Some(_), Some(_))
                if response.status.is_success()
                    && names_another_phone(&messages[0], response.scalar("/to")) =>
            {
                response.unknown(" for another phone")
            }
            (Some(id), Some(json)) if response.status.is_success() => {
                accepted(&id, count(json, "/num_segments"), None)
            }
            _ if response.status.is_success() => response.unknown(" without a `sid`"),
            _ => {
                let code = response.scalar("/code");
                let words = response.scalar("/message");
                response.failed(&self.config.codes, code.as_deref(), words)
            }
        };
        outcome.of_all(messages.len())
    }

    /// Without a date in the query, because a queued message has no date of sending.
    fn lookup(&self, message: &Message, _: AttemptSpan, _: &RequestContext) -> Requests {
        let mut url = self.messages_url();
        url.query_pairs_mut()
            .append_pair("To", message.phone.as_str())
            .append_pair("PageSize", "100");
        let authorization = self.authorization();
        let headers = [("authorization", authorization.as_str())];
        Ok(vec![request(Method::GET, &url, headers, "")?])
    }

    fn lookup_ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        ids_in(response, "/messages", "/sid")
    }

    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        let json = response.json.as_ref();
        let json = json.filter(|json| response.status.is_success() && json["messages"].is_array());
        let Some(json) = json else {
            return unclear(response.reason("", response.scalar("/message")));
        };
        let has_template = self.config.template.settings.template.is_some();
        let is_text = |entry: &Value| entry["body"].as_str() == Some(&target.message.content);
        let mut may_be_listed = false;
        for entry in response.list("/messages") {
            let id = scalar(entry, "/sid");
            let is_inbound = scalar(entry, "/direction").as_deref() == Some("inbound");
            if is_inbound || target.belongs_to_other(id.as_deref()) {
                continue;
            }
            let at =
                scalar(entry, "/date_created").and_then(|text| times::parse(&text, &TimeZone::UTC));
            match (target.matches_time(at), id) {
                (TimeMatch::Yes, Some(id))
                    if !has_template && is_text(entry) && !target.has_twin(true) =>
                {
                    return found(&id);
                }
                (TimeMatch::Yes, _) => may_be_listed = true,
                (TimeMatch::Maybe, _) => may_be_listed |= has_template || is_text(entry),
                (TimeMatch::No, _) => {}
            }
        }
        if may_be_listed {
            unclear("the provider has other messages to this phone at that time")
        } else if json.get("next_page_uri") != Some(&Value::Null) {
            unclear("the provider's list has more pages")
        } else {
            LookupResult::Absent
        }
    }
}

#[cfg(test)]
mod tests;
