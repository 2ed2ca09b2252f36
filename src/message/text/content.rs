//! Checks the text of a message: visible, without control characters, and not too long.

use super::display::is_format;

/// The longest text, in characters: ten GSM-7 segments.
pub const LONGEST: usize = 1530;

/// Why a text cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("the text is empty")]
    Empty,
    #[error("the text has only spaces and invisible characters")]
    Blank,
    #[error("the text has the control character U+{:04X}", u32::from(*.0))]
    Control(char),
    #[error("the text is too long: {0} characters of at most {LONGEST}")]
    TooLong(usize),
}

/// Checks the text of a flag, a template or a row.
pub fn check(text: &str) -> Result<(), ContentError> {
    check_characters(text)?;
    match text.chars().count() {
        length if length > LONGEST => Err(ContentError::TooLong(length)),
        _ => Ok(()),
    }
}

/// Like [`check`] without the limit on the length, for messages that other programs inserted.
pub fn check_characters(text: &str) -> Result<(), ContentError> {
    if let Some(control) = control(text) {
        return Err(ContentError::Control(control));
    }
    if text.trim().is_empty() {
        return Err(ContentError::Empty);
    }
    if text.chars().all(is_invisible) {
        return Err(ContentError::Blank);
    }
    Ok(())
}

/// The first control character that is not a line end or a tab.
pub fn control(text: &str) -> Option<char> {
    let is_control = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    text.chars().find(is_control)
}

/// Whether the character is a space, a format character or a letter without a glyph.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || is_format(c)
        || matches!(
            c,
            '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180d}' | '\u{180f}'
            | '\u{200c}' | '\u{200d}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0080}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_text_passes() {
        for text in ["Hi", "a\nb\r\n\tc", "👩\u{200d}👧", "می\u{200c}خواهم", "."] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert_eq!(check(&"é".repeat(LONGEST)), Ok(()));
    }

    #[test]
    fn invisible_and_long_texts_are_rejected() {
        for (text, error) in [
            ("", ContentError::Empty),
            (" \n\t\u{a0}", ContentError::Empty),
            ("\u{200b}\u{feff} \u{2060}", ContentError::Blank),
            ("\u{2800}\u{3164}", ContentError::Blank),
            ("a\0b", ContentError::Control('\0')),
            ("a\u{1b}[2J", ContentError::Control('\u{1b}')),
            ("a\u{9b}", ContentError::Control('\u{9b}')),
        ] {
            assert_eq!(check(text), Err(error), "{text:?}");
        }
        let long = "é".repeat(LONGEST + 1);
        assert_eq!(check(&long), Err(ContentError::TooLong(LONGEST + 1)));
        assert_eq!(check_characters(&long), Ok(()));
    }
}
