//! Rejects files that a spreadsheet saved, texts that cannot be sent, and files that would use all memory.

use std::io::{Cursor, Write as _};
use std::process::Command;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::shell::sqlite;

const TEXT: [&str; 2] = ["--text", "Hi {{ name }}"];

fn import<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut line = vec!["import", file, "--format", "json"];
    line.extend(TEXT);
    line.extend(more);
    line
}

/// Returns a CSV file as a spreadsheet saves it: every row as wide as the widest.
fn saved_by_a_spreadsheet(bytes: &[u8], delimiter: u8, encoding: &str) -> Vec<Vec<String>> {
    let encoding = encoding_rs::Encoding::for_label(encoding.as_bytes()).expect("an encoding");
    let (text, _, _) = encoding.decode(bytes);
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let rows = reader.records().map(|row| row.expect("a row"));
    let mut rows: Vec<Vec<String>> = rows
        .map(|row| row.iter().map(str::to_owned).collect())
        .collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    for row in &mut rows {
        row.resize(width, String::new());
    }
    rows
}

fn written(rows: &[Vec<String>], delimiter: u8, encoding: &str) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).expect("writes to memory");
    }
    let bytes = writer.into_inner().expect("writes to memory");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let encoding = encoding_rs::Encoding::for_label(encoding.as_bytes()).expect("an encoding");
    encoding.encode(&text).0.into_owned()
}

#[test]
fn rejects_saved_by_a_spreadsheet_are_rejected_until_fixed() {
    for (header, delimiter, encoding) in [
        ("phone,name\n", b',', "utf-8"),
        ("手机号;name\n", b';', "gb18030"),
    ] {
        let scratch = Scratch::new();
        let line = format!(
            "{header}+447400301001\n+447400301002,Ann,extra\n+447400301003,\"Bob\"x\n+447400301004,Cai\n+447400301005,Dan\n+447400301006,Eve\n"
        );
        let line = line.replace(',', &char::from(delimiter).to_string());
        let label = encoding_rs::Encoding::for_label(encoding.as_bytes()).expect("an encoding");
        std::fs::write(scratch.path("list.csv"), label.encode(&line).0).expect("writes");
        let line = |file| scratch.run(import(file, &["--campaign", "c"]));
        let ran = line("list.csv");
        let counts = |ran: &crate::support::Ran| {
            let count = |key: &str| ran.json()[key].as_u64().expect("a count");
            (count("accepted"), count("rejected"))
        };
        assert_eq!(counts(&ran), (3, 3), "{ran}");
        let rejects = std::fs::read(scratch.path("list.rejects.csv")).expect("the rejects");
        let mut rows = saved_by_a_spreadsheet(&rejects, delimiter, encoding);
        std::fs::write(
            scratch.path("saved.csv"),
            written(&rows, delimiter, encoding),
        )
        .expect("writes");
        assert_eq!(counts(&line("saved.csv")), (0, 3), "{rows:?}");
        for (row, name) in rows[1..].iter_mut().zip(["Ann", "Bob", "Cai"]) {
            row[0] = row[2].trim_start_matches('\'')[..13].to_owned();
            row[1] = name.to_owned();
        }
        std::fs::write(scratch.path("fixed.csv"), written(&rows, b';', "utf-8")).expect("writes");
        let ran = line("fixed.csv");
        assert_eq!(counts(&ran), (3, 0), "{ran}");
        let texts = sqlite(
            &scratch,
            "SELECT group_concat(content) FROM sms WHERE phone <= '+447400301003'",
        );
        assert_eq!(texts, "Hi Ann,Hi Bob,Hi Cai");
    }
}

