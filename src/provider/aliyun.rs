//! Alibaba Cloud SMS (Dysmsapi 2017-05-25): `SendSms` for one message, `SendBatchSms` for several, each with
//! its own parameters of one template. Neither is idempotent; `QuerySendDetails` tells what was taken.
//! <https://help.aliyun.com/zh/sms/developer-reference/api-dysmsapi-2017-05-25-sendsms>

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use serde_json::Value;
use url::Url;

use super::answer::{Answer, acceptance, scalar, taken};
use super::capabilities::{Attempt, Fit, LookupResult, MAX_SKEW, SHARED, Sought, Writes};
use super::mainland::{moment, number};
use super::parameters::Parameters;
use super::sign::{Keys, acs3, hex, sha256, sorted_query, utc};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, all, form, http, refused, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &Parameters::KEYS;

const VERSION: &str = "2017-05-25";
const SHANGHAI: Duration = Duration::from_secs(8 * 3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Every day is a request of its own.
const MAX_DAYS: usize = 4;

pub(super) struct Aliyun;

impl Aliyun {
    #[expect(clippy::unnecessary_wraps, reason = "every vendor is read like this")]
    pub(super) fn read(_: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self)
    }
}

impl Calls for Aliyun {
    fn writes(&self, _: &Common) -> Writes {
        Writes::Template
    }

    /// The vendor's own limit for `SendBatchSms`.
    fn most_per_call(&self) -> usize {
        100
    }

    fn missing(&self, common: &Common) -> Vec<&'static str> {
        let unset = common.parameters.template.is_none();
        unset.then_some("template").into_iter().collect()
    }

    fn needs_sender(&self) -> bool {
        true
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        let fits = |id: &str| id.starts_with("LTAI") || id.starts_with("STS.");
        common.doubt("access_key_id", "an AccessKey ID (`LTAI…`)", fits)
    }

    fn in_common(&self, common: &Common, message: &Message) -> Result<Vec<String>, Outcome> {
        common.parameters.fill(message)?;
        Ok(Vec::new())
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let template = common.parameters.template.as_deref().unwrap_or_default();
        let sign_name = common.sender(&messages[0])?;
        if let [message] = messages {
            let (phone, params) = (number(&message.phone), params(common, message)?);
            let mut query = vec![
                ("OutId", message.reference.as_str()),
                ("PhoneNumbers", phone),
                ("SignName", sign_name),
                ("TemplateCode", template),
            ];
            if params != "{}" {
                query.push(("TemplateParam", &params));
            }
            return signed(common, context, "SendSms", &query, None);
        }
        let phones: Vec<&str> = messages.iter().map(|it| number(&it.phone)).collect();
        let filled: Vec<String> = messages
            .iter()
            .map(|message| params(common, message))
            .collect::<Result<_, _>>()?;
        let body = form([
            ("PhoneNumberJson", list(&phones).as_str()),
            (
                "SignNameJson",
                list(&vec![sign_name; messages.len()]).as_str(),
            ),
            (
                "TemplateParamJson",
                format!("[{}]", filled.join(",")).as_str(),
            ),
        ]);
        let shared = format!("{SHARED}{}", messages[0].reference);
        let query = [("OutId", shared.as_str()), ("TemplateCode", template)];
        signed(common, context, "SendBatchSms", &query, Some(body))
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let code = answer.scalar("/Code");
        let outcome = match (code.as_deref(), answer.scalar("/BizId")) {
            (Some("OK"), Some(id)) if answer.status.is_success() => taken(&id, None, None),
            (Some("OK"), _) => answer.unknown(" without a `BizId`"),
            (code, _) => answer.failed(&common.codes, code, answer.scalar("/Message")),
        };
        all(messages, &outcome)
    }

    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        attempt: Attempt,
        context: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let phone = number(&message.phone);
        let ask = |(day, nonce): (String, u128)| {
            let query = [
                ("CurrentPage", "1"),
                ("PageSize", "50"),
                ("PhoneNumber", phone),
                ("SendDate", day.as_str()),
            ];
            let context = RequestContext {
                nonce: context.nonce.wrapping_add(nonce),
                ..*context
            };
            signed(common, &context, "QuerySendDetails", &query, None)
        };
        let days = days(attempt).into_iter().take(MAX_DAYS);
        Some(days.zip(0..).map(ask).collect())
    }

    /// The references of batches: a batch has a phone once.
    fn ids(&self, answer: &Answer<'_>) -> Vec<String> {
        let ids = entries(answer).iter().map(|entry| of(entry, "/OutId"));
        ids.filter(|id| id.starts_with(SHARED)).collect()
    }

    /// A message that went with others has their shared reference: then its moment and its template tell.
    fn found(&self, common: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        if answer.scalar("/Code").as_deref() != Some("OK") || !answer.status.is_success() {
            return unclear(answer.reason("", answer.scalar("/Message")));
        }
        let (message, entries) = (sought.message, entries(answer));
        let first = format!("{SHARED}{}", message.reference);
        let is_ours = |id: &String| *id == message.reference || *id == first;
        if let Some(id) = entries.iter().map(|it| of(it, "/OutId")).find(is_ours) {
            return LookupResult::Found(acceptance(&id, None, None));
        }
        let template = common.parameters.template.as_deref();
        let values = common.parameters.values(message).unwrap_or_default();
        let is_like_ours = |entry: &Value| {
            let content = scalar(entry, "/Content");
            let has_values = |text: String| values.iter().all(|value| text.contains(value));
            Some(of(entry, "/TemplateCode").as_str()) == template && content.is_none_or(has_values)
        };
        // Those that went alone have a reference of their own.
        let is_batch = |id: &str| id.starts_with(SHARED);
        let mut near: Vec<&Value> = Vec::new();
        let mut batches = 0;
        for entry in entries {
            let id = of(entry, "/OutId");
            if sought.is_other(Some(&id)) {
                continue;
            }
            batches += usize::from(is_batch(&id));
            if sought.fit(moment(&of(entry, "/SendDate"))) == Fit::Near {
                near.push(entry);
            }
        }
        if let [one] = near.as_slice()
            && is_batch(&of(one, "/OutId"))
            && is_like_ours(one)
            && !sought.has_twin(false)
        {
            return LookupResult::Found(acceptance(&of(one, "/OutId"), None, None));
        }
        let counted = answer.scalar("/TotalCount");
        let is_whole = counted.is_some_and(|count| count.parse() == Ok(entries.len()));
        if !near.is_empty() || batches > 0 {
            unclear("the provider has other messages to this phone at that time".to_owned())
        } else if !is_whole || days(sought.attempt).len() > MAX_DAYS {
            unclear("the provider was not asked for all that it lists".to_owned())
        } else {
            LookupResult::Absent
        }
    }
}

