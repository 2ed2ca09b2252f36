//! Which strings of digits are phone numbers. Two numbering plans are judged by their format alone,
//! which costs nanoseconds where the library costs microseconds; every other number by the library's
//! metadata. There is one answer per number, however it was written.

use phonenumber::Type;
use phonenumber::metadata::{DATABASE, Metadata};

/// The longest number that E.164 allows, in digits with the country code.
const LONGEST: usize = 15;

/// The kinds of numbers that the metadata describes one by one.
const KINDS: [Type; 9] = [
    Type::Mobile,
    Type::FixedLine,
    Type::Voip,
    Type::TollFree,
    Type::PersonalNumber,
    Type::Uan,
    Type::Pager,
    Type::SharedCost,
    Type::PremiumRate,
];

/// Kinds that seldom take text messages, in the operator's words.
const ODD: [(Type, &str); 6] = [
    (Type::FixedLine, "landline"),
    (Type::TollFree, "toll-free number"),
    (Type::PremiumRate, "premium-rate number"),
    (Type::SharedCost, "shared-cost number"),
    (Type::Pager, "pager"),
    (Type::Uan, "company number"),
];

/// A mobile number of mainland China without its country code: `1[3-9]` and nine digits.
pub(super) fn is_chinese_mobile(national: &[u8]) -> bool {
    matches!(national, [b'1', b'3'..=b'9', rest @ ..] if rest.len() == 9 && digits(rest))
}

/// A number of the North American plan without its country code: area `[2-9][0-8]d`, exchange
/// `[2-9]dd`, neither of them `N11`.
pub(super) fn is_north_american(national: &[u8]) -> bool {
    matches!(
        national,
        [b'2'..=b'9', b'0'..=b'8', _, b'2'..=b'9', rest @ ..]
            if rest.len() == 6
                && digits(national)
                && &national[1..3] != b"11"
                && &national[4..6] != b"11"
    )
}

fn digits(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

/// Whether these digits, country code first, are a number that can exist.
pub(super) fn is_number(digits: &str) -> bool {
    let bytes = digits.as_bytes();
    let by_format = match bytes {
        [b'8', b'6', national @ ..] => is_chinese_mobile(national),
        [b'1', national @ ..] => is_north_american(national),
        _ => false,
    };
    by_format || (bytes.len() <= LONGEST && is_known_to_library(digits))
}

fn is_known_to_library(digits: &str) -> bool {
    plan_of(digits).is_some_and(|(regions, national)| {
        regions
            .into_iter()
            .any(|region| describes(region, national))
    })
}

/// The regions that share the country code, and the number within them.
fn plan_of(digits: &str) -> Option<(Vec<&'static Metadata>, &str)> {
    if digits.starts_with('0') {
        return None;
    }
    (1..=3)
        .filter_map(|length| Some((digits.get(..length)?, digits.get(length..)?)))
        .find_map(|(code, national)| {
            Some((DATABASE.by_code(&code.parse::<u16>().ok()?)?, national))
        })
}

fn describes(region: &Metadata, national: &str) -> bool {
    let descriptors = region.descriptors();
    descriptors.general().is_match(national)
        && KINDS
            .into_iter()
            .filter_map(|kind| descriptors.get(kind))
            .any(|descriptor| descriptor.is_match(national))
}

/// Where a number in E.164 is at home: `GB +44`. Countries that share a code go by the one it is named for.
pub fn country(phone: &str) -> Option<String> {
    let (regions, national) = plan_of(phone.strip_prefix('+')?)?;
    let home = regions.first()?;
    let code = phone.strip_suffix(national)?;
    Some(format!("{} {code}", home.id()))
}

/// The countries and territories, in two letters, that have such numbers (E.164 with `+`) under their shared
/// code; all that share it where the plan does not tell them apart.
pub fn regions(phone: &str) -> Vec<&'static str> {
    let Some((regions, national)) = phone.strip_prefix('+').and_then(plan_of) else {
        return Vec::new();
    };
    let ids = |regions: &[&'static Metadata]| regions.iter().map(|region| region.id()).collect();
    if regions.len() < 2 {
        return ids(&regions);
    }
    let has = |region: &&&'static Metadata| describes(region, national);
    let described: Vec<&'static Metadata> = regions.iter().filter(has).copied().collect();
    if described.is_empty() {
        ids(&regions)
    } else {
        ids(&described)
    }
}

/// What a number is, in E.164 with `+`, if it is of a kind that seldom takes text messages. `None` too where
/// the plan does not tell: in North America mobiles and landlines look alike.
pub fn odd_kind(phone: &str) -> Option<&'static str> {
    let digits = phone.strip_prefix('+')?;
    match digits.as_bytes() {
        [b'8', b'6', national @ ..] if is_chinese_mobile(national) => return None,
        [b'1', ..] => return None,
        _ => {}
    }
    let (regions, national) = plan_of(digits)?;
    let is = |kind: Type| {
        let described = |region: &&'static Metadata| {
            region
                .descriptors()
                .get(kind)
                .is_some_and(|one| one.is_match(national))
        };
        regions.iter().any(described)
    };
    if is(Type::Mobile) {
        return None;
    }
    ODD.into_iter()
        .find(|(kind, _)| is(*kind))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_at_home_in_the_country_of_its_code() {
        for (phone, home) in [
            ("+447400123456", Some("GB +44")),
            ("+8613800138000", Some("CN +86")),
            ("+12025550123", Some("US +1")),
            ("+85291234567", Some("HK +852")),
            ("+999", None),
        ] {
            assert_eq!(country(phone).as_deref(), home, "{phone}");
        }
    }

    #[test]
    fn landlines_are_told_where_the_plan_knows_them() {
        for (phone, kind) in [
            ("+447400123456", None),
            ("+442079460018", Some("landline")),
            ("+448081570192", Some("toll-free number")),
            ("+493012345678", Some("landline")),
            ("+4915123456789", None),
            ("+861012345678", Some("landline")),
            ("+8613800138000", None),
            ("+12025550123", None),
            ("", None),
        ] {
            assert_eq!(odd_kind(phone), kind, "{phone}");
        }
    }

    #[test]
    fn plans_judged_by_their_format_need_the_whole_format() {
        for right in [
            "8613800138000",
            "8619912345678",
            "12025550123",
            "18005550199",
        ] {
            assert!(is_number(right), "{right}");
        }
        for wrong in [
            "8612800138000",
            "861380013800",
            "86138001380000",
            "11025550123",
            "12021550123",
            "12025110123x",
            "1202555012",
            "19115550123",
            "12925550123",
        ] {
            assert!(!is_number(wrong), "{wrong}");
        }
    }

    #[test]
    fn other_plans_are_judged_by_the_library() {
        for right in [
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
        ] {
            assert!(!is_number(wrong), "{wrong}");
        }
    }
}
