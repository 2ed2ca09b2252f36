//! Section `codes` of a provider: what the vendor's own codes mean, and what the operator can do about them. `*` in a
//! code matches any characters; of several codes that match, the longest counts.

pub(super) mod status;
#[cfg(test)]
mod vendor_tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, civil};
use serde::Deserialize;
use smsq_message::sms::{Acceptance, Class, Failure, Outcome, Timestamp};

use super::units;
use status::outcome_of;

/// The classes of codes of failures; the last four are never a provider's.
const CLASSES: &[Class] = Class::ALL.split_at(8).0;

/// The classes of codes of success.
pub(super) const ACCEPTED: &str = "accepted";
pub(super) const DUPLICATE: &str = "duplicate";

/// What one code means.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "CodeSettings")]
pub(super) struct Meaning {
    /// `None`: a code of success.
    pub(super) class: Option<Class>,
    /// A code of success which says that the vendor accepted the reference before.
    is_duplicate: bool,
    /// Replaces the vendor's explanation.
    reason: Option<String>,
    /// What the operator can do about it.
    advice: Option<String>,
    /// How long to wait where the answer does not say it.
    wait: Option<Wait>,
    /// It is about the sender: of a pool only this one waits.
    is_of_sender: bool,
    /// The number does not exist.
    is_dead_number: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    For(Duration),
    /// Until a time of day.
    Until {
        time: civil::Time,
        offset: Offset,
    },
}

/// The vendor's codes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Codes(BTreeMap<String, Meaning>);

/// One row of the table of codes, for output.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CodeRow {
    pub code: String,
    /// A class, `accepted` or `duplicate`.
    pub class: &'static str,
    pub reason: Option<String>,
    pub advice: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeSettings {
    class: String,
    reason: Option<String>,
    advice: Option<String>,
    #[serde(default, deserialize_with = "units::span")]
    wait: Option<Duration>,
    until: Option<String>,
    #[serde(default)]
    sender: bool,
    #[serde(default)]
    dead: bool,
}

impl TryFrom<CodeSettings> for Meaning {
    type Error = String;

    fn try_from(settings: CodeSettings) -> Result<Self, String> {
        let word = settings.class.as_str();
        let class = CLASSES.iter().find(|class| class.as_str() == word);
        if class.is_none() && ![ACCEPTED, DUPLICATE].contains(&word) {
            let words = CLASSES.iter().map(|class| class.as_str());
            let known: Vec<&str> = words.chain([ACCEPTED, DUPLICATE]).collect();
            let problem = units::unknown(format!("unknown class `{word}`"), word, &known);
            return Err(problem.joined());
        }
        if settings.sender && !matches!(word, "throttle" | "account") {
            return Err(format!("class `{word}` has no `sender`"));
        }
        if settings.dead && word != Class::Recipient.as_str() {
            return Err(format!("class `{word}` has no `dead`"));
        }
        Ok(Self {
            is_of_sender: settings.sender,
            is_dead_number: settings.dead,
            class: class.copied(),
            is_duplicate: word == DUPLICATE,
            wait: Wait::read(&settings)?,
            reason: settings.reason,
            advice: settings.advice,
        })
    }
}

impl Codes {
    pub(super) fn meaning(&self, code: &str) -> Option<&Meaning> {
        self.entry(code).map(|(_, meaning)| meaning)
    }

    /// The code of the table, or the longest of its patterns, that `text` is.
    pub(super) fn matching(&self, text: &str) -> Option<&str> {
        self.entry(text).map(|(code, _)| code.as_str())
    }

    fn entry(&self, code: &str) -> Option<(&String, &Meaning)> {
        self.0.get_key_value(code).or_else(|| {
            self.0
                .iter()
                .filter(|(pattern, _)| pattern.contains('*') && matches_glob(pattern, code))
                .max_by_key(|(pattern, _)| pattern.len())
        })
    }

    /// Whether the table has the code, and it comes from the body of an answer, not from its status.
    pub(super) fn is_of_body(&self, code: &str) -> bool {
        self.meaning(code).is_some() && is_of_body(code)
    }

    /// Whether the code is about the sender.
    pub(super) fn blames_sender(&self, code: &str) -> bool {
        self.meaning(code).is_some_and(|meaning| meaning.is_of_sender)
    }

