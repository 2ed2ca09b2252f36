//! SMS Gate (android-sms-gateway): a phone as the gateway, in the cloud or self-hosted. Our reference is the
//! message's id, and one device takes an id once; without a fixed device a second attempt may go out on another.
//! <https://docs.sms-gate.app/integration/api/>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::AUTHORIZATION;
use serde_json::json;

use super::answer::{Answer, acceptance, scalar, taken};
use super::capabilities::{Attempt, LookupResult, Reference, Sought};
use super::sign::basic;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, JSON, all, get, post, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &["device_id", "sim_number", "ttl"];

/// The least that a gateway keeps its messages for.
const HONOURED_FOR: Duration = Duration::from_secs(720 * 3_600);

pub(super) struct SmsGate {
    device_id: Option<String>,
    sim_number: Option<u8>,
    /// Seconds.
    ttl: Option<u32>,
}

impl SmsGate {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            device_id: stanza.optional("device_id")?,
            sim_number: stanza.optional("sim_number")?,
            ttl: stanza.optional("ttl")?,
        })
    }
}

fn authorization(common: &Common) -> String {
    basic(common.secret("username"), common.secret("password"))
}

impl Calls for SmsGate {
    fn reference(&self) -> Reference {
        match self.device_id {
            Some(_) => Reference::Honoured { span: HONOURED_FOR },
            None => Reference::Echoed,
        }
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let mut body = json!({
            "id": message.reference,
            "textMessage": { "text": message.content },
            "phoneNumbers": [message.phone.as_str()],
            "withDeliveryReport": true,
        });
        if let Some(device) = &self.device_id {
            body["deviceId"] = device.as_str().into();
        }
        if let Some(sim) = self.sim_number {
            body["simNumber"] = sim.into();
        }
        if let Some(ttl) = self.ttl {
            body["ttl"] = ttl.into();
        }
        let url = common.at(&["3rdparty", "v1", "messages"]);
        post(&url, JSON, Some(authorization(common)), body.to_string())
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let reference = &messages[0].reference;
        let id = answer.scalar("/id");
        let outcome = match (answer.status.as_u16(), id) {
            (200..=299, Some(id)) if id == *reference => taken(&id, None, None),
            (200..=299, Some(_)) => answer.unknown(" for another message"),
            (200..=299, None) => answer.unknown(" without an id"),
            // The same device has it already.
            (409, _) if self.device_id.is_some() => taken(reference, None, None),
            _ => answer.failed(&common.codes, None, answer.scalar("/message")),
        };
        all(messages, &outcome)
    }

    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        _attempt: Attempt,
        _stamp: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let url = common.at(&["3rdparty", "v1", "messages", &message.reference]);
        let request = get(&url, &[(AUTHORIZATION, authorization(common))]);
        Some(request.map(|request| vec![request]))
    }

    fn found(&self, _: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        let json = answer.json.as_ref();
        let id = json.and_then(|json| scalar(json, "/id"));
        let is_json_error = json.is_some_and(|json| json["message"].is_string());
        match (answer.status.as_u16(), id) {
            (200, Some(id)) if id == sought.message.reference => {
                LookupResult::Found(acceptance(&id, None, None))
            }
            // A wrong address answers 404 too, but not in the gateway's own words.
            (404, None) if is_json_error => LookupResult::Absent,
            _ => unclear(answer.reason("", answer.scalar("/message"))),
        }
    }
}

#[cfg(test)]
mod tests;
