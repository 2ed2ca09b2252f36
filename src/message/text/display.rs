//! Formats values for people: text from other programs without characters that are unsafe to print, counts,
//! durations, lists of names.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;

/// `1 message`, `12,345 messages`.
pub fn messages(count: u64) -> String {
    counted(count, "message")
}

/// `1 row`, `12,345 rows`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", HumanCount(count)),
    }
}

/// `142 ms`, `4.1 s`, `2m 5s`: at most two significant units.
pub fn duration(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        1..60 => {
            let tenths = (span.as_millis() + 50) / 100;
            match tenths % 10 {
                0 => format!("{} s", tenths / 10),
                rest => format!("{}.{rest} s", tenths / 10),
            }
        }
        seconds => {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            format!("{:#}", jiff::SignedDuration::from_secs(seconds))
        }
    }
}

/// Printable names in backticks, separated by commas; each is cut after 80 characters.
pub fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    const MAX_NAME: usize = 80;
    let quoted = names.into_iter().map(|name| {
        let name = printable_line(name);
        match name.char_indices().nth(MAX_NAME) {
            Some((end, _)) => format!("`{}…`", &name[..end]),
            None => format!("`{name}`"),
        }
    });
    quoted.collect::<Vec<String>>().join(", ")
}

/// Makes text printable: control characters and line separators become spaces, bidi and invisible format
/// characters are removed. Line ends and tabs are kept, and so are the joiners that Persian and emoji need.
pub fn printable(text: &str) -> Cow<'_, str> {
    cleaned(text, |c| c == '\n' || c == '\t')
}

/// Like [`printable`], on one line: line ends and tabs become spaces too.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    cleaned(text, |_| false)
}

/// Escapes the characters in valid JSON that are not printable as `\u`, which keeps its meaning.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_kept = |c: char| c == '\n' || c == '\t' || !(c.is_control() || is_format(c));
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_kept(c) {
            escaped.push(c);
        } else if c == '\r' {
            // Only between values, where no escape is allowed.
            escaped.push(' ');
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(escaped)
}

/// Whether the character can be printed unchanged, on one line.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !is_format(c)
}

fn cleaned(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| is_printable(c) || is_kept(c)) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().filter_map(|c| match c {
        '\u{2028}' | '\u{2029}' => Some(' '),
        _ if is_kept(c) || is_printable(c) => Some(c),
        _ if c.is_control() => Some(' '),
        _ => None,
    });
    Cow::Owned(shown.collect())
}

/// Characters that reorder their surroundings or are invisible.
pub(super) fn is_format(c: char) -> bool {
    matches!(
        c,
        // Soft hyphen, combining grapheme joiner.
        '\u{ad}' | '\u{34f}'
        // Bidi: marks, embeddings, overrides, isolates; with them the line ends.
        | '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Spaces without width, invisible operators, deprecated format characters.
        | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
        // Letters without a glyph.
        | '\u{3164}' | '\u{ffa0}'
        // Annotations, tags.
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Quotes a word for the shell if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+,".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How long ago something was, such as `5s ago`; `now` below three seconds.
pub fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..3 => "now".to_owned(),
        seconds => format!("{} ago", duration(Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shell_word_quotes_where_needed() {
        assert_eq!(shell_word("春节-2026"), "春节-2026");
        assert_eq!(shell_word("it's on"), r"'it'\''s on'");
        assert_eq!(shell_word("$(rm)"), "'$(rm)'");
    }

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(printable("A\u{1b}]0;OWNED\u{7}\r\u{9b}31m\u{7f}B"), "A ]0;OWNED   31m B");
        assert_eq!(printable("two\n\tlines"), "two\n\tlines");
        assert_eq!(printable_line("two\n\tlines"), "two  lines");
        assert_eq!(printable("a\u{2028}b"), "a b");
    }

    #[test]
    fn format_characters_are_removed() {
        assert_eq!(printable("to\u{202e}4321\u{202c}+"), "to4321+");
        assert_eq!(printable("\u{2067}\u{200f}\u{61c}x\u{200b}\u{feff}\u{3164}"), "x");
        assert_eq!(printable("x\u{e0041}\u{e007f}"), "x");
    }

    #[test]
    fn ordinary_text_is_kept() {
        for text in ["Zoë 北京 مرحبا", "می\u{200c}خواهم", "👩\u{200d}👧 ❤\u{fe0f}"]
        {
            assert!(matches!(printable_line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn json_is_escaped_and_keeps_its_value() {
        let value = serde_json::json!({ "a": "x\u{9b}\u{202e}\u{e0041}\n\u{1b}y" });
        let json = format!("{value:#}");
        let escaped = printable_json(&json);
        assert!(escaped.contains(r"\u009b\u202e\udb40\udc41\n\u001by"), "{escaped}");
        let read: serde_json::Value = serde_json::from_str(&escaped).expect("json");
        assert_eq!(read, value);
        assert_eq!(printable_json("{\r\n\"a\":1}\r"), "{ \n\"a\":1} ");
    }

    #[test]
    fn counts_have_separators_and_plurals() {
        assert_eq!(messages(0), "0 messages");
        assert_eq!(messages(1), "1 message");
        assert_eq!(counted(1_234_567, "row"), "1,234,567 rows");
    }

    #[test]
    fn durations_are_rounded_for_reading() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (4_142, "4.1 s"),
            (59_999, "60 s"),
            (125_700, "2m 5s"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn listed_names_are_quoted_printable_and_cut() {
        assert_eq!(listed(["a", "b\u{1b}c"]), "`a`, `b c`");
        let long = "x".repeat(100);
        assert_eq!(listed([long.as_str()]), format!("`{}…`", &long[..80]));
    }

    proptest! {
        #[test]
        fn cleaning_twice_changes_nothing(text in any::<String>()) {
            let line = printable_line(&text).into_owned();
            prop_assert!(line.chars().all(is_printable));
            prop_assert!(matches!(printable(&line), Cow::Borrowed(_)));
        }
    }
}
