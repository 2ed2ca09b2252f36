//! An operator wants to read what the gateway said, but an answer may repeat the phone, the text or a
//! secret. What is quoted here is short, printable, has no long number in it, and is dropped whole where
//! it repeats what is private.

use crate::text::printable_line;

/// The most bytes of an answer that are quoted.
pub(super) const QUOTED: usize = 200;

/// How much of an answer is searched for what is private.
const SEARCHED: usize = 4 * QUOTED;

/// So many letters and digits in a row of a text make a repetition.
const WINDOW: usize = 12;

/// A number of so many digits may be a phone.
const DIGITS: usize = 7;

/// What must not be quoted.
pub(super) struct Private<'a> {
    pub(super) contents: Vec<&'a str>,
    pub(super) secrets: Vec<&'a str>,
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

impl Private<'_> {
    fn is_in(&self, text: &str) -> bool {
        let secret = |secret: &&str| secret.len() >= 4 && text.contains(*secret);
        if self.secrets.iter().any(secret) {
            return true;
        }
        let plain = letters(text);
        self.contents.iter().any(|content| {
            let needle = letters(content);
            let ends: Vec<usize> = needle.char_indices().map(|(at, _)| at).collect();
            match ends.len() {
                0 => !content.trim().is_empty() && text.contains(content.trim()),
                1..=WINDOW => plain.contains(&needle),
                count => (0..=count - WINDOW).any(|first| {
                    let end = ends.get(first + WINDOW).copied().unwrap_or(needle.len());
                    plain.contains(&needle[ends[first]..end])
                }),
            }
        })
    }
}

/// Letters and digits only: escapes and line breaks do not hide a repetition.
fn letters(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
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

    const PRIVATE: Private<'static> = Private {
        contents: Vec::new(),
        secrets: Vec::new(),
    };

    fn hiding<'a>(content: &'a str, secret: &'a str) -> Private<'a> {
        Private {
            contents: vec![content],
            secrets: vec![secret],
        }
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
            assert_eq!(quote(text, &PRIVATE).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_answer_that_repeats_the_text_is_not_quoted() {
        let text = "Hello Anna, your code is \"4711\"";
        let private = hiding(text, "hunter2");
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
    fn a_quotation_is_one_short_line() {
        assert_eq!(
            quote("\u{feff}<h1>\r\n\tBad\0 gateway</h1>", &PRIVATE).as_deref(),
            Some("<h1> Bad gateway</h1>")
        );
        assert_eq!(quote(" \n ", &PRIVATE), None);
        let long = quote(&"é".repeat(10_000), &PRIVATE).expect("quoted");
        assert_eq!(long.len(), QUOTED);
    }

    proptest! {
        #[test]
        fn a_quotation_is_printable_short_and_has_no_phone(text in "\\PC{0,80}[0-9 ]{0,40}\\PC{0,300}", content in "\\PC{0,40}") {
            if let Some(quoted) = quote(&text, &hiding(&content, "")) {
                prop_assert!(quoted.len() <= QUOTED);
                prop_assert!(!quoted.chars().any(char::is_control));
                let digits: Vec<bool> = quoted.chars().map(char::is_numeric).collect();
                prop_assert!(!digits.windows(DIGITS).any(|run| run.iter().all(|digit| *digit)));
            }
        }
    }
}
