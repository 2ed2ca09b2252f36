//! Files that are lists, and files that are not.

use super::*;

fn open(bytes: &[u8]) -> Result<Source, ImportError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("list.csv");
    std::fs::write(&path, bytes).expect("writes");
    Source::open(&path, Asked::default())
}

fn fault(bytes: &[u8]) -> String {
    let message = open(bytes).expect_err("no list").to_string();
    let start = message.find("list.csv").expect("it names the file");
    format!("`{}", &message[start..])
}

fn format(bytes: &[u8]) -> Format {
    match open(bytes).expect("a list").form {
        Form::Separated(format) => format,
        other => panic!("{other:?}"),
    }
}

fn first_row(source: &Source) -> (u64, Vec<String>) {
    let mut record = super::super::reader::Record::default();
    source
        .rows()
        .expect("opens")
        .next(&mut record)
        .expect("reads");
    (
        record.line,
        record.fields().expect("UTF-8").map(str::to_owned).collect(),
    )
}

#[test]
fn the_delimiter_is_the_one_that_the_header_has_most_of() {
    for (text, delimiter) in [
        ("phone,name\n", b','),
        ("phone;\"a,b,c\";name\n", b';'),
        ("phone\tname\r\n", b'\t'),
        ("phone|name", b'|'),
        ("phone\n", b','),
        ("\u{feff}phone;name\n", b';'),
        ("sep=|\nphone|a,b,c\n", b'|'),
    ] {
        let source = open(text.as_bytes()).expect("a list");
        assert_eq!(format(text.as_bytes()).delimiter, delimiter, "{text}");
        assert_eq!(first_row(&source).1[0], "phone", "{text}");
    }
    assert_eq!(first_row(&open(b"sep=;\nphone;a\n").expect("a list")).0, 2);
    assert_eq!(format(b"phone;a\r1;2\r").terminator, b'\r');
}

#[test]
fn what_is_not_a_list_is_named() {
    for (bytes, expected) in [
        (&b""[..], "`list.csv` is empty"),
        (b" \r\n\n", "`list.csv` is empty"),
        (b"\xef\xbb\xbf", "`list.csv` is empty"),
        (b"%PDF-1.7\n", "`list.csv` is not a text file: it is a PDF"),
        (b"[\n {\"phone\":1}]", "`list.csv` is one JSON array"),
        (
            b"PK\x03\x04rest",
            "`list.csv` cannot be unpacked: it is damaged or cut off",
        ),
        (
            b"\x1f\x8b\x08\x00cut",
            "`list.csv` cannot be unpacked: it is damaged or cut off",
        ),
        (
            b"\xff\xfe\0\0p\0\0\0h\0\0\0",
            "`list.csv` is not a text file: it is in UTF-32",
        ),
        (
            b"p\0\0\0h\0\0\0o\0\0\0n\0\0\0e\0\0\0\n\0\0\0",
            "`list.csv` is not a text file: it is in UTF-32",
        ),
        (
            b"\0\x01\x02\x03phone",
            "`list.csv` is not a text file: it holds bytes that no text has",
        ),
    ] {
        assert_eq!(fault(bytes), expected);
    }
    let old = fault(b"\xd0\xcf\x11\xe0rest");
    assert!(
        old.starts_with("`list.csv` cannot be read as a workbook: "),
        "{old}"
    );
}

#[test]
fn a_nul_in_a_row_does_not_make_the_file_binary() {
    assert!(open(b"phone,name\n13800138000,A\0nn\n").is_ok());
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let missing =
        Source::open(&folder.path().join("none.csv"), Asked::default()).expect_err("missing");
    assert!(
        missing.to_string().ends_with("none.csv` does not exist"),
        "{missing}"
    );
    let is_folder = Source::open(folder.path(), Asked::default()).expect_err("a folder");
    assert!(
        is_folder.to_string().ends_with("` is a folder"),
        "{is_folder}"
    );
}

#[test]
fn standard_input_can_be_read_twice() {
    let file = spool::of(&mut &b"phone\n1\n"[..]).expect("spools");
    let source = Source::inspect(
        file,
        "standard input".into(),
        "stdin".into(),
        Asked::default(),
    )
    .expect("a list");
    assert_eq!(first_row(&source), first_row(&source));
}
