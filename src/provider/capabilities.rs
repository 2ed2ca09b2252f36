//! What a vendor can do, as data: for the list of providers, for the clerk that fills a request, and for
//! whoever settles a message of which nobody knows whether it was accepted.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::Serialize;

use super::answer::Answer;
use super::quote::Private;
use super::stanza::{Span, Stanza};
use super::{Message, ProviderError};
use crate::rate::Rates;
use crate::sms::{Acceptance, Class, Failure, Outcome, Timestamp};

/// What a vendor can do.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub writes: Writes,
    /// How many messages one request can carry.
    #[serde(rename = "per_call")]
    pub most_per_call: usize,
    pub reference: Reference,
    pub lookup: Option<Lookup>,
    /// The vendor can report whether a message was delivered.
    pub receipts: bool,
}

/// What the recipient reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// The text of the message.
    Text,
    /// The vendor's template, filled with columns.
    Template,
}

/// What becomes of our reference at the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The vendor takes none.
    None,
    /// It comes back in reports and look-ups, and keeps nothing from being sent twice.
    Echoed,
    /// The vendor accepts one message per reference, for as long as [`Capabilities::honoured_for`] says.
    Honoured {
        #[serde(rename = "for_seconds", serialize_with = "seconds")]
        span: Duration,
    },
}

/// When a vendor can be asked what became of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lookup {
    /// So long after the attempt it makes sense to ask.
    #[serde(rename = "after_seconds", serialize_with = "seconds")]
    pub after: Duration,
    /// So long after the attempt a message that the vendor does not know was never accepted; `None` is never.
    #[serde(rename = "absent_after_seconds", serialize_with = "maybe_seconds")]
    pub absent_after: Option<Duration>,
    /// How far back the vendor's answer reaches: it says nothing about an attempt before that.
    #[serde(rename = "horizon_seconds", serialize_with = "maybe_seconds")]
    pub horizon: Option<Duration>,
    /// The look-ups' own limit.
    #[serde(serialize_with = "rates")]
    pub rate: Rates,
}

/// The last attempt of a message whose outcome is not known, on the database's clock.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub started_after: Timestamp,
    /// `None` where it is not the only attempt that may have been accepted.
    pub started_before: Option<Timestamp>,
}

/// The answers to a status lookup, one for each of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    pub responses: &'a [Response<Bytes>],
    /// When the first request was made.
    pub asked_at: Timestamp,
    /// Ids that the provider gave to other messages to this phone.
    pub others: &'a BTreeSet<String>,
    /// The texts of other messages to this phone that are being sent, or may have been.
    pub unsettled: &'a [String],
}

/// What the vendor says of a message that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// It has the message: it was accepted.
    Found(Acceptance),
    /// It has the message, and did not accept it: what its answer would have meant.
    NotAccepted(Outcome),
    /// It certainly never had it.
    Absent,
    /// Nothing in the answer could be the message, which is proof of absence only after so long.
    TooSoon(Duration),
    /// The answer does not tell: ask again later, or leave it to the operator.
    Unclear(Failure),
}

/// The vendor's clock before the attempt, and the time a request may take behind it.
const BEFORE: Duration = Duration::from_secs(10);
const BEHIND: Duration = Duration::from_secs(300);
/// Clocks that differ by more than this prove nothing.
pub(super) const MAX_SKEW: Duration = Duration::from_secs(3_600);
/// An entry this far from the attempt may still be it: the clocks may have differed when it started.
pub(super) const MARGIN: Duration = Duration::from_secs(86_400);

/// How the instant of an entry in a vendor's list fits the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is that of the attempt, or the entry has none.
    Near,
    /// It is not, but the clocks may have differed.
    Doubtful,
    Other,
}

/// The message that a vendor's list is searched for.
pub(super) struct Sought<'a> {
    pub(super) message: &'a Message,
    pub(super) attempt: Attempt,
    /// The start of the attempt on the vendor's clock.
    started_after: Timestamp,
    others: &'a BTreeSet<String>,
    unsettled: &'a [String],
}

impl<'a> Sought<'a> {
    /// `date` is the vendor's clock at the answer.
    pub(super) fn new(
        message: &'a Message,
        attempt: Attempt,
        date: Option<Timestamp>,
        answers: &Answers<'a>,
    ) -> Self {
        let ahead = date.map_or(0, |date| date.as_millis() - answers.asked_at.as_millis());
        let started_after = attempt.started_after.as_millis().saturating_add(ahead);
        Self {
            message,
            attempt,
            started_after: Timestamp::from_millis(started_after),
            others: answers.others,
            unsettled: answers.unsettled,
        }
    }

    pub(super) fn fit(&self, at: Option<Timestamp>) -> Fit {
        let Some(at) = at else { return Fit::Near };
        let start = self.started_after;
        if at >= start.minus(BEFORE) && at <= start.plus(BEHIND) {
            Fit::Near
        } else if at >= start.minus(MARGIN) && at <= start.plus(MARGIN) {
            Fit::Doubtful
        } else {
            Fit::Other
        }
    }