#[test]
fn rejects_of_a_list_without_header_come_back() {
    let scratch = Scratch::new();
    scratch.write(
        "list.csv",
        "+447400301001,Ann\n+447400301002\n12,Bob\n+447400301003,Cai\n",
    );
    let text = [
        "--text",
        "Hi {{ _2 }}",
        "--campaign",
        "c",
        "--format",
        "json",
    ];
    let ran = scratch.run(["import", "list.csv"].into_iter().chain(text));
    assert_eq!(ran.json()["accepted"], 2, "{ran}");
    let rejects = scratch.read("list.rejects.csv");
    let rows = saved_by_a_spreadsheet(rejects.as_bytes(), b',', "utf-8");
    let bytes = written(&rows, b',', "utf-8");
    std::fs::write(scratch.path("saved.csv"), bytes).expect("writes");
    let ran = scratch.run(["import", "saved.csv"].into_iter().chain(text));
    assert_eq!(
        (&ran.json()["accepted"], &ran.json()["rejected"]),
        (&0.into(), &2.into()),
        "{ran}"
    );
}

#[test]
fn formulas_are_guarded_in_rejects_and_read_back() {
    let scratch = Scratch::new();
    let name = "=cmd|' /C calc'!A0";
    scratch.write(
        "list.csv",
        &format!("phone,name,code\n12,{name},-12.5\n13,'=x,-x\n"),
    );
    let ran = scratch.run(import("list.csv", &["--campaign", "c"]));
    assert_eq!(ran.code(), Some(1), "{ran}");
    let rejects = scratch.read("list.rejects.csv");
    assert!(rejects.contains(&format!("12,'{name},-12.5,")), "{rejects}");
    assert!(rejects.contains("13,''=x,'-x,"), "{rejects}");
    let again = scratch.run(import(
        "list.rejects.csv",
        &["--campaign", "c", "--rejects", "2.csv"],
    ));
    assert_eq!(again.json()["rejected"], 2, "{again}");
    assert!(
        scratch
            .read("2.csv")
            .contains(&format!("12,'{name},-12.5,"))
    );
    let fixed = rejects
        .replace("\n12,", "\n+447400301001,")
        .replace("\n13,", "\n+447400301002,");
    scratch.write("list.rejects.csv", &fixed);
    let ran = scratch.run(import("list.rejects.csv", &["--campaign", "c"]));
    assert_eq!(ran.json()["accepted"], 2, "{ran}");
    let params = sqlite(&scratch, "SELECT content || params FROM sms ORDER BY phone");
    assert!(params.contains(&format!("Hi {name}{{")), "{params}");
    assert!(params.contains(r#""name":"'=x","code":"-x""#), "{params}");
}

#[test]
fn columns_of_smsq_are_never_part_of_a_text() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name,smsq_line\n+447400301001,Ann,3\n");
    for more in [
        &["--text", "{{ smsq_line }}"][..],
        &["--text", "{{ name }}", "--column", "name=smsq_line"],
        &["--text", "Hi", "--column", "phone=smsq_line"],
    ] {
        let ran = scratch.run(
            ["import", "list.csv"]
                .into_iter()
                .chain(more.iter().copied()),
        );
        assert_eq!(ran.code(), Some(2), "{ran}");
    }
}

#[test]
fn constant_text_that_cannot_be_sent_is_refused() {
    let scratch = Scratch::new();
    let long = "x".repeat(1_531);
    scratch
        .write("list.csv", "phone\n+447400301001\n")
        .write("long.txt", &long);
    for (flag, text) in [
        ("--text", long.as_str()),
        ("--template", "long.txt"),
        ("--text", "a\u{1b}[2Jb"),
        ("--text", "\u{200b}\u{feff}"),
        ("--text", "{{ 'x' ~ '\\u001b' }}"),
    ] {
        let ran = scratch.run(["import", "list.csv", flag, text]);
        assert_eq!(ran.code(), Some(2), "{text:?}: {ran}");
        assert!(!scratch.path("smsq.db").exists());
    }
    let most = "x".repeat(1_530);
    let ran = scratch.run(["import", "list.csv", "--text", &most]);
    assert_eq!(ran.code(), Some(0), "{ran}");
}

#[test]
fn rejects_can_go_to_a_device() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name\n12,Ann\n+447400301001,Bob\n");
    let line = ["import", "list.csv", "--text", "Hi", "--campaign", "c"];
    let to = |place: &'static str| scratch.run(line.into_iter().chain(["--rejects", place]));
    let ran = to("-");
    let header = "phone,name,smsq_text,smsq_line,smsq_reason\n12,Ann,,2,";
    assert!(ran.stdout().starts_with(header), "{ran}");
    assert_eq!(ran.stdout().lines().count(), 2, "{ran}");
    assert!(ran.stderr().contains("rejected    1"), "{ran}");
    assert_eq!(to("/dev/null").code(), Some(0));
    assert!(!scratch.path("-").exists() && !std::path::Path::new("/dev/null-2").exists());
    let refused = scratch.run(import("list.csv", &["--rejects", "-"]));
    assert_eq!(refused.code(), Some(2), "{refused}");
}

