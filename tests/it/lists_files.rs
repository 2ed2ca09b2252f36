//! Lists in other encodings and formats: workbooks, JSON, compressed, through a pipe.

use std::io::Write as _;
use std::process::Stdio;

use rust_xlsxwriter::{Format, Workbook};

use crate::support::{Scratch, snapshot};

const CHINESE: &str = "手机号,姓名\n13800138000,王小明\n1.38E+10,李秀英\n13800138000,王小明\n";

fn encoded(text: &str, encoding: &str) -> Vec<u8> {
    let encoding = encoding_rs::Encoding::for_label(encoding.as_bytes()).expect("an encoding");
    let (bytes, _, is_lossy) = encoding.encode(text);
    assert!(!is_lossy);
    bytes.into_owned()
}

fn utf16(text: &str) -> Vec<u8> {
    let mark = [0xff, 0xfe].into_iter();
    mark.chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

fn write(scratch: &Scratch, name: &str, bytes: &[u8]) {
    std::fs::write(scratch.path(name), bytes).expect("writes");
}

#[test]
fn gb18030_list_has_rejects_in_gb18030() {
    let scratch = Scratch::new();
    write(&scratch, "名单.csv", &encoded(CHINESE, "gb18030"));
    let import =
        |file| ["import", file, "--region", "CN", "--text", "{{ 姓名 }}您好", "--campaign", "夏"];
    snapshot!(scratch.run(import("名单.csv")), @r"
    exit 0
    ----- stdout
    名单.csv into campaign `夏`
      rows        3
      accepted    1
      duplicates  1 (line 4 repeats line 2)
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    1 (0 messages in GSM-7, 1 in UCS-2)
    ----- stderr
    `名单.csv`: CSV in GB18030, `,` between the fields, header in line 1; phone: `手机号`; text: with `姓名`
    warning: `名单.csv`: rejected 1 row, with the reasons in `名单.rejects.csv`
    fix that file and import it: `smsq import 名单.rejects.csv --campaign 夏 --text '{{ 姓名 }}您好' --region CN`
    next: `smsq send --campaign 夏`
    ");
    let rejects = std::fs::read(scratch.path("名单.rejects.csv")).expect("the rejects");
    let (text, _, is_broken) = encoding_rs::GB18030.decode(&rejects);
    assert!(
        !is_broken
            && text.starts_with("手机号,姓名,smsq_text,smsq_line,smsq_reason\n1.38E+10,李秀英,,3,"),
        "{text}"
    );
    let fixed = text.replacen("1.38E+10", "138 0013 8001", 1);
    write(&scratch, "名单.rejects.csv", &encoded(&fixed, "gb18030"));
    let ran = scratch.run(import("名单.rejects.csv"));
    assert!(ran.stdout().contains("accepted    1\n"), "{ran}");
}

#[test]
fn encoding_is_detected_or_named() {
    let scratch = Scratch::new();
    let text = "Telefon;Name\n+4915123456788;Jörg Größe\n+4915123456789;Jürgen Müller\n";
    write(&scratch, "latin.csv", &encoded(text, "windows-1252"));
    write(&scratch, "wide.csv", &utf16(text));
    let dry_run = |file, more: &[&'static str]| {
        let line = ["import", file, "--text", "Hallo {{ Name }}", "--dry-run"];
        scratch.run(line.into_iter().chain(more.iter().copied()))
    };
    for (file, named) in [("latin.csv", "windows-1252"), ("wide.csv", "UTF-16LE")] {
        let ran = dry_run(file, &[]);
        let list =
            format!("list        CSV in {named}, `;` between the fields, header in line 1\n");
        assert!(ran.stdout().contains(&list), "{ran}");
        assert!(ran.stdout().contains("Hallo Jörg Größe"), "{ran}");
    }
    let ran = dry_run("latin.csv", &["--encoding", "cp1251"]);
    assert!(ran.stdout().contains("windows-1251") && ran.stdout().contains("J\u{446}rg"), "{ran}");
    dry_run("latin.csv", &["--encoding", "klingon"]).assert_code(2);
}

fn book() -> Vec<u8> {
    let mut book = Workbook::new();
    let sheet = book.add_worksheet().set_name("Kunden").expect("a name");
    for (column, name) in (0..).zip(["Handynummer", "Festnetz", "Name", "Tag"]) {
        sheet.write(0, column, name).expect("writes");
    }
    let day = Format::new().set_num_format("yyyy-mm-dd");
    sheet.write(1, 0, 15_123_456_789_u64).expect("writes");
    sheet.write(1, 2, "Ann").expect("writes");
    sheet.write_with_format(1, 3, 46_347, &day).expect("writes");
    sheet.write(2, 1, "030 12345678").expect("writes");
    sheet.write(2, 2, "Ben").expect("writes");
    sheet.write_with_format(2, 3, 46_348, &day).expect("writes");
    sheet.write(4, 0, "4.9E+12").expect("writes");
    sheet.write(4, 2, "Cai").expect("writes");
    book.add_worksheet().write(0, 0, "phone").expect("writes");
    book.save_to_buffer().expect("a workbook")
}

#[test]
fn workbook_with_several_phone_columns_is_read() {
    let scratch = Scratch::new();
    write(&scratch, "kunden.xlsx", &book());
    let line = [
        "import",
        "kunden.xlsx",
        "--region",
        "DE",
        "--national",
        "--text",
        "{{ Name }}: {{ Tag }}",
    ];
    snapshot!(scratch.run(line.into_iter().chain(["--column", "phone=Handynummer,Festnetz"])), @r"
    exit 0
    ----- stdout
    kunden.xlsx into campaign `kunden-8617d7`
      rows        3
      accepted    2
      duplicates  0
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    2 (2 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    `kunden.xlsx`: workbook, sheet `Kunden`, not `Sheet2` (`--sheet NAME` selects one), header in line 1; phone: `Handynummer`, else `Festnetz`; text: with `Name`, `Tag`
    warning: `kunden.xlsx`: rejected 1 row, with the reasons in `kunden.rejects.csv`
    fix that file and import it: `smsq import kunden.rejects.csv --campaign kunden-8617d7 --text '{{ Name }}: {{ Tag }}' --column 'phone=Handynummer,Festnetz' --region DE --national`
    warning: `kunden.xlsx`: 1 landline, the first in line 3: such numbers rarely receive text messages
    next: `smsq send --campaign kunden-8617d7`
    ");
    let rejects = scratch.read("kunden.rejects.csv");
    assert!(
        rejects.starts_with(
            "\u{feff}Handynummer,Festnetz,Name,Tag,smsq_text,smsq_line,smsq_reason\n4.9E+12,,Cai,,,5,"
        ),
        "{rejects}"
    );
    let ran = scratch.run(["import", "kunden.xlsx", "--text", "Hi", "--sheet", "3"]).assert_code(2);
    assert!(ran.stderr().contains("hint: its sheets are `Kunden`, `Sheet2`"), "{ran}");
}

#[test]
fn json_objects_are_rows() {
    let scratch = Scratch::new();
    scratch.write(
        "list.jsonl",
        "{\"phone\": 447400123456, \"name\": \"Ann\"}\n{\"name\": \"Ben\", \"phone\": \"07400 123457\"}\n{\"phone\": 7.4e9}\nBen\n",
    );
    let ran = scratch.run(["import", "list.jsonl", "--region", "GB", "--text", "Hi {{ name }}"]);
    assert!(ran.stdout().contains("accepted    2\n"), "{ran}");
    assert!(
        ran.stdout().contains("rejected    2 (1 not a JSON object, 1 scientific notation)\n"),
        "{ran}"
    );
    let rejects = scratch.read("list.rejects.jsonl");
    let fixed =
        rejects.replace("7.4e9", "07400 123458").replace("\"name\":\"\"", "\"name\":\"Cai\"");
    scratch.write("list.rejects.jsonl", &fixed);
    let ran =
        scratch.run(["import", "list.rejects.jsonl", "--region", "GB", "--text", "Hi {{ name }}"]);
    assert!(ran.stdout().contains("accepted    1\n"), "{ran}");
    assert!(ran.stdout().contains("rejected    1 (1 not filled in)\n"), "{ran}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("packs");
    packed.finish().expect("packs")
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).expect("a file");
        archive.write_all(bytes).expect("packs");
    }
    archive.finish().expect("packs").into_inner()
}

#[test]
fn compressed_list_equals_the_plain_list() {
    let scratch = Scratch::new();
    let list = "phone,name\n+447400123456,Ann\n";
    scratch.write("list.csv", list);
    write(&scratch, "list.csv.gz", &gzip(list.as_bytes()));
    let inner = [("__MACOSX/._list.csv", &b"x"[..]), ("list.csv", list.as_bytes())];
    write(&scratch, "list.csv.zip", &zip(&inner));
    write(&scratch, "book.zip", &zip(&[("kunden.xlsx", &book())]));
    write(&scratch, "two.zip", &zip(&[("a.csv", b"phone\n"), ("b.csv", b"phone\n")]));
    let campaigns: Vec<String> = ["list.csv", "list.csv.gz", "list.csv.zip"]
        .map(|file| {
            let ran = scratch.run([
                "import",
                file,
                "--text",
                "Hi {{ name }}",
                "--dry-run",
                "--format",
                "json",
            ]);
            assert_eq!(ran.json()["accepted"], 1, "{ran}");
            ran.json()["campaign"].to_string()
        })
        .to_vec();
    assert!(campaigns.iter().all(|campaign| *campaign == campaigns[0]), "{campaigns:?}");
    let ran = scratch.run([
        "import",
        "book.zip",
        "--region",
        "DE",
        "--text",
        "Hi {{ Name }}",
        "--dry-run",
    ]);
    assert!(ran.stdout().contains("sheet `Kunden`"), "{ran}");
    snapshot!(scratch.run(["import", "two.zip", "--text", "Hi"]), @r"
    exit 2
    ----- stderr
    error: `two.zip` is an archive of 2 files: `a.csv`, `b.csv`
    hint: unpack it and name the files: several are imported at once
    ");
}

#[test]
fn pipe_can_have_any_format() {
    let scratch = Scratch::new();
    for bytes in
        [gzip(b"phone,Name\n+447400123456,Ann\n"), book(), utf16("phone,Name\n+447400123456,Ann\n")]
    {
        let mut command = scratch.command([
            "import",
            "-",
            "--region",
            "DE",
            "--national",
            "--text",
            "Hi {{ Name }}",
            "--dry-run",
        ]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        child.stdin.take().expect("piped").write_all(&bytes).expect("writes");
        let output = child.wait_with_output().expect("ends");
        let message = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && message.contains("Hi Ann"), "{message}");
    }
}

#[test]
fn phone_column_without_header_is_found_by_values() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "Ann,07400 123456\nBen,07400 123457\nCai,7.4E+09\n");
    let line = ["import", "list.csv", "--region", "GB"];
    snapshot!(scratch.run(line.into_iter().chain(["--text", "Hi {{ _1 }}"])), @r"
    exit 0
    ----- stdout
    list.csv into campaign `list-27b759`
      rows        3
      accepted    2
      duplicates  0
      suppressed  0
      rejected    1 (1 scientific notation)
      segments    2 (2 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    `list.csv`: CSV in UTF-8, `,` between the fields, no header; phone: column 2, where 2 of 3 values look like phones; text: with `_1` from `1`
    warning: `list.csv`: rejected 1 row, with the reasons in `list.rejects.csv`
    fix that file and import it: `smsq import list.rejects.csv --campaign list-27b759 --text 'Hi {{ _1 }}' --region GB`
    next: `smsq send --campaign list-27b759`
    ");
    assert!(
        scratch
            .read("list.rejects.csv")
            .starts_with("1,phone,smsq_text,smsq_line,smsq_reason\nCai,7.4E+09,,3,")
    );
    let named =
        ["--text", "Hi {{ name }}", "--column", "phone=2", "--column", "name=1", "--dry-run"];
    let ran = scratch.run(line.into_iter().chain(named));
    assert!(ran.stdout().contains("Hi Ann"), "{ran}");
    scratch.write("two.csv", "07400 123456,07400 123457\n");
    let ran = scratch.run(["import", "two.csv", "--region", "GB", "--text", "Hi"]);
    assert!(ran.stderr().contains("hint: name one: `--column phone=1`"), "{ran}");
}

#[test]
fn numbers_with_a_country_code_and_no_plus_are_not_guessed() {
    let scratch = Scratch::new();
    // A British and a French mobile, whose digits are also German landlines, and a German one as in a spreadsheet.
    scratch.write("list.csv", "phone\n447400123456\n33612345678\n4915123456789\n");
    let dry_run = |flags: &[&str]| {
        let line = ["import", "list.csv", "--text", "Hi", "--dry-run", "--format", "json"];
        scratch.run(line.iter().chain(flags).copied()).json()
    };
    let guessed = dry_run(&["--region", "DE"]);
    assert_eq!((&guessed["accepted"], &guessed["rejected"]), (&1.into(), &2.into()), "{guessed}");
    let international = dry_run(&["--region", "DE", "--international"]);
    assert_eq!(international["accepted"], 3, "{international}");
    assert_eq!(dry_run(&["--international"])["accepted"], 3);
    scratch.write("smsq.toml", "[import]\nnumbers = \"international\"\n");
    assert_eq!(dry_run(&["--region", "DE"])["accepted"], 3);
    scratch
        .run(["import", "list.csv", "--text", "Hi", "--national", "--international"])
        .assert_code(2);
}

#[test]
fn ambiguous_numbers_are_decided_by_the_whole_list() {
    let scratch = Scratch::new();
    // The first can be a mobile of China, and one of North America.
    let chinese = "13125550123\n13800138000\n18600138001\n";
    let accepted = |more: &str| {
        scratch.write("list.csv", &format!("phone\n{chinese}{more}"));
        let line =
            ["import", "list.csv", "--text", "Hi", "--region", "CN", "-n", "--format", "json"];
        scratch.run(line).json()["accepted"].clone()
    };
    assert_eq!(accepted(""), 3);
    // One number that only another country has, in the last line.
    assert_eq!(accepted("447400123456\n"), 2);
}

#[test]
fn missing_phone_column_of_a_workbook_names_its_other_sheets() {
    let scratch = Scratch::new();
    let mut book = Workbook::new();
    for (name, column) in [("Notes", "remark"), ("Customers", "phone")] {
        let sheet = book.add_worksheet().set_name(name).expect("a name");
        sheet.write(0, 0, column).expect("writes");
    }
    write(&scratch, "book.xlsx", &book.save_to_buffer().expect("a workbook"));
    let ran = scratch.run(["import", "book.xlsx", "--text", "Hi"]).assert_code(2);
    assert!(
        ran.stderr().contains("sheet `Notes`, not `Customers` (`--sheet NAME` selects one)"),
        "{ran}"
    );
}
