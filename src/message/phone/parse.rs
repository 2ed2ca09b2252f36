//! Parses what people and spreadsheets write into E.164: removes everything that is not dialled and repairs a number
//! where the result is certain.

use std::collections::HashMap;

use super::numbering::ValidNumber;
use super::{Dialling, Numbers, PhoneError, Region, mask};
use crate::text::printable_line;

/// Numbers with fewer digits cannot receive messages in any country.
const SHORTEST: usize = 6;
/// A country code, a national number and a prefix such as `00` or `011`.
const LONGEST: usize = 20;

pub(super) fn parse(raw: &str, dialling: Dialling) -> Result<String, PhoneError> {
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
        let found = ValidNumber::canonical(&dialled, None);
        found.ok_or_else(|| PhoneError::Invalid(shown(raw), "not assigned in any numbering plan"))
    } else {
        read_without_plus(raw, digits, dialling)
    };
    let found = found?;
    if !found.is_in(dialling.countries) {
        return Err(PhoneError::Excluded(shown(raw), found.country()));
    }
    Ok(format!("+{}", found.digits))
}

/// Reads a number as dialled inside the region, or as an international one without its `+`. Fails if it can be both.
fn read_without_plus(
    raw: &str,
    digits: &str,
    dialling: Dialling,
) -> Result<ValidNumber, PhoneError> {
    let international = ValidNumber::of(digits);
    if dialling.numbers == Numbers::International {
        // No country code begins with 0, so such a number is a national one.
        let national = || national(digits, dialling.region.filter(|_| digits.starts_with('0'))?);
        return international
            .or_else(national)
            .ok_or_else(|| PhoneError::NoCountryCode(shown(raw)));
    }
    let Some(region) = dialling.region else {
        return Err(PhoneError::NoRegion(shown(raw)));
    };
    match Readings::of(digits, international, region) {
        Readings::None => Err(PhoneError::Unassigned(shown(raw), region.to_string())),
        Readings::Certain(number) => Ok(number),
        Readings::Mobiles { national, .. } if dialling.numbers == Numbers::National => Ok(national),
        Readings::Mobiles { other, .. } => {
            Err(PhoneError::AmbiguousMobile(shown(raw), region.to_string(), other.country()))
        }
        Readings::Uncertain { other } => {
            Err(PhoneError::Ambiguous(shown(raw), region.to_string(), other.country()))
        }
        Readings::Abroad(other) => Err(PhoneError::OtherCountry(shown(raw), other.country())),
    }
}

/// What a number without `+` can be.
enum Readings {
    None,
    /// One number: there is no other reading, or it is a mobile and the other is not.
    Certain(ValidNumber),
    /// A mobile of the region, or one of another country with its code.
    Mobiles {
        national: ValidNumber,
        other: ValidNumber,
    },
    /// A number of the region, or `other`, and the kinds of number do not say which.
    Uncertain {
        other: ValidNumber,
    },
    /// Only a number of another country with its code.
    Abroad(ValidNumber),
}

impl Readings {
    fn of(digits: &str, international: Option<ValidNumber>, region: Region) -> Self {
        match (national(digits, region), international) {
            (None, None) => Self::None,
            (Some(national), None) => Self::Certain(national),
            (Some(national), Some(other)) if national.digits == other.digits => {
                Self::Certain(national)
            }
            (None, Some(other)) if other.is_of(region) => Self::Certain(other),
            (None, Some(other)) => Self::Abroad(other),
            (Some(national), Some(other)) => {
                match (national.may_be_mobile(), other.may_be_mobile()) {
                    (true, false) => Self::Certain(national),
                    (false, true) if other.is_of(region) => Self::Certain(other),
                    (true, true) if !other.is_of(region) => Self::Mobiles { national, other },
                    _ => Self::Uncertain { other },
                }
            }
        }
    }
}

fn national(digits: &str, region: Region) -> Option<ValidNumber> {
    let code = region.calling_code()?;
    ValidNumber::of(&format!("{code}{digits}"))
        .or_else(|| ValidNumber::canonical(digits, Some(region)))
}

/// Counts how the numbers of a list without `+` can be read, to decide what those are that can be mobiles of two
/// countries. The numbers of a list are written alike.
#[derive(Debug)]
pub struct NumberSurvey {
    region: Region,
    national: u64,
    uncertain: u64,
    /// Those that can only be national, by their first digits: one to four.
    national_by_start: HashMap<String, u64>,
    /// Those that can be mobiles of another country, by [`ValidNumber::start`].
    mobiles_by_start: HashMap<String, u64>,
    has_others: bool,
}

