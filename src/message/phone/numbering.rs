//! The numbering plans of libphonenumber: whether digits are a valid number, of which country and kind. The same
//! rules apply to every country.

use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumber, PhoneNumberFormat, PhoneNumberType};

use super::{Countries, Region};

/// The longest number in E.164, in digits with the country code; some numbering plans allow longer ones.
const LONGEST: usize = 15;

/// A valid number.
pub(super) struct ValidNumber {
    /// E.164 without `+`.
    pub(super) digits: String,
    number: PhoneNumber,
}

impl ValidNumber {
    /// Converts a number to E.164, if that parses to the same number again. `region` is the country of a number
    /// without a country code.
    pub(super) fn canonical(written: &str, region: Option<Region>) -> Option<Self> {
        let valid = Self::read(written, region)?;
        if written.strip_prefix('+') == Some(valid.digits.as_str()) {
            return Some(valid);
        }
        Self::of(&valid.digits)
    }

    /// The number with these digits, the country code first.
    pub(super) fn of(digits: &str) -> Option<Self> {
        Self::read(&format!("+{digits}"), None).filter(|valid| valid.digits == digits)
    }

    fn read(written: &str, region: Option<Region>) -> Option<Self> {
        let number = PHONE_NUMBER_UTIL.parse(written, region.map(|region| region.0)).ok()?;
        if !number.is_valid() {
            return None;
        }
        let e164 = number.format_as(PhoneNumberFormat::E164);
        let digits = e164.trim_start_matches('+').to_owned();
        (digits.len() <= LONGEST).then_some(Self { digits, number })
    }

    /// Whether it may be a mobile; some countries, as those of North America, do not tell mobiles from landlines.
    pub(super) fn may_be_mobile(&self) -> bool {
        matches!(
            self.number.get_type(),
            PhoneNumberType::Mobile | PhoneNumberType::FixedLineOrMobile
        )
    }

    /// How many first digits show that a list has mobiles of the other country: the calling code and one more, or only
    /// a code of one digit, which many countries or a very large one have.
    pub(super) fn start(&self) -> usize {
        match self.number.country_code {
            ..10 => 1,
            10..100 => 3,
            _ => 4,
        }
    }

    /// Whether the number has the calling code of `region`.
    pub(super) fn is_of(&self, region: Region) -> bool {
        region.calling_code() == Some(self.number.country_code)
    }

    /// Whether its country is one of these.
    pub(super) fn is_in(&self, countries: Countries) -> bool {
        countries == Countries::default() || {
            let region = self.number.get_region_code();
            region.is_some_and(|region| countries.include(Region(region)))
        }
    }

    /// The country and calling code: `GB +44`.
    pub(super) fn country(&self) -> String {
        country_of(&self.number).unwrap_or_else(|| format!("+{}", self.number.country_code))
    }
}

fn number(phone: &str) -> Option<PhoneNumber> {
    PHONE_NUMBER_UTIL.parse(phone, None).ok()
}

/// The country and calling code of a number in E.164: `GB +44`. For an invalid number, the main country of its
/// calling code.
pub fn country(phone: &str) -> Option<String> {
    country_of(&number(phone)?)
}

fn country_of(number: &PhoneNumber) -> Option<String> {
    let code = number.country_code;
    let region =
        number.get_region_code().or_else(|| PHONE_NUMBER_UTIL.get_region_for_country_code(code))?;
    Some(format!("{region} +{code}"))
}

/// The calling codes of two digits and more that several countries share, such as 44 of `GB` and `JE`.
pub fn shared_calling_codes() -> Vec<i32> {
    let is_shared = |code: &i32| {
        let regions = PHONE_NUMBER_UTIL.get_regions_for_country_calling_code(*code);
        *code > 9 && regions.into_iter().flatten().nth(1).is_some()
    };
    let codes = PHONE_NUMBER_UTIL.get_supported_calling_codes();
    let mut shared: Vec<i32> = codes.filter(is_shared).collect();
    shared.sort_unstable();
    shared.dedup();
    shared
}

