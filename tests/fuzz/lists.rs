//! Lists of every kind, and what holds of each however it was bent: the reader ends, says one sentence or
//! accounts for every row.

use std::io::{Cursor, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use smsq_import::{KeptRows, Options, Plan, Preview, SeenKeys, TextSource};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::Target;
use crate::mutation::Random;

const CSV: &str = "phone,name,city\n+447400123456,Ann,\"Bath, UK\"\n07400 123457,\"Zo\"\"ë\",Ulm\n1.38E+10,Cai,\n";
const CHINESE: &str = "手机号;姓名\n13800138000;王小明\n13800138001;李秀英\n";
const OBJECTS: &str =
    "{\"phone\":\"+447400123456\",\"name\":\"Ann\"}\n{\"phone\":7400123457,\"name\":null}\n";
const NAMES: [&str; 6] = ["list.csv", "list.csv.gz", "list.zip", "list.xlsx", "list.jsonl", "list"];

/// What lists are made of, and what they should not be.
const TOKENS: [&[u8]; 26] = [
    b"\"",
    b"\"\"",
    b",",
    b";",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\x81",
    b"\xe4\xbd",
    b"phone",
    b"+447400123456",
    b"1.38E+10",
    b"smsq_id",
    b"sep=",
    b"{",
    b"}",
    b"{\"phone\":",
    b"[",
    b"\x1b$B",
    b"PK\x03\x04",
    b"\x1f\x8b",
];

/// The reader of lists.
pub(crate) struct Lists {
    runtime: Runtime,
    folder: TempDir,
}

impl Lists {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            runtime: runtime.expect("a runtime"),
            folder: tempfile::tempdir().expect("a scratch folder"),
        }
    }
}

impl Target for Lists {
    const NAME: &'static str = "lists";
    const INPUTS: u64 = 3_000;
    /// The name of a file, and its bytes.
    type Input = (&'static str, Vec<u8>);

    fn input(&mut self, random: &mut Random) -> Self::Input {
        any(random)
    }

    fn bytes((name, bytes): &Self::Input) -> (&[u8], &str) {
        (bytes, name)
    }

    fn check(&mut self, (name, bytes): &Self::Input, random: &mut Random) -> Result<(), String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        check(&path, &self.runtime, random)
    }
}

/// A list, more or less.
fn any(random: &mut Random) -> (&'static str, Vec<u8>) {
    let text = *random.pick(&[CSV, CHINESE, OBJECTS]);
    let mut bytes = match random.below(6) {
        0 => {
            let (bytes, _, _) = encoding_rs::GB18030.encode(text);
            bytes.into_owned()
        }
        1 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        2 => {
            let other = *random.pick(&[
                encoding_rs::WINDOWS_1252,
                encoding_rs::SHIFT_JIS,
                encoding_rs::BIG5,
            ]);
            [text.as_bytes(), &other.encode(text).0].concat()
        }
        _ => text.as_bytes().to_vec(),
    };
    random.bend(&mut bytes, &TOKENS);
    match random.below(8) {
        0 => {
            bytes = gzip(&bytes);
            random.bend(&mut bytes, &TOKENS);
        }
        1 => {
            bytes = zip(&[("list.csv", &bytes)]);
            random.bend(&mut bytes, &TOKENS);
        }
        2 => bytes = workbook(&bytes, random),
        _ => {}
    }
    let name: &&str = random.pick(&NAMES);
    (*name, bytes)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("packs");
    packed.finish().expect("packs")
}

fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).expect("a part");
        archive.write_all(bytes).expect("packs");
    }
    archive.finish().expect("packs").into_inner()
}

/// A workbook whose sheet is bent before it is packed, so that the changes get behind the archive.
fn workbook(text: &[u8], random: &mut Random) -> Vec<u8> {
    let types = br#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#;
    let root = br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;
    let book = br#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="A" sheetId="1" r:id="r1"/></sheets></workbook>"#;
    let relations = br#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#;
    let text = String::from_utf8_lossy(text).replace(['<', '&', '\0'], "");
    let mut sheet = br#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>"#.to_vec();
    for (row, line) in (1..).zip(text.lines().take(20)) {
        sheet.extend_from_slice(
            format!("<row r=\"{row}\" hidden=\"{}\">", u8::from(row == 3)).as_bytes(),
        );
        for (column, cell) in ('A'..='Z').zip(line.split([',', ';'])) {
            sheet.extend_from_slice(format!("<c r=\"{column}{row}\" t=\"inlineStr\"><is><t>{cell}</t></is></c><c><v>{row}3800138000</v></c>").as_bytes());
        }
        sheet.extend_from_slice(b"</row>");
    }
    sheet.extend_from_slice(b"</sheetData></worksheet>");
    random.bend(&mut sheet, &TOKENS);
    zip(&[
        ("[Content_Types].xml", types),
        ("_rels/.rels", root),
        ("xl/workbook.xml", book),
        ("xl/_rels/workbook.xml.rels", relations),
        ("xl/worksheets/sheet1.xml", &sheet),
    ])
}

/// Reads the list to its end.
fn check(path: &Path, runtime: &Runtime, random: &mut Random) -> Result<(), String> {
    let options = Options {
        file: path.to_owned(),
        text: TextSource::Text((*random.pick(&["Hi", "Hi {{ name }}", "“{{ _1 }}”"])).to_owned()),
        dialling: smsq_message::phone::Dialling::from("GB".parse().ok()),
        encoding: random.pick(&["", "", "", "gb18030", "utf-16", "iso-2022-jp"]).parse().ok(),
        smart: random.below(2) == 0,
        rejects: Some(path.with_extension("rejects")),
        ..Options::default()
    };
    let looked = catch_unwind(AssertUnwindSafe(|| {
        let plan = Plan::prepare(options)?;
        let _ = plan.interpretation();
        runtime.block_on(plan.preview(
            &mut SeenKeys::default(),
            KeptRows { max_samples: usize::MAX, rejects_file: false },
            None,
            &|_| None,
            |_| {},
        ))
    }));
    match looked.map_err(|_| "it panics".to_owned())? {
        Ok(preview) => account(&preview),
        Err(error) if error.to_string().contains('\n') => {
            Err(format!("more than one sentence: {error}"))
        }
        Err(_) => Ok(()),
    }
}

fn account(preview: &Preview) -> Result<(), String> {
    let classified = preview.summary.accepted
        + preview.summary.duplicates
        + preview.summary.suppressed
        + preview.summary.rejected;
    if preview.summary.rows != classified {
        return Err(format!("{} rows, but {classified} are classified", preview.summary.rows));
    }
    let counted: u64 = preview.summary.reasons.values().sum();
    if counted != preview.summary.rejected
        || preview.rejects.len() as u64 != preview.summary.rejected
    {
        return Err(format!("{} rejected, but {counted} have a reason", preview.summary.rejected));
    }
    let mut lines: Vec<u64> = preview.rejects.iter().map(|(line, _)| *line).collect();
    let is_ascending = lines.is_sorted();
    lines.extend(preview.stats.samples.iter().filter_map(|sample| sample.line));
    lines.sort_unstable();
    let count = lines.len();
    lines.dedup();
    if !is_ascending || lines.len() != count {
        return Err("a line is listed twice or out of order".to_owned());
    }
    let is_sound = |text: &str| !text.contains('\0') && !text.trim().is_empty();
    if preview
        .stats
        .samples
        .iter()
        .any(|sample| !is_sound(&sample.content) || !sample.phone.starts_with('+'))
    {
        return Err("a message that cannot be sent".to_owned());
    }
    Ok(())
}