    /// Whether an entry without our reference may be of another message to this phone that is not settled; only one
    /// with the same text, where entries show it.
    pub(super) fn has_twin(&self, by_text: bool) -> bool {
        let mut texts = self.unsettled.iter();
        texts.any(|text| !by_text || *text == self.message.content)
    }

    /// Whether the vendor gave this id to another message.
    pub(super) fn is_other(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.others.contains(id))
    }
}

impl Lookup {
    const KEYS: [&'static str; 4] = ["after", "absent_after", "horizon", "rate"];

    /// Reads table `lookup`, which may hold the `more` keys too.
    pub(super) fn read(stanza: &Stanza<'_>, more: &[&str]) -> Result<Option<Self>, ProviderError> {
        let Some(table) = stanza.optional::<toml::Table>("lookup")? else {
            return Ok(None);
        };
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        let read = || {
            section.check_keys(&[&Self::KEYS[..], more].concat())?;
            let lookup = Self {
                after: section.required::<Span>("after")?.0,
                absent_after: section.span("absent_after")?,
                horizon: section.span("horizon")?,
                rate: match section.rates("rate")? {
                    Some(rate) => rate,
                    None => section.required("rate")?,
                },
            };
            if lookup.absent_after.is_some() && lookup.horizon.is_none() {
                let problem =
                    "needs `horizon`: how far back the provider's answer reaches, like `\"720h\"`";
                return Err(section.fault("absent_after", problem));
            }
            Ok(lookup)
        };
        read()
            .map(Some)
            .map_err(|error: ProviderError| error.within("lookup"))
    }

    /// What the answers say together, where `found` reads one of them. Absence is believed only if every one shows
    /// it, the vendor's own clock says that it had time enough to know the message, and its answers reach back to
    /// the attempt.
    pub(super) fn found(
        &self,
        answers: &Answers<'_>,
        attempt: Attempt,
        private: &Private<'_>,
        found: impl Fn(&Answer<'_>) -> LookupResult,
    ) -> LookupResult {
        let asked_at = answers.asked_at;
        let mut dates = Vec::new();
        let mut seen: Vec<LookupResult> = Vec::new();
        for response in answers.responses {
            let answer = Answer::read(response, private, asked_at);
            dates.push(answer.date);
            let finding = found(&answer);
            if finding != LookupResult::Absent && !seen.contains(&finding) {
                seen.push(finding);
            }
        }
        let is_proof = |finding: &&LookupResult| !matches!(finding, LookupResult::Unclear(_));
        let proofs: Vec<&LookupResult> = seen.iter().filter(is_proof).collect();
        match proofs.as_slice() {
            [] => {}
            [proof] => return (*proof).clone(),
            _ => return unclear("the provider has several messages that may be it"),
        }
        match seen.pop() {
            Some(unclear) => unclear,
            None => self.absence(&dates, attempt, asked_at),
        }
    }

    fn absence(
        &self,
        dates: &[Option<Timestamp>],
        attempt: Attempt,
        asked_at: Timestamp,
    ) -> LookupResult {
        let (Some(span), Some(horizon)) = (self.absent_after, self.horizon) else {
            return unclear("the provider does not know of it, which proves nothing");
        };
        let Some(started_before) = attempt.started_before else {
            return unclear("an earlier attempt may have been accepted");
        };
        let dates: Option<Vec<Timestamp>> = dates.iter().copied().collect();
        let dates = dates.unwrap_or_default();
        let (Some(first), Some(last)) = (dates.iter().min(), dates.iter().max()) else {
            return unclear("the provider's answer has no date");
        };
        let skew = asked_at.since(*first).max(last.since(asked_at));
        if skew > MAX_SKEW {
            return unclear("the provider's clock and this one differ too much");
        }
        if (*last).max(asked_at).since(attempt.started_after) + MAX_SKEW > horizon {
            return unclear("the provider's answers do not reach back so far");
        }
        let elapsed = (*first).min(asked_at).since(started_before);
        match span.checked_sub(elapsed) {
            None | Some(Duration::ZERO) => LookupResult::Absent,
            Some(left) => LookupResult::TooSoon(left),
        }
    }
}

fn unclear(reason: &str) -> LookupResult {
    LookupResult::Unclear(Failure::new(Class::Unknown, reason))
}

/// Begins the reference that all messages of one request share.
pub(super) const SHARED: &str = "batch-";

impl Capabilities {
    /// How long the vendor keeps a reference from being accepted twice.
    pub fn honoured_for(&self) -> Option<Duration> {
        match self.reference {
            Reference::Honoured { span } => Some(span),
            Reference::None | Reference::Echoed => None,
        }
    }
}

impl Writes {
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

fn seconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.as_secs())
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn maybe_seconds<S: serde::Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs()).serialize(serializer)
}

fn rates<S: serde::Serializer>(rates: &Rates, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(rates)
}
