//! Counts the segments that a text is billed as: in septets if every character is in GSM 03.38's default alphabet or
//! extension table, else in UTF-16 code units.

/// The default alphabet outside of ASCII.
const GSM7_LETTERS: &str = "£¥èéùìòÇØøÅåΔΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    Gsm7,
    Ucs2,
}

impl Alphabet {
    /// The units of a message of one segment, and of each part of a longer one.
    const fn sizes(self) -> (usize, usize) {
        match self {
            Self::Gsm7 => (160, 153),
            Self::Ucs2 => (70, 67),
        }
    }
}

/// The size of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// At least 1.
    pub count: i32,
    pub alphabet: Alphabet,
    /// Septets or UTF-16 code units.
    pub units: usize,
}

/// Counts the segments of a text, without national shift tables.
pub fn count(text: &str) -> Segments {
    match outside_gsm7(text).next() {
        None => measure(text, Alphabet::Gsm7, septets_of),
        Some(_) => measure(text, Alphabet::Ucs2, char::len_utf16),
    }
}

/// The characters of a text that are not in GSM 03.38.
pub fn outside_gsm7(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|&character| septets_of(character) == 0)
}

/// Counts the parts; an extension or surrogate pair is never split.
fn measure(text: &str, alphabet: Alphabet, width: fn(char) -> usize) -> Segments {
    let (single, part) = alphabet.sizes();
    let (mut units, mut parts, mut filled) = (0, 1, 0);
    for character in text.chars() {
        let wide = width(character);
        units += wide;
        if filled + wide > part {
            parts += 1;
            filled = 0;
        }
        filled += wide;
    }
    Segments { count: if units > single { parts } else { 1 }, alphabet, units }
}

/// 1 in the default alphabet, 2 in the extension table, 0 in neither.
fn septets_of(character: char) -> usize {
    match character {
        '\n' | '\r' | ' '..='Z' | '_' | 'a'..='z' => 1,
        '\u{c}' | '^' | '{' | '}' | '\\' | '[' | '~' | ']' | '|' | '€' => 2,
        _ if GSM7_LETTERS.contains(character) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> (Alphabet, i32) {
        let segments = count(text);
        (segments.alphabet, segments.count)
    }

    #[test]
    fn segments_match_two_independent_calculators() {
        use Alphabet::{Gsm7, Ucs2};
        let a = |n| "a".repeat(n);
        let middle = |n| "中".repeat(n);
        let digits = |n| "1234567890".repeat(20)[..n].to_owned();
        for (text, alphabet, expected) in [
            (a(160), Gsm7, 1),
            (a(161), Gsm7, 2),
            (a(306), Gsm7, 2),
            (a(307), Gsm7, 3),
            ("€".repeat(80), Gsm7, 1),
            ("€".repeat(81), Gsm7, 2),
            (a(152) + "€" + &a(8), Gsm7, 2),
            (a(152) + "€" + &a(152), Gsm7, 3),
            (middle(70), Ucs2, 1),
            (middle(71), Ucs2, 2),
            (middle(134), Ucs2, 2),
            (middle(135), Ucs2, 3),
            ("😀".repeat(35), Ucs2, 1),
            ("😀".repeat(36), Ucs2, 2),
            (middle(66) + "😀" + &middle(5), Ucs2, 2),
            (middle(66) + "😀" + &middle(66), Ucs2, 3),
            ("ç".repeat(71), Ucs2, 2),
            ("Ç".repeat(160), Gsm7, 1),
            ("\n".repeat(160), Gsm7, 1),
            ("\r\n".repeat(80), Gsm7, 1),
            ("😀".to_owned() + &digits(68), Ucs2, 1),
            ("😀".to_owned() + &digits(69), Ucs2, 2),
            ("😀".to_owned() + &digits(133), Ucs2, 3),
            (String::new(), Gsm7, 1),
        ] {
            assert_eq!(parts(&text), (alphabet, expected), "{text}");
        }
    }

    #[test]
    fn gsm_alphabet_has_127_and_10_characters() {
        let all = (0..=0xffff).filter_map(char::from_u32);
        let widths: Vec<usize> = all.map(septets_of).collect();
        assert_eq!(widths.iter().filter(|&&width| width == 1).count(), 127);
        assert_eq!(widths.iter().filter(|&&width| width == 2).count(), 10);
    }

    #[test]
    fn typographic_characters_are_outside_gsm7() {
        let text = "`tab\there’s — “quoted” á í ó ú ç";
        assert_eq!(outside_gsm7(text).collect::<String>(), "`\t’—“”áíóúç");
    }

    proptest! {
        #[test]
        fn longer_text_never_has_fewer_segments(text in "[a€中😀 ]{0,400}", more in "[a€中😀]") {
            let longer = format!("{text}{more}");
            prop_assert!(count(&text).count <= count(&longer).count);
        }

        #[test]
        fn segments_hold_all_units(text in ".{0,500}") {
            let segments = count(&text);
            let room = match segments.alphabet { Alphabet::Gsm7 => (160, 153), Alphabet::Ucs2 => (70, 67) };
            let capacity = if segments.count == 1 { room.0 } else { room.1 * usize::try_from(segments.count).expect("positive") };
            prop_assert!(segments.units <= capacity);
        }
    }
}
