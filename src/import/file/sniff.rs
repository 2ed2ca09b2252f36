//! Recognizes from the first bytes of a file that it is not text.

use crate::encoding::Encoding;

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
