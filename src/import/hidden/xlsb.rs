//! Hidden rows of XLSB: flag `fDyZero` of record `BrtRowHdr`. A part is a stream of records, each of them a
//! type and a length of a few bytes with seven bits each, and that many bytes. [MS-XLSB] 2.3, 2.4.

use std::io::{Read, Seek};
use std::ops::RangeInclusive;

use zip::ZipArchive;

use super::{Hidden, target};

const SHEET: u32 = 156;
const ROW: u32 = 0;
const HIDDEN: u8 = 0x10;
/// Cells without their column, and with rich text: the library passes over them in silence.
const UNREAD: [RangeInclusive<u32>; 2] = [12..=18, 62..=62];

/// `None` where a cell would be lost, or where the part of the sheet is not found.
pub(super) fn rows(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Hidden> {
    let book = part(archive, "xl/workbook.bin")?;
    let id = records(&book)
        .filter(|(kind, _)| *kind == SHEET)
        .find_map(|(_, data)| {
            let (id, rest) = text(data.get(8..)?)?;
            let (name, _) = text(rest)?;
            (name == sheet).then_some(id)
        })?;
    let path = target(archive, "xl/_rels/workbook.bin.rels", &id)?;
    let cells = part(archive, &path)?;
    let mut hidden = Hidden::default();
    for (kind, data) in records(&cells) {
        if UNREAD.iter().any(|unread| unread.contains(&kind)) {
            return None;
        }
        let (Some(row), Some(flags)) = (data.first_chunk(), data.get(11)) else {
            continue;
        };
        if kind == ROW && flags & HIDDEN != 0 {
            let row = u32::from_le_bytes(*row);
            hidden.hide(row..row.saturating_add(1));
        }
    }
    Some(hidden)
}

/// The caller has seen that no part is larger than what may be held.
fn part(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = archive.by_name(name).ok()?;
    part.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let kind = number(&mut bytes, 2)?;
        let length = number(&mut bytes, 4)?;
        let (data, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        bytes = rest;
        Some((kind, data))
    })
}

/// Seven bits of each byte, the lowest first; the eighth says that there is one more.
fn number(bytes: &mut &[u8], longest: u32) -> Option<u32> {
    let mut number = 0;
    for place in 0..longest {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// A length in characters of two bytes, and those.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (wide, rest) = rest.split_at_checked(length.checked_mul(2)?)?;
    let pairs = wide.chunks_exact(2);
    let units: Vec<u16> = pairs
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    Some((String::from_utf16(&units).ok()?, rest))
}
