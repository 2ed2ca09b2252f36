//! Workbooks and templates that would use all memory: each is refused in a process with little of it.

use std::io::{Cursor, Write as _};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::Scratch;

fn zipped(parts: &[(&str, &str)]) -> Vec<u8> {
    let parts = parts.iter().map(|(name, text)| (*name, text.as_bytes()));
    zipped_bytes(&parts.collect::<Vec<_>>())
}

fn zipped_bytes(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        archive.start_file(*name, SimpleFileOptions::default()).expect("a part");
        archive.write_all(bytes).expect("writes");
    }
    archive.finish().expect("an archive").into_inner()
}

fn xlsx(cells: &str) -> Vec<u8> {
    const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    const REL: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    zipped(&[
        (
            "[Content_Types].xml",
            "<Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\"/>",
        ),
        (
            "_rels/.rels",
            &format!(
                "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"r1\" Type=\"{REL}/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>"
            ),
        ),
        (
            "xl/workbook.xml",
            &format!(
                "<workbook xmlns=\"{MAIN}\" xmlns:r=\"{REL}\"><sheets><sheet name=\"a\" sheetId=\"1\" r:id=\"r1\"/></sheets></workbook>"
            ),
        ),
        (
            "xl/_rels/workbook.xml.rels",
            &format!(
                "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"r1\" Type=\"{REL}/worksheet\" Target=\"worksheets/sheet1.xml\"/></Relationships>"
            ),
        ),
        (
            "xl/worksheets/sheet1.xml",
            &format!("<worksheet xmlns=\"{MAIN}\"><sheetData>{cells}</sheetData></worksheet>"),
        ),
    ])
}

fn ods(rows: u32, columns: u32) -> Vec<u8> {
    zipped(&[
        ("mimetype", "application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", "<manifest/>"),
        (
            "content.xml",
            &format!(
                "<office:document-content xmlns:office=\"o\" xmlns:table=\"t\" xmlns:text=\"x\"><office:body><office:spreadsheet><table:table table:name=\"a\"><table:table-row table:number-rows-repeated=\"{rows}\"><table:table-cell office:value-type=\"string\" table:number-columns-repeated=\"{columns}\"><text:p>phone</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet></office:body></office:document-content>"
            ),
        ),
    ])
}

/// A record of XLSB.
fn long_record(kind: u8, data: &[u8]) -> Vec<u8> {
    // Two bytes for a type above 127, and as many for the length.
    let mut bytes = match kind {
        0..0x80 => vec![kind],
        _ => vec![kind, 1],
    };
    let length = data.len().to_le_bytes()[0];
    assert!(data.len() < 0x80, "a short record");
    bytes.push(length);
    bytes.extend(data);
    bytes
}

fn wide(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a short text");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    bytes
}

/// A binary workbook with a cell at its first place and one at `row`, `column`.
fn xlsb(row: u32, column: u32) -> Vec<u8> {
    const REL: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let sheet = [&[0; 8][..], &wide("r1"), &wide("a")].concat();
    let book = [long_record(0x9C, &sheet), long_record(0x90, &[]), long_record(0x84, &[])];
    let relations = format!(
        "<Relationships><Relationship Id=\"r1\" Type=\"{REL}/worksheet\" Target=\"worksheets/sheet1.bin\"/></Relationships>"
    );
    let begin = |row: u32| long_record(0, &[&row.to_le_bytes()[..], &[0; 13]].concat());
    let cell = |column: u32| {
        let data = [&column.to_le_bytes()[..], &[0; 4], &wide("phone")].concat();
        long_record(6, &data)
    };
    let cells = [
        long_record(0x81, &[]),
        long_record(0x94, &[0; 16]),
        long_record(0x91, &[]),
        begin(0),
        cell(0),
        if row == 0 { Vec::new() } else { begin(row) },
        cell(column),
        long_record(0x92, &[]),
    ];
    zipped_bytes(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("xl/workbook.bin", &book.concat()),
        ("xl/_rels/workbook.bin.rels", relations.as_bytes()),
        ("xl/worksheets/sheet1.bin", &cells.concat()),
    ])
}