/// The days in Shanghai on which the vendor may list the attempt, as far as clocks may differ.
fn days(attempt: Attempt) -> Vec<String> {
    let last = attempt.started_before.unwrap_or(attempt.started_after);
    let last = utc(last.plus(MAX_SKEW).plus(SHANGHAI), "%Y%m%d");
    let mut at = attempt.started_after.minus(MAX_SKEW).plus(SHANGHAI);
    let mut days = vec![utc(at, "%Y%m%d")];
    while days.last() < Some(&last) && days.len() <= MAX_DAYS {
        at = at.plus(DAY);
        days.push(utc(at, "%Y%m%d"));
    }
    days
}

fn entries<'a>(answer: &'a Answer<'_>) -> &'a [Value] {
    answer.list("/SmsSendDetailDTOs/SmsSendDetailDTO")
}

fn of(entry: &Value, key: &str) -> String {
    scalar(entry, key).unwrap_or_default()
}

fn params(common: &Common, message: &Message) -> Result<String, Outcome> {
    let filled = common.parameters.fill(message)?;
    let filled = filled
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()));
    Ok(Value::Object(filled.collect()).to_string())
}

fn list<T: serde::Serialize>(texts: &[T]) -> String {
    serde_json::to_string(texts).unwrap_or_default()
}

fn signed(
    common: &Common,
    context: &RequestContext,
    action: &str,
    query: &[(&str, &str)],
    body: Option<String>,
) -> Result<Request<Bytes>, Outcome> {
    let query = sorted_query(query);
    let url = Url::parse(&format!("{}?{query}", common.base.as_str()));
    let url = url.map_err(|_| refused("the request's url cannot be made".to_owned()))?;
    let host = super::authority(&common.base);
    let kind = body.is_some().then_some(("content-type", FORM));
    let body = body.unwrap_or_default();
    let hash = hex(&sha256(body.as_bytes()));
    let (date, nonce) = (
        utc(context.now, "%Y-%m-%dT%H:%M:%SZ"),
        format!("{:032x}", context.nonce),
    );
    // Without it the vendor's older gateways answer in XML.
    let mut headers = vec![
        ("accept", "application/json"),
        ("host", host.as_str()),
        ("x-acs-action", action),
        ("x-acs-content-sha256", &hash),
        ("x-acs-date", &date),
    ];
    if let Some(token) = common.secrets.named("security_token") {
        headers.push(("x-acs-security-token", token));
    }
    headers.extend([
        ("x-acs-signature-nonce", nonce.as_str()),
        ("x-acs-version", VERSION),
    ]);
    headers.splice(1..1, kind);
    let keys = Keys {
        id: common.secret("access_key_id"),
        secret: common.secret("access_key_secret"),
    };
    let path = common.base.path();
    let authorization = acs3(keys, "POST", path, &query, &headers, body.as_bytes());
    headers.push(("authorization", &authorization));
    let headers: Vec<_> = headers
        .into_iter()
        .filter(|(name, _)| *name != "host")
        .map(|(name, value)| (HeaderName::from_static(name), value.to_owned()))
        .collect();
    http(Method::POST, &url, &headers, body.into())
}

#[cfg(test)]
mod tests;
