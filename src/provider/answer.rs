//! One answer, taken apart: what its codes mean, and what its status means where no code is listed. The
//! vendors differ in where a code stands; what follows from it is the same for all.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use super::codes::Codes;
use super::forms::Forms;
use super::quote::{Private, cut, quote};
use super::verdict;
use crate::sms::{Acceptance, Class, Failure, Outcome, Timestamp};
use crate::text::is_printable;

/// A longer id is kept by its beginning: the message was taken all the same.
const LONGEST_ID: usize = 255;
const LONGEST_CODE: usize = 64;
const LONGEST_PRICE: usize = 32;
/// Of a longer text in an answer the rest is not looked at.
const LONGEST_SCALAR: usize = 4_096;

/// Statuses after which a vendor may have taken the message, unless it says otherwise.
pub(super) const UNKNOWN_STATUS: [u16; 2] = [408, 503];

/// One answer, taken apart.
pub(super) struct Answer<'a> {
    pub(super) status: StatusCode,
    pub(super) body: &'a [u8],
    pub(super) headers: &'a HeaderMap,
    pub(super) json: Option<Value>,
    pub(super) now: Timestamp,
    /// The vendor's clock: header `Date`.
    pub(super) date: Option<Timestamp>,
    retry_after: Option<Duration>,
    private: &'a Private<'a>,
    /// What may be repeated of it: an answer to many messages is searched once, not once for each of them.
    whole: OnceCell<Option<String>>,
    /// The same of the words of its entries.
    words: RefCell<HashMap<String, Option<String>>>,
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
            date: verdict::date(response.headers()),
            retry_after: verdict::retry_after(response.headers(), now),
            private,
            whole: OnceCell::new(),
            words: RefCell::default(),
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
        let mut known = self.words.borrow_mut();
        let fit = known
            .entry(words?)
            .or_insert_with_key(|words| quote(words, self.private));
        fit.clone()
    }

    /// What is fit to be repeated of the answer as a whole.
    fn whole(&self) -> Option<String> {
        let quoted = || match &self.json {
            // Printed anew, so that no escape hides what is private.
            Some(json) => quote(&json.to_string(), self.private),
            None => quote(&self.text(), self.private),
        };
        self.whole.get_or_init(quoted).clone()
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
        Outcome::Unknown(Failure::new(Class::Unknown, self.reason(fault, None)))
    }

    /// `the gateway answered 503 Service Unavailable: …`
    pub(super) fn reason(&self, fault: &str, words: Option<String>) -> String {
        let number = self.status.as_u16();
        let name = self.status.canonical_reason().unwrap_or("unknown status");
        let said = self.fit(words).or_else(|| self.whole());
        match said {
            Some(said) => format!("the gateway answered {number} {name}{fault}: {said}"),
            None => format!("the gateway answered {number} {name}{fault}"),
        }
    }
}

/// The text, number or truth value at `pointer`, without what cannot be shown; not an empty one.
pub(super) fn scalar(json: &Value, pointer: &str) -> Option<String> {
    let text = match json.pointer(pointer)? {
        Value::String(text) => {
            let text = cut(text, LONGEST_SCALAR).chars();
            text.filter(|c| is_printable(*c)).collect()
        }
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
    Outcome::Accepted(acceptance(message_id, segments, price))
}

pub(super) fn acceptance(
    message_id: &str,
    segments: Option<i32>,
    price: Option<String>,
) -> Acceptance {
    Acceptance {
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
        Outcome::Rejected(failure)
        | Outcome::BatchRejected(failure)
        | Outcome::Unknown(failure)
        | Outcome::Throttled { failure, .. }
        | Outcome::Deferred { failure, .. }
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => failure.code = Some(code.to_owned()),
    }
    outcome
}

/// Takes every secret out that the vendor repeated where ids, prices and codes stand.
pub(super) fn without_secrets(outcome: &mut Outcome, secrets: &Forms) {
    let clear = |text: &mut Option<String>| {
        text.take_if(|text| secrets.occur_in(text));
    };
    match outcome {
        Outcome::Accepted(acceptance) => {
            clear(&mut acceptance.message_id);
            clear(&mut acceptance.price);
        }
        Outcome::Rejected(failure)
        | Outcome::BatchRejected(failure)
        | Outcome::Unknown(failure)
        | Outcome::Throttled { failure, .. }
        | Outcome::Deferred { failure, .. }
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => clear(&mut failure.code),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::response;
    use super::*;

    #[test]
    fn an_answer_is_searched_once_however_many_messages_it_is_about() {
        let contents: Vec<String> = (0..1_000).map(|at| format!("Hello {at}, bye")).collect();
        let private = Private::new(contents.iter().map(String::as_str), None);
        let answer = response(200, format!(r#"{{"a":"{}"}}"#, "x ".repeat(50_000)));
        let answer = Answer::read(&answer, &private, Timestamp::default());
        let codes = Codes::default();
        for at in 0..1_000 {
            let Outcome::Unknown(failure) = answer.unknown(" without an id") else {
                panic!("unknown");
            };
            assert!(failure.reason.contains("x x x"), "{}", failure.reason);
            answer.failed(&codes, None, Some(format!("reason {}", at % 7)));
        }
        assert!(answer.whole.get().is_some());
        assert_eq!(answer.words.borrow().len(), 7);
    }
}
