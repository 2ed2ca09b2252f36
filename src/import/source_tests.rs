//! Files that are lists, and files that are not.

use proptest::prelude::*;

use super::*;

fn open(bytes: &[u8]) -> Result<Source, ImportError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("list.csv");
    std::fs::write(&path, bytes).expect("writes");
    Source::open(&path).map_err(|error| match error {
        ImportError::Encoding {
            what, byte, line, ..
        } => ImportError::Encoding {
            file: "list.csv".into(),
            what,
            byte,
            line,
        },
        ImportError::Binary { what, .. } => ImportError::Binary {
            file: "list.csv".into(),
            what,
        },
        ImportError::Empty { .. } => ImportError::Empty {
            file: "list.csv".into(),
        },
        other => other,
    })
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
        assert_eq!(source.format.delimiter, delimiter, "{text}");
        assert_eq!(first_row(&source).1[0], "phone", "{text}");
    }
    assert_eq!(first_row(&open(b"sep=;\nphone;a\n").expect("a list")).0, 2);
    assert_eq!(
        open(b"phone;a\r1;2\r").expect("a list").format.terminator,
        b'\r'
    );
}

#[test]
fn what_is_not_a_list_is_named() {
    for (bytes, expected) in [
        (&b""[..], "`list.csv` is empty"),
        (b" \r\n\n", "`list.csv` is empty"),
        (b"\xef\xbb\xbf", "`list.csv` is empty"),
        (
            b"PK\x03\x04rest",
            "`list.csv` is not a text file: it is a workbook or another ZIP archive",
        ),
        (
            b"\0\x01\x02\x03phone",
            "`list.csv` is not a text file: it holds bytes that no text has",
        ),
        (
            b"phone,name\n1,\xc4\xe3\n",
            "`list.csv` is not UTF-8: 0xc4 at byte 13, line 2",
        ),
        (
            b"phone,name\n1,\xe4",
            "`list.csv` is not UTF-8: 0xe4 at byte 13, line 2",
        ),
        (
            b"\xff\xfep\0h\0",
            "`list.csv` is not UTF-8: it is UTF-16, as it says at byte 0, line 1",
        ),
    ] {
        assert_eq!(open(bytes).expect_err("no list").to_string(), expected);
    }
}

#[test]
fn a_nul_in_a_row_does_not_make_the_file_binary() {
    assert!(open(b"phone,name\n13800138000,A\0nn\n").is_ok());
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let missing = Source::open(&folder.path().join("none.csv")).expect_err("missing");
    assert!(
        missing.to_string().ends_with("none.csv` does not exist"),
        "{missing}"
    );
    let is_folder = Source::open(folder.path()).expect_err("a folder");
    assert!(
        is_folder.to_string().ends_with("` is a folder"),
        "{is_folder}"
    );
}

#[test]
fn standard_input_can_be_read_twice() {
    let file = spooled(&mut &b"phone\n1\n"[..]).expect("spools");
    let source = Source::inspect(
        file,
        Path::new("-"),
        "standard input".into(),
        "stdin".into(),
    )
    .expect("a list");
    assert_eq!(first_row(&source), first_row(&source));
}

proptest! {
    #[test]
    fn text_in_pieces_is_judged_as_text_in_one(bytes in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'\n'), Just(0xe4), Just(0xbd), Just(0xa0), any::<u8>()], 0..24), cut in 0usize..24) {
        let cut = cut.min(bytes.len());
        let mut pieces = Utf8::default();
        let found = pieces.take(&bytes[..cut]).and_then(|()| pieces.take(&bytes[cut..])).and_then(|()| pieces.finish());
        let expected = std::str::from_utf8(&bytes).map_err(|error| error.valid_up_to() as u64);
        prop_assert_eq!(found.map_err(|fault| fault.byte), expected.map(|_| ()));
    }
}
