//! Alibaba Cloud SMS (Dysmsapi 2017-05-25): `SendSms` for one message, `SendBatchSms` for several with their own
//! parameters of one template. Neither is idempotent; `QuerySendDetails` looks messages up.
//! <https://help.aliyun.com/zh/sms/developer-reference/api-dysmsapi-2017-05-25-sendsms>

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use serde::Deserialize;
use serde_json::Value;
use smsq_message::phone::Phone;
use smsq_message::sms::Outcome;
use url::Url;

use super::{FORM, Vendor, form, header, request};
use crate::capabilities::{
    AttemptSpan, ContentMode, LookupResult, LookupTarget, MAX_SKEW, Reference, SHARED_REFERENCE,
    TimeMatch,
};
use crate::china::national_number;
use crate::config::SharedSettings;
use crate::config::section::Section;
use crate::config::template_params::Order;
use crate::response::{ResponseView, accepted, scalar};
use crate::signing::{Keys, acs3, sha256_hex, sorted_query};
use crate::{
    Adapter, BatchKey, Message, NewAdapter, RequestContext, RequestResult, Requests, account_error,
    found, times, unclear,
};

const VERSION: &str = "2017-05-25";
const DAY: Duration = Duration::from_secs(86_400);
/// A lookup makes one request for each day.
const MAX_DAYS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

type Aliyun = Vendor<Settings>;

pub(crate) fn new(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let mut aliyun = Aliyun::with_template(section, shared, Order::Named)?;
    let config = &mut aliyun.config;
    config.capabilities.set(ContentMode::Template, 100, Reference::Echoed);
    config.requires_sender = true;
    Ok(Box::new(aliyun))
}

