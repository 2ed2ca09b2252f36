//! Files that are lists, and files that are not.

use std::path::PathBuf;

use super::super::record::Record;
use super::*;

fn open(bytes: &[u8]) -> Result<ListFile, ImportError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("list.csv");
    std::fs::write(&path, bytes).expect("writes");
    open_path(path)
}

fn open_path(file: PathBuf) -> Result<ListFile, ImportError> {
    ListFile::open(&Options { file, ..Options::default() })
}

fn fault(bytes: &[u8]) -> String {
    let message = open(bytes).expect_err("no list").to_string();
    let start = message.find("list.csv").expect("it names the file");
    format!("`{}", &message[start..])
}

fn first_row(list: &ListFile) -> (u64, Vec<String>) {
    let mut record = Record::default();
    list.records().expect("opens").next(&mut record).expect("reads");
    (record.line, record.fields().expect("UTF-8").map(str::to_owned).collect())
}

#[test]
fn delimiter_is_the_most_frequent_in_the_header() {
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
        assert_eq!(source.layout.delimiter, Some(delimiter), "{text}");
        assert_eq!(first_row(&source).1[0], "phone", "{text}");
    }
    assert_eq!(first_row(&open(b"sep=;\nphone;a\n").expect("a list")).0, 2);
    assert_eq!(first_row(&open(b"phone;a\r1;2\r").expect("a list")).1.len(), 2);
}

#[test]
fn other_files_are_rejected_by_kind() {
    for (bytes, expected) in [
        (&b""[..], "`list.csv` is empty"),
        (b" \r\n\n", "`list.csv` is empty"),
        (b"\xef\xbb\xbf", "`list.csv` is empty"),
        (b"%PDF-1.7\n", "`list.csv` is not a text file: it is a PDF"),
        (b"[\n {\"phone\":1}]", "`list.csv` is one JSON array"),
        (b"PK\x03\x04rest", "`list.csv`: it is damaged or cut off"),
        (b"\x1f\x8b\x08\x00cut", "`list.csv`: it is damaged or cut off"),
        (b"\xff\xfe\0\0p\0\0\0h\0\0\0", "`list.csv` is not a text file: it is in UTF-32"),
        (
            b"p\0\0\0h\0\0\0o\0\0\0n\0\0\0e\0\0\0\n\0\0\0",
            "`list.csv` is not a text file: it is in UTF-32",
        ),
        (b"\0\x01\x02\x03phone", "`list.csv` is not a text file: it contains binary data"),
    ] {
        assert_eq!(fault(bytes), expected);
    }
    let old = fault(b"\xd0\xcf\x11\xe0rest");
    assert!(old.starts_with("`list.csv`: "), "{old}");
}

#[test]
fn nul_in_a_row_is_not_binary() {
    assert!(open(b"phone,name\n13800138000,A\0nn\n").is_ok());
}

#[test]
fn missing_file_and_folder_are_named() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let missing = open_path(folder.path().join("none.csv")).expect_err("missing");
    assert!(missing.to_string().ends_with("none.csv` does not exist"), "{missing}");
    let is_folder = open_path(folder.path().to_owned()).expect_err("a folder");
    assert!(is_folder.to_string().ends_with("` is a folder"), "{is_folder}");
}

#[test]
fn standard_input_can_be_read_twice() {
    let file = buffered(&mut &b"phone\n1\n"[..]).expect("copies");
    let source =
        ListFile::open_text(file, "standard input".into(), "stdin".into(), &Options::default())
            .expect("a list");
    assert_eq!(first_row(&source), first_row(&source));
}

#[test]
fn every_format_is_in_the_documentation() {
    let page = include_str!("../../../docs/importing.md").to_lowercase();
    for name in super::super::record::formats().split([',', ' ']) {
        assert!(page.contains(&name.to_lowercase()), "{name}");
    }
}
