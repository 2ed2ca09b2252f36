//! Recognizes from the first bytes of a file that it is not text, and the delimiter of its fields.

use crate::import::columns::is_phone;
use crate::import::encoding::Encoding;

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Says what the file is if it is not text: `is a PDF`.
pub(super) fn binary(head: &[u8], encoding: Option<Encoding>) -> Option<&'static str> {
    let known: [(&[u8], &str); 5] = [
        (b"%PDF", "is a PDF"),
        (b"SQLite format 3\0", "is a database"),
        (b"\x89PNG", "is a picture"),
        (b"\x7fELF", "is a program"),
        (b"Rar!", "is an archive of an unsupported kind"),
    ];
    if let Some((_, what)) = known.into_iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if is_utf32(head) {
        return Some("is in UTF-32");
    }
    let is_utf16 = || Encoding::utf16_by_nuls(head).is_some();
    if encoding.is_some() || Encoding::of_mark(head).is_some() || is_utf16() {
        return None;
    }
    let control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    let controls = head.iter().filter(control).count();
    let first_line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    (first_line.contains(&0) || controls * 10 > head.len()).then_some("contains binary data")
}

/// Recognizes the byte order mark, or the three NULs of each ASCII character.
fn is_utf32(head: &[u8]) -> bool {
    let (units, _) = head.as_chunks::<4>();
    let ascii = |unit: &&[u8; 4]| matches!(unit, [1..=0x7f, 0, 0, 0] | [0, 0, 0, 1..=0x7f]);
    head.starts_with(b"\xff\xfe\0\0")
        || head.starts_with(b"\0\0\xfe\xff")
        || units.len() > 2 && units.iter().filter(ascii).count() * 4 > units.len() * 3
}

/// Reads a first line `sep=;`, which spreadsheets write.
pub(super) fn declared_delimiter(line: &[u8]) -> Option<u8> {
    let line = line.trim_ascii_end();
    let value = line.strip_prefix(b"sep=");
    match value.or_else(|| line.strip_prefix(b"SEP="))? {
        [delimiter] => Some(*delimiter),
        [] => Some(b'\t'),
        _ => None,
    }
}

/// Returns the most frequent delimiter of the first line, or of the other lines if the first is a title
/// without any.
pub(super) fn likely_delimiter(head: &[u8], first_line: usize) -> u8 {
    let (first, rest) = head.split_at(first_line);
    let is_title = || !is_phone(&String::from_utf8_lossy(first));
    most_frequent(first)
        .or_else(|| most_frequent(rest).filter(|_| is_title()))
        .unwrap_or(b',')
}

/// Counts delimiters outside quotes.
fn most_frequent(text: &[u8]) -> Option<u8> {
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
