//! Infobip: many messages in one request, each with our reference as its message id, which is accepted once.
//! How long is not documented, so it is trusted for the two days that the logs go back.
//! <https://www.infobip.com/docs/api/channels/sms/outbound-sms/send-sms-messages>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION};
use serde_json::{Value, json};

use super::answer::{Answer, acceptance, count, scalar, taken};
use super::capabilities::{Attempt, LookupResult, Reference, Sought};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, JSON, all, get, only, post, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &["callback"];

/// The group of statuses that a message can have without having been accepted.
const REJECTED: &str = "5";

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
        _stamp: &RequestContext,
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
            let outcome = answer.failed(&common.codes, code.as_deref(), words);
            // An answer that shows results rejects no request as a whole, whatever its status.
            if messages.len() > 1 && !answer.list("/messages").is_empty() {
                return vec![answer.unknown(" beside an error"); messages.len()];
            }
            return all(messages, &outcome);
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
            let is_its = phone.trim_start_matches('+') == message.phone.digits();
            if !is_its && only(messages, results).is_none() {
                return answer.unknown(" for another phone");
            }
            let segments = count(result, "/details/messageCount");
            match meaning(common, answer, result) {
                Some(Outcome::Accepted(_)) => taken(&message.reference, segments, None),
                Some(outcome) => outcome,
                None => answer.unknown(" with a status that is not known"),
            }
        };
        messages.iter().map(one).collect()
    }

    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        _attempt: Attempt,
        _stamp: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let mut url = common.at(&["sms", "3", "logs"]);
        url.query_pairs_mut()
            .append_pair("messageId", &message.reference);
        let headers = [
            (AUTHORIZATION, authorization(common)),
            (ACCEPT, JSON.to_owned()),
        ];
        Some(get(&url, &headers).map(|request| vec![request]))
    }

    fn found(&self, common: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        let list = answer
            .json
            .as_ref()
            .and_then(|json| json["results"].as_array());
        let Some(list) = list.filter(|_| answer.status.is_success()) else {
            return unclear(answer.reason("", answer.scalar("/description")));
        };
        let reference = &sought.message.reference;
        let is_ours = |entry: &&Value| scalar(entry, "/messageId").as_ref() == Some(reference);
        let mut finding = if list.is_empty() {
            LookupResult::Absent
        } else {
            unclear(answer.reason("", answer.scalar("/description")))
        };
        for entry in list.iter().filter(is_ours) {
            // In any other group it was accepted, whatever became of it then.
            let is_rejected = scalar(entry, "/status/groupId").as_deref() == Some(REJECTED);
            finding = match meaning(common, answer, entry).filter(|_| is_rejected) {
                None | Some(Outcome::Accepted(_)) => {
                    return LookupResult::Found(acceptance(reference, None, None));
                }
                Some(Outcome::Unknown(failure)) => LookupResult::Unclear(failure),
                Some(outcome) => LookupResult::NotAccepted(outcome),
            };
        }
        finding
    }
}

/// What the status of a result or of a log's entry means: by its id, else by its group.
fn meaning(common: &Common, answer: &Answer<'_>, entry: &Value) -> Option<Outcome> {
    let words = scalar(entry, "/status/description");
    let by_id =
        scalar(entry, "/status/id").and_then(|id| answer.listed(&common.codes, &id, words.clone()));
    let group = scalar(entry, "/status/groupId").unwrap_or_default();
    by_id.or_else(|| answer.listed(&common.codes, &format!("group {group}"), words))
}

#[cfg(test)]
mod tests;
