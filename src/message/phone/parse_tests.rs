//! Repairs, rejections, and that parsing a result again changes nothing.

use proptest::prelude::*;

use super::*;
use crate::phone::Countries;

fn region(code: &str) -> Dialling {
    let region = (!code.is_empty()).then(|| code.parse().expect("a region of the test"));
    let numbers = Numbers::Detect;
    Dialling { numbers, ..Dialling::from(region) }
}

#[test]
fn certain_repairs_are_made() {
    for (raw, home, expected) in [
        ("+8613800138000", "", "+8613800138000"),
        ("13800138000", "CN", "+8613800138000"),
        ("8613800138000", "CN", "+8613800138000"),
        ("008613800138000", "", "+8613800138000"),
        ("00 86 138-0013-8000", "US", "+8613800138000"),
        ("＋８６　１３８００１３８０００", "", "+8613800138000"),
        ("'13800138000", "CN", "+8613800138000"),
        ("13800138000.0", "CN", "+8613800138000"),
        ("\u{202a}+86 138 0013 8000\u{202c}", "", "+8613800138000"),
        ("(202) 555-0123", "US", "+12025550123"),
        ("1-202-555-0123", "CA", "+12025550123"),
        ("+1.202.555.0123", "CN", "+12025550123"),
        ("tel:+1-202-555-0123", "", "+12025550123"),
        ("011 44 7400 123456", "US", "+447400123456"),
        ("+44 (0)7400 123456", "", "+447400123456"),
        ("07400 123456", "GB", "+447400123456"),
        ("447400123456", "GB", "+447400123456"),
        ("0151/23456789", "DE", "+4915123456789"),
        ("+39 06 12345678", "", "+390612345678"),
        ("010-12345678", "CN", "+861012345678"),
        ("+44 7400 123456 ext. 12", "", "+447400123456"),
        ("07400 123456 x 7", "GB", "+447400123456"),
        ("+44 7400 123456x12", "", "+447400123456"),
        ("07400123456x7", "GB", "+447400123456"),
        ("tel:+447400123456;ext=5", "", "+447400123456"),
        ("010-12345678转801", "CN", "+861012345678"),
    ] {
        let parsed = parse(raw, region(home));
        assert_eq!(parsed.as_deref(), Ok(expected), "{raw} at home in {home:?}");
    }
}

#[test]
fn uncertain_numbers_are_rejected_with_advice() {
    for (raw, home, expected) in [
        ("", "CN", "the phone is empty"),
        ("  ", "CN", "the phone is empty"),
        ("+4479", "", "`+4479` is not a valid phone number: it is too short"),
        ("hello", "CN", "`hello` is not a phone number"),
        (
            "0151234567x89",
            "DE",
            "`01512****7x89` is not a valid phone number: neither a number of DE nor one with a country code",
        ),
        ("---", "CN", "`---` is not a phone number"),
        ("1-800-FLOWERS", "US", "`1-800****WERS` is not a phone number"),
        (
            "1.38E10",
            "CN",
            "`1.38E10` is a number in scientific notation, its last digits may be lost: \
          format the column as text where the file came from, and export it again",
        ),
        (
            "13800138000",
            "",
            "`138****8000` has no `+`: write it with `+` and its country code, name its country with `--region`, or use \
             `--international` if the numbers begin with a country code",
        ),
        (
            "13800138000/13900139000",
            "CN",
            "`138001****0139` seems to contain more than one number: keep one",
        ),
        (
            "13800138000;13900139000",
            "CN",
            "`138001****0139` seems to contain more than one number: keep one",
        ),
        (
            "+8613800138",
            "",
            "`+86****0138` is not a valid phone number: not assigned in any numbering plan",
        ),
        (
            "+99912345678",
            "",
            "`+999****5678` is not a valid phone number: not assigned in any numbering plan",
        ),
        (
            "8613800138000",
            "US",
            "`86138****8000` can be a number of CN +86 without its `+`: write it with `+`, or use `--international` if \
             the numbers of the list begin with a country code",
        ),
        (
            "447400123456",
            "DE",
            "`4474****3456` can be a number of DE, or one of GB +44 without its `+`: write it with `+`, or use \
             `--international` if the numbers of the list begin with a country code",
        ),
        (
            "13125550123",
            "CN",
            "`131****0123` can be a mobile of CN, or one of US +1 without its `+`: write it with `+`, or say what the \
             numbers of the list are with `--national` or `--international`",
        ),
        ("2020-01-31", "DK", "`20****1-31` is not a phone number"),
        ("2020-01-31 10:30:00", "DK", "`2020-0****0:00` is not a phone number"),
        (
            "123456789012345678901234",
            "CN",
            "`123456****7890` is not a valid phone number: it is too long",
        ),
    ] {
        let error = parse(raw, region(home)).expect_err(raw).to_string();
        assert_eq!(error, expected, "{raw}");
    }
}

