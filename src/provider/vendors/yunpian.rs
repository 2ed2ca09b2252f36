//! Yunpian (云片): `single_send` for one message, `batch_send` for one text to several mainland numbers, with a result
//! for each. `get_record` lists what was sent to a number; it has our reference only for accounts with that
//! enabled, so the text and the time identify a message, too.
//! <https://www.yunpian.com/official/document/sms/zh_CN/domestic_single_send>

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use smsq_message::sms::Outcome;

use super::{Vendor, form, ids_in, is_phone_of, names_another_phone, post_form, result_of};
use crate::capabilities::{
    AttemptSpan, ContentMode, LookupResult, LookupTarget, Reference, TimeMatch,
};
use crate::china::{is_mainland, national_number};
use crate::config::SharedSettings;
use crate::config::section::Section;
use crate::response::{ResponseView, accepted, count, scalar};
use crate::{
    Adapter, BatchKey, Message, NewAdapter, RequestContext, RequestResult, Requests, found, times,
    unclear,
};

/// A lookup covers this time before the attempt, because clocks differ, …
const BEFORE: Duration = Duration::from_secs(60);
/// … and this time after it, because requests take time.
const AFTER: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

type Yunpian = Vendor<Settings>;

pub(crate) fn new(mut section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    let settings = section.rest()?;
    let mut config = shared.into_config(&section, None)?;
    // The vendor takes 1000, but more messages would be unknown after one lost response.
    config.capabilities.set(ContentMode::Text, 100, Reference::Echoed);
    Ok(Box::new(Yunpian { config, settings }))
}

/// The vendor takes a number without `+` for a mainland number.
fn mobile(message: &Message) -> &str {
    if is_mainland(&message.phone) {
        national_number(&message.phone)
    } else {
        message.phone.as_str()
    }
}

impl Yunpian {
    fn outcome_of_result(&self, response: &ResponseView<'_>, result: &Value) -> Outcome {
        let code = scalar(result, "/code");
        match (code.as_deref(), scalar(result, "/sid")) {
            (Some("0"), Some(id)) if response.status.is_success() => {
                accepted(&id, count(result, "/count"), None)
            }
            (Some("0"), _) => response.unknown(" without a `sid`"),
            (code, _) => response.failed(&self.config.codes, code, scalar(result, "/msg")),
        }
    }
}

impl Adapter for Yunpian {
    /// Messages with one text share a request, but numbers abroad are sent alone.
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        let mut key = vec![message.content.clone()];
        key.extend(message.from.clone());
        if !is_mainland(&message.phone) {
            key.push(message.phone.as_str().to_owned());
        }
        Ok(BatchKey(key))
    }

    fn request(&self, messages: &[Message], _context: &RequestContext) -> RequestResult {
        let first = &messages[0];
        let mobiles: Vec<&str> = messages.iter().map(mobile).collect();
        let mobiles = mobiles.join(",");
        let mut pairs = vec![
            ("apikey", self.config.secret("api_key")),
            ("mobile", &mobiles),
            ("text", &first.content),
        ];
        let call = if messages.len() == 1 {
            pairs.push(("uid", &first.reference));
            "single_send.json"
        } else {
            "batch_send.json"
        };
        let url = self.config.url_with(&["v2", "sms", call]);
        post_form(&url, "", form(pairs))
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        if messages.len() == 1 {
            let result = response.json.as_ref().unwrap_or(&Value::Null);
            if names_another_phone(&messages[0], scalar(result, "/mobile")) {
                return vec![response.unknown(" for another phone")];
            }
            return vec![self.outcome_of_result(response, result)];
        }
        let results = response.list("/data");
        let is_ok = |result: &Value| scalar(result, "/code").as_deref() == Some("0");
        // A response that shows accepted messages does not reject the request as a whole, whatever its status.
        let is_whole = !response.status.is_success() && !results.iter().any(is_ok);
        if results.is_empty() || is_whole {
            let code = response.scalar("/code").filter(|code| code != "0");
            let words = response.scalar("/msg").filter(|_| code.is_some());
            let outcome = response.failed(&self.config.codes, code.as_deref(), words);
            return outcome.of_all(messages.len());
        }
        let outcome = |message| match result_of(message, messages, results, "/mobile") {
            Some(result) => self.outcome_of_result(response, result),
            None => response.unknown(" without one result for this phone"),
        };
        messages.iter().map(outcome).collect()
    }

    fn lookup(&self, message: &Message, attempt: AttemptSpan, _: &RequestContext) -> Requests {
        let (first, last) = (attempt.started_after, attempt.last_started_after());
        let time = |at| times::format(at, times::shanghai(), "%Y-%m-%d %H:%M:%S");
        let body = form([
            ("apikey", self.config.secret("api_key")),
            ("mobile", mobile(message)),
            ("start_time", &time(first.minus(BEFORE))),
            ("end_time", &time(last.plus(AFTER))),
            ("page_num", "1"),
            ("page_size", "100"),
        ]);
        let url = self.config.url_with(&["v2", "sms", "get_record.json"]);
        Ok(vec![post_form(&url, "", body)?])
    }

    fn lookup_ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        ids_in(response, "", "/sid")
    }

    /// The list is not documented to be complete, so it never proves absence.
    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        let message = target.message;
        let list = response.json.as_ref().and_then(Value::as_array);
        let Some(list) = list.filter(|_| response.status.is_success()) else {
            return unclear(response.reason("", response.scalar("/msg")));
        };
        let reference = |entry: &Value| scalar(entry, "/uid");
        let is_ours = |entry: &&Value| reference(entry).as_ref() == Some(&message.reference);
        let may_be_ours = |entry: &&Value| {
            let at = scalar(entry, "/send_time")
                .and_then(|text| times::parse(&text, &times::shanghai()));
            is_phone_of(message, scalar(entry, "/mobile"))
                && reference(entry).is_none()
                && target.matches_time(at) == TimeMatch::Yes
                && !target.belongs_to_other(scalar(entry, "/sid").as_deref())
        };
        let candidates: Vec<&Value> = list.iter().filter(may_be_ours).collect();
        let is_text = |entry: &Value| entry["text"].as_str() == Some(message.content.as_str());
        let entry = match (list.iter().find(is_ours), candidates.as_slice()) {
            (Some(entry), _) => Some(entry),
            (None, [entry]) if is_text(entry) && !target.has_twin(true) => Some(*entry),
            _ => None,
        };
        match entry.and_then(|entry| scalar(entry, "/sid")) {
            Some(id) => found(&id),
            None => unclear("the provider's list does not show the message for certain"),
        }
    }
}

#[cfg(test)]
mod tests;
