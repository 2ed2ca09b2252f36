//! An operator wants to read what the gateway said, but an answer may repeat the phone, the text or a
//! secret. What is quoted here is short, printable, has no long number in it, and is dropped whole where
//! it repeats what is private.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::forms::Forms;
use crate::text::printable_line;

/// The most bytes of an answer that are quoted.
pub(super) const QUOTED: usize = 200;

/// How much of an answer is searched for what is private.
const SEARCHED: usize = 4 * QUOTED;

/// So many letters and digits in a row of a text make a repetition.
const WINDOW: usize = 12;

/// A number of so many digits may be a phone.
const DIGITS: usize = 7;

/// Of a text written by another program that is longer than this in total, nothing is looked for: nothing is quoted.
const INDEXED: usize = 2 << 20;

/// Texts without letters and digits that are looked for.
const BARE: usize = 64;

/// What must not be quoted.
pub(super) struct Private<'a> {
    contents: Vec<&'a str>,
    secrets: Option<&'a Forms>,
    /// Made when it is first needed, and once for all quotations.
    index: OnceCell<Index>,
}

/// The first bytes of `text`, or nothing where it is empty or private.
pub(super) fn quote(text: &str, private: &Private<'_>) -> Option<String> {
    let text = flat(text);
    if text.is_empty() || private.is_in(&text) {
        return None;
    }
    Some(masked(cut(&text, QUOTED)))
}