#[test]
fn rejects_that_cannot_be_written_leave_nothing_behind() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name\n12,Ann\n+447400301001,Bob\n");
    let ran = scratch.run(import("list.csv", &["--rejects", "/proc/x.csv"]));
    assert_eq!(ran.code(), Some(2), "{ran}");
    assert!(!scratch.path("smsq.db").exists());
}

#[test]
fn dry_run_of_two_files_counts_duplicates_between_them() {
    let scratch = Scratch::new();
    scratch.write(
        "a.csv",
        "phone,name\n+447400301001,Ann\n+447400301002,Bob\n",
    );
    scratch.write(
        "b.csv",
        "phone,name\n+447400301002,Bob\n+447400301003,Cai\n",
    );
    let line = [
        "import",
        "a.csv",
        "b.csv",
        "--campaign",
        "c",
        "--format",
        "json",
    ];
    let dry = scratch.run(line.into_iter().chain(TEXT).chain(["--dry-run"]));
    let ran = scratch.run(line.into_iter().chain(TEXT));
    for file in 0..2 {
        for count in ["accepted", "duplicates"] {
            assert_eq!(
                dry.json()["files"][file][count],
                ran.json()["files"][file][count],
                "{dry}{ran}"
            );
        }
    }
}

#[test]
fn column_flags_that_nothing_uses_are_refused() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name,city\n+447400301001,Ann,Rome\n");
    for more in [
        &["--column", "zip=city"][..],
        &["--column", "phone=phone", "--column", "phone=city"],
        &["--from", ""],
    ] {
        let ran = scratch.run(import("list.csv", more));
        assert_eq!(ran.code(), Some(2), "{ran}");
    }
    let ran = scratch.run(["import", "list.csv", "--text", "Hi {Name}", "--dry-run"]);
    assert!(
        ran.stderr()
            .contains("warning: `list.csv`: the text has `{name}`"),
        "{ran}"
    );
}

#[test]
fn utf8_rows_in_a_list_of_another_encoding_are_rejected() {
    let scratch = Scratch::new();
    let mut list = b"phone,name\n+447400301001,".to_vec();
    list.extend("Zo\u{eb}\n+447400301002,".as_bytes());
    list.extend(b"Zo\xeb\n+447400301003,M\xfcller\n");
    std::fs::write(scratch.path("list.csv"), list).expect("writes");
    let ran = scratch.run(import("list.csv", &[]));
    assert_eq!(
        (&ran.json()["accepted"], &ran.json()["rejected"]),
        (&2.into(), &1.into()),
        "{ran}"
    );
    assert!(
        scratch
            .read("list.rejects.csv")
            .contains("looks like UTF-8")
    );
}

#[test]
fn nested_objects_are_rejected() {
    let scratch = Scratch::new();
    scratch.write(
        "list.jsonl",
        "{\"phone\":\"+447400301001\",\"content\":{\"a\":1}}\n{\"phone\":\"+447400301002\",\"content\":\"{\\\"a\\\":1}\",\"order\":{\"id\":7}}\n",
    );
    let ran = scratch.run(["import", "list.jsonl", "--format", "json"]);
    assert_eq!(
        (&ran.json()["accepted"], &ran.json()["rejected"]),
        (&1.into(), &1.into()),
        "{ran}"
    );
}