/// A record of XLS.
fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("a short record");
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), data].concat()
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An old workbook with one sheet of these records, and `more` for the whole workbook.
fn xls(more: &[u8], cells: &[u8]) -> Vec<u8> {
    let begin = |kind: u16| record(0x0809, &words(&[0x0600, kind, 0, 0, 0, 0, 0, 0]));
    let sheet = |start: u32| {
        let name = [&start.to_le_bytes()[..], &[0, 0, 1, 0, b'a']].concat();
        record(0x0085, &name)
    };
    let globals = begin(5).len() + sheet(0).len() + more.len() + record(0x000A, &[]).len();
    let start = u32::try_from(globals).expect("a short stream");
    let stream = [
        &begin(5)[..],
        &sheet(start),
        more,
        &record(0x000A, &[]),
        &begin(0x10),
        cells,
        &record(0x000A, &[]),
    ]
    .concat();
    // calamine reads an empty short stream in a file of version 4 as damage.
    let file = Cursor::new(Vec::new());
    let book = cfb::CompoundFile::create_with_version(cfb::Version::V3, file);
    let mut book = book.expect("a compound file");
    let mut part = book.create_stream("/Workbook").expect("a stream");
    part.write_all(&stream).expect("writes");
    // Short streams are stored elsewhere, and libraries read them in different ways.
    part.write_all(&[0; 8192]).expect("writes");
    drop(part);
    book.into_inner().into_inner()
}

/// A cell at its first place and one at `row`, `column`.
fn xls_at(row: u16, column: u16) -> Vec<u8> {
    let number = |row: u16, column: u16| {
        let place = words(&[row, column, 0]);
        record(0x0203, &[&place[..], &1_f64.to_le_bytes()].concat())
    };
    xls(&[], &[number(0, 0), number(row, column)].concat())
}

/// `count` cells with the same long text, whose second half is in another record.
fn xls_of_one_text(cells: u16) -> Vec<u8> {
    let text = [&[1, 0, 0, 0, 1, 0, 0, 0, 0x60, 0xEA, 0][..], &[b'x'].repeat(30_000)].concat();
    let more = [&[0][..], &[b'x'].repeat(30_000)].concat();
    let shared = [record(0x00FC, &text), record(0x003C, &more)].concat();
    let cell = |row: u16| record(0x00FD, &words(&[row, 0, 0, 0, 0]));
    xls(&shared, &(0..cells).flat_map(cell).collect::<Vec<u8>>())
}

/// A sheet with this stated size.
fn xls_of_size(rows: u32, columns: u16) -> Vec<u8> {
    let mut size = [[0; 4], rows.to_le_bytes()].concat();
    size.extend(words(&[0, columns, 0]));
    xls(&[], &record(0x0200, &size))
}

/// A formula that repeats the long name of a sheet.
fn xls_of_long_formulas(formulas: u16) -> Vec<u8> {
    let name = [&[0, 0, 0, 0, 0, 0, 255, 0][..], &[b'x'; 255]].concat();
    let refs = record(0x0017, &words(&[1, 0, 1, 1]));
    let globals = [record(0x0085, &name), refs].concat();
    let first = [0x3A, 0, 0, 0, 0, 0, 0];
    let added = [&first[..], &[3]].concat().repeat(999);
    let tokens = [&first[..], &added].concat();
    let length = u16::try_from(tokens.len()).expect("a short formula");
    let formula = |row: u16| {
        let head = words(&[row, 0, 0, 0, 0, 0, 0, 0, 0, 0, length]);
        record(0x0006, &[&head[..], &tokens].concat())
    };
    xls(&globals, &(0..formulas).flat_map(formula).collect::<Vec<u8>>())
}

/// Runs the program with little address space: it is aborted if it needs more.
fn run_in_little_memory(scratch: &Scratch, arguments: &[&str]) -> std::process::Output {
    scratch
        .command_after("ulimit -v 1500000", arguments.iter().copied())
        .env("TOKIO_WORKER_THREADS", "2")
        .output()
        .expect("a shell")
}

