//! How an answer is read where a stanza says how: which statuses accept, where the id and the code stand
//! in the JSON, and what the codes mean. What no code explains falls to [`verdict`].

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use super::codes::{self, Codes};
use super::quote::{Private, cut, quote};
use super::stanza::Stanza;
use super::{ProviderError, verdict};
use crate::sms::{Cause, Class, Outcome, Receipt, Timestamp};

/// A longer id is kept by its beginning: the message was taken all the same.
const LONGEST_ID: usize = 255;
const LONGEST_CODE: usize = 64;

/// How the answers of one provider are read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) accepted: Vec<u16>,
    pub(super) unknown_status: Vec<u16>,
    /// JSON pointers into the answer.
    pub(super) message_id: Option<String>,
    pub(super) error_code: Option<String>,
    pub(super) error_reason: Option<String>,
    pub(super) segments: Option<String>,
    pub(super) codes: Codes,
}

impl Reading {
    pub(super) const KEYS: [&'static str; 6] = [
        "accepted",
        "unknown_status",
        "message_id",
        "error_code",
        "error_reason",
        "codes",
    ];

    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let reading = Self {
            accepted: statuses(stanza, "accepted")?.unwrap_or_else(|| vec![200, 201, 202]),
            unknown_status: statuses(stanza, "unknown_status")?.unwrap_or_default(),
            message_id: pointer(stanza, "message_id")?,
            error_code: pointer(stanza, "error_code")?,
            error_reason: pointer(stanza, "error_reason")?,
            segments: None,
            codes: Codes::read(stanza)?,
        };
        if reading.accepted.is_empty() {
            return Err(stanza.fault("accepted", "lists no status"));
        }
        if !reading.codes.is_empty() && reading.error_code.is_none() {
            return Err(stanza.fault("codes", "needs `error_code`: where the code stands"));
        }
        Ok(reading)
    }

    /// What `response` means.
    pub(super) fn outcome(
        &self,
        response: &Response<Bytes>,
        private: &Private<'_>,
        now: Timestamp,
    ) -> Outcome {
        let answer = Answer::read(self, response, private);
        let retry_after = verdict::retry_after(response.headers(), now);
        let listed = answer
            .code
            .as_deref()
            .and_then(|code| self.codes.meaning(code));
        let taken = self.accepted.contains(&answer.status.as_u16());
        let outcome = match listed.map(|meaning| (meaning.class, &meaning.reason)) {
            Some((Some(class), reason)) => {
                let reason = reason.clone().or_else(|| answer.words());
                let reason = reason.unwrap_or_else(|| answer.reason(""));
                codes::outcome(Cause::new(class, reason), retry_after)
            }
            None if taken && self.codes.list_success() => {
                answer.unknown(" without a code that is known to accept")
            }
            None if !taken => verdict::by_status(
                answer.status,
                &self.accepted,
                &self.unknown_status,
                retry_after,
                answer.failure(),
            ),
            None | Some((None, _)) => self.success(&answer),
        };
        match answer.code {
            Some(code) => with_code(outcome, &code),
            None => outcome,
        }
    }

    /// The provider took it, provided that the id is where it should be.
    fn success(&self, answer: &Answer<'_>) -> Outcome {
        let message_id = self.message_id.as_deref().map(|at| (at, answer.scalar(at)));
        match message_id {
            Some((at, None)) if self.accepted.contains(&answer.status.as_u16()) => {
                let fault = match &answer.json {
                    Some(_) => format!(" without a message id at `{at}`"),
                    None => " with a body that is not JSON".to_owned(),
                };
                answer.unknown(&fault)
            }
            found => Outcome::Accepted(Receipt {
                message_id: found
                    .and_then(|(_, id)| id)
                    .map(|id| cut(&id, LONGEST_ID).to_owned()),
                segments: self
                    .segments
                    .as_deref()
                    .and_then(|at| answer.json.as_ref()?.pointer(at)?.as_i64())
                    .and_then(|count| i32::try_from(count).ok()),
                price: None,
            }),
        }
    }
}

