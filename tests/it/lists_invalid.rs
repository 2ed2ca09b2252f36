//! Broken, hostile and other files: each is refused in one clear sentence, and nothing is written.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::{Ran, Scratch};

fn write(scratch: &Scratch, name: &str, bytes: &[u8]) {
    std::fs::write(scratch.path(name), bytes).expect("writes");
}

fn import(scratch: &Scratch, file: &str) -> Ran {
    scratch.run(["import", file, "--region", "GB", "--text", "Hi"])
}

/// Expects exit code 2, an error of one sentence, and no database.
fn refused(scratch: &Scratch, file: &str, sentence: &str) {
    let ran = import(scratch, file);
    assert_eq!(ran.code(), Some(2), "{file}: {ran}");
    let message = ran.stderr();
    let first = message.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("error: ")
            && first.contains(&format!("`{file}`"))
            && first.contains(sentence),
        "{file}: {ran}"
    );
    assert!(message.lines().count() <= 2, "{file}: {ran}");
    assert!(!scratch.path("smsq.db").exists(), "{file}");
}

fn bomb() -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file("list.csv", zip::write::SimpleFileOptions::default()).expect("a file");
    let piece = vec![b'\n'; 1 << 20];
    for _ in 0..100 {
        archive.write_all(&piece).expect("packs");
    }
    archive.finish().expect("packs").into_inner()
}

#[test]
fn file_that_is_not_a_list_is_refused_in_one_sentence() {
    let scratch = Scratch::new();
    let columns = vec!["c"; 1_000_000].join(",");
    let protected = include_bytes!("../fixtures/import/protected.xlsx").to_vec();
    for (name, bytes, sentence) in [
        (
            "mixed-encodings.csv",
            "phone,name\n07400123456,李秀英\n"
                .as_bytes()
                .iter()
                .chain(b"07400123457,\xcd\xf5\xd0\xa1\xc3\xf7\n")
                .copied()
                .collect(),
            "mixes encodings: line 2 is UTF-8, line 3 is not",
        ),
        ("million-columns.csv", columns.into_bytes(), "the row is longer than 64 KiB"),
        ("single-line.csv", vec![b'x'; 100 << 20], "the row is longer than 64 KiB"),
        (
            "unbalanced-header.csv",
            b"phone,\"name\n1,2\n".to_vec(),
            "a quote is opened and never closed",
        ),
        ("protected.xlsx", protected, "is protected with a password"),
        ("broken.xlsx", b"PK\x03\x04broken".to_vec(), "cannot unpack"),
        ("broken.gz", b"\x1f\x8b\x08\x00broken".to_vec(), "cannot unpack"),
        ("bomb.zip", bomb(), "its content is too large for its size"),
        ("picture.csv", b"\x89PNG\r\n\x1a\n".to_vec(), "it is a picture"),
        ("nul.csv", b"ph\0one,name\n".to_vec(), "it contains binary data"),
        ("array.json", b"[{\"phone\": 1}]".to_vec(), "is one JSON array"),
        ("no-objects.json", b"{\n\"phone\": 1\n}\n".to_vec(), "has no JSON objects"),
        ("empty.csv", b"\xef\xbb\xbf\r\n".to_vec(), "is empty"),
    ] {
        write(&scratch, name, &bytes);
        refused(&scratch, name, sentence);
        std::fs::remove_file(scratch.path(name)).expect("removes");
    }
    refused(&scratch, "/dev/zero", "is a device");
}

