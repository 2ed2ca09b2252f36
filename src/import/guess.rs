//! What the first bytes of a file say: that it is no text, or what is between its fields.

use super::encoding::Encoding;
use super::words;

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Says what a file is that is not text.
pub(super) fn binary(head: &[u8], asked: Option<Encoding>) -> Option<&'static str> {
    let known: [(&[u8], &str); 5] = [
        (b"%PDF", "it is a PDF"),
        (b"SQLite format 3\0", "it is a database"),
        (b"\x89PNG", "it is a picture"),
        (b"\x7fELF", "it is a program"),
        (b"Rar!", "it is an archive of a kind that is not read here"),
    ];
    if let Some((_, what)) = known.into_iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if is_utf32(head) {
        return Some("it is in UTF-32");
    }
    if asked.is_some()
        || Encoding::of_mark(head).is_some()
        || Encoding::wide_by_nuls(head).is_some()
    {
        return None;
    }
    let control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    let controls = head.iter().filter(control).count();
    let first_line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    (first_line.contains(&0) || controls * 10 > head.len())
        .then_some("it holds bytes that no text has")
}

/// By its byte order mark, or by the three NULs of each ASCII character.
fn is_utf32(head: &[u8]) -> bool {
    let (units, _) = head.as_chunks::<4>();
    let ascii = |unit: &&[u8; 4]| matches!(unit, [1..=0x7f, 0, 0, 0] | [0, 0, 0, 1..=0x7f]);
    head.starts_with(b"\xff\xfe\0\0")
        || head.starts_with(b"\0\0\xfe\xff")
        || units.len() > 2 && units.iter().filter(ascii).count() * 4 > units.len() * 3
}

/// A first line `sep=;`, which spreadsheets write and read.
pub(super) fn declared_delimiter(line: &[u8]) -> Option<u8> {
    let line = line.trim_ascii_end();
    match line
        .strip_prefix(b"sep=")
        .or_else(|| line.strip_prefix(b"SEP="))?
    {
        [delimiter] => Some(*delimiter),
        [] => Some(b'\t'),
        _ => None,
    }
}

/// The delimiter that the first line has most of, outside of quotes; where it has none, the one that the
/// lines after it have most of, because a title may stand above the header.
pub(super) fn likely_delimiter(head: &[u8], first_line: usize) -> u8 {
    let (first, rest) = head.split_at(first_line);
    let is_title = || !words::is_phone(&String::from_utf8_lossy(first));
    most_of(first)
        .or_else(|| most_of(rest).filter(|_| is_title()))
        .unwrap_or(b',')
}

fn most_of(text: &[u8]) -> Option<u8> {
    let mut counts = [0; DELIMITERS.len()];
    let mut quoted = false;
    for byte in text {
        match DELIMITERS.iter().position(|delimiter| delimiter == byte) {
            Some(which) if !quoted => counts[which] += 1,
            _ if *byte == b'"' => quoted = !quoted,
            _ => {}
        }
    }
    let most = counts.iter().max().copied().filter(|&most| most > 0)?;
    let which = counts.iter().position(|&count| count == most)?;
    Some(DELIMITERS[which])
}
