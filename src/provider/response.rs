//! One response of a provider: its JSON, and the outcome that a code, or else the status, means. Vendors differ only
//! in where the code is.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Version, header};
use serde_json::Value;
use smsq_message::sms::{Acceptance, Class, Failure, Outcome, Timestamp};
use smsq_message::text::is_printable;

use super::client::MaybeStray;
use super::codes::{Codes, status};
use super::lossy_json;
use super::redact::{Redactor, SecretForms, cut, excerpt};

/// A longer id is cut: the message was accepted all the same.
const MAX_ID: usize = 255;
const MAX_CODE: usize = 64;
const MAX_PRICE: usize = 32;
/// The rest of a longer text is ignored.
pub(super) const MAX_SCALAR: usize = 4_096;

pub(super) struct ResponseView<'a> {
    pub(super) status: StatusCode,
    version: Version,
    pub(super) body: &'a [u8],
    pub(super) headers: &'a HeaderMap,
    pub(super) json: Option<Value>,
    /// Its JSON breaks off: where a body ends with its connection, nothing else shows that.
    pub(super) is_cut: bool,
    pub(super) stray: Option<MaybeStray>,
    pub(super) now: Timestamp,
    /// The vendor's clock when it made the response: header `Date`, less the `Age` of one from a cache.
    pub(super) date: Option<Timestamp>,
    retry_after: Option<Duration>,
    pub(super) redactor: &'a Redactor<'a>,
    /// The excerpt of the body, made once for all messages of a request.
    body_excerpt: OnceCell<Option<String>>,
    /// The excerpts of other texts of the response.
    excerpts: RefCell<HashMap<String, Option<String>>>,
}

impl<'a> ResponseView<'a> {
    pub(super) fn new(
        response: &'a Response<Bytes>,
        redactor: &'a Redactor<'a>,
        now: Timestamp,
    ) -> Self {
        let body = response.body().as_ref();
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let json = lossy_json::parse(body);
        let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        Self {
            status: response.status(),
            version: response.version(),
            headers: response.headers(),
            body,
            is_cut: is_json && json.as_ref().is_err_and(serde_json::Error::is_eof),
            json: json.ok(),
            stray: response.extensions().get().copied(),
            now,
            date: status::date(response.headers()),
            retry_after: status::retry_after(response.headers(), now),
            redactor,
            body_excerpt: OnceCell::new(),
            excerpts: RefCell::default(),
        }
    }

    /// Whether it has no body, and says so. If it only ends with its connection, the rest may be missing.
    pub(super) fn is_certainly_empty(&self) -> bool {
        let has_end = self.version > Version::HTTP_11
            || self.headers.contains_key(header::CONTENT_LENGTH)
            || self.headers.contains_key(header::TRANSFER_ENCODING);
        self.body.is_empty() && has_end
    }

