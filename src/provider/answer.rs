//! One answer, taken apart: what its codes mean, and what its status means where no code is listed. The
//! vendors differ in where a code stands; what follows from it is the same for all.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use super::codes::Codes;
use super::quote::{Private, cut, quote};
use super::verdict;
use crate::sms::{Cause, Class, Outcome, Receipt, Timestamp};
use crate::text::is_printable;

/// A longer id is kept by its beginning: the message was taken all the same.
const LONGEST_ID: usize = 255;
const LONGEST_CODE: usize = 64;
const LONGEST_PRICE: usize = 32;

/// Statuses after which a vendor may have taken the message, unless it says otherwise.
pub(super) const UNKNOWN_STATUS: [u16; 2] = [408, 503];

/// One answer, taken apart.
pub(super) struct Answer<'a> {
    pub(super) status: StatusCode,
    pub(super) body: &'a [u8],
    pub(super) headers: &'a HeaderMap,
    pub(super) json: Option<Value>,
    pub(super) now: Timestamp,
    retry_after: Option<Duration>,
    private: &'a Private<'a>,
}

impl<'a> Answer<'a> {
    pub(super) fn read(
        response: &'a Response<Bytes>,
        private: &'a Private<'a>,
        now: Timestamp,
    ) -> Self {
        let body = response.body().as_ref();
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        Self {
            status: response.status(),
            headers: response.headers(),
            body,
            json: serde_json::from_slice(body).ok(),
            now,
            retry_after: verdict::retry_after(response.headers(), now),
            private,
        }
    }

    pub(super) fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.body)
    }

    /// The scalar at `pointer` of the JSON.
    pub(super) fn scalar(&self, pointer: &str) -> Option<String> {
        scalar(self.json.as_ref()?, pointer)
    }

    /// The list at `pointer` of the JSON; empty where there is none.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        let list = self.json.as_ref().and_then(|json| json.pointer(pointer));
        list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// What is fit to be repeated of the vendor's own words.
    pub(super) fn fit(&self, words: Option<String>) -> Option<String> {
        quote(&words?, self.private)
    }

    /// What `code` means where the table lists it.
    pub(super) fn listed(
        &self,
        codes: &Codes,
        code: &str,
        words: Option<String>,
    ) -> Option<Outcome> {
        let code = short_code(code);
        let meaning = codes.meaning(&code)?;
        let words = || self.fit(words).unwrap_or_else(|| self.reason("", None));
        let outcome = meaning.outcome(words, self.retry_after, self.now);
        Some(with_code(outcome, &code))
    }

    /// What becomes of a message that the vendor did not say it took: what `code` means, or else
    /// `http 404` and the like in the table, or else what the status means. Never an acceptance by status.
    pub(super) fn failed(
        &self,
        codes: &Codes,
        code: Option<&str>,
        words: Option<String>,
    ) -> Outcome {
        let by_code = code.and_then(|code| self.listed(codes, code, words.clone()));
        let by_status = || self.listed(codes, &self.status_code(), words.clone());
        if let Some(outcome) = by_code.or_else(by_status) {
            return outcome;
        }
        let outcome = self.by_status(&[], &UNKNOWN_STATUS, words);
        match code {
            Some(code) => with_code(outcome, &short_code(code)),
            None => outcome,
        }
    }

    /// How the table of codes names the status.
    pub(super) fn status_code(&self) -> String {
        format!("http {}", self.status.as_u16())
    }

    pub(super) fn by_status(
        &self,
        accepted: &[u16],
        unknown: &[u16],
        words: Option<String>,
    ) -> Outcome {
        let fault = if self.status.is_redirection() {
            ", a redirect, which is never followed: the `url` is wrong"
        } else {
            ""
        };
        let reason = self.reason(fault, words);
        verdict::by_status(self.status, accepted, unknown, self.retry_after, reason)
    }

    pub(super) fn unknown(&self, fault: &str) -> Outcome {
        Outcome::Unknown(Cause::new(Class::Unknown, self.reason(fault, None)))
    }

    /// `the gateway answered 503 Service Unavailable: …`
    pub(super) fn reason(&self, fault: &str, words: Option<String>) -> String {
        let number = self.status.as_u16();
        let name = self.status.canonical_reason().unwrap_or("unknown status");
        let said = self.fit(words).or_else(|| match &self.json {
            // Printed anew, so that no escape hides what is private.
            Some(json) => quote(&json.to_string(), self.private),
            None => quote(&self.text(), self.private),
        });
        match said {
            Some(said) => format!("the gateway answered {number} {name}{fault}: {said}"),
            None => format!("the gateway answered {number} {name}{fault}"),
        }
    }
}

/// The text, number or truth value at `pointer`, without what cannot be shown; not an empty one.
pub(super) fn scalar(json: &Value, pointer: &str) -> Option<String> {
    let text = match json.pointer(pointer)? {
        Value::String(text) => text.chars().filter(|c| is_printable(*c)).collect(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

/// The count at `pointer`, as a number or as a text.
pub(super) fn count(json: &Value, pointer: &str) -> Option<i32> {
    let count: i32 = scalar(json, pointer)?.parse().ok()?;
    (count > 0).then_some(count)
}

/// The vendor has the message under this id.
pub(super) fn taken(message_id: &str, segments: Option<i32>, price: Option<String>) -> Outcome {
    Outcome::Accepted(receipt(message_id, segments, price))
}

pub(super) fn receipt(message_id: &str, segments: Option<i32>, price: Option<String>) -> Receipt {
    Receipt {
        message_id: Some(cut(message_id, LONGEST_ID).to_owned()),
        segments,
        price: price.map(|price| cut(&price, LONGEST_PRICE).to_owned()),
    }
}

pub(super) fn short_code(code: &str) -> String {
    let printable: String = code.chars().filter(|c| is_printable(*c)).collect();
    cut(&printable, LONGEST_CODE).to_owned()
}

pub(super) fn with_code(mut outcome: Outcome, code: &str) -> Outcome {
    match &mut outcome {
        Outcome::Accepted(_) => {}
        Outcome::Rejected(cause)
        | Outcome::Apart(cause)
        | Outcome::Unknown(cause)
        | Outcome::Throttled { cause, .. }
        | Outcome::Capped { cause, .. }
        | Outcome::Unavailable { cause, .. }
        | Outcome::Refused { cause, .. } => cause.code = Some(code.to_owned()),
    }
    outcome
}
