//! The lists of the measurements: plausible mobile numbers of twenty countries, all different, the same in every run.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// The text of every message; one segment with the names below.
pub(crate) const TEXT: &str =
    "Hi {{ name }}, your order {{ order }} is on its way. Reply STOP to opt out.";

const NAMES: [&str; 8] = [
    "Maya", "Victor", "Sofia", "Tom", "Elena", "Noor", "Lucas", "Grace",
];
const CHINESE: [&str; 8] = [
    "王小明",
    "李秀英",
    "张伟",
    "刘洋",
    "陈静",
    "杨敏",
    "赵磊",
    "黄婷",
];
/// Mobile numbers of twenty countries without their last six digits, which are free.
const COUNTRIES: [&str; 20] = [
    "+12025", "+8613800", "+447400", "+4915123", "+33612", "+919876", "+5511987", "+628123",
    "+2348031", "+525512", "+819012", "+639171", "+905321", "+393471", "+34612", "+27821",
    "+923001", "+201001", "+84912", "+14165",
];

/// Writes `rows` rows with a header to `path`.
pub(crate) fn write(path: &Path, rows: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "phone,name,order")?;
    for index in 0..rows {
        let name = NAMES[usize::try_from(scattered(index) % 8)?];
        writeln!(file, "{},{name},{}", phone(index), 100_000 + index)?;
    }
    file.flush()?;
    Ok(())
}

/// The format of a list.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Csv,
    Xlsx,
    Gb18030,
}

impl Kind {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Csv | Self::Gb18030 => "list.csv",
            Self::Xlsx => "list.xlsx",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Xlsx => "XLSX",
            Self::Gb18030 => "CSV in GB18030",
        }
    }
}

/// Writes the same rows in another format; in GB18030 with Chinese names, because it would be ASCII otherwise.
pub(crate) fn write_as(path: &Path, rows: u64, kind: Kind) -> anyhow::Result<()> {
    match kind {
        Kind::Csv => write(path, rows),
        Kind::Xlsx => write_workbook(path, rows),
        Kind::Gb18030 => {
            let mut file = BufWriter::new(File::create(path)?);
            writeln!(file, "phone,name,order")?;
            for index in 0..rows {
                let name = CHINESE[usize::try_from(scattered(index) % 8)?];
                let row = format!("{},{name},{}\n", phone(index), 100_000 + index);
                file.write_all(&encoding_rs::GB18030.encode(&row).0)?;
            }
            Ok(file.flush()?)
        }
    }
}

fn write_workbook(path: &Path, rows: u64) -> anyhow::Result<()> {
    let mut book = rust_xlsxwriter::Workbook::new();
    let sheet = book.add_worksheet_with_constant_memory();
    for (column, name) in (0..).zip(["phone", "name", "order"]) {
        sheet.write(0, column, name)?;
    }
    for index in 0..rows {
        let row = u32::try_from(index)? + 1;
        sheet.write(row, 0, phone(index))?;
        sheet.write(row, 1, NAMES[usize::try_from(scattered(index) % 8)?])?;
        sheet.write(row, 2, 100_000 + index)?;
    }
    Ok(book.save(path)?)
}

/// A number for every index below twenty million; the countries alternate.
pub(crate) fn phone(index: u64) -> String {
    let country = COUNTRIES[usize::try_from(index % 20).unwrap_or_default()];
    // Coprime to a million, so that no number occurs twice.
    let line = (index / 20 * 7_368_787) % 1_000_000;
    format!("{country}{line:06}")
}

/// The seed is fixed, so that every run uses the same numbers.
fn scattered(index: u64) -> u64 {
    index.wrapping_add(17).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}
