//! AWS End User Messaging SMS (`pinpoint-sms-voice-v2`): `SendTextMessage`. Our reference goes along as
//! `Context` and comes back in events only; it cannot be asked for a message.
//! <https://docs.aws.amazon.com/pinpoint/latest/apireference_smsvoicev2/API_SendTextMessage.html>

use bytes::Bytes;
use http::Request;
use serde_json::json;

use super::answer::{Answer, taken};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, all};
use super::{Message, ProviderError, RequestContext, aws};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &["region", "message_type", "configuration_set", "max_price"];

const KIND: &str = "application/x-amz-json-1.0";
const TARGET: &str = "PinpointSMSVoiceV2.SendTextMessage";

pub(super) struct AwsSms {
    region: String,
    message_type: Option<String>,
    configuration_set: Option<String>,
    max_price: Option<String>,
}

impl AwsSms {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            region: stanza.required("region")?,
            message_type: stanza.optional("message_type")?,
            configuration_set: stanza.optional("configuration_set")?,
            max_price: stanza.optional("max_price")?,
        })
    }
}

impl Calls for AwsSms {
    fn doubts(&self, common: &Common) -> Vec<String> {
        aws::doubts(common)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let mut body = json!({
            "DestinationPhoneNumber": message.phone.as_str(),
            "MessageBody": message.content,
            "Context": { "reference": message.reference },
        });
        let settings = [
            ("OriginationIdentity", common.from(message)),
            ("MessageType", self.message_type.as_deref()),
            ("ConfigurationSetName", self.configuration_set.as_deref()),
            ("MaxPrice", self.max_price.as_deref()),
        ];
        for (key, value) in settings {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        let more = [("x-amz-target", TARGET)];
        let (region, body) = (&self.region, body.to_string());
        aws::signed(common, region, "sms-voice", context.now, KIND, &more, body)
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let outcome = match answer.scalar("/MessageId") {
            Some(id) if answer.status.is_success() => taken(&id, None, None),
            _ if answer.status.is_success() => answer.unknown(" without a `MessageId`"),
            _ => {
                let code = code(common, answer);
                let words = answer
                    .scalar("/message")
                    .or_else(|| answer.scalar("/Message"));
                answer.failed(&common.codes, code.as_deref(), words)
            }
        };
        all(messages, &outcome)
    }
}

/// The reason that the exception names, where the table knows it; else the exception, without the namespace that
/// may stand before it and the address that may stand behind it. It is in the body or in a header.
fn code(common: &Common, answer: &Answer<'_>) -> Option<String> {
    let reason = answer.scalar("/Reason");
    let reason = reason.filter(|reason| common.codes.meaning(reason).is_some());
    reason.or_else(|| {
        let header = || answer.headers.get("x-amzn-errortype")?.to_str().ok();
        let kind = answer.scalar("/__type");
        let kind = kind.as_deref().or_else(header)?;
        let kind = kind.split(':').next().unwrap_or_default();
        kind.rsplit('#').next().map(|kind| kind.trim().to_owned())
    })
}

#[cfg(test)]
mod tests;