#[test]
fn unfinished_imports_are_noted_until_one_is_finished() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        scratch.write("list.csv", "phone,name\n+447400301001,Ann\n");
        let line = import("list.csv", &["--campaign", "spring"]);
        scratch.run(line.clone());
        db.run("UPDATE import SET finished_at = NULL");
        let ran = scratch.run(["check"]);
        assert!(
            ran.stdout()
                .contains("for campaign `spring`: import it again"),
            "{ran}"
        );
        scratch.run(line);
        let ran = scratch.run(["check"]);
        assert!(!ran.stdout().contains("import it again"), "{ran}");
    });
}

#[test]
fn suppress_import_reads_what_import_reads() {
    let scratch = Scratch::new();
    let list = "客户;手机号\n\"王;小明\";13800138000\n";
    let bytes = encoding_rs::GB18030.encode(list).0;
    std::fs::write(scratch.path("stop.csv"), &bytes).expect("writes");
    let mut book = rust_xlsxwriter::Workbook::new();
    let sheet = book.add_worksheet();
    sheet.write(0, 1, "mobile").expect("writes");
    sheet.write(1, 1, 447_400_301_001_u64).expect("writes");
    book.save(scratch.path("stop.xlsx")).expect("writes");
    let ran = scratch.run(["suppress", "import", "stop.csv", "--region", "CN"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = scratch.run(["suppress", "import", "stop.xlsx", "--region", "GB"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = scratch.run(["suppress", "list"]);
    assert_eq!(ran.stdout(), "+447400301001\n+8613800138000\n", "{ran}");
    scratch.write("two.csv", "a,b\n+447400301002,+447400301003\n");
    let line = ["suppress", "import", "two.csv", "--column", "phone=b"];
    assert_eq!(scratch.run(line).code(), Some(0));
    assert!(
        scratch
            .run(["suppress", "list"])
            .stdout()
            .contains("+447400301003\n")
    );
}

fn zipped(parts: &[(&str, &str)]) -> Vec<u8> {
    let parts = parts.iter().map(|(name, text)| (*name, text.as_bytes()));
    zipped_bytes(&parts.collect::<Vec<_>>())
}

fn zipped_bytes(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        archive
            .start_file(*name, SimpleFileOptions::default())
            .expect("a part");
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
    let book = [
        long_record(0x9C, &sheet),
        long_record(0x90, &[]),
        long_record(0x84, &[]),
    ];
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
    let text = [
        &[1, 0, 0, 0, 1, 0, 0, 0, 0x60, 0xEA, 0][..],
        &[b'x'].repeat(30_000),
    ]
    .concat();
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
    xls(
        &globals,
        &(0..formulas).flat_map(formula).collect::<Vec<u8>>(),
    )
}

/// Runs the program with little address space: it is aborted if it needs more.
fn run_in_little_memory(scratch: &Scratch, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -v 1500000 && exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_smsq"),
        ])
        .args(arguments)
        .current_dir(scratch.path("."))
        .env("HOME", scratch.path("."))
        .env("TOKIO_WORKER_THREADS", "2");
    command.output().expect("sh starts")
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("is too large: "), "{name}: {said}");
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !said.contains("too large") && !said.contains("cannot read") && said.len() < 400,
            "{name}: {said}"
        );
    }
}

#[test]
fn endless_templates_are_refused_in_little_memory() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone\n+447400301001\n");
    let line = ["import", "list.csv", "--template", "/dev/zero"];
    let output = run_in_little_memory(&scratch, &line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`/dev/zero`: longer than 64 KiB"), "{said}");
    let doubled = format!("{}x{}", "{% set a = a ~ a %}".repeat(20), "{{ a ~ a }}");
    let each = format!(
        "{}{}",
        "{% for a in [a ~ a ~ a ~ a] %}".repeat(16),
        "{% endfor %}".repeat(16)
    );
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text:.80}: {said}");
        assert!(said.contains("`--text`: line 1: "), "{text:.80}: {said}");
    }
    let wide = r#"{{ "%999999999s" | format(phone) }}"#;
    let output = run_in_little_memory(&scratch, &["import", "list.csv", "--text", wide]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        scratch
            .read("list.rejects.csv")
            .contains("widths below 100"),
        "{said}"
    );
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text:.40}: {said}");
        assert!(said.contains("`deep.txt`: line 1: "), "{text:.40}: {said}");
    }
}
