//! How the responses of a generic provider are read: which statuses accept, where the id and the code are, and what
//! the codes mean. The status decides where no code does.

use serde::Deserialize;
use smsq_message::phone::may_be_written_as;
use smsq_message::sms::Outcome;

use super::places::{Node, Pointer, Pointers};
use crate::Message;
use crate::codes::{ACCEPTED, Codes, DUPLICATE, words_of};
use crate::config::section::{ProviderError, Section};
use crate::response::{
    MAX_SCALAR, ResponseView, acceptance, is_no_id, printable_part, short_code, with_code,
};

/// The keys about responses.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseRules {
    #[serde(default = "accepted_by_default")]
    accepted: Vec<u16>,
    message_id: Option<Pointers>,
    /// Where the response repeats our reference. Without `message_id` it is the vendor's id, too.
    reference: Option<Pointers>,
    /// Where the response repeats the phone.
    phone: Option<Pointers>,
    error_code: Option<Pointers>,
    error_reason: Option<Pointers>,
    message_id_text: Option<Between>,
    error_text: Option<Between>,
    segments: Option<Pointers>,
    price: Option<Pointers>,
    /// The list of results of a message's segments, all of which must be accepted.
    parts: Option<Pointer>,
}

fn accepted_by_default() -> Vec<u16> {
    vec![200, 201, 202]
}

/// The index of a result in the response's list; `None`: the whole response.
pub(super) type Entry = Option<usize>;

/// How the responses of one provider are read.
pub(super) struct ResponseParser {
    rules: ResponseRules,
    codes: Codes,
    /// Whether the vendor accepts one message per reference.
    honours_reference: bool,
}

/// The text between two texts; an empty second text is the end of the line.
#[derive(Clone, Debug, Deserialize)]
struct Between(String, String);

impl Between {
    fn find(&self, text: &str) -> Option<String> {
        let (_, rest) = text.split_once(&self.0)?;
        let found = match self.1.as_str() {
            "" => rest.lines().next().unwrap_or_default(),
            end => rest.split_once(end)?.0,
        };
        printable_part(found, MAX_SCALAR).map(|found| found.trim().to_owned())
    }
}

impl ResponseParser {
    pub(super) fn new(
        section: &Section<'_>,
        rules: ResponseRules,
        codes: Codes,
        honours_reference: bool,
    ) -> Result<Self, ProviderError> {
        let cannot_accept = |status: &&u16| !matches!(status, 200..=299 | 302 | 303 | 400..=499);
        if let Some(status) = rules.accepted.iter().find(cannot_accept) {
            let problem = format!("{status} cannot have that meaning");
            return Err(section.invalid("accepted", problem));
        }
        let is_refused = |status: &&u16| {
            let meaning = codes.meaning(&format!("http {status}"));
            meaning.is_some_and(|meaning| !matches!(meaning.word(), ACCEPTED | DUPLICATE))
        };
        if let Some(status) = rules.accepted.iter().find(is_refused) {
            let problem =
                format!("{status} also stands in `certain_status` or `codes` as not accepted");
            return Err(section.invalid("accepted", problem));
        }
        if rules.accepted.is_empty() {
            return Err(section.invalid("accepted", "must not be empty"));
        }
        if rules.error_code.is_none() && rules.error_text.is_none() && codes.need_body() {
            return Err(section.invalid("codes", "needs `error_code`: where the code is"));
        }
        Ok(Self { rules, codes, honours_reference })
    }

    pub(super) fn is_accepted_status(&self, response: &ResponseView<'_>) -> bool {
        self.rules.accepted.contains(&response.status.as_u16())
    }

    /// The outcome of one message whose response has no list of results.
    pub(super) fn outcome_of_message(
        &self,
        response: &ResponseView<'_>,
        message: &Message,
    ) -> Outcome {
        match &self.rules.parts {
            Some(list) if self.is_accepted_status(response) => {
                self.outcome_of_parts(response, response.list(list).len(), message)
            }
            _ => self.outcome(response, None, message),
        }
    }

