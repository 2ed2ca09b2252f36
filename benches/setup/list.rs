//! The lists of the measurements: plausible mobile numbers of twenty countries, all different, the same in every run.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// The text of every message; one segment with the names below.
pub(crate) const TEXT: &str =
    "Hi {{ name }}, your order {{ order }} is on its way. Reply STOP to opt out.";

pub(crate) const NAMES: [&str; 8] =
    ["Maya", "Victor", "Sofia", "Tom", "Elena", "Noor", "Lucas", "Grace"];
/// Mobile numbers of twenty countries without their last six digits, which are free.
const COUNTRIES: [&str; 20] = [
    "+12025", "+8613800", "+447400", "+4915123", "+33612", "+919876", "+5511987", "+628123",
    "+2348031", "+525512", "+819012", "+639171", "+905321", "+393471", "+34612", "+27821",
    "+923001", "+201001", "+84912", "+14165",
];

/// Writes `rows` rows with a header to `path`; the numbers are from all countries.
pub(crate) fn write(path: &Path, rows: u64) -> anyhow::Result<()> {
    write_of(path, rows, COUNTRIES.len())
}

/// The same with numbers of the first `countries` countries.
pub(crate) fn write_of(path: &Path, rows: u64, countries: usize) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "phone,name,order")?;
    for index in 0..rows {
        let phone = phone_of(index, countries);
        writeln!(file, "{phone},{},{}", NAMES[name_of(index)], 100_000 + index)?;
    }
    file.flush()?;
    Ok(())
}

/// A number for every index below twenty million; the countries alternate.
pub(crate) fn phone(index: u64) -> String {
    phone_of(index, COUNTRIES.len())
}

fn phone_of(index: u64, countries: usize) -> String {
    let count = countries as u64;
    let country = COUNTRIES[usize::try_from(index % count).unwrap_or_default()];
    // Coprime to a million, so that no number occurs twice.
    let line = (index / count * 7_368_787) % 1_000_000;
    format!("{country}{line:06}")
}

/// Which of the names the row has.
pub(crate) fn name_of(index: u64) -> usize {
    // The seed is fixed, so that every run uses the same names.
    let scattered = index.wrapping_add(17).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    usize::try_from(scattered % 8).unwrap_or_default()
}
