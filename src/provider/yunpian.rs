//! Yunpian (云片): `single_send` for one message, `batch_send` for one text to several numbers of the mainland, each
//! with its own result. The text has to fit an approved template. `get_record` shows what was sent to a number; our
//! reference is in it only for accounts that asked for that, so the text and the moment tell too.
//! <https://www.yunpian.com/official/document/sms/zh_CN/domestic_single_send>

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::Value;

use super::answer::{Answer, acceptance, count, scalar, taken};
use super::capabilities::{Attempt, Fit, LookupResult, Sought};
use super::mainland::{is_mainland, local, moment, number};
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, all, form, post, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &[];

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
        _stamp: &RequestContext,
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
        if messages.len() == 1 {
            return vec![result(common, answer, whole)];
        }
        let results = answer.list("/data");
        // An answer that shows accepted messages rejects no request as a whole, whatever its status.
        let is_ok = |entry: &Value| scalar(entry, "/code").as_deref() == Some("0");
        let is_mixed = results.iter().any(is_ok);
        if results.is_empty() || !(answer.status.is_success() || is_mixed) {
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

    fn lookup(
        &self,
        common: &Common,
        message: &Message,
        attempt: Attempt,
        _stamp: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let start = attempt.started_after;
        let body = form([
            ("apikey", common.secret("api_key")),
            ("mobile", mobile(message)),
            ("start_time", &local(start.minus(BEFORE))),
            ("end_time", &local(start.plus(BEHIND))),
            ("page_num", "1"),
            ("page_size", "100"),
        ]);
        let url = common.at(&["v2", "sms", "get_record.json"]);
        Some(post(&url, FORM, None, body).map(|request| vec![request]))
    }

    fn ids(&self, answer: &Answer<'_>) -> Vec<String> {
        let entries = answer.list("").iter();
        entries.filter_map(|entry| scalar(entry, "/sid")).collect()
    }

    /// The list is not documented to be complete, so it proves no absence.
    fn found(&self, _: &Common, sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        let message = sought.message;
        let list = answer.json.as_ref().and_then(Value::as_array);
        let Some(list) = list.filter(|_| answer.status.is_success()) else {
            return unclear(answer.reason("", answer.scalar("/msg")));
        };
        let uid = |entry: &Value| scalar(entry, "/uid");
        let is_ours = |entry: &&Value| uid(entry).as_ref() == Some(&message.reference);
        let may_be = |entry: &&Value| {
            let at = scalar(entry, "/send_time").and_then(|text| moment(&text));
            is_to(entry, message)
                && uid(entry).is_none()
                && sought.fit(at) == Fit::Near
                && !sought.is_other(scalar(entry, "/sid").as_deref())
        };
        let near: Vec<&Value> = list.iter().filter(may_be).collect();
        let is_text = |entry: &Value| entry["text"].as_str() == Some(message.content.as_str());
        let found = match (list.iter().find(is_ours), near.as_slice()) {
            (Some(entry), _) => Some(entry),
            (None, [entry]) if is_text(entry) && !sought.has_twin(true) => Some(*entry),
            _ => None,
        };
        match found.and_then(|entry| scalar(entry, "/sid")) {
            Some(id) => LookupResult::Found(acceptance(&id, None, None)),
            None => unclear("the provider does not show for certain that it has it".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
