//! How one entry of a list of receipts is read, whether the list was requested or posted.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::receipt::{Receipt, ReceiptPart, ReceiptState};
use smsq_message::sms::{Class, Failure};

use super::places::{Node, Pointer, Pointers};
use crate::codes::{Codes, matches_glob};
use crate::config::ProviderConfig;
use crate::config::section::{ProviderError, Section};
use crate::redact::cut;
use crate::response::{ResponseView, short_code, stored_id};
use crate::times;

/// The most receipts of one document. The largest page of a vendor has 1,000 entries.
const MAX_RECEIPTS: usize = 100_000;

/// The keys about entries, which section `webhook` has from section `receipts` where it sets none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadingRules {
    /// The list of receipts; without one the whole document is the receipt.
    list: Option<Pointer>,
    /// A list in each entry of it, whose entries are receipts of their own: `/item` in the other pointers. An empty
    /// text: none.
    items: Option<Pointer>,
    message_id: Option<Pointers>,
    reference: Option<Pointers>,
    phone: Option<Pointers>,
    state: Pointers,
    code: Option<Pointers>,
    reason: Option<Pointers>,
    at: Option<Pointers>,
    /// The zone of times without an offset; UTC by default.
    zone: Option<String>,
    part: Option<Pointers>,
    parts: Option<Pointers>,
    /// Each receipt is about one part, which has an id of its own.
    #[serde(default)]
    part_has_id: bool,
    states: BTreeMap<String, ReceiptState>,
    #[serde(default)]
    codes: Codes,
}

/// Where an entry comes from.
#[derive(Clone, Copy)]
pub(super) struct EntrySource<'a> {
    /// The id of the message that was asked for: that of entries without one.
    pub(super) asked: Option<&'a str>,
    pub(super) config: &'a ProviderConfig,
    pub(super) response: &'a ResponseView<'a>,
}

/// Reads entries as receipts.
pub(super) struct ReceiptReader {
    rules: ReadingRules,
    zone: TimeZone,
}

