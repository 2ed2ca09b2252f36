//! Phone numbers in E.164: parsed from what people write, repaired where the result is certain, masked when printed.

mod numbering;
mod parse;

use std::fmt;
use std::str::FromStr;

pub use numbering::{country, non_mobile_kind, regions, shared_calling_codes};
pub use parse::NumberSurvey;

use rlibphonenumber::PHONE_NUMBER_UTIL;
use serde::{Deserialize, Deserializer};

/// A phone number in E.164 with `+`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phone(String);

impl Phone {
    /// Parses what people and spreadsheets write. The result of [`Phone::as_str`] parses to the same phone with
    /// every `dialling`.
    pub fn parse(raw: &str, dialling: impl Into<Dialling>) -> Result<Self, PhoneError> {
        parse::parse(raw, dialling.into()).map(Self)
    }

    /// A phone that was parsed before it was stored: only its form is checked, not its numbering plan.
    pub fn stored(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('+')?;
        let is_e164 = (5..=15).contains(&digits.len())
            && !digits.starts_with('0')
            && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_e164.then(|| Self(text.to_owned()))
    }

    /// E.164 with `+`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// E.164 without `+`.
    pub fn digits(&self) -> &str {
        &self.0[1..]
    }

    /// E.164 with `+`.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// The last digits that all forms of a number have in common: what differs is before them, such as a country code, a
/// `0`, or the `9` and `15` of mobiles in Argentina and Brazil.
const COMMON_DIGITS: usize = 7;

/// Whether a provider that writes `written` may mean this phone in E.164: as an international or national number, or with
/// some of its digits hidden. A text without digits may mean any phone.
pub fn may_be_written_as(phone: &str, written: &str) -> bool {
    let is_separator = |c: char| c.is_whitespace() || "+-./()".contains(c);
    let kept: String = written.chars().filter(|c| !is_separator(*c)).collect();
    // What is after the last digit that is hidden.
    let hidden = kept.rfind(|c: char| !c.is_ascii_digit());
    let visible = hidden
        .map_or(kept.as_str(), |at| kept[at..].trim_start_matches(|c: char| !c.is_ascii_digit()));
    let visible = visible.trim_start_matches('0');
    let common = visible.len().checked_sub(COMMON_DIGITS);
    phone.ends_with(visible) || common.is_some_and(|from| phone.ends_with(&visible[from..]))
}

impl fmt::Debug for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

impl fmt::Display for Phone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

/// Hides the middle of a phone number, at least four characters: `+86138****5678`.
pub fn mask(phone: &str) -> String {
    let characters: Vec<char> = phone.chars().collect();
    let length = characters.len();
    let (head, tail) = match length {
        0..=4 => (0, 0),
        5..=9 => (2.min(length - 4), 0),
        _ => (6.min(length - 8), 4),
    };
    let mut masked: String = characters[..head].iter().collect();
    masked.push_str("****");
    masked.extend(&characters[length - tail..]);
    masked
}

/// How numbers are read that do not begin with `+` or `00`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialling {
    /// The country of numbers without a country code.
    pub region: Option<Region>,
    pub numbers: Numbers,
    /// Numbers of other countries are errors.
    pub countries: Countries,
}

impl Dialling {
    /// For entries that arrive one at a time: there is no list that shows how the numbers are written.
    #[must_use]
    pub fn of_single(self) -> Self {
        let numbers = match self.numbers {
            Numbers::Detect => Numbers::National,
            other => other,
        };
        Self { numbers, ..self }
    }
}

/// A single number, as in a command or a posted message, is national.
impl From<Option<Region>> for Dialling {
    fn from(region: Option<Region>) -> Self {
        Self { region, numbers: Numbers::National, countries: Countries::default() }
    }
}

/// The countries whose numbers get messages; empty: all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Countries([u64; 11]);

impl Countries {
    /// The word of 64 codes, and the bit in it; `None` for what is not a country, such as satellite phones.
    fn place(region: Region) -> Option<(usize, u64)> {
        let code = region.to_string();
        let letter = |byte: u8| byte.is_ascii_uppercase().then(|| usize::from(byte - b'A'));
        let [first, second] = code.as_bytes() else {
            return None;
        };
        let number = letter(*first)? * 26 + letter(*second)?;
        Some((number / 64, 1 << (number % 64)))
    }

    fn add(&mut self, region: Region) {
        if let Some((word, bit)) = Self::place(region) {
            self.0[word] |= bit;
        }
    }

    /// Whether numbers of this country get messages.
    fn include(self, region: Region) -> bool {
        let place = Self::place(region);
        self == Self::default() || place.is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }
}

impl<'de> Deserialize<'de> for Countries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut countries = Self::default();
        for region in Vec::<Region>::deserialize(deserializer)? {
            countries.add(region);
        }
        Ok(countries)
    }
}

/// What the numbers of a list are that do not begin with `+` or `00`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// National, or with the code of the region, where that is certain.
    #[default]
    Detect,
    /// As `Detect`, and a number that can be a mobile of the region and of another country is of the region.
    National,
    /// They begin with a country code.
    International,
}

/// A country or territory with a numbering plan, as an ISO 3166 alpha-2 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(rlibphonenumber::Region);

impl Region {
    /// The country calling code: 86 for `CN`.
    fn calling_code(self) -> Option<i32> {
        PHONE_NUMBER_UTIL.get_country_code_for_region(self.0)
    }
}

