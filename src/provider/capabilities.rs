//! What a vendor can do, and what a status lookup proves about a message with an unknown outcome.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::{Deserialize, Serialize};
use smsq_message::rate::Rates;
use smsq_message::sms::{Acceptance, Failure, Outcome, Timestamp};

use super::receipts::ReceiptPull;
use super::redact::Redactor;
use super::response::ResponseView;
use super::units;
use super::webhook::Webhook;
use super::{Message, unclear};

/// What a vendor can do.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub sends: ContentMode,
    /// How many messages one request can carry.
    #[serde(rename = "per_call")]
    pub max_batch: usize,
    pub reference: Reference,
    pub lookup: Option<Lookup>,
    /// Whether the vendor sends delivery receipts.
    pub receipts: bool,
    /// How they are fetched; `None` where the vendor only posts them to an address.
    pub pull: Option<ReceiptPull>,
    /// How those that it posts are read.
    pub webhook: Option<Webhook>,
}

/// What the recipient reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentMode {
    /// The text of the message.
    Text,
    /// The vendor's template, filled with columns.
    Template,
}

/// What the vendor does with our reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// None is sent.
    None,
    /// It comes back in receipts and lookups, but does not prevent sending a message twice.
    Echoed,
    /// The vendor accepts one message per reference within `span`.
    Honoured {
        #[serde(rename = "for_seconds", serialize_with = "units::seconds")]
        span: Duration,
    },
}

/// When a vendor can be asked what became of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// How long after the attempt the first lookup makes sense.
    #[serde(deserialize_with = "units::span")]
    #[serde(rename(serialize = "after_seconds"), serialize_with = "units::seconds")]
    pub after: Duration,
    /// How long after the attempt "not found" proves that the message was never accepted; `None`: it never does.
    #[serde(default, deserialize_with = "units::span")]
    #[serde(rename(serialize = "absent_after_seconds"), serialize_with = "units::seconds")]
    pub absent_after: Option<Duration>,
    /// How far back the vendor's answer reaches.
    #[serde(default, deserialize_with = "units::span")]
    #[serde(rename(serialize = "horizon_seconds"), serialize_with = "units::seconds")]
    pub horizon: Option<Duration>,
    /// The rate limit of lookups.
    #[serde(deserialize_with = "units::rates", serialize_with = "units::serialize_rates")]
    pub rate: Rates,
}

/// When the attempts of a message started that may have been accepted, on the database's clock.
#[derive(Clone, Copy, Debug)]
pub struct AttemptSpan {
    pub started_after: Timestamp,
    /// `None` where it is not known.
    pub started_before: Option<Timestamp>,
    /// There is one, and no attempt was made after it.
    pub is_only: bool,
}

impl AttemptSpan {
    /// After this instant the last one started.
    pub(super) fn last_started_after(&self) -> Timestamp {
        let last = self.started_before.filter(|_| !self.is_only);
        last.unwrap_or(self.started_after)
    }
}

/// The answers to a status lookup, one for each of its requests.
#[derive(Clone, Copy, Debug)]
pub struct LookupResponses<'a> {
    pub responses: &'a [Response<Bytes>],
    /// When the first request was made.
    pub asked_at: Timestamp,
    /// Ids that the provider gave other messages to this phone.
    pub others: &'a BTreeSet<String>,
    /// The texts of other messages to this phone that are being sent or have an unknown outcome.
    pub unsettled: &'a [String],
    /// The references of attempts of this message that the provider answered as not accepted.
    pub refused: &'a [String],
}

/// What a status lookup says about its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// The message was accepted.
    Found(Acceptance),
    /// An attempt with this reference was accepted, although the vendor had answered that it was not.
    FoundRefused { reference: String, acceptance: Acceptance },
    /// The vendor has the message and did not accept it, with this outcome.
    NotAccepted(Outcome),
    /// The vendor certainly never had the message.
    Absent,
    /// Not found, which proves absence only after this time.
    TooSoon(Duration),
    /// The answer proves nothing: ask again later, or leave the message to the operator.
    Unclear(Failure),
}

impl LookupResult {
    /// What it says if its entry has the reference of an attempt that was answered as not accepted: that it was not
    /// accepted says nothing about later attempts.
    pub(super) fn of_refused(self, reference: &str) -> Option<Self> {
        let reference = reference.to_owned();
        match self {
            Self::Found(acceptance) => Some(Self::FoundRefused { reference, acceptance }),
            _ => None,
        }
    }
}

/// The result that counts of what all matching entries say. One that was accepted wins, whatever the others are; one that
/// was not accepted is proof only if it is alone, and nothing else `may_match`.
pub(super) fn strongest(results: Vec<LookupResult>, may_match: bool) -> Option<LookupResult> {
    let rank = |result: &LookupResult| match result {
        LookupResult::Found(_) => 3,
        LookupResult::FoundRefused { .. } => 2,
        LookupResult::NotAccepted(_) => 1,
        LookupResult::Absent | LookupResult::TooSoon(_) | LookupResult::Unclear(_) => 0,
    };
    let is_alone = results.len() == 1 && !may_match;
    let strongest = results.into_iter().rev().max_by_key(rank)?;
    if matches!(strongest, LookupResult::NotAccepted(_)) && !is_alone {
        return Some(unclear(
            "the provider lists an attempt as not accepted, and something else that may be this message",
        ));
    }
    Some(strongest)
}

/// An entry of an attempt is at most this much older, because of the vendor's clock, …
const MAX_OLDER: Duration = Duration::from_secs(10);
/// … or this much newer, because the request took time.
const MAX_NEWER: Duration = Duration::from_secs(300);
/// Clocks that differ by more than this prove nothing.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(3_600);
/// An entry this far from the attempts may still belong to one: the clocks may have differed when it started.
pub(super) const MARGIN: Duration = Duration::from_secs(86_400);

