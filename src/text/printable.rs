//! Text that others wrote, made safe to show: without the characters that steer a terminal, reorder a
//! line, or cannot be seen.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text without control, bidi and invisible format characters; line ends and tabs stay.
///
/// A control character becomes a space, a format character disappears. The joiners that Persian and
/// emoji need stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    cleaned(text, |c| c == '\n' || c == '\t')
}

/// The same on one line: line ends and tabs become spaces too.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    cleaned(text, |_| false)
}

/// JSON with `\u` escapes for the characters that [`printable`] takes out, so that it stays exact and
/// is safe to show. `json` must be valid: outside its strings there are no such characters.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_kept = |c: char| c == '\n' || c == '\t' || !(c.is_control() || is_format(c));
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_kept(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(escaped)
}

/// Whether the character can be shown as it is, on one line.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !is_format(c)
}

fn cleaned(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| is_printable(c) || is_kept(c)) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().filter_map(|c| match c {
        _ if is_kept(c) => Some(c),
        _ if c.is_control() || is_line_end(c) => Some(' '),
        _ if is_format(c) => None,
        _ => Some(c),
    });
    Cow::Owned(shown.collect())
}

/// Unicode's own line and paragraph ends.
fn is_line_end(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

/// Characters that reorder what is around them or take no room.
fn is_format(c: char) -> bool {
    matches!(
        c,
        // Soft hyphen, combining grapheme joiner.
        '\u{ad}' | '\u{34f}'
        // Bidi: marks, embeddings, overrides, isolates; with them the line ends.
        | '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Spaces without width, invisible operators, deprecated format characters.
        | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
        // Letters that are drawn as nothing.
        | '\u{3164}' | '\u{ffa0}'
        // Annotations, tags.
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(
            printable("A\u{1b}]0;OWNED\u{7}\r\u{9b}31m\u{7f}B"),
            "A ]0;OWNED   31m B"
        );
        assert_eq!(printable("two\n\tlines"), "two\n\tlines");
        assert_eq!(printable_line("two\n\tlines"), "two  lines");
        assert_eq!(printable("a\u{2028}b"), "a b");
    }

    #[test]
    fn characters_that_reorder_or_hide_text_disappear() {
        assert_eq!(printable("to\u{202e}4321\u{202c}+"), "to4321+");
        assert_eq!(
            printable("\u{2067}\u{200f}\u{61c}x\u{200b}\u{feff}\u{3164}"),
            "x"
        );
        assert_eq!(printable("x\u{e0041}\u{e007f}"), "x");
    }

    #[test]
    fn text_that_people_write_is_kept_as_it_is() {
        for text in [
            "Zoë 北京 مرحبا",
            "می\u{200c}خواهم",
            "👩\u{200d}👧 ❤\u{fe0f}",
        ] {
            assert!(matches!(printable_line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn json_is_escaped_and_stays_exact() {
        let value = serde_json::json!({ "a": "x\u{9b}\u{202e}\u{e0041}\n\u{1b}y" });
        let json = format!("{value:#}");
        let escaped = printable_json(&json);
        assert!(
            escaped.contains(r"\u009b\u202e\udb40\udc41\n\u001by"),
            "{escaped}"
        );
        let read: serde_json::Value = serde_json::from_str(&escaped).expect("json");
        assert_eq!(read, value);
    }

    proptest! {
        #[test]
        fn cleaned_text_holds_nothing_to_clean(text in any::<String>()) {
            let line = printable_line(&text).into_owned();
            prop_assert!(line.chars().all(is_printable));
            prop_assert!(matches!(printable(&line), Cow::Borrowed(_)));
        }
    }
}
