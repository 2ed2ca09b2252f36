//! Excerpts of a provider's answers for error messages. An answer may repeat the phone, the text or a secret, so an
//! excerpt is short, printable, without long numbers, and left out where it repeats a text or a secret. Secrets are
//! also found in the forms in which requests carry them: percent-encoded, as form values, escaped in JSON or HTML, in
//! base64 at any offset, and in hexadecimal.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use smsq_message::text::{is_printable, mask_numbers, printable_line};

/// The most bytes of an excerpt.
pub(super) const MAX_EXCERPT: usize = 200;

/// How much of an answer is searched for texts and secrets.
const SEARCHED: usize = 4 * MAX_EXCERPT;

/// This many consecutive letters and digits of a text count as a repetition.
const WINDOW: usize = 12;

/// Texts with more bytes in total are not indexed, and there is no excerpt.
const MAX_INDEXED: usize = 2 << 20;

/// The most indexed texts without letters and digits.
const MAX_BARE: usize = 64;

/// Makes excerpts that repeat neither the texts of messages nor secrets.
pub(super) struct Redactor<'a> {
    contents: Vec<&'a str>,
    secrets: &'a SecretForms,
    /// Made when it is first needed.
    index: OnceCell<Index>,
}

/// `text` on one line, cut and masked; `None` where it is empty or repeats a text or a secret.
pub(super) fn excerpt(text: &str, redactor: &Redactor<'_>) -> Option<String> {
    let text = one_line(text);
    if text.is_empty() || redactor.occurs_in(&text) {
        return None;
    }
    Some(mask_numbers(cut(&text, MAX_EXCERPT)))
}

/// The longest prefix of `text` within `bytes`.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The text on one line, without unprintable characters, up to the length that is searched.
fn one_line(text: &str) -> String {
    let text = printable_line(cut(text, 4 * SEARCHED));
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&words.join(" "), SEARCHED).to_owned()
}

impl<'a> Redactor<'a> {
    pub(super) fn new(
        contents: impl IntoIterator<Item = &'a str>,
        secrets: &'a SecretForms,
    ) -> Self {
        Self { contents: contents.into_iter().collect(), secrets, index: OnceCell::new() }
    }

    fn occurs_in(&self, text: &str) -> bool {
        let index = self.index.get_or_init(|| Index::new(&self.contents));
        self.secrets.occur_in(text) || index.occurs_in(text)
    }
}

/// The texts of all messages, indexed so that a search takes the same time for one or many.
#[derive(Default)]
struct Index {
    /// Hashes by the number of letters and digits: whole short texts, and every [`WINDOW`] of the others.
    runs: BTreeMap<usize, HashSet<u64>>,
    /// Texts without letters and digits.
    bare: HashSet<String>,
    /// Too much to index: every answer counts as a repetition.
    is_too_large: bool,
}

impl Index {
    fn new(contents: &[&str]) -> Self {
        let contents: HashSet<&str> = contents.iter().copied().collect();
        let mut index = Self::default();
        if contents.iter().map(|content| content.len()).sum::<usize>() > MAX_INDEXED {
            index.is_too_large = true;
            return index;
        }
        for content in contents {
            let letters = letters(content);
            match letters.len().min(WINDOW) {
                0 if content.trim().is_empty() => {}
                0 => {
                    index.bare.insert(content.trim().to_owned());
                }
                length => {
                    index.runs.entry(length).or_default().extend(letters.windows(length).map(hash));
                }
            }
        }
        index.is_too_large = index.bare.len() > MAX_BARE;
        index
    }

    fn occurs_in(&self, text: &str) -> bool {
        let letters = letters(text);
        self.is_too_large
            || self.bare.iter().any(|bare| text.contains(bare))
            || self.runs.iter().any(|(length, known)| {
                let mut runs = letters.windows(*length);
                runs.any(|run| known.contains(&hash(run)))
            })
    }
}

fn hash(run: &[char]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(run)
}

