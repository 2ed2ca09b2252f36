//! The table `codes` of a stanza: what the vendor's own codes mean, and what the operator can do about
//! them. A code that ends in `*` stands for all that begin so; the longest that fits counts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::ProviderError;
use super::stanza::{Span, Stanza, closest, in_words};
use crate::sms::{Acceptance, Class, Failure, Outcome, Timestamp};

/// The classes that a code can have; `accepted` stands beside them.
const CLASSES: [Class; 8] = [
    Class::Recipient,
    Class::Content,
    Class::OptedOut,
    Class::Account,
    Class::Throttle,
    Class::Cap,
    Class::Unavailable,
    Class::Unknown,
];

const ACCEPTED: &str = "accepted";

/// What one code means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// `None` is a code of success.
    pub(super) class: Option<Class>,
    /// In the operator's words.
    pub(super) reason: Option<String>,
    /// What the operator can do about it.
    pub(super) advice: Option<String>,
    /// How long who got this code waits, where the answer itself does not say.
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    For(Duration),
    /// Until a time of day: minutes after midnight, in a zone so many minutes before UTC.
    Until {
        minute: i64,
        zone: i64,
    },
}

/// The vendor's codes.
#[derive(Clone, Debug, Default)]
pub(super) struct Codes(BTreeMap<String, Meaning>);

/// One line of the table, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Listed {
    pub code: String,
    /// A class, or `accepted`.
    pub class: &'static str,
    pub reason: Option<String>,
    pub advice: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    class: String,
    reason: Option<String>,
    advice: Option<String>,
    wait: Option<Span>,
    until: Option<String>,
}

impl Codes {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let codes = stanza.section("codes")?;
        let meaning = |(code, value): (String, toml::Value)| {
            let key = format!("codes.{code}");
            let written: Written = value
                .try_into()
                .map_err(|error: toml::de::Error| stanza.fault(&key, in_words(error.message())))?;
            let class = match written.class.as_str() {
                ACCEPTED => None,
                word => Some(
                    CLASSES
                        .into_iter()
                        .find(|it| it.as_str() == word)
                        .ok_or_else(|| {
                            let hint = closest(word, &known_classes());
                            stanza.fault(&key, format!("`{word}` is no class of codes{hint}"))
                        })?,
                ),
            };
            let wait = Wait::read(&written).map_err(|problem| stanza.fault(&key, problem))?;
            let meaning = Meaning {
                class,
                reason: written.reason,
                advice: written.advice,
                wait,
            };
            Ok((code, meaning))
        };
        codes
            .into_iter()
            .map(meaning)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn meaning(&self, code: &str) -> Option<&Meaning> {
        let begins = |listed: &&String| {
            let beginning = listed.strip_suffix('*');
            beginning.is_some_and(|beginning| code.starts_with(beginning))
        };
        self.0.get(code).or_else(|| {
            let longest = self.0.keys().filter(begins).max_by_key(|key| key.len())?;
            self.0.get(longest)
        })
    }

    /// Whether the table names the code itself. A pattern like `isv.*` covers codes that nobody has looked at.
    pub(super) fn names(&self, code: &str) -> bool {
        self.0.contains_key(code) || self.0.contains_key(&format!("{code}*"))
    }

    /// What the table has of a text that begins with one of its codes.
    pub(super) fn beginning(&self, text: &str) -> Option<&str> {
        let stems = self.0.keys().map(|key| key.trim_end_matches('*'));
        stems
            .filter(|stem| text.starts_with(stem))
            .max_by_key(|stem| stem.len())
    }

    pub(super) fn listed(&self) -> Vec<Listed> {
        let line = |(code, meaning): (&String, &Meaning)| Listed {
            code: code.clone(),
            class: meaning.class.map_or(ACCEPTED, Class::as_str),
            reason: meaning.reason.clone(),
            advice: meaning.advice.clone(),
        };
        self.0.iter().map(line).collect()
    }