impl Aliyun {
    fn signed(
        &self,
        context: &RequestContext,
        action: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> RequestResult {
        let config = &self.config;
        let query = sorted_query(query);
        let url = Url::parse(&format!("{}?{query}", config.url.as_str()))
            .map_err(|_| account_error("cannot build the request's URL"))?;
        let content_type = body.is_some().then_some(("content-type", FORM));
        let body = body.unwrap_or_default();
        let hash = sha256_hex(&body);
        let date = times::utc(context.now, "%Y-%m-%dT%H:%M:%SZ");
        let nonce = format!("{:032x}", context.nonce);
        let token = config.secrets.get("security_token");
        // Without `accept`, older gateways of the vendor answer in XML.
        let mut headers = vec![
            ("accept", "application/json"),
            ("host", config.host()),
            ("x-acs-action", action),
            ("x-acs-content-sha256", &hash),
            ("x-acs-date", &date),
            ("x-acs-signature-nonce", &nonce),
            ("x-acs-version", VERSION),
        ];
        headers.extend(content_type);
        headers.extend(token.map(|token| ("x-acs-security-token", token)));
        headers.sort_unstable();
        let keys =
            Keys { id: config.secret("access_key_id"), secret: config.secret("access_key_secret") };
        let path = config.url.path();
        let authorization = acs3(keys, path, &query, &headers, body.as_bytes());
        headers.push(("authorization", &authorization));
        // The client sets it.
        headers.retain(|(name, _)| *name != "host");
        request(Method::POST, &url, headers, body)
    }
}

impl Adapter for Aliyun {
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        self.config.template.fill(message)?;
        Ok(BatchKey(message.from.iter().cloned().collect()))
    }

    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        let sign_name = self.config.required_sender(&messages[0])?;
        let template = self.config.template.id();
        if let [message] = messages {
            let params = self.config.template.json(message)?;
            let mut query = vec![
                ("OutId", message.reference.as_str()),
                ("PhoneNumbers", national_number(&message.phone)),
                ("SignName", sign_name),
                ("TemplateCode", template),
            ];
            if params != "{}" {
                query.push(("TemplateParam", &params));
            }
            return self.signed(context, "SendSms", &query, None);
        }
        let phones: Vec<&str> =
            messages.iter().map(|message| national_number(&message.phone)).collect();
        let params: Vec<String> = messages
            .iter()
            .map(|message| self.config.template.json(message))
            .collect::<Result<_, _>>()?;
        let list = |texts: Vec<&str>| serde_json::to_string(&texts).unwrap_or_default();
        let body = form([
            ("PhoneNumberJson", list(phones).as_str()),
            ("SignNameJson", &list(vec![sign_name; messages.len()])),
            ("TemplateParamJson", &format!("[{}]", params.join(","))),
        ]);
        let shared = format!("{SHARED_REFERENCE}{}", messages[0].reference);
        let query = [("OutId", shared.as_str()), ("TemplateCode", template)];
        self.signed(context, "SendBatchSms", &query, Some(body))
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let code = response.scalar("/Code");
        let outcome = match (code.as_deref(), response.scalar("/BizId")) {
            (Some("OK"), Some(id)) if response.status.is_success() => accepted(&id, None, None),
            (Some("OK"), _) => response.unknown(" without a `BizId`"),
            (code, _) => response.failed(&self.config.codes, code, response.scalar("/Message")),
        };
        outcome.of_all(messages.len())
    }

    fn sign(&self, request: Request<Bytes>, context: &RequestContext) -> RequestResult {
        let action = header(&request, "x-acs-action");
        let query = request.uri().query().unwrap_or_default();
        let pairs: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| {
                let phone = Phone::stored(&value).filter(|_| name == "PhoneNumber");
                let national = phone.map(|phone| national_number(&phone).to_owned());
                (name.into_owned(), national.unwrap_or_else(|| value.into_owned()))
            })
            .collect();
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.signed(context, action, &pairs, None)
    }

    fn lookup(
        &self,
        message: &Message,
        attempt: AttemptSpan,
        context: &RequestContext,
    ) -> Requests {
        let request = |(day, index): (String, u128)| {
            let query = [
                ("CurrentPage", "1"),
                ("PageSize", "50"),
                ("PhoneNumber", national_number(&message.phone)),
                ("SendDate", day.as_str()),
            ];
            let context = RequestContext { nonce: context.nonce.wrapping_add(index), ..*context };
            self.signed(&context, "QuerySendDetails", &query, None)
        };
        let days = days(attempt).into_iter().take(MAX_DAYS);
        days.zip(0..).map(request).collect()
    }

    /// The references of batches: a batch has a phone only once.
    fn lookup_ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        entries(response)
            .iter()
            .map(|entry| text(entry, "/OutId"))
            .filter(|id| is_batch(id))
            .collect()
    }

    /// A message of a batch has the batch's reference: then its time and its template identify it.
    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        if response.scalar("/Code").as_deref() != Some("OK") || !response.status.is_success() {
            return unclear(response.reason("", response.scalar("/Message")));
        }
        let (message, entries) = (target.message, entries(response));
        let of_batch = format!("{SHARED_REFERENCE}{}", message.reference);
        let is_ours = |id: &String| *id == message.reference || *id == of_batch;
        if let Some(id) = entries.iter().map(|entry| text(entry, "/OutId")).find(is_ours) {
            return found(&id);
        }
        let values = self.config.template.values(message).unwrap_or_default();
        let is_like_ours = |entry: &Value| {
            let content = scalar(entry, "/Content");
            let has_values = |text: String| values.iter().all(|value| text.contains(value));
            text(entry, "/TemplateCode") == self.config.template.id()
                && content.is_none_or(has_values)
        };
        let mut near: Vec<&Value> = Vec::new();
        let mut has_batches = false;
        for entry in entries {
            let id = text(entry, "/OutId");
            if target.belongs_to_other(Some(&id)) {
                continue;
            }
            has_batches |= is_batch(&id);
            let at = times::parse(&text(entry, "/SendDate"), &times::shanghai());
            if target.matches_time(at) == TimeMatch::Yes {
                near.push(entry);
            }
        }
        if let [entry] = near.as_slice()
            && is_batch(&text(entry, "/OutId"))
            && is_like_ours(entry)
            && !target.has_twin(false)
        {
            return found(&text(entry, "/OutId"));
        }
        let count = response.scalar("/TotalCount");
        let is_complete = count.is_some_and(|count| count.parse() == Ok(entries.len()));
        if !near.is_empty() || has_batches {
            unclear("the provider has other messages to this phone at that time")
        } else if !is_complete || days(target.attempt).len() > MAX_DAYS {
            unclear("the lookup did not cover everything that the provider lists")
        } else {
            LookupResult::Absent
        }
    }
}

/// The days in Shanghai on which the vendor may list the attempts, even if the clocks differ.
fn days(attempt: AttemptSpan) -> Vec<String> {
    let last = attempt.started_before.unwrap_or(attempt.started_after);
    let day = |at| times::format(at, times::shanghai(), "%Y%m%d");
    let last = day(last.plus(MAX_SKEW));
    let mut at = attempt.started_after.minus(MAX_SKEW);
    let mut days = vec![day(at)];
    while days.last() < Some(&last) && days.len() <= MAX_DAYS {
        at = at.plus(DAY);
        days.push(day(at));
    }
    days
}

fn entries<'a>(response: &'a ResponseView<'_>) -> &'a [Value] {
    response.list("/SmsSendDetailDTOs/SmsSendDetailDTO")
}

fn text(entry: &Value, pointer: &str) -> String {
    scalar(entry, pointer).unwrap_or_default()
}

/// Messages that were sent alone have a reference of their own.
fn is_batch(reference: &str) -> bool {
    reference.starts_with(SHARED_REFERENCE)
}

#[cfg(test)]
mod tests;
