//! The same list in other file formats.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use crate::list::{NAMES, name_of, phone, write, write_of};

const CHINESE: [&str; 8] = ["王小明", "李秀英", "张伟", "刘洋", "陈静", "杨敏", "赵磊", "黄婷"];

/// The format of a list.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Csv,
    TwoCountries,
    Xlsx,
    Gb18030,
}

impl Kind {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Csv | Self::TwoCountries | Self::Gb18030 => "list.csv",
            Self::Xlsx => "list.xlsx",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::TwoCountries => "CSV with numbers of two countries",
            Self::Xlsx => "XLSX",
            Self::Gb18030 => "CSV in GB18030",
        }
    }
}

/// Writes the same rows in another format; in GB18030 with Chinese names, because it would be ASCII otherwise.
pub(crate) fn write_as(path: &Path, rows: u64, kind: Kind) -> anyhow::Result<()> {
    match kind {
        Kind::Csv => write(path, rows),
        Kind::TwoCountries => write_of(path, rows, 2),
        Kind::Xlsx => write_workbook(path, rows),
        Kind::Gb18030 => {
            let mut file = BufWriter::new(File::create(path)?);
            writeln!(file, "phone,name,order")?;
            for index in 0..rows {
                let name = CHINESE[name_of(index)];
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
        sheet.write(row, 1, NAMES[name_of(index)])?;
        sheet.write(row, 2, 100_000 + index)?;
    }
    Ok(book.save(path)?)
}
