//! Infobip: many messages in one request, each with our reference as its message id, which is accepted once.
//! How long is not documented, so it is trusted for the two days that the logs go back.
//! <https://www.infobip.com/docs/api/channels/sms/outbound-sms/send-sms-messages>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION};
use serde_json::{Value, json};

use super::answer::{Answer, count, receipt, scalar, taken};
use super::stanza::Stanza;
use super::supports::{Finding, Reference};
use super::vendor::{Calls, Common, JSON, all, get, post, unclear};
use super::{Message, ProviderError, Stamp};
use crate::sms::{Outcome, Timestamp};

pub(super) const KEYS: &[&str] = &["callback"];

/// As the logs do.
const HONOURED_FOR: Duration = Duration::from_secs(48 * 3_600);

pub(super) struct Infobip {
    callback: Option<String>,
}

impl Infobip {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            callback: stanza.optional("callback")?,
        })
    }
}

fn authorization(common: &Common) -> String {
    format!("App {}", common.secret("api_key"))
}

impl Calls for Infobip {
    /// The vendor takes thousands; so many are lost sight of when an answer does not come.
    fn most_per_call(&self) -> usize {
        100
    }

    fn reference(&self) -> Reference {
        Reference::Honoured { span: HONOURED_FOR }
    }

    fn needs_sender(&self) -> bool {
        true
    }

    fn missing(&self, common: &Common) -> Vec<&'static str> {
        let is_example = common.base.host_str() == Some("account.api.infobip.com");
        is_example.then_some("url").into_iter().collect()
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &Stamp,
    ) -> Result<Request<Bytes>, Outcome> {
        let one = |message: &Message| {
            let destination =
                json!({ "to": message.phone.digits(), "messageId": message.reference });
            let mut one = json!({
                "sender": common.sender(message)?,
                "destinations": [destination],
                "content": { "text": message.content },
            });
            if let Some(url) = &self.callback {
                one["webhooks"] = json!({ "delivery": { "url": url } });
            }
            Ok(one)
        };
        let all: Vec<Value> = messages.iter().map(one).collect::<Result<_, Outcome>>()?;
        let body = json!({ "messages": all, "options": { "includeSmsCountInResponse": true } });
        let url = common.at(&["sms", "3", "messages"]);
        post(&url, JSON, Some(authorization(common)), body.to_string())
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        if !answer.status.is_success() {
            let code = answer
                .scalar("/errorCode")
                .or_else(|| answer.scalar("/requestError/serviceException/messageId"));
            let words = answer
                .scalar("/description")
                .or_else(|| answer.scalar("/requestError/serviceException/text"));
            return all(
                messages,
                &answer.failed(&common.codes, code.as_deref(), words),
            );
        }
        let results = answer.list("/messages");
        let one = |message: &Message| {
            let is_its = |result: &&Value| {
                scalar(result, "/messageId").is_some_and(|id| id == message.reference)
            };
            let mut its = results.iter().filter(is_its);
            let (Some(result), None) = (its.next(), its.next()) else {
                return answer.unknown(" without a result for this message");
            };
            let phone = scalar(result, "/destination").unwrap_or_default();
            if phone.trim_start_matches('+') != message.phone.digits() {
                return answer.unknown(" for another phone");
            }
            let segments = count(result, "/details/messageCount");
            let words = scalar(result, "/status/description");
            let by_id = scalar(result, "/status/id")
                .and_then(|id| answer.listed(&common.codes, &id, words.clone()));
            let group = || {
                format!(
                    "group {}",
                    scalar(result, "/status/groupId").unwrap_or_default()
                )
            };
            match by_id.or_else(|| answer.listed(&common.codes, &group(), words)) {
                Some(Outcome::Accepted(_)) => taken(&message.reference, segments, None),
                Some(outcome) => outcome,
                None => answer.unknown(" with a status that is not known"),
            }
        };
        messages.iter().map(one).collect()
    }

    fn look_up(
        &self,
        common: &Common,
        message: &Message,
        _sent_at: Timestamp,
        _stamp: &Stamp,
    ) -> Option<Result<Request<Bytes>, Outcome>> {
        let mut url = common.at(&["sms", "3", "logs"]);
        url.query_pairs_mut()
            .append_pair("messageId", &message.reference);
        let headers = [
            (AUTHORIZATION, authorization(common)),
            (ACCEPT, JSON.to_owned()),
        ];
        Some(get(&url, &headers))
    }

    fn found(
        &self,
        _common: &Common,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        let is_list = answer
            .json
            .as_ref()
            .is_some_and(|json| json["results"].is_array());
        let is_ours =
            |entry: &Value| scalar(entry, "/messageId").is_some_and(|id| id == message.reference);
        if answer.list("/results").iter().any(is_ours) && answer.status.is_success() {
            return Finding::Found(receipt(&message.reference, None, None));
        }
        let is_forgotten = answer.now.since(sent_at) >= HONOURED_FOR;
        match answer.list("/results").is_empty() && is_list && answer.status.is_success() {
            true if is_forgotten => unclear("the provider's logs do not go back so far".to_owned()),
            true => Finding::Absent,
            false => unclear(answer.reason("", answer.scalar("/description"))),
        }
    }
}

#[cfg(test)]
mod tests;