/// How the time of an entry in a vendor's list matches the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeMatch {
    /// It is the time of an attempt, or the entry has none.
    Yes,
    /// It is not, but the clocks may have differed.
    Maybe,
    No,
}

/// The message that a vendor's list is searched for.
pub(super) struct LookupTarget<'a> {
    pub(super) message: &'a Message,
    pub(super) attempt: AttemptSpan,
    /// The starts of the first and the last attempt on the vendor's clock.
    first: Timestamp,
    last: Timestamp,
    answers: &'a LookupResponses<'a>,
}

impl<'a> LookupTarget<'a> {
    /// `date` is the vendor's clock in its answer.
    pub(super) fn new(
        message: &'a Message,
        attempt: AttemptSpan,
        date: Option<Timestamp>,
        answers: &'a LookupResponses<'a>,
    ) -> Self {
        let ahead = date.map_or(0, |date| date.as_millis() - answers.asked_at.as_millis());
        let of_vendor =
            |at: Timestamp| Timestamp::from_millis(at.as_millis().saturating_add(ahead));
        Self {
            message,
            attempt,
            first: of_vendor(attempt.started_after),
            last: of_vendor(attempt.last_started_after()),
            answers,
        }
    }

    pub(super) fn matches_time(&self, at: Option<Timestamp>) -> TimeMatch {
        let Some(at) = at else {
            return TimeMatch::Yes;
        };
        if at >= self.first.minus(MAX_OLDER) && at <= self.last.plus(MAX_NEWER) {
            TimeMatch::Yes
        } else if at >= self.first.minus(MARGIN) && at <= self.last.plus(MARGIN) {
            TimeMatch::Maybe
        } else {
            TimeMatch::No
        }
    }

    /// Whether an entry without our reference may belong to another unsettled message to this phone. With `by_text`,
    /// only messages with the same text count.
    pub(super) fn has_twin(&self, by_text: bool) -> bool {
        let mut texts = self.answers.unsettled.iter();
        texts.any(|text| !by_text || *text == self.message.content)
    }

    /// The references of attempts of the message that were answered as not accepted.
    pub(super) fn refused(&self) -> &'a [String] {
        self.answers.refused
    }

    /// Whether the vendor gave this id to another message.
    pub(super) fn belongs_to_other(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.answers.others.contains(id))
    }
}

impl Lookup {
    /// Combines the responses, each read by `parse`. Absence needs proof: every response shows it, the vendor's own
    /// clock says that enough time has passed, and the answers reach back to the first attempt.
    pub(super) fn combine(
        &self,
        answers: &LookupResponses<'_>,
        attempt: AttemptSpan,
        redactor: &Redactor<'_>,
        parse: impl Fn(&ResponseView<'_>) -> LookupResult,
    ) -> LookupResult {
        let asked_at = answers.asked_at;
        let mut dates = Vec::new();
        // An entry on two pages is one.
        let mut results: Vec<LookupResult> = Vec::new();
        for response in answers.responses {
            let response = ResponseView::new(response, redactor, asked_at);
            dates.push(response.date);
            let result = match (parse(&response), response.is_part()) {
                (LookupResult::Absent, Some(problem)) => unclear(response.reason(problem, None)),
                (result, _) => result,
            };
            if result != LookupResult::Absent && !results.contains(&result) {
                results.push(result);
            }
        }
        match strongest(results, false) {
            Some(result) => result,
            None => self.absence(&dates, attempt, asked_at),
        }
    }

    fn absence(
        &self,
        dates: &[Option<Timestamp>],
        attempt: AttemptSpan,
        asked_at: Timestamp,
    ) -> LookupResult {
        let (Some(span), Some(horizon)) = (self.absent_after, self.horizon) else {
            return unclear("the provider does not list the message, which proves nothing");
        };
        let Some(started_before) = attempt.started_before else {
            return unclear("it is not known when its last attempt was made");
        };
        // `None` is less than any date.
        let (Some(Some(first)), Some(Some(last))) = (dates.iter().min(), dates.iter().max()) else {
            return unclear("the provider's response has no date");
        };
        let skew = asked_at.since(*first).max(last.since(asked_at));
        if skew > MAX_SKEW {
            return unclear("the clocks of the provider and of this machine differ too much");
        }
        if (*last).max(asked_at).since(attempt.started_after) + MAX_SKEW > horizon {
            return unclear("the provider's list does not reach back to the first attempt");
        }
        let elapsed = (*first).min(asked_at).since(started_before);
        match span.checked_sub(elapsed) {
            None | Some(Duration::ZERO) => LookupResult::Absent,
            Some(left) => LookupResult::TooSoon(left),
        }
    }
}

/// Starts the reference that all messages of one request share.
pub(super) const SHARED_REFERENCE: &str = "batch-";

impl Capabilities {
    /// Sets what differs between most vendors.
    pub(super) fn set(&mut self, sends: ContentMode, max_batch: usize, reference: Reference) {
        self.sends = sends;
        self.max_batch = max_batch;
        self.reference = reference;
    }

    /// How long the vendor accepts at most one message per reference.
    pub fn honoured_for(&self) -> Option<Duration> {
        match self.reference {
            Reference::Honoured { span } => Some(span),
            Reference::None | Reference::Echoed => None,
        }
    }
}

impl ContentMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Template => "template",
        }
    }
}

impl Reference {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Echoed => "echoed",
            Self::Honoured { .. } => "honoured",
        }
    }
}
