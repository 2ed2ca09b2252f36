//! Rejects files that a spreadsheet saved, and lists and texts that cannot be sent.

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
    let mut rows: Vec<Vec<String>> =
        rows.map(|row| row.iter().map(str::to_owned).collect()).collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    for row in &mut rows {
        row.resize(width, String::new());
    }
    rows
}

fn written(rows: &[Vec<String>], delimiter: u8, encoding: &str) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
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
    for (header, delimiter, encoding) in
        [("phone,name\n", b',', "utf-8"), ("手机号;name\n", b';', "gb18030")]
    {
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
        std::fs::write(scratch.path("saved.csv"), written(&rows, delimiter, encoding))
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
    scratch.write("list.csv", "+447400301001,Ann\n+447400301002\n12,Bob\n+447400301003,Cai\n");
    let text = ["--text", "Hi {{ _2 }}", "--campaign", "c", "--format", "json"];
    let ran = scratch.run(["import", "list.csv"].into_iter().chain(text));
    assert_eq!(ran.json()["accepted"], 2, "{ran}");
    let rejects = scratch.read("list.rejects.csv");
    let rows = saved_by_a_spreadsheet(rejects.as_bytes(), b',', "utf-8");
    let bytes = written(&rows, b',', "utf-8");
    std::fs::write(scratch.path("saved.csv"), bytes).expect("writes");
    let ran = scratch.run(["import", "saved.csv"].into_iter().chain(text));
    assert_eq!((&ran.json()["accepted"], &ran.json()["rejected"]), (&0.into(), &2.into()), "{ran}");
}

#[test]
fn formulas_are_guarded_in_rejects_and_read_back() {
    let scratch = Scratch::new();
    let name = "=cmd|' /C calc'!A0";
    scratch.write("list.csv", &format!("phone,name,code\n12,{name},-12.5\n13,'=x,-x\n"));
    scratch.run(import("list.csv", &["--campaign", "c"])).assert_code(1);
    let rejects = scratch.read("list.rejects.csv");
    assert!(rejects.contains(&format!("12,'{name},-12.5,")), "{rejects}");
    assert!(rejects.contains("13,''=x,'-x,"), "{rejects}");
    let again = scratch.run(import("list.rejects.csv", &["--campaign", "c", "--rejects", "2.csv"]));
    assert_eq!(again.json()["rejected"], 2, "{again}");
    assert!(scratch.read("2.csv").contains(&format!("12,'{name},-12.5,")));
    let fixed = rejects.replace("\n12,", "\n+447400301001,").replace("\n13,", "\n+447400301002,");
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
        scratch.run(["import", "list.csv"].into_iter().chain(more.iter().copied())).assert_code(2);
    }
}

#[test]
fn constant_text_that_cannot_be_sent_is_refused() {
    let scratch = Scratch::new();
    let long = "x".repeat(1_531);
    scratch.write("list.csv", "phone\n+447400301001\n").write("long.txt", &long);
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
    scratch.run(["import", "list.csv", "--text", &most]).assert_code(0);
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
    scratch.run(import("list.csv", &["--rejects", "-"])).assert_code(2);
}

#[test]
fn rejects_that_cannot_be_written_leave_nothing_behind() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone,name\n12,Ann\n+447400301001,Bob\n");
    scratch.run(import("list.csv", &["--rejects", "/proc/x.csv"])).assert_code(2);
    assert!(!scratch.path("smsq.db").exists());
}

#[test]
fn dry_run_of_two_files_counts_duplicates_between_them() {
    let scratch = Scratch::new();
    scratch.write("a.csv", "phone,name\n+447400301001,Ann\n+447400301002,Bob\n");
    scratch.write("b.csv", "phone,name\n+447400301002,Bob\n+447400301003,Cai\n");
    let line = ["import", "a.csv", "b.csv", "--campaign", "c", "--format", "json"];
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
        scratch.run(import("list.csv", more)).assert_code(2);
    }
    let ran = scratch.run(["import", "list.csv", "--text", "Hi {Name}", "--dry-run"]);
    assert!(ran.stderr().contains("warning: `list.csv`: the text has `{name}`"), "{ran}");
}

#[test]
fn utf8_rows_in_a_list_of_another_encoding_are_rejected() {
    let scratch = Scratch::new();
    let mut list = b"phone,name\n+447400301001,".to_vec();
    list.extend("Zo\u{eb}\n+447400301002,".as_bytes());
    list.extend(b"Zo\xeb\n+447400301003,M\xfcller\n");
    std::fs::write(scratch.path("list.csv"), list).expect("writes");
    let ran = scratch.run(import("list.csv", &[]));
    assert_eq!((&ran.json()["accepted"], &ran.json()["rejected"]), (&2.into(), &1.into()), "{ran}");
    assert!(scratch.read("list.rejects.csv").contains("looks like UTF-8"));
}

#[test]
fn nested_objects_are_rejected() {
    let scratch = Scratch::new();
    scratch.write(
        "list.jsonl",
        "{\"phone\":\"+447400301001\",\"content\":{\"a\":1}}\n{\"phone\":\"+447400301002\",\"content\":\"{\\\"a\\\":1}\",\"order\":{\"id\":7}}\n",
    );
    let ran = scratch.run(["import", "list.jsonl", "--format", "json"]);
    assert_eq!((&ran.json()["accepted"], &ran.json()["rejected"]), (&1.into(), &1.into()), "{ran}");
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
        assert!(ran.stdout().contains("for campaign `spring`: import it again"), "{ran}");
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
    scratch.run(["suppress", "import", "stop.csv", "--region", "CN"]).assert_code(0);
    scratch.run(["suppress", "import", "stop.xlsx", "--region", "GB"]).assert_code(0);
    let ran = scratch.run(["suppress", "list"]);
    assert_eq!(ran.stdout(), "+447400301001\n+8613800138000\n", "{ran}");
    scratch.write("two.csv", "a,b\n+447400301002,+447400301003\n");
    let line = ["suppress", "import", "two.csv", "--column", "phone=b"];
    scratch.run(line).assert_code(0);
    assert!(scratch.run(["suppress", "list"]).stdout().contains("+447400301003\n"));
}
