//! Tencent Cloud SMS (2021-01-11): `SendSms` to up to 200 numbers with the same parameters of one template, all
//! in mainland China or none. The answer has a result for every number, in order.
//! <https://cloud.tencent.com/document/api/382/55981>

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use serde_json::{Value, json};

use super::answer::{Answer, acceptance, count, scalar, taken};
use super::capabilities::{Attempt, LookupResult, Sought, Writes};
use super::mainland::is_mainland;
use super::sign::{Keys, tc3};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, all, http, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::{Outcome, Timestamp};

pub(super) const KEYS: &[&str] = &[
    "sdk_app_id",
    "region",
    "template",
    "params",
    "param_length",
    "param_urls",
    "template_text",
];

const VERSION: &str = "2021-01-11";
const KIND: &str = "application/json";

pub(super) struct Tencent {
    sdk_app_id: Option<String>,
    region: String,
}

impl Tencent {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            sdk_app_id: stanza.optional("sdk_app_id")?,
            region: stanza.required("region")?,
        })
    }

    fn app(&self) -> &str {
        self.sdk_app_id.as_deref().unwrap_or_default()
    }

    fn signed(
        &self,
        common: &Common,
        context: &RequestContext,
        action: &str,
        body: &Value,
    ) -> Result<Request<Bytes>, Outcome> {
        let body = body.to_string();
        let host = super::authority(&common.base);
        let signed = [("content-type", KIND), ("host", host.as_str())];
        let keys = Keys {
            id: common.secret("secret_id"),
            secret: common.secret("secret_key"),
        };
        let authorization = tc3(keys, "sms", context.now, &signed, body.as_bytes());
        let seconds = context.now.as_millis().div_euclid(1_000).to_string();
        let mut headers = vec![
            ("content-type", KIND),
            ("authorization", &authorization),
            ("x-tc-action", action),
            ("x-tc-version", VERSION),
            ("x-tc-timestamp", &seconds),
            ("x-tc-region", &self.region),
        ];
        if let Some(token) = common.secrets.named("token") {
            headers.push(("x-tc-token", token));
        }
        let headers: Vec<_> = headers
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.to_owned()))
            .collect();
        http(Method::POST, &common.base, &headers, body.into())
    }
}

impl Calls for Tencent {
    fn writes(&self, _: &Common) -> Writes {
        Writes::Template
    }

    fn most_per_call(&self) -> usize {
        200
    }

    fn missing(&self, common: &Common) -> Vec<&'static str> {
        let template = common.parameters.template.is_none().then_some("template");
        let app = self.sdk_app_id.is_none().then_some("sdk_app_id");
        app.into_iter().chain(template).collect()
    }

    /// Required for numbers in mainland China; settings are checked before any number is known.
    fn needs_sender(&self) -> bool {
        true
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        let fits = |id: &str| id.starts_with("AKID") || id.starts_with("IKID");
        common.doubt("secret_id", "a SecretId (`AKID…`)", fits)
    }

    fn in_common(&self, common: &Common, message: &Message) -> Result<Vec<String>, Outcome> {
        let mut values = common.parameters.values(message)?;
        values.push(is_mainland(&message.phone).to_string());
        Ok(values)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let first = &messages[0];
        let phones: Vec<&str> = messages.iter().map(|it| it.phone.as_str()).collect();
        let mut body = json!({
            "PhoneNumberSet": phones,
            "SmsSdkAppId": self.app(),
            "TemplateId": common.parameters.template,
            "TemplateParamSet": common.parameters.values(first)?,
            "SessionContext": first.reference,
        });
        // The vendor wants a signature for mainland numbers, and takes none for others.
        if is_mainland(&first.phone) {
            body["SignName"] = common.sender(first)?.into();
        }
        self.signed(common, context, "SendSms", &body)
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let code = answer.scalar("/Response/Error/Code");
        let words = answer.scalar("/Response/Error/Message");
        let results = answer.list("/Response/SendStatusSet");
        // An answer that shows accepted messages rejects no request as a whole, whatever its status.
        let is_ok = |result: &Value| scalar(result, "/Code").as_deref() == Some("Ok");
        let is_error = code.is_some() || !answer.status.is_success();
        if is_error && (messages.len() == 1 || !results.iter().any(is_ok)) {
            let outcome = answer.failed(&common.codes, code.as_deref(), words);
            return all(messages, &outcome);
        }
        if results.len() != messages.len() {
            return all(messages, &answer.unknown(" with another count of results"));
        }
        let one = |(message, result): (&Message, &Value)| {
            let phone = scalar(result, "/PhoneNumber").unwrap_or_default();
            let code = scalar(result, "/Code");
            let is_its = phone.trim_start_matches('+') == message.phone.digits();
            if !is_its && messages.len() > 1 {
                return answer.unknown(" for another phone");
            }
            match (code.as_deref(), scalar(result, "/SerialNo")) {
                (Some("Ok"), _) if is_error => answer.unknown(" beside an error"),
                (Some("Ok"), Some(id)) => taken(&id, count(result, "/Fee"), None),
                (Some("Ok") | None, _) => answer.unknown(" without a `SerialNo`"),
                (code, _) => answer.failed(&common.codes, code, scalar(result, "/Message")),
            }
        };
        messages.iter().zip(results).map(one).collect()
    }

    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        attempt: Attempt,
        context: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let seconds = |at: Timestamp| at.as_millis().div_euclid(1_000);
        let body = json!({
            "BeginTime": seconds(attempt.started_after.minus(Duration::from_secs(60))),
            "EndTime": seconds(context.now),
            "Offset": 0,
            "Limit": 100,
            "PhoneNumber": message.phone.as_str(),
            "SmsSdkAppId": self.app(),
        });
        let request = self.signed(common, context, "PullSmsSendStatusByPhoneNumber", &body);
        Some(request.map(|request| vec![request]))
    }

    /// The vendor lists what was delivered or not, so silence proves nothing; and it names the reference only
    /// for accounts that asked for that.
    fn found(&self, _: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        let entries = answer.list("/Response/PullSmsSendStatusSet");
        let is_ours = |entry: &&Value| {
            scalar(entry, "/SessionContext").as_ref() == Some(&sought.message.reference)
        };
        match entries
            .iter()
            .find(is_ours)
            .map(|entry| scalar(entry, "/SerialNo"))
        {
            Some(Some(id)) if answer.status.is_success() => {
                LookupResult::Found(acceptance(&id, None, None))
            }
            _ => unclear(answer.reason("", answer.scalar("/Response/Error/Message"))),
        }
    }
}

#[cfg(test)]
mod tests;
