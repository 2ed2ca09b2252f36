//! The numbering plans of libphonenumber: whether digits are a valid number, of which country and kind. The same
//! rules apply to every country.

use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumber, PhoneNumberFormat, PhoneNumberType};

use super::Region;

/// The longest number in E.164, in digits with the country code; some numbering plans allow longer ones.
const LONGEST: usize = 15;

/// Converts a valid number to E.164 without `+`, if that parses to the same number again. `region` is the country of
/// a number without a country code.
pub(super) fn canonical(written: &str, region: Option<Region>) -> Option<String> {
    let digits = read(written, region)?;
    if written.strip_prefix('+') == Some(digits.as_str()) {
        return Some(digits);
    }
    let again = read(&format!("+{digits}"), None)?;
    (again == digits).then_some(digits)
}

/// Whether these digits, with the country code first, are a valid number.
pub(super) fn is_number(digits: &str) -> bool {
    read(&format!("+{digits}"), None).is_some_and(|read| read == digits)
}

fn read(written: &str, region: Option<Region>) -> Option<String> {
    let number = PHONE_NUMBER_UTIL
        .parse(written, region.map(|region| region.0))
        .ok()?;
    if !number.is_valid() {
        return None;
    }
    let e164 = number.format_as(PhoneNumberFormat::E164);
    let digits = e164.trim_start_matches('+');
    (digits.len() <= LONGEST).then(|| digits.to_owned())
}

fn number(phone: &str) -> Option<PhoneNumber> {
    PHONE_NUMBER_UTIL.parse(phone, None).ok()
}

/// The country and calling code of a number in E.164: `GB +44`. For an invalid number, the main country of its
/// calling code.
pub fn country(phone: &str) -> Option<String> {
    let number = number(phone)?;
    let code = number.country_code;
    let region = number
        .get_region_code()
        .or_else(|| PHONE_NUMBER_UTIL.get_region_for_country_code(code))?;
    Some(format!("{region} +{code}"))
}

/// The country of the numbers that begin with `prefix`; North American countries differ in the fifth character.
pub fn country_of_prefix(prefix: &str) -> Option<String> {
    match prefix.get(..5) {
        Some(area) if area.starts_with("+1") => country(&format!("{area}5550100")),
        _ => country(prefix),
    }
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
    fn country_is_found_by_prefix() {
        for (prefix, expected) in [
            ("+4474", Some("GB +44")),
            ("+4915", Some("DE +49")),
            ("+1202", Some("US +1")),
            ("+1416", Some("CA +1")),
            ("+1876", Some("JM +1")),
            ("+9999", None),
            ("+", None),
        ] {
            assert_eq!(country_of_prefix(prefix).as_deref(), expected, "{prefix}");
        }
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
            assert!(is_number(right), "{right}");
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
            assert!(!is_number(wrong), "{wrong}");
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
