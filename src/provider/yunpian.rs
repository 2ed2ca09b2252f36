//! Yunpian (云片): `single_send` for one message, `batch_send` for one text to several numbers of the mainland, each
//! with its own result. The text has to fit an approved template. `get_record` shows what was sent to a number; our
//! reference is in it only for accounts that asked for that, so the text and the moment tell too.
//! <https://www.yunpian.com/official/document/sms/zh_CN/domestic_single_send>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::Value;

use super::answer::{Answer, count, receipt, scalar, taken};
use super::mainland::{is_mainland, local, moment, number};
use super::stanza::Stanza;
use super::supports::Finding;
use super::vendor::{Calls, Common, FORM, all, form, post, unclear};
use super::{Message, ProviderError, Stamp};
use crate::sms::{Outcome, Timestamp};

pub(super) const KEYS: &[&str] = &[];

const PAGE: usize = 100;

/// The vendor's clock before the attempt, and the time a request may take behind it.
const BEFORE: Duration = Duration::from_secs(60);
const BEHIND: Duration = Duration::from_secs(300);

pub(super) struct Yunpian;

impl Yunpian {
    #[expect(clippy::unnecessary_wraps, reason = "every vendor is read like this")]
    pub(super) fn read(_: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self)
    }
}

/// As the vendor wants it: without `+` it is taken for one of the mainland.
fn mobile(message: &Message) -> &str {
    if is_mainland(&message.phone) {
        number(&message.phone)
    } else {
        message.phone.as_str()
    }
}

/// Whether an entry of the vendor's is about the message's phone.
fn is_to(entry: &Value, message: &Message) -> bool {
    let found = scalar(entry, "/mobile").unwrap_or_default();
    let digits = found.trim_start_matches('+');
    digits == message.phone.digits() || digits == number(&message.phone)
}

/// What the vendor's result for one message means.
fn result(common: &Common, answer: &Answer<'_>, result: &Value) -> Outcome {
    let code = scalar(result, "/code");
    match (code.as_deref(), scalar(result, "/sid")) {
        (Some("0"), Some(id)) if answer.status.is_success() => {
            taken(&id, count(result, "/count"), None)
        }
        (Some("0"), _) => answer.unknown(" without a `sid`"),
        (code, _) => answer.failed(&common.codes, code, scalar(result, "/msg")),
    }
}

impl Calls for Yunpian {
    /// The vendor takes 1000; so many are lost sight of when an answer does not come.
    fn most_per_call(&self) -> usize {
        100
    }

    /// One text; and a number abroad goes alone.
    fn in_common(&self, _: &Common, message: &Message) -> Result<Vec<String>, Outcome> {
        let alone = (!is_mainland(&message.phone)).then(|| message.phone.as_str().to_owned());
        Ok([message.content.clone()].into_iter().chain(alone).collect())
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &Stamp,
    ) -> Result<Request<Bytes>, Outcome> {
        let first = &messages[0];
        let mobiles: Vec<&str> = messages.iter().map(mobile).collect();
        let mobiles = mobiles.join(",");
        let mut pairs = vec![
            ("apikey", common.secret("api_key")),
            ("mobile", &mobiles),
            ("text", &first.content),
        ];
        let call = if messages.len() == 1 {
            pairs.push(("uid", &first.reference));
            "single_send.json"
        } else {
            "batch_send.json"
        };
        post(&common.at(&["v2", "sms", call]), FORM, None, form(pairs))
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let whole = answer.json.as_ref().unwrap_or(&Value::Null);
        if let [message] = messages {
            let names_a_phone = answer.status.is_success() && whole.get("mobile").is_some();
            if names_a_phone && !is_to(whole, message) {
                return vec![answer.unknown(" for another phone")];
            }
            return vec![result(common, answer, whole)];
        }
        let results = answer.list("/data");
        if results.is_empty() || !answer.status.is_success() {
            let outcome = match answer.scalar("/code") {
                Some(code) if code != "0" => {
                    answer.failed(&common.codes, Some(&code), answer.scalar("/msg"))
                }
                _ => answer.failed(&common.codes, None, None),
            };
            return all(messages, &outcome);
        }
        let one = |message: &Message| {
            let mut its = results.iter().filter(|entry| is_to(entry, message));
            match (its.next(), its.next()) {
                (Some(entry), None) => result(common, answer, entry),
                _ => answer.unknown(" without one result for this phone"),
            }
        };
        messages.iter().map(one).collect()
    }

    fn look_up(
        &self,
        common: &Common,
        message: &Message,
        sent_at: Timestamp,
        _stamp: &Stamp,
    ) -> Option<Result<Request<Bytes>, Outcome>> {
        let body = form([
            ("apikey", common.secret("api_key")),
            ("mobile", mobile(message)),
            ("start_time", &local(sent_at.minus(BEFORE))),
            ("end_time", &local(sent_at.plus(BEHIND))),
            ("page_num", "1"),
            ("page_size", "100"),
        ]);
        let url = common.at(&["v2", "sms", "get_record.json"]);
        Some(post(&url, FORM, None, body))
    }

    fn found(
        &self,
        _: &Common,
        message: &Message,
        sent_at: Timestamp,
        answer: &Answer<'_>,
    ) -> Finding {
        let list = answer.json.as_ref().and_then(Value::as_array);
        let Some(list) = list.filter(|_| answer.status.is_success()) else {
            return unclear(answer.reason("", answer.scalar("/msg")));
        };
        let uid = |entry: &Value| scalar(entry, "/uid");
        let is_ours = |entry: &&Value| uid(entry).is_some_and(|uid| uid == message.reference);
        let is_near = |entry: &&Value| {
            let at = scalar(entry, "/send_time").and_then(|text| moment(&text));
            at.is_none_or(|at| at >= sent_at.minus(BEFORE) && at <= sent_at.plus(BEHIND))
        };
        let may_be = |entry: &&Value| is_to(entry, message) && uid(entry).is_none();
        let near: Vec<&Value> = list.iter().filter(is_near).filter(may_be).collect();
        let is_text = |entry: &Value| entry["text"].as_str() == Some(message.content.as_str());
        let found = match (list.iter().find(is_ours), near.as_slice()) {
            (Some(entry), _) => Some(entry),
            (None, [entry]) if is_text(entry) => Some(*entry),
            (None, []) if list.len() < PAGE => return Finding::Absent,
            _ => None,
        };
        match found.and_then(|entry| scalar(entry, "/sid")) {
            Some(id) => Finding::Found(receipt(&id, None, None)),
            None => {
                unclear("the provider has other messages to this phone at that time".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests;
