//! Replaces typographic quotes, dashes and spaces, which double the price of a text, with plain characters that read
//! the same. Letters are never replaced, because that would change the text.

use std::borrow::Cow;

use super::content::LONGEST;
use super::segments::{self, Alphabet};

/// The plain form of a typographic character.
pub fn plain(character: char) -> Option<&'static str> {
    Some(match character {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' | '\u{2039}'
        | '\u{203a}' | '\u{b4}' | '`' => "'",
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => {
            "\""
        }
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2043}' | '\u{2022}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\t' => " ",
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => "",
        '\u{2028}' | '\u{2029}' => "\n",
        '\u{d7}' => "x",
        _ => return None,
    })
}

/// Replaces typographic characters where that makes the text GSM-7 and not longer; else returns it unchanged.
pub fn cheaper(text: &str) -> Cow<'_, str> {
    let mut outside = segments::outside_gsm7(text).peekable();
    if outside.peek().is_none() || !outside.all(|character| plain(character).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut cheaper = String::with_capacity(text.len());
    for character in text.chars() {
        match plain(character) {
            Some(plain) => cheaper.push_str(plain),
            None => cheaper.push(character),
        }
    }
    let (before, after) = (segments::count(text), segments::count(&cheaper));
    let is_longer = || cheaper.chars().count() > LONGEST.max(text.chars().count());
    if after.alphabet == Alphabet::Gsm7
        && after.count <= before.count
        && !cheaper.trim().is_empty()
        && !is_longer()
    {
        Cow::Owned(cheaper)
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn typographic_characters_become_plain() {
        assert_eq!(cheaper("“Sale” – it’s\u{a0}on…"), "\"Sale\" - it's on...");
        assert_eq!(cheaper("a\u{200b}b\u{2009}c•"), "ab c-");
    }

    #[test]
    fn text_does_not_become_too_long() {
        let text = format!("{}…", "x".repeat(LONGEST - 1));
        assert_eq!(cheaper(&text), text);
        let text = format!("{}…", "x".repeat(LONGEST - 3));
        assert_eq!(cheaper(&text).chars().count(), LONGEST);
    }

    #[test]
    fn text_that_stays_ucs2_is_unchanged() {
        for text in ["“Zoë” – ça va", "“你好”", "plain 'quotes'", "😀 – x", "ő’s", "\u{a0}"]
        {
            assert_eq!(cheaper(text), text, "{text}");
        }
    }

    #[test]
    fn letters_and_digits_have_no_plain_form() {
        let letters = (0..=0x0010_ffff)
            .filter_map(char::from_u32)
            .filter(|character| character.is_alphanumeric());
        let replaced: Vec<char> = letters.filter(|&letter| plain(letter).is_some()).collect();
        assert_eq!(replaced, Vec::<char>::new());
    }

    proptest! {
        #[test]
        fn cheaper_text_never_has_more_segments(text in "[a€“”’–… \u{a0}你\n]{0,200}") {
            let cheaper_text = cheaper(&text);
            prop_assert!(segments::count(&cheaper_text).count <= segments::count(&text).count);
            prop_assert_eq!(cheaper(&cheaper_text), cheaper_text.as_ref());
        }
    }
}