    /// A message with several segments is accepted only if all of its parts are.
    fn outcome_of_parts(
        &self,
        response: &ResponseView<'_>,
        count: usize,
        message: &Message,
    ) -> Outcome {
        let mut parts: Vec<Outcome> =
            (0..count).map(|index| self.outcome(response, Some(index), message)).collect();
        let is_accepted = |outcome: &&Outcome| outcome.acceptance().is_some();
        let accepted = parts.iter().filter(is_accepted).count();
        if parts.is_empty() {
            return response.unknown(" without a result");
        }
        if 0 < accepted && accepted < count {
            return response.unknown(&format!(" and accepted only {accepted} of {count} parts"));
        }
        let mut first = parts.swap_remove(0);
        if let Outcome::Accepted(acceptance) = &mut first {
            acceptance.segments = i32::try_from(count).ok();
            // The price of one part is not that of the message.
            acceptance.price.take_if(|_| count > 1);
        }
        first
    }

    /// The outcome that the response, or the result at index `entry` of its list, means for a message.
    pub(super) fn outcome(
        &self,
        response: &ResponseView<'_>,
        entry: Entry,
        message: &Message,
    ) -> Outcome {
        let codes = self.codes_in(response, entry);
        let listed = codes.iter().find(|code| self.codes.meaning(code).is_some());
        let code = listed.or(codes.first());
        let words = Node::of_response(response, entry).first(self.rules.error_reason.as_ref());
        let outcome_of = |code: &str| response.outcome_of_code(&self.codes, code, words.clone());
        let by_code = code.and_then(|code| outcome_of(code));
        let has_code = by_code.is_some();
        let outcome = match by_code.or_else(|| outcome_of(&response.status_code())) {
            Some(Outcome::Accepted(_) | Outcome::Duplicate(_))
                if !self.can_accept(response, entry, has_code) =>
            {
                response.unknown(" with a code that means accepted")
            }
            Some(Outcome::Accepted(_)) => self.success(response, entry, message),
            Some(Outcome::Duplicate(_)) => self.success(response, entry, message).into_duplicate(),
            Some(outcome) => outcome,
            None if self.is_accepted_status(response) && self.codes.list_success() => {
                response.unknown(" without a known code of success")
            }
            None if self.is_accepted_status(response) => self.success(response, entry, message),
            None if code.is_none() && self.has_id(response, entry) => {
                response.unknown(" with a message id and without a code")
            }
            None => response.outcome_of_status(words),
        };
        match code {
            // Of a text it is the pattern.
            Some(code) if self.rules.error_code.is_none() => with_code(outcome, words_of(code)),
            Some(code) => with_code(outcome, code),
            None => outcome,
        }
    }

    /// Whether a code that accepts counts with this status. With an error status it says that the vendor already has
    /// the message; a status alone proves that only where references are honoured.
    fn can_accept(&self, response: &ResponseView<'_>, entry: Entry, is_body_code: bool) -> bool {
        let is_proof =
            if is_body_code { self.rules.error_code.is_some() } else { self.honours_reference };
        self.is_accepted_status(response)
            || (entry.is_none() && response.status.is_client_error() && is_proof)
    }

    /// Whether an error response to several messages, or a result in it, may show that a message was accepted: by its
    /// code, or without one by its id, or because it has neither.
    pub(super) fn may_accept(&self, response: &ResponseView<'_>, entry: Entry) -> bool {
        let node = Node::of_response(response, entry);
        let values = |places: &Option<Pointers>| {
            let places = places.as_ref()?.of_level(entry.is_some())?;
            Some(node.values(Some(&places)))
        };
        let ids = values(&self.rules.message_id);
        let has_id = ids.as_ref().is_some_and(|ids| !ids.is_empty());
        let codes = values(&self.rules.error_code).unwrap_or_default();
        match codes.iter().find_map(|code| self.codes.meaning(code)) {
            Some(meaning) => meaning.class.is_none(),
            None => has_id || (entry.is_some() && codes.is_empty()),
        }
    }

    /// Whether a code of the table says that the message of this result was not accepted.
    pub(super) fn refuses(&self, response: &ResponseView<'_>, entry: usize) -> bool {
        let codes = self.codes_in(response, Some(entry));
        let meaning = codes.iter().find_map(|code| self.codes.meaning(code));
        meaning.is_some_and(|meaning| meaning.class.is_some())
    }

