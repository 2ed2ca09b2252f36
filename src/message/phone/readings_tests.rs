//! Numbers without `+`: generated from the numbering plans, read with and without evidence of the whole list.

use std::fmt::Write as _;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumberFormat, PhoneNumberType};

use super::*;

const DEFAULT_REGIONS: [&str; 10] = ["DE", "AT", "ID", "IT", "CN", "BR", "IN", "US", "FI", "GB"];

/// How a national number is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Written {
    /// With the code of the country, without `+`.
    WithCode,
    /// As in the country, with its trunk prefix.
    Nationally,
    /// Without the trunk prefix.
    Bare,
}

/// Valid numbers of a country and one kind, spread over its numbering plan: E.164, and as they are written.
fn numbers(
    country: rlibphonenumber::Region,
    kinds: &[PhoneNumberType],
    written: Written,
    count: usize,
    random: &mut SmallRng,
) -> Vec<(String, String)> {
    let examples = kinds.iter().filter_map(|kind| {
        let example = PHONE_NUMBER_UTIL.get_example_number_for_type_and_region(country, *kind);
        Some(example.ok()?.national_number.to_string().len())
    });
    let Some(length) = examples.max() else {
        return Vec::new();
    };
    let code = PHONE_NUMBER_UTIL.get_country_code_for_region(country).expect("a calling code");
    let mut found = Vec::new();
    for _ in 0..count * 400 {
        if found.len() == count {
            break;
        }
        let digits = random.random_range(length - 1..=length + 1);
        let mut national = String::new();
        for _ in 0..digits {
            let _ = write!(national, "{}", random.random_range(0..10));
        }
        let phone = format!("+{code}{national}");
        let Ok(number) = PHONE_NUMBER_UTIL.parse(&phone, None) else {
            continue;
        };
        if phone.len() > 16
            || number.get_region_code() != Some(country)
            || !kinds.contains(&number.get_type())
            || Phone::parse(&phone, None).map(Phone::into_string).as_ref() != Ok(&phone)
        {
            continue;
        }
        let text = match written {
            Written::WithCode => format!("{code}{national}"),
            Written::Nationally => {
                let text = number.format_as(PhoneNumberFormat::National);
                text.chars().filter(char::is_ascii_digit).collect()
            }
            Written::Bare => national,
        };
        found.push((phone, text));
    }
    found
}

const MOBILE: [PhoneNumberType; 2] = [PhoneNumberType::Mobile, PhoneNumberType::FixedLineOrMobile];
const LANDLINE: [PhoneNumberType; 1] = [PhoneNumberType::FixedLine];

#[derive(Debug, Default, PartialEq)]
struct Counts {
    right: usize,
    wrong: usize,
    rejected: usize,
}

/// Reads a list as an import does.
fn read(list: &[(String, String)], region: Region) -> Counts {
    let mut survey = NumberSurvey::new(region);
    let _ = list.iter().all(|(_, text)| survey.add(text));
    let numbers = if survey.is_national() { Numbers::National } else { Numbers::Detect };
    let region = Some(region);
    read_with(list, Dialling { numbers, ..Dialling::from(region) })
}

fn read_with(list: &[(String, String)], dialling: Dialling) -> Counts {
    let mut counts = Counts::default();
    for (phone, text) in list {
        match Phone::parse(text, dialling) {
            Ok(read) if read.as_str() == phone => counts.right += 1,
            Ok(_) => counts.wrong += 1,
            Err(_) => counts.rejected += 1,
        }
    }
    counts
}

/// Mobiles of every country of the library, with the country code and without `+`: by country, and in one list.
fn mobiles_of_all_countries(random: &mut SmallRng) -> Vec<Vec<(String, String)>> {
    let countries = PHONE_NUMBER_UTIL.get_supported_regions();
    let lists = countries.map(|country| numbers(country, &MOBILE, Written::WithCode, 16, random));
    lists.filter(|list| !list.is_empty()).collect()
}

#[test]
fn foreign_mobiles_without_plus_are_never_misread() {
    let mut random = SmallRng::seed_from_u64(27);
    let by_country = mobiles_of_all_countries(&mut random);
    let all: Vec<_> = by_country.concat();
    assert!(by_country.len() > 190 && all.len() >= 3_000, "{}", all.len());
    for name in DEFAULT_REGIONS {
        let region: Region = name.parse().expect("a region");
        assert_eq!(read(&all, region).wrong, 0, "all in {name}");
        for list in &by_country {
            assert_eq!(read(list, region).wrong, 0, "{} in {name}", list[0].0);
        }
        let dialling = Dialling { numbers: Numbers::International, ..Dialling::from(Some(region)) };
        let expected = Counts { right: all.len(), ..Counts::default() };
        assert_eq!(read_with(&all, dialling), expected, "--international in {name}");
    }
}

/// Without their trunk prefix, a few begin like the mobiles of one other country and like no other national number.
#[test]
fn national_mobiles_are_accepted_with_and_without_trunk_prefix() {
    let mut random = SmallRng::seed_from_u64(28);
    for name in DEFAULT_REGIONS {
        let region: Region = name.parse().expect("a region");
        let country = name.parse().expect("a country");
        for written in [Written::Nationally, Written::Bare] {
            let list = numbers(country, &MOBILE, written, 1_000, &mut random);
            let counts = read(&list, region);
            assert_eq!(counts.wrong, 0, "{name} {written:?}");
            assert!(counts.right >= 900, "{name} {written:?}: {counts:?}");
            let single = Dialling::from(Some(region));
            let expected = Counts { right: 1_000, ..Counts::default() };
            assert_eq!(read_with(&list, single), expected, "{name} {written:?}, one by one");
        }
    }
}

/// Ten mobiles of another country among ninety national ones that begin alike can look national by chance.
#[test]
fn foreign_mobiles_in_a_national_list_are_seldom_misread() {
    let mut random = SmallRng::seed_from_u64(31);
    let by_country = mobiles_of_all_countries(&mut random);
    for name in DEFAULT_REGIONS {
        let region: Region = name.parse().expect("a region");
        let country = name.parse().expect("a country");
        let bare = numbers(country, &MOBILE, Written::Bare, 90, &mut random);
        let is_misread = |foreign: &&Vec<(String, String)>| {
            foreign.len() >= 10 && read(&[&bare[..], &foreign[..10]].concat(), region).wrong > 0
        };
        let misread = by_country.iter().filter(is_misread).count();
        assert!(misread <= 2, "{misread} lists in {name}");
    }
}

/// A landline without its trunk prefix may look like a mobile of another country, and is rejected then.
#[test]
fn most_national_landlines_are_accepted() {
    let mut random = SmallRng::seed_from_u64(29);
    for name in DEFAULT_REGIONS {
        let region: Region = name.parse().expect("a region");
        let country = name.parse().expect("a country");
        for written in [Written::Nationally, Written::Bare] {
            let list = numbers(country, &LANDLINE, written, 500, &mut random);
            let counts = read(&list, region);
            assert_eq!(counts.wrong, 0, "{name} {written:?}");
            assert!(counts.right * 100 >= list.len() * 80, "{name} {written:?}: {counts:?}");
        }
    }
}
