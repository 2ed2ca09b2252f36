//! Tencent Cloud SMS (2021-01-11): `SendSms` to up to 200 numbers, all or none in mainland China, with the same
//! parameters of one template. The response has a result for each number, in the same order.
//! <https://cloud.tencent.com/document/api/382/55981>

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use smsq_message::sms::{Outcome, Timestamp};

use super::{Vendor, header, is_phone_of, names_another_phone, request};
use crate::capabilities::{AttemptSpan, ContentMode, LookupResult, LookupTarget, Reference};
use crate::china::is_mainland;
use crate::config::SharedSettings;
use crate::config::section::Section;
use crate::config::template_params::Order;
use crate::response::{ResponseView, accepted, count, scalar};
use crate::signing::{Keys, tc3};
use crate::{
    Adapter, BatchKey, Message, NewAdapter, RequestContext, RequestResult, Requests, found, unclear,
};

const VERSION: &str = "2021-01-11";
const JSON: &str = "application/json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    sdk_app_id: Option<String>,
    region: String,
}

type Tencent = Vendor<Settings>;

pub(crate) fn new(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let mut tencent = Tencent::with_template(section, shared, Order::Positional)?;
    let config = &mut tencent.config;
    config.capabilities.set(ContentMode::Template, 200, Reference::Echoed);
    // Only mainland numbers need one, but settings are checked before any number is known.
    config.requires_sender = true;
    Ok(Box::new(tencent))
}

impl Tencent {
    fn signed(&self, context: &RequestContext, action: &str, body: &Value) -> RequestResult {
        let body = body.to_string();
        let signed = [("content-type", JSON), ("host", self.config.host())];
        let keys =
            Keys { id: self.config.secret("secret_id"), secret: self.config.secret("secret_key") };
        let authorization = tc3(keys, "sms", context.now, &signed, body.as_bytes());
        let timestamp = seconds(context.now).to_string();
        let mut headers = vec![
            ("content-type", JSON),
            ("authorization", &authorization),
            ("x-tc-action", action),
            ("x-tc-version", VERSION),
            ("x-tc-timestamp", &timestamp),
            ("x-tc-region", &self.settings.region),
        ];
        let token = self.config.secrets.get("token");
        headers.extend(token.map(|token| ("x-tc-token", token)));
        request(Method::POST, &self.config.url, headers, body)
    }
}

fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1_000)
}

impl Adapter for Tencent {
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        let mut key = self.config.template.values(message)?;
        key.push(is_mainland(&message.phone).to_string());
        key.extend(message.from.clone());
        Ok(BatchKey(key))
    }

    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        let first = &messages[0];
        let phones: Vec<&str> = messages.iter().map(|message| message.phone.as_str()).collect();
        let mut body = json!({
            "PhoneNumberSet": phones,
            "SmsSdkAppId": self.settings.sdk_app_id,
            "TemplateId": self.config.template.id(),
            "TemplateParamSet": self.config.template.values(first)?,
            "SessionContext": first.reference,
        });
        // The vendor requires a signature for mainland numbers, and allows none for others.
        if is_mainland(&first.phone) {
            body["SignName"] = self.config.required_sender(first)?.into();
        }
        self.signed(context, "SendSms", &body)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let codes = &self.config.codes;
        let code = response.scalar("/Response/Error/Code");
        let results = response.list("/Response/SendStatusSet");
        let is_ok = |result: &Value| scalar(result, "/Code").as_deref() == Some("Ok");
        let is_error = code.is_some() || !response.status.is_success();
        // A response that shows accepted messages does not reject the request as a whole, whatever its status.
        if is_error && (messages.len() == 1 || !results.iter().any(is_ok)) {
            let words = response.scalar("/Response/Error/Message");
            let outcome = response.failed(codes, code.as_deref(), words);
            return outcome.of_all(messages.len());
        }
        if results.len() != messages.len() {
            let outcome = response.unknown(" with a different number of results");
            return outcome.of_all(messages.len());
        }
        let outcome = |(message, result): (&Message, &Value)| {
            let number = scalar(result, "/PhoneNumber");
            let is_another = match messages {
                [_] => names_another_phone(message, number),
                _ => !is_phone_of(message, number),
            };
            if is_another {
                return response.unknown(" for another phone");
            }
            // All messages of a request have the reference of the first one.
            let reference = scalar(result, "/SessionContext");
            if reference.is_some_and(|reference| reference != messages[0].reference) {
                return response.unknown(" for another message");
            }
            let code = scalar(result, "/Code");
            match (code.as_deref(), scalar(result, "/SerialNo")) {
                (Some("Ok"), _) if is_error => response.unknown(" together with an error"),
                (Some("Ok"), Some(id)) => accepted(&id, count(result, "/Fee"), None),
                (Some("Ok") | None, _) => response.unknown(" without a `SerialNo`"),
                (code, _) => response.failed(codes, code, scalar(result, "/Message")),
            }
        };
        messages.iter().zip(results).map(outcome).collect()
    }

    fn lookup(
        &self,
        message: &Message,
        attempt: AttemptSpan,
        context: &RequestContext,
    ) -> Requests {
        let body = json!({
            "BeginTime": seconds(attempt.started_after.minus(Duration::from_secs(60))),
            "EndTime": seconds(context.now),
            "Offset": 0,
            "Limit": 100,
            "PhoneNumber": message.phone.as_str(),
            "SmsSdkAppId": self.settings.sdk_app_id,
        });
        let request = self.signed(context, "PullSmsSendStatusByPhoneNumber", &body)?;
        Ok(vec![request])
    }

    fn sign(&self, request: Request<Bytes>, context: &RequestContext) -> RequestResult {
        let action = header(&request, "x-tc-action");
        let mut body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        if let Some(begin) = scalar(&body, "/BeginTime").and_then(|at| at.parse::<i64>().ok()) {
            body["BeginTime"] = (begin - 60).into();
            body["EndTime"] = seconds(context.now).into();
        }
        self.signed(context, action, &body)
    }

    /// The vendor lists only messages with a delivery result, and our reference only for accounts with that enabled,
    /// so a missing entry proves nothing.
    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        let mut entries = response.list("/Response/PullSmsSendStatusSet").iter();
        let reference = &target.message.reference;
        let entry =
            entries.find(|entry| scalar(entry, "/SessionContext").as_ref() == Some(reference));
        match entry.and_then(|entry| scalar(entry, "/SerialNo")) {
            Some(id) if response.status.is_success() => found(&id),
            _ => unclear(response.reason("", response.scalar("/Response/Error/Message"))),
        }
    }
}

#[cfg(test)]
mod tests;