/// The longest beginning of `text` within `bytes`.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// One line, without what cannot be shown, as long as it is searched.
fn flat(text: &str) -> String {
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

impl<'a> Private<'a> {
    pub(super) fn new(
        contents: impl IntoIterator<Item = &'a str>,
        secrets: Option<&'a Forms>,
    ) -> Self {
        Self {
            contents: contents.into_iter().collect(),
            secrets,
            index: OnceCell::new(),
        }
    }

    /// Whether the text holds a secret, also in encoded form.
    pub(super) fn holds_secret(&self, text: &str) -> bool {
        self.secrets.is_some_and(|secrets| secrets.occur_in(text))
    }

    fn is_in(&self, text: &str) -> bool {
        let index = self.index.get_or_init(|| Index::of(&self.contents));
        self.holds_secret(text) || index.occurs_in(text)
    }
}

/// The texts of all messages, prepared so that a search takes no longer for many of them.
#[derive(Default)]
struct Index {
    /// Hashes of what is looked for, sorted, by how many letters and digits it has: whole short texts, and every
    /// [`WINDOW`] of the others.
    runs: BTreeMap<usize, Vec<u64>>,
    /// Texts without letters and digits.
    bare: Vec<String>,
    /// There is too much to look for.
    is_too_large: bool,
}

impl Index {
    fn of(contents: &[&str]) -> Self {
        let contents: BTreeSet<&str> = contents.iter().copied().collect();
        if contents.iter().map(|content| content.len()).sum::<usize>() > INDEXED {
            return Self {
                is_too_large: true,
                ..Self::default()
            };
        }
        let mut index = Self::default();
        for content in contents {
            let hashes = Hashes::of(content);
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
        index.is_too_large = index.bare.len() > BARE;
        index
    }

    fn occurs_in(&self, text: &str) -> bool {
        let hashes = Hashes::of(text);
        self.is_too_large
            || self.bare.iter().any(|bare| text.contains(bare))
            || self.runs.iter().any(|(length, known)| {
                let mut runs = hashes.runs(*length);
                runs.any(|run| known.binary_search(&run).is_ok())
            })
    }
}

/// Hashes of the beginnings of a text's letters and digits, from which that of any part follows.
struct Hashes(Vec<u64>);

impl Hashes {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

    fn of(text: &str) -> Self {
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

    /// Of every part of so many letters and digits.
    fn runs(&self, length: usize) -> impl Iterator<Item = u64> {
        let power = (0..length).fold(1_u64, |power, _| power.wrapping_mul(Self::BASE));
        let ends = self.0.get(length..).unwrap_or_default();
        ends.iter()
            .zip(&self.0)
            .map(move |(end, start)| end.wrapping_sub(start.wrapping_mul(power)))
    }
}

/// Letters and digits only: escapes and line breaks do not hide a repetition.
fn letters(text: &str) -> impl Iterator<Item = char> {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase)
}

/// `text` with `*` for the digits of every number that may be a phone, however it is grouped.
fn masked(text: &str) -> String {
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
    if run.chars().filter(|c| c.is_numeric()).count() < DIGITS {
        out.push_str(run);
    } else {
        out.extend(run.chars().map(|c| if c.is_numeric() { '*' } else { c }));
    }
    run.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nothing() -> Private<'static> {
        Private::new([], None)
    }

    #[test]
    fn phones_are_masked_however_they_are_written() {
        for (text, expected) in [
            ("to +8613812345678 failed", "to +************* failed"),
            ("to 020 7946 0018.", "to *** **** ****."),
            ("(020) 7946-0018", "(***) ****-****"),
            ("error 21211 at 10:30", "error 21211 at 10:30"),
            ("%2B447911123456", "%2B************"),
        ] {
            assert_eq!(quote(text, &nothing()).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_answer_that_repeats_the_text_is_not_quoted() {
        let text = "Hello Anna, your code is \"4711\"";
        let forms = Forms::of(["hunter2"].into_iter());
        let private = Private::new([text], Some(&forms));
        for answer in [
            "bad text: Hello Anna, your code is \"4711\"",
            "bad text: Hello Anna,\n your&nbsp;code is",
            r#"{"echo":"hello anna, your code is \"4711\""}"#,
            "bad token hunter2",
        ] {
            assert_eq!(quote(answer, &private), None, "{answer}");
        }
        assert_eq!(quote("no credit", &private).as_deref(), Some("no credit"));
    }

    #[test]
    fn short_texts_and_texts_without_letters_are_not_quoted() {
        let private = Private::new(["OK 7", "?!", "Hello, this is a longer one"], None);
        for answer in ["sent: ok-7", "sent ?! at", "x HELLO THIS IS A y"] {
            assert_eq!(quote(answer, &private), None, "{answer}");
        }
        for answer in ["sent: ok", "sent ! at", "hello", "a longer hello"] {
            assert!(quote(answer, &private).is_some(), "{answer}");
        }
    }

    #[test]
    fn nothing_is_quoted_beside_texts_that_are_too_long_to_search() {
        let long = "x".repeat(INDEXED + 1);
        assert_eq!(
            quote("no credit", &Private::new([long.as_str()], None)),
            None
        );
        let many: Vec<String> = (0..=BARE).map(|at| "?".repeat(at + 1)).collect();
        let many = Private::new(many.iter().map(String::as_str), None);
        assert_eq!(quote("no credit", &many), None);
    }

    #[test]
    fn equal_texts_are_indexed_once() {
        let text = "Hello Anna, your parcel is here".repeat(4);
        let one = Index::of(&[&text]).runs[&WINDOW].len();
        let many = Index::of(&vec![text.as_str(); 1_000]).runs[&WINDOW].len();
        assert_eq!(one, many);
        assert!(one <= text.len());
    }

    #[test]
    fn a_quotation_is_one_short_line() {
        assert_eq!(
            quote("\u{feff}<h1>\r\n\tBad\0 gateway</h1>", &nothing()).as_deref(),
            Some("<h1> Bad gateway</h1>")
        );
        assert_eq!(quote(" \n ", &nothing()), None);
        let long = quote(&"é".repeat(10_000), &nothing()).expect("quoted");
        assert_eq!(long.len(), QUOTED);
    }

    proptest! {
        #[test]
        fn an_index_finds_what_a_plain_search_finds(
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
            prop_assert_eq!(Index::of(&contents).occurs_in(&text), found);
        }

        #[test]
        fn a_quotation_is_printable_short_and_has_no_phone(text in "\\PC{0,80}[0-9 ]{0,40}\\PC{0,300}", content in "\\PC{0,40}") {
            if let Some(quoted) = quote(&text, &Private::new([content.as_str()], None)) {
                prop_assert!(quoted.len() <= QUOTED);
                prop_assert!(!quoted.chars().any(char::is_control));
                let digits: Vec<bool> = quoted.chars().map(char::is_numeric).collect();
                prop_assert!(!digits.windows(DIGITS).any(|run| run.iter().all(|digit| *digit)));
            }
        }
    }
}
