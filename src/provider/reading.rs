//! How an answer is read where a stanza says how: which statuses accept, where the id and the code stand
//! in the JSON, and what the codes mean. What no code explains falls
//! to the status.

use bytes::Bytes;
use http::Response;
use serde::Deserialize;

use super::ProviderError;
use super::answer::{Answer, short_code, taken, with_code};
use super::codes::Codes;
use super::quote::Private;
use super::stanza::Stanza;
use crate::sms::{Acceptance, Outcome, Timestamp};
use crate::text::is_printable;

/// How the answers of one provider are read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) accepted: Vec<u16>,
    pub(super) unknown_status: Vec<u16>,
    /// JSON pointers into the answer.
    pub(super) message_id: Option<String>,
    pub(super) error_code: Option<String>,
    pub(super) error_reason: Option<String>,
    /// Where they stand in an answer that is plain text.
    pub(super) message_id_text: Option<Between>,
    pub(super) error_text: Option<Between>,
    pub(super) segments: Option<String>,
    pub(super) codes: Codes,
}

impl Reading {
    pub(super) const KEYS: [&'static str; 9] = [
        "accepted",
        "unknown_status",
        "message_id",
        "error_code",
        "error_reason",
        "message_id_text",
        "error_text",
        "segments",
        "codes",
    ];

    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let reading = Self {
            accepted: statuses(stanza, "accepted")?.unwrap_or_else(|| vec![200, 201, 202]),
            unknown_status: statuses(stanza, "unknown_status")?.unwrap_or_default(),
            message_id: pointer(stanza, "message_id")?,
            error_code: pointer(stanza, "error_code")?,
            error_reason: pointer(stanza, "error_reason")?,
            message_id_text: stanza.optional("message_id_text")?,
            error_text: stanza.optional("error_text")?,
            segments: pointer(stanza, "segments")?,
            codes: Codes::read(stanza)?,
        };
        if reading.accepted.is_empty() {
            return Err(stanza.fault("accepted", "lists no status"));
        }
        let has_codes = reading.error_code.is_some() || reading.error_text.is_some();
        if !has_codes && reading.codes.needs_a_place() {
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
        self.outcome_of(&Answer::read(response, private, now), None)
    }

    /// What the answer means; `entry` is the place of a message's result in a list, which `*` stands for in pointers.
    pub(super) fn outcome_of(&self, answer: &Answer<'_>, entry: Option<usize>) -> Outcome {
        let code = self.code(answer, entry).map(|code| short_code(&code));
        let words = pointed(answer, self.error_reason.as_deref(), entry);
        let taken = self.accepted.contains(&answer.status.as_u16());
        let listed = |code: &str| answer.listed(&self.codes, code, words.clone());
        let by_status = || listed(&answer.status_code());
        let outcome = match code.as_deref().and_then(listed).or_else(by_status) {
            None if taken && self.codes.list_success() => {
                answer.unknown(" without a code that is known to accept")
            }
            None if !taken => answer.by_status(&self.accepted, &self.unknown_status, words),
            None | Some(Outcome::Accepted(_)) => self.success(answer, entry),
            Some(outcome) => outcome,
        };
        match code {
            Some(code) => with_code(outcome, &code),
            None => outcome,
        }
    }

    /// Whether the answer to several messages, or an entry of its list, may show that one was accepted: its code
    /// says so, or it has none but an id, or nothing that would tell.
    pub(super) fn may_accept(&self, answer: &Answer<'_>, entry: Option<usize>) -> bool {
        let is_own = |at: &&String| entry.is_some() == at.contains("/*");
        let id_at = self.message_id.as_ref();
        let has_id = id_at
            .filter(is_own)
            .is_some_and(|at| pointed(answer, Some(at), entry).is_some());
        let code_at = self.error_code.as_ref().filter(is_own);
        let code = code_at.and_then(|at| pointed(answer, Some(at), entry));
        match code.as_deref().and_then(|code| self.codes.meaning(code)) {
            Some(meaning) => meaning.class.is_none(),
            None => {
                has_id
                    || (entry.is_some() && code.is_none() && !id_at.is_some_and(|at| is_own(&at)))
            }
        }
    }

    /// The vendor's code.
    fn code(&self, answer: &Answer<'_>, entry: Option<usize>) -> Option<String> {
        let between = self.error_text.as_ref();
        if self.error_code.is_some() {
            let value = pointed(answer, self.error_code.as_deref(), entry)?;
            return match between {
                Some(between) => between.find(&value),
                None => Some(value),
            };
        }
        // A text may repeat what it was given, so only what the table has of it is kept.
        let said = between?.find(&answer.text())?;
        Some(self.codes.beginning(&said)?.to_owned())
    }

    /// The provider took it, provided that the id is where it should be.
    fn success(&self, answer: &Answer<'_>, entry: Option<usize>) -> Outcome {
        let must = self.accepted.contains(&answer.status.as_u16());
        let (id, at) = match (&self.message_id, &self.message_id_text) {
            (Some(at), _) => (pointed(answer, Some(at), entry), format!("at `{at}`")),
            (None, Some(between)) => (between.find(&answer.text()), "in its text".to_owned()),
            (None, None) => (None, String::new()),
        };
        if id.is_none() && must && !at.is_empty() {
            return match (&answer.json, &self.message_id) {
                (None, Some(_)) => answer.unknown(" with a body that is not JSON"),
                _ => answer.unknown(&format!(" without a message id {at}")),
            };
        }
        let segments = pointed(answer, self.segments.as_deref(), entry);
        let segments = segments.and_then(|text| text.parse().ok().filter(|count| *count > 0));
        match id {
            Some(id) => taken(&id, segments, None),
            None => Outcome::Accepted(Acceptance {
                segments,
                ..Acceptance::default()
            }),
        }
    }
}

/// The scalar at `pointer`, where `*` is the entry.
fn pointed(answer: &Answer<'_>, pointer: Option<&str>, entry: Option<usize>) -> Option<String> {
    match entry {
        None => answer.scalar(pointer?),
        Some(at) => answer.scalar(&pointer?.replace("/*", &format!("/{at}"))),
    }
}

/// What stands between two texts: `message_id_text = ["Success \"", "\""]`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Between(String, String);

impl Between {
    fn find(&self, text: &str) -> Option<String> {
        let (_, rest) = text.split_once(&self.0)?;
        let found = match self.1.as_str() {
            "" => rest.lines().next().unwrap_or_default(),
            end => rest.split_once(end)?.0,
        };
        let found: String = found.chars().filter(|c| is_printable(*c)).collect();
        (!found.trim().is_empty()).then(|| found.trim().to_owned())
    }
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