/// Lowercase letters and digits: escapes and line breaks do not hide a repetition.
fn letters(text: &str) -> Vec<char> {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Shorter secrets are not searched for: too many words contain them.
const MIN_LENGTH: usize = 4;
/// Shorter secrets are not searched for in base64 and hexadecimal.
const MIN_ENCODED_LENGTH: usize = 6;
/// A longer secret is searched for in pieces of this many bytes, so that a part of it is found too.
const PIECE: usize = 32;
/// The most pieces of one secret.
const MAX_PIECES: usize = 8;
/// The most nested encodings that are decoded.
const MAX_DEPTH: usize = 3;
/// A text with more possible decodings counts as containing a secret.
const MAX_READINGS: usize = 24;

/// The forms of secrets to search for. It has no `Debug`, and wipes its memory.
#[derive(Clone, Default)]
pub(super) struct SecretForms(Vec<SecretString>);

impl SecretForms {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut forms = Self::default();
        for secret in secrets {
            for piece in pieces(&packed(secret)) {
                if piece.len() >= MIN_LENGTH {
                    forms.0.push(SecretString::from(piece));
                }
                if piece.len() >= MIN_ENCODED_LENGTH {
                    let hex = [hex::encode(piece), hex::encode_upper(piece)];
                    let encoded = in_base64(piece).into_iter().chain(hex);
                    forms.0.extend(encoded.map(SecretString::from));
                }
            }
        }
        forms
    }

    /// Adds a value that a template made of secrets, whole and without its first word.
    pub(super) fn add_derived(&mut self, value: &str) {
        let rest = value.split_once(' ').map(|(_, rest)| rest);
        for part in [Some(value), rest] {
            let part = packed(part.unwrap_or_default());
            if part.len() >= MIN_ENCODED_LENGTH && !self.occur_in(&part) {
                self.0.push(SecretString::from(part));
            }
        }
    }

    /// Whether `text` contains a secret in any form.
    pub(super) fn occur_in(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(readings) = readings(text) else {
            return true;
        };
        readings.iter().any(|reading| {
            let reading = packed(reading);
            let is_in = |form: &SecretString| reading.contains(form.expose_secret());
            self.0.iter().any(is_in)
        })
    }
}

/// The text without white space and unprintable characters, which could hide a secret.
fn packed(text: &str) -> String {
    let keeps = |c: &char| is_printable(*c) && !c.is_whitespace();
    text.chars().filter(keeps).collect()
}

/// A short text whole, or pieces of a long one; the last piece is its end.
fn pieces(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = (0..text.len()).step_by(PIECE).collect();
    if text.len() > PIECE {
        starts.truncate(MAX_PIECES);
        starts.push(text.len() - PIECE);
    }
    let piece = |start: usize| {
        let boundary = |at| cut(text, at).len();
        &text[boundary(start)..boundary(start + PIECE)]
    };
    starts.into_iter().map(piece).collect()
}

/// The base64 characters that encode only bits of `text`, for each offset within the encoded bytes.
fn in_base64(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for offset in 0..3 {
        let mut bytes = vec![0; offset];
        bytes.extend_from_slice(text.as_bytes());
        let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            all.push(engine.encode(&bytes)[start..end].to_owned());
        }
    }
    all
}

/// The text and all its decodings; `None` where there are too many.
fn readings(text: &str) -> Option<Vec<String>> {
    let mut all = vec![text.to_owned()];
    let mut done = 0;
    for _ in 0..MAX_DEPTH {
        let known = all.len();
        for at in done..known {
            for decode in [from_percent, from_form, from_json, from_html] {
                let decoded = decode(&all[at]);
                if !all.contains(&decoded) {
                    all.push(decoded);
                }
            }
            if all.len() > MAX_READINGS {
                return None;
            }
        }
        done = known;
    }
    Some(all)
}

fn from_percent(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn from_form(text: &str) -> String {
    from_percent(&text.replace('+', " "))
}

/// Decodes the escapes of a JSON string; what is not an escape is kept.
fn from_json(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        units.extend(before.encode_utf16());
        let digits = escape.strip_prefix('u').and_then(|escape| escape.get(..4));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let (unit, length) = match (unit, escape.as_bytes().first()) {
            (Some(unit), _) => (unit, 5),
            (None, Some(byte @ (b'"' | b'\\' | b'/' | b'\''))) => (u16::from(*byte), 1),
            (None, Some(b'n' | b'r' | b't' | b'b' | b'f')) => (u16::from(b' '), 1),
            (None, _) => (u16::from(b'\\'), 0),
        };
        units.push(unit);
        rest = &escape[length..];
    }
    units.extend(rest.encode_utf16());
    String::from_utf16_lossy(&units)
}