    /// Whether the response as a whole has a code of the table.
    pub(super) fn has_listed_code(&self, response: &ResponseView<'_>) -> bool {
        let codes = self.codes_in(response, None);
        codes.iter().any(|code| self.codes.is_of_body(code))
    }

    /// Whether an answer to another request than that of a message has a code, and none that means success.
    pub(super) fn has_failed(&self, response: &ResponseView<'_>) -> bool {
        let codes = self.codes_in(response, None);
        let is_success = |code: &String| {
            let meaning = self.codes.meaning(code);
            meaning.is_some_and(|meaning| meaning.class.is_none())
        };
        response.status.is_success() && !codes.is_empty() && !codes.iter().any(is_success)
    }

    /// Whether there is an id in its place.
    fn has_id(&self, response: &ResponseView<'_>, entry: Entry) -> bool {
        let id = match (&self.rules.message_id, &self.rules.message_id_text) {
            (Some(places), _) => Node::of_response(response, entry).first(Some(places)),
            (None, Some(between)) => between.find(&response.text()),
            (None, None) => None,
        };
        id.is_some_and(|id| !is_no_id(&id))
    }

    /// The vendor's codes, the most specific first.
    fn codes_in(&self, response: &ResponseView<'_>, entry: Entry) -> Vec<String> {
        let between = self.rules.error_text.as_ref();
        let values = match (&self.rules.error_code, between) {
            (Some(places), None) => Node::of_response(response, entry).values(Some(places)),
            (Some(places), Some(between)) => Node::of_response(response, entry)
                .values(Some(places))
                .iter()
                .filter_map(|value| between.find(value))
                .collect(),
            // A text may repeat the request, so only a known code is kept.
            (None, between) => between
                .and_then(|between| between.find(&response.text()))
                .and_then(|text| self.codes.matching(&text).map(str::to_owned))
                .into_iter()
                .collect(),
        };
        values.iter().map(|code| short_code(code)).collect()
    }

    /// An acceptance, if the response has the id that it should have, and names no other message or phone.
    fn success(&self, response: &ResponseView<'_>, entry: Entry, message: &Message) -> Outcome {
        let node = Node::of_response(response, entry);
        let value = |places: &Option<Pointers>| node.first(places.as_ref());
        let reference = message.reference.as_str();
        let phone = value(&self.rules.phone);
        if phone.is_some_and(|phone| !may_be_written_as(message.phone.as_str(), &phone)) {
            return response.unknown(" for another phone");
        }
        let echo = value(&self.rules.reference);
        if echo.as_ref().is_some_and(|echo| echo != reference) {
            return response.unknown(" for another message");
        }
        let is_accepted = self.is_accepted_status(response);
        let (id, places) = match (&self.rules.message_id, &self.rules.message_id_text) {
            (Some(places), _) => (node.first(Some(places)), Some(places)),
            (None, Some(between)) => (between.find(&response.text()), None),
            (None, None) => {
                let places = self.rules.reference.as_ref();
                let is_known = places.is_some() && (echo.is_some() || !is_accepted);
                (is_known.then(|| reference.to_owned()), places)
            }
        };
        let has_id = places.is_some() || self.rules.message_id_text.is_some();
        if id.is_none() && has_id && is_accepted {
            return match places {
                Some(_) if response.json.is_none() => {
                    response.unknown(" with a body that is not JSON")
                }
                Some(places) => {
                    let place = places.first_place();
                    response.unknown(&format!(" without a message id at `{place}`"))
                }
                None => response.unknown(" without a message id in its text"),
            };
        }
        let segments = value(&self.rules.segments)
            .and_then(|text| text.parse().ok())
            .filter(|count| *count > 0);
        let price = value(&self.rules.price);
        let accepted = Outcome::Accepted(acceptance(id.as_deref(), segments, price.as_deref()));
        // With an error status a code of success says that the vendor already has the message.
        if entry.is_none() && response.status.is_client_error() {
            accepted.into_duplicate()
        } else {
            accepted
        }
    }
}