/// One answer, taken apart.
struct Answer<'a> {
    status: StatusCode,
    body: &'a [u8],
    json: Option<Value>,
    code: Option<String>,
    error_reason: Option<&'a str>,
    private: &'a Private<'a>,
}

impl<'a> Answer<'a> {
    fn read(reading: &'a Reading, response: &'a Response<Bytes>, private: &'a Private<'a>) -> Self {
        let body = response.body().as_ref();
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let mut answer = Self {
            status: response.status(),
            body,
            json: serde_json::from_slice(body).ok(),
            code: None,
            error_reason: reading.error_reason.as_deref(),
            private,
        };
        let code = reading.error_code.as_deref();
        answer.code = code
            .and_then(|at| answer.scalar(at))
            .map(|code| cut(&code, LONGEST_CODE).to_owned());
        answer
    }

    /// The text, number or truth value at `pointer`, without control characters; not an empty one.
    fn scalar(&self, pointer: &str) -> Option<String> {
        let text = match self.json.as_ref()?.pointer(pointer)? {
            Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        (!text.trim().is_empty()).then_some(text)
    }

    /// The vendor's own words for what is wrong.
    fn words(&self) -> Option<String> {
        quote(&self.scalar(self.error_reason?)?, self.private)
    }

    fn failure(&self) -> String {
        if self.status.is_redirection() {
            return self.reason(", a redirect, which is never followed: the `url` is wrong");
        }
        self.reason("")
    }

    fn unknown(&self, fault: &str) -> Outcome {
        Outcome::Unknown(Cause::new(Class::Unknown, self.reason(fault)))
    }

    /// `the gateway answered 503 Service Unavailable: …`
    fn reason(&self, fault: &str) -> String {
        let number = self.status.as_u16();
        let name = self.status.canonical_reason().unwrap_or("unknown status");
        let said = self.words().or_else(|| match &self.json {
            // Printed anew, so that no escape hides what is private.
            Some(json) => quote(&json.to_string(), self.private),
            None => quote(&String::from_utf8_lossy(self.body), self.private),
        });
        match said {
            Some(said) => format!("the gateway answered {number} {name}{fault}: {said}"),
            None => format!("the gateway answered {number} {name}{fault}"),
        }
    }
}

fn with_code(mut outcome: Outcome, code: &str) -> Outcome {
    match &mut outcome {
        Outcome::Accepted(_) => {}
        Outcome::Rejected(cause)
        | Outcome::Unknown(cause)
        | Outcome::Throttled { cause, .. }
        | Outcome::Capped { cause, .. }
        | Outcome::Unavailable { cause, .. }
        | Outcome::Refused { cause, .. } => cause.code = Some(code.to_owned()),
    }
    outcome
}

fn statuses(stanza: &Stanza<'_>, key: &str) -> Result<Option<Vec<u16>>, ProviderError> {
    let statuses: Option<Vec<u16>> = stanza.optional(key)?;
    let wrong = statuses.iter().flatten().find(|status| match key {
        "accepted" => !matches!(**status, 200..=299 | 400..=499),
        _ => !(100..=999).contains(*status),
    });
    match wrong {
        Some(status) => Err(stanza.fault(key, format!("{status} cannot have that meaning"))),
        None => Ok(statuses),
    }
}

fn pointer(stanza: &Stanza<'_>, key: &str) -> Result<Option<String>, ProviderError> {
    let pointer: Option<String> = stanza.optional(key)?;
    match &pointer {
        Some(text) if !text.starts_with('/') => Err(stanza.fault(
            key,
            format!(
                "`{text}` is not a JSON pointer\nhint: write `/{text}`, and `/a/b` for `b` in `a`"
            ),
        )),
        _ => Ok(pointer),
    }
}