    /// Whether the table has the code itself. A pattern like `isv.*` also matches codes that were never looked at.
    pub(super) fn names(&self, code: &str) -> bool {
        let mut patterns = self.0.keys();
        self.0.contains_key(code) || patterns.any(|pattern| words_of(pattern) == code)
    }

    /// Lists a status with which the vendor certainly does not accept a message, unless the table has it.
    pub(super) fn add_certain_status(&mut self, status: u16) {
        let meaning = Meaning {
            class: Some(Class::Unavailable),
            is_duplicate: false,
            reason: None,
            advice: None,
            wait: None,
            is_of_sender: false,
            is_dead_number: false,
        };
        self.0.entry(format!("http {status}")).or_insert(meaning);
    }

    pub(super) fn listed(&self) -> Vec<CodeRow> {
        let row = |(code, meaning): (&String, &Meaning)| CodeRow {
            code: code.clone(),
            class: meaning.word(),
            reason: meaning.reason.clone(),
            advice: meaning.advice.clone(),
        };
        self.0.iter().map(row).collect()
    }

    /// Whether a code of the table comes from the body of an answer, not from its status.
    pub(super) fn need_body(&self) -> bool {
        self.0.keys().any(|code| is_of_body(code))
    }

    /// Whether success has a code. Then an answer without a known code is not a success.
    pub(super) fn list_success(&self) -> bool {
        let mut codes = self.0.iter();
        codes.any(|(code, meaning)| meaning.word() == ACCEPTED && is_of_body(code))
    }
}

fn is_of_body(code: &str) -> bool {
    !code.starts_with("http ")
}

/// A code or pattern of the table without the `*` around it.
pub(super) fn words_of(pattern: &str) -> &str {
    pattern.trim_matches('*')
}

/// Whether `text` matches a pattern with `*` for any characters and `?` for one ASCII character.
pub(super) fn matches_glob(pattern: &str, text: &str) -> bool {
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', [])) => true,
            Some((b'*', rest)) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(first, text)| [b'?', *first].contains(byte) && matches(rest, text)),
        }
    }
    matches(pattern.as_bytes(), text.as_bytes())
}

impl Meaning {
    /// A class, `accepted` or `duplicate`.
    pub(super) fn word(&self) -> &'static str {
        let success = if self.is_duplicate { DUPLICATE } else { ACCEPTED };
        self.class.map_or(success, Class::as_str)
    }

    /// The outcome of a message with this code. `words` returns the vendor's explanation, and `retry_after`
    /// is from the response.
    pub(super) fn outcome(
        &self,
        words: impl FnOnce() -> String,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Outcome {
        let Some(class) = self.class else {
            let acceptance = Acceptance::default();
            return if self.is_duplicate {
                Outcome::Duplicate(acceptance)
            } else {
                Outcome::Accepted(acceptance)
            };
        };
        let mut reason = self.reason.clone().unwrap_or_else(words);
        if let Some(advice) = &self.advice {
            reason = format!("{reason}: {advice}");
        }
        let retry_after = retry_after.or_else(|| Some(self.wait?.after(now)));
        let failure =
            Failure { is_dead_number: self.is_dead_number, ..Failure::new(class, reason) };
        outcome_of(failure, retry_after, true)
    }
}

impl Wait {
    fn read(settings: &CodeSettings) -> Result<Option<Self>, String> {
        let waits = matches!(settings.class.as_str(), "throttle" | "cap" | "unavailable")
            || settings.sender;
        match (&settings.wait, &settings.until) {
            (None, None) => Ok(None),
            _ if !waits => {
                Err(format!("class `{}` has neither `wait` nor `until`", settings.class))
            }
            (Some(_), Some(_)) => Err("has `wait` and `until`: choose one".to_owned()),
            (Some(span), None) => Ok(Some(Self::For(*span))),
            (None, Some(text)) => Self::until(text).map(Some).ok_or_else(|| {
                format!("`{text}` is not a time of day with an offset from UTC, like `08:00+08:00`")
            }),
        }
    }

    /// Reads `08:00+08:00`.
    fn until(text: &str) -> Option<Self> {
        let parsed = BrokenDownTime::parse("%H:%M%:z", text).ok()?;
        Some(Self::Until { time: parsed.to_time().ok()?, offset: parsed.offset()? })
    }