    /// Lists a code that stands in the answer's body, and not only statuses.
    pub(super) fn needs_a_place(&self) -> bool {
        self.0.keys().any(|code| !code.starts_with("http "))
    }

    /// Success has a code too, so an answer without a listed one is none.
    pub(super) fn list_success(&self) -> bool {
        self.0.values().any(|meaning| meaning.class.is_none())
    }
}

fn known_classes() -> Vec<&'static str> {
    CLASSES
        .iter()
        .map(|class| class.as_str())
        .chain([ACCEPTED])
        .collect()
}

impl Meaning {
    /// What becomes of a message that got this code. `words` are the vendor's own, for where the table has
    /// none; `retry_after` is what the answer asked for.
    pub(super) fn outcome(
        &self,
        words: impl FnOnce() -> String,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Outcome {
        let Some(class) = self.class else {
            return Outcome::Accepted(Acceptance::default());
        };
        let mut reason = self.reason.clone().unwrap_or_else(words);
        if let Some(advice) = &self.advice {
            reason = format!("{reason}: {advice}");
        }
        let failure = Failure::new(class, reason);
        let retry_after = retry_after.or_else(|| Some(self.wait?.from(now)));
        match class {
            Class::Account => Outcome::AccountError {
                failure,
                listed: true,
            },
            Class::Throttle => Outcome::Throttled {
                failure,
                retry_after,
            },
            Class::Cap => Outcome::Deferred {
                failure,
                retry_after,
            },
            Class::Unavailable => Outcome::Unavailable {
                failure,
                retry_after,
            },
            Class::Recipient | Class::Content | Class::OptedOut => Outcome::Rejected(failure),
            // No other class can stand in the table.
            _ => Outcome::Unknown(failure),
        }
    }
}

impl Wait {
    fn read(written: &Written) -> Result<Option<Self>, String> {
        let waits = matches!(written.class.as_str(), "throttle" | "cap" | "unavailable");
        match (&written.wait, &written.until) {
            (None, None) => Ok(None),
            _ if !waits => Err(format!("class `{}` does not wait", written.class)),
            (Some(_), Some(_)) => Err("has `wait` and `until`: choose one".to_owned()),
            (Some(span), None) => Ok(Some(Self::For(span.0))),
            (None, Some(text)) => Self::until(text).map(Some).ok_or_else(|| {
                format!("`{text}` is no time of day with its zone, like `08:00+08:00`")
            }),
        }
    }

    /// `08:00+08:00`
    fn until(text: &str) -> Option<Self> {
        let minutes = |text: &str, hours: i64| {
            let (hour, minute) = text.split_once(':')?;
            let all_digits =
                |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            if !all_digits(hour) || !all_digits(minute) {
                return None;
            }
            let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < hours && minute < 60).then_some(hour * 60 + minute)
        };
        let sign_at = text.find(['+', '-'])?;
        let (time, zone) = text.split_at(sign_at);
        let sign = if zone.starts_with('-') { -1 } else { 1 };
        Some(Self::Until {
            minute: minutes(time, 24)?,
            zone: sign * minutes(zone.get(1..)?, 15)?,
        })
    }