    /// Why a list in this response may be only a part of the vendor's.
    pub(super) fn is_part(&self) -> Option<&'static str> {
        if self.status.is_success() && self.status != StatusCode::OK {
            return Some(" and may leave messages out");
        }
        status::has_next(self.headers).then_some(" and names another page in header `Link`")
    }

    pub(super) fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.body)
    }

    /// The text, number or boolean at a JSON pointer.
    pub(super) fn scalar(&self, pointer: &str) -> Option<String> {
        scalar(self.json.as_ref()?, pointer)
    }

    /// The list at a JSON pointer; empty where there is none.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        let list = self.json.as_ref().and_then(|json| json.pointer(pointer));
        list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn excerpt_of(&self, words: Option<String>) -> Option<String> {
        let mut known = self.excerpts.borrow_mut();
        let excerpt = known.entry(words?).or_insert_with_key(|words| excerpt(words, self.redactor));
        excerpt.clone()
    }

    /// The vendor's words without phones, texts and secrets.
    pub(super) fn redacted(&self, words: &str) -> String {
        self.excerpt_of(Some(words.to_owned())).unwrap_or_default()
    }

    fn body_excerpt(&self) -> Option<String> {
        let excerpt = || match &self.json {
            // Printed again, so that no escape hides a text or a secret.
            Some(json) => excerpt(&json.to_string(), self.redactor),
            None => excerpt(&self.text(), self.redactor),
        };
        self.body_excerpt.get_or_init(excerpt).clone()
    }

    /// The outcome of `code`, where the table has it. `words` are the vendor's explanation.
    pub(super) fn outcome_of_code(
        &self,
        codes: &Codes,
        code: &str,
        words: Option<String>,
    ) -> Option<Outcome> {
        let code = short_code(code);
        let meaning = codes.meaning(&code)?;
        let words = || self.excerpt_of(words).unwrap_or_else(|| self.reason("", None));
        let outcome = meaning.outcome(words, self.retry_after, self.now);
        Some(with_code(outcome, &code))
    }

    /// The outcome of a message that was not accepted: that of `code`, else of `http 404` and the like in the table,
    /// else of the status. A status alone never accepts.
    pub(super) fn failed(
        &self,
        codes: &Codes,
        code: Option<&str>,
        words: Option<String>,
    ) -> Outcome {
        let by_code = code.and_then(|code| self.outcome_of_code(codes, code, words.clone()));
        let by_status = || self.outcome_of_code(codes, &self.status_code(), words.clone());
        if let Some(outcome) = by_code.or_else(by_status) {
            return outcome;
        }
        let outcome = self.outcome_of_status(words);
        match code {
            Some(code) => with_code(outcome, &short_code(code)),
            None => outcome,
        }
    }

    /// The status as the table of codes names it.
    pub(super) fn status_code(&self) -> String {
        format!("http {}", self.status.as_u16())
    }

    /// The outcome that the status alone means. The table of codes, which comes first, has those in `certain_status`.
    pub(super) fn outcome_of_status(&self, words: Option<String>) -> Outcome {
        let status = self.status.as_u16();
        let is_doubtful = status::is_doubtful(status);
        let fault = match self.status.is_redirection() {
            true if is_doubtful => ", a redirect, which is never followed",
            true => ", a redirect, which is never followed: the `url` is wrong",
            false => "",
        };
        let mut reason = self.reason(fault, words);
        if is_doubtful {
            reason = format!(
                "{reason}; it may have accepted the message (if its documentation rules that out, set \
                 `certain_status = [{status}]`)"
            );
        }
        status::outcome(self.status, self.retry_after, reason)
    }

    pub(super) fn unknown(&self, fault: &str) -> Outcome {
        Outcome::Unknown(Failure {
            is_answer: true,
            ..Failure::new(Class::Unknown, self.reason(fault, None))
        })
    }

    /// `the gateway answered 503 Service Unavailable: …`
    pub(super) fn reason(&self, fault: &str, words: Option<String>) -> String {
        let number = self.status.as_u16();
        let name = self.status.canonical_reason().unwrap_or("unknown status");
        let excerpt = self.excerpt_of(words).or_else(|| self.body_excerpt());
        match excerpt {
            Some(excerpt) => format!("the gateway answered {number} {name}{fault}: {excerpt}"),
            None => format!("the gateway answered {number} {name}{fault}"),
        }
    }
}

