//! Huawei Cloud Message & SMS: one template with the same parameters to up to 500 numbers, with a result for each. It
//! has no status lookup. The vendor's examples disagree on whether the digest of the WSSE header is made of the hash's
//! bytes or of its hex digits: `digest` chooses, and a request with the wrong one is rejected.
//! <https://support.huaweicloud.com/intl/en-us/api-msgsms/sms_05_0001.html>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use smsq_message::sms::Outcome;

use super::{FORM, Vendor, form, request, result_of};
use crate::capabilities::{ContentMode, Reference};
use crate::config::SharedSettings;
use crate::config::section::Section;
use crate::config::template_params::Order;
use crate::response::{ResponseView, accepted, scalar};
use crate::signing::sha256;
use crate::times::utc;
use crate::{Adapter, BatchKey, Message, NewAdapter, RequestContext, RequestResult};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The number of the signature's channel.
    channel: Option<String>,
    callback: Option<String>,
    #[serde(default)]
    digest: Digest,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Digest {
    #[default]
    Hex,
    Raw,
}

type Huawei = Vendor<Settings>;

pub(crate) fn new(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let mut huawei = Huawei::with_template(section, shared, Order::Positional)?;
    // The vendor takes 500, but more messages would be unknown after one lost response.
    let capabilities = &mut huawei.config.capabilities;
    capabilities.set(ContentMode::Template, 100, Reference::Echoed);
    Ok(Box::new(huawei))
}

impl Huawei {
    fn wsse(&self, context: &RequestContext) -> String {
        let nonce = format!("{:032x}", context.nonce);
        let created = utc(context.now, "%Y-%m-%dT%H:%M:%SZ");
        let secret = self.config.secret("app_secret");
        let hash = sha256(format!("{nonce}{created}{secret}").as_bytes());
        let digest = match self.settings.digest {
            Digest::Hex => STANDARD.encode(hex::encode(&hash)),
            Digest::Raw => STANDARD.encode(hash),
        };
        let key = self.config.secret("app_key");
        format!(
            r#"UsernameToken Username="{key}",PasswordDigest="{digest}",Nonce="{nonce}",Created="{created}""#
        )
    }
}

impl Adapter for Huawei {
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        let mut key = self.config.template.values(message)?;
        key.extend(message.from.clone());
        Ok(BatchKey(key))
    }

    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        let first = &messages[0];
        let phones: Vec<&str> = messages.iter().map(|message| message.phone.as_str()).collect();
        let params = serde_json::to_string(&self.config.template.values(first)?);
        let (phones, params) = (phones.join(","), params.unwrap_or_default());
        let settings = &self.settings;
        let mut pairs = vec![
            ("from", settings.channel.as_deref().unwrap_or_default()),
            ("to", &phones),
            ("templateId", self.config.template.id()),
            ("templateParas", &params),
            ("extend", &first.reference),
        ];
        if let Some(signature) = self.config.sender(first) {
            pairs.push(("signature", signature));
        }
        if let Some(url) = &settings.callback {
            pairs.push(("statusCallback", url));
        }
        let authorization = r#"WSSE realm="SDP",profile="UsernameToken",type="Appkey""#;
        let wsse = self.wsse(context);
        let headers = [("content-type", FORM), ("authorization", authorization), ("x-wsse", &wsse)];
        let url = self.config.url_with(&["sms", "batchSendSms", "v1"]);
        request(Method::POST, &url, headers, form(pairs))
    }

    /// Some messages may be accepted even if the code of the whole response is not that of success.
    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        const SUCCESS: &str = "000000";
        let codes = &self.config.codes;
        let is_success = response.status.is_success();
        let results = response.list("/result");
        if results.is_empty() {
            let code = response.scalar("/code");
            let outcome = match code.as_deref() {
                Some(SUCCESS) | None if is_success => response.unknown(" without a result"),
                code => response.failed(codes, code, response.scalar("/description")),
            };
            return outcome.of_all(messages.len());
        }
        let outcome = |message: &Message| {
            let Some(result) = result_of(message, messages, results, "/originTo") else {
                return response.unknown(" without a result for this phone");
            };
            let status = scalar(result, "/status");
            match (status.as_deref(), scalar(result, "/smsMsgId")) {
                (Some(SUCCESS), Some(id)) if is_success => accepted(&id, None, None),
                (Some(SUCCESS) | None, _) => response.unknown(" without a `smsMsgId`"),
                (code, _) => response.failed(codes, code, None),
            }
        };
        messages.iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests;