/// The countries in which a number (E.164 with `+`) is valid, or all that share its calling code if there are none.
pub fn regions(phone: &str) -> Vec<Region> {
    let Some(number) = number(phone) else {
        return Vec::new();
    };
    let sharing = PHONE_NUMBER_UTIL.get_regions_for_country_calling_code(number.country_code);
    let sharing: Vec<Region> = sharing.into_iter().flatten().map(Region).collect();
    if sharing.len() < 2 {
        return sharing;
    }
    let valid = |region: &Region| number.is_valid_for_region(region.0);
    let valid: Vec<Region> = sharing.iter().copied().filter(valid).collect();
    if valid.is_empty() { sharing } else { valid }
}

/// The kind of a number in E.164 with `+` that seldom receives text messages. `None` for mobiles, and where mobiles
/// and landlines share their prefixes, as in North America.
pub fn non_mobile_kind(phone: &str) -> Option<&'static str> {
    match number(phone)?.get_type() {
        PhoneNumberType::FixedLine => Some("landline"),
        PhoneNumberType::TollFree => Some("toll-free number"),
        PhoneNumberType::PremiumRate => Some("premium-rate number"),
        PhoneNumberType::SharedCost => Some("shared-cost number"),
        PhoneNumberType::Pager => Some("pager"),
        PhoneNumberType::UAN => Some("company number"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn country_is_found_by_number_and_calling_code() {
        for (phone, expected) in [
            ("+447400123456", Some("GB +44")),
            ("+8613800138000", Some("CN +86")),
            ("+12025550123", Some("US +1")),
            ("+14165550123", Some("CA +1")),
            ("+18765550123", Some("JM +1")),
            ("+85291234567", Some("HK +852")),
            ("+999", None),
        ] {
            assert_eq!(country(phone).as_deref(), expected, "{phone}");
        }
    }

    #[test]
    fn shared_calling_codes_have_several_countries() {
        let shared = shared_calling_codes();
        assert!(shared.contains(&44) && shared.contains(&262), "{shared:?}");
        assert!(!shared.contains(&49) && !shared.contains(&1), "{shared:?}");
    }

    #[test]
    fn non_mobile_kinds_are_named() {
        for (phone, kind) in [
            ("+447400123456", None),
            ("+442079460018", Some("landline")),
            ("+448081570192", Some("toll-free number")),
            ("+18005550199", Some("toll-free number")),
            ("+493012345678", Some("landline")),
            ("+4915123456789", None),
            ("+861012345678", Some("landline")),
            ("+8613800138000", None),
            ("+12025550123", None),
            ("", None),
        ] {
            assert_eq!(non_mobile_kind(phone), kind, "{phone}");
        }
    }

    #[test]
    fn numbers_are_validated_by_their_numbering_plan() {
        for right in [
            "8613800138000",
            "8619912345678",
            "12025550123",
            "18005550199",
            "15005551000",
            "447400123456",
            "4915123456789",
            "33612345678",
            "390612345678",
            "85291234567",
        ] {
            assert!(ValidNumber::of(right).is_some(), "{right}");
        }
        for wrong in [
            "",
            "4479",
            "4407400123456",
            "9990000000",
            "0447400123456",
            "44740012345678901",
            "4986120000000000",
            "8612800138000",
            "861380013800",
            "86138001380000",
            "11025550123",
            "12021550123",
            "12025110123x",
            "1202555012",
            "19115550123",
            // Prefixes that are not allocated.
            "8615412345678",
            "8614212345678",
            "8616112345678",
            "12225550123",
            "12885550123",
        ] {
            assert!(ValidNumber::of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn regions_are_those_in_which_the_number_is_valid() {
        let names = |phone| -> Vec<String> {
            let regions = regions(phone);
            regions.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("+12025550123"), ["US"]);
        assert_eq!(names("+14165550123"), ["CA"]);
        assert_eq!(names("+447400123456"), ["GB"]);
        assert_eq!(names("+8613800138000"), ["CN"]);
        assert!(names("+79161234567").contains(&"RU".to_owned()));
        assert!(names("x").is_empty());
    }
}