/// A list is national if it has at least one number that can only be national to this many that can also be mobiles of
/// another country, among the numbers that begin alike. Of Chinese mobiles, which all begin with the calling code of
/// North America, one half can only be national; of mobiles of the other country, none.
const SHOWN_NATIONAL: u64 = 3;

impl NumberSurvey {
    pub fn new(region: Region) -> Self {
        Self {
            region,
            national: 0,
            uncertain: 0,
            national_by_start: HashMap::new(),
            mobiles_by_start: HashMap::new(),
            has_others: false,
        }
    }

    /// Adds a number of the list. Returns whether more numbers can change the result.
    pub fn add(&mut self, raw: &str) -> bool {
        // A number with `+` or a trunk prefix does not say how those without are meant.
        if let Ok(digits) = dialled(raw)
            && !digits.starts_with(['+', '0'])
            && (SHORTEST..=LONGEST).contains(&digits.len())
        {
            match Readings::of(&digits, ValidNumber::of(&digits), self.region) {
                Readings::None => {}
                Readings::Certain(number) if number.digits == digits => {}
                Readings::Certain(_) => {
                    self.national += 1;
                    for start in (1..=4).filter_map(|length| digits.get(..length)) {
                        count(&mut self.national_by_start, start);
                    }
                }
                Readings::Mobiles { other, .. } => {
                    self.uncertain += 1;
                    count(&mut self.mobiles_by_start, &digits[..other.start()]);
                }
                Readings::Uncertain { .. } => self.uncertain += 1,
                Readings::Abroad(_) => self.has_others = true,
            }
        }
        !self.has_others
    }

    /// Whether the list has no number that only another country has, most of its numbers can only be national, and
    /// some of those begin like each group of mobiles of another country.
    pub fn is_national(&self) -> bool {
        let is_shown = |(start, mobiles): (&String, &u64)| {
            let national = self.national_by_start.get(start).copied().unwrap_or(0);
            national.saturating_mul(SHOWN_NATIONAL) >= *mobiles
        };
        !self.has_others
            && self.national > 0
            && self.national >= self.uncertain
            && self.mobiles_by_start.iter().all(is_shown)
    }
}

fn count(counts: &mut HashMap<String, u64>, start: &str) {
    match counts.get_mut(start) {
        Some(count) => *count += 1,
        None => drop(counts.insert(start.to_owned(), 1)),
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
    if is_date(text) {
        return Err(PhoneError::NotANumber(shown(raw)));
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
    let international = digits.strip_prefix("00").or(plus.then_some(digits.as_str()));
    Ok(international.map_or(digits.clone(), |digits| format!("+{digits}")))
}

/// Strips what spreadsheets and address books put around a number.
fn strip_decoration(raw: &str) -> &str {
    let text = raw.trim_matches(|c: char| c.is_whitespace() || is_invisible(c));
    let text = text.strip_prefix(['\'', '\u{2019}', '`']).unwrap_or(text);
    let scheme = text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("tel:"));
    let text = if scheme { &text[4..] } else { text };
    text.trim_matches(|c: char| c.is_whitespace() || is_invisible(c))
}

/// Words before an extension, in lower case.
const EXTENSION: [&str; 9] =
    ["extension", "extn", "ext", "durchwahl", "x", "доб", "分机", "分機", "转"];

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
    if before.chars().filter_map(digit).count() >= SHORTEST { before } else { text }
}

/// The most digits before a `/` that ends an area code: `0151/…`, `+49 (0)1512/…`.
fn longest_area(plus: bool, digits: &str) -> usize {
    if plus || digits.starts_with("00") { 9 } else { 6 }
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

/// Whether the text is a date as spreadsheets store it, such as `2020-01-31`, with or without a time.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut number = |digits: usize| -> Option<u32> {
        let part = parts.next().filter(|part| is_digits(part.get(..digits).unwrap_or_default()))?;
        let (number, rest) = part.split_at(digits);
        (rest.is_empty() || rest.starts_with([' ', 'T'])).then(|| number.parse().ok())?
    };
    matches!((number(4), number(2), number(2)), (Some(1900..=2099), Some(1..=12), Some(1..=31)))
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