#[test]
fn workbooks_of_huge_sheets_are_refused_in_little_memory() {
    let scratch = Scratch::new();
    let far = |place: &str| format!("<row><c r=\"{place}\" t=\"str\"><v>phone</v></c></row>");
    for (name, bytes) in [
        ("column.xlsx", xlsx(&far("ZZZZZZ1"))),
        ("row.xlsx", xlsx(&far("A4294967295"))),
        ("both.xlsx", xlsx(&far("ZZZZZZ4294967295"))),
        ("repeated.ods", ods(6_000, 16_384)),
        ("far.xls", xls_at(65_535, 65_535)),
        ("text.xls", xls_of_one_text(50_000)),
        ("size.xls", xls_of_size(u32::MAX, u16::MAX)),
        ("formulas.xls", xls_of_long_formulas(6_000)),
        ("column.xlsb", xlsb(1, 16_384)),
        ("row.xlsb", xlsb(1 << 20, 0)),
    ] {
        std::fs::write(scratch.path(name), bytes).expect("writes");
        let output = run_in_little_memory(&scratch, &["import", name, "--text", "Hi"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains("is too large: "), "{name}: {message}");
    }
    for (name, bytes) in [
        ("near.xlsx", xlsx(&far("XFD1048576"))),
        ("few.ods", ods(3, 1)),
        ("near.xls", xls_at(9, 9)),
        ("text.xls", xls_of_one_text(9)),
        ("size.xls", xls_of_size(65_536, 256)),
        ("formulas.xls", xls_of_long_formulas(9)),
        ("near.xlsb", xlsb((1 << 20) - 1, 16_383)),
    ] {
        std::fs::write(scratch.path(name), bytes).expect("writes");
        let output = run_in_little_memory(&scratch, &["import", name, "--text", "Hi", "--dry-run"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            !message.contains("too large")
                && !message.contains("cannot read")
                && message.len() < 400,
            "{name}: {message}"
        );
    }
}

#[test]
fn endless_templates_are_refused_in_little_memory() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone\n+447400301001\n");
    let line = ["import", "list.csv", "--template", "/dev/zero"];
    let output = run_in_little_memory(&scratch, &line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("`/dev/zero`: longer than 64 KiB"), "{message}");
    let doubled = format!("{}x{}", "{% set a = a ~ a %}".repeat(20), "{{ a ~ a }}");
    let each =
        format!("{}{}", "{% for a in [a ~ a ~ a ~ a] %}".repeat(16), "{% endfor %}".repeat(16));
    for text in [
        r#"{% set a = "x" * 60000 %}{{ a | replace("x", a) | length }}"#,
        r#"{{ "x" * 90000000 ~ "x" * 90000000 ~ "x" * 90000000 | length }}"#,
        "{% set a %}{{ phone }}{{ phone }}{% endset %}{{ a }}",
        "{% macro a(b) %}{{ a(b ~ b) }}{% endmacro %}{{ a(phone) }}",
        "{% for a in phone recursive %}{{ loop(phone) }}{% endfor %}",
        &format!("{{{{ phone{} }}}}", " ~ phone".repeat(5_000)),
        &doubled,
        &each,
    ] {
        let output = run_in_little_memory(&scratch, &["import", "list.csv", "--text", text]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text:.80}: {message}");
        assert!(message.contains("`--text`: line 1: "), "{text:.80}: {message}");
    }
    let wide = r#"{{ "%999999999s" | format(phone) }}"#;
    let output = run_in_little_memory(&scratch, &["import", "list.csv", "--text", wide]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(scratch.read("list.rejects.csv").contains("widths below 100"), "{message}");
    // Chains that are nested tens of thousands deep.
    for text in [
        format!("{{{{ {}1 }}}}", "-".repeat(65_000)),
        format!("{{{{ {} }}}}", "-".repeat(65_000)),
        format!("{{{{ 1{} }}}}", "-1".repeat(30_000)),
        format!("{{% if {}a %}}{{% endif %}}", "not ".repeat(15_000)),
        format!("{{% if a %}}{}{{% endif %}}", "{%elif a%}".repeat(6_000)),
        format!("{{{{ a{} }}}}", "|d".repeat(30_000)),
    ] {
        scratch.write("deep.txt", &text);
        let output =
            run_in_little_memory(&scratch, &["import", "list.csv", "--template", "deep.txt"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text:.40}: {message}");
        assert!(message.contains("`deep.txt`: line 1: "), "{text:.40}: {message}");
    }
}
