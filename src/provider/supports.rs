//! What a vendor can do, as data: for the list of providers, for the clerk that fills a request, and for
//! whoever settles a message of which nobody knows whether it was accepted.

use std::time::Duration;

use serde::Serialize;

use super::ProviderError;
use super::stanza::{Span, Stanza};
use crate::rate::Rates;
use crate::sms::{Cause, Class, Receipt, Timestamp};

/// What a vendor can do.
#[derive(Clone, Debug, Serialize)]
pub struct Supports {
    pub writes: Writes,
    /// How many messages one request can carry.
    #[serde(rename = "per_call")]
    pub most_per_call: usize,
    pub reference: Reference,
    pub look_up: Option<LookUp>,
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
    /// The vendor accepts one message per reference, for as long as [`Supports::honoured_for`] says.
    Honoured {
        #[serde(rename = "for_seconds", serialize_with = "seconds")]
        span: Duration,
    },
}

/// When a vendor can be asked what became of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LookUp {
    /// So long after the attempt it makes sense to ask.
    #[serde(rename = "after_seconds", serialize_with = "seconds")]
    pub after: Duration,
    /// So long after the attempt a message that the vendor does not know was never accepted; `None` is never.
    #[serde(rename = "absent_after_seconds", serialize_with = "maybe_seconds")]
    pub absent_after: Option<Duration>,
    /// The look-ups' own limit.
    #[serde(serialize_with = "rates")]
    pub rate: Rates,
}

/// What the vendor says of a message that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It has the message: it was accepted.
    Found(Receipt),
    /// It certainly never had it.
    Absent,
    /// The answer does not tell: ask again later, or leave it to the operator.
    Unclear(Cause),
}

impl LookUp {
    const KEYS: [&'static str; 3] = ["after", "absent_after", "rate"];

    /// Reads table `look_up`, which may hold the `more` keys too.
    pub(super) fn read(stanza: &Stanza<'_>, more: &[&str]) -> Result<Option<Self>, ProviderError> {
        let Some(table) = stanza.optional::<toml::Table>("look_up")? else {
            return Ok(None);
        };
        let section = Stanza {
            name: stanza.name,
            table: &table,
        };
        let read = || {
            section.check_keys(&[&Self::KEYS[..], more].concat())?;
            Ok(Self {
                after: section.required::<Span>("after")?.0,
                absent_after: section.span("absent_after")?,
                rate: match section.rates("rate")? {
                    Some(rate) => rate,
                    None => section.required("rate")?,
                },
            })
        };
        read()
            .map(Some)
            .map_err(|error: ProviderError| error.within("look_up"))
    }

    /// Who is not found is absent only when the vendor has had time enough to know.
    pub(super) fn settled(&self, finding: Finding, sent_at: Timestamp, now: Timestamp) -> Finding {
        let is_late = |span| now.since(sent_at) >= span;
        match finding {
            Finding::Absent if !self.absent_after.is_some_and(is_late) => {
                Finding::Unclear(Cause::new(
                    Class::Unknown,
                    "the provider does not know of it, or not yet",
                ))
            }
            finding => finding,
        }
    }
}

/// Begins the reference that all messages of one request share.
pub(super) const SHARED: &str = "batch-";

impl Supports {
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
