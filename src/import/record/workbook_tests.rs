//! Workbooks that another library wrote, or that are put together here.

use std::io::{Cursor, Write as _};

use rust_xlsxwriter::{Format, Formula, Workbook};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::file::ListFile;
use crate::options::Options;

type Row = (u64, Result<Vec<String>, String>);

fn rows_of(bytes: &[u8], sheet: Option<&str>) -> Result<(Vec<Row>, String), String> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("book");
    std::fs::write(&file, bytes).expect("writes");
    let list = ListFile::open(&Options {
        file,
        name: Some("book".to_owned()),
        sheet: sheet.map(str::to_owned),
        ..Options::default()
    });
    let list = list.map_err(|error| error.to_string())?;
    let mut records = list.records().expect("opens");
    let mut record = Record::default();
    let mut rows = Vec::new();
    loop {
        let cells = |record: &Record| record.fields().expect("UTF-8").map(str::to_owned).collect();
        match records.next(&mut record).expect("reads") {
            Next::Row => rows.push((record.line, Ok(cells(&record)))),
            Next::Unusable(why) => rows.push((record.line, Err(why.reason))),
            Next::Malformed(why) => rows.push((record.line, Err(why.to_string()))),
            Next::End => return Ok((rows, list.layout.sheet.expect("a sheet"))),
        }
    }
}

fn row(line: u64, cells: &[&str]) -> Row {
    (line, Ok(cells.iter().map(|&cell| cell.to_owned()).collect()))
}

#[test]
fn numbers_and_dates_are_written_in_full() {
    let mut book = Workbook::new();
    let sheet = book.add_worksheet();
    let day = Format::new().set_num_format("yyyy-mm-dd");
    let time = Format::new().set_num_format("yyyy-mm-dd hh:mm:ss");
    let wide = Format::new().set_num_format("0.00E+00");
    for (column, name) in (0..).zip(["phone", "day", "at", "price", "ok"]) {
        sheet.write(0, column, name).expect("writes");
    }
    sheet.write_with_format(2, 0, 13_800_138_000.0, &wide).expect("writes");
    sheet.write_with_format(2, 1, 46_347.0, &day).expect("writes");
    sheet.write_with_format(2, 2, 46_347.75, &time).expect("writes");
    sheet.write(2, 3, 9.5).expect("writes");
    sheet.write(2, 4, true).expect("writes");
    sheet.write_with_format(3, 0, 13_800_138_001.0, &day).expect("writes");
    sheet.write_formula(4, 0, Formula::new("=1/0").set_result("#DIV/0!")).expect("writes");
    sheet.write(4, 1, "x").expect("writes");
    sheet.set_row_hidden(5).expect("hides");
    sheet.write(5, 0, "13800138002").expect("writes");
    sheet.merge_range(6, 0, 6, 2, "13800138003", &Format::new()).expect("merges");
    let bytes = book.save_to_buffer().expect("a workbook");
    let (rows, note) = rows_of(&bytes, None).expect("rows");
    assert_eq!(
        rows,
        [
            row(1, &["phone", "day", "at", "price", "ok"]),
            row(3, &["13800138000", "2026-11-21", "2026-11-21 18:00", "9.5", "TRUE"]),
            row(4, &["13800138001"]),
            (5, Err("cell A5 has a formula error, #DIV/0!".to_owned())),
            row(7, &["13800138003"]),
        ]
    );
    assert_eq!(note, "sheet `Sheet1`, 1 hidden row left out");
}

#[test]
fn sheet_is_chosen_by_name_or_number() {
    let mut book = Workbook::new();
    for (name, cell) in [("notes", "none"), ("März", "phone"), ("old", "phone")] {
        let sheet = book.add_worksheet().set_name(name).expect("a name");
        sheet.write(0, 0, cell).expect("writes");
        sheet.set_hidden(name == "old");
    }
    let bytes = book.save_to_buffer().expect("a workbook");
    let first = |sheet| rows_of(&bytes, sheet).map(|(rows, note)| (rows[0].1.clone(), note));
    let cell = |text: &str| Ok(vec![text.to_owned()]);
    let other = "sheet `notes`, not `März` (`--sheet NAME` selects one)".to_owned();
    assert_eq!(first(None), Ok((cell("none"), other)));
    for asked in ["März", "2"] {
        assert_eq!(first(Some(asked)), Ok((cell("phone"), "sheet `März`".to_owned())));
    }
    assert_eq!(first(Some("4")), Err("unknown sheet `4` in `book`".to_owned()));
}