/// Decodes the entities of HTML; what is not an entity is kept.
fn from_html(text: &str) -> String {
    let decode = |part: &str| {
        let (before, entity) = part.split_at(part.rfind('&').unwrap_or(part.len()));
        let entity = entity.replace("&#X", "&#x");
        let decoded = quick_xml::escape::unescape(&entity).unwrap_or((&entity).into());
        format!("{before}{decoded}")
    };
    text.split_inclusive(';').map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use hex::encode as hex;
    use proptest::prelude::*;

    use crate::signing::percent_encoded;
    use crate::vendors::form;

    static NO_SECRETS: SecretForms = SecretForms(Vec::new());

    fn nothing() -> Redactor<'static> {
        Redactor::new([], &NO_SECRETS)
    }

    #[test]
    fn excerpt_masks_phones_in_any_grouping() {
        for (text, expected) in [
            ("to +8613812345678 failed", "to +************* failed"),
            ("to 020 7946 0018.", "to *** **** ****."),
            ("(020) 7946-0018", "(***) ****-****"),
            ("error 21211 at 10:30", "error 21211 at 10:30"),
            ("%2B447911123456", "%2B************"),
        ] {
            assert_eq!(excerpt(text, &nothing()).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn excerpt_omits_answer_that_repeats_text_or_secret() {
        let text = "Hello Anna, your code is \"4711\"";
        let forms = SecretForms::new(["hunter2"].into_iter());
        let redactor = Redactor::new([text], &forms);
        for answer in [
            "bad text: Hello Anna, your code is \"4711\"",
            "bad text: Hello Anna,\n your&nbsp;code is",
            r#"{"echo":"hello anna, your code is \"4711\""}"#,
            "bad token hunter2",
        ] {
            assert_eq!(excerpt(answer, &redactor), None, "{answer}");
        }
        assert_eq!(excerpt("no credit", &redactor).as_deref(), Some("no credit"));
    }

    #[test]
    fn excerpt_omits_short_and_letterless_texts() {
        let redactor = Redactor::new(["OK 7", "?!", "Hello, this is a longer one"], &NO_SECRETS);
        for answer in ["sent: ok-7", "sent ?! at", "x HELLO THIS IS A y"] {
            assert_eq!(excerpt(answer, &redactor), None, "{answer}");
        }
        for answer in ["sent: ok", "sent ! at", "hello", "a longer hello"] {
            assert!(excerpt(answer, &redactor).is_some(), "{answer}");
        }
    }

    #[test]
    fn excerpt_is_empty_when_texts_are_too_long_to_index() {
        let long = "x".repeat(MAX_INDEXED + 1);
        assert_eq!(excerpt("no credit", &Redactor::new([long.as_str()], &NO_SECRETS)), None);
        let many: Vec<String> = (0..=MAX_BARE).map(|at| "?".repeat(at + 1)).collect();
        let many = Redactor::new(many.iter().map(String::as_str), &NO_SECRETS);
        assert_eq!(excerpt("no credit", &many), None);
    }

    #[test]
    fn index_holds_equal_texts_once() {
        let text = "Hello Anna, your parcel is here".repeat(4);
        let one = Index::new(&[&text]).runs[&WINDOW].len();
        let many = Index::new(&vec![text.as_str(); 1_000]).runs[&WINDOW].len();
        assert_eq!(one, many);
        assert!(one <= text.len());
    }

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(
            excerpt("\u{feff}<h1>\r\n\tBad\0 gateway</h1>", &nothing()).as_deref(),
            Some("<h1> Bad gateway</h1>")
        );
        assert_eq!(excerpt(" \n ", &nothing()), None);
        let long = excerpt(&"é".repeat(10_000), &nothing()).expect("an excerpt");
        assert_eq!(long.len(), MAX_EXCERPT);
    }

    proptest! {
        #[test]
        fn index_finds_what_a_plain_search_finds(
            contents in prop::collection::vec("[abAB ]{0,18}", 1..4),
            text in "[abAB ]{0,40}",
        ) {
            let found = contents.iter().any(|content| {
                let (needle, text) = (letters(content), letters(&text));
                let length = needle.len().min(WINDOW);
                length > 0 && needle.windows(length).any(|run| text.windows(length).any(|other| other == run))
            });
            let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
            prop_assert_eq!(Index::new(&contents).occurs_in(&text), found);
        }

        #[test]
        fn excerpt_is_printable_short_and_has_no_phone(text in "\\PC{0,80}[0-9 ]{0,40}\\PC{0,300}", content in "\\PC{0,40}") {
            if let Some(excerpt) = excerpt(&text, &Redactor::new([content.as_str()], &NO_SECRETS)) {
                prop_assert!(excerpt.len() <= MAX_EXCERPT);
                prop_assert!(!excerpt.chars().any(char::is_control));
                let digits: Vec<bool> = excerpt.chars().map(char::is_numeric).collect();
                prop_assert!(!digits.windows(7).any(|run| run.iter().all(|digit| *digit)));
            }
        }
    }

    /// The encodings in which a request, or a gateway that repeats it, writes a value.
    const ENCODERS: [fn(&str) -> String; 9] = [
        str::to_owned,
        percent_encoded,
        |text| {
            let bytes = text.bytes();
            bytes.flat_map(|byte| ["%".to_owned(), hex([byte])]).collect()
        },
        |text| form([("key", text)]),
        |text| serde_json::Value::from(text).to_string(),
        |text| {
            let units = text.encode_utf16();
            units.flat_map(|unit| ["\\u".to_owned(), hex(unit.to_be_bytes())]).collect()
        },
        |text| {
            text.replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;")
        },
        |text| STANDARD.encode(text),
        |text| hex(text.as_bytes()),
    ];

    proptest! {
        #[test]
        fn secret_is_found_in_every_form(
            secret in "[!-~]{8,100}",
            before in "[ -~]{0,8}",
            after in "[ -~]{0,8}",
            inner in 0..ENCODERS.len(),
            outer in 0..ENCODERS.len() - 2,
            url_safe: bool,
        ) {
            let forms = SecretForms::new([secret.as_str()].into_iter());
            let carried = format!("{before}{secret}{after}");
            let carried = if url_safe {
                URL_SAFE.encode(carried)
            } else {
                ENCODERS[inner](&carried)
            };
            let quoted = ENCODERS[outer](&carried);
            prop_assert!(forms.occur_in(&quoted), "{quoted}");
        }

        #[test]
        fn other_words_contain_no_secret(secret in "[!-~]{12,40}", text in "[a-z]{1,10}( [a-z]{1,10}){0,9}") {
            let forms = SecretForms::new([secret.as_str()].into_iter());
            prop_assert!(!forms.occur_in(&text));
        }
    }

    #[test]
    fn part_of_a_long_secret_is_found() {
        let bytes: Vec<u8> = (0..=255).collect();
        let secret = hex(&bytes);
        let forms = SecretForms::new([secret.as_str()].into_iter());
        assert!(forms.occur_in(&secret[..70]));
        assert!(forms.occur_in(&secret[secret.len() - 40..]));
        assert!(!forms.occur_in(&secret[..20]));
    }

    #[test]
    fn value_that_a_template_made_is_found() {
        let mut forms = SecretForms::new(["hunter2!"].into_iter());
        let known = forms.0.len();
        forms.add_derived("Bearer hunter2!");
        assert_eq!(forms.0.len(), known, "the secret is found anyway");
        forms.add_derived("Bearer !2RETNUH");
        assert!(forms.occur_in("bad token !2RETNUH"));
    }

    #[test]
    fn text_with_endless_encodings_counts_as_secret() {
        let forms = SecretForms::new(["hunter2!"].into_iter());
        assert!(forms.occur_in(&"%2541+&amp;amp;\\u0026%26amp;+".repeat(3)));
        assert!(!SecretForms::default().occur_in("hunter2!"));
    }
}
