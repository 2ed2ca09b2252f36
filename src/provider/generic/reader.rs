//! How one entry of a list of receipts is read, whether the list was requested or posted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use jiff::civil;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value as Json;

use super::response::{Pointer, Pointers};
use crate::provider::codes::{Codes, matches_glob};
use crate::provider::config::ProviderConfig;
use crate::provider::redact::cut;
use crate::provider::response::{ResponseView, cut_id, short_code};
use crate::provider::section::{ProviderError, Section};
use crate::receipt::{Receipt, ReceiptPart, ReceiptState};
use crate::sms::{Class, Failure, Timestamp};

/// Longer entries are cut.
const MAX_RAW: usize = 1_024;
/// The most receipts of one document. The largest page of a vendor has 1,000 entries.
const MAX_RECEIPTS: usize = 100_000;
/// Numbers above this are milliseconds since 1970, others seconds.
const MIN_MILLIS: i64 = 100_000_000_000;

/// The keys about entries, which section `webhook` has from section `receipts` where it sets none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadingRules {
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

/// The names of the keys of [`ReadingRules`].
pub(super) const READING_KEYS: [&str; 15] = [
    "list",
    "items",
    "message_id",
    "reference",
    "phone",
    "state",
    "code",
    "reason",
    "at",
    "zone",
    "part",
    "parts",
    "part_has_id",
    "states",
    "codes",
];

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
    pub(super) fn list(&self) -> Option<&str> {
        self.rules.list.as_deref()
    }

    /// Reads an entry of the list, or each of its items, and adds the receipts to `receipts`. `raw` is the entry as the
    /// vendor wrote it. Its items are taken out of it one by one, so that nothing is copied for each of them.
    pub(super) fn read_entry(
        &self,
        entry: &mut Json,
        raw: String,
        source: &EntrySource<'_>,
        receipts: &mut Vec<Receipt>,
    ) {
        let place = self.rules.items.as_ref().filter(|place| !place.is_empty());
        let Some(place) = place else {
            receipts.extend(self.receipt(entry, raw, source));
            return;
        };
        let Some(Json::Array(items)) = entry.pointer_mut(place).map(Json::take) else {
            return;
        };
        for item in items {
            if is_full(receipts, source.config) {
                break;
            }
            let raw = raw_text(&item);
            if let Json::Object(keys) = entry {
                keys.insert("item".to_owned(), item);
            }
            receipts.extend(self.receipt(entry, raw, source));
        }
    }

    /// One entry; `None` where it can belong to no message.
    fn receipt(&self, entry: &Json, raw: String, source: &EntrySource<'_>) -> Option<Receipt> {
        let EntrySource {
            asked,
            config,
            response,
        } = *source;
        let rules = &self.rules;
        let value = |places: &Option<Pointers>| {
            let places = places.as_ref()?;
            places.values(Some(entry), None).into_iter().next()
        };
        let message_id = value(&rules.message_id).map(|id| cut_id(&id));
        let message_id = message_id.or_else(|| asked.map(str::to_owned));
        let reference = value(&rules.reference).map(|reference| cut_id(&reference));
        if message_id.is_none() && reference.is_none() {
            tracing::debug!(provider = config.name, "a receipt has no id");
            return None;
        }
        let word = rules.state.values(Some(entry), None).into_iter().next();
        let word = word.unwrap_or_default();
        let state = self.state(&word);
        if state == ReceiptState::Unlisted {
            tracing::debug!(
                provider = config.name,
                state = word,
                "a receipt has an unlisted state"
            );
        }
        let total = value(&rules.parts);
        let part = value(&rules.part).and_then(|text| part_of(&text, total.as_deref()));
        let part = part.or_else(|| {
            let total = total.and_then(|total| total.trim().parse().ok());
            let total = total.unwrap_or(0);
            rules
                .part_has_id
                .then_some(ReceiptPart { number: 0, total })
        });
        Some(Receipt {
            reference,
            message_id,
            phone: value(&rules.phone).map(|phone| cut(&phone, 64).to_owned()),
            state,
            failure: self.failure(state, &word, entry, config, response),
            at: value(&rules.at).and_then(|at| parse_time(&at, &self.zone)),
            part,
            raw,
        })
    }

    fn state(&self, word: &str) -> ReceiptState {
        let states = &self.rules.states;
        let exact = states.get(word).copied();
        let pattern = || {
            let fitting = states
                .iter()
                .filter(|(pattern, _)| matches_glob(pattern, word));
            let longest = fitting.max_by_key(|(pattern, _)| pattern.len());
            longest.map(|(_, state)| *state)
        };
        exact.or_else(pattern).unwrap_or(ReceiptState::Unlisted)
    }

    /// Why the message was not delivered: what the code means, else the provider's words.
    fn failure(
        &self,
        state: ReceiptState,
        word: &str,
        entry: &Json,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Option<Failure> {
        let class = match state {
            ReceiptState::Undelivered | ReceiptState::Rejected => Class::Recipient,
            ReceiptState::Expired => Class::Expired,
            _ => return None,
        };
        let values = |places: &Option<Pointers>| {
            let places = places.as_ref();
            places.map_or_else(Vec::new, |places| places.values(Some(entry), None))
        };
        let codes: Vec<String> = values(&self.rules.code);
        let words = values(&self.rules.reason).into_iter().next();
        let words = words.or_else(|| Some(word.to_owned()).filter(|word| !word.is_empty()));
        let listed = codes.iter().find_map(|code| {
            let tables = [&self.rules.codes, &config.codes];
            tables.into_iter().find_map(|table| {
                let outcome = response.outcome_of_code(table, code, words.clone())?;
                // A code of acceptance explains nothing.
                outcome.failure().cloned()
            })
        });
        let mut failure = listed.unwrap_or_else(|| {
            let reason = words
                .as_deref()
                .map_or(Cow::Borrowed("not delivered"), |words| {
                    response.redacted(words).into()
                });
            let code = codes.first().map(|code| short_code(code));
            Failure {
                code,
                ..Failure::new(class, reason)
            }
        });
        if state == ReceiptState::Expired {
            failure.class = Class::Expired;
        }
        Some(failure)
    }
}

