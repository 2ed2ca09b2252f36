//! Parses what people and spreadsheets write into E.164: removes everything that is not dialled and repairs a number
//! where the result is certain.

use super::numbering::{canonical, is_number};
use super::{PhoneError, Region, mask};
use crate::text::printable_line;

/// Numbers with fewer digits cannot receive messages in any country.
const SHORTEST: usize = 6;
/// A country code, a national number and a prefix such as `00` or `011`.
const LONGEST: usize = 20;

pub(super) fn parse(raw: &str, region: Option<Region>) -> Result<String, PhoneError> {
    let dialled = dialled(raw)?;
    let digits = without_plus(&dialled);
    if digits.len() < SHORTEST {
        return Err(PhoneError::Invalid(shown(raw), "it is too short"));
    }
    if digits.len() > LONGEST {
        return Err(PhoneError::Invalid(shown(raw), "it is too long"));
    }
    let found = if dialled.starts_with('+') {
        // Also drops a national prefix after the code: `+44 (0)7400 123456`.
        canonical(&dialled, None)
    } else {
        let region = region.ok_or_else(|| PhoneError::NoRegion(shown(raw)))?;
        national(raw, digits, region)?
    };
    found
        .map(|digits| format!("+{digits}"))
        .ok_or_else(|| PhoneError::Invalid(shown(raw), "no numbering plan has it"))
}

/// Parses a number as dialled inside `region`, or an international one without its `+`. Fails if it can be both.
fn national(raw: &str, digits: &str, region: Region) -> Result<Option<String>, PhoneError> {
    let Some(code) = region.calling_code().map(|code| code.to_string()) else {
        return Ok(None);
    };
    let whole = (digits.starts_with(&code) && is_number(digits)).then(|| digits.to_owned());
    let local = format!("{code}{digits}");
    let local = if is_number(&local) {
        Some(local)
    } else {
        canonical(digits, Some(region))
    };
    match (whole, local) {
        (Some(whole), Some(local)) if whole != local => Err(PhoneError::Ambiguous(shown(raw))),
        (whole, local) => Ok(whole.or(local)),
    }
}

/// The raw text for an error: shortened, and masked if it may be a number.
fn shown(raw: &str) -> String {
    let printable = printable_line(raw);
    let text = printable.trim();
    if text.chars().count() <= 6 {
        return text.to_owned();
    }
    mask(&text.chars().take(20).collect::<String>())
}

/// Returns the digits of a number as it would be dialled, after `+` if they begin with a country code.
fn dialled(raw: &str) -> Result<String, PhoneError> {
    let text = strip_decoration(raw);
    if text.is_empty() {
        return Err(PhoneError::Empty);
    }
    if is_scientific(text) {
        // A short mantissa does not identify a number and needs no mask.
        let shown = match text.len() {
            0..=10 => text.to_owned(),
            _ => shown(raw),
        };
        return Err(PhoneError::Scientific(shown));
    }
    let mut digits = String::with_capacity(text.len());
    let mut plus = false;
    for character in without_decimals(without_extension(text)).chars() {
        match character {
            '+' | '\u{ff0b}' if digits.is_empty() && !plus => plus = true,
            '/' if digits.len() > longest_area(plus, &digits) => {
                return Err(PhoneError::Several(shown(raw)));
            }
            ',' | ';' | '、' | '，' | '；' | '|' if digits.len() >= SHORTEST => {
                return Err(PhoneError::Several(shown(raw)));
            }
            _ if is_separator(character) => {}
            _ => match digit(character) {
                Some(digit) => digits.push(digit),
                None => return Err(PhoneError::NotANumber(shown(raw))),
            },
        }
    }
    if digits.is_empty() {
        return Err(PhoneError::NotANumber(shown(raw)));
    }
    let international = digits
        .strip_prefix("00")
        .or(plus.then_some(digits.as_str()));
    Ok(international.map_or(digits.clone(), |digits| format!("+{digits}")))
}

/// Strips what spreadsheets and address books put around a number.
fn strip_decoration(raw: &str) -> &str {
    let text = raw.trim_matches(|c: char| c.is_whitespace() || is_invisible(c));
    let text = text.strip_prefix(['\'', '\u{2019}', '`']).unwrap_or(text);
    let scheme = text
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("tel:"));
    let text = if scheme { &text[4..] } else { text };
    text.trim_matches(|c: char| c.is_whitespace() || is_invisible(c))
}

/// Words before an extension, in lower case.
const EXTENSION: [&str; 9] = [
    "extension",
    "extn",
    "ext",
    "durchwahl",
    "x",
    "доб",
    "分机",
    "分機",
    "转",
];

/// Strips an extension such as ` ext. 12`, which text messages do not use. Text that is too short to be a number
/// without it, such as `138x1234`, is kept.
fn without_extension(text: &str) -> &str {
    let number = text.trim_end_matches(|c: char| c.is_ascii_digit());
    if !(1..=6).contains(&(text.len() - number.len())) {
        return text;
    }
    let number = number.trim_end_matches([' ', '.', ':', '=']);
    let lower = number.to_lowercase();
    let Some(word) = EXTENSION.iter().find(|word| lower.ends_with(**word)) else {
        return text;
    };
    let end = number.len().checked_sub(word.len());
    let before = end.and_then(|end| number.get(..end)).unwrap_or(text);
    let before = before.trim_end_matches([' ', ';', ',', '-', '(']);
    if before.chars().filter_map(digit).count() >= SHORTEST {
        before
    } else {
        text
    }
}

/// The most digits before a `/` that ends an area code: `0151/…`, `+49 (0)1512/…`.
fn longest_area(plus: bool, digits: &str) -> usize {
    if plus || digits.starts_with("00") {
        9
    } else {
        6
    }
}

/// Strips the decimals of `13800138000.0`, a number from a column of decimals.
fn without_decimals(text: &str) -> &str {
    match text.split_once('.') {
        Some((whole, "0" | "00")) if whole.len() > SHORTEST && is_digits(without_plus(whole)) => {
            whole
        }
        _ => text,
    }
}

/// Whether the text is like `1.38E+10`, also with a decimal comma.
fn is_scientific(text: &str) -> bool {
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else {
        return false;
    };
    let mut parts = without_plus(mantissa).split(['.', ',']);
    is_digits(without_plus(exponent)) && parts.all(is_digits)
}

fn without_plus(text: &str) -> &str {
    text.strip_prefix('+').unwrap_or(text)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{ad}')
}

fn is_separator(character: char) -> bool {
    const PUNCTUATION: &str = "-./()[]·\u{2010}\u{2011}‒–—―−ー（）－．";
    character.is_whitespace() || is_invisible(character) || PUNCTUATION.contains(character)
}

/// A decimal digit in ASCII, full-width, Arabic-Indic or Devanagari.
fn digit(character: char) -> Option<char> {
    let zero = match character {
        '0'..='9' => '0',
        '\u{ff10}'..='\u{ff19}' => '\u{ff10}',
        '\u{660}'..='\u{669}' => '\u{660}',
        '\u{6f0}'..='\u{6f9}' => '\u{6f0}',
        '\u{966}'..='\u{96f}' => '\u{966}',
        _ => return None,
    };
    char::from_digit(u32::from(character) - u32::from(zero), 10)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