impl ReceiptReader {
    /// Takes its keys out of the section.
    pub(super) fn read(section: &mut Section<'_>) -> Result<Self, ProviderError> {
        let rules: ReadingRules = section.take()?;
        if rules.message_id.is_none() && rules.reference.is_none() {
            return Err(section.missing("message_id"));
        }
        let zone = match &rules.zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name)
                .map_err(|_| section.invalid("zone", format!("unknown time zone `{name}`")))?,
        };
        Ok(Self { rules, zone })
    }

    /// Where the list is; `None`: the whole document is one entry.
    pub(super) fn list(&self) -> Option<&Pointer> {
        self.rules.list.as_ref()
    }

    /// Reads an entry of the list, or each of its items, and adds the receipts to `receipts`.
    pub(super) fn read_entry(
        &self,
        entry: Node<'_>,
        source: &EntrySource<'_>,
        receipts: &mut Vec<Receipt>,
    ) {
        let place = self.rules.items.as_deref();
        let Some(place) = place.filter(|place| !place.is_empty()) else {
            receipts.extend(self.receipt(entry, source));
            return;
        };
        let items = entry.json().pointer(place).and_then(Json::as_array);
        for item in items.into_iter().flatten() {
            if is_full(receipts, source.config) {
                break;
            }
            receipts.extend(self.receipt(entry.with_item(item), source));
        }
    }

    /// One entry; `None` where it can belong to no message.
    fn receipt(&self, entry: Node<'_>, source: &EntrySource<'_>) -> Option<Receipt> {
        let (rules, provider) = (&self.rules, &source.config.name);
        let value = |places: &Option<Pointers>| entry.first(places.as_ref());
        let message_id = value(&rules.message_id)
            .and_then(|id| stored_id(&id))
            .or_else(|| source.asked.map(str::to_owned));
        let reference = value(&rules.reference).and_then(|reference| stored_id(&reference));
        if message_id.is_none() && reference.is_none() {
            tracing::debug!(provider, "a receipt has no id");
            return None;
        }
        let word = entry.first(Some(&rules.state)).unwrap_or_default();
        let state = self.state(&word);
        if state == ReceiptState::Unlisted {
            tracing::debug!(provider, state = word, "a receipt has an unlisted state");
        }
        let total = value(&rules.parts);
        let part =
            value(&rules.part).and_then(|text| part_of(&text, total.as_deref())).or_else(|| {
                let total = total.and_then(|total| total.trim().parse().ok());
                rules.part_has_id.then_some(ReceiptPart { number: 0, total: total.unwrap_or(0) })
            });
        Some(Receipt {
            reference,
            message_id,
            phone: value(&rules.phone).map(|phone| cut(&phone, 64).to_owned()),
            state,
            failure: self.failure(state, word, entry, source),
            at: value(&rules.at).and_then(|at| times::parse(&at, &self.zone)),
            part,
        })
    }

    fn state(&self, word: &str) -> ReceiptState {
        let states = &self.rules.states;
        let pattern = || {
            states
                .iter()
                .filter(|(pattern, _)| matches_glob(pattern, word))
                .max_by_key(|(pattern, _)| pattern.len())
                .map(|(_, state)| state)
        };
        let state = states.get(word).or_else(pattern);
        state.copied().unwrap_or(ReceiptState::Unlisted)
    }

    /// Why the message was not delivered: what the code means, else the provider's words, else the `word` for its state.
    fn failure(
        &self,
        state: ReceiptState,
        word: String,
        entry: Node<'_>,
        source: &EntrySource<'_>,
    ) -> Option<Failure> {
        let class = match state {
            ReceiptState::Undelivered | ReceiptState::Rejected => Class::Recipient,
            ReceiptState::Expired => Class::Expired,
            _ => return None,
        };
        let codes = entry.values(self.rules.code.as_ref());
        let words = entry
            .first(self.rules.reason.as_ref())
            .or_else(|| Some(word).filter(|word| !word.is_empty()));
        let tables = [&self.rules.codes, &source.config.codes];
        let listed = codes.iter().find_map(|code| {
            tables.into_iter().find_map(|table| {
                let response = source.response;
                let outcome = response.outcome_of_code(table, code, words.clone())?;
                // A code of acceptance explains nothing.
                outcome.failure().cloned()
            })
        });
        let mut failure = listed.unwrap_or_else(|| {
            let reason = words.as_deref().map_or_else(
                || "not delivered".to_owned(),
                |words| source.response.redacted(words),
            );
            Failure {
                code: codes.first().map(|code| short_code(code)),
                ..Failure::new(class, reason)
            }
        });
        if state == ReceiptState::Expired {
            failure.class = Class::Expired;
            failure.is_dead_number = false;
        }
        Some(failure)
    }
}

/// Whether a document has more receipts than are read of one.
pub(super) fn is_full(receipts: &[Receipt], config: &ProviderConfig) -> bool {
    let is_full = receipts.len() >= MAX_RECEIPTS;
    if is_full {
        let provider = &config.name;
        tracing::warn!(provider, "receipts after the first {MAX_RECEIPTS} are left out");
    }
    is_full
}

/// The number of a part: `2`, or `2 of 3` in one text; `total` is how many parts there are.
fn part_of(text: &str, total: Option<&str>) -> Option<ReceiptPart> {
    let (number, of) = match text.split_once("of").or_else(|| text.split_once('/')) {
        Some((number, of)) => (number, Some(of)),
        None => (text, None),
    };
    let read = |text: &str| text.trim().parse::<u16>().ok();
    let number = read(number).filter(|number| *number > 0)?;
    let total = total.and_then(read).or_else(|| of.and_then(read));
    Some(ReceiptPart { number, total: total.unwrap_or(0) })
}