    fn from(self, now: Timestamp) -> Duration {
        const DAY: i64 = 24 * 60 * 60_000;
        match self {
            Self::For(span) => span,
            Self::Until { minute, zone } => {
                let local = now
                    .as_millis()
                    .saturating_add(zone * 60_000)
                    .rem_euclid(DAY);
                let left = (minute * 60_000 - local - 1).rem_euclid(DAY) + 1;
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> Result<Codes, String> {
        let table: toml::Table = source.parse().expect("toml");
        let stanza = Stanza {
            name: "cellar",
            table: &table,
        };
        Codes::read(&stanza).map_err(|error| error.to_string())
    }

    #[test]
    fn every_class_that_a_code_can_have_is_read() {
        for word in known_classes() {
            let codes = read(&format!("codes = {{ 7 = {{ class = '{word}' }} }}")).expect(word);
            let meaning = codes.meaning("7").expect("listed");
            assert_eq!(meaning.class.map_or(ACCEPTED, Class::as_str), word);
            assert_eq!(codes.list_success(), word == ACCEPTED);
        }
    }

    fn waits(source: &str, now: i64) -> Option<Duration> {
        let codes =
            read(&format!("codes = {{ 7 = {{ class = 'cap', {source} }} }}")).expect(source);
        let meaning = codes.meaning("7").expect("listed");
        match meaning.outcome(String::new, None, Timestamp::from_millis(now)) {
            Outcome::Deferred { retry_after, .. } => retry_after,
            outcome => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn a_code_can_say_how_long_to_wait_or_until_when() {
        let hours = |count: u64| Some(Duration::from_secs(count * 3_600));
        assert_eq!(waits("wait = '90m'", 0), Some(Duration::from_secs(5_400)));
        // The epoch is 08:00 in Shanghai.
        assert_eq!(waits("until = '08:00+08:00'", 0), hours(24));
        assert_eq!(
            waits("until = '08:00+08:00'", 1),
            Some(Duration::from_millis(86_399_999))
        );
        assert_eq!(waits("until = '00:00+08:00'", 0), hours(16));
        assert_eq!(waits("until = '00:00-05:00'", 0), hours(5));
    }

    #[test]
    fn the_longest_beginning_counts_and_a_whole_code_more() {
        let codes = read("codes = { 'a.*' = { class = 'content' }, 'a.b*' = { class = 'account' }, 'a.bc' = { class = 'throttle' } }")
            .expect("codes");
        let class = |code| codes.meaning(code).and_then(|meaning| meaning.class);
        assert_eq!(class("a.x"), Some(Class::Content));
        assert_eq!(class("a.bx"), Some(Class::Account));
        assert_eq!(class("a.bc"), Some(Class::Throttle));
        assert_eq!(class("a"), None);
    }

    #[test]
    fn codes_that_only_a_pattern_covers_are_not_named() {
        let codes = read("codes = { 'a.*' = { class = 'content' }, 'a.b' = { class = 'content' }, 'No route*' = { class = 'recipient' } }")
            .expect("codes");
        let named = ["a.b", "a.c", "a", "No route", "No route to X"].map(|code| codes.names(code));
        assert_eq!(named, [true, false, false, true, false]);
        assert!(codes.meaning("a.c").is_some());
    }

    #[test]
    fn advice_stands_behind_the_reason() {
        let codes =
            read("codes = { 7 = { class = 'account', reason = 'no credit', advice = 'top up' } }");
        let codes = codes.expect("codes");
        let meaning = codes.meaning("7").expect("listed");
        let now = Timestamp::default();
        let Outcome::AccountError { failure, .. } = meaning.outcome(String::new, None, now) else {
            panic!("an account code refuses");
        };
        assert_eq!(failure.reason, "no credit: top up");
    }

    #[test]
    fn a_fault_in_the_table_names_the_code() {
        for (source, expected) in [
            ("codes = { 7 = { class = 'acount' } }", "`account`"),
            ("codes = { 7 = { class = 'expired' } }", "`expired`"),
            ("codes = { 7 = { clas = 'account' } }", "`clas`"),
            ("codes = { 7 = 'account' }", "codes.7"),
            ("codes = 7", "`codes`"),
            (
                "codes = { 7 = { class = 'account', wait = '1h' } }",
                "does not wait",
            ),
            (
                "codes = { 7 = { class = 'cap', until = '8:00' } }",
                "`8:00`",
            ),
            (
                "codes = { 7 = { class = 'cap', until = '08:00+99:00' } }",
                "codes.7",
            ),
        ] {
            let error = read(source).expect_err(source);
            assert!(error.contains(expected), "{error}");
        }
    }
}