/// The text, number or boolean at a JSON pointer, without unprintable characters; `None` where it is empty.
pub(super) fn scalar(json: &Value, pointer: &str) -> Option<String> {
    let text = match json.pointer(pointer)? {
        Value::String(text) => return printable_part(text, MAX_SCALAR),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(text)
}

/// The positive number at a JSON pointer, also where it is written as a text.
pub(super) fn count(json: &Value, pointer: &str) -> Option<i32> {
    let count: i32 = scalar(json, pointer)?.parse().ok()?;
    (count > 0).then_some(count)
}

/// Whether a value in the place of an id says that there is none.
pub(super) fn is_no_id(id: &str) -> bool {
    let is_number = id.parse::<i64>().is_ok_and(|number| number <= 0);
    is_number || matches!(id, "false" | "true")
}

pub(super) fn accepted(message_id: &str, segments: Option<i32>, price: Option<&str>) -> Outcome {
    Outcome::Accepted(acceptance(Some(message_id), segments, price))
}

pub(super) fn acceptance(
    message_id: Option<&str>,
    segments: Option<i32>,
    price: Option<&str>,
) -> Acceptance {
    Acceptance {
        message_id: message_id.and_then(stored_id),
        segments,
        price: price.and_then(|price| printable_part(price, MAX_PRICE)),
        awaits_receipt: false,
    }
}

/// An id as it is stored.
pub(super) fn stored_id(id: &str) -> Option<String> {
    printable_part(id, MAX_ID)
}

pub(super) fn short_code(code: &str) -> String {
    printable_part(code, MAX_CODE).unwrap_or_default()
}

/// The beginning of a text, at most this many bytes, without unprintable characters; `None` where it is empty.
pub(super) fn printable_part(text: &str, most: usize) -> Option<String> {
    let printable: String = text.chars().filter(|c| is_printable(*c)).collect();
    let part = cut(&printable, most);
    (!part.trim().is_empty()).then(|| part.to_owned())
}

pub(super) fn with_code(mut outcome: Outcome, code: &str) -> Outcome {
    if let Some(failure) = failure_mut(&mut outcome) {
        failure.code = Some(code.to_owned());
    }
    outcome
}

/// Removes ids, prices and codes that repeat a secret.
pub(super) fn remove_secrets(outcome: &mut Outcome, secrets: &SecretForms) {
    let remove = |text: &mut Option<String>| {
        text.take_if(|text| secrets.occur_in(text));
    };
    if let Some(failure) = failure_mut(outcome) {
        remove(&mut failure.code);
    } else if let Outcome::Accepted(acceptance) | Outcome::Duplicate(acceptance) = outcome {
        remove(&mut acceptance.message_id);
        remove(&mut acceptance.price);
    }
}

fn failure_mut(outcome: &mut Outcome) -> Option<&mut Failure> {
    match outcome {
        Outcome::Accepted(_) | Outcome::Duplicate(_) => None,
        Outcome::Rejected(failure)
        | Outcome::BatchRejected(failure)
        | Outcome::Unknown(failure)
        | Outcome::Throttled { failure, .. }
        | Outcome::Deferred { failure, .. }
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => Some(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::response;
    use super::*;

    #[test]
    fn response_to_many_messages_is_searched_once() {
        let contents: Vec<String> = (0..1_000).map(|at| format!("Hello {at}, bye")).collect();
        let secrets = SecretForms::default();
        let redactor = Redactor::new(contents.iter().map(String::as_str), &secrets);
        let answer = response(200, format!(r#"{{"a":"{}"}}"#, "x ".repeat(50_000)));
        let answer = ResponseView::new(&answer, &redactor, Timestamp::default());
        let codes = Codes::default();
        for at in 0..1_000 {
            let Outcome::Unknown(failure) = answer.unknown(" without an id") else {
                panic!("unknown");
            };
            assert!(failure.reason.contains("x x x"), "{}", failure.reason);
            answer.failed(&codes, None, Some(format!("reason {}", at % 7)));
        }
        assert!(answer.body_excerpt.get().is_some());
        assert_eq!(answer.excerpts.borrow().len(), 7);
    }

    #[test]
    fn count_is_a_positive_number_or_its_text() {
        let json = serde_json::json!({ "a": 2, "b": "3", "c": 0, "d": -1, "e": "x" });
        let counts = ["/a", "/b", "/c", "/d", "/e", "/f"].map(|pointer| count(&json, pointer));
        assert_eq!(counts, [Some(2), Some(3), None, None, None, None]);
    }

    #[test]
    fn acceptance_is_stored_without_unprintable_characters_up_to_its_length() {
        let long = format!("\0{}", "9".repeat(300));
        let stored = acceptance(Some(&long), None, Some(&long));
        assert_eq!(stored.message_id.as_deref(), Some(&*"9".repeat(MAX_ID)));
        assert_eq!(stored.price.as_deref(), Some(&*"9".repeat(MAX_PRICE)));
        assert_eq!(acceptance(Some("\0"), None, Some(" \u{7}")), Acceptance::default());
        let stored = acceptance(None, None, Some(&long));
        assert_eq!(stored.price.map(|price| price.len()), Some(MAX_PRICE));
    }

    #[test]
    fn id_price_and_code_that_repeat_a_secret_are_removed() {
        let secrets = SecretForms::new(["hunter2-hunter2"].into_iter());
        let mut outcome = accepted("hunter2-hunter2", Some(1), Some("hunter2-hunter2"));
        remove_secrets(&mut outcome, &secrets);
        let Outcome::Accepted(acceptance) = outcome else {
            panic!("accepted");
        };
        assert_eq!((acceptance.message_id, acceptance.price), (None, None));
        let failure = Failure::new(Class::Recipient, "why").with_code("hunter2-hunter2");
        let mut outcome = Outcome::Rejected(failure);
        remove_secrets(&mut outcome, &secrets);
        assert_eq!(failure_mut(&mut outcome).expect("rejected").code, None);
    }
}
