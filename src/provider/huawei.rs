//! Huawei Cloud's Message & SMS: one template with the same parameters to up to 500 numbers, and a result for each
//! of them. It cannot be asked for a message. Whether the digest of its WSSE header is made of the hash's bytes or
//! of its hex digits, the vendor's examples disagree: `digest` chooses, and a wrong one is refused, nothing sent.
//! <https://support.huaweicloud.com/intl/en-us/api-msgsms/sms_05_0001.html>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, Method, Request};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, scalar, taken};
use super::capabilities::Writes;
use super::sign::{hex, sha256, utc};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, all, form, http, only};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &[
    "channel",
    "callback",
    "digest",
    "template",
    "params",
    "param_length",
    "param_urls",
    "template_text",
];

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Digest {
    Hex,
    Raw,
}

pub(super) struct Huawei {
    /// The vendor's number of the signature's channel.
    channel: Option<String>,
    callback: Option<String>,
    digest: Digest,
}

impl Huawei {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            channel: stanza.optional("channel")?,
            callback: stanza.optional("callback")?,
            digest: stanza.optional("digest")?.unwrap_or(Digest::Hex),
        })
    }

    fn wsse(&self, common: &Common, context: &RequestContext) -> String {
        let nonce = format!("{:032x}", context.nonce);
        let created = utc(context.now, "%Y-%m-%dT%H:%M:%SZ");
        let hash = sha256(format!("{nonce}{created}{}", common.secret("app_secret")).as_bytes());
        let digest = match self.digest {
            Digest::Hex => STANDARD.encode(hex(&hash)),
            Digest::Raw => STANDARD.encode(hash),
        };
        let key = common.secret("app_key");
        format!(
            r#"UsernameToken Username="{key}",PasswordDigest="{digest}",Nonce="{nonce}",Created="{created}""#
        )
    }
}

impl Calls for Huawei {
    fn writes(&self, _: &Common) -> Writes {
        Writes::Template
    }

    /// The vendor takes 500 and advises 500 a second; so many are lost sight of when an answer does not come.
    fn most_per_call(&self) -> usize {
        100
    }

    fn missing(&self, common: &Common) -> Vec<&'static str> {
        let template = common.parameters.template.is_none().then_some("template");
        let channel = self.channel.is_none().then_some("channel");
        channel.into_iter().chain(template).collect()
    }

    fn in_common(&self, common: &Common, message: &Message) -> Result<Vec<String>, Outcome> {
        common.parameters.values(message)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let first = &messages[0];
        let phones: Vec<&str> = messages.iter().map(|it| it.phone.as_str()).collect();
        let params = serde_json::to_string(&common.parameters.values(first)?);
        let (to, params) = (phones.join(","), params.unwrap_or_default());
        let mut pairs = vec![
            ("from", self.channel.as_deref().unwrap_or_default()),
            ("to", &to),
            (
                "templateId",
                common.parameters.template.as_deref().unwrap_or_default(),
            ),
            ("templateParas", &params),
            ("extend", &first.reference),
        ];
        pairs.extend(common.from(first).map(|signature| ("signature", signature)));
        pairs.extend(self.callback.as_deref().map(|url| ("statusCallback", url)));
        let headers = [
            (CONTENT_TYPE, FORM.to_owned()),
            (
                AUTHORIZATION,
                r#"WSSE realm="SDP",profile="UsernameToken",type="Appkey""#.to_owned(),
            ),
            (
                HeaderName::from_static("x-wsse"),
                self.wsse(common, context),
            ),
        ];
        let url = common.at(&["sms", "batchSendSms", "v1"]);
        http(Method::POST, &url, &headers, form(pairs).into())
    }

    /// Some messages may have been taken where the code of the whole is not that of success.
    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let code = answer.scalar("/code");
        let results = answer.list("/result");
        if results.is_empty() {
            let outcome = match code.as_deref() {
                Some("000000") | None if answer.status.is_success() => {
                    answer.unknown(" without a result")
                }
                code => answer.failed(&common.codes, code, answer.scalar("/description")),
            };
            return all(messages, &outcome);
        }
        let one = |message: &Message| {
            let is_its = |result: &&Value| {
                let phone = scalar(result, "/originTo").unwrap_or_default();
                phone.trim_start_matches('+') == message.phone.digits()
            };
            let mut its = results.iter().filter(is_its);
            let its = match (its.next(), its.next()) {
                (Some(result), None) => Some(result),
                _ => only(messages, results),
            };
            let Some(result) = its else {
                return answer.unknown(" without a result for this phone");
            };
            let status = scalar(result, "/status");
            match (status.as_deref(), scalar(result, "/smsMsgId")) {
                (Some("000000"), Some(id)) if answer.status.is_success() => taken(&id, None, None),
                (Some("000000") | None, _) => answer.unknown(" without a `smsMsgId`"),
                (code, _) => answer.failed(&common.codes, code, None),
            }
        };
        messages.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests;
