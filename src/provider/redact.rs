//! Excerpts of a provider's answers for error messages. An answer may repeat the phone, the text or a secret, so an
//! excerpt is short, printable, without long numbers, and left out where it repeats a text or a secret. Secrets are
//! also found in the forms in which requests carry them: percent-encoded, as form values, escaped in JSON or HTML, in
//! base64 at any offset, and in hexadecimal.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};

use crate::text::{is_printable, printable_line};

/// The most bytes of an excerpt.
pub(super) const MAX_EXCERPT: usize = 200;

/// How much of an answer is searched for texts and secrets.
const SEARCHED: usize = 4 * MAX_EXCERPT;

/// This many consecutive letters and digits of a text count as a repetition.
const WINDOW: usize = 12;

/// A number with this many digits may be a phone.
const PHONE_DIGITS: usize = 7;

/// Texts with more bytes in total are not indexed, and there is no excerpt.
const MAX_INDEXED: usize = 2 << 20;

/// The most indexed texts without letters and digits.
const MAX_BARE: usize = 64;

/// Makes excerpts that repeat neither the texts of messages nor secrets.
pub(super) struct Redactor<'a> {
    contents: Vec<&'a str>,
    secrets: Option<&'a SecretForms>,
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
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    cut(&line, SEARCHED).to_owned()
}

impl<'a> Redactor<'a> {
    pub(super) fn new(
        contents: impl IntoIterator<Item = &'a str>,
        secrets: Option<&'a SecretForms>,
    ) -> Self {
        Self {
            contents: contents.into_iter().collect(),
            secrets,
            index: OnceCell::new(),
        }
    }

    fn occurs_in(&self, text: &str) -> bool {
        let index = self.index.get_or_init(|| Index::new(&self.contents));
        self.secrets.is_some_and(|secrets| secrets.occur_in(text)) || index.occurs_in(text)
    }
}

/// The texts of all messages, indexed so that a search takes the same time for one or many.
#[derive(Default)]
struct Index {
    /// Sorted hashes by the number of letters and digits: whole short texts, and every [`WINDOW`] of the others.
    runs: BTreeMap<usize, Vec<u64>>,
    /// Texts without letters and digits.
    bare: Vec<String>,
    /// Too much to index: every answer counts as a repetition.
    is_too_large: bool,
}

impl Index {
    fn new(contents: &[&str]) -> Self {
        let contents: BTreeSet<&str> = contents.iter().copied().collect();
        if contents.iter().map(|content| content.len()).sum::<usize>() > MAX_INDEXED {
            return Self {
                is_too_large: true,
                ..Self::default()
            };
        }
        let mut index = Self::default();
        for content in contents {
            let hashes = PrefixHashes::new(content);
            match hashes.count().min(WINDOW) {
                0 if content.trim().is_empty() => {}
                0 => index.bare.push(content.trim().to_owned()),
                length => index
                    .runs
                    .entry(length)
                    .or_default()
                    .extend(hashes.runs(length)),
            }
        }
        for hashes in index.runs.values_mut() {
            hashes.sort_unstable();
            hashes.dedup();
        }
        index.is_too_large = index.bare.len() > MAX_BARE;
        index
    }

    fn occurs_in(&self, text: &str) -> bool {
        let hashes = PrefixHashes::new(text);
        self.is_too_large
            || self.bare.iter().any(|bare| text.contains(bare))
            || self.runs.iter().any(|(length, known)| {
                let mut runs = hashes.runs(*length);
                runs.any(|run| known.binary_search(&run).is_ok())
            })
    }
}

/// `PrefixHashes` of all prefixes of a text's letters and digits; the hash of any part follows from two of them.
struct PrefixHashes(Vec<u64>);

impl PrefixHashes {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(text: &str) -> Self {
        let step = |hash: &mut u64, c: char| {
            *hash = hash
                .wrapping_mul(Self::BASE)
                .wrapping_add(u64::from(u32::from(c)) + 1);
            Some(*hash)
        };
        let beginnings = letters(text).scan(0, step);
        Self([0].into_iter().chain(beginnings).collect())
    }

    fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// The hashes of all parts with `length` letters and digits.
    fn runs(&self, length: usize) -> impl Iterator<Item = u64> {
        let power = (0..length).fold(1_u64, |power, _| power.wrapping_mul(Self::BASE));
        let ends = self.0.get(length..).unwrap_or_default();
        ends.iter()
            .zip(&self.0)
            .map(move |(end, start)| end.wrapping_sub(start.wrapping_mul(power)))
    }
}

/// Lowercase letters and digits: escapes and line breaks do not hide a repetition.
fn letters(text: &str) -> impl Iterator<Item = char> {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase)
}

/// Replaces the digits of every number that may be a phone by `*`, however it is grouped.
fn mask_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut run = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let inside = c.is_numeric()
            || (matches!(c, ' ' | '-' | '.' | '(' | ')')
                && !run.is_empty()
                && chars
                    .peek()
                    .is_some_and(|next| next.is_numeric() || matches!(next, ' ' | '(' | ')')));
        if inside {
            run.push(c);
        } else {
            flush(&mut run, &mut out);
            out.push(c);
        }
    }
    flush(&mut run, &mut out);
    out
}

fn flush(run: &mut String, out: &mut String) {
    if run.chars().filter(|c| c.is_numeric()).count() < PHONE_DIGITS {
        out.push_str(run);
    } else {
        out.extend(run.chars().map(|c| if c.is_numeric() { '*' } else { c }));
    }
    run.clear();
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
                forms.add_one(piece);
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

    fn add_one(&mut self, piece: &str) {
        if piece.len() < MIN_LENGTH {
            return;
        }
        self.0.push(SecretString::from(piece));
        if piece.len() < MIN_ENCODED_LENGTH {
            return;
        }
        for encoded in in_base64(piece).into_iter().chain(in_hex(piece)) {
            if self.0.iter().all(|known| known.expose_secret() != encoded) {
                self.0.push(SecretString::from(encoded));
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

fn in_hex(text: &str) -> [String; 2] {
    [hex::encode(text), hex::encode_upper(text)]
}

/// The text and all its decodings; `None` where there are too many.
fn readings(text: &str) -> Option<Vec<String>> {
    let mut all = vec![text.to_owned()];
    let mut done = 0;
    for _ in 0..MAX_DEPTH {
        let known = all.len();
        for at in done..known {
            for decode in [from_percent, from_form, from_json, from_html] {
                if let Some(decoded) = decode(&all[at])
                    && !all.contains(&decoded)
                {
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

/// Decodes the escape after each `mark`: `decode` pushes the character and returns the length of the escape. `None`
/// where there is no escape.
fn unescape(
    text: &str,
    mark: char,
    decode: fn(&[u8], &mut Vec<u8>) -> Option<usize>,
) -> Option<String> {
    let bytes = text.as_bytes();
    let mark = u8::try_from(mark).ok()?;
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut is_escaped = false;
    while let Some(byte) = bytes.get(at) {
        let found = (*byte == mark)
            .then(|| decode(&bytes[at + 1..], &mut out))
            .flatten();
        if let Some(length) = found {
            at += 1 + length;
            is_escaped = true;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    is_escaped.then(|| String::from_utf8_lossy(&out).into_owned())
}

fn hex_number(bytes: Option<&[u8]>) -> Option<u32> {
    let digits = std::str::from_utf8(bytes?).ok()?;
    let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| all_hex)
}

fn push(out: &mut Vec<u8>, code: u32) -> Option<()> {
    let c = char::from_u32(code)?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(())
}

fn from_percent(text: &str) -> Option<String> {
    unescape(text, '%', |rest, out| {
        out.push(u8::try_from(hex_number(rest.get(..2))?).ok()?);
        Some(2)
    })
}

fn from_form(text: &str) -> Option<String> {
    let text = text.contains('+').then(|| text.replace('+', " "))?;
    Some(from_percent(&text).unwrap_or(text))
}

fn from_json(text: &str) -> Option<String> {
    unescape(text, '\\', |rest, out| {
        match rest.first()? {
            b'u' => {
                let unit = hex_number(rest.get(1..5))?;
                if let (0xd800..=0xdbff, Some(b"\\u")) = (unit, rest.get(5..7)) {
                    let low = hex_number(rest.get(7..11))?;
                    let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    push(out, 0x10000 + ((unit - 0xd800) << 10) + low)?;
                    return Some(11);
                }
                push(out, unit)?;
                return Some(5);
            }
            byte @ (b'"' | b'\\' | b'/' | b'\'') => out.push(*byte),
            b'n' | b'r' | b't' | b'b' | b'f' => out.push(b' '),
            _ => return None,
        }
        Some(1)
    })
}

fn from_html(text: &str) -> Option<String> {
    const NAMES: [(&str, u8); 5] = [
        ("amp", b'&'),
        ("lt", b'<'),
        ("gt", b'>'),
        ("quot", b'"'),
        ("apos", b'\''),
    ];
    unescape(text, '&', |rest, out| {
        let end = rest.iter().take(10).position(|byte| *byte == b';')?;
        let name = std::str::from_utf8(&rest[..end]).ok()?;
        if let Some((_, byte)) = NAMES.into_iter().find(|(known, _)| *known == name) {
            out.push(byte);
        } else {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            push(out, code.ok()?)?;
        }
        Some(end + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use hex::encode as hex;
    use proptest::prelude::*;

    use crate::provider::signing::percent_encoded;
    use crate::provider::vendors::form;

    fn nothing() -> Redactor<'static> {
        Redactor::new([], None)
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
            assert_eq!(
                excerpt(text, &nothing()).as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn excerpt_omits_answer_that_repeats_text_or_secret() {
        let text = "Hello Anna, your code is \"4711\"";
        let forms = SecretForms::new(["hunter2"].into_iter());
        let redactor = Redactor::new([text], Some(&forms));
        for answer in [
            "bad text: Hello Anna, your code is \"4711\"",
            "bad text: Hello Anna,\n your&nbsp;code is",
            r#"{"echo":"hello anna, your code is \"4711\""}"#,
            "bad token hunter2",
        ] {
            assert_eq!(excerpt(answer, &redactor), None, "{answer}");
        }
        assert_eq!(
            excerpt("no credit", &redactor).as_deref(),
            Some("no credit")
        );
    }

    #[test]
    fn excerpt_omits_short_and_letterless_texts() {
        let redactor = Redactor::new(["OK 7", "?!", "Hello, this is a longer one"], None);
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
        assert_eq!(
            excerpt("no credit", &Redactor::new([long.as_str()], None)),
            None
        );
        let many: Vec<String> = (0..=MAX_BARE).map(|at| "?".repeat(at + 1)).collect();
        let many = Redactor::new(many.iter().map(String::as_str), None);
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
            let plain = |text: &str| letters(text).collect::<Vec<char>>();
            let found = contents.iter().any(|content| {
                let (needle, text) = (plain(content), plain(&text));
                let length = needle.len().min(WINDOW);
                length > 0 && needle.windows(length).any(|run| text.windows(length).any(|it| it == run))
            });
            let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
            prop_assert_eq!(Index::new(&contents).occurs_in(&text), found);
        }

        #[test]
        fn excerpt_is_printable_short_and_has_no_phone(text in "\\PC{0,80}[0-9 ]{0,40}\\PC{0,300}", content in "\\PC{0,40}") {
            if let Some(excerpt) = excerpt(&text, &Redactor::new([content.as_str()], None)) {
                prop_assert!(excerpt.len() <= MAX_EXCERPT);
                prop_assert!(!excerpt.chars().any(char::is_control));
                let digits: Vec<bool> = excerpt.chars().map(char::is_numeric).collect();
                prop_assert!(!digits.windows(PHONE_DIGITS).any(|run| run.iter().all(|digit| *digit)));
            }
        }
    }

    /// The encodings in which a request, or a gateway that repeats it, writes a value.
    const ENCODERS: [fn(&str) -> String; 9] = [
        str::to_owned,
        percent_encoded,
        |text| {
            let bytes = text.bytes();
            bytes
                .flat_map(|byte| ["%".to_owned(), hex([byte])])
                .collect()
        },
        |text| form([("key", text)]),
        |text| serde_json::Value::from(text).to_string(),
        |text| {
            let units = text.encode_utf16();
            units
                .flat_map(|unit| ["\\u".to_owned(), hex(unit.to_be_bytes())])
                .collect()
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
