//! Fuzzes the readers of lists, from the bytes of a file to messages: every row becomes a message or is rejected with its
//! line, what is wrong is one sentence, and the file of rejected rows can be imported.

#![no_main]

mod samples;

use std::io::{Cursor, Write as _};
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use samples::{MemoryFile, check_params, check_shown, lossy};
use smsq_import::{Options, Plan, TextSource};
use smsq_message::phone::{Dialling, Phone};
use smsq_message::text::content;

const SAMPLES: [&[&[u8]]; 1] = [&[
    b"\x00\x00phone,name,city\n+447400123456,Ann,\"Bath, UK\"\n07400 123457,\"Zo\"\"\xc3\xab\",Ulm\n1.38E+10,Cai,\n",
    b"\x00\x01\xe6\x89\x8b\xe6\x9c\xba\xe5\x8f\xb7;\xe5\xa7\x93\xe5\x90\x8d\n13800138000;\xe7\x8e\x8b\xe5\xb0\x8f\xe6\x98\x8e\n13800138001;\"a\nb\"\n",
    b"\x00\x02\xca\xd6\xbb\xfa\xba\xc5\t\xd0\xd5\xc3\xfb\r\n13800138000\t\xcd\xf5\xd0\xa1\xc3\xf7\r\n",
    b"\x00\x03\xff\xfep\0h\0o\0n\0e\0\n\0+\x004\x004\x007\x004\x000\x000\x001\x002\x003\x004\x005\x006\0",
    b"\x00\x00{\"phone\":\"+447400123456\",\"name\":\"Ann\"}\n{\"phone\":7400123457,\"name\":null,\"x\":{}}\n",
    b"\x00\x04sep=|\nTitle\n\nmobile|smsq_id|content\n'+44 7400 123456|7|'=Hi\n+447400123457|8|Hi|x\n",
    b"\x00\x05+447400123456\n12\n+447400123457\n",
    b"\x00\x08\x1b$B<h5!\x1b(B,a\r+447400123456,b\r",
    b"\x10\x00phone\n+447400123456\n",
    b"\x20\x00phone,name\n+447400123456,x\n",
    b"\x30\x00<row r=\"1\"><c t=\"inlineStr\"><is><t>phone</t></is></c><c t=\"s\"><v>0</v></c></row><row r=\"3\" hidden=\"1\"><c r=\"A3\"><v>447400123456</v></c><c r=\"C3\" t=\"b\"><v>1</v></c></row>",
]];

static LIST: LazyLock<MemoryFile> = LazyLock::new(MemoryFile::create);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // The first two bytes are options, so there is one row of samples.
    samples::mutate(&SAMPLES, &mut data[..max_size], size, seed)
});

// calamine panics on some damaged workbooks, which smsq catches.
fn ignore_panics_of_calamine() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location();
        if !place.is_some_and(|place| place.file().contains("/calamine-")) {
            report(panic);
        }
    }));
}

fuzz_target!(init: ignore_panics_of_calamine(), |data: &[u8]| {
    let [_, form, bits, bytes @ ..] = data else {
        return;
    };
    let packed = match form >> 4 {
        1 => gzip(bytes),
        2 => zip(&[("list.csv", bytes)]),
        3 => workbook(bytes),
        _ => bytes.to_vec(),
    };
    LIST.write(&packed);
    let texts = [
        "Hi",
        "Hi {{ name }}",
        "{{ _1 }}\u{201d}",
        "{{ phone }} {{ city | default('-') }}",
    ];
    let text = match form & 7 {
        4.. => TextSource::Column,
        text => TextSource::Text(texts[usize::from(text)].to_owned()),
    };
    let regions = ["GB", "CN", "", "US"];
    let encodings = [
        "",
        "gb18030",
        "utf-16",
        "iso-2022-jp",
        "shift-jis",
        "windows-1252",
    ];
    let options = Options {
        file: LIST.path.clone(),
        text,
        dialling: Dialling::from(regions[usize::from(bits & 3)].parse().ok()),
        encoding: encodings
            .get(usize::from(bits >> 2 & 15))
            .and_then(|name| name.parse().ok()),
        smart: bits & 64 != 0,
        rejects: Some(LIST.beside.clone()),
        name: Some("list".to_owned()),
        ..Options::default()
    };
    let keeps_rejects = form & 8 != 0;
    match read(options.clone(), keeps_rejects) {
        Ok((read, kept)) => {
            if form >> 4 == 0 {
                check_complete(bytes, &options, read);
            }
            if let Some(kept) = kept {
                check_rejects(kept, &options, read.rejected);
            }
        }
        Err(error) => check_shown(&error, 1_500),
    }
});