impl FromStr for Region {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let region = word.trim().parse::<rlibphonenumber::Region>().ok();
        region
            .filter(|region| *region != rlibphonenumber::Region::World)
            .map(Self)
            .filter(|region| region.calling_code().is_some())
            .ok_or_else(|| {
                format!(
                    "invalid region `{word}`: use a two-letter country code such as `CN`, `US` or `GB`"
                )
            })
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text is not a phone number. Numbers in it are masked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    #[error("the phone is empty")]
    Empty,
    #[error("`{0}` is not a phone number")]
    NotANumber(String),
    #[error(
        "`{0}` is a number in scientific notation, its last digits may be lost: \
         format the column as text where the file came from, and export it again"
    )]
    Scientific(String),
    #[error("`{0}` seems to contain more than one number: keep one")]
    Several(String),
    #[error(
        "`{0}` has no `+`: write it with `+` and its country code, name its country with `--region`, or use \
         `--international` if the numbers begin with a country code"
    )]
    NoRegion(String),
    #[error("`{0}` is not a valid phone number: {1}")]
    Invalid(String, &'static str),
    /// Also the country of the national reading.
    #[error(
        "`{0}` is not a valid phone number: neither a number of {1} nor one with a country code"
    )]
    Unassigned(String, String),
    /// Also the country of the national reading, and of the one with a country code.
    #[error(
        "`{0}` can be a mobile of {1}, or one of {2} without its `+`: write it with `+`, or say what the numbers \
         of the list are with `--national` or `--international`"
    )]
    AmbiguousMobile(String, String, String),
    #[error(
        "`{0}` can be a number of {1}, or one of {2} without its `+`: write it with `+`, or use `--international` \
         if the numbers of the list begin with a country code"
    )]
    Ambiguous(String, String, String),
    /// Also the country.
    #[error(
        "`{0}` can be a number of {1} without its `+`: write it with `+`, or use `--international` if the numbers \
         of the list begin with a country code"
    )]
    OtherCountry(String, String),
    #[error("`{0}` does not begin with the country code of a valid number")]
    NoCountryCode(String),
    /// Also the country.
    #[error("`{0}` is a number of {1}, which is not one of `limits.countries`")]
    Excluded(String, String),
}

impl PhoneError {
    /// For readers without a command line, which has more options.
    pub fn plain(&self) -> String {
        match self {
            Self::NoRegion(phone) => {
                format!("`{phone}` has no `+`: write it with `+` and its country code")
            }
            Self::AmbiguousMobile(phone, national, other)
            | Self::Ambiguous(phone, national, other) => format!(
                "`{phone}` can be a number of {national}, or one of {other} without its `+`: write it with `+` \
                 and its country code"
            ),
            Self::OtherCountry(phone, country) => format!(
                "`{phone}` can be a number of {country} without its `+`: write it with `+` and its country code"
            ),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phone_may_be_written_in_national_form_or_masked() {
        for (phone, written) in [
            ("+447400123456", "+447400123456"),
            ("+447400123456", "00447400123456"),
            ("+447400123456", "07400 123-456"),
            ("+447400123456", "+44 (0)7400 123456"),
            ("+447400123456", "tel:+447400123456"),
            ("+447400123456", "4474******56"),
            ("+447400123456", "***"),
            ("+447400123456", ""),
            ("+5491123456789", "011 15 2345-6789"),
            ("+5215512345678", "5512345678"),
        ] {
            assert!(may_be_written_as(phone, written), "{phone} {written}");
        }
        for written in ["+447400123457", "7400123457", "4474******57", "+33612345678"] {
            assert!(!may_be_written_as("+447400123456", written), "{written}");
        }
    }

    #[test]
    fn plain_errors_name_no_options() {
        let text = || "`1`".to_owned();
        for error in [
            PhoneError::NoRegion(text()),
            PhoneError::AmbiguousMobile(text(), text(), text()),
            PhoneError::Ambiguous(text(), text(), text()),
            PhoneError::OtherCountry(text(), text()),
            PhoneError::NoCountryCode(text()),
            PhoneError::Several(text()),
        ] {
            assert!(!error.plain().contains("--"), "{}", error.plain());
        }
    }

    #[test]
    fn mask_hides_at_least_four_characters() {
        assert_eq!(mask("+8613812345678"), "+86138****5678");
        assert_eq!(mask("+12025550123"), "+120****0123");
        assert_eq!(mask("+4479"), "+****");
        assert_eq!(mask(""), "****");
        assert_eq!(mask("手机号码手机号码手机号码"), "手机号码****手机号码");
        for length in 4..20 {
            let phone = "1".repeat(length);
            let shown = mask(&phone).replace("****", "").len();
            assert!(shown + 4 <= length, "{length}");
        }
    }

    #[test]
    fn region_is_a_two_letter_country_code() {
        assert_eq!("cn".parse::<Region>().map(|region| region.to_string()), Ok("CN".to_owned()));
        assert!("GB".parse::<Region>().is_ok());
        for wrong in ["UK", "China", "86", "", "001"] {
            assert!(wrong.parse::<Region>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn phone_is_printed_masked() {
        let phone = Phone::parse("+8613812345678", None).expect("a canonical number");
        assert_eq!(format!("{phone} {phone:?}"), "+86138****5678 +86138****5678");
        assert_eq!(phone.digits(), "8613812345678");
    }
}

#[cfg(test)]
#[path = "readings_tests.rs"]
mod readings_tests;