#[test]
fn scientific_notation_is_recognised() {
    for raw in ["1.38E10", "1.38e+10", "1,38E+10", "8.6138E+12", "1E10"] {
        assert!(matches!(parse(raw, region("CN")), Err(PhoneError::Scientific(_))), "{raw}");
    }
}

/// Valid and invalid numbers of the two largest numbering plans, with and without the country code.
fn written() -> impl Strategy<Value = String> {
    let prefix = prop_oneof![Just("+86"), Just("86"), Just("+1"), Just("1"), Just("")];
    let national =
        prop_oneof!["1[2-9][0-9]{8,10}", "[2-9][0-9]{8,10}", "[0-9]{5,14}", "179[0-9]{8}"];
    (prefix, national).prop_map(|(prefix, national)| format!("{prefix}{national}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn parsed_numbers_are_valid(raw in written(), home in prop_oneof![Just(""), Just("CN"), Just("US"), Just("CA"), Just("GB"), Just("JM")]) {
        if let Ok(phone) = parse(&raw, region(home)) {
            let number = rlibphonenumber::PHONE_NUMBER_UTIL.parse(&phone, None).expect("a number");
            prop_assert!(number.is_valid(), "{phone}");
        }
    }

    #[test]
    fn parsing_again_changes_nothing(
        raw in prop_oneof![written(), "[+0-9() -]{6,18}", "\\+[1-9][0-9]{6,14}"],
        home in prop_oneof![Just(""), Just("CN"), Just("US"), Just("GB"), Just("DE"), Just("RU"), Just("BR"), Just("AR"), Just("IT"), Just("HU")],
        elsewhere in prop_oneof![Just(""), Just("CN"), Just("US"), Just("RU"), Just("IT")],
    ) {
        if let Ok(phone) = parse(&raw, region(home)) {
            prop_assert!(phone.len() <= 16 && phone.starts_with('+'));
            prop_assert_eq!(parse(&phone, region(elsewhere)), Ok(phone.clone()));
        }
    }

    #[test]
    fn parsing_never_panics(raw in ".{0,40}", home in prop_oneof![Just(""), Just("CN"), Just("US")]) {
        let _ = parse(&raw, region(home));
    }

    #[test]
    fn separators_do_not_matter(national in "1[38][0-9]{9}", separator in "[ ./()-]") {
        let spread: String = national.chars().flat_map(|digit| [digit.to_string(), separator.clone()]).collect();
        if separator != "/" {
            prop_assert_eq!(parse(&format!("+86{spread}"), region("")), Ok(format!("+86{national}")));
        }
    }
}

#[test]
fn number_of_another_country_than_those_allowed_is_excluded() {
    let mut countries = Countries::default();
    for code in ["GB", "IE"] {
        countries.add(code.parse().expect("a country"));
    }
    let dialling = Dialling { countries, ..Dialling::from("GB".parse().ok()) };
    let read = |raw| parse(raw, dialling);
    assert_eq!(read("07400 123456").as_deref(), Ok("+447400123456"));
    assert_eq!(read("+353851234567").as_deref(), Ok("+353851234567"));
    // Jersey has the calling code of Great Britain.
    for (raw, country) in [
        ("+447797712345", "JE +44"),
        ("+12025550123", "US +1"),
        ("+79161234567", "RU +7"),
        // Satellite phones belong to no country.
        ("+881621234567", "001 +881"),
    ] {
        match read(raw) {
            Err(PhoneError::Excluded(_, found)) => assert_eq!(found, country),
            other => panic!("{raw}: {other:?}"),
        }
    }
    assert!(parse("+12025550123", Dialling::default()).is_ok());
}