/// What was read of a list.
#[derive(Clone, Copy)]
struct Read {
    rows: usize,
    rejected: usize,
    /// The line of the header; 0 without one, or for JSON lines.
    header: u64,
    has_keys: bool,
}

/// Reads a list, and checks each row.
fn read(options: Options, keeps_rejects: bool) -> Result<(Read, Option<PathBuf>), String> {
    let sentence = |error: smsq_import::ImportError| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    let plan = Plan::prepare(options).map_err(sentence)?;
    let interpretation = plan.interpretation();
    check_shown(&interpretation.format, 400);
    let header = interpretation.format.split_once("header in line ");
    let (messages, rejected, kept) = plan.fuzz_rows(keeps_rejects).map_err(sentence)?;
    let mut lines: Vec<u64> = messages.iter().map(|message| message.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    lines.extend(rejected.iter().map(|(line, _)| line));
    lines.sort_unstable();
    assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "{lines:?}");
    assert!(lines.first() != Some(&0), "{lines:?}");
    for (_, rejection) in &rejected {
        check_shown(&rejection.reason, 2_000);
    }
    for message in &messages {
        assert!(Phone::stored(&message.phone).is_some(), "{}", message.phone);
        assert_eq!(content::check(&message.content), Ok(()));
        assert!(message.segments > 0);
        check_params(&message.params);
    }
    let read = Read {
        rows: messages.len(),
        rejected: rejected.len(),
        header: header.map_or(0, |(_, line)| line.parse().expect("a line")),
        has_keys: interpretation.format.starts_with("JSON"),
    };
    Ok((read, kept))
}

/// Every line of a simple list is a row.
fn check_complete(bytes: &[u8], options: &Options, read: Read) {
    let is_simple = options.encoding.is_none() && bytes.is_ascii() && !bytes.contains(&b'"');
    if !is_simple || bytes.iter().any(|byte| [0, 0x1b, b'\r'].contains(byte)) || read.has_keys {
        return;
    }
    let text = lossy(bytes);
    let lines = (1..).zip(text.split('\n')).filter(|(_, line)| !line.is_empty());
    let is_mark = |(number, line): &(u64, &str)| {
        *number == 1 && line.to_ascii_lowercase().starts_with("sep=")
    };
    let after_header = lines.filter(|line| line.0 > read.header && !is_mark(line));
    assert_eq!(after_header.count(), read.rows + read.rejected, "{text:?}");
}

/// The file of rejected rows can be imported: none is lost.
fn check_rejects(kept: PathBuf, options: &Options, rejected: usize) {
    let again =
        Options { file: kept.clone(), name: None, encoding: options.encoding, ..options.clone() };
    let read = read(again, false);
    let text = std::fs::read(&kept).expect("the file");
    std::fs::remove_file(kept).expect("the file");
    match read {
        Ok((read, _)) => assert_eq!(read.rows + read.rejected, rejected, "{}", lossy(&text)),
        // Rows that could not be decoded are kept as they were. Where most are, the encoding is to be named.
        Err(error) if error.contains("mixes encodings") => {}
        Err(error) => panic!("{error}: {}", lossy(&text)),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packed.write_all(bytes).expect("packs");
    packed.finish().expect("packs")
}

fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in parts {
        archive.start_file(*name, stored).expect("a part");
        archive.write_all(bytes).expect("packs");
    }
    archive.finish().expect("packs").into_inner()
}

/// A workbook with these rows of its only sheet.
fn workbook(rows: &[u8]) -> Vec<u8> {
    let office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let package = "http://schemas.openxmlformats.org/package/2006";
    let main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    let relation = |kind: &str, target: &str| {
        format!(
            "<Relationships xmlns=\"{package}/relationships\"><Relationship Id=\"r1\" Type=\"{office}/{kind}\" Target=\"{target}\"/></Relationships>"
        )
    };
    let types = format!("<Types xmlns=\"{package}/content-types\"/>");
    let book = format!(
        "<workbook xmlns=\"{main}\" xmlns:r=\"{office}\"><sheets><sheet name=\"A\" sheetId=\"1\" r:id=\"r1\"/></sheets></workbook>"
    );
    let head = format!("<worksheet xmlns=\"{main}\"><sheetData>");
    let sheet = [head.as_bytes(), rows, b"</sheetData></worksheet>"].concat();
    zip(&[
        ("[Content_Types].xml", types.as_bytes()),
        ("_rels/.rels", relation("officeDocument", "xl/workbook.xml").as_bytes()),
        ("xl/workbook.xml", book.as_bytes()),
        ("xl/_rels/workbook.xml.rels", relation("worksheet", "worksheets/sheet1.xml").as_bytes()),
        ("xl/worksheets/sheet1.xml", &sheet),
    ])
}