#[test]
fn bad_row_rejects_no_other_row() {
    let wide: Vec<u8> = "phone,name\n07400123456,Ann\n07400123457,Bén"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let nul = b"phone,name\n07400123456,Ann\n07400123457,B\0n\n".to_vec();
    let quotes = b"phone,name\n07400123457,\"Ben\n07400123456,Ann\n".to_vec();
    let twice = b"phone,name\n07400123456,Ann\nphone,name\n".to_vec();
    let utf8 = b"phone,name\n07400123456,Z\xc3\xb6e\xc3\xa9\n07400123457,B\xc3\n07400123456,Z\xc3\xb6\xc3\xa9\n".to_vec();
    let long =
        format!("phone,name\n07400123456,Ann\n07400123457,{}\n", "x".repeat(70_000)).into_bytes();
    for (name, bytes, message) in [
        ("truncated-utf-16.csv", wide[..wide.len() - 1].to_vec(), "1 other encoding"),
        ("nul.csv", nul, "1 NUL character"),
        ("unbalanced-quotes.csv", quotes, "1 stray quote"),
        ("two-headers.csv", twice, "1 repeated header"),
        ("broken-character.csv", utf8, "1 other encoding"),
        ("long-row.csv", long, "1 row too long"),
    ] {
        let scratch = Scratch::new();
        write(&scratch, name, &bytes);
        let ran = import(&scratch, name);
        assert_eq!(ran.code(), Some(0), "{name}: {ran}");
        assert!(ran.stdout().contains("accepted    1\n"), "{name}: {ran}");
        assert!(ran.stdout().contains(&format!("rejected    1 ({message})\n")), "{name}: {ran}");
    }
}

#[test]
fn broken_characters_are_written_back_unchanged() {
    let scratch = Scratch::new();
    let mut list = b"phone,name\n07400123456,\xc4\xe3\xff\xff\n".to_vec();
    for line in 0..20 {
        list.extend_from_slice(format!("074001234{:02},", 60 + line).as_bytes());
        list.extend_from_slice(b"\xcd\xf5\xd0\xa1\xc3\xf7\n");
    }
    write(&scratch, "list.csv", &list);
    let ran = import(&scratch, "list.csv");
    assert!(ran.stdout().contains("accepted    20\n"), "{ran}");
    let rejects = std::fs::read(scratch.path("list.rejects.csv")).expect("the rejects");
    let row = b"07400123456,\xc4\xe3\xff\xff,,2,the row is not GB18030\n";
    assert!(rejects.ends_with(row), "{}", String::from_utf8_lossy(&rejects));
}

#[test]
fn invalid_text_is_refused() {
    let scratch = Scratch::new();
    let long = "x".repeat(60_000);
    scratch
        .write("list.csv", &format!("phone,name,long\n07400123456,Ann,{}\n", "y".repeat(50_000)));
    scratch.write("long.txt", &format!("{{{{ long }}}}{long}"));
    for (flags, message) in [
        (
            ["--text", "{{ phone.__class__ }}"],
            "is not a column: a column is plain text without parts",
        ),
        (["--text", "{{ ''.__class__ }}"], "Hi"),
        (
            ["--text", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"],
            "`{% macro %}` is not available in a template",
        ),
        (["--text", "{% include 'list.csv' %}"], "`{% include %}` is not available in a template"),
    ] {
        let ran = scratch.run(["import", "list.csv", "--region", "GB"].into_iter().chain(flags));
        assert_ne!(ran.code(), None, "{ran}");
        assert!(ran.code() != Some(0), "{flags:?}: {ran}");
        if message != "Hi" {
            assert!(format!("{ran}").contains(message), "{flags:?}: {ran}");
        }
    }
    let ran = scratch
        .run(["import", "list.csv", "--region", "GB", "--template", "long.txt"])
        .assert_code(1);
    assert!(ran.stdout().contains("rejected    1 (1 text too long)\n"), "{ran}");
}

#[test]
fn link_and_pipe_are_read_like_files() {
    let scratch = Scratch::new();
    scratch.write("list.csv", "phone\n07400123456\n");
    std::os::unix::fs::symlink("list.csv", scratch.path("link.csv")).expect("links");
    let ran = import(&scratch, "link.csv");
    assert!(ran.stdout().contains("link.csv into campaign `link-"), "{ran}");
    std::os::unix::fs::symlink("nowhere.csv", scratch.path("dangling.csv")).expect("links");
    let ran = import(&scratch, "dangling.csv");
    assert!(ran.stderr().contains("`dangling.csv` does not exist"), "{ran}");
    let made = Command::new("mkfifo").arg(scratch.path("fifo.csv")).status();
    assert!(made.expect("mkfifo runs").success());
    let reading = scratch
        .command(["import", "fifo.csv", "--region", "GB", "--text", "Hi"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    // Opening a pipe waits for the reader.
    scratch.write("fifo.csv", "phone\n07400123457\n");
    let output = reading.wait_with_output().expect("ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("accepted    1\n"));
}