/// Whether a document has more receipts than are read of one.
pub(super) fn is_full(receipts: &[Receipt], config: &ProviderConfig) -> bool {
    let is_full = receipts.len() >= MAX_RECEIPTS;
    if is_full {
        let provider = &config.name;
        tracing::warn!(
            provider,
            "receipts after the first {MAX_RECEIPTS} are left out"
        );
    }
    is_full
}

/// The beginning of a JSON value as text. What is cut off is never written.
pub(super) fn raw_text(value: &Json) -> String {
    struct Beginning(Vec<u8>);
    impl io::Write for Beginning {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = MAX_RAW - self.0.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = &bytes[..bytes.len().min(room)];
            self.0.extend_from_slice(taken);
            Ok(taken.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut beginning = Beginning(Vec::new());
    // An error says that it is full.
    let _ = serde_json::to_writer(&mut beginning, value);
    match String::from_utf8(beginning.0) {
        Ok(text) => text,
        Err(error) => {
            let whole = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.as_bytes()[..whole]).into_owned()
        }
    }
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
    Some(ReceiptPart {
        number,
        total: total.unwrap_or(0),
    })
}

/// RFC 3339, RFC 2822, `2026-11-23 09:00:00`, `20261123090000`, `2611230900` with or without seconds, or a number of
/// seconds or milliseconds since 1970.
fn parse_time(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.trim();
    let millis = |instant: jiff::Timestamp| Timestamp::from_millis(instant.as_millisecond());
    let local = |time: civil::DateTime| Some(millis(time.to_zoned(zone.clone()).ok()?.timestamp()));
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Some(millis(instant));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let format = match text.len() {
            14 => Some("%Y%m%d%H%M%S"),
            12 => Some("%y%m%d%H%M%S"),
            10 if text.starts_with('2') => Some("%y%m%d%H%M"),
            _ => None,
        };
        if let Some(time) = format.and_then(|format| civil::DateTime::strptime(format, text).ok()) {
            return local(time);
        }
        let number: i64 = text.parse().ok()?;
        let factor = if number >= MIN_MILLIS { 1 } else { 1_000 };
        return Some(Timestamp::from_millis(number.checked_mul(factor)?));
    }
    if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
        return Some(millis(zoned.timestamp()));
    }
    let with_offset = [
        "%Y-%m-%dT%H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M:%S%.f %z",
    ];
    for format in with_offset {
        if let Ok(instant) = jiff::Timestamp::strptime(format, text) {
            return Some(millis(instant));
        }
    }
    text.parse().ok().and_then(local)
}