fn archive(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        archive.start_file(*name, SimpleFileOptions::default()).expect("a part");
        archive.write_all(text.as_bytes()).expect("writes");
    }
    archive.finish().expect("an archive").into_inner()
}

#[test]
fn ods_sheets_are_read() {
    let content = r#"<?xml version="1.0"?><office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet><table:table table:name="Liste">
<table:table-row><table:table-cell office:value-type="string"><text:p>phone</text:p></table:table-cell><table:table-cell office:value-type="string"><text:p>name</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell office:value-type="float" office:value="13800138000"><text:p>1,38E+10</text:p></table:table-cell><table:table-cell office:value-type="date" office:date-value="2026-11-21"><text:p>21.11.26</text:p></table:table-cell></table:table-row>
</table:table></office:spreadsheet></office:body></office:document-content>"#;
    let manifest = r#"<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>"#;
    let bytes = archive(&[
        ("mimetype", "application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", manifest),
        ("content.xml", content),
    ]);
    let (rows, note) = rows_of(&bytes, None).expect("rows");
    assert_eq!(rows, [row(1, &["phone", "name"]), row(2, &["13800138000", "2026-11-21"])]);
    assert_eq!(note, "sheet `Liste`");
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("../../tests/fixtures/import/{name}")).expect("reads")
}

/// Written by xlwt, by `SheetJS` (its cells given the long form that Excel writes) and by odfpy.
#[test]
fn hidden_rows_of_every_format_are_left_out() {
    for name in ["hidden-row.xls", "hidden-row.xlsb"] {
        let (rows, note) = rows_of(&fixture(name), None).expect(name);
        let read = [
            row(1, &["手机号", "name", "day"]),
            row(2, &["13800138000", "Ann", "2026-11-21"]),
            row(3, &["+44 7400 123456", "Ben"]),
            row(5, &["13800138002", "Zoë"]),
        ];
        assert_eq!(rows, read, "{name}");
        assert_eq!(note, "sheet `名单`, 1 hidden row left out", "{name}");
    }
    let (rows, note) = rows_of(&fixture("hidden-rows.ods"), None).expect("rows");
    let read = [
        row(1, &["手机号", "name"]),
        row(2, &["13800138000", "Ann"]),
        row(8, &["13800138002", "Zoë"]),
    ];
    assert_eq!(rows, read);
    assert_eq!(note, "sheet `名单`, 3 hidden rows left out");
    let (rows, _) = rows_of(&fixture("hidden-rows.ods"), Some("old")).expect("rows");
    assert_eq!(rows, [row(1, &["notes"])]);
}

#[test]
fn invalid_workbooks_are_rejected() {
    assert_eq!(
        rows_of(&fixture("protected.xlsx"), None),
        Err("`book` is protected with a password".to_owned())
    );
    assert_eq!(
        rows_of(&fixture("short-cells.xlsb"), None),
        Err("cannot read workbook `book`: it has cells of an unknown kind".to_owned())
    );
    let torn = &fixture("hidden-row.xls")[..2_000];
    let message = rows_of(torn, None).expect_err("half a workbook");
    assert!(message.starts_with("cannot read workbook `book`: "), "{message}");
    let empty = archive(&[("[Content_Types].xml", ""), ("xl/workbook.xml", "")]);
    let message = rows_of(&empty, None).expect_err("no workbook");
    assert!(
        message.starts_with("cannot read workbook `book`: ") || message.contains("unknown sheet"),
        "{message}"
    );
    let bomb = archive(&[("[Content_Types].xml", ""), ("xl/workbook.xml", &" ".repeat(80 << 20))]);
    assert_eq!(
        rows_of(&bomb, None),
        Err("workbook `book` is too large: it unpacks to more than 500 times its size".to_owned())
    );
}

#[test]
fn column_names_are_letters() {
    let called: Vec<String> = [0, 25, 26, 701, 702].map(column_name).to_vec();
    assert_eq!(called, ["A", "Z", "AA", "ZZ", "AAA"]);
}
