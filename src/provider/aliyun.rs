//! Alibaba Cloud SMS (Dysmsapi 2017-05-25): `SendSms` for one message, `SendBatchSms` for several, each with
//! its own parameters of one template. Neither is idempotent; `QuerySendDetails` tells what was taken.
//! <https://help.aliyun.com/zh/sms/developer-reference/api-dysmsapi-2017-05-25-sendsms>

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use serde_json::Value;
use url::Url;

use super::answer::{Answer, receipt, scalar, taken};
use super::mainland::{moment, number};
use super::parameters::Parameters;
use super::sign::{Keys, acs3, hex, sha256, sorted_query, utc};
use super::stanza::Stanza;
use super::supports::{Finding, SHARED, Writes};
use super::vendor::{Calls, Common, FORM, all, form, http, refused, unclear};
use super::{Message, ProviderError, Stamp};
use crate::sms::{Outcome, Timestamp};

pub(super) const KEYS: &[&str] = &Parameters::KEYS;

const VERSION: &str = "2017-05-25";
const PAGE: usize = 50;

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
        stamp: &Stamp,
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
            return signed(common, stamp, "SendSms", &query, None);
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
        signed(common, stamp, "SendBatchSms", &query, Some(body))
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

    fn look_up(
        &self,
        common: &Common,
        message: &Message,
        sent_at: Timestamp,
        stamp: &Stamp,
    ) -> Option<Result<Request<Bytes>, Outcome>> {
        let day = utc(sent_at.plus(Duration::from_secs(8 * 3_600)), "%Y%m%d");
        let phone = number(&message.phone);
        let query = [
            ("CurrentPage", "1"),
            ("PageSize", "50"),
            ("PhoneNumber", phone),
            ("SendDate", day.as_str()),
        ];
        Some(signed(common, stamp, "QuerySendDetails", &query, None))
    }

    /// A message that went with others has their shared reference: then its moment and its template tell.
    fn found(
        &self,
        common: &Common,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        if answer.scalar("/Code").as_deref() != Some("OK") || !answer.status.is_success() {
            return unclear(answer.reason("", answer.scalar("/Message")));
        }
        let entries = answer.list("/SmsSendDetailDTOs/SmsSendDetailDTO");
        let counted = answer
            .scalar("/TotalCount")
            .and_then(|count| count.parse().ok());
        let is_whole = counted.is_some_and(|count: usize| count == entries.len() && count < PAGE);
        let of = |entry: &Value, key: &str| scalar(entry, key).unwrap_or_default();
        if entries
            .iter()
            .any(|entry| of(entry, "/OutId") == message.reference)
        {
            return Finding::Found(receipt(&message.reference, None, None));
        }
        let is_near = |entry: &&Value| {
            let Some(at) = moment(&of(entry, "/SendDate")) else {
                return true;
            };
            // The vendor's clock, and the time a request may take.
            at.plus(Duration::from_secs(60)) >= sent_at
                && at <= sent_at.plus(Duration::from_secs(300))
        };
        let near: Vec<_> = entries.iter().filter(is_near).collect();
        let template = common.parameters.template.as_deref();
        match near.as_slice() {
            [one]
                if of(one, "/OutId").starts_with(SHARED)
                    && Some(of(one, "/TemplateCode").as_str()) == template =>
            {
                Finding::Found(receipt(&of(one, "/OutId"), None, None))
            }
            [] if is_whole => Finding::Absent,
            _ => unclear("the provider has other messages to this phone at that time".to_owned()),
        }
    }
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
    stamp: &Stamp,
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
        utc(stamp.now, "%Y-%m-%dT%H:%M:%SZ"),
        format!("{:032x}", stamp.nonce),
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