    fn after(self, now: Timestamp) -> Duration {
        match self {
            Self::For(span) => span,
            Self::Until { time, offset } => {
                let now = jiff::Timestamp::from_millisecond(now.as_millis()).unwrap_or_default();
                let left = time.duration_since(offset.to_datetime(now).time());
                let day = if left.is_positive() { 0 } else { 24 };
                (left + SignedDuration::from_hours(day)).unsigned_abs()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Settings {
        codes: Codes,
    }

    fn read(source: &str) -> Result<Codes, String> {
        let settings: Result<Settings, toml::de::Error> = toml::from_str(source);
        settings.map(|settings| settings.codes).map_err(|error| error.to_string())
    }

    #[test]
    fn every_class_of_codes_is_read() {
        let classes = CLASSES.iter().map(|class| class.as_str());
        for word in classes.chain([ACCEPTED, DUPLICATE]) {
            let codes = read(&format!("codes = {{ 7 = {{ class = '{word}' }} }}")).expect(word);
            let meaning = codes.meaning("7").expect("listed");
            assert_eq!(meaning.word(), word);
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
    fn code_waits_for_a_duration_or_until_a_time() {
        let hours = |count: u64| Some(Duration::from_secs(count * 3_600));
        assert_eq!(waits("wait = '90m'", 0), Some(Duration::from_secs(5_400)));
        // The epoch is 08:00 in Shanghai.
        assert_eq!(waits("until = '08:00+08:00'", 0), hours(24));
        assert_eq!(waits("until = '08:00+08:00'", 1), Some(Duration::from_millis(86_399_999)));
        assert_eq!(waits("until = '00:00+08:00'", 0), hours(16));
        assert_eq!(waits("until = '00:00-05:00'", 0), hours(5));
    }

    #[test]
    fn longest_pattern_counts_and_a_whole_code_more() {
        let codes = read("codes = { 'a.*' = { class = 'content' }, 'a.b*' = { class = 'account' }, 'a.bc' = { class = 'throttle' } }")
            .expect("codes");
        let class = |code| codes.meaning(code).and_then(|meaning| meaning.class);
        assert_eq!(class("a.x"), Some(Class::Content));
        assert_eq!(class("a.bx"), Some(Class::Account));
        assert_eq!(class("a.bc"), Some(Class::Throttle));
        assert_eq!(class("a"), None);
    }

    #[test]
    fn pattern_matches_in_the_middle() {
        let codes = read("codes = { '40300 *STOP*' = { class = 'opted_out' } }").expect("codes");
        assert!(codes.meaning("40300 Blocked due to STOP message").is_some());
        assert!(codes.meaning("40300 STOP").is_some());
        assert!(codes.meaning("40300 Blocked").is_none());
        assert!(codes.meaning("40301 STOP").is_none());
    }

    #[test]
    fn codes_matched_only_by_a_pattern_are_not_named() {
        let codes = read("codes = { 'a.*' = { class = 'content' }, 'a.b' = { class = 'content' }, 'No route*' = { class = 'recipient' } }")
            .expect("codes");
        let named = ["a.b", "a.c", "a", "No route", "No route to X"].map(|code| codes.names(code));
        assert_eq!(named, [true, false, false, true, false]);
        assert!(codes.meaning("a.c").is_some());
    }

    #[test]
    fn advice_follows_the_reason() {
        let codes =
            read("codes = { 7 = { class = 'account', reason = 'no credit', advice = 'top up' } }")
                .expect("codes");
        let meaning = codes.meaning("7").expect("listed");
        let now = Timestamp::default();
        let Outcome::AccountError { failure, .. } = meaning.outcome(String::new, None, now) else {
            panic!("not an account error");
        };
        assert_eq!(failure.reason, "no credit: top up");
    }

    #[test]
    fn code_says_whether_the_number_is_dead() {
        let codes = read(
            "codes = { 7 = { class = 'recipient', dead = true }, 8 = { class = 'recipient' } }",
        )
        .expect("codes");
        let is_dead = ["7", "8"].map(|code| {
            let meaning = codes.meaning(code).expect("listed");
            match meaning.outcome(String::new, None, Timestamp::default()) {
                Outcome::Rejected(failure) => failure.is_dead_number,
                outcome => panic!("{outcome:?}"),
            }
        });
        assert_eq!(is_dead, [true, false]);
    }

    #[test]
    fn invalid_code_is_an_error() {
        for (source, expected) in [
            ("codes = { 7 = { class = 'acount' } }", "`account`"),
            ("codes = { 7 = { class = 'expired' } }", "`expired`"),
            ("codes = { 7 = { clas = 'account' } }", "`clas`"),
            ("codes = { 7 = 'account' }", "invalid type"),
            ("codes = 7", "invalid type"),
            ("codes = { 7 = { class = 'content', dead = true } }", "class `content` has no `dead`"),
            ("codes = { 7 = { class = 'account', wait = '1h' } }", "has neither `wait` nor"),
            ("codes = { 7 = { class = 'cap', wait = '1h', until = '08:00+08:00' } }", "choose one"),
            ("codes = { 7 = { class = 'cap', until = '8:00' } }", "`8:00`"),
            ("codes = { 7 = { class = 'cap', until = '08:00+99:00' } }", "`08:00+99:00`"),
        ] {
            let error = read(source).expect_err(source);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn certain_status_is_added_unless_it_is_listed() {
        let mut codes = read("codes = { 'http 503' = { class = 'throttle' } }").expect("codes");
        codes.add_certain_status(503);
        codes.add_certain_status(502);
        let class = |code| codes.meaning(code).and_then(|meaning| meaning.class);
        assert_eq!(class("http 503"), Some(Class::Throttle));
        assert_eq!(class("http 502"), Some(Class::Unavailable));
        assert_eq!(class("http 500"), None);
    }

    #[test]
    fn text_is_a_code_or_matches_a_pattern() {
        let codes = read(
            "codes = { 1 = { class = 'accepted' }, 'No*' = { class = 'content' }, \
             'No route*' = { class = 'recipient' }, '*BLACK*' = { class = 'opted_out' } }",
        )
        .expect("codes");
        for (text, expected) in [
            ("1", Some("1")),
            ("17", None),
            ("1: x", None),
            ("No route to X", Some("No route*")),
            ("No credit", Some("No*")),
            ("it is BLACKLISTED", Some("*BLACK*")),
            ("Yes", None),
        ] {
            assert_eq!(codes.matching(text), expected, "{text}");
        }
        let named = ["1", "No route", "BLACK", "No route to X"].map(|code| codes.names(code));
        assert_eq!(named, [true, true, true, false]);
    }

    #[test]
    fn codes_are_listed_with_their_class_and_advice() {
        let codes = read("codes = { 0 = { class = 'accepted' }, 7 = { class = 'account', reason = 'no credit', advice = 'top up' } }")
            .expect("codes");
        let row = |code: &str, class, texts: Option<(&str, &str)>| CodeRow {
            code: code.to_owned(),
            class,
            reason: texts.map(|(reason, _)| reason.to_owned()),
            advice: texts.map(|(_, advice)| advice.to_owned()),
        };
        let expected =
            [row("0", "accepted", None), row("7", "account", Some(("no credit", "top up")))];
        assert_eq!(codes.listed(), expected);
    }

    #[test]
    fn codes_of_a_status_need_no_body() {
        for (source, needs_body, lists_success) in [
            ("codes = {}", false, false),
            ("codes = { 'http 200' = { class = 'accepted' } }", false, false),
            (
                "codes = { 'http 404' = { class = 'content' }, 7 = { class = 'content' } }",
                true,
                false,
            ),
            ("codes = { 0 = { class = 'accepted' } }", true, true),
        ] {
            let codes = read(source).expect("codes");
            let actual = (codes.need_body(), codes.list_success());
            assert_eq!(actual, (needs_body, lists_success), "{source}");
        }
    }

    #[test]
    fn pattern_matches_any_text_or_one_character() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("?", "a", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("a?c", "abd", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
        ] {
            assert_eq!(matches_glob(pattern, text), expected, "`{pattern}` and `{text}`");
        }
    }

    #[test]
    fn response_says_how_long_to_wait_and_why() {
        let codes =
            read("codes = { 7 = { class = 'throttle', wait = '1h' }, 0 = { class = 'accepted' } }")
                .expect("codes");
        let outcome = |code, retry_after| {
            let meaning = codes.meaning(code).expect("listed");
            meaning.outcome(|| "too fast".to_owned(), retry_after, Timestamp::default())
        };
        let throttled = |seconds| Outcome::Throttled {
            failure: Failure::new(Class::Throttle, "too fast"),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(outcome("7", None), throttled(3_600));
        assert_eq!(outcome("7", Some(Duration::from_secs(5))), throttled(5));
        assert_eq!(outcome("0", None), Outcome::Accepted(Acceptance::default()));
    }
}
